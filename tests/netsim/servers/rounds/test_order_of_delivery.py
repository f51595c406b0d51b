"""An aggregation is given updates in the order of their delivery, at every server and by both executors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from netsim.clients.vectorised import whole_rounds
from netsim.clients.vectorised.columns import CLIENT, ROUND, Columns
from netsim.core.protocols import Deliveries
from scenarios.runs.reading import parse
from scenarios.wiring.simulation import build
from scenarios.wiring.world import World
from tests.helpers.rough_scenarios import FLOORED, rough
from tests.helpers.server_worlds import LEARNER, WORLDS

ARRIVALS = [5, 3, 0, 1, 4, 2]
ALPHA = 0.6
SIX: dict[str, Any] = {
    "name": "six",
    "rounds": 2,
    "clients": {"count": 6},
    "compute": {"delay": {"kind": "constant", "value_s": [1.0 + ARRIVALS.index(client) for client in range(6)]}},
    "learner": LEARNER | {"aggregation": {"kind": "mixing", "alpha": ALPHA}},
}
SYNCHRONOUS = {
    "server": {"per_round": 6},
    "policy": {"kind": "tests.helpers.small_worlds:Script", "rounds": [[*range(6)]] * 2},
}
CHANNELS = {"count": 6, "states": {"kind": "stationary", "means": [1.0] * 6}}
OWN_LINKS = rough(uplink={"delay": FLOORED, "channel": {"kind": "bernoulli", "success": 0.9}})
SLOTS = {
    "server": {"kind": "fl-fa", "per_round": 6},
    "slots": {"rounds": 1},
    "policy": {"kind": "fixed-set", "members": [*range(6)]},
}
SERVERS: dict[str, dict[str, Any]] = {
    "synchronous": SYNCHRONOUS,
    "asynchronous": {
        "server": {"kind": "asynchronous", "wait_for_compute": True},
        "channels": CHANNELS,
        "scheduler": {"kind": "random"},
    },
    "fl-fa": SLOTS,
}


def deliveries_of(built: World) -> list[Deliveries]:
    """Record what the learner of a simulation is given from now on."""
    seen: list[Deliveries] = []
    aggregate = built.trained.aggregate

    def recorded(deliveries: Deliveries, *wanted: bool) -> Any:
        seen.append(deliveries)
        return aggregate(deliveries, *wanted)

    built.trained.aggregate = recorded
    return seen


@pytest.mark.parametrize("arrays_from", [1, 1000])
@pytest.mark.parametrize("server", SERVERS)
def test_six_clients_that_arrive_in_another_order_than_their_numbers(
    server: str, arrays_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole_rounds, "FROM", arrays_from)
    built = build(parse(SIX | SERVERS[server]))
    seen = deliveries_of(built)
    built.simulation.run()
    assert [deliveries.clients.tolist() for deliveries in seen] == [ARRIVALS] * 2


@pytest.mark.parametrize("arrays_from", [1, 1000])
def test_mixing_weighs_the_last_arrival_most_and_the_policy_gets_each_clients_own_update(
    arrays_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole_rounds, "FROM", arrays_from)
    policy = {"kind": "tests.helpers.small_worlds:Script", "rounds": [[*range(6)]]}
    built = build(parse(SIX | {"server": {"per_round": 6}, "policy": policy, "rounds": 1}))
    dispatch = built.simulation.server.loop.dispatch
    dispatch.needs_updates = True
    width = built.trained.release.numbers
    before = built.trained.state_dict()["models"][-1][:width]
    built.simulation.run()
    after = built.trained.state_dict()["models"][-1][:width]
    (outcome,) = dispatch.policy.outcomes
    # Client 2 arrives last and weighs alpha; each arrival before it weighs 1 - alpha times as much as the next.
    weights = np.array([ALPHA * (1 - ALPHA) ** (5 - ARRIVALS.index(client)) for client in range(6)])
    assert outcome.clients.tolist() == [*range(6)]
    np.testing.assert_allclose(weights[[2, 4, 5]], [0.6, 0.24, 0.0061], atol=5e-5)
    np.testing.assert_allclose(after - before, weights @ outcome.updates, atol=1e-6)


@pytest.mark.each_nth(5)
@pytest.mark.parametrize("world", [*(name for name in WORLDS if name != "peers"), "own links"])
def test_every_aggregation_follows_the_order_of_ends(world: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Of these worlds only the last has links of its own, on which attempts are worked out together.
    monkeypatch.setattr(whole_rounds, "FROM", 1)
    tables = OWN_LINKS if world == "own links" else WORLDS[world]
    given = tables.get("learner", LEARNER)
    built = build(parse({key: table for key, table in tables.items() if key != "opinions"} | {"learner": given, "rounds": 12}))
    seen = deliveries_of(built)
    ends: list[tuple[int, int]] = []

    def ended_together(ended: Columns) -> None:
        ends.extend(zip(ended.counts[CLIENT].tolist(), ended.counts[ROUND].tolist(), strict=True))

    pool = built.server.clients
    pool.follow(lambda update: update.censored or ends.append((update.client, update.begun_round)), ended_together)
    built.simulation.run()
    assert sum(len(deliveries.clients) for deliveries in seen) > 5
    for deliveries in seen:
        given = [*zip(deliveries.clients.tolist(), deliveries.rounds.tolist(), strict=True)]
        assert given == sorted(given, key=ends.index)
