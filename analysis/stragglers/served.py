"""The rounds of a run with the attempts that each is about, whatever the kind of its server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.report.waiting import communication_rounds

if TYPE_CHECKING:
    import pandas as pd

    from analysis.results import Run
    from analysis.statistics import FloatArray

CARRYING = ("buffered", "compass", "safa", "semi-synchronous")
"""Kinds of servers whose rounds are about attempts that began in earlier ones, too."""
COLUMNS = (
    *("round", "client", "outcome", "selected_s", "download_start_s", "download_end_s", "compute_start_s", "compute_end_s"),
    *("upload_start_s", "upload_end_s", "outcome_s", "started_round", "group", "channel"),
)


@dataclass(frozen=True, slots=True)
class Served:
    """The rounds of one run and its attempts."""

    kind: str
    """`server.kind`."""
    rounds: pd.DataFrame
    """round, start_s, end_s: a row a round, ascending; of servers with slots a communication round."""
    attempts: pd.DataFrame
    """The `COLUMNS` of the attempts that began in one of these rounds, in the order of the table."""
    first: int | None
    """Deliveries that close a round; None: there is no such rule."""
    fixed: bool
    """Whether a round lasts as long as it is set to last."""
    paced: bool = False
    """Whether it closes when time has passed, as the latencies of those at work have it."""

    @property
    def carries(self) -> bool:
        """Whether a round is also about attempts that began in earlier ones."""
        return self.kind in CARRYING

    @property
    def retries(self) -> bool:
        """Whether an update may take several attempts, one a round."""
        return self.kind == "asynchronous"


def served(run: Run) -> Served:
    """The rounds and attempts of `run`. ValueError: it kept no records of single clients."""
    server: dict[str, Any] = run.scenario.get("server") or {}
    kind = str(server.get("kind", "synchronous"))
    attempts = run.arrow("clients", COLUMNS).to_pandas()
    attempts["outcome"] = attempts["outcome"].astype(str)
    if len(run.rounds):
        # What has no end was under way as the run ended.
        attempts["outcome_s"] = attempts["outcome_s"].fillna(float(run.rounds["end_s"].iloc[-1]))
    rounds = run.rounds[["round", "start_s", "end_s"]]
    per_slot = (run.summary.get("slots") or {}).get("rounds_per_slot")
    if per_slot is not None:
        rounds = communication_rounds(attempts, last=int(per_slot) * len(rounds), deadline_s=server.get("deadline_s"))
    return Served(
        kind=kind,
        rounds=rounds.reset_index(drop=True),
        attempts=attempts[attempts["round"].isin(rounds["round"])].reset_index(drop=True),
        first=server.get("buffer", 1) if kind == "buffered" else server.get("first"),
        paced=kind == "buffered" and server.get("pacing") == "latency",
        fixed=kind == "semi-synchronous" or (kind == "asynchronous" and server.get("round_s") is not None),
    )


def updates_begun_s(attempts: pd.DataFrame) -> FloatArray:
    """(n,) when the update of each attempt was begun: as its client was first selected with it."""
    if attempts["started_round"].isna().all():
        return attempts["selected_s"].to_numpy(np.float64)
    return attempts.groupby(["client", "started_round"])["selected_s"].transform("min").to_numpy(np.float64)
