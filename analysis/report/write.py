"""Writing of the report of a run or a sweep as one HTML file or as Markdown."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from analysis.consensus.measure import MARGIN
from analysis.documents.blocks import Document, Picture
from analysis.documents.comparison_tables import comparison_table, difference_table
from analysis.documents.exports import write_tables
from analysis.documents.html import html_page, inline_svg
from analysis.documents.markdown import markdown_page
from analysis.figures.settings import PLAIN, FigureSettings, ImageFormat, Look
from analysis.files import refuse_links, write_whole
from analysis.metrics.comparison import compare
from analysis.metrics.facts import Settings
from analysis.metrics.run_metrics import run_metrics
from analysis.report.document import run_document, sweep_document
from analysis.report.meanings import LAST
from analysis.report.questions import USUAL, Questions
from analysis.results.folders import is_sweep
from analysis.results.run import Run
from analysis.results.sweep import Sweep

__all__ = ["comparison_table", "difference_table", "write_report"]

Format = Literal["html", "md"]
PLAIN_FIGURES = FigureSettings()
"""Default settings of figures."""


def write_report(
    path: str | Path,
    out: str | Path,
    *,
    format: Format = "html",
    tables: bool = False,
    images: Sequence[ImageFormat] = (),
    questions: Questions = USUAL,
    figures: FigureSettings = PLAIN_FIGURES,
) -> Path:
    """Report on the run or sweep at `path` into `out`, and return the file.

    An HTML file holds everything; a Markdown file has its figures in a folder beside it. The same runs give the same bytes.
    Damaged runs of a sweep are left out, and named as missing.

    - `out`: a file that ends in .html or .md, or a folder for report.html or report.md, as `format` says.
    - `tables`: True to write every table as CSV and LaTeX, too, into a folder beside the file.
    - `images`: formats in which every figure is written, too, into a folder beside the file.
    - `questions`: what is compared.
    - `figures`: how figures are drawn; its target, smoothing and horizon hold for the whole report, as in `compare`.

    ValueError: `path` is neither a run nor a sweep folder, the horizon lies beyond the end of the shortest run, or a symbolic
    link below `path` is in the way.
    """
    from analysis.catalogue import CAPTIONS, figures_of

    out = Path(out)
    file = out if out.suffix in (".html", ".md") else out / f"report.{format}"
    source = Sweep.open(Path(path)).drop_damaged()[0] if is_sweep(path) else Run.open(Path(path))
    refuse_links(Path(path), file, *(file.parent / f"{file.stem}-{kind}" for kind in ("tables", "figures")))
    # Measure before anything is drawn or written: a wrong setting must not leave half a report.
    draft = _draft(source, figures, questions, _command(Path(path), figures, questions))

    def draw_document(look: Look) -> Document:
        figures_by_name = figures_of(source, replace(figures, look=look))
        return draft([Picture(name, CAPTIONS[name], figure) for name, figure in figures_by_name.items()], look)

    # An HTML page shows titles and notes as text, so that its figures go without; files of figures keep them.
    document = draw_document(replace(figures.look, title="", notes=False) if file.suffix == ".html" else figures.look)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, _render(document, file).encode())
    if tables:
        write_tables(document.tables, file.parent / f"{file.stem}-tables")
    if images:
        _save_pictures(draw_document(figures.look) if file.suffix == ".html" else document, file, images)
    return file


def _draft(
    source: Run | Sweep, options: FigureSettings, questions: Questions, command: str
) -> Callable[[Sequence[Picture], Look], Document]:
    """Measure the runs, and return a function from pictures and a look of figures to the report.

    Measuring is slow and independent of the look, while a report with `images` needs its figures in two looks. ValueError: a
    setting out of bounds, or a question that one run does not answer.
    """
    target, smoothing_s = options.target_accuracy, options.smoothing_s
    if isinstance(source, Run):
        _refuse_questions_to_one_run(questions, source)
        run, settings = source, Settings(target, smoothing_s or 0.0, LAST)
        measured = run_metrics(run, questions.metrics or None, settings)
        return lambda pictures, look: run_document(run, measured, target, smoothing_s or 0.0, command, pictures)
    sweep = source
    comparison = compare(
        sweep,
        target_accuracy=target,
        smoothing_s=smoothing_s,
        horizon_s=options.horizon_s,
        equal=questions.equal,
        last=LAST,
        metrics=questions.metrics,
    )
    return lambda pictures, look: sweep_document(sweep, comparison, command, pictures, questions=questions, look=look)


def _refuse_questions_to_one_run(questions: Questions, run: Run) -> None:
    """Raise ValueError if `questions` ask for differences between variants, which a single run does not have."""
    asked = {
        "against": questions.against,
        "within": questions.within,
        "equivalent": questions.equivalent,
        "equal bytes": questions.equal == "bytes",
    }
    if names := ", ".join(name for name, value in asked.items() if value):
        raise ValueError(f"{run.source.place}: {names}: is a question to the variants of a sweep, and this is one run")


def _save_pictures(document: Document, file: Path, formats: Sequence[ImageFormat]) -> Path:
    """Write the pictures in each of `formats` into a folder beside `file`, and return the folder."""
    from analysis.figures.style import save_figure

    folder = file.parent / f"{file.stem}-figures"
    for picture in document.pictures:
        for format in formats:
            save_figure(picture.figure, folder / f"{picture.name}.{format}")
    return folder


def _render(document: Document, file: Path) -> str:
    """Return the text of `file`; for Markdown, write the figures beside it."""
    from analysis.figures.style import svg_text

    if file.suffix == ".html":

        def svg(picture: Picture) -> str:
            return inline_svg(svg_text(picture.figure), picture.name, picture.caption, picture.figure.description)

        return html_page(document, svg)
    folder = _save_pictures(document, file, ["png"])
    return markdown_page(document, {picture.name: f"{folder.name}/{picture.name}.png" for picture in document.pictures})


def _command(path: Path, options: FigureSettings, questions: Questions) -> str:
    """Return the command line that writes this report, to be run in the folder above `path`."""
    words = ["netsim", "report", shlex.quote(path.resolve().name)]
    for option, setting in (
        ("--target-accuracy", options.target_accuracy),
        ("--horizon-s", options.horizon_s),
        ("--smoothing-s", options.smoothing_s),
        ("--window", options.window),
        ("--over", options.over),
        ("--round", options.round),
    ):
        if setting is not None:
            words += [option, setting if isinstance(setting, str) else f"{setting:.10g}"]
    words += ["--equal-bytes"] if questions.equal == "bytes" else []
    for option, values in (
        ("--metric", questions.metrics),
        ("--against", questions.against),
        ("--within", questions.within),
        ("--equivalent", questions.equivalent),
    ):
        for value in values:
            words += [option, shlex.quote(value)]
    words += ["--margin", f"{questions.margin:.10g}"] if questions.margin != MARGIN else []
    words += ["--bounds"] if options.regret_bounds or options.aoi_bounds else []
    return " ".join([*words, *_look_words(options.look)])


def _look_words(look: Look) -> list[str]:
    """Return the command-line options that give figures this look."""
    words = []
    if look.width_in is not None and look.height_in is not None:
        words += ["--size", f"{look.width_in:g}x{look.height_in:g}"]
    words += ["--font", shlex.quote(look.font)] if look.font != PLAIN.font else []
    words += ["--font-size", f"{look.font_size:g}"] if look.font_size != PLAIN.font_size else []
    words += ["--title", shlex.quote(look.title)] if look.title is not None else []
    return words if look.notes else [*words, "--no-note"]
