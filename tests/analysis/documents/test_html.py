"""The HTML report read as a browser's parser reads it, and its tables as CSV and LaTeX. In a browser: `test_browser.py`."""

from __future__ import annotations

import base64
import csv
import io
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from analysis.documents.blocks import Bullets, Code, Document, Facts, Section, Table, Text
from analysis.documents.exports import csv_text, latex_table, write_tables
from analysis.documents.html import html_page, inline_svg
from analysis.figures.settings import FigureSettings
from analysis.report.scenario import scenario_changes
from analysis.report.write import write_report
from tests.helpers.result_folders import PARTS, ROUNDS, write_run, write_sweep

looks_at_the_page = pytest.mark.draws
"""Mark of the tests of the fixture `page`: it is built once, and some look at its images."""
NASTY = '<script>alert("1")</script> & "b"'
VOID = {"meta", "link", "br", "img", "path", "use", "rect", "image"}


class Page(HTMLParser):
    """What tests ask of a page: elements with their attributes, texts by element, and whether tags are balanced."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.open: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and data.strip():
            self.texts.append((self.open[-1], data.strip()))

    def attributes(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def text(self, tag: str) -> list[str]:
        return [text for name, text in self.texts if name == tag]


@pytest.fixture(scope="module")
def sweep_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = {"base": {1: ROUNDS, 2: ROUNDS}, "other": {1: ROUNDS, 2: ROUNDS}}
    folder = tmp_path_factory.mktemp("html")
    path = write_sweep(folder / "sweep", runs, baseline="base", target=0.5, simulated_s=15.0, other=NASTY)
    for scenario in path.glob("*/seed-*/scenario.toml"):
        kind = scenario.parent.parent.name
        text = f'name = "study"\ndescription = """{NASTY}"""\n[clients]\ncount = 7\n[server]\nper_round = 2\n'
        policy = f'[policy]\nkind = "{kind}"\n' + ("epsilon = 0.5\n" if kind == "other" else "")
        scenario.write_text(text + policy, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def page(sweep_path: Path) -> Page:
    return Page(write_report(sweep_path, sweep_path.parent / "page.html").read_text(encoding="utf-8"))


@looks_at_the_page
def test_sections_come_in_the_order_in_which_a_reader_asks(page: Page) -> None:
    assert page.text("h1") == ["study"]
    titles = page.text("h2")
    asked = ["What was asked and run", "What came out", "How sure", "Figures", "What the numbers mean", "Settings", "Versions"]
    assert titles == [*asked, "Commands", "Completeness"]
    links = [link["href"] for link in page.attributes("a") if (link["href"] or "").startswith("#s-")]
    assert [f"#{heading['id']}" for heading in page.attributes("h2")] == links


@looks_at_the_page
def test_every_anchor_and_reference_leads_somewhere_and_every_id_is_one(page: Page) -> None:
    ids = Counter(str(attributes["id"]) for _, attributes in page.elements if "id" in attributes)
    assert max(ids.values()) == 1
    links = [str(attributes.get("href", "")) for _, attributes in page.elements]
    referred = [link[1:] for link in links if link.startswith("#")]
    referred += [word for _, attributes in page.elements for word in str(attributes.get("aria-labelledby", "")).split()]
    clips = [str(attributes.get("clip-path", "")) for _, attributes in page.elements]
    referred += [found for clip in clips for found in re.findall(r"url\(#([^)]*)\)", clip)]
    assert len(clips) > 100 < len(referred)
    assert set(referred) <= set(ids)


@looks_at_the_page
def test_nothing_is_loaded_and_nothing_from_files_is_markup(page: Page) -> None:
    assert not page.attributes("script")
    policy = next(str(meta["content"]) for meta in page.attributes("meta") if "http-equiv" in meta)
    assert policy.startswith("default-src 'none'")
    for tag, attributes in page.elements:
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            if name in ("href", "src"):
                assert str(value).startswith(("#", "data:")), (tag, value)
    assert NASTY in page.text("th")
    assert NASTY in page.text("p")


@looks_at_the_page
def test_tables_have_captions_and_headers_and_figures_say_what_they_show(page: Page) -> None:
    assert len(page.attributes("table")) == len(page.text("caption")) >= 3
    assert {head["scope"] for head in page.attributes("th")} == {"col", "row"}
    pictures = [svg for svg in page.attributes("svg") if svg.get("role") == "img"]
    assert len(pictures) == len(page.attributes("figure")) == len(page.text("title")) - 1 >= 4
    assert len(page.text("desc")) == len(pictures)


@looks_at_the_page
def test_variants_say_how_they_differ(page: Page) -> None:
    assert 'policy = {kind = "other", epsilon = 0.5}' in page.text("td")
    assert "the baseline" in page.text("td")
    assert dict(zip(page.text("dt"), page.text("dd"), strict=True))["clients"] == "7"


@looks_at_the_page
def test_what_came_out_counts_the_metrics_without_a_difference(page: Page) -> None:
    # The variants of the page are equal in everything.
    (without,) = [text for text in page.text("li") if text.startswith("No difference of any variant shown: ")]
    assert "final accuracy (points)" in without


@pytest.mark.slow
def test_what_came_out_names_differences_first_and_counts_the_others(tmp_path: Path) -> None:
    slow = {seed: ROUNDS | {"end_s": [2.0, 4.0, 7.0, 11.0, 16.0 + seed / 100]} for seed in (1, 2)}
    runs = {"base": {1: ROUNDS, 2: ROUNDS}, **{f"v{index}": slow for index in range(10)}}
    made = Page(write_report(write_sweep(tmp_path / "s", runs, baseline="base"), tmp_path / "p.html").read_text(encoding="utf-8"))
    (told,) = [text for text in made.text("li") if text.startswith("mean round latency (s): more: v0 (+")]
    assert "v7 (+" in told
    assert "v8" not in told
    assert told.endswith(", and 2 more.")


@looks_at_the_page
def test_links_hold_the_tables(page: Page) -> None:
    held = {str(link["download"]): str(link["href"]) for link in page.attributes("a") if "download" in link}
    assert {"comparison.csv", "comparison.tex", "differences.csv", "variants.tex"} <= held.keys()
    kind, content = held["comparison.csv"].split(",", 1)
    assert kind == "data:text/csv;base64"
    rows = list(csv.reader(io.StringIO(base64.b64decode(content).decode())))
    assert [row[0] for row in rows] == ["variant", "base", NASTY]


@pytest.mark.slow
def test_the_same_folder_gives_the_same_bytes(sweep_path: Path, tmp_path: Path) -> None:
    first, second = (write_report(sweep_path, tmp_path / name / "report.html").read_bytes() for name in ("a", "b"))
    assert first == second


@pytest.mark.slow
def test_figures_are_written_as_files_too(sweep_path: Path, tmp_path: Path) -> None:
    page = Page(write_report(sweep_path, tmp_path / "r.html", images=["svg", "pdf"]).read_text(encoding="utf-8"))
    written = sorted(path.name for path in (tmp_path / "r-figures").iterdir())
    pictures = [svg for svg in page.attributes("svg") if svg.get("role") == "img"]
    assert len(written) == 2 * len(pictures)
    assert {"accuracy.pdf", "accuracy.svg", "latency.pdf"} <= set(written)


def test_a_run_has_a_page_too(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", ROUNDS, PARTS)
    made = Page(write_report(run, tmp_path / "out", figures=FigureSettings(target_accuracy=0.5)).read_text(encoding="utf-8"))
    assert "Where the time went" in made.text("h2")
    assert "netsim report run --target-accuracy 0.5" in "".join(made.text("code"))
    assert "One run, of one seed" in " ".join(made.text("p"))


def test_blocks_as_html() -> None:
    blocks = [Text("a<b", lead="c&d", warning=True), Bullets(["e"]), Facts([("f", "g")]), Code("x = 1 < 2", "toml", summary="s")]
    sections = [Section("Same", blocks), Section("Same", [])]
    made = Page(html_page(Document("t", "", sections), lambda _: ""))
    assert [heading["id"] for heading in made.attributes("h2")] == ["s-same", "s-same-2"]
    assert ("strong", "c&d") in made.texts
    assert ("code", "x = 1 < 2") in made.texts
    assert any(attributes.get("class") == "warning" for attributes in made.attributes("p"))


TABLE = Table("t", "50 % & more", (["who_1", "value"], [["[a]", "1 ± 2"], ["=1+1", "-3"]]), note="mean_x")


def test_latex_by_hand() -> None:
    assert latex_table(TABLE) == "\n".join(
        [
            r"% \usepackage{booktabs}",
            r"\begin{table}",
            r"\centering",
            r"\caption{50 \% \& more}",
            r"\label{tab:t}",
            r"\begin{tabular}{lr}",
            r"\toprule",
            r"who\_1 & value \\",
            r"\midrule",
            r"{[a]} & 1 $\pm$ 2 \\",
            r"=1+1 & $-$3 \\",
            r"\bottomrule",
            r"\end{tabular}",
            r"\par\smallskip\footnotesize mean\_x",
            r"\end{table}",
            "",
        ]
    )


def test_csv_is_no_formula() -> None:
    read = list(csv.reader(io.StringIO(csv_text(TABLE))))
    assert read == [["who_1", "value", "value ±"], ["[a]", "1", "2"], ["'=1+1", "-3", ""]]


def test_csv_holds_numbers_in_columns_of_their_own() -> None:
    cells = (
        ["variant", "regret", "time (s)", "share (%)", "who"],
        [
            ["a", "1,800 ± 0", "12.5 ± 1.25 (2 of 3)", "-3.5", "1,2"],
            ["b", "-∞", "not by 20 s", "—", "7"],
        ],
    )
    table = Table("t", "caption", cells, words=(0, 4))
    rows = list(csv.reader(io.StringIO(csv_text(table))))
    assert rows[0] == ["variant", "regret", "regret ±", "time (s)", "time (s) ±", "time (s) (remark)", "share (%)", "who"]
    assert rows[1] == ["a", "1800", "0", "12.5", "1.25", "2 of 3", "-3.5", "1,2"]
    assert rows[2] == ["b", "-inf", "", "", "", "not by 20 s", "", "7"]
    text = latex_table(table)
    assert r"& 1,800 $\pm$ 0 & 12.5 $\pm$ 1.25 (2 of 3) & $-$3.5 & 1,2 \\" in text
    assert r"b & $-$$\infty$ & not by 20 s & --- & 7 \\" in text


def test_tables_are_written_in_both_formats(tmp_path: Path) -> None:
    assert [path.name for path in write_tables([TABLE], tmp_path / "x")] == ["t.csv", "t.tex"]
    assert (tmp_path / "x" / "t.csv").read_text(encoding="utf-8") == csv_text(TABLE)


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"name": "b", "seed": 4, "a": {"kind": "k", "x": 1}}, []),
        ({"a": {"kind": "k", "x": 2.5}}, ["a.x = 2.5"]),
        ({"a": {"kind": "l", "y": [1, "z"]}}, ['a = {kind = "l", y = [1, "z"]}']),
        ({}, ["without a"]),
        ({"a": {"kind": "k", "x": 1}, "b": list(range(9))}, ["b = [0, 1, 2, 3, 4, 5, 6, 7, .. 9 values]"]),
    ],
)
def test_changes_by_hand(other: dict[str, Any], told: list[str]) -> None:
    assert list(scenario_changes({"name": "a", "seed": 1, "a": {"kind": "k", "x": 1}}, other)) == told


def test_an_svg_within_a_page_shares_no_id_and_follows_the_colours() -> None:
    text = (
        '<?xml version="1.0"?><svg xmlns:xlink="x" width="3pt" viewBox="0 0 3 3"><metadata>m</metadata><g id="a">'
        '<path d="M 1.23456 -2.3333 L 3 4" style="stroke: #222222; fill: #d55e00" clip-path="url(#c)"/>'
        '<use xlink:href="#g"/></g></svg>'
    )
    assert inline_svg(text, "n", "<t>", "d") == (
        '<svg viewBox="0 0 3 3" role="img" aria-labelledby="n-title n-desc" xmlns="http://www.w3.org/2000/svg">'
        '<title id="n-title">&lt;t&gt;</title><desc id="n-desc">d</desc><g id="n-a">'
        '<path d="M 1.23 -2.33 L 3 4" style="stroke: var(--ink); fill: #d55e00" clip-path="url(#n-c)"/>'
        '<use href="#n-g"/></g></svg>'
    )


def test_long_tables_are_folded_and_numbers_stay_with_their_signs() -> None:
    def page(rows: int) -> Page:
        cells = (["", "x"], [[f"v{i}", "1.0 ± 0.5"] for i in range(rows)])
        return Page(html_page(Document("t", "", [Section("s", [Table("t", "Many variants", cells)])]), lambda it: ""))

    short, long = page(20), page(21)
    assert short.text("summary") == []
    assert long.text("summary") == ["Many variants: 21 rows"]
    assert long.text("td")[0] == "1.0 ±\u00a00.5"
    assert {"class": "block long"} in long.attributes("div")


@pytest.mark.parametrize(("columns", "wide"), [(7, False), (8, True)])
def test_a_table_of_many_columns_takes_the_width_of_the_window(columns: int, wide: bool) -> None:
    table = Table("t", "caption", ([f"metric {i}" for i in range(columns)], [["12,345 ± 678"] * columns]))
    document = Document("title", "", [Section("section", [table])])
    assert ('<div class="block wide">' in html_page(document, lambda picture: "")) == wide
