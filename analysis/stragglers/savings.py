"""What clients cost a run, exactly: the rounds that would have closed earlier without them, from the table `what_ifs`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from analysis.stragglers.caused_rounds import Served, served
from analysis.stragglers.closers import closers
from analysis.stragglers.critical_path import critical_path, path_totals
from analysis.stragglers.decomposition import decompose, totals, within

if TYPE_CHECKING:
    import pandas as pd

    from analysis.results.run import Run


def savings(run: Run) -> pd.DataFrame:
    """What each client's absence from one round at a time would have saved: indexed by client.

    Columns: rounds (that were simulated without it), saved_s (the sum over them; negative where they would have taken longer),
    largest_s (the most in one round), unclosed (rounds that would not have closed), lost_updates (how many fewer updates the
    rounds would have taken in). Each round is looked at by itself, with the history that it had: the sum is not what a run
    without the client would save. ValueError: `netsim stragglers` has not been asked of the run.
    """
    import pandas as pd

    table = run.arrow("what_ifs").to_pandas()
    mine = table[table["change"].astype(str) == "without"]
    grouped = mine.groupby("client")
    return pd.DataFrame(
        {
            "rounds": grouped.size().astype("int64"),
            "saved_s": grouped["saved_s"].sum(),
            "largest_s": grouped["saved_s"].max(),
            "unclosed": grouped["then_end_s"].agg(lambda ends: int(ends.isna().sum())),
            "lost_updates": (mine["delivered"] - mine["then_delivered"]).groupby(mine["client"]).sum().astype("int64"),
        }
    )


def saved_rounds(run: Run) -> tuple[int, int]:
    """The first and the last round that `savings` are of. ValueError as there."""
    rounds = run.arrow("what_ifs", ["round"]).column("round").to_numpy()
    return (int(rounds.min()), int(rounds.max())) if rounds.size else (0, 0)


def client_table(run: Run, view: Served | None = None, *, rounds: tuple[int, int] | None = None) -> pd.DataFrame:
    """What the tables of a run say of each client, whatever its server: indexed by client.

    `rounds`: of these alone, the first and the last included; None: of all.

    Columns: rounds, the seconds of `PHASES` added up, last (rounds that it alone closed), stretch_s (by how much all the others
    had ended earlier there), path_s (its seconds on the critical path). ValueError: no records of single clients.
    """
    view = served(run) if view is None else view
    told = totals(within(decompose(view), rounds), "client").drop(columns="length_s")
    closed = within(closers(view), rounds).dropna(subset="client")
    by_client = closed.groupby(closed["client"].astype("int64"))["stretch_s"]
    told["last"] = by_client.size().reindex(told.index, fill_value=0)
    told["stretch_s"] = by_client.sum().reindex(told.index, fill_value=0.0)
    told["path_s"] = path_totals(within(critical_path(view), rounds))["seconds"].reindex(told.index, fill_value=0.0)
    return told.astype({"stretch_s": np.float64, "path_s": np.float64})
