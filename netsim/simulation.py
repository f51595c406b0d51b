"""A simulation: one clock and one server, round after round. It can stop at round boundaries, where its state is plain data."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from netsim.core.clock import EventLimitError, Process
from netsim.core.errors import ParameterError
from netsim.core.protocols import Notes, State, Stateful
from netsim.servers.kinds.messages import BY_EVENTS as BY_EVENTS
from netsim.servers.kinds.messages import BY_ROUNDS as BY_ROUNDS
from netsim.servers.kinds.messages import BY_TIME as BY_TIME
from netsim.servers.kinds.messages import RunOverError
from netsim.servers.rounds.loop import NobodyLeftError

if TYPE_CHECKING:
    from netsim.clients.pool import ClientPool
    from netsim.core.clock import Clock
    from netsim.records.sinks import Recorder
    from netsim.servers.kinds.messages import MessageServer
    from netsim.servers.rounds.loop import RoundLoop

BY_ABSENCE = "nobody left"
"""Reason why a run is over: no client can ever take part again."""
BY_APP = "application"
"""Reason why a run is over: the application that drives the clock has returned."""
_EVER = float("inf")


class Server(Stateful, Protocol):
    """A server's loop, round by round."""

    @property
    def round(self) -> int:
        """Number of rounds closed."""

    @property
    def clients(self) -> ClientPool:
        """The clients."""

    @property
    def loop(self) -> RoundLoop:
        """The loop of the rounds; with slots that of the communication rounds, with edges that of the root."""

    def end_after(self, rounds: int) -> None:
        """Make `rounds` the last round of the run: its model is evaluated."""

    @property
    def in_flight(self) -> int:
        """Number of attempts in flight."""

    def run_round(self) -> Process[None]:
        """Run one round as a process of the clock; raises NobodyLeftError if there can never be another."""

    def counts(self) -> dict[str, int]:
        """Return the counts since the start of the run, the round under way included.

        The columns of `RoundRow` that add up over rounds, and `in_flight`: selected = delivered + lost + late + aborted +
        in_flight at every instant; with jammers `jam_dwells`; with messages between clients `messages` (sent),
        `messages_delivered`, `messages_lost` and `messages_in_flight`.
        """

    def notes(self) -> Notes:
        """Return entries of the summary that no table holds, as plain data."""

    def record_to(self, recorder: Recorder) -> None:
        """Send all records to `recorder` from now on."""

    def record_unfinished(self) -> None:
        """Record everything in flight at the end of the run."""


class Script(Stateful, Protocol):
    """Component that acts on a run, such as a user's script."""

    def begin(self) -> None:
        """Handle the beginning of the run, before any event."""

    def record_to(self, recorder: Recorder) -> None:
        """Send all records of its acts to `recorder` from now on."""

    def close(self) -> None:
        """Stop acting: the run is over, or is interrupted."""


class Log(Protocol):
    """Records of parts that the server does not know, such as the links of a network."""

    def record_to(self, recorder: Recorder) -> None:
        """Send all records to `recorder` from now on."""

    def record_unfinished(self) -> None:
        """Record everything in progress at the end of the run."""


class NoScript:
    """Null object: nothing acts on the run."""

    def begin(self) -> None:
        """Do nothing."""

    def record_to(self, recorder: Recorder) -> None:
        """Do nothing: there are no acts."""

    def close(self) -> None:
        """Do nothing."""

    def state_dict(self) -> State:
        """Return an empty state."""
        return {}

    def load_state_dict(self, state: State) -> None:
        """Do nothing: there is no state."""


class Simulation:
    """Simulates up to `rounds` rounds, or until `time_limit_s` seconds have passed. A round cut by the limit is not recorded.

    `script`: component that acts on the run. `log`: records of parts that the server does not know, such as a network.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        server: Server,
        recorder: Recorder,
        rounds: int,
        time_limit_s: float | None = None,
        script: Script | None = None,
        log: Log | None = None,
    ) -> None:
        self.clock = clock
        self.resumable = True
        """True if the state at a round boundary can be saved."""
        self._log = log
        self.server = server
        self.script: Script = script or NoScript()
        self.recorder = recorder
        self.rounds = rounds
        self.time_limit_s = time_limit_s
        self.ended: str | None = None
        """Reason why the run is over; None while it may go on."""
        server.end_after(rounds)
        self.has_begun = False
        """True once the simulation runs, or has the state of one that ran."""

    def record_to(self, recorder: Recorder) -> None:
        """Send all records to `recorder` from now on."""
        self.recorder = recorder
        self.server.record_to(recorder)
        self.server.clients.medium.jamming.record_to(recorder)
        self.script.record_to(recorder)
        if self._log is not None:
            self._log.record_to(recorder)

    def limit_events(self, most: int | None) -> None:
        """End the run once `most` events have been scheduled, even within a round; None: no limit."""
        limit = _EVER if most is None else most
        self.clock.limit_events(limit)

    def limit_time(self, limit_s: float) -> None:
        """End the run at `limit_s` seconds at the latest, in place of the limit before."""
        self.time_limit_s = limit_s

    def run(self, until_round: int | None = None, after_round: Callable[[Simulation], None] | None = None) -> None:
        """Simulate until `until_round` rounds are closed (None: to the end), and call `after_round` at each round boundary."""
        last = self.rounds if until_round is None else min(until_round, self.rounds)
        limit_s = float("inf") if self.time_limit_s is None else self.time_limit_s
        if not self.has_begun:
            self.has_begun = True
            self.script.begin()
        while self.ended is None and self.server.round < last:
            if self.clock.now >= limit_s:
                self.ended = BY_TIME
                break
            # Every round is a separate process, so that an interrupted run schedules the same events as an uninterrupted one.
            try:
                if not self.clock.run_process(self.server.run_round(), limit_s):
                    self.ended = BY_TIME
            except NobodyLeftError:
                self.ended = BY_ABSENCE
            except EventLimitError:
                self.ended = BY_EVENTS
            if self.ended is None and after_round is not None:
                after_round(self)
        # A pause at `until_round` is no end: the run may go on.
        if self.ended is None and self.server.round >= self.rounds:
            self.ended = BY_ROUNDS

    def close(self) -> None:
        """Record everything in flight, and complete the files."""
        self.script.close()
        self.server.record_unfinished()
        self.server.clients.medium.jamming.stop()
        if self._log is not None:
            self._log.record_unfinished()
        self.recorder.close()

    def state_dict(self) -> State:
        """Return the state of the run at a round boundary, as plain data."""
        return {"now_s": self.clock.now, "server": self.server.state_dict(), "script": self.script.state_dict()}

    def load_state_dict(self, state: State) -> None:
        """Restore a saved state. This object must not have run yet."""
        self.has_begun = True
        self.clock.start_at(state["now_s"])
        # Restore the script's changes first: the server's state, which does not contain them, is read under the laws in force.
        self.script.load_state_dict(state["script"])
        self.server.load_state_dict(state["server"])


class AppSimulation(Simulation):
    """Simulation of an application that drives the clock: `app` runs in the caller's thread and calls `server`.

    Its state cannot be saved, because that of the application is on the stack. Other keywords are those of `Simulation`.
    """

    def __init__(self, *, app: Callable[[], object], server: MessageServer, **keywords: Any) -> None:
        super().__init__(server=server, **keywords)
        self.resumable = False
        self._app, self._messages = app, server

    def run(self, until_round: int | None = None, after_round: Callable[[Simulation], None] | None = None) -> None:
        """Run the application to its end; raises ValueError for `until_round`, at which it cannot stop."""
        if until_round is not None:
            raise ParameterError("until_round", until_round, "an application runs to its end")
        server = self._messages
        limit_s = _EVER if self.time_limit_s is None else self.time_limit_s

        def on_round() -> None:
            """Call `after_round`, if it is given, after each close of a round."""
            if after_round is not None:
                after_round(self)

        server.begin(limit_s, on_round)
        self.has_begun = True
        self.script.begin()
        try:
            self._app()
            server.close_round()
            self.ended = BY_APP
        except RunOverError as error:
            self.ended = error.why
