"""Measured logs: one row for each phase of each attempt of a client, read from CSV, Parquet or the folder of a run.

Columns (only `client` and a duration are required):

| column | meaning |
| --- | --- |
| `client` | number or name of the client |
| `round` | number of the round, from 1; needed for losses in bursts, change points and the predictive check |
| `phase` | `download`, `compute`, `upload`, `total` (all of them together, the default); `present`; `downlink`, `uplink` |
| `seconds`, or `start_s` and `end_s` | the duration, or its ends on one clock |
| `bytes`, `samples` | bytes that were transferred, samples that were trained on |
| `outcome` | empty or `delivered`: complete; `lost`: complete, and lost; `overdue`: complete, when the server no longer waited; |
| | `late`, `aborted`: cut off by the server or by the client, so that the duration is a bound |
| `class` | the client's class of devices |
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from scenarios.schema.errors import UserError, did_you_mean
from scenarios.schema.section import Tables

if TYPE_CHECKING:
    import pandas as pd

PHASES = ("download", "compute", "upload", "total")
PRESENT = "present"
RATES = {"downlink": "download", "uplink": "upload"}
"""Phases that measure the bandwidth of a link, such as intervals of iperf3, and the phase whose messages cross that link."""
_OUTCOMES = (
    dict.fromkeys(("", "delivered", "complete", "ok", "overdue"), "complete")
    | dict.fromkeys(("lost",), "lost")
    | dict.fromkeys(("late", "timeout", "aborted", "in_flight", "censored"), "cut")
)
_COLUMNS = ("client", "round", "phase", "start_s", "end_s", "seconds", "bytes", "samples", "outcome", "class")
_LONGEST_S = 1e8
"""Longest duration, three years. A longer one is refused, because it probably has another unit."""
_MOST_BYTES = 1e15
"""Largest size of a message; a larger one probably has another unit."""
_ROUNDING = 0.01
"""Largest relative difference between `seconds` and `end_s - start_s`, which rounding may cause."""


@dataclass(frozen=True, slots=True)
class Log:
    """A checked log.

    Attributes:
        rows: one row a phase of an attempt, with the columns `client` (number from 0), `round` (0: not known), `phase`, `start_s`
            (NaN: not known), `seconds`, `cut` (the duration is a bound), `lost`, `late` (cut off by the server, not by the
            client), `bytes` and `samples` (NaN: not known), and `group`.
        names: name of each client in the log.
        groups: class of each client (K,).
        source: name of the log in messages.
        deadline_s: deadline of the server, seconds after a round's start; None if unknown.
        first: number of deliveries at which the server closed a round; None if unknown.
        doubts: warnings about the rows, as sentences.
    """

    rows: pd.DataFrame
    names: list[str]
    groups: list[str]
    source: str
    deadline_s: float | None = None
    first: int | None = None
    doubts: tuple[str, ...] = ()

    @property
    def classes(self) -> list[str]:
        """Names of the classes, in alphabetical order."""
        return sorted(set(self.groups))

    @property
    def rounds(self) -> int:
        """Number of distinct rounds; 0 if the log has none."""
        return int(self.rows.loc[self.rows["round"] > 0, "round"].nunique())

    def phase(self, phase: str, group: str | None = None) -> pd.DataFrame:
        """Return the rows of a phase, of one class or of all."""
        matches = self.rows["phase"] == phase
        if group is not None:
            matches &= self.rows["group"] == group
        return self.rows[matches]

    def phases(self) -> list[str]:
        """Return the phases that the log has, in the order in which they happen."""
        present = set(self.rows["phase"].unique())
        return [phase for phase in PHASES if phase in present]

    def select_rounds(self, first: int, last: int) -> Log:
        """Return the rounds from `first` to `last`, both included, with all measured bandwidths and intervals of presence."""
        inside = self.rows["round"].between(first, last) | self.rows["phase"].isin([PRESENT, *RATES])
        return replace(self, rows=self.rows[inside])

    def has_rows(self, phase: str) -> bool:
        """Return True if the log has rows of a phase, such as measured bandwidths of a link."""
        return bool((self.rows["phase"] == phase).any())

    def round_numbers(self) -> list[int]:
        """Return the distinct numbers of the log's rounds, ascending."""
        return sorted(set(self.rows.loc[self.rows["round"] > 0, "round"].tolist()))

    def attempts(self) -> pd.DataFrame:
        """Return a row for each attempt: `round`, `client`, `group`, `seconds` of all its phases, `delivered`, `late`, `lost`."""
        rows = self.rows[self.rows["phase"].isin(PHASES) & (self.rows["round"] > 0)]
        grouped = rows.groupby(["round", "client"], sort=True)
        attempts = grouped.agg(
            group=("group", "first"), seconds=("seconds", "sum"), late=("late", "any"), lost=("lost", "any"), cut=("cut", "any")
        ).reset_index()
        attempts["delivered"] = ~(attempts["lost"] | attempts["cut"] | attempts["late"])
        return attempts


def read_log(source: str | Path | pd.DataFrame, *, by: str = "class") -> Log:
    """Read a log and check it.

    Args:
        source: a CSV or Parquet file, the folder of a run, or a table with the columns of this module.
        by: "class": clients of one class share their laws; "client": each client is a class of its own.

    Raises:
        UserError: a file or a column is missing, or a value is not possible.
    """
    import pandas as pd

    if by not in ("class", "client"):
        raise UserError(f"by = {by!r}: must be 'class' or 'client'")
    if isinstance(source, pd.DataFrame):
        return _check_log(source, "the table", by)
    path = Path(source)
    if (path / "clients.parquet").is_file():
        server = _server_table(path)
        log = _check_log(run_log(path), str(path), by)
        return replace(log, deadline_s=server.get("deadline_s"), first=server.get("first"))
    if path.is_dir():
        raise UserError(f"{path}: is a folder without clients.parquet; give a run's folder, a CSV file or a Parquet file")
    try:
        table = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path, skipinitialspace=True, comment="#")
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such file") from None
    except (ValueError, OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read as {path.suffix.lstrip('.') or 'CSV'}: {error}") from None
    only = str(table.columns[0]) if len(table.columns) == 1 else ""
    for sign, name in ((";", "';'"), ("\t", "tabs")):
        if sign in only:
            raise UserError(f"{path}: its columns are separated by {name}; separate them by commas")
    return _check_log(_convert_attempts(table), str(path), by)


def _convert_attempts(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table of attempts of netsim as a log; return any other table unchanged."""
    return attempts_log(table, None) if {"compute_start_s", "upload_end_s", "outcome_s"} <= set(table.columns) else table


def run_log(folder: Path) -> pd.DataFrame:
    """Return the log of a run, as an unchecked table, from the tables in its folder."""
    import pandas as pd

    rounds = pd.read_parquet(folder / "rounds.parquet") if (folder / "rounds.parquet").is_file() else None
    return attempts_log(pd.read_parquet(folder / "clients.parquet"), rounds)


def _server_table(folder: Path) -> Tables:
    """Return the table `[server]` of a run's scenario; empty if the folder has no scenario."""
    file = folder / "scenario.toml"
    return dict(tomllib.loads(file.read_text(encoding="utf-8")).get("server", {})) if file.is_file() else {}


def attempts_log(attempts: pd.DataFrame, rounds: pd.DataFrame | None) -> pd.DataFrame:
    """Return the log of a table of attempts (`clients.parquet`): a row for each phase that an attempt began.

    `rounds`: the run's table of rounds; None: times at which rounds closed are unknown.

    The last phase of a late, aborted or unfinished attempt is cut off. Two exceptions: a late attempt that ended after the close
    of its round was not cut off, because its update arrived although the server no longer waited; and an attempt that the end of
    the run cut after the close of its round counts as late.
    """
    import pandas as pd

    outcome_of_attempt = attempts["outcome"].astype(str)
    close_s = np.full(len(attempts), np.nan)
    if rounds is not None:
        close_s = attempts["round"].map(rounds.set_index("round")["end_s"]).to_numpy(np.float64)
    end_of_attempt_s = attempts["outcome_s"].to_numpy(np.float64)
    was_late, was_in_flight = (outcome_of_attempt == "late").to_numpy(), (outcome_of_attempt == "in_flight").to_numpy()
    arrived_late = was_late & (end_of_attempt_s > close_s)
    late = was_late | (was_in_flight & (end_of_attempt_s >= close_s))
    cut_short = outcome_of_attempt.isin(["late", "aborted", "in_flight"]).to_numpy() & ~arrived_late
    # Phase -> column of the start of the next phase.
    next_start = {"download": "compute_start_s", "compute": "upload_start_s", "upload": None}
    size_column = {"download": "bytes_down", "upload": "bytes_up"}
    parts = []
    for phase, after in next_start.items():
        start_s = attempts[f"{phase}_start_s"].to_numpy(np.float64)
        recorded_end_s = attempts[f"{phase}_end_s"].to_numpy(np.float64)
        has_end = np.isfinite(recorded_end_s)
        begun = np.isfinite(start_s)
        # True if the attempt began no further phase: its outcome is that of this phase.
        is_last = np.ones(len(attempts), np.bool_) if after is None else attempts[after].isna().to_numpy()
        # A client that waits for a sub-channel has finished training, though it has not begun to send.
        waits = has_end & (recorded_end_s < end_of_attempt_s)
        cut = begun & is_last & cut_short & ~waits
        lost = begun & is_last & (outcome_of_attempt == "lost").to_numpy()
        outcome = np.where(cut, np.where(late, "late", "aborted"), np.where(lost, "lost", ""))
        # Mark all phases of the attempt, because an upload that takes no time has no row.
        outcome = np.where(begun & arrived_late, "overdue", outcome)
        samples = attempts["samples"].astype(float) if phase == "compute" and "samples" in attempts else np.nan
        part = pd.DataFrame(
            {
                "client": attempts["client"],
                "round": attempts["round"],
                "phase": phase,
                "start_s": start_s,
                "end_s": np.where(has_end, recorded_end_s, end_of_attempt_s),
                "bytes": attempts[size_column[phase]].astype(float) if phase in size_column else np.nan,
                "samples": samples,
                "outcome": outcome,
                "class": attempts["group"].astype(object) if "group" in attempts else None,
            }
        )
        part = part[begun]
        # Leave out a phase that never takes time and never loses anything: there is nothing to fit.
        if (part["end_s"] > part["start_s"]).any() or (part["outcome"] == "lost").any():
            parts.append(part)
    return pd.concat(parts) if parts else pd.DataFrame(columns=_COLUMNS)


def _check_log(table: pd.DataFrame, source: str, by: str) -> Log:
    """Return the log of a table; raises UserError for missing or unknown columns, and impossible values."""
    import pandas as pd

    for column in table.columns:
        if str(column) not in _COLUMNS:
            raise UserError(f"{source}: column {column!r}: unknown; {did_you_mean(str(column), _COLUMNS)}")
    if "client" not in table:
        raise UserError(f"{source}: has no column 'client'; it names the client of each row")
    if "seconds" not in table and not {"start_s", "end_s"} <= set(table.columns):
        raise UserError(f"{source}: has no durations; give a column 'seconds', or 'start_s' and 'end_s'")
    if not len(table):
        raise UserError(f"{source}: has no row")
    table = table.reset_index(drop=True)
    rows = pd.DataFrame({"phase": _text_column(table, "phase", "total")})
    phases = [*PHASES, PRESENT, *RATES]
    _refuse(source, ~rows["phase"].isin(phases), rows["phase"], "phase", f"must be one of {', '.join(phases)}")
    outcome = _text_column(table, "outcome", "").replace({"none": "", "nan": ""})
    outcomes = ", ".join(filter(None, _OUTCOMES))
    _refuse(source, ~outcome.isin(_OUTCOMES), outcome, "outcome", f"must be empty, or one of {outcomes}")
    for name in ("start_s", "end_s", "seconds", "bytes", "samples", "round"):
        rows[name] = _number_column(table, name, source)
    meaning = outcome.map(_OUTCOMES)
    rows["cut"], rows["lost"] = meaning == "cut", meaning == "lost"
    rows["late"] = outcome.isin(["late", "timeout", "censored", "overdue"])
    _set_seconds(rows, source)
    _refuse(source, rows["bytes"] > _MOST_BYTES, rows["bytes"], "bytes", "is over 10^15; give bytes of one message")
    _check_rates(rows, source)
    _refuse(source, rows["round"] % 1 > 0, rows["round"], "round", "must be a whole number")
    rows["round"] = rows["round"].fillna(0).astype(np.int64)
    names, codes = _number_clients(table, source)
    rows["client"] = codes
    groups = _classes_of_clients(table, names, codes, source, by)
    rows["group"] = np.array(groups, dtype=object)[codes]
    return Log(rows, names, groups, source, doubts=tuple(_find_doubts(rows, names)))


def _find_doubts(rows: pd.DataFrame, names: list[str]) -> list[str]:
    """Return warnings about valid rows that do not fit together: a clock that goes back, and repeated phases."""
    doubts = []
    numbered = rows[(rows["round"] > 0) & rows["phase"].isin(PHASES)]
    begins = numbered.groupby("round")["start_s"].min().dropna()
    back = np.flatnonzero(np.diff(begins.to_numpy()) < 0)
    if len(back):
        round, previous = begins.index[back[0] + 1], begins.index[back[0]]
        more = f" (and {len(back) - 1} more rounds)" if len(back) > 1 else ""
        problem = f"round {round} begins before round {previous}{more}"
        doubts.append(f"{problem}: the clock goes back; give all rows times of one clock")
    repeated = numbered.duplicated(["client", "round", "phase"])
    if repeated.any():
        row = int(np.flatnonzero(repeated)[0])
        line = numbered.index[row] + 1
        client, round, phase = (numbered[name].iloc[row] for name in ("client", "round", "phase"))
        problem = f"row {line}: client {names[client]} has a second row of phase {phase} in round {round}"
        doubts.append(f"{problem} ({int(repeated.sum())} such rows): the predictive check adds them up; remove copies")
    return doubts


def _text_column(table: pd.DataFrame, name: str, default: str) -> pd.Series[str]:
    """Return a column as text without surrounding blanks, with `default` for missing values.

    Logs are long and have few distinct values, so each distinct value is converted once.
    """
    import pandas as pd

    if name not in table:
        return pd.Series(default, index=table.index)
    codes, values = pd.factorize(table[name])
    texts = np.array([*(str(value).strip() for value in values), default], dtype=object)
    return pd.Series(texts[codes], index=table.index)


def _number_column(table: pd.DataFrame, name: str, source: str) -> pd.Series[float]:
    """Return a column as numbers, NaN where it is empty; raises UserError for values that are not finite or below 0."""
    import pandas as pd

    if name not in table:
        return pd.Series(np.nan, index=table.index)
    numbers = pd.to_numeric(table[name], errors="coerce").astype(np.float64)
    has_value = table[name].notna()
    if not pd.api.types.is_numeric_dtype(table[name]):
        has_value &= table[name].astype(str).str.strip() != ""
    _refuse(source, has_value & ~np.isfinite(numbers), table[name], name, "must be a finite number")
    _refuse(source, numbers < 0, table[name], name, "must be >= 0")
    return numbers


def _refuse(source: str, is_bad: Any, values: Any, name: str, reason: str) -> None:
    """Raise UserError about the first row with `is_bad`, if there is any. Rows count from 1, below the header.

    `values`, `name`: the column that is wrong. `reason`: end of the message.
    """
    bad_rows = np.flatnonzero(np.asarray(is_bad))
    if len(bad_rows):
        value = values.iloc[bad_rows[0]]
        value = value.item() if isinstance(value, np.generic) else value
        more = f" (and {len(bad_rows) - 1} more rows)" if len(bad_rows) > 1 else ""
        raise UserError(f"{source}: row {bad_rows[0] + 1}: {name} = {value!r}: {reason}{more}")


def _set_seconds(rows: pd.DataFrame, source: str) -> None:
    """Fill the column `seconds` from `start_s` and `end_s` where it is empty; raises UserError for times that do not fit."""
    has_times = rows["start_s"].notna() & rows["end_s"].notna()
    _refuse(source, has_times & (rows["end_s"] < rows["start_s"]), rows["end_s"], "end_s", "must not be before start_s")
    span = rows["end_s"] - rows["start_s"]
    differs = has_times & ((rows["seconds"] - span).abs() > _ROUNDING * np.maximum(span, 1.0))
    _refuse(source, differs, rows["seconds"], "seconds", "is not end_s - start_s; leave out the column that is wrong")
    rows["seconds"] = rows["seconds"].where(rows["seconds"].notna(), span)
    _refuse(source, rows["seconds"].isna(), rows["seconds"], "seconds", "is missing; give it, or start_s and end_s")
    too_long = (rows["seconds"] > _LONGEST_S) & (rows["phase"] != PRESENT)
    _refuse(source, too_long, rows["seconds"], "seconds", "is over three years; give seconds, not milliseconds or less")


def _check_rates(rows: pd.DataFrame, source: str) -> None:
    """Raise UserError for measured bandwidths without time or bytes, and set their round to 0: they belong to no round."""
    rates = rows["phase"].isin(list(RATES))
    _refuse(source, rates & rows["bytes"].isna(), rows["bytes"], "bytes", "is missing; a measured bandwidth is bytes in seconds")
    _refuse(source, rates & rows["start_s"].isna(), rows["start_s"], "start_s", "is missing; a bandwidth is measured at a time")
    _refuse(source, rates & (rows["seconds"] <= 0), rows["seconds"], "seconds", "must be > 0 for a measured bandwidth")
    rows.loc[rates, "round"] = 0


def _number_clients(table: pd.DataFrame, source: str) -> tuple[list[str], Any]:
    """Return the names of the clients, sorted by number or by name, and for each row the index of its client among them."""
    import pandas as pd

    texts = _text_column(table, "client", "")
    _refuse(source, texts == "", table["client"], "client", "is missing; every row names its client")
    codes, values = pd.factorize(texts)
    distinct = sorted(values, key=lambda name: (not name.isdigit(), int(name) if name.isdigit() else 0, name))
    number = {name: index for index, name in enumerate(distinct)}
    return distinct, np.array([number[name] for name in values], np.int64)[codes]


def _classes_of_clients(table: pd.DataFrame, names: list[str], codes: Any, source: str, by: str) -> list[str]:
    """Return the class of each client, by its index; raises UserError if a client has two.

    `names`, `codes`: result of `_number_clients`.
    """
    if by == "client":
        return [f"client-{name}" for name in names]
    if "class" not in table or table["class"].isna().all():
        return ["all"] * len(names)
    texts = _text_column(table, "class", "")
    pairs = texts.to_frame("text").assign(code=codes).drop_duplicates()
    class_of: dict[int, str] = {}
    for row, text, code in pairs[pairs["text"] != ""].itertuples():
        if class_of.setdefault(code, text) != text:
            reason = f"client {names[code]} was of class {class_of[code]!r} before; a client has one class"
            raise UserError(f"{source}: row {row + 1}: class = {text!r}: {reason}")
    return [class_of.get(code, "other") for code in range(len(names))]
