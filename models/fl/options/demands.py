"""Demands of a method of aggregation on local training and on messages. No torch: scenarios are checked without it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from models.errors import ParameterError
from models.fl.options.names import TrainingOptions

IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LocalSteps:
    """Local steps of n updates."""

    taken: IntArray
    """(n,) number of steps of each update."""
    rate: float
    """Factor of the newest gradient in a step."""
    momentum: float = 0.0
    """Share of the last step that the next one keeps."""
    proximal: float = 0.0
    """Multiple of the distance from the received model that was added to every gradient."""


@dataclass(frozen=True, kw_only=True)
class Demands:
    """Needs of a method of aggregation, which local training and messages must meet; the defaults ask for nothing."""

    name: str = ""
    """Name of the method."""
    vectors: int = 0
    """Vectors as long as an update that are sent with every model to a client and with every update back."""
    report_bytes: int = 0
    """Further bytes that are sent with every update."""
    fresh: bool = False
    """True if every update must have started from the present model."""
    steps: Literal["any", "linear", "plain"] = "any"
    """Local steps that the method works with. linear: those of sgd; plain: of sgd without momentum, and without a proximal
    term.
    """
    own_pull: bool = False
    """True if the method draws local training to the received model itself, which excludes another proximal term."""
    exact: bool = False
    """True if updates must arrive as they were computed: clients continue from vectors whose mean the server knows."""
    sets_model: bool = False
    """True if the method defines the new model, and not only the direction of the step."""
    loss: Literal["none", "running", "received"] = "none"
    """Loss of each client on its samples that the method uses: of its first pass in training, or of the received model, in a
    forward pass before training.
    """
    gradient: bool = False
    """True if the method uses the gradient of each client's loss on all its samples at the received model, in a pass of its
    own.
    """

    @property
    def extra_pass(self) -> Literal["forward", "gradient"] | None:
        """Pass over all of a client's samples that the method needs beside training, or None."""
        if self.gradient:
            return "gradient"
        return "forward" if self.loss == "received" else None

    @property
    def description(self) -> str | None:
        """Text for a summary on `extra_pass`, or on the losses that clients report; None without either."""
        if self.gradient:
            return "clients compute their gradient at the received model over all samples, in a pass before training"
        if self.loss == "received":
            return "clients compute their loss at the received model over all samples, in a pass before training"
        if self.loss == "running":
            return "clients report the running loss of training; only its first batch is at the received model"
        return None


NOTHING = Demands()


class AsksNothing:
    """Base class of methods without demands."""

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
    """Check that local training and the server suit a method.

    `optimizer`, `rate`, `momentum`: name of the clients' optimizer, its learning rate (None: it has none that counts) and its
    momentum. `own_training`: the option that holds the user's own training, or None. `server_optimizer`, `server_rate`: name
    and learning rate of the server's optimizer.

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


def check_exact(demands: Demands, *, protection: str | None, up: str | None, down: str | None) -> None:
    """Check that updates arrive exactly as computed, if the method demands it: neither privacy nor compression may change them.

    `protection`: name of the privacy mechanism; `up`, `down`: kinds of compression of updates and of models; None: none.

    Raises:
        ParameterError: named `mechanism`, `compression` or `down_compression`.
    """
    if not demands.exact:
        return
    if protection is not None:
        why = f"{demands.name} has clients and server keep sums of unprotected updates; leave [privacy] out"
        raise ParameterError("mechanism", protection, why)
    for name, kind in (("compression", up), ("down_compression", down)):
        if kind is not None:
            raise ParameterError(name, kind, f"{demands.name} goes with updates and models as they are; leave it out")


def check_call(option: str, function: Callable[..., Any], arguments: tuple[str, ...]) -> None:
    """Raise ParameterError about `option` if a user's own function cannot be called with these arguments."""
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError as error:
        raise ParameterError(option, function, f"cannot be called with ({', '.join(arguments)}): {error}") from error
    except ValueError:
        pass  # a function in C has no known signature
