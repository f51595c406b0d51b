"""Age of information over rounds, AoI regret against an oracle, and the paper's bounds on it.

Li et al., eq. 8, 14, 37, Theorems 2 to 5. The world is an untimed table: T rounds, N channels with states (T, N), K clients.
Ages are 1 before the first round.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from models.errors import ParameterError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@dataclass(slots=True)
class Slot:
    """State of a round before its channels are assigned; satisfies `SlotView` of `models/schedulers/protocols.py`."""

    round: int
    """From 1."""
    ages: IntArray
    """(K,) ages after the round before."""
    contribution: FloatArray
    """(K,) contribution of each client to the model."""
    rng: np.random.Generator


class Scheduler(Protocol):
    """Methods of a channel scheduler that `simulate` calls."""

    def assign(self, view: Slot) -> IntArray:
        """Return the channel of each client; (K,)."""

    def observe(self, view: Slot, channels: IntArray, good: BoolArray) -> None:
        """Learn from a round: the `channels` (K,) that clients used, and True in `good` (K,) where an update got through."""


class Draws(Protocol):
    """Addressed random generators (`netsim.core.streams.Stream`)."""

    def generator(self, index: int) -> np.random.Generator:
        """Return the generator of round `index`."""


class History(NamedTuple):
    """Channels, successes and ages of a scheduler on given states; each (T, K)."""

    channels: IntArray
    good: BoolArray
    ages: IntArray


def simulate(scheduler: Scheduler, states: BoolArray, *, clients: int, draws: Draws | np.random.Generator) -> History:
    """Return the history of `scheduler` on the channel states (T, N), without a run of the simulator.

    All `clients` send in every round, and each has a contribution of 1.

    `draws` is either addressed, with a generator for each round, or one generator for all rounds.
    """
    shape = (len(states), clients)
    history = History(channels=np.empty(shape, np.int64), good=np.empty(shape, np.bool_), ages=np.empty(shape, np.int64))
    contribution = np.ones(clients)
    ages: IntArray = np.ones(clients, np.int64)
    for t, states_of_round in enumerate(states):
        rng = draws if isinstance(draws, np.random.Generator) else draws.generator(t + 1)
        view = Slot(round=t + 1, ages=ages, contribution=contribution, rng=rng)
        channels = scheduler.assign(view)
        good = states_of_round[channels]
        scheduler.observe(view, channels, good)
        # A new array, because the scheduler may have kept the view.
        ages = ages + 1
        ages[good] = 1
        history.channels[t], history.good[t], history.ages[t] = channels, good, ages
    return history


def ages(good: BoolArray) -> IntArray:
    """Return the ages (T, K) after each round of clients that succeeded where `good` (T, K): 1, or one more than before (eq. 8).

    Example:
        >>> import numpy as np
        >>> ages(np.array([[True, False], [False, False], [True, False]]))
        array([[1, 2],
               [2, 3],
               [1, 4]])
    """
    rounds = np.arange(1, len(good) + 1)[:, None]
    # The round of the last success; 0 before the first, which makes the age before round 1 equal to 1.
    last = np.maximum.accumulate(np.where(good, rounds, 0), axis=0)
    age: IntArray = rounds - last + 1
    return age


def regret(ages: IntArray, oracle_ages: IntArray) -> IntArray:
    """Return the AoI regret (T,) after each round: the sum over clients and rounds so far of a_i(t) - a*_i(t) (eq. 14).

    `ages` (T, K) are a scheduler's, `oracle_ages` (T, K) those of the oracle on the same states.
    """
    if ages.shape != oracle_ages.shape:
        raise ParameterError(
            "oracle_ages", oracle_ages, f"must be {ages.shape}, that of the ages", shown=f" has shape {oracle_ages.shape}"
        )
    total: IntArray = np.cumsum((ages - oracle_ages).sum(axis=1))
    return total


def variance(ages: IntArray) -> FloatArray:
    """Return the AoI variance (T,) of ages (T, K): the sum over clients of (a_i - mean)^2 (eq. 37: not divided by K)."""
    deviation = ages - ages.mean(axis=1, keepdims=True)
    total: FloatArray = (deviation**2).sum(axis=1)
    return total


# Bounds. Theorems 2 and 4 bound the regret of every policy on its worst instance from below, 3 and 5 that of one policy from
# above.


def theorem2_lower(rounds: int, *, clients: int, channels: int) -> float:
    """Return the lower bound of Theorem 2, of the order of (N - K)^2 / N^2 sqrt(N T), with the constants of its proof (eq. 67).

    At e = (N - K) / (4 K sqrt(N T)) it is, for large T about 3/8 times that order,

        2e / (1 + 2e) K (T - K T / N - K T / 2 sqrt(T / N ln(1 / (1 - 4 e^2)))).

    Raises ParameterError for sizes at which e would reach 1/2.
    """
    _check_sizes(rounds, clients, channels)
    if channels == clients:
        return 0.0
    e = (channels - clients) / (4.0 * clients * math.sqrt(channels * rounds))
    if e >= 0.5:
        raise ParameterError("rounds", rounds, f"too few for the proof, whose best means 1/2 + {e:.3g} must stay below 1")
    loss = 0.5 * clients * rounds * math.sqrt(rounds / channels * -math.log1p(-4.0 * e * e))
    return 2.0 * e / (1.0 + 2.0 * e) * clients * (rounds - clients * rounds / channels - loss)


def theorem3_upper(rounds: int, *, clients: int, channels: int) -> float:
    """Return the upper bound of Theorem 3 for M-Exp3: 4 K sqrt(e - 1) C^2 sqrt(T C ln C), C = C(N, K) (eq. 21).

    The proof needs rewards in [0, 1] for each client, gamma tuned to T, T > 16 (e - 1) C^3 ln C, and an oracle each of whose
    clients succeeds at least T / C times. The bound is returned for every T, so that a curve can be drawn: state where it holds
    (`theorem3_holds_from`).
    """
    _check_sizes(rounds, clients, channels)
    arms = math.comb(channels, clients)
    return 4.0 * clients * math.sqrt(math.e - 1.0) * arms**2 * math.sqrt(rounds * arms * math.log(arms))


def theorem3_holds_from(*, clients: int, channels: int) -> int:
    """Return the least T for which eq. 21 is proved: the first above 16 (e - 1) C^3 ln C."""
    _check_sizes(1, clients, channels)
    arms = math.comb(channels, clients)
    return math.floor(16.0 * (math.e - 1.0) * arms**3 * math.log(arms)) + 1


def theorem4_lower(rounds: int, *, clients: int, channels: int) -> float:
    """Return the lower bound of Theorem 4, of the order of sqrt(K T / N), with the constants of its proof (eq. 74).

    At e = sqrt(N / (K T)) it is, for large T about 2 (1 - 2 / N) times that order,

        2e / (1 + 2e) (K T / N - K T / N^2 - K T / (2 N^2) sqrt(K T / N ln(1 / (1 - 4 e^2)))).

    Where it is below 0, it says nothing. Raises ParameterError where e would reach 1/2.
    """
    _check_sizes(rounds, clients, channels)
    share = clients * rounds / channels
    e = math.sqrt(1.0 / share)
    if e >= 0.5:
        raise ParameterError("rounds", rounds, f"too few for the proof, whose best means 1/2 + {e:.3g} must stay below 1")
    loss = share / (2.0 * channels) * math.sqrt(share * -math.log1p(-4.0 * e * e))
    return 2.0 * e / (1.0 + 2.0 * e) * (share - share / channels - loss)


def lemma3_constant(best_means: FloatArray) -> float:
    """Return c' = -K / ln(product of (1 - mu_k)) over the means mu_k (K,) of the K best channels (Lemma 3).

    It is 0 if one of them is always Good.
    """
    means = _probabilities("best_means", best_means)
    if (means == 1.0).any():
        return 0.0
    log_all_bad = float(np.log1p(-means).sum())
    if log_all_bad == 0.0:
        raise ParameterError("best_means", best_means, "must not all be 0")
    return -len(means) / log_all_bad


def theorem5_upper(rounds: int, *, clients: int, channels: int, segments: int, c: float, mu_min: float) -> float:
    """Return the upper bound of Theorem 5 for GLR-CUCB over `segments` stationary intervals (breakpoints + 1), as in eq. 28.

    It is segments K (c ln T + 1) / mu_min, plus c K ln T / mu_min times the number of rounds with a wrong set. That number is of
    the order segments sqrt(N T ln T) for a policy that does not know the number of segments (Lemma 4). The paper names no
    constant: 1 is a scale, not a claim. Eq. 28 prints c where Lemma 3 has c' = K c; `lemma3_constant` gives c', the safe one.
    `mu_min` is the least mean of any channel in any segment.
    """
    _check_sizes(rounds, clients, channels)
    if segments < 1:
        raise ParameterError("segments", segments, "must be >= 1")
    if not (math.isfinite(c) and c >= 0.0):
        raise ParameterError("c", c, "must be finite and >= 0")
    if not 0.0 < mu_min <= 1.0:
        raise ParameterError("mu_min", mu_min, "must be > 0 and <= 1")
    log_t = math.log(rounds)
    wrong_rounds = math.sqrt(channels * rounds * log_t) * segments
    return (segments * clients * (c * log_t + 1.0) + c * clients * log_t * wrong_rounds) / mu_min


def _check_sizes(rounds: int, clients: int, channels: int) -> None:
    """Raise ParameterError unless `rounds` >= 1 and 1 <= `clients` <= `channels`."""
    if rounds < 1:
        raise ParameterError("rounds", rounds, "must be >= 1")
    if clients < 1:
        raise ParameterError("clients", clients, "must be >= 1")
    if channels < clients:
        raise ParameterError("channels", channels, f"must be >= the number of clients, {clients}")


def _probabilities(name: str, values: FloatArray) -> FloatArray:
    """Return `values` as an array (n,). Raises ParameterError unless all lie in [0, 1]."""
    array = np.asarray(values, np.float64)
    if array.ndim != 1 or not ((array >= 0.0) & (array <= 1.0)).all():
        raise ParameterError(name, values, "must be a list of probabilities between 0 and 1")
    return array
