"""Rewards of the played sets and of the genie (PAUSE eq. 9, 10, 15), and the bound of Theorem 3."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from models.policies.pause.genie import Genie
from models.policies.pause.parameters import RewardParameters
from models.policies.pause.pause import Pause
from models.policies.protocols import FloatArray, IntArray
from models.privacy import ExplicitSchedule, GeometricSchedule
from models.theory.regret import PauseRewardMeter, delta_max_bound, regret_bound
from netsim.core.protocols import RoundView, SelectionPolicy
from netsim.core.reports import RoundOutcome
from tests.helpers.random_worlds import built

TAU_MIN_S = 0.05
STD_S = 0.05


class Clipped:
    """Normal latencies with a floor: the truth by the midpoint rule over the quantile function."""

    def __init__(self, means_s: FloatArray) -> None:
        u = (np.arange(4000) + 0.5) / 4000
        samples = np.maximum(means_s[:, None] + STD_S * norm.ppf(u), TAU_MIN_S)
        self.means_s, self.ratios = samples.mean(axis=1), (TAU_MIN_S / samples).mean(axis=1)

    def mean_latency_s(self, round: int, time_s: float) -> FloatArray:
        return self.means_s

    def mean_ratio(self, tau_min_s: float, round: int, time_s: float) -> FloatArray:
        return self.ratios


class Fixed:
    def __init__(self, ratios: list[float]) -> None:
        self.ratios = np.array(ratios)

    def mean_latency_s(self, round: int, time_s: float) -> FloatArray:
        return 1.0 / self.ratios

    def mean_ratio(self, tau_min_s: float, round: int, time_s: float) -> FloatArray:
        return self.ratios


def view(t: int, releases: IntArray, seed: int = 0) -> RoundView:
    return RoundView(t, float(t), np.ones(len(releases), bool), releases.copy(), np.random.default_rng([seed, t]))


def outcome(t: int, clients: list[int] | IntArray, latency_s: FloatArray) -> RoundOutcome:
    played = np.array(clients, np.int64)
    return RoundOutcome(t, float(t), t + 1.0, played, latency_s[played], np.zeros(len(played), bool))


def cut(whole: RoundOutcome, after_s: float) -> RoundOutcome:
    """As a server tells it that stopped waiting `after_s`."""
    late = whole.latency_s > after_s
    return dataclasses.replace(whole, latency_s=np.minimum(whole.latency_s, after_s), censored=late)


def test_rewards_by_hand() -> None:
    # m = 2 of 3, equal data: target 2/3. alpha = 9, gamma = 4; budgets 3, 1.
    meter = PauseRewardMeter(
        clients=3,
        per_round=2,
        data_sizes=np.ones(3),
        schedule=ExplicitSchedule(epsilons=[3.0, 1.0]),
        truth=Fixed([0.9, 0.5, 0.4]),
        parameters=RewardParameters(alpha=9.0, gamma=4.0, tau_min_s=0.1),
    )
    latency_s = np.array([0.2, 0.1, 0.4])
    asked = []

    def common(clients: IntArray) -> FloatArray:
        asked.append(sorted(clients.tolist()))
        return latency_s[clients]

    # Round 1: every g is (2/3)^2 = 4/9 and every p is 1: 9/2 * 8/9 + 4/2 * 2 = 8. Played {1,2}: ratio 1/4; genie {0,1}: 1/2.
    played, genie = meter.measure(outcome(1, [1, 2], latency_s), view(1, np.zeros(3, np.int64)), common)
    assert played == pytest.approx(8.25)
    assert genie == pytest.approx(8.5)
    # Round 2. Policy: T = 0, 1, 1: p = 1, 1/4, 1/4, whatever was released; d = 2/3, 1/6, 1/6. Played {0,2}:
    # 1/4 + 9/2 (4/9 + 1/36) + 2 (1 + 1/4) = 0.25 + 2.125 + 2.5.
    # Genie: T = 1, 1, 0, p = 1/4, 1/4, 1; g = 1/36, 1/36, 4/9. With mu {0,2} and {1,2} tie: the lower client.
    # Reward 1/4 + 9/2 (1/36 + 4/9) + 2 (1/4 + 1).
    played, genie = meter.measure(cut(outcome(2, [0, 2], latency_s), 0.3), view(2, np.array([0, 0, 1])), common)
    assert played == pytest.approx(4.875)
    assert genie == pytest.approx(4.875)
    # Round 3 plays all three: their g and p by the mean over three. T = 1, 1, 2: d = 1/3, 1/3, 0, p = 1/4, 1/4, 0.
    # Slowest ratio 1/4; 9 (1/9 + 1/9)/3 + 4 (1/2)/3 = 2/3 + 2/3.
    played, _ = meter.measure(outcome(3, [0, 1, 2], latency_s), view(3, np.array([0, 0, 1])), common)
    assert played == pytest.approx(0.25 + 2 / 3 + 2 / 3)
    # Genie and policy are looked up in one go.
    assert asked == [[0, 1, 1, 2], [0, 0, 2, 2], [0, 1, 1, 2, 2]]


def test_rewards_of_a_genie_on_the_shared_history_by_hand() -> None:
    meter = PauseRewardMeter(
        clients=3,
        per_round=2,
        data_sizes=np.ones(3),
        schedule=ExplicitSchedule(epsilons=[3.0, 1.0]),
        truth=Fixed([0.9, 0.5, 0.4]),
        parameters=RewardParameters(alpha=9.0, gamma=4.0, tau_min_s=0.1),
        history="shared",
    )
    latency_s = np.array([0.2, 0.1, 0.4])

    def drawn(clients: IntArray) -> FloatArray:
        return latency_s[clients]

    # Round 1 as above: nobody has a history yet.
    assert meter.measure(outcome(1, [1, 2], latency_s), view(1, np.zeros(3, np.int64)), drawn) == pytest.approx((8.25, 8.5))
    # Round 2, for both T = 0, 1, 1: g = 4/9, 1/36, 1/36 and p = 1, 1/4, 1/4. The genie takes 0, and 1 for its greater mean:
    # 1/2 + 2.125 + 2.5, against {0,2} as above.
    assert meter.measure(outcome(2, [0, 2], latency_s), view(2, np.zeros(3, np.int64)), drawn) == pytest.approx((4.875, 5.125))
    # A policy that selects as this genie does is as good as it, whatever it did before. T = 1, 1, 2 and round 3: d = 1/3, 1/3, 0.
    played, genie = meter.measure(outcome(3, [0, 1], latency_s), view(3, np.zeros(3, np.int64)), drawn)
    assert played == genie


def test_a_history_must_be_known() -> None:
    with pytest.raises(ValueError, match=r"^history = 'ours': must be 'own' or 'shared'"):
        PauseRewardMeter(
            clients=2,
            per_round=1,
            data_sizes=np.ones(2),
            schedule=ExplicitSchedule(epsilons=[1.0]),
            truth=Fixed([0.5, 0.4]),
            history="ours",  # type: ignore[arg-type]
        )


SEVERE: dict[str, Any] = {
    "a deadline": {"server": {"deadline_s": 0.5}},
    "over-selection": {"server": {"first": 2}},
    "losses": {"uplink": {"channel": {"kind": "bernoulli", "success": 0.6}}},
    "losses on the way down": {"downlink": {"channel": {"kind": "bernoulli", "success": 0.6}}},
    "a queue": {"uplink": {"sub_channels": 1}},
    "all of it": {
        "server": {"deadline_s": 0.8, "first": 3},
        "uplink": {"sub_channels": 2, "channel": {"kind": "bernoulli", "success": 0.8}},
        "privacy": {"charge_on": "delivery"},
    },
}


@pytest.mark.parametrize("history", ["own", "shared"])
@pytest.mark.parametrize("severe", sorted(SEVERE))
def test_the_genie_has_no_regret_whatever_becomes_of_its_updates(severe: str, history: str) -> None:
    tables: dict[str, Any] = {
        "name": "genie",
        "rounds": 60,
        "clients": {"count": 10, "data_sizes": {"from": 1.0, "to": 3.0}},
        "server": {"per_round": 4, "stragglers": "cancel"},
        "policy": {"kind": "genie"},
        "uplink": {"delay": {"kind": "gaussian", "mean_s": {"from": 0.1, "to": 0.9}, "std_s": 0.2, "floor_s": 0.05}},
        "privacy": {"sensitivity": 0.1, "schedule": {"kind": "geometric", "epsilon_total": 10.0, "eta": 0.04}},
        "metrics": {"reward": {"kind": "pause-reward", "history": history}},
    }
    for name, table in SEVERE[severe].items():
        tables[name] = tables.get(name, {}) | table
    simulation, records = built(tables)
    simulation.run()
    assert [row.genie_reward - row.reward for row in records.rounds] == [0.0] * 60
    # The world is as severe as it says.
    assert sum(row.delivered for row in records.rounds) < 240 or severe == "a queue"
    # Any other policy has regret; on its own history the genie looks one round ahead only, and may earn less in the end.
    simulation, records = built(tables | {"policy": {"kind": "random"}})
    simulation.run()
    regret = sum(row.genie_reward - row.reward for row in records.rounds)
    assert regret > 10.0 if history == "shared" else abs(regret) > 1.0


def world(seed: int, clients: int) -> tuple[FloatArray, Callable[[int], FloatArray]]:
    """The study's latency model: half fast, half slow, floored normal."""
    half = clients // 2
    i = np.arange(1, half + 1)
    means_s = np.concatenate((TAU_MIN_S + (0.2 - TAU_MIN_S) * i / half, 0.7 + 0.2 * i / half))

    def latency_s(t: int) -> FloatArray:
        noise = np.random.default_rng([seed, 9, t]).normal(0.0, STD_S, clients)
        return np.maximum(means_s + noise, TAU_MIN_S)

    return means_s, latency_s


def total_regret(
    make: Callable[..., SelectionPolicy], seed: int, rounds: int, sizes: FloatArray, gamma: float = 5.0
) -> FloatArray:
    """Regret after each round."""
    clients, per_round = len(sizes), 2
    means_s, latencies = world(seed, clients)
    schedule, truth = GeometricSchedule(epsilon_total=40.0, eta=0.04), Clipped(means_s)
    policy = make(clients=clients, per_round=per_round, data_sizes=sizes, schedule=schedule, truth=truth)
    meter = PauseRewardMeter(clients=clients, per_round=per_round, data_sizes=sizes, schedule=schedule, truth=truth)
    releases = np.zeros(clients, np.int64)
    gaps = []
    for t in range(1, rounds + 1):
        seen, now_s = view(t, releases, seed), latencies(t)
        chosen = policy.select(seen)
        releases[chosen] += 1
        result = outcome(t, chosen, now_s)
        policy.observe(result)
        played, genie = meter.measure(result, seen, lambda k, s=now_s: s[k])  # type: ignore[misc]
        gaps.append(genie - played)
    return np.cumsum(gaps)


def pause(*, truth: object, **parameters: object) -> SelectionPolicy:
    return Pause(**parameters)  # type: ignore[arg-type]


SIZES = np.random.default_rng(1).dirichlet(np.full(6, 3.0))


def test_the_genie_played_as_a_policy_has_no_regret() -> None:
    # Data sizes are continuous, so there are no ties for its stream to break.
    np.testing.assert_array_equal(total_regret(Genie, 0, 300, SIZES), 0.0)


def test_regret_of_pause_stays_under_the_bound() -> None:
    rounds = 400
    curves = np.array([total_regret(pause, seed, rounds, SIZES) for seed in range(10)])
    mean, error = curves.mean(axis=0), curves.std(axis=0, ddof=1) / math.sqrt(len(curves))
    mu = Clipped(world(0, 6)[0]).ratios
    delta = float(np.diff(np.sort(mu)).min())
    bounds = [
        regret_bound(n, clients=6, per_round=2, delta_max=delta_max_bound(100.0, 5.0, mu), delta=delta)
        for n in range(1, rounds + 1)
    ]
    assert np.all(mean + 4.5 * error < bounds)
    # The bound is a loose one. This is not: regret grows ever more slowly, the second half adds less than the first.
    gain = curves[:, rounds // 2 - 1] - (curves[:, -1] - curves[:, rounds // 2 - 1])
    assert gain.mean() > 3 * gain.std(ddof=1) / math.sqrt(len(gain))


def test_bound_by_hand() -> None:
    assert delta_max_bound(100.0, 5.0, np.array([0.2, 0.9, 0.5])) == pytest.approx(205.7)
    # n = e^2 would give ln n = 2; n = 1 gives 0: 3 * (2 + 1) * (0 + 1 + 4 pi^2/3).
    bound = regret_bound(1, clients=3, per_round=2, delta_max=2.0, delta=1.0)
    assert bound == pytest.approx(9 * (1 + 4 * math.pi**2 / 3))
    printed = regret_bound(100, clients=3, per_round=2, delta_max=2.0, delta=0.5, c=2.0)
    assert printed == pytest.approx(3 * 2.5 * (4 * 3 * math.log(100) / 0.25 + 1 + 2 * math.pi**2 / 3))
    with pytest.raises(ValueError, match=r"^delta = 0.0: must be finite and > 0"):
        regret_bound(5, clients=3, per_round=2, delta_max=2.0, delta=0.0)
    with pytest.raises(ValueError, match=r"^n = 0: "):
        regret_bound(0, clients=3, per_round=2, delta_max=2.0, delta=0.1)


def test_state_in_mid_run_continues_exactly() -> None:
    means_s, latencies = world(3, 6)

    def fresh() -> PauseRewardMeter:
        schedule = GeometricSchedule(epsilon_total=40.0, eta=0.04)
        return PauseRewardMeter(clients=6, per_round=2, data_sizes=SIZES, schedule=schedule, truth=Clipped(means_s))

    def go(meter: PauseRewardMeter, rounds: range) -> list[tuple[float, float]]:
        rewards = []
        for t in rounds:
            now_s, chosen = latencies(t), np.random.default_rng(t).choice(6, 2, replace=False)
            releases = np.arange(6) * t // 3
            rewards.append(meter.measure(outcome(t, chosen, now_s), view(t, releases), lambda k, s=now_s: s[k]))  # type: ignore[misc]
        return rewards

    whole = fresh()
    go(whole, range(1, 20))
    state = whole.state_dict()
    later = go(whole, range(20, 40))
    for _ in range(2):
        resumed = fresh()
        resumed.load_state_dict(state)
        assert go(resumed, range(20, 40)) == later


def test_empty_round_has_no_reward() -> None:
    meter = PauseRewardMeter(
        clients=2, per_round=1, data_sizes=np.ones(2), schedule=ExplicitSchedule(epsilons=[1.0]), truth=Fixed([0.5, 0.4])
    )
    played, genie = meter.measure(outcome(1, [], np.ones(2)), view(1, np.zeros(2, np.int64)), lambda k: np.ones(len(k)))
    assert played == 0.0
    assert genie > 0.0
