"""The tables of all runs of a sweep as one data set."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from analysis import open_sweep
from scenarios.schema.errors import UserError
from scenarios.sweeps import dataset
from scenarios.sweeps.options import Earlier, Machines
from scenarios.sweeps.plan import add_grid, plan
from scenarios.sweeps.sweep import sweep
from tests.helpers.commands import contents
from tests.helpers.small_scenario import small_tables

GRID = {"server.per_round": [2, 3]}


def gathered(folder: Path) -> dict[str, bytes]:
    return {name: data for name, data in contents(folder).items() if name.startswith("dataset/")}


def test_pandas_reads_all_runs_at_once(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(dataset, "RUNS_IN_A_FILE", 2)
    out = tmp_path / "out"
    sweep(plan(add_grid(small_tables(), GRID, [1, 2, 3]), "small"), out, machines=Machines(jobs=1), tables=["rounds", "clients"])
    done = open_sweep(out)
    for table in ("rounds", "clients"):
        found = pd.read_parquet(out / "dataset" / table)
        found["variant"] = found["variant"].astype(str)
        expected = done.table(table)  # type: ignore[arg-type]
        keys = ["variant", "seed", "round", *(["client", "selected_s"] if table == "clients" else [])]
        first, second = (frame.sort_values(keys).reset_index(drop=True)[list(expected)] for frame in (found, expected))
        pd.testing.assert_frame_equal(first, second, check_dtype=False, check_categorical=False)
    listed = json.loads((out / "dataset" / "manifest.json").read_text())
    assert [len(file["runs"]) for file in listed["files"]] == [2, 1] * 4 * 2
    assert sum(file["rows"] for file in listed["files"] if file["table"] == "rounds") == len(done.rounds)
    runs = json.loads((out / "sweep.json").read_text())["runs"]
    assert [run for file in listed["files"][:8] for run in file["runs"]] == [run["id"] for run in runs]


def test_a_table_of_runs_without_rows_is_a_file_without_rows(tmp_path: Path) -> None:
    out = tmp_path / "out"
    # The time limit comes before the end of the first round.
    tables = small_tables() | {"time_limit_s": 1e-9}
    sweep(plan(add_grid(tables, {}, [1, 2]), "small"), out, machines=Machines(jobs=1), tables=["rounds"])
    found = pd.read_parquet(out / "dataset" / "rounds")
    assert len(found) == 0
    assert {"variant", "label", "seed", "round", "start_s"} <= set(found)


def test_a_longer_sweep_writes_only_the_files_that_change_and_ends_as_one_made_at_once(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(dataset, "RUNS_IN_A_FILE", 2)
    out = tmp_path / "out"
    sweep(plan(add_grid(small_tables(), {}, [1, 2, 3]), "small"), out, machines=Machines(jobs=1), tables=["rounds"])
    first = out / "dataset" / "rounds" / "variant=pause" / "runs-0000.parquet"
    before = first.stat().st_mtime_ns
    longer = plan(add_grid(small_tables(), {}, [1, 2, 3, 4]), "small")
    sweep(longer, out, machines=Machines(jobs=1), earlier=Earlier(resume=True), tables=["rounds"])
    assert first.stat().st_mtime_ns == before
    sweep(longer, tmp_path / "once", machines=Machines(jobs=1), tables=["rounds"])
    assert gathered(out) == gathered(tmp_path / "once")
    # One that is damaged is written again, and what is not wanted any more goes.
    whole = gathered(out)
    first.write_bytes(b"PAR1")
    sweep(longer, out, machines=Machines(jobs=1), earlier=Earlier(resume=True), tables=["rounds"])
    assert gathered(out) == whole
    sweep(plan(add_grid(small_tables(), {}, [1]), "small"), out, machines=Machines(jobs=1), earlier=Earlier(overwrite=True))
    assert not (out / "dataset").exists()


def test_an_unknown_table_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--tables round: no such table; did you mean 'rounds'\?"):
        sweep(plan(small_tables(), "small"), tmp_path / "out", machines=Machines(jobs=1), tables=["round"])
    assert list(tmp_path.iterdir()) == []
