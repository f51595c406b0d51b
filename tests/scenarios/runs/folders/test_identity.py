"""The identity of a run, and sweeps that simulate only what is missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from analysis import open_sweep
from scenarios.runs.folders.identity import run_id, study_digest
from scenarios.runs.folders.replacement import write_json
from scenarios.runs.run import go_on, run
from scenarios.schema.errors import UserError
from scenarios.sweeps.options import Earlier, Machines
from scenarios.sweeps.plan import add_grid, plan
from scenarios.sweeps.sweep import sweep
from tests.helpers.commands import contents, tables
from tests.helpers.scripted import interrupt_at
from tests.helpers.small_scenario import small, small_tables


def identity(*settings: str, code: dict[str, dict[str, str]] | None = None) -> str:
    study = small(*settings)
    return run_id(study_digest(study, code or {}), study.seed)


def test_runs_of_one_content_have_one_identity(tmp_path: Path, monkeypatch: Any) -> None:
    told = [run(small(*settings), tmp_path / str(i))["run_id"] for i, settings in enumerate([(), ("name=other", "sweep={}")])]
    assert told == [identity()] * 2
    changed = [identity("seed=2"), identity("policy.alpha=2"), identity(code={"own:Policy": {"own": "0"}})]
    monkeypatch.setattr("scenarios.runs.folders.identity.version", lambda: "9.9")
    assert len({*told, *changed, identity()}) == 5


def test_a_file_that_the_scenario_names_is_part_of_it(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    Path("uplink.csv").write_text("time_s,bytes_per_s\n0,6e5\n40,2e5\n", encoding="utf-8")
    settings = ("uplink.bandwidth={kind='trace',path='uplink.csv'}", "payload={down_bytes=9,up_bytes=9}")
    before = identity(*settings)
    assert identity(*settings) == before
    Path("uplink.csv").write_text("time_s,bytes_per_s\n0,6e5\n40,3e5\n", encoding="utf-8")
    assert identity(*settings) != before


@pytest.mark.parametrize(("path", "file"), [("of-{client}.csv", "of-5.csv"), ("uplink", "uplink"), ("{client}", "5")])
def test_a_file_for_each_client_and_one_without_an_ending_are_part_of_it(
    path: str, file: str, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = (f"uplink.bandwidth={{kind='trace',path='{path}'}}", "payload={down_bytes=9,up_bytes=9}")
    for client in range(6):
        Path(path.replace("{client}", str(client))).write_text("time_s,bytes_per_s\n0,6e5\n40,2e5\n", encoding="utf-8")
    before = identity(*settings)
    Path(file).write_text("time_s,bytes_per_s\n0,6e5\n40,3e5\n", encoding="utf-8")
    assert identity(*settings) != before


def test_a_run_does_not_go_on_with_another_data_file(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    text = "time_s,bytes_per_s\n0,6e5\n40,2e5\n"
    Path("uplink.csv").write_text(text, encoding="utf-8")
    settings = ("uplink.bandwidth={kind='trace',path='uplink.csv'}", "payload={down_bytes=9,up_bytes=9}")
    run(small(*settings), tmp_path / "whole")
    run(small(*settings), tmp_path / "cut", after_round=interrupt_at(3))
    Path("uplink.csv").write_text("time_s,bytes_per_s\n0,6e3\n40,2e3\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"cut: uplink.csv, which its scenario names, has changed since the run began; undo the"):
        go_on(tmp_path / "cut")
    Path("uplink.csv").write_text(text, encoding="utf-8")
    go_on(tmp_path / "cut")
    assert (tmp_path / "cut" / "rounds.parquet").read_bytes() == (tmp_path / "whole" / "rounds.parquet").read_bytes()


def test_a_sweep_simulates_again_what_was_cut_off_with_another_data_file(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    Path("uplink.csv").write_text("time_s,bytes_per_s\n0,6e5\n40,2e5\n", encoding="utf-8")
    settings = ("uplink.bandwidth={kind='trace',path='uplink.csv'}", "payload={down_bytes=9,up_bytes=9}", "sweep={}")
    planned = plan(small_tables(*settings), "small")
    out = sweep(planned, tmp_path / "out", machines=Machines(jobs=1))
    (one,) = planned.runs
    run(one.scenario, out / one.path, overwrite=True, after_round=interrupt_at(3))
    Path("uplink.csv").write_text("time_s,bytes_per_s\n0,6e1\n40,2e1\n", encoding="utf-8")
    sweep(planned, out, machines=Machines(jobs=1), earlier=Earlier(resume=True))
    run(one.scenario, tmp_path / "whole")
    assert (out / one.path / "rounds.parquet").read_bytes() == (tmp_path / "whole" / "rounds.parquet").read_bytes()


def made(folder: Path) -> dict[str, int]:
    """When each run of a sweep was completed."""
    paths = [entry["path"] for entry in json.loads((folder / "sweep.json").read_text())["runs"]]
    return {path: (folder / path / "summary.json").stat().st_mtime_ns for path in paths}


def test_an_extended_sweep_simulates_what_is_missing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    sweep(plan(small_tables(), "small"), out, machines=Machines(jobs=1))
    before = made(out)
    # Another name, another seed, and a key with two values, of which one is that of the runs that are there.
    more = add_grid(small_tables("name=renamed"), {"server.per_round": [2, 3]}, [1, 2, 3])
    sweep(plan(more, "small"), out, machines=Machines(jobs=1), earlier=Earlier(resume=True))
    now = made(out)
    assert len(now) == 2 * 2 * 3
    assert not (out / "pause").exists()
    for path, time in before.items():
        variant, _, seed = path.partition("/")
        assert now[f"{variant}+per_round=2/{seed}"] == time
    sweep(plan(more, "small"), tmp_path / "whole", machines=Machines(jobs=1))
    lists = [json.loads((folder / "sweep.json").read_text())["runs"] for folder in (out, tmp_path / "whole")]
    assert lists[0] == lists[1]
    different = {name for name, data in tables(out).items() if data != tables(tmp_path / "whole")[name]}
    assert {Path(name).name for name in different} <= {"scenario.toml"}, "the name of the study that it was simulated for"


def test_runs_of_another_version_are_not_taken_for_those_of_this_one(tmp_path: Path, monkeypatch: Any) -> None:
    out = tmp_path / "out"
    sweep(plan(small_tables(), "small"), out, machines=Machines(jobs=1))
    file = out / "random" / "seed-2" / "summary.json"
    told = json.loads(file.read_text())
    told["versions"]["netsim"], told["run_id"] = "0.0.1", "0" * 32
    del told["sha256"]
    write_json(file, told)
    before = contents(out)
    with pytest.raises(UserError, match=r"random/seed-2: was simulated by netsim 0.0.1, this is .* name another folder"):
        sweep(plan(small_tables(), "small"), out, machines=Machines(jobs=1), earlier=Earlier(resume=True))
    assert contents(out) == before


def test_a_damaged_run_does_not_end_a_sweep(tmp_path: Path) -> None:
    out = tmp_path / "out"
    sweep(plan(small_tables(), "small"), out, machines=Machines(jobs=1))
    (out / "random" / "seed-1" / "summary.json").write_bytes(b"{")
    words = r"random/seed-1/summary.json: expected a run's summary(.|\n)*1 run failed; the others are complete"
    more = plan(add_grid(small_tables(), {}, [1, 2, 3]), "small")
    with pytest.raises(UserError, match=words):
        sweep(more, out, machines=Machines(jobs=1), earlier=Earlier(resume=True))
    assert len(made(out)) == 5


def test_a_run_of_which_a_table_is_damaged_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    out = tmp_path / "out"
    sweep(plan(small_tables(), "small"), out, machines=Machines(jobs=1))
    file = out / "random" / "seed-1" / "clients.parquet"
    file.write_bytes(file.read_bytes()[:-1])
    more = plan(add_grid(small_tables(), {}, [1, 2, 3]), "small")
    with pytest.raises(UserError, match=r"clients.parquet: is damaged .*--overwrite\n1 run failed; the others are complete"):
        sweep(more, out, machines=Machines(jobs=1), earlier=Earlier(resume=True), tables=["rounds", "clients"])
    assert [(label, seed) for label, seed in open_sweep(out).missing] == [("random", 1)]
    assert len(open_sweep(out)) == 5
    # Nor is it taken for that of a variant of another name.
    renamed = plan(small_tables("sweep.variants=[{name='other',set={'policy.kind'='random'}}]"), "small")
    sweep(renamed, out, machines=Machines(jobs=1), earlier=Earlier(resume=True), tables=["clients"])
    assert [run.source.find_damages() for run in open_sweep(out)] == [[], []]
