"""The command that says how long a large sweep will take on many workers: scale."""

from __future__ import annotations

from typing import Annotated

import typer

from scenarios.cli.output import out_console


def scale(
    run_s: Annotated[float, typer.Option("--run-s", min=1e-6, help="Seconds of a run on a worker, on average.")],
    task_s: Annotated[
        float, typer.Option("--task-s", min=1e-9, help="Seconds that the scheduler and the main process spend on a run.")
    ],
    start_s: Annotated[float, typer.Option("--start-s", min=0.0, help="Seconds until the workers have started.")] = 0.0,
    run_bytes: Annotated[float, typer.Option("--run-bytes", min=0.0, help="Bytes that a run leaves.")] = 0.0,
    cv: Annotated[float, typer.Option("--cv", min=0.0, help="Coefficient of variation of the time of a run.")] = 0.3,
) -> None:
    """Print how long sweeps of many runs take on many workers. Their scheduler is simulated with measured costs."""
    from analysis.documents.terminal import terminal_table
    from analysis.scaling.measure import Costs, plan_cells

    costs = Costs(run_s, task_s, start_s, run_bytes, cv)
    note = f"One run: {run_s:g} s; the scheduler is saturated by {costs.saturates_at:,.0f} workers. In brackets: the share of "
    note += "the workers' time that is spent on runs."
    out_console.print(terminal_table("Sweeps on many workers", note, plan_cells(costs)))
