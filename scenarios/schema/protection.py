"""Releases of the clients in a run, and their protection in words."""


from models.privacy import guarantee
from scenarios.registry.arguments import argument_names
from scenarios.registry.kinds import is_own, resolve
from scenarios.schema.scenario import Scenario


def also_released(scenario: Scenario) -> list[str]:
    """Return the releases of clients beside their updates, which no mechanism protects; empty without a learner."""
    learner = scenario.learner
    if learner is None or scenario.server.trains_peers:
        return []
    names = []
    # A user's aggregation receives them, and may use them.
    kind = learner.aggregation.kind
    by_size = kind in ("size", "fednova", "port") or (kind == "fixed-share" and learner.aggregation.by == "size")
    by_size = by_size or is_own("aggregation", kind)
    to = ["the weights of the aggregation"] if by_size else []
    if scenario.policy is not None and "data_sizes" in argument_names(resolve("policy", scenario.policy.kind)):
        to.append("the policy")
    if to:
        names.append(f"how many samples each client holds (for {' and '.join(to)})")
    if learner.aggregation.demands.loss != "none":
        names.append("each delivered update's loss (for the weights of the aggregation)")
    if learner.contribution_samples:
        names.append("in which proportions each client holds the labels (for validation samples to measure contributions on)")
    if not scenario.server.slotted and scenario.policy is not None and resolve("policy", scenario.policy.kind).needs_losses:
        names.append("each delivered update's losses in training (for the policy)")
    if scenario.probes:
        names.append("the loss of the model on the samples of each client that is asked (for the policy)")
    if scenario.server.slotted:
        names.append("each client's opinion in every slot: the accuracy of the model on its local test set")
    return names


def guarantee_in_words(scenario: Scenario, leak: float, numbers: int | None, unprotected: int, together: str = "") -> str | None:
    """Return the guarantee for the client with the largest leak, and its exceptions, as text; None without `[privacy]`.

    `numbers`: numbers in an update, None without training; `unprotected` of them are sent without protection. `together`: a
    sentence on all releases, by another accountant than the sum.
    """
    privacy = scenario.privacy
    if privacy is None:
        return None
    if numbers is None:
        return f"Nothing is trained, so nothing is released: the leak is what releases would have spent.{together}"
    if privacy.mode == "none":
        return guarantee(mode="none", leak=leak, dimensions=numbers)
    text = guarantee(mode=privacy.mode, leak=leak, dimensions=numbers - unprotected, delta=privacy.delta, unprotected=unprotected)
    text += together
    also = also_released(scenario)
    return f"{text} Not protected beside updates: {'; '.join(also)}." if also else text
