"""The buffered asynchronous server: by hand, its conservation laws, and that it goes on from a saved state."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from models.policies.pause.parameters import PauseParameters
from models.policies.pause.pause import Pause
from models.privacy import NoSchedule
from netsim.core.errors import AnswerError
from netsim.core.protocols import RoundView
from netsim.core.reports import RoundOutcome
from scenarios.runs.reading import parse
from scenarios.schema.errors import UserError
from scenarios.wiring.simulation import build
from tests.helpers.buffered_worlds import Noting, tables
from tests.helpers.random_worlds import built, copied, taken_up, watch
from tests.helpers.rough_scenarios import BUFFERED, EXAMPLES, TRAINED
from tests.helpers.small_worlds import Script
from tests.helpers.suites import each_nth


def test_three_rounds_by_hand() -> None:
    # Clients 0, 1, 2 take 1, 2 and 5 s; two are at work, two deliveries make a model.
    # 0 s: 0 and 1 begin. 1 s: 0 is done; it waits for the next round, 2 begins. 2 s: 1 is done: round 1.
    # 2 s: 0 begins. 3 s: it is done, 1 begins. 5 s: 1 is done: round 2.
    # 5 s: 0 begins. 6 s: 2 is done, with a model two versions old, and then 0: round 3.
    simulation, records = built(tables())
    server: Any = simulation.server
    server.loop.learner = server.loop.dispatch.learner = learner = Noting()
    simulation.run()
    assert [(row.start_s, row.end_s) for row in records.rounds] == [(0.0, 2.0), (2.0, 5.0), (5.0, 6.0)]
    assert [deliveries.clients.tolist() for deliveries in learner.given] == [[0, 1], [0, 1], [2, 0]]
    assert [deliveries.rounds.tolist() for deliveries in learner.given] == [[1, 1], [2, 2], [1, 3]]
    assert [deliveries.versions.tolist() for deliveries in learner.given] == [[0, 0], [1, 1], [0, 2]]
    assert [row.selected for row in records.rounds] == [3, 2, 1]
    assert [row.in_flight for row in records.rounds] == [1, 1, 0]
    assert [row.bytes_down for row in records.rounds] == [30, 20, 10]
    policy: Any = server.loop.dispatch.policy
    assert [outcome.latency_s.tolist() for outcome in policy.outcomes] == [[1.0, 2.0], [1.0, 2.0], [5.0, 1.0]]
    # Nobody is asked twice in a round, nor in the round in which it delivered.
    assert [(view.time_s, view.selectable.nonzero()[0].tolist()) for view in policy.seen] == [
        (0.0, [0, 1, 2]),
        (0.0, [1, 2]),
        (1.0, [2]),
        (2.0, [0, 1]),
        (3.0, [1]),
        (5.0, [0, 1]),
    ]


def test_whoever_ends_an_earlier_rounds_update_is_not_asked_in_this_round() -> None:
    # 0 s: clients 0 (3.5 s) and 1 begin, then 2 and 3, each for 1 s: round 1 is over at 3 s, while 0 is at work.
    # 3.5 s: 0 is done, and 2 follows, though 0 has the lower number. 4.5 s: 0, 1 and 2 have delivered.
    simulation, records = built(
        tables(
            rounds=2,
            clients={"count": 4},
            server={"kind": "buffered", "concurrency": 2, "buffer": 3},
            compute={"delay": {"kind": "constant", "value_s": [3.5, 1.0, 1.0, 1.0]}},
        )
    )
    server: Any = simulation.server
    server.loop.learner = server.loop.dispatch.learner = learner = Noting()
    simulation.run()
    assert [row.end_s for row in records.rounds] == [3.0, 4.5]
    assert [deliveries.clients.tolist() for deliveries in learner.given] == [[1, 2, 3], [0, 1, 2]]
    assert learner.given[1].rounds.tolist() == [1, 2, 2]


def test_deliveries_of_one_instant_beyond_the_buffer_make_the_next_model() -> None:
    # All three are done at 1 s: two make the first model; the third waits for one more, which comes at 2 s.
    simulation, records = built(
        tables(
            rounds=2,
            server={"kind": "buffered", "concurrency": 3, "buffer": 2},
            compute={"delay": {"kind": "constant", "value_s": 1.0}},
        )
    )
    server: Any = simulation.server
    server.loop.learner = server.loop.dispatch.learner = learner = Noting()
    simulation.run()
    assert [deliveries.clients.tolist() for deliveries in learner.given] == [[0, 1], [2, 0]]
    assert [deliveries.versions.tolist() for deliveries in learner.given] == [[0, 0], [0, 1]]
    assert [row.end_s for row in records.rounds] == [1.0, 2.0]
    assert [row.delivered for row in records.rounds] == [3, 2]


def test_a_round_closes_short_when_nobody_else_can_come() -> None:
    # A buffer of 5 never fills with 3 clients: a round is what all of them deliver.
    simulation, records = built(tables(server={"kind": "buffered", "concurrency": 3, "buffer": 5}))
    simulation.run()
    assert [(row.end_s, row.delivered) for row in records.rounds] == [(5.0, 3), (10.0, 3), (15.0, 3)]


def test_rounds_without_time_and_lost_updates() -> None:
    simulation, records = built(
        tables(rounds=50, compute={}, uplink={"channel": {"kind": "bernoulli", "success": 0.5}}, policy={"kind": "random"})
    )
    simulation.run()
    assert simulation.server.round == 50
    assert simulation.clock.now == 0.0
    assert sum(row.lost for row in records.rounds) > 10


@pytest.mark.each_nth(2)
@pytest.mark.parametrize(
    ("kind", "buffer"), each_nth(4, itertools.product(["pause", "vanilla-sa-pause", "genie"], [1, 2, 4]))
)
def test_pause_chooses_clients_in_proportion_to_their_data_whatever_the_buffer(kind: str, buffer: int) -> None:
    # Generalization alone counts: T_k / t goes to m |D_k| / |D|, and the m of eq. 8 is the number of updates in a model.
    shares = np.array([0.2] + [0.12] * 5 + [0.05] * 4)
    annealed = {"steps": 20} if kind == "vanilla-sa-pause" else {}
    simulation, records = built(
        tables(
            rounds=800 // buffer,
            clients={"count": 10, "data_sizes": shares.tolist()},
            server={"kind": "buffered", "concurrency": 1, "buffer": buffer},
            policy={"kind": kind, "alpha": 1e6, "gamma": 0.0, **annealed},
            compute={"delay": {"kind": "constant", "value_s": 1.0}},
        )
    )
    simulation.run()
    simulation.close()
    chosen = np.bincount([row.client for row in records.updates], minlength=10)
    assert chosen.sum() == 800
    # A client never is more than some selections behind or ahead of its share; with m = 1 the first would have .125 of b = 4.
    np.testing.assert_allclose(chosen / 800, shares, atol=0.008)


def test_in_eq_13_and_14_m_stays_one_on_the_buffered_server() -> None:
    # Of two policies that differ in what a model is made of, eq. 8 alone differs: without it (alpha = 0) all is the same.
    def chosen(**keywords: Any) -> list[list[int]]:
        weights = PauseParameters(alpha=0.0)
        sizes = np.arange(1.0, 7.0)
        policy = Pause(clients=6, per_round=1, data_sizes=sizes, schedule=NoSchedule(), parameters=weights, **keywords)
        rounds = []
        for t in range(1, 60):
            seen = RoundView(t, 0.0, np.ones(6, np.bool_), np.zeros(6, np.int64), np.random.default_rng(t))
            rounds.append(policy.select(seen).tolist())
            latency_s = 0.1 + 0.05 * np.array(rounds[-1])
            policy.observe(RoundOutcome(t, 0.0, 1.0, np.array(rounds[-1]), latency_s, np.zeros(1, np.bool_)))
        return rounds

    assert chosen(per_model=5) == chosen()
    with pytest.raises(ValueError, match="per_model = 0"):
        chosen(per_model=0)


@pytest.mark.each_nth(5)
@pytest.mark.parametrize("seed", range(6))
def test_nothing_is_made_or_lost_at_any_event(seed: int) -> None:
    simulation, records = built(BUFFERED | {"seed": seed})
    events = watch(simulation)
    simulation.run()
    assert simulation.server.round == 60
    assert events[0] > 200
    selected = np.cumsum([row.selected for row in records.rounds])
    ended = np.cumsum([row.delivered + row.lost + row.late + row.aborted for row in records.rounds])
    assert (selected == ended + [row.in_flight for row in records.rounds]).all()
    assert not any(row.late for row in records.rounds)
    # One address a part: no client begins twice in a round.
    simulation.close()
    assert len({(row.round, row.client) for row in records.updates}) == len(records.updates)


@pytest.mark.each_nth(2)
@pytest.mark.parametrize("after", [1, 17, 40])
def test_state_taken_out_in_mid_run_goes_on(after: int) -> None:
    _, state = taken_up(lambda: built(BUFFERED), after)
    assert state["server"]["loop"]["pool"]["alive"]


@pytest.mark.each_nth(2)
@pytest.mark.parametrize(("concurrency", "fresh"), [(1, True), (3, False)])
def test_a_fresh_update_has_no_staleness(concurrency: int, fresh: bool) -> None:
    # FedAsync with one client at work: every update starts from the present model, and counts as it would without a factor.
    def losses(staleness: dict[str, Any]) -> list[float]:
        learner = {
            "data": {"kind": "digits", "samples": 300},
            "network": {"kind": "linear"},
            "optimizer": {"kind": "sgd", "learning_rate": 0.1},
            "aggregation": {"kind": "mixing", "alpha": 0.6},
            "max_steps": 2,
            "staleness": staleness,
        }
        server = {"kind": "buffered", "concurrency": concurrency, "buffer": 1}
        simulation, records = built(tables(rounds=8, server=server, policy={"kind": "random"}, learner=learner))
        simulation.run()
        return [row.loss for row in records.rounds]

    for staleness in ({"kind": "polynomial"}, {"kind": "hinge", "free": 0}):
        assert (losses(staleness) == losses({"kind": "none"})) is fresh


def test_versions_are_kept_as_long_as_somebody_needs_them() -> None:
    learned = {
        "data": {"kind": "digits", "samples": 300},
        "network": {"kind": "linear"},
        "optimizer": {"kind": "sgd", "learning_rate": 0.1},
        "max_steps": 2,
        "staleness": {"kind": "polynomial"},
    }
    simulation, records = built(BUFFERED | {"learner": learned, "rounds": 40})
    simulation.run()
    assert records.rounds[-1].version == 40
    assert records.rounds[-1].accuracy > records.rounds[0].accuracy


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"server": {"kind": "buffered", "concurrency": 4}}, "server.concurrency = 4: must be at most the 3 clients"),
        ({"server": {"kind": "buffered", "concurrency": 2, "buffer": 0}}, "server.buffer = 0: must be >= 1"),
        ({"server": {"kind": "buffered"}}, "server.concurrency"),
        ({"metrics": {"reward": {"kind": "pause-reward"}}}, 'metrics.reward = "pause-reward": measures a selection of m clients'),
        ({"metrics": {"oracle": "means"}}, 'metrics.oracle = "means": belongs to the asynchronous server'),
    ],
)
def test_refusals(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message.replace(".", r"\.")):
        build(parse(tables(**changes)))


# Those that ask clients before they select do not go with this server (tests/scenarios/test_methods.py).
ASKING = {"power-of-choice", "fedcs", "refl", "tifl"}


@pytest.mark.each_nth(3)
@pytest.mark.parametrize("kind", each_nth(3, sorted(EXAMPLES["policy"].keys() - ASKING)))
def test_every_policy_goes_on_from_a_saved_state(kind: str) -> None:
    world = BUFFERED | {"rounds": 25, "policy": {"kind": kind} | EXAMPLES["policy"][kind]}
    if kind == "all":
        world["server"] = {**world["server"], "concurrency": world["clients"]["count"]}
    if kind in TRAINED:
        world["learner"] = {
            "data": {"kind": "digits", "samples": 200},
            "network": {"kind": "linear"},
            "optimizer": {"kind": "sgd", "learning_rate": 0.1},
            "max_steps": 1,
        }
    whole, expected = built(world)
    whole.run()
    first, _ = built(world)
    first.run(until_round=9)
    second, records = built(world)
    second.load_state_dict(copied(first.state_dict()))
    second.run()
    assert repr(records.rounds) == repr(expected.rounds[9:])
    assert sum(row.delivered for row in expected.rounds) > 25


class Greedy(Script):
    """Names everyone who can be selected."""

    def select(self, view: RoundView) -> np.ndarray:
        return np.flatnonzero(view.selectable)


def test_a_policy_that_selects_more_than_may_be_at_work_is_refused() -> None:
    everyone = {"kind": "all"}
    with pytest.raises(UserError, match=r"policy.kind = .all.: selects everyone at once; set server.concurrency = 3"):
        build(parse(tables(policy=everyone)))
    simulation, _ = built(tables(policy={"kind": f"{__name__}:Greedy", "rounds": []}))
    with pytest.raises(AnswerError, match=r"returned array\(\[0, 1, 2\]\); expected at most 2: the server wants no more at work"):
        simulation.run()
    # With room for all of them it is as good as any.
    whole, records = built(tables(policy=everyone, server={"kind": "buffered", "concurrency": 3, "buffer": 2}))
    whole.run()
    assert {row.in_flight for row in records.rounds} <= {0, 1, 2}
