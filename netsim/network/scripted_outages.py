"""Clients, or links between clients, that a script cuts off during a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from netsim.core.intervals import Intervals

if TYPE_CHECKING:
    from netsim.core.protocols import State

_EVER = float("inf")


class ScriptedOutages:
    """Entities (by number) that are down until they have been restored as often as cut.

    The time of a return is not known beforehand, so it is reported by a callback (`listen`). `expect` sets a callback that
    returns the next time at which the script may restore entities.
    """

    def __init__(self) -> None:
        self._intervals: dict[int, Intervals] = {}
        """Intervals during which each entity was down."""
        self._times: dict[int, int] = {}
        """Number of times that each entity was cut and not restored."""
        self._on_return: Callable[[set[int]], None] = lambda entities: None
        self._next_act_s: Callable[[], float] = lambda: _EVER

    def listen(self, on_return: Callable[[set[int]], None]) -> None:
        """Call `on_return` with entities that were restored just now."""
        self._on_return = on_return

    def expect(self, next_act_s: Callable[[], float]) -> None:
        """Ask `next_act_s` for the time of the next act; inf: none is planned."""
        self._next_act_s = next_act_s

    def cut(self, entities: Iterable[int], time_s: float) -> None:
        """Cut `entities` off from `time_s`, now. Transmissions in flight are lost, except those that end at this instant."""
        # Several acts may cut the same entity: only the first begins an interval, and only the last restoration ends it.
        for entity in entities:
            cuts = self._times[entity] = self._times.get(entity, 0) + 1
            if cuts == 1:
                self._intervals.setdefault(entity, Intervals()).add(time_s)

    def restore(self, entities: Iterable[int], time_s: float) -> None:
        """Take back one cut of each of `entities`, and report the entities that are up again. Transmissions in flight stay lost.
        """
        restored = set()
        for entity in entities:
            self._times[entity] -= 1
            if not self._times[entity]:
                self._intervals[entity].close(time_s)
                restored.add(entity)
        self._on_return(restored)

    def down(self) -> set[int]:
        """Return the entities that are cut off now."""
        return {entity for entity, times in self._times.items() if times}

    def down_for_ever(self, time_s: float) -> set[int]:
        """Return the entities that are cut off at `time_s`, now, if the script plans no further act; else none."""
        return self.down() if self._next_act_s() == _EVER else set()

    def destroys(self, entity: int, start_s: float, end_s: float) -> bool:
        """Return True if `entity` is cut off within [start_s, end_s), or at the instant start_s = end_s."""
        intervals = self._intervals.get(entity)
        return intervals is not None and intervals.overlap(start_s, end_s)

    def state_dict(self) -> State:
        """Return the entities that are cut off, and the times of earlier cuts."""
        intervals = {entity: list(intervals) for entity, intervals in self._intervals.items()}
        return {"times": dict(self._times), "intervals": intervals}

    def load_state_dict(self, state: State) -> None:
        """Go on from a saved state."""
        self._times = dict(state["times"])
        self._intervals = {entity: Intervals(intervals) for entity, intervals in state["intervals"].items()}
