"""What a policy is told with the updates that arrive, and losses as columns of attempts, under every server."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from netsim.clients.vectorised import whole_rounds
from netsim.core.reports import Reports, RoundOutcome
from scenarios.runs.reading import override, parse
from scenarios.wiring.simulation import build
from tests.helpers.memory_recorder import MemoryRecorder
from tests.helpers.random_worlds import copied, same
from tests.helpers.small_worlds import Script, World, constant

NAN = float("nan")
BUFFERED: dict[str, Any] = {
    "name": "buffered",
    "rounds": 4,
    "clients": {"count": 3},
    "server": {"kind": "buffered", "concurrency": 2, "buffer": 1},
    "payload": {"down_bytes": 10, "up_bytes": 4},
    "policy": {"kind": "tests.netsim.servers.rounds.test_reports:Lowest"},
    "compute": constant(1.0, 3.0, 1.0),
}
LEARNER: dict[str, Any] = {
    "data": {"kind": "digits", "samples": 90},
    "network": {"kind": "mlp", "hidden": [6]},
    "optimizer": {"kind": "sgd", "learning_rate": 0.1},
    "batch_size": 8,
}


class Lowest(Script):
    """The selectable client of the lowest number."""

    def __init__(self) -> None:
        super().__init__(rounds=[])

    def select(self, view: Any) -> Any:
        return np.flatnonzero(view.selectable)[:1]


class Curious(Lowest):
    needs_losses = True


def played(tables: dict[str, Any]) -> tuple[Any, MemoryRecorder, list[RoundOutcome]]:
    simulation, records = build(parse(tables)).simulation, MemoryRecorder()
    simulation.record_to(records)
    simulation.run()
    simulation.close()
    return simulation, records, simulation.server.loop.dispatch.policy.outcomes


def test_where_nothing_arrived_nothing_is_told() -> None:
    # Client 0 delivers after 0.25 + 1 + 0.5 s, client 1 misses the deadline, client 2's upload is lost.
    world = World(
        [[2, 0, 1]],
        server={"per_round": 3, "deadline_s": 4.0},
        payload={"down_bytes": 30, "up_bytes": 7},
        work={"steps": 6, "batch_size": 4},
        downlink=constant(0.25, 0.5, 0.25),
        compute=constant(1.0, 9.0, 1.0),
        uplink=constant(0.5, 0.5, 0.5) | {"channel": {"kind": "bernoulli", "success": [1.0, 1.0, 0.0]}},
    )
    world.play()
    (outcome,) = world.server.loop.dispatch.policy.outcomes
    told = outcome.reports
    assert outcome.censored.tolist() == [True, False, True]
    assert told.staleness.tolist() == [-1, 0, -1]
    assert told.samples.tolist() == [-1, 24, -1]
    assert told.steps.tolist() == [-1, 6, -1]
    assert told.bytes_down.tolist() == [-1, 30, -1]
    assert told.bytes_up.tolist() == [-1, 7, -1]
    np.testing.assert_array_equal(told.elapsed_s, [NAN, 1.75, NAN])
    # The server sees no client's inside, and nothing is trained.
    for hidden in (told.download_s, told.compute_s, told.upload_s, told.loss, told.loss_rms):
        assert np.isnan(hidden).all()
    assert outcome.reports is told


def test_clients_that_report_their_phases() -> None:
    # One sub-channel: client 0 sends from 1.25 to 1.75 s, client 2 is ready at 1.5 s and waits until then.
    tables = {
        "name": "reporting",
        "rounds": 1,
        "clients": {"count": 3, "report_phases": True},
        "server": {"per_round": 3, "deadline_s": 4.0},
        "policy": {"kind": "tests.helpers.small_worlds:Script", "rounds": [[0, 1, 2]]},
        "downlink": constant(0.25, 0.25, 0.5),
        "compute": constant(1.0, 9.0, 1.0),
        "uplink": constant(0.5, 0.5, 0.25) | {"sub_channels": 1},
    }
    _, _, (outcome,) = played(tables)
    told = outcome.reports
    np.testing.assert_array_equal(told.elapsed_s, [1.75, NAN, 2.0])
    np.testing.assert_array_equal(told.download_s, [0.25, NAN, 0.5])
    np.testing.assert_array_equal(told.compute_s, [1.0, NAN, 1.0])
    np.testing.assert_array_equal(told.upload_s, [0.5, NAN, 0.25])


@pytest.mark.parametrize("trained", [False, True])
def test_staleness_in_versions_or_where_nothing_is_trained_in_rounds(trained: bool) -> None:
    # Client 1, sent the first model, is done at 3 s as the third round ends; in the same instant, after it, client 0, which was
    # sent the model of 2 s: it makes the fourth.
    simulation, _, outcomes = played(BUFFERED | ({"learner": LEARNER} if trained else {}))
    told = [(one.clients.tolist(), one.reports.staleness.tolist(), one.reports.elapsed_s.tolist()) for one in outcomes]
    assert told == [([0], [0], [1.0]), ([0], [0], [1.0]), ([1], [2], [3.0]), ([0], [1], [1.0])]
    assert simulation.server.learner.version == (4 if trained else 0)


def test_a_policy_is_told_losses_only_if_it_wants_them() -> None:
    asked = override(BUFFERED | {"learner": LEARNER}, {"policy.kind": "tests.netsim.servers.rounds.test_reports:Curious"})
    _, records, outcomes = played(asked)
    assert all(np.isfinite(one.reports.loss).all() and (one.reports.loss_rms >= one.reports.loss).all() for one in outcomes)
    # Of ten labels guessed at random ln 10 = 2.3.
    assert 1.5 < outcomes[0].reports.loss[0] < 3.5
    # Nobody asked for columns.
    assert all(row.loss is None for row in records.updates)
    _, _, outcomes = played(BUFFERED | {"learner": LEARNER})
    assert all(np.isnan(one.reports.loss).all() for one in outcomes)


SERVERS: dict[str, dict[str, Any]] = {
    "synchronous": {"server": {"per_round": 3, "first": 2}},
    "buffered": {"server": {"kind": "buffered", "concurrency": 3, "buffer": 2}},
    "semi-synchronous": {"server": {"kind": "semi-synchronous", "per_round": 2, "round_s": 1.1}},
    "asynchronous": {
        "server": {"kind": "asynchronous"},
        "channels": {"count": 6, "channel": {"kind": "bernoulli", "success": 0.7}},
        "scheduler": {"kind": "random"},
    },
    "fl-fa": {
        "server": {"kind": "fl-fa", "per_round": 3},
        "policy": {"kind": "random-set"},
        "slots": {"rounds": 2},
    },
}


EVERYONE = {"kind": "tests.helpers.small_worlds:Script", "rounds": [[*range(6)]] * 2}


def with_losses(kind: str) -> dict[str, Any]:
    tables: dict[str, Any] = {
        "name": "losses",
        "rounds": 4,
        "clients": {"count": 6},
        # Constant times: several updates end in one instant.
        "compute": constant(0.5, 0.5, 1.0, 1.0, 1.5, 1.5),
        "uplink": {"channel": {"kind": "bernoulli", "success": 0.8}},
        "learner": LEARNER | {"client_losses": True},
    }
    if kind != "asynchronous":
        tables["policy"] = {"kind": "random"}
    return tables | SERVERS[kind]


@pytest.mark.each_nth(3)
@pytest.mark.parametrize("kind", SERVERS)
def test_losses_are_columns_of_what_was_delivered_and_nothing_else_changes(kind: str) -> None:
    tables = with_losses(kind)
    simulation = build(parse(tables)).simulation
    told: dict[tuple[int, int], tuple[float, float]] = {}
    learner = getattr(simulation.server, "loop", None) or simulation.server.training
    learner = learner.learner
    aggregate = learner.aggregate

    def noting(deliveries: Any, want_updates: bool, want_losses: bool) -> Any:
        content = aggregate(deliveries, want_updates, want_losses)
        keys = zip(deliveries.clients.tolist(), deliveries.rounds.tolist(), strict=True)
        told.update(dict(zip(keys, zip(content.loss.tolist(), content.loss_rms.tolist(), strict=True), strict=True)))
        return content

    learner.aggregate = noting
    records = MemoryRecorder()
    simulation.record_to(records)
    simulation.run()
    simulation.close()
    delivered = [row for row in records.updates if row.outcome == "delivered"]
    counted = [row for row in delivered if row.loss is not None]
    assert {(row.client, row.started_round or row.round): (row.loss, row.loss_rms) for row in counted} == told
    assert len(counted) == len(told) > 3
    assert all(row.loss is None and row.loss_rms is None for row in records.updates if row.outcome != "delivered")
    # Those without have ended in the last round, behind the delivery that closed it.
    assert len(counted) == len(delivered) or kind == "buffered"
    plain = MemoryRecorder()
    without = build(parse(override(tables, {"learner.client_losses": False}))).simulation
    without.record_to(plain)
    without.run()
    without.close()
    assert same(plain.updates, [row._replace(loss=None, loss_rms=None) for row in records.updates])
    assert same(plain.rounds, records.rounds)


@pytest.mark.each_nth(3)
@pytest.mark.parametrize("kind", SERVERS)
def test_a_run_that_goes_on_from_a_saved_state_leaves_the_same_losses(kind: str) -> None:
    def begun() -> tuple[Any, MemoryRecorder]:
        simulation, records = build(parse(with_losses(kind))).simulation, MemoryRecorder()
        simulation.record_to(records)
        return simulation, records

    whole, expected = begun()
    whole.run()
    whole.close()
    held = 0
    first, before = begun()
    for after in (1, 2, 3):
        first.run(until_round=after)
        second, rest = begun()
        state = copied(first.state_dict())
        held += len(state["server"]["rows"]["held"])
        second.load_state_dict(state)
        second.run()
        second.close()
        assert same(before.updates + rest.updates, expected.updates)
    assert (held > 0) == (kind == "buffered")


def test_rounds_that_are_worked_out_together_have_losses_too(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = with_losses("synchronous") | {"rounds": 2, "server": {"per_round": 6}, "uplink": {}}
    _, together, _ = played(tables | {"policy": EVERYONE})
    # Those that train for 0.5, 1 and 1.5 s, one after the other, in both rounds; nothing is lost.
    assert [(row.client, row.outcome_s) for row in together.updates[:6]] == [(i, 0.5 + i // 2 / 2) for i in range(6)]
    assert [row.loss is not None for row in together.updates] == [True] * 12
    monkeypatch.setattr(whole_rounds, "FROM", 7)
    _, apart, _ = played(tables | {"policy": EVERYONE})
    assert same(together.updates, apart.updates)


def test_what_ended_in_a_round_that_a_time_limit_cut_is_recorded_without_losses() -> None:
    # Round 1 takes 1 s of clients 0 and 2, round 2 is cut at 1.75 s: client 0 has ended by then, and is never trained.
    tables = with_losses("synchronous") | {
        "server": {"per_round": 2},
        "uplink": {},
        "policy": {"kind": "tests.helpers.small_worlds:Script", "rounds": [[0, 2], [0, 4]]},
        "time_limit_s": 1.75,
    }
    simulation, records, _ = played(tables)
    assert [(row.round, row.client, row.outcome, row.loss is None) for row in records.updates] == [
        (1, 0, "delivered", False),
        (1, 2, "delivered", False),
        (2, 0, "delivered", True),
        (2, 4, "in_flight", True),
    ]
    assert simulation.server.learner.trained_updates == 2


def test_an_outcome_that_nothing_is_known_of() -> None:
    outcome = RoundOutcome(1, 0.0, 1.0, np.arange(2), np.ones(2), np.ones(2, np.bool_))
    assert outcome.reports.staleness.tolist() == [-1, -1]
    assert np.isnan(outcome.reports.loss_rms).all()
    assert Reports.nothing(0).loss.shape == (0,)
