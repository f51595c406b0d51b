"""The command `netsim`. A user's mistake ends with one message and exit code 2."""

import json
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from netsim.core.collector import pause_collector
from scenarios.cli.breakpoints import breakpoints
from scenarios.cli.commands import Commands, command, exit_interrupted
from scenarios.cli.drawing import Drawing, Formats, drawing, formats_of
from scenarios.cli.figure import figure
from scenarios.cli.fit import fit
from scenarios.cli.output import (
    Quiet,
    complain,
    grids_of,
    opened_sweep,
    out_console,
    print_comparison,
    seeds_of,
    show_cautions,
    sweep_progress,
    tell,
    warn,
)
from scenarios.cli.overlays import overlays
from scenarios.cli.papers import reproduce
from scenarios.cli.results import compare, replay, report, trace
from scenarios.cli.scale import scale
from scenarios.cli.stragglers import stragglers, what_if
from scenarios.cli.streams import output_streams
from scenarios.schema.errors import DefectError, UserError, name_source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analysis.figures.settings import FigureSettings, ImageFormat
    from netsim.simulation import Simulation

app = typer.Typer(
    cls=Commands,
    help="A discrete-event simulator of federated learning over unreliable networks.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(requested: bool) -> None:
    """Show the version and exit, if `--version` was given."""
    if requested:
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
Strict = Annotated[bool, typer.Option("--strict", help="Treat warnings as errors.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what an earlier run left in the folder.")]
ChangedCode = Annotated[
    bool, typer.Option("--allow-changed-code", help="Go on though the code of your own components is another by now.")
]

EventLimit = Annotated[
    int | None, typer.Option("--event-limit", metavar="N", min=1, help="End after N events, whatever the clock says.")
]

SweepCluster = Annotated[
    str | None, typer.Option(metavar="ADDRESS", help="A Dask scheduler whose workers to use; local:N starts N.")
]
Workers = Annotated[
    int | None,
    typer.Option("--workers", metavar="N", min=0, help="Processes that train clients, in place of learner.workers; 0: this one."),
]
TrainingCluster = Annotated[
    str | None,
    typer.Option("--cluster", metavar="ADDRESS", help="A Dask scheduler whose workers train clients; local:N starts N."),
]
WallLimitS = Annotated[
    float | None,
    typer.Option("--wall-limit", metavar="S", help="End after S seconds of wall time, as by Ctrl-C; a sweep: every run."),
]


@app.command()
@command
def run(
    scenario: ScenarioFile,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for the results; default runs/NAME.")] = None,
    settings: Settings = None,
    seed: Annotated[int | None, typer.Option(help="The seed, in place of the scenario's.")] = None,
    event_limit: EventLimit = None,
    wall_limit: WallLimitS = None,
    log: Annotated[
        str | None, typer.Option("--log", metavar="tensorboard", help="Log the rounds for TensorBoard, into the folder.")
    ] = None,
    workers: Workers = None,
    cluster: TrainingCluster = None,
    overwrite: Overwrite = False,
    strict: Strict = False,
    quiet: Quiet = False,
) -> None:
    """Run one scenario into a folder."""
    with pause_collector():  # no garbage collection: imports and building create much that stays
        from scenarios.cli.live import live, log_run
        from scenarios.runs.reading import override, parse, read
        from scenarios.runs.run import prepare, simulate
        from scenarios.runs.training_machines import TrainingMachines
        from scenarios.runs.wall_limit import WallLimit
        from scenarios.schema.servers.flower import known_rounds

        wall = WallLimit(wall_limit, may_end_process=True)
        study = parse(override(read(scenario, settings or ()), {} if seed is None else {"seed": seed}), scenario)
        folder = out or Path("runs") / study.name
        logs = _log_files(log)
        machines = TrainingMachines(workers=workers, cluster=cluster)
        built = prepare(
            study, scenario, folder, overwrite=overwrite, strict=strict, event_limit=event_limit, machines=machines
        )
    show_cautions(dict.fromkeys(built.cautions, ""))
    with live(study.name, known_rounds(study), study.time_limit_s, quiet) as display, log_run(folder, bool(logs)) as log_round:

        def after_round(simulation: "Simulation") -> None:
            log_round(simulation)
            display(simulation)

        display.begin(built.simulation)
        summary = simulate(built, study, folder, overwrite=overwrite, after_round=after_round, more_files=logs, wall=wall)
    reason = wall.reason if wall.reached else "interrupted"
    tell(summary, folder, shown=built.cautions, strict=strict, why=reason, resumable=study.flower is None)


@app.command()
@command
def resume(
    folder: Annotated[Path, typer.Argument(help="The folder of a run that was cut off.")],
    allow_changed_code: ChangedCode = False,
    event_limit: EventLimit = None,
    wall_limit: WallLimitS = None,
    workers: Workers = None,
    cluster: TrainingCluster = None,
    quiet: Quiet = False,
) -> None:
    """Go on with a run that was interrupted or killed. It goes on from its last checkpoint."""
    with pause_collector():  # no garbage collection: imports create much that stays
        from scenarios.cli.live import live, log_run
        from scenarios.runs.event_log import FILE as EVENTS
        from scenarios.runs.run import go_on
        from scenarios.runs.training_machines import TrainingMachines
        from scenarios.runs.unfinished import read_unfinished
        from scenarios.runs.wall_limit import WallLimit

    wall = WallLimit(wall_limit, may_end_process=True)
    study, state = read_unfinished(folder)
    if state is None:
        complain(f"{folder}: was cut off before its first checkpoint, and begins again with round 1")
    # A run that begins again from round 1 writes no log: it would repeat rounds that the old log holds.
    continues_log = (folder / EVENTS).is_file() and state is not None
    with (
        live(study.name, study.rounds, study.time_limit_s, quiet) as display,
        log_run(folder, continues_log) as log_round,
        name_source(str(folder)),
    ):

        def after_round(simulation: "Simulation") -> None:
            log_round(simulation)
            display(simulation)

        def begin(simulation: "Simulation") -> None:
            simulation.limit_events(event_limit)
            display.begin(simulation)

        summary = go_on(
            folder,
            after_round=after_round,
            allow_changed_code=allow_changed_code,
            begin=begin,
            wall=wall,
            machines=TrainingMachines(workers=workers, cluster=cluster),
        )
    tell(summary, folder, why=wall.reason if wall.reached else "interrupted")


@contextmanager
def _report_interrupt(folder: Path) -> Iterator[None]:
    """Context manager: at Ctrl-C, show how many runs of the sweep in `folder` are complete, and exit with code 130."""
    try:
        yield
    except KeyboardInterrupt:
        from scenarios.sweeps.earlier_runs import progress_of

        complete, total = progress_of(folder)
        if not total:  # the sweep had not begun, so there is nothing to resume
            raise
        complain(f"interrupted; {complete} of {total} runs are complete: {folder}. To go on: the same command with --resume")
        raise typer.Exit(130) from None


@app.command()
@command
@drawing
def sweep(
    scenario: ScenarioFile,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for the results; default runs/NAME.")] = None,
    settings: Settings = None,
    grid: Annotated[
        list[str] | None, typer.Option("--grid", metavar="KEY=[V, ..]", help="Sweep a key over values; may be repeated.")
    ] = None,
    seeds: Annotated[str | None, typer.Option(metavar="LIST", help="Seeds, such as 1,2,3 or 1..10.")] = None,
    variants: Annotated[
        str | None, typer.Option(metavar="LIST", help="Of sweep.variants only these, such as random,all; default: all.")
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes; default: all cores.")] = None,
    cluster: SweepCluster = None,
    send_back: Annotated[
        bool, typer.Option("--send-back", help="Let results travel back from workers that do not share the folder.")
    ] = False,
    tables: Annotated[
        str, typer.Option("--tables", metavar="LIST", help="Tables of all runs to gather in the folder dataset; none: none.")
    ] = "rounds",
    event_limit: EventLimit = None,
    wall_limit: WallLimitS = None,
    retries: Annotated[int, typer.Option(min=0, help="How often a run is simulated again whose worker was killed.")] = 2,
    overwrite: Overwrite = False,
    strict: Strict = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a sweep that was interrupted or killed.")] = False,
    allow_changed_code: ChangedCode = False,
    quiet: Quiet = False,
    figures: Formats = None,
    no_figures: Annotated[bool, typer.Option("--no-figures", help="Draw no figures into the folder.")] = False,
    *, drawing: Drawing,
) -> None:
    """Run and compare variants of a scenario at the same seeds."""
    from scenarios.runs.reading import read
    from scenarios.sweeps.earlier_runs import stopping_lines
    from scenarios.sweeps.options import Earlier, Limits, Machines
    from scenarios.sweeps.sweep import later_cautions, plan_grid
    from scenarios.sweeps.sweep import sweep as run_sweep

    figure_settings, formats = _figure_options(drawing, figures, no_figures)
    planned = plan_grid(
        read(scenario, settings or ()), scenario, grid=grids_of(grid or ()), strict=strict,
        seeds=None if seeds is None else seeds_of(seeds),
        variants=None if variants is None else variants.split(","),
    )
    show_cautions(planned.warned)
    folder = out or Path("runs") / planned.name
    with sweep_progress(planned, quiet) as show, _report_interrupt(folder):
        run_sweep(
            planned,
            folder,
            machines=Machines(jobs=jobs, cluster=cluster, send_back=send_back, retries=retries),
            earlier=Earlier(overwrite=overwrite, resume=resume, allow_changed_code=allow_changed_code),
            progress=show,
            limits=Limits(event_limit=event_limit, wall_limit_s=wall_limit),
            tables=() if tables == "none" else tables.split(","),
        )
    _compare(folder, figure_settings, formats)
    for line in stopping_lines(folder):
        out_console.print(line, soft_wrap=True, highlight=False)
    show_cautions(later_cautions(planned, folder), strict=strict)


for function in (report, figure, compare, reproduce, replay, trace, stragglers, what_if, breakpoints, scale, fit, overlays):
    app.command()(command(function))


def _count_text(count: int, noun: str) -> str:
    """Return a number with its noun, such as "3 runs"."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _verdict(warnings: int) -> str:
    """Return the verdict of `netsim check` on a scenario that can be run."""
    return f"can be run, with {_count_text(warnings, 'warning')}." if warnings else "good."


@app.command()
@command
def check(scenario: ScenarioFile, settings: Settings = None, strict: Strict = False) -> None:
    """Read and build a scenario without running it. All its variants, too; tells what is doubtful about it."""
    with pause_collector():
        from scenarios.runs.reading import read
        from scenarios.schema.servers.flower import known_rounds
        from scenarios.sweeps.sweep import plan
        from scenarios.wiring.network.payload import sizes_in_words

        planned = plan(read(scenario, settings or ()), scenario, strict=strict)
    variants = planned.variants
    study = planned.runs[0].scenario
    at_most = "" if study.flower is None else "at most "  # a Flower app may end earlier
    rounds = "until the app ends" if known_rounds(study) is None else f"{at_most}{study.rounds} rounds"
    out_console.print(
        f"{scenario}: {_verdict(len(planned.warned))} {study.clients.count} clients, {study.server.describe(study)}, {rounds}; "
        f"{_count_text(len(variants), 'variant')} ({', '.join(variants)}), {_count_text(len(planned.runs), 'run')} in a sweep.",
        soft_wrap=True,
    )
    # Variants with equal sizes of messages share a line. All seeds of a variant have the same sizes: the first seed is enough.
    variants_by_sizes: dict[str, list[str]] = {}
    for run in planned.runs:
        if run.seed == planned.runs[0].seed:
            variants_by_sizes.setdefault(sizes_in_words(run.scenario), []).append(run.variant)
    for sizes, names in variants_by_sizes.items() if any(variants_by_sizes) else ():
        out_console.print(f"{', '.join(names)}: {sizes}" if len(variants_by_sizes) > 1 else f"Messages: {sizes}.", soft_wrap=True)
    show_cautions(planned.warned)


@app.command(name="list")
@command
def list_components() -> None:
    """Show the scenarios that come with netsim, and all components."""
    import tomllib

    from analysis.metrics.registry import METRICS
    from models.fl.data.files import DATASETS
    from scenarios.registry.kinds import BUILT_IN, known_names
    from scenarios.runs.reading import shipped_files
    from scenarios.schema.servers.kinds import KINDS

    scenarios = Table("scenario", "what it shows", box=None, header_style="bold")
    for file in shipped_files():
        scenarios.add_row(file.stem, str(tomllib.loads(file.read_text(encoding="utf-8")).get("description", "")))
    components = Table("component", "kinds", box=None, header_style="bold")
    for group in BUILT_IN:
        # Some kinds are tables of the schema without a class of their own, so that the registry does not know them.
        only_tables = {"delay": ["by-group"], "server": list(KINDS)}.get(group, [])
        kinds = [*known_names(group), *only_tables]
        components.add_row(group, ", ".join(kinds) or "your own functions")
    components.add_row("data", ", ".join(DATASETS))
    components.add_row("metric", f"{', '.join(METRICS)}; and every column of rounds.parquet")
    out_console.print(scenarios)
    out_console.print()
    out_console.print(components)
    words = 'Every component but data and metrics may also be your own: kind = "package.module:Name".'
    out_console.print(f"\n{words}", highlight=False)


@app.command()
@command
def schema(
    markdown: Annotated[bool, typer.Option("--markdown", help="A page to read, in place of JSON Schema.")] = False,
) -> None:
    """Print the JSON Schema of scenario files, for editors. Or a reference to read."""
    from scenarios.schema.reference import json_schema, reference

    sys.stdout.write(reference() if markdown else json.dumps(json_schema(), indent=2) + "\n")


def _log_files(log: str | None) -> list[str]:
    """Return the files that a run writes for `--log`; raises UserError."""
    if log is None:
        return []
    from scenarios.runs.event_log import FILE, require

    if log != "tensorboard":
        raise UserError(f"--log {log!r}: must be tensorboard")
    require()
    return [FILE]


def _figure_options(drawing: Drawing, figures: Formats, no_figures: bool) -> "tuple[FigureSettings, list[ImageFormat]]":
    """Return the settings of figures and their formats, none with `no_figures`. Called before anything is run.

    Raises UserError for options that are wrong or without effect.
    """
    if no_figures:
        drawing.refuse_unused("leave out --no-figures", formats=bool(figures))
    return drawing.settings(), [] if no_figures else formats_of(figures)


def _compare(folder: Path, figures: "FigureSettings", formats: "Sequence[ImageFormat]") -> None:
    """Compare the variants of a finished sweep: show the tables, and draw the figures into its folder."""
    from scenarios.sweeps.comparison_files import add_comparison

    done = opened_sweep(folder)
    comparison = print_comparison(done, smoothing_s=figures.smoothing_s)
    for path in add_comparison(folder, done, comparison, formats=formats, figures=figures):
        out_console.print(f"figure: {path}", soft_wrap=True)
    out_console.print(f"runs: {folder}", soft_wrap=True)


def main() -> None:
    """Entry point of the command. Exit code 2, with one line, where standard output cannot be written."""
    warnings.showwarning = warn
    # Otherwise Pydantic searches all installed packages for its plugins and imports them.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    try:
        with output_streams():
            _run()
    except OSError as error:
        complain(f"standard output: {error.strerror or error}; make room, or put right what is wrong there, and try again")
        sys.exit(2)


def _run() -> None:
    """Execute the command line, and exit with its code: 2 for a user's mistake, 1 for a defect, 130 for an interrupt."""
    try:
        app()
    except KeyboardInterrupt as error:
        exit_interrupted(error)
    except UserError as error:
        complain(str(error))
        sys.exit(2)
    except DefectError as error:
        complain(f"error: {error}")
        sys.exit(1)


if __name__ == "__main__":
    from netsim import _command

    _command()
