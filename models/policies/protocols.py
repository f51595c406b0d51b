"""Structural types of what policies read of the engine and of the world, and checks that the policies share."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from models.errors import ParameterError
from netsim.core.state import State as State
from netsim.core.state import StateFields

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


class View(Protocol):
    """State of a round before its selection, as the engine's `RoundView` offers it."""

    @property
    def round(self) -> int:
        """Number of the round, from 1."""

    @property
    def time_s(self) -> float: ...
    @property
    def selectable(self) -> BoolArray:
        """(K,) True for clients that are present and not busy."""

    @property
    def participations(self) -> IntArray:
        """(K,) noisy updates that each client has released so far."""

    @property
    def rng(self) -> np.random.Generator:
        """The policy's own generator of this round."""

    @property
    def probed(self) -> Probed:
        """Answers to the probes of this round."""


class Reported(Protocol):
    """Reports that came with the updates of a round, as the engine's `Reports` offers them; NaN or -1 where no update arrived.

    Arrays (n,) have an entry for each selected client.
    """

    @property
    def staleness(self) -> IntArray:
        """Versions of the model made since the one that the client received."""

    @property
    def samples(self) -> IntArray:
        """Samples that local training processed."""

    @property
    def loss(self) -> FloatArray:
        """Mean loss of local training."""

    @property
    def loss_rms(self) -> FloatArray:
        """Root mean square of the losses of local training."""


class Probed(Protocol):
    """Answers of the clients that were probed before the selection, as the engine's `Probed` offers them; NaN without an answer.

    Arrays (d,) have an entry for each probed client.
    """

    @property
    def clients(self) -> IntArray: ...
    @property
    def answered(self) -> BoolArray: ...
    @property
    def loss(self) -> FloatArray:
        """Mean loss of the present model on the client's samples."""

    @property
    def elapsed_s(self) -> FloatArray:
        """Seconds from the sending of the model to the arrival of the answer."""

    @property
    def accuracy(self) -> FloatArray | None:
        """Accuracy of the present model on the client's own test data; None if not requested."""


class Outcome(Protocol):
    """Outcome of a closed round, as the engine's `RoundOutcome` offers it."""

    @property
    def round(self) -> int: ...
    @property
    def start_s(self) -> float: ...
    @property
    def end_s(self) -> float: ...
    @property
    def clients(self) -> IntArray:
        """(n,) clients selected in the round."""

    @property
    def latency_s(self) -> FloatArray:
        """(n,) seconds from selection to delivery; if censored, the time after which the server stopped waiting."""

    @property
    def censored(self) -> BoolArray:
        """(n,) True where no update arrived before the round closed."""

    @property
    def updates(self) -> FloatArray | None:
        """(delivered, d) updates of the delivered clients, for policies with `needs_updates`."""

    @property
    def reports(self) -> Reported: ...


class Truth(Protocol):
    """True expectations of latency, for baselines that know them."""

    def mean_latency_s(self, round: int, time_s: float) -> FloatArray:
        """Return E[tau_k] in seconds at that round and time; shape (K,)."""

    def mean_phase_s(self, phase: str, round: int, time_s: float) -> FloatArray:
        """Return the mean of one phase of an update, "download", "compute" or "upload", in seconds; shape (K,)."""

    def mean_ratio(self, tau_min_s: float, round: int, time_s: float) -> FloatArray:
        """Return mu_k = E[tau_min/tau_k] at that round and time; shape (K,)."""


class Presence(Protocol):
    """Forecasts of presence, for policies whose clients announce when they will be reachable."""

    def forecast(self, from_s: float, to_s: float) -> FloatArray:
        """Return the share of [`from_s`, `to_s`] in which each client will be present; shape (K,)."""


class NoProbes:
    """Defaults of a policy that needs no losses and sends no probes. Policies override what they do need.

    `netsim.core.protocols.SelectionPolicy` documents the attributes.
    """

    needs_losses = False
    probes = False
    question: ClassVar[str] = "loss"
    asks_again = False
    may_select_nobody = False
    counts_updates = False
    selects_everyone = False
    probes_where: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    uses_late_where: ClassVar[Mapping[str, bool]] = {}
    tests = False
    tests_where: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    @property
    def restarts(self) -> list[tuple[int, int]]:
        """Declared changes of latency: none."""
        return []

    def probe(self, view: View) -> IntArray:
        """Probe no client."""
        return np.zeros(0, np.int64)


class NoMemory(StateFields):
    """Methods of a policy that learns nothing from its rounds and keeps no state."""

    def observe(self, outcome: Outcome) -> None:
        """Ignore the outcome of a round."""


class IgnoresOpinions:
    """Methods of a policy that slotted servers accept, although it learns nothing from opinions (clients' tests of the model)."""

    def observe_opinions(self, round: int, clients: IntArray, opinions: FloatArray) -> None:
        """Ignore the opinions of a slot."""

    def notes(self) -> dict[str, int]:
        """Return no facts for the summary of the run."""
        return {}


def check_round(clients: int, per_round: int) -> None:
    """Raise ParameterError unless 1 <= `per_round` <= `clients`."""
    if clients < 1:
        raise ParameterError("clients", clients, "must be >= 1")
    if not 1 <= per_round <= clients:
        raise ParameterError("per_round", per_round, f"must be between 1 and the number of clients, {clients}")


def check_sizes(data_sizes: FloatArray, clients: int) -> None:
    """Raise ParameterError for a wrong shape, a size that is negative or not finite, or no data at all."""
    sizes = np.asarray(data_sizes, np.float64)
    if sizes.shape != (clients,):
        raise ParameterError(
            "data_sizes", sizes, f"must be ({clients},), one size for each client", shown=f" has shape {sizes.shape}"
        )
    total = sizes.sum()
    # The sum is not finite if one of the sizes is not.
    if not (np.all(sizes >= 0) and math.isfinite(total) and total > 0):
        raise ParameterError("data_sizes", sizes, "must be finite, >= 0 and not all 0")


def data_shares(data_sizes: FloatArray, clients: int) -> FloatArray:
    """Return the shares |D_k|/|D| (K,) of `data_sizes` (K,); raises ParameterError as `check_sizes` does."""
    check_sizes(data_sizes, clients)
    sizes = np.asarray(data_sizes, np.float64)
    shares: FloatArray = sizes / sizes.sum()
    return shares


def fill_missing_losses(losses: FloatArray) -> FloatArray:
    """Return `losses` (n,) of delivered updates with NaN replaced by 0.

    A delivered update has no loss where its client took no step: a client of a single sample, where batch normalisation leaves
    out batches of one sample.
    """
    return np.where(np.isnan(losses), 0.0, losses)


def check_share(name: str, value: float) -> None:
    """Raise ParameterError, naming the parameter, unless 0 <= `value` <= 1."""
    if not 0 <= value <= 1:
        raise ParameterError(name, value, "must be between 0 and 1")


def check_at_least(name: str, value: float, low: float, *, strict: bool = False) -> None:
    """Raise ParameterError, naming the parameter, unless `value` is finite and >= `low` (> `low` if `strict`)."""
    is_high_enough = value > low if strict else value >= low
    if not (math.isfinite(value) and is_high_enough):
        relation = ">" if strict else ">="
        raise ParameterError(name, value, f"must be finite and {relation} {low:g}")
