"""A metric against a parameter: which keys, which lines, which values may be best, in tables and figures."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.api import open_sweep
from analysis.metrics.comparison import Comparison, compare
from analysis.parameters.figure import heat_figure, parameter_figure
from analysis.parameters.measure import (
    AgainstOne,
    Line,
    against_one,
    against_two,
    best_text,
    check_key,
    numeric_keys,
    settings_of,
)
from analysis.parameters.section import best_sentences, parameter_cells, parameter_sections
from analysis.results.sweep import Sweep
from analysis.statistics.inference import Best
from analysis.statistics.intervals import Interval
from tests.helpers.result_folders import write_sweep

DEADLINE = "server.deadline_s"


def rounds(updates_per_s: float) -> dict[str, list[Any]]:
    """A round of 1,000 s with as many deliveries as that takes."""
    return {"round": [1], "start_s": [0.0], "end_s": [1000.0], "delivered": [round(1000 * updates_per_s)]}


def grid(path: Path, values: dict[str, tuple[str, list[float]]]) -> tuple[Sweep, Comparison]:
    """A sweep: variant -> what its scenario says besides, and updates a second at each seed."""
    runs = {name: {seed: rounds(rate) for seed, rate in enumerate(rates, 1)} for name, (_, rates) in values.items()}
    write_sweep(path, runs, baseline=next(iter(values)))
    for name, (text, rates) in values.items():
        for seed in range(1, len(rates) + 1):
            file = path / name / f"seed-{seed}" / "scenario.toml"
            file.write_text(f'name = "study"\nseed = {seed}\n{text}', encoding="utf-8")
    sweep = open_sweep(path)
    return sweep, compare(sweep)


@pytest.fixture
def one_key(tmp_path: Path) -> tuple[Sweep, Comparison]:
    # At 4 s better than at 2 s at every seed by 0.1; 6 s scatters about 4 s; 10 s is worst. The order of variants is not theirs.
    rates = {6: [1.0, 1.3, 1.2], 2: [1.0, 1.1, 1.2], 4: [1.1, 1.2, 1.3], 10: [0.5, 0.6, 0.7]}
    return grid(tmp_path / "s", {f"d={d}": (f"[server]\ndeadline_s = {d}\n", rate) for d, rate in rates.items()})


def test_the_values_are_in_order_and_the_best_is_told_with_its_set(one_key: tuple[Sweep, Comparison]) -> None:
    sweep, comparison = one_key
    settings = settings_of(sweep)
    assert numeric_keys(settings) == [DEADLINE]
    study = against_one(comparison, sweep, settings, "updates_per_s", DEADLINE)
    (line,) = study.lines
    assert line.at.tolist() == [2.0, 4.0, 6.0, 10.0]
    assert [interval.mean for interval in line.intervals] == pytest.approx([1.1, 1.2, 7 / 6, 0.6])
    assert line.best is not None
    assert line.best.members.tolist() == [False, True, True, False]
    assert best_sentences(comparison, study) == ["updates a second (1/s): server.deadline_s 4 s; 95 % set of best: 4 to 6 s."]
    header, rows = parameter_cells(comparison, study)
    assert header == ["server.deadline_s (s)", "updates a second (1/s)"]
    assert [row[0] for row in rows] == ["2", "4", "6", "10"]
    assert [row[1].endswith("*") for row in rows] == [False, True, True, False]
    figure = parameter_figure(study)
    assert figure is not None
    assert figure.axes[0].get_xlabel() == "server.deadline_s (s)"
    filled = [mark.get_xdata() for mark in figure.axes[0].get_lines() if mark.get_marker() == "o"]
    assert [list(np.asarray(x)) for x in filled] == [[4.0, 6.0], [2.0, 10.0]]


def test_axes_name_the_unit_that_tables_leave_out(one_key: tuple[Sweep, Comparison]) -> None:
    sweep, comparison = one_key
    study = against_one(comparison, sweep, settings_of(sweep), "updates_per_s", DEADLINE)
    labels = {}
    for name in ("updates_per_s", "aoi_regret", "cumulated_age_variance"):
        figure = parameter_figure(replace(study, metric=name))
        assert figure is not None
        labels[name] = figure.axes[0].get_ylabel()
    assert labels == {
        "updates_per_s": "updates a second (1/s)",
        "aoi_regret": "AoI regret (rounds of age)",
        "cumulated_age_variance": "cumulated AoI variance (rounds²)",
    }


def test_numbers_at_marks_do_not_run_into_one_another_and_bars_end_at_what_can_be(tmp_path: Path) -> None:
    # 7 to 10 s lie closely on a logarithmic axis up to 100 s; 8 and 9 s are marked without a number. Rates of 0 and 1 a second
    # have an interval that would reach below 0.
    at = (1, 7, 8, 9, 10, 100)
    sweep, comparison = grid(tmp_path / "s", {f"d={d}": (f"[server]\ndeadline_s = {d}\n", [0.0, 1.0]) for d in at})
    figure = parameter_figure(against_one(comparison, sweep, settings_of(sweep), "updates_per_s", DEADLINE))
    assert figure is not None
    (axes,) = figure.axes
    assert axes.get_xticks().tolist() == list(at)
    assert [text.get_text() for text in axes.get_xticklabels()] == ["1", "7", "", "", "", "100"]
    (bars,) = axes.containers
    assert min(segment[:, 1].min() for segment in bars.lines[2][0].get_segments()) == 0.0


def test_a_line_for_each_setting_of_what_else_varies(tmp_path: Path) -> None:
    values = {
        f"{kind}+d={d}": (f'[server]\ndeadline_s = {d}\n[policy]\nkind = "{kind}"\n', [1.0 + d, 1.1 + d])
        for kind in ("random", "pause")
        for d in (1, 2)
    }
    values["alone"] = ('[server]\ndeadline_s = 3\n[policy]\nkind = "all"\n', [1.0, 1.0])
    sweep, comparison = grid(tmp_path / "s", values)
    study = against_one(comparison, sweep, settings_of(sweep), "updates_per_s", DEADLINE)
    assert [line.variants for line in study.lines] == [("random+d=1", "random+d=2"), ("pause+d=1", "pause+d=2")]


def test_variants_of_one_scenario_are_one_value(tmp_path: Path) -> None:
    rates = {"base": (4, [1.1, 1.2, 1.3]), "d=2": (2, [1.0, 1.1, 1.21]), "d=4": (4, [1.1, 1.2, 1.3])}
    sweep, comparison = grid(
        tmp_path / "s", {name: (f"[server]\ndeadline_s = {d}\n", values) for name, (d, values) in rates.items()}
    )
    study = against_one(comparison, sweep, settings_of(sweep), "updates_per_s", DEADLINE)
    (line,) = study.lines
    assert (line.variants, line.at.tolist()) == (("d=2", "base"), [2.0, 4.0])
    assert best_sentences(comparison, study) == ["updates a second (1/s): server.deadline_s 4 s; 95 % set of best: 4 s alone."]


def test_a_heat_map_of_two_keys(tmp_path: Path) -> None:
    values = {
        f"d={d}+m={m}": (f"[server]\ndeadline_s = {d}\nper_round = {m}\n", [d - m + 0.0, d - m + 0.1])
        for d in (10, 20)
        for m in (1, 2, 4)
    }
    sweep, comparison = grid(tmp_path / "s", values)
    settings = settings_of(sweep)
    study = against_two(comparison, settings, "updates_per_s", DEADLINE, "server.per_round")
    assert study is not None
    assert study.means == pytest.approx(np.array([[9.05, 8.05, 6.05], [19.05, 18.05, 16.05]]))
    assert study.members.tolist() == [[False, False, False], [True, False, False]]
    figure = heat_figure(study)
    assert figure is not None
    assert [text.get_text() for text in figure.axes[0].texts] == ["9.05", "8.05", "6.05", "19.05", "18.05", "16.05"]
    titles = [section.title for section in parameter_sections(sweep, comparison)]
    assert titles == [
        "Against server.deadline_s",
        "Against server.per_round",
        "Against server.deadline_s and server.per_round",
    ]
    # A combination that was not run leaves no map.
    del settings["d=10+m=1"]
    assert against_two(comparison, settings, "updates_per_s", DEADLINE, "server.per_round") is None


def test_values_beyond_any_number_are_named_and_not_drawn() -> None:
    def line(label: str, *means: float) -> Line:
        intervals = tuple(Interval(mean, math.nan, 2) for mean in means)
        return Line(label, np.array([1.0, 2.0]), ("a", "b"), intervals, None)

    study = AgainstOne("max_leak", "server.per_round", (line("bare", math.inf, math.inf), line("half", 3.0, math.inf)))
    figure = parameter_figure(study)
    assert figure is not None
    assert "left out, beyond any number: bare, half" in figure.note
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["half"]
    assert np.asarray(figure.axes[0].lines[0].get_ydata()).tolist() == [3.0, pytest.approx(math.nan, nan_ok=True)]


def test_variants_with_a_list_in_the_place_of_a_number_are_not_on_the_map(tmp_path: Path) -> None:
    values = {
        f"{d}-{first}": (f"[server]\ndeadline_s = {d}\nfirst = {first}\n", [1.0, 1.1])
        for d in (2, 4, "[2.0, 4.0]")
        for first in (1, 2)
    }
    sweep, comparison = grid(tmp_path / "s", values)
    study = against_two(comparison, settings_of(sweep), "updates_per_s", "server.deadline_s", "server.first")
    assert study is not None
    assert study.at_rows.tolist() == [2.0, 4.0]
    titles = [section.title for section in parameter_sections(sweep, comparison)]
    assert titles[-1] == "Against server.deadline_s and server.first"


def test_a_key_that_is_named_twice_is_shown_once(one_key: tuple[Sweep, Comparison]) -> None:
    (section,) = parameter_sections(*one_key, against=["deadline_s", DEADLINE])
    assert section.title == f"Against {DEADLINE}"


def test_keys_that_are_not_varied_alone_are_refused_by_name(one_key: tuple[Sweep, Comparison]) -> None:
    settings = settings_of(one_key[0])
    assert check_key(settings, "deadline_s") == DEADLINE
    with pytest.raises(ValueError, match=r"against 'server.dedline_s': .* did you mean 'server.deadline_s'"):
        check_key(settings, "server.dedline_s")
    # Keys that change together are none that vary alone.
    together: dict[str, dict[str, Any]] = {"a": {"x": 1, "y": 1}, "b": {"x": 2, "y": 2}}
    assert numeric_keys(together) == []
    with pytest.raises(ValueError, match="make a grid"):
        check_key(together, "x")


@pytest.mark.parametrize(
    ("members", "seeds", "words"),
    [
        ([False, True, False], 5, "k_s 2 s; 95 % set of best: 2 s alone"),
        ([True, True, False], 5, "k_s 2 s; 95 % set of best: 1 to 2 s"),
        ([True, True, True], 5, "k_s 2 s; 95 % set of best: 1 to 5 s (all values tried)"),
        ([True, False, True], 5, "k_s 2 s; 95 % set of best: 1, 5 s"),
        ([True, True, True], 1, "k_s 2 s; one seed does not tell which others may be"),
    ],
)
def test_the_set_of_best_in_words(members: list[bool], seeds: int, words: str) -> None:
    line = Line("", np.array([1.0, 2.0, 5.0]), ("a", "b", "c"), (), Best(1, np.array(members), seeds))
    assert best_text(AgainstOne("updates_per_s", "k_s", (line,)), line, 0.95) == words
