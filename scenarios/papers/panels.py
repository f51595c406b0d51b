"""All reproductions one after the other, `netsim reproduce --all`: resumable, with one page of verdicts.

Each panel has a folder with a record, `panel.json`. A panel whose record is complete and has the checksum of the present code,
scenario and size is not played again; one that was interrupted goes on with its sweep; one of other code begins again.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from scenarios.papers.registry import REPRODUCTIONS
from scenarios.papers.reproduce import NOTHING, RUNS, Asked, judge, plan_runs, reproduce, write
from scenarios.papers.rules import Verdict
from scenarios.papers.study import Reproduction, Size
from scenarios.schema.errors import UserError

if TYPE_CHECKING:
    from analysis.documents.blocks import Block, Document

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
        seeds: the seeds, in words.
        seconds: wall time since the last start; of a sweep that was interrupted, of the rest only.
        figure: the first figure, relative to the panel's folder; empty if it has none.
        complete: True once all is written.
    """

    name: str
    checksum: str
    verdicts: Sequence[Sequence[str]] = ()
    seeds: str = ""
    seconds: float = 0.0
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


def checksum(asked: Asked) -> str:
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


def play(asked: Asked, folder: Path, jobs: int | None = None) -> Panel:
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
    begun = time.monotonic()
    if asked.what.judge is not None:
        document, agrees = judge(asked, None, folder)
        verdicts = [] if agrees is None else [["values as published", NOTHING, f"{'' if agrees else 'not '}as in the paper"]]
    else:
        document = reproduce(asked, folder, plan_runs(asked), jobs=jobs)
        verdicts = read_verdicts(document)
    verdicts = verdicts or [["no rule: numbers stand in its result.html", NOTHING, NOTHING]]
    write(document, folder)
    seconds = time.monotonic() - begun
    panel = Panel(asked.what.name, present, verdicts, _seeds(asked), seconds, _first_figure(document), complete=True)
    _save(panel, folder)
    return panel


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


def _seeds(asked: Asked) -> str:
    seeds = asked.seeds or asked.setup.seeds
    simulates = asked.what.judge is None and not asked.what.solvers
    return f"{len(seeds)} ({min(seeds)} to {max(seeds)})" if seeds and simulates else NOTHING


def _first_figure(document: Document) -> str:
    pictures = document.pictures
    return f"figures/{pictures[0].name}.svg" if pictures else ""


def play_all(
    size: Size,
    out: Path,
    *,
    jobs: int | None = None,
    tell: Callable[[str], None] = lambda line: None,
    panels: Sequence[Reproduction] | None = None,
) -> list[Panel]:
    """Play all panels at a size, each into a folder of `out`, and write `out`/result.html and result.md after each.

    Args:
        size: size of all of them.
        out: a folder of this command.
        jobs: processes; None: all cores.
        tell: called with a line before each panel: its number, and the time left if it can be told.
        panels: reproductions in place of all.

    Returns:
        A record each. A panel that cannot be played has the reason as its verdict, and the others are played.
    """
    asked = [Asked(what, size) for what in (REPRODUCTIONS.values() if panels is None else panels)]
    done: list[Panel] = []
    for number, one in enumerate(asked, 1):
        folder = out / one.what.name
        tell(f"[{number}/{len(asked)}] {one.what.name}{_time_left(asked[number - 1 :], out, done)}")
        try:
            panel = play(one, folder, jobs)
        except (UserError, ValueError, OSError) as error:
            panel = Panel(one.what.name, checksum(one), [[NOTHING, str(error), _FAILED]])
        done.append(panel)
        write_page(done, len(asked), size, out)
    return done


def _time_left(rest: Sequence[Asked], out: Path, done: Sequence[Panel]) -> str:
    """Return the time left as text; empty if unknown.

    The time of a panel is that of its last run, or else the mean of the panels `done` in this command.
    """
    from analysis.documents.numbers import format_seconds

    played = [panel.seconds for panel in done if panel.complete and panel.seconds]
    total = 0.0
    for one in rest:
        earlier = read_panel(out / one.what.name)
        if earlier is not None and earlier.complete:
            if earlier.checksum != checksum(one):  # else it is kept, not played again
                total += earlier.seconds
        elif played:
            total += sum(played) / len(played)
        else:
            return ""
    return f"; about {format_seconds(total)} left" if total else ""


def write_page(done: Sequence[Panel], number: int, size: Size, out: Path) -> None:
    """Write `out`/result.html and result.md of the panels `done`, out of `number`: a section a paper, with its figures."""
    from analysis.documents.blocks import Document, Section, Text
    from analysis.documents.html import html, inline_svg
    from analysis.documents.markdown import markdown_page
    from analysis.figures.style import svg_text
    from analysis.files import write_whole
    from scenarios.runs.unfinished import version

    counts = Counter(row[2] for panel in done for row in panel.verdicts if row[2] in get_args(Verdict))
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())) or "none decided"
    played = sum(panel.complete for panel in done)
    blocks = [Text(f"{played} of {number} panels played, size {size}, netsim {version()}. Rules: {verdicts}.")]
    if size is Size.SMOKE:
        blocks.append(Text("This size shows that it works; its numbers say nothing of the papers.", warning=True))
    papers: dict[str, list[Panel]] = {}
    for panel in done:
        papers.setdefault(REPRODUCTIONS[panel.name].paper, []).append(panel)
    sections = [Section("All together", blocks)]
    sections += [Section(paper, _paper_blocks(place, panels, out)) for place, (paper, panels) in enumerate(papers.items(), 1)]
    document = Document("Figures and tables of the papers", "", sections)
    page = html(document, lambda it: inline_svg(svg_text(it.figure), it.name, it.caption, it.figure.description))
    write_whole(out / "result.html", page.encode())
    write_whole(out / "result.md", markdown_page(document, {}).encode())


def _paper_blocks(place: int, panels: Sequence[Panel], out: Path) -> list[Block]:
    """Return the table of the panels of a paper, a row a rule, and the first figure of each."""
    from analysis.documents.blocks import SavedPicture, Table
    from analysis.documents.numbers import format_seconds

    rows: list[list[str]] = []
    pictures: list[Block] = []
    for panel in panels:
        shows = REPRODUCTIONS[panel.name].shows.partition(":")[0]
        took = format_seconds(panel.seconds) if panel.complete else NOTHING
        rows += [[panel.name, shows, *verdict, panel.seeds or NOTHING, took] for verdict in panel.verdicts]
        if panel.figure:
            path = f"{panel.name}/{panel.figure}"
            svg = (out / path).read_text(encoding="utf-8")
            pictures.append(SavedPicture(panel.name.replace("_", "-"), f"{panel.name}: {shows}", path, svg))
    header = ["panel", "shows", "the paper", "here", "verdict", "seeds", "time"]
    note = "The rules were fixed before the runs; all rules of a panel hold together with a confidence of 95 %."
    return [Table(f"panels-{place}", "Rules and verdicts", (header, rows), note, (0, 1, 2, 4), unfolded=True), *pictures]
