"""Rounds as policies see them that go by losses."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from scipy.stats import chi2

from models.policies.oort.oort import Oort
from models.policies.oort.parameters import OortParameters
from models.policies.protocols import FloatArray
from netsim.core.protocols import RoundView
from netsim.core.reports import Probed, Reports, RoundOutcome

CONFIDENCE = 1 - 1e-6


class Means:
    """Client k takes k + 1 seconds."""

    def mean_latency_s(self, round: int, time_s: float) -> FloatArray:
        return np.arange(1.0, 101.0)

    def mean_ratio(self, tau_min_s: float, round: int, time_s: float) -> FloatArray:
        return tau_min_s / self.mean_latency_s(round, time_s)


class MeansOf(Means):
    def __init__(self, clients: int) -> None:
        self.clients = clients

    def mean_latency_s(self, round: int, time_s: float) -> FloatArray:
        return np.arange(1.0, self.clients + 1)


def view(round: int, able: Any, seed: int = 0, probed: Probed | None = None) -> RoundView:
    selectable = np.asarray(able, np.bool_)
    rng, probed = np.random.default_rng([seed, round]), Probed.without_clients() if probed is None else probed
    return RoundView(round, float(round), selectable, np.zeros(len(selectable), np.int64), rng, probed)


def outcome(
    round: int,
    clients: list[int],
    *,
    rms: Any = None,
    loss: Any = None,
    latency_s: Any = None,
    censored: Any = None,
    staleness: Any = None,
    samples: Any = None,
) -> RoundOutcome:
    n = len(clients)
    reports = dataclasses.replace(
        Reports.nothing(n),
        loss=np.full(n, np.nan) if loss is None else np.array(loss, np.float64),
        loss_rms=np.full(n, np.nan) if rms is None else np.array(rms, np.float64),
        staleness=np.zeros(n, np.int64) if staleness is None else np.array(staleness),
        samples=np.full(n, -1) if samples is None else np.array(samples),
    )
    latencies = np.ones(n) if latency_s is None else np.array(latency_s, np.float64)
    cut = np.zeros(n, np.bool_) if censored is None else np.array(censored, np.bool_)
    return RoundOutcome(round, 0.0, 1.0, np.array(clients), latencies, cut, None, lambda: reports)


def frequencies_agree(counts: Any, expected: Any) -> bool:
    """Chi-square, at a confidence of one in a million."""
    counts, expected = np.asarray(counts, np.float64), np.asarray(expected, np.float64)
    assert counts[expected == 0].sum() == 0
    there = expected > 0
    statistic = ((counts - expected)[there] ** 2 / expected[there]).sum()
    return bool(statistic < chi2.ppf(CONFIDENCE, there.sum() - 1))


# Oort.


def oort(clients: int, per_round: int, sizes: Any = None, per_model: int | None = None, **parameters: Any) -> Oort:
    return Oort(
        clients=clients,
        per_round=per_round,
        data_sizes=np.ones(clients) if sizes is None else np.asarray(sizes, np.float64),
        truth=MeansOf(clients),
        parameters=OortParameters(**parameters),
        per_model=per_model,
    )
