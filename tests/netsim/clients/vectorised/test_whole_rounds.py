"""Attempts that are worked out together: the same tables, to the last bit, as if each had gone step by step."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from netsim.clients.vectorised import whole_rounds
from netsim.clients.vectorised.whole_rounds import WholeRounds
from netsim.records.sinks import ParquetRecorder
from scenarios.runs.reading import parse
from scenarios.wiring.simulation import build
from tests.helpers.random_worlds import ROUNDS, built, copied, random_tables, same
from tests.helpers.small_worlds import World, constant
from tests.helpers.suites import each_nth

SEEDS = range(60)


def apart(seed: int, folder: Path) -> dict[str, Any]:
    """A random world in which no attempt is in the way of another."""
    tables = random_tables(seed, folder)
    uplink, downlink = tables["uplink"], tables["downlink"]
    for link in (uplink, downlink):
        for key in ("sub_channels", "shared", "bandwidth", "bandwidth_bytes_per_s", *(["changes"] if link is downlink else [])):
            link.pop(key, None)
    if seed % 3 == 0:
        for name in ("downlink", "compute"):
            tables.pop(name, None)
    elif seed % 3 == 1:
        # Uploads that take no time, all the more of which fall into one instant.
        uplink.pop("delay")
        uplink["changes"] = [change for change in uplink.get("changes", []) if "delay" not in change]
    if seed % 2:
        tables.pop("outages", None)
    if seed % 5 == 4:
        # Clients are asked before a selection while others still work.
        tables["policy"] = {"kind": "fedcs", "asked": 0.8, "uploads": "parallel", "round_s": 9.0}
        tables["server"].setdefault("deadline_s", 3.0)
        tables["server"]["reselect_busy"] = False
    if seed % 4 > 1:
        each = {"from": 0.1, "to": 3.7}
        tables["energy"] = {"idle_w": 0.3, "compute_w": 4.0, "send_w": 1.2, "receive_w": each if seed % 8 > 3 else 0.7}
    return tables


@pytest.mark.each_nth(3)
@pytest.mark.parametrize("seed", each_nth(3, SEEDS))
def test_tables_are_those_of_single_updates(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = apart(seed, tmp_path)
    monkeypatch.setattr(whole_rounds, "FROM", 1)

    def state_and_tables(possible: bool) -> tuple[Any, str]:
        simulation, records = built(tables)
        whole = simulation.server.clients.whole_rounds
        whole.possible &= possible
        simulation.run(until_round=ROUNDS // 2)
        state = copied(simulation.state_dict())
        simulation.run()
        simulation.close()
        return state, repr((records.rounds, records.updates))

    (state, rows), (expected, expected_rows) = state_and_tables(True), state_and_tables(False)
    assert rows == expected_rows
    if "outages" not in tables:  # which are looked up earlier, and so may have been drawn for longer
        assert same(state, expected)


def test_attempts_that_outlast_a_slot_go_on_while_its_opinions_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    # Two of four members train past the last round of a slot, one of them until opinions are on their way.
    tables = {
        "name": "slots",
        "rounds": 4,
        "clients": {"count": 8},
        "server": {"kind": "fl-fa", "per_round": 4, "deadline_s": 1.5, "reselect_busy": True},
        "slots": {"rounds": 2},
        "policy": {"kind": "round-robin", "sets": [[0, 2, 4, 6], [1, 3, 5, 7]]},
        "opinions": {"synthetic": {"worth": {"from": 0.4, "to": 0.9}}} | {"delay": {"kind": "constant", "value_s": 0.5}},
        "compute": constant(1.0, 1.2, 1.1, 1.0, 1.75, 1.6, 9.0, 1.8),
        "uplink": constant(*[0.25] * 8),
    }
    played = []
    for start in (1, 10**9):
        monkeypatch.setattr(whole_rounds, "FROM", start)
        simulation, records = built(tables)
        simulation.run()
        simulation.close()
        played.append(repr((records.rounds, records.updates)))
    assert "late" in played[0]
    assert played[0] == played[1]


def test_most_rounds_of_such_worlds_are_worked_out_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_rounds, "FROM", 1)
    seen: Counter[str] = Counter()
    begin = WholeRounds.begin

    def counted(whole: WholeRounds, *arguments: Any) -> Any:
        before = whole.left
        begun = begin(whole, *arguments)
        if begun is not None:
            seen.update(begun.column("outcome"))
            seen["beside others"] += before > 0
        seen["together" if begun is not None else "refused"] += 1
        return begun

    monkeypatch.setattr(WholeRounds, "begin", counted)
    rounds = 0
    for seed in SEEDS:
        simulation, _ = built(apart(seed, tmp_path))
        simulation.run()
        rounds += simulation.server.round
    assert seen["together"] > rounds / 2
    assert min(seen[outcome] for outcome in ("delivered", "lost", "late", "aborted", "beside others", "refused")) > 10


def test_six_of_a_round_are_worked_out_together_and_what_comes_after_its_close_is_not_known() -> None:
    # Five train for 1 s, one for 3 s; the round closes at 2 s.
    it = World([[*range(6)]], clients=6, compute=constant(1, 1, 3, 1, 1, 1), server={"deadline_s": 2.0})
    it.simulation.run()
    attempts, pool = it.server.loop.dispatch.attempts, it.server.clients
    assert (pool.under_way, pool.alive_now) == (1, {})
    for name in ("compute_end_s", "outcome_s"):
        np.testing.assert_array_equal(attempts.column(name), [1.0, 1.0, np.nan, 1.0, 1.0, 1.0])
    it.simulation.close()
    assert it.rows("client", "outcome")[-1] == (2, "in_flight")


@pytest.mark.parametrize("counts", [[3000] * 4, [3000, 3, 5000, 4, 9000]])
def test_files_are_the_same_bytes(counts: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Some rounds of the second world are too small to be worked out together; row groups are of rows of both kinds.
    everyone = [list(range(count)) for count in counts]
    tables = {
        "name": "files",
        "rounds": len(counts),
        "clients": {"count": max(counts), "groups": [{"name": "a", "share": 0.5}, {"name": "b", "share": 0.5}]},
        "policy": {"kind": "tests.helpers.small_worlds:Script", "rounds": everyone},
        "server": {"per_round": 1, "when_short": "proceed"},
        "downlink": {"channel": {"kind": "bernoulli", "success": 0.9}},
        "compute": {"delay": {"kind": "gaussian", "mean_s": 1.0, "std_s": 0.5}},
        "uplink": {"delay": {"kind": "shifted-exponential", "shift_s": 0.1, "mean_excess_s": 1.0}},
        "availability": {"kind": "markov", "mean_on_s": 30.0, "mean_off_s": 1e-3},
        "privacy": {"sensitivity": 1.0, "schedule": {"kind": "geometric", "epsilon_total": 5.0, "eta": 0.2}},
    }
    files = []
    for start in (whole_rounds.FROM, 10**9):
        monkeypatch.setattr(whole_rounds, "FROM", start)
        simulation = build(parse(tables)).simulation
        folder = tmp_path / str(start)
        folder.mkdir()
        simulation.record_to(ParquetRecorder(folder))
        simulation.run()
        simulation.close()
        files.append([(folder / f"{name}.parquet").read_bytes() for name in ("clients", "rounds")])
        assert pq.ParquetFile(folder / "clients.parquet").num_row_groups > 1
    assert files[0] == files[1]


def test_reading_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_rounds, "FROM", 1)
    read = 0

    def played(seed: int, *, reads: bool) -> tuple[str, Any]:
        simulation, records = built(apart(seed, tmp_path))
        pool = simulation.server.clients

        def look(payload: None) -> None:
            nonlocal read
            together = pool.whole_rounds.left > 0
            read += together
            assert len(pool.in_flight) == len(pool.alive) == pool.under_way
            assert all(not update.outcome and client == update.client for client, update in pool.in_flight.items())
            # They go on together.
            assert not (together and pool.alive_now)

        if reads:
            for quarter in range(1, 160):
                simulation.clock.call_at(quarter / 4 + 0.1, look)
            for number in range(1, ROUNDS):
                simulation.run(until_round=number)
                simulation.state_dict()
                look(None)
        simulation.run()
        simulation.close()
        return repr((records.rounds, records.updates)), simulation.state_dict()

    for seed in range(0, 60, 5):
        (rows, state), (expected_rows, expected) = played(seed, reads=True), played(seed, reads=False)
        assert rows == expected_rows
        assert same(state, expected)
    assert read > 200
