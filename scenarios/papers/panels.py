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
from scenarios.runs.folders import SUMMARY
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
        verdicts: rule of the paper, result here with its interval, and verdict, a row each.
        tables: fields of the tables with verdicts, and of those with the paper's numbers (`Table`).
        seeds: the seeds, in words.
        core_s: processor time of all its runs, those before an interruption too; of this process where nothing is simulated.
        figure: the first figure, relative to the panel's folder; empty if it has none.
        complete: True once all is written.
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


def checksum(asked: Request) -> str:
    """Return the SHA-256 of the code and the scenarios, and of a panel at its size with its seeds and settings."""
    words = [code_checksum(), asked.command, *asked.setup.settings, *map(str, asked.setup.seeds)]
    return hashlib.sha256("\0".join(words).encode()).hexdigest()


def read_panel(folder: Path) -> Panel | None:
    """Return the record of a panel's folder; None if it has none that can be read."""
    try:
        return Panel(**json.loads((folder / RECORD).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _save(panel: Panel, folder: Path) -> None:
    from analysis.files import write_whole

    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / RECORD, (json.dumps(asdict(panel), indent=1) + "\n").encode())


Show = Callable[[Plan], AbstractContextManager[Callable[[SweepProgress], None] | None]]
"""Shows the progress of one panel's runs while they are simulated."""


def _show_nothing(runs: Plan) -> AbstractContextManager[None]:
    return nullcontext()


def play(asked: Request, folder: Path, jobs: int | None = None, show: Show = _show_nothing) -> Panel:
    """Run one panel into its folder, write its result, and return its record. A complete record of equal checksum is kept.

    Raises:
        UserError: it cannot be played, such as without files of a data set.
    """
    present, earlier = checksum(asked), read_panel(folder)
    if earlier is not None and earlier.checksum == present:
        if earlier.complete:
            return earlier
    else:
        # Runs of other code are no part of this result. Without a record there is nothing that this command wrote.
        if earlier is not None:
            shutil.rmtree(folder / RUNS, ignore_errors=True)
        elif (folder / RUNS).exists():
            raise UserError(f"{folder}: holds runs of another command; name a new folder by --out")
        _save(Panel(asked.what.name, present), folder)
    begun_s = time.process_time()
    if asked.what.judge is not None:
        document, agrees = judge(asked, None, folder)
        verdicts = [] if agrees is None else [["values as published", NOTHING, f"{'' if agrees else 'not '}as in the paper"]]
    else:
        runs = plan_runs(asked)
        with show(runs) if runs.runs else nullcontext() as progress:
            document = reproduce(asked, folder, runs, jobs=jobs, progress=progress)
        verdicts = read_verdicts(document)
    verdicts = verdicts or [["no rule: numbers stand in its result.html", NOTHING, NOTHING]]
    write(document, folder)
    panel = Panel(
        asked.what.name,
        present,
        verdicts,
        [_fields(table) for table in _shown_tables(document)],
        _seeds(asked),
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
    found: list[list[str]] = []
    for table in document.tables:
        header, rows = table.cells
        if header[-1] != "verdict":
            continue
        if len(header) == 3:
            found += rows
        else:
            words = ", ".join(f"{count} {word}" for word, count in Counter(row[-1] for row in rows).items())
            found.append([f"{table.caption}: {len(rows)} numbers", NOTHING, words])
    return found


def _seeds(asked: Request) -> str:
    seeds = asked.seeds or asked.setup.seeds
    simulates = asked.what.judge is None and not asked.what.solvers
    if not seeds or not simulates:
        return NOTHING
    return f"{len(seeds)} ({min(seeds)} to {max(seeds)})" if len(seeds) > 1 else f"1 ({seeds[0]})"


def _first_figure(document: Document) -> str:
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
        A record each. A panel that cannot be played has the reason as its verdict, and the others are played.
    """
    asked = [Request(what, size) for what in (REPRODUCTIONS.values() if panels is None else panels)]
    done: list[Panel] = []
    pace = _Pace(jobs or os.cpu_count() or 1)
    for number, one in enumerate(asked, 1):
        folder = out / one.what.name
        left_s = pace.left_s([_expected_s(other, out / other.what.name) for other in asked[number - 1 :]])
        tell(f"[{number}/{len(asked)}] {one.what.name}{f'; about {duration_words(left_s)} left' if left_s else ''}")
        begun_s, expected_s = time.monotonic(), _expected_s(one, folder)
        try:
            panel = play(one, folder, jobs, show)
            pace.add(expected_s, time.monotonic() - begun_s)
        except (UserError, ValueError, OSError) as error:
            panel = Panel(one.what.name, checksum(one), [[NOTHING, str(error), _FAILED]])
        done.append(panel)
        write_page(done, len(asked), size, out)
    return done


def _expected_s(asked: Request, folder: Path) -> float:
    """Return the processor seconds of a panel: as last time, or as its size states; 0 if it is kept as it is."""
    earlier = read_panel(folder)
    if earlier is None or not earlier.complete:
        return asked.cost.core_s + _BESIDE_S
    return 0.0 if earlier.checksum == checksum(asked) else earlier.core_s + _BESIDE_S


_BESIDE_S = 15.0
"""Processor seconds of a panel beside its runs: processes start and import, figures are drawn."""


class _Pace:
    """Wall time of a processor second: first that of `jobs` idle cores, then as the panels of this command took."""

    def __init__(self, jobs: int) -> None:
        self._expected_s, self._wall_s = float(jobs), 1.0

    def add(self, expected_s: float, wall_s: float) -> None:
        """A panel of so many processor seconds was played in so much wall time; one that was kept has none."""
        if expected_s:
            self._expected_s += expected_s
            self._wall_s += wall_s

    def left_s(self, expected_s: Sequence[float]) -> float:
        """Return the wall time of panels of so many processor seconds."""
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
    words = f"{played} of {number} panels played, size {size}, netsim {version()}, {total} of one core. Rules: {verdicts}."
    header = ["panel", "shows", "verdicts", "seeds", "processor time"]
    rows = [[panel.name, _shows(panel), _counted(panel), panel.seeds or NOTHING, _took(panel)] for panel in done]
    note = "The rules were fixed before the runs; all rules of a panel hold together with a confidence of 95 %."
    overview = Table("panels", "Panels", (header, rows), note, (0, 1, 2), unfolded=True)
    sections = [Section("All together", [Text(words), *_smoke_warning(size), overview])]
    papers: dict[str, list[Panel]] = {}
    for panel in done:
        papers.setdefault(REPRODUCTIONS[panel.name].paper, []).append(panel)
    sections += [Section(paper, [_row(panel, out) for panel in panels]) for paper, panels in papers.items()]
    document = Document("Figures and tables of the papers", "", sections)
    page = html(document, lambda it: inline_svg(svg_text(it.figure), it.name, it.caption, it.figure.description))
    write_whole(out / "result.html", page.encode())
    write_whole(out / "result.md", markdown_page(document, {}).encode())


def _smoke_warning(size: Size) -> list[Text]:
    from analysis.documents.blocks import Text

    words = "This size shows that it works; its numbers say nothing of the papers."
    return [Text(words, warning=True)] if size is Size.SMOKE else []


def _shows(panel: Panel) -> str:
    return REPRODUCTIONS[panel.name].shows.partition(":")[0]


def _counted(panel: Panel) -> str:
    """Return how many verdicts of each kind a panel has, in words."""
    counts = Counter(row[2] for row in panel.verdicts if row[2] != NOTHING or len(panel.verdicts) == 1)
    return ", ".join(word if len(panel.verdicts) == 1 else f"{count} {word}" for word, count in counts.items())


def _took(panel: Panel) -> str:
    return duration_words(panel.core_s) if panel.complete else NOTHING


def _row(panel: Panel, out: Path) -> Beside:
    """Return the row of a panel: its rules with verdicts, the paper's numbers beside these, seeds and time; its figure beside."""
    from analysis.documents.blocks import Beside, SavedPicture, Table, Text

    what = REPRODUCTIONS[panel.name]
    told = [f"seeds: {panel.seeds}"] if panel.seeds not in ("", NOTHING) else []
    told += [f"{_took(panel)} of one core" if panel.complete else _FAILED]
    word = panel.name.replace("_", "-")
    tables = [Table(**{**fields, "name": f"{word}-{fields['name']}"}) for fields in panel.tables]
    if not tables:
        tables = [Table(word, "Verdict", (["the paper", "here", "verdict"], list(map(list, panel.verdicts))), words=(0, 1, 2))]
    picture = None
    if panel.figure:
        path = f"{panel.name}/{panel.figure}"
        picture = SavedPicture(word, f"{panel.name}: {_shows(panel)}", path, (out / path).read_text(encoding="utf-8"))
    return Beside([Text(f"{what.shows}. {'; '.join(told)}.", lead=panel.name), *tables], picture)
