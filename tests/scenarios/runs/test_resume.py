"""Runs that were cut off go on as if they had never stopped: the same tables, byte for byte."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from netsim.core.rows import DetectionRow
from netsim.records.tables import UNFINISHED
from scenarios.cli.main import main
from scenarios.runs.folders import checkpoint
from scenarios.runs.folders.replacement import read_summary
from scenarios.runs.reading import load, parse
from scenarios.runs.run import go_on, run
from scenarios.runs.summary.running_sums import Totals
from scenarios.schema.errors import UserError
from scenarios.sweeps.options import Earlier, Machines
from scenarios.sweeps.sweep import plan, sweep
from tests.helpers.random_worlds import same
from tests.helpers.server_worlds import LEARNER, WORLDS
from tests.helpers.small_scenario import small, small_tables
from tests.helpers.suites import each_nth


class Killed(BaseException):
    """Ends a run where no handler expects it."""


def tables_of(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.glob("*.parquet"))}


def told(folder: Path) -> dict[str, Any]:
    summary = read_summary(folder)
    assert summary.pop("wall_time_s") > 0
    assert summary.pop("machine")["peak_memory_bytes"] > 0
    return summary


# With 5 rows every checkpoint closes pieces of the tables. A slot of fl-da has thousands of messages: pieces of 5 take minutes.
PIECES = [*((world, 1000 if world == "fl-da" else 5) for world in WORLDS), ("synchronous", 8192)]


@pytest.mark.each_nth(5)
@pytest.mark.parametrize(("world", "rows"), each_nth(2, PIECES))
def test_cut_off_and_gone_on_it_leaves_the_same_bytes(world: str, rows: int, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("netsim.records.in_memory._FLUSH_ROWS", rows)
    scenario = parse(WORLDS[world] | {"rounds": 10})
    run(scenario, tmp_path / "whole")
    cuts = [5, 8]

    def cut(simulation: Any) -> None:
        if cuts and simulation.server.round == cuts[0]:
            cuts.pop(0)
            raise Killed

    # The checkpoint is that of the round before: what came after it is simulated again.
    with pytest.raises(Killed):
        run(scenario, tmp_path / "cut", after_round=cut, checkpoint_s=0)
    with pytest.raises(Killed):
        go_on(tmp_path / "cut", after_round=cut, checkpoint_s=0)
    go_on(tmp_path / "cut", checkpoint_s=0)
    assert tables_of(tmp_path / "cut") == tables_of(tmp_path / "whole")
    assert told(tmp_path / "cut") == told(tmp_path / "whole")
    assert not (tmp_path / "cut" / UNFINISHED).exists()


def test_interrupted_by_the_user_it_can_be_read_and_goes_on(tmp_path: Path) -> None:
    scenario = parse(small_tables() | {"rounds": 20})

    def interrupt(simulation: Any) -> None:
        if simulation.server.round == 8:
            raise KeyboardInterrupt

    run(scenario, tmp_path / "whole")
    assert run(scenario, tmp_path / "cut", after_round=interrupt)["rounds"] == 8
    assert told(tmp_path / "cut")["ended"] == "interrupted"
    assert go_on(tmp_path / "cut")["ended"] == "rounds"
    assert tables_of(tmp_path / "cut") == tables_of(tmp_path / "whole")


KILLED = """
import sys
from scenarios.runs.reading import load
from scenarios.runs.run import run
run(load("quickstart", ["rounds=100000"]), sys.argv[1], checkpoint_s=0.3)
"""


@pytest.mark.slow
@pytest.mark.needs_torch
def test_killed_outright_it_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "killed"
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(out)])
    try:
        until = time.monotonic() + 120
        while not checkpoint.exists(out):
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.05)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    state = checkpoint.load(out)
    reached = state["simulation"]["server"]["loop"]["round"]

    def interrupt(simulation: Any) -> None:
        if simulation.server.round == reached + 5:
            raise KeyboardInterrupt

    summary = go_on(out, after_round=interrupt)
    assert (summary["ended"], summary["rounds"]) == ("interrupted", reached + 5)
    assert pq.read_table(out / "rounds.parquet")["round"].to_pylist() == list(range(1, reached + 6))
    run(load("quickstart", ["rounds=100000"]), tmp_path / "whole", after_round=interrupt)
    assert tables_of(out) == tables_of(tmp_path / "whole")


def test_a_sweep_goes_on_and_leaves_alone_what_is_complete(tmp_path: Path) -> None:
    tables = small_tables() | {"rounds": 20, "sweep": {"seeds": [1, 2, 3], "grid": {"policy.kind": ["random", "all"]}}}
    planned = plan(tables, "small")
    sweep(planned, tmp_path / "whole", machines=Machines(jobs=1))
    sweep(planned, tmp_path / "cut", machines=Machines(jobs=1))
    # As a kill leaves it: one run complete, one cut off with a checkpoint, one begun without, the others not there.
    complete, cut, begun, *others = (tmp_path / "cut" / p.path for p in planned.runs)
    before = (complete / "summary.json").stat().st_mtime_ns

    def interrupt(simulation: Any) -> None:
        if simulation.server.round == 9:
            raise Killed

    with pytest.raises(Killed):
        run(planned.runs[1].scenario, cut, overwrite=True, after_round=interrupt, checkpoint_s=0)
    (begun / "summary.json").unlink()
    (begun / "rounds.parquet").write_bytes(b"PAR1 and no end")
    for folder in others:
        for file in folder.iterdir():
            file.unlink()
    sweep(planned, tmp_path / "cut", machines=Machines(jobs=1), earlier=Earlier(resume=True))
    assert (complete / "summary.json").stat().st_mtime_ns == before
    for p in planned.runs:
        assert tables_of(tmp_path / "cut" / p.path) == tables_of(tmp_path / "whole" / p.path)
    assert (tmp_path / "cut" / "sweep.json").read_bytes() == (tmp_path / "whole" / "sweep.json").read_bytes()


def test_another_scenario_is_run_from_the_start(tmp_path: Path) -> None:
    tables = small_tables() | {"rounds": 12, "sweep": {"seeds": [1]}}
    sweep(plan(tables, "small"), tmp_path / "out", machines=Machines(jobs=1))
    sweep(plan(tables | {"rounds": 15}, "small"), tmp_path / "out", machines=Machines(jobs=1), earlier=Earlier(resume=True))
    folder = next((tmp_path / "out").glob("*/seed-1"))
    assert told(folder)["rounds"] == 15


def test_plain_data_goes_through_a_checkpoint(tmp_path: Path) -> None:
    state = {
        "numbers": [1, 2.5, float("inf"), float("nan"), -(2**70), True, None, "text"],
        3: (1, (2, [])),
        (1, 2): {"array": np.arange(6).reshape(2, 3), "flags": np.array([True]), "empty": np.zeros(0)},
        "scalar": 0.1 + 0.2,
        "content of messages": [b"\x00\xff", b"", frozenset({2, 1}), {3}],
    }
    checkpoint.save(tmp_path, state)
    assert same(checkpoint.load(tmp_path), state)
    with pytest.raises(TypeError, match="is no plain data"):
        checkpoint.save(tmp_path, {"number": 1 + 2j})
    assert same(checkpoint.load(tmp_path), state), "the earlier one stays"


@pytest.mark.needs_torch
def test_a_checkpoint_of_models_on_disk_takes_memory_for_a_few_of_them(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from models.fl.learners.versions import Versions
    from models.fl.store.models import ModelStore

    count, size = 16, 500_000
    model_bytes = 4 * size

    def versions() -> Any:
        return Versions(first=torch.zeros(size), kept=count, store=ModelStore(memory_bytes=model_bytes))

    before, after = versions(), versions()
    for number in range(1, count):
        before.push(torch.arange(size, dtype=torch.float32) + number)
    peaks = []
    for act in (
        lambda: checkpoint.save(tmp_path, before.state_dict()),
        lambda: after.load_state_dict(checkpoint.load(tmp_path)),
    ):
        tracemalloc.start()
        act()
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # One model, and twice its size while it is looked at for equal numbers.
    assert max(peaks) < 5 * model_bytes
    assert after.kept == list(range(count))
    assert all(torch.equal(after[number], before[number]) for number in range(count))


def test_sums_over_a_run_go_through_a_checkpoint(tmp_path: Path) -> None:
    totals = Totals(rounds=3, round_s=1.5, starts_s=[7.0], first_rounds=[2])
    totals.detections.append(DetectionRow(round=2, time_s=1.5, channel=0, detector="glr-exact", observations=9, jammed=1))
    checkpoint.save(tmp_path, totals.state_dict())
    loaded = Totals()
    loaded.load_state_dict(checkpoint.load(tmp_path))
    assert repr(loaded) == repr(totals)  # NaN is not equal to itself
    assert loaded.detections[0].observations == 9


@pytest.mark.each_nth(5)
@pytest.mark.parametrize("damage", ["absent", "cut short", "not an archive", "another format", "complete", "no run"])
def test_what_cannot_go_on_is_told_why(damage: str, tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    out = tmp_path / "out"

    def cut(simulation: Any) -> None:
        if simulation.server.round == 3:
            raise KeyboardInterrupt

    run(small(), out, after_round=None if damage == "complete" else cut)
    file = out / UNFINISHED / "checkpoint.npz"
    if damage == "absent":
        (out / checkpoint.FILE).unlink()
    elif damage == "cut short":
        file.write_bytes(file.read_bytes()[:-100])
    elif damage == "not an archive":
        file.write_text("nonsense")
    elif damage == "another format":
        monkeypatch.setattr(checkpoint, "FORMAT", checkpoint.FORMAT + 1)
    elif damage == "no run":
        out = tmp_path / "nowhere"
    before = tables_of(out)
    monkeypatch.setattr(sys, "argv", ["netsim", "resume", str(out)])
    with pytest.raises(SystemExit) as exit:
        main()
    assert exit.value.code == 2
    expected = {
        "absent": "there is no checkpoint",
        "cut short": "checkpoint.npz: is damaged",
        "not an archive": "checkpoint.npz: is damaged",
        "another format": f"has format {checkpoint.FORMAT - 1}, and this version of netsim reads {checkpoint.FORMAT}",
        "complete": "has come to its end (rounds)",
        "no run": "is not the folder of a run",
    }[damage]
    error = capsys.readouterr().err
    assert expected in error.replace("\n", " ")
    assert "Traceback" not in error
    assert tables_of(out) == before


def test_of_another_version_it_is_refused(tmp_path: Path, monkeypatch: Any) -> None:
    def cut(simulation: Any) -> None:
        if simulation.server.round == 3:
            raise KeyboardInterrupt

    run(small(), tmp_path / "out", after_round=cut)
    state = checkpoint.load(tmp_path / "out")
    checkpoint.save(tmp_path / "out", state | {"version": "0.0.1"})
    with pytest.raises(UserError, match=r"begun by netsim 0\.0\.1"):
        go_on(tmp_path / "out")


def cut_off(out: Path, monkeypatch: Any) -> None:
    """A run with a learner that was cut off in round 9, with pieces of all its tables."""
    monkeypatch.setattr("netsim.records.in_memory._FLUSH_ROWS", 5)

    def cut(simulation: Any) -> None:
        if simulation.server.round == 9:
            raise KeyboardInterrupt

    run(parse(small_tables() | {"rounds": 12, "learner": LEARNER}), out, after_round=cut, checkpoint_s=0)


@pytest.mark.each_nth(2)
@pytest.mark.parametrize("change", ["rounds = 12", 'name = "small"', "std_s = 0.05"])
def test_a_scenario_that_was_edited_in_between_is_refused(change: str, tmp_path: Path, monkeypatch: Any) -> None:
    cut_off(tmp_path / "out", monkeypatch)
    file = tmp_path / "out" / "scenario.toml"
    text = file.read_text()
    assert change in text
    key, _, value = change.partition(" = ")
    file.write_text(text.replace(change, f"{key} = " + {"12": "20", "0.05": "-1"}.get(value, '"other"')))
    before = tables_of(tmp_path / "out")
    with pytest.raises(UserError, match=r"is not the scenario that the run was begun with; undo the change, or run it again"):
        go_on(tmp_path / "out")
    assert tables_of(tmp_path / "out") == before
    file.write_text(text)
    assert go_on(tmp_path / "out")["ended"] == "rounds"


def flips(size: int, number: int, rng: np.random.Generator) -> list[int]:
    """Bits to flip in a file of `size` bytes: its first, its last and others between."""
    return [0, 8 * size - 1, *rng.integers(0, 8 * size, number).tolist()]


def test_a_flipped_bit_never_makes_a_wrong_table(tmp_path: Path, monkeypatch: Any) -> None:
    whole, out = tmp_path / "whole", tmp_path / "out"
    cut_off(out, monkeypatch)
    names = sorted(str(file.relative_to(out)) for file in out.rglob("*") if file.is_file())
    pieces = [name for name in names if name.startswith("unfinished/")]
    assert {name.split("/")[1].split("-")[0] for name in pieces} == {"checkpoint.npz", "clients", "rounds"}
    shutil.copytree(out, whole)
    go_on(whole)
    rng = np.random.default_rng(16)
    refused = 0
    # The tables themselves are written again; all the rest is refused, and nothing is written.
    counted_on = [name for name in names if name not in ("clients.parquet", "rounds.parquet", "summary.json")]
    assert {"partition.parquet", "scenario.toml", "netsim.json"} < set(counted_on)
    for name in counted_on:
        good = (out / name).read_bytes()
        for bit in flips(len(good), 12, rng):
            bad = bytearray(good)
            bad[bit // 8] ^= 1 << bit % 8
            (out / name).write_bytes(bad)
            with pytest.raises(UserError) as told:
                go_on(out)
            assert str(out / name) in str(told.value)
            assert "run it again" in str(told.value) or "remove this one yourself" in str(told.value)
            refused += 1
        (out / name).write_bytes(good)
    assert refused == 14 * len(counted_on)
    for name in ("clients.parquet", "rounds.parquet"):
        (out / name).write_bytes(b"PAR1 and no end")
    (out / "summary.json").write_bytes(b"{")
    with pytest.raises(UserError, match=r"summary.json: expected a run's summary, but it is not JSON: .*; remove it, and go on"):
        go_on(out)
    (out / "summary.json").unlink()
    go_on(out)
    assert tables_of(out) == tables_of(whole)


def test_a_piece_that_is_missing_or_goes_bad_while_the_run_goes_on_is_named(tmp_path: Path, monkeypatch: Any) -> None:
    out = tmp_path / "out"
    cut_off(out, monkeypatch)
    piece = out / UNFINISHED / "rounds-0.parquet"
    good = piece.read_bytes()
    piece.unlink()
    with pytest.raises(UserError, match=r"rounds-0.parquet: is missing; run it again"):
        go_on(out)
    piece.write_bytes(good)

    def spoil(simulation: Any) -> None:
        if simulation.server.round == 11:
            piece.write_bytes(good[:-1] + b"?")

    with pytest.raises(UserError, match=r"rounds-0.parquet: is damaged"):
        go_on(out, after_round=spoil)
    assert told(out)["ended"] == "interrupted", "as the attempt before said"


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.float32, np.bool_])
@pytest.mark.parametrize("others", [0, 1, 2500, 2501, 19_998])
def test_arrays_of_which_most_entries_are_alike_come_back_bit_for_bit(tmp_path: Path, dtype: Any, others: int) -> None:
    usual = np.nan if dtype in (np.float64, np.float32) else 7
    values = np.full(20_000, usual, dtype)
    where = np.random.default_rng(1).permutation(19_999)[:others]
    # What is equal, and not the same: minus zero among zeros, and nothing that equals NaN.
    values[where] = np.resize(np.array([-0.0, 0.0, 1.0, 2.0]), others).astype(dtype)
    checkpoint.save(tmp_path, {"a": values, "few": values[:10]})
    size = (tmp_path / checkpoint.FILE).stat().st_size
    back = checkpoint.load(tmp_path)
    for name, expected in (("a", values), ("few", values[:10])):
        assert back[name].dtype == expected.dtype
        assert back[name].tobytes() == expected.tobytes()
        assert back[name].flags.writeable
    assert (size < 0.75 * values.nbytes) == (others <= 2500 and dtype is not np.bool_)
