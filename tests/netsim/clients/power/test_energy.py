"""Energy: the integral of power against accounts by hand, presence and charging that come in any order, and refusals."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from models.laws.availability.presence import Always, Markov
from models.laws.availability.traces import Trace
from netsim.clients.power.battery import Batteries
from netsim.clients.power.energy import Energy, FollowedPresence
from netsim.clients.power.power_integral import COMPUTING, IDLE, RECEIVING, SENDING, ActivityEnergy, PowerIntegral
from netsim.clients.power.powers import Powers
from netsim.core.streams import Streams
from tests.helpers.random_worlds import copied, same

STREAMS = Streams(5)
PRESENCE, CHARGING = STREAMS["availability"], STREAMS["energy.charging"]


def powers(clients: int = 2, **watts: float) -> Powers:
    given = {"idle_w": 1.0, "compute_w": 5.0, "send_w": 3.0, "receive_w": 2.0, "off_w": 0.0} | watts
    return Powers(**{name: np.full(clients, value) for name, value in given.items()})


def attempt(client: int = 0, away_s: float = math.inf) -> Any:
    return SimpleNamespace(client=client, drawing=IDLE, metered_s=0.0, away_s=away_s, departure_s=away_s)


def intervals(path: Any, lines: str) -> Trace:
    path.write_text("client,on_s,off_s\n" + lines)
    return Trace(clients=2, path=str(path))


def test_the_integral_of_written_out_power() -> None:
    it = PowerIntegral()
    it.change(COMPUTING, 5.0, 1.0)
    it.change(SENDING, 2.0, 3.0)
    it.change(COMPUTING, -5.0, 4.0)
    assert it.joules(4.0) == [0.0, 0.0, 15.0, 2.0]
    # Two that end by themselves, one of them before it is asked for.
    it.plan(COMPUTING, np.array([1.0, 2.0]), np.array([4.0, 4.0]), np.array([5.0, 8.0]))
    other = PowerIntegral()
    other.load_state_dict(copied(it.state_dict()))
    for each in (it, other):
        assert each.joules(6.0) == [0.0, 0.0, 15.0 + 1.0 + 4.0, 6.0]
        assert each.joules(10.0) == [0.0, 0.0, 15.0 + 1.0 + 8.0, 14.0]


def test_what_is_drawn_besides_counts_from_its_start_to_its_end() -> None:
    # 2 W from 5 to 7 s and 3 W from 1 to 2 s.
    it = ActivityEnergy()
    it.add(SENDING, np.array([2.0, 3.0]), np.array([5.0, 1.0]), np.array([7.0, 2.0]))
    assert [it.joules_until(now_s)[SENDING] for now_s in (0.5, 1.5, 3.0, 6.0, 8.0, 9.0)] == [0.0, 1.5, 3.0, 5.0, 7.0, 7.0]


def test_the_phases_of_an_attempt_take_the_place_of_idleness() -> None:
    energy, it = Energy(powers=powers(), followed=FollowedPresence(Always(clients=2), PRESENCE)), attempt()
    energy.begin(it, 1.0)
    for time_s, state in ((1.0, RECEIVING), (2.0, COMPUTING), (5.0, IDLE), (6.0, SENDING), (8.0, IDLE)):
        energy.change(it, state, time_s)
    assert (it.receive_j, it.compute_j, it.send_j) == (2.0, 15.0, 6.0)
    # Client 1 is idle for 10 s, client 0 for 1 s before, 1 s of waiting, and 2 s after.
    assert energy.integral.joules(10.0) == [14.0, 2.0, 15.0, 6.0]
    assert energy.idle_j(10.0) == 14.0


def test_what_outlasts_an_attempt_is_the_next_ones_and_counted_once() -> None:
    energy, it = Energy(powers=powers(1), followed=FollowedPresence(Always(clients=1), PRESENCE)), attempt()
    energy.begin(it, 0.0)
    energy.change(it, COMPUTING, 0.0)
    energy.account(it, 3.0)
    assert it.compute_j == 15.0
    energy.begin(it, 3.0)
    energy.change(it, IDLE, 4.0)
    assert it.compute_j == 5.0
    assert energy.integral.joules(4.0)[COMPUTING] == 20.0


def test_absence_by_hand(tmp_path: Any) -> None:
    # Client 0 is away over [2, 5), client 1 from 8 on.
    presence = intervals(tmp_path / "presence.csv", "0,0,2\n0,5,inf\n1,0,8\n")
    energy = Energy(powers=powers(off_w=0.25), followed=FollowedPresence(presence, PRESENCE))
    energy.advance(10.0)
    expected = (7 + 3 * 0.25) + (8 + 2 * 0.25)
    assert energy.integral.joules(10.0)[IDLE] == energy.idle_j(10.0) == expected
    assert energy.on.tolist() == [True, False]


def with_batteries(presence: Any, charger: Any, watts: Powers, **keywords: Any) -> Energy:
    clients = len(watts.idle_w)
    given: dict[str, Any] = {"capacity_j": 20.0, "initial": 1.0, "threshold": 0.25, "charge_w": 3.0} | keywords
    batteries = Batteries(
        **{name: np.full(clients, value) for name, value in given.items()},
        draw_w=np.where(presence.on, watts.idle_w, watts.off_w),
        charging=charger.on,
    )
    followed, at = FollowedPresence(presence, PRESENCE), FollowedPresence(charger, CHARGING)
    return Energy(powers=watts, followed=followed, batteries=batteries, charger=at)


def test_an_attempt_ends_as_its_battery_does_and_what_is_off_draws_nothing(tmp_path: Any) -> None:
    # 20 J; idle to 2 s, then 5 W: 18 J last to 5.6 s. At a charger from 9 to 12 s: 5 J at 10 2/3 s, and it is on again.
    charger = intervals(tmp_path / "charger.csv", "0,9,12\n")
    energy, it = with_batteries(Always(clients=2), charger, powers()), attempt()
    energy.advance(2.0)
    energy.begin(it, 2.0)
    energy.change(it, COMPUTING, 2.0)
    assert it.departure_s == pytest.approx(5.6)
    assert not energy.runs_empty(it, 5.0)
    end_s = it.departure_s
    assert energy.runs_empty(it, end_s)
    energy.change(it, IDLE, end_s)
    assert it.compute_j == pytest.approx(18.0)
    assert energy.batteries is not None
    assert energy.batteries.dead.tolist() == [True, False]
    energy.advance(19.0)
    # Off over [5.6, 10.667); 5 J, gains 2 W to 12 s, and loses 1 W from then on: empty 7.667 s later.
    assert energy.batteries.empty_s[0] == pytest.approx(12.0 + (5.0 + 2.0 * (12 - 32 / 3)))
    assert energy.integral.joules(19.0)[IDLE] == pytest.approx(2.0 + (19 - 32 / 3) + 19.0)
    assert energy.idle_j(19.0) == pytest.approx(energy.integral.joules(19.0)[IDLE])
    energy.advance(30.0)
    # Client 1 idles its 20 J away.
    assert energy.integral.joules(30.0)[IDLE] == pytest.approx(2.0 + (59 / 3 - 32 / 3) + 20.0)


def test_a_client_that_leaves_in_the_instant_in_which_it_was_looked_at_drains_its_battery_as_an_absent_one(tmp_path: Any) -> None:
    for looked_at in (False, True):
        presence = intervals(tmp_path / "presence.csv", "0,0,2\n1,0,inf\n")
        energy = with_batteries(presence, intervals(tmp_path / "charger.csv", "0,90,91\n"), powers(off_w=0.5))
        it = attempt(away_s=2.0)
        energy.advance(0.0)
        energy.begin(it, 0.0)
        energy.change(it, COMPUTING, 0.0)
        if looked_at:
            energy.advance(2.0)
        assert not energy.runs_empty(it, 2.0)
        energy.change(it, IDLE, 2.0)
        energy.advance(4.0)
        assert energy.batteries is not None
        assert energy.batteries.charge_j(np.array([0]), 4.0)[0] == pytest.approx(20 - 10 - 1)
        assert energy.integral.joules(4.0)[IDLE] == pytest.approx(1.0 + 4.0)
        assert energy.idle_j(4.0) == pytest.approx(5.0)


def test_tests_and_opinions_come_on_top_and_are_taken_from_the_batteries(tmp_path: Any) -> None:
    energy = with_batteries(Always(clients=2), intervals(tmp_path / "charger.csv", "0,90,91\n"), powers())
    energy.advance(1.0)
    energy.spend(COMPUTING, np.array([0, 1]), np.array([1.0, 1.0]), np.array([2.0, 3.0]))
    energy.advance(3.0)
    energy.charge(3.0)
    assert energy.batteries is not None
    assert energy.batteries.level_j.tolist() == [20 - 3 - 5, 20 - 3 - 10]
    assert energy.integral.joules(3.0)[COMPUTING] == energy.besides.joules_until(3.0)[COMPUTING] == 15.0
    energy.charge(3.0)
    assert energy.batteries.level_j.tolist() == [12, 7]


@pytest.mark.parametrize("seed", range(6))
def test_both_accounts_agree_however_often_one_looks(seed: int) -> None:
    clients = 30
    rng = np.random.default_rng(seed)

    def make() -> Energy:
        presence = Markov(clients=clients, mean_on_s=4.0, mean_off_s=2.0)
        charger = Markov(clients=clients, mean_on_s=2.0, mean_off_s=6.0)
        return with_batteries(presence, charger, powers(clients, idle_w=2.0, off_w=0.25))

    leap, steps, later = make(), make(), make()
    leap.advance(60.0)
    for time_s in np.sort(rng.uniform(0, 60, 80)).tolist():
        steps.advance(time_s)
    half = copied(steps.state_dict()), copied(steps.presence.state_dict())
    steps.advance(60.0)
    assert leap.batteries is not None
    assert steps.batteries is not None
    assert same(leap.batteries.state_dict(), steps.batteries.state_dict())
    assert steps.batteries.ran_empty > 5
    joules = leap.integral.joules(60.0)[IDLE]
    assert joules > 0
    assert [leap.idle_j(60.0), steps.idle_j(60.0), steps.integral.joules(60.0)[IDLE]] == pytest.approx([joules] * 3, rel=1e-12)
    later.presence.load_state_dict(half[1])
    later.load_state_dict(half[0])
    later.advance(60.0)
    later.integral.joules(60.0)
    assert same(copied(later.state_dict()), copied(steps.state_dict()))


@pytest.mark.parametrize(("name", "watts"), [("send_w", -1.0), ("off_w", math.inf), ("idle_w", math.nan)])
def test_negative_and_infinite_powers_are_refused(name: str, watts: float) -> None:
    with pytest.raises(ValueError, match=rf"^{name} = {watts!r} for client 0: must be >= 0 watts and finite"):
        powers(2, **{name: watts})
