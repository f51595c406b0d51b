"""Who closed each round, and by how much the others had ended before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from analysis.report.waiting import held
from analysis.stragglers.served import Served

if TYPE_CHECKING:
    import pandas as pd

FIXED, PACED, COUNT = "fixed length", "pacing", "deliveries"
DEADLINE, ENDED, SILENT = "deadline", "all ended", "nothing on the air"
"""What closed a round."""


def closers(run: Served) -> pd.DataFrame:
    """A row for each round: who was last, and by how much.

    Columns: round, start_s, end_s, rule (what closed it, a word of this module), due (how many clients the last stretch of the
    round is due to: those that ended at its close, or missed it), client (the one, where it is one; else null), stretch_s (how
    long that stretch is: so much earlier all the others had ended, or enough had delivered; 0 where the clock closed the round).
    """
    import pandas as pd

    found = run.rounds[["round", "start_s", "end_s"]].copy()
    if run.fixed or run.paced:
        rule, nobody = FIXED if run.fixed else PACED, pd.array([pd.NA] * len(found), "Int64")
        return found.assign(rule=rule, due=0, client=nobody, stretch_s=0.0)
    rows = held(run.rounds, _counted(run), first=run.first)
    by_round = rows.groupby("round")
    found["rule"] = _rule(run, rows, found["round"])
    due = found["round"].map(by_round["due"].sum())
    found["due"] = due.fillna(0).astype("int64")
    alone = rows[rows["alone"]].drop_duplicates("round").set_index("round")["client"]
    found["client"] = found["round"].map(alone).astype("Int64")
    found["stretch_s"] = found["round"].map(by_round["stretch_s"].first()).fillna(0.0)
    return found


def _counted(run: Served) -> pd.DataFrame:
    """The attempts whose ends close rounds, each with the round for which it counts, and in which the wait for it began."""
    rows = run.attempts
    if run.retries:
        # A round ends when nothing is sent any more, whoever still computes.
        return rows[rows["outcome"].isin(["delivered", "lost", "aborted"])]
    if not run.carries:
        return rows
    ends_s = run.rounds["end_s"].to_numpy()
    rows = rows[(rows["outcome"] != "in_flight") & (rows["outcome_s"] <= (ends_s[-1] if len(ends_s) else -np.inf))]
    place = np.searchsorted(ends_s, rows["outcome_s"].to_numpy())
    return rows.assign(round=run.rounds["round"].to_numpy()[place], selected_s=run.rounds["start_s"].to_numpy()[place])


def _rule(run: Served, rows: pd.DataFrame, rounds: pd.Series[int]) -> pd.Series[str]:
    counted = rounds.map(rows.groupby("round")["by_count"].first()).fillna(False).astype(bool)
    missed = rounds.map(rows.groupby("round")["missed"].any()).fillna(False).astype(bool)
    otherwise = SILENT if run.retries else ENDED
    return counted.map({True: COUNT, False: otherwise}).mask(~counted & missed, DEADLINE)
