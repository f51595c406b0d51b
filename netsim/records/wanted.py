"""Which tables a run leaves."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedTables:
    """Which tables are recorded beside that of the rounds; a field has the name of its table."""

    clients: bool = True
    jams: bool = False
    detections: bool = False
    messages: bool = False
    beliefs: bool = False
    probes: bool = False
    script: bool = False
    transfers: bool = False
    link_loads: bool = False
    evaluations: bool = False
    communication_rounds: bool = False
    edges: bool = False
    edge_rounds: bool = False

    @property
    def names(self) -> list[str]:
        """All that are recorded."""
        return ["rounds", *(name for name, wanted in asdict(self).items() if wanted)]

    @property
    def files(self) -> list[str]:
        """The files that a `ParquetRecorder` leaves of them in its folder."""
        return [f"{name}.parquet" for name in self.names]


USUAL = WantedTables()
