"""The true changes of a run: when each was declared, and how long the regret took to come down again.

The rounds of a change are those from its first round to the round before the next change, or to the end of the run. What happens
in them is attributed to the change. A declaration or a recovery that does not come by then is censored there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from analysis.detections.measure import changes_of_means, declared_rounds, run_detections

if TYPE_CHECKING:
    import pandas as pd

    from analysis.results.run import Run
    from analysis.statistics.arrays import FloatArray

Unit = Literal["rounds", "seconds"]
WINDOW = 50
"""Rounds over which the regret rate is averaged."""
_LAWS = ("downlink", "compute", "uplink", "channels")


def true_changes(run: Run) -> list[int]:
    """Return the first row of the rounds table (a round, or a slot) under each change of a law, ascending.

    These are changes of the means of sub-channels, the `changes` and `random_changes` of links and of training that the scenario
    states, and changes by a script.
    """
    starts_s = run.columns(["start_s"])["start_s"]
    firsts = set(run.row_of(changes_of_means(run) or ()).tolist())
    stated = [change for section in _LAWS for change in _changes(run.scenario.get(section))]
    points: list[tuple[Any, float | None]] = [(change.get("at_round"), change.get("at_s")) for change in stated]
    for drawn in run.summary.get("drawn_changes") or ():
        start = drawn["start"]
        points.append((math.ceil(start), None) if drawn["unit"] == "rounds" else (None, start))
    for at_round, at_s in points:
        # A change at a time counts from the first round that starts no earlier.
        first = run.row_of(at_round) if at_s is None else np.searchsorted(starts_s, at_s) + 1
        firsts.add(int(first))
    if run.source.has("script"):
        acts = run.script
        changes_law = acts["action"].astype(str).isin(["change", "scale", "restore"])
        # An act within a round has effect from that round on.
        firsts |= {max(1, number) for number in run.row_of(acts.loc[changes_law, "round"]).tolist()}
    return sorted(number for number in firsts if 1 < number <= len(starts_s))


def _changes(section: Any) -> Sequence[dict[str, Any]]:
    """Return the `changes` that a section of the scenario writes out."""
    return section.get("changes", ()) if isinstance(section, dict) else ()


def regret_of_rounds(run: Run) -> FloatArray:
    """Return the regret of each round, (n,): of ages where an oracle of ages was run, else of the reward; NaN: not measured."""
    reward, genie, age, oracle = run.columns(["reward", "genie_reward", "sum_age", "oracle_sum_age"]).values()
    age_regret = age - oracle
    regret: FloatArray = age_regret if not np.isnan(age_regret).all() else genie - reward
    return regret


def change_table(run: Run, *, window: int = WINDOW) -> pd.DataFrame:
    """Return a row for each true change of `run`. ValueError: `window` below 1.

    Columns, in this order:

    - change: number from 1; at_round, at_s: its first round, and when that begins.
    - last_round: the last round before the next change; rounds, seconds: from the first to the end of the last.
    - ends_run: True if no change follows.
    - declared_round, delay_rounds, delay_s: the first declaration, and the delay from the first round to it, both counted; null:
      missed, or nothing declares changes. other_declarations: number of further ones in its rounds.
    - level_before: mean regret of the last `window` rounds before it; null: not measured, or fewer rounds.
    - recovered_round: the first round of the first `window` rounds after the change whose mean regret is at most that level;
      recovery_rounds, recovery_s: the time to it, 0 if the regret never rose; null: censored, or no level.
    - watched_rounds, watched_s: the longest time to recovery that could have been seen.
    """
    import pandas as pd

    if window < 1:
        raise ValueError(f"window = {window!r}: must be >= 1 round")
    starts_s, ends_s = run.columns(["start_s", "end_s"]).values()
    firsts = true_changes(run)
    regret = regret_of_rounds(run)
    declared = _declaration_rounds(run, firsts)
    last_rounds = [following - 1 for following in firsts[1:]] + [len(starts_s)]
    rows = []
    # Rounds and changes count from 1: round r is at index r - 1 of `starts_s` and `ends_s`.
    for number, first in enumerate(firsts, start=1):
        last = last_rounds[number - 1]
        start_s = starts_s[first - 1]
        own_declarations = declared[(declared >= first) & (declared <= last)]
        declared_round, delay_s = math.nan, math.nan
        if len(own_declarations):
            declared_round = own_declarations[0]
            delay_s = ends_s[int(declared_round) - 1] - start_s
        level, recovered, watched = recovery(regret, first, last, window)
        rows.append(
            {
                "change": number,
                "at_round": first,
                "at_s": start_s,
                "last_round": last,
                "rounds": last - first + 1,
                "seconds": ends_s[last - 1] - start_s,
                "ends_run": last == len(starts_s),
                "declared_round": declared_round,
                "delay_rounds": declared_round - first + 1,
                "delay_s": delay_s,
                "other_declarations": max(0, len(own_declarations) - 1),
                "level_before": level,
                "recovered_round": recovered,
                "recovery_rounds": recovered - first,
                "recovery_s": math.nan if math.isnan(recovered) else starts_s[int(recovered) - 1] - start_s,
                "watched_rounds": watched,
                "watched_s": starts_s[first - 1 + watched] - start_s if watched else 0.0,
            }
        )
    return pd.DataFrame(rows, columns=list(COLUMNS))


COLUMNS = (
    *("change", "at_round", "at_s", "last_round", "rounds", "seconds", "ends_run", "declared_round", "delay_rounds", "delay_s"),
    *("other_declarations", "level_before", "recovered_round", "recovery_rounds", "recovery_s", "watched_rounds", "watched_s"),
)


def detects(run: Run) -> bool:
    """Return True if the scheduler of the run declares changes; otherwise no change counts as missed.

    The summary states it. In a run of format 1 it does not: there, a scheduler that declared a change counts.
    """
    stated = (run.summary.get("sub_channels") or {}).get("detects", False)
    return bool(stated) or (run.has_detections and bool(len(run.detections)))


class Recovery(NamedTuple):
    """Recovery of the regret from a change."""

    level: float
    """Mean regret of a window of rounds before the change; NaN: not measured, or fewer rounds."""
    round: float
    """First round from which the mean regret of a window is back at the level; NaN: none."""
    watched_rounds: int
    """Longest recovery, in rounds, that could have been seen."""


def recovery(regret: FloatArray, first: int, last: int, window: int) -> Recovery:
    """Return the recovery from a change that lasts from round `first` to `last`, from the `regret` (n,) of rounds 1..n.

    The level before the change is the mean over `window` rounds. The regret has recovered with the first window after the change
    whose mean is no higher. Windows begin after the change: earlier rounds would make their means too low.
    """
    before, after = regret[max(0, first - 1 - window) : first - 1], regret[first - 1 : last]
    if len(before) < window or np.isnan(before).any() or np.isnan(after).any():
        return Recovery(math.nan, math.nan, 0)
    level = float(before.mean())
    if len(after) < window:
        return Recovery(level, math.nan, 0)
    # Mean of each window after the change, from differences of the running sum.
    sums = np.concatenate([[0.0], np.cumsum(after)])
    window_means = (sums[window:] - sums[:-window]) / window
    # The tolerance is for rounding: sums of the same numbers in another order differ in the last digits.
    recovered = np.flatnonzero(window_means <= level + 1e-9 * max(1.0, abs(level)))
    recovered_round = float(first + recovered[0]) if len(recovered) else math.nan
    # The last window begins len(window_means) - 1 rounds after the first.
    return Recovery(level, recovered_round, len(window_means) - 1)


def _declaration_rounds(run: Run, changes: Sequence[int]) -> FloatArray:
    """Return the rounds (n,), ascending, in which changes were declared, without declarations that jamming caused."""
    if not run.has_detections:
        return np.zeros(0)
    rounds = declared_rounds(run).astype(np.float64)
    not_jammed = np.array([cause != "jamming" for cause in run_detections(run, changes).causes], np.bool_)
    return np.sort(rounds[not_jammed])
