"""Bandwidths fitted to measured rates of links: constant, Gauss-Markov, or levels between which a Markov chain moves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import linalg, optimize, stats

from scenarios.fit.chains import forward_backward
from scenarios.fit.durations import LEVEL, Estimate, FloatArray, curvature
from scenarios.schema.section import Tables

if TYPE_CHECKING:
    import pandas as pd

BANDWIDTHS = ("constant", "gauss-markov", "markov-levels", "trace")
"""Laws of bandwidth that a fit may choose, by their names in scenario files; `trace` only on demand."""
_Z = float(stats.norm.ppf((1 + LEVEL) / 2))
_MOST_LEVELS = 4
_PIECE = 1000
"""Steps of a path that one pass over a chain takes; longer paths are cut into pieces, which pass together."""
_ITERATIONS = 60
_LEAST_SPREAD = 0.01
"""Least standard deviation within a level, as a share of the mean rate: levels without spread would have infinite likelihoods."""
_LEAST_MOVES = 3.0
_ASTRIDE = 0.05


@dataclass(frozen=True, slots=True)
class FittedBandwidth:
    """A law of bandwidth: `table` as in a scenario file, `parameters` with their 95 % intervals, `number` of measured rates."""

    kind: str
    parameters: dict[str, Estimate]
    table: Mapping[str, Any]
    log_likelihood: float
    freedom: int
    number: int

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
        """Return the rates of rows with `client`, `start_s`, `seconds` and `bytes`; `overhead_s` of each carries no bytes."""
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
    """Fit the laws that the rates admit; the best by Akaike's criterion comes first.

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
        return [FittedBandwidth("constant", {"bytes_per_s": Estimate(mean, mean, mean)}, _constant(mean), 0.0, 1, len(values))]
    laws = [_gauss_markov(rates)]
    if rates.regular:
        laws += [law for count in range(2, _MOST_LEVELS + 1) if (law := _markov_levels(rates, count)) is not None]
    return sorted(laws, key=lambda law: law.aic)


def _constant(mean: float) -> Tables:
    return {"kind": "constant", "bytes_per_s": _short(mean)}


def _short(value: float) -> float:
    return float(f"{value:.6g}")


def _gauss_markov(rates: Rates) -> FittedBandwidth:
    """Return the most likely Gaussian process of first order; its values are taken at the middles of the intervals."""
    x = rates.bytes_per_s
    same = rates.client[1:] == rates.client[:-1]
    steps = np.diff(rates.middle_s)[same] / rates.step_s
    scale = float(x.mean())

    def loss(at: FloatArray) -> float:
        if np.abs(at).max() > 40.0:
            return np.inf
        mean, std, memory = scale * at[0], scale * np.exp(at[1]), 1.0 / (1.0 + np.exp(-at[2]))
        z = (x - mean) / std
        rho = memory ** np.maximum(steps, 1e-6)
        rest = np.sqrt(np.maximum(1.0 - rho**2, 1e-12))
        begins = np.append(True, ~same)
        total = stats.norm.logpdf(z[begins]).sum() - len(x) * np.log(std)
        total += (stats.norm.logpdf((z[1:][same] - rho * z[:-1][same]) / rest) - np.log(rest)).sum()
        return -float(total) if np.isfinite(total) else np.inf

    begin = np.array([1.0, np.log(max(float(x.std()) / scale, 1e-6)), 0.0])
    best = optimize.minimize(loss, begin, method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-8, "maxiter": 800}).x
    reach = _Z * np.sqrt(np.maximum(np.diag(np.linalg.pinv(curvature(loss, best))), 0.0))
    low, high = best - reach, best + reach
    mean = Estimate(*(float(scale * v[0]) for v in (best, low, high)))
    std = Estimate(*(float(scale * np.exp(np.clip(v[1], -60, 60))) for v in (best, low, high)))
    memory = Estimate(*(float(1.0 / (1.0 + np.exp(-np.clip(v[2], -60, 60)))) for v in (best, low, high)))
    table = {
        "kind": "gauss-markov",
        "mean_bytes_per_s": _short(mean.value),
        "std_bytes_per_s": _short(std.value),
        "memory": _short(memory.value),
        "step_s": _short(rates.step_s),
    }
    parameters = {"mean_bytes_per_s": mean, "std_bytes_per_s": std, "memory": memory}
    return FittedBandwidth("gauss-markov", parameters, table, -loss(best), 3, len(x))


def _markov_levels(rates: Rates, count: int) -> FittedBandwidth | None:
    """Return the most likely chain of `count` levels, by expectation and maximisation; None if a level is hardly ever left.

    Rates scatter normally about their level, but for a share `_ASTRIDE`, which may be anything: intervals in which the level
    changes. A level is followed by any other one with equal probability, as the law's
    `moves = "any"` has it. Stays follow from the generator of the chain, the logarithm of its moves over a step.
    """
    table = _grid(rates)
    seen = np.isfinite(table)
    values = np.where(seen, table, 0.0)
    least = _LEAST_SPREAD * float(rates.bytes_per_s.mean())
    levels = np.quantile(rates.bytes_per_s, (np.arange(count) + 0.5) / count)
    spread = np.full(count, max(least, float(rates.bytes_per_s.std()) / count))
    anything = _ASTRIDE / float(np.ptp(rates.bytes_per_s))
    keeps, likelihood, before = np.full(count, 0.9), 0.0, -np.inf
    for _ in range(_ITERATIONS):
        density = (1.0 - _ASTRIDE) * stats.norm.pdf(values[..., None], levels, spread)
        emission = np.where(seen[..., None], density + anything, 1.0)
        move = _moves(keeps)
        likelihood, states, moves = forward_backward(emission, move, _stationary(move))
        if likelihood - before < 1e-7 * abs(likelihood):
            break
        before = likelihood
        weight = states * density / (density + anything) * seen[..., None]
        total = np.maximum(weight.sum(axis=(0, 1)), 1e-9)
        levels = (weight * values[..., None]).sum(axis=(0, 1)) / total
        variance = (weight * (values[..., None] - levels) ** 2).sum(axis=(0, 1)) / total
        spread = np.maximum(np.sqrt(variance), least)
        keeps = np.clip(np.diag(moves) / np.maximum(moves.sum(axis=1), 1e-9), 1e-6, 1.0 - 1e-9)
    left = moves.sum(axis=1) - np.diag(moves)
    generator = np.real_if_close(linalg.logm(move)) / rates.step_s
    if np.iscomplexobj(generator) or not (np.diag(generator) < 0).all() or not (left >= _LEAST_MOVES).all():
        return None
    stays = -1.0 / np.diag(generator)
    order = np.argsort(levels)
    parameters = {}
    for place, i in enumerate(order.tolist(), start=1):
        reach, factor = _Z * spread[i] / np.sqrt(total[i]), float(np.exp(_Z / np.sqrt(left[i])))
        parameters[f"level {place}"] = Estimate(float(levels[i]), float(levels[i] - reach), float(levels[i] + reach))
        parameters[f"stay {place}"] = Estimate(float(stays[i]), float(stays[i]) / factor, float(stays[i]) * factor)
    keys = {
        "kind": "markov-levels",
        "levels_bytes_per_s": [_short(max(0.0, level)) for level in levels[order].tolist()],
        "mean_stay_s": [_short(stay) for stay in stays[order].tolist()],
    }
    return FittedBandwidth("markov-levels", parameters, keys, likelihood, 3 * count, len(rates.bytes_per_s))


def _grid(rates: Rates) -> FloatArray:
    """Return the rates in pieces of paths (pieces, steps), NaN where none was measured."""
    clients, codes = np.unique(rates.client, return_inverse=True)
    first = np.full(len(clients), np.inf)
    np.minimum.at(first, codes, rates.middle_s)
    place = np.round((rates.middle_s - first[codes]) / rates.step_s).astype(np.int64)
    piece = codes * (place.max() // _PIECE + 1) + place // _PIECE
    used, rows = np.unique(piece, return_inverse=True)
    table = np.full((len(used), min(_PIECE, int(place.max()) + 1)), np.nan)
    table[rows, place % _PIECE] = rates.bytes_per_s
    return table


def _moves(keeps: FloatArray) -> FloatArray:
    count = len(keeps)
    move = np.repeat((1.0 - keeps)[:, None] / (count - 1), count, axis=1)
    np.fill_diagonal(move, keeps)
    return np.asarray(move, np.float64)


def _stationary(move: FloatArray) -> FloatArray:
    # All other levels are equally likely, so that a level's share is inverse to the probability to leave it.
    share = 1.0 / np.maximum(1.0 - np.diag(move), 1e-12)
    return np.asarray(share / share.sum(), np.float64)
