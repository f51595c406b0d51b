"""The m-subsets of K clients (super-arms) in an order that is made as it is used.

Memory and time grow with the number of subsets taken, not with C(K, m).
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from functools import partial
from typing import Literal, NamedTuple

import numpy as np

from models.errors import ParameterError
from models.policies.protocols import FloatArray, State

Arm = tuple[int, ...]
Ties = Literal["random", "first"]


def check_ties(name: str, ties: str) -> None:
    """Raise ParameterError, naming the parameter, unless `ties` is "random" or "first"."""
    if ties not in ("random", "first"):
        raise ParameterError(name, ties, "must be 'random' or 'first'")


def unrank_subset(rank: int, size: int, clients: int) -> Arm:
    """Return the subset with the number `rank` among all subsets of `size` of the clients 0 to `clients` - 1; ascending.

    Subsets are numbered from 0 in colexicographic order: c_1 < c_2 < .. < c_size has the number
    C(c_1, 1) + C(c_2, 2) + .. + C(c_size, size).

    >>> [unrank_subset(rank, 2, 3) for rank in range(3)]
    [(0, 1), (0, 2), (1, 2)]
    """
    members: list[int] = []
    # Find the largest member first: c_k is the largest c with C(c, k) <= what is left of the rank.
    for k in range(size, 0, -1):
        client = bisect_right(range(clients), rank, key=partial(_choose, k=k)) - 1
        members.append(client)
        rank -= math.comb(client, k)
        clients = client
    return tuple(reversed(members))


def _choose(n: int, k: int) -> int:
    """Return C(n, k), the number of subsets of k out of n; `math.comb` takes no keywords."""
    return math.comb(n, k)


class Shuffle:
    """The numbers 0..count-1, each once: in uniformly random order, or rising with `ties` "first".

    Fisher and Yates' shuffle, in which only the moved numbers are stored.
    """

    def __init__(self, count: int, ties: Ties) -> None:
        self.count = count
        self.drawn = 0
        """Numbers drawn so far."""
        self._random = ties == "random"
        self._moved: dict[int, int] = {}
        """Number at each place, from `drawn` on, whose number is not the place itself."""

    def draw(self, rng: np.random.Generator) -> int:
        """Return the next number; call it while `drawn` < `count`."""
        first = self.drawn
        self.drawn += 1
        chosen = first
        if self._random and first < self.count - 1:
            chosen += _draw_below(self.count - first, rng)
        # The place `first` is not drawn from again.
        number_at_first = self._moved.pop(first, first)
        if chosen == first:
            return number_at_first
        # The number at the first place takes the place of the drawn one.
        drawn_number = self._moved.get(chosen, chosen)
        self._moved[chosen] = number_at_first
        return drawn_number

    def state_dict(self) -> State:
        """Return the progress; numbers as text, because there can be more subsets than a 64-bit integer counts."""
        moved = [[str(place), str(number)] for place, number in self._moved.items()]
        return {"drawn": str(self.drawn), "moved": moved}

    def load_state_dict(self, state: State) -> None:
        self.drawn = int(state["drawn"])
        self._moved = {int(place): int(number) for place, number in state["moved"]}


def _draw_below(count: int, rng: np.random.Generator) -> int:
    """Draw a uniform integer of [0, count), of any size; the generator itself stops at 64 bits."""
    if count <= 1 << 62:
        return int(rng.integers(count))
    bits = (count - 1).bit_length()
    whole_bytes, surplus_bits = (bits + 7) // 8, -bits % 8
    # Draw numbers of so many bits, until one is small enough: at least half of them are.
    while True:
        number = int.from_bytes(rng.bytes(whole_bytes), "little") >> surplus_bits
        if number < count:
            return number


class _Waiting(NamedTuple):
    """Profile on the heap of `ByMean`: the heap orders by mean, then at random, then by profile."""

    negative_mean: float
    tie: float
    profile: Arm


class ByMean:
    """All m-subsets of the clients in decreasing mean of their members' values, each once.

    Clients of equal value form a level; subsets with as many members of each level (a profile) have equal means. Profiles are
    enumerated best first. The best profile takes the highest levels, `_home`. Every other profile has one parent: its first
    member that is not at the level of `_home` is one level higher there. So every profile is reached exactly once, and none
    before a better one. The subsets of a profile come in uniformly random order (`ties` "random") or in a fixed one ("first").
    Profiles of equal mean come one after the other, in an order that is random or fixed likewise. Sums are correctly rounded,
    so rounding changes no order.
    """

    def __init__(self, *, values: FloatArray, size: int, ties: Ties) -> None:
        self._ties: Ties = ties
        levels = np.unique(values)[::-1]
        self._values = levels.tolist()
        self._members = [np.flatnonzero(values == level).tolist() for level in levels]
        """Clients of each level, the level of greatest value first."""
        self._size = size
        level_of_clients = np.repeat(np.arange(len(levels)), [len(members) for members in self._members])
        self._home: Arm = tuple(level_of_clients[:size].tolist())
        self._heap = [_Waiting(-self._mean(self._home), 0.0, self._home)]
        self._profile: Arm = ()
        """Levels of the members of the present profile, ascending."""
        self._value = math.nan
        """Mean of the subsets of the present profile."""
        self._order = Shuffle(0, ties)
        """Order of its subsets, as numbers."""

    def best(self) -> float:
        """Return the mean of the next subset; -inf after the last."""
        if self._order.drawn < self._order.count:
            return self._value
        return -self._heap[0].negative_mean if self._heap else -math.inf

    def take(self, rng: np.random.Generator) -> Arm:
        """Return the next subset, ascending; call it while `best` is finite."""
        if self._order.drawn == self._order.count:
            self._next_profile(rng)
        rank = self._order.draw(rng)
        arm: list[int] = []
        # `rank` is a number of mixed radix: one digit a level, which numbers the subset of that level's clients.
        for level, count in _runs(self._profile):
            members = self._members[level]
            rank, digit = divmod(rank, math.comb(len(members), count))
            arm += [members[i] for i in unrank_subset(digit, count, len(members))]
        return tuple(sorted(arm))

    def _next_profile(self, rng: np.random.Generator) -> None:
        """Go to the profile of greatest mean on the heap, and push its children, which are no better.

        Each child gets a drawn number if ties are random.
        """
        negative, _, profile = heapq.heappop(self._heap)
        self._enter(profile, -negative)
        for child in self._children(profile):
            tie = float(rng.random()) if self._ties == "random" else 0.0
            heapq.heappush(self._heap, _Waiting(-self._mean(child), tie, child))

    def _enter(self, profile: Arm, value: float) -> None:
        """Make `profile` the present one, with all of its subsets still to come."""
        self._profile, self._value = profile, value
        subsets = math.prod(math.comb(len(self._members[level]), count) for level, count in _runs(profile))
        self._order = Shuffle(subsets, self._ties)

    def _children(self, profile: Arm) -> list[Arm]:
        """Return the children of `profile`: one member, up to the first that is not at home, is one level lower.

        So each profile has one parent and is made once.
        """
        children = []
        for j, level in enumerate(profile):
            # Only the last member of a level may go lower: a profile stays in ascending order of levels.
            is_last_of_level = j + 1 == self._size or profile[j + 1] > level
            lower = level + 1
            has_free_client = lower < len(self._members) and profile.count(lower) < len(self._members[lower])
            if is_last_of_level and has_free_client:
                children.append((*profile[:j], lower, *profile[j + 1 :]))
            if level != self._home[j]:
                break
        return children

    def _mean(self, profile: Arm) -> float:
        """Return the mean value of the members of a profile."""
        return math.fsum([self._values[level] for level in profile]) / self._size

    def state_dict(self) -> State:
        # Sorted, so that equal enumerations have equal states: the order inside a heap depends on its history.
        waiting = sorted(self._heap)
        return {
            "profiles": np.array([entry.profile for entry in waiting], np.int64).reshape(-1, self._size),
            "ties": np.array([entry.tie for entry in waiting]),
            "profile": np.array(self._profile, np.int64),
            "order": self._order.state_dict(),
        }

    def load_state_dict(self, state: State) -> None:
        """Restore the progress of an enumeration of the same values."""
        profiles = [tuple(profile) for profile in state["profiles"].tolist()]
        ties = state["ties"].tolist()
        self._heap = [_Waiting(-self._mean(profile), tie, profile) for profile, tie in zip(profiles, ties, strict=True)]
        heapq.heapify(self._heap)
        profile = tuple(state["profile"].tolist())
        if profile:
            self._enter(profile, self._mean(profile))
            self._order.load_state_dict(state["order"])
        else:
            self._profile, self._value, self._order = (), math.nan, Shuffle(0, self._ties)


def _runs(profile: Arm) -> list[tuple[int, int]]:
    """Return (level, number of members) for each level of an ascending profile."""
    return [(level, profile.count(level)) for level in dict.fromkeys(profile)]
