"""Presence of clients: measured intervals replayed, or laws fitted to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from scenarios.fit.durations import LEVEL, Estimate, round_digits
from scenarios.fit.log import PRESENT, Log
from scenarios.schema.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

PRESENCES = ("trace", "markov", "diurnal")
"""Laws of presence, by their names in scenario files; the first is used unless another is chosen."""
_HOUR_S, _DAY_S = 3600.0, 86_400.0


@dataclass(frozen=True, slots=True)
class FittedPresence:
    """Law of presence that was fitted.

    Attributes:
        kind: "trace", "markov" or "diurnal".
        table: the law as in a scenario file, but without the path of a trace.
        number: number of intervals of presence in the log.
        parameters: estimates with 95 % intervals, by "class name".
    """

    kind: str
    table: Mapping[str, Any]
    number: int
    parameters: Mapping[str, Estimate] = field(default_factory=dict)


def presence_rows(log: Log) -> pd.DataFrame:
    """Return the intervals of presence, sorted: `client`, `start_s` and `end_s` (from the first time of the log on), and `cut`.

    `cut`: True if the client was still present when the log ended.
    """
    rows = log.phase(PRESENT)
    first_s = float(log.rows["start_s"].min())
    rows = rows.assign(start_s=rows["start_s"] - first_s, end_s=rows["start_s"] - first_s + rows["seconds"])
    return rows[["client", "start_s", "end_s", "cut"]].sort_values(["client", "start_s"], kind="stable")


def fit_presence(log: Log, kind: str | None = None) -> FittedPresence | None:
    """Fit the law of presence `kind`, one of `PRESENCES`; None: the trace. Return None if the log has no presence.

    Raises:
        UserError: intervals have no start or overlap, or there are too few for the law.
    """
    if not (log.rows["phase"] == PRESENT).any():
        return None
    missing = np.flatnonzero(((log.rows["phase"] == PRESENT) & log.rows["start_s"].isna()).to_numpy())
    if len(missing):
        raise UserError(f"{log.source}: row {missing[0] + 1}: start_s is missing; presence is an interval of time")
    rows = presence_rows(log)
    _check_no_overlap(log, rows)
    if kind == "markov":
        return _fit_markov(log, rows)
    if kind == "diurnal":
        return _fit_diurnal(log, rows)
    return FittedPresence("trace", {"kind": "trace"}, len(rows))


def _check_no_overlap(log: Log, rows: pd.DataFrame) -> None:
    """Raise UserError if two intervals of presence of one client overlap."""
    client, start_s, end_s = (rows[name].to_numpy() for name in ("client", "start_s", "end_s"))
    # Each row after the first, compared with the row before; rows are sorted by client and time.
    overlaps = (client[1:] == client[:-1]) & (start_s[1:] < end_s[:-1])
    if overlaps.any():
        row = int(rows.index[np.flatnonzero(overlaps)[0] + 1]) + 1
        raise UserError(f"{log.source}: row {row}: client is present twice at once; merge intervals that overlap")


def _fit_markov(log: Log, rows: pd.DataFrame) -> FittedPresence:
    """Return the most likely exponential times present and absent, by class; raises UserError if a class has none of them.

    The mean time of a state is the total time in it divided by the number of its ends. An interval that the end of the log cuts
    adds time but no end. The time before a client's first interval is unknown and adds nothing.
    """
    last_s = float(rows["end_s"].max())
    cut = (rows["cut"] | (rows["end_s"] >= last_s)).to_numpy()
    # True if the next row is of the same client.
    has_next = rows["client"].to_numpy()[1:] == rows["client"].to_numpy()[:-1]
    # Start of the client's next interval, or the end of the log.
    next_s = np.append(np.where(has_next, rows["start_s"].to_numpy()[1:], last_s), last_s)
    frame = rows.assign(
        group=np.array(log.groups, dtype=object)[rows["client"]],
        on_s=rows["end_s"] - rows["start_s"],
        off_s=np.where(cut, 0.0, next_s - rows["end_s"]),
        leaves=~cut,
        returns=np.append(has_next, False) & ~cut,
    )
    parameters: dict[str, Estimate] = {}
    for group, part in frame.groupby("group"):
        for name, seconds, ends in (("mean_on_s", "on_s", "leaves"), ("mean_off_s", "off_s", "returns")):
            number, total_s = int(part[ends].sum()), float(part[seconds].sum())
            if number == 0 or total_s <= 0:
                event = "leaves" if ends == "leaves" else "comes back"
                raise UserError(f"{log.source}: presence of class {group!r}: no client {event}; use --law present=trace")
            # The exact interval of an exponential mean.
            low = 2 * total_s / float(stats.chi2.ppf((1 + LEVEL) / 2, 2 * number))
            high = 2 * total_s / float(stats.chi2.ppf((1 - LEVEL) / 2, 2 * number))
            parameters[f"{group} {name}"] = Estimate(total_s / number, low, high)
    absent = [group for group in log.classes if f"{group} mean_on_s" not in parameters]
    if absent:
        raise UserError(f"{log.source}: class {absent[0]!r} has no row of phase 'present'; use --law present=trace")
    table: dict[str, Any] = {"kind": "markov"}
    for key in ("mean_on_s", "mean_off_s"):
        by_class = {group: round_digits(parameters[f"{group} {key}"].value) for group in log.classes}
        table[key] = by_class[log.classes[0]] if len(by_class) == 1 else {"by_group": by_class}
    return FittedPresence("markov", table, len(rows), parameters)


def _fit_diurnal(log: Log, rows: pd.DataFrame) -> FittedPresence:
    """Return the diurnal law: the share of time that clients are present in each hour of the day, and the mean session.

    Hours are those of the log's clock: its times are seconds since a midnight, such as those of Unix.
    """
    # `rows` count from the beginning of the log. Here times count from the midnight before it.
    first_s = float(log.rows["start_s"].min()) % _DAY_S
    start_s, end_s = rows["start_s"].to_numpy() + first_s, rows["end_s"].to_numpy() + first_s
    last_s = float(end_s.max())
    if last_s - first_s < _DAY_S:
        raise UserError(f"{log.source}: presence by hour needs a log of a day or more; use --law present=trace or present=markov")
    present_s, known_s = np.zeros(24), np.zeros(24)  # seconds of all clients together, by hour of the day
    for hour in range(int(last_s // _HOUR_S) + 1):
        low, high = hour * _HOUR_S, (hour + 1) * _HOUR_S
        present_s[hour % 24] += np.clip(np.minimum(end_s, high) - np.maximum(start_s, low), 0.0, None).sum()
        known_s[hour % 24] += max(0.0, min(last_s, high) - max(first_s, low)) * len(log.names)
    shares = [round_digits(share) for share in (present_s / known_s).tolist()]
    sessions = rows["end_s"] - rows["start_s"]
    table = {"kind": "diurnal", "by_hour": shares, "mean_session_s": round_digits(float(sessions.mean()))}
    return FittedPresence("diurnal", table | {"start_h": round_digits(first_s / _HOUR_S)}, len(rows))
