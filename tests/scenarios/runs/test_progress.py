"""The progress of runs that their time limit ends reaches its end with them."""

from __future__ import annotations

from pathlib import Path

import pytest

import netsim
from scenarios.cli.output import sweep_progress
from scenarios.sweeps.plan import plan
from scenarios.sweeps.workers import SweepProgress
from tests.helpers.small_scenario import small_tables

LIMITED = ("rounds=4_000_000", "time_limit_s=20", "sweep.seeds=[1]")


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_sweep_with_a_time_limit_is_done_with_its_runs(tmp_path: Path, in_memory: bool) -> None:
    told: list[tuple[int, int]] = []
    out = None if in_memory else tmp_path / "out"
    netsim.sweep(small_tables(*LIMITED), out=out, jobs=1, figures=False, progress=lambda *done: told.append(done))
    assert told[-1] == (8_000_000, 8_000_000)


def test_a_run_with_a_time_limit_is_half_done_after_half_its_time() -> None:
    told: list[tuple[int, int]] = []
    done = netsim.run(small_tables(*LIMITED), progress=lambda *done: told.append(done))
    ends = done.rounds["end_s"].to_numpy()
    assert [rounds for rounds, _ in told[:-1]] == [int(end / 20 * 4_000_000) for end in ends[: len(told) - 1]]
    assert {most for _, most in told} == {4_000_000}


def test_the_display_of_a_time_limit_shows_a_share(capsys: pytest.CaptureFixture[str]) -> None:
    planned = plan(small_tables(*LIMITED), "small.toml")
    with sweep_progress(planned, quiet=False) as show:
        show(SweepProgress([1_000_000, 3_000_000], {}))
    shown = capsys.readouterr().err
    assert "50%" in shown
    assert "rounds" not in shown.replace("all runs", "")
