"""What would have come of a round: equal, exactly, to a run whose scenario differs in that round only."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import netsim
from analysis.stragglers.closers import closers
from analysis.stragglers.records import run_records
from scenarios.runs.reading import override, parse
from scenarios.runs.what_if.answers import Answer, every_client, what_if
from scenarios.runs.what_if.branches import Closed
from scenarios.runs.what_if.changes import Change
from scenarios.schema.errors import UserError
from tests.helpers.probe_world import ROUGH
from tests.helpers.random_worlds import built, random_tables
from tests.helpers.rough_scenarios import BUFFERED, COMPASS, NOBODY_SELECTS, other, rough
from tests.helpers.small_scenario import selected_in

ROUNDS = 6


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def scripted(seed: int, folder: Path) -> tuple[dict[str, Any], list[list[int]]]:
    """A random world of clients that are always there, whose selections are written out, and these."""
    tables = random_tables(seed, folder)
    rng = np.random.default_rng([7, seed])
    count, a_round = tables["clients"]["count"], min(tables["server"]["per_round"] + 1, tables["clients"]["count"])
    sets = [sorted(rng.choice(count, a_round, replace=False).tolist()) for _ in range(ROUNDS)]
    tables |= {"rounds": ROUNDS, "availability": {"kind": "always"}}
    tables["server"] |= {"per_round": a_round, "reselect_busy": True}
    tables["server"].pop("first", None)
    for name in ("time_limit_s", "privacy"):
        tables.pop(name, None)
    return tables | {"policy": {"kind": "tests.helpers.small_worlds:Script", "rounds": sets}}, sets


def folder_of(tables: dict[str, Any], place: Path) -> Path:
    netsim.run(tables, out=place)
    return place


def as_recorded(records: Any, number: int, *, but: int | None = None) -> tuple[float, float, list[tuple[int, float, bool]]]:
    """A round by the rows of a run: its bounds, and the ends of its attempts up to its close."""
    (row,) = [row for row in records.rounds if row.round == number]
    ends = [
        (update.client, update.outcome_s if ended else -1.0, update.outcome == "delivered" and ended)
        for update in records.updates
        for ended in [update.outcome != "in_flight" and update.outcome_s <= row.end_s]
        if update.round == number and update.client != but
    ]
    return row.start_s, row.end_s, sorted(ends)


def as_told(closed: Closed | None) -> tuple[float, float, list[tuple[int, float, bool]]]:
    assert closed is not None
    ends = [(end.client, end.ended_s if end.ended_s <= closed.end_s else -1.0, end.delivered) for end in closed.attempts]
    return closed.start_s, closed.end_s, sorted(ends)


@pytest.mark.each_nth(3)
@pytest.mark.parametrize("seed", range(5))
def test_a_round_without_a_client_is_that_of_a_run_that_did_not_select_it(seed: int, tmp_path: Path) -> None:
    tables, sets = scripted(seed, tmp_path)
    number = 4
    place = folder_of(tables, tmp_path / "run")
    for client in sets[number - 1][:2]:
        fewer = [[one for one in chosen if one != client] if i == number - 1 else chosen for i, chosen in enumerate(sets)]
        if not fewer[number - 1]:
            continue
        simulation, records = built(tables | {"policy": tables["policy"] | {"rounds": fewer}})
        simulation.run()
        simulation.close()
        (answer,) = what_if(place, number, [Change("without", client)])
        start_s, end_s, ends = as_recorded(records, number)
        assert as_told(answer.then) == (start_s, end_s, ends)
        assert answer.saved_s == answer.was.end_s - end_s


@pytest.mark.each_nth(3)
@pytest.mark.parametrize("seed", range(5))
def test_a_round_with_a_deadline_is_that_of_a_run_in_which_it_came_into_force(seed: int, tmp_path: Path) -> None:
    tables = random_tables(seed, tmp_path) | {"rounds": ROUNDS}
    place = folder_of(tables, tmp_path / "run")
    last = int(netsim.open_run(place).summary["rounds"])
    number = min(3, last)
    simulation, records = built(tables)
    simulation.run(until_round=number - 1)
    server: Any = simulation.server
    server.loop.close.limit(0.75)
    simulation.run(until_round=number)
    simulation.close()
    (answer,) = what_if(place, number, [Change("deadline", 0.75)])
    assert as_told(answer.then) == as_recorded(records, number)


def three(uplink: dict[str, Any], **tables: Any) -> dict[str, Any]:
    return {
        "name": "links",
        "seed": 3,
        "rounds": 1,
        "clients": {"count": 3},
        "server": {"per_round": 3},
        "policy": {"kind": "random"},
        "payload": {"down_bytes": 24, "up_bytes": 40},
        "downlink": {"bandwidth_bytes_per_s": 16.0},
        "compute": {"delay": {"kind": "shifted-exponential", "shift_s": 0.1, "mean_excess_s": 1.0}},
        "uplink": uplink,
    } | tables


def test_nobody_takes_the_sub_channel_of_who_is_left_out(tmp_path: Path) -> None:
    tables = three({}, server={"per_round": 2}, clients={"count": 2}, policy={"kind": "all"})
    tables |= {
        "compute": {"delay": {"kind": "constant", "value_s": 1.0}},
        "channels": {"count": 2, "delay": {"kind": "constant", "value_s": [0.5, 2.0]}},
        "scheduler": {"kind": "round-robin"},
    }
    del tables["downlink"]
    place = folder_of(tables, tmp_path / "run")
    first, second = what_if(place, 1, [Change("without", 0), Change("without", 1)])
    ends = {end.client: end.ended_s for end in first.was.attempts}
    assert sorted(ends.values()) == [1.5, 3.0]
    assert first.then is not None
    assert second.then is not None
    assert (first.then.end_s, second.then.end_s) == (ends[1], ends[0])


def test_a_round_without_its_only_client_closes_at_once(tmp_path: Path) -> None:
    place = folder_of(three({}, server={"per_round": 1}, rounds=2), tmp_path / "run")
    (answer,) = what_if(place, 2, [Change("without", client) for client in selected_in(place, 2)])
    assert answer.then is not None
    assert answer.then.end_s == answer.was.start_s
    assert answer.then.attempts == ()


def test_with_links_of_their_own_only_the_last_client_of_a_round_costs_time_and_as_much_as_the_tables_say(tmp_path: Path) -> None:
    place = folder_of(three({}, rounds=8, server={"per_round": 2}), tmp_path / "run")
    answers = every_client(place)
    table = closers(run_records(netsim.open_run(place))).set_index("round")
    assert len(answers) == 16
    for answer in answers:
        row = table.loc[answer.was.round]
        assert answer.then is not None
        if answer.change.client == row["client"]:
            assert answer.saved_s == pytest.approx(row["stretch_s"], rel=1e-12)
        else:
            assert answer.then.end_s == answer.was.end_s


def unchanged(place: Path, number: int) -> Answer:
    (answer,) = what_if(place, number, [Change("nothing")])
    assert answer.then == answer.was
    return answer


TIFL = {"kind": "tifl", "timeout_s": 6.0, "tiers": 2, "probabilities": "adaptive", "interval": 2, "tested": 2}
SERVERS: dict[str, dict[str, Any]] = {
    "rough": rough(),
    "buffered": BUFFERED,
    "semi": BUFFERED | {"server": {"kind": "semi-synchronous", "per_round": 4, "round_s": 1.0}},
    "safa": NOBODY_SELECTS | {"server": {"kind": "safa", "per_round": 3, "deadline_s": 1.5, "lag_tolerance": 1}},
    "compass": COMPASS,
    "probes": ROUGH,
    "tests": override(ROUGH, {"policy": TIFL, "probe": {"deadline_s": 5.0}}),
    "ages": other("scheduler", "glr-cucb"),
    "slots": other("policy", "super-arm-ucb"),
    "peers": other("policy", "bp-index"),
}


@pytest.mark.each_nth(7)
@pytest.mark.parametrize("name", SERVERS)
def test_a_round_in_which_nothing_is_different_is_the_recorded_one(name: str, tmp_path: Path) -> None:
    place = folder_of(SERVERS[name] | {"rounds": 8}, tmp_path / "run")
    run = netsim.open_run(place)
    bounds = run_records(run).rounds.set_index("round")
    for number in (1, 5):
        answer = unchanged(place, number)
        assert (answer.was.start_s, answer.was.end_s) == (bounds.loc[number, "start_s"], bounds.loc[number, "end_s"])
        ends = run.clients.set_index(["round", "client"])
        for end in answer.was.attempts if name in ("rough", "ages", "slots") else ():
            assert end.selected_s == ends.loc[(number, end.client), "selected_s"]


def test_a_buffered_server_asks_nobody_in_the_place_of_who_is_left_out(tmp_path: Path) -> None:
    # Two at work; without client 0 the round waits for the deliveries of client 1 and of whoever follows it.
    tables = {
        "name": "two",
        "rounds": 1,
        "clients": {"count": 4},
        "server": {"kind": "buffered", "concurrency": 2, "buffer": 2},
        "policy": {"kind": "fastest"},
        "compute": {"delay": {"kind": "constant", "value_s": [1.0, 2.0, 4.0, 8.0]}},
    }
    place = folder_of(tables, tmp_path / "run")
    (answer,) = what_if(place, 1, [Change("without", 0)])
    # As it was: 0 ends at 1 s, 1 at 2 s. Without 0: 1 at 2 s, and then 2, which follows it, at 6 s.
    assert answer.was.end_s == 2.0
    assert answer.then is not None
    assert answer.then.end_s == 6.0
    assert [end.client for end in answer.then.attempts] == [1, 2]


def test_a_round_that_would_never_have_closed_says_so(tmp_path: Path) -> None:
    tables = {
        "name": "one",
        "rounds": 1,
        "clients": {"count": 1},
        "server": {"kind": "buffered", "concurrency": 1, "buffer": 1},
        "policy": {"kind": "random"},
        "compute": {"delay": {"kind": "constant", "value_s": 1.0}},
    }
    (answer,) = what_if(folder_of(tables, tmp_path / "run"), 1, [Change("without", 0)])
    assert (answer.then, answer.saved_s) == (None, None)


def test_a_run_that_trains_is_branched_too(tmp_path: Path) -> None:
    learner = {
        "data": {"kind": "digits", "samples": 200},
        "network": {"kind": "linear"},
        "optimizer": {"kind": "sgd", "learning_rate": 0.1},
        "max_steps": 2,
    }
    tables = rough() | {"rounds": 4, "learner": learner}
    del tables["privacy"]
    place = folder_of(tables, tmp_path / "run")
    unchanged(place, 3)
    answers = every_client(place, first=3, last=4)
    assert {answer.was.round for answer in answers} == {3, 4}


def test_a_deadline_is_refused_where_no_deadline_closes_rounds(tmp_path: Path) -> None:
    place = folder_of(BUFFERED | {"rounds": 2}, tmp_path / "run")
    with pytest.raises(UserError, match=r"server\.kind = 'buffered' closes its rounds by no deadline"):
        what_if(place, 1, [Change("deadline", 1.0)])


def test_a_run_that_does_not_come_out_the_same_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = folder_of(three({}, rounds=3), tmp_path / "run")
    monkeypatch.setattr("scenarios.runs.what_if.answers.read_finished", lambda folder: parse(three({}, rounds=3, seed=4)))
    with pytest.raises(UserError, match="do not come out as they are in the folder"):
        what_if(place, 2, [Change("without", 1)])
