"""The jammers of a scenario: of sub-channels, of links between clients, of opinions, or of the cables of `[network]`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from netsim.core.clock import NORMAL
from netsim.network.jamming import Dwells, Jammer, Jammers
from netsim.records.sinks import NoRecorder
from scenarios.registry.components import Keywords, construct, name_parameters, name_refusals

if TYPE_CHECKING:
    from netsim.core.clock import Clock
    from netsim.core.streams import Streams
    from netsim.network.jammable import Jammable
    from scenarios.schema.servers.kinds import Jammer as JammerSection


def build_jammers(
    sections: Sequence[JammerSection],
    streams: Streams,
    jammed: Jammable[Any],
    clock: Clock,
    *,
    priority: int = NORMAL,
    link_between: Callable[[int, int], int] | None = None,
    cable: Callable[[str, str], int] | None = None,
) -> Jammers:
    """Return the jammers of the sub-channels, links or cables `jammed`; `priority`: of their dwells, as of `Jammers`.

    `link_between`: returns the number of the link between two clients. `cable`: returns the number of a cable, from its name
    and the key that names it. Raises UserError.
    """
    jammers, channels = [], jammed.count
    for i, section in enumerate(sections):
        path = f"jammers.{i}"
        keywords = {name: getattr(section, name) for name in ("name", "reach", "at_once", "budget")}
        dwells: Keywords = {"dwell_s": section.dwell_s, "start": math.inf if section.start == "script" else section.start}
        dwells["dwell_rounds"] = section.dwell_rounds or (1 if section.dwell_s is None else None)
        if section.links is not None and link_between is not None:
            with name_refusals(path, ("links",)):
                keywords["reach"] = sorted({link_between(a, b) for a, b in section.links})
        if isinstance(section.cables, list) and cable is not None:
            keywords["reach"] = sorted({cable(name, f"{path}.cables.{index}") for index, name in enumerate(section.cables)})
        supplied = {"channels": channels, "reachable": range(channels) if keywords["reach"] is None else keywords["reach"]}
        law = construct(section.law, "jammer", f"{path}.law", section.law.parameters(), supplied)
        draws = streams[f"jammer.{section.name}"]
        with name_refusals(path, {*keywords, *dwells}):
            jammers.append(Jammer(law=law, channels=channels, draws=draws, dwells=Dwells(**dwells), **keywords))
    with name_refusals("jammers", name_parameters(len(jammers))):
        return Jammers(jammers=jammers, clock=clock, spectrum=jammed, recorder=NoRecorder(), priority=priority)
