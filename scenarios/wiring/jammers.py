"""The jammers of a scenario: of sub-channels, of links between clients, of opinions, or of the cables of `[network]`."""

from __future__ import annotations

import math
from collections.abc import Callable

from netsim.core.streams import Streams
from netsim.network.jamming import Dwells, Jammer
from scenarios.registry.components import Keywords, construct, refusals_at
from scenarios.schema.scenario import Scenario


def build_jammers(
    scenario: Scenario,
    streams: Streams,
    channels: int,
    *,
    link_between: Callable[[int, int], int] | None = None,
    cable: Callable[[str, str], int] | None = None,
) -> list[Jammer]:
    """Return the jammers of `channels` sub-channels, links or cables.

    `link_between`: returns the number of the link between two clients. `cable`: returns the number of a cable, from its name
    and the key that names it. Raises UserError.
    """
    jammers = []
    for i, section in enumerate(scenario.jammers):
        path = f"jammers.{i}"
        keywords = {name: getattr(section, name) for name in ("name", "reach", "at_once", "budget")}
        dwells: Keywords = {"dwell_s": section.dwell_s, "start": math.inf if section.start == "script" else section.start}
        dwells["dwell_rounds"] = section.dwell_rounds or (1 if section.dwell_s is None else None)
        if section.links is not None and link_between is not None:
            with refusals_at(path, ("links",)):
                keywords["reach"] = sorted({link_between(a, b) for a, b in section.links})
        if isinstance(section.cables, list) and cable is not None:
            keywords["reach"] = sorted({cable(name, f"{path}.cables.{index}") for index, name in enumerate(section.cables)})
        supplied = {"channels": channels, "reachable": range(channels) if keywords["reach"] is None else keywords["reach"]}
        law = construct(section.law, "jammer", f"{path}.law", section.law.parameters(), supplied)
        draws = streams[f"jammer.{section.name}"]
        with refusals_at(path, {*keywords, *dwells}):
            jammers.append(Jammer(law=law, channels=channels, draws=draws, dwells=Dwells(**dwells), **keywords))
    return jammers
