"""Policies that learn from opinions: by hand, and lazy super-arm bandits against dense ones that hold all C(K, m) arms."""

from __future__ import annotations

import itertools
import math
import pickle
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from models.policies.slotted.arm_order import Arm
from models.policies.slotted.bp_index import BpIndex
from models.policies.slotted.fixed_set import FixedSet
from models.policies.slotted.quick_init_ucb import QuickInitUcb
from models.policies.slotted.random_set import RandomSet
from models.policies.slotted.round_robin import RoundRobin
from models.policies.slotted.super_arm_ucb import SuperArmUcb


@dataclass(frozen=True)
class View:
    round: int
    rng: np.random.Generator


def view(round: int, seed: int = 0) -> View:
    return View(round, np.random.default_rng((seed, round)))


class World:
    """Opinions of K clients on the model an arm trained: a mean for every arm, which its members decide, and noise."""

    def __init__(self, clients: int, seed: int, digits: int | None = None) -> None:
        self.worth = np.random.default_rng(seed).random(clients)
        self.seed, self.clients, self.digits = seed, clients, digits

    def opinions(self, round: int, arm: np.ndarray) -> np.ndarray:
        noise = np.random.default_rng((self.seed, round)).normal(0, 0.05, self.clients)
        values = np.clip(0.3 + 0.4 * self.worth[arm].mean() + 0.2 * self.worth + noise, 0, 1)
        return values if self.digits is None else np.round(values, self.digits)


def play(policy: Any, world: World, rounds: range) -> list[list[int]]:
    played = []
    for t in rounds:
        arm = policy.select(view(t, world.seed))
        played.append(arm.tolist())
        policy.observe_opinions(t, arm, world.opinions(t, arm))
    return played


class Dense:
    """Algorithm 1 as printed, with the readings: an array entry for every arm, nothing lazy."""

    def __init__(self, clients: int, per_round: int, mu: float) -> None:
        self.arms = np.array(list(itertools.combinations(range(clients), per_round)))
        self.where = {tuple(arm): i for i, arm in enumerate(self.arms.tolist())}
        self.mu = mu
        self.n = np.ones(len(self.arms))
        self.total = np.zeros(len(self.arms))

    def start(self, credit: np.ndarray) -> None:
        self.total = credit[self.arms].mean(axis=1)

    def index(self, t: int) -> np.ndarray:
        return self.total / self.n + self.mu * np.sqrt(np.log(t) / self.n)

    def learn(self, arm: np.ndarray, reward: float) -> None:
        i = self.where[tuple(arm.tolist())]
        self.n[i] += 1
        self.total[i] += reward


# --- Quick-Init UCB


def test_quick_init_by_hand() -> None:
    """Four clients, two a slot. Groups {0,1} with reward 0.8 and {2,3} with 0.4: arm means 0.8, 0.6 (four arms), 0.4."""
    policy = QuickInitUcb(clients=4, per_round=2, mu=0.0, groups="consecutive", ties="first")
    assert policy.cold_slots == 2
    assert policy.select(view(1)).tolist() == [0, 1]
    policy.observe_opinions(1, np.array([0, 1]), np.array([1.0, 0.6, 0.8, 0.8]))
    assert policy.select(view(2)).tolist() == [2, 3]
    policy.observe_opinions(2, np.array([2, 3]), np.full(4, 0.4))
    assert policy.credits == pytest.approx([0.8, 0.8, 0.4, 0.4])
    # Without exploration the best mean: {0,1} again. It earns 0.2: (0.8 + 0.2) / 2 = 0.5, below the mixed arms.
    assert policy.select(view(3)).tolist() == [0, 1]
    policy.observe_opinions(3, np.array([1, 0]), np.full(4, 0.2))
    assert (policy.repeats, policy.arms_played) == (1, 2)
    assert policy.select(view(4)).tolist() == [0, 2]
    # It earns 1: (0.6 + 1) / 2 = 0.8, and is played again.
    policy.observe_opinions(4, np.array([0, 2]), np.ones(4))
    assert policy.select(view(5)).tolist() == [0, 2]
    policy.observe_opinions(5, np.array([0, 2]), np.zeros(4))
    # (1.6 + 0) / 3 = 0.533, below the mixed arms still unplayed.
    assert policy.select(view(6)).tolist() == [1, 2]
    assert (policy.repeats, policy.arms_played) == (2, 3)


def test_own_credit() -> None:
    policy = QuickInitUcb(clients=4, per_round=2, credit="own", groups="consecutive")
    for t, opinions in ((1, [0.1, 0.2, 0.3, 0.4]), (2, [0.5, 0.6, 0.7, 0.8])):
        policy.observe_opinions(t, policy.select(view(t)), np.array(opinions))
    assert policy.credits == pytest.approx([0.1, 0.2, 0.7, 0.8])


def test_groups_that_do_not_divide() -> None:
    """Five clients in threes: the last group is filled up with the first client of the first, which gets the average credit."""
    policy = QuickInitUcb(clients=5, per_round=3, groups="consecutive")
    assert policy.cold_slots == 2
    assert policy.select(view(1)).tolist() == [0, 1, 2]
    policy.observe_opinions(1, np.arange(3), np.full(5, 0.2))
    assert policy.select(view(2)).tolist() == [0, 3, 4]
    policy.observe_opinions(2, np.array([0, 3, 4]), np.full(5, 0.6))
    assert policy.credits == pytest.approx([0.4, 0.2, 0.2, 0.6, 0.6])
    everyone = QuickInitUcb(clients=3, per_round=3)
    assert play(everyone, World(3, 0), range(1, 6)) == [[0, 1, 2]] * 5
    assert (everyone.repeats, everyone.arms_played) == (4, 1)


def test_random_groups_hold_everyone_once() -> None:
    policy = QuickInitUcb(clients=20, per_round=5)
    groups = play(policy, World(20, 3), range(1, 5))
    assert sorted(itertools.chain(*groups)) == list(range(20))
    assert groups != [list(range(i, i + 5)) for i in range(0, 20, 5)]


@pytest.mark.parametrize("credit", ["average", "own"])
@pytest.mark.parametrize("mu", [1.0, 0.1, 0.02])
@pytest.mark.parametrize(("seed", "digits", "ties"), [(0, None, "random"), (1, None, "first"), (2, 2, "random"), (3, 1, "first")])
def test_quick_init_equals_dense_enumeration(credit: Any, mu: float, seed: int, digits: int | None, ties: Any) -> None:
    """C(12, 4) = 495 arms, 300 rounds: the arm played is always one of greatest index among all arms."""
    world = World(12, seed, digits)
    policy = QuickInitUcb(clients=12, per_round=4, mu=mu, credit=credit, ties=ties)
    dense = Dense(12, 4, mu)
    credits = np.full(12, math.nan)
    seen: set[Arm] = set()
    repeats = 0
    for t in range(1, 301):
        arm = policy.select(view(t, seed))
        opinions = world.opinions(t, arm)
        if t == 4:
            dense.start(credits)
        if t > 3:
            index = dense.index(t)
            assert index[dense.where[tuple(arm.tolist())]] == pytest.approx(index.max(), abs=1e-12)
            dense.learn(arm, float(opinions.mean()))
        else:
            credits[arm] = opinions.mean() if credit == "average" else opinions[arm]
        repeats += tuple(arm.tolist()) in seen
        seen.add(tuple(arm.tolist()))
        policy.observe_opinions(t, arm, opinions)
    assert policy.repeats == repeats
    assert policy.arms_played == len(seen)
    assert repeats > 0 or mu == 1.0


def test_exploring_beyond_all_arms() -> None:
    """C(5, 2) = 10 arms, all played after some rounds; then eq. 11 among them."""
    world = World(5, 1)
    policy = QuickInitUcb(clients=5, per_round=2, mu=1.0)
    dense = Dense(5, 2, 1.0)
    for t in range(1, 200):
        arm = policy.select(view(t))
        if t == policy.cold_slots + 1:
            dense.start(policy.credits)
        if t > policy.cold_slots:
            index = dense.index(t)
            assert index[dense.where[tuple(arm.tolist())]] == pytest.approx(index.max(), abs=1e-12)
        opinions = world.opinions(t, arm)
        if t > policy.cold_slots:
            dense.learn(arm, float(opinions.mean()))
        policy.observe_opinions(t, arm, opinions)
    assert policy.arms_played == 10


def test_conventional_ucb_plays_every_arm_once_first() -> None:
    world = World(5, 2)
    policy = SuperArmUcb(clients=5, per_round=2, mu=0.3)
    first = play(policy, world, range(1, 11))
    assert sorted(map(tuple, first)) == list(itertools.combinations(range(5), 2))
    assert first != sorted(first)
    assert (policy.arms_played, policy.repeats) == (10, 0)
    dense = Dense(5, 2, 0.3)
    for t, arm in enumerate(first, start=1):
        dense.total[dense.where[tuple(arm)]] = world.opinions(t, np.array(arm)).mean()
    for t in range(11, 120):
        arm_now = policy.select(view(t, 2))
        index = dense.index(t)
        assert index[dense.where[tuple(arm_now.tolist())]] == pytest.approx(index.max(), abs=1e-12)
        opinions = world.opinions(t, arm_now)
        policy.observe_opinions(t, arm_now, opinions)
        dense.learn(arm_now, float(opinions.mean()))
    assert policy.repeats == 109


def test_conventional_ucb_needs_no_room_for_all_arms() -> None:
    policy = SuperArmUcb(clients=1000, per_round=10, order="random")
    arms = play(policy, World(1000, 0), range(1, 20))
    assert len({tuple(arm) for arm in arms}) == 19
    ordered = SuperArmUcb(clients=6, per_round=3, order="first")
    assert play(ordered, World(6, 0), range(1, 4)) == [[0, 1, 2], [0, 1, 3], [0, 2, 3]]


# --- baselines


def test_round_robin() -> None:
    policy = RoundRobin(clients=20, per_round=5, sets=[[0, 1, 10, 15, 19]], random_sets=4)
    played = play(policy, World(20, 0), range(1, 13))
    assert played[0] == [0, 1, 10, 15, 19]
    assert played[5:10] == played[:5]
    assert all(len(set(arm)) == 5 for arm in played)
    assert len({tuple(arm) for arm in played}) == 5
    fixed = RoundRobin(clients=4, per_round=2, sets=[[0, 1], [3, 2]], random_sets=0)
    assert play(fixed, World(4, 0), range(1, 4)) == [[0, 1], [2, 3], [0, 1]]


def test_random_set_plays_each_of_its_sets_alike() -> None:
    policy = RandomSet(clients=20, per_round=5, sets=[[0, 1, 10, 15, 19]], random_sets=4)
    played = [tuple(arm) for arm in play(policy, World(20, 0), range(1, 1001))]
    counts = [played.count(arm) for arm in set(played)]
    assert len(counts) == 5
    assert (0, 1, 10, 15, 19) in played
    assert all(len(set(arm)) == 5 for arm in played)
    # 1000 plays of 5 sets: 200 of each, standard deviation 12.6; four of these are too many in 1 of 3000 seeds.
    assert max(abs(count - 200) for count in counts) < 51
    # In random order: the next one is the same as often as any other, 1 in 5 of 999, standard deviation 12.6.
    assert abs(sum(now == then for now, then in itertools.pairwise(played)) - 199.8) < 51
    # The same draws, in another order than round-robin's.
    robin = RoundRobin(clients=20, per_round=5, sets=[[0, 1, 10, 15, 19]], random_sets=4)
    assert {tuple(arm) for arm in play(robin, World(20, 0), range(1, 6))} == set(played)


def test_fixed_set() -> None:
    assert play(FixedSet(clients=9, per_round=3, members=[8, 0, 4]), World(9, 0), range(1, 3)) == [[0, 4, 8]] * 2


# --- what all keep to


def made(name: str, clients: int = 11, per_round: int = 4) -> Any:
    size = {"clients": clients, "per_round": per_round}
    return {
        "quick-init": lambda: QuickInitUcb(**size, mu=0.2),
        "quick-init-own": lambda: QuickInitUcb(**size, mu=0.02, credit="own", ties="first"),
        "super-arm": lambda: SuperArmUcb(**size),
        "super-arm-small": lambda: SuperArmUcb(clients=4, per_round=2, order="first"),
        "round-robin": lambda: RoundRobin(**size, sets=[[0, 2, 4, 6]]),
        "random-set": lambda: RandomSet(**size, sets=[[0, 2, 4, 6]]),
        "fixed": lambda: FixedSet(**size, members=[1, 2, 3, 9]),
    }[name]()


NAMES = ["quick-init", "quick-init-own", "super-arm", "super-arm-small", "round-robin", "random-set", "fixed"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("stop", [1, 2, 3, 4, 60])
def test_state_round_trip(name: str, stop: int) -> None:
    """Taken out at a round boundary (before, during and after the first slots), the state continues to the same arms."""
    policy = made(name)
    world = World(4 if name.endswith("small") else 11, 7)
    play(policy, world, range(1, stop))
    state = policy.state_dict()
    kept = pickle.dumps(state)
    further = play(policy, world, range(stop, stop + 40))
    assert pickle.dumps(state) == kept
    again = made(name)
    again.load_state_dict(state)
    assert play(again, world, range(stop, stop + 40)) == further
    assert pickle.dumps(state) == kept
    assert pickle.dumps(again.state_dict()) == pickle.dumps(policy.state_dict())
    # An instance with a past of its own takes the state over whole.
    other = made(name)
    play(other, World(world.clients, 8), range(1, 30))
    other.load_state_dict(pickle.loads(kept))
    assert play(other, world, range(stop, stop + 40)) == further


@pytest.mark.parametrize("name", ["quick-init", "super-arm"])
@pytest.mark.parametrize("stop", [2, 30])
def test_state_between_select_and_observe(name: str, stop: int) -> None:
    policy, again = made(name), made(name)
    world = World(11, 7)
    play(policy, world, range(1, stop))
    arm = policy.select(view(stop, 7))
    again.load_state_dict(policy.state_dict())
    for one in (policy, again):
        one.observe_opinions(stop, arm, world.opinions(stop, arm))
    assert play(again, world, range(stop + 1, stop + 20)) == play(policy, world, range(stop + 1, stop + 20))


@pytest.mark.parametrize("name", NAMES)
def test_selects_distinct_clients_repeatably(name: str) -> None:
    clients = 4 if name.endswith("small") else 11
    policy = made(name)
    arms = play(policy, World(clients, 5), range(1, 80))
    size = len(arms[0])
    assert all(arm == sorted(set(arm)) and len(arm) == size and arm[0] >= 0 and arm[-1] < clients for arm in arms)
    assert play(made(name), World(clients, 5), range(1, 80)) == arms
    chosen = policy.select(view(80, 5))
    assert chosen.dtype == np.int64
    chosen[:] = 0
    policy.state_dict()


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: QuickInitUcb(clients=5, per_round=6), r"^per_round = 6"),
        (lambda: QuickInitUcb(clients=0, per_round=1), r"^clients = 0"),
        (lambda: QuickInitUcb(clients=5, per_round=2, mu=-1.0), r"^mu = -1.0"),
        (lambda: QuickInitUcb(clients=5, per_round=2, credit="sum"), r"^credit = 'sum': must be 'average' or 'own'"),
        (lambda: QuickInitUcb(clients=5, per_round=2, ties="last"), r"^ties = 'last': must be 'random' or 'first'"),
        (lambda: QuickInitUcb(clients=5, per_round=2, groups="odd"), r"^groups = 'odd'"),
        (lambda: SuperArmUcb(clients=5, per_round=2, mu=math.nan), r"^mu = nan"),
        (lambda: SuperArmUcb(clients=5, per_round=2, order="best"), r"^order = 'best'"),
        (lambda: RoundRobin(clients=5, per_round=2, sets=[[0, 1, 2]]), r"^sets has \[0, 1, 2\]: must be sets of 2"),
        (lambda: RoundRobin(clients=5, per_round=2, sets=[[0, 5]]), r"^sets = \[0, 5\]"),
        (lambda: RoundRobin(clients=5, per_round=2, random_sets=0), r"^random_sets = 0"),
        (lambda: RandomSet(clients=5, per_round=2, sets=[[0, 1, 2]]), r"^sets has \[0, 1, 2\]: must be sets of 2"),
        (lambda: FixedSet(clients=5, per_round=2, members=[1, 1]), r"^members = \[1, 1\]"),
        (lambda: FixedSet(clients=5, per_round=2, members=[1]), r"^members = \[1\]: must be 2 clients"),
        (lambda: FixedSet(clients=5, per_round=2, members=[]), r"^members = \[\]"),
        (lambda: BpIndex(clients=5, per_round=2, credit="group"), r"^credit = 'group'"),
        (lambda: BpIndex(clients=5, per_round=2, mu=math.inf), r"^mu = inf"),
        (lambda: BpIndex(clients=5, per_round=2).index(0, np.zeros(5)), r"^round = 0"),
        (lambda: BpIndex(clients=5, per_round=2).index(1, np.zeros(4)), r"^belief has shape \(4,\)"),
        (lambda: BpIndex(clients=5, per_round=2).observe_opinions(1, np.array([0]), np.ones(4)), r"^opinions has shape \(4,\)"),
        (
            lambda: BpIndex(clients=2, per_round=1).observe_opinions(1, np.array([0]), np.array([0.0, 1.1])),
            r"^opinions = 1.1 of client 1",
        ),
    ],
)
def test_bad_values(call: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        call()


@pytest.mark.parametrize("policy", [QuickInitUcb(clients=6, per_round=2), SuperArmUcb(clients=6, per_round=2)])
def test_observing_another_arm_is_refused(policy: Any) -> None:
    arm = policy.select(view(1))
    with pytest.raises(ValueError, match=r"^clients = .*must be those selected"):
        policy.observe_opinions(1, (arm + 1) % 6, np.ones(6))
    with pytest.raises(ValueError, match=r"^opinions = nan of client 2"):
        policy.observe_opinions(1, arm, np.array([0, 0, math.nan, 0, 0, 0]))
    policy.observe_opinions(1, arm[::-1], np.ones(6))
