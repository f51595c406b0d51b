"""Facts that the metrics of one run are computed from: its tables, its summary, and the settings of the measurement."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from analysis.metrics.targets import UNLIMITED, Extent
from analysis.results.run import Run
from analysis.statistics.arrays import FloatArray

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the measurement of metrics."""

    target_accuracy: float | None = None
    """Accuracy whose cost the metrics `target_s`, `target_bytes` and `target_j` measure; None: no target."""
    smoothing_s: float = 0.0
    """Simulated seconds over which accuracies are averaged on the way to the target."""
    last: int = 10
    """Evaluations averaged for the final accuracy."""
    until: Extent = UNLIMITED
    """Extent within which final accuracies and sums over rounds are taken: the one that all compared runs reach."""


DEFAULT = Settings()


class RunColumns:
    """The rounds table of a run: columns by name, each (n,) of floats, NaN where missing."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def __getitem__(self, name: str, /) -> FloatArray:
        return self._run.columns([name])[name]


class Facts:
    """Facts of one finished run; tables are read when first asked for."""

    def __init__(self, run: Run, settings: Settings = DEFAULT) -> None:
        self.run = run
        self.settings = settings
        self.rounds = RunColumns(run)

    @property
    def count(self) -> int:
        """Number of rounds that closed."""
        return self.rounds["round"].size

    @property
    def end_s(self) -> float:
        """Simulated seconds to the close of the last round; 0 without rounds."""
        ends = self.rounds["end_s"]
        return float(ends[-1]) if ends.size else 0.0

    def total(self, *names: str) -> float:
        """Return the sum over all rounds of these columns of the rounds table; NaN if none of them was measured."""
        columns = [self.rounds[name] for name in names]
        if all(np.isnan(column).all() for column in columns):
            return math.nan
        return float(sum(np.nansum(column) for column in columns))

    def summary_entry(self, section: str, key: str) -> Any:
        """Return an entry of a section of the summary, or None."""
        return (self.run.summary.get(section) or {}).get(key)

    @cached_property
    def clients(self) -> int:
        """Number of clients of the scenario; 0 if it does not state it."""
        return int((self.run.scenario.get("clients") or {}).get("count", 0))

    @cached_property
    def deliveries(self) -> FloatArray:
        """Updates that each client delivered in the whole run, (K,); empty where the run kept no record of single clients."""
        counted = self.summary_entry("aoi", "successes")
        if counted:
            return np.asarray(counted, np.float64)
        return self.count_attempts(delivered=True)

    @cached_property
    def attempts_begun(self) -> FloatArray:
        """Attempts that each client began in the whole run, (K,); empty where the run kept no record of single clients."""
        return self.count_attempts(delivered=False)

    def count_attempts(self, *, delivered: bool) -> FloatArray:
        """Return the number of rows of the clients table by client, (K,): all, or those delivered; empty without such a table."""
        if not self.run.has_clients:
            return np.empty(0)
        totals: FloatArray = np.zeros(self.clients)
        for piece in self.run.pieces("clients", ("client", "outcome")):
            client = piece.column("client").to_numpy()
            # Clients without a delivery count as well, though the scenario may not state the number of clients.
            size = max(totals.size, int(client.max(initial=-1)) + 1)
            if delivered:
                client = client[_equal(piece.column("outcome"), "delivered")]
            counts = np.bincount(client, minlength=size).astype(np.float64)
            totals = counts + np.pad(totals, (0, counts.size - totals.size))
        return totals


def _equal(column: pa.ChunkedArray, value: str) -> NDArray[np.bool_]:
    """Return (n,), True where a column of words equals `value`."""
    import pyarrow.compute

    return np.asarray(pyarrow.compute.equal(column.cast("string"), value).to_numpy(), np.bool_)
