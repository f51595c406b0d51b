"""Commands on finished runs: report, compare, replay, trace."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scenarios.cli.drawing import Drawing, Formats, ImageOption, drawing, formats_of
from scenarios.cli.output import (
    Quiet,
    complain,
    opened_sweep,
    out_console,
    print_against,
    print_comparison,
    print_intervals,
    progress,
    warn_of_missing,
)
from scenarios.schema.errors import UserError, name_source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analysis import Bound, Run

Horizon = Annotated[
    float | None,
    typer.Option(help="Restrict times to the target to so many seconds; default: the end of the shortest run."),
]
Strict = Annotated[bool, typer.Option("--strict", help="Refuse a sweep of which runs are missing.")]
Metrics = Annotated[
    list[str] | None,
    typer.Option("--metric", help="Show this metric, or column of rounds.parquet, in place of the usual; may be repeated."),
]
Against = Annotated[
    list[str] | None,
    typer.Option("--against", metavar="KEY", help="Show metrics against this key of a numeric grid; may be repeated."),
]
Within = Annotated[
    list[str] | None,
    typer.Option(
        "--within", metavar="KEY", help="Say who is best within each value of this key of a numeric grid; twice: of two keys."
    ),
]
Equivalent = Annotated[
    list[str] | None,
    typer.Option(
        "--equivalent",
        metavar="METRIC=VALUE",
        help="A difference that counts as none, in the unit that tables show; may be repeated.",
    ),
]
EqualBytes = Annotated[
    bool, typer.Option("--equal-bytes", help="Compare final accuracies where as many bytes were sent, not at a common time.")
]


class ReportFormat(StrEnum):
    """Format of a report."""

    HTML = "html"
    MD = "md"


ReportOut = Annotated[
    Path | None, typer.Option("--out", help="The file (.html, .md), or a folder for it; default: FOLDER/report.")
]
Images = Annotated[
    list[ImageOption] | None, typer.Option("--figures", help="Write every figure as a file of this format, too.")
]


@drawing
def report(
    folder: Annotated[Path, typer.Argument(help="A run's or a sweep's folder.")],
    out: ReportOut = None,
    format: Annotated[ReportFormat, typer.Option(help="html: one file that holds everything; md: Markdown and figures.")] = (
        ReportFormat.HTML
    ),
    tables: Annotated[bool, typer.Option("--tables", help="Write every table as CSV and LaTeX, too.")] = False,
    target_accuracy: Annotated[float | None, typer.Option(min=0.0, max=1.0, help="Time to this accuracy.")] = None,
    horizon_s: Horizon = None,
    equal_bytes: EqualBytes = False,
    metric: Metrics = None,
    against: Against = None,
    within: Within = None,
    equivalent: Equivalent = None,
    margin: Annotated[float, typer.Option(min=0.0, help="Regret a slot that counts as none, where messages take time.")] = 0.005,
    bounds: Annotated[bool, typer.Option("--bounds", help="Draw the bounds that theory gives beside regrets.")] = False,
    figures: Images = None,
    strict: Strict = False,
    *,
    drawing: Drawing,
) -> None:
    """Write a report of a finished run or sweep. One HTML file with tables and figures, which needs nothing else."""
    from analysis import Questions, write_report
    from scenarios.runs.folders.replacement import writing

    drawing.settings()  # refuse wrong options before the runs are read; the bounds, which come from the runs, are added below
    opened = _open_runs(folder, strict)
    on_regret, on_aoi_regret = _bounds(opened) if bounds else ((), ())
    place = out or folder / "report"
    with _user_errors(), writing(place, "place"):
        written = write_report(
            folder,
            place,
            format=format.value,
            tables=tables,
            images=[option.value for option in figures or ()],
            questions=Questions(
                metrics=metric or (),
                equal="bytes" if equal_bytes else "time",
                against=against or (),
                within=within or (),
                margin=margin,
                equivalent=equivalent or (),
            ),
            figures=drawing.settings(
                target_accuracy=target_accuracy, horizon_s=horizon_s, regret_bounds=on_regret, aoi_bounds=on_aoi_regret
            ),
        )
    out_console.print(f"report: {written}", soft_wrap=True)


@contextmanager
def _user_errors() -> Iterator[None]:
    """Turn a ValueError of the block into a UserError."""
    try:
        yield
    except ValueError as error:
        raise UserError(str(error)) from error


def _bounds(opened: "list[Run]") -> "tuple[Sequence[Bound], Sequence[Bound]]":
    """Return (bounds on regrets, bounds on AoI regrets) that apply; print the reason for each that does not."""
    from analysis.regret.bounds import regret_bound_notes, regret_bounds
    from scenarios.runs.summary.bounds import aoi_bounds, bound_notes

    for note in (*regret_bound_notes(opened), *bound_notes(opened)):
        complain(note)
    return regret_bounds(opened), aoi_bounds(opened)


def _open_runs(folder: Path, strict: bool) -> "list[Run]":
    """Return the runs in a folder, each with a table `rounds` that can be read.

    Called before a report is begun, so that a wrong folder is left unchanged. Raises UserError; with `strict` also for missing
    runs.
    """
    from analysis import is_sweep, open_run

    try:
        sweep = opened_sweep(folder) if is_sweep(folder) else None
        if sweep is not None:
            warn_of_missing(sweep, strict)
        opened = [open_run(folder)] if sweep is None else list(sweep)
        for run in opened:
            run.arrow("rounds", ["round"])  # fails for a damaged table
        if not opened:
            raise ValueError(f"{folder}: the sweep has no complete run to report on; finish it with --resume")
    except (ValueError, OSError) as error:
        raise UserError(str(error)) from error
    return opened


@drawing
def compare(
    folders: Annotated[list[Path], typer.Argument(help="Runs, sweeps, or folders of a sweep's variants.")],
    out: Annotated[Path | None, typer.Option("--out", help="Folder for figures and comparison.csv; default: none.")] = None,
    target_accuracy: Annotated[float | None, typer.Option(min=0.0, max=1.0, help="Time to this accuracy.")] = None,
    horizon_s: Horizon = None,
    equal_bytes: EqualBytes = False,
    metric: Metrics = None,
    against: Against = None,
    within: Within = None,
    equivalent: Equivalent = None,
    figures: Formats = None,
    strict: Strict = False,
    *,
    drawing: Drawing,
) -> None:
    """Compare finished runs and sweeps, wherever they lie. Differences are to the first."""
    from analysis import gather, write_comparison
    from analysis.catalogue import save_all
    from analysis.figures.style import save_figure
    from analysis.metrics.differences import margins_of
    from scenarios.runs.folders.replacement import writing

    try:
        margins_of(equivalent or ())  # refuse wrong margins before anything is compared
        settings, formats = drawing.settings(horizon_s=horizon_s), formats_of(figures)
        if out is None:
            drawing.refuse_unused("name a folder for figures with --out", formats=bool(figures))
        gathered = gather(folders, target_accuracy=target_accuracy)
        comparison = print_comparison(
            gathered,
            smoothing_s=drawing.smoothing_s,
            horizon_s=horizon_s,
            equal="bytes" if equal_bytes else "time",
            metrics=metric or (),
            strict=strict,
        )
        if equivalent:
            print_intervals(comparison, equivalent)
        drawn = []
        if against or within:
            drawn = print_against(gathered, comparison, against or (), within or (), look=settings.look)
        if out is not None:
            with writing(out):
                out.mkdir(parents=True, exist_ok=True)
                written = [write_comparison(gathered, out / "comparison.csv", comparison=comparison)]
                for picture in drawn:
                    written += [save_figure(picture.figure, out / f"{picture.name}.{suffix}") for suffix in formats]
                written += save_all(gathered, out, settings, formats)
            for path in written:
                out_console.print(f"written: {path}", soft_wrap=True)
    except (ValueError, OSError) as error:
        raise UserError(str(error)) from error


def replay(folder: Annotated[Path, typer.Argument(help="A run's folder.")], quiet: Quiet = False) -> None:
    """Run a finished run once more, and compare its tables. Exit code 1 where they differ."""
    from scenarios.runs.progress import rounds_done
    from scenarios.runs.replay import read_finished
    from scenarios.runs.replay import replay as run_again
    from scenarios.schema.servers.flower import known_rounds

    study = read_finished(folder)
    name = study.method.kind
    limited = study.time_limit_s is not None
    total = study.rounds if limited else known_rounds(study)
    with progress({name: total}, quiet, share=limited) as advance, name_source(str(folder)):
        try:
            differences = run_again(folder, after_round=lambda simulation: advance(name, rounds_done(simulation, study)))
        except KeyboardInterrupt:
            complain("interrupted")
            raise typer.Exit(130) from None
    for line in differences:
        complain(line)
    if differences:
        raise typer.Exit(1)
    out_console.print(f"{folder}: the tables are the same, byte for byte", soft_wrap=True)


def trace(
    folder: Annotated[Path, typer.Argument(help="A run's folder.")],
    out: Annotated[Path | None, typer.Option("--out", help="The file; default FOLDER/trace.json.gz.")] = None,
    rounds: Annotated[str | None, typer.Option(metavar="A..B", help="These rounds (slots) only, such as 1..50.")] = None,
) -> None:
    """Write a timeline of a run for the Perfetto viewer. The viewer is at ui.perfetto.dev."""
    from analysis import open_run, write_trace
    from scenarios.runs.folders.replacement import add_files, writing
    from scenarios.workers.scratch import temporary_folder

    first = 1
    last: int | None = None
    if rounds is not None:
        match = re.fullmatch(r"(\d{1,12})\.\.(\d{1,12})", rounds)
        if match is None or int(match[1]) > int(match[2]):
            raise UserError(f"--rounds {rounds!r}: must be a range such as 1..50")
        first, last = int(match[1]), int(match[2])
    name = "trace.json.gz"
    try:
        if out is not None:
            path, run = out, open_run(folder)
            with writing(out, "file"):
                count = write_trace(run, out, first=first, last=last)
        else:
            # A file in the run's own folder is moved there when it is whole, under the lock of the folder.
            with temporary_folder() as scratch:
                count = write_trace(open_run(folder), scratch / name, first=first, last=last)
                (path,) = add_files(folder, scratch)
    except (ValueError, OSError) as error:
        raise UserError(str(error)) from error
    out_console.print(f"trace: {path} ({count} events; open it at ui.perfetto.dev)", soft_wrap=True)
