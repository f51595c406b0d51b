"""Decomposition of every round, client by client: download, compute, queue, upload, resending, and waiting for other clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from analysis.stragglers.records import RunRecords, updates_begun_s

if TYPE_CHECKING:
    import pandas as pd

    from analysis.statistics.arrays import FloatArray

EDGES = ("start_s", "begun_s", "downloaded_s", "computed_s", "sending_s", "ended_s", "end_s")
"""The times at which the phases of a client in a round follow each other; a phase that there is not has no length."""
PHASES = ("before_s", "download_s", "compute_s", "queue_s", "upload_s", "resend_s", "wait_s")
"""Phases of a round for a client: `before_s` until it was selected; `queue_s` until it could transmit; `upload_s` the
first transmission of an update, `resend_s` any further one of the same; `wait_s` from the end of its attempt to the close."""


def edges(run: RunRecords) -> pd.DataFrame:
    """Return the start and end of each client's phases in each round: a row for each round and attempt that it is about.

    Columns: round, client, begun_round (in which the attempt began), group (None: there are none), outcome, resent (True if the
    update was transmitted before), and the `EDGES`, seconds, ascending, of which the first and the last are the round's:
    each phase begins where the one before ends, so that together they are the round, exactly. Phases are cut at the bounds of the
    round. Rows are in the order of rounds, and within one of its attempts in the table.
    """
    import pandas as pd

    table = run.attempts
    times = attempt_times(run)
    rounds, starts_s, ends_s = (run.rounds[name].to_numpy() for name in ("round", "start_s", "end_s"))
    begun_index = np.searchsorted(rounds, table["round"].to_numpy())
    # Attempt and round of each row of the result, as indexes.
    rows, round_index = np.arange(len(table)), begun_index
    # A server that carries updates over waits for an attempt in every round up to the attempt's end: a row for each such round.
    if run.carries:
        last = np.minimum(np.searchsorted(ends_s, times[:, -1]), len(rounds) - 1)
        row_counts = np.maximum(last - begun_index, 0) + 1
        rows = np.repeat(rows, row_counts)
        # Rounds since the attempt began, 0, 1, 2 .. : the place of a row less the number of rows before those of its attempt.
        later_rounds = np.arange(len(rows)) - np.repeat(np.cumsum(row_counts) - row_counts, row_counts)
        round_index = np.repeat(begun_index, row_counts) + later_rounds
    order = np.argsort(round_index, kind="stable")
    rows, round_index = rows[order], round_index[order]
    low, high = starts_s[round_index], ends_s[round_index]
    inner = np.clip(times[rows], low[:, None], high[:, None])
    repeated = table.iloc[rows]
    return pd.DataFrame(
        {
            "round": rounds[round_index],
            "client": repeated["client"].to_numpy(),
            "begun_round": repeated["round"].to_numpy(),
            "group": repeated["group"].astype(object).to_numpy(),
            "outcome": repeated["outcome"].to_numpy(),
            "resent": _resent(run)[rows],
            **dict(zip(EDGES, (low, *inner.T, high), strict=True)),
        }
    )


def decompose(run: RunRecords) -> pd.DataFrame:
    """Return the seconds of each phase: the first columns of `edges` but resent, then the `PHASES`, and length_s, the round's.

    The phases of a row add up to length_s but for the rounding of their differences.
    """
    result = edges(run)
    lengths = np.diff(result[list(EDGES)].to_numpy(), axis=1)
    before, download, compute, queue, send, wait = lengths.T
    resent = result["resent"].to_numpy()
    phases = result[["round", "client", "begun_round", "group", "outcome"]].copy()
    values = (before, download, compute, queue, np.where(resent, 0.0, send), np.where(resent, send, 0.0), wait)
    for name, value in zip(PHASES, values, strict=True):
        phases[name] = value
    phases["length_s"] = (result["end_s"] - result["start_s"]).to_numpy()
    return phases


def within(table: pd.DataFrame, rounds: tuple[int, int] | None) -> pd.DataFrame:
    """Return the rows of `table` from the first to the second of `rounds`, both included; None: all of them."""
    return table if rounds is None else table[table["round"].between(*rounds)]


def totals(decomposed: pd.DataFrame, by: Literal["round", "client", "group"]) -> pd.DataFrame:
    """Add up a result of `decompose`: indexed by round, client or group; rounds (number of rows), `PHASES` and length_s."""
    if by not in ("round", "client", "group"):
        raise ValueError(f"by = {by!r}: must be 'round', 'client' or 'group'")
    grouped = decomposed.groupby(by)
    summed = grouped[[*PHASES, "length_s"]].sum()
    summed.insert(0, "rounds", grouped.size().astype("int64"))
    return summed


def attempt_times(run: RunRecords) -> FloatArray:
    """Return times (n, 5) of attempts: begun, downloaded, computed, sending, ended; a phase not reached has the time before."""
    table = run.attempts
    times_s = {name: table[name].to_numpy(np.float64) for name in table.columns if name.endswith("_s")}
    ended = times_s["outcome_s"]
    if run.retries:
        # A phase that lasts several rounds is recorded in the attempt in which it ended: look in all attempts of the update.
        begun = updates_begun_s(table)
        whole = table.groupby(["client", "started_round"])[["download_end_s", "compute_end_s"]].transform("max")
        downloaded, computed = (whole[name].fillna(np.inf).to_numpy(np.float64) for name in whole)
    else:
        begun = times_s["selected_s"]
        downloaded = _phase_end_s(times_s["download_start_s"], times_s["download_end_s"], ended, begun)
        computed = _phase_end_s(times_s["compute_start_s"], times_s["compute_end_s"], ended, downloaded)
    sending = np.where(np.isnan(times_s["upload_start_s"]), ended, times_s["upload_start_s"])
    # No phase lasts longer than its attempt.
    times: FloatArray = np.minimum(np.stack([begun, downloaded, computed, sending, ended], axis=1), ended[:, None])
    return times


def _phase_end_s(start_s: FloatArray, end_s: FloatArray, ended_s: FloatArray, before_s: FloatArray) -> FloatArray:
    """Return the end of a phase (n,): its own, that of the attempt if cut short, or that of the phase before if not begun.

    `start_s`, `end_s`: recorded start and end, NaN if there is none. `ended_s`: end of the attempt. `before_s`: end of the phase
    before. All are (n,).
    """
    phase_end_s: FloatArray = np.where(np.isnan(end_s), np.where(np.isnan(start_s), before_s, ended_s), end_s)
    return phase_end_s


def _resent(run: RunRecords) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return True for attempts (n,) whose update was transmitted in an earlier attempt."""
    if not run.retries:
        return np.zeros(len(run.attempts), np.bool_)
    ordered = run.attempts.sort_values("round", kind="stable")
    sent = ordered["upload_start_s"].notna().astype("int64")
    before = sent.groupby([ordered["client"], ordered["started_round"]]).cumsum() - sent
    return (before > 0).sort_index().to_numpy()
