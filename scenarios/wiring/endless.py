"""Checks for durations that differ so much that a run would never end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from netsim.core.protocols import DelayLaw, Timeline
from scenarios.registry.components import ByGroup
from scenarios.schema.errors import UserError
from scenarios.schema.scenario import Scenario
from scenarios.schema.world import SharedLink, VaryingLink
from scenarios.wiring.cautions.outlook import HasLaws

MOST_CHANGES = 10**6
"""Largest number of changes in one phase of an update. They take about ten seconds and a hundred megabytes."""


class _Change(NamedTuple):
    """Repeated change of the world, such as the steps of a bandwidth."""

    key: str
    value: object
    each_s: float
    """Mean time between two changes."""
    plural: str
    """Name of the changes in messages, such as "outages"."""


def refuse_endless(scenario: Scenario, timelines: Iterable[HasLaws], carried: Iterable[Timeline[DelayLaw]], clients: int) -> None:
    """Raise UserError if a single phase spans more changes of the world than can be simulated.

    `timelines`: laws of the durations of phases. `carried`: laws of the times of bytes over a bandwidth.
    """
    changes = [*_outages(scenario), *_dwells(scenario), *_steps(scenario), *_presence(scenario)]
    if not changes:
        return
    all_clients = np.arange(clients)
    longest_s = 0.0
    # One law at a time, not a list of them: a timeline makes its laws as they are asked for, and each may hold a number a client.
    for timeline in timelines:
        for law in timeline.laws:
            longest_s = max(longest_s, float(law.mean_s(all_clients).max()))
    for carried_timeline in carried:
        first_law, _ = carried_timeline.at(1, 0.0)
        longest_s = max(longest_s, float(first_law.mean_s(all_clients).max()))
    links = [scenario.downlink, scenario.uplink, scenario.opinions, scenario.peers]
    if scenario.edges is not None:
        links += [scenario.edges.downlink, scenario.edges.uplink]
    # Peers may send again without a limit: one pause at a time counts there.
    pauses_s = (link.resend_after_s * max(link.max_resends, 1) for link in links if link is not None)
    longest_s = max(longest_s, *pauses_s)
    # A round of fixed length ends in any case.
    if not scenario.server.own:
        longest_s = max(longest_s, scenario.server.parameters().get("round_s") or 0.0)
    if scenario.time_limit_s is not None:
        longest_s = min(longest_s, scenario.time_limit_s)
    for change in changes:
        if longest_s > MOST_CHANGES * change.each_s:
            problem = f"{longest_s / change.each_s:.2g} {change.plural} would pass in a phase of {longest_s:g} s"
            remedy = f"at most {MOST_CHANGES:,} may; give a longer time, or a shorter phase"
            raise UserError(f"{change.key} = {change.value!r}: {problem}, and {remedy}")


def _outages(scenario: Scenario) -> Iterator[_Change]:
    """Yield the outages that repeat."""
    for i, outage in enumerate(scenario.outages):
        if outage.mean_up_s is not None and outage.mean_down_s is not None:
            yield _Change(f"outages.{i}.mean_up_s", outage.mean_up_s, outage.mean_up_s + outage.mean_down_s, "outages")


def _presence(scenario: Scenario) -> Iterator[_Change]:
    """Yield the changes of presence of clients and chargers, if their mean times are numbers."""
    battery = None if scenario.energy is None else scenario.energy.battery
    charging = None if battery is None else battery.charging
    for path, law in (("availability", scenario.availability), ("energy.battery.charging", charging)):
        means = {} if law is None or law.kind != "markov" else law.parameters()
        on_s, off_s = means.get("mean_on_s"), means.get("mean_off_s")
        if isinstance(on_s, int | float) and isinstance(off_s, int | float):
            yield _Change(f"{path}.mean_on_s", on_s, on_s + off_s, "comings and goings")


def _dwells(scenario: Scenario) -> Iterator[_Change]:
    """Yield the dwells of jammers that last seconds."""
    for i, jammer in enumerate(scenario.jammers):
        if jammer.dwell_s is not None:
            yield _Change(f"jammers.{i}.dwell_s", jammer.dwell_s, jammer.dwell_s, "dwells")


def _steps(scenario: Scenario) -> Iterator[_Change]:
    """Yield a change for each law of bandwidth that moves in steps, with the mean length of its steps; also laws in groups."""
    links: dict[str, VaryingLink | SharedLink | None] = {
        "downlink": scenario.downlink,
        "downlink.shared": scenario.downlink.shared,
        "uplink": scenario.uplink,
        "uplink.shared": scenario.uplink.shared,
        "channels": scenario.channels,
        "opinions": scenario.opinions,
        "peers": scenario.peers,
    }
    for path, link in links.items():
        if link is None or link.bandwidth is None:
            continue
        laws = {f"{path}.bandwidth": link.bandwidth}
        if isinstance(link.bandwidth, ByGroup):
            laws = {f"{path}.bandwidth.groups.{name}": law for name, law in link.bandwidth.groups.items()}
        for key, law in laws.items():
            for name, value in law.parameters().items():
                # The law itself refuses values that are no numbers or times.
                if name in ("step_s", "mean_stay_s") and np.size(value) and np.mean(value) > 0:
                    yield _Change(f"{key}.{name}", value, float(np.mean(value)), "steps of the bandwidth")
