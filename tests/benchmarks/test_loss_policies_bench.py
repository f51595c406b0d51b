"""Cost of a selection that goes by what clients tell, among a million, beside a shuffle of as many in the same run."""

from __future__ import annotations

import dataclasses
from time import process_time
from typing import Any

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from models.policies.active_fl import ActiveFl
from models.policies.oort.oort import Oort
from models.policies.pisces import Pisces
from models.policies.power_of_choice import PowerOfChoice
from models.policies.protocols import FloatArray
from models.policies.refl import Refl
from models.policies.tifl import RankingParameters, Tifl
from netsim.core.protocols import RoundView
from netsim.core.reports import Probed, Reports, RoundOutcome

CLIENTS, PER_ROUND = 1_000_000, 15


class Means:
    """Client k takes k + 1 seconds."""

    def mean_latency_s(self, round: int, time_s: float) -> FloatArray:
        return np.arange(1.0, CLIENTS + 1)

    def mean_ratio(self, tau_min_s: float, round: int, time_s: float) -> FloatArray:
        return tau_min_s / self.mean_latency_s(round, time_s)


class Soon:
    """How long each client will be there."""

    shares = np.random.default_rng(3).random(CLIENTS)

    def forecast(self, from_s: float, to_s: float) -> FloatArray:
        return self.shares


def profiled(**common: Any) -> Tifl:
    """After a profile of everyone, with tiers of which a hundred clients each are tested in every round."""
    del common["data_sizes"]
    ranking = RankingParameters(interval=1, tested=100)
    policy = Tifl(**common, timeout_s=9.0, probabilities="adaptive", ranking=ranking)
    everyone, took_s = np.ones(CLIENTS, np.bool_), np.random.default_rng(4).random(CLIENTS)
    view = RoundView(1, 0.0, everyone, np.zeros(CLIENTS, np.int64), np.random.default_rng(1))
    asked = policy.probe(view)
    policy.probe(dataclasses.replace(view, probed=Probed(clients=asked, answered=everyone, loss=took_s, elapsed_s=took_s)))
    return policy


def refl(**common: Any) -> Refl:
    """Everyone is asked."""
    del common["data_sizes"]
    return Refl(**common, presence=Soon(), round_s=1.0)


MADE: dict[str, Any] = {
    "oort": lambda **common: Oort(**common, truth=Means()),
    "active-fl": ActiveFl,
    "pisces": Pisces,
    "power-of-choice, 50 probed": lambda **common: PowerOfChoice(**common, candidates=50),
    "power-of-choice, rpow-d": lambda **common: PowerOfChoice(**common, candidates=50, variant="rpow-d"),
    "tifl, 100 of a tier tested": profiled,
    "refl": refl,
}


@pytest.mark.parametrize("name", MADE)
def test_fifteen_of_a_million(benchmark: BenchmarkFixture, name: str) -> None:
    rng = np.random.default_rng(1)
    policy = MADE[name](clients=CLIENTS, per_round=PER_ROUND, data_sizes=rng.integers(10, 100, CLIENTS).astype(np.float64))
    half, everyone = np.arange(0, CLIENTS, 2), np.ones(CLIENTS, np.bool_)
    told = dataclasses.replace(
        Reports.nothing(len(half)),
        loss=rng.random(len(half)),
        loss_rms=rng.random(len(half)),
        staleness=np.zeros(len(half), np.int64),
    )
    lost = np.zeros(len(half), np.bool_)
    policy.observe(RoundOutcome(1, 0.0, 1.0, half, 1.0 + rng.random(len(half)), lost, None, lambda: told))
    none = np.zeros(CLIENTS, np.int64)

    def select() -> None:
        view = RoundView(2, 1.0, everyone, none, np.random.default_rng(2))
        asked = policy.probe(view)
        ones = np.ones(len(asked))
        probed = Probed(clients=asked, answered=ones > 0, loss=ones, elapsed_s=ones, accuracy=ones)
        policy.select(dataclasses.replace(view, probed=probed))

    def timed(call: Any) -> float:
        before = process_time()
        call()
        return process_time() - before

    benchmark.pedantic(select, rounds=5)
    pairs = [(timed(select), timed(lambda: rng.permutation(CLIENTS))) for _ in range(9)]
    select_s, shuffle_s = (min(pair[i] for pair in pairs) for i in (0, 1))
    print(f"\n15 of 1,000,000, {name}: {select_s * 1e3:.1f} ms, {select_s / shuffle_s:.2f} of a shuffle of a million")
    assert select_s <= 8 * shuffle_s
