"""Flat typed records, written as they happen: the tables of a run, streamed to Parquet so that memory does not grow with rounds.

Every table states its name and format version in its metadata. Columns carry their units; null means not reached or not measured.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast, get_args, get_type_hints

import pyarrow as pa
import pyarrow.parquet as pq

FORMAT = 1
_FLUSH_ROWS = 8192


class RoundRow(NamedTuple):
    """One round. The counts of outcomes are of updates (of any round) that ended since the last round closed, so that up to every
    row the sums satisfy: selected = delivered + lost + late + aborted, + in_flight of that row."""

    round: int
    start_s: float
    end_s: float
    selected: int
    delivered: int
    lost: int
    late: int
    aborted: int
    in_flight: int
    max_leak: float
    version: int
    accuracy: float
    loss: float
    reward: float
    genie_reward: float
    bytes_down: int
    bytes_up: int
    sum_age: int | None = None
    """Sum over clients of the age of information after the round (asynchronous server)."""
    age_variance: float | None = None
    """Sum over clients of (age - mean age)^2 after the round."""
    oracle_sum_age: float | None = None
    """The oracle's sum of ages on the same channel states; AoI regret is the sum of the differences."""
    jammed: int | None = None
    """Transmissions hit by a jammer."""
    collided: int | None = None
    """Transmissions lost because two used one sub-channel at once."""
    jam_dwells: int | None = None
    """What jamming cost: sub-channels times dwells, of all jammers."""
    members: int | None = None
    """Clients that took part in the slot. Of servers with slots a row is a slot: its counts are over its communication rounds."""
    opinion: float | None = None
    """Average opinion of all clients at the end of the slot: its reward."""
    opinion_s: float | None = None
    """Seconds at the end of the slot for testing the model and uploading opinions."""
    opinions_missing: int | None = None
    """Opinions that did not reach the server in this slot."""
    talk_s: float | None = None
    """Seconds the clients spent deciding who takes part, before the slot's training."""
    converged_s: float | None = None
    """Seconds from the start of the talk until belief propagation had settled; null: it had not when training started."""
    agreed_s: float | None = None
    """Seconds from the start of the talk until all clients named the same top m; null: they did not when training started."""
    exchanges: int | None = None
    """Exchanges of belief propagation (asynchronous: the most messages on one edge)."""
    residual: float | None = None
    """The largest change of a message in the last exchange, in log-odds."""
    disagreement: float | None = None
    """Share of clients that did not name the true top m when training started."""
    messages: int | None = None
    """Messages sent between clients in the slot, every sending counted; sums over rows satisfy
    messages = messages_delivered + messages_lost, + messages_in_flight of the last row."""
    messages_delivered: int | None = None
    messages_lost: int | None = None
    messages_in_flight: int | None = None
    """Messages in flight as the slot ends."""
    messages_resent: int | None = None
    """Of the messages sent: those that had been lost before."""
    message_bytes: int | None = None
    """Bytes of the messages sent between clients in the slot."""


class UpdateRow(NamedTuple):
    """One client's part in a round: when each step began and ended, how it ended, what it cost.

    `age_rounds` is the age of information as the round began. With the asynchronous server every client present has a part in
    every round, and an update may take several: a step is told, start and end, in the part in which it ended; a part that the
    end of the round cut short, in computing or sending, is late.
    """

    round: int
    client: int
    outcome: str
    selected_s: float
    download_start_s: float
    download_end_s: float
    compute_start_s: float
    compute_end_s: float
    upload_start_s: float
    upload_end_s: float
    outcome_s: float
    censored: bool
    version: int
    age_rounds: int
    epsilon: float
    leak: float
    started_round: int | None = None
    """The round in which the client was sent the model that its update starts from."""
    channel: int | None = None
    """The sub-channel given to the client."""
    good: bool | None = None
    """Whether that channel let transmissions through; null where none was begun."""
    jammed: bool | None = None
    """Whether a jammer hit the transmission."""
    collided: bool | None = None
    """Whether another transmission was on the same sub-channel at the same time."""
    age_after_rounds: int | None = None
    """Age of information after the round: 1 if delivered, else one more than before."""
    age_after_s: float | None = None
    """Seconds from the client's last delivery (before the first: from the start of the run) to the end of the round."""


class JamRow(NamedTuple):
    """One dwell of one jammer on one sub-channel."""

    round: int
    jammer: str
    channel: int
    start_s: float
    end_s: float
    hit: int
    """Transmissions it spoilt, each counted for the jammer that came first."""
    destroyed: int
    """Those among them whose channel was good."""


class MessageRow(NamedTuple):
    """One sending of a message between two clients."""

    round: int
    protocol: str
    source: int
    target: int
    number: int
    """Belief propagation: the exchange (asynchronous: the how manieth message on this edge); push: the repetition; flooding: the
    best client whose index it carries."""
    resend: int
    """How often the same message was sent before."""
    sent_s: float
    end_s: float
    outcome: str
    """delivered, lost or in_flight."""
    cause: str | None
    """Why it was lost: channel, cut or jammed."""
    size_bytes: int


def _plain(hint: Any) -> type:
    """The type of a column: `int` of `int | None`."""
    kinds = [kind for kind in (get_args(hint) or (hint,)) if kind is not type(None)]
    return cast("type", kinds[0])


def _schema(table: str, row: type, overrides: dict[str, pa.DataType]) -> pa.Schema:
    kinds = {int: pa.int64(), float: pa.float64(), str: pa.string(), bool: pa.bool_()}
    fields = [pa.field(name, overrides.get(name) or kinds[_plain(kind)]) for name, kind in get_type_hints(row).items()]
    return pa.schema(fields, metadata={"netsim.table": table, "netsim.format": str(FORMAT)})


ROUNDS = _schema("rounds", RoundRow, dict.fromkeys(("selected", "delivered", "lost", "late", "aborted", "in_flight"), pa.int32()))
_NAMES = pa.dictionary(pa.int8(), pa.string())
CLIENTS = _schema("clients", UpdateRow, {"outcome": _NAMES})
JAMS = _schema("jams", JamRow, {"jammer": _NAMES})
MESSAGES = _schema("messages", MessageRow, dict.fromkeys(("protocol", "outcome", "cause"), _NAMES))


class Recorder(Protocol):
    """Takes the records of a run in the order in which they come about."""

    def round(self, row: RoundRow) -> None:
        """A round has closed."""

    def update(self, row: UpdateRow) -> None:
        """An update has ended, or the run has ended before it."""

    def jam(self, row: JamRow) -> None:
        """A dwell of a jammer has ended."""

    def message(self, row: MessageRow) -> None:
        """A message between clients has ended, or the run has ended before it."""

    def close(self) -> None:
        """No more records will come."""


class NoRecorder:
    """Keeps nothing."""

    def round(self, row: RoundRow) -> None:
        return None

    def update(self, row: UpdateRow) -> None:
        return None

    def jam(self, row: JamRow) -> None:
        return None

    def message(self, row: MessageRow) -> None:
        return None

    def close(self) -> None:
        return None


class MemoryRecorder:
    """Keeps every record in a list, for short runs in a notebook and for tests."""

    def __init__(self) -> None:
        self.rounds: list[RoundRow] = []
        self.updates: list[UpdateRow] = []
        self.jams: list[JamRow] = []
        self.messages: list[MessageRow] = []

    def round(self, row: RoundRow) -> None:
        self.rounds.append(row)

    def update(self, row: UpdateRow) -> None:
        self.updates.append(row)

    def jam(self, row: JamRow) -> None:
        self.jams.append(row)

    def message(self, row: MessageRow) -> None:
        self.messages.append(row)

    def close(self) -> None:
        return None


class _Table:
    """One Parquet file under way."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._schema = schema
        # Values row after row. Kept as rows they would be objects for the garbage collector to walk through, again and again.
        self._values: list[Any] = []
        self._full = _FLUSH_ROWS * len(schema)
        # Times hardly repeat: a dictionary of a column of numbers costs more time and space than it saves.
        names = [field.name for field in schema if pa.types.is_dictionary(field.type)]
        self._writer = pq.ParquetWriter(path, schema, compression="zstd", use_dictionary=names)

    def append(self, row: tuple[Any, ...]) -> None:
        self._values += row
        if len(self._values) >= self._full:
            self.flush()

    def flush(self) -> None:
        if not self._values:
            return
        width = len(self._schema)
        # from_pandas: NaN, which stands for "not reached" in the engine, becomes a null in the file.
        columns = [pa.array(self._values[i::width], type=field.type, from_pandas=True) for i, field in enumerate(self._schema)]
        self._writer.write_table(pa.Table.from_arrays(columns, schema=self._schema))
        self._values.clear()

    def close(self) -> None:
        self.flush()
        self._writer.close()


class ParquetRecorder:
    """Writes into an existing folder: `rounds.parquet`; `clients.parquet` unless `clients` is False; `jams.parquet` if `jams`;
    `messages.parquet` if `messages`."""

    def __init__(self, folder: Path, *, clients: bool = True, jams: bool = False, messages: bool = False) -> None:
        rounds = _Table(folder / "rounds.parquet", ROUNDS)
        updates = _Table(folder / "clients.parquet", CLIENTS) if clients else None
        dwells = _Table(folder / "jams.parquet", JAMS) if jams else None
        talk = _Table(folder / "messages.parquet", MESSAGES) if messages else None
        self._tables = [table for table in (rounds, updates, dwells, talk) if table is not None]
        self.round = rounds.append
        self.update = updates.append if updates else NoRecorder().update
        self.jam = dwells.append if dwells else NoRecorder().jam
        self.message = talk.append if talk else NoRecorder().message

    def close(self) -> None:
        """Write what is buffered and the files' footers; the files are complete from here on."""
        for table in self._tables:
            table.close()
