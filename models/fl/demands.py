"""What a method of aggregation asks of local training and of messages, beside updates. No torch: scenarios are checked by it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from models.errors import ParameterError
from models.fl.options import TrainingOptions

IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LocalSteps:
    """The local steps of n updates."""

    taken: IntArray
    """(n,) how many each took."""
    rate: float
    """The rate of the newest gradient in a step."""
    momentum: float = 0.0
    """The share of the last step that the next one keeps."""
    proximal: float = 0.0
    """Multiple of the distance from the received model that was added to every gradient."""


@dataclass(frozen=True, kw_only=True)
class Demands:
    """By default nothing is asked for."""

    name: str = ""
    """The name of the method."""
    vectors: int = 0
    """Vectors of as many numbers as an update that go along with every model to a client and with every update back."""
    report_bytes: int = 0
    """What goes along with every update beside that."""
    fresh: bool = False
    """Whether every update must have started from the present model."""
    steps: Literal["any", "linear", "plain"] = "any"
    """Which local steps it goes with. linear: those of sgd; plain: of sgd without momentum, and without a proximal term."""
    own_pull: bool = False
    """Whether it draws local training to the received model itself, so that there is no other proximal term."""
    exact: bool = False
    """Whether updates must arrive as they were computed: clients go on from vectors that the server knows the mean of."""
    sets_model: bool = False
    """Whether it says what the new model is, and not only in which direction it lies."""
    loss: Literal["none", "running", "received"] = "none"
    """Which loss of each client on its samples it goes by: of its first pass in training, or of the model as it was received, in
    a forward pass of its own before training."""
    gradient: bool = False
    """Whether it goes by the gradient of each client's loss on all its samples at the received model: a pass of its own."""

    @property
    def extra_pass(self) -> Literal["forward", "gradient"] | None:
        """The pass over all of a client's samples that it asks for beside training; None: there is none."""
        return "gradient" if self.gradient else "forward" if self.loss == "received" else None

    @property
    def in_words(self) -> str | None:
        """That pass, and what losses are where there is none, for a summary; None: neither is asked for."""
        return {
            ("received", False): "clients compute their loss at the received model over all samples, in a pass before training",
            ("running", False): "clients report the running loss of training; only its first batch is at the received model",
            ("none", True): "clients compute their gradient at the received model over all samples, in a pass before training",
        }.get((self.loss, self.gradient))


NOTHING = Demands()


class AsksNothing:
    """What has no demands of its own has these."""

    demands = NOTHING


def check_demands(
    demands: Demands,
    *,
    optimizer: str,
    rate: float | None,
    momentum: float,
    options: TrainingOptions,
    own_training: str | None,
    server_optimizer: str,
    server_rate: float | None,
) -> None:
    """Refuse local training and servers that a method does not go with.

    `optimizer`, `rate`, `momentum`: of the clients' optimizer, its name and what `protocols.Optimizer` has of it.
    `own_training`: the option that holds the user's own training, or None. `server_optimizer`, `server_rate`: of the server's.

    Raises:
        ParameterError: named by the option, or `optimizer.KEY`, `local_training`, `server_optimizer.kind`.
    """
    name = demands.name
    if own_training and options.reported_rms != "all":
        why = f"is of single batches, of which {own_training} says nothing; leave it out"
        raise ParameterError("reported_rms", options.reported_rms, why)
    if demands.steps != "any":
        if own_training:
            raise ParameterError(own_training, "..", f"{name} goes by the steps of sgd; leave it out")
        if rate is None:
            raise ParameterError("optimizer.kind", optimizer, f"{name} goes by the steps of sgd; set optimizer.kind = 'sgd'")
        if options.optimizer_state == "kept":
            raise ParameterError("optimizer_state", "kept", f"{name} counts the steps of one update only; leave it out")
    if demands.steps == "plain" and momentum:
        raise ParameterError("optimizer.momentum", momentum, f"{name} needs steps along the gradients alone; leave it out")
    if (demands.steps == "plain" or demands.own_pull) and options.proximal:
        why = "has a proximal term of its own" if demands.own_pull else "needs steps along the gradients alone"
        raise ParameterError("proximal", options.proximal, f"{name} {why}; leave it out")
    if demands.own_pull and own_training:
        raise ParameterError(own_training, "..", f"{name} adds to every gradient; leave it out")
    if demands.fresh and options.buffer > 1:
        raise ParameterError("buffer", options.buffer, f"{name} goes with updates of the present model only; leave it out")
    if demands.sets_model and server_rate != 1.0:
        why = f"{name} says what the new model is; leave it out"
        if server_rate is not None:
            raise ParameterError("server_optimizer.learning_rate", server_rate, why)
        raise ParameterError("server_optimizer.kind", server_optimizer, why)


def check_exact(demands: Demands, *, protects: str | None, up: str | None, down: str | None) -> None:
    """Refuse privacy and compression where clients go on from vectors that only exact updates keep in step with the server's.

    `protects`: what bounds or noises updates; `up`, `down`: what compresses updates and models; None: nothing does.

    Raises:
        ParameterError: named `mechanism`, `compression` or `down_compression`.
    """
    if not demands.exact:
        return
    if protects is not None:
        why = f"{demands.name} has clients and server keep sums of unprotected updates; leave [privacy] out"
        raise ParameterError("mechanism", protects, why)
    for name, kind in (("compression", up), ("down_compression", down)):
        if kind is not None:
            raise ParameterError(name, kind, f"{demands.name} goes with updates and models as they are; leave it out")


def check_call(option: str, function: Callable[..., Any], arguments: tuple[str, ...]) -> None:
    """Refuse a function of the user's own that cannot be called with these arguments; raises ParameterError of the `option`."""
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError as error:
        raise ParameterError(option, function, f"cannot be called with ({', '.join(arguments)}): {error}") from error
    except ValueError:
        pass  # of a function in C, its signature is not known
