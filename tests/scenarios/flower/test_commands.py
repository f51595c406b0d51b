"""The commands on a scenario with an app in a folder: check, run, stragglers, what-if, sweep and report."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

pytest.importorskip("flwr")

import netsim
from tests.golden.cases import INPUTS
from tests.helpers.small_scenario import Shell

SCENARIO = """
name = "commands"
time_limit_s = 200.0
[flower]
app = "flower-app"
epochs_key = "epochs"
[clients]
count = 3
[compute]
samples_per_s = 10.0
[downlink]
bandwidth_bytes_per_s = 1000.0
[uplink]
bandwidth_bytes_per_s = 500.0
[energy]
compute_w = 2.0
send_w = 1.0
[sweep]
seeds = [1, 2]
baseline = "usual"
target_accuracy = 0.5
[[sweep.variants]]
name = "usual"
[[sweep.variants]]
name = "slow"
set = { "uplink.bandwidth_bytes_per_s" = 100.0 }
[[sweep.variants]]
name = "epochs"
set = { "flower.run_config.epochs" = 4 }
"""


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    monkeypatch.chdir(tmp_path)
    made = Shell(tmp_path, monkeypatch, capsys)
    shutil.copytree(INPUTS / "flower-app", tmp_path / "flower-app")
    (tmp_path / "app.toml").write_text(SCENARIO, encoding="utf-8")
    return made


def test_check_run_stragglers_and_replay(shell: Shell) -> None:
    code, out, _ = shell("check", "app.toml")
    assert code == 0
    assert "app.toml: good. 3 clients, as the app's strategy decides, until the app ends; 3 variants" in out
    assert "Messages" not in out
    assert shell("run", "app.toml", "--out", "runs/app", "--quiet")[0] == 0
    run = netsim.open_run("runs/app")
    assert run.rounds["accuracy"].tolist() == pytest.approx([0.0, 1 / 2, 2 / 3])
    code, out, _ = shell("stragglers", "runs/app", "--quiet")
    assert code == 0
    assert "No seconds saved" in out
    # The path leads to the last close; without --exact nothing is added to the folder.
    assert f"critical path, {run.rounds['end_s'].iloc[-1]:.2f} s up to the last close" in out
    assert not (Path("runs/app") / "what_ifs.parquet").exists()
    code, _, told = shell("what-if", "runs/app", "--round", "2", "--without", "1", "--quiet")
    assert code == 2
    assert "a Flower app cannot go on from the beginning of a round" in told
    assert "byte for byte" in shell("replay", "runs/app", "--quiet")[1]


def test_a_mistake_ends_in_one_line_and_leaves_nothing(shell: Shell) -> None:
    code, _, told = shell("run", "app.toml", "--out", "runs/app", "--quiet", "--set", "flower.run_config.epoch=3")
    assert (code, told.strip().count("\n")) == (2, 0)
    assert "the app's run config has no such key" in told
    assert not Path("runs").exists()


@pytest.mark.parametrize("command", [("check", "app.toml"), ("run", "app.toml", "--out", "runs/app", "--quiet")])
def test_components_that_do_not_import_are_told_before_anything_is_written(shell: Shell, command: tuple[str, ...]) -> None:
    Path("flower-app/small_app.py").write_text("import absent_module", encoding="utf-8")
    code, _, told = shell(*command)
    assert (code, told.strip().count("\n")) == (2, 0)
    assert "cannot be imported: ModuleNotFoundError: No module named 'absent_module'; install absent_module" in told
    assert not Path("runs").exists()


def test_a_sweep_over_worlds_and_run_config(shell: Shell) -> None:
    quickly = ("--quiet", "--no-figures", "--jobs", "1", "--set", "sweep.seeds=[1]")
    assert shell("sweep", "app.toml", "--out", "runs/study", *quickly)[0] == 0
    usual, slow, epochs = (netsim.open_run(f"runs/study/{name}/seed-1").rounds for name in ("usual", "slow", "epochs"))
    assert slow["end_s"].iloc[-1] > usual["end_s"].iloc[-1]
    # 30 samples twice more in each of 3 rounds, 10 of them a second.
    assert epochs["end_s"].iloc[-1] - usual["end_s"].iloc[-1] == pytest.approx(3 * 2 * 30 / 10.0)
    assert slow["accuracy"].tolist() == usual["accuracy"].tolist()


@pytest.mark.slow
def test_figures_and_report_show_accuracy_against_seconds_bytes_and_joules(shell: Shell) -> None:
    assert shell("sweep", "app.toml", "--out", "runs/study", "--quiet")[0] == 0
    shown = {file.stem for file in Path("runs/study/figures").iterdir()}
    assert {"accuracy", "accuracy_bytes", "accuracy_joules"} <= shown
    assert shell("report", "runs/study")[0] == 0
    report = Path("runs/study/report/report.html").read_text(encoding="utf-8")
    assert "seconds to 50" in report
    assert "MB to 50" in report
    assert "kJ to 50" in report
