"""Delay, misses and recovery: by hand, against a plain simulation of a detector, and censored as they must be."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import netsim
from analysis.breakpoints.changes import change_table, detects, recovery, true_changes
from analysis.breakpoints.disturbances import disturbances, join_intervals
from analysis.breakpoints.figure import course_figure, regret_around_changes, regret_around_changes_figure, shares_figure
from analysis.breakpoints.section import breakpoint_sections
from analysis.breakpoints.summary import change_tables, share_over_time, summarize_changes
from analysis.results.groups import group_runs
from analysis.results.run import Run
from models.detection.cusum import Cusum
from tests.helpers.small_scenario import Shell


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def jumps(means: list[list[float]], starts: list[int], rounds: int, **tables: Any) -> dict[str, Any]:
    """Sub-channels whose means jump, one client for each, and a CUSUM that resets the scheduler."""
    count = len(means[0])
    base: dict[str, Any] = {
        "name": "jumps",
        "rounds": rounds,
        "clients": {"count": 1},
        "server": {"kind": "asynchronous"},
        "channels": {
            "count": count,
            "delay": {"kind": "constant", "value_s": 0.5},
            "states": {"kind": "piecewise-stationary", "starts": starts, "means": means},
        },
        "scheduler": {"kind": "glr-cucb", "detector": {"kind": "cusum", "warm_up": 20, "drift": 0.1, "threshold": 5.0}},
    }
    return base | tables


def test_recovery_by_hand() -> None:
    # Before the change 1, 1; after it 3, 3, 1, 1, 0, 5. Windows of two: 3, 2, 1, 0.5, 2.5: the third begins in round 5.
    regret = np.array([1.0, 1.0, 3.0, 3.0, 1.0, 1.0, 0.0, 5.0])
    assert recovery(regret, 3, 8, 2) == (1.0, 5.0, 4)
    # It never rose.
    assert recovery(np.array([1.0, 1.0, 1.0, 1.0]), 3, 4, 2) == (1.0, 3.0, 0)
    # The next change comes before.
    level, again, watched = recovery(regret, 3, 5, 2)
    assert (level, math.isnan(again), watched) == (1.0, True, 1)
    # Too few rounds before it, or after it, and a regret that is not measured.
    assert all(math.isnan(recovery(regret, 2, 8, 2)[i]) for i in (0, 1))
    assert recovery(regret, 3, 3, 2)[2] == 0
    assert math.isnan(recovery(np.array([1.0, np.nan, 1.0, 1.0]), 3, 4, 2)[0])


def test_a_certain_change_is_declared_when_the_sum_gets_there() -> None:
    # One sub-channel, good in all rounds up to 50 and bad from then on: each round adds 1 - 0.1 to the sum, which reaches 5 in
    # the sixth. The reset detector sees nothing but bad rounds, and says no more.
    run = netsim.run(jumps([[1.0], [0.0]], [51], 100))
    assert true_changes(run) == [51]
    (row,) = change_table(run, window=10).to_dict("records")
    assert (row["at_round"], row["last_round"], row["declared_round"]) == (51, 100, 56)
    assert (row["delay_rounds"], row["other_declarations"]) == (math.ceil(5.0 / 0.9), 0)
    # Every round is a transmission of half a second.
    assert (row["at_s"], row["delay_s"], row["seconds"]) == (25.0, 3.0, 25.0)


@pytest.mark.parametrize(("unit", "horizon"), [("rounds", 30.0), ("seconds", 25.0)])
def test_changes_that_are_drawn_are_seen(unit: str, horizon: float) -> None:
    drawn = {"count": 3, "unit": unit, "horizon": horizon, "parameter": "delay.value_s", "factor_low": 0.5, "factor_high": 2.0}
    tables_of: dict[str, Any] = {
        "name": "drawn",
        "rounds": 30,
        "clients": {"count": 4},
        "server": {"per_round": 2},
        "policy": {"kind": "random"},
        "compute": {"delay": {"kind": "constant", "value_s": 1.0}, "random_changes": drawn},
    }
    run = netsim.run(tables_of)
    lengths = (run.rounds["end_s"] - run.rounds["start_s"]).to_numpy()
    firsts = true_changes(run)
    assert len(firsts) == 3
    # A round takes as long as training does as it begins: its length differs from the one before where the law changed.
    differ = (np.flatnonzero(~np.isclose(lengths[1:], lengths[:-1])) + 2).tolist()
    assert firsts == differ
    assert len(change_table(run, window=2)) == 3


def test_a_scheduler_with_its_default_detector_watches_for_changes() -> None:
    world = jumps([[0.9], [0.6]], [51], 100)
    default = netsim.run(world | {"scheduler": {"kind": "glr-cucb"}})
    written = netsim.run(world | {"scheduler": {"kind": "glr-cucb", "detector": {"kind": "glr-exact"}}})
    assert len(default.detections) == 0
    for run in (default, written):
        assert detects(run)
    (one,), (other,) = summarize_changes({"a": [default]}), summarize_changes({"a": [written]})
    assert (one.changes, one.declared, one.missed) == (other.changes, other.declared, other.missed) == (1, 0, 1)
    assert one.false_alarms.mean == other.false_alarms.mean == 0.0
    assert not detects(netsim.run(world | {"scheduler": {"kind": "cucb"}}))


@pytest.mark.slow
def test_the_mean_delay_is_that_of_a_plain_simulation_of_the_detector() -> None:
    seeds, first = 24, 121
    sweep = netsim.sweep(jumps([[0.9], [0.3]], [first], 200), seeds=range(1, seeds + 1), jobs=1)
    frame = change_tables(list(sweep))
    # What the detector declared before the change resets it: those runs say nothing of a delay.
    delays = frame["delay_rounds"].to_numpy()
    rng = np.random.default_rng(5)
    plain = []
    for _ in range(1500):
        detector = Cusum(warm_up=20, drift=0.1, threshold=5.0)
        told = [detector.update(float(x)) for x in rng.random(first - 1) < 0.9]
        if any(told):
            continue
        after = [detector.update(float(x)) for x in rng.random(80) < 0.3]
        plain.append(after.index(True) + 1 if True in after else math.nan)
    early = [len(run.detections[run.detections["round"] < first]) > 0 for run in sweep]
    mine = delays[~np.array(early)]
    assert not np.isnan(mine).any()
    error = math.sqrt(np.nanvar(plain) / len(mine) + np.nanvar(plain) / len(plain))
    assert abs(mine.mean() - np.nanmean(plain)) < 3.9 * error  # in one of ten thousand
    (row,) = summarize_changes(group_runs(sweep))
    by_seed = np.minimum(delays, row.delay_horizon)
    assert row.delay.mean == pytest.approx(np.where(np.isnan(by_seed), row.delay_horizon, by_seed).mean())
    assert row.declared + row.missed == row.changes == seeds


def sweep_of_three(tmp_path: Path) -> Any:
    tables = jumps([[0.9, 0.1], [0.1, 0.9], [0.9, 0.1]], [101, 201], 300, clients={"count": 2})
    tables["jammers"] = [{"name": "burst", "law": {"kind": "sweep"}, "start": 250, "budget": 10}]
    grid = {"scheduler.detector": [{"kind": "cusum", "warm_up": 20, "threshold": 5.0}, {"kind": "no-detection"}]}
    return netsim.sweep(tables, grid=grid, seeds=[1, 2, 3], out=tmp_path / "sweep", jobs=1, figures=False)


def narrow_labels(out: str) -> str:
    """The first column of a table, its rows joined: labels that wrap in a narrow terminal are whole again."""
    return "".join(line[: line.find(" ")] for line in out.splitlines())


def test_a_change_in_the_last_round_does_not_narrow_the_regret_around_the_others() -> None:
    last = jumps([[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]], [51, 100], 100) | {"scheduler": {"kind": "random"}}
    x, _ = regret_around_changes(netsim.run(last), window=1)
    assert (x[0], x[-1]) == (-24.5, 24.5)  # half of the 49 rounds from the change to the last one
    only = jumps([[1.0, 1.0], [1.0, 0.0]], [100], 100) | {"scheduler": {"kind": "random"}}
    assert len(regret_around_changes(netsim.run(only), window=1)[0]) == 0


def test_over_seconds_a_change_is_where_its_first_round_begins() -> None:
    # As above: the change is there at 25 s, of 100 rounds of half a second. The regret rate is known as rounds close.
    run = netsim.run(jumps([[1.0, 1.0], [1.0, 0.0]], [51], 100) | {"scheduler": {"kind": "random"}})
    (line,) = course_figure({"a": [run]}, over="seconds").axes[0].lines[1:]  # type: ignore[union-attr]
    assert np.asarray(line.get_xdata()).tolist() == [25.0, 25.0]
    x, y = regret_around_changes(run, window=1, unit="seconds")
    rate = (run.rounds["sum_age"] - run.rounds["oracle_sum_age"]).to_numpy() / 0.5
    assert y == pytest.approx(np.interp(25.0 + x, run.rounds["end_s"], rate))


def test_shades_of_a_single_round_can_be_seen() -> None:
    outage = {"name": "mast", "clients": [0], "from_round": 30, "to_round": 31}
    run = netsim.run(jumps([[1.0, 1.0], [1.0, 0.0]], [51], 100) | {"outages": [outage]})
    figure = course_figure({"a": [run]}, over="rounds")
    assert figure is not None
    (shade,) = figure.axes[0].patches
    assert shade.get_extents().transformed(figure.axes[0].transData.inverted()).intervalx.tolist() == pytest.approx([29.5, 30.5])


@pytest.mark.slow
@pytest.mark.draws
def test_a_sweep_is_answered_for_with_figures_and_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = sweep_of_three(tmp_path)
    groups = group_runs(sweep)
    cusum, nothing = summarize_changes(groups, window=20)
    assert (cusum.runs, cusum.changes, nothing.changes) == (3, 6, 6)
    assert [detects(runs[0]) for runs in groups.values()] == [True, False]
    assert math.isnan(nothing.delay.mean)
    assert cusum.delay.count == 3
    assert cusum.delay_horizon == 100.0
    assert cusum.recovery_horizon == 80.0
    reached = share_over_time(change_tables(groups[cusum.label]), "delay")
    assert reached is not None
    assert reached.share[-1] == pytest.approx(cusum.declared / 6)
    x, y = regret_around_changes(groups[cusum.label][0], window=20)
    assert (x[0], x[-1], len(y)) == (-49.5, 49.5, 241)
    for figure in (regret_around_changes_figure(groups, window=20), shares_figure(groups), course_figure(groups)):
        assert figure is not None
        assert all(axes.get_xlabel() for axes in figure.axes)
    shell = Shell(tmp_path, monkeypatch, capsys)
    code, out, _ = shell("breakpoints", tmp_path / "sweep", "--window", "20", "--out", tmp_path / "drawn")
    assert code == 0
    assert "restricted means" in out
    monkeypatch.setenv("COLUMNS", "60")
    narrow = narrow_labels(shell("breakpoints", tmp_path / "sweep", "--window", "20")[1])
    assert all(label in narrow for label in groups)
    names = {path.name for path in (tmp_path / "drawn").iterdir()}
    assert names == {"breakpoints.csv", "breakpoints.png", "answered.png", "course.png"}
    # The first failure to be censored lies on the line of its share.
    drawn = shares_figure(groups, window=20)
    assert drawn is not None
    for axes in drawn.axes:
        steps = [line for line in axes.lines if line.get_drawstyle() == "steps-post"]
        marks = [line for line in axes.lines if line.get_marker() == "|"]
        for step, mark in zip(steps, marks, strict=True):
            assert set(np.asarray(mark.get_ydata())) <= set(np.asarray(step.get_ydata()))
    assert "no change is followed by so many rounds" in shell("breakpoints", tmp_path / "sweep", "--window", "99999")[2]
    look = ("--figures", "svg", "--size", "4x3", "--font-size", "8", "--out", tmp_path / "small")
    assert shell("breakpoints", tmp_path / "sweep", *look)[0] == 0
    assert 'width="288pt"' in (tmp_path / "small" / "course.svg").read_text(encoding="utf-8")
    assert shell("breakpoints", tmp_path / "sweep", "--size", "4")[0] == 2
    # A run that is not whole is left out, and that is said, as by all commands.
    next((tmp_path / "sweep").glob("*/seed-1/rounds.parquet")).unlink()
    code, out, error = shell("breakpoints", tmp_path / "sweep", "--window", "20")
    assert (code, "seed-1" in error) == (0, True)
    assert "restricted means" in out
    assert "95 % intervals" in breakpoint_sections(groups)[0].blocks[0].note  # type: ignore[union-attr]


def test_what_was_never_declared_has_a_delay_without_an_interval() -> None:
    tables = jumps([[0.9, 0.1], [0.1, 0.9]], [31], 60, clients={"count": 2})
    tables["scheduler"]["detector"] = {"kind": "cusum", "warm_up": 20, "threshold": 1e6}
    (row,) = summarize_changes(group_runs(netsim.sweep(tables, seeds=[1, 2], jobs=1)))
    assert (row.changes, row.missed, row.delay.mean, row.delay.count) == (2, 2, row.delay_horizon, 2)
    assert math.isnan(row.delay.half_width)


def test_a_run_without_changes_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shell = Shell(tmp_path, monkeypatch, capsys)
    shell.run("--set", "uplink.changes=[]")
    code, _, error = shell("breakpoints", shell.out)
    assert code == 2
    assert "no run went through a change" in error
    assert shell("breakpoints", tmp_path / "none")[0] == 2


def reward_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *settings: str) -> Run:
    shell = Shell(tmp_path, monkeypatch, capsys)
    assert shell.run(*settings)[0] == 0
    return netsim.open_run(shell.out)


def test_changes_of_latencies_are_changes_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = reward_run(tmp_path, monkeypatch, capsys)
    assert true_changes(run) == [3]
    (row,) = change_table(run, window=2).to_dict("records")
    regret = (run.rounds["genie_reward"] - run.rounds["reward"]).to_numpy()
    assert row["level_before"] == pytest.approx(regret[:2].mean())
    assert math.isnan(row["delay_rounds"])
    with pytest.raises(ValueError, match="window = 0: must be >= 1 round"):
        change_table(run, window=0)


def test_jamming_and_outages_are_intervals(tmp_path: Path) -> None:
    assert join_intervals(np.array([3.0, 0.0, 1.0, 5.0]), np.array([4.0, 1.5, 2.0, 6.0])) == [(0.0, 2.0), (3.0, 4.0), (5.0, 6.0)]
    assert join_intervals(np.zeros(0), np.zeros(0)) == []
    tables = jumps([[0.9]], [], 20) | {"jammers": [{"name": "burst", "law": {"kind": "sweep"}, "start": 5, "budget": 3}]}
    (row,) = disturbances(netsim.run(tables)).to_dict("records")
    assert (row["kind"], row["name"], row["first_round"], row["last_round"]) == ("jamming", "burst", 5, 7)
    assert (row["start_s"], row["end_s"]) == (2.0, 3.5)
    cut: dict[str, Any] = {
        "name": "cut",
        "rounds": 6,
        "clients": {"count": 2},
        "server": {"per_round": 2},
        "policy": {"kind": "all"},
        "compute": {"delay": {"kind": "constant", "value_s": 1.0}},
        "outages": [
            {"name": "mast", "clients": [0], "from_round": 2, "to_round": 4},
            {"name": "late", "clients": [0], "from_s": 4.5},
            {"name": "drawn", "clients": [0], "mean_up_s": 1.0, "mean_down_s": 1.0},
        ],
    }
    found = disturbances(netsim.run(cut))
    assert found[["name", "start_s", "end_s", "first_round", "last_round"]].to_numpy().tolist() == [
        ["mast", 1.0, 3.0, 2, 3],
        ["late", 4.5, 6.0, 5, 6],
    ]
