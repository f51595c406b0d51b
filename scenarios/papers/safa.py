"""SAFA's published table of round lengths (Wu et al. 2021, MNIST), reproduced cell by cell with a world drawn for every seed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

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
MODEL_BYTES = 10_000_000
CLIENT_BYTES_PER_S, SERVER_BYTES_PER_S = 175_000.0, 1_250_000_000.0
WAY_S = MODEL_BYTES / CLIENT_BYTES_PER_S
"""A model one way; T_comm is twice that."""
METHODS = ("fedavg", "fedcs", "safa")
SHARES = (0.1, 0.3, 0.7, 1.0)
PUBLISHED: dict[float, tuple[float, ...]] = {
    0.1: (3402.6, 5557.3, 5614.3, 5620.4, 1488.0, 2133.0, 1871.7, 1982.9, 198.3, 315.3, 1708.9, 1947.9),
    0.3: (5411.0, 5606.1, 5614.3, 5620.4, 1261.6, 1542.6, 2349.5, 5395.5, 206.9, 368.0, 1899.2, 2149.2),
    0.5: (5602.0, 5606.1, 5614.3, 5620.4, 1273.4, 1642.6, 2876.6, 3162.0, 203.5, 800.6, 2727.3, 2186.7),
    0.7: (5602.0, 5606.1, 5614.3, 5620.4, 1253.7, 1969.3, 4344.9, 2530.0, 241.9, 1893.1, 2619.8, 2340.8),
}
"""Crash probability to mean round lengths in seconds, `METHODS` by `SHARES`."""
NAMES = {"fedavg": "FedAvg", "fedcs": "FedCS", "safa": "SAFA"}


@dataclass(frozen=True, slots=True)
class Cell:
    """One number of the table."""

    method: str
    share: float
    """C, of the clients that are picked."""
    crash: float
    """cr."""

    @property
    def published_s(self) -> float:
        """Figures of the authors' sheet."""
        return PUBLISHED[self.crash][METHODS.index(self.method) * len(SHARES) + SHARES.index(self.share)]


CELLS = tuple(Cell(method, share, crash) for crash in PUBLISHED for method in METHODS for share in SHARES)


def shards(seed: int) -> FloatArray:
    """Return the samples (K,) of each client: normal, rescaled to the total, all drawn again while any is below a batch."""
    rng = Streams(seed).generator("safa-shards")
    while True:
        drawn = rng.normal(1.0, 0.3, CLIENTS)
        sizes = np.round(drawn / drawn.sum() * SAMPLES)
        if sizes.min() >= max(20, BATCH):
            return np.asarray(sizes, np.float64)


def speeds(seed: int) -> FloatArray:
    """Return mini-batches a second (K,): exponential, all drawn again until the smallest is large enough."""
    rng = Streams(seed).generator("safa-speeds")
    while True:
        drawn = rng.exponential(1.0, CLIENTS)
        if drawn.min() >= 0.016:
            return np.asarray(drawn, np.float64)


def world(seed: int) -> Tables:
    """Return the sizes and speeds of the clients, as keys of the scenario.

    A client whose training fits into the limit, but not with its messages, takes exactly the limit in the authors' code; it is
    given the speed at which it does.
    """
    sizes, batches_per_s = shards(seed), speeds(seed)
    trains_s = sizes / BATCH * EPOCHS / batches_per_s
    longest_s = LIMIT_S - 2.0 * WAY_S - 1e-6
    trains_s = np.where((trains_s > longest_s) & (trains_s <= LIMIT_S), longest_s, trains_s)
    return {"clients.data_sizes": sizes.tolist(), "compute.samples_per_s": (sizes * EPOCHS / trains_s).tolist()}


def tables_of(base: Mapping[str, object], cell: Cell, seed: int, drawn: Mapping[str, object]) -> Tables:
    """Return the scenario of one cell: `base` with changes. `drawn`: the result of `world`."""
    picked = math.ceil(CLIENTS * cell.share - 1e-9)
    changes: Tables = {"seed": seed, **drawn, "uplink.channel": {"kind": "bernoulli", "success": 1.0 - cell.crash}}
    if cell.method == "fedavg":
        # Nobody knows of a crash: it is waited for until the limit.
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


class _Lengths(NoRecorder):
    """Lengths of rounds, as the authors count them, and numbers of models sent."""

    def __init__(self) -> None:
        self.lengths_s: list[float] = []
        self.sent: list[float] = []

    def round(self, row: RoundRow) -> None:
        whole_s = row.end_s - row.start_s
        self.lengths_s.append(whole_s if row.picked_s is None else 0.0 if math.isnan(row.picked_s) else row.picked_s)
        self.sent.append(row.bytes_down / MODEL_BYTES)


def mean_lengths_s(tables: Mapping[str, object]) -> tuple[float, float]:
    """Return the mean round length of a run in seconds, twice: with the time of distribution as the authors' code counts it,
    and as they mean it.

    The server sends one model after the other, before the clients' time begins. Their code counts the models of the run so far;
    the intended count is that of the round.
    """
    simulation, recorder = build(parse(dict(tables))).simulation, _Lengths()
    simulation.record_to(recorder)
    simulation.run()
    length_s, each_s, sent = float(np.mean(recorder.lengths_s)), MODEL_BYTES / SERVER_BYTES_PER_S, np.array(recorder.sent)
    return length_s + each_s * float(np.cumsum(sent).mean()), length_s + each_s * float(sent.mean())


def lengths(base: Mapping[str, object], seeds: Sequence[int]) -> dict[Cell, FloatArray]:
    """(seeds, 2) mean round lengths of each cell in seconds, as published and as intended; a run for each seed."""
    result: dict[Cell, list[tuple[float, float]]] = {cell: [] for cell in CELLS}
    plain = {key: table for key, table in base.items() if key != "sweep"}
    for seed in seeds:
        drawn = world(seed)
        for cell in CELLS:
            result[cell].append(mean_lengths_s(tables_of(plain, cell, seed, drawn)))
    return {cell: np.array(pairs) for cell, pairs in result.items()}


AGREES, DIFFERS, NO_EVIDENCE = "agrees", "differs", "no evidence"
LEAST_S = 0.05
"""Rounding of the published figures."""
MOST_SPREAD = 0.25
"""Two standard deviations of one run, as a share of the mean, above which a comparison is meaningless."""


def verdict(published_s: float, runs_s: FloatArray) -> str:
    """Return the verdict on a published round length, which is of one run, by the spread of the runs `runs_s` (n,), seconds.

    The rule was fixed before the first run.
    """
    mean_s, twice_s = float(runs_s.mean()), 2.0 * float(runs_s.std(ddof=1))
    if twice_s > MOST_SPREAD * mean_s:
        return NO_EVIDENCE
    return AGREES if abs(published_s - mean_s) <= max(twice_s, LEAST_S) else DIFFERS


def sections(found: Mapping[Cell, FloatArray]) -> list[Section]:
    """Return the number of cells that agree, and the cells."""
    from analysis.documents.blocks import Section, Table

    judged = {cell: verdict(cell.published_s, runs_s[:, 0]) for cell, runs_s in found.items()}
    counts = [
        [NAMES[method], *(str(sum(v == word for c, v in judged.items() if c.method == method)) for word in _WORDS)]
        for method in METHODS
    ]
    note = (
        "Fixed before the first run: a cell agrees where the published figure, of one run, lies within two standard deviations "
        f"of one run from the mean over seeds, or within {LEAST_S:g} s; there is no evidence where two of them exceed a quarter "
        "of the mean."
    )
    told = Table("verdict", "Cells by verdict, as published", (["method", *_WORDS], counts), note=note)
    rows = [_row(cell, runs_s, judged[cell]) for cell, runs_s in found.items()]
    ours = ["as published: mean (s)", "sd of a run", "as intended: mean (s)", "sd of a run"]
    header = ["cr", "method", "C", "paper (s)", *ours, "verdict"]
    words = "The mean has the half-width of its 95 % interval; paper: one run."
    table = Table("round-lengths", "Mean round length", (header, rows), note=words, words=(1, 8))
    return [Section("Verdict", [told]), Section("Beside the paper", [table])]


_WORDS = (AGREES, DIFFERS, NO_EVIDENCE)


def _row(cell: Cell, runs_s: FloatArray, word: str) -> list[str]:
    from analysis.statistics.intervals import mean_interval

    cells = [f"{cell.crash:g}", NAMES[cell.method], f"{cell.share:g}", f"{cell.published_s:.1f}"]
    for column in runs_s.T:
        interval = mean_interval(column)
        cells += [f"{interval.mean:.1f} ± {(interval.high - interval.low) / 2:.1f}", f"{column.std(ddof=1):.1f}"]
    return [*cells, word]
