"""PAUSE's rewards, confidence bound and rounds (eq. 7-14), worked out by hand and followed over many rounds."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from functools import partial
from typing import Literal

import numpy as np
import pytest

from models.detection.cusum import Cusum
from models.detection.glr_exact import GlrExact
from models.detection.glr_grid import GlrGrid
from models.detection.no_detection import NoDetection
from models.detection.page_hinkley import PageHinkley
from models.detection.protocols import Detector
from models.policies.pause.parameters import AnnealingParameters, PauseParameters, RewardParameters, TailoredAnnealing
from models.policies.pause.pause import Pause
from models.policies.pause.pause_brute import PauseBrute
from models.policies.pause.rewards import Rewards, latency_ratio
from models.policies.pause.sa_pause import SaPause
from models.policies.pause.ucb_policy import Terms, UcbPolicy
from models.policies.pause.vanilla_sa_pause import VanillaSaPause
from models.policies.protocols import BoolArray, FloatArray, IntArray
from models.privacy import ExplicitSchedule, GeometricSchedule, NoSchedule
from netsim.core.protocols import RoundView
from netsim.core.reports import RoundOutcome
from scenarios.runs.reading import parse
from scenarios.schema.errors import UserError
from scenarios.wiring.simulation import build


class Recorder(UcbPolicy):
    """Keeps the terms it was given and plays the first m."""

    def _search(self, terms: Terms, rng: np.random.Generator) -> IntArray:
        self.terms = Terms(*(term.copy() for term in terms))
        return np.arange(self._per_round)


def view(round: int, participations: list[int], selectable: BoolArray | None = None, seed: int = 0) -> RoundView:
    able = np.ones(len(participations), bool) if selectable is None else selectable
    return RoundView(round, float(round), able, np.array(participations, np.int64), np.random.default_rng([seed, round]))


def outcome(round: int, clients: list[int], latency_s: list[float], censored: list[bool] | None = None) -> RoundOutcome:
    cut = np.zeros(len(clients), bool) if censored is None else np.array(censored)
    return RoundOutcome(round, float(round), round + 0.5, np.array(clients, np.int64), np.array(latency_s), cut)


def test_rewards_by_hand() -> None:
    # Shares 1/2, 1/4, 1/4; m = 2: targets 1, 1/2, 1/2. In round 4, T = 3, 2, 1: d = 1 - 3/4, 1/2 - 2/4, 1/2 - 1/4.
    rewards = Rewards(
        clients=3,
        per_round=2,
        data_sizes=np.array([100.0, 50.0, 50.0]),
        schedule=ExplicitSchedule(epsilons=[4.0, 2.0, 1.0, 1.0]),
        parameters=RewardParameters(alpha=8.0, beta=2.0, gamma=6.0),
    )
    for clients in ([0, 1], [0, 1], [0, 2]):
        rewards.count(np.array(clients))
    modular = rewards.update(4, np.array([3, 2, 1]))
    np.testing.assert_allclose(rewards.generalization, [1 / 16, 0.0, 1 / 16])
    np.testing.assert_allclose(rewards.privacy, [1 / 8, 1 / 4, 1 / 2])
    np.testing.assert_allclose(modular, [4 / 16 + 3 / 8, 3 / 4, 4 / 16 + 3 / 2])
    # Overplayed clients are punished: d = 1/2 - 2/2 = -1/2 in round 2.
    rewards.update(2, np.array([3, 2, 1]))
    np.testing.assert_allclose(rewards.generalization, [-1 / 4, -1 / 4, 0.0])


@pytest.mark.parametrize("beta", [1.5, 2.0, 3.0])
def test_generalization_reward_is_the_formula_for_every_exponent(beta: float) -> None:
    rng = np.random.default_rng(2)
    sizes = rng.random(40)
    weights = RewardParameters(alpha=1.0, beta=beta, gamma=1.0)
    rewards = Rewards(clients=40, per_round=4, data_sizes=sizes, schedule=NoSchedule(), parameters=weights)
    for _ in range(9):
        rewards.count(rng.choice(40, 4, replace=False))
    rewards.update(10, np.zeros(40, np.int64))
    d = 4 * sizes / sizes.sum() - rewards.counts / 10
    np.testing.assert_allclose(rewards.generalization, np.abs(d) ** beta * np.sign(d), rtol=1e-12)
    np.testing.assert_array_equal(rewards.privacy, 1.0)


def test_privacy_reward_follows_releases_up_and_down() -> None:
    schedule = GeometricSchedule(epsilon_total=20.0, eta=0.04)
    weights = RewardParameters(alpha=0.0, beta=2.0, gamma=3.0)
    rewards = Rewards(clients=5, per_round=1, data_sizes=np.ones(5), schedule=schedule, parameters=weights)
    for releases in ([0, 1, 2, 3, 400], [0, 5, 2, 3, 401], [0, 0, 0, 0, 0]):
        modular = rewards.update(1, np.array(releases))
        np.testing.assert_allclose(rewards.privacy, np.exp(-0.04 * np.array(releases)), rtol=1e-9)
        np.testing.assert_allclose(modular, 3.0 * rewards.privacy)


def test_ucb_by_hand() -> None:
    parameters = PauseParameters(zeta=3.0, tau_min_s=0.1)
    policy = Recorder(clients=4, per_round=2, data_sizes=np.ones(4), schedule=NoSchedule(), parameters=parameters)
    policy.select(view(1, [0] * 4))
    np.testing.assert_array_equal(policy.terms.ucb, math.inf)
    policy.observe(outcome(1, [0, 1], [0.2, 0.4]))
    policy.select(view(2, [0] * 4))
    policy.observe(outcome(2, [1, 2], [0.1, 1.0], [False, True]))
    policy.select(view(3, [0] * 4))
    # Means of 0.1/tau: 1/2; (1/4 + 1)/2 = 5/8; 1/10 (cut off: taken as it is); never played. m + 1 = 3, t = 3.
    width = math.sqrt(3 * math.log(3))
    np.testing.assert_allclose(policy.terms.ucb, [1.5 + width, 15 / 8 + width / math.sqrt(2), 0.3 + width, math.inf], rtol=1e-12)


def test_latency_below_the_floor_counts_as_the_floor() -> None:
    np.testing.assert_allclose(latency_ratio(0.1, np.array([0.0, 0.05, 0.1, 0.4, math.inf])), [1.0, 1.0, 1.0, 0.25, 0.0])


def test_absent_clients_are_not_among_the_terms() -> None:
    policy = Recorder(clients=4, per_round=2, data_sizes=np.array([1.0, 2, 3, 4]), schedule=NoSchedule())
    chosen = policy.select(view(1, [0] * 4, np.array([False, True, True, True])))
    assert chosen.tolist() == [1, 2]
    assert len(policy.terms.modular) == 3
    assert policy.select(view(1, [0] * 4, np.array([False, True, False, True]))).tolist() == [1, 3]
    assert policy.select(view(1, [0] * 4, np.array([False, False, False, True]))).tolist() == [3]
    assert policy.select(view(1, [0] * 4, np.zeros(4, bool))).tolist() == []


FAMILY: list[Callable[..., UcbPolicy]] = [
    Pause,
    PauseBrute,
    partial(SaPause, annealing=TailoredAnnealing()),
    partial(VanillaSaPause, annealing=AnnealingParameters()),
]


@pytest.mark.parametrize("kind", [Pause, PauseBrute])
def test_first_rounds_play_every_client_once(kind: type[UcbPolicy]) -> None:
    # Remark after Algorithm 1's description: K/m rounds, where m divides K.
    policy = kind(clients=12, per_round=3, data_sizes=np.ones(12), schedule=GeometricSchedule(epsilon_total=1.0, eta=0.1))
    counts = np.zeros(12, np.int64)
    for t in range(1, 5):
        chosen = policy.select(view(t, counts.tolist()))
        counts[chosen] += 1
        policy.observe(outcome(t, chosen.tolist(), [0.1 + 0.01 * k for k in chosen]))
    np.testing.assert_array_equal(counts, 1)


def run(policy: UcbPolicy, rounds: range, counts: IntArray, means_s: FloatArray, seed: int) -> list[list[int]]:
    """Play `rounds` on latencies that depend on client and round only; updates `counts`."""
    played = []
    for t in rounds:
        noise = np.random.default_rng([7, t]).normal(0.0, 0.05, len(means_s))
        latency_s = np.maximum(means_s + noise, 0.05)
        chosen = policy.select(view(t, counts.tolist(), seed=seed))
        counts[chosen] += 1
        policy.observe(outcome(t, chosen.tolist(), latency_s[chosen].tolist()))
        played.append(chosen.tolist())
    return played


def make(kind: Callable[..., UcbPolicy], seed: int = 0, clients: int = 8) -> UcbPolicy:
    sizes = np.random.default_rng(seed).dirichlet(np.full(clients, 3.0))
    schedule = GeometricSchedule(epsilon_total=40.0, eta=0.04)
    return kind(clients=clients, per_round=3, data_sizes=sizes, schedule=schedule)


@pytest.mark.parametrize("kind", FAMILY)
def test_unexplored_clients_may_come_in_random_order(kind: Callable[..., UcbPolicy]) -> None:
    sizes = np.array([50.0, 40.0, 5.0, 3.0, 2.0])

    def first_rounds(seed: int, unexplored: Literal["energy", "random"]) -> list[list[int]]:
        parameters = PauseParameters(unexplored=unexplored)
        policy = kind(clients=5, per_round=2, data_sizes=sizes, schedule=NoSchedule(), parameters=parameters)
        played: list[list[int]] = []
        counts = np.zeros(5, np.int64)
        for round in (1, 2, 3):
            chosen = policy.select(view(round, counts.tolist(), seed=seed)).tolist()
            policy.observe(outcome(round, chosen, [1.0, 1.0]))
            counts[chosen] += 1
            played.append(chosen)
        return played

    # By energy those with the most samples come first; at random everybody does, as the fifth client with somebody twice.
    rounds = [first_rounds(seed, "random") for seed in range(200)]
    assert all(sorted({*a, *b, *c}) == [0, 1, 2, 3, 4] and len({*a, *b}) == 4 for a, b, c in rounds)
    firsts = np.bincount([client for a, _, _ in rounds for client in a], minlength=5)
    # 80 of 200 expected, deviation sqrt(200 * .4 * .6) = 6.9; five of them.
    assert np.abs(firsts - 80).max() < 35
    if kind in (Pause, PauseBrute):
        assert first_rounds(0, "energy")[:2] == [[0, 1], [2, 3]]
    with pytest.raises(ValueError, match=r"^unexplored = 'first': must be energy or random"):
        PauseParameters(unexplored="first")  # type: ignore[arg-type]


def test_exact_and_enumeration_play_the_same_history() -> None:
    # Data sizes and latencies are continuous: no ties once the first round has gone, which is fixed by the sizes.
    means_s = np.linspace(0.1, 0.9, 8)
    played = [run(make(kind), range(1, 150), np.zeros(8, np.int64), means_s, seed=1) for kind in (Pause, PauseBrute)]
    assert played[0] == played[1]


def test_annealing_with_many_steps_plays_nearly_the_optimum() -> None:
    means_s = np.linspace(0.1, 0.9, 8)
    exact = run(make(Pause), range(1, 30), np.zeros(8, np.int64), means_s, seed=1)
    for kind in FAMILY[2:]:
        found = run(make(kind), range(1, 30), np.zeros(8, np.int64), means_s, seed=1)
        # 56 sets and 3000 steps: the best one is seen.
        assert found == exact


@pytest.mark.each_nth(2)
@pytest.mark.parametrize("kind", FAMILY)
def test_state_in_mid_run_continues_exactly(kind: Callable[..., UcbPolicy]) -> None:
    means_s = np.linspace(0.1, 0.9, 8)
    counts = np.zeros(8, np.int64)
    whole = make(kind)
    run(whole, range(1, 15), counts, means_s, seed=1)
    state = whole.state_dict()
    resumed = make(kind)
    resumed.load_state_dict(state)
    before = counts.copy()
    rest = range(15, 35)
    first = run(whole, rest, before.copy(), means_s, seed=1)
    assert run(resumed, rest, before.copy(), means_s, seed=1) == first
    # The state was a copy, and was not kept: a third object can still start from it.
    third = make(kind)
    third.load_state_dict(state)
    assert run(third, rest, before.copy(), means_s, seed=1) == first


def test_bad_values_are_refused() -> None:
    good = {"clients": 4, "per_round": 2, "data_sizes": np.ones(4), "schedule": NoSchedule()}
    cases = {
        "per_round": 5,
        "clients": 0,
        "data_sizes": np.ones(3),
    }
    for name, value in cases.items():
        with pytest.raises(ValueError, match=f"^{name} "):
            Pause(**(good | {name: value}))  # type: ignore[arg-type]
    for name, value in {"alpha": -1.0, "beta": 1.0, "gamma": math.nan, "zeta": -0.1, "tau_min_s": 0.0}.items():
        with pytest.raises(ValueError, match=f"^{name} "):
            PauseParameters(**{name: value})  # type: ignore[arg-type]
    for name in ("steps", "kappa", "omega"):
        with pytest.raises(ValueError, match=f"^{name} = 0: must be finite and"):
            TailoredAnnealing(**{name: 0})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^steps = 10000001: must be at most 10,000,000"):
        TailoredAnnealing(steps=10_000_001)
    with pytest.raises(ValueError, match=r"^per_round = 15: "):
        PauseBrute(clients=300, per_round=15, data_sizes=np.ones(300), schedule=NoSchedule())


def watched(detector: Callable[[], Detector]) -> Recorder:
    sizes, parameters = np.ones(3), PauseParameters(tau_min_s=0.1)
    return Recorder(clients=3, per_round=1, data_sizes=sizes, schedule=NoSchedule(), parameters=parameters, detector=detector)


def play_one(policy: UcbPolicy, rounds: range, latency_s: float, client: int = 0) -> None:
    for t in rounds:
        policy.observe(outcome(t, [client], [latency_s]))


def test_a_declared_change_restarts_the_mean_of_that_client_by_hand() -> None:
    # CUSUM: the first two ratios give u = 1; then down grows by 1 - 1/4 - 1/4 = 1/2 a round, and reaches 1 with the second.
    policy = watched(lambda: Cusum(warm_up=2, drift=0.25, threshold=1.0))
    play_one(policy, range(1, 11), 0.1)
    play_one(policy, range(11, 21), 0.2, client=1)
    play_one(policy, range(21, 22), 0.4)
    policy.select(view(22, [0] * 3))
    width = math.sqrt(2 * math.log(22))
    np.testing.assert_allclose(
        policy.terms.ucb, [(10 + 0.25) / 11 + width / math.sqrt(11), 0.5 + width / math.sqrt(10), math.inf], rtol=1e-12
    )
    assert policy.restarts == []
    play_one(policy, range(22, 23), 0.4)
    # Only the observation that told is left of client 0; client 1 is as it was. T_k of eq. 8 goes on.
    policy.select(view(23, [0] * 3))
    width = math.sqrt(2 * math.log(23))
    np.testing.assert_allclose(policy.terms.ucb, [0.25 + width, 0.5 + width / math.sqrt(10), math.inf], rtol=1e-12)
    assert policy.restarts == [(22, 0)]
    np.testing.assert_allclose(policy.terms.generalization[0], (1 / 3 - 12 / 23) * abs(1 / 3 - 12 / 23))
    # And the detector was reset: its next warm-up is the value that told and one more, so that nothing is declared.
    play_one(policy, range(23, 60), 0.4)
    assert policy.restarts == [(22, 0)]
    policy.select(view(60, [0] * 3))
    np.testing.assert_allclose(policy.terms.ucb[0], 0.25 + math.sqrt(2 * math.log(60) / 38), rtol=1e-12)


@pytest.mark.parametrize("kind", FAMILY)
def test_a_detector_that_declares_nothing_changes_nothing(kind: Callable[..., UcbPolicy]) -> None:
    means_s, sizes = np.linspace(0.1, 0.9, 8), np.random.default_rng(0).dirichlet(np.full(8, 3.0))
    played = []
    for detector in (None, NoDetection):
        policy = kind(clients=8, per_round=3, data_sizes=sizes, schedule=NoSchedule(), detector=detector)
        played.append(run(policy, range(1, 30), np.zeros(8, np.int64), means_s, seed=1))
    assert played[0] == played[1]


@pytest.mark.parametrize("make", [Cusum, PageHinkley, GlrExact, lambda: GlrGrid(step=3)])
def test_estimates_follow_a_change_with_every_detector(make: Callable[[], Detector]) -> None:
    # 400 rounds at 0.1 s, then 400 at 1 s: ratios 1 and 0.1. Without detection the mean would still be 0.55.
    policy = watched(make)
    play_one(policy, range(1, 401), 0.1)
    play_one(policy, range(401, 801), 1.0)
    policy.select(view(801, [0] * 3))
    (declared,) = policy.restarts
    since = 801 - declared[0]
    np.testing.assert_allclose(policy.terms.ucb[0], 0.1 + math.sqrt(2 * math.log(801) / since), rtol=1e-9)


@pytest.mark.each_nth(2)
@pytest.mark.parametrize("kind", FAMILY)
def test_state_with_detectors_goes_on(kind: Callable[..., UcbPolicy]) -> None:
    def fresh() -> UcbPolicy:
        watch = partial(PageHinkley, drift=0.05, threshold=0.6)
        return kind(clients=6, per_round=2, data_sizes=np.ones(6), schedule=NoSchedule(), detector=watch)

    fast, slow = np.linspace(0.05, 0.2, 6), np.linspace(0.9, 0.05, 6)
    whole, counts = fresh(), np.zeros(6, np.int64)
    run(whole, range(1, 40), counts, fast, seed=3)
    run(whole, range(40, 55), counts, slow, seed=3)
    restored = fresh()
    restored.load_state_dict(pickle.loads(pickle.dumps(whole.state_dict())))
    ahead = [run(policy, range(55, 75), counts.copy(), slow, seed=3) for policy in (whole, restored)]
    assert ahead[0] == ahead[1]
    assert whole.restarts == restored.restarts
    assert len(whole.restarts) > 0


@pytest.mark.parametrize("kind", ["pause", "pause-brute", "sa-pause", "vanilla-sa-pause"])
def test_a_scenario_names_the_detector(kind: str) -> None:
    def policy(**parameters: object) -> UcbPolicy:
        part = {"kind": kind, "detector": {"kind": "cusum", **parameters}}
        study = parse({"name": "x", "rounds": 1, "clients": {"count": 6}, "server": {"per_round": 2}, "policy": part})
        built: UcbPolicy = build(study).simulation.server.loop.dispatch.policy
        return built

    assert isinstance(policy(), UcbPolicy)
    with pytest.raises(UserError, match=r"policy\.detector\.drift = -1\.0: must be finite and >= 0"):
        policy(drift=-1.0)
    with pytest.raises(UserError, match=r"policy\.detector\.treshold = 1\.0: unknown key; did you mean 'threshold'"):
        policy(treshold=1.0)
