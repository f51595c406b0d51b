"""Two commits are compared by the bytes of their tables; here both are this one, with a table that is changed by hand."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.golden import runs
from tests.golden.cases import case
from tests.golden.commits import checkout
from tests.golden.compare import compared


@pytest.fixture
def twice(tmp_path: Path) -> tuple[Path, Path]:
    """The folders of one variant's runs, before and now."""
    (tmp_path / "cases").mkdir()
    (tmp_path / "cases/scripted_latency.json").write_text(json.dumps(case("scripted_latency").variants))
    for which in ("before", "now"):
        runs.play(tmp_path / "cases", tmp_path / which)
    return tmp_path / "before/scripted_latency/0", tmp_path / "now/scripted_latency/0"


def test_the_same_code_leaves_the_same_bytes(twice: tuple[Path, Path]) -> None:
    found: Counter[str] = Counter()
    assert list(compared(*twice, found)) == []
    assert found == {"tables equal in bytes": 3, "summaries equal in their figures": 1}


def test_another_bit_a_column_more_and_a_figure_are_told(twice: tuple[Path, Path]) -> None:
    before, now = twice
    table = pq.read_table(now / "run/clients.parquet")
    ends = table["outcome_s"].to_pylist()
    ends[7] += 1e-12
    table = table.set_column(table.column_names.index("outcome_s"), "outcome_s", pa.array(ends))
    pq.write_table(table.append_column("energy_j", pc.cast(table["round"], pa.float64())), now / "run/clients.parquet")
    summary = json.loads((now / "run/summary.json").read_text())
    summary["totals"]["selected"] += 1
    (now / "run/summary.json").write_text(json.dumps(summary))
    found: Counter[str] = Counter()
    told = list(compared(before, now, found))
    assert [line.split(" before")[0].rsplit(": ", 1)[0] for line in told[:1]] == ["clients.parquet: outcome_s: row 7"]
    assert told[1] == "clients.parquet: added: energy_j"
    assert told[2].startswith("summary.json: totals.selected: row 0: ")
    assert len(told) == 3
    assert found == {"tables that differ": 1, "tables equal in bytes": 2, "summaries that differ": 1}


def test_the_same_values_in_other_bytes_are_no_difference(twice: tuple[Path, Path]) -> None:
    before, now = twice
    pq.write_table(pq.read_table(now / "run/rounds.parquet"), now / "run/rounds.parquet", compression="none")
    found: Counter[str] = Counter()
    assert list(compared(before, now, found)) == []
    assert found["tables equal in all columns that both have, not in bytes"] == 1


def test_a_run_that_fails_is_told(twice: tuple[Path, Path]) -> None:
    before, now = twice
    (now / "failed").write_text("UserError: no such key")
    found: Counter[str] = Counter()
    assert list(compared(before, now, found)) == ["before: runs; now: UserError: no such key"]
    assert found == {"fail": 1}


def test_time_a_round_leaves_out_what_comes_before_the_first() -> None:
    file = Path(__file__).parent / "workloads/fig2a.toml"
    assert 0 < runs.time_of(file, 100, 600) < 0.1


def test_of_a_folder_run_folders_are_left_out_and_packages_of_that_name_are_not(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    for file in ("runs/x/rounds.parquet", "scenarios/runs/run.py", ".venv/lib.py", "netsim/a.py"):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).touch()
    root = checkout(str(folder), tmp_path / "copy").root
    assert {file for file in ("runs", "scenarios/runs/run.py", ".venv", "netsim/a.py") if (root / file).exists()} == {
        "scenarios/runs/run.py",
        "netsim/a.py",
    }
