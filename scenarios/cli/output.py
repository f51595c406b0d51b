"""Output of the commands: tables, progress, complaints."""

from __future__ import annotations

import math
import re
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from scenarios.schema.errors import UserError

if TYPE_CHECKING:
    from analysis.api import Sweep
    from analysis.documents.blocks import Picture
    from analysis.figures.settings import Look
    from analysis.metrics.comparison import Comparison
    from netsim.core.protocols import Notes
    from scenarios.schema.cautions import Caution
    from scenarios.sweeps.plan import Plan
    from scenarios.sweeps.workers import SweepProgress

Quiet = Annotated[bool, typer.Option("--quiet", help="No progress display.")]
MOST_SEEDS = 10_000
_LINE_S = 10.0
"""Seconds of wall time between two lines about the rounds of a sweep that take long."""
_MOST_SHOWN = 12
"""Largest number of variants of a sweep that each get a progress bar."""
_ALL, _ADDED_SEEDS = "all runs", "further seeds, at most"
"""Labels of progress bars: of all runs, and of the runs that sequential stopping adds."""
out_console = Console(markup=False)
err_console = Console(stderr=True, markup=False)


def summary_table(summary: Notes) -> Table:
    """Return the summary of a run as a table."""
    final, totals = summary["final"], summary["totals"]
    table = Table(box=None, show_header=False)
    table.add_row("rounds", f"{summary['rounds']} ({summary['ended']})")
    table.add_row("simulated time", f"{summary['simulated_s']:.3f} s")
    if final["mean_round_s"] is not None:
        table.add_row("mean round", f"{final['mean_round_s']:.4f} s")
    table.add_row(
        "updates", ", ".join(f"{totals[name]} {name}" for name in ("delivered", "lost", "late", "aborted", "in_flight"))
    )
    table.add_row("books", _books_text(summary))
    if final["accuracy"] is not None:
        unscored = (summary["learner"] or {}).get("unscored_samples", 0)
        note = f" ({unscored} test samples have no finite scores and count as wrong)" if unscored else ""
        table.add_row("final accuracy", f"{final['accuracy']:.4f}{note}")
    if final["regret"] is not None:
        table.add_row("regret", f"{final['regret']:.4f}")
    aoi = summary["aoi"]
    if aoi is not None:
        if aoi["regret"] is not None:
            table.add_row("AoI regret", f"{aoi['regret']:.0f} (oracle {aoi['oracle']})")
        if aoi["mean_age_rounds"] is not None:
            table.add_row("mean age", f"{aoi['mean_age_rounds']:.4f} rounds")
        table.add_row("declared changes", _detections_text(aoi["detections"]))
    if summary["privacy"]["guarantee"] is not None:
        table.add_row("largest leak", f"{final['max_leak']:.4f}")
        table.add_row("guarantee", summary["privacy"]["guarantee"])
    return table


def _books_text(summary: Notes) -> str:
    """Return the text of a summary's row on the balance of updates: begun = ended + in flight."""
    begun, after = summary["totals"]["selected"], summary["after_last_round"]["selected"]
    text = f"balanced: {begun} begun = ended + in flight, as in {' and '.join(summary['books']['tables'])}"
    return f"{text}; {after} begun after the last round" if after else text


def _detections_text(detections: Notes) -> str:
    """Return the text of a summary's row on the changes that detectors declared, with true and false alarms if known."""
    declared = f"{detections['declared']}"
    if detections["changes"] is None:  # the true change points are unknown
        return declared
    found = f"{detections['found']} of {detections['changes']} changes found"
    return f"{declared} ({found}, {detections['false_alarms']} false alarms, {detections['by_jamming']} by jamming)"


def tell(
    summary: Notes,
    folder: Path,
    *,
    shown: Iterable[Caution] = (),
    strict: bool = False,
    why: str = "interrupted",
    resumable: bool = True,
) -> None:
    """Show the end of a run, and cautions that were not `shown` before.

    Exits with code 130 if an interrupt (named `why`) ended it, and with code 2 if `strict` and there are such cautions.
    `resumable`: `netsim resume` can continue the run.
    """
    from scenarios.runs.unfinished import INTERRUPTED
    from scenarios.schema.cautions import cautions_of

    out_console.print(summary_table(summary))
    out_console.print(f"results: {folder}", soft_wrap=True)
    if summary["ended"] == INTERRUPTED:
        remedy = f"To go on: netsim resume {folder}" if resumable else "A Flower app cannot be resumed: run it again"
        complain(f"{why} after {summary['rounds']} rounds; the files hold these. {remedy}")
        raise typer.Exit(130)
    already_shown = set(shown)
    show_cautions({caution: "" for caution in cautions_of(summary) if caution not in already_shown}, strict=strict)


def show_cautions(cautions: Mapping[Caution, str], *, strict: bool = False) -> None:
    """Show each caution, preceded by the runs that it concerns ("": all).

    `strict`: exit with code 2 (typer.Exit) if there are any.
    """
    for caution, runs in cautions.items():
        prefix = f"{runs}: " if runs else ""
        err_console.print(f"warning: {prefix}{caution.text}", style="yellow", highlight=False, soft_wrap=True)
    if strict and cautions:
        complain("--strict: there were warnings; the results are complete")
        raise typer.Exit(2)


def warn_of_missing(sweep: Sweep, strict: bool) -> None:
    """Warn of missing runs of a sweep; with `strict` raise UserError in place of the warning."""
    from analysis.documents.run_names import missing_words

    if sweep.missing and strict:
        raise UserError(f"--strict: {missing_words(sweep)}")
    if sweep.missing:
        complain(f"warning: {missing_words(sweep)}")


def opened_sweep(folder: Path) -> Sweep:
    """Open the sweep in a folder without its damaged runs, and warn of each damaged run; raises ValueError."""
    from analysis import open_sweep

    sweep, damages = open_sweep(folder).drop_damaged()
    for damage in damages:
        complain(f"warning: {damage}")
    return sweep


def print_comparison(sweep: Sweep, *, strict: bool = False, **settings: Any) -> Comparison:
    """Compare the variants of a sweep, show the tables, and return the comparison.

    `strict`: raise UserError if runs are missing. `settings`: further arguments of `analysis.compare`.
    """
    from analysis import compare, comparison_table, difference_table, short_run_note

    comparison = compare(sweep, **settings)
    warn_of_missing(sweep, strict)
    out_console.print(comparison_table(comparison))
    if comparison.differences:
        out_console.print(difference_table(comparison))
    if note := short_run_note(comparison):
        err_console.print(f"warning: {note}", style="yellow", highlight=False)
    return comparison


def print_against(
    sweep: Sweep, comparison: Comparison, against: Sequence[str], within: Sequence[str], *, look: Look
) -> list[Picture]:
    """Show the metrics of a comparison against the keys `against`, and the best variant for each value of the keys `within`.

    Returns the figures, which a terminal cannot show.
    """
    from analysis.documents.blocks import Bullets, Picture, Text
    from analysis.documents.blocks import Table as TableBlock
    from analysis.documents.terminal import terminal_table
    from analysis.grids.section import cell_sections
    from analysis.parameters.measure import named_keys, settings_of
    from analysis.parameters.section import parameter_sections

    sections = parameter_sections(sweep, comparison, against=against, look=look) if against else []
    cells = cell_sections(sweep, comparison, within=within, look=look) if within else []
    # Each block with the number of its columns that name a row: the parameter, or the keys of `within`.
    blocks = [(block, 1) for section in sections for block in section.blocks]
    keys = len(named_keys(settings_of(sweep), within, "within")) if within else 0
    blocks += [(block, keys) for section in cells for block in section.blocks]
    for block, name_columns in blocks:
        if isinstance(block, TableBlock):
            for narrow in _split_columns(block.cells, name_columns):
                out_console.print(terminal_table(block.caption, block.note, narrow))
        elif isinstance(block, Bullets | Text):
            for sentence in block.items if isinstance(block, Bullets) else [block.text]:
                out_console.print(sentence, highlight=False, soft_wrap=True)
    return [block for block, _ in blocks if isinstance(block, Picture)]


def _split_columns(cells: tuple[list[str], list[list[str]]], name_columns: int) -> Iterator[tuple[list[str], list[list[str]]]]:
    """Yield (header, rows) of tables that fit on the terminal, cut from the wide table `cells`, also (header, rows).

    Each begins with the first `name_columns` columns, joined into one.
    """
    from analysis.documents.comparison_tables import MOST_COLUMNS

    header, rows = cells
    # Several columns joined into one are wide, and take the place of a further column.
    width = MOST_COLUMNS if name_columns == 1 else MOST_COLUMNS - 1
    for first in range(name_columns, len(header), width):
        narrow_header, *narrow_rows = ([", ".join(row[:name_columns]), *row[first : first + width]] for row in (header, *rows))
        yield narrow_header, narrow_rows


def print_intervals(comparison: Comparison, equivalent: Sequence[str]) -> None:
    """Show the intervals of the differences of a comparison.

    `equivalent`: margins, METRIC=VALUE each, within which a difference counts as none; the table has verdicts on them.
    """
    from analysis.documents.terminal import terminal_table
    from analysis.metrics.differences import margins_of
    from analysis.report.differences import interval_table

    table = interval_table(comparison, margins_of(equivalent))
    if equivalent and table is None:
        complain("warning: --equivalent: no verdict; that takes two variants, and two seeds or more")
    if table is not None:
        out_console.print(terminal_table(table.caption, table.note, table.cells))


@contextmanager
def progress(
    totals: Mapping[str, int | None], quiet: bool, *, share: bool = False, unit: str = "rounds"
) -> Iterator[Callable[[str, int], None]]:
    """Show progress bars within the block. Yields a function that sets a label's number of complete rounds (or another `unit`).

    `totals`: total of each label; None: unknown, not shown. `share`: show shares, for runs that may end by a time limit.
    """
    if quiet:
        yield lambda label, rounds: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    amount = (TaskProgressColumn(),) if share else (MofNCompleteColumn(), TextColumn(unit))
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), *amount, TimeRemainingColumn())
    with Progress(*columns, console=err_console) as bars:
        tasks = {label: bars.add_task(label, total=total) for label, total in totals.items()}
        yield lambda label, rounds: bars.update(tasks[label], completed=rounds)


class _WaitMessages:
    """Messages about long rounds of a sweep's runs, at most one every `_LINE_S` seconds."""

    def __init__(self, planned: Plan) -> None:
        self._planned = planned
        self._shown: dict[int, str] = {}
        """What runs waited for at the time of the last line, by number of the run."""
        self._shown_s = -math.inf

    def line(self, waits: dict[int, str]) -> str:
        """Return a line on the first run that waits for something new; empty if none does, or if the last line is recent.

        With a line, `waits` becomes what is known: only other waits are new from then on. `waits`: clients or steps that a long
        round waits for, as text, by number of the run.
        """
        new = {index: text for index, text in waits.items() if self._shown.get(index) != text}
        now = time.perf_counter()
        if not new or now - self._shown_s < _LINE_S:
            return ""
        self._shown, self._shown_s = dict(waits), now
        first = min(new)
        runs = self._planned.runs
        # Runs of seeds that sequential stopping adds come after the planned ones.
        name = f"{runs[first].label}, seed {runs[first].seed}" if first < len(runs) else f"run {first + 1}, of a further seed"
        line = f"{name}: {new[first]}"
        others = len(waits) - 1
        if others:
            line += f" ({others} more {'run has' if others == 1 else 'runs have'} such a round)"
        return line


@contextmanager
def sweep_progress(planned: Plan, quiet: bool) -> Iterator[Callable[[SweepProgress], None]]:
    """Show the rounds done of a sweep, with the time left, in total and for every variant if there are few.

    Yields a function to call with each `SweepProgress`; its runs are the planned ones, then those of further seeds. For a run
    with a long round a line names the clients or steps that it waits for.
    """
    from scenarios.schema.servers.flower import known_rounds

    labels = [run.label for run in planned.runs]
    rounds_by_label: dict[str, int] = {}
    for run in planned.runs:
        rounds_by_label[run.label] = rounds_by_label.get(run.label, 0) + run.scenario.rounds
    if planned.until is not None:
        rounds_by_label[_ADDED_SEEDS] = (planned.most_runs - len(labels)) * planned.runs[0].scenario.rounds
    totals = rounds_by_label if len(rounds_by_label) <= _MOST_SHOWN else {}
    if len(totals) != 1:  # a single variant needs no bar beside that of all runs
        totals = totals | {_ALL: sum(rounds_by_label.values())}
    wait_messages = _WaitMessages(planned)
    limited = any(run.scenario.time_limit_s is not None for run in planned.runs)
    # A run with a time limit shows its share of that time, so it always has a total.
    open_ended = not limited and any(known_rounds(run.scenario) is None for run in planned.runs)
    with progress(dict.fromkeys(totals) if open_ended else totals, quiet, share=limited) as advance:

        def show(state: SweepProgress) -> None:
            """Advance the bars to the rounds done, and print what workers wait for, above them.

            Runs of seeds that were added after the plan come last in `state.rounds`, and have a bar of their own.
            """
            rounds = state.rounds
            if not quiet and (line := wait_messages.line(state.waits)):
                err_console.print(line, highlight=False, soft_wrap=True)
            done = dict.fromkeys(rounds_by_label, 0)
            for label, count in zip(labels, rounds, strict=False):
                done[label] += count
            if planned.until is not None:
                done[_ADDED_SEEDS] = sum(rounds[len(labels) :])
            done[_ALL] = sum(rounds)
            for label in totals:
                advance(label, done[label])

        yield show


def complain(text: str) -> None:
    """Show an error or a warning in red."""
    err_console.print(text, style="red", highlight=False, soft_wrap=True)


def warn(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: str | None = None
) -> None:
    """Show a warning, in the place of `warnings.showwarning`."""
    # Warnings about a scenario name its key; the line of code would only distract.
    about_scenario = issubclass(category, UserWarning)
    text = f"warning: {message}" if about_scenario else warnings.formatwarning(message, category, filename, lineno, line)
    err_console.print(text, style="yellow", highlight=False, soft_wrap=True)


def seeds_of(text: str) -> list[int]:
    """Return the seeds that `--seeds` lists, such as 1,2,3 or 1..10; raises UserError."""
    match = re.fullmatch(r"(\d{1,19})\.\.(\d{1,19})", text)
    if match is not None and 0 <= int(match[2]) - int(match[1]) < MOST_SEEDS:
        return list(range(int(match[1]), int(match[2]) + 1))
    if re.fullmatch(r"\d{1,19}(,\d{1,19})*", text):
        return [int(number) for number in text.split(",")]
    raise UserError(f"--seeds {text!r}: must be a list such as 1,2,3 or a range such as 1..10, of {MOST_SEEDS:,} at most")


def grids_of(texts: Sequence[str]) -> dict[str, list[Any]]:
    """Return the values of each key in `--grid` options; raises UserError."""
    grids: dict[str, list[Any]] = {}
    for text in texts:
        key, values = _grid_values(text)
        if key in grids:
            raise UserError(f"--grid {text!r}: {key} is given twice; list all of its values in one, such as policy.alpha=1,10")
        grids[key] = values
    return grids


def _grid_values(text: str) -> tuple[str, list[Any]]:
    """Return the key and the values of one `--grid` option; raises UserError."""
    from scenarios.runs.reading import parse_assignment, parse_value

    key, values = parse_assignment(text, "--grid")
    if isinstance(values, str):
        # This is no list of TOML: read lists without brackets (1,10 or pause,random) and words without quotes ([pause, random]).
        inner = values[1:-1] if values.startswith("[") and values.endswith("]") else values
        values = [parse_value(value.strip()) for value in inner.split(",")]
    if values in ([], [""]):
        raise UserError(f"--grid {text!r}: gives no values; list them, such as policy.alpha=1,10")
    return key, values if isinstance(values, list) else [values]
