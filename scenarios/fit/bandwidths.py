"""Bandwidths fitted to measured rates of links: constant, Gauss-Markov, or levels between which a Markov chain moves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import linalg, optimize, stats

from scenarios.fit.chains import forward_backward
from scenarios.fit.durations import LEVEL, Estimate, FloatArray, curvature, round_digits
from scenarios.schema.section import Tables

if TYPE_CHECKING:
    import pandas as pd

BANDWIDTHS = ("constant", "gauss-markov", "markov-levels", "trace")
"""Laws of bandwidth that a fit may choose, by their names in scenario files; `trace` only on demand."""
_Z = float(stats.norm.ppf((1 + LEVEL) / 2))
"""Half-width of an interval in standard errors."""
_MOST_LEVELS = 4
_PIECE_STEPS = 1000
"""Largest number of steps of a path. Longer paths are cut into pieces, which are computed side by side."""
_ITERATIONS = 60
"""Largest number of steps of expectation and maximisation."""
_LEAST_SPREAD = 0.01
"""Least standard deviation within a level, as a share of the mean rate. Without spread the likelihood would be infinite."""
_LEAST_MOVES = 3.0
"""Least expected number of moves out of a level; with fewer its stay is unknown."""
_MIXED_SHARE = 0.05
"""Assumed share of intervals in which the level changes. Their rate is between two levels, and taken as uniform."""


@dataclass(frozen=True, slots=True)
class FittedBandwidth:
    """Law of bandwidth with estimated parameters."""

    kind: str
    parameters: dict[str, Estimate]
    """Parameters with their 95 % intervals, by name."""
    table: Mapping[str, Any]
    """The law as in a scenario file."""
    log_likelihood: float
    freedom: int
    """Number of free parameters."""
    number: int
    """Number of measured rates."""

    @property
    def label(self) -> str:
        """The kind, with the number of levels where it has some."""
        levels = self.table.get("levels_bytes_per_s", ())
        return f"{self.kind} ({len(levels)})" if levels else self.kind

    @property
    def aic(self) -> float:
        """Akaike's criterion; smaller is better."""
        return 2.0 * (self.freedom - self.log_likelihood)


@dataclass(frozen=True, slots=True)
class Rates:
    """Measured rates, by client and time: `client`, `middle_s` (of the measured interval) and `bytes_per_s`, each (n,).

    `step_s`: the usual length of an interval. `regular`: True if intervals follow each other at this step.
    """

    client: FloatArray
    middle_s: FloatArray
    bytes_per_s: FloatArray
    step_s: float
    regular: bool

    @classmethod
    def from_rows(cls, rows: pd.DataFrame, overhead_s: float = 0.0) -> Rates:
        """Return the rates of transfers, from rows with `client`, `start_s`, `seconds` and `bytes`.

        `overhead_s`: seconds of each transfer that carry no bytes.
        """
        rows = rows.sort_values(["client", "start_s"], kind="stable")
        seconds = rows["seconds"].to_numpy(np.float64)
        client = rows["client"].to_numpy(np.float64)
        start_s = rows["start_s"].to_numpy(np.float64)
        rates = rows["bytes"].to_numpy(np.float64) / np.maximum(seconds - overhead_s, 1e-9)
        step_s = float(np.median(seconds))
        gaps = np.diff(start_s)[client[1:] == client[:-1]]
        regular = len(gaps) > 0 and float(np.mean(np.abs(gaps / step_s - 1.0) < 0.1)) > 0.9
        return cls(client, start_s + 0.5 * seconds, rates, step_s, regular)


def fit_bandwidth(rates: Rates) -> list[FittedBandwidth]:
    """Fit the laws that the rates admit. Return them by Akaike's criterion, the best first.

    >>> time_s = np.arange(400.0)
    >>> rng = np.random.default_rng(1)
    >>> high = np.cumsum(rng.random(400) < 0.05) % 2          # a level is left once in 20 s
    >>> rates = Rates(np.zeros(400), time_s, np.where(high, 1e6, 2e5) * rng.normal(1.0, 0.05, 400), 1.0, True)
    >>> best = fit_bandwidth(rates)[0]
    >>> best.kind, [round(level, -5) for level in best.table["levels_bytes_per_s"]]
    ('markov-levels', [200000.0, 1000000.0])
    """
    values = rates.bytes_per_s
    mean = float(values.mean())
    if np.ptp(values) <= 1e-9 * mean or len(values) < 3:
        return [
            FittedBandwidth("constant", {"bytes_per_s": Estimate(mean, mean, mean)}, _constant_table(mean), 0.0, 1, len(values))
        ]
    laws = [_gauss_markov(rates)]
    if rates.regular:
        laws += [law for count in range(2, _MOST_LEVELS + 1) if (law := _markov_levels(rates, count)) is not None]
    return sorted(laws, key=lambda law: law.aic)


def _constant_table(mean: float) -> Tables:
    """Return the table of a constant law."""
    return {"kind": "constant", "bytes_per_s": round_digits(mean)}


def _gauss_markov(rates: Rates) -> FittedBandwidth:
    """Return the most likely Gauss-Markov law, an AR(1) process of each client.

    Rates are taken as its values at the middles of the intervals. The search runs over unbounded numbers: mean / scale, the
    logarithm of std / scale, and the logit of the memory, where scale is the mean rate.
    """
    x = rates.bytes_per_s
    same = rates.client[1:] == rates.client[:-1]  # (n - 1,) True where a rate is of the same client as the one before
    steps = np.diff(rates.middle_s)[same] / rates.step_s
    scale = float(x.mean())

    def loss(point: FloatArray) -> float:
        """Return the negative log-likelihood of all rates at a `point` (3,) of the search; inf where it would overflow."""
        if np.abs(point).max() > 40.0:
            return np.inf
        mean, std, memory = scale * point[0], scale * np.exp(point[1]), 1.0 / (1.0 + np.exp(-point[2]))
        z = (x - mean) / std
        # AR(1): the correlation of two rates is `memory` to the power of the steps between them.
        rho = memory ** np.maximum(steps, 1e-6)
        innovation = np.sqrt(np.maximum(1.0 - rho**2, 1e-12))
        starts = np.append(True, ~same)
        total = stats.norm.logpdf(z[starts]).sum() - len(x) * np.log(std)
        total += (stats.norm.logpdf((z[1:][same] - rho * z[:-1][same]) / innovation) - np.log(innovation)).sum()
        return -float(total) if np.isfinite(total) else np.inf

    start = np.array([1.0, np.log(max(float(x.std()) / scale, 1e-6)), 0.0])
    best = optimize.minimize(loss, start, method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-8, "maxiter": 800}).x
    half_width = _Z * np.sqrt(np.maximum(np.diag(np.linalg.pinv(curvature(loss, best))), 0.0))
    low, high = best - half_width, best + half_width
    mean = Estimate(*(float(scale * v[0]) for v in (best, low, high)))
    std = Estimate(*(float(scale * np.exp(np.clip(v[1], -60, 60))) for v in (best, low, high)))
    memory = Estimate(*(float(1.0 / (1.0 + np.exp(-np.clip(v[2], -60, 60)))) for v in (best, low, high)))
    table = {
        "kind": "gauss-markov",
        "mean_bytes_per_s": round_digits(mean.value),
        "std_bytes_per_s": round_digits(std.value),
        "memory": round_digits(memory.value),
        "step_s": round_digits(rates.step_s),
    }
    parameters = {"mean_bytes_per_s": mean, "std_bytes_per_s": std, "memory": memory}
    return FittedBandwidth("gauss-markov", parameters, table, -loss(best), 3, len(x))


@dataclass(frozen=True, slots=True)
class _Chain:
    """Markov chain of k levels, fitted to rates."""

    levels: FloatArray
    """(k,) rate of each level, bytes/s."""
    spread: FloatArray
    """(k,) standard deviation of rates about their level."""
    weight: FloatArray
    """(k,) expected number of rates that are at each level, and not mixed."""
    move: FloatArray
    """(k, k) probabilities of moves in one step."""
    moves: FloatArray
    """(k, k) expected numbers of moves."""
    log_likelihood: float


def _markov_levels(rates: Rates, count: int) -> FittedBandwidth | None:
    """Return the law of the most likely Markov chain of `count` levels, in ascending order; None if a level is hardly ever left.

    Mean stays come from the generator of the chain, which is the matrix logarithm of the probabilities of its moves in one
    step. Intervals: normal for levels; for stays, a factor by the number of moves out of the level.
    """
    chain = _fit_chain(rates, count)
    moves_out = chain.moves.sum(axis=1) - np.diag(chain.moves)
    generator = np.real_if_close(linalg.logm(chain.move)) / rates.step_s
    if np.iscomplexobj(generator) or not (np.diag(generator) < 0).all() or not (moves_out >= _LEAST_MOVES).all():
        return None
    levels, stays = chain.levels, -1.0 / np.diag(generator)
    order = np.argsort(levels)
    parameters = {}
    for rank, i in enumerate(order.tolist(), start=1):
        level, half_width = float(levels[i]), float(_Z * chain.spread[i] / np.sqrt(chain.weight[i]))
        parameters[f"level {rank}"] = Estimate(level, level - half_width, level + half_width)
        stay, factor = float(stays[i]), float(np.exp(_Z / np.sqrt(moves_out[i])))
        parameters[f"stay {rank}"] = Estimate(stay, stay / factor, stay * factor)
    table = {
        "kind": "markov-levels",
        "levels_bytes_per_s": [round_digits(max(0.0, level)) for level in levels[order].tolist()],
        "mean_stay_s": [round_digits(stay) for stay in stays[order].tolist()],
    }
    return FittedBandwidth("markov-levels", parameters, table, chain.log_likelihood, 3 * count, len(rates.bytes_per_s))


def _fit_chain(rates: Rates, count: int) -> _Chain:
    """Return the most likely Markov chain of `count` levels, by expectation-maximisation from equally spaced quantiles.

    A rate is normal about its level, or with probability `_MIXED_SHARE` uniform over all rates. All other levels follow a level
    with equal probability, as in the law with `moves = "any"`, so that a level has one parameter of moves: `keeps`, the
    probability to stay.
    """
    table = _path_table(rates)
    measured = np.isfinite(table)
    values = np.where(measured, table, 0.0)
    least_spread = _LEAST_SPREAD * float(rates.bytes_per_s.mean())
    levels = np.quantile(rates.bytes_per_s, (np.arange(count) + 0.5) / count)
    spread = np.full(count, max(least_spread, float(rates.bytes_per_s.std()) / count))
    mixed_density = _MIXED_SHARE / float(np.ptp(rates.bytes_per_s))
    keeps, likelihood, before = np.full(count, 0.9), 0.0, -np.inf
    for _ in range(_ITERATIONS):
        # Expectation: probabilities of states and expected numbers of moves, under the present parameters.
        density = (1.0 - _MIXED_SHARE) * stats.norm.pdf(values[..., None], levels, spread)
        emission = np.where(measured[..., None], density + mixed_density, 1.0)
        move = _move_matrix(keeps)
        likelihood, states, moves = forward_backward(emission, move, _stationary(move))
        if likelihood - before < 1e-7 * abs(likelihood):
            break
        before = likelihood
        # Maximisation: rates count by the probability that they are at a level, and not mixed.
        weight = states * density / (density + mixed_density) * measured[..., None]
        total = np.maximum(weight.sum(axis=(0, 1)), 1e-9)
        levels = (weight * values[..., None]).sum(axis=(0, 1)) / total
        variance = (weight * (values[..., None] - levels) ** 2).sum(axis=(0, 1)) / total
        spread = np.maximum(np.sqrt(variance), least_spread)
        keeps = np.clip(np.diag(moves) / np.maximum(moves.sum(axis=1), 1e-9), 1e-6, 1.0 - 1e-9)
    return _Chain(levels, spread, total, move, moves, likelihood)


def _path_table(rates: Rates) -> FloatArray:
    """Return a table of rates (pieces, steps): each client's path by steps of time, cut into pieces; NaN without a rate.

    A client's first rate is at step 0 of its path. Of several rates in one step the last counts. A piece has `_PIECE_STEPS` steps
    at most; pieces without any rate are left out.
    """
    clients, client_index = np.unique(rates.client, return_inverse=True)
    first_s = np.full(len(clients), np.inf)  # time of each client's first rate
    np.minimum.at(first_s, client_index, rates.middle_s)
    step = np.round((rates.middle_s - first_s[client_index]) / rates.step_s).astype(np.int64)
    pieces_of_client = step.max() // _PIECE_STEPS + 1
    pieces, row = np.unique(client_index * pieces_of_client + step // _PIECE_STEPS, return_inverse=True)
    table = np.full((len(pieces), min(_PIECE_STEPS, int(step.max()) + 1)), np.nan)
    table[row, step % _PIECE_STEPS] = rates.bytes_per_s
    return table


def _move_matrix(keeps: FloatArray) -> FloatArray:
    """Return the probabilities (k, k) of moves in one step; `keeps` (k,): probabilities to stay."""
    count = len(keeps)
    move = np.repeat((1.0 - keeps)[:, None] / (count - 1), count, axis=1)
    np.fill_diagonal(move, keeps)
    return np.asarray(move, np.float64)


def _stationary(move: FloatArray) -> FloatArray:
    """Return the stationary distribution (k,) of a chain with moves (k, k)."""
    # All other levels are equally likely, so that a level's share is inverse to the probability to leave it.
    share = 1.0 / np.maximum(1.0 - np.diag(move), 1e-12)
    return np.asarray(share / share.sum(), np.float64)
