"""What cannot be reported on or compared: one message with the remedy, exit code 2, and nothing written."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from scenarios.cli.main import main
from tests.helpers.result_folders import ROUNDS, edit_summary, write_run, write_sweep
from tests.helpers.small_scenario import Shell


def sweep(path: Path) -> Path:
    return write_sweep(path, {name: {1: ROUNDS, 2: ROUNDS} for name in ("a", "b")}, baseline="a")


def no_folder(path: Path) -> list[str]:
    return [str(path / "nowhere")]


def empty_folder(path: Path) -> list[str]:
    (path / "empty").mkdir()
    return [str(path / "empty")]


def newer_format(path: Path) -> list[str]:
    run = write_run(path / "run", ROUNDS, format=99)
    return [str(run)]


def no_summary(path: Path) -> list[str]:
    run = write_run(path / "run", ROUNDS)
    (run / "summary.json").unlink()
    return [str(run)]


def half_a_summary(path: Path) -> list[str]:
    run = write_run(path / "run", ROUNDS)
    (run / "summary.json").write_text('{"format": 1, "name": "stu')
    return [str(run)]


def half_a_table(path: Path) -> list[str]:
    run = write_run(path / "run", ROUNDS)
    table = (run / "rounds.parquet").read_bytes()
    (run / "rounds.parquet").write_bytes(table[: len(table) // 2])
    return [str(run)]


def a_table_that_is_gone(path: Path) -> list[str]:
    run = write_run(path / "run", ROUNDS)
    (run / "clients.parquet").write_bytes(b"a table")
    edit_summary(run, files={"rounds.parquet": "", "clients.parquet": ""})
    (run / "clients.parquet").unlink()
    return [str(run)]


def a_list_without_runs(path: Path) -> list[str]:
    made = sweep(path / "sweep")
    (made / "sweep.json").write_text(json.dumps({"format": 1, "name": "study"}))
    return [str(made)]


def a_metric_that_is_none(path: Path) -> list[str]:
    return [str(sweep(path / "sweep")), "--metric", "final_acuracy"]


def a_key_that_is_not_varied(path: Path) -> list[str]:
    return [str(sweep(path / "sweep")), "--against", "server.deadline_s"]


def a_key_within_that_is_not_varied(path: Path) -> list[str]:
    return [str(sweep(path / "sweep")), "--within", "server.deadline_s"]


def a_margin_without_a_value(path: Path) -> list[str]:
    return [str(sweep(path / "sweep")), "--equivalent", "regret"]


CASES: dict[Callable[[Path], list[str]], str] = {
    no_folder: "nowhere",
    empty_folder: "expected a run",
    newer_format: "format 99 is newer than format",
    no_summary: "summary.json is missing",
    half_a_summary: "not JSON",
    half_a_table: "rounds.parquet",
    a_table_that_is_gone: "clients.parquet: is missing, though summary.json lists it; restore it from a copy, or make it again",
    a_list_without_runs: "sweep.json",
    a_metric_that_is_none: "did you mean 'final_accuracy'",
    a_key_that_is_not_varied: "make a grid",
    a_key_within_that_is_not_varied: "within 'server.deadline_s'",
    a_margin_without_a_value: "METRIC=VALUE",
}


@pytest.mark.parametrize("command", ["report", "compare"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_one_message_and_exit_code_2(
    command: str,
    case: Callable[[Path], list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = case(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setattr(sys, "argv", ["netsim", command, *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr()
    assert ended.value.code == 2
    expected = CASES[case]
    if command == "compare" and case is no_summary:
        expected = "expected a run"
    assert expected in said.err
    assert len(said.err.strip().splitlines()) == 1
    assert "Traceback" not in said.err
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("command", ["report", "compare"])
@pytest.mark.parametrize("file", ["summary.json", "rounds.parquet", "rounds.parquet is gone"])
def test_a_damaged_run_of_a_sweep_is_left_out_with_a_warning(
    command: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = sweep(tmp_path / "sweep")
    run = made / "b" / "seed-2"
    edit_summary(run, files={"rounds.parquet": ""})
    name, _, gone = file.partition(" ")
    if gone:
        (run / name).unlink()
    else:
        (run / name).write_bytes((run / name).read_bytes()[:-3])
    for options, code in ([], 0), (["--strict"], 2):
        monkeypatch.setattr(sys, "argv", ["netsim", command, str(made), *options])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr().err
        assert ended.value.code == code, said
        assert said.count("warning") == 2 - len(options)
        assert f"warning: {run}" in said
        assert "1 of 4 planned runs are not complete: b, seed 2" in said


def test_runs_of_different_worlds_are_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, count in (("one", 5), ("two", 6)):
        run = write_run(tmp_path / name, ROUNDS)
        (run / "scenario.toml").write_text(f'name = "study"\nseed = 1\n[clients]\ncount = {count}\n', encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["netsim", "compare", str(tmp_path / "one"), str(tmp_path / "two")])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "clients.count = 6" in said
    assert "Compare runs that share" in said


def test_a_sweep_where_a_run_is_wanted_is_named_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_sweep(tmp_path / "s", {"a": {1: {"round": [1], "start_s": [0.0], "end_s": [1.0]}}}, baseline="a")
    shell = Shell(tmp_path, monkeypatch, capsys)
    code, _, error = shell("stragglers", path)
    assert code == 2
    assert f"this is a sweep: name one of its runs, as {path}/VARIANT/seed-SEED" in " ".join(error.split())


def test_nobody_held_up_a_run_of_which_no_round_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shell = Shell(tmp_path, monkeypatch, capsys)
    assert shell.run("--set", "time_limit_s=0.001")[0] == 0
    code, _, error = shell("stragglers", shell.out, "--quiet")
    assert code == 2
    assert "out: no round of this run closed" in " ".join(error.split())


@pytest.mark.parametrize("command", ["report", "compare", "figure", "breakpoints"])
def test_a_sweep_without_a_run_says_so(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_sweep(tmp_path / "s", {}, baseline="a")
    code, _, error = Shell(tmp_path, monkeypatch, capsys)(command, path)
    assert code == 2
    assert "no complete run" in " ".join(error.split())


def test_a_run_without_anything_to_draw_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_run(tmp_path / "r", {name: [] for name in ROUNDS})
    code, out, error = Shell(tmp_path, monkeypatch, capsys)("figure", path)
    assert (code, out) == (2, "")
    assert "there is data for no figure" in " ".join(error.split())


def test_a_margin_that_is_none_is_refused_before_anything_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_sweep(tmp_path / "s", {"a": {1: {"round": [1], "start_s": [0.0], "end_s": [1.0]}}}, baseline="a")
    code, out, error = Shell(tmp_path, monkeypatch, capsys)("compare", path, "--equivalent", "mean_round_s")
    assert (code, out) == (2, "")
    assert "must be METRIC=VALUE" in error
