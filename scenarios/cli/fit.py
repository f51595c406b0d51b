"""The command that turns a measured log into a scenario: fit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scenarios.cli.output import Quiet, complain, out_console, progress
from scenarios.schema.errors import UserError

if TYPE_CHECKING:
    from scenarios.fit.prediction import Prediction


def fit(
    log: Annotated[Path, typer.Argument(metavar="LOG", help="A CSV or Parquet file, or a run's folder.")],
    out: Annotated[Path, typer.Option("--out", help="A new folder for the scenario and its report.")],
    by: Annotated[
        str, typer.Option("--by", metavar="class|client", help="Clients of one class share laws; or each has its own.")
    ] = "class",
    law: Annotated[
        list[str] | None,
        typer.Option("--law", metavar="PHASE=KIND", help="A law in place of the best one, or changes=none; may be repeated."),
    ] = None,
    deadline_s: Annotated[
        float | None, typer.Option("--deadline-s", metavar="S", help="The server's deadline; default: the latest cut-off.")
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", min=0, help="Seeds of the predictive check; 0: none.")] = 20,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier fit in the folder.")] = False,
    quiet: Quiet = False,
) -> None:
    """Fit a scenario to a measured log, and check what it predicts."""
    from scenarios.fit.fit import fit_log

    with progress({"predictive check": 2 * seeds}, quiet or not seeds, unit="runs") as advance:
        fitted = fit_log(
            log,
            out,
            by=by,
            laws=_laws(law or []),
            deadline_s=deadline_s,
            seeds=seeds,
            overwrite=overwrite,
            progress=lambda done: advance("predictive check", done),
        )
    for caution in fitted.estimates.cautions:
        complain(f"warning: {caution}")
    if fitted.check:
        out_console.print(_table("All rounds", fitted.check))
    if fitted.hold_out:
        out_console.print(_table("The last 30 % of the rounds, from the first 70 %", fitted.hold_out))
    out_console.print(f"scenario: {fitted.scenario}; report: {out / 'report.html'}", soft_wrap=True, highlight=False)


def _laws(options: list[str]) -> dict[str, str]:
    """Return the kind of law by phase, of `--law PHASE=KIND` options; raises UserError."""
    laws = {}
    for option in options:
        phase, equals, kind = option.partition("=")
        if not equals:
            raise UserError(f"--law {option}: must be PHASE=KIND, such as upload=gamma")
        laws[phase] = kind
    return laws


def _table(title: str, predictions: list[Prediction]) -> object:
    """Return a table for the terminal: each figure as measured and as the fitted scenario predicts it."""
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=None, header_style="bold")
    table.add_column("figure")
    for name in ("measured", "simulated", "95 % band", "in the band"):
        table.add_column(name, justify="right")
    for figure in predictions:
        band = f"{figure.low:.4g} .. {figure.high:.4g}"
        agrees = "yes" if figure.agrees else "no"
        table.add_row(figure.name, f"{figure.measured:.4g}", f"{figure.simulated:.4g}", band, agrees)
    return table
