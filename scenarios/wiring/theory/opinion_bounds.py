"""Theory of a finished run with slots: Theorems 1 and 3 of Tong et al. 2024, or why neither applies."""

from __future__ import annotations

import math
from typing import Any

from models.theory.opinion_regret import gaps, theorem1_upper, theorem3_upper
from netsim.core.protocols import Notes
from scenarios.schema.scenario import Scenario
from scenarios.wiring.theory.interference import channels_lose, interference

LEAST_MU = math.sqrt(2.0)
"""Least `policy.mu` for which the theorems hold."""
THEOREMS = {"quick-init-ucb": 1, "bp-index": 3}
"""Number of the theorem on a policy, by its kind."""


def bound_notes(server: Any, scenario: Scenario) -> Notes:
    """Return `bound` and `no_bound` of a summary: a bound on the expected regret of the slots run, or the reason against it.

    Both are None for policies without a theorem, and with a learner, whose expected opinions are unknown.
    """
    policy, opinions = scenario.policy, scenario.opinions
    no_theorem = {"bound": None, "no_bound": None}
    if policy is None or opinions is None or opinions.synthetic is None:
        return no_theorem
    theorem = THEOREMS.get(policy.kind)
    if theorem is None:
        return no_theorem
    unmet = _unmet(server, scenario)
    if unmet is not None:
        return {"bound": None, "no_bound": f"Theorem {theorem} says nothing of this run: {unmet}"}
    per_round, values = scenario.server.per_round, server.learner.values()
    assert values is not None  # `_unmet` has refused None
    smallest, largest = gaps(values, per_round)
    constants = {"gap_min": smallest, "gap_max": largest, "mu": policy.mu}
    if theorem == 1:
        value = theorem1_upper(server.round, arms=math.comb(len(values), per_round), **constants)
    else:
        value = theorem3_upper(server.round, clients=len(values), **constants)
    bound = {"theorem": theorem, "expected_regret_at_most": float(value), "gap_min": smallest, "gap_max": largest}
    return {"bound": bound, "no_bound": None}


def _unmet(server: Any, scenario: Scenario) -> str | None:
    """Return the first condition of the theorem that the run does not meet, as text; None if it meets all."""
    policy: Any = scenario.policy
    rules, slots, opinions = scenario.server, scenario.slots, scenario.opinions
    assert slots is not None
    assert opinions is not None  # servers with slots have both sections
    values = server.learner.values()
    if not server.round:
        return "no slot was run"
    if values is None:
        return "opinions.synthetic.memory > 0, so that a slot's reward is not that of its own set alone"
    try:
        gaps(values, rules.per_round)
    except ValueError:
        return "all sets of clients are equally good"
    if policy.mu < LEAST_MU:
        return f"policy.mu = {policy.mu} is less than {LEAST_MU:.4f}: the width of the index is less than sqrt(2 ln t / n)"
    if scenario.downlink.channel.kind != "perfect" or scenario.uplink.channel.kind != "perfect" or channels_lose(scenario):
        return "models or updates may be lost, so that the sets trained are not those selected"
    if rules.deadline_s is not None:
        return f"server.deadline_s = {rules.deadline_s} leaves clients out of the sets that were selected"
    if scenario.availability.kind != "always" or scenario.outages:
        return "clients may be away, so that the sets trained are not those selected"
    obstacle = interference(scenario)
    if obstacle is not None:
        return obstacle
    if scenario.privacy is not None:
        return "privacy budgets run out, and clients with them"
    if scenario.time_limit_s is not None:
        return "time_limit_s, not a number of slots that is given beforehand, ends the run"
    if policy.kind != "bp-index":
        if opinions.wait_s is not None or opinions.channel.kind != "perfect":
            return "opinions may be lost or left out (opinions.channel, opinions.wait_s)"
        return None
    # The rest is of "bp-index", by which clients decide among themselves.
    if slots.deadline_s is not None:
        return f"slots.deadline_s = {slots.deadline_s} may start training before all clients name the same ones"
    if not policy.cold_start:
        return "policy.cold_start = false: the proof has every client tested once before the first choice"
    constant = server.consensus.convergence_constant
    if not constant < 1.0:
        return f"the condition for one fixed point of the beliefs (Theorem 2) fails: {constant:.3g} is not below 1"
    return None
