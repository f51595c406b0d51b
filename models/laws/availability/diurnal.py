"""Presence that follows the hour of the day: an on-off process whose probability of being on is a table by local hour.

The table gives p at the middle of each hour; in between p is linear. A client that is on leaves at rate d, one that is off
comes at rate a, with p' = a (1 - p) - d p: so P(on at t) = p(t) at every t, as it holds at time 0. d is 1 / mean_session_s,
raised to -p'/p where the table falls faster than such departures allow (then a = 0); elsewhere a = (p' + d p) / (1 - p). Where
p is 1 throughout, no client leaves.

A day is cut into pieces in which p is linear and d is one of the two: on each of them both hazards have a closed form.
"""

from __future__ import annotations

import math
from typing import Annotated, Any

import numpy as np
from annotated_doc import Doc

from models.errors import ParameterError
from models.laws.availability.presence import Alternating
from models.laws.delays import FloatArray, IntArray, PerClient, check_same_clients, per_client, spread

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
# Hazard of a piece that every sojourn ends in. A sojourn ends when its hazard reaches its level, a standard exponential draw; of
# a uniform in steps of 2^-53 it is at most 53 ln 2 = 36.7. It replaces infinite hazards, whose sums could not be inverted.
_ENOUGH = 64.0
# Clients whose sojourns are computed at once: intermediate arrays take some hundred bytes a client.
_BLOCK = 1 << 15


class Diurnal(Alternating):
    """Clients that come and go by the hour of their day: at every instant the expected share of present clients is the table's.

    The table applies to the middle of each local hour, and is interpolated in between. Sessions last `mean_session_s` on
    average, less where the table falls too fast for that; the mean attained is in the summary.

    Example:
        >>> law = Diurnal(clients=2, by_hour=[0.2] * 12 + [0.8] * 12, mean_session_s=1800.0)
        >>> round(law.notes()["mean_session_s"])
        1799
    """

    def __init__(
        self,
        *,
        clients: int,
        by_hour: Annotated[
            list[float], Doc("Probability of being present in each hour of the local day, 24 numbers; the first holds at 0:30.")
        ],
        mean_session_s: Annotated[float, Doc("Mean length in seconds of a session, from coming to leaving.")],
        time_zone_h: Annotated[
            PerClient, Doc("Hours by which a client's clock is ahead of the run's; by group: { by_group = { asia = 8 } }.")
        ] = 0.0,
        start_h: Annotated[float, Doc("The hour on the run's clock as it begins, 0 to 24.")] = 0.0,
    ) -> None:
        super().__init__(clients)
        zone = per_client("time_zone_h", time_zone_h, low=-24.0, high=24.0, unit=" hours")
        check_same_clients(clients=self.next_change_s, time_zone_h=zone)
        if not 0 <= start_h <= 24:
            raise ParameterError("start_h", start_h, "must lie in 0..24")
        if not (math.isfinite(mean_session_s) and mean_session_s >= 1e-3):
            raise ParameterError("mean_session_s", mean_session_s, "must be finite and >= 0.001 seconds")
        self._day = _Day(_table(by_hour), mean_session_s)
        # Days begin at 0:30, where the table does.
        self._ahead_s = np.mod((start_h + spread(zone, np.arange(clients))) * HOUR_S - HOUR_S / 2, DAY_S)
        """Time of day (K,) of each client at time 0, seconds since 0:30."""

    def _share_at_first(self) -> FloatArray:
        return self._day.share(self._ahead_s)

    def _ends_s(self, clients: IntArray, level: FloatArray) -> FloatArray:
        """Return the times (n,) in seconds at which `clients` (n,) end the stay or absence that they begin.

        A sojourn ends where its cumulated hazard reaches `level` (n,), a standard exponential number.
        """
        begins_s = self.next_change_s[clients]
        of_day_s = np.mod(begins_s + self._ahead_s[clients], DAY_S)
        is_on = self.on[clients]
        ends_of_day_s = np.empty(len(clients))
        # Clients that are on leave next, others come.
        for leaving in (True, False):
            places = np.flatnonzero(is_on == leaving)
            for first in range(0, len(places), _BLOCK):
                block = places[first : first + _BLOCK]
                ends_of_day_s[block] = self._day.sojourn_ends(of_day_s[block], level[block], leaving)
        # Rounding must not put an end before its beginning.
        return np.maximum(begins_s, begins_s - of_day_s + ends_of_day_s)

    def notes(self) -> dict[str, Any]:
        return {"mean_session_s": self._day.mean_session_s}


def _table(by_hour: list[float]) -> FloatArray:
    """Return the 24 probabilities. Raises ParameterError for other numbers."""
    if len(by_hour) != 24:
        raise ParameterError("by_hour", by_hour, "must hold 24 numbers, one an hour", shown=f" has {len(by_hour)} entries")
    table = np.array(by_hour, np.float64)
    for hour, share in enumerate(by_hour):
        if not 0 <= share <= 1:
            raise ParameterError("by_hour", share, "must be a probability, 0 to 1", shown=f" = {share!r} for hour {hour}")
    if not table.any():
        raise ParameterError("by_hour", by_hour, "must be above 0 in some hour for clients to come", shown=" is 0 throughout")
    return table


class _Day:
    """Day that begins at 0:30, cut into pieces: from `_starts` for `_lengths` seconds p is `_p` + `_slope` (t - start).

    p is the probability of being on. In steep pieces p falls faster than departures at the rate 1 / mean_session_s allow.
    """

    def __init__(self, table: FloatArray, mean_session_s: float) -> None:
        self._rate = 1.0 / mean_session_s
        starts, lengths, shares, slopes, steep = [], [], [], [], []
        for hour, p in enumerate(table.tolist()):
            slope = (float(table[(hour + 1) % 24]) - p) / HOUR_S
            flat_s = HOUR_S
            if slope < 0:
                # Below this share, p falls faster than departures at the given rate allow.
                steep_below = -slope * mean_session_s
                flat_s = min(max((p - steep_below) / -slope, 0.0), HOUR_S)
            # An hour has a flat piece, and a steep one after it; either may have no length.
            for begin_s, length_s, is_steep in ((0.0, flat_s, False), (flat_s, HOUR_S - flat_s, True)):
                if length_s > 0:
                    starts.append(hour * HOUR_S + begin_s)
                    lengths.append(length_s)
                    shares.append(min(max(p + slope * begin_s, 0.0), 1.0))
                    slopes.append(slope)
                    steep.append(is_steep)
        self._starts, self._lengths, self._p, self._slope = map(np.array, (starts, lengths, shares, slopes))
        self._steep = np.array(steep)
        self._last = np.clip(self._p + self._slope * self._lengths, 0.0, 1.0)
        """p at the end of each piece."""
        self._full = (self._p == 1) & (self._last == 1)
        """Pieces in which all clients are present throughout."""
        pieces = np.arange(len(self._p))
        self._hazard_before: dict[bool, FloatArray] = {}
        """(pieces + 1,) hazard of leaving (True) or coming (False), from the beginning of the day to that of each piece."""
        for leaving in (True, False):
            of_pieces = np.minimum(self._hazard(pieces, self._p, self._last, self._lengths, leaving), _ENOUGH)
            self._hazard_before[leaving] = np.concatenate(([0.0], np.cumsum(of_pieces)))

    def share(self, of_day: FloatArray) -> FloatArray:
        """Return p at times of day (n,)."""
        piece = self._piece(of_day)
        shares: FloatArray = np.clip(self._p[piece] + self._slope[piece] * (of_day - self._starts[piece]), 0.0, 1.0)
        return shares

    @property
    def mean_session_s(self) -> float | None:
        """Mean length of a session over a whole day: time present over departures; None if no client ever leaves."""
        # Of one client, in each piece: the time present, and the departures.
        present_s = self._lengths * (self._p + self._last) / 2
        # Where p falls steeply, nobody comes, so p falls by the departures.
        departures = np.where(self._steep, self._p - self._last, present_s * self._rate)
        all_departures = float(departures[~self._full].sum())
        return float(present_s.sum()) / all_departures if all_departures > 0 else None

    def sojourn_ends(self, of_day: FloatArray, level: FloatArray, leaving: bool) -> FloatArray:
        """Return the ends (n,) of sojourns from times of day `of_day` (n,) on: their hazards reach `level` (n,) there.

        Ends are in seconds from the beginning of the day on which the sojourn begins; inf: never. `leaving`: True for the
        hazard of leaving, False for that of coming.
        """
        piece = self._piece(of_day)
        share = self.share(of_day)
        left_s = np.maximum(self._lengths[piece] - (of_day - self._starts[piece]), 0.0)
        # Hazard in the rest of the present piece.
        rest = self._hazard(piece, share, self._last[piece], left_s, leaving)
        hazard_before, ends = self._hazard_before[leaving], np.full(len(of_day), math.inf)
        hazard_of_day = hazard_before[-1]
        ends_in_piece = level < rest
        if ends_in_piece.any():
            here = np.flatnonzero(ends_in_piece)
            stay_s = self._invert_hazard(piece[here], share[here], left_s[here], level[here], leaving)
            ends[here] = of_day[here] + stay_s
        later = np.flatnonzero(~ends_in_piece)
        if later.size and hazard_of_day > 0:
            # Take away the rest of the piece, then whole days; bisection finds the piece of the last day.
            target = hazard_before[piece[later] + 1] + (level[later] - rest[later])
            days = np.floor(target / hazard_of_day)
            target = np.maximum(target - days * hazard_of_day, 0.0)
            last = np.minimum(np.searchsorted(hazard_before, target, side="right") - 1, len(self._p) - 1)
            within_s = self._invert_hazard(last, self._p[last], self._lengths[last], target - hazard_before[last], leaving)
            ends[later] = days * DAY_S + self._starts[last] + within_s
        return ends

    def _piece(self, of_day: FloatArray) -> IntArray:
        """Return the piece of each time of day (n,)."""
        piece: IntArray = np.searchsorted(self._starts, of_day, side="right") - 1
        return piece

    def _hazard(self, piece: IntArray, p: FloatArray, to: FloatArray, seconds: FloatArray, leaving: bool) -> FloatArray:
        """Return the hazard (n,) over `seconds` (n,) in which the share goes from `p` (n,) to `to` (n,), within `piece` (n,).

        It is the integral of d (leaving) or a (coming), the rates in the header of this module.
        """
        slope, steep = self._slope[piece], self._steep[piece]
        with np.errstate(divide="ignore", invalid="ignore"):
            if leaving:
                # Where p is 1 throughout, no client leaves.
                flat = np.where(self._full[piece], 0.0, seconds * self._rate)
                hazard = np.where(steep, np.log(p / to), flat)
            else:
                constant = seconds * self._rate * p / (1 - p)
                curved = (1 + self._rate / slope) * np.log((1 - p) / (1 - to)) - seconds * self._rate
                hazard = np.where(steep, 0.0, np.where(slope == 0, constant, curved))
            # 0/0 arises without time left, or where all clients or none are present.
            hazard = np.where(np.isnan(hazard), math.inf, np.maximum(hazard, 0.0))
            return np.where(seconds > 0, hazard, 0.0)

    def _invert_hazard(self, piece: IntArray, p: FloatArray, left: FloatArray, level: FloatArray, leaving: bool) -> FloatArray:
        """Return the seconds (n,) after which the hazard in `piece` (n,), from share `p` (n,) on, is `level` (n,).

        They are at most `left` (n,). This is the inverse of `_hazard`.
        """
        slope, steep = self._slope[piece], self._steep[piece]
        with np.errstate(divide="ignore", invalid="ignore"):
            if leaving:
                seconds = np.where(steep, p * np.expm1(-level) / slope, level / self._rate)
            else:
                constant = level * (1 - p) / (self._rate * p)
                seconds = np.where(slope == 0, constant, self._solve_curved(slope, p, left, level))
        return np.minimum(np.where(np.isnan(seconds), 0.0, seconds), left)

    def _solve_curved(self, slope: FloatArray, p: FloatArray, left: FloatArray, level: FloatArray) -> FloatArray:
        """Return the seconds x with (1 + rate / slope) ln((1 - p) / (1 - p - slope x)) - rate x = level, by Newton's method.

        Bisection safeguards it: the left side rises from 0 to at least `level` in [0, `left`].
        """
        answer = np.zeros(len(level))
        # Where p is 1 at the beginning, a client that is away comes at once; the caller solves the case without slope.
        unsolved = np.flatnonzero((slope != 0) & (p < 1))
        low, high = np.zeros(len(unsolved)), left[unsolved].copy()
        slope, away, level = slope[unsolved], 1 - p[unsolved], level[unsolved]
        # The first guess keeps the rate of coming at its first value.
        x = np.minimum(level * away / np.maximum(slope + self._rate * (1 - away), 1e-300), high)
        while unsolved.size:
            away_at_x = away - slope * x
            value = (1 + self._rate / slope) * -np.log1p(-slope * x / away) - self._rate * x - level
            too_early = value < 0
            low, high = np.where(too_early, x, low), np.where(too_early, high, x)
            newton = x - value * away_at_x / (slope + self._rate * (1 - away_at_x))
            new = np.where((newton > low) & (newton < high), newton, (low + high) / 2)
            solved = (np.abs(new - x) <= 1e-9) | (high - low <= 1e-9)
            answer[unsolved[solved]] = new[solved]
            unsolved, low, high, x = unsolved[~solved], low[~solved], high[~solved], new[~solved]
            slope, away, level = slope[~solved], away[~solved], level[~solved]
        return answer
