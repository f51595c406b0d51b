"""A recorder that keeps the rows of a run as objects, for tests that read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
    UpdateRow,
)
from netsim.records.attempts import AttemptTable, Block


class MemoryRecorder:
    """Keeps every record in a list."""

    def __init__(self) -> None:
        self.rounds: list[RoundRow] = []
        self.communications: list[CommunicationRow] = []
        self.edges: list[EdgeRow] = []
        self.edge_rounds: list[EdgeRoundRow] = []
        self.updates: list[UpdateRow] = []
        self.jams: list[JamRow] = []
        self.transfers: list[TransferRow] = []
        self.links: list[LinkRow] = []
        self.detections: list[DetectionRow] = []
        self.messages: list[MessageRow] = []
        self.beliefs: list[BeliefRow] = []
        self.probes: list[ProbeRow] = []
        self.acts: list[ScriptRow] = []
        self.evaluations: list[EvaluationRow] = []

    def rounds_with(self, columns: Sequence[str]) -> None:
        return None

    def round(self, row: RoundRow) -> None:
        self.rounds.append(row)

    def communication(self, row: CommunicationRow) -> None:
        self.communications.append(row)

    def edge(self, row: EdgeRow) -> None:
        self.edges.append(row)

    def edge_round(self, row: EdgeRoundRow) -> None:
        self.edge_rounds.append(row)

    def attempts(self, columns: Sequence[str]) -> AttemptTable:
        return RowList(self.updates, columns)

    def jam(self, row: JamRow) -> None:
        self.jams.append(row)

    def detection(self, row: DetectionRow) -> None:
        self.detections.append(row)

    def message(self, row: MessageRow) -> None:
        self.messages.append(row)

    def belief(self, row: BeliefRow) -> None:
        self.beliefs.append(row)

    def probes_with(self, columns: Sequence[str]) -> None:
        return None

    def probe(self, row: ProbeRow) -> None:
        self.probes.append(row)

    def evaluation(self, row: EvaluationRow) -> None:
        self.evaluations.append(row)

    def script(self, row: ScriptRow) -> None:
        self.acts.append(row)

    def transfer(self, row: TransferRow) -> None:
        self.transfers.append(row)

    def link(self, row: LinkRow) -> None:
        self.links.append(row)

    def close(self) -> None:
        return None


class RowList:
    """Puts rows of `columns` into the list `rows`."""

    def __init__(self, rows: list[UpdateRow], columns: Sequence[str]) -> None:
        self._rows, self._columns = rows, columns

    def append(self, row: tuple[Any, ...]) -> None:
        self._rows.append(UpdateRow(**dict(zip(self._columns, row, strict=True))))

    def extend(self, block: Block) -> None:
        self._rows.extend(block.rows())
