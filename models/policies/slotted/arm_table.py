"""The super-arms selected so far, and the best of them by eq. 11 of Tong et al. 2024: mean_a + mu sqrt(ln t / n_a).

Between arms of equal n_a only the mean decides, so the arms of each n_a stand in a heap by mean and a round looks at the heads:
after T selections at most sqrt(2T) values of n_a occur.
"""

from __future__ import annotations

import heapq
import math

import numpy as np

from models.errors import ParameterError
from models.policies.protocols import State
from models.policies.slotted.arm_order import Arm

_LARGEST = 1e100


def check_mu(mu: float) -> None:
    """Raise ValueError unless `mu` is >= 0 and such that the square of an index is a number."""
    if not 0 <= mu <= _LARGEST:
        raise ParameterError("mu", mu, f"must be >= 0 and at most {_LARGEST:g}")


class ArmTable:
    """Counts and means of the arms selected; memory goes by their number."""

    def __init__(self) -> None:
        self._by_count: dict[int, list[tuple[float, Arm]]] = {}
        self._arms = 0

    def __len__(self) -> int:
        return self._arms

    def best(self, width: float) -> tuple[float, int]:
        """The greatest index mean_a + `width` / sqrt(n_a), with width = mu sqrt(ln t), and its n_a; (-inf, 0) if there is none.

        Of equal indices the arm selected less often comes first, then the one whose clients are lower.
        """
        best = (-math.inf, 0)
        for count, heap in self._by_count.items():
            index = -heap[0][0] + width / math.sqrt(count)
            if index > best[0] or (index == best[0] and count < best[1]):
                best = (index, count)
        return best

    def head(self, count: int) -> Arm:
        """The arm of greatest mean of those selected `count` times."""
        return self._by_count[count][0][1]

    def add(self, arm: Arm, count: int, mean: float) -> None:
        """Enter an arm not yet in the table."""
        heapq.heappush(self._by_count.setdefault(count, []), (-mean, arm))
        self._arms += 1

    def replay(self, count: int, reward: float) -> None:
        """Count one more selection of `head(count)`."""
        heap = self._by_count[count]
        negative, arm = heapq.heappop(heap)
        if not heap:
            del self._by_count[count]
        self._arms -= 1
        self.add(arm, count + 1, updated_mean(-negative, count, reward))

    def state_dict(self) -> State:
        # Sorted: how a heap happens to lie is no state.
        rows = [(arm, count, -negative) for count, heap in sorted(self._by_count.items()) for negative, arm in sorted(heap)]
        return {
            "arms": np.array([row[0] for row in rows], np.int64),
            "counts": np.array([row[1] for row in rows], np.int64),
            "means": np.array([row[2] for row in rows]),
        }

    def load_state_dict(self, state: State) -> None:
        self._by_count, self._arms = {}, 0
        rows = zip(state["arms"].tolist(), state["counts"].tolist(), state["means"].tolist(), strict=True)
        for arm, count, mean in rows:
            self.add(tuple(arm), count, mean)


def updated_mean(mean: float, count: int, reward: float) -> float:
    """The mean of `count` rewards and one more."""
    return mean + (reward - mean) / (count + 1)
