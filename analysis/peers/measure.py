"""Waits of peers in a run without a server: from the end of a training to the beginning of the next, and what ended them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

    from analysis.results.run import Run

_BY_MESSAGES = ("message", "sent")
"""Causes of attempts that a message of another peer let begin."""


def has_peers(run: Run) -> bool:
    """Return True if a run was one of peers, each with rounds of its own."""
    return bool(len(run.rounds)) and "rounds_ahead" in run.rounds and bool(run.rounds["rounds_ahead"].notna().any())


def waits(run: Run) -> pd.DataFrame:
    """Return a row for each wait of a peer at the end of one of its own rounds that another peer's message ended.

    Columns: peer, round (its own), from_s, until_s, waited_for (the peer whose message ended the wait). Empty for a run without
    messages that let attempts begin.
    """
    import pandas as pd

    if run.summary.get("coordinator") is None:
        # Recorded before causes were.
        return pd.DataFrame({name: [] for name in ("peer", "round", "from_s", "until_s", "waited_for")})
    names = ("number", "client", "round", "selected_s", "outcome_s", "begun_by", "begun_after")
    attempts = run.arrow("clients", names).to_pandas()
    # A wait lasts from the end of a round to the beginning of the next one: join each attempt with the round before it.
    ended = attempts.groupby(["client", "round"])["outcome_s"].max().rename("from_s").reset_index()
    by_messages = attempts[attempts["begun_by"].astype(str).isin(_BY_MESSAGES)]
    begun = by_messages.assign(round=by_messages["round"] - 1)
    table = begun.drop(columns="outcome_s").merge(ended, on=["client", "round"])
    table["waited_for"] = table["begun_after"].map(dict(zip(attempts["number"], attempts["client"], strict=True)))
    table = table[(table["from_s"] < table["selected_s"]) & table["waited_for"].notna()]
    table = table.rename(columns={"client": "peer", "selected_s": "until_s"}).astype({"waited_for": np.int64})
    result: pd.DataFrame = table[["peer", "round", "from_s", "until_s", "waited_for"]].reset_index(drop=True)
    return result
