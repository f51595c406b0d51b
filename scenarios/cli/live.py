"""Display of a run in progress: a panel on a terminal, occasional lines elsewhere."""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from netsim.servers.rounds.loop import Alteration
from scenarios.cli.output import err_console
from scenarios.runs.summary.running_sums import Summing
from scenarios.runs.waiting import Watch, watch_run

if TYPE_CHECKING:
    from netsim.servers.rounds.loop import ClosedRound
    from netsim.simulation import Simulation

_EVERY_S, _LINE_S = 0.1, 10.0
"""Seconds of wall time between two looks at a run, on a terminal and elsewhere."""
_RECENT = 20
"""Number of latest rounds whose mean length is shown."""


class LastClients(Alteration):
    """Counts how often each client was the last of a round. It only observes: the round is not altered."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()
        """Number of rounds by the client that was last."""

    def on_close(self, closed: ClosedRound) -> None:
        """Count the client with the only attempt that ended at the close; a tie counts for no client."""
        attempts = closed.attempts
        last = np.flatnonzero(np.asarray(attempts.column("outcome_s"), np.float64) == closed.end_s)
        if len(last) == 1:
            self.counts[int(attempts.column("client")[last[0]])] += 1


@dataclass
class Look:
    """Snapshot of a run in progress."""

    name: str
    rounds: int | None
    """Largest number of rounds; None if only a Flower app knows it."""
    limit_s: float | None
    """Simulated time at which the run ends at the latest; None: no limit."""
    began: float = field(default_factory=time.perf_counter)
    first: int | None = None
    """Number of rounds that were closed before this process (more than 0 if the run was resumed); None until a round closes."""
    first_s: float = 0.0
    """Simulated time at the end of these rounds."""
    round: int = 0
    time_s: float = 0.0
    accuracy: float = math.nan
    recent_s: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))
    counts: dict[str, int] = field(default_factory=dict)
    last: LastClients = field(default_factory=LastClients)

    waits: str = ""
    """Reason for which a round takes long."""

    def take(self, simulation: Simulation) -> None:
        """Read the state of the run at the close of a round; from the first call on, count who is the last client of rounds."""
        self.waits = ""
        recorder = simulation.recorder
        assert isinstance(recorder, Summing)
        row, totals = recorder.last, recorder.totals
        if self.first is None:
            # This is called after the close of the first round, so that last clients are counted from the next round on.
            self.first, self.first_s = simulation.server.round - 1, 0.0 if row is None else row.start_s
            simulation.server.loop.alter(self.last)
        self.round, self.time_s = simulation.server.round, simulation.clock.now
        self.accuracy, self.counts = totals.accuracy, totals.counts
        if row is not None:
            self.recent_s.append(row.end_s - row.start_s)

    @property
    def is_limited(self) -> bool:
        """True if the end of the run is known: by a number of rounds or a time limit."""
        return self.rounds is not None or self.limit_s is not None

    @property
    def done(self) -> float:
        """Share of the run that is done, in [0, 1]: the larger of those by rounds and by simulated time, as either may end it."""
        return min(1.0, self._share(self.round, self.time_s))

    def _share(self, round: int, time_s: float) -> float:
        """Return the share of the run that is done after `round` rounds and `time_s` simulated seconds; 0 without any limit."""
        share_of_rounds = round / self.rounds if self.rounds else 0.0
        share_of_time = time_s / self.limit_s if self.limit_s else 0.0
        return max(share_of_rounds, share_of_time)

    @property
    def left_s(self) -> float:
        """Seconds of wall time left, at the present speed; NaN if unknown."""
        if self.first is None:
            return math.nan
        # Progress before this process took none of its time.
        gained = self.done - self._share(self.first, self.first_s)
        passed_s = time.perf_counter() - self.began
        return passed_s * (1.0 - self.done) / gained if gained > 0.0 else math.nan

    def facts(self) -> list[tuple[str, str]]:
        """Return (name, value) pairs to show, both as text; the first is the number of rounds."""
        limit = "" if self.limit_s is None else f" of {self.limit_s:,.10g}"
        most = "" if self.rounds is None else f"/{self.rounds}"
        facts = [("rounds", f"{self.round}{most}"), ("simulated", f"{self.time_s:,.1f}{limit} s")]
        if self.recent_s:
            facts.append((f"last {len(self.recent_s)} rounds", f"{sum(self.recent_s) / len(self.recent_s):.3f} s each"))
        if not math.isnan(self.accuracy):
            facts.append(("accuracy", f"{self.accuracy:.4f}"))
        facts.append(("updates", ", ".join(f"{self.counts[name]:,} {name}" for name in _ENDS if self.counts.get(name))))
        if self.last.counts:
            named = ", ".join(f"client {client} ({count:,})" for client, count in self.last.counts.most_common(3))
            facts.append(("most often last", named))
        if not math.isnan(self.left_s):
            facts.append(("time left", clock(self.left_s)))
        if self.waits:
            facts.append(("under way", self.waits))
        return facts

    def line(self) -> str:
        """Return the snapshot as one line."""
        (_, rounds), *others = self.facts()
        return f"{self.name}: {rounds} rounds; " + "; ".join(f"{name} {value}" for name, value in others if value)


_ENDS = ("delivered", "lost", "late", "aborted")


def clock(seconds: float) -> str:
    """Return a duration as M:SS, or H:MM:SS from an hour on."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


@contextmanager
def log_run(folder: Path, wanted: bool) -> Iterator[Callable[[Simulation], None]]:
    """Log a run into its folder within the block, if `wanted`. Yields the function to call after each round."""
    if not wanted:
        yield lambda simulation: None
        return
    from scenarios.runs.event_log import EventLog

    log = EventLog(folder)
    try:
        yield log
    finally:
        log.close()


class Display(Protocol):
    """A display of a run."""

    def begin(self, simulation: Simulation) -> None:
        """Begin to show `simulation`. Long rounds report what they wait for."""

    def __call__(self, simulation: Simulation) -> None:
        """Show the state of the run; called after each round."""


class NoDisplay:
    """Display that shows nothing, for `--quiet`."""

    def begin(self, simulation: Simulation) -> None:
        return None

    def __call__(self, simulation: Simulation) -> None:
        return None


@dataclass
class _WatchedDisplay:
    """Display that also says, in the middle of a round that takes long, what the round waits for."""

    on_round: Callable[[Simulation], None]
    """Called after each round."""
    watch: Watch
    """Notices long rounds, by wall time."""

    def begin(self, simulation: Simulation) -> None:
        self.watch.begin(simulation)

    def __call__(self, simulation: Simulation) -> None:
        self.watch.on_close()
        self.on_round(simulation)


@contextmanager
def live(name: str, rounds: int | None, limit_s: float | None, quiet: bool) -> Iterator[Display]:
    """Show a run within the block, on a terminal as a panel, elsewhere by lines. Yields the display; call it after each round.

    `rounds`, `limit_s`: largest number of rounds and of simulated seconds, or None.
    """
    if quiet:
        yield NoDisplay()
        return
    look = Look(name, rounds, limit_s)
    with _panel(look) if err_console.is_terminal else _lines(look) as callbacks:
        watch = Watch(callbacks.on_wait)
        with watch_run(watch):
            yield _WatchedDisplay(callbacks.on_round, watch)


class _Callbacks(NamedTuple):
    """Callbacks of a display."""

    on_round: Callable[[Simulation], None]
    """Called after each round."""
    on_wait: Callable[[str], None]
    """Called with the reason, as text, for which a round takes long."""


@contextmanager
def _lines(look: Look) -> Iterator[_Callbacks]:
    """Yield callbacks that print a line on the run at most every `_LINE_S` seconds, for each long round, and at the end."""
    printed_s = time.perf_counter()

    def on_round(simulation: Simulation) -> None:
        """Read the state of the run after every round, also where no line is due: the line at the end shows the last state."""
        nonlocal printed_s
        look.take(simulation)
        now = time.perf_counter()
        if now - printed_s >= _LINE_S:
            printed_s = now
            err_console.print(look.line(), highlight=False, soft_wrap=True)

    def on_wait(waits: str) -> None:
        err_console.print(f"{look.name}: {waits}", highlight=False, soft_wrap=True)

    yield _Callbacks(on_round, on_wait)
    if look.first is not None:
        err_console.print(look.line(), highlight=False, soft_wrap=True)


@contextmanager
def _panel(look: Look) -> Iterator[_Callbacks]:
    """Yield callbacks that redraw a panel on the terminal, at most every `_EVERY_S` seconds and for each long round."""
    from rich.live import Live
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    def draw_table() -> Table:
        """Return the panel: name and bar, then a row for each fact; no bar if the end of the run is unknown."""
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
        bar = ProgressBar(total=1.0, completed=look.done, width=40) if look.is_limited else ""
        table.add_row(Text(look.name, style="bold"), bar)
        for name, value in look.facts():
            table.add_row(name, Text(value))
        return table

    drawn_s = 0.0
    with Live(draw_table(), console=err_console, auto_refresh=False, transient=False) as panel:

        def on_round(simulation: Simulation) -> None:
            """Read the state of the run after every round, and redraw unless the last drawing is less than `_EVERY_S` old."""
            nonlocal drawn_s
            look.take(simulation)
            now = time.perf_counter()
            if now - drawn_s >= _EVERY_S:
                drawn_s = now
                panel.update(draw_table(), refresh=True)

        def on_wait(waits: str) -> None:
            look.waits = waits
            panel.update(draw_table(), refresh=True)

        yield _Callbacks(on_round, on_wait)
        look.waits = ""
        panel.update(draw_table(), refresh=True)
