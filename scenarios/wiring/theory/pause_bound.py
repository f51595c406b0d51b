"""Bound on the regret of a finished run of PAUSE (Peleg et al., Theorem 3, eq. 16, 17), or the reason against it."""

from __future__ import annotations

from typing import Any

import numpy as np

from models.policies.protocols import FloatArray, Truth
from models.theory.regret import delta_max_bound, regret_bound, regret_bound_terms
from netsim.core.protocols import Notes
from scenarios.schema.scenario import Scenario
from scenarios.wiring.theory.interference import interference

_EXACT = ("pause", "pause-brute")
_C = 4.0
"""Factor of the bound. The theorem states 2, but its proof ends with 4; the larger one is safe."""


def pause_notes(truth: Truth, scenario: Scenario, rounds: int) -> Notes | None:
    """Return the entry `pause` of a summary: the genie of `regret`, and the bound on it after `rounds` rounds.

    `bound` holds for the mean over runs; a single run may exceed it. It is None if the run does not meet a condition of the
    theorem, which `no_bound` then names. The entry is None if PAUSE's reward is not measured.
    """
    reward: Any = scenario.metrics.reward
    if reward is None or reward.kind != "pause-reward":
        return None
    notes: Notes = {"genie_history": reward.history, "bound": None}
    unmet = _unmet_by_method(scenario, rounds) or _unmet_by_world(scenario)
    if unmet is not None:
        return notes | {"no_bound": f"Theorem 3 says nothing of this run: {unmet}"}
    mu = truth.mean_ratio(reward.tau_min_s, 1, 0.0)
    delta = float(np.diff(np.sort(mu)).min(initial=np.inf))
    if not 0.0 < delta < np.inf:
        return notes | {"no_bound": "Theorem 3 says nothing of this run: two clients are equally fast, so that delta = 0"}
    return notes | {"bound": _bound(mu, delta, scenario, rounds), "no_bound": None}


def _bound(mu: FloatArray, delta: float, scenario: Scenario, rounds: int) -> Notes:
    """Return the bound after `rounds` rounds with its constants."""
    reward: Any = scenario.metrics.reward
    arguments: Notes = {
        "clients": len(mu),
        "per_round": scenario.server.per_round,
        "delta_max": delta_max_bound(reward.alpha, reward.gamma, mu),
        "delta": delta,
        "c": _C,
    }
    constant, per_log_round = regret_bound_terms(**arguments)
    return {
        "theorem": 3,
        "expected_regret_at_most": regret_bound(rounds, **arguments),
        "constant": constant,
        "per_log_round": per_log_round,
        **{name: arguments[name] for name in ("delta", "delta_max", "c")},
    }


def _unmet_by_method(scenario: Scenario, rounds: int) -> str | None:
    """Return the first condition on policy and measurement that the run does not meet, as text; None if all hold."""
    policy, reward = scenario.method, scenario.metrics.reward
    assert reward is not None
    policy_keys, reward_keys = policy.parameters(), reward.parameters()
    if not rounds:
        return "no round was closed"
    if policy.kind not in _EXACT:
        return f"policy.kind = {policy.kind!r} is not PAUSE with its exact maximisation"
    if policy_keys["zeta"] != 1.0:
        return f"policy.zeta = {policy_keys['zeta']} is not 1"
    if policy_keys["detector"] is not None:
        return "policy.detector drops observations"
    for name in ("alpha", "beta", "gamma", "tau_min_s"):
        if policy_keys[name] != reward_keys[name]:
            return f"policy.{name} = {policy_keys[name]} is not metrics.reward.{name} = {reward_keys[name]}"
    if reward_keys["history"] != "shared":
        return "metrics.reward.history = 'own', and its proof compares with the genie on the policy's own history ('shared')"
    return None


def _unmet_by_world(scenario: Scenario) -> str | None:
    """Return the first condition on the network that the run does not meet, as text; None if all hold."""
    server, uplink = scenario.server, scenario.uplink
    links = {"downlink": scenario.downlink, "compute": scenario.compute, "uplink": uplink}
    if not server.waits_for_all or server.per_round > scenario.clients.count:
        return "server: it is about m of K clients in rounds of a synchronous server"
    for name, link in links.items():
        if link.changes or link.random_changes is not None:
            return f"{name}.changes: the laws of latency do not stay as they are"
    if server.deadline_s is not None or server.first is not None:
        return "server.deadline_s, server.first: latencies that are cut off are not observed"
    if scenario.downlink.channel.kind != "perfect" or uplink.channel.kind != "perfect" or scenario.outages:
        return "updates may be lost, and their latencies with them"
    shared = uplink.shared is not None or scenario.downlink.shared is not None
    if (uplink.sub_channels or server.per_round) < server.per_round or shared:
        return "uplink.sub_channels, uplink.shared, downlink.shared: latencies depend on who else is selected"
    if scenario.channels is not None:
        return "channels: latencies depend on the sub-channel assigned, which may lose updates"
    for name, link in (("downlink", scenario.downlink), ("uplink", uplink)):
        if link.bandwidth is not None:
            return f"{name}.bandwidth: latencies depend on the time"
    obstacle = interference(scenario)
    if obstacle is not None:
        return obstacle
    if scenario.availability.kind != "always":
        return f"availability.kind = {scenario.availability.kind!r}: not every set can be selected in every round"
    if scenario.privacy is not None and scenario.privacy.schedule.kind != "geometric":
        return "privacy.schedule: budgets may run out, and clients with them"
    if scenario.time_limit_s is not None:
        return "time_limit_s, not a number of rounds that is given beforehand, ends the run"
    return None
