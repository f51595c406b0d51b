"""Closes of rounds: the rule that closed each, the client that it waited for, and the lead of the other clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from analysis.stragglers.records import RunRecords
from analysis.stragglers.waiting import attempts_at_close, is_dropped

if TYPE_CHECKING:
    import pandas as pd


def closers(run: RunRecords) -> pd.DataFrame:
    """Return a row for each round: what closed it, the client that held it up, and for how long.

    The last stretch of a round is the time before its close in which it waited for its last clients only. Columns:

    - round, start_s, end_s
    - rule: the rule that closed it, as the run states it; for a rule without a name, the kind of the cause
    - due: number of clients that the last stretch is due to, which ended as the round closed, or missed its deadline; 0 if the
      clock closed it
    - client: that client, if there is one only; otherwise null
    - stretch_s: length of the stretch; 0 if the clock closed the round
    """
    rounds = run.rounds
    result = rounds[["round", "start_s", "end_s"]].copy()
    result["rule"] = rounds["close_rule"].where(rounds["close_rule"].notna(), rounds["closed_by"])
    rows = attempts_at_close(rounds, _closing_attempts(run))
    rows = rows[rows["due"] & ~rows["round"].isin(rounds.loc[rounds["closed_by"] == "schedule", "round"])]
    # A close by the end of an attempt is due to the attempts that ended then; one at a deadline to those that missed it.
    closed_by_end = rows["round"].isin(rounds.loc[rounds["closed_by"] == "end", "round"])
    rows = rows[~(closed_by_end & rows["missed"])]
    by_round = rows.groupby("round")
    due = by_round.size()
    result["due"] = result["round"].map(due).fillna(0).astype("int64")
    alone = rows[rows["round"].isin(due.index[due == 1])].set_index("round")["client"]
    result["client"] = result["round"].map(alone).astype("Int64")
    result["stretch_s"] = result["round"].map(by_round["stretch_s"].first()).fillna(0.0)
    return result


def _closing_attempts(run: RunRecords) -> pd.DataFrame:
    """Return the attempts whose ends close rounds. `round` is the round that waited for each, `selected_s` the start of the wait.

    Both are those of the attempt, unless updates outlast rounds: then they are those of the round in which the attempt ended.
    """
    rows = run.attempts
    if run.retries:
        # Updates are sent again in later rounds: a round ends when no client sends any more, even if some still compute.
        return rows[rows["outcome"].isin(["delivered", "lost", "aborted"])]
    if not run.carries:
        return rows
    ends_s = run.rounds["end_s"].to_numpy()
    # A round drops attempts as it opens, in the instant in which the round before it closes. Neither round waited for these.
    ended = (rows["outcome"] != "in_flight") & (rows["outcome_s"] <= (ends_s[-1] if len(ends_s) else -np.inf)) & ~is_dropped(rows)
    rows = rows[ended]
    place = np.searchsorted(ends_s, rows["outcome_s"].to_numpy())
    return rows.assign(round=run.rounds["round"].to_numpy()[place], selected_s=run.rounds["start_s"].to_numpy()[place])
