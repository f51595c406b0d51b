"""The jammers of a scenario: of sub-channels, of links between clients or to the server, of opinions, or of cables."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from netsim.core.clock import NORMAL
from netsim.core.errors import check_unique
from netsim.network.jamming import Dwells, Jammer, Jammers
from netsim.network.own_link_jamming import JammedOwnLinks, MediumJamming, NoMediumJamming
from netsim.records.sinks import NoRecorder
from scenarios.registry.components import Keywords, construct, name_parameters, name_refusals
from scenarios.schema.jamming import target_of

if TYPE_CHECKING:
    from netsim.core.clock import Clock
    from netsim.core.streams import Streams
    from netsim.network.jammable import Jammable
    from netsim.network.spectrum import Spectrum
    from scenarios.schema.scenario import Scenario


def build_jammers(
    scenario: Scenario,
    targets: Mapping[str, Jammable[Any]],
    streams: Streams,
    clock: Clock,
    *,
    priority: int = NORMAL,
    link_between: Callable[[int, int], int] | None = None,
    cable: Callable[[str, str], int] | None = None,
) -> Jammers:
    """Return the jammers of `targets`, by what they jam (`target_of`); `priority`: of their dwells, as of `Jammers`.

    `link_between`: returns the number of the link between two clients. `cable`: returns the number of a cable, from its name
    and the key that names it. Raises UserError.
    """
    with name_refusals("jammers", name_parameters(len(scenario.jammers))):
        check_unique([section.name for section in scenario.jammers])
    jammers = []
    for i, section in enumerate(scenario.jammers):
        target = targets.get(target_of(section, scenario))
        if target is None:
            continue
        path, channels = f"jammers.{i}", target.count
        keywords = {name: getattr(section, name) for name in ("name", "reach", "at_once", "budget")}
        dwells: Keywords = {"dwell_s": section.dwell_s, "dwell_rounds": section.dwell_rounds, "start": section.start}
        if section.start == "script":
            dwells["start"] = math.inf  # rests until the script starts it
        if section.dwell_s is None and not section.dwell_rounds:
            dwells["dwell_rounds"] = 1
        if section.links is not None and link_between is not None:
            with name_refusals(path, ("links",)):
                keywords["reach"] = sorted({link_between(a, b) for a, b in section.links})
        if isinstance(section.cables, list) and cable is not None:
            keywords["reach"] = sorted({cable(name, f"{path}.cables.{index}") for index, name in enumerate(section.cables)})
        reachable = range(channels) if keywords["reach"] is None else keywords["reach"]
        supplied = {"channels": channels, "reachable": reachable}
        law = construct(section.law, "jammer", f"{path}.law", section.law.parameters(), supplied)
        draws = streams[f"jammer.{section.name}"]
        with name_refusals(path, {*keywords, *dwells}):
            jammers.append(Jammer(law=law, target=target, draws=draws, dwells=Dwells(**dwells), **keywords))
    return Jammers(jammers=jammers, clock=clock, recorder=NoRecorder(), priority=priority)


def build_medium_jamming(
    scenario: Scenario, spectrum: Spectrum, clients: int, streams: Streams, clock: Clock
) -> MediumJamming:
    """Return the jammers of the sub-channels of `spectrum` and of the clients' own links; raises UserError."""
    own = _jammed_own_links(scenario, clients)
    jammers = build_jammers(scenario, {"channels": spectrum, **own}, streams, clock)
    return MediumJamming(jammers=jammers, down=own.get("downlink"), up=own.get("uplink"))


def build_own_link_jamming(
    scenario: Scenario, clients: int, streams: Streams, clock: Clock
) -> MediumJamming | NoMediumJamming:
    """Return the jammers of the clients' own links where there are no sub-channels; raises UserError."""
    own = _jammed_own_links(scenario, clients)
    if not own:
        return NoMediumJamming()
    jammers = build_jammers(scenario, own, streams, clock)
    return MediumJamming(jammers=jammers, down=own.get("downlink"), up=own.get("uplink"))


def _jammed_own_links(scenario: Scenario, clients: int) -> dict[str, JammedOwnLinks]:
    """Return the own links that jammers jam, by direction: "downlink" and "uplink"."""
    return {name: JammedOwnLinks(clients) for name in ("downlink", "uplink") if scenario.jammers_of(name)}
