"""Ends of flows: by hand, against exact arithmetic, by symmetry, by queueing theory, and after a resume."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import t as student

from netsim.core.clock import Clock
from netsim.network.flows.corrections import PRESETS, Corrections
from netsim.network.flows.flows import Flows
from netsim.network.flows.sharing import Link
from netsim.network.flows.transfers import LinkData, Transfers
from tests.helpers.max_min import Demand, rates

Plan = list[tuple[float, str, tuple[object, ...]]]


def flows_of(capacities: dict[str, float]) -> tuple[Clock, Flows, list[tuple[int, float]]]:
    clock = Clock()
    flows = Flows(clock=clock, links=[Link(name, capacity) for name, capacity in capacities.items()])
    ends: list[tuple[int, float]] = []
    flows.listen(lambda flow: ends.append((flow, clock.now)))
    return clock, flows, ends


def test_a_capacity_that_changes_under_way() -> None:
    # 50 of 100 bytes by 0.5 s; nothing until 2 s; the other 50 at 200 bytes/s take 0.25 s.
    clock, flows, ends = flows_of({"a": 100.0})
    flows.start(flows.path("a", [("a", 1.0)]), 100.0)
    for at_s, capacity in ((0.5, 0.0), (2.0, 200.0)):
        clock.call_at(at_s, lambda value: flows.change("a", value), capacity)
    clock.run()
    assert ends == [(0, 2.25)]


def test_rates_are_exact_however_often_the_limit_of_a_flow_on_another_link_changes() -> None:
    # Flow 0 has what p carries, less than half of s; flow 1 has the rest of s. Flow 2 is elsewhere. Sums of rates are taken again
    # after some changes, which must not count flow 0 twice.
    clock, flows, _ = flows_of({"p": 10.0, "s": 100.0, "t": 1000.0})
    numbers = [flows.start(flows.path(name, [(link, 1.0) for link in name]), 1e9) for name in ("ps", "st", "t")]
    found = []

    def change(step: int) -> None:
        flows.change("p", 10.0 + step % 7)
        clock.call_in(0.5, lambda value: found.append((value, *map(flows.rate, numbers))), step)

    for step in range(60):
        clock.call_at(1.0 + step, change, step)
    clock.run(until=70.0)
    expected = [(step, p, 100.0 - p, 1000.0 - (100.0 - p)) for step in range(60) for p in [10.0 + step % 7]]
    assert len(found) == 60
    for one, right in zip(found, expected, strict=True):
        assert one == pytest.approx(right, rel=1e-12)


def test_a_link_that_fails_for_ever_produces_no_end() -> None:
    clock, flows, ends = flows_of({"a": 100.0})
    flow = flows.start(flows.path("a", [("a", 1.0)]), 100.0)
    clock.call_at(0.5, lambda value: flows.change("a", value), 0.0)
    clock.run()
    assert ends == []
    assert flows.left_bytes(flow) == 50.0


def test_ends_of_one_instant_come_in_the_order_of_beginnings_and_before_a_change() -> None:
    clock, flows, ends = flows_of({"a": 100.0, "b": 100.0})
    for name in ("b", "a", "b", "a"):
        flows.start(flows.path(name, [(name, 1.0)]), 50.0)
    clock.call_at(1.0, lambda value: flows.change("a", value), 0.0)
    clock.run()
    assert ends == [(0, 1.0), (1, 1.0), (2, 1.0), (3, 1.0)]


def test_a_flow_that_begins_as_another_ends() -> None:
    clock, flows, ends = flows_of({"a": 100.0})
    path = flows.path("a", [("a", 1.0)])

    def ended(flow: int) -> None:
        ends.append((flow, clock.now))
        if flow == 0:
            flows.start(path, 100.0)

    flows.listen(ended)
    flows.start(path, 100.0)
    clock.run()
    assert ends == [(0, 1.0), (1, 2.0)]


def random_plan(seed: int, scale: float = 1.0) -> tuple[dict[str, float], Plan]:
    """Return capacities, and what happens when: starts (path, bytes, bound), cancellations of a flow, changes of capacity."""
    rng = random.Random(seed)
    capacities = {f"link {number}": scale * rng.choice([8.0, 16.0, 24.0]) for number in range(rng.randint(1, 5))}
    plan: Plan = []
    for flow in range(rng.randint(2, 25)):
        uses = tuple(sorted(rng.sample(list(capacities), rng.randint(1, min(3, len(capacities))))))
        begin_s = rng.randint(0, 80) / 8
        plan.append((begin_s, "start", (flow, uses, scale * rng.randint(1, 64), scale * rng.choice([math.inf, 4.0, 8.0]))))
        if rng.random() < 0.2:
            plan.append((begin_s + rng.randint(1, 40) / 7, "cancel", (flow,)))
    for _ in range(rng.randint(0, 3)):
        plan.append((rng.randint(1, 90) / 9, "change", (rng.choice(list(capacities)), scale * rng.choice([0.0, 4.0, 32.0]))))
    plan.append((20.0, "change", (next(iter(capacities)), scale * 8.0)))
    plan += [(20.0, "change", (name, scale * 8.0)) for name in capacities]
    return capacities, sorted(plan, key=lambda one: one[0])


def play(capacities: dict[str, float], plan: Plan) -> dict[int, float]:
    """Return the end of each flow that was not cancelled."""
    clock, flows, _ = flows_of(capacities)
    names: dict[int, int] = {}
    ends: dict[int, float] = {}
    flows.listen(lambda number: ends.__setitem__(names[number], clock.now))
    for at_s, kind, values in plan:
        clock.call_at(at_s, lambda what: act(flows, names, *what), (kind, values))
    clock.run()
    return ends


def act(flows: Flows, names: dict[int, int], kind: str, values: tuple[object, ...]) -> None:
    if kind == "start":
        flow, uses, size, bound = values
        path = flows.path(",".join(uses), [(name, 1.0) for name in uses])  # type: ignore[arg-type, attr-defined]
        names[flows.start(path, size, bound)] = flow  # type: ignore[arg-type, assignment]
    elif kind == "change":
        flows.change(*values)  # type: ignore[arg-type]
    else:
        number = next((number for number, flow in names.items() if flow == values[0]), None)
        if number in flows:
            flows.cancel(number)  # type: ignore[arg-type]


def exact(capacities: dict[str, float], plan: Plan) -> dict[int, Fraction]:
    """Return the same in rational numbers, rates found anew by the definition at every event."""
    links = {name: Fraction(capacity) for name, capacity in capacities.items()}
    left: dict[int, Fraction] = {}
    demands: dict[int, Demand] = {}
    ends: dict[int, Fraction] = {}
    now, pending = Fraction(0), list(plan)
    while pending or left:
        flowing = dict(zip(left, rates(links, set(), [demands[flow] for flow in left]), strict=True))
        next_end = min((now + left[flow] / rate for flow, rate in flowing.items() if rate), default=None)
        then = min(time for time in (next_end, Fraction(pending[0][0]) if pending else None) if time is not None)
        for flow, rate in flowing.items():
            left[flow] -= (then - now) * rate
        now = then
        for flow in [flow for flow, bytes_left in left.items() if not bytes_left]:
            ends[flow] = now
            del left[flow]
        while pending and Fraction(pending[0][0]) == now:
            _, kind, values = pending.pop(0)
            if kind == "start":
                flow, uses, size, bound = values
                left[flow] = Fraction(size)  # type: ignore[index, arg-type]
                limit = None if bound == math.inf else Fraction(bound)  # type: ignore[arg-type]
                demands[flow] = Demand(dict.fromkeys(uses, Fraction(1)), bound=limit)  # type: ignore[index, call-overload]
            elif kind == "change":
                links[values[0]] = Fraction(values[1])  # type: ignore[index, arg-type]
            else:
                left.pop(values[0], None)  # type: ignore[arg-type]
    return ends


@pytest.mark.each_nth(3)
@pytest.mark.parametrize("seed", range(40))
def test_random_plans_against_exact_arithmetic(seed: int) -> None:
    capacities, plan = random_plan(seed)
    expected, got = exact(capacities, plan), play(capacities, plan)
    assert got == pytest.approx({flow: float(end_s) for flow, end_s in expected.items()}, rel=1e-11)


@pytest.mark.parametrize("seed", range(40, 50))
def test_twice_the_bytes_on_twice_the_bandwidth_take_the_same_time(seed: int) -> None:
    assert play(*random_plan(seed, 2.0)) == play(*random_plan(seed))


@pytest.mark.slow
def test_mean_time_in_the_system_of_m_g_1_processor_sharing() -> None:
    """E[T] = E[S] / (1 - rho), whatever the law of sizes (Kleinrock 1967): sizes of 0.1 or 1.9 bytes, load 0.6.

    The mean of 30 replications lies within the 99.99 % interval of Student's law.
    """
    means = []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        begins, sizes = np.cumsum(rng.exponential(1 / 0.6, 1500)), rng.choice([0.1, 1.9], 1500)
        clock, flows, ends = flows_of({"a": 1.0})
        path = flows.path("a", [("a", 1.0)])
        for at_s, size in zip(begins.tolist(), sizes.tolist(), strict=True):
            clock.call_at(at_s, lambda size, flows=flows, path=path: flows.start(path, size), size)
        clock.run()
        means.append(np.mean([end_s - begins[flow] for flow, end_s in ends if flow >= 300]))
    half = student.ppf(1 - 0.5e-4, len(means) - 1) * np.std(means, ddof=1) / math.sqrt(len(means))
    assert abs(np.mean(means) - 1 / (1 - 0.6)) < half < 0.5


def transfers_of(clock: Clock, corrections: Corrections | None = None) -> Transfers:
    links = [LinkData(name=name, bytes_per_s=100.0 + number, delay_s=0.1 * number) for number, name in enumerate("abcd")]
    return Transfers(clock=clock, links=links, corrections=corrections)


@pytest.mark.parametrize("corrections", [Corrections(), Corrections(rtt_fair=True, weight_s=20.0, reverse_share=0.05)])
def test_a_resume_with_transfers_under_way_changes_nothing(corrections: Corrections) -> None:
    def later(transfers: Transfers, clock: Clock) -> None:
        clock.call_at(3.5, lambda value: transfers.change("b", bytes_per_s=value, delay_s=0.7), 40.0)
        clock.call_at(4.0, lambda value: transfers.send(transfers.route("ab", "c"), value), 60.0)

    clock = Clock()
    whole = transfers_of(clock, corrections)
    ends: list[tuple[int, float]] = []
    whole.listen(lambda transfer: ends.append((transfer, clock.now)))
    rng = random.Random(3)

    def send(values: tuple[str, float]) -> None:
        whole.send(whole.route(values[0], "d"), values[1], rng.choice([math.inf, 20.0]))

    for _ in range(30):
        clock.call_at(rng.uniform(0.0, 2.8), send, ("".join(rng.sample("abcd", rng.randint(1, 3))), rng.uniform(10.0, 300.0)))
    clock.run(until=2.9)
    state = json.loads(json.dumps(whole.state_dict()))
    ends.clear()
    copy_clock = Clock(2.9)
    copy, copied = transfers_of(copy_clock, corrections), []
    copy.load_state_dict(state)
    copy.listen(lambda transfer: copied.append((transfer, copy_clock.now)))
    assert json.loads(json.dumps(copy.state_dict())) == state
    later(whole, clock)
    later(copy, copy_clock)
    clock.run()
    copy_clock.run()
    assert len(ends) > 10
    assert copied == ends


def test_a_link_that_fills_after_a_resume_counts_flows_that_began_before() -> None:
    """`a` has 40 and `b` 40 of the 100 of `core`; `b` grows to 90, so that `core` limits its flows to the other 60."""

    def flows_of(clock: Clock) -> Flows:
        return Flows(clock=clock, links=[Link("a", 40.0), Link("b", 40.0), Link("core", 100.0)])

    whole = flows_of(Clock())
    for name in "ab":
        path = whole.path(name, [(name, 1.0), ("core", 1.0)])
        whole.start(path, 1e6, 1000.0)
        whole.start(path, 1e6, 2000.0)
    whole.clock.run(until=1.0)
    copy = flows_of(Clock(1.0))
    copy.load_state_dict(json.loads(json.dumps(whole.state_dict())))
    copy.change("b", 90.0)
    assert [copy.rate(flow) for flow in range(4)] == [20.0, 20.0, 30.0, 30.0]


def test_a_transfer_takes_the_delay_and_then_its_bytes() -> None:
    clock = Clock()
    transfers = transfers_of(clock)
    ends: list[tuple[int, float]] = []
    transfers.listen(lambda transfer: ends.append((transfer, clock.now)))
    transfers.send(transfers.route("ab"), 50.0)
    transfers.send(transfers.route("abc"), 0.0)
    transfers.send(transfers.route(""), 50.0)
    transfers.send(transfers.route("cd"), 50.0, 10.0)
    transfers.cancel(transfers.send(transfers.route("ab"), 50.0))
    clock.run()
    assert ends == [(2, 0.0), (1, pytest.approx(0.3)), (0, pytest.approx(0.6)), (3, pytest.approx(5.5))]
    assert len(transfers) == 0


def test_the_worked_example_of_lv08() -> None:
    # 100 kB over 1 Mbit/s and 10 ms: 0.01 x 13.01 + 8e5 / (0.97e6 / 1.05).
    clock = Clock()
    link = LinkData(name="a", bytes_per_s=125_000.0, delay_s=0.01)
    transfers = Transfers(clock=clock, links=[link], corrections=PRESETS["lv08"])
    transfers.send(transfers.route("a", "a"), 1e5)
    clock.run()
    assert clock.now == pytest.approx(0.996079, abs=5e-7)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda it: it.route("ax"), "route = 'x': is no link; there are a, b, c, d"),
        (lambda it: it.send(it.route("a"), -1.0), "size_bytes = -1.0: must be >= 0"),
        (lambda it: it.send(it.route("a"), 1.0, 0.0), "limit_bytes_per_s = 0.0: must be > 0"),
        (lambda it: it.change("x", delay_s=1.0), "link = 'x': is no link"),
        (lambda it: it.change("a", delay_s=-1.0), "delay_s = -1.0: of link 'a' must be >= 0"),
        (lambda it: LinkData(name="a", bytes_per_s=math.inf), "bytes_per_s = inf: of link 'a' must be >= 0"),
        (lambda it: Corrections(latency_factor=0.0), "latency_factor = 0.0: must be > 0"),
        (lambda it: Corrections(reverse_share=-0.1), "reverse_share = -0.1: must be >= 0"),
    ],
)
def test_bad_values_are_refused(call: Callable[[Transfers], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(transfers_of(Clock()))
