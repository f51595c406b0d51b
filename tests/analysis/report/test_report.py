"""Comparison, tables, figures and reports of small hand-made sweeps."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from analysis.api import open_run, open_sweep
from analysis.catalogue import draw_all
from analysis.documents.comparison_tables import comparison_cells, comparison_table, difference_cells, difference_table
from analysis.documents.markdown import markdown_table
from analysis.documents.numbers import format_interval, format_number
from analysis.documents.run_names import missing_words, runs_in_words
from analysis.figures.settings import Bound, FigureSettings
from analysis.figures.theme import PALETTE
from analysis.learning.figure import accuracy_figure
from analysis.metrics.comparison import compare, write_comparison
from analysis.privacy.figure import leak_figure
from analysis.regret.figure import regret_figure
from analysis.report.questions import Questions
from analysis.report.write import write_report
from analysis.results.groups import group_runs
from analysis.results.sweep import Sweep
from analysis.statistics.intervals import Interval, mean_interval
from analysis.stragglers.figure import latency_figure
from tests.helpers.result_folders import EMPTY, PARTS, ROUNDS, write_run, write_sweep

PNG = b"\x89PNG\r\n\x1a\n"


def rounds(
    latency_s: float, accuracies: list[float | None], *, leak: float = 0.5, regret: float | None = None
) -> dict[str, list[Any]]:
    """Rounds of equal latency, each evaluated at its close."""
    count = len(accuracies)
    return {
        "round": list(range(1, count + 1)),
        "start_s": [latency_s * i for i in range(count)],
        "end_s": [latency_s * (i + 1) for i in range(count)],
        "delivered": [1] * count,
        "max_leak": [leak * (i + 1) for i in range(count)],
        "accuracy": accuracies,
        "reward": [None if regret is None else 0.0] * count,
        "genie_reward": [regret] * count,
    }


@pytest.fixture
def sweep_path(tmp_path: Path) -> Path:
    # All runs last 9 s at least. To 70 %: base 3 s, 6 s, never; fast 1 s, 2 s, 1.5 s; hopeless never. Leaks 1.5, and without
    # protection for hopeless.
    runs = {
        "base": {1: rounds(1.0, [0.5, 0.6, 0.7]), 2: rounds(2.0, [0.5, 0.6, 0.7]), 3: rounds(3.0, [0.5, 0.6, 0.6])},
        "fast": {1: rounds(0.5, [0.6, 0.8, 0.7]), 2: rounds(1.0, [0.6, 0.8, 0.7]), 3: rounds(1.5, [0.8, 0.8, 0.8])},
        "hopeless": {seed: rounds(1.0, [0.1, 0.1, 0.1], leak=0.0) for seed in (1, 2, 3)},
    }
    return write_sweep(tmp_path / "sweep", runs, baseline="base", target=0.7, simulated_s=9.0, fast="Fast [new]")


def test_rows_by_hand(sweep_path: Path) -> None:
    base, fast, hopeless = compare(open_sweep(sweep_path), last=1).rows
    assert (base.seeds, base.reached["target_s"], base["target_s"]) == (3, 2, mean_interval([3.0, 6.0, 9.0]))
    assert (fast.label, fast.reached["target_s"], fast["target_s"]) == ("Fast [new]", 3, mean_interval([1.0, 2.0, 1.5]))
    assert (hopeless.reached["target_s"], hopeless["target_s"].mean) == (0, 9.0)
    assert base["final_accuracy"] == mean_interval([0.7, 0.7, 0.6])
    assert base["mean_round_s"] == mean_interval([1.0, 2.0, 3.0])
    assert (base["max_leak"].mean, base["max_leak"].half_width) == (1.5, 0.0)
    assert hopeless["max_leak"].mean == math.inf
    assert base["regret"].count == 0


def test_differences_by_hand(sweep_path: Path) -> None:
    fast, hopeless = compare(open_sweep(sweep_path)).differences
    assert (fast["target_s"].reached, fast["target_s"].baseline_reached, fast["target_s"].seeds) == (3, 2, 3)
    # 1 - 3, 2 - 6, and 1.5 - 9 where the baseline did not get there by 9 s.
    assert fast["target_s"].difference == mean_interval([-2.0, -4.0, -7.5])
    assert fast["mean_round_s"].difference == mean_interval([-0.5, -1.0, -1.5])
    assert (hopeless["target_s"].reached, hopeless["target_s"].difference) == (0, mean_interval([6.0, 3.0, 0.0]))
    assert hopeless["max_leak"].difference.count == 0


def test_cells_say_never_partly_and_unprotected(sweep_path: Path) -> None:
    found = compare(open_sweep(sweep_path))
    header, rows = comparison_cells(found)
    assert header == ["variant", "seconds to 70 %", "final accuracy (%)", "mean round latency (s)", "largest leak (ε)"]
    assert rows[0][1].endswith("(2 of 3)")
    assert rows[1][1] == "1.5 ± 1.2"
    assert (rows[2][1], rows[2][4]) == ("not by 9 s", "unprotected")
    header, rows = difference_cells(found)
    assert [row[1] for row in rows] == ["-4.5 ± 6.9", "+3.0 ± 7.5"]
    assert rows[1][4] == "—"
    never = compare(open_sweep(sweep_path), target_accuracy=0.99)
    assert [row[1] for row in comparison_cells(never)[1]] == ["not by 9 s"] * 3
    assert [row[1] for row in difference_cells(never)[1]] == ["neither"] * 2
    # Only `fast` ever gets to 75 %: after 1 s, 2 s, 1.5 s.
    assert difference_cells(compare(open_sweep(sweep_path), target_accuracy=0.75))[1][0][1] == "-7.5 ± 1.2"


def test_terminal_tables_fit_80_columns(sweep_path: Path) -> None:
    found = compare(open_sweep(sweep_path))
    for table in (comparison_table(found), difference_table(found), comparison_table(open_sweep(sweep_path))):
        console = Console(width=80, record=True, file=io.StringIO())
        console.print(table)
        text = console.export_text()
        assert "Fast [new]" in text
        assert "…" not in text


def test_one_seed_has_no_interval(tmp_path: Path) -> None:
    runs = {name: {1: rounds(latency, [0.5, 0.9])} for name, latency in (("a", 1.0), ("b", 2.0))}
    found = compare(open_sweep(write_sweep(tmp_path / "s", runs, baseline="a")))
    header, rows = comparison_cells(found)
    assert "seconds" not in " ".join(header)
    # By 2 s, where the run of `a` ends, that of `b` was evaluated once.
    assert rows == [["a", "70.00", "1.00", "1.00"], ["b", "50.00", "2.00", "1.00"]]
    assert difference_cells(found)[1] == [["b", "-20.00", "+1.00", "+0.000"]]
    assert comparison_table(found).caption is not None
    assert "one seed" in str(comparison_table(found).caption)


def test_a_sweep_of_nothing(tmp_path: Path) -> None:
    sweep = open_sweep(write_sweep(tmp_path / "s", {}, baseline="a"))
    assert (compare(sweep).rows, compare(sweep).differences) == ([], [])
    assert comparison_table(sweep).row_count == 0
    assert draw_all(sweep, tmp_path / "f") == []
    assert write_report(tmp_path / "s", tmp_path / "r.md").is_file()


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        (Interval(20.411, 2.10273, 5), "20.4 ± 2.1"),
        (Interval(12345.6, 321.0, 5), "12,346 ± 321"),
        (Interval(0.304316, 0.000217, 5), "0.304 ± 0.000"),
        (Interval(5.0, 0.0, 5), "5.00 ± 0.00"),
        (Interval(5.0, math.nan, 1), "5.00"),
        (Interval(math.nan, math.nan, 0), "—"),
        (Interval(math.inf, math.nan, 2), "∞"),
        (Interval(-0.5, 0.25, 2), "-0.50 ± 0.25"),
    ],
)
def test_intervals_as_text(interval: Interval, text: str) -> None:
    assert format_interval(interval) == text


def test_numbers_as_text() -> None:
    assert [format_number(value) for value in (0.1234, 1.234, 123.4, 12345.6, -math.inf)] == [
        "0.123",
        "1.23",
        "123.4",
        "12,346",
        "-∞",
    ]
    assert format_number(2.0, signed=True) == "+2.00"
    assert markdown_table((["a|b", "c"], [["1", "2"]])) == "| a\\|b | c |\n| --- | ---: |\n| 1 | 2 |"


def test_the_comparison_is_written_beside_the_sweep(sweep_path: Path, tmp_path: Path) -> None:
    sweep = open_sweep(sweep_path)
    path = write_comparison(sweep)
    assert path == sweep_path / "comparison.parquet"
    table = pq.read_table(path)
    assert table.schema.metadata[b"netsim.table"] == b"comparison"
    base, fast, hopeless = table.to_pylist()
    assert (base["variant"], base["reached"], base["target_s_mean"], base["target_s_difference_mean"]) == ("base", 2, 6.0, None)
    assert (fast["target_s_difference_mean"], fast["target_s_difference_count"]) == (-4.5, 3)
    assert (hopeless["target_s_mean"], hopeless["target_s_half_width"]) == (9.0, None)
    text = pyarrow.csv.read_csv(write_comparison(sweep, tmp_path / "deep" / "c.csv"))
    assert text.column_names == table.column_names
    assert text.column("mean_round_s_mean").to_pylist() == pytest.approx([2.0, 1.0, 1.0])
    with pytest.raises(ValueError, match=r"must end in \.parquet or \.csv"):
        write_comparison(sweep, tmp_path / "c.xlsx")


@pytest.mark.slow
@pytest.mark.draws
def test_figures_are_drawn_and_the_same_bytes_twice(sweep_path: Path, tmp_path: Path) -> None:
    first = draw_all(open_sweep(sweep_path), tmp_path / "one")
    assert [path.name for path in first] == ["accuracy.png", "target.png", "leak.png", "delivered.png", "latency.png"]
    # A user's own settings change nothing, and are left as they were.
    with matplotlib.rc_context({"font.size": 30.0, "xtick.major.size": 20.0}):
        second = draw_all(open_sweep(sweep_path), tmp_path / "two")
        assert matplotlib.rcParams["font.size"] == 30.0
    for one, two in zip(first, second, strict=True):
        content = one.read_bytes()
        assert content.startswith(PNG)
        assert len(content) > 5000
        assert content == two.read_bytes()


def test_figures_without_data_are_skipped(tmp_path: Path) -> None:
    bare = open_run(write_run(tmp_path / "bare", rounds(1.0, [None, None], leak=0.0)))
    assert [path.name for path in draw_all(bare, tmp_path / "f")] == ["delivered.png", "latency.png"]
    empty = open_run(write_run(tmp_path / "empty", EMPTY))
    assert draw_all([empty], tmp_path / "g") == []
    full = open_run(write_run(tmp_path / "full", ROUNDS))
    assert len(draw_all(full, tmp_path / "h")) == 5


def test_a_variant_keeps_its_line_in_every_figure(sweep_path: Path) -> None:
    groups = group_runs(open_sweep(sweep_path))
    accuracy, leak = accuracy_figure(groups), leak_figure(groups)
    assert accuracy is not None
    assert leak is not None
    # `hopeless` is unprotected: no line in the figure of leaks, but its name in the note.
    assert [text.get_text() for text in leak.legends[0].get_texts()] == ["base", "Fast [new]"]
    assert "not drawn: hopeless" in leak.get_supxlabel().replace("\n", " ")
    for figure in (accuracy, leak):
        for index, line in enumerate(figure.legends[0].get_lines()):
            assert line.get_color() == PALETTE[index]
    line = accuracy.axes[0].get_lines()[0]
    x, y = np.asarray(line.get_xdata()), np.asarray(line.get_ydata())
    # Seeds of `base` have data from 1, 2, 3 s to 3, 6, 9 s: all three only at 3 s, with 0.7, 0.55, 0.5.
    assert x.tolist() == [3.0] * x.size
    assert y == pytest.approx((0.7 + 0.55 + 0.5) / 3)


def test_regret_with_a_bound(tmp_path: Path) -> None:
    run = open_run(write_run(tmp_path / "run", rounds(1.0, [0.5] * 4, regret=2.0)))
    figure = regret_figure({"pause": [run]}, bounds=[Bound("bound", "made up", lambda n: 100.0 * np.log(n + 1.0))])
    assert figure is not None
    (axes,) = figure.axes
    assert axes.get_yscale() == "symlog"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["pause", "bound"]
    assert np.asarray(axes.get_lines()[0].get_ydata()).tolist() == [2.0, 4.0, 6.0, 8.0]
    plain = regret_figure({"pause": [run]})
    assert plain is not None
    assert plain.axes[0].get_yscale() == "linear"


def test_latency_figure_shows_the_distribution(tmp_path: Path) -> None:
    run = open_run(write_run(tmp_path / "run", ROUNDS))
    figure = latency_figure({"pause": [run]}, window=2)
    assert figure is not None
    over_rounds, spread = figure.axes
    share, latency = (np.asarray(data) for data in spread.get_lines()[0].get_data())
    # Latencies 1..5: a fifth of the rounds each.
    assert latency[np.searchsorted(share, [0.1, 0.3, 0.5, 0.7, 0.9])].tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]
    smooth = [line for line in over_rounds.get_lines() if line.get_marker() == "None"]
    assert np.asarray(smooth[0].get_ydata()).tolist() == [1.0, 1.5, 2.5, 3.5, 4.5]


def test_runs_of_one_policy_on_one_seed_are_not_averaged(tmp_path: Path) -> None:
    a, b = (open_run(write_run(tmp_path / name, ROUNDS)) for name in ("a", "b"))
    assert list(group_runs([a, b])) == [str(a.path), str(b.path)]
    c = open_run(write_run(tmp_path / "c", ROUNDS, seed=2))
    assert {label: len(runs) for label, runs in group_runs([a, c]).items()} == {"pause": 2}


@pytest.mark.each_nth(2)
def test_report_of_a_sweep(sweep_path: Path, tmp_path: Path) -> None:
    for scenario in sweep_path.glob("[bf]*/seed-*/scenario.toml"):
        scenario.write_text(scenario.read_text(encoding="utf-8") + "\n[privacy]\nsensitivity = 1.0\n", encoding="utf-8")
    file = write_report(sweep_path, tmp_path / "report", format="md")
    assert file == tmp_path / "report" / "report.md"
    text = file.read_text(encoding="utf-8")
    for word in ("seconds to 70 %", "not by 9 s", "unprotected", "Difference to base", "Privacy guarantee", "Student-t"):
        assert word in text
    links = [line.split("](")[1][:-1] for line in text.splitlines() if line.startswith("![")]
    assert len(links) == 5
    for link in links:
        assert (file.parent / link).read_bytes().startswith(PNG)
    assert write_report(sweep_path, tmp_path / "again", format="md").read_text(encoding="utf-8") == text


def test_a_report_of_an_incomplete_sweep_names_what_is_missing(sweep_path: Path, tmp_path: Path) -> None:
    assert "Incomplete" not in write_report(sweep_path, tmp_path / "whole.md").read_text(encoding="utf-8")
    content = json.loads((sweep_path / "sweep.json").read_text(encoding="utf-8"))
    gone = [run for run in content["runs"] if run["variant"] == "hopeless" and run["seed"] != 2]
    content["runs"] = [run for run in content["runs"] if run not in gone]
    (sweep_path / "sweep.json").write_text(json.dumps(content | {"missing": gone}), encoding="utf-8")
    text = write_report(sweep_path, tmp_path / "part.md").read_text(encoding="utf-8")
    assert "**Incomplete.** 2 of 9 planned runs are not complete: hopeless, seeds 1, 3. To complete them: netsim sweep" in text
    many = Sweep(path=tmp_path, name="x", entries=[], baseline="", missing=[("a", seed) for seed in range(20)])
    assert "20 of 20 planned runs are not complete: a, seeds 0..19. To complete" in missing_words(many)


def test_runs_are_named_by_variant_and_stretches_of_seeds() -> None:
    some = [("a", 3), ("b", 1), ("a", 2), ("a", 1), ("a", 7), ("a", 8), ("b", 9)]
    assert runs_in_words(some) == "a, seeds 1..3, 7, 8; b, seeds 1, 9"
    assert runs_in_words([("a", 5)]) == "a, seed 5"
    scattered = runs_in_words([("a", seed) for seed in range(0, 40, 2)])
    assert scattered == f"a, seeds {', '.join(str(seed) for seed in range(0, 24, 2))} and 8 more"
    many = runs_in_words([(f"v{number}", seed) for number in range(14) for seed in (1, 2, 3)])
    assert many.endswith("v11, seeds 1..3; and 6 more")


def test_without_privacy_nothing_is_said_of_it(tmp_path: Path) -> None:
    bare = ROUNDS | {"max_leak": [0.0] * 5}
    run = write_run(tmp_path / "run", bare, PARTS)
    text = write_report(run, tmp_path / "run.md").read_text(encoding="utf-8").lower()
    undelivered = {seed: bare | {"delivered": [0] * 5} for seed in (1, 2)}
    sweep = write_sweep(tmp_path / "sweep", {"a": {1: bare, 2: bare}, "b": undelivered}, baseline="a")
    text += write_report(sweep, tmp_path / "sweep.md").read_text(encoding="utf-8").lower()
    assert "final accuracy" in text
    for word in ("privacy", "leak", "guarantee", "unprotected", "regret: reward of the genie"):
        assert (word in text) == word.startswith("regret")


def test_report_of_a_run(tmp_path: Path) -> None:
    bounds = {
        "round": [1, 2, 3],
        "start_s": [0.0, 5.0, 9.0],
        "end_s": [5.0, 9.0, 10.0],
        "selected": [3, 2, 2],
        "in_flight": [0, 1, 2],
    }
    words = "Each coordinate is protected by itself."
    run = write_run(tmp_path / "run", bounds, PARTS, privacy={"guarantee": words})
    text = write_report(run, tmp_path / "out.md", figures=FigureSettings(target_accuracy=0.5)).read_text(encoding="utf-8")
    assert words in text
    assert "| seconds to 50 % | not reached |" in text
    assert "| 7 | 0 | 0 | 0 | 0 | 2 |" in text
    assert "30.0 % were spent waiting for a single client alone, the last to end, and 10.0 % for several" in text
    assert "| 2 | 2 | 1 | 2 | 4.50 | 3.00 |" in text
    assert 'kind = "pause"' in text
    assert "final accuracy (%)" not in text
    empty = write_run(tmp_path / "empty", EMPTY)
    assert "| rounds | 0 |" in write_report(empty, tmp_path / "empty.md").read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="expected a run folder"):
        write_report(tmp_path / "nowhere", tmp_path / "x.md")


def test_report_of_a_run_of_which_no_round_closed(tmp_path: Path) -> None:
    attempts_begun = {name: values[-1:] for name, values in PARTS.items()} | {"round": [1]}
    text = write_report(write_run(tmp_path / "run", EMPTY, attempts_begun), tmp_path / "out.md").read_text(encoding="utf-8")
    assert "| rounds | 0 |" in text


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (Questions(against=["server.per_round"], within=["x"]), "against, within: is"),
        (Questions(equivalent=["final_accuracy=1"]), "equivalent: is"),
        (Questions(equal="bytes"), "equal bytes: is"),
    ],
)
def test_one_run_is_not_asked_for_differences(asked: Questions, told: str, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    with pytest.raises(ValueError, match=f"{told} a question to the variants of a sweep"):
        write_report(run, tmp_path / "out.md", questions=asked)
    assert not (tmp_path / "out.md").exists()


def test_a_report_says_where_final_accuracies_are_compared(tmp_path: Path) -> None:
    runs = {name: {1: rounds(1.0, [0.5, 0.6]) | {"bytes_up": [10, 10]}} for name in ("a", "b")}
    path = write_sweep(tmp_path / "sweep", runs, baseline="a")
    by_time = write_report(path, tmp_path / "time.md").read_text(encoding="utf-8")
    by_bytes = write_report(path, tmp_path / "bytes.md", questions=Questions(equal="bytes")).read_text(encoding="utf-8")
    assert "of all where there are fewer, up to the end of the shortest run." in by_time
    assert "of all where there are fewer, within the bytes that every run sent." in by_bytes
