"""Every act of a script under every kind of server that it makes sense for, with an effect that can be seen in the tables."""

from __future__ import annotations

from typing import Any

import pytest

import netsim
from tests.helpers.probe_world import world as probing
from tests.helpers.script_worlds import SERVERS, UNCERTAIN, during, met, study
from tests.helpers.scripted import recorded


@pytest.mark.parametrize("server", SERVERS)
def test_clients_that_are_taken_away_are_aborted_and_come_back(server: str) -> None:
    rows = during(study(server), lambda world: world.take_away(2).bring_back)
    taken = [row for row in rows.updates if row.client == 2]
    for row in taken:
        assert not 5.05 < row.selected_s < 9.05
        if row.selected_s < 5.05 < row.outcome_s:
            pytest.fail("it should have been aborted")
    ended = [row for row in taken if row.outcome_s == 5.05]
    assert all(row.outcome == "aborted" for row in ended)
    # Under most servers it is at work then; the others show it at another time.
    assert ended or server in ("synchronous", "semi-synchronous", "buffered", "safa", "fl-fa", "fl-da")
    assert any(row.selected_s >= 9.05 for row in taken)
    assert [act.action for act in rows.acts] == ["take_away", "bring_back"]
    others = [row for row in rows.updates if row.client != 2 and 5.05 < row.selected_s < 9.05]
    assert others


@pytest.mark.each_nth(3)
@pytest.mark.parametrize("server", SERVERS)
def test_whoever_is_taken_away_in_mid_phase_is_aborted_in_that_phase(server: str) -> None:
    # Client 3 trains for 1.1 s: taken away 0.3 s after a training of it began.
    starts = [row.compute_start_s for row in recorded(study(server)).updates if row.client == 3]
    when_s = next(start for start in starts if start > 3.0) + 0.3
    rows = during(study(server), lambda world: world.take_away([3]).bring_back, when_s, when_s + 3.0)
    (row,) = [row for row in rows.updates if row.outcome_s == when_s and row.client == 3]
    assert row.outcome == "aborted"
    assert row.compute_end_s == when_s
    assert row.upload_start_s != row.upload_start_s, "it never began to send"


@pytest.mark.parametrize("server", SERVERS)
def test_what_meets_a_cut_off_is_lost_and_nothing_else(server: str) -> None:
    rows = during(study(server), lambda world: world.cut_off([0, 1]).reconnect)
    hit = 0
    for row in rows.updates:
        if row.outcome in UNCERTAIN:
            continue
        down = row.download_start_s < 9.05 and row.download_end_s > 5.05
        cut = row.client in (0, 1) and (down or met(row, 5.05, 9.05))
        hit += cut
        assert row.outcome == ("lost" if cut else "delivered"), row
        assert row.cause == ("cut-off" if cut else None)
    assert hit


@pytest.mark.parametrize("server", ["fl-fa", "fl-da"])
def test_tests_of_the_model_last_what_the_script_says(server: str) -> None:
    rows = during(study(server), lambda world: world.change("opinions.test.delay", value_s=1.0, clients=3).restore)
    lasted = {round(row.opinion_s or 0.0, 9) for row in rows.rounds}
    assert lasted == {0.3, 1.0}


def test_an_evaluation_that_has_not_begun_follows_what_the_script_changes() -> None:
    # A probe takes a third of the time of training. Clients 0 and 2 begin at 0.25 s, client 1 at 0.5 s: at 0.3 s it is the only
    # one to whom it matters that training comes to take 6 s for everyone.
    def script(world):
        yield world.until_time(0.3)
        world.change("compute.delay", value_s=6.0)

    rows = recorded(probing([[0, 1, 2]], [[0]]), script)
    assert [(row.client, row.compute_end_s - row.compute_start_s, row.outcome_s) for row in rows.probes] == [
        (0, 1.0, 1.75),
        (2, 2.0, 2.75),
        (1, 2.0, 3.0),
    ]


def test_a_script_may_wait_for_a_slot() -> None:
    def script(world):
        yield world.until_slot(3)
        seen.append((world.slot, world.round, world.time_s))

    seen: list[tuple[int, int, float]] = []
    rows = recorded(study("fl-fa"), script)
    # Slots of three communication rounds: two slots are six of them.
    assert seen == [(3, 6, rows.rounds[2].start_s)]


def test_a_server_waits_for_clients_that_a_script_will_bring_back() -> None:
    def script(world):
        yield world.until_time(3.0)
        away = world.take_away(None)
        yield world.until_time(20.0)
        away.bring_back()

    for server in SERVERS:
        rows = recorded(study(server, rounds=30), script)
        assert not [row for row in rows.updates if 3.0 <= row.selected_s < 20.0], server
        assert [row for row in rows.updates if row.selected_s >= 20.0], server


def test_a_run_ends_when_a_script_takes_everybody_away_for_good() -> None:
    def script(world):
        yield world.until_time(3.0)
        world.take_away(None)

    for server in SERVERS:
        rows = recorded(study(server), script)
        assert rows.updates[-1].selected_s <= 3.0, server


@pytest.mark.parametrize("server", ["semi-synchronous", "asynchronous"])
def test_rounds_of_a_fixed_length_pass_until_that_in_which_a_script_brings_everybody_back(server: str) -> None:
    def script(world):
        yield world.until_round(3)
        away = world.take_away(None)
        yield world.until_delivery(count=100) | world.until_round(6)
        away.bring_back()

    rows = recorded(study(server, rounds=8), script)
    assert len(rows.rounds) == 8
    assert [row.round for row in rows.rounds if not row.selected] == [3, 4, 5]


def test_clients_are_brought_back_when_a_straggler_ends() -> None:
    # The round closes at the second delivery. All three clients are needed for the next one: two are taken away until the third,
    # which is still at work, has ended.
    def script(world):
        yield world.until_delivery(count=2)
        away = world.take_away([0, 1])
        told.append((yield world.until_end(clients=2)))
        away.bring_back()

    told: list[Any] = []
    tables = study("synchronous", clients={"count": 3}, rounds=2) | {"server": {"per_round": 3, "first": 2}}
    rows = recorded(tables | {"compute": {"delay": {"kind": "constant", "value_s": [0.5, 0.7, 5.0]}}}, script)
    assert [(end.outcome, end.time_s) for end in told] == [("late", pytest.approx(5.7))]
    assert [row.start_s for row in rows.rounds] == [0.0, pytest.approx(5.7)]


def test_what_is_being_made_between_two_rounds_is_lost_with_its_client() -> None:
    # Rounds of 2 s. Client 0 trains for 5 s; at 2 s its attempt is over and it goes on, unless it is taken away just then.
    def script(world):
        yield world.until_round(2)
        away = world.take_away(0)
        yield world.until_round(3)
        away.bring_back()

    slow = study("asynchronous", rounds=6, compute={"delay": {"kind": "constant", "value_s": [5.0, 0.5, 0.5, 0.5]}})
    ends = {
        name: [(row.round, row.outcome) for row in recorded(slow, act).updates if row.client == 0]
        for name, act in (("as it is", None), ("taken away", script))
    }
    assert ends["as it is"] == [(1, "late"), (2, "late"), (3, "delivered"), (4, "late"), (5, "late"), (6, "delivered")]
    assert ends["taken away"] == [(1, "late"), (3, "late"), (4, "late"), (5, "delivered"), (6, "late")]


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(("back", "again_s", "late"), [(3, 4.0, [1, 3, 4, 5]), (4, 6.0, [1, 4, 5, 6])])
def test_a_model_on_its_way_between_two_rounds_is_lost_with_its_client(
    back: int, again_s: float, late: list[int], shared: bool
) -> None:
    # As above, but that client 0 waits 5 s for the bytes of its model: it is sent all of them again as it comes back.
    def script(world):
        yield world.until_round(2)
        away = world.take_away(0)
        yield world.until_round(back)
        away.bring_back()

    slow = study(
        "asynchronous",
        rounds=6,
        compute={"delay": {"kind": "constant", "value_s": 0.5}},
        downlink={"bandwidth_bytes_per_s": 100.0} | ({"shared": {"bandwidth_bytes_per_s": 10_000.0}} if shared else {}),
        payload={"down_bytes": [500, 1, 1, 1]},
    )
    rows = [row for row in recorded(slow, script).updates if row.client == 0]
    assert [row.round for row in rows if row.outcome == "late"] == late
    (whole,) = [row for row in rows if row.download_end_s == row.download_end_s]
    assert (whole.download_start_s, whole.download_end_s) == (again_s, pytest.approx(again_s + 5.0))


@pytest.mark.each_nth(3)
@pytest.mark.parametrize("server", SERVERS)
def test_clients_that_are_away_draw_what_absent_ones_draw(server: str) -> None:
    # 2 W idle, 5 W at work, 0.5 W away; the sum over attempts and idleness is checked against an integral of power in every run.
    def script(world):
        yield world.until_time(5.05)
        away = world.take_away([1, 3])
        yield world.until_time(9.05)
        away.bring_back()

    watts = {"energy": {"idle_w": 2.0, "compute_w": 5.0, "send_w": 5.0, "receive_w": 5.0, "off_w": 0.5}}
    run = netsim.run(study(server, **watts), script=script)
    assert run.summary["books"]["balanced"]
    rounds = run.rounds
    seconds = float(rounds["end_s"].iloc[-1])
    idle_j = float(rounds["idle_j"].sum())
    at_work_s = float((rounds["compute_j"] + rounds["send_j"] + rounds["receive_j"]).sum()) / 5.0
    if server.startswith("fl-"):
        return  # tests of the model draw as well
    assert idle_j == pytest.approx(2.0 * (4 * seconds - at_work_s) - 1.5 * 8.0, rel=1e-9)


def test_absences_may_overlap() -> None:
    def script(world):
        first = world.take_away([0, 1])
        second = world.take_away([1, 2])
        yield world.until_time(4.0)
        first.bring_back()
        yield world.until_time(8.0)
        second.bring_back()

    rows = recorded(study("asynchronous"), script)
    first = {client: min(row.selected_s for row in rows.updates if row.client == client) for client in range(4)}
    assert first == {0: 4.0, 1: 8.0, 2: 8.0, 3: 0.0}
