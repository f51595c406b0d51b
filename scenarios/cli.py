"""The command `netsim`. A user's mistake ends with one message and exit code 2."""

from __future__ import annotations

import json
import re
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from scenarios.errors import UserError, located

if TYPE_CHECKING:
    from netsim.simulation import Simulation

app = typer.Typer(
    help="A discrete-event simulator of federated learning over unreliable networks.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
out_console = Console(markup=False)
err_console = Console(stderr=True, markup=False)
MOST_SEEDS = 10_000


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        out_console.print(f"netsim {version('netsim')}", highlight=False)
        raise typer.Exit


@app.callback()
def netsim(
    version: Annotated[bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)] = False,
) -> None:
    """A discrete-event simulator of federated learning over unreliable networks."""


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
    from scenarios.build import build
    from scenarios.folders import check_run
    from scenarios.reading import override, parse, read
    from scenarios.run import play

    study = parse(override(read(scenario, settings or ()), {} if seed is None else {"seed": seed}), scenario)
    folder = out or Path("runs") / study.name
    check_run(folder, overwrite)
    with located(scenario):
        built = build(study)
    with _progress({study.method.kind: study.rounds}, quiet) as advance:

        def after_round(simulation: Simulation) -> None:
            advance(study.method.kind, simulation.server.round)

        summary = play(built, study, folder, overwrite=overwrite, after_round=after_round)
    _tell(summary, folder)


@app.command()
def resume(folder: Annotated[Path, typer.Argument(help="The folder of a run that was cut off.")], quiet: Quiet = False) -> None:
    """Go on with a run that was interrupted or killed, from its last checkpoint."""
    from scenarios.run import go_on, unfinished

    study, _ = unfinished(folder)
    with _progress({study.method.kind: study.rounds}, quiet) as advance, located(str(folder)):
        summary = go_on(folder, after_round=lambda simulation: advance(study.method.kind, simulation.server.round))
    _tell(summary, folder)


def _tell(summary: dict[str, Any], folder: Path) -> None:
    from scenarios import checkpoint
    from scenarios.run import INTERRUPTED

    out_console.print(_summary_table(summary))
    out_console.print(f"results: {folder}", soft_wrap=True)
    if summary["ended"] == INTERRUPTED:
        further = f". To go on: netsim resume {folder}" if checkpoint.exists(folder) else ""
        _complain(f"interrupted after {summary['rounds']} rounds; the files hold these{further}")
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
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a sweep that was interrupted or killed.")] = False,
    quiet: Quiet = False,
    figures: Annotated[bool, typer.Option(help="Draw figures into the folder.")] = True,
) -> None:
    """Play variants of a scenario with the same seeds, and compare them."""
    from scenarios.reading import read
    from scenarios.sweep import complete, plan, with_grid
    from scenarios.sweep import sweep as play

    added = dict(_values(text) for text in grid or ())
    tables = with_grid(read(scenario, settings or ()), added, None if seeds is None else _seeds(seeds))
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

        try:
            play(planned, folder, overwrite=overwrite, resume=resume, jobs=jobs, progress=show)
        except KeyboardInterrupt:
            done = f"{len(complete(planned, folder))} of {len(planned.runs)} runs are complete: {folder}"
            _complain(f"interrupted; {done}. To go on: the same command with --resume")
            raise typer.Exit(130) from None
    _compare(folder, figures)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="A run's or a sweep's folder.")],
    out: Annotated[Path | None, typer.Option("--out", help="Folder for report and figures; default: FOLDER/report.")] = None,
    target_accuracy: Annotated[float | None, typer.Option(min=0.0, max=1.0, help="Time to this accuracy.")] = None,
    bounds: Annotated[bool, typer.Option("--bounds", help="Draw the bounds that theory gives beside AoI regrets.")] = False,
) -> None:
    """Write a report with tables and figures of a finished run or sweep."""
    from analysis import is_sweep, open_run, open_sweep, write_report
    from scenarios.bounds import aoi_bounds

    try:
        # Opened before the report is begun, so that a wrong folder is left as it was.
        opened = list(open_sweep(folder)) if is_sweep(folder) else [open_run(folder)]
        for run in opened:
            run.arrow("rounds", ["round"])
        if not opened:
            raise ValueError(f"{folder}: the sweep has no complete run to report on; play it to the end")
    except (ValueError, OSError) as error:
        raise UserError(str(error)) from error
    try:
        written = write_report(
            folder,
            out or folder / "report",
            target_accuracy=target_accuracy,
            aoi_bounds=aoi_bounds(opened) if bounds else (),
        )
    except OSError as error:
        raise UserError(f"the report cannot be written: {error}; name another folder with --out") from error
    out_console.print(f"report: {written}", soft_wrap=True)


@app.command()
def compare(
    folders: Annotated[list[Path], typer.Argument(help="Runs, sweeps, or folders of a sweep's variants.")],
    out: Annotated[Path | None, typer.Option("--out", help="Folder for figures and comparison.csv; default: none.")] = None,
    target_accuracy: Annotated[float | None, typer.Option(min=0.0, max=1.0, help="Time to this accuracy.")] = None,
) -> None:
    """Compare finished runs and sweeps, wherever they lie; differences are to the first."""
    from analysis import draw_all, gather, write_comparison

    try:
        gathered = gather(folders, target_accuracy=target_accuracy)
        comparison = _print_comparison(gathered)
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            written = [write_comparison(gathered, out / "comparison.csv", comparison=comparison), *draw_all(gathered, out)]
            for path in written:
                out_console.print(f"written: {path}", soft_wrap=True)
    except (ValueError, OSError) as error:
        raise UserError(str(error)) from error


@app.command()
def reproduce(folder: Annotated[Path, typer.Argument(help="A run's folder.")], quiet: Quiet = False) -> None:
    """Play a finished run once more, and say whether its tables come out the same; exit code 1 if not."""
    from scenarios.reproduce import finished
    from scenarios.reproduce import reproduce as again

    study = finished(folder)
    with _progress({study.method.kind: study.rounds}, quiet) as advance, located(str(folder)):
        try:
            different = again(folder, after_round=lambda simulation: advance(study.method.kind, simulation.server.round))
        except KeyboardInterrupt:
            _complain("interrupted")
            raise typer.Exit(130) from None
    for line in different:
        _complain(line)
    if different:
        raise typer.Exit(1)
    out_console.print(f"{folder}: the tables are the same, byte for byte", soft_wrap=True)


@app.command()
def trace(
    folder: Annotated[Path, typer.Argument(help="A run's folder.")],
    out: Annotated[Path | None, typer.Option("--out", help="The file; default FOLDER/trace.json.gz.")] = None,
    rounds: Annotated[str | None, typer.Option(metavar="A..B", help="These rounds only, such as 1..50.")] = None,
) -> None:
    """Write a timeline of a run for the Perfetto viewer (ui.perfetto.dev)."""
    from analysis import open_run, write_trace

    match = re.fullmatch(r"(\d{1,12})\.\.(\d{1,12})", rounds or "1..1")
    if match is None or int(match[1]) > int(match[2]):
        raise UserError(f"--rounds {rounds!r}: must be a range such as 1..50")
    first, last = (int(match[1]), int(match[2])) if rounds is not None else (1, None)
    path = out or folder / "trace.json.gz"
    try:
        count = write_trace(open_run(folder), path, first=first, last=last)
    except (ValueError, OSError) as error:
        raise UserError(str(error)) from error
    out_console.print(f"trace: {path} ({count} events; open it at ui.perfetto.dev)", soft_wrap=True)


@app.command()
def check(scenario: ScenarioFile, settings: Settings = None) -> None:
    """Read and build a scenario (all its variants, too) without running it."""
    from scenarios.changes import never_reached
    from scenarios.reading import read
    from scenarios.sweep import plan

    planned = plan(read(scenario, settings or ()), scenario)
    variants = dict.fromkeys(p.variant for p in planned.runs)
    study = planned.runs[0].scenario
    out_console.print(
        f"{scenario}: good. {study.clients.count} clients, {_rounds(study)}, {study.rounds} rounds; "
        f"{len(variants)} variants ({', '.join(variants)}), {len(planned.runs)} runs in a sweep.",
        soft_wrap=True,
    )
    for note in never_reached(study):
        out_console.print(f"note: {note}", soft_wrap=True)


def _rounds(study: Any) -> str:
    if study.server.kind == "asynchronous":
        return f"all of them on {study.channels.count} sub-channels"
    if study.server.kind == "buffered":
        return f"{study.server.concurrency} at work, a new model of every {study.server.buffer} deliveries"
    return f"{study.server.per_round} a round"


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
    match = re.fullmatch(r"(\d{1,19})\.\.(\d{1,19})", text)
    if match is not None and 0 <= int(match[2]) - int(match[1]) < MOST_SEEDS:
        return list(range(int(match[1]), int(match[2]) + 1))
    if re.fullmatch(r"\d{1,19}(,\d{1,19})*", text):
        return [int(part) for part in text.split(",")]
    raise UserError(f"--seeds {text!r}: must be a list such as 1,2,3 or a range such as 1..10, of {MOST_SEEDS:,} at most")


def _values(text: str) -> tuple[str, list[Any]]:
    from scenarios.reading import parse_assignment, parse_value

    key, values = parse_assignment(text, "--grid")
    if isinstance(values, str):
        # A list need not be written as one: 1,10 or pause,random.
        values = [parse_value(value.strip()) for value in values.split(",")]
    if values in ([], [""]):
        raise UserError(f"--grid {text!r}: gives no values; list them, such as policy.alpha=1,10")
    return key, values if isinstance(values, list) else [values]


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
    aoi = summary["aoi"]
    if aoi is not None:
        if aoi["regret"] is not None:
            table.add_row("AoI regret", f"{aoi['regret']:.0f} (oracle {aoi['oracle']})")
        if aoi["mean_age_rounds"] is not None:
            table.add_row("mean age", f"{aoi['mean_age_rounds']:.4f} rounds")
        table.add_row("declared changes", _declared(aoi["detections"]))
    table.add_row("largest leak", f"{final['max_leak']:.4f}")
    table.add_row("guarantee", summary["privacy"]["guarantee"])
    return table


def _declared(detections: dict[str, Any]) -> str:
    text = f"{detections['declared']}"
    if detections["changes"] is not None:
        words = f"{detections['found']} of {detections['changes']} changes found, {detections['false_alarms']} false alarms"
        text += f" ({words}, {detections['by_jamming']} by jamming)"
    return text


def _print_comparison(done: Any) -> Any:
    from analysis import compare, comparison_table, difference_table

    comparison = compare(done)
    out_console.print(comparison_table(comparison))
    if comparison.differences:
        out_console.print(difference_table(comparison))
    return comparison


def _compare(folder: Path, figures: bool) -> None:
    from analysis import draw_all, open_sweep, write_comparison

    done = open_sweep(folder)
    write_comparison(done, comparison=_print_comparison(done))
    if figures:
        for path in draw_all(done, folder / "figures"):
            out_console.print(f"figure: {path}", soft_wrap=True)
    out_console.print(f"runs: {folder}", soft_wrap=True)


@contextmanager
def _progress(totals: dict[str, int], quiet: bool) -> Iterator[Callable[[str, int], None]]:
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("rounds"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err_console, disable=quiet) as progress:
        tasks = {label: progress.add_task(label, total=total) for label, total in totals.items()}
        yield lambda label, rounds: progress.update(tasks[label], completed=rounds)


def _complain(text: str) -> None:
    err_console.print(text, style="red", highlight=False, soft_wrap=True)


def _warn(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: str | None = None
) -> None:
    # What a scenario may suffer from names the key; the place in the code would only distract.
    ours = issubclass(category, UserWarning)
    text = f"warning: {message}" if ours else warnings.formatwarning(message, category, filename, lineno, line)
    err_console.print(text, style="yellow", highlight=False, soft_wrap=True)


def main() -> None:
    """Entry point of the command."""
    warnings.showwarning = _warn
    # What asks the process to end, as a service manager does, is treated like Ctrl-C.
    if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        app()
    except UserError as error:
        _complain(str(error))
        sys.exit(2)


if __name__ == "__main__":
    main()
