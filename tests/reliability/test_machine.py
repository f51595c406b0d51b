"""The engine as a state machine: select, depart, return, cut off, jam, change laws, checkpoint, in any order.

Conservation is checked after every event. At the end the same orders in one go, without a checkpoint, leave the same records.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from netsim.clients.update import OUTCOMES
from tests.helpers.random_worlds import built, copied, same, watch
from tests.reliability import machine
from tests.reliability.machine import ORDERS, scenario

clients = st.lists(st.integers(0, 5), min_size=1, max_size=6, unique=True)
SERVERS: list[dict[str, Any]] = [
    {},
    {"deadline_s": 2.0},
    {"deadline_s": 2.0, "stragglers": "cancel"},
    {"first": 2, "reselect_busy": True},
    {"kind": "semi-synchronous", "round_s": 1.25},
    {"kind": "buffered", "concurrency": 3, "buffer": 2},
]


class Engine(RuleBasedStateMachine):
    """A simulation that is left at round boundaries, and told what to do next."""

    @initialize(server=st.sampled_from(SERVERS))
    def begin(self, server: dict[str, Any]) -> None:
        ORDERS.acts.clear()
        ORDERS.chosen.clear()
        self.tables = scenario(**server)
        if server.get("kind") in ("buffered", "semi-synchronous"):
            self.tables["server"].pop("when_short")
        if server.get("kind") == "buffered":
            self.tables["server"].pop("per_round")
        self.rounds: list[str] = []
        self._new()

    def _new(self) -> None:
        self.simulation, self.records = built(self.tables)

    def _kept(self) -> None:
        self.rounds += [repr(row) for row in self.records.rounds] + [repr(row) for row in self.records.updates]
        self.records.rounds.clear()
        self.records.updates.clear()

    @rule(count=st.integers(1, 4), places=st.lists(st.integers(0, 5), max_size=3))
    def select(self, count: int, places: list[int]) -> None:
        before = self.simulation.server.round
        if self.simulation.ended is not None:
            return
        for number in range(before + 1, before + count + 1):
            ORDERS.chosen[number] = places
        if type(self.simulation.clock).__name__ != "Watched":
            watch(self.simulation)
        self.simulation.run(until_round=before + count)
        self._kept()

    def _order(self, act: str, argument: Any = None) -> None:
        ORDERS.acts.append((self.simulation.clock.now, act, argument))

    @rule(who=clients)
    def depart(self, who: list[int]) -> None:
        self._order("depart", who)

    @rule(who=clients)
    def cut_off(self, who: list[int]) -> None:
        self._order("cut", who)

    @rule(act=st.sampled_from(["return", "reconnect", "stop"]))
    def take_back(self, act: str) -> None:
        self._order(act)

    @rule()
    def jam(self) -> None:
        self._order("jam", "jammer")

    @rule(value_s=st.sampled_from([0.0, 0.5, 1.0, 3.0]))
    def slow_down(self, value_s: float) -> None:
        self._order("slow", value_s)

    @rule(success=st.sampled_from([0.0, 0.5, 1.0]))
    def lose(self, success: float) -> None:
        self._order("loss", success)

    @precondition(lambda self: self.simulation.server.round and self.simulation.ended is None)
    @rule()
    def checkpoint(self) -> None:
        state = copied(self.simulation.state_dict())
        self._new()
        self.simulation.load_state_dict(state)
        assert same(self.simulation.state_dict(), state)

    @invariant()
    def every_attempt_is_somewhere(self) -> None:
        if hasattr(self, "simulation"):
            counts = self.simulation.server.counts()
            assert counts["selected"] == sum(counts[name] for name in (*OUTCOMES, "in_flight"))

    def teardown(self) -> None:
        # A run that the time limit has ended was cut in mid-round, where it has no state.
        if not hasattr(self, "simulation") or not self.simulation.server.round or self.simulation.ended is not None:
            return
        stopped, state = self.simulation.server.round, copied(self.simulation.state_dict())
        self._new()
        self.simulation.run(until_round=stopped)
        assert same(self.simulation.state_dict(), state)
        whole = [repr(row) for row in self.records.rounds] + [repr(row) for row in self.records.updates]
        assert sorted(whole) == sorted(self.rounds)


CHECKS = list(HealthCheck)
small = settings(
    max_examples=12, stateful_step_count=15, derandomize=True, database=None, suppress_health_check=CHECKS
)
Engine.TestCase.settings = small
TestEngine = Engine.TestCase


@pytest.mark.slow
class TestEngineForLong(Engine.TestCase):
    settings = settings(small, max_examples=80, stateful_step_count=30)


def test_what_is_ordered_happens() -> None:
    # The machine is worth something only if all of its acts reach the engine.
    acts: list[tuple[str, Any]] = [("depart", [5]), ("cut", [0, 1]), ("jam", "jammer"), ("loss", 0.0)]
    ORDERS.acts[:] = [(0.0, act, argument) for act, argument in acts]
    ORDERS.chosen.clear()
    ORDERS.chosen.update({number: [number % 5, 2, 3] for number in range(1, 9)})
    simulation, records = built(machine.scenario())
    simulation.run(until_round=8)
    simulation.close()
    assert {row.cause for row in records.updates if row.outcome == "lost"} >= {"cut-off"}
    assert not [row for row in records.updates if row.outcome == "delivered"][1:]
    assert all(row.client != 5 or row.outcome != "delivered" for row in records.updates)
    assert simulation.server.counts()["jam_dwells"] > 0
