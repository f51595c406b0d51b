"""The pages under docs/ and the README say what is so: generated pages are up to date, links lead somewhere, names exist."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from analysis.results.run import COLUMNS
from netsim.core.rows import FORMAT, ROWS, RoundRow, UpdateRow, schema_of
from scenarios.cli.main import main
from scenarios.runs.reading import load, shipped_files
from scenarios.runs.run import run

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def _anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def _defined(tree: ast.Module, name: str) -> bool:
    body: list[ast.stmt] = tree.body
    for part in name.split("."):
        found = [n for n in body if isinstance(n, ast.ClassDef | ast.FunctionDef) and n.name == part]
        if not found:
            return False
        body = found[0].body
    return True


def test_the_reference_shows_no_python() -> None:
    assert ">>>" not in (ROOT / "docs/scenario-reference.md").read_text()


@pytest.mark.parametrize(("file", "options"), [("scenario-reference.md", ["--markdown"]), ("scenario.schema.json", [])])
def test_the_generated_pages_are_what_the_command_prints(file, options, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["netsim", "schema", *options])
    with pytest.raises(SystemExit, match="0"):
        main()
    assert (ROOT / "docs" / file).read_text(encoding="utf-8") == capsys.readouterr().out, "run `make docs`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if target.startswith("http"):
            continue
        file, _, anchor = target.partition("#")
        place = page.parent / file if file else page
        assert place.exists(), target
        assert not anchor or anchor in _anchors(place), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_names_of_functions_and_classes_exist(page):
    for module, name in re.findall(
        r"`((?:netsim|models|scenarios|analysis)(?:\.\w+)+):([\w.]+)`", page.read_text(encoding="utf-8")
    ):
        file = ROOT / (module.replace(".", "/") + ".py")
        assert file.exists(), module
        assert _defined(ast.parse(file.read_text(encoding="utf-8")), name), f"{module}:{name}"


def _rows(page: Path) -> list[list[str]]:
    """The cells of every row of the page's tables, without headers."""
    rows = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows]
    return [row for row in cells if row[0] != "paper" and set(row[0]) != {"-"}]


def test_every_equation_leads_to_code_and_to_a_test():
    for row in _rows(ROOT / "docs/equations.md"):
        _, what, where, tests, _ = row
        # Whether names and links of the second column exist is tested above.
        assert re.search(r"`\w+(\.\w+)+:\w+|\]\(|`tests/benchmarks`", where), what
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", tests)
        assert named, what
        for file, name in named:
            assert (ROOT / file).exists(), f"{what}: {file}"
            assert _defined(ast.parse((ROOT / file).read_text(encoding="utf-8")), name), f"{what}: {file}::{name}"


def test_the_bound_of_theorem_1_is_worked_out_from_a_run_as_the_page_says(tmp_path, monkeypatch, capsys):
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/equations.md").read_text(encoding="utf-8"), re.DOTALL)
    run(load("channels_fig2a", ["rounds=50"]), tmp_path / "runs" / "mine")
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "equations.md", "exec"), {})
    total, participation, staleness = map(float, re.findall(r"[\d.]+(?:e[-+]\d+)?", capsys.readouterr().out))
    assert total > participation > staleness > 0.0


def test_scenarios_point_editors_to_the_schema():
    for file in shipped_files():
        first = file.read_text(encoding="utf-8").splitlines()[0]
        assert first == "#:schema ../../../docs/scenario.schema.json", file.name


SCHEMAS = {name: schema_of(name) for name in ROWS if name not in ("beliefs", "evaluations")}


def _documented(text: str) -> dict[str, dict[str, str]]:
    """Table -> column -> type, as the page says: in the section of a table, or below a line that names one."""
    found: dict[str, dict[str, str]] = {name: {} for name in SCHEMAS}
    table = None
    for line in text.splitlines():
        named = re.match(r"(?:## |In `|`)(\w+)\.parquet", line) or re.search(r"In `(\w+)\.parquet`:$", line)
        row = re.match(r"\| (`.+?) \| (.+?) \|", line)
        if named is not None:
            table = named[1]
        elif line.startswith("## "):
            table = None
        elif row is not None and table in found:
            found[table] |= dict.fromkeys(re.findall(r"`(\w+)`", row[1]), row[2])
    return found


@pytest.mark.parametrize("table", SCHEMAS)
def test_every_column_is_documented_with_its_type_and_nothing_else_is(table):
    text = (ROOT / "docs/tables.md").read_text(encoding="utf-8")
    assert f"Format version **{FORMAT}**" in text
    names = {f"dictionary<values=string, indices={index}, ordered=0>": "dictionary of strings" for index in ("int8", "int32")}
    kinds = {"double": "float64"} | names
    types = {field.name: kinds.get(str(field.type), str(field.type)) for field in SCHEMAS[table]}
    assert _documented(text)[table] == types


@pytest.mark.parametrize(("table", "row"), [("rounds", RoundRow), ("clients", UpdateRow)])
def test_every_column_that_all_servers_fill_can_be_read(table, row):
    assert {name for name in row._fields if name not in row._field_defaults} <= set(COLUMNS[table])


def test_every_key_of_a_summary_is_documented(tmp_path):
    summary = run(load("unreliable", ["rounds=2"]), tmp_path / "run")
    text = (ROOT / "docs/tables.md").read_text(encoding="utf-8").split("## summary.json")[1].split("\n## ")[0]
    documented = {name.split(".")[0] for name in re.findall(r"`([\w.]+)`", text)}
    assert set(summary) <= documented
    assert {f"final.{key}" for key in summary["final"]} <= set(re.findall(r"`([\w.]+)`", text))
    metadata = pq.read_schema(tmp_path / "run" / "rounds.parquet").metadata
    assert metadata[b"netsim.table"] == b"rounds"
