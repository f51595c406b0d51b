"""Display of a run in progress: a panel on a terminal, occasional lines elsewhere."""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

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
    """Counts which client alone ended as a round closed. It changes nothing."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()

    def on_close(self, closed: ClosedRound) -> None:
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
    """The simulated time at which it ends at the latest."""
    began: float = field(default_factory=time.perf_counter)
    first: int | None = None
    """The rounds that were closed as this process began."""
    first_s: float = 0.0
    round: int = 0
    time_s: float = 0.0
    accuracy: float = math.nan
    recent_s: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))
    counts: dict[str, int] = field(default_factory=dict)
    last: LastClients = field(default_factory=LastClients)

    waits: str = ""
    """Reason for which a round takes long."""

    def take(self, simulation: Simulation) -> None:
        """A round has closed."""
        self.waits = ""
        recorder = simulation.recorder
        assert isinstance(recorder, Summing)
        row, totals = recorder.last, recorder.totals
        if self.first is None:
            # The loop knows the last client from the second observed round on.
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
        """The share of the run that is done, by rounds or by simulated time, whichever is nearer to its end."""
        return min(1.0, self._share(self.round, self.time_s))

    def _share(self, round: int, time_s: float) -> float:
        """Return the share of the run that is done after `round` rounds and `time_s` simulated seconds; 0 without any limit."""
        return max(round / self.rounds if self.rounds else 0.0, time_s / self.limit_s if self.limit_s else 0.0)

    @property
    def left_s(self) -> float:
        """Seconds of wall time left, at the present speed; NaN if unknown."""
        if self.first is None:
            return math.nan
        before = self._share(self.first, self.first_s)
        gained, passed = self.done - before, time.perf_counter() - self.began
        return passed * (1.0 - self.done) / gained if gained > 0.0 else math.nan

    def facts(self) -> list[tuple[str, str]]:
        """Names and values, as shown."""
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
    """Minutes and seconds, or with hours."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


@contextmanager
def log_run(folder: Path, wanted: bool) -> Iterator[Callable[[Simulation], None]]:
    """Log a run into its folder within the block; yields the callback for the end of each round."""
    if not wanted:
        yield lambda simulation: None
        return
    from scenarios.runs.event_log import EventLog

    log = EventLog(folder)
    try:
        yield log
    finally:
        log.close()


class Shown(Protocol):
    """A display of a run."""

    def begin(self, simulation: Simulation) -> None:
        """Begin to show `simulation`. Long rounds report what they wait for."""

    def __call__(self, simulation: Simulation) -> None:
        """A round has closed."""


class NotShown:
    """No display."""

    def begin(self, simulation: Simulation) -> None:
        return None

    def __call__(self, simulation: Simulation) -> None:
        return None


@dataclass
class _Display:
    """A display with a callback for closed rounds, which also checks in between if a round takes long."""

    told: Callable[[Simulation], None]
    watch: Watch

    def begin(self, simulation: Simulation) -> None:
        self.watch.begin(simulation)

    def __call__(self, simulation: Simulation) -> None:
        self.watch.on_close()
        self.told(simulation)


@contextmanager
def live(name: str, rounds: int | None, limit_s: float | None, quiet: bool) -> Iterator[Shown]:
    """Show a run within the block; yields the display, which takes its rounds."""
    if quiet:
        yield NotShown()
        return
    look = Look(name, rounds, limit_s)
    with _panel(look) if err_console.is_terminal else _lines(look) as (on_round, say):
        watch = Watch(say)
        with watch_run(watch):
            yield _Display(on_round, watch)


Telling = tuple[Callable[["Simulation"], None], Callable[[str], None]]
"""Callbacks of a round that has closed, and of the reason for which one takes long."""


@contextmanager
def _lines(look: Look) -> Iterator[Telling]:
    """Yield callbacks that print a line on the run now and then."""
    last_s = [time.perf_counter()]

    def update(simulation: Simulation) -> None:
        look.take(simulation)
        now = time.perf_counter()
        if now - last_s[0] >= _LINE_S:
            last_s[0] = now
            err_console.print(look.line(), highlight=False, soft_wrap=True)

    def say(waits: str) -> None:
        err_console.print(f"{look.name}: {waits}", highlight=False, soft_wrap=True)

    yield update, say
    if look.first is not None:
        err_console.print(look.line(), highlight=False, soft_wrap=True)


@contextmanager
def _panel(look: Look) -> Iterator[Telling]:
    """Yield callbacks that update a panel on the terminal."""
    from rich.live import Live
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    def draw_table() -> Table:
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
        bar = ProgressBar(total=1.0, completed=look.done, width=40) if look.is_limited else ""
        table.add_row(Text(look.name, style="bold"), bar)
        for name, value in look.facts():
            table.add_row(name, Text(value))
        return table

    seen = [0.0]
    with Live(draw_table(), console=err_console, auto_refresh=False, transient=False) as shown:

        def update(simulation: Simulation) -> None:
            look.take(simulation)
            now = time.perf_counter()
            if now - seen[0] >= _EVERY_S:
                seen[0] = now
                shown.update(draw_table(), refresh=True)

        def say(waits: str) -> None:
            look.waits = waits
            shown.update(draw_table(), refresh=True)

        yield update, say
        look.waits = ""
        shown.update(draw_table(), refresh=True)
