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
    """Addressed uniforms in [0, 1) of a stream."""

    def uniforms(self, index: int, size: int) -> FloatArray: ...


class BandwidthLaw(Protocol):
    """Law of bandwidth, as the laws that contain other laws need it; `netsim.core.protocols` documents its members."""

    constant: bool

    def ends_s(self, start_s: FloatArray, size_bytes: FloatArray, entities: IntArray) -> FloatArray: ...

    def served_bytes(self, start_s: FloatArray, end_s: FloatArray, entities: IntArray) -> FloatArray: ...

    def rate(self, time_s: float, entities: IntArray) -> FloatArray: ...

    def next_change_s(self, time_s: float, entities: IntArray) -> FloatArray: ...

    def mean_rate(self, entities: IntArray) -> FloatArray: ...

    def peak_rate(self, entities: IntArray) -> FloatArray: ...

    def stops_s(self, entities: IntArray) -> FloatArray: ...


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
    """A bandwidth law whose rates are `factor` times those of `law`.

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
        """Return the answers (n,) of the laws of `entities` (n,).

        `answer` is called with each law and the positions of its followers in `entities`.
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

    def ends_s(self, start_s: FloatArray, size_bytes: FloatArray, entities: IntArray) -> FloatArray:
        now, left = np.array(start_s, np.float64), np.array(size_bytes, np.float64)
        # Law by law: transfers that end before the next change point are done, the others carry their rest over to the next law.
        out = np.full(len(entities), _NEVER)
        under_way = np.arange(len(entities))
        place = self._current(float(now.min(initial=_NEVER)))
        while under_way.size and place < len(self._until):
            until_s = float(self._until[place])
            begun = under_way[now[under_way] < until_s]
            if begun.size:
                law = self.laws[place]
                ends = law.ends_s(now[begun], left[begun], entities[begun])
                is_over = ends <= until_s
                out[begun[is_over]] = ends[is_over]
                going_on, until = begun[~is_over], np.full(np.count_nonzero(~is_over), until_s)
                if going_on.size:
                    served = law.served_bytes(now[going_on], until, entities[going_on])
                    left[going_on] = np.maximum(left[going_on] - served, 0.0)
                    now[going_on] = until_s
                under_way = np.setdiff1d(under_way, begun[is_over], assume_unique=True)
            place += 1
        return out

    def served_bytes(self, start_s: FloatArray, end_s: FloatArray, entities: IntArray) -> FloatArray:
        out = np.zeros(len(entities))
        first = self._current(float(np.min(start_s, initial=_NEVER)))
        last = self._current(float(np.max(end_s, initial=-_NEVER)))
        from_s = -_NEVER
        for place in range(first, last + 1):
            until_s = float(self._until[place])
            begin, end = np.maximum(start_s, from_s), np.minimum(end_s, until_s)
            served = np.flatnonzero(begin < end)
            if served.size:
                out[served] += self.laws[place].served_bytes(begin[served], end[served], entities[served])
            from_s = until_s
        return out

    def rate(self, time_s: float, entities: IntArray) -> FloatArray:
        return self.laws[self._current(time_s)].rate(time_s, entities)

    def next_change_s(self, time_s: float, entities: IntArray) -> FloatArray:
        j = self._current(time_s)
        return np.asarray(np.minimum(self.laws[j].next_change_s(time_s, entities), self._until[j]))

    def mean_rate(self, entities: IntArray) -> FloatArray:
        """Return the mean rate of the last law, which holds in the long run."""
        return self.laws[-1].mean_rate(entities)

    def peak_rate(self, entities: IntArray) -> FloatArray:
        return np.asarray(reduce(np.maximum, (law.peak_rate(entities) for law in self.laws)))

    def stops_s(self, entities: IntArray) -> FloatArray:
        """Return the end of the last law; a link that stops before is in force again after a change point."""
        return np.asarray(np.maximum(self.laws[-1].stops_s(entities), self._starts[-1]))

    def _current(self, time_s: float) -> int:
        """Return the number of the law in force at `time_s`."""
        return int(np.searchsorted(self._starts, time_s, "right"))
