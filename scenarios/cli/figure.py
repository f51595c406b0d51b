"""The command that draws one figure of finished runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scenarios.cli.drawing import Drawing, drawing
from scenarios.cli.output import opened_sweep, out_console
from scenarios.schema.errors import UserError

if TYPE_CHECKING:
    from analysis import Run, Sweep


def open_results(folder: Path) -> Sweep | Run:
    """Return the run or sweep in `folder`, without damaged runs, which cause a warning. Raises ValueError if none is left."""
    from analysis import is_sweep, open_run

    if not is_sweep(folder):
        return open_run(folder)
    sweep: Sweep = opened_sweep(folder)
    if not len(sweep):
        raise ValueError(f"{folder}: the sweep has no complete run; finish it with netsim sweep and --resume")
    return sweep


@drawing
def figure(
    folder: Annotated[Path, typer.Argument(help="A run's or a sweep's folder.")],
    name: Annotated[str | None, typer.Argument(help="A figure; without it those that there is data for are listed.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="The file: .png, .svg or .pdf; default: FOLDER/report/NAME.png.")
    ] = None,
    target_accuracy: Annotated[float | None, typer.Option(min=0.0, max=1.0, help="Mark the hits of this accuracy.")] = None,
    bounds: Annotated[bool, typer.Option("--bounds", help="Draw the bounds that theory gives beside regrets.")] = False,
    *,
    drawing: Drawing,
) -> None:
    """Draw one figure of a finished run or sweep. Size, font and format can be those of a paper."""
    from analysis import Run
    from analysis.catalogue import CAPTIONS, figure_of, figures_of
    from analysis.figures.style import save_figure
    from analysis.files import refuse_links
    from analysis.regret.bounds import regret_bounds
    from scenarios.runs.folders.replacement import writing
    from scenarios.runs.summary.bounds import aoi_bounds

    try:
        source = open_results(folder)
        runs = [source] if isinstance(source, Run) else list(source)
        settings = drawing.settings(
            target_accuracy=target_accuracy,
            regret_bounds=regret_bounds(runs) if bounds else (),
            aoi_bounds=aoi_bounds(runs) if bounds else (),
        )
        if name is None:
            names = figures_of(source, settings)
            if not names:
                raise ValueError(f"{folder}: there is data for no figure: no round took time or was measured")
            for listed in names:
                out_console.print(f"{listed:<16} {CAPTIONS[listed]}", soft_wrap=True)
            return
        file = out or folder / "report" / f"{name}.png"
        refuse_links(folder, file)
        drawn = figure_of(source, name, settings)
        with writing(file, "file"):
            written = save_figure(drawn, file)
    except (ValueError, OSError) as error:
        raise UserError(str(error)) from error
    out_console.print(f"figure: {written}", soft_wrap=True)
