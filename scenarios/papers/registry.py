"""Reproductions by name."""

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
REPRODUCTIONS: dict[str, Reproduction] = {study.name: study for module in _MODULES for study in module.REPRODUCTIONS}
_ALIASES = {alias: study.name for study in REPRODUCTIONS.values() for alias in study.aliases}


def find_reproduction(name: str) -> Reproduction:
    """Return the reproduction of this name, or with a figure of this name; raises UserError for an unknown name."""
    reproduction = REPRODUCTIONS.get(_ALIASES.get(name, name))
    if reproduction is None:
        raise UserError(f"{name!r}: is no figure or table of a paper; {did_you_mean(name, [*REPRODUCTIONS, *_ALIASES])} "
                        "(netsim reproduce --list shows all; a finished run is run again by netsim replay)")
    return reproduction
