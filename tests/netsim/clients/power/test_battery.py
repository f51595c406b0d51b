"""Batteries: worked out by hand, against a small integration in steps of time, and one client against many."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from netsim.clients.power.battery import Batteries
from tests.helpers.random_worlds import copied, same

INF = math.inf


def batteries(capacity: list[float], draw: list[float], **shares: Any) -> Batteries:
    given = {"initial": 1.0, "threshold": 0.25, "charge": 0.0, "charging": False} | shares

    def each(name: str) -> Any:
        return np.array(np.broadcast_to(given[name], len(capacity)))

    return Batteries(
        capacity_j=np.array(capacity),
        initial=each("initial").astype(float),
        threshold=each("threshold").astype(float),
        charge_w=each("charge").astype(float),
        draw_w=np.array(draw),
        charging=each("charging"),
    )


def one(battery: Batteries, time_s: float) -> float:
    battery.advance(time_s)
    return float(battery.charge_j(np.array([0]), time_s)[0])


def test_a_battery_that_drains_by_hand() -> None:
    # 8 J at 2 W: ready down to 2 J at 3 s, empty at 4 s.
    it = batteries([8.0], [2.0])
    assert (it.cross_s[0], it.empty_s[0], it.next_s[0]) == (3.0, 4.0, 3.0)
    assert [(one(it, t), bool(it.ready[0]), bool(it.dead[0])) for t in (0.0, 2.0, 3.0, 3.5, 4.0, 9.0)] == [
        (8.0, True, False),
        (4.0, True, False),
        (2.0, False, False),
        (1.0, False, False),
        (0.0, False, True),
        (0.0, False, True),
    ]
    assert (it.ran_empty, it.next_s[0]) == (1, INF)


def test_an_empty_battery_is_off_until_it_is_charged_to_the_threshold() -> None:
    it = batteries([8.0], [2.0], charge=3.0)
    it.advance(6.0)  # empty since 4 s
    seen: list[tuple[list[int], list[float], bool]] = []
    it.listen(lambda who, times: seen.append((who.tolist(), times.tolist(), bool(it.dead[0]))))
    it.change(np.array([0]), np.array([7.0]), charging=np.array([True]))
    # Off, it gains 3 W: 2 J at 7 2/3 s. On, 1 W.
    third = 7.0 + 2.0 / 3.0
    assert it.cross_s[0] == third
    assert one(it, third) == 2.0
    assert (bool(it.ready[0]), bool(it.dead[0]), it.slope_w[0]) == (True, False, 1.0)
    assert seen == [([0], [third], False)]
    # Full 6 s later, and no more than full.
    assert one(it, third + 5.0) == pytest.approx(7.0)
    assert one(it, third + 50.0) == 8.0
    it.change(np.array([0]), np.array([100.0]), charging=np.array([False]))
    assert (it.level_j[0], it.empty_s[0]) == (8.0, 104.0)


def test_a_charger_that_supplies_less_than_is_drawn_leaves_a_client_that_comes_and_goes_but_is_never_ready() -> None:
    it = batteries([8.0], [2.0], charge=1.0, charging=True)
    # 8 J at 1 W net: empty at 8 s; off, 2 J 2 s later; on, empty again another 2 s later.
    ready = []
    for time_s in (8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0):
        level = one(it, time_s)
        ready.append((time_s, level, bool(it.dead[0]), bool(it.ready[0])))
    assert ready == [
        (8.0, 0.0, True, False),
        (9.0, 1.0, True, False),
        (10.0, 2.0, False, False),
        (11.0, 1.0, False, False),
        (12.0, 0.0, True, False),
        (13.0, 1.0, True, False),
        (14.0, 2.0, False, False),
    ]
    assert it.ran_empty == 2


def test_ready_from_reaching_the_threshold_to_falling_to_it() -> None:
    at = {"initial": 0.25, "threshold": 0.25}
    assert not batteries([8.0], [1.0], **at).ready[0]
    assert batteries([8.0], [0.0], **at).ready[0]
    # A draw that changes leaves it ready where the charge stays, and where it rises, however slowly.
    for watts, ready in ((0.5, True), (0.25, True), (0.75, False)):
        it = batteries([8.0], [0.5], charge=0.5, charging=True, **at)
        it.draw(0, watts, 0.0)
        assert it.ready[0] == ready, watts
    rising = batteries([8.0], [1.0], charge=2.0, charging=True, initial=0.125)
    assert not rising.ready[0]
    rising.advance(math.nextafter(1.0, 0.0))
    assert not rising.ready[0]
    rising.advance(1.0)
    assert rising.ready[0]


def test_a_threshold_of_one_is_met_by_a_full_battery_alone() -> None:
    it = batteries([4.0], [1.0], initial=0.5, threshold=1.0, charge=3.0, charging=True)
    it.advance(1.0)
    assert (bool(it.ready[0]), it.slope_w[0]) == (True, 2.0)
    it.change(np.array([0]), np.array([2.0]), draw_w=np.array([0.5]))
    assert (it.level_j[0], it.slope_w[0], bool(it.ready[0])) == (4.0, 0.0, True)
    it.change(np.array([0]), np.array([3.0]), charging=np.array([False]))
    assert not it.ready[0]


def test_what_is_taken_at_once_may_empty_a_battery() -> None:
    it = batteries([8.0, 8.0], [1.0, 1.0])
    it.change(np.array([0, 1]), np.array([2.0, 2.0]), taken_j=np.array([1.0, 6.5]))
    assert it.level_j.tolist() == [5.0, 0.0]
    assert it.dead.tolist() == [False, True]


def test_an_initially_empty_battery_is_off() -> None:
    it = batteries([8.0], [1.0], initial=0.0)
    assert (bool(it.dead[0]), it.next_s[0], it.ran_empty) == (True, INF, 0)


def stepped(capacity: float, threshold: float, charge: float, events: list[tuple[float, str, float]], end: float) -> Any:
    """The same by small steps of time: level, whether it is off, whether it is ready, and times of running empty."""
    step, level, dead, draw, charging, empties = 1e-3, capacity, False, 0.0, False, []
    todo = sorted(events)
    for i in range(round(end / step)):
        now = i * step
        while todo and todo[0][0] <= now + step / 2:
            _, what, value = todo.pop(0)
            if what == "draw":
                draw = value
            else:
                charging = bool(value)
        level = min(level + step * ((charge if charging else 0.0) - (0.0 if dead else draw)), capacity)
        if level <= 0 and not dead:
            dead, level = True, 0.0
            empties.append(now)
        if dead and level >= threshold * capacity:
            dead = False
    return level, dead, empties


@pytest.mark.parametrize("seed", range(12))
def test_as_a_small_integration_in_steps_finds_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    events = [(round(float(t), 3), "draw", float(rng.integers(0, 5))) for t in rng.uniform(0.1, 30, 12)]
    events += [(round(float(t), 3), "charging", float(i % 2 == 0)) for i, t in enumerate(np.sort(rng.uniform(0.1, 30, 6)))]
    it = batteries([9.0], [0.0], charge=2.5, threshold=0.3)
    empties: list[float] = []
    it.listen(lambda who, times: empties.extend(times.tolist() if it.dead[0] else []))
    for time_s, what, value in sorted(events):
        if what == "draw":
            it.change(np.array([0]), np.array([time_s]), draw_w=np.array([value]))
        else:
            it.change(np.array([0]), np.array([time_s]), charging=np.array([bool(value)]))
    level, dead, at = stepped(9.0, 0.3, 2.5, events, 30.0)
    assert one(it, 30.0) == pytest.approx(level, abs=0.1)
    assert bool(it.dead[0]) == dead
    assert empties == pytest.approx(at, abs=0.05)
    assert it.ran_empty == len(at)


def test_one_client_in_plain_floats_is_as_one_of_many() -> None:
    rng = np.random.default_rng(3)
    clients = 40
    shares = {
        "initial": rng.uniform(0.2, 1, clients),
        "threshold": rng.uniform(0.1, 1, clients),
        "charge": 2.0,
        "charging": rng.random(clients) < 0.5,
    }
    capacity = rng.uniform(50, 90, clients).tolist()
    plain, arrays = (batteries(capacity, [0.5] * clients, **shares) for _ in range(2))
    for time_s in np.cumsum(rng.uniform(0.0, 1.0, 60)).tolist():
        client, watts = int(rng.integers(clients)), float(rng.integers(0, 5))
        for each in (plain, arrays):
            each.advance(time_s)
        if plain.dead[client]:
            continue
        plain.draw(client, watts, time_s)
        arrays.change(np.array([client]), np.array([time_s]), draw_w=np.array([watts]))
        assert same(plain.state_dict(), arrays.state_dict())
    assert plain.ran_empty


def test_one_leap_is_as_many_steps_and_a_saved_state_goes_on() -> None:
    def make() -> Batteries:
        return batteries([3.0, 5.0, 9.0], [1.0, 2.0, 0.5], charge=[1.5, 1.0, 0.0], charging=[True, True, False], initial=0.5)

    leap, steps, later = make(), make(), make()
    leap.advance(40.0)
    for time_s in np.linspace(0.0, 40.0, 333).tolist():
        steps.advance(time_s)
    assert same(leap.state_dict(), steps.state_dict())
    half = make()
    half.advance(17.0)
    later.load_state_dict(copied(half.state_dict()))
    later.advance(40.0)
    assert same(later.state_dict(), leap.state_dict())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"capacity": [4.0, 0.0]}, r"^capacity_j = 0.0 for client 1: must be > 0 joules"),
        ({"capacity": [INF, 1.0]}, r"^capacity_j = inf for client 0"),
        ({"initial": 1.5}, r"^initial = 1.5 for client 0: must be a share"),
        ({"threshold": [0.5, 0.0]}, r"^threshold = 0.0 for client 1: must be a share above 0"),
        ({"charge": -1.0}, r"^charge_w = -1.0 for client 0: must be >= 0 watts"),
    ],
)
def test_bad_values_are_refused_by_name(wrong: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"capacity": [4.0, 4.0], "draw": [1.0, 1.0]} | wrong
    with pytest.raises(ValueError, match=message):
        batteries(**given)
