"""Folders of earlier table formats: read, reported and compared as folders of the present one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis import compare, gather, open_run, open_sweep
from analysis.report.write import write_report
from analysis.results.sources import COLUMNS, read_json
from netsim.core.rows import ALWAYS, ROUND_CAUSES, ROWS, schema_of
from scenarios.runs.run import run
from scenarios.schema.scenario import Scenario
from scenarios.sweeps.options import Machines
from scenarios.sweeps.sweep import plan, sweep
from tests.helpers.result_folders import edit_summary

CAUSES = {"rounds": ROUND_CAUSES, "clients": ("number", "begun_by", "begun_after", "sent_after")}
"""Columns that came with format 2."""
STEPS = [
    *("download_start_s", "download_end_s", "compute_start_s", "compute_end_s", "upload_start_s", "upload_end_s"),
    "cause",
]
"""Columns of probes that take time."""
FEDCS: dict[str, Any] = {"policy": {"kind": "fedcs", "round_s": 20.0}, "server": {"per_round": 3, "deadline_s": 20.0}}
"""Asks clients for no more than an answer."""
LOSSY: dict[str, Any] = {
    "name": "lossy",
    "rounds": 6,
    "clients": {"count": 5},
    "server": {"per_round": 3},
    "policy": {"kind": "random"},
    "compute": {"delay": {"kind": "shifted-exponential", "shift_s": 0.1, "mean_excess_s": 1.0}},
    "uplink": {"channel": {"kind": "bernoulli", "success": 0.6}},
}


def played(folder: Path, **changes: Any) -> Path:
    run(Scenario.model_validate(LOSSY | changes), folder)
    return folder


def rewritten(folder: Path, format: int) -> Path:
    """The run in `folder` as earlier versions wrote it: with all columns of their format, null where nothing is measured."""
    for table in ("rounds", "clients", "probes"):
        file = folder / f"{table}.parquet"
        if not file.exists():
            continue
        found = pq.read_table(file)
        schema = schema_of(table)
        names = [name for name in schema.names if format > 1 or name not in CAUSES.get(table, ())]
        arrays = {
            name: found[name] if name in found.column_names else pa.nulls(len(found), schema.field(name).type) for name in names
        }
        metadata = {b"netsim.table": table.encode(), b"netsim.format": str(format).encode()}
        pq.write_table(pa.table(arrays).replace_schema_metadata(metadata), file)
    summary = read_json(folder / "summary.json", "a summary")
    if format == 1:
        del summary["coordinator"]
    (folder / "summary.json").write_text(json.dumps(summary))
    edit_summary(folder, format=format)
    return folder


def test_a_run_leaves_columns_that_it_fills(tmp_path: Path) -> None:
    rounds = pq.read_table(played(tmp_path / "run") / "rounds.parquet")
    assert rounds.column_names == [*ALWAYS["rounds"], *ROUND_CAUSES]
    clients = pq.read_table(tmp_path / "run" / "clients.parquet")
    assert not {"channel", "compute_j", "loss", "group"} & set(clients.column_names)
    assert [name for name in clients.column_names if clients[name].null_count == len(clients)] == []


def test_instruments_and_energy_add_their_columns(tmp_path: Path) -> None:
    rounds = pq.read_table(played(tmp_path / "run", energy={"compute_w": 2.0}) / "rounds.parquet")
    joules = ["compute_j", "send_j", "receive_j", "idle_j", "besides_j"]
    assert rounds.column_names == [*ALWAYS["rounds"], *joules, *ROUND_CAUSES]


@pytest.mark.parametrize(
    ("changes", "others"),
    [
        (FEDCS | {"probe": {"timed": False}}, []),
        (FEDCS, STEPS),
        (FEDCS | {"energy": {"compute_w": 2.0}}, [*STEPS, "compute_j", "send_j", "receive_j"]),
        ({"policy": {"kind": "tifl", "timeout_s": 20.0}, "work": {"steps": 3}}, [*STEPS, "samples"]),
    ],
)
def test_probes_have_the_columns_that_their_run_fills(tmp_path: Path, changes: dict[str, Any], others: list[str]) -> None:
    probes = pq.read_table(played(tmp_path / "run", **(changes | {"clients": {"count": 5, "data_sizes": 9}})) / "probes.parquet")
    assert set(probes.column_names) == {*ALWAYS["probes"], *others}
    assert open_run(tmp_path / "run").arrow("probes", COLUMNS["probes"]).schema.types == schema_of("probes").types
    assert [name for name in probes.column_names if probes[name].null_count == len(probes)] in ([], ["cause"])


@pytest.mark.parametrize("table", ["rounds", "clients"])
def test_readers_get_every_column_with_its_type(tmp_path: Path, table: Any) -> None:
    opened = open_run(played(tmp_path / "run"))
    assert opened.arrow(table, COLUMNS[table]).schema.types == schema_of(table).types
    assert list(ROWS[table]._fields) == sorted(opened.arrow(table).column_names, key=ROWS[table]._fields.index)


@pytest.mark.slow
def test_format_2_reads_and_reports_as_the_present_format(tmp_path: Path) -> None:
    now = played(tmp_path / "now" / "run")
    before = rewritten(Path(shutil.copytree(now, tmp_path / "before" / "run")), 2)
    for table in ("rounds", "clients"):
        names = list(COLUMNS[table])  # type: ignore[index]
        frames = [open_run(folder).arrow(table, names).to_pandas() for folder in (now, before)]  # type: ignore[arg-type]
        pd.testing.assert_frame_equal(*frames)
    first, second = (write_report(folder, folder.parent / "report.md").read_text() for folder in (now, before))
    assert first == second


def test_format_1_reads_and_reports_without_causes(tmp_path: Path) -> None:
    before = rewritten(played(tmp_path / "run"), 1)
    opened = open_run(before)
    assert opened.rounds["closed_by"].isna().all()
    assert opened.rounds["delivered"].sum() == (opened.clients["outcome"] == "delivered").sum()
    assert "recorded before runs said what closed their rounds" in write_report(before, tmp_path / "report.md").read_text()


@pytest.mark.parametrize("format", [1, 2])
def test_folders_of_earlier_formats_compare_with_those_of_the_present_one(tmp_path: Path, format: int) -> None:
    now = [played(tmp_path / f"now-{seed}", seed=seed) for seed in (1, 2)]
    before = [rewritten(Path(shutil.copytree(folder, tmp_path / f"before-{folder.name}")), format) for folder in now]
    alike, mixed = compare(gather(now)), compare(gather([now[0], before[1]]))
    assert [row.seeds for row in mixed.rows] == [row.seeds for row in alike.rows]
    for ours, theirs in zip(mixed.rows, alike.rows, strict=True):
        assert (ours["mean_round_s"], ours["lost_share"]) == (theirs["mean_round_s"], theirs["lost_share"])


@pytest.mark.each_nth(2)
@pytest.mark.parametrize("format", [1, 2])
def test_a_sweep_of_an_earlier_format_compares_and_reports(tmp_path: Path, format: int) -> None:
    tables = LOSSY | {"sweep": {"seeds": [1, 2], "grid": {"policy.kind": ["random", "all"]}}}
    folder = sweep(plan(tables, "lossy"), tmp_path / "sweep", machines=Machines(jobs=1))
    present = compare(open_sweep(folder))
    summaries = sorted(folder.glob("**/seed-*/summary.json"))
    assert len(summaries) == 4
    for summary in summaries:
        rewritten(summary.parent, format)
    found = compare(open_sweep(folder))
    for ours, theirs in zip(found.rows, present.rows, strict=True):
        assert (ours.seeds, ours["mean_round_s"]) == (theirs.seeds, theirs["mean_round_s"])
        assert ours["lost_share"] == theirs["lost_share"]
    assert "random" in write_report(folder, tmp_path / "report.md").read_text()
