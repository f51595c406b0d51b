"""Bandwidth drawn from the seed: Gauss-Markov, and levels between which a Markov chain moves.

Each client has a path of its own. A path is drawn as far as it is needed, and only for clients that transmit; the draws of a
client are addressed, so that the order of the calls does not change a path. Three numbers are kept for each step from time 0 to
the last time needed. The public methods are those of `models.laws.bandwidth.laws.BandwidthLaw`, which documents them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from functools import partial
from typing import Annotated, Literal, NamedTuple

import numpy as np
from annotated_doc import Doc

from models.errors import ParameterError
from models.laws.bandwidth.laws import Draws
from models.laws.delays import (
    FloatArray,
    Gaussian,
    IntArray,
    PerClient,
    check_same_clients,
    explain_bad_rate,
    per_client,
    pick,
    rate_per_client,
    spread,
)

_NEVER = math.inf
_FIRST = 64
"""Steps of a path that are drawn first; later its length doubles."""
_REACHED = 1.0 - 1e-14
"""Factor of a sum that counts as reached, to allow for rounding."""
_SMALLEST_U = 2.0**-54
_MOST_RATE = 1e100
"""The largest bandwidth, and factor of it: bytes are summed over a path, and the sum must stay finite."""


class _NewSteps(NamedTuple):
    """Steps that extend a path."""

    durations_s: FloatArray
    rates: FloatArray
    """Bytes per second, before `scale`."""


DrawSteps = Callable[[int, int], _NewSteps]
"""Function that draws steps `first` to `end` - 1 of a path; called with adjacent ranges, in order."""


class _StepAt(NamedTuple):
    """Step of a path at some time."""

    carried_bytes: float
    """Bytes that the path has carried by that time."""
    rate: float
    end_s: float
    """End of the step."""


class _Path:
    """Bandwidth of one client, as far as it was needed; in lists, where a single look-up is faster than in arrays."""

    __slots__ = ("_draw_steps", "rates", "sums", "times")

    def __init__(self, draw_steps: DrawSteps) -> None:
        self._draw_steps = draw_steps
        self.rates: list[float] = []
        self.times: list[float] = [0.0]
        """Beginning of each step, and the end of the last one, in seconds."""
        self.sums: list[float] = [0.0]
        """Bytes carried by these times."""

    def reach(self, time_s: float, total_bytes: float = 0.0) -> None:
        """Extend the path until it covers `time_s` and has carried `total_bytes`."""
        while self.times[-1] <= time_s or self.sums[-1] < total_bytes:
            count = len(self.rates)
            new = self._draw_steps(count, max(2 * count, _FIRST))
            self.times += (self.times[-1] + np.cumsum(new.durations_s)).tolist()
            self.sums += (self.sums[-1] + np.cumsum(new.durations_s * new.rates)).tolist()
            self.rates += new.rates.tolist()

    def step(self, time_s: float) -> _StepAt:
        """Return the step at `time_s`."""
        self.reach(time_s)
        j = bisect_right(self.times, time_s) - 1
        rate = self.rates[j]
        return _StepAt(self.sums[j] + (time_s - self.times[j]) * rate, rate, self.times[j + 1])

    def end_s(self, start_s: float, size_bytes: float) -> float:
        """Return the time at which a transfer that begins at `start_s` ends."""
        if not size_bytes > 0.0:
            return start_s
        # The end is the time at which the path has carried `target` bytes since time 0; step j is the one in which it lies.
        target = self.step(start_s).carried_bytes + size_bytes
        self.reach(start_s, target)
        j = bisect_left(self.sums, target * _REACHED) - 1
        return max(self.times[j] + (target - self.sums[j]) / self.rates[j], start_s)


class _Paths(ABC):
    """Base class of laws with one path for each client, multiplied by `scale`."""

    constant = False

    def __init__(self, *, scale: PerClient) -> None:
        self._scale = per_client("scale", scale, low=1e-12, high=_MOST_RATE, unit="")
        self._paths: dict[int, _Path] = {}

    @abstractmethod
    def _draw_steps(self, client: int, first: int, end: int) -> _NewSteps:
        """Draw steps `first` to `end` - 1 of a client's path; called with adjacent ranges, in order."""

    def _path(self, client: int) -> _Path:
        """Return the path of a client, made at its first use."""
        path = self._paths.get(client)
        if path is None:
            path = _Path(partial(self._draw_steps, client))
            self._paths[client] = path
        return path

    def ends_s(self, start_s: FloatArray, size_bytes: FloatArray, entities: IntArray) -> FloatArray:
        sizes = size_bytes / pick(self._scale, entities)
        transfers = zip(entities.tolist(), start_s.tolist(), sizes.tolist(), strict=True)
        return np.array([self._path(client).end_s(start, size) for client, start, size in transfers])

    def served_bytes(self, start_s: FloatArray, end_s: FloatArray, entities: IntArray) -> FloatArray:
        served = []
        for client, start, end in zip(entities.tolist(), start_s.tolist(), end_s.tolist(), strict=True):
            path = self._path(client)
            served.append(path.step(end).carried_bytes - path.step(start).carried_bytes)
        return np.asarray(np.array(served) * pick(self._scale, entities))

    def rate(self, time_s: float, entities: IntArray) -> FloatArray:
        rates = [self._path(client).step(time_s).rate for client in entities.tolist()]
        return np.asarray(np.array(rates) * pick(self._scale, entities))

    def next_change_s(self, time_s: float, entities: IntArray) -> FloatArray:
        return np.array([self._path(client).step(time_s).end_s for client in entities.tolist()])

    def stops_s(self, entities: IntArray) -> FloatArray:
        return np.full(len(entities), _NEVER)


class GaussMarkov(_Paths):
    """First-order Gaussian process with a floor: every `step_s` seconds x' = mean + memory (x - mean) + noise.

    It begins in its stationary law. The bandwidth is max(x, floor). Its mean is floor Phi(a) + mean Phi(-a) + std phi(a), a the
    floor in standard deviations above the mean: more than `mean_bytes_per_s` if the floor is often reached.

    Example:
        >>> import numpy as np
        >>> from netsim.core.streams import Streams
        >>> draws = Streams(1)["bandwidth"]
        >>> law = GaussMarkov(draws=draws, mean_bytes_per_s=1e6, std_bytes_per_s=2e5, memory=0.9)
        >>> law.rate(0.0, np.array([0, 1])).round()
        array([1314682., 1159900.])
    """

    def __init__(
        self,
        *,
        draws: Draws,
        mean_bytes_per_s: Annotated[PerClient, Doc("Mean in bytes a second, before the floor acts.")],
        std_bytes_per_s: Annotated[PerClient, Doc("Standard deviation in bytes a second, before the floor acts.")],
        memory: Annotated[float, Doc("Correlation of one step with the next, in [0, 1); 0: none.")],
        step_s: Annotated[float, Doc("Seconds from one value to the next.")] = 1.0,
        floor_bytes_per_s: Annotated[PerClient, Doc("The floor in bytes a second: no bandwidth is less.")] = 0.0,
        scale: Annotated[PerClient, Doc("A factor of all rates.")] = 1.0,
    ) -> None:
        super().__init__(scale=scale)
        unit = " bytes per second"
        mean = rate_per_client("mean_bytes_per_s", mean_bytes_per_s)
        self._mean = per_client("mean_bytes_per_s", mean, high=_MOST_RATE, unit=unit)
        self._std = per_client("std_bytes_per_s", std_bytes_per_s, high=_MOST_RATE, unit=unit)
        self._floor = per_client("floor_bytes_per_s", floor_bytes_per_s, high=_MOST_RATE, unit=unit)
        check_same_clients(mean_bytes_per_s=self._mean, std_bytes_per_s=self._std, floor_bytes_per_s=self._floor)
        if not 0.0 <= memory < 1.0:
            raise ParameterError("memory", memory, "must be in [0, 1)")
        if not 1e-6 <= step_s < math.inf:
            raise ParameterError("step_s", step_s, "must be finite and >= 1e-6 seconds")
        self._memory, self._step_s, self._draws = memory, step_s, draws
        self._scores: dict[int, float] = {}
        """Last value of each client's path, as a normal score."""

    def _draw_steps(self, client: int, first: int, end: int) -> _NewSteps:
        """Draw steps of a client: score' = memory score + noise z, z standard normal; the rate is max(mean + std score, floor).

        The noise makes the variance of the score 1 at each step. The first score is z alone, the stationary law.
        """
        from scipy.special import ndtri

        # Index 0 of the stream is for offsets in traces: a law by group may combine both.
        uniforms = self._draws.uniforms(client + 1, end)[first:]
        normal = ndtri(np.maximum(uniforms, _SMALLEST_U)).tolist()
        noise = math.sqrt(1.0 - self._memory**2)
        score = normal[0]
        if first > 0:
            score = self._memory * self._scores[client] + noise * normal[0]
        path_scores = [score]
        for z in normal[1:]:
            score = self._memory * score + noise * z
            path_scores.append(score)
        self._scores[client] = score
        clients = np.array([client])
        mean, std, floor = (float(spread(value, clients)[0]) for value in (self._mean, self._std, self._floor))
        rates = np.maximum(mean + std * np.array(path_scores), floor)
        return _NewSteps(durations_s=np.full(end - first, self._step_s), rates=rates)

    def mean_rate(self, entities: IntArray) -> FloatArray:
        floored = Gaussian(mean_s=self._mean, std_s=self._std, floor_s=self._floor)
        return np.asarray(floored.mean_s(entities) * pick(self._scale, entities))

    def peak_rate(self, entities: IntArray) -> FloatArray:
        """Return inf: a normal law has no largest value."""
        return np.full(len(entities), math.inf)


class MarkovLevels(_Paths):
    """Levels between which a Markov chain in continuous time moves: it stays in each for an exponential time.

    It begins in its stationary law. The mean bandwidth is the sum of the levels, each times its share of time. Shares are
    proportional to the mean stays (moves "neighbour": doubled for levels that are not at an end).

    Example:
        >>> import numpy as np
        >>> from netsim.core.streams import Streams
        >>> draws = Streams(1)["bandwidth"]
        >>> law = MarkovLevels(draws=draws, levels_bytes_per_s=[1e5, 1e6], mean_stay_s=[10.0, 30.0])
        >>> law.mean_rate(np.array([0]))
        array([775000.])
    """

    def __init__(
        self,
        *,
        draws: Draws,
        levels_bytes_per_s: Annotated[list[float], Doc("The levels in bytes a second; at least two, in any order.")],
        mean_stay_s: Annotated[list[float], Doc("Mean in seconds of the times spent in each level, as many as levels.")],
        moves: Annotated[
            Literal["any", "neighbour"],
            Doc('Next level: "any" other one, equally likely; or the one before or after it in the list, "neighbour".'),
        ] = "any",
        scale: Annotated[PerClient, Doc("A factor of all rates.")] = 1.0,
    ) -> None:
        super().__init__(scale=scale)
        if len(levels_bytes_per_s) < 2 or not any(levels_bytes_per_s):
            raise ParameterError("levels_bytes_per_s", levels_bytes_per_s, "must hold at least two levels, one of them above 0")
        if len(mean_stay_s) != len(levels_bytes_per_s):
            raise ParameterError("mean_stay_s", mean_stay_s, f"must hold {len(levels_bytes_per_s)} times, one for each level")
        for level in levels_bytes_per_s:
            reason = explain_bad_rate(level)
            if reason is not None:
                raise ParameterError("levels_bytes_per_s", levels_bytes_per_s, f"{level!r} {reason}")
            if level > _MOST_RATE:
                raise ParameterError("levels_bytes_per_s", levels_bytes_per_s, f"{level!r} must be <= {_MOST_RATE:g}")
        for stay in mean_stay_s:
            if not 1e-6 <= stay < math.inf:
                raise ParameterError("mean_stay_s", mean_stay_s, f"{stay!r} must be finite and >= 1e-6 seconds")
        if moves not in ("any", "neighbour"):
            raise ParameterError("moves", moves, "must be 'any' or 'neighbour'")
        self._levels, self._stay = np.array(levels_bytes_per_s, np.float64), np.array(mean_stay_s, np.float64)
        count = len(self._levels)
        self._next_levels: list[list[int]] = []
        """Levels that may follow each level."""
        for level_number in range(count):
            others = [other for other in range(count) if other != level_number]
            if moves == "neighbour":
                others = [other for other in others if abs(other - level_number) == 1]
            self._next_levels.append(others)
        # The jumps are a random walk on a graph, which visits a level in proportion to the number of its neighbours.
        weight = np.array([len(levels) for levels in self._next_levels]) * self._stay
        self._share = weight / weight.sum()
        """Stationary probabilities of the levels: shares of time."""
        self._draws = draws
        self._level: dict[int, int] = {}
        """Last level of each client's path."""

    def _draw_steps(self, client: int, first: int, end: int) -> _NewSteps:
        """Draw stays of a client, with two uniforms each: the level, and the exponential duration."""
        u = self._draws.uniforms(client + 1, 2 * end)[2 * first :]
        level_draws, duration_draws = u[0::2], u[1::2]
        levels = np.empty(end - first, np.int64)
        for i, draw in enumerate(level_draws.tolist()):
            is_first_of_path = first + i == 0
            if is_first_of_path:
                # It has the stationary law.
                level = min(int(np.searchsorted(np.cumsum(self._share), draw, "right")), len(self._levels) - 1)
            else:
                possible = self._next_levels[self._level[client]]
                level = possible[min(int(draw * len(possible)), len(possible) - 1)]
            self._level[client] = level
            levels[i] = level
        return _NewSteps(durations_s=-self._stay[levels] * np.log1p(-duration_draws), rates=self._levels[levels])

    def mean_rate(self, entities: IntArray) -> FloatArray:
        return np.asarray(float(self._share @ self._levels) * spread(self._scale, entities))

    def peak_rate(self, entities: IntArray) -> FloatArray:
        return np.asarray(float(self._levels.max()) * spread(self._scale, entities))
