"""Whatever began has ended or is in flight at the end of every run, and the tables hold the same; where not, the run says so."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from analysis.results.sources import RunFolder
from netsim.clients.pool import ClientPool
from netsim.clients.update import OUTCOMES
from scenarios.runs.reading import load, override, parse
from scenarios.runs.run import run
from scenarios.runs.summary.books import audit
from scenarios.schema.errors import BooksError
from tests.helpers.small_scenario import Shell

WORLD: dict[str, Any] = {
    "name": "books",
    "rounds": 8,
    "clients": {"count": 8},
    "downlink": {
        "delay": {"kind": "shifted-exponential", "shift_s": 0.1, "mean_excess_s": 0.2},
        "channel": {"kind": "bernoulli", "success": 0.9},
    },
    "compute": {"delay": {"kind": "shifted-exponential", "shift_s": 0.3, "mean_excess_s": 0.8}},
    "uplink": {
        "delay": {"kind": "shifted-exponential", "shift_s": 0.2, "mean_excess_s": 0.6},
        "channel": {"kind": "gilbert-elliott", "to_bad": 0.2, "to_good": 0.6},
    },
    "availability": {"kind": "markov", "mean_on_s": 10.0, "mean_off_s": 3.0},
    "privacy": {"sensitivity": 0.1, "schedule": {"kind": "geometric", "epsilon_total": 10.0, "eta": 0.1}},
}
CHANNELS = {
    "scheduler": {"kind": "round-robin"},
    "channels": {"count": 10, "channel": {"kind": "bernoulli", "success": 0.8}, "delay": {"kind": "constant", "value_s": 0.2}},
    "jammers": [{"name": "jammer", "law": {"kind": "random"}, "at_once": 2, "dwell_s": 0.7}],
}
OPINIONS = {
    "slots": {"rounds": 3},
    "opinions": {"synthetic": {"worth": {"from": 0.4, "to": 0.9}, "own": 0.2, "noise": 0.02}, "size_bytes": 8},
}
PEERS = {
    "peers": {
        "topology": {"kind": "complete"},
        "delay": {"kind": "shifted-exponential", "shift_s": 0.05, "mean_excess_s": 0.05},
        "channel": {"kind": "bernoulli", "success": 0.9},
        "max_resends": 3,
    },
    "output": {"messages_table": True},
}
SERVERS: dict[str, dict[str, Any]] = {
    "synchronous": {"server": {"per_round": 4, "when_short": "proceed"}, "policy": {"kind": "random"}},
    "synchronous, deadline, first, one queue": {
        "server": {"per_round": 5, "when_short": "proceed", "deadline_s": 2.0, "first": 3},
        "policy": {"kind": "pause"},
        "uplink": WORLD["uplink"] | {"sub_channels": 2},
    },
    "synchronous, cancelled, reselected": {
        "server": {"per_round": 5, "when_short": "proceed", "deadline_s": 1.0, "stragglers": "cancel", "reselect_busy": True},
        "policy": {"kind": "random"},
        "privacy": WORLD["privacy"] | {"charge_on": "delivery"},
    },
    "synchronous, shared": {
        "server": {"per_round": 5, "when_short": "proceed"}, "payload": {"down_bytes": 10, "up_bytes": 10},
        "policy": {"kind": "random"},
        "uplink": WORLD["uplink"] | {"shared": {"bandwidth_bytes_per_s": 20.0}},
        "outages": [{"name": "mast", "clients": [0, 2, 3], "from_s": 2.0, "to_s": 3.5}],
    },
    "asynchronous": {"server": {"kind": "asynchronous"}, **CHANNELS},
    "asynchronous, fixed rounds": {"server": {"kind": "asynchronous", "round_s": 1.3}, **CHANNELS},
    "asynchronous, all compute": {"server": {"kind": "asynchronous", "wait_for_compute": True}, **CHANNELS},
    "semi-synchronous": {
        "server": {"kind": "semi-synchronous", "per_round": 4, "round_s": 1.1}, "payload": {"down_bytes": 10, "up_bytes": 10},
        "policy": {"kind": "random"},
    },
    "buffered": {
        "server": {"kind": "buffered", "concurrency": 5, "buffer": 3}, "payload": {"down_bytes": 10, "up_bytes": 10},
        "policy": {"kind": "random"},
    },
    "safa": {"server": {"kind": "safa", "per_round": 3, "deadline_s": 1.5, "lag_tolerance": 1}},
    "compass": {
        "server": {"kind": "compass", "min_steps": 2, "max_steps": 8},
        "clients": {"count": 8, "data_sizes": 100.0},
        "work": {"batch_size": 10},
        "compute": {"seconds_per_sample": 0.01},
    },
    "fl-fa": {"server": {"kind": "fl-fa", "per_round": 3}, "policy": {"kind": "round-robin"}, **OPINIONS},
    "fl-fa, opinions recorded": {
        "server": {"kind": "fl-fa", "per_round": 3},
        "policy": {"kind": "round-robin"},
        "slots": {"rounds": 3},
        "opinions": OPINIONS["opinions"] | {"wait_s": 0.1} | {key: PEERS["peers"][key] for key in ("delay", "channel")},
        "output": {"messages_table": True},
    },
    "fl-da": {
        "server": {"kind": "fl-da", "per_round": 3, "deadline_s": 2.5},
        "policy": {"kind": "bp-index"},
        **OPINIONS,
        "slots": {"rounds": 3, "start": "deadline", "deadline_s": 0.5},
        **PEERS,
    },
}
# Two leave for good in the middle of what they do; all others are there until then.
LEAVING = "client,on_s,off_s\n" + "".join(f"{client},0.0,{4.1 + 0.37 * client}\n" for client in range(8))
BUDGET = {"sensitivity": 0.1, "schedule": {"kind": "explicit", "epsilons": [3.0, 2.0]}}


def check(folder: Path) -> dict[str, Any]:
    """Work the books out once more, from the files alone."""
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    totals, books = summary["totals"], summary["books"]
    assert books["balanced"]
    assert books["problems"] == []
    clients = pq.read_table(folder / "clients.parquet")
    found = {outcome: pc.sum(pc.equal(clients["outcome"], outcome)).as_py() or 0 for outcome in (*OUTCOMES, "in_flight")}
    assert found == {name: totals[name] for name in found}
    assert clients.num_rows == totals["selected"] == sum(found.values())
    rounds = pq.read_table(folder / "rounds.parquet")
    for name, count in summary["after_last_round"].items():
        assert count == totals[name] - (pc.sum(rounds[name]).as_py() or 0) >= 0
    leaks = [leak for leak in clients["leak"].to_pylist() if leak is not None]
    assert summary["final"]["max_leak"] == pytest.approx(max(leaks, default=0.0), rel=1e-12)
    return summary


@pytest.mark.each_nth(3)
@pytest.mark.parametrize("kind", sorted(SERVERS))
def test_runs_that_end_by_their_rounds(kind: str, tmp_path: Path) -> None:
    run(parse(WORLD | SERVERS[kind]), tmp_path / "run")
    summary = check(tmp_path / "run")
    assert (summary["ended"], summary["rounds"]) == ("rounds", 8)
    # Nobody is selected once the last round has closed.
    assert summary["after_last_round"]["selected"] == 0


@pytest.mark.each_nth(3)
@pytest.mark.parametrize("kind", sorted(SERVERS))
def test_runs_that_a_time_limit_cuts_in_mid_round(kind: str, tmp_path: Path) -> None:
    in_mid_round = 0
    for i, limit_s in enumerate((0.05, 1.1, 4.7, 7.3)):
        run(parse(WORLD | SERVERS[kind] | {"rounds": 500, "time_limit_s": limit_s}), tmp_path / str(i))
        summary = check(tmp_path / str(i))
        assert (summary["ended"], summary["simulated_s"]) == ("time limit", limit_s)
        in_mid_round += any(summary["after_last_round"].values())
    # What the cut round had begun is the point of the test. (Slots wait for all their members before they begin anything.)
    assert in_mid_round >= (1 if kind.startswith("fl") else 2)


@pytest.mark.each_nth(3)
@pytest.mark.parametrize("kind", sorted(SERVERS))
@pytest.mark.parametrize("why", ["they leave", "their budgets are spent"])
def test_runs_in_which_nobody_is_left(kind: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "presence.csv").write_text(LEAVING)
    if why == "they leave":
        gone: dict[str, Any] = {"availability": {"kind": "trace", "path": str(tmp_path / "presence.csv")}}
    else:
        gone = {"privacy": BUDGET | {"charge_on": SERVERS[kind].get("privacy", {}).get("charge_on", "upload")}}
    run(parse(WORLD | SERVERS[kind] | gone | {"rounds": 500, "time_limit_s": 400.0}), tmp_path / "run")
    summary = check(tmp_path / "run")
    assert summary["ended"] == "nobody left"
    assert summary["totals"]["selected"] > 5


def test_messages_and_jams_are_booked(tmp_path: Path) -> None:
    run(parse(WORLD | SERVERS["fl-da"] | {"rounds": 500, "time_limit_s": 5.2}), tmp_path / "da")
    summary = check(tmp_path / "da")
    assert summary["books"]["tables"] == ["rounds", "clients", "messages"]
    assert summary["slots"]["messages"] == pq.read_table(tmp_path / "da" / "messages.parquet").num_rows > 100
    run(parse(WORLD | SERVERS["asynchronous"] | {"rounds": 500, "time_limit_s": 5.2}), tmp_path / "jammed")
    summary = check(tmp_path / "jammed")
    assert summary["books"]["tables"] == ["rounds", "clients", "jams"]
    assert summary["aoi"]["jam_dwells"] == pq.read_table(tmp_path / "jammed" / "jams.parquet").num_rows == 8


def test_the_scenario_of_all_troubles_cut_in_mid_round(tmp_path: Path) -> None:
    run(load("unreliable", ["time_limit_s=33.3"]), tmp_path / "run")
    summary = check(tmp_path / "run")
    assert summary["totals"]["selected"] == pq.read_table(tmp_path / "run" / "clients.parquet").num_rows
    assert summary["after_last_round"]["selected"] > 0


def test_without_a_table_of_clients_the_rounds_are_checked(tmp_path: Path) -> None:
    tables = override(WORLD | SERVERS["buffered"], {"output.clients_table": False})
    assert run(parse(tables), tmp_path / "run")["books"] == {"balanced": True, "tables": ["rounds"], "problems": []}


@pytest.fixture
def miscounting(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that counts every lost update twice."""
    ended = ClientPool._on_end

    def twice(self: ClientPool, update: Any) -> None:
        self.ended["lost"] += update.outcome == "lost"
        ended(self, update)

    monkeypatch.setattr(ClientPool, "_on_end", twice)


@pytest.mark.usefixtures("miscounting")
def test_a_run_whose_books_do_not_balance_says_so_and_keeps_its_files(tmp_path: Path) -> None:
    with pytest.raises(BooksError, match=r"do not balance \(\d+ selected are not .*clients.parquet: lost is \d+, not \d+"):
        run(parse(WORLD | SERVERS["synchronous"]), tmp_path / "run")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert not summary["books"]["balanced"]
    assert pq.read_table(tmp_path / "run" / "clients.parquet").num_rows == summary["totals"]["selected"]


@pytest.mark.usefixtures("miscounting")
@pytest.mark.parametrize("command", ["run", "sweep"])
def test_the_command_line_ends_with_an_error(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shell = Shell(tmp_path, monkeypatch, capsys)
    code, _, told = getattr(shell, command)("--set", "uplink.channel.success=0.5")
    assert code == 1, told
    assert "do not balance" in told
    assert "are kept" in told
    assert "Traceback" not in told
    assert list(shell.out.glob("**/rounds.parquet"))


def test_the_command_line_says_that_the_books_balance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, told, _ = Shell(tmp_path, monkeypatch, capsys).run()
    assert code == 0
    assert "balanced: 12 begun = ended + in flight, as in rounds and clients" in " ".join(told.split())


def _rewritten(file: Path, column: str, change: Any) -> None:
    table = pq.read_table(file)
    values = change(table[column].to_pylist())
    kind = pa.string() if column == "outcome" else table.schema.field(column).type
    pq.write_table(table.set_column(table.column_names.index(column), column, pa.array(values, kind)), file)


@pytest.mark.each_nth(3)
@pytest.mark.parametrize(
    ("table", "column", "change", "told"),
    [
        ("rounds", "selected", lambda values: [values[0] + 1, *values[1:]], "rounds.parquet: selected is"),
        ("rounds", "in_flight", lambda values: [values[0] + 1, *values[1:]], "rounds.parquet: in_flight is"),
        ("clients", "outcome", lambda values: ["late" if v == "lost" else v for v in values], "clients.parquet: lost is 0"),
        ("clients", "leak", lambda values: [None] * len(values), "clients.parquet: the largest leak is 0.0"),
        ("messages", "outcome", lambda values: ["delivered"] * len(values), "messages.parquet: messages_lost is 0"),
    ],
)
def test_a_table_that_disagrees_is_named(table: str, column: str, change: Any, told: str, tmp_path: Path) -> None:
    summary = run(parse(WORLD | SERVERS["fl-da"] | {"rounds": 2}), tmp_path / "run")
    slots, totals = summary["slots"], summary["totals"]
    counts = totals | {name: slots[name] for name in slots if name.startswith("messages")}
    summed = {name: count for name, count in counts.items() if not name.endswith("in_flight")}
    given = {"counts": counts, "summed": summed, "rounds": 2, "max_leak": summary["final"]["max_leak"]}
    tables = {name: partial(RunFolder(tmp_path / "run", {}).open, name) for name in ("rounds", "clients", "messages")}
    assert audit(tables, **given)["balanced"]
    _rewritten(tmp_path / "run" / f"{table}.parquet", column, change)
    books = audit(tables, **given)
    assert not books["balanced"]
    assert any(problem.startswith(told) for problem in books["problems"])
