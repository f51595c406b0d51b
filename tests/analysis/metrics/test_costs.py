"""What a target accuracy costs in bytes and joules: by hand, and the same in tables and figures."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from analysis.api import open_run, open_sweep
from analysis.catalogue import draw_all
from analysis.documents.comparison_tables import comparison_cells, comparison_table, difference_cells
from analysis.figures.settings import FigureSettings
from analysis.learning.figure import accuracy_figure
from analysis.metrics.comparison import compare, write_comparison
from analysis.metrics.run_metrics import run_metrics
from analysis.metrics.targets import accuracy_curve, common_extent, cost_to_accuracy
from analysis.report.write import write_report
from analysis.results.groups import group_runs
from analysis.results.sweep import Sweep
from analysis.statistics.intervals import mean_interval
from tests.helpers.result_folders import write_run, write_sweep

MB, KJ = 1_000_000, 1000.0


def rounds(
    latency_s: float, accuracies: list[float | None], mega: int, joules: float, *, power: bool = True
) -> dict[str, list[Any]]:
    """Each sends 6 `mega` bytes down and 4 `mega` up, and draws 10 `joules`, 4 of them idle; `besides_j` is within the others."""
    count = len(accuracies)
    shares = {"compute_j": 1.0, "send_j": 2.0, "receive_j": 3.0, "idle_j": 4.0, "besides_j": 5.0}
    return {
        "round": list(range(1, count + 1)),
        "start_s": [latency_s * i for i in range(count)],
        "end_s": [latency_s * (i + 1) for i in range(count)],
        "delivered": [1] * count,
        "accuracy": accuracies,
        "bytes_down": [6 * mega] * count,
        "bytes_up": [4 * mega] * count,
        **{name: [share * joules if power else None] * count for name, share in shares.items()},
    }


@pytest.fixture
def study(tmp_path: Path) -> Sweep:
    """All last 12 s. Plain rounds send 100 MB and draw 10 kJ: to 70 % 200 MB, 20 kJ and 400 MB, 40 kJ. Short ones send 10 MB and
    draw 20 kJ: 100 MB, 200 kJ and never, by 200 MB, 400 kJ.
    """
    runs = {
        "plain": {
            1: rounds(3.0, [0.1, 0.7, 0.8, 0.8], 10 * MB, KJ),
            2: rounds(3.0, [0.1, 0.5, 0.6, 0.7], 10 * MB, KJ),
        },
        "short": {
            1: rounds(0.6, [0.5] * 9 + [0.7] * 11, MB, 2 * KJ),
            2: rounds(0.6, [0.5] * 20, MB, 2 * KJ),
        },
    }
    return open_sweep(write_sweep(tmp_path / "study", runs, baseline="plain", target=0.7))


def test_a_curve_over_what_was_spent_by_the_close_of_each_round(study: Sweep, tmp_path: Path) -> None:
    table = study.run("plain", 1).rounds
    assert accuracy_curve(table, cost="bytes")[0].tolist() == [100 * MB, 200 * MB, 300 * MB, 400 * MB]
    assert accuracy_curve(table, cost="joules")[0].tolist() == [10 * KJ, 20 * KJ, 30 * KJ, 40 * KJ]
    # Whatever the axis, evaluations are averaged over seconds.
    assert accuracy_curve(table, cost="bytes", smoothing_s=6.0)[1] == pytest.approx([0.1, 0.4, 0.75, 0.8])
    assert [cost_to_accuracy(table, 0.7, cost) for cost in ("seconds", "bytes", "joules")] == [6.0, 200 * MB, 20 * KJ]
    assert cost_to_accuracy(table, 0.7, "joules", smoothing_s=6.0) == 30 * KJ
    assert cost_to_accuracy(table, 0.9, "bytes") == math.inf
    # What a round without an evaluation spent is spent.
    skipping = open_run(write_run(tmp_path / "skipping", rounds(1.0, [None, 0.5, None, 0.7], MB, KJ))).rounds
    assert accuracy_curve(skipping, cost="bytes")[0].tolist() == [20 * MB, 40 * MB]
    free = open_run(write_run(tmp_path / "free", rounds(1.0, [0.8], 0, 0.0, power=False)))
    assert math.isnan(cost_to_accuracy(free.rounds, 0.7, "bytes"))
    assert math.isnan(cost_to_accuracy(free.rounds, 0.7, "joules"))
    assert math.isnan(run_metrics(study.run("plain", 1))["target_bytes"])
    assert common_extent(study).drawn_j == 40 * KJ
    # Who does not count energy limits nobody's.
    assert common_extent([*study, free]).drawn_j == 40 * KJ


def test_the_cost_of_a_target_is_restricted_to_what_every_run_spent(study: Sweep) -> None:
    found = compare(study)
    plain, short = found.rows
    assert (found.horizons["target_bytes"], found.horizons["target_j"]) == (200 * MB, 40 * KJ)
    assert plain["target_bytes"] == mean_interval([200 * MB, 200 * MB])
    assert short["target_bytes"] == mean_interval([100 * MB, 200 * MB])
    assert plain["target_j"] == mean_interval([20 * KJ, 40 * KJ])
    assert (short["target_j"].mean, short.reached["target_j"]) == (40 * KJ, 0)
    assert plain.reached == {"target_s": 2, "target_bytes": 1, "target_j": 2}
    header, rows = comparison_cells(found)
    assert header[1:4] == ["seconds to 70 %", "MB to 70 %", "kJ to 70 %"]
    assert [row[2:4] for row in rows] == [["200.0 ± 0.0 (1 of 2)", "30 ± 127"], ["150 ± 635 (1 of 2)", "not by 40 kJ"]]
    (row,) = difference_cells(found)[1]
    assert row[2:4] == ["-50 ± 635", "+10 ± 127"]
    _, written = pq.read_table(write_comparison(study)).to_pylist()
    assert (written["target_bytes_mean"], written["reached_bytes"], written["horizon_bytes"]) == (150 * MB, 1, 200 * MB)
    assert (written["target_j_difference_mean"], written["reached_j"], written["horizon_j"]) == (10 * KJ, 0, 40 * KJ)


def test_costs_that_are_not_counted_are_not_shown(tmp_path: Path) -> None:
    runs = {"a": {1: rounds(1.0, [0.5, 0.8], MB, 0.0, power=False)}, "b": {1: rounds(1.0, [0.8, 0.8], MB, 0.0, power=False)}}
    unpowered = open_sweep(write_sweep(tmp_path / "unpowered", runs, baseline="a", target=0.7))
    found = compare(unpowered)
    assert [found.has(metric) for metric in ("target_bytes", "target_j")] == [True, False]
    assert found.horizons["target_j"] == math.inf
    written = pq.read_table(write_comparison(unpowered)).to_pylist()[0]
    assert (written["horizon_bytes"], written["horizon_j"], written["target_j_mean"]) == (20 * MB, None, None)
    without = {"a": {1: rounds(1.0, [0.5, 0.8], 0, 0.0, power=False)}}
    assert not compare(open_sweep(write_sweep(tmp_path / "free", without, baseline="a", target=0.7))).has("target_bytes")
    # Who sends none has no such cost, and does not restrict that of the others.
    half = {"a": {1: rounds(1.0, [0.8], MB, KJ)}, "b": {1: rounds(1.0, [0.8], 0, KJ)}}
    mixed = compare(open_sweep(write_sweep(tmp_path / "half", half, baseline="a", target=0.7)))
    assert mixed.has("target_bytes")
    assert [row["target_bytes"].count for row in mixed.rows] == [1, 0]
    assert mixed.horizons["target_bytes"] == 10 * MB
    mixed = {"a": {1: rounds(1.0, [0.8], MB, KJ)}, "b": {1: rounds(1.0, [0.8], MB, 0.0, power=False)}}
    cells = comparison_cells(compare(open_sweep(write_sweep(tmp_path / "mixed", mixed, baseline="a", target=0.7))))[1]
    assert [row[3] for row in cells] == ["10.00", "—"]


def test_the_terminal_shows_costs_where_energy_is_counted(study: Sweep, tmp_path: Path) -> None:
    def shown(sweep: Sweep) -> str:
        console = Console(width=80, record=True, file=io.StringIO())
        console.print(comparison_table(sweep))
        return " ".join(console.export_text().split())

    text = shown(study)
    assert "mean of min(bytes, 200 MB)" in text
    assert "mean of min(energy, 40 kJ)" in text
    runs = {"a": {1: rounds(1.0, [0.5, 0.8], MB, 0.0, power=False) | {"reward": [0.0] * 2, "genie_reward": [1.0] * 2}}}
    bare = open_sweep(write_sweep(tmp_path / "bare", runs, baseline="a", target=0.7))
    text = shown(bare)
    assert "min(time" in text
    assert "min(bytes" not in text
    assert "mean of min(bytes, 20 MB)" in write_report(bare.path, tmp_path / "bare.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("cost", "scale", "label"), [("bytes", MB, "sent to clients and by them (MB)"), ("joules", KJ, "(kJ)")])
def test_a_figure_over_costs_marks_the_hits_of_the_table(study: Sweep, cost: Any, scale: float, label: str) -> None:
    figure = accuracy_figure(group_runs(study), cost=cost, target_accuracy=0.7)
    assert figure is not None
    (axes,) = figure.axes
    assert label in axes.get_xlabel()
    assert axes.get_xscale() == "log"
    ticks = [np.asarray(line.get_xdata()).tolist() for line in axes.get_lines() if line.get_markersize() == 9.0]
    assert ticks == ([[200.0, 400.0], [100.0]] if cost == "bytes" else [[20.0, 40.0], [200.0]])
    diamonds = [float(np.asarray(line.get_xdata())[0]) for line in axes.get_lines() if line.get_marker() == "D"]
    rows = compare(study).rows
    means = [(row["target_bytes"] if cost == "bytes" else row["target_j"]).mean / scale for row in rows]
    # None where the restricted mean is the horizon: by 200 MB all plain runs are there or cut off.
    assert diamonds == ([means[1]] if cost == "bytes" else [means[0]])
    # The mean over seeds at a common abscissa: 0.1 at the first, and halfway in bytes between 0.7 and 0.8, 0.5 and 0.6.
    x, y = (np.asarray(data, np.float64) for data in axes.get_lines()[0].get_data())
    first = 100.0 if cost == "bytes" else 10.0
    assert x[0] == pytest.approx(first, rel=0.02)
    assert np.interp(2.5 * first, x, y) == pytest.approx((0.75 + 0.55) / 2, abs=0.002)


def test_which_figures_are_drawn(study: Sweep, tmp_path: Path) -> None:
    assert [path.stem for path in draw_all(study, tmp_path / "sweep")][:3] == ["accuracy", "accuracy_bytes", "accuracy_joules"]
    run = study.run("plain", 1)
    assert [path.stem for path in draw_all(run, tmp_path / "run")] == ["accuracy", "accuracy_joules", "delivered", "latency"]
    # Drawn where it is asked for; a lone run keeps its own abscissae.
    drawn = run.plot("accuracy_bytes").axes[0].get_lines()[0]
    assert np.asarray(drawn.get_xdata()).tolist() == [100.0, 200.0, 300.0, 400.0]
    free = open_run(write_run(tmp_path / "free", rounds(1.0, [0.8, 0.8], 0, 0.0)))
    for name in ("accuracy_bytes", "accuracy_joules"):
        with pytest.raises(ValueError, match=f"figure = '{name}': these runs have no data for it; they have for accuracy"):
            free.plot(name)


def test_the_report_of_one_run_tells_its_costs(study: Sweep, tmp_path: Path) -> None:
    folder = study.path / "plain" / "seed-1"
    text = write_report(folder, tmp_path / "run.md", figures=FigureSettings(target_accuracy=0.7)).read_text(encoding="utf-8")
    assert "| MB to 70 % | 200.0 |" in text
    assert "| kJ to 70 % | 20.00 |" in text
    assert "idle ones included" in text
    beyond = FigureSettings(target_accuracy=0.9)
    text = write_report(folder, tmp_path / "r.md", figures=beyond).read_text(encoding="utf-8")
    assert "| MB to 90 % | not reached |" in text
