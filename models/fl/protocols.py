"""What the learner calls of its methods. No torch here, so that a class of the user's own can be looked at without it.

A member that a Protocol gives a value may be left out of a class of the user's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from models.fl.demands import NOTHING, Demands

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from models.fl.aggregation.rules import Arrivals
    from models.fl.compression.bits import Generators
    from models.fl.demands import LocalSteps
    from models.fl.training.own_training import Trained, TrainingJob

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


class Optimizer(Protocol):
    """A rule for one step; its memory lies outside."""

    moments: int
    """How many matrices, zero at first, it carries from step to step."""
    rate: float | None = None
    """What the newest gradient is multiplied by, where a step is a fixed linear function of the gradients; None: it is not."""
    momentum: float = 0.0
    """Of such an optimizer: the share of the last step that the next one keeps."""

    def step(self, theta: Tensor, gradient: Tensor, moments: Sequence[Tensor], counts: IntArray) -> None:
        """Change `theta` in place, and the moments; `gradient` may be overwritten. All (n, d).

        `counts` (n,): how many steps each row has taken with these moments, this one included.
        """


class Staleness(Protocol):
    """What an old update still counts for."""

    def factor(self, staleness: IntArray) -> FloatArray:
        """Factors (n,) in [0, 1], 1 for an update from the present version."""


class Correction(Protocol):
    """What is added to all gradients of a client's local training, by a vector that it keeps from participation to participation.

    Vectors are as long as an update, and zero until a client's first delivery. The server has their mean over all clients.
    """

    keeps: bool
    """Whether there are such vectors at all: otherwise nothing is called."""
    pull: float
    """Multiple of the distance from the received model that is added to every gradient, too."""
    on_server: float
    """Multiple of the mean of all clients' vectors that the server adds to its step."""

    def shift(self, own: Tensor, mean: Tensor) -> Tensor:
        """What is added to every gradient (n, d) of clients with the vectors `own` (n, d); `mean` (d,) as the model was sent."""

    def after(self, own: Tensor, mean: Tensor, moved: Tensor, local: LocalSteps, gradients: Tensor | None) -> Tensor:
        """The vectors (n, d) with which clients end whose parameters have `moved` (n, d) by these `local` steps.

        `gradients` (n, d): at the received model, for a method whose `demands` ask for them.
        """


class NoCorrection:
    """The null object: gradients are followed as they are."""

    keeps = False
    pull = 0.0
    on_server = 0.0

    def shift(self, own: Tensor, mean: Tensor) -> Tensor:
        return own.new_zeros(own.shape)

    def after(self, own: Tensor, mean: Tensor, moved: Tensor, local: LocalSteps, gradients: Tensor | None) -> Tensor:
        return own


class Aggregation(Protocol):
    """The step that one set of updates makes."""

    needs_contribution: bool = False
    """Whether it goes by the clients' marginal contributions."""
    votes: bool = False
    """Whether it goes by the signs of updates alone, which running statistics cannot be aggregated by."""
    demands: Demands = NOTHING
    """What it asks of local training and of messages."""
    correction: Correction = NoCorrection()
    """What it adds to the clients' gradients."""

    def step(self, model: Tensor, starts: Tensor, updates: Tensor, arrivals: Arrivals, factors: FloatArray) -> Tensor:
        """What is to be added to `model` (d,); starts and updates (n, d), staleness factors (n,), n >= 1."""


class ServerOptimizer(Protocol):
    """What the server makes of an aggregated step: minus the gradient of Reddi et al. 2021, Algorithm 1."""

    rate: float | None = None
    """What a step is multiplied by, where that is all; None: something else becomes of it."""

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


class Trainer(Protocol):
    """Trains clients: jobs in, updates out. docs/own-trainer.md has an example."""

    eager: bool = False
    """True if the samples or steps of an update, and so its duration, depend on what `train` returns. Each job then runs as its
    client is sent the model, and time and tables count what was processed. Otherwise jobs run when their result is needed, all
    that are needed together in one call, and time and tables count what was planned."""

    def train(self, jobs: Sequence[TrainingJob]) -> Sequence[Trained]:
        """Return what came of each of `jobs`, in their order."""
