"""SAFA's published table of round lengths (Wu et al. 2021, MNIST), cell by cell.

Each seed draws a world: the data sizes and the speeds of the clients.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from netsim.core.protocols import FloatArray
from netsim.core.rows import RoundRow
from netsim.core.streams import Streams
from netsim.records.sinks import NoRecorder
from scenarios.runs.reading import override, parse
from scenarios.schema.section import Tables
from scenarios.wiring.simulation import build

if TYPE_CHECKING:
    from analysis.documents.blocks import Section

CLIENTS, SAMPLES, BATCH, EPOCHS = 100, 70_000, 40, 5
LIMIT_S = 5600.0
"""Time limit of a round, T_lim."""
MODEL_BYTES = 10_000_000
CLIENT_BYTES_PER_S, SERVER_BYTES_PER_S = 175_000.0, 1_250_000_000.0
WAY_S = MODEL_BYTES / CLIENT_BYTES_PER_S
"""Seconds of a model one way; the paper's T_comm is twice that."""
METHODS = ("fedavg", "fedcs", "safa")
SHARES = (0.1, 0.3, 0.7, 1.0)
PUBLISHED: dict[float, tuple[float, ...]] = {
    0.1: (3402.6, 5557.3, 5614.3, 5620.4, 1488.0, 2133.0, 1871.7, 1982.9, 198.3, 315.3, 1708.9, 1947.9),
    0.3: (5411.0, 5606.1, 5614.3, 5620.4, 1261.6, 1542.6, 2349.5, 5395.5, 206.9, 368.0, 1899.2, 2149.2),
    0.5: (5602.0, 5606.1, 5614.3, 5620.4, 1273.4, 1642.6, 2876.6, 3162.0, 203.5, 800.6, 2727.3, 2186.7),
    0.7: (5602.0, 5606.1, 5614.3, 5620.4, 1253.7, 1969.3, 4344.9, 2530.0, 241.9, 1893.1, 2619.8, 2340.8),
}
"""Crash probability to mean round lengths in seconds: for each of `METHODS`, those of each of `SHARES`."""
NAMES = {"fedavg": "FedAvg", "fedcs": "FedCS", "safa": "SAFA"}


@dataclass(frozen=True, slots=True)
class Cell:
    """One number of the table."""

    method: str
    share: float
    """Share of the clients that are picked, C."""
    crash: float
    """Crash probability, cr."""

    @property
    def published_s(self) -> float:
        """Mean round length in the authors' sheet, seconds."""
        return PUBLISHED[self.crash][METHODS.index(self.method) * len(SHARES) + SHARES.index(self.share)]


CELLS = tuple(Cell(method, share, crash) for crash in PUBLISHED for method in METHODS for share in SHARES)


def draw_shards(seed: int) -> FloatArray:
    """Draw the number of samples (K,) of each client: normal, rescaled to `SAMPLES`.

    All are drawn again while any is below a batch, as in the authors' code.
    """
    rng = Streams(seed).generator("safa-shards")
    while True:
        drawn = rng.normal(1.0, 0.3, CLIENTS)
        sizes = np.round(drawn / drawn.sum() * SAMPLES)
        if sizes.min() >= max(20, BATCH):
            return np.asarray(sizes, np.float64)


def draw_speeds(seed: int) -> FloatArray:
    """Draw the mini-batches a second (K,) of each client: exponential, of mean 1.

    All are drawn again while any is below 0.016, as in the authors' code.
    """
    rng = Streams(seed).generator("safa-speeds")
    while True:
        drawn = rng.exponential(1.0, CLIENTS)
        if drawn.min() >= 0.016:
            return np.asarray(drawn, np.float64)


def draw_world(seed: int) -> Tables:
    """Draw the data sizes and the speeds of the clients, as keys of the scenario.

    In the authors' code a client takes exactly the limit if its training fits into the limit, but its training with its
    messages does not. Here such a client gets the speed at which it takes the limit, less a microsecond against rounding.
    """
    sizes, batches_per_s = draw_shards(seed), draw_speeds(seed)
    training_s = sizes / BATCH * EPOCHS / batches_per_s
    longest_s = LIMIT_S - 2.0 * WAY_S - 1e-6
    training_s = np.where((training_s > longest_s) & (training_s <= LIMIT_S), longest_s, training_s)
    return {"clients.data_sizes": sizes.tolist(), "compute.samples_per_s": (sizes * EPOCHS / training_s).tolist()}


def cell_scenario(base: Mapping[str, object], cell: Cell, seed: int, world: Mapping[str, object]) -> Tables:
    """Return the scenario of one cell: `base` with the changes of its method. `world`: keys drawn by `draw_world`."""
    picked = math.ceil(CLIENTS * cell.share - 1e-9)  # the small term is against rounding, as of 0.3 * 100
    changes: Tables = {"seed": seed, **world, "uplink.channel": {"kind": "bernoulli", "success": 1.0 - cell.crash}}
    if cell.method == "fedavg":
        # FedAvg does not learn of a crash, and waits for the client until the limit.
        changes |= {
            "server": {"per_round": picked, "deadline_s": LIMIT_S, "stragglers": "cancel"},
            "policy": {"kind": "random"},
            "compute.delay": {"kind": "scenarios.library.validation.safa_table:Crash", "probability": cell.crash},
            "uplink.channel": {"kind": "perfect"},
        }
    elif cell.method == "fedcs":
        policy = {"kind": "fedcs", "round_s": LIMIT_S + WAY_S, "asked": cell.share, "uploads": "parallel", "most": False}
        changes |= {
            "server": {"per_round": picked, "deadline_s": LIMIT_S, "stragglers": "cancel", "when_short": "proceed"},
            "policy": policy,
            "probe": {"timed": False},
        }
    else:
        changes["server.per_round"] = picked
    return override(dict(base), changes)


class _RoundLengths(NoRecorder):
    """Recorder of round lengths, as the authors count them, and of the models sent in each round."""

    def __init__(self) -> None:
        self.lengths_s: list[float] = []
        self.models_sent: list[float] = []

    def round(self, row: RoundRow) -> None:
        """Note the length of a round, as the authors count it, and the number of models that the server sent in it."""
        length_s = row.end_s - row.start_s
        if row.picked_s is not None:
            # SAFA: the authors count up to the arrival of the last picked update, and 0 if none was picked.
            length_s = 0.0 if math.isnan(row.picked_s) else row.picked_s
        self.lengths_s.append(length_s)
        self.models_sent.append(row.bytes_down / MODEL_BYTES)


class MeanLengths(NamedTuple):
    """Mean round length of a run in seconds, by two counts of the models that the server sends."""

    published_s: float
    """As the authors' code counts: all models of the run so far, because their counter is never reset."""
    intended_s: float
    """As they mean it: the models of the round."""


def simulate_lengths(tables: Mapping[str, object]) -> MeanLengths:
    """Simulate a scenario and return its mean round length, with the time that the server takes to send the models.

    The server sends one model after the other before the clients' time begins.
    """
    simulation, recorder = build(parse(dict(tables))).simulation, _RoundLengths()
    simulation.record_to(recorder)
    simulation.run()
    length_s, sent = float(np.mean(recorder.lengths_s)), np.array(recorder.models_sent)
    model_s = MODEL_BYTES / SERVER_BYTES_PER_S  # seconds of the server to send one model
    return MeanLengths(length_s + model_s * float(np.cumsum(sent).mean()), length_s + model_s * float(sent.mean()))


def simulate_cells(base: Mapping[str, object], seeds: Sequence[int]) -> dict[Cell, FloatArray]:
    """Simulate each cell at each seed, and return its mean round lengths (seeds, 2) in the order of `MeanLengths`."""
    lengths: dict[Cell, list[MeanLengths]] = {cell: [] for cell in CELLS}
    without_sweep = {key: table for key, table in base.items() if key != "sweep"}
    for seed in seeds:
        world = draw_world(seed)
        for cell in CELLS:
            lengths[cell].append(simulate_lengths(cell_scenario(without_sweep, cell, seed, world)))
    return {cell: np.array(runs) for cell, runs in lengths.items()}


AGREES, DIFFERS, NO_EVIDENCE = "agrees", "differs", "no evidence"
_VERDICTS = (AGREES, DIFFERS, NO_EVIDENCE)
ROUNDING_S = 0.05
"""Largest rounding error of the published numbers."""
MOST_SPREAD = 0.25
"""Two standard deviations of one run, as a share of the mean, above which a comparison is meaningless."""


def verdict(published_s: float, runs_s: FloatArray) -> str:
    """Return the verdict on a published round length, which is that of one run, by the runs here, `runs_s` (seeds,).

    It agrees within two standard deviations of one run from the mean. Where runs spread too much, there is no evidence. The rule
    was fixed before the first run.
    """
    mean_s, spread_s = float(runs_s.mean()), 2.0 * float(runs_s.std(ddof=1))
    if spread_s > MOST_SPREAD * mean_s:
        return NO_EVIDENCE
    return AGREES if abs(published_s - mean_s) <= max(spread_s, ROUNDING_S) else DIFFERS


def sections(lengths: Mapping[Cell, FloatArray]) -> list[Section]:
    """Return the counts of verdicts by method, and a table of all cells. `lengths`: result of `simulate_cells`."""
    from analysis.documents.blocks import Section, Table

    verdicts = {cell: verdict(cell.published_s, runs_s[:, 0]) for cell, runs_s in lengths.items()}
    counts = []
    for method in METHODS:
        count = Counter(result for cell, result in verdicts.items() if cell.method == method)
        counts.append([NAMES[method], *(str(count[result]) for result in _VERDICTS)])
    note = (
        "Fixed before the first run: a cell agrees where the published figure, of one run, lies within two standard deviations "
        f"of one run from the mean over seeds, or within {ROUNDING_S:g} s; there is no evidence where two of them exceed a "
        "quarter of the mean."
    )
    summary = Table("verdict", "Cells by verdict, as published", (["method", *_VERDICTS], counts), note=note)
    rows = [_cell_row(cell, runs_s, verdicts[cell]) for cell, runs_s in lengths.items()]
    simulated = ["as published: mean (s)", "sd of a run", "as intended: mean (s)", "sd of a run"]
    header = ["cr", "method", "C", "paper (s)", *simulated, "verdict"]
    note = "The mean has the half-width of its 95 % interval; paper: one run."
    table = Table("round-lengths", "Mean round length", (header, rows), note=note, words=(1, 8))
    return [Section("Verdict", [summary]), Section("Beside the paper", [table])]


def _cell_row(cell: Cell, runs_s: FloatArray, verdict: str) -> list[str]:
    """Return the row of a cell: its parameters, the published length, mean and spread of both counts, and the verdict."""
    from analysis.statistics.intervals import mean_interval

    cells = [f"{cell.crash:g}", NAMES[cell.method], f"{cell.share:g}", f"{cell.published_s:.1f}"]
    for column in runs_s.T:
        interval = mean_interval(column)
        cells += [f"{interval.mean:.1f} ± {(interval.high - interval.low) / 2:.1f}", f"{column.std(ddof=1):.1f}"]
    return [*cells, verdict]
