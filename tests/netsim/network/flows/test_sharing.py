"""Rates of flows against an independent solver written from the definition, and against what the definition demands."""

from __future__ import annotations

import random
from fractions import Fraction
from math import inf

import pytest

from netsim.core.clock import Clock
from netsim.core.errors import ParameterError
from netsim.network.flows.flows import Flows
from netsim.network.flows.sharing import Link, Path
from tests.helpers.max_min import Demand, rates


class Network:
    """A random network with flows that come and go, and the same as demands."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = random.Random(seed)
        names = [f"link {number}" for number in range(rng.randint(1, 8))]
        self.fat_pipes = {name for name in names if rng.random() < 0.2}
        self.capacities = {name: Fraction(rng.choice([0, 1, 2, 5, 8, 8, 8, 20, rng.randint(1, 1000)])) for name in names}
        self.clock = Clock()
        links = [Link(name, float(capacity), name in self.fat_pipes) for name, capacity in self.capacities.items()]
        self.flows = Flows(clock=self.clock, links=links)
        self.paths: list[tuple[Path, Demand]] = []
        for number in range(rng.randint(1, 8)):
            route = rng.sample(names, rng.randint(1, min(len(names), 4)))
            uses = {name: rng.choice([Fraction(1), Fraction(2), Fraction(21, 20)]) for name in route}
            demand = Demand(uses, Fraction(rng.choice([1, 1, 2, 3])), rng.choice([None, Fraction(3), Fraction(7)]))
            bound = inf if demand.bound is None else float(demand.bound)
            weights = [(name, float(weight)) for name, weight in uses.items()]
            self.paths.append((self.flows.path(str(number), weights, float(demand.penalty), bound), demand))
        self.demands: dict[int, Demand] = {}

    def step(self) -> None:
        rng = self.rng
        if rng.random() < 0.6 or not self.demands:
            for _ in range(rng.choice([1, 1, 4])):
                path, demand = rng.choice(self.paths)
                own = rng.choice([None, None, Fraction(1), Fraction(2), Fraction(50)])
                flow = self.flows.start(path, 1e12, inf if own is None else float(own))
                bounds = [bound for bound in (demand.bound, own) if bound is not None]
                self.demands[flow] = Demand(demand.uses, demand.penalty, min(bounds, default=None))
        elif rng.random() < 0.6:
            flow = rng.choice(list(self.demands))
            self.flows.cancel(flow)
            del self.demands[flow]
        else:
            name = rng.choice(list(self.capacities))
            self.capacities[name] = Fraction(rng.choice([0, 1, 3, 8, 50]))
            self.flows.change(name, float(self.capacities[name]))
        if rng.random() < 0.5:
            self.clock.run(until=self.clock.now + rng.random() + 0.1)


@pytest.mark.each_nth(7)
@pytest.mark.parametrize("seed", range(60))
def test_random_networks_against_the_definition(seed: int) -> None:
    network = Network(seed)
    for _ in range(25):
        network.step()
        expected = rates(network.capacities, network.fat_pipes, list(network.demands.values()))
        got = [network.flows.rate(flow) for flow in network.demands]
        assert got == pytest.approx([float(rate) for rate in expected], rel=1e-9, abs=1e-9)


@pytest.mark.each_nth(7)
@pytest.mark.parametrize("seed", range(100, 130))
def test_no_link_is_overloaded_and_no_flow_can_be_raised(seed: int) -> None:
    network = Network(seed)
    for _ in range(25):
        network.step()
        got = {flow: network.flows.rate(flow) for flow in network.demands}
        full = set()
        for name, capacity in network.capacities.items():
            loads = [float(demand.uses[name]) * got[flow] for flow, demand in network.demands.items() if name in demand.uses]
            load = max(loads, default=0.0) if name in network.fat_pipes else sum(loads)
            assert load <= float(capacity) * (1 + 1e-9)
            assert load == pytest.approx(network.flows.load(name), rel=1e-9)
            if name not in network.fat_pipes and load >= float(capacity) * (1 - 1e-9):
                full.add(name)
        for flow, demand in network.demands.items():
            own = [inf if demand.bound is None else float(demand.bound)]
            own += [float(network.capacities[name] / demand.uses[name]) for name in demand.uses if name in network.fat_pipes]
            level = float(demand.penalty) * got[flow] * (1 + 1e-9)
            names = full & demand.uses.keys()
            beside = {name: [one for one, other in network.demands.items() if name in other.uses] for name in names}
            greatest = [all(float(network.demands[one].penalty) * got[one] <= level for one in them) for them in beside.values()]
            assert got[flow] >= min(own) * (1 - 1e-9) or any(greatest)


def test_three_flows_over_two_links() -> None:
    # The long flow and the one on the narrow link get half of 10 each; what the long one leaves of 30, 25, is the third's.
    flows = Flows(clock=Clock(), links=[Link("narrow", 10.0), Link("wide", 30.0)])
    both = flows.path("both", [("narrow", 1.0), ("wide", 1.0)])
    narrow, wide = flows.path("narrow", [("narrow", 1.0)]), flows.path("wide", [("wide", 1.0)])
    started = [flows.start(path, 100.0) for path in (both, narrow, wide)]
    assert [flows.rate(flow) for flow in started] == [5.0, 5.0, 25.0]
    assert (flows.load("narrow"), flows.load("wide")) == (10.0, 30.0)


def test_a_change_leaves_flows_alone_that_it_cannot_reach() -> None:
    flows = Flows(clock=Clock(), links=[Link("a", 10.0), Link("b", 10.0)])
    on_a, on_b = flows.path("a", [("a", 1.0)]), flows.path("b", [("b", 1.0)])
    for path in (on_a, on_b):
        flows.start(path, 100.0, 2.0)
        flows.start(path, 100.0)
    flows._solve(None)
    flows.start(on_a, 100.0)
    reached = flows._sharing.solve(0.0)
    assert {link.name for bundle in reached for link, _ in bundle.shared} == {"a"}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda flows: flows.path("x", []), "must name at least one link"),
        (lambda flows: flows.path("x", [("nowhere", 1.0)]), "'nowhere': is no link; there are a"),
        (lambda flows: flows.path("x", [("a", 0.0)]), "weight = 0.0: must be > 0"),
        (lambda flows: flows.path("x", [("a", 1.0)], penalty=0.0), "penalty = 0.0: must be > 0"),
        (lambda flows: flows.start(flows.path("x", [("a", 1.0)]), 0.0), "size_bytes = 0.0: must be > 0"),
        (lambda flows: flows.start(flows.path("x", [("a", 1.0)]), 1.0, 0.0), "bound = 0.0: must be > 0"),
        (lambda flows: flows.change("a", -1.0), "capacity = -1.0: must be >= 0"),
        (lambda flows: Link("b", inf), "capacity = inf: must be >= 0"),
        (lambda flows: Flows(clock=Clock(), links=[Link("a", 1.0), Link("a", 1.0)]), "is the name of two links"),
    ],
)
def test_bad_values_are_refused(call: object, message: str) -> None:
    flows = Flows(clock=Clock(), links=[Link("a", 1.0)])
    with pytest.raises(ParameterError, match=message):
        call(flows)  # type: ignore[operator]
