"""Numbers of README and the result pages are those of the tables that `make results` measured."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pandas as pd
import pytest

from scenarios.papers.registry import find_reproduction
from tests.measured.record import IMAGES, PAGES, ROOT, TABLES, cells_of, checksum_of, marked_tables, read, shown_rows
from tests.measured.studies import STUDIES, PanelStudy, age_regret, average_differences, averages

if TYPE_CHECKING:
    from analysis.results.sweep import Sweep

CLAIMS: list[dict[str, Any]] = tomllib.loads((TABLES / "claims.toml").read_text(encoding="utf-8"))["claims"]
NUMBER = re.compile(r"[+-]?\d[\d,]*(?:\.\d+)?")
RESULTS = ROOT / "docs" / "results.md"
MEASURED = sorted(file.stem for file in TABLES.glob("*.json"))
"""Studies that were measured; further ones wait for the next `make results`."""


def first_number(text: str) -> tuple[float, int]:
    """Return the first number of a text, and how many decimals it shows."""
    found = NUMBER.search(text)
    assert found is not None, f"no number in {text!r}"
    return float(found[0].replace(",", "")), len(found[0].partition(".")[2])


def at(study: str, table: str, row: str, column: int) -> float:
    """Return the number in a cell of a measured table."""
    (cells,) = [cells for cells in read(study).tables[table][1] if cells[0] == row]
    return first_number(cells[column])[0]


def one_line(text: str) -> str:
    return " ".join(text.split())


def differences(page: Path) -> list[str]:
    """Return the rows of the marked tables of a page that are not as they were measured."""
    found = []
    for table in marked_tables(page.read_text(encoding="utf-8")):
        shown = [cells_of(line) for line in table["rows"].splitlines()]
        found += [f"{page.name}: {row}, measured: {new}" for row, new in zip(shown, shown_rows(table), strict=True) if row != new]
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_tables_of_a_page_are_those_that_were_measured(page: Path) -> None:
    assert not differences(page)


def test_every_mark_is_read_and_every_measured_study_is_shown() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    # A mark that stands before anything but a table would never be compared.
    assert text.count("<!-- measured: ") == len(list(marked_tables(text)))
    shown = {found["study"] for found in marked_tables(text)}
    assert shown == set(MEASURED) <= set(STUDIES)


def test_every_image_of_the_pages_was_drawn_with_the_tables_of_its_study() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    drawn = {image: checksum for study in MEASURED for image, checksum in read(study).images.items()}
    assert set(re.findall(r"images/([\w-]+\.png)\)", text)) == set(drawn)
    assert {image: checksum_of(IMAGES / image) for image in drawn} == drawn
    for study in MEASURED:
        assert set(read(study).images) == set(STUDIES[study].image_files(Path())), study


@pytest.mark.parametrize("study", MEASURED)
def test_a_table_names_the_command_that_makes_it(study: str) -> None:
    assert read(study).command == STUDIES[study].command
    pages = [page.name for page in PAGES if f"    {STUDIES[study].command}" in page.read_text(encoding="utf-8")]
    assert pages, f"no page shows the command {STUDIES[study].command}"


def test_the_page_of_results_says_which_version_measured_what() -> None:
    text = RESULTS.read_text(encoding="utf-8")
    for study in MEASURED:
        assert re.search(rf"^\| `{study}` \| [^|]+ \| {re.escape(read(study).netsim)} \|$", text, re.MULTILINE), study


PANELS = {name: study for name in MEASURED if isinstance(study := STUDIES[name], PanelStudy) and not name.startswith("safa")}
"""Figures and tables that are judged by rules; the tables of SAFA are judged cell by cell."""


@pytest.mark.parametrize("study", PANELS)
def test_the_list_of_panels_has_size_seeds_version_and_verdicts_as_measured(study: str) -> None:
    measured, panel = read(study), PANELS[study]
    rows = measured.tables.get("verdict", ([], []))[1]
    counts = [f"{number} {verdict}" for verdict, number in Counter(row[-1] for row in rows).most_common()]
    words = ", ".join(counts).replace(" ", f" of {len(rows)} ", 1) or "nothing published to be judged by"
    seeds = list(panel.seeds or find_reproduction(panel.name).sizes[panel.size].seeds)
    some = f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 2 else ", ".join(map(str, seeds)) or "—"
    row = rf"^\| `{panel.name}` \| {panel.size.value} \| {some}[^|]* \| {re.escape(measured.netsim)} \| {re.escape(words)} \|"
    assert re.search(row, RESULTS.read_text(encoding="utf-8"), re.MULTILINE), row


def test_the_readme_shows_the_quick_start_as_measured() -> None:
    lines = {one_line(line) for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines()}
    for row in read("quickstart").tables["variants"][1]:
        assert " ".join(row) in lines


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim["text"])
def test_numbers_in_sentences_follow_from_the_tables(claim: dict[str, Any]) -> None:
    assert claim["text"] in one_line((ROOT / claim["page"]).read_text(encoding="utf-8"))
    value = eval(claim["value"], {"at": at})
    if "between" in claim:
        low, high = claim["between"]
        assert low <= value <= high
    else:
        number, decimals = first_number(claim["text"])
        assert number == pytest.approx(round(value, decimals)), value


def test_averages_and_paired_differences_by_hand() -> None:
    ages = {("none", 1): [1, 2], ("none", 2): [3, 4], ("jammed", 2): [5, 9], ("jammed", 1): [1, 4]}
    runs = [
        SimpleNamespace(label=label, seed=seed, rounds=pd.DataFrame({"round": [1, 2], "sum_age": age, "oracle_sum_age": [1, 1]}))
        for (label, seed), age in ages.items()
    ]
    columns = {"regret at 1": age_regret(1), "at 2": age_regret(2)}
    header, rows = averages(columns)(cast("Sweep", runs))
    # Ages minus 1 by seed, at round 1 and up to round 2: none 0, 2 and 1, 5; jammed 0, 4 and 3, 12.
    assert header == ["variant", "regret at 1", "at 2"]
    assert [[cell.partition(" ")[0] for cell in row] for row in rows] == [["none", "1", "3"], ["jammed", "2", "8"]]
    _, (row,) = average_differences(columns)(cast("Sweep", runs))
    # At equal seeds: 0, 2 and 2, 7; half-widths are Student's 12.71 times |a - b| / 2.
    assert row == ["jammed", "+1 ± 13", "+4 ± 32"]


def test_a_digit_that_is_wrong_is_found(tmp_path: Path) -> None:
    (row,) = [row for row in read("quickstart").tables["variants"][1] if row[0] == "PAUSE"]
    page, mark = tmp_path / "page.md", "<!-- measured: quickstart/variants 0 1 -->\n\n| a | b |\n| --- | ---: |\n"
    page.write_text(f"{mark}| {row[0]} | {row[1]} |\n")
    assert not differences(page)
    page.write_text(f"{mark}| {row[0]} | {row[1].replace('1', '7', 1)} |\n")
    assert len(differences(page)) == 1
