"""SAFA's published accuracies (Wu et al. 2021, MNIST), compared with a sweep of the scenario safa_accuracy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from scenarios.papers.safa import AGREES, DIFFERS, NAMES

if TYPE_CHECKING:
    from analysis import Sweep
    from analysis.documents.blocks import Block
    from netsim.core.protocols import FloatArray



class Cell(NamedTuple):
    """A number of the table."""

    method: str
    picked: int
    """Clients picked a round."""
    crash: float
    """Crash probability."""


PUBLISHED = {
    Cell("fedavg", 10, 0.1): 94.07,
    Cell("fedavg", 30, 0.1): 96.64,
    Cell("fedavg", 10, 0.7): 88.18,
    Cell("fedavg", 30, 0.7): 94.52,
    Cell("fedcs", 10, 0.1): 94.23,
    Cell("fedcs", 30, 0.1): 96.66,
    Cell("fedcs", 10, 0.7): 89.62,
    Cell("fedcs", 30, 0.7): 94.34,
    Cell("safa", 10, 0.1): 97.48,
    Cell("safa", 30, 0.1): 97.46,
    Cell("safa", 10, 0.7): 96.04,
    Cell("safa", 30, 0.7): 96.32,
}
"""Published accuracies in per cent, of one run each."""
TOLERANCE, LOOSE_TOLERANCE = 0.5, 3.0
"""Accepted differences in percentage points; the loose one for few updates a round.

FedAvg and FedCS hardly differ. In the published table they are at most 0.18 points apart where at least nine updates are expected
in a round, and 1.44 where three are. The tolerances are somewhat more than twice as much.
"""
FEW_UPDATES = 5.0
"""Expected updates a round below which the loose tolerance holds."""


def tolerance(cell: Cell) -> float:
    """Return the largest accepted difference of an accuracy from the published one, in percentage points."""
    few_updates = cell.method != "safa" and cell.picked * (1.0 - cell.crash) < FEW_UPDATES
    return LOOSE_TOLERANCE if few_updates else TOLERANCE


def verdict(cell: Cell, accuracy: float) -> str:
    """Return AGREES if an accuracy in per cent is within the tolerance of the published one, otherwise DIFFERS.

    The rule was fixed before the first run.
    """
    return AGREES if abs(accuracy - PUBLISHED[cell]) <= tolerance(cell) + 1e-9 else DIFFERS


def final_accuracies(sweep: Sweep) -> dict[Cell, FloatArray]:
    """Return the final accuracies (seeds,) of each cell, in per cent; NaN for a run without an evaluation.

    The scenario evaluates the model of lowest test loss so far, so that the last accuracy is that of the best model.
    """
    accuracies: dict[Cell, list[float]] = {}
    for run in sweep:
        server = run.scenario["server"]
        method = str(run.variant).partition("+")[0]
        evaluated = run.rounds["accuracy"].dropna()
        accuracy = 100.0 * float(evaluated.iloc[-1]) if len(evaluated) else math.nan
        accuracies.setdefault(Cell(method, int(server["picked"]), float(server["crash"])), []).append(accuracy)
    return {cell: np.array(values) for cell, values in accuracies.items()}


def blocks(sweep: Sweep) -> list[Block]:
    """Return a table of the simulated cells beside the published ones, and if it can, one of what SAFA gains over FedAvg."""
    from analysis.documents.blocks import Table

    accuracies = final_accuracies(sweep)
    # A small size simulates only some of the cells.
    rows = [_cell_row(cell, accuracies[cell]) for cell in PUBLISHED if cell in accuracies]
    header = ["cr", "method", "C", "paper (%)", "here (%), by seed", "here - paper", "tolerance", "verdict"]
    note = (
        "Fixed before the first run: a cell agrees where the mean over seeds is within the tolerance of the published run, in "
        "points. Accuracy on the test set of the model that is kept, that of the lowest test loss in all rounds."
    )
    table = Table("accuracies", "Accuracy after training", (header, rows), note=note, words=(1, 7))
    gains = _gain_rows({cell: float(values.mean()) for cell, values in accuracies.items()})
    if not gains:
        return [table]
    return [table, Table("gains", "SAFA minus FedAvg, in points", (["cr", "C", "paper", "here"], gains), note="", words=())]


def _cell_row(cell: Cell, accuracies: FloatArray) -> list[str]:
    """Return the row of a cell: its parameters, the published accuracy, those here by seed, their difference, and the verdict."""
    published, mean = PUBLISHED[cell], float(accuracies.mean())
    by_seed = ", ".join(f"{accuracy:.2f}" for accuracy in accuracies)
    parameters = [f"{cell.crash:g}", NAMES[cell.method], f"{cell.picked / 100:g}"]
    return [*parameters, f"{published:.2f}", by_seed, f"{mean - published:+.2f}", f"{tolerance(cell):g}", verdict(cell, mean)]


def _gain_rows(means: Mapping[Cell, float]) -> list[list[str]]:
    """Return a row for each pair of cells with SAFA and FedAvg: the gain of SAFA in the paper and here, in points.

    `means`: mean accuracy of each simulated cell, per cent.
    """
    rows = []
    for cell in PUBLISHED:
        fedavg = cell._replace(method="fedavg")
        if cell.method == "safa" and cell in means and fedavg in means:
            paper, here = PUBLISHED[cell] - PUBLISHED[fedavg], means[cell] - means[fedavg]
            rows.append([f"{cell.crash:g}", f"{cell.picked / 100:g}", f"{paper:+.2f}", f"{here:+.2f}"])
    return rows
