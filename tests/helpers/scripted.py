"""Runs with a script, kept in memory as rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from scenarios.registry.in_process import place_of
from scenarios.runs.reading import parse
from scenarios.wiring.simulation import build
from scenarios.wiring.world import World
from tests.helpers.memory_recorder import MemoryRecorder

THREE: dict[str, Any] = {
    "name": "three",
    "rounds": 2,
    "clients": {"count": 3},
    "server": {"per_round": 3},
    "policy": {"kind": "fastest"},
    "compute": {"delay": {"kind": "constant", "value_s": [1.0, 2.0, 4.0]}},
    "uplink": {"delay": {"kind": "constant", "value_s": 2.0}},
}
"""Three clients that compute for 1, 2 and 4 s and then send for 2 s, two rounds."""


def built(tables: dict[str, Any], script: Callable[..., Any] | None, **arguments: Any) -> World:
    """The simulation of a scenario, with a script."""
    named = {} if script is None else {"script": {"kind": place_of(script), **arguments}}
    return build(parse(tables | named))


def recorded(tables: dict[str, Any], script: Callable[..., Any] | None = None, **arguments: Any) -> MemoryRecorder:
    """What a run with a script records."""
    simulation = built(tables, script, **arguments).simulation
    recorder = MemoryRecorder()
    simulation.record_to(recorder)
    simulation.run()
    simulation.close()
    return recorder


def interrupt_at(round: int) -> Callable[[Any], None]:
    """What interrupts a run as a round has closed."""

    def after_round(simulation: Any) -> None:
        if simulation.server.round == round:
            raise KeyboardInterrupt

    return after_round


def waits(world: Any) -> Iterator[Any]:
    """A script that does nothing."""
    yield world.until_round(2)
