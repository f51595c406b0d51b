"""The study of message times: its figures against the tables of a run, its criteria by hand, its figure."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.api import open_run, open_sweep
from analysis.consensus.figure import timing_figure
from analysis.consensus.measure import Point, holds_up_to, mean_delay_s, points_by_start, run_timing, timing_study
from analysis.consensus.section import answer_cells, table_cells
from analysis.report.write import write_report
from analysis.results.sweep import Sweep
from analysis.statistics.intervals import Interval, mean_interval
from scenarios.cli.main import main
from scenarios.runs.reading import override, parse, read_file
from scenarios.runs.run import run
from scenarios.sweeps.options import Machines
from scenarios.sweeps.sweep import plan, sweep

VARIANTS = ("zero", "agreement", "deadline-5")


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """Zero time, agreement and a deadline of 0.75 s at latencies of 1 ms and 50 ms; 6 slots, 2 seeds."""
    tables = read_file("bp_ucb_timing")
    few = [variant for variant in tables["sweep"]["variants"] if variant["name"] in VARIANTS]
    changes = {"rounds": 6, "sweep.seeds": [1, 2], "sweep.variants": few}
    changes |= {"sweep.grid": {"peers.delay.mean_excess_s": [0.001, 0.05]}}
    out = tmp_path_factory.mktemp("timing") / "sweep"
    return open_sweep(sweep(plan(override(tables, changes), "timing"), out, machines=Machines(jobs=1)))


@pytest.mark.each_nth(2)
def test_figures_of_a_run_are_means_over_its_slots(study: Sweep) -> None:
    run = study.run("agreement+mean_excess_s=0.05", 2)
    timing, rows = run_timing(run), run.rounds
    assert timing.latency_s == 0.05
    assert timing.slot_s == pytest.approx(15.0)  # 15 rounds of 1 s
    assert timing.agreed_share == timing.converged_share == 1.0
    assert timing.agreed_s == rows["agreed_s"].mean() == rows["consensus_s"].mean() > timing.converged_s
    assert timing.consensus_share == pytest.approx(rows["consensus_s"].sum() / rows["end_s"].iloc[-1])
    assert timing.regret == pytest.approx(run.summary["final"]["regret"] / 6)
    assert timing.messages == run.summary["slots"]["messages"] / 6


def test_agreement_costs_time_and_a_deadline_regret(study: Sweep) -> None:
    points = {point.label: point for point in timing_study(study)}
    zero = points["zero time (the paper's), mean_excess_s=0.05"]
    assert zero.zero_time
    assert zero.consensus_share.mean == zero.regret_difference.mean == 0.0
    agreed = points["at agreement, mean_excess_s=0.05"]
    assert agreed.start == "at agreement"
    assert agreed.ratio == pytest.approx(0.05 / 15.0)
    # The same clients as in zero time, later.
    assert agreed.regret_difference == Interval(0.0, 0.0, 2)
    assert agreed.regret_verdict(0.001) == "equivalent"
    assert not agreed.is_quick
    assert points["at agreement, mean_excess_s=0.001"].is_quick
    missed = points["at 5 % of a slot, mean_excess_s=0.05"]
    # Nobody has heard of anybody by then: each client takes itself for one of the best.
    assert (missed.agreed_share.mean, missed.disagreement.mean, missed.members.mean) == (0.0, 1.0, 20.0)
    assert missed.regret_difference.mean > 0.05
    assert missed.regret_verdict(0.005) != "equivalent"
    assert math.isnan(missed.agreed_s.mean)


def point(latency_s: float, consensus: float = 0.0, difference: float = 0.0, half: float = 0.001) -> Point:
    values: dict[str, Any] = dict.fromkeys(
        ("converged_s", "converged_share", "agreed_s", "agreed_share", "disagreement", "members", "messages", "regret"),
        Interval(1.0, 0.0, 2),
    )
    phase, regret = Interval(consensus, 0.005, 2), Interval(difference, half, 2)
    return Point("a", "a", False, latency_s, 10.0, consensus_share=phase, regret_difference=regret, **values)


def test_an_assumption_holds_up_to_the_first_latency_at_which_it_fails() -> None:
    line = [point(1.0, 0.01), point(0.1, 0.04, 0.003), point(4.0, 0.03, 0.1), point(2.0, 0.046, -0.0045)]
    # 0.046 + 0.005 is too much at 2 s, and 4 s is beyond it; -0.0045 +- 0.001 reaches past the margin of 0.005.
    assert holds_up_to(line, lambda point: point.is_quick) == 0.1
    assert holds_up_to(line[3:], lambda point: point.is_quick) == 0.0
    header, rows = answer_cells(line)
    assert header == [
        "start",
        "consensus phase below 5 %",
        "regret within 0.005 of zero time's",
        "both",
        "regret differs by more from",
    ]
    assert rows == [["a", "10 %", "10 %", "10 %", "40 %"]]
    assert answer_cells(line, margin=0.01)[1] == [["a", "10 %", "20 %", "10 %", "40 %"]]


@pytest.mark.parametrize(
    ("difference", "half", "verdict"),
    [
        (0.0, 0.004, "equivalent"),
        (0.003, 0.001, "equivalent"),
        (0.0, 0.006, "open"),  # holds zero, and shows nothing
        (0.004, 0.002, "open"),
        (-0.02, 0.002, "different"),
        (0.02, 0.002, "different"),
        (0.0, math.nan, "open"),  # one seed
        (math.nan, math.nan, "open"),
    ],
)
def test_that_nothing_is_lost_has_to_be_shown(difference: float, half: float, verdict: str) -> None:
    assert point(1.0, difference=difference, half=half).regret_verdict(0.005) == verdict


def test_two_means_at_the_margin_are_called_equivalent_in_one_case_of_forty() -> None:
    # The test of equivalence errs most at the margin itself: in 2.5 % of all cases. Of 2000: 50, standard deviation 7.0.
    values = np.random.default_rng(3).normal(0.005, 0.002, (2000, 10))
    found = [mean_interval(row) for row in values]
    called = sum(point(1.0, difference=one.mean, half=one.half_width).regret_verdict(0.005) == "equivalent" for one in found)
    assert abs(called - 50) < 3 * 7.0


def test_only_starts_that_take_time_are_lines(study: Sweep) -> None:
    lines = points_by_start(timing_study(study))
    assert {start: [p.latency_s for p in line] for start, line in lines.items()} == {
        "at agreement": [0.001, 0.05],
        "at 5 % of a slot": [0.001, 0.05],
    }


def test_tables_and_figure(study: Sweep, tmp_path: Path) -> None:
    printed = write_report(study.path, tmp_path / "report.md").read_text(encoding="utf-8")
    assert "| at agreement, mean_excess_s=0.05 | 0.333 % |" in printed
    # 0.75 s of 15.75 s are below 5 %; what comes too late at 50 ms costs regret.
    assert "| at 5 % of a slot | 0.333 % | 0.00667 % | 0.00667 % |" in printed
    assert (tmp_path / "report-figures" / "timing.png").read_bytes().startswith(b"\x89PNG")
    points = timing_study(study)
    header, rows = table_cells(points)
    assert all(len(row) == len(header) for row in rows)
    figure = timing_figure(points)
    assert figure is not None
    drawn = {line.get_label(): line for line in figure.axes[0].get_lines() if len(line.get_xdata()) == 2}
    heights = [np.asarray(line.get_ydata()) for line in drawn.values()]
    assert any(np.allclose(height, [p.consensus_share.mean for p in points if p.start == "at agreement"]) for height in heights)


def test_a_comparison_tells_of_agreement(
    study: Sweep, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["netsim", "compare", str(study.path)])
    with pytest.raises(SystemExit, match="0"):
        main()
    printed = capsys.readouterr().out
    for head in ("agreement", "disagreement", "messages", "(kB)"):
        assert head in printed
    assert "(1/s)" not in printed


@pytest.mark.slow
def test_regret_is_compared_with_that_of_the_same_task_in_zero_time(tmp_path: Path) -> None:
    tables = read_file("bp_ucb_timing")
    few = [variant for variant in tables["sweep"]["variants"] if variant["name"] in ("zero", "deadline-5")]
    grid = {"server.per_round": [3, 5], "peers.delay.mean_excess_s": [0.05]}
    planned = plan({**tables, "rounds": 3, "sweep": {"seeds": [1, 2], "variants": few, "grid": grid}}, "timing")
    made = open_sweep(sweep(planned, tmp_path / "sweep", machines=Machines(jobs=1)))
    points = dict(zip(made.variants, timing_study(made), strict=True))
    for several in (3, 5):
        zero, late = (f"{name}+per_round={several}+mean_excess_s=0.05" for name in ("zero", "deadline-5"))
        expected = [run_timing(made.run(late, seed)).regret - run_timing(made.run(zero, seed)).regret for seed in (1, 2)]
        assert points[zero].regret_difference.mean == 0.0
        assert points[late].regret_difference.mean == pytest.approx(sum(expected) / 2)


def test_without_zero_time_there_is_no_answer(study: Sweep) -> None:
    alone = [point for point in timing_study(study) if not point.zero_time]
    assert timing_figure(alone) is None
    alone = [point for point in timing_study(study) if point.latency_s == 0.05]
    assert timing_figure(alone) is None


def test_what_is_no_timing_study_is_refused(tmp_path: Path) -> None:
    assert mean_delay_s({"kind": "constant", "value_s": 0.25}) == 0.25
    assert mean_delay_s({"kind": "shifted-exponential", "shift_s": 0.5, "mean_excess_s": 0.25}) == 0.75
    for law in ({"kind": "log-normal", "median_s": 1.0}, {"kind": "constant", "value_s": {"from": 0.1, "to": 0.3}}):
        with pytest.raises(ValueError, match=r"peers.delay = .*must be constant or shifted-exponential"):
            mean_delay_s(law)
    tables = {key: value for key, value in read_file("bp_ucb_timing").items() if key != "sweep"}
    fa = {"server": {"kind": "fl-fa", "per_round": 5}, "policy": {"kind": "random"}, "rounds": 1}
    run(parse(override(tables, fa)), tmp_path / "run")
    with pytest.raises(ValueError, match=r"do not decide among themselves; use server.kind = 'fl-da'"):
        run_timing(open_run(tmp_path / "run"))
