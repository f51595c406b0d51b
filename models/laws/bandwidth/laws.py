"""Constant bandwidth, and laws of bandwidth made of other laws.

A law is a piecewise constant function of time for each client, or for a link that all share. Traces are in `traces.py`, drawn
paths in `paths.py`. A parameter of type `PerClient` is one number for all clients or an array with one entry a client.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Annotated, Protocol

import numpy as np
from annotated_doc import Doc

from models.laws.delays import FloatArray, IntArray, PerClient, pick, rate_per_client, spread

_NEVER = math.inf


class Draws(Protocol):
    """Addressed random numbers of a stream: the same index gives the same numbers in any order of the calls."""

    def uniforms(self, index: int, size: int) -> FloatArray:
        """Return the uniforms (`size`,) in [0, 1) at `index`."""


class BandwidthLaw(Protocol):
    """Law of bandwidth, as the laws that contain other laws need it. All answers are for the links of `entities` (n,); (n,)."""

    constant: bool
    """True if no rate ever changes."""

    def ends_s(self, start_s: FloatArray, size_bytes: FloatArray, entities: IntArray) -> FloatArray:
        """Return the times at which transfers of `size_bytes` begun at `start_s` end; inf: never."""

    def served_bytes(self, start_s: FloatArray, end_s: FloatArray, entities: IntArray) -> FloatArray:
        """Return the bytes that the links carry between two times."""

    def rate(self, time_s: float, entities: IntArray) -> FloatArray:
        """Return the bandwidths at a time, in bytes per second."""

    def next_change_s(self, time_s: float, entities: IntArray) -> FloatArray:
        """Return the times after `time_s` at which the rates may next change; inf: never."""

    def mean_rate(self, entities: IntArray) -> FloatArray:
        """Return the mean bandwidths in the long run."""

    def peak_rate(self, entities: IntArray) -> FloatArray:
        """Return bandwidths that are never exceeded; inf: unbounded."""

    def stops_s(self, entities: IntArray) -> FloatArray:
        """Return the times from which the links carry nothing for ever; inf: they never stop."""


class Constant:
    """Constant bandwidth, one for all clients or one for each.

    Example:
        >>> import numpy as np
        >>> link = Constant(bytes_per_s=100.0)
        >>> link.ends_s(np.array([1.0]), np.array([400.0]), np.array([0]))
        array([5.])
    """

    constant = True

    def __init__(
        self,
        *,
        bytes_per_s: Annotated[PerClient, Doc("Bandwidth in bytes per second.")],
    ) -> None:
        self._rate = rate_per_client("bytes_per_s", bytes_per_s)

    def ends_s(self, start_s: FloatArray, size_bytes: FloatArray, entities: IntArray) -> FloatArray:
        return np.asarray(start_s + size_bytes / pick(self._rate, entities))

    def served_bytes(self, start_s: FloatArray, end_s: FloatArray, entities: IntArray) -> FloatArray:
        return np.asarray((end_s - start_s) * pick(self._rate, entities))

    def rate(self, time_s: float, entities: IntArray) -> FloatArray:
        return spread(self._rate, entities)

    def next_change_s(self, time_s: float, entities: IntArray) -> FloatArray:
        return np.full(len(entities), _NEVER)

    def mean_rate(self, entities: IntArray) -> FloatArray:
        return spread(self._rate, entities)

    def peak_rate(self, entities: IntArray) -> FloatArray:
        return spread(self._rate, entities)

    def stops_s(self, entities: IntArray) -> FloatArray:
        return np.full(len(entities), _NEVER)


class Multiple:
    """Law of bandwidth with `factor` times the rates of `law`.

    Example:
        >>> import numpy as np
        >>> link = Multiple(law=Constant(bytes_per_s=100.0), factor=2.0)
        >>> link.ends_s(np.array([1.0]), np.array([400.0]), np.array([0])).tolist()
        [3.0]
    """

    constant = False

    def __init__(self, *, law: BandwidthLaw, factor: float) -> None:
        self.law, self.factor = law, factor

    def ends_s(self, start_s: FloatArray, size_bytes: FloatArray, entities: IntArray) -> FloatArray:
        return self.law.ends_s(start_s, size_bytes / self.factor, entities)

    def served_bytes(self, start_s: FloatArray, end_s: FloatArray, entities: IntArray) -> FloatArray:
        return self.factor * self.law.served_bytes(start_s, end_s, entities)

    def rate(self, time_s: float, entities: IntArray) -> FloatArray:
        return self.factor * self.law.rate(time_s, entities)

    def next_change_s(self, time_s: float, entities: IntArray) -> FloatArray:
        return self.law.next_change_s(time_s, entities)

    def mean_rate(self, entities: IntArray) -> FloatArray:
        return self.factor * self.law.mean_rate(entities)

    def peak_rate(self, entities: IntArray) -> FloatArray:
        return self.factor * self.law.peak_rate(entities)

    def stops_s(self, entities: IntArray) -> FloatArray:
        return self.law.stops_s(entities)


class ByGroup:
    """Different laws for disjoint groups of clients: client k follows `laws[group_of[k]]`.

    The laws receive the same client numbers as this one, so an array of theirs has one entry for each of all K clients.
    """

    constant = False

    def __init__(self, *, laws: list[BandwidthLaw], group_of: IntArray) -> None:
        self.laws = list(laws)
        self.group_of = group_of

    def _collect(self, entities: IntArray, answer: Callable[[BandwidthLaw, IntArray], FloatArray]) -> FloatArray:
        """Return an answer for each of `entities` (n,), from the law that it follows; (n,).

        `answer(law, places)` returns the answers of a law for the entities at `places`, their positions in `entities`.
        """
        answers = np.empty(len(entities))
        groups = self.group_of[entities]
        for group in np.unique(groups).tolist():
            places = np.flatnonzero(groups == group)
            answers[places] = answer(self.laws[group], places)
        return answers

    def ends_s(self, start_s: FloatArray, size_bytes: FloatArray, entities: IntArray) -> FloatArray:
        return self._collect(entities, lambda law, i: law.ends_s(start_s[i], size_bytes[i], entities[i]))

    def served_bytes(self, start_s: FloatArray, end_s: FloatArray, entities: IntArray) -> FloatArray:
        return self._collect(entities, lambda law, i: law.served_bytes(start_s[i], end_s[i], entities[i]))

    def rate(self, time_s: float, entities: IntArray) -> FloatArray:
        return self._collect(entities, lambda law, i: law.rate(time_s, entities[i]))

    def next_change_s(self, time_s: float, entities: IntArray) -> FloatArray:
        return self._collect(entities, lambda law, i: law.next_change_s(time_s, entities[i]))

    def mean_rate(self, entities: IntArray) -> FloatArray:
        return self._collect(entities, lambda law, i: law.mean_rate(entities[i]))

    def peak_rate(self, entities: IntArray) -> FloatArray:
        return self._collect(entities, lambda law, i: law.peak_rate(entities[i]))

    def stops_s(self, entities: IntArray) -> FloatArray:
        return self._collect(entities, lambda law, i: law.stops_s(entities[i]))


class Successive:
    """Sequence of laws with known change points: `laws[j]` from `starts_s[j - 1]` seconds on, `laws[0]` from the beginning.

    Only the laws in force at the times in question are used, because laws may be built on demand.
    """

    constant = False

    def __init__(self, *, laws: Sequence[BandwidthLaw], starts_s: list[float]) -> None:
        self.laws = laws
        self._starts = np.array(starts_s, np.float64)
        self._until = np.append(self._starts, _NEVER)
        """(laws,) end of each law, in seconds."""

    def ends_s(self, start_s: FloatArray, size_bytes: FloatArray, entities: IntArray) -> FloatArray:
        """Return the ends of transfers, law by law: bytes that are left at a change point go to the next law."""
        # Time up to which each transfer has been followed, and the bytes that it then lacks.
        now_s, left_bytes = np.array(start_s, np.float64), np.array(size_bytes, np.float64)
        ends_s = np.full(len(entities), _NEVER)
        # These and the arrays of transfers below hold places in `entities`.
        under_way = np.arange(len(entities))
        law_number = self._current(float(now_s.min(initial=_NEVER)))
        while under_way.size and law_number < len(self._until):
            until_s = float(self._until[law_number])
            # Transfers that begin under a later law wait.
            begun = under_way[now_s[under_way] < until_s]
            if begun.size:
                law = self.laws[law_number]
                law_ends_s = law.ends_s(now_s[begun], left_bytes[begun], entities[begun])
                is_over = law_ends_s <= until_s
                ends_s[begun[is_over]] = law_ends_s[is_over]
                going_on = begun[~is_over]
                if going_on.size:
                    served = law.served_bytes(now_s[going_on], np.full(len(going_on), until_s), entities[going_on])
                    left_bytes[going_on] = np.maximum(left_bytes[going_on] - served, 0.0)
                    now_s[going_on] = until_s
                under_way = np.setdiff1d(under_way, begun[is_over], assume_unique=True)
            law_number += 1
        return ends_s

    def served_bytes(self, start_s: FloatArray, end_s: FloatArray, entities: IntArray) -> FloatArray:
        """Return the sum of the bytes that each law carries while it is in force."""
        total = np.zeros(len(entities))
        first = self._current(float(np.min(start_s, initial=_NEVER)))
        last = self._current(float(np.max(end_s, initial=-_NEVER)))
        from_s = -_NEVER
        for law_number in range(first, last + 1):
            until_s = float(self._until[law_number])
            # The part of each interval under this law.
            begin_s, stop_s = np.maximum(start_s, from_s), np.minimum(end_s, until_s)
            places = np.flatnonzero(begin_s < stop_s)
            if places.size:
                total[places] += self.laws[law_number].served_bytes(begin_s[places], stop_s[places], entities[places])
            from_s = until_s
        return total

    def rate(self, time_s: float, entities: IntArray) -> FloatArray:
        return self.laws[self._current(time_s)].rate(time_s, entities)

    def next_change_s(self, time_s: float, entities: IntArray) -> FloatArray:
        place = self._current(time_s)
        return np.asarray(np.minimum(self.laws[place].next_change_s(time_s, entities), self._until[place]))

    def mean_rate(self, entities: IntArray) -> FloatArray:
        """Return the mean rate of the last law, which holds in the long run."""
        return self.laws[-1].mean_rate(entities)

    def peak_rate(self, entities: IntArray) -> FloatArray:
        return np.asarray(reduce(np.maximum, (law.peak_rate(entities) for law in self.laws)))

    def stops_s(self, entities: IntArray) -> FloatArray:
        """Return the stop under the last law: a link that stops under an earlier law works again after a change point."""
        return np.asarray(np.maximum(self.laws[-1].stops_s(entities), self._starts[-1]))

    def _current(self, time_s: float) -> int:
        """Return the place in `laws` of the law in force at `time_s`."""
        return int(np.searchsorted(self._starts, time_s, "right"))
