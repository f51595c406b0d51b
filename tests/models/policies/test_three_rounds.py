"""Every method of selection over three rounds of four clients, worked out by hand; settings leave nothing to chance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from models.policies.active_fl import ActiveFl
from models.policies.fedcs import FedCs
from models.policies.oort.oort import Oort
from models.policies.oort.parameters import OortParameters
from models.policies.pause.bsfl import Bsfl
from models.policies.pause.parameters import SpeedAndGeneralization
from models.policies.pisces import Pisces
from models.policies.power_of_choice import PowerOfChoice
from models.policies.protocols import FloatArray
from models.policies.refl import Refl
from models.policies.tifl import Tifl
from models.privacy import NoSchedule
from netsim.core.protocols import RoundView
from netsim.core.reports import Probed, Reports, RoundOutcome

ALL = (0, 1, 2, 3)
NAN = math.nan


class World:
    """What clients are expected to take, and to be present."""

    def __init__(self, train_s: Sequence[float] = (1, 1, 1, 1), upload_s: Sequence[float] = (0, 0, 0, 0)) -> None:
        self.means = {"download": np.zeros(4), "compute": np.array(train_s, float), "upload": np.array(upload_s, float)}
        self.soon: FloatArray = np.zeros(4)
        self.windows: list[tuple[float, float]] = []

    def mean_phase_s(self, phase: str, round: int, time_s: float) -> FloatArray:
        return self.means[phase]

    def mean_latency_s(self, round: int, time_s: float) -> FloatArray:
        return sum(self.means.values(), np.zeros(4))

    def mean_ratio(self, tau_min_s: float, round: int, time_s: float) -> FloatArray:
        raise NotImplementedError

    def forecast(self, from_s: float, to_s: float) -> FloatArray:
        self.windows.append((from_s, to_s))
        return self.soon


def selected(policy: Any, number: int, able: Sequence[int] = ALL, probed: Probed | None = None) -> list[int]:
    present = np.zeros(4, np.bool_)
    present[list(able)] = True
    rng = np.random.default_rng(number)
    view = RoundView(number, 0.0, present, np.zeros(4, np.int64), rng, probed or Probed.without_clients())
    chosen: list[int] = policy.select(view).tolist()
    return chosen


def answers(losses: Sequence[float] = (0, 0, 0, 0)) -> Probed:
    """Of all four; NaN: silent."""
    told = np.array(losses, float)
    return Probed(clients=np.arange(4), answered=~np.isnan(told), loss=told, elapsed_s=np.ones(4))


def tell(
    policy: Any, number: int, clients: Sequence[int], *, took_s: Sequence[float] = (1, 1), **reports: Sequence[float]
) -> None:
    told = Reports.nothing(len(clients))
    for name, values in reports.items():
        getattr(told, name)[:] = values
    whole_s = max(took_s)
    cut = np.zeros(len(clients), np.bool_)
    latency_s = np.array(took_s[: len(clients)], float)
    policy.observe(RoundOutcome(number, 0.0, whole_s, np.array(clients), latency_s, cut, None, lambda: told))


@pytest.mark.parametrize(
    ("pacer", "scores", "third"),
    [
        # U = (10, 6, 2, 8) scaled by 0.999 x 2 and 10, plus sqrt(0.1 ln 3 / L), L = (1, 1, 2, 2).
        ({"pacer": "none"}, [1.3315, 0.8316, 0.2346, 0.9844], [0, 3]),
        # Client 0 took 4 s, of 2 s wanted: a quarter of its score.
        ({"pacer": "seconds", "target_s": 2.0, "step_s": 1.0}, [0.3329, 0.8316, 0.2346, 0.9844], [1, 3]),
    ],
)
def test_oort(pacer: dict[str, Any], scores: list[float], third: list[int]) -> None:
    parameters = OortParameters(exploration=0.0, least_exploration=0.0, cut_off=1.0, **pacer)
    policy = Oort(clients=4, per_round=2, data_sizes=np.ones(4), truth=World(), parameters=parameters)
    assert selected(policy, 1, (0, 1)) == [0, 1]
    tell(policy, 1, (0, 1), loss_rms=(10, 6), took_s=(4, 1))
    assert selected(policy, 2, (2, 3)) == [2, 3]
    tell(policy, 2, (2, 3), loss_rms=(2, 8))
    assert policy.scores(np.ones(4, np.bool_), 3) == pytest.approx(scores, abs=5e-5)
    assert selected(policy, 3) == third


def test_power_of_choice() -> None:
    policy = PowerOfChoice(clients=4, per_round=2, data_sizes=np.ones(4), candidates=4)
    assert selected(policy, 1, ALL, answers((1, 2, 3, 4))) == [2, 3]
    assert selected(policy, 2, ALL, answers((9, 2, 3, 4))) == [0, 3]
    # Who is silent, and who has gone since, is not selected.
    assert selected(policy, 3, (0, 1, 3), answers((1, 2, 9, NAN))) == [0, 1]


def test_active_fl() -> None:
    # v = sqrt(n) loss: (2, 6, 3, 4); half of the clients, those of least v, are set aside.
    sizes = np.array([1.0, 4.0, 9.0, 16.0])
    policy = ActiveFl(clients=4, per_round=2, data_sizes=sizes, alpha1=0.5, alpha2=1.0, alpha3=0.0, unseen="first")
    assert selected(policy, 1, (0, 1)) == [0, 1]
    tell(policy, 1, (0, 1), loss=(2, 3))
    # In round 2 those come first of whom nothing is known.
    assert selected(policy, 2) == [2, 3]
    tell(policy, 2, (2, 3), loss=(1, 1))
    assert policy.valuations.tolist() == [2, 6, 3, 4]
    assert selected(policy, 3) == [1, 3]


def test_pisces() -> None:
    policy = Pisces(clients=4, per_round=2, data_sizes=np.full(4, 100.0), exploration=0.0, least_exploration=0.0)
    assert selected(policy, 1, (0, 1)) == [0, 1]
    tell(policy, 1, (0, 1), loss_rms=(2.0, 0.9), staleness=(3, 0))
    assert selected(policy, 2, (2, 3)) == [2, 3]
    tell(policy, 2, (2, 3), loss_rms=(1.5, 3.3), staleness=(0, 8))
    # 200 / 2, 90, 150, 330 / 3.
    assert policy.scores() == pytest.approx([100, 90, 150, 110])
    assert selected(policy, 3) == [2, 3]
    tell(policy, 3, (2, 3), loss_rms=(1.5, 3.3), staleness=(3, 8))
    # The mean staleness of client 2 is 1.5 by now.
    assert policy.scores() == pytest.approx([100, 90, 150 / math.sqrt(2.5), 110])
    assert selected(policy, 4) == [0, 3]


def test_refl() -> None:
    world = World()
    policy = Refl(clients=4, per_round=2, presence=world, round_s=10.0)
    for number, soon, losses, expected, took_s in (
        (1, (0.9, 0.1, 0.5, 0.2), (0, 0, 0, 0), [1, 3], 20.0),
        (2, (0.1, 0.9, 0.5, 0.8), (0, 0, 0, 0), [0, 2], 10.0),
        (3, (0.1, 0.9, 0.5, 0.8), (NAN, 0, 0, 0), [2, 3], 1.0),
    ):
        world.soon = np.array(soon)
        assert selected(policy, number, ALL, answers(losses)) == expected
        tell(policy, number, expected, took_s=(took_s, took_s))
    # mu is three quarters of the last round: 10, then 17.5, then 11.875.
    assert world.windows == [(10.0, 20.0), (17.5, 35.0), (11.875, 23.75)]


def test_tifl() -> None:
    policy = Tifl(clients=4, per_round=2, timeout_s=100.0, tiers=2, probabilities=[1.0, 0.0])
    rng, everyone = np.random.default_rng(1), np.ones(4, np.bool_)
    asked = policy.probe(RoundView(1, 0.0, everyone, np.zeros(4, np.int64), rng))
    profile = Probed(clients=asked, answered=everyone, loss=np.full(4, NAN), elapsed_s=np.array([3.0, 1.0, 4.0, 2.0]))
    assert len(policy.probe(RoundView(1, 0.0, everyone, np.zeros(4, np.int64), rng, profile))) == 0
    # Tiers: 1 and 3, which take 1 and 2 s; 0 and 2.
    assert policy.tier_of.tolist() == [1, 0, 1, 0]
    assert selected(policy, 1) == [1, 3]
    # Client 3 has gone: the slower tier fills up.
    assert selected(policy, 2, (0, 1)) == [0, 1]
    assert selected(policy, 3) == [1, 3]


def test_fedcs() -> None:
    # (training, upload): (1, 2), (4, 1), (3, 3), (1, 9) s; uploads one after the other within 8.5 s.
    policy = FedCs(clients=4, per_round=4, truth=World((1, 4, 3, 1), (2, 1, 3, 9)), round_s=8.5, asked=1.0)
    # Client 0 is done at 3, 1 at 5, 2 at 8 s.
    assert selected(policy, 1, ALL, answers()) == [0, 1, 2]
    # Without client 0 the second takes 5 s, the third 3 more.
    assert selected(policy, 2, ALL, answers((NAN, 0, 0, 0))) == [1, 2]
    # 1 + 9 s are too much: nobody.
    assert selected(policy, 3, ALL, answers((NAN, NAN, NAN, 0))) == []


def test_bsfl() -> None:
    weights = SpeedAndGeneralization(tau_min_s=1.0, alpha=0.0)
    policy = Bsfl(clients=4, per_round=2, data_sizes=np.ones(4), schedule=NoSchedule(), weights=weights)
    took_s = (8.0, 2.0, 4.0, 1.0)
    first = selected(policy, 1)
    tell(policy, 1, first, took_s=[took_s[client] for client in first])
    # Then those that are not known.
    second = selected(policy, 2)
    assert sorted(first + second) == [0, 1, 2, 3]
    tell(policy, 2, second, took_s=[took_s[client] for client in second])
    # Ratios 1/8, 1/2, 1/4, 1, each once: all have the same bound, and the two fastest the greatest least index.
    assert selected(policy, 3) == [1, 3]
