"""Waits of a server for the last clients of its rounds, by the rule that closed each round."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class StragglerStudy:
    """Cost of waiting for the last clients of each round. Shares are NaN without rounds that took time."""

    waited_s: float
    """Total seconds from the selection to the close of the rounds that had clients."""
    slowest_share: float
    """Share of `waited_s` in which one client alone held the close of its round up."""
    together_share: float
    """Share of `waited_s` in which several clients held it up that then ended at the same moment, or missed the close."""
    idle_share: float
    """Share of the clients' time in rounds that they were done and the round went on."""
    per_client: pd.DataFrame
    """Indexed by client: rounds taken part in, missed (closes), mean_latency_s (cut at the close), times_slowest, and cost_s:
    seconds that it alone held a close up."""


def attempts_at_close(rounds: pd.DataFrame, clients: pd.DataFrame, *, first: int | None = None) -> pd.DataFrame:
    """Return a row for each attempt: when it ended relative to the close of its round, and if the round waited for it.

    The rules are those of `straggler_study`. The column close_rule of `rounds` says which rounds deliveries closed; without it,
    `first` deliveries close a round.

    Columns:

    - round, client, outcome, selected_s, outcome_s
    - start_s, end_s: start of the wait, which is the selection, and close of the round
    - missed: True if the round closed without it
    - held_s: seconds from the selection to its end, at most to the close
    - latency_s: seconds from the selection to the close
    - due: True if the last stretch of the round, after all others had ended, is due to it
    - alone: True if that stretch is due to no other attempt
    - stretch_s: length of that stretch
    - by_count: True if deliveries closed the round
    """
    columns = ["round", "end_s", "close_rule"] if _states_rules(rounds) else ["round", "end_s"]
    attempts = clients[["round", "client", "outcome", "selected_s", "outcome_s"]].merge(rounds[columns], on="round")
    # The wait counts from the selection: a policy may have sent probes before.
    attempts["start_s"] = attempts["selected_s"]
    missed = _missed_close(attempts)
    attempts["missed"] = missed
    ended_s = attempts["end_s"].where(missed, attempts["outcome_s"]).clip(upper=attempts["end_s"])
    attempts["held_s"] = ended_s - attempts["start_s"]
    attempts["latency_s"] = attempts["end_s"] - attempts["start_s"]

    delivered = (attempts["outcome"].astype(str) == "delivered") & ~missed
    if "close_rule" in attempts:
        by_count = (attempts["close_rule"].astype(object) == "deliveries").fillna(False).astype(bool)
    else:
        closing_count = math.inf if first is None else first
        by_count = delivered.groupby(attempts["round"]).transform("sum") >= closing_count
    at_close = attempts["held_s"] == attempts["latency_s"]
    # Only deliveries count in a round that deliveries close; in others each end does.
    counts = delivered | ~by_count
    due = at_close & counts
    # The stretch begins at the last end that counts before the close.
    earlier_end_s = attempts["held_s"].where(~at_close & counts, 0.0)
    attempts["due"], attempts["by_count"] = due, by_count
    attempts["alone"] = due & (due.groupby(attempts["round"]).transform("sum") == 1)
    attempts["stretch_s"] = attempts["latency_s"] - earlier_end_s.groupby(attempts["round"]).transform("max")
    return attempts


def _states_rules(rounds: pd.DataFrame) -> bool:
    """Return True if the rounds name the rules that closed them; those of format 1 do not."""
    return "close_rule" in rounds and bool(rounds["close_rule"].notna().any())


def straggler_study(rounds: pd.DataFrame, clients: pd.DataFrame, *, first: int | None = None) -> StragglerStudy:
    """Find the clients that kept a server waiting, for servers that close rounds by ends, by a deadline or by deliveries.

    `rounds` and `clients` are the tables of one run; `first` is the number of deliveries that closes a round (None: no such
    rule), and is not needed where `rounds` name the rules that closed them.
    The wait is the last stretch of a round. Where the `first` deliveries closed it, it reaches back to the delivery before, and
    is due to the client whose delivery closed the round: with one delivery fewer the round would have closed there. Otherwise it
    reaches back to the last end before the close, and is due to the clients that ended at the close or missed it (a deadline).
    A stretch due to one client is its cost; for a stretch due to several no single one can be blamed.
    """
    import pandas as pd

    attempts = attempts_at_close(rounds, clients, first=first)
    alone, stretch_s = attempts["alone"], attempts["stretch_s"]
    # The first attempt of each round stands for the round: latency and last stretch are the same in all its rows.
    one_a_round = ~attempts["round"].duplicated()
    waited_s = float(attempts.loc[one_a_round, "latency_s"].sum())
    stretches_s = float(stretch_s[one_a_round].sum())
    alone_s = float(stretch_s[alone].sum())
    idle_s = float((attempts["latency_s"] - attempts["held_s"]).sum())
    in_rounds_s = float(attempts["latency_s"].sum())

    grouped = attempts.groupby("client")
    per_client = pd.DataFrame(
        {
            "rounds": grouped.size(),
            "missed": grouped["missed"].sum().astype("int64"),
            "mean_latency_s": grouped["held_s"].mean(),
        }
    )
    blamed = stretch_s[alone & (stretch_s > 0.0)].groupby(attempts["client"])
    per_client["times_slowest"] = blamed.size().reindex(per_client.index).fillna(0).astype("int64")
    per_client["cost_s"] = blamed.sum().reindex(per_client.index).fillna(0.0).astype("float64")
    return StragglerStudy(
        waited_s=waited_s,
        slowest_share=alone_s / waited_s if waited_s > 0.0 else math.nan,
        together_share=(stretches_s - alone_s) / waited_s if waited_s > 0.0 else math.nan,
        idle_share=idle_s / in_rounds_s if in_rounds_s > 0.0 else math.nan,
        per_client=per_client,
    )


def _missed_close(attempts: pd.DataFrame) -> pd.Series[bool]:
    """Return True for each attempt without which its round closed."""
    outcome, outcome_s = attempts["outcome"].astype(str), attempts["outcome_s"]
    late = outcome.isin(["late", "in_flight"]) | outcome_s.isna() | (outcome_s > attempts["end_s"])
    # Dropped as the next round opened, in the instant of the close: it was under way then.
    return late | (is_dropped(attempts) & (outcome_s > attempts["start_s"]))


def is_dropped(attempts: pd.DataFrame) -> pd.Series[bool]:
    """Return (n,), True for attempts that were dropped because their client was selected again at that moment.

    `attempts` must hold all attempts of these clients: the row of the later selection shows that an attempt was dropped.
    """
    import pandas as pd

    # Pairs of client and time: an attempt whose end is also a selection of its client was dropped for that selection.
    ends = pd.MultiIndex.from_frame(attempts[["client", "outcome_s"]])
    selections = pd.MultiIndex.from_frame(attempts[["client", "selected_s"]])
    was_aborted = attempts["outcome"].astype(str) == "aborted"
    return was_aborted & ends.isin(selections)
