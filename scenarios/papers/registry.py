"""The reproductions by name."""

from __future__ import annotations

from scenarios.papers import (
    channels,
    client_analytics,
    flow_cases,
    overlays_table,
    pause,
    ring_or_clique,
    shared_core,
    validation,
)
from scenarios.papers.study import Reproduction
from scenarios.schema.errors import UserError, did_you_mean

_MODULES = (pause, channels, client_analytics, validation, flow_cases, overlays_table, shared_core, ring_or_clique)
REPRODUCTIONS: dict[str, Reproduction] = {one.name: one for module in _MODULES for one in module.REPRODUCTIONS}
_ALIASES = {alias: one.name for one in REPRODUCTIONS.values() for alias in one.aliases}


def find(name: str) -> Reproduction:
    """Return the reproduction called `name`, or that holds the figure called so; raises UserError for any other name."""
    reproduction = REPRODUCTIONS.get(_ALIASES.get(name, name))
    if reproduction is None:
        raise UserError(f"{name!r}: is no figure or table of a paper; {did_you_mean(name, [*REPRODUCTIONS, *_ALIASES])} "
                        "(netsim reproduce --list shows all; a finished run is run again by netsim replay)")
    return reproduction
