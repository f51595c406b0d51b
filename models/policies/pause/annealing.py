"""Simulated annealing over sets of clients (PAUSE, Section IV): the graphs of SA-PAUSE and of Vanilla-SA, and the walk on them.

A neighbour of a set V is V with one member `a` swapped for one outsider `b`. SA-PAUSE's graph (R1, R2) has three ascending
lists of the clients: by ucb, by p, by g. A swap is active if `a` is the first member of V on some list. It is passive if `b` is
the first member, on some list, of the set that results. Equal values are ordered by client, so each list has one first member.

Neighbours are drawn without being enumerated. Let A be the members of V that are first on some list (one to three), and B the
outsiders that stand before the first member of V on some list. If `a` is in A, any outsider may come in. If it is not, no list
loses its first member, so the swap is passive exactly when `b` is in B. Hence the neighbours are A x outsiders and (V - A) x B.
A uniform one is drawn in O(1), after O(m) at each move.

Algorithm 2 cannot be meant as printed in two places. A worse set U is accepted with probability exp((E(U) - E(V))/tau), which
is below one; line 11 prints the inverse. The best set seen is returned; line 7 would return the last set that an upward step
reached.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np

from models.policies.protocols import FloatArray, IntArray

Uniform = Callable[[], float]
"""Function that returns one uniform of [0, 1) a call."""


def uniform_source(rng: np.random.Generator) -> Uniform:
    """Return a source of uniforms from `rng`. It draws them in blocks, which is faster than single draws."""
    return _draw_uniforms(rng).__next__


def _draw_uniforms(rng: np.random.Generator) -> Iterator[float]:
    """Yield uniforms without end."""
    while True:
        yield from rng.random(1024).tolist()


def finite_ucb(ucb: FloatArray, modular: FloatArray, size: int) -> FloatArray:
    """Return `ucb` (n,) with inf replaced by a finite number that leaves the ranking of all sets as it is (`exact_search`).

    The number exceeds every finite ucb by more than the modular scores of two sets can differ.
    """
    unexplored = ucb == math.inf
    if not unexplored.any():
        return ucb
    highest = np.max(ucb, where=~unexplored, initial=0.0)
    replaced: FloatArray = np.where(unexplored, highest + size * float(np.ptp(modular)) + 1.0, ucb)
    return replaced


def energy_range(ucb: FloatArray, generalization: FloatArray, privacy: FloatArray, size: int) -> float:
    """Return a bound on the difference of the energies of two sets of `size` clients: C of eq. 19 without its omega.

    `ucb` (n,) finite; `generalization` and `privacy` (n,) weighted as in the energy, alpha g/m and gamma p/m.
    """
    width = 0.0
    for scores in (generalization, privacy):
        ascending = np.sort(scores)
        width += float(ascending[-size:].sum() - ascending[:size].sum())
    ascending_ucb = np.sort(ucb)
    # A set's least ucb is at most the `size`-th greatest of all.
    return width + float(ascending_ucb[-size] - ascending_ucb[0])


class Graph(Protocol):
    """Neighbourhoods of sets of m clients."""

    def prepare(self, members: list[int]) -> None:
        """Prepare the neighbourhood of the set at which the walk stands."""

    def propose(self, members: list[int], inside: bytearray, uniform: Uniform) -> tuple[int, int]:
        """Draw a uniform neighbour of the set `members`, for which `prepare` was called; `inside` (n,) marks its members.

        Returns the position in `members` of the client that leaves, and the client that enters.
        """


def _draw_outsider(inside: bytearray, uniform: Uniform) -> int:
    """Draw a client that is not marked in `inside`, uniformly, by rejection."""
    clients = len(inside)
    while True:
        client = int(uniform() * clients)
        if not inside[client]:
            return client


class AnySwap:
    """Vanilla-SA's graph: every one-for-one swap is a neighbour, m (K - m) of them."""

    def prepare(self, members: list[int]) -> None:
        """Do nothing: every set has the same kind of neighbours."""

    def propose(self, members: list[int], inside: bytearray, uniform: Uniform) -> tuple[int, int]:
        return int(uniform() * len(members)), _draw_outsider(inside, uniform)


class ListSwap:
    """SA-PAUSE's graph, from the values (n,) that order each of its three lists."""

    def __init__(self, lists: Sequence[FloatArray]) -> None:
        self._order: list[list[int]] = []
        """Clients of each list, ascending by value."""
        self._rank: list[list[int]] = []
        """Rank of each client on each list, from 0."""
        for values in lists:
            order = np.argsort(values, kind="stable")
            rank = np.empty_like(order)
            rank[order] = np.arange(len(order))
            self._order.append(order.tolist())
            self._rank.append(rank.tolist())
        self._outsiders = 0
        # A and V - A of the module text, as positions in `members`; and, for each list, the outsiders before its first member.
        self._first: list[int] = []
        self._rest: list[int] = []
        self._before: list[int] = []

    def prepare(self, members: list[int]) -> None:
        """Find A, the members that come first on a list, and the number of outsiders before the first member on each list."""
        first_positions = set()
        self._before = []
        for rank in self._rank:
            member_ranks = [rank[client] for client in members]
            least = min(member_ranks)
            # All clients of lower rank are outsiders: as many as the rank itself.
            self._before.append(least)
            first_positions.add(member_ranks.index(least))
        self._first = sorted(first_positions)
        self._rest = [position for position in range(len(members)) if position not in first_positions]
        self._outsiders = len(self._rank[0]) - len(members)

    def propose(self, members: list[int], inside: bytearray, uniform: Uniform) -> tuple[int, int]:
        """Draw a neighbour of the set of `prepare` uniformly; return the position of the member to remove, and the client to add.
        """
        from_first = len(self._first) * self._outsiders
        before = sum(self._before)
        while True:
            # One draw among A x outsiders and (V - A) x B. A client of B that stands before the first member on c of the lists is
            # drawn c times as often, and kept with probability 1/c: all are equal.
            draw = int(uniform() * (from_first + len(self._rest) * before))
            if draw < from_first:
                return self._first[draw // self._outsiders], _draw_outsider(inside, uniform)
            rest_number, place = divmod(draw - from_first, before)
            # The lists stand one after the other, each with the clients before its first member: find the list of `place`.
            list_number = 0
            while place >= self._before[list_number]:
                place -= self._before[list_number]
                list_number += 1
            client = self._order[list_number][place]
            copies = sum(rank[client] < least for rank, least in zip(self._rank, self._before, strict=True))
            if copies == 1 or uniform() * copies < 1.0:
                return self._rest[rest_number], client


class Walk:
    """Metropolis walk over sets of clients: its present set, and the energy of that set (eq. 18; ucb finite)."""

    def __init__(self, ucb: FloatArray, modular: FloatArray, members: IntArray, graph: Graph, uniform: Uniform) -> None:
        self._ucb: list[float] = ucb.tolist()
        self._modular: list[float] = modular.tolist()
        self._graph = graph
        self._uniform = uniform
        self.members: list[int] = members.tolist()
        self._inside = bytearray(len(self._ucb))
        for client in self.members:
            self._inside[client] = 1
        self._refresh()

    def step(self, temperature: float) -> bool:
        """Draw a neighbour uniformly, and move there if it is no worse, otherwise with probability exp(gain/temperature).

        Return True if the walk moved.
        """
        position, incoming = self._graph.propose(self.members, self._inside, self._uniform)
        outgoing = self.members[position]
        # The energy of the neighbour, without forming the set: its least ucb is that of the members that stay, or of the new one.
        lowest_staying = self._second if self._ucb[outgoing] == self._lowest else self._lowest
        total = self._total - self._modular[outgoing] + self._modular[incoming]
        gain = min(lowest_staying, self._ucb[incoming]) + total - self.energy
        # A temperature may underflow to 0, where no worse set is accepted and the quotient has no value.
        if gain < 0.0 and (temperature == 0.0 or self._uniform() >= math.exp(gain / temperature)):
            return False
        self.members[position] = incoming
        self._inside[outgoing] = 0
        self._inside[incoming] = 1
        self._refresh()
        return True

    def _refresh(self) -> None:
        """Recompute what the next step needs of the present set: its two lowest ucb and its sums."""
        self._graph.prepare(self.members)
        ascending = sorted([self._ucb[k] for k in self.members])
        self._lowest = ascending[0]
        self._second = ascending[1] if len(ascending) > 1 else math.inf
        # Summed again at every move, so that rounding does not pile up along the walk.
        self._total = sum([self._modular[k] for k in self.members])
        self.energy = self._lowest + self._total


def anneal(
    ucb: FloatArray,
    modular: FloatArray,
    size: int,
    graph: Graph,
    *,
    scale: float,
    kappa: float,
    steps: int,
    rng: np.random.Generator,
) -> IntArray:
    """Return the best set visited in `steps` steps from a uniform start, as positions (size,) (Algorithm 2).

    Temperatures are scale/(kappa ln(1 + j)), j = 1, 2, ... `ucb` (n,) finite, `modular` (n,), n > `size`.
    """
    start = rng.choice(len(ucb), size, replace=False)
    walk = Walk(ucb, modular, start, graph, uniform_source(rng))
    best_energy, best_members = walk.energy, walk.members.copy()
    for j in range(1, steps + 1):
        has_moved = walk.step(scale / (kappa * math.log1p(j)))
        if has_moved and walk.energy > best_energy:
            best_energy, best_members = walk.energy, walk.members.copy()
    return np.array(best_members, np.int64)
