"""The command that reproduces the figures and tables of papers."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scenarios.cli.drawing import PaperDrawing, drawing
from scenarios.cli.output import Quiet, complain, out_console, seeds_of, sweep_progress
from scenarios.papers.study import Size
from scenarios.schema.errors import UserError

if TYPE_CHECKING:
    from analysis.documents.blocks import Document


@drawing
def reproduce(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="A figure or table; --list shows them.")] = None,
    size: Annotated[Size, typer.Option(help="smoke: under a minute; laptop: under an hour; full: as published.")] = Size.LAPTOP,
    out: Annotated[Path | None, typer.Option("--out", help="Folder; default runs/reproduce/NAME-SIZE.")] = None,
    seeds: Annotated[str | None, typer.Option(metavar="LIST", help="Seeds in place of the size's, such as 1..10.")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a key.")] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes; default: all cores.")] = None,
    cases: Annotated[Path | None, typer.Option("--cases", metavar="FILE", help="Cases to play, of flow_cases.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every figure and table, on one page; can go on.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="Show what can be reproduced, and what each size takes.")] = False,
    quiet: Quiet = False,
    *,
    drawing: PaperDrawing,
) -> None:
    """Run a figure or table of a paper, and judge it.

    Results stand beside the paper's numbers, with verdicts by rules fixed beforehand. Runs that are complete are not run again.
    """
    from scenarios.papers.registry import find_reproduction
    from scenarios.papers.reproduce import Request, judge_without_sweep, plan_runs
    from scenarios.papers.reproduce import reproduce as run

    figures = drawing.settings()  # a mistake in them ends the command before anything is run
    if listed:
        _list()
        return
    if everything:
        if name is not None or seeds is not None or settings or cases is not None:
            raise UserError("--all takes --size, --jobs, --out and --quiet; leave out NAME, --seeds, --set and --cases")
        _play_all(size, out or Path("runs") / "reproduce" / f"all-{size.value}", jobs, quiet)
        return
    if name is None:
        raise UserError("name a figure or a table, or give --all; netsim reproduce --list shows all")
    request = Request(find_reproduction(name), size, () if seeds is None else tuple(seeds_of(seeds)), tuple(settings or ()))
    panel = request.reproduction
    if cases is not None and not panel.takes_cases:
        raise UserError(f"--cases: {panel.name} reads no cases; leave it out")
    folder = out or Path("runs") / "reproduce" / f"{panel.name}-{size.value}"
    runs = plan_runs(request)
    if panel.judge is not None:  # the result needs no sweep
        document, agrees = judge_without_sweep(request, cases, folder)
        _write(document, folder)
        if agrees is False:  # None: nothing is published
            raise typer.Exit(1)
        return
    with sweep_progress(runs, quiet) as show:
        try:
            document = run(request, folder, runs, figures=figures, jobs=jobs, progress=show)
        except KeyboardInterrupt:
            complain("interrupted; what is complete stays. To go on: the same command")
            raise typer.Exit(130) from None
        except (ValueError, OSError) as error:
            raise UserError(str(error)) from error
    _write(document, folder)


def _play_all(size: Size, folder: Path, jobs: int | None, quiet: bool) -> None:
    """Run all reproductions into `folder`, with a line for each. Exit with code 1 unless all are complete."""
    from scenarios.papers.panels import play_all
    from scenarios.runs.folders.replacement import check_place, writing

    with writing(folder):  # refuse an unusable folder before anything is run
        check_place(folder)

    def tell(line: str) -> None:
        if not quiet:
            complain(line)

    try:
        with writing(folder):
            panels = play_all(size, folder, jobs=jobs, tell=tell, show=lambda runs: sweep_progress(runs, quiet))
    except KeyboardInterrupt:
        complain("interrupted; what is complete stays. To go on: the same command")
        raise typer.Exit(130) from None
    for panel in panels:
        if not panel.complete:
            complain(f"{panel.name}: not played: {panel.verdicts[0][1]}")
    out_console.print(f"written: {folder / 'result.html'}", soft_wrap=True)
    if not all(panel.complete for panel in panels):
        raise typer.Exit(1)


def _write(document: "Document", folder: Path) -> None:
    """Show the tables of a result, write its files into `folder`, and name them."""
    from scenarios.papers.reproduce import write_result
    from scenarios.runs.folders.replacement import writing

    _show(document)
    with writing(folder):
        written = write_result(document, folder)
    for path in written:
        out_console.print(f"written: {path}", soft_wrap=True)


def _list() -> None:
    """Print the reproductions: names, what each shows, and what each size costs."""
    from rich.padding import Padding
    from rich.text import Text

    from scenarios.papers.costs import COSTS
    from scenarios.papers.registry import REPRODUCTIONS

    # No table: the names have to be typed, and beside five columns a terminal would cut them short.
    for panel in REPRODUCTIONS.values():
        also = f"  (also {', '.join(panel.aliases)})" if panel.aliases else ""
        out_console.print(Text.assemble((panel.name, "bold"), also), soft_wrap=True)
        costs = "; ".join(f"{size.value}: {COSTS[panel.name][size].words}" for size in Size)
        for words in (f"{panel.paper}. {panel.shows}.", f"{costs}."):
            out_console.print(Padding(words, (0, 0, 0, 4)), highlight=False)


def _show(document: "Document") -> None:
    """Print the tables of a result."""
    from analysis.documents.terminal import terminal_table

    for table in document.tables:
        out_console.print(terminal_table(table.caption, table.note, table.cells))
