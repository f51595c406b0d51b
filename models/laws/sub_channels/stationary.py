"""States of N sub-channels over a run, from means: constant, or constant between breakpoints; and states that are fixed
beforehand.

The first two classes are timelines: `at(round, time_s)` returns the law in force and the time up to which it stays in force
within the round. What was drawn can be read: `means` (segments, N) and `starts`, the first round (or second) of each segment
after the first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from annotated_doc import Doc
from numpy.typing import NDArray

from models.errors import ParameterError
from models.laws.changes import Piecewise, draw_change_points
from models.laws.channels import Bernoulli
from netsim.core.state import StateFields

FloatArray = NDArray[np.float64]
Unit = Literal["rounds", "seconds"]


class Stationary:
    """Independent rounds: sub-channel k is Good with probability `means[k]`, given or drawn uniformly from [`low`, `high`].

    Example:
        >>> import numpy as np
        >>> law = Stationary(channels=3, generator=np.random.default_rng(1))
        >>> law.means.round(3)
        array([[0.509, 0.86 , 0.215]])
    """

    fixed = True

    def __init__(
        self,
        *,
        channels: int,
        generator: np.random.Generator,
        means: Annotated[
            list[float] | None,
            Doc("Probability of each sub-channel to be Good in a round; absent: drawn uniformly between low and high."),
        ] = None,
        low: Annotated[float, Doc("Least probability that is drawn.")] = 0.1,
        high: Annotated[float, Doc("Greatest probability that is drawn.")] = 0.9,
    ) -> None:
        self.starts: list[float] = []
        self.unit: Unit = "rounds"
        # One segment, which lasts for the whole run.
        self.means = _read_means(channels, 1, None if means is None else [means], low, high, generator)
        self.segment_means = self.means
        self._answer = (Bernoulli(success=self.means[0]), math.inf)

    def at(self, round: int, time_s: float) -> tuple[Bernoulli, float]:
        return self._answer


@dataclass(frozen=True, kw_only=True)
class Breakpoints:
    """Parameters that place breakpoints: the beginnings of the segments of a run, after the first."""

    breakpoints: Annotated[
        int | None,
        Doc("Number of breakpoints to spread over the horizon, in place of starts."),
    ] = None
    spread: Annotated[Literal["even", "drawn"], Doc("even: segments of one length; drawn: breakpoints at random.")] = "drawn"
    min_spacing: Annotated[float, Doc("Least distance of breakpoints that are drawn.")] = 0.0
    starts: Annotated[
        list[float] | None,
        Doc("The breakpoints, ascending, each the first round, or the time, of a segment."),
    ] = None
    unit: Annotated[Unit, Doc("Unit of the breakpoints.")] = "rounds"

    def place_breakpoints(self, rounds: int, seconds: float | None, generator: np.random.Generator) -> list[float]:
        """Return the breakpoints, ascending, in the `unit` of the law, of a run of `rounds` and `seconds` (None: no limit).

        Raises:
            ParameterError: the fields contradict each other, or the breakpoints do not fit into the run.
        """
        breakpoints, starts, unit = self.breakpoints, self.starts, self.unit
        if (breakpoints is None) == (starts is None):
            raise ParameterError("breakpoints", breakpoints, "give either breakpoints or starts")
        if unit not in ("rounds", "seconds"):
            raise ParameterError("unit", unit, "must be 'rounds' or 'seconds'")
        if self.min_spacing and (starts is not None or self.spread == "even"):
            where = "starts is given" if starts is not None else "spread = 'even'"
            raise ParameterError("min_spacing", self.min_spacing, f"has no meaning where {where}")
        horizon = float(rounds) if unit == "rounds" else seconds
        if starts is not None:
            if horizon is not None and starts and max(starts) > horizon:
                raise ParameterError("starts", starts, f"{max(starts)!r} lies past the horizon of {horizon:g} {unit}")
            return [float(start) for start in starts]
        assert breakpoints is not None
        if horizon is None:
            raise ParameterError("breakpoints", breakpoints, "without a time limit they cannot be spread over seconds")
        return _spread_breakpoints(breakpoints, horizon, self.spread, self.min_spacing, unit, generator)


class PiecewiseStationary:
    """Independent rounds with means that are constant between breakpoints, which schedulers do not know.

    Breakpoints are given (`starts`, ascending, each the first round, or the time, of a segment), or `breakpoints` of them are
    spread over the horizon: "even" gives segments of one length, "drawn" places them at random, at least `min_spacing` apart.
    The means of each segment are given (`means`, one row for each segment), or drawn uniformly from [`low`, `high`],
    independently of the others.

    Raises:
        ParameterError: a breakpoint is past the horizon, or `means` does not have one row for each segment.

    Example:
        >>> import numpy as np
        >>> placing = Breakpoints(starts=[51.0])
        >>> law = PiecewiseStationary(channels=3, generator=np.random.default_rng(1), horizon_rounds=100, placing=placing)
        >>> law.means.round(3)
        array([[0.509, 0.86 , 0.215],
               [0.859, 0.349, 0.439]])
    """

    fixed = False

    def __init__(
        self,
        *,
        channels: int,
        generator: np.random.Generator,
        horizon_rounds: int,
        horizon_s: float | None = None,
        placing: Breakpoints = Breakpoints(),
        means: Annotated[
            list[list[float]] | None,
            Doc(
                "Means of the sub-channels, one row for each segment; absent: drawn uniformly between low and high, "
                "independently of each other."
            ),
        ] = None,
        low: Annotated[float, Doc("Least mean that is drawn.")] = 0.1,
        high: Annotated[float, Doc("Greatest mean that is drawn.")] = 0.9,
    ) -> None:
        self.starts = placing.place_breakpoints(horizon_rounds, horizon_s, generator)
        self.unit = placing.unit
        self.means = _read_means(channels, len(self.starts) + 1, means, low, high, generator)
        self.segment_means = self.means
        self._timeline = Piecewise(laws=[Bernoulli(success=row) for row in self.means], starts=self.starts, unit=placing.unit)

    def at(self, round: int, time_s: float) -> tuple[Bernoulli, float]:
        return self._timeline.at(round, time_s)


class Sequence(StateFields):
    """Law of states fixed beforehand: row t - 1 of `table` (rounds, N) is round t, the same for every transmission of a round.

    It has the methods of a law of sub-channels (`models.laws.channels`), but needs none of the draws `u` that they receive.
    """

    state_fields = ("_round",)
    memoryless = False

    def __init__(self, *, table: NDArray[np.bool_]) -> None:
        self._table = table
        self._round = 0

    def step(self, u: FloatArray) -> None:
        """Go to the next round. Raises ParameterError past the last one."""
        if self._round == len(self._table):
            raise ParameterError("table", self._table, "there is no state for another", shown=f" holds {self._round} rounds")
        self._round += 1

    def good(self, u: FloatArray, entities: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return True for the sub-channels `entities` (n,) that are Good in the present round."""
        return np.asarray(self._table[self._round - 1, entities])

    def success_probability(self, entities: NDArray[np.int64]) -> FloatArray:
        """Return the share of Good rounds over the whole sequence; (n,)."""
        return np.asarray(self._table.mean(axis=0)[entities])


def _spread_breakpoints(
    count: int, horizon: float, spread: str, min_spacing: float, unit: Unit, generator: np.random.Generator
) -> list[float]:
    """Return `count` breakpoints, ascending, spread over `horizon` rounds or seconds.

    `spread` is "even" or "drawn", at least `min_spacing` apart. Raises ParameterError if they do not fit.
    """
    if count < 0:
        raise ParameterError("breakpoints", count, "must be >= 0")
    if spread == "drawn":
        try:
            drawn = draw_change_points(count=count, horizon=horizon, min_spacing=min_spacing, rng=generator, unit=unit)
        except ValueError as error:
            raise ParameterError("breakpoints", count, f"{error}") from None
        return [float(start) for start in drawn]
    if spread != "even":
        raise ParameterError("spread", spread, "must be 'even' or 'drawn'")
    if unit == "rounds" and count >= horizon:
        raise ParameterError("breakpoints", count, f"do not fit into {horizon:g} rounds")
    ends = horizon * np.arange(1, count + 1) / (count + 1)
    # A segment of rounds begins with the round after the end of the one before.
    starts = np.floor(ends) + 1 if unit == "rounds" else ends
    return [float(start) for start in starts]


def _read_means(
    channels: int, segments: int, means: list[list[float]] | None, low: float, high: float, generator: np.random.Generator
) -> FloatArray:
    """Return the means (segments, N): `means`, or drawn from [`low`, `high`] if it is None.

    Raises ParameterError for a wrong shape or a value outside [0, 1].
    """
    if not 0.0 <= low <= high <= 1.0:
        raise ParameterError("low", low, f"must satisfy 0 <= low <= high = {high!r} <= 1")
    if means is None:
        return generator.uniform(low, high, size=(segments, channels))
    if len(means) != segments or any(len(row) != channels for row in means):
        shape = f"{segments} rows of {channels}" if segments > 1 else f"one number for each of {channels} sub-channels"
        raise ParameterError("means", means, f"must hold {shape}")
    table = np.array(means, np.float64)
    if not ((table >= 0.0) & (table <= 1.0)).all():
        raise ParameterError("means", means, "must be probabilities between 0 and 1")
    return table
