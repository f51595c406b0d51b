"""Runs a user's generator on the clock: an event wakes it, it acts at once, and waits again.

Order within an instant. A script that waits for a time acts before everything else of that instant, as a change point of the
scenario does; one that waits for a round acts before anything of the round; one that waits for the end of an attempt, or for a
declared change, acts when the event that brought it is complete, before any other of the same instant. Ends of one instant are
told one after the other: none is missed.
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

_EVER = float("inf")
_MOST_AT_ONCE = 100_000
"""Largest number of successive waits that end at once: a script that waits for past events would never stop."""


class ScriptRunner:
    """One script of one run. `name`: its name in the scenario."""

    def __init__(self, *, name: str, clock: Clock) -> None:
        self.name = name
        self.clock = clock
        self.journal = Journal()
        self.recorder: Recorder = NoRecorder()
        self._function: Callable[[], Any]
        """Function that makes the generator: see `play`."""
        self.round = 0
        """Rounds opened."""
        self.slot = 0
        """Slots opened."""
        self._round_s: float | None = None
        self.over = False
        """True if the run is over, so that nothing that the script does counts."""
        self._moment: tuple[int, int, float] = (0, 0, 0.0)
        """Round, slot and time as the script was woken last, while it is brought up to a checkpoint."""
        self._generator: GeneratorType[Wait, Any, None] | None = None
        self._wait: Wait | None = None
        self._number = 0
        self._happened: list[Event] = []

    @property
    def moment(self) -> tuple[int, int, float]:
        """Round, slot and time at which the script acts."""
        return self._moment if self.journal.replaying else (self.round, self.slot, self.clock.now)

    @property
    def due_s(self) -> float:
        """Return the time of the script's next act, if known; inf: it depends on events."""
        wait = self._wait
        if wait is None:
            return _EVER
        return wait.due_s if self._round_s is None else min(wait.due_s, (wait.due_round - 1) * self._round_s)

    def play(self, function: Callable[[], Any], *, round_s: float | None) -> None:
        """Set the `function` that makes the script's generator, once the script's world exists.

        `round_s`: round t opens at (t - 1) times this; None: openings depend on events.
        """
        self._function, self._round_s = function, round_s

    def record_to(self, recorder: Recorder) -> None:
        self.recorder = recorder

    def begin(self) -> None:
        """Up to the first wait."""
        self._begin()
        self._advance(None)

    def close(self) -> None:
        """End the script: the run is over. Acts in a `finally` of the script have no effect."""
        self.over = True
        if self._generator is not None:
            with suppress(Exception):
                self._generator.close()

    # Callbacks of the engine.

    def opens_round(self, number: int) -> None:
        """Round `number` is about to open."""
        self.round = number
        self._tell(Opened(self.clock.now, number))

    def opens_slot(self, number: int) -> None:
        """Slot `number` is about to open."""
        self.slot = number
        self._tell(Opened(self.clock.now, number, is_slot=True))

    def declares(self, declared: Declared) -> None:
        """Changes were declared, in the midst of the event that closes a round."""
        self._later(declared)

    def on_end(self, update: Update) -> None:
        """An attempt has ended, in the midst of the event that ended it."""
        if self._wait is None or not (self._wait.of_ends or self._happened):
            return
        latency_s = update.outcome_s - update.selected_s
        facts = (update.outcome, update.cause, update.channel, latency_s)
        self._later(Ended(update.outcome_s, update.round, update.client, *facts))

    def _later(self, event: Event) -> None:
        if not self._happened:
            self.clock.call_at(self.clock.now, self._tell_all, priority=BEFORE_ALL)
        self._happened.append(event)

    def _tell_all(self, payload: None = None) -> None:
        # One by one, because the script may begin another wait between two of them. Ends caused by its own acts do not reach
        # it, because it does not wait while it acts.
        while self._happened:
            self._tell(self._happened[0])
            self._happened.pop(0)

    def _rings(self, number: int) -> None:
        if number == self._number:
            self._tell(Reached(self.clock.now))

    def _tell(self, event: Event) -> None:
        wait = self._wait
        if wait is not None and wait.take(event):
            self._wake(wait)

    def _wake(self, wait: Wait) -> None:
        self._wait = None
        self.journal.note("woken", *self.moment, *wait.outcome())
        self._advance(wait.value)

    # The generator.

    def _begin(self) -> None:
        self._generator = self._call_user(self._function)

    def _advance(self, value: object) -> None:
        """On to the next wait that is not over as it begins."""
        for _ in range(_MOST_AT_ONCE):
            wait = self._next_wait(value)
            if wait is None:
                return
            if not wait.over(*self.moment):
                self._wait_for(wait)
                return
            self.journal.note("woken", *self.moment, *wait.outcome())
            value = wait.value
        raise UserError(
            f"{self._place()}: waited {_MOST_AT_ONCE:,} times for what had come already; wait for something that is to come"
        )

    def _next_wait(self, value: object) -> Wait | None:
        """Send `value` to the script and return its next wait, begun, or None if the script is over."""
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
                f"{self._place()}: yields {wait!r}; yield what a wait of the world returns, such as world.until_round(50)"
            )
        wait.begin()
        self.journal.note("wait", wait.plain())
        return wait

    def _wait_for(self, wait: Wait) -> None:
        self._wait = wait
        self._number += 1
        if wait.due_s < _EVER:
            self.clock.call_at(max(wait.due_s, self.clock.now), self._rings, self._number, BEFORE_ALL)

    def _call_user(self, call: Callable[[], Any]) -> Any:
        """Call the user's code; its errors are raised with the script, the round, the time and the line."""
        try:
            return call()
        except (StopIteration, DivergedError):
            raise
        except (UserError, ParameterError) as error:
            raise UserError(f"{self._place(error)}: {error}") from error
        except Exception as error:
            text = str(error).partition("\n")[0]
            raise UserError(f"{self._place(error)}: {type(error).__name__}: {text}") from error

    def describe_act(self) -> str:
        """Return the script's present act in words, for an error that comes later."""
        return f"by {self._place()}"

    def _place(self, error: BaseException | None = None) -> str:
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
        """Bring a fresh generator to where the script was; raises UserError where it does otherwise than it did."""
        self.round, self.slot = state["round"], state["slot"]
        self.journal.replay([list(entry) for entry in state["entries"]])
        try:
            self._replay()
        except DivergedError as error:
            raise UserError(
                f"{self._place()}: does otherwise than before the checkpoint: {error}; go on with the script as it was, or run "
                "again"
            ) from error
        if self._wait is not None:
            self._wait.load_state_dict(state["wait"])

    def _replay(self) -> None:
        """Bring a fresh generator to the point of the checkpoint, by the answers in the journal."""
        if not self.journal.entries:
            return  # interrupted before the run began
        self._begin()
        value: Any = None
        while (wait := self._next_wait(value)) is not None:
            answer = self.journal.woken()
            if answer is None:
                self._wait_for(wait)
                return
            _, *moment, which, came = answer
            self._moment = (moment[0], moment[1], moment[2])
            wait.comes(which, came)
            value = wait.value
