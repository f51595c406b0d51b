"""What the learner calls of its methods. No torch here, so that a class of the user's own can be looked at without it.

A member that a Protocol gives a value may be left out of a class of the user's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from models.fl.aggregation import Arrivals
    from models.fl.compression.bits import Generators

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


class Optimizer(Protocol):
    """A rule for one step; its memory lies outside."""

    moments: int
    """How many matrices, zero at first, it carries from step to step."""

    def step(self, theta: Tensor, gradient: Tensor, moments: Sequence[Tensor], counts: IntArray) -> None:
        """Change `theta` in place, and the moments; `gradient` may be overwritten. All (n, d).

        `counts` (n,): how many steps each row has taken with these moments, this one included.
        """


class Staleness(Protocol):
    """What an old update still counts for."""

    def factor(self, staleness: IntArray) -> FloatArray:
        """Factors (n,) in [0, 1], 1 for an update from the present version."""


class Aggregation(Protocol):
    """The step that one set of updates makes."""

    needs_contribution: bool = False
    """Whether it goes by the clients' marginal contributions."""
    votes: bool = False
    """Whether it goes by the signs of updates alone, which running statistics cannot be aggregated by."""

    def step(self, model: Tensor, starts: Tensor, updates: Tensor, arrivals: Arrivals, factors: FloatArray) -> Tensor:
        """What is to be added to `model` (d,); starts and updates (n, d), staleness factors (n,), n >= 1."""


class ServerOptimizer(Protocol):
    """What the server makes of an aggregated step: minus the gradient of Reddi et al. 2021, Algorithm 1."""

    def step(self, delta: Tensor) -> Tensor:
        """What is added to the parameters; `delta` (d,) is the aggregated step."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any], device: torch.device) -> None: ...


class Compression(Protocol):
    """What becomes of the numbers of a message on their way, and how many bytes it has."""

    exact: bool = False
    """Whether what arrives is what was sent: `compress` is then never called."""
    error_feedback: bool = False
    """Whether what is left out of a client's update is added to its next one, before that is compressed."""
    whole_models: bool = True
    """Whether a model may be sent so, and not only the difference between two."""
    needs_vote: bool = False
    """Whether what arrives has no magnitude, so that only a vote can aggregate it."""
    ratio: float | None = None
    """Of a size that is only declared: bytes over those of a plain message. None: values are compressed."""

    def message_bytes(self, tensors: Sequence[int]) -> int:
        """Bytes of one message of tensors of so many numbers each, whatever their values."""

    def compress(self, rows: Tensor, tensors: Sequence[int], generators: Generators) -> Tensor:
        """What the receiver makes of the messages `rows` (n, d), which are finite; `rows` are left as they are.

        A row holds tensors of so many numbers each, one after the other; `generators(row)` draws for one message.
        """
