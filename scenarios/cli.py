"""The command `netsim`. A user's mistake ends with one message and exit code 2."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from scenarios.errors import UserError

if TYPE_CHECKING:
    from netsim.simulation import Simulation

app = typer.Typer(
    help="A discrete-event simulator of federated learning over unreliable networks.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
out_console = Console()
err_console = Console(stderr=True)

ScenarioFile = Annotated[str, typer.Argument(metavar="SCENARIO", help="A file, or the name of one that comes with netsim.")]
Settings = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a key; may be repeated.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what an earlier run left in the folder.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress display.")]


@app.command()
def run(
    scenario: ScenarioFile,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for the results; default runs/NAME.")] = None,
    settings: Settings = None,
    seed: Annotated[int | None, typer.Option(help="The seed, in place of the scenario's.")] = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Play one scenario into a folder."""
    from scenarios.reading import load
    from scenarios.run import INTERRUPTED
    from scenarios.run import run as play

    study = load(scenario, [*(settings or []), *([f"seed={seed}"] if seed is not None else [])])
    folder = out or Path("runs") / study.name
    with _progress({study.policy.kind: study.rounds}, quiet) as advance:

        def after_round(simulation: Simulation) -> None:
            advance(study.policy.kind, simulation.server.round)

        summary = play(study, folder, overwrite=overwrite, after_round=after_round)
    out_console.print(_summary_table(summary))
    out_console.print(f"results: {folder}", soft_wrap=True)
    if summary["ended"] == INTERRUPTED:
        err_console.print(f"interrupted after {summary['rounds']} rounds; the files hold these")
        raise typer.Exit(130)


@app.command()
def sweep(
    scenario: ScenarioFile,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for the results; default runs/NAME.")] = None,
    settings: Settings = None,
    grid: Annotated[
        list[str] | None, typer.Option("--grid", metavar="KEY=[V, ..]", help="Sweep a key over values; may be repeated.")
    ] = None,
    seeds: Annotated[str | None, typer.Option(metavar="LIST", help="Seeds, such as 1,2,3 or 1..10.")] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes; default: all cores.")] = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    figures: Annotated[bool, typer.Option(help="Draw figures into the folder.")] = True,
) -> None:
    """Play variants of a scenario with the same seeds, and compare them."""
    from scenarios.reading import override, parse_assignment, parse_value, read_file
    from scenarios.sweep import plan
    from scenarios.sweep import sweep as play

    tables = override(read_file(scenario), dict(parse_assignment(text) for text in settings or []))
    for text in grid or []:
        key, values = parse_assignment(text)
        if isinstance(values, str):
            values = [parse_value(value) for value in values.split(",")]
        chosen = {**tables.get("sweep", {}).get("grid", {}), key: values if isinstance(values, list) else [values]}
        tables = override(tables, {"sweep.grid": chosen})
    if seeds is not None:
        tables = override(tables, {"sweep.seeds": _seeds(seeds)})
    planned = plan(tables, scenario)
    folder = out or Path("runs") / planned.name
    totals: dict[str, int] = {}
    for p in planned.runs:
        totals[p.label] = totals.get(p.label, 0) + p.scenario.rounds
    with _progress(totals, quiet) as advance:

        def show(rounds: list[int]) -> None:
            done = dict.fromkeys(totals, 0)
            for p, count in zip(planned.runs, rounds, strict=True):
                done[p.label] += count
            for label, count in done.items():
                advance(label, count)

        play(planned, folder, overwrite=overwrite, jobs=jobs, progress=show)
    _compare(folder, figures)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="A run's or a sweep's folder.")],
    out: Annotated[Path | None, typer.Option("--out", help="Folder for report and figures; default: FOLDER/report.")] = None,
    target_accuracy: Annotated[float | None, typer.Option(min=0.0, max=1.0, help="Time to this accuracy.")] = None,
) -> None:
    """Write a report with tables and figures of a finished run or sweep."""
    from analysis import write_report

    written = _from_files(lambda: write_report(folder, out or folder / "report", target_accuracy=target_accuracy))
    out_console.print(f"report: {written}", soft_wrap=True)


@app.command()
def check(scenario: ScenarioFile, settings: Settings = None) -> None:
    """Read and build a scenario (all its variants, too) without running it."""
    from scenarios.reading import override, parse_assignment, read_file
    from scenarios.sweep import plan

    tables = override(read_file(scenario), dict(parse_assignment(text) for text in settings or []))
    planned = plan(tables, scenario)
    variants = dict.fromkeys(p.variant for p in planned.runs)
    study = planned.runs[0].scenario
    out_console.print(
        f"{scenario}: good. {study.clients.count} clients, {study.server.per_round} a round, {study.rounds} rounds; "
        f"{len(variants)} variants ({', '.join(variants)}), {len(planned.runs)} runs in a sweep.",
        soft_wrap=True,
    )


@app.command(name="list")
def list_parts() -> None:
    """Show the scenarios that come with netsim, and what a scenario may name."""
    import tomllib

    from scenarios.learning import DATA_SETS, NETWORKS, OPTIMIZERS
    from scenarios.reading import FOLDER
    from scenarios.registry import BUILT_IN, known

    scenarios = Table("scenario", "what it shows", box=None, header_style="bold")
    for file in sorted(FOLDER.glob("*.toml")):
        scenarios.add_row(file.stem, str(tomllib.loads(file.read_text(encoding="utf-8")).get("description", "")))
    parts = Table("part", "kinds", box=None, header_style="bold")
    for group in BUILT_IN:
        kinds = [*known(group), *(["by-group"] if group == "delay" else [])]
        parts.add_row(group, ", ".join(kinds))
    for group, names in (("data", DATA_SETS), ("network", NETWORKS), ("optimizer", OPTIMIZERS)):
        parts.add_row(group, ", ".join(names))
    out_console.print(scenarios)
    out_console.print()
    out_console.print(parts)
    out_console.print('\nEvery part may also be a class of your own: kind = "package.module:Class".', highlight=False)


@app.command()
def schema(
    markdown: Annotated[bool, typer.Option("--markdown", help="A page to read, in place of JSON Schema.")] = False,
) -> None:
    """Print the JSON Schema of scenario files, for editors; or a reference to read."""
    from scenarios.reference import json_schema, reference

    sys.stdout.write(reference() if markdown else json.dumps(json_schema(), indent=2) + "\n")


def _seeds(text: str) -> list[int]:
    try:
        if ".." in text:
            first, last = (int(part) for part in text.split(".."))
            return list(range(first, last + 1))
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise UserError(f"--seeds {text!r}: must be a list such as 1,2,3 or a range such as 1..10") from error


def _summary_table(summary: dict[str, Any]) -> Table:
    final, totals = summary["final"], summary["totals"]
    table = Table(box=None, show_header=False)
    table.add_row("rounds", f"{summary['rounds']} ({summary['ended']})")
    table.add_row("simulated time", f"{summary['simulated_s']:.3f} s")
    if final["mean_round_s"] is not None:
        table.add_row("mean round", f"{final['mean_round_s']:.4f} s")
    table.add_row(
        "updates", ", ".join(f"{totals[name]} {name}" for name in ("delivered", "lost", "late", "aborted", "in_flight"))
    )
    if final["accuracy"] is not None:
        table.add_row("final accuracy", f"{final['accuracy']:.4f}")
    if final["regret"] is not None:
        table.add_row("regret", f"{final['regret']:.4f}")
    table.add_row("largest leak", f"{final['max_leak']:.4f}")
    table.add_row("guarantee", summary["privacy"]["guarantee"])
    return table


def _compare(folder: Path, figures: bool) -> None:
    from analysis import compare, comparison_table, difference_table, draw_all, open_sweep, write_comparison

    done = _from_files(lambda: open_sweep(folder))
    comparison = compare(done)
    out_console.print(comparison_table(comparison))
    if comparison.differences:
        out_console.print(difference_table(comparison))
    write_comparison(done, comparison=comparison)
    if figures:
        for path in draw_all(done, folder / "figures"):
            out_console.print(f"figure: {path}", soft_wrap=True)
    out_console.print(f"runs: {folder}", soft_wrap=True)


def _from_files(read: Callable[[], Any]) -> Any:
    # What is wrong with a folder of results is the user's to mend, as with a scenario.
    try:
        return read()
    except (ValueError, OSError) as error:
        raise UserError(str(error)) from error


@contextmanager
def _progress(totals: dict[str, int], quiet: bool) -> Iterator[Callable[[str, int], None]]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("rounds"), TimeRemainingColumn())
    with Progress(*columns, console=err_console, disable=quiet) as progress:
        tasks = {label: progress.add_task(label, total=total) for label, total in totals.items()}
        yield lambda label, rounds: progress.update(tasks[label], completed=rounds)


def main() -> None:
    """Entry point of the command."""
    try:
        app()
    except UserError as error:
        err_console.print(str(error), style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(2)
    except KeyboardInterrupt:
        err_console.print("interrupted")
        sys.exit(130)


if __name__ == "__main__":
    main()
