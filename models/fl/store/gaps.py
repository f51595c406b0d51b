"""Allocation of places of a file or an array by first fit: the first free gap that is large enough is used."""

from __future__ import annotations


class Gaps:
    """Free places among 0, .., `size` - 1.

    >>> gaps = Gaps(10)
    >>> gaps.take(4), gaps.take(4), gaps.take(4)
    (0, 4, None)
    >>> gaps.give(0, 4)
    >>> gaps.take(3)
    0
    """

    def __init__(self, size: int) -> None:
        self._gaps = [(0, size)]
        """First place and length of each gap, ascending; no two touch."""

    def take(self, count: int) -> int | None:
        """Allocate `count` consecutive places; return the first of them, or None if no gap is large enough."""
        for number, (first, free) in enumerate(self._gaps):
            if free > count:
                self._gaps[number] = (first + count, free - count)
                return first
            if free == count:
                del self._gaps[number]
                return first
        return None

    def give(self, first: int, count: int) -> None:
        """Free the `count` places from `first` on, which `take` allocated."""
        gaps = sorted([*self._gaps, (first, count)])
        # Join gaps that touch.
        merged = gaps[:1]
        for start, free in gaps[1:]:
            last_start, last_free = merged[-1]
            if last_start + last_free == start:
                merged[-1] = (last_start, last_free + free)
            else:
                merged.append((start, free))
        self._gaps = merged
