"""Sinks of the records of a run: Parquet files, streamed so that memory does not grow with rounds, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from netsim.records.attempts import AttemptTable, NoTable
from netsim.records.tables import Table
from netsim.records.wanted import USUAL, WantedTables

if TYPE_CHECKING:
    from netsim.core.protocols import State
    from netsim.core.rows import (
        BeliefRow,
        CommunicationRow,
        DetectionRow,
        EdgeRoundRow,
        EdgeRow,
        EvaluationRow,
        JamRow,
        LinkRow,
        MessageRow,
        ProbeRow,
        RoundRow,
        ScriptRow,
        TransferRow,
    )


class Recorder(Protocol):
    """Takes the records of a run in the order of their events."""

    def rounds_with(self, columns: Sequence[str]) -> None:
        """Name the columns of `RoundRow` that this run fills, before its first round. The table has no others."""

    def round(self, row: RoundRow) -> None:
        """Record a round that has closed."""

    def communication(self, row: CommunicationRow) -> None:
        """Record a communication round of a slot that has closed."""

    def edge(self, row: EdgeRow) -> None:
        """Record an attempt of an edge that has ended, or that the end of the run cuts off."""

    def edge_round(self, row: EdgeRoundRow) -> None:
        """Record a round of an edge that has closed."""

    def attempts(self, columns: Sequence[str]) -> AttemptTable:
        """Return the table that takes a row for each attempt, at the end of the attempt or the run.

        Rows hold the values of these `columns` of `UpdateRow`, in this order. The table has no others.
        """

    def jam(self, row: JamRow) -> None:
        """Record a dwell of a jammer that has ended."""

    def detection(self, row: DetectionRow) -> None:
        """Record a change that the scheduler declared."""

    def message(self, row: MessageRow) -> None:
        """Record a message between clients that has ended, or that the end of the run cuts off."""

    def belief(self, row: BeliefRow) -> None:
        """Record the belief of one client at the end of a consensus phase."""

    def probes_with(self, columns: Sequence[str]) -> None:
        """Name the columns of `ProbeRow` that this run fills, before its first probe. The table has no others."""

    def probe(self, row: ProbeRow) -> None:
        """Record a probe that has ended, or that the end of the run cuts off."""

    def evaluation(self, row: EvaluationRow) -> None:
        """Record the value of one of the user's metrics."""

    def script(self, row: ScriptRow) -> None:
        """Record an act of a script."""

    def transfer(self, row: TransferRow) -> None:
        """Record a transfer over a network that has ended, or that the end of the run cuts off."""

    def link(self, row: LinkRow) -> None:
        """Record the load of one link of a network in a round."""

    def close(self) -> None:
        """Complete the tables; no more records follow."""


class NoRecorder:
    """Null object: keeps no records."""

    def rounds_with(self, columns: Sequence[str]) -> None:
        return None

    def round(self, row: RoundRow) -> None:
        return None

    def communication(self, row: CommunicationRow) -> None:
        return None

    def edge(self, row: EdgeRow) -> None:
        return None

    def edge_round(self, row: EdgeRoundRow) -> None:
        return None

    def attempts(self, columns: Sequence[str]) -> AttemptTable:
        """Return a table that keeps nothing."""
        return NoTable()

    def jam(self, row: JamRow) -> None:
        return None

    def detection(self, row: DetectionRow) -> None:
        return None

    def message(self, row: MessageRow) -> None:
        return None

    def belief(self, row: BeliefRow) -> None:
        return None

    def probes_with(self, columns: Sequence[str]) -> None:
        return None

    def probe(self, row: ProbeRow) -> None:
        return None

    def evaluation(self, row: EvaluationRow) -> None:
        return None

    def script(self, row: ScriptRow) -> None:
        return None

    def transfer(self, row: TransferRow) -> None:
        return None

    def link(self, row: LinkRow) -> None:
        return None

    def close(self) -> None:
        return None


class ParquetRecorder:
    """Writes the tables that are `wanted` into an existing folder, each as a Parquet file of its name.

    `state_dict` secures the records so far against the loss of the process, in the folder `unfinished`. The caller removes that
    folder when it needs no checkpoint any more.
    """

    def __init__(self, folder: Path, wanted: WantedTables = USUAL) -> None:
        self._tables = [Table(folder, name) for name in wanted.names]
        rows = {table.name: table.rows for table in self._tables}
        nothing = NoRecorder()
        self.digests: dict[str, str] = {}
        """The SHA-256 of each file, once the recorder is closed."""
        self._rounds = rows["rounds"]
        self._round: Callable[[RoundRow], tuple[Any, ...]] = tuple
        # Bind the methods of the tables directly: a record then costs one call, and one of a table that is not kept nothing more.
        self.attempts = rows["clients"].choose if wanted.clients else nothing.attempts
        self.jam = rows["jams"].append if wanted.jams else nothing.jam
        self.detection = rows["detections"].append if wanted.detections else nothing.detection
        self.message = rows["messages"].append if wanted.messages else nothing.message
        self.belief = rows["beliefs"].append if wanted.beliefs else nothing.belief
        self._probes = rows["probes"] if wanted.probes else None
        self._probe: Callable[[ProbeRow], tuple[Any, ...]] = tuple
        self.evaluation = rows["evaluations"].append if wanted.evaluations else nothing.evaluation
        self.script = rows["script"].append if wanted.script else nothing.script
        self.transfer = rows["transfers"].append if wanted.transfers else nothing.transfer
        self.link = rows["link_loads"].append if wanted.link_loads else nothing.link
        self.communication = rows["communication_rounds"].append if wanted.communication_rounds else nothing.communication
        self.edge = rows["edges"].append if wanted.edges else nothing.edge
        self.edge_round = rows["edge_rounds"].append if wanted.edge_rounds else nothing.edge_round

    def rounds_with(self, columns: Sequence[str]) -> None:
        """Set the columns of the table of rounds."""
        self._rounds.choose(columns)
        self._round = attrgetter(*columns)

    def round(self, row: RoundRow) -> None:
        """Record the chosen columns of a closed round."""
        self._rounds.append(self._round(row))

    def probes_with(self, columns: Sequence[str]) -> None:
        """Set the columns of the table of probes, if it is kept."""
        if self._probes is not None:
            self._probes.choose(columns)
            self._probe = attrgetter(*columns)

    def probe(self, row: ProbeRow) -> None:
        """Record the chosen columns of a probe, if probes are kept."""
        if self._probes is not None:
            self._probes.append(self._probe(row))

    def state_dict(self) -> State:
        """Return the records so far, as pieces on disk and rows."""
        return {table.name: table.state_dict() for table in self._tables}

    def pieces_to_come(self) -> list[str]:
        """Return the files, relative to the folder, that the next `state_dict` and a `close` after it may write beside the
        tables.
        """
        return [file for table in self._tables for file in table.pieces_to_come()]

    def load_state_dict(self, state: State) -> None:
        """Restore the records up to a checkpoint. Nothing may have been recorded yet."""
        for table in self._tables:
            table.load_state_dict(state[table.name])

    def close(self) -> None:
        """Complete every table, and only then give all files their names; raises DamagedPieceError and OSError."""
        self.digests = {f"{table.name}.parquet": table.complete() for table in self._tables}
        for table in self._tables:
            table.place()

    def discard(self) -> None:
        """Drop the records that are neither in a complete table nor secured for `load_state_dict`."""
        for table in self._tables:
            table.discard()
