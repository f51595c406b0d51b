"""Change points of durations over rounds, found offline by PELT (Killick, Fearnhead and Eckley 2012)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

_LEAST_ROUNDS = 20
_MOST_POINTS = 200
"""Points of a series; of more rounds neighbours are taken together, since the search takes the square of their number."""
_PENALTY = 5.0
"""Penalty of a change in multiples of variance x log(rounds): 2 is Schwarz's criterion; 5 keeps false alarms near 1 %."""


class NoRupturesError(ImportError):
    """The package ruptures is not installed."""


def change_rounds(rows: pd.DataFrame, amount: str | None = None) -> list[int]:
    """Return the first rounds of new levels of the complete durations of a phase.

    The series is the mean logarithm of the durations of each round, each divided by the column `amount` where that is given.
    Its noise is estimated from differences of neighbouring rounds, which a few changes hardly touch.

    Raises:
        NoRupturesError: the package ruptures, of the extra `fit`, is not installed.
    """
    whole = rows[~rows["cut"] & (rows["seconds"] > 0) & (rows["round"] > 0)]
    each = whole["seconds"] if amount is None else whole["seconds"] / whole[amount]
    levels = np.log(each).groupby(whole["round"]).mean()
    if len(levels) < _LEAST_ROUNDS:
        return []
    together = -(-len(levels) // _MOST_POINTS)
    firsts = levels.index.to_numpy()[::together]
    series = np.array([part.mean() for part in np.split(levels.to_numpy(np.float64), range(together, len(levels), together))])
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
        # Durations that drift look like levels that change: then a level's mean is less certain than its number of rounds says.
        residual = np.concatenate([part - part.mean() for part in np.split(series, ends[:-1])])
        correlation = min(0.9, max(0.0, float(residual[1:] @ residual[:-1] / (residual @ residual))))
        longer = (1.0 + correlation) / (1.0 - correlation)
        ends = model.predict(pen=_PENALTY * longer * max(deviation, float(residual.std())) ** 2 * np.log(len(series)))
    return [int(firsts[end]) for end in ends[:-1]]
