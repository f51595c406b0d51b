"""Warnings of keys that have no effect beside others."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from scenarios.registry.arguments import argument_names
from scenarios.registry.kinds import resolve
from scenarios.schema.cautions import Caution
from scenarios.schema.scenario import Scenario
from scenarios.schema.world import Downlink
from scenarios.wiring.cautions.outlook import Outlook


def privacy_weight(outlook: Outlook) -> Iterator[Caution]:
    """Warn of a policy that weighs privacy if no privacy is ever lost: the term is then the same for all clients at all times."""
    privacy, policy = outlook.scenario.privacy, outlook.scenario.policy
    if policy is None or (privacy is not None and privacy.mechanism != "none"):
        return
    gamma = policy.parameters().get("gamma")
    if not gamma or "schedule" not in argument_names(resolve("policy", policy.kind)):
        return
    reason = "there is no [privacy]" if privacy is None else 'privacy.mechanism is "none"'
    text = f"policy.gamma = {gamma!r}: weighs privacy, and {reason}, so that none is ever lost"
    yield Caution("gamma-without-privacy", f"{text}; describe the mechanism in [privacy], or set gamma = 0")


def late_clients(outlook: Outlook) -> Iterator[Caution]:
    """Warn of keys about late clients where no client is late, and about the length of a round that has another length."""
    scenario = outlook.scenario
    if scenario.server.own:
        return
    keys = scenario.server.parameters()
    closes = " or ".join(name for name in ("deadline_s", "first") if name in keys)
    if keys.get("deadline_s") is None and keys.get("first") is None:
        for name, value in (("stragglers", "cancel"), ("reselect_busy", True)):
            if keys.get(name) == value:
                reason = f"has no effect, as a round waits for all its updates; give {closes}, or leave it out"
                yield Caution("without-effect", f"server.{name} = {value!r}: {reason}")
    if keys.get("wait_for_compute") and keys["round_s"] is not None:
        reason = f"has no effect, as server.round_s = {keys['round_s']!r} is the length of a round; leave one of them out"
        yield Caution("without-effect", f"server.wait_for_compute = True: {reason}")


def resends_in_vain(outlook: Outlook) -> Iterator[Caution]:
    """Warn of pauses before sendings that do not occur, and of sendings that meet the fate of the first."""
    scenario = outlook.scenario
    links = {"downlink": scenario.downlink, "uplink": scenario.uplink}
    if scenario.edges is not None:
        links |= {"edges.downlink": scenario.edges.downlink, "edges.uplink": scenario.edges.uplink}
    for path, link in links.items():
        if link.resend_after_s and not link.max_resends:
            reason = "has no effect, as nothing is sent again; give max_resends, or leave it out"
            yield Caution("without-effect", f"{path}.resend_after_s = {link.resend_after_s!r}: {reason}")
    # The ways of edges may have a number for each edge, which the population of the clients cannot tell.
    for path, link in (("downlink", scenario.downlink), ("uplink", scenario.uplink)):
        if link.max_resends and _is_lossless(outlook, path, link):
            reason = f"has no effect, as nothing is lost on this link; give {path}.channel, or leave it out"
            yield Caution("without-effect", f"{path}.max_resends = {link.max_resends}: {reason}")
    uplink = scenario.uplink
    if scenario.channels is not None and uplink.max_resends:
        reason = "a sub-channel keeps its state for a round, so that what is lost on it is lost again; leave it out"
        yield Caution("resends-in-vain", f"uplink.max_resends = {uplink.max_resends}: {reason}")


def _is_lossless(outlook: Outlook, path: str, link: Downlink) -> bool:
    """Return True if no message over `link`, at `path` of the scenario, can be lost."""
    scenario, channel = outlook.scenario, link.channel
    other_causes = (
        *(scenario.outages, scenario.script, scenario.network, scenario.jammers_of(path), outlook.stops),
        *(link.changes, link.random_changes, path == "uplink" and scenario.channels),
    )
    if any(other_causes):
        return False
    # A class of the user's own may have a parameter `success` of another meaning, so the kind counts.
    if channel.kind == "bernoulli":
        return bool(np.min(outlook.population.values(channel.success, f"{path}.channel")) >= 1)
    return bool(channel.kind == "perfect")


def epochs_beside_steps(outlook: Outlook) -> Iterator[Caution]:
    """Warn of amounts of work if the server sets the steps of an update."""
    scenario = outlook.scenario
    work, learner = scenario.work, scenario.learner
    servers = scenario.servers_of_clients
    if not all(server.gives_steps for server in servers.values()):
        return
    path, server = next(iter(servers.items()))
    key = ".".join(map(str, path))
    reason = f"has no effect, as {key}.kind = {server.kind!r} says how many steps an update has; leave it out"
    if work is not None:
        # If the samples of clients are unknown, the planned steps determine the work of an update.
        held = learner is not None or scenario.clients.data_sizes is not None
        planned = {"epochs": work.epochs, "steps": work.steps if held else None, "partial_share": work.partial_share or None}
        for name, amount in planned.items():
            if amount is not None:
                yield Caution("without-effect", f"work.{name}: {reason}")
    for name, amount in changed_learner_keys(scenario, ("epochs", "max_steps")).items():
        yield Caution("without-effect", f"learner.{name} = {amount!r}: {reason}")


def learner_beside_work(outlook: Outlook) -> Iterator[Caution]:
    """Warn of amounts of work in `[learner]` that `[work]` replaces."""
    scenario = outlook.scenario
    if scenario.work is None or all(server.gives_steps for server in scenario.servers_of_clients.values()):
        return
    work = scenario.work
    # Key of [learner] -> key of [work] that replaces it.
    replaced = {}
    if work.epochs is not None:
        replaced["epochs"] = "epochs"
    elif work.steps is not None:
        replaced["epochs"] = "steps"
    if work.batch_size is not None:
        replaced["batch_size"] = "batch_size"
    for name, amount in changed_learner_keys(scenario, tuple(replaced)).items():
        reason = f"has no effect, as work.{replaced[name]} is given; leave one of them out"
        yield Caution("without-effect", f"learner.{name} = {amount!r}: {reason}")


def changed_learner_keys(scenario: Scenario, names: tuple[str, ...]) -> dict[str, object]:
    """Return the keys of `[learner]` among `names` whose value is not the default, with their values."""
    learner = scenario.learner
    if learner is None:
        return {}
    values = {name: getattr(learner, name) for name in names}
    return {name: value for name, value in values.items() if value != type(learner).model_fields[name].default}
