"""Every figure of the papers has a scenario, three sizes and rules about variants that are there; some are run."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from analysis.api import open_sweep
from analysis.catalogue import CAPTIONS
from analysis.documents.blocks import Table
from analysis.figures.settings import PLAIN, FigureSettings
from analysis.metrics.registry import metric
from models.fl.data.files import data_paths
from scenarios.cli.main import main
from scenarios.cli.output import seeds_of
from scenarios.papers.costs import COSTS, MOST_S, Cost, duration_words
from scenarios.papers.registry import REPRODUCTIONS, find_reproduction
from scenarios.papers.reproduce import Request, plan_runs, sweep_document
from scenarios.papers.rules import Lower, LowerInEach, Near, Ratio, Trend
from scenarios.papers.solvers import growth_exponent, measure_searches, sections
from scenarios.papers.study import Reproduction, Setup, Size
from scenarios.schema.errors import UserError
from tests.helpers.result_folders import write_sweep
from tests.helpers.suites import each_nth

PAPERS = {
    "pause": [*(f"fig{n}" for n in range(2, 10)), "test1", "table1", "authors_mnist", "authors_cifar10"],
    "channels": ["fig2a", "fig2b", "fig2c", "fig3_4_cifar10_piecewise", "fig3_4_cifar100_extreme"],
    "analytics": [*(f"fig{n}" for n in range(5, 13)), "table1"],
}


@pytest.fixture
def data_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of the data sets, empty: planning looks only whether they are there."""
    for kind in ("mnist", "cifar-10", "cifar-100"):
        for path in data_paths(kind, tmp_path / "data"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    monkeypatch.setenv("NETSIM_DATA", str(tmp_path / "data"))


def netsim(monkeypatch: pytest.MonkeyPatch, *arguments: Any) -> int:
    monkeypatch.setattr(sys, "argv", ["netsim", *map(str, arguments)])
    try:
        main()
    except SystemExit as exit:
        return int(exit.code or 0)
    return 0


def test_every_figure_and_table_of_the_papers_has_a_name() -> None:
    for paper, figures in PAPERS.items():
        for figure in figures:
            assert find_reproduction(f"{paper}_{figure}").shows
    with pytest.raises(UserError, match="did you mean 'channels_fig2a'"):
        find_reproduction("channel_fig2a")


@pytest.mark.usefixtures("data_files")
@pytest.mark.parametrize(("seeds", "text"), [((1, 2, 3), "1..3"), ((1, 3, 4), "1,3,4"), ((7,), "7")])
def test_the_command_that_a_result_names_is_the_one_that_made_it(seeds: tuple[int, ...], text: str) -> None:
    settings = ("rounds=3", "policy={kind='random'}", 'description="it\'s mine"')
    command = Request(find_reproduction("pause_test1"), Size.SMOKE, seeds, settings).command
    words = ["netsim", "reproduce", "pause_test1", "--size", "smoke", "--seeds", text]
    assert tuple(seeds_of(text)) == seeds
    assert shlex.split(command) == [*words, *(word for text in settings for word in ("--set", text))]


@pytest.mark.each_nth(3)
@pytest.mark.usefixtures("data_files")
@pytest.mark.parametrize("name", each_nth(3, REPRODUCTIONS))
def test_what_a_reproduction_names_is_there(name: str) -> None:
    one = REPRODUCTIONS[name]
    assert set(one.sizes) == set(Size)
    assert set(one.figures) <= set(CAPTIONS)
    for shown in one.metrics:
        assert metric(shown).name == shown
    # Some sets are built: what differs between sizes is how much is run.
    if one.solvers or one.cells:
        return
    variants = plan_runs(Request(one, Size.SMOKE)).variants
    assert set(one.published) <= set(variants)
    assert {variant for group in one.groups for variant in group} <= set(variants)
    for rule in one.rules:
        assert rule.text
        match rule:
            case Lower() | LowerInEach() | Ratio():
                assert {rule.first, rule.second} <= set(variants)
                assert metric(rule.metric)
            case Near():
                assert rule.variant in variants
            case Trend():
                assert sum(variant.startswith(rule.among) for variant in variants) > 1


@pytest.mark.slow
@pytest.mark.usefixtures("data_files")
@pytest.mark.parametrize("name", [name for name, one in REPRODUCTIONS.items() if not (one.solvers or one.cells or one.judge)])
@pytest.mark.parametrize("size", [Size.LAPTOP, Size.FULL])
def test_all_sizes_can_be_planned(name: str, size: Size) -> None:
    assert plan_runs(Request(REPRODUCTIONS[name], size)).runs


@pytest.mark.slow
def test_a_figure_is_run_judged_and_shown_and_not_run_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    command = ("reproduce", "channels_fig2a", "--size", "smoke", "--set", "rounds=60", "--out", out, "--jobs", 1, "--quiet")
    assert netsim(monkeypatch, *command) == 0
    printed = capsys.readouterr().out
    assert "AoI regret: m-exp3 below random" in printed
    assert "open" in printed
    text = (out / "result.md").read_text(encoding="utf-8")
    for part in ("## Verdict", "| AoI regret: glr-cucb below m-exp3 |", "curve only", "its numbers say nothing of the paper"):
        assert part in text
    assert (out / "result.html").is_file()
    assert sorted(path.name for path in (out / "figures").iterdir()) == ["aoi_regret.pdf", "aoi_regret.png", "aoi_regret.svg"]
    assert (out / "tables" / "beside-the-paper.csv").is_file()
    before = (out / "runs" / "random" / "seed-1" / "summary.json").stat().st_mtime_ns
    assert netsim(monkeypatch, *command) == 0
    assert (out / "runs" / "random" / "seed-1" / "summary.json").stat().st_mtime_ns == before
    runs = json.loads((out / "runs" / "sweep.json").read_text())["runs"]
    assert {run["seed"] for run in runs} == {1, 2}


def test_variants_of_a_group_stand_side_by_side_up_to_their_own_end(tmp_path: Path) -> None:
    long = {"round": [1, 2], "start_s": [0.0, 2.0], "end_s": [2.0, 9.0], "accuracy": [0.3, 0.9]}
    short = {name: column[:1] for name, column in long.items()}
    sweep = open_sweep(write_sweep(tmp_path / "s", {"a": {1: long}, "b": {1: long}, "c": {1: short}}, baseline="a"))
    one = Reproduction(
        name="channels_fig2a", paper="none", shows="nothing: much", metrics=("final_accuracy",), groups=(("a", "b"), ("b", "c")),
        sizes={Size.FULL: Setup(seeds=(1,))},
    )
    tables = sweep_document(Request(one, Size.FULL), sweep, FigureSettings()).tables
    assert [table.caption for table in tables] == ["Here and in the paper, up to 9 s", "Here and in the paper, up to 2 s"]
    assert [table.cells[1] for table in tables] == [[["a", "60.00"], ["b", "60.00"]], [["b", "30.00"], ["c", "30.00"]]]
    assert len({table.name for table in tables}) == 2


def test_mistakes_are_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert netsim(monkeypatch, "reproduce") == 2
    assert "netsim reproduce --list" in capsys.readouterr().err
    assert netsim(monkeypatch, "reproduce", tmp_path) == 2
    assert "netsim replay" in capsys.readouterr().err


def test_the_list_has_every_name_whole_in_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert netsim(monkeypatch, "reproduce", "--list") == 0
    told = capsys.readouterr().out
    words = told.replace(",", " ").replace(")", " ").split()
    assert {name for one in REPRODUCTIONS.values() for name in (one.name, *one.aliases)} <= set(words)
    assert max(map(len, told.splitlines())) <= 80 + max(len(str(one.aliases)) for one in REPRODUCTIONS.values())
    assert all(COSTS[one.name][size].words in " ".join(told.split()) for one in REPRODUCTIONS.values() for size in Size)


def test_the_cost_of_searches_is_judged_by_its_growth() -> None:
    quick = [(10, 1e-4), (100, 1e-3), (1000, 1e-2)]
    steep = [(10, 1e-4), (20, 32e-4), (40, 1024e-4)]
    assert growth_exponent(quick) == pytest.approx(1.0)
    assert growth_exponent(steep) == pytest.approx(5.0)
    names = ("enumeration", "annealing, any swap", "annealing, tailored (SA-PAUSE)", "exact (here)")
    for enumeration, exact, verdicts in ((steep, quick, ["as in the paper"] * 2), (quick, steep, ["not as in the paper"] * 2)):
        document = sections(dict(zip(names, (enumeration, quick, quick, exact), strict=True)), look=PLAIN)
        table = document[0].blocks[0]
        assert isinstance(table, Table)
        assert [row[2] for row in table.cells[1]] == verdicts
    measured = measure_searches(Size.SMOKE)
    assert [clients for clients, _ in measured["exact (here)"]] == [100, 300, 1000]
    assert all(seconds > 0.0 for points in measured.values() for _, seconds in points)


def test_every_size_keeps_what_it_promises() -> None:
    assert set(COSTS) == set(REPRODUCTIONS)
    for name, costs in COSTS.items():
        assert set(costs) == set(Size), name
        assert all(costs[size].core_s <= most_s for size, most_s in MOST_S.items()), name
        assert costs[Size.SMOKE].core_s <= costs[Size.LAPTOP].core_s <= costs[Size.FULL].core_s, name


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.52, "0.52 s"), (89.4, "89 s"), (91.0, "1.5 min"), (5399.0, "1.5 h"), (175_000.0, "2 days"), (2_419_200.0, "4 weeks")],
)
def test_durations_have_two_digits_and_a_unit(seconds: float, words: str) -> None:
    assert duration_words(seconds) == words


def test_a_cost_says_whether_it_was_measured_and_what_shortens_it() -> None:
    assert Cost(40.0).words == "40 s of one core"
    assert Cost(36_001.0, estimated=True).words.startswith("10 h of one core (estimated); fewer seeds (--seeds)")
