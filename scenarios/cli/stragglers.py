"""Commands that find the clients that delay a run: stragglers, what-if."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scenarios.cli.output import Quiet, out_console, progress
from scenarios.schema.errors import UserError, name_source

if TYPE_CHECKING:
    from rich.table import Table

    from analysis import Run
    from scenarios.runs.what_if.answers import Answer

RunFolder = Annotated[Path, typer.Argument(help="A run's folder.")]
_FIXED = (
    "Held fixed: all that came before the round, and its selection; no client takes the place of one that is left out. What "
    "follows from the change within the round is simulated, on the same draws."
)
_PHASES = ("download_s", "compute_s", "queue_s", "upload_s", "resend_s", "wait_s")
"""Columns of the seconds in each phase of an update."""

_LINKS = 10
"""Most links that `stragglers` names."""


def what_if(
    folder: RunFolder,
    round: Annotated[int, typer.Option("--round", min=1, help="The round; with slots: the communication round.")],
    without: Annotated[list[int] | None, typer.Option(help="Leave this client out; may be repeated, each by itself.")] = None,
    deadline: Annotated[list[float] | None, typer.Option(help="Close so many seconds after the selection; likewise.")] = None,
    bandwidth: Annotated[
        list[float] | None, typer.Option(help="Multiply all bandwidths between server and clients; likewise.")
    ] = None,
    link: Annotated[list[str] | None, typer.Option(help="Of this cable of [network] alone; may be repeated.")] = None,
    quiet: Quiet = False,
) -> None:
    """Simulate a round again with one change. The round is one of a finished run; both outcomes are printed."""
    from scenarios.runs.what_if.answers import what_if as simulate_changes
    from scenarios.runs.what_if.changes import Change

    cables = link or (None,)  # None: all cables
    changes = [
        *(Change("without", client) for client in without or ()),
        *(Change("deadline", seconds) for seconds in deadline or ()),
        *(Change("bandwidth", factor, cable) for factor in bandwidth or () for cable in cables),
    ]
    if link and not bandwidth:
        raise UserError(f"--link {link[0]}: says which bandwidth; give --bandwidth FACTOR, too")
    if not changes:
        raise UserError("what-if: nothing is different; give --without CLIENT, --deadline SECONDS or --bandwidth FACTOR")
    with progress({"rounds": round}, quiet) as advance, name_source(str(folder)):
        answers = simulate_changes(folder, round, changes, progress=lambda done: advance("rounds", done))
    out_console.print(_answer_table(answers))
    out_console.print(_FIXED, soft_wrap=True)


def _answer_table(answers: list[Answer]) -> Table:
    """Return a table for the terminal: the round as it was, and with each change."""
    from rich.table import Table

    was = answers[0].was
    table = Table(box=None, header_style="bold")
    for name in (f"round {was.round}", "closes (s)", "takes (s)", "saved (s)", "delivered", "last"):
        table.add_column(name, justify="left" if name.startswith("round") else "right")
    last = "-" if was.last is None else str(was.last)
    table.add_row("as it was", f"{was.end_s:.4f}", f"{was.end_s - was.start_s:.4f}", "", str(was.delivered), last)
    for answer in answers:
        then = answer.then
        if then is None:  # with the change the round never closes
            table.add_row(answer.change.label, "not at all", "", "", "", "")
            continue
        last = "-" if then.last is None else str(then.last)
        took_s, saved_s = then.end_s - then.start_s, answer.saved_s
        table.add_row(answer.change.label, f"{then.end_s:.4f}", f"{took_s:.4f}", f"{saved_s:.4f}", str(then.delivered), last)
    return table


def stragglers(
    folder: RunFolder,
    rounds: Annotated[str | None, typer.Option(metavar="A..B", help="These rounds only, such as 1..50.")] = None,
    exact: Annotated[bool, typer.Option(help="Simulate every round again without each of its clients, in turn.")] = True,
    quiet: Quiet = False,
) -> None:
    """Print which clients held up a finished run. Its rounds by client and group, its critical path, and the time each cost."""
    from analysis import open_run
    from analysis.network.measure import path_limits
    from analysis.stragglers.critical_path import critical_path
    from analysis.stragglers.decomposition import decompose, totals, within
    from analysis.stragglers.records import run_records
    from analysis.stragglers.savings import client_table, savings

    only = _range(rounds)
    try:
        run = open_run(folder)
        view = run_records(run)
        _check_range(only, view.rounds["round"], folder)
        table = client_table(run, view, rounds=only)
    except (ValueError, OSError) as error:
        raise UserError(str(error)) from error
    if exact and "flower" in run.scenario:
        exact = False
        out_console.print("No seconds saved: a Flower app cannot go on from the beginning of a round.\n", soft_wrap=True)
    if exact and view.tree is not None:
        exact = False
        out_console.print("No seconds saved: rounds of edges overlap, and are not simulated again one by one.\n", soft_wrap=True)
    if exact:
        _write_what_ifs(folder, run, only, quiet)
        # The savings are read from the table that was just written.
        table = table.join(savings(run)[["saved_s"]])
    by_group = totals(within(decompose(view), only), "group")
    if len(by_group):
        out_console.print(_seconds_table(by_group, "group"))
        out_console.print()
    by_client = table.sort_values("saved_s" if exact else "path_s", ascending=False, kind="stable")
    out_console.print(_seconds_table(by_client, "client"))
    path = within(critical_path(view), only)
    by_phase_s = (path["end_s"] - path["start_s"]).groupby(path["phase"]).sum().sort_values(ascending=False)
    phases = ", ".join(f"{phase} {seconds:.2f} s" for phase, seconds in by_phase_s.items())
    where = "up to the last close" if only is None else f"in rounds {only[0]} to {only[1]}"
    out_console.print(f"\ncritical path, {float(by_phase_s.sum()):.2f} s {where}: {phases}", soft_wrap=True)
    limits = path_limits(run, path)
    if len(limits):
        by_link = limits.groupby("link")["limited_s"].sum().sort_values(ascending=False, kind="stable")
        links = ", ".join(f"{link} {seconds:.2f} s" for link, seconds in by_link.head(_LINKS).items())
        further = f" and {len(by_link) - _LINKS} more" if len(by_link) > _LINKS else ""
        out_console.print(f"of these, links limited transfers for {by_link.sum():.2f} s: {links}{further}", soft_wrap=True)
    words = "Columns are seconds, but for rounds and times last; by: by how much all others had ended earlier where it was last"
    words += ", added up"
    if exact:
        words += "; saved: by how much earlier rounds would have closed without the client, each round by itself, added up"
    out_console.print(f"{words}. {_FIXED}" if exact else f"{words}.", soft_wrap=True)


def _range(rounds: str | None) -> tuple[int, int] | None:
    """Return (first, last) round of `--rounds`, such as 1..50; None, for all rounds, without it. Raises UserError."""
    if rounds is None:
        return None
    match = re.fullmatch(r"(\d{1,12})\.\.(\d{1,12})", rounds)
    if match is None:
        raise UserError(f"--rounds {rounds!r}: must be a range such as 1..50")
    return int(match[1]), int(match[2])


def _check_range(only: tuple[int, int] | None, numbers: Any, folder: Path) -> None:
    """Raise UserError unless the run has rounds, and contains all rounds of `only`."""
    if not len(numbers):
        raise UserError(f"{folder}: no round of this run closed, so that nobody held one up")
    last = int(numbers.max())
    if only is not None and not 1 <= only[0] <= only[1] <= last:
        raise UserError(f"{folder}: --rounds {only[0]}..{only[1]}: must lie in 1..{last}, the rounds of {folder}")


def _write_what_ifs(folder: Path, run: Run, only: tuple[int, int] | None, quiet: bool) -> None:
    """Simulate rounds without each of their clients, and write the table `what_ifs` into the folder of the run.

    `only`: first and last of these rounds; None: all.
    """
    import pyarrow.parquet as pq

    from scenarios.runs.folders.replacement import add_files
    from scenarios.runs.replay import WHAT_IFS
    from scenarios.runs.what_if.answers import answers_table, every_client
    from scenarios.workers.scratch import temporary_folder

    first, last = (1, None) if only is None else only
    # The run is simulated from its beginning, so that progress counts from round 1.
    total = int(run.summary["rounds"]) if last is None else last
    with progress({"rounds": total}, quiet) as advance, name_source(str(folder)):
        answers = every_client(folder, first=first, last=last, progress=lambda done: advance("rounds", done))
    with temporary_folder() as scratch:
        pq.write_table(answers_table(answers), scratch / WHAT_IFS, compression="zstd")
        add_files(folder, scratch)


def _seconds_table(frame: Any, name: str) -> Table:
    """Return the first 20 rows of a DataFrame of seconds and counts of rounds as a table. `name`: title of its index."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", padding=(0, 1, 0, 0))

    known = [column for column in ("rounds", "last", "stretch_s", *_PHASES, "path_s", "saved_s") if column in frame]
    # Most runs resend nothing: that column would only hold zeros.
    columns = [column for column in known if column != "resend_s" or frame[column].any()]
    table.add_column(name, justify="right", overflow="fold")
    for column in columns:
        cells = [_cell(column, value) for value in frame[column].head(20)]
        title = "by" if column == "stretch_s" else column.removesuffix("_s")
        table.add_column(title, justify="right", no_wrap=True, min_width=max(map(len, [title, *cells])))
    for entry, row in frame.head(20).iterrows():
        table.add_row(Text(str(entry)), *(_cell(column, row[column]) for column in columns))
    return table


def _cell(column: str, value: float) -> str:
    """Return a number of a column as text: seconds with one decimal, counts as whole numbers."""
    return f"{value:.1f}" if column.endswith("_s") else f"{int(value)}"
