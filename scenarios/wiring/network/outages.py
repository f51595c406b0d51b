"""Outages that hit many clients of a scenario together."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager

from models.laws.availability.presence import Markov
from models.laws.channels import GilbertElliott
from netsim.core.streams import Stream, Streams
from netsim.network.outages import (
    ClientOutage,
    ClientOutages,
    CutOffs,
    IntervalInRounds,
    IntervalInSeconds,
    MarkovInRounds,
    MarkovInSeconds,
    OutageSchedule,
)
from scenarios.registry.components import name_parameters, name_refusals
from scenarios.schema.network import NetworkOutage
from scenarios.schema.scenario import Scenario
from scenarios.schema.world import ClientOutage as OutageSection
from scenarios.wiring.clients.population import IntArray, Population


def build_outages(scenario: Scenario, streams: Streams, population: Population, cut_offs: CutOffs | None = None) -> ClientOutages:
    """Return the outages of clients, together with the cut-offs of a script; raises UserError."""
    outages = []
    for i, section in enumerate(scenario.outages):
        path = f"outages.{i}"
        members = population.select(section.clients, f"{path}.clients")
        schedule = _schedule(section, streams, path)
        outages.append(outage_of(section.name, schedule, population.count, members, path))
    with name_refusals("outages", name_parameters(len(outages))):
        return ClientOutages(outages, cut_offs=cut_offs)


def outage_of(name: str, when: OutageSchedule, clients: int, members: IntArray | None, path: str) -> ClientOutage:
    """Return the outage of the section at `path`; raises UserError for a name that another cause of loss has."""
    with name_refusals(path, ("name",)):
        return ClientOutage(name=name, when=when, clients=clients, members=members)


def _refusals_of_bounds(path: str, first: str, last: str) -> AbstractContextManager[None]:
    """Context manager: errors about the bounds of an outage name the keys `first` and `last` of the section at `path`."""
    keys = {"start": first, "start_s": first, "end": last, "end_s": last}
    return name_refusals(path, keys, {name: f"{path}.{key}" for name, key in keys.items()})


def schedule_in_seconds(section: OutageSection | NetworkOutage, draws: Stream, path: str) -> OutageSchedule | None:
    """Return the schedule of an outage in seconds; None if it is set in rounds. Raises UserError."""
    if section.from_s is not None:
        with _refusals_of_bounds(path, "from_s", "to_s"):
            return IntervalInSeconds(start_s=section.from_s, end_s=math.inf if section.to_s is None else section.to_s)
    if section.mean_up_s is None or section.mean_down_s is None:
        return None
    keys = {"mean_on_s": f"{path}.mean_up_s", "mean_off_s": f"{path}.mean_down_s"}
    with name_refusals(path, keys, keys):
        presence = Markov(clients=1, mean_on_s=section.mean_up_s, mean_off_s=section.mean_down_s)
    return MarkovInSeconds(presence=presence, draws=draws)


def _schedule(section: OutageSection, streams: Streams, path: str) -> OutageSchedule:
    """Return the schedule of an outage, in seconds or in rounds; raises UserError."""
    draws = streams[f"outage.{section.name}"]
    in_seconds = schedule_in_seconds(section, draws, path)
    if in_seconds is not None:
        return in_seconds
    if section.from_round is not None:
        with _refusals_of_bounds(path, "from_round", "to_round"):
            return IntervalInRounds(start=section.from_round, end=section.to_round)
    assert section.mean_up_rounds is not None
    assert section.mean_down_rounds is not None
    law = GilbertElliott(clients=1, to_bad=1 / section.mean_up_rounds, to_good=1 / section.mean_down_rounds)
    return MarkovInRounds(law=law, draws=draws)
