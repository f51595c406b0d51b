"""Runs a user's generator on the clock: an event wakes it, it acts at once, and waits again.

Order within an instant. A script that waits for a time acts before everything else of that instant, as a change point of the
scenario does; one that waits for a round acts before anything of the round; one that waits for the end of an attempt, or for a
declared change, acts when the event that caused it is complete, before any other event of the same instant. The script gets
several ends of one instant one after another, and misses none.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import GeneratorType
from typing import Any

from netsim.clients.update import Update
from netsim.core.clock import BEFORE_ALL, Clock
from netsim.core.errors import ParameterError
from netsim.core.protocols import State
from netsim.records.sinks import NoRecorder, Recorder
from scenarios.schema.errors import UserError, users_line
from scenarios.wiring.script.journal import DivergedError, Journal
from scenarios.wiring.script.waits import Declared, Ended, Event, Opened, Reached, Wait

_FOREVER = float("inf")
_MOST_WAITS_AT_ONCE = 100_000
"""Largest number of successive waits that end at once: a script that waits for past events would never stop."""


class ScriptRunner:
    """One script of one run. `name`: its name in the scenario."""

    def __init__(self, *, name: str, clock: Clock) -> None:
        self.name = name
        self.clock = clock
        self.journal = Journal()
        self.recorder: Recorder = NoRecorder()
        self._function: Callable[[], Any]
        """Function that makes the generator."""
        self.round = 0
        """Rounds opened."""
        self.slot = 0
        """Slots opened."""
        self._round_s: float | None = None
        self.over = False
        """True if the run is over, so that nothing that the script does counts."""
        self._moment: tuple[int, int, float] = (0, 0, 0.0)
        """During a replay: round, slot and time at which the script was last woken."""
        self._generator: GeneratorType[Wait, Any, None] | None = None
        self._wait: Wait | None = None
        self._wait_number = 0
        """Number of the present wait: a clock call for an earlier wait is ignored."""
        self._pending: list[Event] = []
        """Events of this instant that the script has not got yet."""

    @property
    def moment(self) -> tuple[int, int, float]:
        """Round, slot and time at which the script acts."""
        return self._moment if self.journal.replaying else (self.round, self.slot, self.clock.now)

    @property
    def due_s(self) -> float:
        """Time of the script's next act in seconds; inf if it depends on events, or the script has ended."""
        wait = self._wait
        if wait is None:
            return _FOREVER
        if self._round_s is None:
            return wait.due_s
        opening_s = (wait.due_round - 1) * self._round_s
        return min(wait.due_s, opening_s)

    def set_function(self, function: Callable[[], Any], *, round_s: float | None) -> None:
        """Set the `function` that makes the script's generator, once the script's world exists.

        `round_s`: round t opens at (t - 1) times this; None: openings depend on events.
        """
        self._function, self._round_s = function, round_s

    def record_to(self, recorder: Recorder) -> None:
        self.recorder = recorder

    def begin(self) -> None:
        """Run the script up to its first wait."""
        self._start_generator()
        self._advance(None)

    def close(self) -> None:
        """End the script: the run is over. Acts in a `finally` of the script have no effect."""
        self.over = True
        if self._generator is not None:
            with suppress(Exception):
                self._generator.close()

    # Callbacks of the engine.

    def on_round(self, number: int) -> None:
        """Give the script the event that round `number` is about to open."""
        self.round = number
        self._send(Opened(self.clock.now, number))

    def on_slot(self, number: int) -> None:
        """Give the script the event that slot `number` is about to open."""
        self.slot = number
        self._send(Opened(self.clock.now, number, is_slot=True))

    def on_declared(self, declared: Declared) -> None:
        """Note declared changes. The script gets them when the event that closes the round is complete."""
        self._add_pending(declared)

    def on_end(self, update: Update) -> None:
        """Note the end of an attempt. The script gets it when the event that ended the attempt is complete."""
        # Skip events that cannot wake the script: every attempt of a run calls this.
        if self._wait is None or not (self._wait.watches_ends or self._pending):
            return
        end = Ended(
            time_s=update.outcome_s,
            round=update.round,
            client=update.client,
            outcome=update.outcome,
            cause=update.cause,
            channel=update.channel,
            latency_s=update.outcome_s - update.selected_s,
        )
        self._add_pending(end)

    def _add_pending(self, event: Event) -> None:
        """Keep an event until the present one is complete; then give it to the script in the same instant."""
        if not self._pending:
            self.clock.call_at(self.clock.now, self._send_pending, priority=BEFORE_ALL)
        self._pending.append(event)

    def _send_pending(self, payload: None = None) -> None:
        """Callback that gives the script the events of this instant in order, and forgets them."""
        # One by one, because the script may begin another wait between two of them. Ends caused by its own acts do not reach
        # it, because it does not wait while it acts.
        while self._pending:
            self._send(self._pending[0])
            self._pending.pop(0)

    def _on_due(self, number: int) -> None:
        """Callback at the latest end of wait `number`; ignored if that wait has ended."""
        if number == self._wait_number:
            self._send(Reached(self.clock.now))

    def _send(self, event: Event) -> None:
        """Give an event to the present wait, and wake the script if the wait ends."""
        wait = self._wait
        if wait is not None and wait.on_event(event):
            self._wake(wait)

    def _wake(self, wait: Wait) -> None:
        """Note in the journal that `wait` has ended, and run the script up to its next wait."""
        self._wait = None
        self.journal.note("woken", *self.moment, *wait.outcome())
        self._advance(wait.value)

    # The generator.

    def _start_generator(self) -> None:
        self._generator = self._call_user(self._function)

    def _advance(self, value: object) -> None:
        """Run the script up to its next wait whose event is still to come; its present yield returns `value`.

        A wait for an event of the past ends at once. Raises UserError after too many of these in succession.
        """
        for _ in range(_MOST_WAITS_AT_ONCE):
            wait = self._next_wait(value)
            if wait is None:
                return
            if not wait.is_over(*self.moment):
                self._wait_for(wait)
                return
            self.journal.note("woken", *self.moment, *wait.outcome())
            value = wait.value
        problem = f"waited {_MOST_WAITS_AT_ONCE:,} times for events of the past; wait for an event that is still to come"
        raise UserError(f"{self._location()}: {problem}")

    def _next_wait(self, value: object) -> Wait | None:
        """Send `value` to the script; return its next wait, which has begun, or None if the script has ended."""
        assert self._generator is not None
        try:
            wait = self._call_user(partial(self._generator.send, value))
        except StopIteration:
            self._generator = None
            self.journal.raise_if_diverged()
            self.journal.finish()
            return None
        self.journal.raise_if_diverged()
        if not isinstance(wait, Wait):
            raise UserError(
                f"{self._location()}: yields {wait!r}; yield what a wait of the world returns, such as world.until_round(50)"
            )
        wait.begin()
        self.journal.note("wait", wait.plain())
        return wait

    def _wait_for(self, wait: Wait) -> None:
        """Make `wait` the present wait, with a clock call at its latest end if that is known."""
        self._wait = wait
        self._wait_number += 1
        if wait.due_s < _FOREVER:
            self.clock.call_at(max(wait.due_s, self.clock.now), self._on_due, self._wait_number, BEFORE_ALL)

    def _call_user(self, call: Callable[[], Any]) -> Any:
        """Call the user's code; its errors are raised with the script, the round, the time and the line."""
        try:
            return call()
        except (StopIteration, DivergedError):
            raise
        except (UserError, ParameterError) as error:
            raise UserError(f"{self._location(error)}: {error}") from error
        except Exception as error:
            text = str(error).partition("\n")[0]
            raise UserError(f"{self._location(error)}: {type(error).__name__}: {text}") from error

    def locate_act(self) -> str:
        """Return the location of the script's present act, for an error that this act causes later."""
        return f"by {self._location()}"

    def _location(self, error: BaseException | None = None) -> str:
        """Return script, round, time and line of the script's present act, for messages."""
        round, _, time_s = self.moment
        return f"script {self.name!r}, round {round}, {time_s:g} s{self._line(error)}"

    def _line(self, error: BaseException | None) -> str:
        """Return the user's line: the one that raised `error`, or the present line of the script."""
        if error is None:
            frame = None if self._generator is None else self._generator.gi_frame
            return "" if frame is None else f", {frame.f_code.co_filename}, line {frame.f_lineno}"
        return users_line(error)

    # Checkpoints.

    def state_dict(self) -> State:
        """Return the journal and the state of the present wait."""
        waits = None if self._wait is None else self._wait.state_dict()
        return {"round": self.round, "slot": self.slot, "entries": list(self.journal.entries), "wait": waits}

    def load_state_dict(self, state: State) -> None:
        """Replay a new generator up to the checkpoint; raises UserError if it acts differently than before."""
        self.round, self.slot = state["round"], state["slot"]
        self.journal.replay([list(entry) for entry in state["entries"]])
        try:
            self._replay()
        except DivergedError as error:
            problem = f"acts differently than before the checkpoint: {error}"
            raise UserError(f"{self._location()}: {problem}; go on with the script as it was, or run again") from error
        if self._wait is not None:
            self._wait.load_state_dict(state["wait"])

    def _replay(self) -> None:
        """Replay a new generator up to the checkpoint, with the outcomes of waits that the journal holds."""
        if not self.journal.entries:
            return  # interrupted before the run began
        self._start_generator()
        value: Any = None
        while (wait := self._next_wait(value)) is not None:
            entry = self.journal.next_woken()
            if entry is None:
                self._wait_for(wait)
                return
            _, round, slot, time_s, index, outcome = entry  # as `_wake` notes them
            self._moment = (round, slot, time_s)
            wait.restore_outcome(index, outcome)
            value = wait.value
