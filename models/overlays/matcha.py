"""MATCHA: matchings of a graph are switched on at random, within a budget of communication (Wang et al. 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from itertools import chain, combinations, compress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog, minimize_scalar

from models.overlays.cycle_time import FloatArray
from models.overlays.edge_colouring import Pair, matchings
from models.overlays.overlay import Waiting
from models.overlays.silos import Arc, IntArray, Silos, both_ways

ROUNDS = 1000
"""Rounds of which the mean is taken, as in the published table."""
GAP = 1e-3
"""Relative distance from the largest algebraic connectivity at which the search for probabilities ends."""


class Matcha:
    """Overlay of matchings of the underlay's own links, some of which are on in a round.

    A round lasts until the slowest message on a link that is on has arrived.

    `budget`: expected share of the matchings that are on. The probabilities maximise the algebraic connectivity of the expected
    graph. Draws follow from `seed`.
    """

    kind = "matcha"
    waiting: Waiting = "all"
    period = 0

    def __init__(self, silos: Silos, *, budget: float = 0.5, seed: int = 1) -> None:
        self.silos = silos
        self.groups = matchings(silos.count, self._pairs(silos))
        self._budget, self._seed = budget, seed

    @cached_property
    def probabilities(self) -> FloatArray:
        """(m,) probability that each matching is on in a round. Takes seconds for a hundred silos."""
        return best_probabilities(self.silos.count, self.groups, self._budget)

    @cached_property
    def _on(self) -> NDArray[np.bool_]:
        """(rounds, m) True for the matchings that are on."""
        uniforms = np.random.default_rng(self._seed).random((ROUNDS, len(self.groups)))
        return uniforms < self.probabilities

    def _pairs(self, silos: Silos) -> list[Pair]:
        """Return the pairs of silos that may exchange models: those that a cable joins."""
        return [(min(cable.a, cable.b), max(cable.a, cable.b)) for cable in silos.underlay.cables]

    @cached_property
    def _group_arcs(self) -> list[tuple[Arc, ...]]:
        """Arcs of each matching, in both directions."""
        return [both_ways(group) for group in self.groups]

    @property
    def arcs(self) -> Sequence[Arc]:
        """All arcs that a round may use, matching by matching."""
        return tuple(chain.from_iterable(self._group_arcs))

    def round_arcs(self, round: int) -> Sequence[Arc]:
        """Return the arcs of the matchings that are on in `round`, from 0; draws repeat after `ROUNDS`."""
        return tuple(chain.from_iterable(compress(self._group_arcs, self._on[round % ROUNDS])))

    def cycle_ms(self) -> float:
        """Return the mean time of a round in ms, over `ROUNDS` drawn rounds; a round without messages lasts s T_c."""
        return float(np.mean([self._round_ms(round) for round in range(ROUNDS)]))

    @cached_property
    def _table(self) -> _ArcTable:
        """All arcs, as arrays."""
        arcs = self.arcs
        latencies_ms, cores_ms = self.silos.route_ms(arcs)
        # Each link of a matching is two arcs.
        matching_of = np.repeat(np.arange(len(self.groups)), [2 * len(group) for group in self.groups])
        return _ArcTable(
            sources=np.array([arc.source for arc in arcs]),
            targets=np.array([arc.target for arc in arcs]),
            latencies_ms=latencies_ms,
            cores_ms=cores_ms,
            matching_of=matching_of,
        )

    def _round_ms(self, round: int) -> float:
        """Return the time of a round in ms: local training, then the slowest message of the links that are on.

        Fast path of `Silos.message_ms` over `round_arcs(round)`: arrays in place of an object for each arc, the same numbers.
        """
        table = self._table
        active = self._on[round % ROUNDS][table.matching_of]
        if not active.any():
            return self.silos.work_ms
        sources, targets = table.sources[active], table.targets[active]
        outgoing = np.bincount(sources, minlength=self.silos.count)[sources]
        incoming = np.bincount(targets, minlength=self.silos.count)[targets]
        # Messages share the access of their silos, up and down; a path's share of the core is its own.
        access_ms = np.maximum(outgoing * self.silos.up_ms, incoming * self.silos.down_ms)
        shares_ms = np.maximum(access_ms, table.cores_ms[active])
        return float((table.latencies_ms[active] + shares_ms).max()) + self.silos.work_ms


class _ArcTable(NamedTuple):
    """Arcs as arrays, each (arcs,)."""

    sources: IntArray
    targets: IntArray
    latencies_ms: FloatArray
    cores_ms: FloatArray
    """Time of a model on the cables of the route."""
    matching_of: IntArray
    """Number of the matching that each arc belongs to."""


class MatchaPlus(Matcha):
    """MATCHA on all pairs of silos, whatever links the underlay has."""

    kind = "matcha+"

    def _pairs(self, silos: Silos) -> list[Pair]:
        """Return all pairs of silos."""
        return list(combinations(range(silos.count), 2))


def best_probabilities(count: int, groups: Sequence[Sequence[Pair]], budget: float) -> FloatArray:
    """Return probabilities (m,) of sum <= budget x m that maximise the second smallest eigenvalue of the expected Laplacian.

    The eigenvalue is the least v' L v over unit vectors v that sum to 0: a concave function, maximised by cutting planes
    (Kelley 1960), each a linear program, to within `GAP`.
    """
    return np.array(_best_probabilities(count, tuple(tuple(group) for group in groups), budget))


@lru_cache(maxsize=16)
def _best_probabilities(count: int, groups: tuple[tuple[Pair, ...], ...], budget: float) -> tuple[float, ...]:
    """Compute `best_probabilities` from tuples, which the cache needs; `count` silos."""
    number = len(groups)
    # Both ends of the links of each matching, as two arrays.
    ends = [np.array(group).T for group in groups]
    best, best_value = np.full(number, budget), -np.inf
    # Each cut is a plane above the concave function: row (m,) of v' L_j v at an eigenvector v. The linear program finds the
    # probabilities where the lowest plane is highest.
    chosen, cuts = best, []
    for _ in range(200):
        # Constant vectors are moved out of the way: where the graph falls apart, they share the eigenvalue 0 with others.
        laplacian = np.full((count, count), 1.0)
        for probability, (a, b) in zip(chosen, ends, strict=True):
            laplacian[a, b] = laplacian[b, a] = 1.0 - probability
        np.fill_diagonal(laplacian, laplacian.diagonal() + count - laplacian.sum(axis=1))
        values, vectors = np.linalg.eigh(laplacian)
        if values[0] > best_value:
            best, best_value = chosen, float(values[0])
        cuts.append([np.sum((vectors[a, 0] - vectors[b, 0]) ** 2) for a, b in ends])
        # Variables: the probabilities, then the height, which is maximised. It stays below each cut, and the probabilities
        # within the budget.
        below_cuts = np.hstack([-np.array(cuts), np.ones((len(cuts), 1))])
        within_budget = np.append(np.ones(number), 0.0)
        solution: Any = linprog(
            np.append(np.zeros(number), -1.0),
            A_ub=np.vstack([below_cuts, within_budget]),
            b_ub=np.append(np.zeros(len(cuts)), budget * number),
            bounds=[(0.0, 1.0)] * number + [(None, None)],
        )
        if -solution.fun <= best_value * (1 + GAP):
            break
        # Half-way to the best point so far: the bare vertices of the linear programs jump about.
        chosen = 0.5 * (np.asarray(solution.x[:number]) + best)
    return tuple(best.tolist())


class DrawnMatchings(NamedTuple):
    """Matchings of a graph of which each round draws some; the protocol `matcha` of peers uses them."""

    groups: list[list[Pair]]
    """Links of each of the m matchings."""
    probabilities: FloatArray
    """(m,) probability that each is on in a round."""
    step: float
    """Mixing step alpha of W = I - alpha L."""
    connectivity: float
    """Second smallest eigenvalue of the expected Laplacian; 0 for a graph in pieces."""
    contraction: float
    """Spectral norm of E[W^2] - J: mean squared disagreement shrinks at least by this factor a round."""


def draw_plan(count: int, pairs: Sequence[Pair], budget: float) -> DrawnMatchings:
    """Divide a graph of `count` nodes into matchings, and return the best probabilities and mixing step (Wang et al. 2019).

    The probabilities have a mean of at most `budget`.

    >>> plan = draw_plan(3, [(0, 1), (1, 2)], 0.5)
    >>> plan.groups, plan.probabilities.round(3).tolist(), round(plan.step, 3), round(plan.contraction, 3)
    ([[(1, 2)], [(0, 1)]], [0.5, 0.5], 0.667, 0.667)
    """
    groups = matchings(count, pairs)
    if not groups:
        return DrawnMatchings(groups=[], probabilities=np.zeros(0), step=0.0, connectivity=0.0, contraction=1.0)
    probabilities = best_probabilities(count, groups, budget)
    # E[L], and the sum of p_j (1 - p_j) L_j over matchings j, where L_j is the Laplacian of matching j.
    laplacians = np.zeros((2, count, count))
    for probability, group in zip(probabilities.tolist(), groups, strict=True):
        a, b = np.array(group).T
        for place, weight in enumerate((probability, probability * (1.0 - probability))):
            laplacians[place, a, b] = laplacians[place, b, a] = -weight
            laplacians[place, a, a] += weight
            laplacians[place, b, b] += weight
    mean, spread = laplacians
    # The square of a matching's Laplacian is twice itself, so that E[L^2] = E[L]^2 + 2 sum_j p_j (1 - p_j) L_j.
    square = mean @ mean + 2.0 * spread
    without_mean = np.eye(count) - 1.0 / count

    def contraction(step: float) -> float:
        """Return the spectral norm of E[W^2] - J for W = I - step L."""
        return float(np.linalg.eigvalsh(without_mean - 2.0 * step * mean + step**2 * square)[-1])

    # The norm is a convex function of the step. It is 1 at 0 and at least 1 from step 1 on.
    minimum: Any = minimize_scalar(contraction, bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-10})
    return DrawnMatchings(
        groups=groups,
        probabilities=probabilities,
        step=float(minimum.x),
        connectivity=float(np.linalg.eigvalsh(mean)[1]),
        contraction=float(minimum.fun),
    )
