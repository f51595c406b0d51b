"""Policies that send requests before they select: numbers by hand, limits, and their draws."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.errors import ParameterError
from models.laws.availability.presence import Markov
from models.laws.availability.traces import Trace
from models.policies.fedcs import FedCs, _search_quadratic, accept_greedily
from models.policies.protocols import FloatArray
from models.policies.refl import Refl
from netsim.core.reports import RoundOutcome
from netsim.core.streams import Streams
from tests.helpers.policy_views import answers, view


class Phases:
    """Expected times of training and of sending; the model takes no time."""

    def __init__(self, train_s: Any, upload_s: Any) -> None:
        self.means = {"download": np.zeros(len(train_s)), "compute": np.array(train_s), "upload": np.array(upload_s)}

    def mean_phase_s(self, phase: str, round: int, time_s: float) -> FloatArray:
        return self.means[phase]

    def mean_latency_s(self, round: int, time_s: float) -> FloatArray:
        raise NotImplementedError

    def mean_ratio(self, tau_min_s: float, round: int, time_s: float) -> FloatArray:
        raise NotImplementedError


# FedCS.


def test_greedy_by_hand() -> None:
    # (training, upload): A (1, 2), B (4, 1), C (3, 3). After A Theta is 3, after B 5, after C 8.
    none, train, upload = np.zeros(3), np.array([1.0, 4.0, 3.0]), np.array([2.0, 1.0, 3.0])
    assert accept_greedily(none, train, upload, 8.5).tolist() == [0, 1, 2]
    assert accept_greedily(none, train, upload, 8.0).tolist() == [0, 1]
    # A refusal does not end the search: B, at 5, is refused, C, at 3 + 3 = 6, too; nothing else is left.
    assert accept_greedily(none, train, upload, 5.0).tolist() == [0]
    assert accept_greedily(none, train, upload, 3.0).tolist() == []
    # The model to all takes as long as to the farthest.
    assert accept_greedily(np.array([0.0, 4.0, 0.0]), train, upload, 9.0).tolist() == [0, 2]


# Multiples of 1/8: sums and differences are exact, so that both searches see the same ties.
TIMES = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 40)), min_size=1, max_size=25)


@given(times=TIMES, limit=st.integers(1, 400), download=st.integers(0, 8))
@settings(max_examples=100)
def test_heaps_and_the_quadratic_search_agree(times: list[tuple[int, int]], limit: int, download: int) -> None:
    train, upload = (np.array(part) / 8 for part in zip(*times, strict=True))
    same = np.full(len(times), download / 8)
    assert accept_greedily(same, train, upload, limit / 8).tolist() == _search_quadratic(same, train, upload, limit / 8).tolist()


def test_who_is_in_time_is_selected_and_nobody_where_nobody_is() -> None:
    truth = Phases([1.0, 4.0, 3.0, 1.0], [2.0, 1.0, 3.0, 9.0])
    policy = FedCs(clients=4, per_round=4, truth=truth, round_s=8.5, asked=1.0)
    asked = policy.probe(view(1, np.ones(4)))
    assert asked.tolist() == [0, 1, 2, 3]
    for seed in range(20):
        assert policy.select(view(1, np.ones(4), answers(asked), seed)).tolist() == [0, 1, 2]
        # Only who has answered is known, and only who is still there can be selected.
        assert policy.select(view(1, [True, True, False, True], answers(asked, [np.nan, 1, 1, 1]), seed)).tolist() == [1]
    assert FedCs(clients=4, per_round=4, truth=truth, round_s=3.0).select(view(1, np.ones(4), answers(asked))).tolist() == []
    two = FedCs(clients=4, per_round=2, truth=truth, round_s=8.5)
    assert two.select(view(1, np.ones(4), answers(asked))).tolist() == [0, 1]
    late = FedCs(clients=4, per_round=4, truth=truth, round_s=8.5, reserve_s=0.5)
    assert late.select(view(1, np.ones(4), answers(asked))).tolist() == [0, 1]
    # Side by side: training and upload within the limit, the limit included; m of them at random.
    parallel = FedCs(clients=4, per_round=2, truth=truth, round_s=6.0, uploads="parallel")
    chosen = {tuple(parallel.select(view(1, np.ones(4), answers(asked), seed)).tolist()) for seed in range(60)}
    assert chosen == {(0, 1), (0, 2), (1, 2)}


def test_a_share_of_the_clients_is_asked() -> None:
    policy = FedCs(clients=30, per_round=3, truth=Phases(np.ones(30), np.ones(30)), round_s=9.0, asked=0.1)
    asked = [tuple(policy.probe(view(1, np.ones(30), seed=seed)).tolist()) for seed in range(50)]
    assert all(len(set(some)) == 3 for some in asked)
    assert len(set(asked)) > 40


# REFL.


class Forecast:
    def __init__(self, soon: Any, now: Any = None) -> None:
        self.soon, self.now = np.array(soon, np.float64), np.array(soon if now is None else now, np.float64)

    def forecast(self, from_s: float, to_s: float) -> FloatArray:
        assert to_s == pytest.approx(2 * from_s) or from_s == 0.0
        return self.now if from_s == 0.0 else self.soon


def test_who_will_be_away_comes_first() -> None:
    everyone = answers(np.arange(3))
    policy = Refl(clients=3, per_round=2, presence=Forecast([0.9, 0.1, 0.5]), round_s=10.0)
    assert policy.probe(view(1, [True, False, True])).tolist() == [0, 2]
    assert policy.select(view(1, np.ones(3), everyone)).tolist() == [1, 2]
    assert policy.select(view(1, np.ones(3), answers(np.arange(3), [1, np.nan, 1]))).tolist() == [0, 2]
    # Everybody always there: uniformly.
    policy = Refl(clients=3, per_round=1, presence=Forecast(np.ones(3)), round_s=10.0)
    counts = np.zeros(3)
    for seed in range(3000):
        counts[policy.select(view(1, np.ones(3), everyone, seed))] += 1
    assert np.all(np.abs(counts - 1000) < 5 * np.sqrt(3000 * 2 / 9))
    # So where shares that are the same differ in their last digits.
    policy = Refl(clients=2, per_round=1, presence=Forecast([1.0, 1.0 - 1e-14]), round_s=10.0)
    assert {int(policy.select(view(1, np.ones(2), answers(np.arange(2)), seed))[0]) for seed in range(30)} == {0, 1}
    # As the code does: there throughout the next slot, and not throughout the one after it.
    coded = Refl(clients=3, per_round=1, presence=Forecast([0.0, 0.3, 1.0], [0.5, 1.0, 1.0]), round_s=10.0, priority=True)
    assert {int(coded.select(view(1, np.ones(3), everyone, seed))[0]) for seed in range(30)} == {1}


def test_who_leaves_by_a_trace_that_repeats_has_priority(tmp_path: Path) -> None:
    # Client 0 leaves in the slot after the next, client 1 in the next, client 2 stays. By rounding they are there for all but
    # 1e-14 of the next slot.
    period_s, hour_s, slot_s = 47208.59, 1567.84, 35.63
    ends = [hour_s + slots * slot_s for slots in (1.5, 0.5, 3.0)]
    lines = [f"{client},66.25,702.12\n{client},{hour_s - 1},{end}" for client, end in enumerate(ends)]
    path = tmp_path / "trace.csv"
    path.write_text("\n".join(["client,start_s,end_s", *lines]))
    presence = Trace(clients=3, path=str(path), repeat_s=period_s)
    now_s = 5 * period_s + hour_s
    presence.advance(now_s, Streams(1)["presence"])
    assert presence.forecast(now_s, now_s + slot_s)[0] < 1.0
    policy = Refl(clients=3, per_round=1, presence=presence, round_s=slot_s, priority=True)
    everyone = answers(np.arange(3))
    assert {int(policy.select(view(1, np.ones(3), everyone, seed, now_s))[0]) for seed in range(30)} == {0}


class InOrder:
    """Who has the lower number will be there less."""

    def forecast(self, from_s: float, to_s: float) -> FloatArray:
        return np.linspace(0.0, 1.0, 6)


def test_updates_under_way_that_are_expected_take_places() -> None:
    # Rounds of 10 s, m = 3, everybody answers.
    policy = Refl(clients=6, per_round=3, presence=InOrder(), round_s=10.0, adaptive=True)

    def selected(round: int, idle: list[int]) -> list[int]:
        able = np.isin(np.arange(6), idle)
        return policy.select(view(round, able, answers(idle), time_s=10.0 * (round - 1))).tolist()

    def told(round: int, clients: list[int], latency_s: list[float], lost: tuple[int, ...] = ()) -> None:
        who, start_s = np.array(clients, np.int64), 10.0 * (round - 1)
        policy.observe(RoundOutcome(round, start_s, start_s + 10.0, who, np.array(latency_s), np.isin(who, lost)))

    assert selected(1, [0, 1, 2, 3, 4, 5]) == [0, 1, 2]
    told(1, [0, 1], [4.0, 8.0])
    # Client 2 has delivered nothing yet: as the others, after 6 s, it is overdue, and expected in the next 10 s.
    assert (policy.count_expected(10.0), selected(2, [0, 1, 3, 4, 5])) == (1, [0, 1])
    told(2, [2, 0], [19.0, 7.0])
    # Of client 1, which took 8 s last, an update is under way since 10 s.
    assert (policy.count_expected(20.0), selected(3, [0, 2, 3, 4, 5])) == (1, [0, 2])
    told(3, [1, 0], [18.0, 30.0], lost=(0,))
    # Client 2 took 19 s last: it began at 20 s, and is expected at 39 s.
    assert (policy.count_expected(28.9), policy.count_expected(29.0)) == (0, 1)
    # A lost update is not under way any more, and tells no latency: of 0 it is 7 s still.
    assert (policy.count_expected(30.0), selected(4, [0, 1, 3, 4, 5])) == (1, [0, 1])
    told(4, [], [])
    # 0, 1 and 2 under way: 1 took 18 s, begun at 30 s. One is selected at least.
    assert (policy.count_expected(40.0), selected(5, [3, 4, 5])) == (3, [3])
    resumed = Refl(clients=6, per_round=3, presence=InOrder(), round_s=1.0, adaptive=True)
    resumed.load_state_dict(policy.state_dict())
    assert resumed.count_expected(50.0) == policy.count_expected(50.0) == 4
    # Who can be selected has nothing under way.
    selected(6, [0, 1, 2, 3, 4, 5])
    assert policy.count_expected(50.0) == 1


def test_without_an_adaptive_target_nobody_takes_a_place() -> None:
    policy = Refl(clients=6, per_round=2, presence=InOrder(), round_s=10.0)
    policy.select(view(1, [True, *[False] * 5], answers([0])))
    assert policy.count_expected(10.0) == 1
    assert policy.select(view(2, [False, *[True] * 5], answers([1, 2]))).tolist() == [1, 2]


def test_the_newest_round_counts_most() -> None:
    policy = Refl(clients=2, per_round=1, presence=Forecast([1.0, 1.0]), round_s=10.0)
    for round, length_s in ((1, 10.0), (2, 20.0)):
        policy.observe(RoundOutcome(round, 5.0, 5.0 + length_s, np.array([0]), np.ones(1), np.zeros(1, np.bool_)))
    assert policy.mean_round_s == 17.5
    resumed = Refl(clients=2, per_round=1, presence=Forecast([1.0, 1.0]), round_s=1.0)
    resumed.load_state_dict(policy.state_dict())
    assert resumed.mean_round_s == 17.5


def test_forecasts_of_traces_are_exact(tmp_path: Path) -> None:
    path = tmp_path / "presence.csv"
    path.write_text("client,on_s,off_s\n0,0,3\n0,8,10\n1,2,5\n2,6,9\n")
    law = Trace(clients=4, path=str(path), repeat_s=10.0)
    law.advance(1.0, Streams(1)["availability"])
    # [4, 14]: client 0 is there in [8, 13], client 1 in [4, 5] and [12, 14], client 2 in [6, 9].
    assert law.forecast(4.0, 14.0) == pytest.approx([0.5, 0.3, 0.3, 0.0])
    assert law.forecast(2.0, 2.5) == pytest.approx([1.0, 1.0, 0.0, 0.0])
    # By small steps, over several periods.
    steps = np.arange(3.0, 37.0, 0.25) + 0.125
    there = np.zeros(4)
    walked = Trace(clients=4, path=str(path), repeat_s=10.0)
    for time_s in steps:
        walked.advance(float(time_s), Streams(1)["availability"])
        there += walked.on
    assert law.forecast(3.0, 37.0) == pytest.approx(there / len(steps))


def test_forecasts_of_random_presence_are_its_expectation() -> None:
    # 4,000 clients of one law, all present at 0: the mean share in [1, 3] is estimated to 1 % or so.
    law = Markov(clients=4000, mean_on_s=2.0, mean_off_s=1.0, start="on")
    draws = Streams(3)["availability"]
    law.advance(0.0, draws)
    forecast = law.forecast(1.0, 3.0)
    assert np.ptp(forecast) == 0.0
    times = np.arange(1.0, 3.0, 0.05) + 0.025
    seen = []
    for time_s in times:
        law.advance(float(time_s), draws)
        seen.append(law.on.copy())
    shares = np.mean(seen, axis=0)
    assert abs(shares.mean() - forecast[0]) < 5 * shares.std() / np.sqrt(4000)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: FedCs(clients=3, per_round=1, truth=Phases([1], [1]), round_s=0.0), "round_s"),
        (lambda: FedCs(clients=3, per_round=1, truth=Phases([1], [1]), round_s=1.0, asked=1.1), "asked"),
        (lambda: FedCs(clients=3, per_round=1, truth=Phases([1], [1]), round_s=1.0, uploads="both"), "uploads"),  # type: ignore[arg-type]
        (lambda: FedCs(clients=3, per_round=1, truth=Phases([1], [1]), round_s=1.0, reserve_s=-1.0), "reserve_s"),
        (lambda: FedCs(clients=3, per_round=1, truth=Phases([1], [1]), round_s=1.0, reserve_s=1.0), "reserve_s"),
        (lambda: Refl(clients=3, per_round=1, presence=Forecast([1]), round_s=0.0), "round_s"),
        (lambda: Refl(clients=3, per_round=1, presence=Forecast([1]), round_s=1.0, memory=2.0), "memory"),
    ],
)
def test_bad_values_are_refused(make: Any, name: str) -> None:
    with pytest.raises(ParameterError) as error:
        make()
    assert error.value.name == name
