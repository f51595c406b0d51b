"""The command that analyses the effects of change points: breakpoints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from scenarios.cli.drawing import Formats, Looks, drawing, formats_of
from scenarios.cli.figure import open_results
from scenarios.cli.output import complain, out_console
from scenarios.schema.errors import UserError

if TYPE_CHECKING:
    from analysis.breakpoints.changes import Unit
    from analysis.documents.blocks import Table as Block
    from analysis.figures.settings import Look
    from analysis.results.groups import Groups

MOST_LETTERS = 20
"""Largest width, in letters, that the column of variants keeps on a narrow terminal."""


@drawing
def breakpoints(
    folder: Annotated[Path, typer.Argument(help="A run's or a sweep's folder.")],
    out: Annotated[Path | None, typer.Option("--out", help="Folder for figures and breakpoints.csv; default: none.")] = None,
    window: Annotated[int, typer.Option(min=1, help="Rounds over which the regret rate is averaged.")] = 50,
    seconds: Annotated[bool, typer.Option("--seconds", help="Times in simulated seconds, in place of rounds.")] = False,
    figures: Formats = None,
    *,
    drawing: Looks,
) -> None:
    """Print how soon changes were declared. Also which were missed, and how long the regret took to recover."""
    from analysis import group_runs
    from analysis.breakpoints.section import breakpoint_table, recovery_is_known
    from scenarios.runs.folders.replacement import writing

    unit: Unit = "seconds" if seconds else "rounds"
    try:
        look = drawing.look()
        if out is None:
            drawing.refuse_unused("name a folder for figures with --out", formats=bool(figures))
        groups = group_runs(open_results(folder))
        block = breakpoint_table(groups, window=window, unit=unit)
        if block is None:
            raise ValueError(f"{folder}: no run went through a change; give the scenario change points that come before its end")
        if not any(map(recovery_is_known, block.cells[1])):
            complain(f"warning: --window {window}: no change is followed by so many rounds; nothing can be said of recovery")
        _print_table(block)
        if out is not None:
            with writing(out):
                _write(groups, out, window, unit, look, formats_of(figures))
    except (ValueError, OSError) as error:
        raise UserError(str(error)) from error


def _print_table(block: Block) -> None:
    """Print a table and its note. On a narrow terminal numbers wrap, but words of the first column (variants) stay whole."""
    from rich.table import Table

    header, rows = block.cells
    table = Table(box=None, header_style="bold", padding=(0, 1, 0, 0))
    longest_word = max(len(word) for row in rows for word in row[0].split() or [""])
    for index, name in enumerate(header):
        justify: Literal["right", "left"] = "right" if index else "left"
        table.add_column(name, justify=justify, overflow="fold", min_width=None if index else min(longest_word, MOST_LETTERS))
    for row in rows:
        table.add_row(*row)
    out_console.print(table)
    out_console.print(block.note, soft_wrap=True)


def _write(groups: Groups, out: Path, window: int, unit: Unit, look: Look, formats: Sequence[str]) -> None:
    """Write breakpoints.csv (a row for each change of each variant) and figures into `out`, and print the names of the files.

    `window`: rounds over which the regret rate is averaged. `unit`: unit of times in figures. `formats`: endings of figures.
    """
    import pandas as pd

    from analysis.breakpoints.figure import course_figure, regret_around_changes_figure, shares_figure
    from analysis.breakpoints.summary import change_tables
    from analysis.figures.style import save_figure

    out.mkdir(parents=True, exist_ok=True)
    frames = {label: change_tables(runs, window=window) for label, runs in groups.items()}
    whole = pd.concat([frame.assign(variant=label) for label, frame in frames.items()], ignore_index=True)
    whole.to_csv(out / "breakpoints.csv", index=False)
    out_console.print(f"written: {out / 'breakpoints.csv'}", soft_wrap=True)
    # None: there is no data for the figure.
    drawn = {
        "breakpoints": regret_around_changes_figure(groups, window=window, over=unit, look=look),
        "answered": shares_figure(groups, window=window, over=unit, look=look),
        "course": course_figure(groups, window=window, over=unit, look=look),
    }
    figures = {name: figure for name, figure in drawn.items() if figure is not None}
    for name, figure in figures.items():
        for format in formats:
            out_console.print(f"written: {save_figure(figure, out / f'{name}.{format}')}", soft_wrap=True)
