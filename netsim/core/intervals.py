"""Intervals of time [start, end), ascending and disjoint, with fast look-ups."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from netsim.core.state import StateFields

_EVER = float("inf")


class Intervals(StateFields):
    """Half-open intervals of seconds. Intervals that touch or overlap are merged. An end of inf: not over yet, or never over."""

    __slots__ = ("_ends", "_starts")
    state_fields = __slots__

    def __init__(self, intervals: Iterable[tuple[float, float]] = ()) -> None:
        self._starts: list[float] = []
        """Starts of the intervals, ascending."""
        self._ends: list[float] = []
        """Ends of the same intervals, ascending, because intervals are disjoint."""
        for start_s, end_s in sorted(intervals):
            self.add(start_s, end_s)

    def __iter__(self) -> Iterator[tuple[float, float]]:
        return zip(self._starts, self._ends, strict=True)

    def add(self, start_s: float, end_s: float = _EVER) -> None:
        """Add an interval that begins no earlier than the last one."""
        if self._ends and start_s <= self._ends[-1]:
            self._ends[-1] = max(self._ends[-1], end_s)
        else:
            self._starts.append(start_s)
            self._ends.append(end_s)

    def close(self, end_s: float) -> None:
        """End the last interval at `end_s`; remove it if it began there."""
        self._ends[-1] = end_s
        if self._starts[-1] == end_s:
            del self._starts[-1], self._ends[-1]

    def forget(self, before_s: float) -> None:
        """Drop intervals that were over by `before_s`. Callers must not ask for earlier times again."""
        count = bisect_right(self._ends, before_s)
        del self._starts[:count], self._ends[:count]

    def next_start(self, after_s: float) -> float:
        """Return the next start after `after_s`; inf if none is known."""
        place = bisect_right(self._starts, after_s)
        return self._starts[place] if place < len(self._starts) else _EVER

    def next_end(self, after_s: float) -> float:
        """Return the next end after `after_s`; inf if none is known."""
        place = bisect_right(self._ends, after_s)
        return self._ends[place] if place < len(self._ends) else _EVER

    def ends_at(self, time_s: float) -> bool:
        """Return True if an interval ends at exactly `time_s`."""
        place = bisect_left(self._ends, time_s)
        return place < len(self._ends) and self._ends[place] == time_s

    def overlap(self, start_s: float, end_s: float) -> bool:
        """Return True if an interval meets [start_s, end_s), or start_s if the two are equal."""
        starts = self._starts
        # Intervals are disjoint and ascending, so only the last that begins before the end (or at the instant, if start and end
        # are equal) can reach beyond the start.
        begun = bisect_left(starts, end_s) if end_s > start_s else bisect_right(starts, start_s)
        return begun > 0 and self._ends[begun - 1] > start_s
