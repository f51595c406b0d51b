"""The rounds of a run with the attempts that each is about, as the tables and the facts of its coordinator state them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from netsim.core.rows import ROUND_CAUSES

if TYPE_CHECKING:
    import pandas as pd

    from analysis.results.run import Run
    from analysis.statistics.arrays import FloatArray

COLUMNS = (
    *("round", "client", "outcome", "selected_s", "download_start_s", "download_end_s", "compute_start_s", "compute_end_s"),
    *("upload_start_s", "upload_end_s", "outcome_s", "started_round", "group"),
    *("number", "begun_by", "begun_after", "sent_after"),
)
OLD = "was recorded before causes were: its tables do not say what closed a round; run it again"
"""End of the message about a run of format 1."""


@dataclass(frozen=True, slots=True)
class RunRecords:
    """The rounds of one run and its attempts, with the facts of its coordinator that matter for reading them."""

    rounds: pd.DataFrame
    """round, start_s, end_s and the `ROUND_CAUSES`: a row a round, ascending; of servers with slots a communication round."""
    attempts: pd.DataFrame
    """The `COLUMNS` of the attempts that began in one of these rounds, in the order of the table."""
    carries: bool
    """True if a round is about the attempts that end in it, whenever they began."""
    retries: bool
    """True if an update may take several attempts, one a round."""
    inexact: frozenset[str] = frozenset()
    """Phases that do not end later by as much as they start later."""


def run_records(run: Run) -> RunRecords:
    """Return the rounds and attempts of `run`. ValueError: it kept no records of single clients, or none of causes."""
    facts = run.summary.get("coordinator")
    if facts is None:
        raise ValueError(f"{run.source.place}: {OLD}")
    attempts = run.arrow("clients", COLUMNS).to_pandas()
    for name in ("outcome", "begun_by"):
        attempts[name] = attempts[name].astype(str)
    if len(run.rounds):
        # An attempt without an end was under way at the end of the run.
        attempts["outcome_s"] = attempts["outcome_s"].fillna(float(run.rounds["end_s"].iloc[-1]))
    rounds = run.arrow("communication_rounds").to_pandas() if facts["slotted"] else run.rounds
    if facts["slotted"]:
        # The slot under way as the run ended is not in the table of rounds.
        rounds = rounds[rounds["slot"] <= len(run.rounds)]
    rounds = rounds[["round", "start_s", "end_s", *ROUND_CAUSES]].reset_index(drop=True)
    for name in ("opened_by", "closed_by", "close_rule"):
        rounds[name] = rounds[name].astype(object)
    return RunRecords(
        rounds=rounds,
        attempts=attempts[attempts["round"].isin(rounds["round"])].reset_index(drop=True),
        carries=bool(facts["carries_over"]),
        retries=bool(facts["resends"]),
        inexact=frozenset(facts["inexact"]),
    )


def updates_begun_s(attempts: pd.DataFrame) -> FloatArray:
    """Return the time at which each attempt's update was begun, (n,): when its client was first selected with it."""
    if attempts["started_round"].isna().all():
        return attempts["selected_s"].to_numpy(np.float64)
    return attempts.groupby(["client", "started_round"])["selected_s"].transform("min").to_numpy(np.float64)
