"""PAUSE, Table I: time of one search for the best set (eq. 14) by each method, against the number of clients.

The paper gives orders of growth. Here they are slopes of log time on log clients, of the least of several processor times each.
The two annealing methods take the same number of steps whatever the number of clients, and are compared by the time of that walk.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import process_time
from typing import TYPE_CHECKING

import numpy as np

from models.policies.pause.annealing import AnySwap, Graph, ListSwap, anneal, energy_range
from models.policies.pause.enumeration import best_by_enumeration
from models.policies.pause.exact_search import best_set
from netsim.core.protocols import FloatArray
from scenarios.papers.study import Size

if TYPE_CHECKING:
    from analysis.documents.blocks import Section
    from analysis.figures.settings import Look
    from analysis.figures.style import ShownFigure

MEMBERS = 5
STEPS = 1000
"""Steps of one annealing walk."""
_FEW = (10, 15, 20, 25, 30)
"""Numbers of clients of the enumeration."""
_MANY = {
    Size.SMOKE: (100, 300, 1000),
    Size.LAPTOP: (100, 300, 1000, 3000, 10_000, 30_000, 100_000),
    Size.FULL: (100, 300, 1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000),
}
"""Numbers of clients of the other methods, by size."""
_PAPER = {
    "enumeration": "exponential",
    "annealing, any swap": "K^2",
    "annealing, tailored (SA-PAUSE)": "K log K on average",
    "exact (here)": "not in the paper",
}
"""Method to its published cost."""
MOST_EXACT_SLOPE = 1.3
"""Largest slope that counts as K log K: log K adds 0.1 to 0.2 to 1 over these numbers of clients."""
LEAST_ENUMERATION_SLOPE = 3.5
"""Smallest slope that counts as growth of K choose 5."""

Times = dict[str, list[tuple[int, float]]]
"""Method to pairs: number of clients, seconds of one search."""


def measure_searches(size: Size) -> Times:
    """Return the processor seconds of one search by each method, at growing numbers of clients.

    Inputs of the search are random: `ucb` is the bound of each client, `modular` the sum of its generalisation and privacy terms.
    """
    rng = np.random.default_rng(1)
    times: Times = {name: [] for name in _PAPER}
    enumerated = _FEW[:3] if size is Size.SMOKE else _FEW
    for clients in enumerated:
        ucb, modular = 1.0 + rng.random(clients), rng.random(clients)
        enumeration = partial(best_by_enumeration, ucb, modular, MEMBERS, rng)
        times["enumeration"].append((clients, _shortest_s(enumeration, repeats=3)))
    for clients in _MANY[size]:
        ucb, general, private = 1.0 + rng.random(clients), rng.random(clients), rng.random(clients)
        modular = general + private
        exact_search = partial(best_set, ucb, modular, MEMBERS, rng)
        times["exact (here)"].append((clients, _shortest_s(exact_search, repeats=20)))
        # The small term keeps the temperature above zero.
        scale = energy_range(ucb, general, private, MEMBERS) + 1e-3
        graphs: dict[str, Callable[[], Graph]] = {
            "annealing, any swap": AnySwap,
            "annealing, tailored (SA-PAUSE)": partial(ListSwap, (ucb, private, general)),
        }
        for name, graph in graphs.items():
            walk = _annealing_call(ucb, modular, graph, scale, rng)
            times[name].append((clients, _shortest_s(walk, repeats=3)))
    return times


def _annealing_call(
    ucb: FloatArray, modular: FloatArray, graph: Callable[[], Graph], scale: float, rng: np.random.Generator
) -> Callable[[], object]:
    """Return a function that makes one annealing walk, the preparation of its `graph` included."""
    return lambda: anneal(ucb, modular, MEMBERS, graph(), scale=scale, kappa=1.0, steps=STEPS, rng=rng)


def _shortest_s(call: Callable[[], object], repeats: int) -> float:
    """Return the processor seconds of the shortest of `repeats` calls, the one that other processes disturb least."""
    times_s = []
    for _ in range(repeats):
        start_s = process_time()
        call()
        times_s.append(process_time() - start_s)
    return min(times_s)


def growth_exponent(points: list[tuple[int, float]]) -> float:
    """Return the least-squares slope of log seconds on log clients. `points`: two or more pairs of clients and seconds."""
    log_clients, log_seconds = np.log(points).T
    centred = log_clients - log_clients.mean()
    return float((centred * log_seconds).sum() / (centred**2).sum())


def sections(times: Times, *, look: Look) -> list[Section]:
    """Return the verdict, the table and the figure of measured times."""
    from analysis.documents.blocks import Picture, Section, Table
    from analysis.documents.numbers import format_number

    slopes = {name: growth_exponent(points) for name, points in times.items()}
    enumeration, exact = slopes["enumeration"], slopes["exact (here)"]
    rules = [
        ("enumeration grows as the number of sets, K choose 5", enumeration, enumeration >= LEAST_ENUMERATION_SLOPE),
        ("the exact search grows no faster than K log K", exact, exact <= MOST_EXACT_SLOPE),
    ]
    verdicts = []
    for text, slope, holds in rules:
        verdicts.append([text, f"slope {slope:.2f}", "as in the paper" if holds else "not as in the paper"])
    note = f"Fixed beforehand: a slope of {LEAST_ENUMERATION_SLOPE:g} at least, and of {MOST_EXACT_SLOPE:g} at most. "
    note += "Times of this machine."
    verdict = Table("verdict", "Rules and verdicts", (["rule", "here", "verdict"], verdicts), note=note, words=(0, 2))
    rows = []
    for name, points in times.items():
        (few, first_s), (many, last_s) = points[0], points[-1]
        ends = [f"{few:,}", format_number(first_s * 1e3), f"{many:,}", format_number(last_s * 1e3)]
        rows.append([name, _PAPER[name], *ends, format_number(slopes[name])])
    header = ["method", "paper: cost", "fewest clients", "ms", "most clients", "ms there", "slope"]
    words = f"One search for {MEMBERS} clients; annealing: a walk of {STEPS:,} steps. The least of several processor times."
    table = Table("costs", "Cost of one search", (header, rows), note=words, words=(0, 1))
    picture = Picture("costs", "Time of one search against the number of clients", _figure(times, look))
    return [Section("Verdict", [verdict]), Section("Beside the paper", [table]), Section("Figures", [picture])]


def _figure(times: Times, look: Look) -> ShownFigure:
    """Draw the time of a search against the number of clients, a line for each method."""
    from analysis.figures.style import finish_figure, line_style, new_figure

    with look.apply():
        figure, (axes,) = new_figure(look=look)
        lines = []
        for index, (name, points) in enumerate(times.items()):
            clients, seconds = zip(*points, strict=True)
            (line,) = axes.plot(clients, [second * 1e3 for second in seconds], marker="o", ms=4.0, **line_style(index))
            lines.append((line, name))
        axes.set(xscale="log", yscale="log", xlabel="clients", ylabel="time of one search (ms)")
        note = "least of several processor times on this machine"
        finish_figure(figure, "Cost of one search for the best set", note, lines, look=look)
    return figure
