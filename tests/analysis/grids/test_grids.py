"""Which method is best where: cells of a grid, horizons of their own, sets of best that hold together, tables and the map."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.api import open_sweep
from analysis.documents.blocks import Bullets, Picture, Table, Text
from analysis.documents.comparison_tables import comparison_cells
from analysis.figures.style import image_of
from analysis.grids.figure import NONE_COLOUR, best_figure, cell_words
from analysis.grids.measure import CellStudy, best_in_cells, cells_of, grid_keys
from analysis.grids.section import best_text, cell_sections, differences_table, means_table
from analysis.metrics.comparison import Comparison, compare
from analysis.parameters.measure import settings_of
from analysis.parameters.section import parameter_sections
from analysis.results.sweep import Sweep
from analysis.statistics.inference import set_of_best
from analysis.statistics.intervals import mean_interval
from scenarios.cli.main import main
from tests.helpers.result_folders import write_sweep

KEYS = ("compute.delay.value_s", "server.per_round")
METHODS = ("random", "pause", "oort")


def course(reaches_s: float, ends_s: float) -> dict[str, list[Any]]:
    """Two rounds: the target of 80 % is reached as the first closes, or never (inf); the second closes at the end."""
    first = min(reaches_s, ends_s / 2)
    accuracy = [0.9 if reaches_s < ends_s else 0.5] * 2
    return {"round": [1, 2], "start_s": [0.0, first], "end_s": [first, ends_s], "accuracy": accuracy, "delivered": [1, 1]}


def study_of(
    path: Path, times: dict[tuple[float, float], list[list[float]]], ends_s: dict[tuple[float, float], float]
) -> tuple[Sweep, Comparison]:
    """A sweep of `METHODS` in cells: (value, m) -> for each method the seconds to the target at each seed (empty: not run)."""
    runs: dict[str, dict[int, dict[str, list[Any]]]] = {}
    texts, labels = {}, {}
    for at, by_method in times.items():
        for method, reached in zip(METHODS, by_method, strict=True):
            name = f"{method}+value_s={at[0]:g}+per_round={at[1]:g}"
            if not reached:
                continue
            runs[name] = {seed: course(one, ends_s[at]) for seed, one in enumerate(reached, 1)}
            labels[name] = f"{method}, value_s={at[0]:g}, per_round={at[1]:g}"
            texts[name] = f'[compute.delay]\nvalue_s = {at[0]!r}\n[server]\nper_round = {at[1]:g}\n[policy]\nkind = "{method}"\n'
    write_sweep(path, runs, baseline=next(iter(runs)), target=0.8, **labels)
    for name, text in texts.items():
        for seed in runs[name]:
            (path / name / f"seed-{seed}" / "scenario.toml").write_text(f"seed = {seed}\n{text}", encoding="utf-8")
    sweep = open_sweep(path)
    return sweep, compare(sweep)


# In the first cell oort is sooner at every seed; in the second random and pause scatter; in the third pause and oort have the
# same times; in the fourth, where all takes ten times as long, random alone gets there.
TIMES = {
    (1.0, 2.0): [[20.0, 21.0, 22.0, 20.5], [30.0, 31.0, 32.0, 30.5], [10.0, 11.0, 12.0, 10.5]],
    (1.0, 4.0): [[20.0, 30.0, 25.0, 22.0], [30.0, 20.0, 22.0, 25.0], [40.0, 48.0, 45.0, 44.0]],
    (5.0, 2.0): [[30.0, 31.0, 32.0, 33.0], [20.0, 21.0, 22.0, 23.0], [20.0, 21.0, 22.0, 23.0]],
    (5.0, 4.0): [[300.0, 310.0, 320.0, 330.0], [np.inf] * 4, [np.inf] * 4],
}
ENDS = {(1.0, 2.0): 100.0, (1.0, 4.0): 100.0, (5.0, 2.0): 100.0, (5.0, 4.0): 1000.0}


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> tuple[Sweep, Comparison]:
    return study_of(tmp_path_factory.mktemp("cells") / "s", TIMES, ENDS)


def whole(four: tuple[Sweep, Comparison]) -> CellStudy:
    sweep, comparison = four
    study = cells_of(sweep, comparison, settings_of(sweep), KEYS)
    assert study is not None
    return study


def test_cells_have_a_horizon_and_a_baseline_of_their_own(four: tuple[Sweep, Comparison]) -> None:
    study = whole(four)
    assert study.methods == METHODS
    assert [cell.at for cell in study.cells] == list(TIMES)
    assert [cell.comparison.horizon_s for cell in study.cells] == [100.0, 100.0, 100.0, 1000.0]
    assert four[1].horizon_s == 100.0
    assert [cell.comparison.baseline.partition("+")[0] for cell in study.cells] == ["random"] * 4
    # At the whole sweep's horizon nobody is there in the last cell: all would be alike.
    means = [row["target_s"].mean for row in study.cells[-1].comparison.rows]
    assert means == [315.0, 1000.0, 1000.0]


def test_who_is_best_where(four: tuple[Sweep, Comparison]) -> None:
    study = whole(four)
    found = best_in_cells(study, "target_s")
    assert [one.winners for one in found] == [(2,), (), (1, 2), (0,)]
    assert found[1].best.members.tolist() == [True, True, False]
    assert best_text(study, found, "seconds to 80 %") == (
        "seconds to 80 %, best of 3 in 4 cells: oort in 1; pause = oort in 1; random in 1; no difference shown in 1."
    )
    assert [cell_words(study, one, "target_s") for one in found] == [
        "oort\n10.88",
        "no difference\n(random, pause)",
        "pause =\noort\n21.5",
        "random\n315",
    ]
    with pytest.raises(ValueError, match="no better high or low"):
        best_in_cells(study, "simulated_s")


@pytest.mark.slow
def test_the_sets_of_best_hold_in_all_cells_together(tmp_path: Path) -> None:
    # Between what 95 % asks of one cell and what it asks of each of four (a t of 3.08 between 2.78 and 4.31).
    gap = np.array([1.0, 1.0, 1.0, 1.4, 0.9])
    scatter = np.array([0.0, 0.33, -0.33, 0.22, -0.22])
    reached = [[20.0] * 5, (20.0 - 0.33 * gap + scatter).tolist(), [60.0, 61.0, 62.0, 63.0, 64.0]]
    times = {(float(value), 2.0): reached for value in range(4)}
    sweep, comparison = study_of(tmp_path / "s", times, dict.fromkeys(times, 100.0))
    study = cells_of(sweep, comparison, settings_of(sweep), KEYS[:1])
    assert study is not None
    values = np.array(times[0.0, 2.0]).T
    assert set_of_best(values, higher=False).members.tolist() == [False, True, False]
    assert [one.best.members.tolist() for one in best_in_cells(study, "target_s")] == [[True, True, False]] * 4


def test_no_run_that_reaches_the_target_shows_no_difference(tmp_path: Path) -> None:
    never = {(1.0, 2.0): [[np.inf] * 3] * 3, (2.0, 2.0): [[np.inf] * 3] * 3}
    sweep, comparison = study_of(tmp_path / "s", never, dict.fromkeys(never, 100.0))
    study = cells_of(sweep, comparison, settings_of(sweep), KEYS[:1])
    assert study is not None
    assert [one.winners for one in best_in_cells(study, "target_s")] == [(), ()]


def test_of_a_target_that_nobody_reaches_no_value_is_called_the_best(tmp_path: Path) -> None:
    never = {(1.0, 2.0): [[np.inf] * 3, [], []], (2.0, 2.0): [[np.inf] * 3, [], []]}
    sweep, comparison = study_of(tmp_path / "never", never, dict.fromkeys(never, 100.0))
    (section,) = parameter_sections(sweep, comparison, against=["value_s"])
    sentences, *rest = section.blocks
    assert isinstance(sentences, Bullets)
    assert "seconds to 80 %: no run was at the target by 100 s." in sentences.items
    assert "final accuracy (%): the same at all values of compute.delay.value_s." in sentences.items
    assert not [block for block in rest if isinstance(block, Picture) and block.name.startswith("target-s")]
    (table,) = [block for block in rest if isinstance(block, Table) and block.name.startswith("target-s")]
    assert table.cells[1] == [["1", "not by 100 s"], ["2", "not by 100 s"]]
    assert "*" not in table.note
    # One value at which the target is reached is the best; the figure says of what its numbers are means, as tables do.
    once = {**never, (2.0, 2.0): [[20.0, 21.0, np.inf], [], []]}
    sweep, comparison = study_of(tmp_path / "once", once, dict.fromkeys(once, 100.0))
    (section,) = parameter_sections(sweep, comparison, against=["value_s"])
    (picture,) = [block for block in section.blocks if isinstance(block, Picture) and block.name.startswith("target-s")]
    assert "mean of min(time, 100 s) over 3 seeds" in picture.figure.note
    (table,) = [block for block in section.blocks if isinstance(block, Table) and block.name.startswith("target-s")]
    of_variants = comparison_cells(comparison, ["target_s"])[1]
    assert [row[1].removesuffix(" *") for row in table.cells[1]] == [row[1] for row in of_variants]
    assert of_variants[1][1].endswith("(2 of 3)")


def test_the_tables_have_a_row_for_each_cell(four: tuple[Sweep, Comparison]) -> None:
    study = whole(four)
    header, rows = means_table(study, best_in_cells(study, "target_s"), "target_s").cells
    assert header == ["compute.delay.value_s (s)", "server.per_round", *METHODS]
    assert [row[:2] for row in rows] == [["1", "2"], ["1", "4"], ["5", "2"], ["5", "4"]]
    assert [[cell.endswith(" *") for cell in row[2:]] for row in rows] == [
        [False, False, True],
        [True, True, False],
        [False, True, True],
        [True, False, False],
    ]
    table = differences_table(study, "target_s")
    assert table is not None
    header, rows = table.cells
    assert header[2:] == ["pause", "oort"]
    # Eight intervals hold together: each is of 1 - 0.05 / 8.
    gaps = np.array(TIMES[1.0, 4.0][2]) - np.array(TIMES[1.0, 4.0][0])
    interval = mean_interval(gaps, 1.0 - 0.05 / 8)
    assert rows[1][3].startswith(f"+{interval.mean:.1f} ± {interval.half_width:.1f}")
    assert rows[1][3].endswith(" *")
    assert not rows[1][2].endswith(" *")


@pytest.mark.slow
def test_a_method_that_was_not_run_in_a_cell_is_left_out_there(tmp_path: Path) -> None:
    times = dict(TIMES)
    times[5.0, 4.0] = [times[5.0, 4.0][0], [], times[5.0, 4.0][2]]
    study = whole(study_of(tmp_path / "s", times, ENDS))
    found = best_in_cells(study, "target_s")
    assert found[-1].cell.variants[1] is None
    assert found[-1].best.members.tolist() == [True, False, False]
    assert means_table(study, found, "target_s").cells[1][-1][3] == "—"
    differences = differences_table(study, "target_s")
    assert differences is not None
    assert differences.cells[1][-1][2] == "—"


def test_the_map_has_the_colour_of_the_best_and_grey_where_none_is(four: tuple[Sweep, Comparison]) -> None:
    study = whole(four)
    found = best_in_cells(study, "target_s")
    figure = best_figure(study, found, "target_s", "seconds to 80 %")
    assert figure is not None
    axes = figure.axes[0]
    assert (axes.get_ylabel(), axes.get_xlabel()) == ("compute.delay.value_s (s)", "server.per_round")
    colours = np.asarray(axes.images[0].get_array())
    grey = [int(NONE_COLOUR[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    assert colours[0, 1] == pytest.approx(grey)
    assert len({tuple(colour) for colour in colours.reshape(-1, 3)}) == 4
    # The first key goes up, the second to the right.
    words = {text.get_position(): text.get_text() for text in axes.texts}
    assert words[0, 0].startswith("oort")
    assert words[0, 1].startswith("pause =")
    assert words[1, 1].startswith("random")
    assert "compute.delay.value_s 5, server.per_round 4: random, 315" in figure.description


def test_a_report_has_the_section_for_a_grid_of_two_keys_or_for_those_asked_for(four: tuple[Sweep, Comparison]) -> None:
    sweep, comparison = four
    assert grid_keys(settings_of(sweep)) == list(KEYS)
    (section,) = cell_sections(sweep, comparison)
    assert section.title == "Best where, within compute.delay.value_s and server.per_round"
    (section,) = cell_sections(sweep, comparison, within=["value_s"])
    assert section.title == "Best where, within compute.delay.value_s"
    with pytest.raises(ValueError, match=r"within 'policy.kind': is not varied alone"):
        cell_sections(sweep, comparison, within=["policy.kind"])


def test_the_sections_against_a_key_say_the_horizon_of_the_whole_sweep(four: tuple[Sweep, Comparison]) -> None:
    sweep, comparison = four
    (section, *_) = parameter_sections(sweep, comparison, against=["value_s"])
    (table,) = [block for block in section.blocks if isinstance(block, Table) and block.name.startswith("target-s")]
    assert f"with at most {min(ENDS.values()):g} s, to which all runs of the whole sweep come" in table.note
    never = sum(row.reached["target_s"] == 0 for row in comparison.rows)
    assert never > 0
    assert f"In {never} of 12 settings no run was at the target by then. Which line is best at each value" in table.note
    assert table.note.endswith("--within compute.delay.value_s.")


def test_more_than_two_keys_and_a_single_method_are_refused(tmp_path: Path) -> None:
    values = {"a": (1, 1, 1), "b": (2, 1, 1), "c": (1, 2, 1), "d": (1, 1, 2)}
    write_sweep(tmp_path / "s", {name: {1: course(10.0, 50.0), 2: course(11.0, 50.0)} for name in values}, baseline="a")
    for name, (deadline, wanted, kept) in values.items():
        for seed in (1, 2):
            text = f"seed = {seed}\n[server]\ndeadline_s = {deadline}\nper_round = {wanted}\nfirst = {kept}\n"
            (tmp_path / "s" / name / f"seed-{seed}" / "scenario.toml").write_text(text, encoding="utf-8")
    sweep = open_sweep(tmp_path / "s")
    with pytest.raises(ValueError, match="name at most 2 keys"):
        cell_sections(sweep, compare(sweep), within=["deadline_s", "per_round", "first"])
    entries = [entry for entry in sweep.entries if entry.variant in "ab"]
    two = Sweep(path=tmp_path, name="two", entries=entries, baseline="a")
    with pytest.raises(ValueError, match="nothing else is varied"):
        cell_sections(two, compare(two), within=["deadline_s"])
    assert cell_sections(two, compare(two)) == []


@pytest.mark.slow
def test_report_and_compare_have_the_option(
    four: tuple[Sweep, Comparison], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(four[0].path)
    asked = ["--metric", "target_s", "--within", "value_s"]
    monkeypatch.setattr(sys, "argv", ["netsim", "compare", folder, *asked, "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit, match="0"):
        main()
    said = capsys.readouterr().out
    assert "seconds to 80 %, best of 6 in 2 cells" in said
    assert "between 100 and 100 s" in said
    # Six methods in two tables, each with its note.
    assert " ".join(said.split()).count("Runs that missed the target count") == 2
    assert (tmp_path / "out" / "target-s-best-where.png").is_file()
    monkeypatch.setattr(sys, "argv", ["netsim", "report", folder, *asked, "--out", str(tmp_path / "report.md")])
    with pytest.raises(SystemExit, match="0"):
        main()
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "## Best where, within compute.delay.value_s\n" in text
    assert "--metric target_s --within value_s" in text


def test_a_missing_run_of_the_best_method_does_not_hide_that_it_is_best(tmp_path: Path) -> None:
    times = {at: [list(each) for each in TIMES[at]] for at in ((1.0, 2.0), (5.0, 2.0))}
    times[1.0, 2.0][2].pop()  # the best one there
    sweep, comparison = study_of(tmp_path / "s", times, ENDS)
    study = cells_of(sweep, comparison, settings_of(sweep), KEYS[:1])
    assert study is not None
    assert [one.winners for one in best_in_cells(study, "target_s")] == [(2,), (1, 2)]


def test_cells_without_a_run_at_the_target_say_so(four: tuple[Sweep, Comparison]) -> None:
    study = whole(four)
    assert means_table(study, best_in_cells(study, "target_s"), "target_s").cells[1][-1][3:] == ["not by 1,000 s"] * 2


def test_a_horizon_that_is_asked_for_is_that_of_every_cell(four: tuple[Sweep, Comparison]) -> None:
    sweep, _ = four
    comparison = compare(sweep, horizon_s=40.0)
    study = whole((sweep, comparison))
    assert [cell.comparison.horizon_s for cell in study.cells] == [40.0] * 4
    assert means_table(study, best_in_cells(study, "target_s"), "target_s").cells[1][-1][2] == "not by 40 s"
    introduction = cell_sections(sweep, comparison)[0].blocks[0]
    assert isinstance(introduction, Text)
    assert introduction.text.endswith("times to a target are restricted to 40 s in all of them.")


def test_what_methods_are_called_is_drawn_whatever_it_is(four: tuple[Sweep, Comparison]) -> None:
    study = replace(whole(four), methods=("$\\bad{$", "$5", "a, b"))
    figure = best_figure(study, best_in_cells(study, "target_s"), "target_s", "seconds")
    assert figure is not None
    image_of(figure, "svg")
