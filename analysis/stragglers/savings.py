"""Time that each client cost a run: by what-if answers in the table `what_ifs`, and by all other tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from analysis.stragglers.closers import closers
from analysis.stragglers.critical_path import critical_path, path_totals
from analysis.stragglers.decomposition import decompose, totals, within
from analysis.stragglers.records import RunRecords, run_records

if TYPE_CHECKING:
    import pandas as pd

    from analysis.results.run import Run


def savings(run: Run) -> pd.DataFrame:
    """Return the time that rounds would have saved without a client, a row for each client.

    Each round was simulated again without the client, with the history that it had. So the sum over rounds is not what a whole
    run without the client would save. Columns:

    - rounds: number of rounds simulated without the client
    - saved_s: seconds saved, summed over them; negative if they would have taken longer
    - largest_s: most seconds saved in one round
    - unclosed: number of rounds that would not have closed
    - lost_updates: how many fewer updates the rounds would have taken in

    ValueError: `netsim stragglers` was not run on the folder.
    """
    import pandas as pd

    table = run.arrow("what_ifs").to_pandas()
    without = table[table["change"].astype(str) == "without"]
    grouped = without.groupby("client")
    fewer_updates = without["delivered"] - without["then_delivered"]
    return pd.DataFrame(
        {
            "rounds": grouped.size().astype("int64"),
            "saved_s": grouped["saved_s"].sum(),
            "largest_s": grouped["saved_s"].max(),
            # A round that would not have closed has no end.
            "unclosed": grouped["then_end_s"].agg(lambda ends: int(ends.isna().sum())),
            "lost_updates": fewer_updates.groupby(without["client"]).sum().astype("int64"),
        }
    )


def saved_rounds(run: Run) -> tuple[int, int]:
    """Return the first and the last round that `savings` covers; (0, 0) if it covers none. ValueError: as for `savings`."""
    rounds = run.arrow("what_ifs", ["round"]).column("round").to_numpy()
    return (int(rounds.min()), int(rounds.max())) if rounds.size else (0, 0)


def client_table(run: Run, view: RunRecords | None = None, *, rounds: tuple[int, int] | None = None) -> pd.DataFrame:
    """Return phases, closes and path seconds of each client, for any server: indexed by client.

    `rounds`: the first and the last round that count; None: all rounds.

    Columns: rounds, the seconds of `PHASES` added up, last (rounds that it alone closed), stretch_s (by how much all the others
    had ended earlier there), path_s (its seconds on the critical path). ValueError: no records of single clients.
    """
    view = run_records(run) if view is None else view
    table = totals(within(decompose(view), rounds), "client").drop(columns="length_s")
    closed = within(closers(view), rounds).dropna(subset="client")
    by_client = closed.groupby(closed["client"].astype("int64"))["stretch_s"]
    table["last"] = by_client.size().reindex(table.index, fill_value=0)
    table["stretch_s"] = by_client.sum().reindex(table.index, fill_value=0.0)
    table["path_s"] = path_totals(within(critical_path(view), rounds))["seconds"].reindex(table.index, fill_value=0.0)
    return table.astype({"stretch_s": np.float64, "path_s": np.float64})
