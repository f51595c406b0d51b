"""What every scheduler must do, whoever it is; and how well they do on piecewise-stationary channels."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare
from scipy.stats import t as student

from models.detection.cusum import Cusum
from models.detection.glr_grid import GlrGrid
from models.detection.page_hinkley import PageHinkley
from models.laws.sub_channels.sequences import StateSequence
from models.schedulers.aoi_aware import AoiAware
from models.schedulers.cucb import Cucb
from models.schedulers.glr_cucb import GlrCucb
from models.schedulers.m_exp3 import MExp3
from models.schedulers.matchers.adaptive import Adaptive
from models.schedulers.matchers.age_first import AgeFirst
from models.schedulers.matchers.random_matching import RandomMatching
from models.schedulers.matchers.rotation import Rotation
from models.schedulers.oracles.csi import Csi
from models.schedulers.oracles.means import Means
from models.schedulers.oracles.means_age import MeansAge
from models.schedulers.random import Random
from models.schedulers.round_robin import RoundRobin
from models.theory.aoi import regret, simulate
from netsim.core.scheduling import SlotView
from netsim.core.streams import Streams
from netsim.servers.sub_channels.age_oracle import AgeOracle
from tests.helpers.piecewise_states import piecewise_states

Make = Callable[[int, int, StateSequence], Any]

SCHEDULERS: dict[str, Make] = {
    "random": lambda k, n, truth: Random(clients=k, channels=n),
    "random, adaptive": lambda k, n, truth: Random(clients=k, channels=n, matcher=Adaptive()),
    "round-robin": lambda k, n, truth: RoundRobin(clients=k, channels=n),
    "round-robin, by age": lambda k, n, truth: RoundRobin(clients=k, channels=n, matcher=AgeFirst()),
    "cucb": lambda k, n, truth: Cucb(clients=k, channels=n),
    "m-exp3": lambda k, n, truth: MExp3(clients=k, channels=n),
    "m-exp3, sharing": lambda k, n, truth: MExp3(clients=k, channels=n, gamma=0.2, share=0.01, normalize=False),
    "glr-cucb": lambda k, n, truth: GlrCucb(clients=k, channels=n, rounds=truth.rounds),
    "glr-cucb, adaptive": lambda k, n, truth: GlrCucb(clients=k, channels=n, alpha=0.3, matcher=Adaptive(beta=0.9)),
    "glr-cucb, grid": lambda k, n, truth: GlrCucb(clients=k, channels=n, alpha=0.1, detector=GlrGrid),
    "cusum-cucb": lambda k, n, truth: GlrCucb(clients=k, channels=n, alpha=0.1, detector=Cusum),
    "page-hinkley-cucb": lambda k, n, truth: GlrCucb(clients=k, channels=n, alpha=0.1, detector=PageHinkley),
    "aa-glr-cucb": lambda k, n, truth: AoiAware(
        clients=k, channels=n, scheduler=GlrCucb(clients=k, channels=n, rounds=truth.rounds, matcher=RandomMatching())
    ),
    "aa-m-exp3": lambda k, n, truth: AoiAware(
        clients=k, channels=n, scheduler=MExp3(clients=k, channels=n), means="window", window_rounds=30
    ),
    "aa-random": lambda k, n, truth: AoiAware(
        clients=k, channels=n, scheduler=Random(clients=k, channels=n, matcher=Rotation()), means="discount", discount=0.95
    ),
    "aa-total": lambda k, n, truth: AoiAware(
        clients=k, channels=n, scheduler=MExp3(clients=k, channels=n, matcher=Adaptive()), mode="total", means="history"
    ),
    "aa-means": lambda k, n, truth: AoiAware(
        clients=k, channels=n, scheduler=Means(clients=k, channels=n, truth=truth), means="own"
    ),
    "means": lambda k, n, truth: Means(clients=k, channels=n, truth=truth),
    "means-age": lambda k, n, truth: MeansAge(clients=k, channels=n, truth=truth),
    "csi": lambda k, n, truth: Csi(clients=k, channels=n, truth=truth),
}


def world(channels: int, rounds: int, seed: int = 0, breakpoints: int = 1) -> StateSequence:
    return piecewise_states(channels=channels, rounds=rounds, generator=np.random.default_rng([seed, 1]), breakpoints=breakpoints)


def view(round: int, ages: np.ndarray, rng: np.random.Generator) -> SlotView:
    return SlotView(round, ages, 1.0 + np.arange(len(ages)) % 3, rng)


@pytest.mark.parametrize("name", SCHEDULERS)
@pytest.mark.parametrize(("clients", "channels"), [(2, 5), (3, 3), (1, 1), (1, 4)])
def test_every_client_has_its_own_channel(name: str, clients: int, channels: int) -> None:
    truth = world(channels, 200)
    scheduler = SCHEDULERS[name](clients, channels, truth)
    assert np.isnan(scheduler.means()).all()
    rng = np.random.default_rng(1)
    ages = np.ones(clients, np.int64)
    plays, wins = np.zeros(channels), np.zeros(channels)
    for t in range(1, 201):
        before = ages.copy()
        now = view(t, ages, rng)
        chosen = scheduler.assign(now)
        assert chosen.shape == (clients,)
        assert chosen.dtype == np.int64
        assert len(set(chosen.tolist())) == clients
        assert 0 <= chosen.min() <= chosen.max() < channels
        # Some are cut off, and nobody hears of them.
        heard = rng.random(clients) < 0.9
        good = truth.states(t)[chosen]
        scheduler.observe(now, chosen[heard], good[heard])
        np.testing.assert_array_equal(ages, before)
        ages = np.where(good & heard, 1, ages + 1)
        np.add.at(plays, chosen[heard], 1)
        np.add.at(wins, chosen[heard], good[heard])
    if name in ("means", "means-age", "aa-means"):
        # An oracle does not learn: its means are the true ones.
        np.testing.assert_array_equal(scheduler.means(), truth.means(200))
    elif not scheduler.restarts and "aa-m-exp3" not in name and name != "aa-random":
        with np.errstate(invalid="ignore"):
            np.testing.assert_allclose(scheduler.means(), wins / plays)


@pytest.mark.parametrize("name", SCHEDULERS)
def test_state_round_trip_in_mid_run(name: str) -> None:
    truth = world(5, 900)
    one, two = SCHEDULERS[name](3, 5, truth), SCHEDULERS[name](3, 5, truth)
    streams = Streams(7)["scheduler"]
    ages = np.ones(3, np.int64)

    def step(scheduler: Any, t: int, ages: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        now = view(t, ages, streams.generator(t))
        chosen = scheduler.assign(now)
        good = truth.states(t)[chosen]
        scheduler.observe(now, chosen, good)
        return chosen, np.where(good, 1, ages + 1)

    for t in range(1, 50):  # other memories, to be overwritten
        step(two, t, np.array([3, 1, t]))
    for t in range(1, 501):
        _, ages = step(one, t, ages)
    saved = one.state_dict()
    kept = copy.deepcopy(saved)
    two.load_state_dict(saved)
    for t in range(501, 901):
        chosen, after = step(one, t, ages)
        again, _ = step(two, t, ages)
        np.testing.assert_array_equal(chosen, again)
        ages = after
    np.testing.assert_equal(saved, kept)
    np.testing.assert_equal(one.state_dict(), two.state_dict())
    assert one.restarts == two.restarts


def test_state_between_assign_and_observe() -> None:
    one, two = (MExp3(clients=2, channels=5) for _ in range(2))
    now = view(1, np.ones(2, np.int64), np.random.default_rng(0))
    chosen = one.assign(now)
    two.load_state_dict(one.state_dict())
    for scheduler in (one, two):
        scheduler.observe(now, chosen, np.array([True, True]))
    assert one.probability(chosen.tolist()) == two.probability(chosen.tolist()) > 0.1


@pytest.mark.parametrize("name", ["random", "m-exp3"])
def test_first_draws_are_uniform_over_sets(name: str) -> None:
    rng = np.random.default_rng(6)
    scheduler = SCHEDULERS[name](2, 4, world(4, 10))
    counts: dict[tuple[int, ...], int] = {}
    for _ in range(6000):
        arm = tuple(sorted(scheduler.assign(view(1, np.ones(2, np.int64), rng)).tolist()))
        counts[arm] = counts.get(arm, 0) + 1
    assert len(counts) == 6
    assert chisquare(list(counts.values())).pvalue > 1e-3


def test_round_robin_takes_every_client_over_every_channel() -> None:
    history = simulate(RoundRobin(clients=3, channels=7), np.ones((7, 7), bool), clients=3, draws=np.random.default_rng(0))
    for client in range(3):
        assert sorted(history.channels[:, client]) == list(range(7))


def test_the_engines_oracle_uses_them() -> None:
    truth = world(5, 400)
    for scheduler in (Csi(clients=2, channels=5), MeansAge(clients=2, channels=5, truth=truth)):
        meter = AgeOracle(scheduler=scheduler, clients=2, channels=5, streams=Streams(1))
        sums = [meter.measure(t, truth.states(t)) for t in range(1, 401)]
        told = Csi(clients=2, channels=5, truth=truth) if isinstance(scheduler, Csi) else scheduler
        history = simulate(told, truth.table, clients=2, draws=np.random.default_rng(0))
        assert sums == history.ages.sum(axis=1).tolist()


def test_csi_gives_good_channels_to_the_oldest() -> None:
    truth = StateSequence(table=np.array([[0, 0, 1, 0, 0], [1, 0, 0, 1, 1]], bool))
    scheduler = Csi(clients=3, channels=5, truth=truth)
    assert scheduler.assign(view(1, np.array([1, 2, 7]), np.random.default_rng(0)))[2] == 2
    assert set(scheduler.assign(view(2, np.array([1, 2, 7]), np.random.default_rng(0))).tolist()) == {0, 3, 4}
    scheduler.show(np.array([False, True, False, False, False]))
    assert scheduler.assign(view(1, np.array([1, 2, 7]), np.random.default_rng(0)))[2] == 1
    # What was shown is good for one round.
    assert scheduler.assign(view(1, np.array([1, 2, 7]), np.random.default_rng(0)))[2] == 2
    with pytest.raises(ValueError, match=r"^truth = None"):
        Csi(clients=1, channels=2).assign(view(1, np.ones(1, np.int64), np.random.default_rng(0)))


def test_csi_is_never_beaten_in_successes() -> None:
    truth = world(5, 500)
    best = simulate(Csi(clients=2, channels=5, truth=truth), truth.table, clients=2, draws=np.random.default_rng(0))
    np.testing.assert_array_equal(best.good.sum(axis=1), np.minimum(truth.table.sum(axis=1), 2))


def finals(name: str, instances: int, rounds: int, breakpoints: int) -> np.ndarray:
    """Final AoI regret against oracle `means` on each of `instances` drawn worlds with N = 5, K = 2."""
    out = []
    for seed in range(instances):
        truth = piecewise_states(
            channels=5,
            rounds=rounds,
            generator=np.random.default_rng([seed, 2]),
            breakpoints=breakpoints,
            min_spacing=rounds // 10,
        )
        oracle = simulate(Means(clients=2, channels=5, truth=truth), truth.table, clients=2, draws=np.random.default_rng(0))
        draws = Streams(seed)["scheduler"]
        history = simulate(SCHEDULERS[name](2, 5, truth), truth.table, clients=2, draws=draws)
        out.append(regret(history.ages, oracle.ages)[-1])
    return np.array(out, np.float64)


@pytest.mark.slow
def above_zero(differences: np.ndarray, level: float = 0.999) -> bool:
    """Whether their mean is above 0 with confidence `level` (one-sided t)."""
    n = len(differences)
    return bool(differences.mean() - student.ppf(level, n - 1) * differences.std(ddof=1) / math.sqrt(n) > 0)


@pytest.mark.slow
def test_glr_cucb_beats_m_exp3_beats_random() -> None:
    glr, exp3, random = (finals(name, 10, 3000, 2) for name in ("glr-cucb", "m-exp3", "random"))
    assert above_zero(exp3 - glr)
    assert above_zero(random - exp3)


@pytest.mark.parametrize(
    ("make", "start"),
    [
        (lambda: Random(clients=3, channels=2), "channels = 2"),
        (lambda: MExp3(clients=0, channels=2), "clients = 0"),
        (lambda: MExp3(clients=1, channels=2, gamma=0.0), "gamma = 0.0"),
        (lambda: MExp3(clients=1, channels=2, gamma=1.1), "gamma = 1.1"),
        (lambda: MExp3(clients=1, channels=2, share=-1.0), "share = -1.0"),
        (lambda: MExp3(clients=1, channels=2, credit="all"), "credit = 'all'"),  # type: ignore[arg-type]
        (lambda: MExp3(clients=1, channels=2, gamma="tuned"), "gamma = 'tuned': needs a number of rounds"),
        (lambda: MExp3(clients=1, channels=2, gamma="tuned", rounds=9, normalize=False), "gamma = 'tuned': is for rewards in"),
        (lambda: MExp3(clients=1000, channels=2000), "channels: there are 10"),
        (lambda: GlrCucb(clients=1, channels=2, alpha=0.0), "alpha = 0.0"),
        (lambda: GlrCucb(clients=1, channels=2, alpha=-0.5), "alpha = -0.5"),
        (lambda: GlrCucb(clients=1, channels=2, alpha=2.0), "alpha = 2.0"),
        (lambda: GlrCucb(clients=1, channels=2, alpha=math.nan), "alpha = nan"),
        (lambda: GlrCucb(clients=1, channels=2), "alpha = None"),
        (lambda: GlrCucb(clients=1, channels=2, alpha=0.1, forced_exploration=False), "alpha = 0.1: has no meaning"),
        (lambda: GlrCucb(clients=1, channels=2, rounds=0), "rounds = 0"),
        (lambda: GlrCucb(clients=1, channels=2, rounds=9, segments=0), "segments = 0"),
        (lambda: GlrCucb(clients=1, channels=2, segments=2), "segments = 2: needs a number of rounds"),
        (lambda: GlrCucb(clients=1, channels=2, rounds=9, segments=2, alpha=0.1), "segments = 2: sets alpha"),
        (lambda: GlrCucb(clients=1, channels=2, rounds=9, segments=2, forced_exploration=False), "segments = 2: has no meaning"),
        (lambda: Cucb(clients=2, channels=1), "channels = 1"),
        (lambda: Adaptive(beta=1.5), "beta = 1.5"),
        (lambda: aware(mode="both"), "mode = 'both'"),
        (lambda: aware(means="all"), "means = 'all'"),
        (lambda: aware(means="window", window_rounds=0), "window_rounds = 0"),
        (lambda: aware(means="discount"), "discount = None"),
        (lambda: aware(means="discount", discount=1.5), "discount = 1.5"),
        (lambda: aware(means="own", window_rounds=5), "window_rounds = 5: has no meaning"),
        (lambda: aware(discount=0.5), "discount = 0.5: has no meaning"),
        (lambda: aware(total_threshold=5.0), "total_threshold = 5.0: has no meaning"),
        (lambda: aware(mode="total", total_threshold=0.0), "total_threshold = 0.0"),
    ],
)
def test_bad_values_are_refused(make: Callable[[], Any], start: str) -> None:
    with pytest.raises(ValueError, match=f"^{start}"):
        make()


def aware(**parameters: Any) -> AoiAware:
    return AoiAware(clients=1, channels=2, scheduler=Random(clients=1, channels=2), **parameters)


def test_one_round_leaves_no_forced_exploration() -> None:
    assert GlrCucb(clients=1, channels=2, rounds=1).period == 0
