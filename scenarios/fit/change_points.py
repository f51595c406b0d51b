"""Change points of durations over rounds, found offline by PELT (Killick, Fearnhead and Eckley 2012)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

_LEAST_ROUNDS = 20
_MOST_POINTS = 200
"""Largest number of points of a series. Of more rounds, neighbours are averaged, because the search takes quadratic time."""
_PENALTY = 5.0
"""Penalty of a change in multiples of variance x log(rounds): 2 is Schwarz's criterion; 5 keeps false alarms near 1 %."""


class NoRupturesError(ImportError):
    """The package ruptures is not installed."""


def change_rounds(rows: pd.DataFrame, amount: str | None = None) -> list[int]:
    """Return the first rounds of new levels of the complete durations of a phase.

    The series is the mean logarithm of the durations of each round, each divided by the column `amount` if that is given.
    Its noise is estimated from differences of neighbouring rounds, which a few changes hardly affect.

    Raises:
        NoRupturesError: the package ruptures, of the extra `fit`, is not installed.
    """
    complete = rows[~rows["cut"] & (rows["seconds"] > 0) & (rows["round"] > 0)]
    durations = complete["seconds"] if amount is None else complete["seconds"] / complete[amount]
    levels = np.log(durations).groupby(complete["round"]).mean()
    if len(levels) < _LEAST_ROUNDS:
        return []
    # Long series are averaged over `width` rounds a point, which bounds the time of PELT.
    width = -(-len(levels) // _MOST_POINTS)
    first_rounds = levels.index.to_numpy()[::width]
    series = np.array([part.mean() for part in np.split(levels.to_numpy(np.float64), range(width, len(levels), width))])
    deviation = np.median(np.abs(np.diff(series))) / (0.6745 * np.sqrt(2.0))
    if deviation == 0.0:
        return []
    try:
        import ruptures
    except ImportError:
        raise NoRupturesError("change points need the package ruptures: pip install 'netsim[fit]'") from None
    model = ruptures.Pelt(model="l2", min_size=5, jump=1).fit(series)
    ends = model.predict(pen=_PENALTY * deviation**2 * np.log(len(series)))
    if len(ends) > 1:
        # A drift looks like changes of level. Neighbouring rounds are then correlated, and the mean of a level is less certain
        # than with independent rounds: raise the penalty by the factor of an AR(1) series.
        residual = np.concatenate([part - part.mean() for part in np.split(series, ends[:-1])])
        correlation = min(0.9, max(0.0, float(residual[1:] @ residual[:-1] / (residual @ residual))))
        inflation = (1.0 + correlation) / (1.0 - correlation)
        ends = model.predict(pen=_PENALTY * inflation * max(deviation, float(residual.std())) ** 2 * np.log(len(series)))
    return [int(first_rounds[end]) for end in ends[:-1]]
