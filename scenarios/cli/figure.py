"""The command that draws one figure of finished runs, and the options of figures that `report` shares with it."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scenarios.cli.output import opened_sweep, out_console
from scenarios.schema.errors import UserError

if TYPE_CHECKING:
    from analysis import Run, Sweep


class ImageOption(StrEnum):
    """What figures are written as."""

    PNG = "png"
    SVG = "svg"
    PDF = "pdf"


class OverOption(StrEnum):
    """What is below figures over the course of a run."""

    ROUNDS = "rounds"
    SECONDS = "seconds"


Size = Annotated[str | None, typer.Option("--size", metavar="WxH", help="Size of figures in inches, such as 3.5x2.6.")]
Font = Annotated[str | None, typer.Option("--font", help="Font family of figures, one that Matplotlib finds.")]
FontSize = Annotated[float | None, typer.Option("--font-size", help="Points of the letters of axes; others in proportion.")]
Smoothing = Annotated[
    float | None, typer.Option("--smoothing-s", min=0.0, help="Average accuracies over so many simulated seconds.")
]
Window = Annotated[int | None, typer.Option("--window", min=1, help="Average latencies and age variances over so many rounds.")]
OverRounds = Annotated[
    OverOption | None,
    typer.Option("--over", help="Draw the course of runs over rounds or seconds; default: rounds where all variants share them."),
]
RoundNumber = Annotated[
    int | None, typer.Option("--round", min=1, help="The round that is shown client by client; default: one of median length.")
]


def look_settings(size: str | None, font: str | None, font_size: float | None) -> dict[str, Any]:
    """The fields of `analysis.figures.style.Look` that options give; raises UserError for a size that is none."""
    given: dict[str, Any] = {name: value for name, value in (("font", font), ("font_size", font_size)) if value is not None}
    if size is not None:
        match = re.fullmatch(r"(\d+(?:\.\d+)?)x(\d+(?:\.\d+)?)", size)
        if match is None:
            raise UserError(f"--size {size!r}: must be width x height in inches, such as 3.5x2.6")
        given |= {"width_in": float(match[1]), "height_in": float(match[2])}
    return given


def opened(folder: Path) -> Sweep | Run:
    """The run or sweep in `folder`; ValueError where there is none."""
    from analysis import is_sweep, open_run

    return opened_sweep(folder) if is_sweep(folder) else open_run(folder)


def figure(
    folder: Annotated[Path, typer.Argument(help="A run's or a sweep's folder.")],
    name: Annotated[str | None, typer.Argument(help="Which figure; without it those that there is data for are listed.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="The file: .png, .svg or .pdf; default: FOLDER/report/NAME.png.")
    ] = None,
    title: Annotated[str | None, typer.Option("--title", help="Another title; an empty one: none.")] = None,
    note: Annotated[bool, typer.Option(" /--no-note", help="Leave out what the figure says at its foot.")] = True,
    size: Size = None,
    font: Font = None,
    font_size: FontSize = None,
    smoothing_s: Smoothing = None,
    window: Window = None,
    over: OverRounds = None,
    round: RoundNumber = None,
    target_accuracy: Annotated[float | None, typer.Option(min=0.0, max=1.0, help="Mark the hits of this accuracy.")] = None,
    bounds: Annotated[bool, typer.Option("--bounds", help="Draw the bounds that theory gives beside regrets.")] = False,
) -> None:
    """Draw one figure of a finished run or sweep, in the size and the letters that a paper wants."""
    from analysis import Run
    from analysis.figures.regret_bounds import regret_bounds
    from analysis.figures.runs import CAPTIONS, figure_of, figures_of
    from analysis.figures.settings import FigureSettings, Look
    from analysis.figures.style import save_figure
    from scenarios.runs.bounds import aoi_bounds

    try:
        source = opened(folder)
        runs = [source] if isinstance(source, Run) else list(source)
        settings = FigureSettings(
            smoothing_s=smoothing_s,
            window=window,
            over=None if over is None else over.value,
            round=round,
            target_accuracy=target_accuracy,
            regret_bounds=regret_bounds(runs) if bounds else (),
            aoi_bounds=aoi_bounds(runs) if bounds else (),
            look=Look(title=title, notes=note, **look_settings(size, font, font_size)),
        )
        if name is None:
            for found in figures_of(source, settings):
                out_console.print(f"{found:<16} {CAPTIONS[found]}", soft_wrap=True)
            return
        file = out or folder / "report" / f"{name}.png"
        drawn = figure_of(source, name, settings)
        written = save_figure(drawn, file)
    except ValueError as error:
        raise UserError(str(error)) from error
    except OSError as error:
        raise UserError(f"the figure cannot be written: {error}; name another file with --out") from error
    out_console.print(f"figure: {written}", soft_wrap=True)
