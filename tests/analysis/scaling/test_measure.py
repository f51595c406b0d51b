"""The plan of large sweeps: by hand where there is one worker or no variation, by bounds otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from analysis.scaling import measure as scale
from analysis.scaling.measure import Costs, format_duration, makespan_s, plan_cells, plan_rows
from scenarios.cli.output import out_console
from tests.helpers.small_scenario import Shell


def test_one_worker_and_as_many_as_there_are_runs_by_hand() -> None:
    costs = Costs(run_s=2.0, task_s=0.5, start_s=3.0, cv=0.0)
    assert makespan_s(costs, 10, 1) == pytest.approx(3.0 + 10 * 2.5)
    assert makespan_s(costs, 10, 10) == pytest.approx(3.0 + 10 * 0.5 + 2.0)
    # Two workers, 2.5 s a run each, the second half a second later: 5 runs each.
    assert makespan_s(costs, 10, 2) == pytest.approx(3.0 + 0.5 + 5 * 2.5)


def test_more_workers_than_keep_the_scheduler_busy_are_of_no_use() -> None:
    costs = Costs(run_s=1.0, task_s=0.01)
    assert costs.saturates_at == pytest.approx(101.0)
    times = {workers: makespan_s(costs, 20_000, workers) for workers in (50, 200, 1000)}
    assert times[50] == pytest.approx(20_000 * 1.01 / 50, rel=0.02)
    assert times[200] == pytest.approx(20_000 * 0.01, rel=0.02)
    assert times[1000] == pytest.approx(times[200], rel=0.01)


@pytest.mark.parametrize("workers", [7, 100])
def test_what_is_not_simulated_goes_on_at_the_same_rate(workers: int, monkeypatch: Any) -> None:
    costs = Costs(run_s=1.0, task_s=0.005)
    whole = makespan_s(costs, 60_000, workers)
    monkeypatch.setattr(scale, "SIMULATED", 20_000)
    assert makespan_s(costs, 60_000, workers) == pytest.approx(whole, rel=0.01)


def test_the_table_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(scale, "SIMULATED", 2000)
    monkeypatch.setattr(out_console, "width", 80)
    shell = Shell(tmp_path, monkeypatch, capsys)
    code, printed, _ = shell("scale", "--run-s", "1", "--task-s", "0.01", "--run-bytes", "60000")
    assert code == 0
    assert "saturated by 101 workers" in printed
    header, rows = plan_cells(Costs(run_s=1.0, task_s=0.01, run_bytes=60_000.0))
    assert (header[0], header[-1], rows[-1][0], rows[-1][-1]) == ("workers", "10,000,000 runs", "on disk", "600 GB")
    assert all(cell in printed for row in rows for cell in row)
    assert shell("scale", "--run-s", "1")[0] == 2
    assert shell("scale", "--run-s", "0", "--task-s", "1")[0] == 2
    assert all(0.0 < share < 1.05 for *_, share in plan_rows(Costs(1.0, 0.01), (1000,)))
    texts = [format_duration(s) for s in (30.0, 600.0, 7200.0, 200_000.0, 1e9)]
    assert texts == ["30 s", "10 min", "2 h", "2.31 days", "31.7 years"]
