"""All reproductions one after the other, `netsim reproduce --all`: resumable, with one page of verdicts.

A panel is a reproduction on that page. Its folder has a record, `panel.json`. A panel is not played again if its record is
complete and has the checksum of the present code, scenario and size. An interrupted panel goes on with its sweep. A panel of
other code begins again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from scenarios.papers.costs import duration_words
from scenarios.papers.registry import REPRODUCTIONS
from scenarios.papers.reproduce import NOTHING, RUNS, Request, judge_without_sweep, plan_runs, reproduce, write_result
from scenarios.papers.rules import Verdict
from scenarios.papers.study import Reproduction, Size
from scenarios.runs.folders.replacement import SUMMARY
from scenarios.schema.errors import UserError
from scenarios.sweeps.sweep import Plan
from scenarios.sweeps.workers import SweepProgress

if TYPE_CHECKING:
    from analysis.documents.blocks import Beside, Block, Document, Picture, Table, Text

RECORD = "panel.json"
_FAILED = "not played"
_ROOT = Path(__file__).resolve().parents[2]
_PACKAGES = ("netsim", "models", "scenarios", "analysis")


@dataclass(frozen=True, slots=True)
class Panel:
    """Record of a played reproduction: what the page shows of it.

    Attributes:
        name: name of the reproduction.
        checksum: checksum of the code, the scenario and the size that it was played with.
        verdicts: rows of three cells: the paper's rule, the result here with its interval, and the verdict.
        tables: fields of the shown tables (`Table`): those with verdicts, and those with the paper's numbers.
        seeds: number and range of the seeds, as text.
        core_s: processor seconds of all its runs, also before an interruption; of this process if nothing is simulated.
        figure: file of the first figure, relative to the panel's folder; empty if it has none.
        complete: True if all files are written.
    """

    name: str
    checksum: str
    verdicts: Sequence[Sequence[str]] = ()
    tables: Sequence[Mapping[str, Any]] = ()
    seeds: str = ""
    core_s: float = 0.0
    figure: str = ""
    complete: bool = False


@cache
def code_checksum() -> str:
    """Return the SHA-256 of all sources and scenarios of the installed packages."""
    digest = hashlib.sha256()
    for package in _PACKAGES:
        for file in sorted(path for path in (_ROOT / package).rglob("*") if path.suffix in (".py", ".toml", ".csv", ".json")):
            digest.update(f"{file.relative_to(_ROOT).as_posix()}\0".encode())
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def panel_checksum(request: Request) -> str:
    """Return the checksum of a panel: the SHA-256 of all code and scenarios, its size, seeds and settings."""
    parts = [code_checksum(), request.command, *request.setup.settings, *map(str, request.setup.seeds)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def read_panel(folder: Path) -> Panel | None:
    """Return the record in a panel's folder; None if there is no readable one."""
    try:
        return Panel(**json.loads((folder / RECORD).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _save_record(panel: Panel, folder: Path) -> None:
    """Write the record of a panel into its folder."""
    from analysis.files import write_whole

    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / RECORD, (json.dumps(asdict(panel), indent=1) + "\n").encode())


Show = Callable[[Plan], AbstractContextManager[Callable[[SweepProgress], None] | None]]
"""Function that takes the runs of one panel and returns the context in which their progress is shown."""


def _show_no_progress(runs: Plan) -> AbstractContextManager[None]:
    """Return a context that shows no progress of the runs."""
    return nullcontext()


def play_panel(request: Request, folder: Path, jobs: int | None = None, show: Show = _show_no_progress) -> Panel:
    """Run one panel into its folder, write its result, and return its record.

    A panel with a complete record of equal checksum is not run again; one that was interrupted keeps its runs, if its checksum is
    equal. The complete record is written last, after all files. `jobs`: processes; None: all cores.

    Raises:
        UserError: it cannot be played, such as without the files of a data set.
    """
    name, checksum, earlier = request.reproduction.name, panel_checksum(request), read_panel(folder)
    is_current = earlier is not None and earlier.checksum == checksum
    if earlier is not None and is_current and earlier.complete:
        return earlier
    if not is_current:
        _discard_runs(folder, earlier)
        # The incomplete record marks the runs that follow as those of the present code.
        _save_record(Panel(name, checksum), folder)
    start_s = time.process_time()
    if request.reproduction.judge is not None:
        document, agrees = judge_without_sweep(request, None, folder)
        verdicts = []
        if agrees is not None:
            verdicts.append(["values as published", NOTHING, "as in the paper" if agrees else "not as in the paper"])
    else:
        runs = plan_runs(request)
        with show(runs) if runs.runs else nullcontext() as progress:
            document = reproduce(request, folder, runs, jobs=jobs, progress=progress)
        verdicts = read_verdicts(document)
    if not verdicts:
        verdicts.append(["no rule: numbers stand in its result.html", NOTHING, NOTHING])
    write_result(document, folder)
    panel = Panel(
        name=name,
        checksum=checksum,
        verdicts=verdicts,
        tables=[_table_fields(table) for table in _shown_tables(document)],
        seeds=_seeds_cell(request),
        core_s=_runs_core_s(folder / RUNS) or time.process_time() - start_s,
        figure=_first_figure(document),
        complete=True,
    )
    _save_record(panel, folder)
    return panel


def _discard_runs(folder: Path, earlier: Panel | None) -> None:
    """Remove the runs of other code from a panel's folder, if there are any; raise UserError if another command made them.

    `earlier`: record in the folder; None: there is none, so that this command did not make the runs.
    """
    if earlier is not None:
        shutil.rmtree(folder / RUNS, ignore_errors=True)
    elif (folder / RUNS).exists():
        raise UserError(f"{folder}: holds runs of another command; name a new folder by --out")


def _table_fields(table: Table) -> dict[str, Any]:
    """Return the fields of a table as plain data, with lists in place of tuples, as JSON returns them."""
    return asdict(table) | {"cells": list(table.cells), "words": list(table.words)}


def _runs_core_s(runs: Path) -> float:
    """Return the processor seconds of all runs of a sweep, as their summaries state them; 0 without runs."""
    summaries = (json.loads(path.read_text(encoding="utf-8")) for path in runs.rglob(SUMMARY))
    return sum(float(summary["machine"]["cpu_time_s"]) for summary in summaries)


def _shown_tables(document: Document) -> list[Table]:
    """Return the tables of a result for the common page: those of verdicts and of the paper's numbers, or else its first."""
    tables = document.tables
    shown = [table for table in tables if table.cells[0][-1] == "verdict" or table.name.startswith("beside-the-paper")]
    return shown or list(tables[:1])


def read_verdicts(document: Document) -> list[list[str]]:
    """Return the verdicts of a result, as rows of three cells: rule, result here and verdict.

    A table of rules has these three columns. A wider table has a verdict in each row, and becomes one row with their counts.
    """
    verdicts: list[list[str]] = []
    for table in document.tables:
        header, rows = table.cells
        if header[-1] != "verdict":
            continue
        if len(header) == 3:
            verdicts += rows
            continue
        counts = Counter(row[-1] for row in rows)
        text = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
        verdicts.append([f"{table.caption}: {len(rows)} numbers", NOTHING, text])
    return verdicts


def _seeds_cell(request: Request) -> str:
    """Return the number of seeds and their range as text, such as "10 (1 to 10)"; a dash if nothing is simulated."""
    seeds = request.seeds or request.setup.seeds
    simulates = request.reproduction.judge is None and not request.reproduction.solvers
    if not seeds or not simulates:
        return NOTHING
    if len(seeds) == 1:
        return f"1 ({seeds[0]})"
    return f"{len(seeds)} ({min(seeds)} to {max(seeds)})"


def _first_figure(document: Document) -> str:
    """Return the file of the first figure of a result; empty if it has none."""
    pictures = document.pictures
    return f"figures/{pictures[0].name}.svg" if pictures else ""


def play_all(
    size: Size,
    out: Path,
    *,
    jobs: int | None = None,
    tell: Callable[[str], None] = lambda line: None,
    show: Show = _show_no_progress,
    panels: Sequence[Reproduction] | None = None,
) -> list[Panel]:
    """Play all panels at a size, each into a folder of `out`, and write `out`/result.html and result.md after each.

    Args:
        size: size of all of them.
        out: folder of this command only.
        jobs: processes; None: all cores.
        tell: function called before each panel with a line: its number and the time left.
        show: function that shows the progress of a panel's runs.
        panels: reproductions to play; None: all.

    Returns:
        The record of each panel. A panel that cannot be played has the reason as its verdict.
    """
    requests = [Request(study, size) for study in (REPRODUCTIONS.values() if panels is None else panels)]
    records: list[Panel] = []
    pace = _Pace(jobs or os.cpu_count() or 1)
    for number, request in enumerate(requests, 1):
        name = request.reproduction.name
        folder = out / name
        # Of this panel and all that follow. Playing a panel changes its record, so that this is read again each time.
        expected_s = [_expected_core_s(other, out / other.reproduction.name) for other in requests[number - 1 :]]
        left_s = pace.left_s(expected_s)
        left_text = f"; about {duration_words(left_s)} left" if left_s else ""
        tell(f"[{number}/{len(requests)}] {name}{left_text}")
        start_s = time.monotonic()
        try:
            panel = play_panel(request, folder, jobs, show)
            pace.add(expected_s[0], time.monotonic() - start_s)
        except (UserError, ValueError, OSError) as error:
            panel = Panel(name, panel_checksum(request), verdicts=[[NOTHING, str(error), _FAILED]])
        records.append(panel)
        write_page(records, len(requests), size, out)
    return records


def _expected_core_s(request: Request, folder: Path) -> float:
    """Return the expected processor seconds of a panel: as its last complete record says, or else as its size costs.

    0 if that record has the present checksum, so that the panel is not played again.
    """
    earlier = read_panel(folder)
    if earlier is None or not earlier.complete:
        return request.cost.core_s + _OVERHEAD_S
    return 0.0 if earlier.checksum == panel_checksum(request) else earlier.core_s + _OVERHEAD_S


_OVERHEAD_S = 15.0
"""Processor seconds of a panel apart from its runs: start of processes, imports, figures."""


class _Pace:
    """Wall seconds per processor second, measured over the panels played so far. It starts with that of `jobs` idle cores."""

    def __init__(self, jobs: int) -> None:
        self._expected_s, self._wall_s = float(jobs), 1.0

    def add(self, expected_s: float, wall_s: float) -> None:
        """Add the wall time of a panel with `expected_s` processor seconds. A panel with 0 was not played, and is ignored."""
        if expected_s:
            self._expected_s += expected_s
            self._wall_s += wall_s

    def left_s(self, expected_s: Sequence[float]) -> float:
        """Return the expected wall seconds of panels with these processor seconds."""
        return sum(expected_s) * self._wall_s / self._expected_s


def write_page(panels: Sequence[Panel], number: int, size: Size, out: Path) -> None:
    """Write `out`/result.html and result.md of the panels played so far, out of `number`: an overview, and a row a panel."""
    from analysis.documents.blocks import Document, Section
    from analysis.documents.html import html_page, inline_svg
    from analysis.documents.markdown import markdown_page
    from analysis.figures.style import svg_text
    from analysis.files import write_whole

    sections = [Section("All together", [_page_summary(panels, number, size), *_smoke_warning(size), _overview(panels)])]
    blocks_by_paper: dict[str, list[Block]] = {}
    for panel in panels:
        blocks_by_paper.setdefault(REPRODUCTIONS[panel.name].paper, []).append(_panel_block(panel, out))
    sections += [Section(paper, blocks) for paper, blocks in blocks_by_paper.items()]
    document = Document("Figures and tables of the papers", "", sections)

    def picture_svg(picture: Picture) -> str:
        return inline_svg(svg_text(picture.figure), picture.name, picture.caption, picture.figure.description)

    write_whole(out / "result.html", html_page(document, picture_svg).encode())
    write_whole(out / "result.md", markdown_page(document, {}).encode())


def _page_summary(panels: Sequence[Panel], number: int, size: Size) -> Text:
    """Return the first sentence of the page: panels played out of `number`, processor time, and counts of verdicts."""
    from analysis.documents.blocks import Text
    from scenarios.runs.unfinished import version

    counts = Counter(row[2] for panel in panels for row in panel.verdicts if row[2] in get_args(Verdict))
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())) or "none decided"
    played = sum(panel.complete for panel in panels)
    total = duration_words(sum(panel.core_s for panel in panels))
    return Text(f"{played} of {number} panels played, size {size}, netsim {version()}, {total} of one core. Rules: {verdicts}.")


def _overview(panels: Sequence[Panel]) -> Table:
    """Return the table with a row for each panel."""
    from analysis.documents.blocks import Table

    header = ["panel", "shows", "verdicts", "seeds", "processor time"]
    rows = []
    for panel in panels:
        seeds = panel.seeds or NOTHING
        rows.append([panel.name, _short_title(panel), _verdicts_text(panel), seeds, _time_text(panel)])
    note = "The rules were fixed before the runs; all rules of a panel hold together with a confidence of 95 %."
    return Table("panels", "Panels", (header, rows), note=note, words=(0, 1, 2), unfolded=True)


def _smoke_warning(size: Size) -> list[Text]:
    """Return the warning of the size smoke, as a list of one; empty for other sizes."""
    from analysis.documents.blocks import Text

    words = "This size shows that it works; its numbers say nothing of the papers."
    return [Text(words, warning=True)] if size is Size.SMOKE else []


def _short_title(panel: Panel) -> str:
    """Return what a panel shows, up to the first colon."""
    return REPRODUCTIONS[panel.name].shows.partition(":")[0]


def _verdicts_text(panel: Panel) -> str:
    """Return the counts of verdicts as text, such as "2 open, 1 as in the paper"; a single verdict without a count."""
    verdicts = [row[2] for row in panel.verdicts]
    if len(verdicts) == 1:
        return verdicts[0]
    return ", ".join(f"{count} {verdict}" for verdict, count in Counter(verdicts).items() if verdict != NOTHING)


def _time_text(panel: Panel) -> str:
    """Return the processor time of a panel as text; a dash if it is not complete."""
    return duration_words(panel.core_s) if panel.complete else NOTHING


def _panel_block(panel: Panel, out: Path) -> Beside:
    """Return the row of a panel on the page: subject, seeds, time and tables on the left, its first figure on the right."""
    from analysis.documents.blocks import Beside, SavedPicture, Table, Text

    shows = REPRODUCTIONS[panel.name].shows
    facts = [] if panel.seeds in ("", NOTHING) else [f"seeds: {panel.seeds}"]
    facts.append(f"{_time_text(panel)} of one core" if panel.complete else _FAILED)
    prefix = panel.name.replace("_", "-")  # tables of all panels stand on one page, and need different names
    tables = [Table(**{**fields, "name": f"{prefix}-{fields['name']}"}) for fields in panel.tables]
    if not tables:
        rows = [list(verdict) for verdict in panel.verdicts]
        tables = [Table(prefix, "Verdict", (["the paper", "here", "verdict"], rows), words=(0, 1, 2))]
    picture = None
    if panel.figure:
        path = f"{panel.name}/{panel.figure}"
        picture = SavedPicture(prefix, f"{panel.name}: {_short_title(panel)}", path, (out / path).read_text(encoding="utf-8"))
    return Beside([Text(f"{shows}. {'; '.join(facts)}.", lead=panel.name), *tables], picture)
