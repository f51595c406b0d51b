"""Facts of a run for a script, and events that it can wait for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from netsim.clients.pool import ClientPool
from netsim.core.protocols import IntArray
from netsim.network.jamming import Jammers
from netsim.network.spectrum import Spectrum
from netsim.network.transport.messages import PeerGraph
from scenarios.schema.errors import UserError
from scenarios.schema.per_client import is_number
from scenarios.wiring.population import Population
from scenarios.wiring.script.runner import ScriptRunner
from scenarios.wiring.script.targets import Targets
from scenarios.wiring.script.values import Some, integer, plain, plain_number, to_list
from scenarios.wiring.script.waits import UntilDeclared, UntilEnded, UntilRound, UntilTime, Wait

_OUTCOMES = ("delivered", "lost", "late", "aborted")


@dataclass(frozen=True, kw_only=True, slots=True)
class Scene:
    """Parts of a run that a script looks at."""

    population: Population
    pool: ClientPool
    spectrum: Spectrum | None
    """Sub-channels, or None."""
    jammers: Jammers | None
    graph: PeerGraph | None
    """Links between clients, or None."""
    slots: bool
    """True if a round is one of the communication rounds of a slot."""
    declares: dict[str, bool]
    """True, by "policy" and "scheduler", if that component may declare changes."""


class Observed:
    """Facts for a script, and events that it can wait for."""

    def __init__(self, *, runner: ScriptRunner, targets: Targets, scene: Scene, rng: np.random.Generator) -> None:
        self._runner, self._targets, self._population, self._pool = runner, targets, scene.population, scene.pool
        self._spectrum, self._jammers, self._graph, self._slots = scene.spectrum, scene.jammers, scene.graph, scene.slots
        self._declares = scene.declares
        self._acts = 0
        self.rng = rng
        """Random numbers of the script: a separate stream of the run's seed."""

    # What is known.

    @property
    def time_s(self) -> float:
        """The simulated time."""
        return self._runner.moment[2]

    @property
    def round(self) -> int:
        """The round under way, or between rounds the last one; 0 before the first. With slots: communication rounds."""
        return self._runner.moment[0]

    @property
    def slot(self) -> int:
        """The slot under way; 0 before the first, and where the server has none."""
        return self._runner.moment[1]

    @property
    def client_count(self) -> int:
        """K."""
        return self._population.count

    @property
    def channel_count(self) -> int:
        """N, the sub-channels of `[channels]`; 0 without."""
        return 0 if self._spectrum is None else self._spectrum.count

    def group(self, name: str) -> IntArray:
        """Return the clients (n,) of a group of the scenario."""
        return self._population.group(name, "group").copy()

    def deliveries(self) -> IntArray:
        """Return the number of updates (K,) delivered so far by each client."""
        return np.array(self._runner.journal.read("deliveries", self._pool.successes.tolist), np.int64)

    def channel_deliveries(self) -> IntArray:
        """(N,) updates delivered so far over each sub-channel."""
        return np.array(self._runner.journal.read("channel_deliveries", self._channels().delivered.copy), np.int64)

    def channel_attempts(self) -> IntArray:
        """(N,) transmissions begun so far on each sub-channel."""
        return np.array(self._runner.journal.read("channel_attempts", self._channels().begun.copy), np.int64)

    def _channels(self) -> Spectrum:
        if self._spectrum is None:
            raise UserError("this scenario has no sub-channels; add [channels], or leave it out")
        return self._spectrum

    def value(self, target: str, parameter: str, /) -> Any:
        """Return a parameter of a law as it is in force: (K,) or (N,) numbers, or what is no number.

        `target` as of `change`.
        """
        round, _, time_s = self._runner.moment
        value = self._targets.find(target).value(parameter, round, time_s)
        return value.copy() if isinstance(value, np.ndarray) else value

    # What can be waited for.

    def until_round(self, number: int) -> Wait:
        """Until round `number` is about to open: before anything of it, such as waiting for clients. Gives the round."""
        return UntilRound(integer("number", number, 1))

    def until_slot(self, number: int) -> Wait:
        """Until slot `number` is about to open, before the clients or the server decide on its members. Gives the slot."""
        if not self._slots:
            raise UserError("until_slot: this server has no slots; wait for a round")
        return UntilRound(integer("number", number, 1), slot=True)

    def until_time(self, time_s: float) -> Wait:
        """Until the clock stands at `time_s`, before everything else of that instant. Gives the time."""
        if not is_number(plain_number(time_s)) or not time_s >= 0:
            raise UserError(f"time_s = {time_s!r}: must be a number of seconds, >= 0 and finite")
        return UntilTime(float(time_s))

    def after(self, seconds: float) -> Wait:
        """For so many seconds from now."""
        if not is_number(plain_number(seconds)) or not seconds >= 0:
            raise UserError(f"seconds = {seconds!r}: must be a number of seconds, >= 0 and finite")
        return UntilTime(self.time_s + float(seconds))

    def until_delivery(self, *, clients: Some = None, channels: Some = None, count: int = 1) -> Wait:
        """Until `count` updates have been delivered: of some clients, over some sub-channels. Gives the last, an `Ended`."""
        return self._until_end("delivered", None, clients, channels, count)

    def until_loss(self, *, cause: str | None = None, clients: Some = None, channels: Some = None, count: int = 1) -> Wait:
        """Until `count` updates have been lost, to `cause` as clients.parquet has it (None: any). Gives the last, an `Ended`."""
        return self._until_end("lost", cause, clients, channels, count)

    def until_end(self, outcome: str | None = None, *, clients: Some = None, channels: Some = None, count: int = 1) -> Wait:
        """Until `count` attempts have ended: delivered, lost, late or aborted (None: whichever). Gives the last, an `Ended`."""
        if outcome not in (None, *_OUTCOMES):
            raise UserError(f"outcome = {outcome!r}: must be one of {', '.join(_OUTCOMES)}")
        return self._until_end(outcome, None, clients, channels, count)

    def _until_end(self, outcome: str | None, cause: str | None, clients: Some, channels: Some, count: int) -> Wait:
        if channels is not None:
            self._channels()
        return UntilEnded(
            outcome=outcome,
            cause=cause,
            clients=to_list(self._some(clients, "clients")),
            channels=to_list(self._some(channels, "channels")),
            count=integer("count", count, 1),
        )

    def until_change_declared(self, *, channels: Some = None, clients: Some = None) -> Wait:
        """Wait until a detector declares a change; the wait gives a `Declared`.

        `channels`: the scheduler's changes on these sub-channels. `clients`: the policy's changes at these clients. With both,
        whichever comes first; with neither, any change. Changes are declared as a round closes.
        Raises UserError if no detector of the scenario can declare such a change.
        """
        both = (channels is None) == (clients is None)
        by_scheduler, by_policy = both or clients is None, both or channels is None
        if not (by_scheduler and self._declares["scheduler"]) and not (by_policy and self._declares["policy"]):
            wanted = [("scheduler", "kind = \"glr-cucb\"")] * by_scheduler + [("policy", "a detector")] * by_policy
            remedy = " or ".join(f"give [{section}] {what}" for section, what in wanted)
            raise UserError(f"until_change_declared: nothing here declares such a change; {remedy}")
        if channels is not None:
            self._channels()
        return UntilDeclared(channels=to_list(self._some(channels, "channels")), clients=to_list(self._some(clients, "clients")))

    def _some(self, some: Some, what: str) -> IntArray | None:
        """Return the clients or sub-channels named by `some`; None: all."""
        if some is None:
            return None
        if isinstance(some, str) and what == "clients":
            return self._population.group(some, what)
        count = self._population.count if what == "clients" else self.channel_count
        value: Any = plain(some)
        numbers = value if isinstance(value, list | tuple | range) else [value]
        good = all(isinstance(number, int) and not isinstance(number, bool) and 0 <= number < count for number in numbers)
        if not numbers or not good or len(set(numbers)) < len(numbers):
            name = " or the name of a group" if what == "clients" else ""
            raise UserError(f"{what} = {some!r}: must be a number from 0 to {count - 1}, some of them, each once,{name}")
        return np.array(numbers, np.int64)
