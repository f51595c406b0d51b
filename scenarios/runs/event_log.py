"""TensorBoard log of a run: an event file of scalars beside the tables, with a step for each closed round.

Nothing but the packages `tensorboard` and `protobuf` (extra `tensorboard`) is needed. A run that goes on appends to its file.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scenarios.runs.summary.running_sums import Summing
from scenarios.schema.errors import UserError

if TYPE_CHECKING:
    from netsim.core.rows import RoundRow
    from netsim.simulation import Simulation

FILE = "tensorboard/events.out.tfevents.netsim"
"""Path in the folder of a run. TensorBoard finds event files by "tfevents" in their names."""
_FLUSH_S = 2.0
"""Real seconds between two flushes of the file."""
TAGS = (
    *("accuracy", "loss", "training_loss", "delivered", "lost", "late", "aborted", "in_flight", "bytes_down", "bytes_up"),
    *("max_leak", "reward", "sum_age", "oracle_sum_age", "jammed", "opinion", "consensus_s", "agreed_s", "disagreement"),
    *("compute_j", "send_j", "receive_j", "idle_j"),
)
"""Columns of a round that are logged under their names if they have values, beside round_s (its length) and time_s (its end)."""


def require() -> None:
    """Raise UserError where the extra is not installed."""
    try:
        import tensorboard.compat.proto.event_pb2  # noqa: F401
    except ImportError as error:
        raise UserError(f"--log tensorboard: {error}; install the extra: pip install 'netsim[tensorboard]'") from error


class EventLog:
    """Callback that writes each round of the run in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._writer: Any = None
        self._flushed_s = 0.0

    def __call__(self, simulation: Simulation) -> None:
        recorder = simulation.recorder
        assert isinstance(recorder, Summing)
        if recorder.last is None:
            return
        now_s = time.time()
        if self._writer is None:
            self._open(recorder.last.round, now_s)
        self._write(scalars(recorder.last), recorder.last.round, now_s)
        if now_s - self._flushed_s >= _FLUSH_S:
            self._flushed_s = now_s
            self._writer.flush()

    def _open(self, step: int, now_s: float) -> None:
        """Open the event file for appending. A resumed run marks its first step; earlier events from that step on are void."""
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._path.parent.mkdir(exist_ok=True)
        is_new = not self._path.exists()
        self._writer = RecordWriter(self._path.open("ab"))
        if is_new:
            first = Event(wall_time=now_s, file_version="brain.Event:2")
        else:
            # A START mark makes TensorBoard ignore earlier events from this step on: they are after the checkpoint.
            first = Event(wall_time=now_s, step=step, session_log=SessionLog(status=SessionLog.START))
        self._writer.write(first.SerializeToString())

    def _write(self, values: dict[str, float], step: int, now_s: float) -> None:
        """Append an event with the values of one round."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        record = Summary(value=[Summary.Value(tag=name, simple_value=value) for name, value in values.items()])
        self._writer.write(Event(wall_time=now_s, step=step, summary=record).SerializeToString())

    def close(self) -> None:
        """Complete the file."""
        if self._writer is not None:
            self._writer.close()


def scalars(row: RoundRow) -> dict[str, float]:
    """Return the numbers of a round that are logged, by name; those that are unknown (None or NaN) are left out."""
    values = {"round_s": row.end_s - row.start_s, "time_s": row.end_s}
    for name in TAGS:
        value = getattr(row, name)
        if value is not None and not math.isnan(value):
            values[name] = float(value)
    return values
