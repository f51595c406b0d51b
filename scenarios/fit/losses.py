"""Losses fitted to measured outcomes: independent ones (Bernoulli), or bursts (Gilbert-Elliott, a hidden Markov model)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from scenarios.fit.chains import forward_backward
from scenarios.fit.durations import LEVEL, Estimate, FloatArray
from scenarios.schema.section import Tables

UNSEEN = -1
"""Entry of a table of outcomes where a client sent nothing in a round."""
_MOST_STEPS = 200
"""Largest number of steps of expectation and maximisation."""
_LEAST_GAIN = 1e-8
"""Relative gain of the log-likelihood below which a search ends."""
_MOST_CELLS = 100_000
"""Number of cells (client, round) above which the laws are compared on the last rounds only."""
_LEAST_ROUNDS = 50
"""Least number of these last rounds."""
_LEAST_CORRELATION = 3.0
"""Correlation of successive outcomes, in standard errors, below which a large table is not searched for bursts."""


@dataclass(frozen=True, slots=True)
class FittedLoss:
    """Law of losses with estimated parameters: `kind` is its name in scenario files, `parameters` its keys."""

    kind: str
    parameters: dict[str, float]
    log_likelihood: float
    lost: Estimate
    """Share of lost transmissions, with its 95 % interval after Wilson (1927)."""
    number: int
    """Number of transmissions."""

    @property
    def aic(self) -> float:
        """Akaike's criterion; smaller is better."""
        return 2.0 * (len(self.parameters) - self.log_likelihood)

    def table(self) -> Tables:
        """Return the law as a table of a scenario file."""
        return {"kind": self.kind, **{key: float(f"{value:.6g}") for key, value in self.parameters.items()}}


def fit_losses(outcomes: NDArray[np.int64]) -> list[FittedLoss]:
    """Fit independent losses and bursts to outcomes (clients, rounds). Return the laws, the better one first.

    Outcomes are 1 for a lost transmission, 0 for a delivered one, and `UNSEEN` if nothing was sent.

    The chain of a client also moves in rounds in which it sends nothing. Only the independent law is fitted if nothing was lost,
    or if no client sent twice. In a large table, bursts are sought only if successive outcomes are correlated, and the laws are
    compared on the last rounds; the share of lost transmissions always comes from all rounds.

    >>> fit_losses(np.array([[0, 0, 1, 0, 0, 0, 0, 1, 0, 0]]))[0].parameters
    {'success': 0.8}
    """
    sent = outcomes != UNSEEN
    number, lost = int(sent.sum()), int((outcomes == 1).sum())
    if number == 0:
        return [FittedLoss("perfect", {}, 0.0, Estimate(0.0, 0.0, 1.0), 0)]
    share = _wilson(lost, number)
    if lost == 0:
        return [FittedLoss("perfect", {}, 0.0, share, number)]
    loss_share = lost / number
    recent = outcomes[:, -max(_LEAST_ROUNDS, _MOST_CELLS // len(outcomes)) :]
    laws = [FittedLoss("bernoulli", {"success": 1.0 - loss_share}, _independent_likelihood(recent), share, number)]
    if outcomes.size > _MOST_CELLS and _correlation(outcomes, loss_share) < _LEAST_CORRELATION:
        return laws
    if 0 < (recent == 1).sum() < (recent != UNSEEN).sum() and ((recent != UNSEEN).sum(axis=1) > 1).any():
        laws.append(_gilbert_elliott(recent, float((recent == 1).sum() / (recent != UNSEEN).sum()), share, number))
    return sorted(laws, key=lambda law: law.aic)


def _correlation(outcomes: NDArray[np.int64], loss_share: float) -> float:
    """Return the correlation of successive outcomes of a client, in standard errors; 0 if no client sent twice."""
    clients, rounds = np.nonzero(outcomes != UNSEEN)
    excess = (outcomes[clients, rounds] == 1) - loss_share
    same = clients[1:] == clients[:-1]
    if loss_share >= 1.0 or not same.any():
        return 0.0
    variance = loss_share * (1.0 - loss_share)
    return float((excess[1:] * excess[:-1])[same].sum() / (variance * np.sqrt(same.sum())))


def _independent_likelihood(outcomes: NDArray[np.int64]) -> float:
    """Return the log-likelihood of outcomes (clients, rounds) under independent losses at their mean share."""
    lost, kept = int((outcomes == 1).sum()), int((outcomes == 0).sum())
    share = lost / max(1, lost + kept)
    return float(lost * np.log(share) + kept * np.log1p(-share)) if lost and kept else 0.0


def _wilson(lost: int, number: int) -> Estimate:
    """Return the share of losses `lost` / `number`, with its 95 % interval after Wilson (1927)."""
    z = float(stats.norm.ppf((1 + LEVEL) / 2))
    p = lost / number
    middle = (p + z * z / (2 * number)) / (1 + z * z / number)
    half_width = z / (1 + z * z / number) * np.sqrt(p * (1 - p) / number + z * z / (4 * number * number))
    return Estimate(p, float(max(0.0, middle - half_width)), float(min(1.0, middle + half_width)))


def _gilbert_elliott(outcomes: NDArray[np.int64], loss_share: float, share: Estimate, number: int) -> FittedLoss:
    """Return the most likely two-state chain, by expectation and maximisation (Baum et al. 1970).

    `loss_share`: share of losses in `outcomes`, for the start of the search. `share`, `number`: fields of the result.

    The chain begins in its stationary distribution, as the simulator's channel does. The search begins at short bursts, in which
    nearly all is lost. More starting points would help only if the data cannot tell the two laws apart.
    """
    loss = np.array([0.2 * loss_share, 0.9])
    change = np.array([0.1 * loss_share + 0.02, 0.4])  # good to bad, bad to good
    previous = -np.inf
    for _ in range(_MOST_STEPS):
        emission = _emission(outcomes, loss)
        likelihood, states, moves = forward_backward(emission, *_chain(change))
        if likelihood - previous < _LEAST_GAIN * max(1.0, abs(likelihood)):
            break
        previous = likelihood
        change = np.clip([moves[0, 1] / moves[0].sum(), moves[1, 0] / moves[1].sum()], 1e-6, 1.0 - 1e-6)
        for state in (0, 1):
            weight = states[..., state] * (outcomes != UNSEEN)
            loss[state] = np.clip((weight * (outcomes == 1)).sum() / max(weight.sum(), 1e-300), 0.0, 1.0)
    good, bad = (0, 1) if loss[0] <= loss[1] else (1, 0)
    parameters = {"to_bad": change[good], "to_good": change[bad], "loss_good": loss[good], "loss_bad": loss[bad]}
    return FittedLoss("gilbert-elliott", {k: float(v) for k, v in parameters.items()}, float(likelihood), share, number)


def _emission(outcomes: NDArray[np.int64], loss: FloatArray) -> FloatArray:
    """Return the probability of each outcome in each state, (clients, rounds, 2); 1 where nothing was sent."""
    probability = np.where(outcomes[..., None] == 1, loss, 1.0 - loss)
    return np.where(outcomes[..., None] == UNSEEN, 1.0, np.maximum(probability, 1e-12))


def _chain(change: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return a chain's probabilities of moves (2, 2) and its stationary distribution (2,).

    `change` (2,): probabilities to leave each state in one step.
    """
    move = np.array([[1.0 - change[0], change[0]], [change[1], 1.0 - change[1]]])
    return move, np.array([change[1], change[0]]) / change.sum()
