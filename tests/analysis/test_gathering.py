"""Comparing what was not played together, and playing a run once more."""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from analysis import compare, gather, open_run, open_sweep
from analysis.gathering import different_world
from scenarios import api
from scenarios.cli.main import main
from scenarios.runs.reading import parse
from scenarios.runs.replay import _difference
from scenarios.runs.run import run
from scenarios.sweeps.options import Earlier, Machines
from scenarios.sweeps.sweep import plan, sweep
from tests.helpers.result_folders import edit_summary
from tests.helpers.small_scenario import small, small_tables


def played(folder: Path, **changes: Any) -> Path:
    run(parse({key: value for key, value in (small_tables() | changes).items() if key != "sweep"}), folder)
    return folder


def netsim(monkeypatch: Any, *arguments: Any) -> int:
    monkeypatch.setattr(sys, "argv", ["netsim", *map(str, arguments)])
    try:
        main()
    except SystemExit as exit:
        return int(exit.code or 0)
    return 0


def test_runs_played_alone_compare_as_those_of_a_sweep(tmp_path: Path) -> None:
    tables = small_tables() | {"sweep": {"seeds": [1, 2], "grid": {"policy.kind": ["random", "all"]}}}
    sweep(plan(tables, "small"), tmp_path / "sweep", machines=Machines(jobs=1))
    folders = [
        played(tmp_path / f"{kind}-{seed}", seed=seed, policy={"kind": kind}) for kind in ("random", "all") for seed in (1, 2)
    ]
    together, alone = compare(open_sweep(tmp_path / "sweep")), compare(gather(folders))
    assert [row.label for row in alone.rows] == ["random-1", "all-1"]
    assert [row.seeds for row in alone.rows] == [2, 2]
    for ours, theirs in zip(alone.rows, together.rows, strict=True):
        assert (ours["mean_round_s"], ours["max_leak"]) == (theirs["mean_round_s"], theirs["max_leak"])
    assert alone.differences[0]["mean_round_s"].difference == together.differences[0]["mean_round_s"].difference


def test_sweeps_and_folders_of_variants_are_taken_apart(tmp_path: Path) -> None:
    sweep(plan(small_tables(), "small"), tmp_path / "one", machines=Machines(jobs=1))
    sweep(plan(small_tables() | {"rounds": 9}, "small"), tmp_path / "two", machines=Machines(jobs=1))
    both = gather([tmp_path / "one", tmp_path / "two"])
    assert list(both.labels.values()) == ["one/pause", "one/random", "two/pause", "two/random"]
    assert len(both) == 8
    variants = gather([tmp_path / "two" / "random", tmp_path / "one" / "pause"])
    assert list(variants.labels.values()) == ["random", "pause"]
    assert variants.seeds == (1, 2)
    assert variants.labels[variants.baseline] == "random"


def test_an_interrupted_run_of_a_variant_counts_as_missing(tmp_path: Path) -> None:
    sweep(plan(small_tables(), "small"), tmp_path / "sweep", machines=Machines(jobs=1))
    variant = tmp_path / "sweep" / "random"
    edit_summary(variant / "seed-2", ended="interrupted")
    cut = gather([variant])
    assert [(entry.seed, entry.label) for entry in cut.entries] == [(1, "random")]
    assert cut.missing == (("random", 2),)
    # Named by itself it is what the user asked for.
    assert [entry.seed for entry in gather([variant / "seed-2"]).entries] == [2]


def test_what_a_sweep_varies_by_itself_is_compared(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    tables = small_tables() | {"sweep": {"seeds": [1, 2], "grid": {"uplink.channel.success": [0.9, 0.5]}}}
    sweep(plan(tables, "small"), tmp_path / "sweep", machines=Machines(jobs=1))
    assert len(gather([tmp_path / "sweep"]).labels) == 2
    # A run of either world may join.
    alone = played(tmp_path / "alone", uplink=small_tables("uplink.channel.success=0.5")["uplink"], policy={"kind": "random"})
    assert len(gather([tmp_path / "sweep", alone]).labels) == 3
    assert netsim(monkeypatch, "compare", played(tmp_path / "first"), tmp_path / "sweep") == 2
    assert "Compare runs that share clients, data, partition and network" in capsys.readouterr().err.replace("\n", " ")


def test_data_sets_and_partitions_make_tasks_but_their_scale_does_not() -> None:
    equal = {"kind": "equal"}
    digits: dict[str, Any] = {
        "learner": {"data": {"kind": "digits", "scale": "unit"}, "partition": equal},
        "clients": {"count": 4},
    }
    changes: list[tuple[dict[str, Any], Any]] = [
        ({"learner": {"data": {"kind": "digits", "scale": "raw"}, "partition": equal}, "outages": []}, None),
        ({"policy": {"kind": "random"}, "channels": {"count": 3}}, None),
        ({"learner": {}}, None),
        ({"learner": {"data": {"kind": "own:spirals"}, "partition": equal}}, ("learner.data.kind", "own:spirals", "digits")),
        (
            {"learner": {"data": {"kind": "digits"}, "partition": {"kind": "skewed"}}},
            ("learner.partition.kind", "skewed", "equal"),
        ),
        ({"jammers": [{"name": "a"}]}, ("jammers", [{"name": "a"}], None)),
    ]
    for change, expected in changes:
        assert different_world(digits | change, digits) == expected


def without_rounds(folder: Path) -> Path:
    (played(folder) / "rounds.parquet").unlink()
    return folder


def test_compare_on_the_command_line(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    first, second = played(tmp_path / "first"), played(tmp_path / "second", policy={"kind": "random"})
    assert netsim(monkeypatch, "compare", first, second, "--out", tmp_path / "out") == 0
    printed = capsys.readouterr().out
    assert "Variant minus first" in printed
    table = pyarrow.csv.read_csv(tmp_path / "out" / "comparison.csv").to_pydict()
    assert table["label"] == ["first", "second"]
    assert list((tmp_path / "out").glob("*.png"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: [folder / "nowhere"], "there is no complete one"),
        (lambda folder: [without_rounds(folder / "a"), played(folder / "b")], "a/rounds.parquet: is missing, though summary"),
        (lambda folder: [played(folder / "a"), played(folder / "b")], "b: another run of the same scenario and seed as"),
        (lambda folder: [played(folder / "a")] * 2, "a: the same run as"),
        (
            lambda folder: [played(folder / "a"), played(folder / "b", clients={"count": 7}, uplink={})],
            "b: clients.count = 7, but",
        ),
        (
            lambda folder: [
                played(folder / "a"),
                played(folder / "b", uplink=small_tables("uplink.channel.success=0.5")["uplink"], policy={"kind": "random"}),
            ],
            "b: uplink.channel.success = 0.5, but",
        ),
    ],
)
def test_what_cannot_be_compared(make: Any, message: str, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    assert netsim(monkeypatch, "compare", *make(tmp_path), "--out", tmp_path / "out") == 2
    assert message in capsys.readouterr().err.replace("\n", " ")
    assert not (tmp_path / "out").exists()


def test_a_run_is_reproduced(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    folder = played(tmp_path / "run")
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert netsim(monkeypatch, "replay", folder, "--quiet") == 0
    assert "the same, byte for byte" in capsys.readouterr().out
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


def test_what_is_different_is_told(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    folder = played(tmp_path / "run")
    table = pq.read_table(folder / "rounds.parquet")
    ends = table["end_s"].to_pylist()
    ends[3] += 1.0
    changed = table.set_column(table.schema.get_field_index("end_s"), table.schema.field("end_s"), [ends])
    pq.write_table(changed, folder / "rounds.parquet")
    (folder / "clients.parquet").unlink()
    edit_summary(folder, versions=open_run(folder).summary["versions"] | {"numpy": "0.1"})
    assert netsim(monkeypatch, "replay", folder, "--quiet") == 1
    told = capsys.readouterr().err
    assert f"rounds.parquet: end_s of row 3 is {ends[3]}" in told
    assert "clients.parquet: is only in the second run" in told
    assert "made with other versions: numpy 0.1, now" in told


def test_no_number_is_no_difference(tmp_path: Path) -> None:
    files = []
    for last in (1.0, 2.0):
        (tmp_path / str(last)).mkdir()
        files.append(tmp_path / str(last) / "rounds.parquet")
        pq.write_table(pa.table({"accuracy": [math.nan, 0.5], "end_s": [0.5, last]}), files[-1])
    assert _difference(*files) == "rounds.parquet: end_s of row 1 is 1.0, and 2.0 the second time"


def test_a_run_that_its_events_ended_is_not_reproduced(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    api.run(small(), out=tmp_path / "run", event_limit=12)
    assert netsim(monkeypatch, "replay", tmp_path / "run", "--quiet") == 2
    assert "ended by --event-limit, and the limit is not stored with the run; run it again" in "".join(capsys.readouterr().err)


def test_only_a_finished_run_is_reproduced(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    def cut(simulation: Any) -> None:
        raise KeyboardInterrupt

    run(small(), tmp_path / "cut", after_round=cut)
    assert netsim(monkeypatch, "replay", tmp_path / "cut") == 2
    assert "has not come to its end; netsim resume" in capsys.readouterr().err.replace("\n", " ")
    (tmp_path / "several").mkdir()
    (tmp_path / "several" / "sweep.json").write_text("{}", encoding="utf-8")
    for command in ("replay", "resume"):
        assert netsim(monkeypatch, command, tmp_path / "several") == 2
        told = capsys.readouterr().err
        assert "several: is not the folder of a run; this is a sweep: name one of its runs" in "".join(told.splitlines())
    assert netsim(monkeypatch, "replay", tmp_path) == 2


def test_a_run_of_a_sweep_that_is_another_run_is_left_out_and_named(
    tmp_path: Path, monkeypatch: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = small_tables() | {"sweep": {"seeds": [1, 2]}}
    sweep(plan(tables, "small"), folder := tmp_path / "s", machines=Machines(jobs=1))
    done = open_sweep(folder)
    place = done.entries[0].path
    assert done.comparison["seeds"].tolist() == [2] * len(done.variants)
    alone = tmp_path / "alone.toml"
    alone.write_text(re.sub(r"(?m)^rounds = .*$", "rounds = 2", (place / "scenario.toml").read_text(encoding="utf-8")))
    assert netsim(monkeypatch, "run", alone, "--out", place, "--overwrite", "--quiet") == 0
    message = f"is not the run that sweep.json lists as variant {done.entries[0].variant!r}, seed 1"
    with pytest.raises(ValueError, match=re.escape(message)):
        open_sweep(folder).compare()
    for command in (["compare", folder], ["report", folder]):
        capsys.readouterr()
        assert netsim(monkeypatch, *command) == 0
        told = " ".join(capsys.readouterr().err.split())
        assert message in told
        assert netsim(monkeypatch, *command, "--strict") != 0
    # The sweep simulates it again.
    assert netsim_sweep_again(tables, folder).comparison["seeds"].tolist() == [2] * len(done.variants)


def netsim_sweep_again(tables: dict[str, Any], folder: Path) -> Any:
    sweep(plan(tables, "small"), folder, machines=Machines(jobs=1), earlier=Earlier(resume=True))
    return open_sweep(folder)
