"""M-Exp3 with lazy weights: against all weights written out, its draws, and its numbers far out."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.stats import chisquare

from models.schedulers.m_exp3 import MExp3, tune_gamma
from models.schedulers.super_arm_weights import SuperArmWeights


@dataclass
class View:
    round: int
    ages: np.ndarray
    contribution: np.ndarray
    rng: np.random.Generator


def view(round: int, clients: int, rng: np.random.Generator) -> View:
    return View(round, np.ones(clients, np.int64), np.ones(clients), rng)


class Dense:
    """Algorithm 1 line by line over all C weights, in extended precision, whose range takes them all, and Exp3.S's sharing."""

    def __init__(self, clients: int, channels: int, gamma: float, unit: int, share: float) -> None:
        self.arms = list(itertools.combinations(range(channels), clients))
        self.place = {arm: i for i, arm in enumerate(self.arms)}
        self.w = np.ones(len(self.arms), np.longdouble)
        self.gamma, self.unit, self.share = np.longdouble(gamma), unit, np.longdouble(share)

    def probabilities(self) -> np.ndarray:
        return (1 - self.gamma) * self.w / self.w.sum() + self.gamma / len(self.arms)

    def learn(self, arm: tuple[int, ...], good: int) -> None:
        i, total = self.place[arm], self.w.sum()
        estimate = np.longdouble(good) / self.unit / self.probabilities()[i]
        self.w[i] *= np.exp(self.gamma * estimate / len(self.arms))
        self.w += np.exp(np.longdouble(1)) * self.share / len(self.arms) * total


@pytest.mark.parametrize(
    ("clients", "channels", "gamma", "normalize", "share"),
    [(2, 5, 0.5, True, 0.0), (2, 5, 0.5, False, 0.0), (2, 4, 0.3, True, 1e-3), (3, 5, 0.2, False, 1e-4), (1, 3, 1.0, True, 0.1)],
)
def test_lazy_probabilities_are_the_dense_ones(clients: int, channels: int, gamma: float, normalize: bool, share: float) -> None:
    rng = np.random.default_rng(17)
    # Every arm is the best for a while, so that weights overtake one another.
    means = rng.random((4, channels))
    scheduler = MExp3(clients=clients, channels=channels, gamma=gamma, normalize=normalize, share=share)
    dense = Dense(clients, channels, gamma, clients if normalize else 1, share)
    apart = 0.0
    rounds = 2500
    for t in range(1, rounds + 1):
        now = view(t, clients, rng)
        channels_ = scheduler.assign(now)
        good = rng.random(clients) < means[(t * 4) // (rounds + 1)][channels_]
        arm = tuple(sorted(channels_.tolist()))
        scheduler.observe(now, channels_, good)
        dense.learn(arm, int(good.sum()))
        if t % 10 == 0 or t < 50:
            exact = dense.probabilities()
            lazy = np.array([scheduler.probability(each) for each in dense.arms])
            apart = max(apart, float(np.abs(lazy - exact).max()))
    assert apart <= 1e-12
    # The weights have gone somewhere (not where gamma = 1 leaves no say to them).
    assert gamma == 1.0 or np.ptp(exact) > 0.01


@pytest.mark.parametrize("share", [0.0, 2e-3])
@pytest.mark.parametrize(("clients", "channels"), [(2, 5), (3, 6)])
def test_draws_follow_the_probabilities(clients: int, channels: int, share: float) -> None:
    rng = np.random.default_rng(23)
    scheduler = MExp3(clients=clients, channels=channels, gamma=0.2, share=share)
    means = np.linspace(0.9, 0.1, channels)
    for t in range(1, 1500):
        now = view(t, clients, rng)
        chosen = scheduler.assign(now)
        scheduler.observe(now, chosen, rng.random(clients) < means[chosen])
    arms = list(itertools.combinations(range(channels), clients))
    p = np.array([scheduler.probability(arm) for arm in arms])
    assert p.sum() == pytest.approx(1.0, abs=1e-12)
    assert p.max() > 3 * p.min()
    place = {arm: i for i, arm in enumerate(arms)}
    counts = np.zeros(len(arms))
    draws = 8000
    for _ in range(draws):
        counts[place[tuple(sorted(scheduler.assign(view(1500, clients, rng)).tolist()))]] += 1
    assert chisquare(counts, draws * p).pvalue > 1e-3


def test_one_round_by_hand() -> None:
    # N = 3, K = 2, gamma = 1/2: p = 1/3 each; two Good give w = exp(1/2 (2/2) / (1/3 3)) = sqrt(e).
    scheduler = MExp3(clients=2, channels=3, gamma=0.5)
    now = view(1, 2, np.random.default_rng(0))
    chosen = scheduler.assign(now)
    assert scheduler.probability([0, 1]) == pytest.approx(1 / 3)
    scheduler.observe(now, chosen, np.array([True, True]))
    w = math.sqrt(math.e)
    assert scheduler.probability(chosen.tolist()) == pytest.approx(0.5 * w / (2 + w) + 1 / 6)
    # The paper's line: reward 2, w = e.
    scheduler = MExp3(clients=2, channels=3, gamma=0.5, normalize=False)
    chosen = scheduler.assign(now)
    scheduler.observe(now, chosen, np.array([True, True]))
    assert scheduler.probability(chosen.tolist()) == pytest.approx(0.5 * math.e / (2 + math.e) + 1 / 6)


def test_thirty_choose_twenty_is_exact_and_small() -> None:
    clients, channels = 20, 30
    arms = math.comb(channels, clients)
    assert arms == 30_045_015
    rng = np.random.default_rng(1)
    scheduler = MExp3(clients=clients, channels=channels)
    used = np.zeros(channels)
    for t in range(1, 2001):
        now = view(t, clients, rng)
        chosen = scheduler.assign(now)
        used[chosen] += 1
        assert len(set(chosen.tolist())) == clients
        scheduler.observe(now, chosen, np.ones(clients, bool))
        if t == 1:
            # p C = 1, so w = exp(gamma).
            w = math.exp(0.5)
            exact = 0.5 * w / (arms - 1 + w) + 0.5 / arms
            assert scheduler.probability(chosen.tolist()) == pytest.approx(exact, rel=1e-12)
    assert len(scheduler._weights) <= 2000
    # Weights of e^(1/2) among 30 million: draws are uniform to a part in 10,000. Each channel is in 2/3 of the sets.
    assert np.abs(used - 2000 * 2 / 3).max() < 4.5 * math.sqrt(2000 * 2 / 9)


def test_rounds_in_which_others_decided_teach_means_only_where_the_drawn_arm_is_credited() -> None:
    rng = np.random.default_rng(0)
    scheduler = MExp3(clients=2, channels=4, credit="drawn")
    now = view(1, 2, rng)
    drawn = scheduler.assign(now).tolist()
    other = [c for c in range(4) if c not in drawn]
    scheduler.observe(now, np.array([drawn[0], other[0]]), np.array([True, True]))
    assert len(scheduler._weights) == 0
    assert scheduler.means()[other[0]] == 1.0
    # One of the two channels used, which counts as the drawn arm with a Bad channel.
    drawn = scheduler.assign(now).tolist()
    scheduler.observe(now, np.array(drawn[:1]), np.array([True]))
    w = math.exp(0.5 * 0.5)
    assert scheduler.probability(drawn) == pytest.approx(0.5 * w / (5 + w) + 0.5 / 6)
    # Without a draw there is nothing to credit.
    before = scheduler.probability(drawn)
    scheduler.observe(now, np.array(drawn), np.array([True, True]))
    assert scheduler.probability(drawn) == before


def test_an_overridden_round_credits_the_set_that_was_used_by_its_own_probability() -> None:
    scheduler = MExp3(clients=2, channels=4, credit="played")
    now = view(1, 2, np.random.default_rng(0))
    drawn = scheduler.assign(now).tolist()
    other = [c for c in range(4) if c not in drawn]
    used = [other[0], drawn[0]]
    # p = 1/6 of each of 6 arms, one Good of two: w = exp(1/2 1/2) for the set used and for no other.
    scheduler.observe(now, np.array(used), np.array([True, False]))
    w = math.exp(0.25)
    assert len(scheduler._weights) == 1
    assert scheduler.probability(used) == pytest.approx(0.5 * w / (5 + w) + 0.5 / 6)
    assert scheduler.probability(drawn) == pytest.approx(0.5 / (5 + w) + 0.5 / 6)
    # Again, now with p C = 3 w / (5 + w) + 1/2: the estimate is by the probability of the set that was used.
    scheduler.assign(now)
    scheduler.observe(now, np.array(used), np.array([True, True]))
    w *= math.exp(0.5 / (3 * w / (5 + w) + 0.5))
    assert scheduler.probability(used) == pytest.approx(0.5 * w / (5 + w) + 0.5 / 6)
    # Fewer channels than clients are no arm, unless the drawn one holds them all.
    chances = [scheduler.probability(arm) for arm in itertools.combinations(range(4), 2)]
    drawn = scheduler.assign(now).tolist()
    scheduler.observe(now, np.array([c for c in range(4) if c not in drawn][:1]), np.array([True]))
    assert [scheduler.probability(arm) for arm in itertools.combinations(range(4), 2)] == chances
    drawn = scheduler.assign(now).tolist()
    before = scheduler.probability(drawn)
    scheduler.observe(now, np.array(drawn[:1]), np.array([True]))
    assert scheduler.probability(drawn) > before
    # Without a draw, too: a wrapper may not have asked.
    before = scheduler.probability(used)
    scheduler.observe(now, np.array(used), np.array([True, True]))
    assert scheduler.probability(used) > before


def test_credit_makes_no_difference_where_nobody_overrides() -> None:
    rng = np.random.default_rng(8)
    means = np.array([0.9, 0.6, 0.3, 0.2])
    one, two = (MExp3(clients=2, channels=4, gamma=0.2, credit=credit) for credit in ("drawn", "played"))
    for t in range(1, 400):
        chosen = [scheduler.assign(view(t, 2, np.random.default_rng([3, t]))) for scheduler in (one, two)]
        np.testing.assert_array_equal(*chosen)
        good = rng.random(2) < means[chosen[0]]
        for scheduler in (one, two):
            scheduler.observe(view(t, 2, rng), chosen[0], good)
    assert [one.probability(arm) for arm in one_of_four()] == [two.probability(arm) for arm in one_of_four()]


def one_of_four() -> list[tuple[int, int]]:
    return list(itertools.combinations(range(4), 2))


def test_tuned_gamma_by_hand() -> None:
    # N = 5, K = 2: C = 10; 10 ln 10 / ((e - 1) 20000) = 23.0259 / 34365.6 = 0.00067002, whose root is 0.025885.
    assert tune_gamma(20_000, clients=2, channels=5) == pytest.approx(0.025885, abs=5e-7)
    assert MExp3(clients=2, channels=5, rounds=20_000, gamma="tuned").gamma == tune_gamma(20_000, clients=2, channels=5)
    assert tune_gamma(13, clients=2, channels=5) == 1.0
    assert tune_gamma(14, clients=2, channels=5) == pytest.approx(math.sqrt(23.02585 / (math.e - 1) / 14))
    assert tune_gamma(9, clients=3, channels=3) == 1.0
    assert MExp3(clients=2, channels=5, gamma=0.3, rounds=20_000).gamma == 0.3


def test_gamma_tuned_to_the_horizon_keeps_the_regret_of_successes_below_eq_19() -> None:
    # An arm is good all the time, the others never: the loss to it is that of exploring and of finding it.
    clients, channels, rounds = 1, 4, 3000
    bound = 2 * math.sqrt(math.e - 1) * math.sqrt(rounds * channels * math.log(channels))
    lost = {}
    for gamma in ("tuned", 0.5):
        rng = np.random.default_rng(5)
        scheduler = MExp3(clients=clients, channels=channels, rounds=rounds, gamma=gamma)
        missed = 0
        for t in range(1, rounds + 1):
            now = view(t, clients, rng)
            chosen = scheduler.assign(now)
            good = chosen == 2
            missed += int(not good[0])
            scheduler.observe(now, chosen, good)
        lost[gamma] = missed
    # A bound on the expectation; a single run is below it by far, and the untuned one above.
    assert lost["tuned"] < bound < lost[0.5]


def test_ranked_by_historical_mean() -> None:
    class BestFirst:
        def match(self, view: object, ranked: list[int]) -> list[int]:
            return ranked

        def state_dict(self) -> dict[str, object]:
            return {}

        def load_state_dict(self, state: dict[str, object]) -> None:
            pass

    scheduler = MExp3(clients=3, channels=3, matcher=BestFirst())
    now = view(1, 3, np.random.default_rng(0))
    scheduler.observe(now, np.array([0, 1, 2]), np.array([False, True, True]))
    scheduler.observe(now, np.array([0, 2]), np.array([True, False]))
    scheduler.observe(now, np.array([0]), np.array([False]))
    assert scheduler.assign(now).tolist() == [1, 2, 0]


def test_no_weight_is_lost_beside_far_larger_ones() -> None:
    weights = SuperArmWeights(count=10)
    for _ in range(5000):
        weights.update((0, 1), 1.0, 0.0)
    # w of (0, 1) is e^5000: the others are 0 beside it as far as probabilities go.
    weights.update((2, 3), 7.0, 0.0)
    assert weights.relative((2, 3)) == 0.0
    assert weights.relative((0, 1)) == pytest.approx(10.0)
    # And yet (2, 3) goes on from e^7, to e^5001.
    for _ in range(4994):
        weights.update((2, 3), 1.0, 0.0)
    assert weights.relative((2, 3)) / weights.relative((0, 1)) == pytest.approx(math.e, rel=1e-9)
    assert weights.pick(0.0) == (0, 1)
    assert weights.pick(0.2) == (0, 1)
    assert weights.pick(0.3) == (2, 3)
    assert weights.pick(math.nextafter(1.0, 0.0)) == (2, 3)


def test_a_single_gain_may_exceed_what_exp_can_hold() -> None:
    weights = SuperArmWeights(count=3)
    weights.update((0,), 2000.0, 0.0)
    weights.update((1,), 2001.0, 0.0)
    assert weights.relative((1,)) == pytest.approx(3 * math.e / (1 + math.e), rel=1e-9)


def test_sharing_lifts_undrawn_arms() -> None:
    # Exp3.S: (w, 1, 1) with w = e becomes w + a, 1 + a, 1 + a with a = e share / 3 times the sum of before, 3.
    weights = SuperArmWeights(count=3)
    weights.update((0,), 1.0, 0.25)
    a = math.e * 0.25
    total = math.e + 2 + 3 * a
    assert weights.relative((0,)) == pytest.approx(3 * (math.e + a) / total)
    assert weights.relative((2,)) == pytest.approx(3 * (1 + a) / total)
    assert weights.common_share == pytest.approx(3 * (1 + a) / total)


def test_picks_follow_the_stored_weights_over_many_arms() -> None:
    rng = np.random.default_rng(3)
    weights = SuperArmWeights(count=10**9)
    gains = rng.random(1000) * 4
    for arm, gain in enumerate(gains.tolist()):
        weights.update((arm,), gain, 0.0)
    expected = np.expm1(gains)
    counts = np.zeros(1000)
    for u in rng.random(100_000).tolist():
        counts[weights.pick(u)[0]] += 1
    assert chisquare(counts, 100_000 * expected / expected.sum()).pvalue > 1e-3


@pytest.mark.parametrize("share", [0.0, 1e-2])
def test_state_of_weights_round_trip(share: float) -> None:
    rng = np.random.default_rng(4)
    one = SuperArmWeights(count=500)
    for _ in range(800):
        one.update((int(rng.integers(40)),), float(rng.random() * 3), share)
    saved = one.state_dict()
    two = SuperArmWeights(count=500)
    two.load_state_dict(saved)
    for _ in range(300):
        arm, gain, u = int(rng.integers(60)), float(rng.random()), float(rng.random())
        assert one.relative((arm,)) == two.relative((arm,))
        assert one.pick(u) == two.pick(u)
        for weights in (one, two):
            weights.update((arm,), gain, share)
    np.testing.assert_equal(one.state_dict(), two.state_dict())
