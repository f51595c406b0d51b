"""Probes before a selection: times, bytes and losses by hand, under both servers that select round by round."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from netsim.clients.probes import Probes
from scenarios.runs.reading import override, parse
from scenarios.schema.errors import UserError
from scenarios.wiring.simulation import build
from tests.helpers.memory_recorder import MemoryRecorder
from tests.helpers.probe_world import LEARNER, ROUGH, played, probes, with_policy, world
from tests.helpers.random_worlds import copied
from tests.helpers.small_worlds import constant

NAN = float("nan")


def test_a_probe_is_download_evaluation_and_a_small_answer() -> None:
    simulation, records = played(world([[2, 0, 1]], [[0]]))
    # In the order in which they end.
    assert probes(records, "client", "outcome", "sent_s", "download_end_s", "compute_end_s", "upload_end_s", "outcome_s") == [
        (0, "delivered", 0, 0.25, 1.25, 1.75, 1.75),
        (1, "delivered", 0, 0.5, 1.5, 2, 2),
        (2, "delivered", 0, 0.25, 2.25, 2.75, 2.75),
    ]
    assert probes(records, "bytes_down", "bytes_up") == [(1002, 10)] * 3
    # Selected at 2.75 s, client 0 has the model: it trains for 3 s and sends for half a second.
    (update,) = records.updates
    assert (update.selected_s, update.compute_start_s, update.upload_start_s, update.outcome_s) == (2.75, 2.75, 5.75, 6.25)
    assert np.isnan([update.download_start_s, update.download_end_s]).all()
    assert (update.bytes_down, update.bytes_up) == (0, 502)
    (row,) = records.rounds
    assert (row.start_s, row.end_s, row.probes, row.probes_answered, row.probe_s) == (0, 6.25, 3, 3, 2.75)
    assert (row.bytes_down, row.bytes_up, row.selected, row.delivered) == (3 * 1002, 3 * 10 + 502, 1, 1)
    policy = simulation.server.loop.dispatch.policy
    told = policy.seen[0].probed
    assert told.clients.tolist() == [2, 0, 1]
    assert told.answered.all()
    np.testing.assert_array_equal(told.elapsed_s, [2.75, 1.75, 2.0])
    # Nothing is trained.
    assert np.isnan(told.loss).all()
    assert (policy.asking[0].time_s, policy.seen[0].time_s) == (0, 2.75)
    # From the selection, which is what a policy asks for.
    assert policy.outcomes[0].latency_s.tolist() == [3.5]


def test_probes_are_of_the_version_that_is_there() -> None:
    # Every round makes a new one.
    _, records = played(world([[0, 1], [2], [0]], [[0], [2], [1]], learner=LEARNER))
    assert probes(records, "round", "client", "version") == [(1, 0, 0), (1, 1, 0), (2, 2, 1), (3, 0, 2)]


def test_the_model_is_sent_again_where_it_is_not_kept() -> None:
    _, records = played(world([[0, 1, 2]], [[0]], probe={"reuse_model": False}))
    (update,), (row,) = records.updates, records.rounds
    assert (update.download_start_s, update.download_end_s, update.outcome_s) == (2.75, 3.0, 6.5)
    assert row.bytes_down == 4 * 1002


def test_who_was_not_asked_is_sent_the_model() -> None:
    _, records = played(world([[0]], [[1]]))
    (update,) = records.updates
    assert (update.selected_s, update.download_start_s, update.download_end_s, update.bytes_down) == (1.75, 1.75, 2.25, 1002)


def test_who_answered_before_others_were_asked_holds_the_model() -> None:
    # Client 0 answers at 1.75 s; then client 1 is asked, which answers at 3.75 s. All are selected; client 2 has no model.
    tables = world([], [[0, 1, 2]]) | {"server": {"per_round": 3}}
    tables["policy"] = {"kind": "tests.helpers.asking:Again", "rounds": [[0, 1, 2]], "asked": [[0], [1]]}
    _, records = played(tables)
    assert probes(records, "client", "outcome_s") == [(0, 1.75), (1, 3.75)]
    assert {row.client: row.bytes_down for row in records.updates} == {0: 0, 1: 0, 2: 1002}


def test_a_probe_that_is_late_and_one_that_comes_at_the_deadline() -> None:
    simulation, records = played(world([[0, 1, 2]], [[0]], probe={"deadline_s": 2.0}))
    # Client 2 evaluates from 0.25 s on and is told to stop; client 1 is in time.
    assert probes(records, "client", "outcome", "compute_end_s", "upload_start_s", "outcome_s", "bytes_up")[:2] == [
        (0, "delivered", 1.25, 1.25, 1.75, 10),
        (1, "delivered", 1.5, 1.5, 2.0, 10),
    ]
    late = records.probes[2]
    assert (late.client, late.outcome, late.compute_end_s, late.outcome_s, late.bytes_up) == (2, "late", 2.0, 2.0, 0)
    told = simulation.server.loop.dispatch.view.probed
    assert told.answered.tolist() == [True, True, False]
    np.testing.assert_array_equal(told.elapsed_s, [1.75, 2.0, NAN])
    # A deadline is from the selection on, and the late client is free.
    assert records.updates[0].selected_s == 2.0
    assert records.rounds[0].probes_answered == 2


def test_a_probe_that_is_lost_and_one_whose_client_leaves(tmp_path: Path) -> None:
    trace = tmp_path / "presence.csv"
    trace.write_text("client,on_s,off_s\n0,0,100\n1,0,100\n2,0,1\n")
    simulation, records = played(
        world(
            [[0, 1, 2]],
            [[1]],
            uplink={"channel": {"kind": "bernoulli", "success": [1.0, 0.0, 1.0]}},
            availability={"kind": "trace", "path": str(trace)},
        )
    )
    assert probes(records, "client", "outcome", "outcome_s", "cause") == [
        (2, "aborted", 1.0, None),
        (0, "delivered", 1.75, None),
        (1, "lost", 2.0, "channel"),
    ]
    view = simulation.server.loop.dispatch.view
    assert view.selectable.tolist() == [True, True, False]
    # Whose answer was lost has the model, but the server does not know it.
    assert records.updates[0].bytes_down == 1002


def test_stragglers_and_probes_wait_in_one_queue() -> None:
    # One sub-channel. Round 1 closes at its deadline, 2 s; client 1 sends from 2.5 to 4.5 s. In round 2 client 0 is asked: it
    # gets the model by 2.25 s, evaluates until 3.25 s, and sends its answer from 4.5 to 6.5 s.
    _, records = played(
        world(
            [[], [0]],
            [[1], [0]],
            downlink=constant(0.25, 0.5, 0.25),
            compute=constant(3.0, 2.0, 3.0),
            uplink=constant(2.0, 2.0, 2.0) | {"sub_channels": 1},
            server={"deadline_s": 2.0},
        )
    )
    assert probes(records, "round", "client", "compute_end_s", "upload_start_s", "outcome_s") == [(2, 0, 3.25, 4.5, 6.5)]
    assert [(row.round, row.client, row.outcome, row.outcome_s) for row in records.updates[:1]] == [(1, 1, "late", 4.5)]


def test_stragglers_and_answers_share_the_servers_link() -> None:
    # 100 bytes a second. Client 1 begins to send 502 bytes at 1 s; round 1 closes at its deadline, 2 s. In round 2 client 0 has
    # evaluated at 3 s, when 200 of those are through: its answer of 10 bytes takes 0.2 s at half the rate, up to 3.2 s. The other
    # upload has lost 10 bytes of rate to it, and ends 0.1 s later, 5.02 + 0.1 + 1 s.
    _, records = played(
        world(
            [[], [0], []],
            [[1], [0], [2]],
            downlink=constant(0.0, 0.0, 0.0),
            compute=constant(3.0, 1.0, 5.0),
            uplink={"delay": {"kind": "constant", "value_s": 0.0}, "shared": {"bandwidth_bytes_per_s": 100.0}},
            server={"deadline_s": 2.0},
        )
    )
    ((client, outcome, sent_s, upload_s, end_s),) = probes(records, "client", "outcome", "sent_s", "upload_start_s", "outcome_s")
    assert (client, outcome, sent_s, upload_s) == (0, "delivered", 2, 3)
    assert end_s == pytest.approx(3.2)
    (late,) = [row for row in records.updates if row.client == 1]
    assert (late.outcome, late.outcome_s) == ("late", pytest.approx(6.12))


@pytest.mark.parametrize(
    "uplink",
    [
        {"bandwidth_bytes_per_s": 10.0},
        {"bandwidth": {"kind": "trace", "path": "rates.csv"}},
        {"bandwidth_bytes_per_s": 10.0, "changes": [{"at_round": 2, "bandwidth_bytes_per_s": 1.0}]},
    ],
)
def test_an_answer_crosses_the_clients_own_link_whatever_its_bandwidth_is(
    uplink: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rates.csv").write_text("time_s,bytes_per_s\n0,10\n50,10\n")
    tables = world([[0, 1, 2]], [[0]], payload={"up_bytes": 20, "header_bytes": 2}, uplink=uplink)
    _, records = played(tables)
    # A second of evaluation, half a second of delay and a second for 10 bytes.
    assert probes(records, "client", "outcome_s")[:2] == [(0, pytest.approx(2.75)), (1, pytest.approx(3.0))]
    assert records.updates[0].outcome_s == pytest.approx(3.75 + 3.0 + 0.5 + 2.2)


def test_an_evaluation_takes_a_share_of_the_time_of_its_samples() -> None:
    # 12 and 30 samples at 10 a second: 1.2 and 3 s of training a pass, 0.3 and 0.75 s of evaluation, and 0.1 s of overhead.
    tables = world(
        [[0, 1]],
        [[0]],
        clients=2,
        downlink=constant(0.25, 0.25),
        compute={"delay": {"kind": "constant", "value_s": 0.1}, "samples_per_s": 10.0},
        uplink=constant(0.5, 0.5),
        work={"epochs": 2, "batch_size": 4},
        probe={"forward_share": 0.25},
    )
    tables["clients"] = {"count": 2, "data_sizes": [12.0, 30.0]}
    _, records = played(tables)
    assert probes(records, "client", "samples", "compute_end_s") == [(0, 12, pytest.approx(0.65)), (1, 30, pytest.approx(1.1))]
    _, records = played(override(tables, {"probe.samples": 20}))
    assert probes(records, "client", "samples", "compute_end_s") == [(0, 12, pytest.approx(0.65)), (1, 20, pytest.approx(0.85))]
    # Where the whole training is one latency: of two passes over 12 samples a quarter of half of it.
    lumped = override(tables, {"compute": {"delay": {"kind": "constant", "value_s": 8.0}}})
    _, records = played(lumped)
    assert probes(records, "client", "compute_end_s") == [(0, 1.25), (1, 1.25)]


@pytest.mark.parametrize(("speed", "evaluation_s"), [({}, 1.0), ({"samples_per_s": 10.0}, 3.4)])
def test_a_probe_decompresses_the_model_and_compresses_no_update(speed: dict[str, Any], evaluation_s: float) -> None:
    tables = world([[0]], [[0]], compute=constant(3.0, 3.0, 6.0) | speed)
    if speed:
        tables |= {"clients": {"count": 3, "data_sizes": 12.0}, "work": {"epochs": 1}}
    codec = {"payload.decompress_s_per_byte": 1e-3, "payload.compress_s_per_byte": 1.0}
    for changes, codec_s in (({}, 0.0), (codec, 1.002)):
        _, records = played(override(tables, changes))
        (probe,) = records.probes
        assert probe.compute_end_s - probe.compute_start_s == pytest.approx(evaluation_s + codec_s)


def test_a_client_that_a_script_takes_away_answers_nothing() -> None:
    simulation, records = build(parse(world([[0, 1]], [[1]]))).simulation, MemoryRecorder()
    simulation.record_to(records)
    simulation.clock.call_at(1.0, simulation.server.clients.leave, np.array([0]))
    simulation.run()
    assert probes(records, "client", "outcome", "compute_end_s", "outcome_s") == [
        (0, "aborted", 1.0, 1.0),
        (1, "delivered", 1.5, 2.0),
    ]


def test_a_client_that_is_at_work_is_not_asked() -> None:
    # Client 1 works for long; in round 2 it is busy.
    tables = world([[], [1]], [[1], [0]], compute=constant(3.0, 30.0, 3.0), server={"deadline_s": 2.0, "reselect_busy": True})
    with pytest.raises(Exception, match=r"probe returned array\(\[1\]\); every client must be present and not busy"):
        played(tables)


@pytest.mark.parametrize(
    ("answer", "fragment"),
    [([[0, 0]], r"^policy: probe .*; no client may be named twice"), ([[7]], "every client must be present and not busy")],
)
def test_an_answer_that_no_policy_may_give_is_told(answer: list[list[int]], fragment: str) -> None:
    with pytest.raises(Exception, match=fragment):
        played(world(answer, [[0]]))


@pytest.mark.parametrize("deadline_s", [0.0, -1.0, NAN])
def test_a_deadline_that_nobody_can_meet_is_refused_by_name(deadline_s: float) -> None:
    nothing: Any = None
    with pytest.raises(ValueError, match=f"^deadline_s = {deadline_s}: must be > 0 seconds"):
        Probes(pool=nothing, asking=nothing, deadline_s=deadline_s)


def test_a_free_oracle_takes_neither_time_nor_bytes() -> None:
    simulation, records = played(world([[2, 0]], [[0]], probe={"timed": False}))
    assert probes(records, "client", "outcome", "sent_s", "outcome_s", "bytes_down") == [
        (2, "delivered", 0, 0, 0),
        (0, "delivered", 0, 0, 0),
    ]
    (row,) = records.rounds
    assert (row.end_s, row.bytes_down, row.bytes_up, row.probes, row.probes_answered, row.probe_s) == (3.75, 1002, 502, 2, 2, 0)
    assert simulation.server.loop.dispatch.view.probed.answered.all()


def test_a_saved_scenario_of_a_free_oracle_can_be_read() -> None:
    scenario = parse(world([[2, 0]], [[0]], probe={"timed": False}))
    assert parse(scenario.model_dump(exclude_none=True, by_alias=True)) == scenario


def test_rounds_of_fixed_length_hold_probes_and_updates() -> None:
    # Probes are answered by 1.75 and 2 s; the updates end at 5.5 and 5.5 s, in the round that ends at 8 s.
    _, records = played(
        world(
            [[0, 1], [0]],
            [[0, 1], [0]],
            probe={"deadline_s": 3.0},
        )
        | {"server": {"kind": "semi-synchronous", "per_round": 2, "round_s": 8.0}}
    )
    ends = [(row.client, row.selected_s, row.outcome_s) for row in records.updates]
    assert ends == [(0, 2, 5.5), (1, 2, 5.5), (0, 9.75, 13.25)]
    assert [(row.start_s, row.end_s, row.probes) for row in records.rounds] == [(0, 8, 2), (8, 16, 1)]


TESTED = {"kind": "tifl", "timeout_s": 500.0, "tiers": 2, "probabilities": "adaptive", "interval": 2}


def test_clients_test_the_model_before_tiers_are_ranked() -> None:
    learner = LEARNER | {"local_test_samples": 6}
    tables = with_policy(TESTED, 5, learner=learner) | {"compute": {"samples_per_s": 2.0}}
    simulation, records = played(tables)
    asked = [row for row in records.probes if row.round > 1]
    assert [row.probes for row in records.rounds] == [3, 0, 3, 0, 3]
    for row in asked:
        # The model, a third of the time of training on six samples, and a small answer.
        took_s = [row.download_end_s - row.sent_s, row.compute_end_s - row.compute_start_s, row.outcome_s - row.upload_start_s]
        assert took_s == pytest.approx([[0.25, 0.5, 0.25][row.client], 1.0, 0.5])
        assert (row.samples, row.bytes_down, row.bytes_up) == (6, 1002, 10)
        assert np.isnan(row.loss)
    assert all((row.samples, row.bytes_up) != (6, 10) for row in records.probes if row.round == 1)
    told = simulation.server.loop.dispatch.view.probed
    assert told.clients.tolist() == [0, 1, 2]
    # Whoever was selected in a round with a test has the model.
    assert [row.bytes_down for row in records.updates] == [0, 1002, 0, 1002, 0]
    assert records.updates[2].selected_s == pytest.approx(records.rounds[2].start_s + 2.0)
    assert [row.bytes_down for row in records.rounds][1:4] == [1002, 3 * 1002, 1002]


def test_what_is_told_is_the_accuracy_of_the_present_model(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation, _ = built = build(parse(with_policy(TESTED, 3, learner=LEARNER))).simulation, MemoryRecorder()
    simulation.record_to(built[1])
    learner, seen = simulation.server.learner, []
    aggregate = learner.aggregate

    def noting(*arguments: Any) -> Any:
        seen.append(learner.tests.opinions("own"))
        return aggregate(*arguments)

    monkeypatch.setattr(learner, "aggregate", noting)
    simulation.run()
    told = simulation.server.loop.dispatch.view.probed
    np.testing.assert_array_equal(told.accuracy, seen[2])
    assert np.isnan(told.loss).all()
    # It is in the records, too, of that round, and of no profile.
    recorded = {row.client: row.accuracy for row in built[1].probes if row.round == 3}
    assert [recorded[client] for client in range(3)] == seen[2].tolist()
    assert all(np.isnan(row.accuracy) for row in built[1].probes if row.round == 1)


def test_a_test_that_the_end_of_the_run_cuts_short_is_recorded_as_far_as_it_came() -> None:
    # The third round opens with the second test; clients answer after 1.75, 2 and 1.75 s.
    tables = with_policy(TESTED, 5, learner=LEARNER | {"local_test_samples": 6}) | {"compute": {"samples_per_s": 2.0}}
    _, whole = played(tables)
    start_s = whole.rounds[2].start_s
    simulation, records = played(tables | {"time_limit_s": start_s + 1.9})
    simulation.close()
    cut = {row.client: row for row in records.probes if row.round == 3}
    expected = {row.client: row.accuracy for row in whole.probes if row.round == 3}
    assert {client: row.outcome for client, row in cut.items()} == {0: "delivered", 1: "in_flight", 2: "delivered"}
    assert [cut[client].accuracy for client in (0, 2)] == [expected[client] for client in (0, 2)]
    assert np.isnan(cut[1].accuracy)
    # It is the first test of the run: what clients were asked before was about other samples.
    assert {row.samples for row in cut.values()} == {6}


def test_tests_of_the_model_go_on_from_a_saved_state() -> None:
    tables = override(ROUGH, {"policy": TESTED | {"timeout_s": 6.0, "tested": 2}, "probe": {"deadline_s": 5.0}})
    simulation, expected = played(tables)
    assert {row.bytes_up for row in expected.probes} >= {8, 50}
    counts = simulation.server.counts()
    assert counts["bytes_down"] == sum(row.bytes_down for row in [*expected.updates, *expected.probes])
    assert counts["probe_bytes_up"] == sum(row.bytes_up for row in expected.probes)
    for after in (1, 2, 4):
        first = build(parse(tables)).simulation
        first.record_to(MemoryRecorder())
        first.run(until_round=after)
        second, records = build(parse(tables)).simulation, MemoryRecorder()
        second.load_state_dict(copied(first.state_dict()))
        second.record_to(records)
        second.run()
        assert str(records.rounds) == str(expected.rounds[after:])
        assert str(records.probes) == str([row for row in expected.probes if row.round > after])


def test_tests_of_the_model_need_one() -> None:
    with pytest.raises(UserError, match=r"policy\.kind = 'tifl': asks clients to test the model, and nothing is trained"):
        build(parse(with_policy(TESTED, 1)))
    few = LEARNER | {"data": {"kind": "digits", "samples": 90, "test_samples": 1}}
    with pytest.raises(UserError, match=r"learner\.data: among the test samples, which clients are asked to test"):
        build(parse(with_policy(TESTED, 1, learner=few)))
