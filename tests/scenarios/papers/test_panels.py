"""`netsim reproduce --all`: one page of all panels; the complete ones are kept, one that was cut off goes on."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis.documents.blocks import Document, Section, Table
from scenarios.papers import panels
from scenarios.papers.costs import COSTS
from scenarios.papers.panels import Panel, play_all, read_panel
from scenarios.papers.registry import REPRODUCTIONS
from scenarios.papers.reproduce import RUNS
from scenarios.papers.study import Size
from scenarios.schema.errors import UserError
from tests.helpers.small_scenario import Shell

CASES = REPRODUCTIONS["flow_cases"]
SWEEP = REPRODUCTIONS["channels_fig2a"]


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the panels whose sweep is played: each writes a run and finds one rule to hold."""
    names: list[str] = []

    def reproduce(asked: Any, out: Path, runs: Any, **rest: Any) -> Document:
        names.append(asked.reproduction.name)
        (out / RUNS).mkdir(parents=True, exist_ok=True)
        (out / RUNS / f"run{len(names)}").write_text("rows")
        rows = [["a below b", "-1.0 ± 0.2", "as in the paper"]]
        return Document("x", "", [Section("Verdict", [Table("verdict", "Rules", (["the paper", "here", "verdict"], rows))])])

    monkeypatch.setattr(panels, "reproduce", reproduce)
    return names


def test_a_page_has_a_row_a_rule_and_lines_tell_the_time_left(tmp_path: Path, played: list[str]) -> None:
    lines: list[str] = []
    cases, sweep = play_all(Size.SMOKE, tmp_path, tell=lines.append, panels=[CASES, SWEEP])
    assert played == ["channels_fig2a"]
    assert [line.partition("; about ")[0] for line in lines] == ["[1/2] flow_cases", "[2/2] channels_fig2a"]
    assert all(line.endswith(" left") for line in lines)
    assert cases.verdicts == [["values as published", "—", "as in the paper"]]
    assert (sweep.verdicts, sweep.seeds) == ([["a below b", "-1.0 ± 0.2", "as in the paper"]], "2 (1 to 2)")
    page = (tmp_path / "result.md").read_text()
    assert "2 of 2 panels played, size smoke" in page
    assert f"**{SWEEP.name}** {SWEEP.shows}. seeds: 2 (1 to 2); " in page
    assert "Rules: 2 as in the paper." in page
    assert f"## {SWEEP.paper}" in page
    assert "| channels_fig2a | Figure 2(a) | as in the paper | 2 (1 to 2) |" in page
    assert "| a below b | -1.0 ± 0.2 | as in the paper |" in page
    assert "its numbers say nothing of the papers" in page
    assert (tmp_path / "result.html").read_text().count("as in the paper") >= 2


def test_the_first_figure_of_a_panel_stands_on_the_page(tmp_path: Path) -> None:
    folder = tmp_path / SWEEP.name / "figures"
    folder.mkdir(parents=True)
    (folder / "aoi.svg").write_text('<?xml version="1.0"?><svg viewBox="0 0 9 9"><path id="p" d="M 0 0"/></svg>')
    panel = Panel(SWEEP.name, "", [["a", "b", "open"]], figure="figures/aoi.svg", complete=True)
    panels.write_page([panel], 1, Size.LAPTOP, tmp_path)
    assert "![channels_fig2a: Figure 2(a)](channels_fig2a/figures/aoi.svg)" in (tmp_path / "result.md").read_text()
    page = (tmp_path / "result.html").read_text()
    assert '<path id="channels-fig2a-p"' in page
    # The row holds the verdict to the left of the figure.
    row = page[page.index('<div class="beside">') :]
    assert row.index("open") < row.index("</div>\n<figure>") < row.index("<svg")
    assert "its numbers say nothing" not in page


def test_what_is_complete_is_kept_until_the_code_changes(
    tmp_path: Path, played: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (first,) = play_all(Size.SMOKE, tmp_path, panels=[SWEEP])
    assert play_all(Size.SMOKE, tmp_path, panels=[SWEEP]) == [first]
    assert played == ["channels_fig2a"]
    monkeypatch.setattr(panels, "code_checksum", lambda: "of other code")
    (again,) = play_all(Size.SMOKE, tmp_path, panels=[SWEEP])
    assert again.checksum != first.checksum
    assert len(played) == 2
    # Runs of the earlier code are gone.
    assert [file.name for file in (tmp_path / SWEEP.name / RUNS).iterdir()] == ["run2"]


def test_a_panel_that_was_cut_off_goes_on_with_its_runs(
    tmp_path: Path, played: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = panels.reproduce

    def cut_off(asked: Any, out: Path, runs: Any, **rest: Any) -> Document:
        whole(asked, out, runs, **rest)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(panels, "reproduce", cut_off)
        with pytest.raises(KeyboardInterrupt):
            play_all(Size.SMOKE, tmp_path, panels=[SWEEP])
    record = read_panel(tmp_path / SWEEP.name)
    assert record is not None
    assert not record.complete
    (panel,) = play_all(Size.SMOKE, tmp_path, panels=[SWEEP])
    assert panel.complete
    assert sorted(file.name for file in (tmp_path / SWEEP.name / RUNS).iterdir()) == ["run1", "run2"]


def test_the_checksum_of_the_code_follows_sources_and_scenarios(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("models/a.py", "scenarios/library/b.toml", "analysis/c.pyc"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    monkeypatch.setattr(panels, "_ROOT", tmp_path)

    def digest() -> str:
        panels.code_checksum.cache_clear()
        return panels.code_checksum()

    first = digest()
    (tmp_path / "analysis/c.pyc").write_text("y")
    assert digest() == first
    (tmp_path / "scenarios/library/b.toml").write_text("y")
    second = digest()
    (tmp_path / "models/a.py").rename(tmp_path / "models/d.py")
    assert len({first, second, digest()}) == 3
    panels.code_checksum.cache_clear()


def test_verdicts_are_read_from_rules_and_counted_over_cells() -> None:
    rules = Table("verdict", "Rules", (["rule", "here", "verdict"], [["a", "1", "open"]]))
    judged = [["a", "1", "1", "agrees"], ["b", "1", "2", "differs"]]
    cells = Table("times", "Times", (["method", "paper", "here", "verdict"], judged))
    # SAFA counts cells by method in a table of this name, which has no verdict of its own.
    counts = Table("verdict", "Counts", (["method", "agrees", "differs"], [["a", "1", "0"]]))
    document = Document("x", "", [Section("Verdict", [counts, rules, cells])])
    assert panels.read_verdicts(document) == [["a", "1", "open"], ["Times: 2 numbers", "—", "1 agrees, 1 differs"]]


def test_a_size_and_a_setting_are_part_of_the_checksum() -> None:
    asked = panels.Request(SWEEP, Size.SMOKE)
    others = [panels.Request(SWEEP, Size.LAPTOP), replace(asked, settings=("rounds=7",)), panels.Request(CASES, Size.SMOKE)]
    assert len({panels.panel_checksum(one) for one in [asked, *others]}) == 4


def test_the_time_left_follows_the_pace_of_the_panels_that_were_played() -> None:
    pace = panels._Pace(2)
    # Two idle cores do 100 processor seconds in 50.
    assert pace.left_s([60.0, 40.0]) == 50.0
    pace.add(0.0, 1.0)  # a panel that was kept
    assert pace.left_s([60.0, 40.0]) == 50.0
    # 98 processor seconds took 199: with the 2 in 1 of the beginning, 100 in 200.
    pace.add(98.0, 199.0)
    assert pace.left_s([50.0]) == 100.0


def test_progress_is_shown_of_panels_that_have_runs(tmp_path: Path, played: list[str]) -> None:
    shown: list[str] = []

    def show(runs: Any) -> Any:
        shown.append(runs.name)
        return nullcontext()

    play_all(Size.SMOKE, tmp_path, show=show, panels=[CASES, REPRODUCTIONS["pause_table1"], SWEEP])
    assert played == ["pause_table1", SWEEP.name]
    assert shown == ["channels-fig2a"]


def test_a_panel_is_expected_to_take_as_long_as_last_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = panels.Request(SWEEP, Size.SMOKE)
    stated_s, beside_s = COSTS[SWEEP.name][Size.SMOKE].core_s, panels._OVERHEAD_S
    assert panels._expected_core_s(asked, tmp_path) == stated_s + beside_s
    panels._save_record(Panel(SWEEP.name, panels.panel_checksum(asked), core_s=7.0, complete=True), tmp_path)
    assert panels._expected_core_s(asked, tmp_path) == 0.0
    monkeypatch.setattr(panels, "code_checksum", lambda: "of other code")
    assert panels._expected_core_s(asked, tmp_path) == 7.0 + beside_s


def test_a_panel_took_what_all_its_runs_took(tmp_path: Path) -> None:
    for name, cpu_s in (("a", 1.5), ("b", 2.25)):
        folder = tmp_path / name / "seed-1"
        folder.mkdir(parents=True)
        (folder / "summary.json").write_text(json.dumps({"machine": {"cpu_time_s": cpu_s}}))
    assert panels._runs_core_s(tmp_path) == 3.75
    assert panels._runs_core_s(tmp_path / "none") == 0.0


def test_verdicts_and_numbers_beside_the_paper_stand_on_the_page() -> None:
    def table(name: str, *header: str) -> Table:
        return Table(name, "", (list(header), []))

    rules, beside, other = table("verdict", "a", "verdict"), table("beside-the-paper-2", "a", "b"), table("costs", "a")
    shown = panels._shown_tables(Document("x", "", [Section("y", [other, rules]), Section("z", [beside])]))
    assert shown == [rules, beside]
    assert panels._shown_tables(Document("x", "", [Section("y", [other, beside]), Section("z", [])])) == [beside]
    assert panels._shown_tables(Document("x", "", [Section("y", [other])])) == [other]


def test_a_panel_that_cannot_be_played_says_why_and_the_others_go_on(
    tmp_path: Path, played: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = panels.plan_runs

    def refuse(asked: Any) -> Any:
        if asked.reproduction is SWEEP:
            raise UserError("no file of MNIST")
        return whole(asked)

    monkeypatch.setattr(panels, "plan_runs", refuse)
    first, second = play_all(Size.SMOKE, tmp_path, panels=[SWEEP, REPRODUCTIONS["channels_fig2b"]])
    assert not first.complete
    assert first.verdicts[0][1:] == ["no file of MNIST", "not played"]
    assert second.complete
    assert "1 of 2 panels played" in (tmp_path / "result.md").read_text()


def test_runs_of_another_command_are_not_touched(tmp_path: Path, played: list[str]) -> None:
    (tmp_path / SWEEP.name / RUNS).mkdir(parents=True)
    (panel,) = play_all(Size.SMOKE, tmp_path, panels=[SWEEP])
    assert "holds runs of another command" in panel.verdicts[0][1]
    assert not played


def test_a_damaged_record_is_no_record(tmp_path: Path) -> None:
    for content in ("{", "[]", json.dumps({"name": "x", "checksum": "y", "more": 1})):
        (tmp_path / panels.RECORD).write_text(content)
        assert read_panel(tmp_path) is None


def test_options_that_all_does_not_take_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    netsim = Shell(tmp_path, monkeypatch, capsys)
    for options in (["flow_cases"], ["--seeds", "1"], ["--set", "rounds=3"]):
        code, _, words = netsim("reproduce", *options, "--all", "--out", netsim.out)
        assert code == 2
        assert "--all takes --size, --jobs, --out and --quiet" in words
    assert not netsim.out.exists()


def test_the_command_plays_all_and_fails_where_a_panel_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given: dict[str, Any] = {}

    def play(size: Size, out: Path, **options: Any) -> list[Panel]:
        given.update(size=size, jobs=options["jobs"])
        return [Panel("a", "", [["r", "no data", "not played"]]), Panel("b", "", complete=True)]

    monkeypatch.setattr(panels, "play_all", play)
    netsim = Shell(tmp_path, monkeypatch, capsys)
    code, _, words = netsim("reproduce", "--all", "--size", "smoke", "--jobs", "2", "--out", netsim.out)
    assert code == 1
    assert given == {"size": Size.SMOKE, "jobs": 2}
    assert "a: not played: no data" in words
