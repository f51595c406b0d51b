"""Change points of durations over rounds, found offline by PELT (Killick, Fearnhead and Eckley 2012)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

_LEAST_ROUNDS = 20
_PENALTY = 3.0
"""Penalty of a change in multiples of variance x log(rounds): 2 is Schwarz's criterion, 3 keeps false alarms rare."""


class NoRupturesError(ImportError):
    """The package ruptures is not installed."""


def change_rounds(rows: pd.DataFrame) -> list[int]:
    """Return the rounds at which the level of the complete durations of a phase changes.

    The series is the mean logarithm of the durations of each round. Its noise is estimated from differences of neighbouring
    rounds, which a few changes hardly touch.

    Raises:
        NoRupturesError: the package ruptures, of the extra `fit`, is not installed.
    """
    whole = rows[~rows["cut"] & (rows["seconds"] > 0) & (rows["round"] > 0)]
    levels = np.log(whole["seconds"]).groupby(whole["round"]).mean()
    series = levels.to_numpy(np.float64)
    if len(series) < _LEAST_ROUNDS:
        return []
    deviation = np.median(np.abs(np.diff(series))) / (0.6745 * np.sqrt(2.0))
    if deviation == 0.0:
        return []
    try:
        import ruptures
    except ImportError:
        raise NoRupturesError("change points need the package ruptures: pip install 'netsim[fit]'") from None
    penalty = _PENALTY * deviation**2 * np.log(len(series))
    ends = ruptures.Pelt(model="l2", min_size=5, jump=1).fit_predict(series, pen=penalty)
    return [int(levels.index[end]) for end in ends[:-1]]
