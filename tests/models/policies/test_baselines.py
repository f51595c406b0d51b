"""The baselines of PAUSE's study, and what every policy keeps to: distinct, selectable, as many as can be, repeatable."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from models.policies.all import All
from models.policies.clustered.clustered_by_similarity import ClusteredBySimilarity
from models.policies.clustered.clustered_by_size import ClusteredBySize
from models.policies.fastest import Fastest
from models.policies.pause.genie import Genie
from models.policies.pause.parameters import AnnealingParameters, PauseParameters, RewardParameters, TailoredAnnealing
from models.policies.pause.pause import Pause
from models.policies.pause.pause_brute import PauseBrute
from models.policies.pause.sa_pause import SaPause
from models.policies.pause.vanilla_sa_pause import VanillaSaPause
from models.policies.protocols import BoolArray, FloatArray
from models.policies.random import Random
from models.privacy import GeometricSchedule, NoSchedule
from netsim.core.protocols import RoundView, SelectionPolicy
from netsim.core.reports import RoundOutcome

K, M = 9, 3


class Means:
    """True means that change at round 10: the order of the clients turns round."""

    def mean_latency_s(self, round: int, time_s: float) -> FloatArray:
        means = 0.1 * np.arange(1.0, K + 1)
        return means if round < 10 else means[::-1].copy()

    def mean_ratio(self, tau_min_s: float, round: int, time_s: float) -> FloatArray:
        return tau_min_s / self.mean_latency_s(round, time_s)


def build(name: str) -> SelectionPolicy:
    size: dict[str, Any] = {"clients": K, "per_round": M}
    data: dict[str, Any] = {"data_sizes": np.random.default_rng(4).dirichlet(np.full(K, 3.0))}
    pause: dict[str, Any] = size | data | {"schedule": GeometricSchedule(epsilon_total=40.0, eta=0.04)}
    made: dict[str, SelectionPolicy] = {
        "pause": Pause(**pause),
        "pause-brute": PauseBrute(**pause),
        "sa-pause": SaPause(**pause, annealing=TailoredAnnealing(steps=50)),
        "vanilla-sa-pause": VanillaSaPause(**pause, annealing=AnnealingParameters(steps=50)),
        "genie": Genie(**pause, truth=Means()),
        "random": Random(**size),
        "all": All(),
        "fastest": Fastest(**size, truth=Means()),
        "clustered-by-size": ClusteredBySize(**size, **data),
        "clustered-by-similarity": ClusteredBySimilarity(**size, **data),
    }
    return made[name]


NAMES = [
    "pause",
    "pause-brute",
    "sa-pause",
    "vanilla-sa-pause",
    "genie",
    "random",
    "all",
    "fastest",
    "clustered-by-size",
    "clustered-by-similarity",
]


def play(policy: SelectionPolicy, rounds: range, releases: np.ndarray[Any, Any], seed: int = 0) -> list[list[int]]:
    """Rounds in which one client in five is absent and one in five updates is lost; what happens depends on the round only."""
    played = []
    for t in rounds:
        world = np.random.default_rng([5, t])
        selectable: BoolArray = world.random(K) < 0.8
        latency_s, lost = 0.05 + world.random(K), world.random(K) < 0.2
        updates = world.normal(size=(K, 4))
        chosen = policy.select(RoundView(t, float(t), selectable, releases.copy(), np.random.default_rng([seed, t])))
        assert chosen.dtype == np.int64
        assert len(set(chosen.tolist())) == len(chosen)
        assert selectable[chosen].all()
        able = int(selectable.sum())
        assert len(chosen) == (able if isinstance(policy, All) else min(M, able))
        releases[chosen[~lost[chosen]]] += 1
        content = updates[chosen[~lost[chosen]]] if policy.needs_updates else None
        policy.observe(RoundOutcome(t, float(t), t + 1.0, chosen, latency_s[chosen], lost[chosen], content))
        played.append(chosen.tolist())
    return played


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_same_rounds_and_state_continues(name: str) -> None:
    releases = np.zeros(K, np.int64)
    policy = build(name)
    first = play(policy, range(1, 25), releases)
    assert play(build(name), range(1, 25), np.zeros(K, np.int64)) == first
    state, so_far = policy.state_dict(), releases.copy()
    later = play(policy, range(25, 50), releases)
    for _ in range(2):
        resumed = build(name)
        resumed.load_state_dict(state)
        assert play(resumed, range(25, 50), so_far.copy()) == later


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("all", "fastest")])
def test_only_the_policys_stream_decides(name: str) -> None:
    # Another stream gives other rounds where there is anything to decide: before the first round all clients are alike.
    policy = build(name)
    seen = set()
    for seed in range(40):
        view = RoundView(1, 0.0, np.ones(K, bool), np.zeros(K, np.int64), np.random.default_rng(seed))
        seen.add(tuple(policy.select(view).tolist()))
    alike = name in ("pause", "pause-brute", "genie")  # data sizes differ: there is one best set
    assert (len(seen) == 1) == alike


def view(t: int, able: BoolArray, seed: int = 0) -> RoundView:
    return RoundView(t, 0.0, able, np.zeros(K, np.int64), np.random.default_rng(seed))


def test_random_sets_are_uniform() -> None:
    policy = Random(clients=4, per_round=2)
    rng = np.random.default_rng(6)
    able = np.array([True, True, False, True])
    counts: dict[tuple[int, ...], int] = {}
    for _ in range(6000):
        chosen = policy.select(RoundView(1, 0.0, able, np.zeros(4, np.int64), rng))
        counts[tuple(chosen.tolist())] = counts.get(tuple(chosen.tolist()), 0) + 1
    assert set(counts) == {(0, 1), (0, 3), (1, 3)}
    assert all(abs(count - 2000) < 4.5 * math.sqrt(6000 * 2 / 9) for count in counts.values())


def test_fastest_goes_by_the_means_of_the_day() -> None:
    policy = Fastest(clients=K, per_round=M, truth=Means())
    everyone = np.ones(K, bool)
    assert policy.select(view(9, everyone)).tolist() == [0, 1, 2]
    assert policy.select(view(10, everyone)).tolist() == [6, 7, 8]
    everyone[[0, 2]] = False
    assert policy.select(view(9, everyone)).tolist() == [1, 3, 4]


def test_all_means_all() -> None:
    able = np.array([True, False] * 4 + [True])
    assert All().select(view(1, able)).tolist() == [0, 2, 4, 6, 8]


def test_genie_by_hand() -> None:
    # gamma = 0 and alpha = 0: the fastest.
    def genie(alpha: float, gamma: float) -> Genie:
        schedule = GeometricSchedule(epsilon_total=1.0, eta=1.0)
        weights = RewardParameters(alpha=alpha, gamma=gamma)
        return Genie(clients=K, per_round=M, data_sizes=np.ones(K), schedule=schedule, truth=Means(), parameters=weights)

    releases = np.array([5, 5, 5, 5, 0, 0, 0, 5, 5])
    seen = RoundView(1, 0.0, np.ones(K, bool), releases, np.random.default_rng(0))
    assert genie(0.0, 0.0).select(seen).tolist() == [0, 1, 2]
    # With generalization or privacy worth much, those who were selected least, by its own count.
    for alpha, gamma in ((1000.0, 0.0), (0.0, 100.0)):
        counting = genie(alpha, gamma)
        counting.observe(RoundOutcome(1, 0.0, 1.0, np.array([0, 1, 2, 3, 7, 8]), np.ones(6), np.zeros(6, bool)))
        seen = RoundView(2, 0.0, np.ones(K, bool), np.zeros(K, np.int64), np.random.default_rng(0))
        assert counting.select(seen).tolist() == [4, 5, 6]


def test_no_privacy_makes_every_privacy_reward_one() -> None:
    # Then PAUSE without generalization plays by ucb alone: the unexplored first, whoever released how much.
    weights = PauseParameters(alpha=0.0, gamma=1000.0)
    policy = Pause(clients=K, per_round=M, data_sizes=np.ones(K), schedule=NoSchedule(), parameters=weights)
    policy.observe(RoundOutcome(1, 0.0, 1.0, np.arange(6), np.ones(6), np.zeros(6, bool)))
    releases = np.array([0, 0, 0, 0, 0, 0, 90, 90, 90])
    chosen = policy.select(RoundView(2, 0.0, np.ones(K, bool), releases, np.random.default_rng(0)))
    assert chosen.tolist() == [6, 7, 8]
