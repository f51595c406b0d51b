"""What a policy sees of the engine and of the world, as it needs it: structural types and checks shared by the policies."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from models.errors import ParameterError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
State = dict[str, Any]


class View(Protocol):
    """What policies read of the engine's `RoundView`."""

    @property
    def round(self) -> int: ...
    @property
    def time_s(self) -> float: ...
    @property
    def selectable(self) -> BoolArray: ...
    @property
    def participations(self) -> IntArray: ...
    @property
    def rng(self) -> np.random.Generator: ...
    @property
    def probed(self) -> Probed: ...


class Reported(Protocol):
    """What policies read of the engine's `Reports`: what came with the updates that arrived, NaN or -1 where nothing did."""

    @property
    def staleness(self) -> IntArray: ...
    @property
    def samples(self) -> IntArray: ...
    @property
    def loss(self) -> FloatArray: ...
    @property
    def loss_rms(self) -> FloatArray: ...


class Probed(Protocol):
    """What policies read of the engine's `Probed`: what came of asking clients for the loss of the present model."""

    @property
    def clients(self) -> IntArray: ...
    @property
    def answered(self) -> BoolArray: ...
    @property
    def loss(self) -> FloatArray: ...
    @property
    def elapsed_s(self) -> FloatArray: ...
    @property
    def accuracy(self) -> FloatArray | None: ...


class Outcome(Protocol):
    """What policies read of the engine's `RoundOutcome`."""

    @property
    def round(self) -> int: ...
    @property
    def start_s(self) -> float: ...
    @property
    def end_s(self) -> float: ...
    @property
    def clients(self) -> IntArray: ...
    @property
    def latency_s(self) -> FloatArray: ...
    @property
    def censored(self) -> BoolArray: ...
    @property
    def updates(self) -> FloatArray | None: ...
    @property
    def reports(self) -> Reported: ...


class Truth(Protocol):
    """The true laws of latency, for baselines that are told them."""

    def mean_latency_s(self, round: int, time_s: float) -> FloatArray:
        """E[tau_k] in seconds at that round and time; shape (K,)."""

    def mean_phase_s(self, phase: str, round: int, time_s: float) -> FloatArray:
        """The mean of one phase of an update, "download", "compute" or "upload", in seconds; shape (K,)."""

    def mean_ratio(self, tau_min_s: float, round: int, time_s: float) -> FloatArray:
        """mu_k = E[tau_min/tau_k] at that round and time; shape (K,)."""


class Presence(Protocol):
    """Who is there, and what can be told of the future, for policies whose clients forecast it."""

    def forecast(self, from_s: float, to_s: float) -> FloatArray:
        """(K,) the share of [`from_s`, `to_s`] in which each client will be present."""


class AsksNobody:
    """A policy that wants no losses: neither those that come with updates, nor those of clients that are asked before."""

    needs_losses = False
    probes = False
    question: ClassVar[str] = "loss"
    asks_again = False
    may_select_nobody = False
    counts_updates = False
    probes_where: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    uses_late_where: ClassVar[Mapping[str, bool]] = {}
    tests = False
    tests_where: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    @property
    def restarts(self) -> list[tuple[int, int]]:
        """It declares no change of a client's latency."""
        return []

    def probe(self, view: View) -> IntArray:
        """Nobody is asked for the loss of the present model."""
        return np.zeros(0, np.int64)


def check_round(clients: int, per_round: int) -> None:
    """Raise ValueError unless 1 <= `per_round` <= `clients`."""
    if clients < 1:
        raise ParameterError("clients", clients, "must be >= 1")
    if not 1 <= per_round <= clients:
        raise ParameterError("per_round", per_round, f"must be between 1 and the number of clients, {clients}")


def check_sizes(data_sizes: FloatArray, clients: int) -> FloatArray:
    """`data_sizes` as its share of the whole |D_k|/|D|; shape (K,). Raises ValueError for a wrong shape, negative sizes or no
    data."""
    sizes = np.asarray(data_sizes, np.float64)
    if sizes.shape != (clients,):
        raise ParameterError(
            "data_sizes", sizes, f"must be ({clients},), one size for each client", shown=f" has shape {sizes.shape}"
        )
    total = sizes.sum()
    if not (np.all(sizes >= 0) and math.isfinite(total) and total > 0):
        raise ParameterError("data_sizes", sizes, "must be finite, >= 0 and not all 0")
    shares: FloatArray = sizes / total
    return shares


def losses_of_arrived(losses: FloatArray) -> FloatArray:
    """`losses` (n,) that came with updates which arrived; 0 where none did: their clients took no step, and have none to sum up.

    That is a client of a single sample, where batch normalisation leaves batches of one sample out.
    """
    return np.where(np.isnan(losses), 0.0, losses)


def check_share(name: str, value: float) -> None:
    """Raise ValueError, naming the parameter, unless 0 <= `value` <= 1."""
    if not 0 <= value <= 1:
        raise ParameterError(name, value, "must be between 0 and 1")


def check_at_least(name: str, value: float, low: float, *, strict: bool = False) -> None:
    """Raise ValueError, naming the parameter, unless `value` is finite and >= `low` (> `low` where `strict`)."""
    if not (math.isfinite(value) and (value > low if strict else value >= low)):
        raise ParameterError(name, value, f"must be finite and {'>' if strict else '>='} {low:g}")
