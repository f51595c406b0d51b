"""Releases of the clients in a run, and their protection in words."""

from models.privacy import guarantee
from scenarios.registry.arguments import argument_names
from scenarios.registry.kinds import is_own, resolve
from scenarios.schema.scenario import Scenario


def also_released(scenario: Scenario) -> list[str]:
    """Return what clients release beside their updates, in words; no mechanism protects it. Empty without a learner."""
    learner = scenario.learner
    if learner is None or scenario.server.trains_peers:
        return []
    releases = []
    kind = learner.aggregation.kind
    by_size = kind in ("size", "fednova", "port") or (kind == "fixed-share" and learner.aggregation.by == "size")
    receivers = []
    # A user's aggregation receives the numbers of samples, and may use them.
    if by_size or is_own("aggregation", kind):
        receivers.append("the weights of the aggregation")
    if scenario.policy is not None and "data_sizes" in argument_names(resolve("policy", scenario.policy.kind)):
        receivers.append("the policy")
    if receivers:
        releases.append(f"how many samples each client holds (for {' and '.join(receivers)})")
    if learner.aggregation.demands.loss != "none":
        releases.append("each delivered update's loss (for the weights of the aggregation)")
    if learner.contribution_samples:
        releases.append("in which proportions each client holds the labels (for validation samples to measure contributions on)")
    if not scenario.server.slotted and scenario.policy is not None and resolve("policy", scenario.policy.kind).needs_losses:
        releases.append("each delivered update's losses in training (for the policy)")
    if scenario.probes:
        releases.append("the loss of the model on the samples of each client that is asked (for the policy)")
    if scenario.server.slotted:
        releases.append("each client's opinion in every slot: the accuracy of the model on its local test set")
    return releases


def guarantee_in_words(scenario: Scenario, leak: float, numbers: int | None, unprotected: int, together: str = "") -> str | None:
    """Return the guarantee for the client with the largest leak, and its exceptions, as text; None without `[privacy]`.

    `leak`: sum of the budgets (epsilon) that this client has spent. `numbers`: numbers in an update, None without training;
    `unprotected` of them are sent without protection. `together`: a sentence on all its releases by another accountant than the
    sum, or empty.
    """
    privacy = scenario.privacy
    if privacy is None:
        return None
    if numbers is None:
        return f"Nothing is trained, so nothing is released: the leak is what releases would have spent.{together}"
    if privacy.mode == "none":
        return guarantee(mode="none", leak=leak, dimensions=numbers)
    dimensions = numbers - unprotected
    text = guarantee(mode=privacy.mode, leak=leak, dimensions=dimensions, delta=privacy.delta, unprotected=unprotected)
    text += together
    also = also_released(scenario)
    if also:
        text += f" Not protected beside updates: {'; '.join(also)}."
    return text
