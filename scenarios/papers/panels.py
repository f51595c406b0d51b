"""All reproductions one after the other, `netsim reproduce --all`: resumable, with one page of verdicts.

Each panel has a folder with a record, `panel.json`. A panel whose record is complete and has the checksum of the present code,
scenario and size is not played again; one that was interrupted goes on with its sweep; one of other code begins again.
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
from scenarios.papers.reproduce import NOTHING, RUNS, Request, judge, plan_runs, reproduce, write
from scenarios.papers.rules import Verdict
from scenarios.papers.study import Reproduction, Size
from scenarios.runs.folders.replacement import SUMMARY
from scenarios.schema.errors import UserError
from scenarios.sweeps.sweep import Plan
from scenarios.sweeps.workers import SweepProgress

if TYPE_CHECKING:
    from analysis.documents.blocks import Beside, Document, Table, Text

RECORD = "panel.json"
_FAILED = "not played"
_ROOT = Path(__file__).resolve().parents[2]
_PACKAGES = ("netsim", "models", "scenarios", "analysis")


@dataclass(frozen=True, slots=True)
class Panel:
    """Result of a reproduction on the page.

    Attributes:
        checksum: of the code, the scenario and the size that it was played with.
        verdicts: rows with the paper's rule, the result here with its interval, and the verdict.
        tables: fields of the tables with verdicts, and of those with the paper's numbers (`Table`).
        seeds: the seeds, in words.
        core_s: processor time of all its runs, also before an interruption; of this process if nothing is simulated.
        figure: the first figure, relative to the panel's folder; empty if it has none.
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


def checksum(request: Request) -> str:
    """Return the SHA-256 of the code and the scenarios, and of a panel at its size with its seeds and settings."""
    parts = [code_checksum(), request.command, *request.setup.settings, *map(str, request.setup.seeds)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def read_panel(folder: Path) -> Panel | None:
    """Return the record of a panel's folder; None if it has none that can be read."""
    try:
        return Panel(**json.loads((folder / RECORD).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _save(panel: Panel, folder: Path) -> None:
    """Write the record of a panel into its folder."""
    from analysis.files import write_whole

    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / RECORD, (json.dumps(asdict(panel), indent=1) + "\n").encode())


Show = Callable[[Plan], AbstractContextManager[Callable[[SweepProgress], None] | None]]
"""Function that shows the progress of one panel's runs."""


def _show_nothing(runs: Plan) -> AbstractContextManager[None]:
    """Show no progress."""
    return nullcontext()


def play(request: Request, folder: Path, jobs: int | None = None, show: Show = _show_nothing) -> Panel:
    """Run one panel into its folder, write its result, and return its record. A complete record of equal checksum is kept.

    Raises:
        UserError: it cannot be played, such as without files of a data set.
    """
    current, earlier = checksum(request), read_panel(folder)
    if earlier is not None and earlier.checksum == current:
        if earlier.complete:
            return earlier
    else:
        # Remove runs of other code. Without a record, runs in the folder are not from this command.
        if earlier is not None:
            shutil.rmtree(folder / RUNS, ignore_errors=True)
        elif (folder / RUNS).exists():
            raise UserError(f"{folder}: holds runs of another command; name a new folder by --out")
        _save(Panel(request.what.name, current), folder)
    begun_s = time.process_time()
    if request.what.judge is not None:
        document, agrees = judge(request, None, folder)
        verdicts = [] if agrees is None else [["values as published", NOTHING, f"{'' if agrees else 'not '}as in the paper"]]
    else:
        runs = plan_runs(request)
        with show(runs) if runs.runs else nullcontext() as progress:
            document = reproduce(request, folder, runs, jobs=jobs, progress=progress)
        verdicts = read_verdicts(document)
    verdicts = verdicts or [["no rule: numbers stand in its result.html", NOTHING, NOTHING]]
    write(document, folder)
    panel = Panel(
        request.what.name,
        current,
        verdicts,
        [_fields(table) for table in _shown_tables(document)],
        _seeds_text(request),
        _core_s(folder / RUNS) or time.process_time() - begun_s,
        _first_figure(document),
        complete=True,
    )
    _save(panel, folder)
    return panel


def _fields(table: Table) -> dict[str, Any]:
    """Return the fields of a table as they come back from JSON."""
    return asdict(table) | {"cells": list(table.cells), "words": list(table.words)}


def _core_s(runs: Path) -> float:
    """Return the processor seconds that the runs of a sweep took, as their summaries state them; 0 without runs."""
    summaries = (json.loads(path.read_text(encoding="utf-8")) for path in runs.rglob(SUMMARY))
    return sum(float(summary["machine"]["cpu_time_s"]) for summary in summaries)


def _shown_tables(document: Document) -> list[Table]:
    """Return the tables of a result that stand on the page of all: verdicts, and numbers beside the paper's; else the first."""
    tables = document.tables
    shown = [table for table in tables if table.cells[0][-1] == "verdict" or table.name.startswith("beside-the-paper")]
    return shown or list(tables[:1])


def read_verdicts(document: Document) -> list[list[str]]:
    """Return the verdicts of a result, each as rule, result here and verdict.

    A table of rules has these three columns. Of a longer table, whose cells are judged one by one, the verdicts are counted.
    """
    verdicts: list[list[str]] = []
    for table in document.tables:
        header, rows = table.cells
        if header[-1] != "verdict":
            continue
        if len(header) == 3:
            verdicts += rows
        else:
            counts = ", ".join(f"{count} {verdict}" for verdict, count in Counter(row[-1] for row in rows).items())
            verdicts.append([f"{table.caption}: {len(rows)} numbers", NOTHING, counts])
    return verdicts


def _seeds_text(request: Request) -> str:
    """Return the number and the range of the seeds as text."""
    seeds = request.seeds or request.setup.seeds
    simulates = request.what.judge is None and not request.what.solvers
    if not seeds or not simulates:
        return NOTHING
    return f"{len(seeds)} ({min(seeds)} to {max(seeds)})" if len(seeds) > 1 else f"1 ({seeds[0]})"


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
    show: Show = _show_nothing,
    panels: Sequence[Reproduction] | None = None,
) -> list[Panel]:
    """Play all panels at a size, each into a folder of `out`, and write `out`/result.html and result.md after each.

    Args:
        size: size of all of them.
        out: a folder of this command.
        jobs: processes; None: all cores.
        tell: called with a line before each panel: its number, and the time left.
        show: shows the progress of a panel's runs.
        panels: reproductions in place of all.

    Returns:
        The record of each panel. A panel that cannot be played has the reason as its verdict.
    """
    requests = [Request(what, size) for what in (REPRODUCTIONS.values() if panels is None else panels)]
    done: list[Panel] = []
    pace = _Pace(jobs or os.cpu_count() or 1)
    for number, request in enumerate(requests, 1):
        folder = out / request.what.name
        left_s = pace.left_s([_expected_s(other, out / other.what.name) for other in requests[number - 1 :]])
        tell(f"[{number}/{len(requests)}] {request.what.name}{f'; about {duration_words(left_s)} left' if left_s else ''}")
        begun_s, expected_s = time.monotonic(), _expected_s(request, folder)
        try:
            panel = play(request, folder, jobs, show)
            pace.add(expected_s, time.monotonic() - begun_s)
        except (UserError, ValueError, OSError) as error:
            panel = Panel(request.what.name, checksum(request), [[NOTHING, str(error), _FAILED]])
        done.append(panel)
        write_page(done, len(requests), size, out)
    return done


def _expected_s(request: Request, folder: Path) -> float:
    """Return the expected processor seconds of a panel: of its last run, or of its size; 0 if its result is kept."""
    earlier = read_panel(folder)
    if earlier is None or not earlier.complete:
        return request.cost.core_s + _OVERHEAD_S
    return 0.0 if earlier.checksum == checksum(request) else earlier.core_s + _OVERHEAD_S


_OVERHEAD_S = 15.0
"""Processor seconds of a panel apart from its runs: start of processes, imports, figures."""


class _Pace:
    """Wall time of a processor second: first that of `jobs` idle cores, then as the panels of this command took."""

    def __init__(self, jobs: int) -> None:
        self._expected_s, self._wall_s = float(jobs), 1.0

    def add(self, expected_s: float, wall_s: float) -> None:
        """Note the wall time of a panel with `expected_s` processor seconds; 0: it was kept, and tells nothing."""
        if expected_s:
            self._expected_s += expected_s
            self._wall_s += wall_s

    def left_s(self, expected_s: Sequence[float]) -> float:
        """Return the expected wall time of panels with these processor seconds."""
        return sum(expected_s) * self._wall_s / self._expected_s


def write_page(done: Sequence[Panel], number: int, size: Size, out: Path) -> None:
    """Write `out`/result.html and result.md of the panels `done`, out of `number`: a row a panel, with its figure beside."""
    from analysis.documents.blocks import Document, Section, Table, Text
    from analysis.documents.html import html, inline_svg
    from analysis.documents.markdown import markdown_page
    from analysis.figures.style import svg_text
    from analysis.files import write_whole
    from scenarios.runs.unfinished import version

    counts = Counter(row[2] for panel in done for row in panel.verdicts if row[2] in get_args(Verdict))
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())) or "none decided"
    played = sum(panel.complete for panel in done)
    total = duration_words(sum(panel.core_s for panel in done))
    summary = f"{played} of {number} panels played, size {size}, netsim {version()}, {total} of one core. Rules: {verdicts}."
    header = ["panel", "shows", "verdicts", "seeds", "processor time"]
    rows = [[panel.name, _short_title(panel), _verdicts_text(panel), panel.seeds or NOTHING, _time_text(panel)] for panel in done]
    note = "The rules were fixed before the runs; all rules of a panel hold together with a confidence of 95 %."
    overview = Table("panels", "Panels", (header, rows), note, (0, 1, 2), unfolded=True)
    sections = [Section("All together", [Text(summary), *_smoke_warning(size), overview])]
    papers: dict[str, list[Panel]] = {}
    for panel in done:
        papers.setdefault(REPRODUCTIONS[panel.name].paper, []).append(panel)
    sections += [Section(paper, [_panel_block(panel, out) for panel in panels]) for paper, panels in papers.items()]
    document = Document("Figures and tables of the papers", "", sections)
    page = html(
        document, lambda picture: inline_svg(svg_text(picture.figure), picture.name, picture.caption, picture.figure.description)
    )
    write_whole(out / "result.html", page.encode())
    write_whole(out / "result.md", markdown_page(document, {}).encode())


def _smoke_warning(size: Size) -> list[Text]:
    """Return a warning for the smallest size; empty for other sizes."""
    from analysis.documents.blocks import Text

    words = "This size shows that it works; its numbers say nothing of the papers."
    return [Text(words, warning=True)] if size is Size.SMOKE else []


def _short_title(panel: Panel) -> str:
    """Return what a panel shows, up to the first colon."""
    return REPRODUCTIONS[panel.name].shows.partition(":")[0]


def _verdicts_text(panel: Panel) -> str:
    """Return how many verdicts of each kind a panel has, in words."""
    counts = Counter(row[2] for row in panel.verdicts if row[2] != NOTHING or len(panel.verdicts) == 1)
    return ", ".join(word if len(panel.verdicts) == 1 else f"{count} {word}" for word, count in counts.items())


def _time_text(panel: Panel) -> str:
    """Return the processor time of a panel as text."""
    return duration_words(panel.core_s) if panel.complete else NOTHING


def _panel_block(panel: Panel, out: Path) -> Beside:
    """Return the row of a panel: its rules with verdicts, the paper's numbers beside these, seeds and time; its figure beside."""
    from analysis.documents.blocks import Beside, SavedPicture, Table, Text

    what = REPRODUCTIONS[panel.name]
    facts = [f"seeds: {panel.seeds}"] if panel.seeds not in ("", NOTHING) else []
    facts += [f"{_time_text(panel)} of one core" if panel.complete else _FAILED]
    prefix = panel.name.replace("_", "-")
    tables = [Table(**{**fields, "name": f"{prefix}-{fields['name']}"}) for fields in panel.tables]
    if not tables:
        tables = [Table(prefix, "Verdict", (["the paper", "here", "verdict"], list(map(list, panel.verdicts))), words=(0, 1, 2))]
    picture = None
    if panel.figure:
        path = f"{panel.name}/{panel.figure}"
        picture = SavedPicture(prefix, f"{panel.name}: {_short_title(panel)}", path, (out / path).read_text(encoding="utf-8"))
    return Beside([Text(f"{what.shows}. {'; '.join(facts)}.", lead=panel.name), *tables], picture)
