"""A consensus phase that is cut off before its first exchange is complete has no last change to tell."""

from __future__ import annotations

import math

import numpy as np

from netsim.peers.belief.synchronous import Iterates


class Halving:
    """Every message becomes half of what it was, and one more."""

    def step(self, fields: np.ndarray, messages: np.ndarray) -> np.ndarray:
        return messages / 2 + 1


def test_the_last_change_is_that_of_the_last_exchange_and_none_before() -> None:
    iterates = Iterates(Halving(), np.zeros(2), 0.0, 4)  # type: ignore[arg-type]
    assert math.isnan(iterates.last_change)
    assert iterates.residual == math.inf  # by which it has not converged
    iterates.advance()
    iterates.advance()
    assert iterates.last_change == 0.5
