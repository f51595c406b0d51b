"""Choice of the tables that a run leaves."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedTables:
    """Choice of the tables recorded beside that of the rounds. Each field has the name of its table."""

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
        """Names of all recorded tables."""
        return ["rounds", *(name for name, wanted in asdict(self).items() if wanted)]

    @property
    def files(self) -> list[str]:
        """Names of the files that a `ParquetRecorder` leaves in its folder."""
        return [f"{name}.parquet" for name in self.names]


USUAL = WantedTables()
"""Default choice: rounds and clients."""
