"""Structural types of the learner's methods. No torch here, so that a user's own class can be checked without it.

A member with a value in a Protocol may be left out of a user's own class.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from models.fl.options.demands import NOTHING, Demands
from netsim.core.state import State

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from models.fl.aggregation.rules import Arrivals
    from models.fl.compression.bits import Generators
    from models.fl.options.demands import LocalSteps
    from models.fl.training.own_training import Trained, TrainingJob

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


class Optimizer(Protocol):
    """Rule of one step; its memory is outside."""

    moments: int
    """Number of matrices, zero at first, that it carries from step to step."""
    rate: float | None = None
    """Factor of the newest gradient, if a step is a fixed linear function of the gradients; None otherwise."""
    momentum: float = 0.0
    """Share of the last step that the next one keeps, for such an optimizer."""

    def step(self, theta: Tensor, gradient: Tensor, moments: Sequence[Tensor], counts: IntArray) -> None:
        """Change `theta` in place, and the moments; `gradient` may be overwritten. All (n, d).

        `counts` (n,): number of steps that each row has taken with these moments, this one included.
        """


class Staleness(Protocol):
    """Rule of the weight of old updates."""

    def factor(self, staleness: IntArray) -> FloatArray:
        """Return factors (n,) in [0, 1], 1 for an update from the present version."""


class Correction(Protocol):
    """Term added to all gradients of a client's local training, from a vector that the client keeps between participations.

    Vectors are as long as an update, and zero until a client's first delivery. The server has their mean over all clients.
    """

    keeps: bool
    """True if there are such vectors; otherwise no method is called."""
    pull: float
    """Multiple of the distance from the received model that is added to every gradient, too."""
    on_server: float
    """Multiple of the mean of all clients' vectors that the server adds to its step."""

    def shift(self, own: Tensor, mean: Tensor) -> Tensor:
        """Return the term added to every gradient (n, d) of clients with vectors `own` (n, d); `mean` (d,) as sent with the
        model.
        """

    def new_vectors(self, own: Tensor, mean: Tensor, moved: Tensor, local: LocalSteps, gradients: Tensor | None) -> Tensor:
        """Return the new vectors (n, d) of clients whose parameters have `moved` (n, d) by these `local` steps.

        `gradients` (n, d): at the received model, for a method whose `demands` ask for them.
        """


class NoCorrection:
    """Null object: gradients are used unchanged."""

    keeps = False
    pull = 0.0
    on_server = 0.0

    def shift(self, own: Tensor, mean: Tensor) -> Tensor:
        return own.new_zeros(own.shape)

    def new_vectors(self, own: Tensor, mean: Tensor, moved: Tensor, local: LocalSteps, gradients: Tensor | None) -> Tensor:
        return own


class Aggregation(Protocol):
    """Aggregation of one set of updates into a step."""

    needs_contribution: bool = False
    """True if it uses the clients' marginal contributions."""
    votes: bool = False
    """True if it uses the signs of updates alone, which cannot aggregate running statistics."""
    demands: Demands = NOTHING
    """Demands on local training and on messages."""
    correction: Correction = NoCorrection()
    """Correction of the clients' gradients."""

    def step(self, model: Tensor, starts: Tensor, updates: Tensor, arrivals: Arrivals, factors: FloatArray) -> Tensor:
        """Return the step to add to `model` (d,); starts and updates (n, d), staleness factors (n,), n >= 1."""


class ServerOptimizer(Protocol):
    """Rule that turns an aggregated step, minus the gradient of Reddi et al. 2021, Algorithm 1, into a step of the model."""

    rate: float | None = None
    """Factor of the step, if the rule only multiplies; None otherwise."""

    def step(self, delta: Tensor) -> Tensor:
        """Return the step to add to the parameters; `delta` (d,) is the aggregated step."""

    def state_dict(self) -> State: ...

    def load_state_dict(self, state: State, device: torch.device) -> None: ...


class Compression(Protocol):
    """Compression of the numbers of a message, and the number of its bytes."""

    exact: bool = False
    """True if messages arrive unchanged: `compress` is then never called."""
    error_feedback: bool = False
    """True if the numbers left out of a client's update are added to its next one, before that is compressed."""
    whole_models: bool = True
    """True if it suits whole models, and not only the difference of two."""
    needs_vote: bool = False
    """True if messages arrive without magnitude, so that only a vote can aggregate them."""
    ratio: float | None = None
    """Declared ratio of the bytes to those of a plain message; None: values are compressed."""

    def message_bytes(self, tensors: Sequence[int]) -> int:
        """Return the bytes of one message of tensors of so many numbers each; they do not depend on the values."""

    def compress(self, rows: Tensor, tensors: Sequence[int], generators: Generators) -> Tensor:
        """Return the rows (n, d) that the receiver makes of the messages `rows` (n, d), finite, which are not changed.

        A row holds tensors of so many numbers each, one after the other; `generators(row)` draws for one message.
        """


class Trainer(Protocol):
    """Trains clients: jobs in, updates out. docs/own-trainer.md has an example."""

    eager: bool = False
    """True if the samples or steps of an update, and so its duration, depend on what `train` returns. Each job then runs as its
    client is sent the model, and time and tables count what was processed. Otherwise jobs run when their result is needed, all
    that are needed together in one call, and time and tables count what was planned. On workers each call gets one job."""

    def train(self, jobs: Sequence[TrainingJob]) -> Sequence[Trained]:
        """Return the results of `jobs`, in their order."""
