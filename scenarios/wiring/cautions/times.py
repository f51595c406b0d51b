"""Warnings of times: limits that are too short, changes that are never reached, and scenarios without durations."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from netsim.core.protocols import FloatArray
from scenarios.registry.kinds import is_own, resolve
from scenarios.schema.cautions import Caution
from scenarios.schema.scenario import Scenario
from scenarios.schema.world import SPEEDS
from scenarios.wiring.cautions.outlook import Outlook
from scenarios.wiring.changes import changes_after_end


def change_points(outlook: Outlook) -> Iterator[Caution]:
    """Warn of change points that lie behind the end of the run."""
    return (Caution("never-reached", note) for note in changes_after_end(outlook.scenario))


def no_time(outlook: Outlook) -> Iterator[Caution]:
    """Warn of a scenario in which no update takes any time and no round has a length."""
    scenario = outlook.scenario
    server = scenario.server
    # A check without the learner does not know the samples of updates, so a speed may take time.
    if scenario.learner is not None and any(getattr(scenario.compute, name) is not None for name in SPEEDS):
        return
    waits = scenario.availability.kind != "always" or scenario.energy is not None or scenario.probes or bool(scenario.outages)
    # A scheduler of sub-channels is judged by ages, which count rounds.
    if outlook.carries or scenario.scheduler is not None:
        return
    # Only the run shows how long a user's own server, a script or slots wait.
    if waits or server.own or server.slotted or scenario.script is not None or server.parameters().get("round_s") is not None:
        return
    if any(least_s.any() for least_s in (*outlook.least_s.values(), outlook.least_work_s)):
        return
    for timeline in (*outlook.delays.values(), *outlook.worked):
        if any(law.mean_s(outlook.everyone).any() for law in timeline.laws):
            return
    text = "downlink, compute and uplink: no update takes any time, so that every round ends as it begins and all times are 0"
    yield Caution("nothing-takes-time", f"{text}; give a delay, work with a speed, or bytes with a bandwidth")


def short_deadline(outlook: Outlook) -> Iterator[Caution]:
    """Warn of a time limit of rounds that no client, or no client of a group, can meet."""
    server = outlook.scenario.server
    limit_s = server.limit_s
    if limit_s is None or server.waits_past_limit or outlook.scenario.script is not None:
        return
    # An update that is cut off by the end of its round is sent again without a new download or training.
    needed_s = outlook.least_s["upload"] if server.limits == "transmission" else _least_update_s(outlook)

    def caution(members: str, updates: str, least_s: float) -> Caution:
        """Return the caution on `members`, in words. `updates`: what cannot be delivered, such as "nothing of it"."""
        least_text = f"the shortest possible {server.limits} of {members}, {least_s:.4g} s"
        text = f"server.{server.limit_key} = {limit_s!r}: is below {least_text}"
        return Caution("deadline-too-short", f"{text}; {updates} can ever be delivered; give more time than that")

    if needed_s.min() > limit_s:
        yield caution("any client", "nothing", float(needed_s.min()))
        return
    for name, members in outlook.population.members.items():
        least_s = float(needed_s[members].min())
        if least_s > limit_s:
            yield caution(f"group {name!r}", "nothing of it", least_s)


def short_time_limit(outlook: Outlook) -> Iterator[Caution]:
    """Warn of a run that ends before its first round can."""
    scenario = outlook.scenario
    limit_s = scenario.time_limit_s
    if limit_s is None or scenario.script is not None:
        return
    round_s = _shortest_round_s(scenario, np.sort(_least_update_s(outlook)), outlook.stops)
    if limit_s < round_s:
        text = f"time_limit_s = {limit_s!r}: is below the shortest possible round, {round_s:.4g} s"
        yield Caution("time-limit-too-short", f"{text}; no round can be completed, and the tables stay empty; give more time")


def _least_update_s(outlook: Outlook) -> FloatArray:
    """Return the least seconds (K,) that each client can take from selection to delivery."""
    scenario, least_s = outlook.scenario, outlook.least_s
    update_s = least_s["download"] + least_s["compute"] + least_s["upload"]
    # A policy of the user's own may ask for fewer steps than are planned, and partial work takes less time.
    partial = scenario.work is not None and scenario.work.partial_share > 0
    if partial or (scenario.policy is not None and is_own("policy", scenario.policy.kind)):
        return update_s
    return update_s + outlook.least_work_s


def _shortest_round_s(scenario: Scenario, update_s: FloatArray, stops: bool) -> float:
    """Return a time before which no round can end; 0 if none is known.

    `update_s`: the least duration of an update of each client, ascending. `stops`: True if a trace of bandwidth
    ends, which loses what is under way.
    """
    downlink = scenario.downlink
    lossy = downlink.channel.kind != "perfect" or any(change.channel for change in downlink.changes)
    # A round also ends when all its updates are lost or aborted: then its shortest duration is not sure.
    batteries = scenario.energy is not None and scenario.energy.battery is not None
    sure = not (lossy or stops or batteries or scenario.outages or scenario.availability.kind != "always")
    selects = scenario.policy is not None and not scenario.server.slotted
    fewest = 1 if selects and _may_select_fewer(scenario.method.kind) else None
    rounds = scenario.slots.rounds if scenario.slots is not None else 1
    shortest_s: float = scenario.server.shortest_round_s(update_s, sure=sure, fewest=fewest, rounds=rounds)
    return shortest_s


def _may_select_fewer(kind: str) -> bool:
    """Return True if a policy may select fewer clients than requested: a user's policy, or one with probes."""
    return is_own("policy", kind) or bool(resolve("policy", kind).probes)
