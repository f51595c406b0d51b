"""The super-arms selected so far, and the best of them by eq. 11 of Tong et al. 2024: mean_a + mu sqrt(ln t / n_a).

Among arms of equal n_a only the mean decides. So the arms of each n_a form a heap by mean, and a round compares the heads of
the heaps: after T selections at most sqrt(2T) values of n_a occur.
"""

from __future__ import annotations

import heapq
import math
from typing import NamedTuple

import numpy as np

from models.errors import ParameterError
from models.policies.protocols import State
from models.policies.slotted.arm_order import Arm

_LARGEST = 1e100  # a greater mu would overflow in the square of an index


def check_mu(mu: float) -> None:
    """Raise ParameterError unless 0 <= `mu` <= 1e100."""
    if not 0 <= mu <= _LARGEST:
        raise ParameterError("mu", mu, f"must be >= 0 and at most {_LARGEST:g}")


class BestIndex(NamedTuple):
    """Greatest index in a table of arms."""

    value: float
    """-inf if the table is empty."""
    times_selected: int
    """n_a of its arm; 0 if the table is empty."""


class _Entry(NamedTuple):
    """Arm on a heap of arms that were selected equally often, the greatest mean first."""

    negative_mean: float
    arm: Arm


class ArmTable:
    """Counts and means of the selected arms (sets of clients); memory grows with their number."""

    def __init__(self) -> None:
        self._by_count: dict[int, list[_Entry]] = {}
        """Heap of the arms that were selected n_a times, by n_a."""
        self._arms = 0

    def __len__(self) -> int:
        return self._arms

    def best(self, width: float) -> BestIndex:
        """Return the greatest index mean_a + `width` / sqrt(n_a), with width = mu sqrt(ln t). `head` returns its arm.

        Of equal indices the arm selected less often comes first, then the arm of lower clients.
        """
        best = BestIndex(-math.inf, 0)
        for count, heap in self._by_count.items():
            index = -heap[0].negative_mean + width / math.sqrt(count)
            if index > best.value or (index == best.value and count < best.times_selected):
                best = BestIndex(index, count)
        return best

    def head(self, count: int) -> Arm:
        """Return the arm of greatest mean among those selected `count` times."""
        return self._by_count[count][0].arm

    def add(self, arm: Arm, count: int, mean: float) -> None:
        """Enter an arm that is not yet in the table."""
        heapq.heappush(self._by_count.setdefault(count, []), _Entry(-mean, arm))
        self._arms += 1

    def replay(self, count: int, reward: float) -> None:
        """Add one more selection of `head(count)`, and its reward."""
        heap = self._by_count[count]
        entry = heapq.heappop(heap)
        if not heap:
            del self._by_count[count]
        # `add` counts it again.
        self._arms -= 1
        self.add(entry.arm, count + 1, update_mean(-entry.negative_mean, count, reward))

    def state_dict(self) -> State:
        # Sorted, so that equal tables have equal states: the order inside a heap depends on its history.
        arms: list[Arm] = []
        counts: list[int] = []
        means: list[float] = []
        for count, heap in sorted(self._by_count.items()):
            for entry in sorted(heap):
                arms.append(entry.arm)
                counts.append(count)
                means.append(-entry.negative_mean)
        return {"arms": np.array(arms, np.int64), "counts": np.array(counts, np.int64), "means": np.array(means)}

    def load_state_dict(self, state: State) -> None:
        self._by_count, self._arms = {}, 0
        rows = zip(state["arms"].tolist(), state["counts"].tolist(), state["means"].tolist(), strict=True)
        for arm, count, mean in rows:
            self.add(tuple(arm), count, mean)


def update_mean(mean: float, count: int, reward: float) -> float:
    """Return the mean of `count` rewards of mean `mean` and one more `reward`."""
    return mean + (reward - mean) / (count + 1)
