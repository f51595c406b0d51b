"""What a run looks like while it runs, and what it logs for TensorBoard."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import netsim
from analysis.stragglers.closers import closers
from analysis.stragglers.records import run_records
from scenarios.cli import live as shown
from scenarios.cli.live import LastClients, Look, clock
from scenarios.runs.event_log import FILE, EventLog
from scenarios.runs.reading import parse
from scenarios.runs.run import go_on, simulate
from scenarios.wiring.simulation import build
from tests.helpers.rough_scenarios import BUFFERED, rough
from tests.helpers.small_scenario import Shell, small


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(tmp_path, monkeypatch, capsys)


def test_elsewhere_than_on_a_terminal_there_are_plain_lines(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown, "_LINE_S", 0.0)
    code, _, error = shell("run", shell.file, "--out", shell.out)
    lines = error.splitlines()
    assert code == 0
    assert len(lines) == 7  # a line a round, and one at the end
    assert "\x1b" not in error
    assert lines[0].startswith("small: 1/6 rounds; simulated ")
    assert lines[-1].startswith("small: 6/6 rounds; ")
    assert "last 6 rounds" in lines[-1]
    assert "delivered" in lines[-1]
    assert "most often last client" in lines[-1]
    assert shell("run", shell.file, "--out", shell.out, "--overwrite", "--quiet")[2] == ""


def test_on_a_terminal_a_panel_changes_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    monkeypatch.setattr(shown, "err_console", console)
    monkeypatch.setattr(shown, "_EVERY_S", 0.0)
    study = small()
    with shown.live(study.name, study.rounds, None, False) as after_round:
        simulate(build(study), study, tmp_path / "run", after_round=after_round)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "\x1b[2K" in text  # lines are erased and written again
    assert all(f"{number}/6" in text for number in range(7))
    assert "most often last" in text
    assert "time left" in text


@pytest.mark.parametrize("tables", [rough(), BUFFERED], ids=["rough", "buffered"])
def test_who_was_last_is_who_the_tables_say(tables: dict[str, Any], tmp_path: Path) -> None:
    study = parse(tables | {"rounds": 12})
    built = build(study)
    last = LastClients()
    server: Any = built.simulation.server
    server.loop.alter(last)
    simulate(built, study, tmp_path / "run")
    run = netsim.open_run(tmp_path / "run")
    view = run_records(run)
    rows = view.attempts[view.attempts["outcome"] != "in_flight"]
    ends = rows.merge(view.rounds, left_on="outcome_s", right_on="end_s", suffixes=("", "_closed"))
    if not view.carries:
        ends = ends[ends["round"] == ends["round_closed"]]
    alone = ends.groupby("round_closed").filter(lambda group: len(group) == 1)
    assert dict(last.counts) == alone["client"].value_counts().to_dict()
    assert closers(view)["client"].notna().sum() >= (1 if view.carries else 0)


def test_time_left_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(shown.time, "perf_counter", lambda: now[0])
    look = Look("study", rounds=10, limit_s=None, began=100.0)
    assert math.isnan(look.left_s)
    # A run that was taken up at round 4: two rounds in 6 s leave four, 12 s.
    look.first, look.round, now[0] = 4, 6, 106.0
    assert look.left_s == pytest.approx(12.0)
    # By simulated time it is nearer to its end: 90 of 100 s, of which 30 in this process, 6 s for them: 2 s for the rest.
    look.limit_s, look.first_s, look.time_s = 100.0, 60.0, 90.0
    assert look.done == 0.9
    assert look.left_s == pytest.approx(2.0)
    assert [clock(seconds) for seconds in (5.4, 65.0, 3725.0)] == ["0:05", "1:05", "1:02:05"]


def test_a_run_without_a_known_end_has_no_total_and_no_time_left() -> None:
    look = Look("app", rounds=None, limit_s=None)
    look.first, look.round, look.time_s, look.counts = 0, 3, 12.0, {"delivered": 30}
    assert look.line() == "app: 3 rounds; simulated 12.0 s; updates 30 delivered"
    assert not look.is_limited
    look.limit_s = 24.0
    assert (look.is_limited, look.done) == (True, 0.5)


def scalars_of(folder: Path) -> Any:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = accumulator.EventAccumulator(str(folder / "tensorboard"))
    found.Reload()
    return found


def test_rounds_are_logged_for_tensorboard(shell: Shell) -> None:
    pytest.importorskip("tensorboard")
    assert shell.run("--log", "tensorboard")[0] == 0
    found = scalars_of(shell.out)
    rounds = netsim.open_run(shell.out).rounds
    told = [(event.step, event.value) for event in found.Scalars("round_s")]
    assert [step for step, _ in told] == rounds["round"].tolist()
    assert [value for _, value in told] == pytest.approx((rounds["end_s"] - rounds["start_s"]).tolist(), rel=1e-6)
    assert [event.value for event in found.Scalars("delivered")] == rounds["delivered"].tolist()
    assert "accuracy" not in found.Tags()["scalars"]  # nothing is trained
    # The log is the run's: a new run replaces it, and replaying the run does not look at it.
    assert shell.run("--overwrite")[0] == 0
    assert not (shell.out / FILE).exists()


def test_a_run_that_goes_on_appends_to_its_log(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    study, out = small(), tmp_path / "run"
    log = EventLog(out)

    def interrupted(simulation: Any) -> None:
        log(simulation)
        if simulation.server.round == 4:
            raise KeyboardInterrupt

    simulate(build(study), study, out, after_round=interrupted, more_files=[FILE])
    log.close()
    again = EventLog(out)
    go_on(out, after_round=again)
    again.close()
    assert [event.step for event in scalars_of(out).Scalars("round_s")] == [1, 2, 3, 4, 5, 6]


def test_what_a_run_repeats_replaces_what_was_logged_of_it(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    study, out = small(), tmp_path / "run"
    log = EventLog(out)
    simulate(build(study), study, out, after_round=log, more_files=[FILE])
    log.close()
    before = (out / FILE).read_bytes()
    again = EventLog(out)

    def repeated(simulation: Any) -> None:
        if simulation.server.round == 3:
            (out / FILE).parent.mkdir(exist_ok=True)
            (out / FILE).write_bytes(before)
        if simulation.server.round >= 3:
            again(simulation)

    simulate(build(study), study, out, after_round=repeated, more_files=[FILE], overwrite=True)
    again.close()
    assert (out / FILE).read_bytes().startswith(before)
    assert [event.step for event in scalars_of(out).Scalars("round_s")] == [1, 2, 3, 4, 5, 6]


def test_another_log_is_refused(shell: Shell) -> None:
    code, _, error = shell.run("--log", "wandb")
    assert (code, error) == (2, "--log 'wandb': must be tensorboard\n")
    assert not shell.out.exists()
