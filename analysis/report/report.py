"""A report of a run or a sweep, as one HTML file or as Markdown: what was asked, what came out, how sure, figures, settings."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from analysis.groups import Bound
from analysis.metrics.facts import Settings
from analysis.metrics.registry import metric
from analysis.report.blocks import Document, Picture
from analysis.report.comparison import Equal, compare
from analysis.report.exports import write_tables
from analysis.report.html import html, inline_svg
from analysis.report.markdown import markdown
from analysis.report.meanings import LAST
from analysis.report.sections import run_document, sweep_document
from analysis.report.sureness import margins_of
from analysis.report.tables import comparison_table, difference_table
from analysis.results import Run, Sweep, is_sweep, open_run, open_sweep
from analysis.statistics import run_metrics
from analysis.studies.timing import MARGIN

if TYPE_CHECKING:
    pass

__all__ = ["comparison_table", "difference_table", "write_report"]

Format = Literal["html", "md"]

CAPTIONS = {
    "accuracy": "Test accuracy against simulated time",
    "accuracy_bytes": "Test accuracy against the bytes sent, both ways",
    "accuracy_joules": "Test accuracy against the energy drawn by all clients",
    "target": "Share of runs that have reached the target accuracy against simulated time",
    "leak": "Largest privacy leak over clients against rounds",
    "latency": "Latency of a round over rounds, and its distribution",
    "regret": "Cumulative regret against rounds",
    "aoi_regret": "AoI regret against rounds",
    "aoi_variance": "AoI variance over rounds, and cumulated",
    "deliveries": "Share of rounds in which each client's update was delivered",
    "detections": "Declared and true changes of the sub-channels",
    "partition": "Training samples by client and label",
}


def write_report(
    path: str | Path,
    out: str | Path,
    *,
    format: Format = "html",
    tables: bool = False,
    target_accuracy: float | None = None,
    smoothing_s: float | None = None,
    horizon_s: float | None = None,
    equal: Equal = "time",
    metrics: Sequence[str] = (),
    against: Sequence[str] = (),
    margin: float = MARGIN,
    equivalent: Sequence[str] = (),
    regret_bounds: Sequence[Bound] = (),
    aoi_bounds: Sequence[Bound] = (),
) -> Path:
    """Report on the run or sweep at `path` into `out`, and return the file.

    `out` is a file that ends in .html or .md, or a folder that gets report.html (`format`: report.md). The HTML file holds
    everything; beside Markdown lie its figures, in a folder. `tables`: beside either, every table as CSV and LaTeX. The same
    folder gives the same bytes. `regret_bounds` are drawn beside regrets, `aoi_bounds` beside AoI regrets; the other settings
    are those of `compare`. Damaged runs of a sweep are left out, and named as missing.
    ValueError: `path` is neither a run nor a sweep folder, or the horizon lies beyond the end of the shortest run.
    """
    from analysis.figures.runs import draw_figures

    out = Path(out)
    file = out if out.suffix in (".html", ".md") else out / f"report.{format}"
    source = open_sweep(path).without_damaged()[0] if is_sweep(path) else open_run(path)
    bounds = bool(regret_bounds or aoi_bounds)
    command = _command(
        Path(path),
        target_accuracy=target_accuracy,
        horizon_s=horizon_s,
        equal=equal,
        metrics=metrics,
        against=against,
        margin=margin,
        equivalent=equivalent,
        bounds=bounds,
    )
    comparison = None
    margins = margins_of(equivalent)
    for name in metrics:
        metric(name)
    if isinstance(source, Sweep):
        # Before anything is drawn: a wrong setting leaves no half of a report.
        comparison = compare(
            source,
            target_accuracy=target_accuracy,
            smoothing_s=smoothing_s,
            horizon_s=horizon_s,
            equal=equal,
            last=LAST,
            metrics=metrics,
        )
    drawn = draw_figures(
        source,
        target_accuracy=target_accuracy,
        smoothing_s=smoothing_s,
        horizon_s=horizon_s,
        regret_bounds=regret_bounds,
        aoi_bounds=aoi_bounds,
    )
    pictures = [Picture(name, CAPTIONS[name], figure) for name, figure in drawn.items()]
    if isinstance(source, Run):
        measured = run_metrics(source, metrics or None, Settings(target_accuracy, smoothing_s or 0.0, LAST))
        document = run_document(source, measured, target_accuracy, smoothing_s or 0.0, pictures, command)
    else:
        assert comparison is not None
        document = sweep_document(source, comparison, pictures, command, against=against, margin=margin, equivalent=margins)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(_written(document, file), encoding="utf-8")
    if tables:
        write_tables(document.tables, file.parent / f"{file.stem}-tables")
    return file


def _written(document: Document, file: Path) -> str:
    """The text of `file`; of Markdown, the figures are written beside it."""
    from analysis.figures.style import save_png, svg_text

    if file.suffix == ".html":
        return html(document, lambda it: inline_svg(svg_text(it.figure), it.name, it.caption, _described(it)))
    folder = file.parent / f"{file.stem}-figures"
    saved = {picture.name: save_png(picture.figure, folder / f"{picture.name}.png") for picture in document.pictures}
    return markdown(document, {name: f"{folder.name}/{path.name}" for name, path in saved.items()})


def _described(picture: Picture) -> str:
    return picture.caption


def _command(path: Path, **settings: Any) -> str:
    """The command that writes this report, from the folder in which the runs' folder lies."""
    words = ["netsim", "report", shlex.quote(path.resolve().name)]
    if settings["target_accuracy"] is not None:
        words += ["--target-accuracy", f"{settings['target_accuracy']:.10g}"]
    if settings["horizon_s"] is not None:
        words += ["--horizon-s", f"{settings['horizon_s']:.10g}"]
    words += ["--equal-bytes"] if settings["equal"] == "bytes" else []
    words += [word for name in settings["metrics"] for word in ("--metric", name)]
    words += [word for key in settings["against"] for word in ("--against", key)]
    words += [word for text in settings["equivalent"] for word in ("--equivalent", text)]
    words += ["--margin", f"{settings['margin']:.10g}"] if settings["margin"] != MARGIN else []
    words += ["--bounds"] if settings["bounds"] else []
    return " ".join(words)
