"""What a script is given: the run as it stands, what can be waited for, and what can be done to it."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from pydantic import ValidationError

from netsim.clients.pool import ClientPool
from netsim.core.protocols import FloatArray, IntArray
from netsim.network.spectrum import Spectrum
from netsim.records.rows import ScriptRow
from scenarios.build.population import Population
from scenarios.build.script.runner import ScriptRunner
from scenarios.build.script.targets import Overlay, Targets
from scenarios.build.script.waits import UntilDeclared, UntilEnded, UntilRound, UntilTime, Wait
from scenarios.schema.errors import UserError
from scenarios.schema.per_client import is_number, read_per_client

Some: TypeAlias = "int | str | Sequence[int] | IntArray | None"
"""A client, a group's name, clients by their numbers; None: all. Of sub-channels likewise, but for names."""
_OUTCOMES = ("delivered", "lost", "late", "aborted")
_LISTED = 32
"""As many values of a parameter are written out in a record; of more the least, the mean and the largest."""


class Change:
    """A change that a script has made."""

    def __init__(self, world: World, key: str, told: str | None, overlay: Overlay, number: int) -> None:
        self._world, self._key, self._told, self._overlay, self._number = world, key, told, overlay, number
        self._restored = False

    def restore(self) -> None:
        """From now on, the parameters are as they would be without it; other changes, and change points, stay in force."""
        if self._restored:
            raise UserError("this change was taken back already; restore it once")
        self._restored = True
        self._world._lift(self._key, self._told, self._overlay, self._number)


class World:
    """The run, as a script sees it. Clients and sub-channels count from 0, rounds from 1; times are simulated seconds."""

    def __init__(
        self,
        *,
        runner: ScriptRunner,
        targets: Targets,
        population: Population,
        pool: ClientPool,
        spectrum: Spectrum | None,
        slots: bool,
        rng: np.random.Generator,
    ) -> None:
        self._runner, self._targets, self._population, self._pool = runner, targets, population, pool
        self._spectrum, self._slots = spectrum, slots
        self._acts = 0
        self.rng = rng
        """The script's own random numbers: a stream of the run's seed that nothing else draws from."""

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
        """The clients (n,) of a group of the scenario."""
        return self._population.group(name, "group").copy()

    def deliveries(self) -> IntArray:
        """(K,) updates delivered so far by each client."""
        return np.array(self._runner.journal.read("deliveries", self._pool.successes.copy), np.int64)

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
        """A parameter of a law as it is in force: (K,) or (N,) numbers, or what is no number.

        `target` as of `change`.
        """
        round, _, time_s = self._runner.moment
        value = self._targets.named(target).value(parameter, round, time_s)
        return value.copy() if isinstance(value, np.ndarray) else value

    # What can be waited for.

    def until_round(self, number: int) -> Wait:
        """Until round `number` is about to open: before anything of it, such as waiting for clients. Gives the round."""
        return UntilRound(_whole("number", number, 1))

    def until_slot(self, number: int) -> Wait:
        """Until slot `number` is about to open, before the clients or the server decide on its members. Gives the slot."""
        if not self._slots:
            raise UserError("until_slot: this server has no slots; wait for a round")
        return UntilRound(_whole("number", number, 1), slot=True)

    def until_time(self, time_s: float) -> Wait:
        """Until the clock stands at `time_s`, before everything else of that instant. Gives the time."""
        if not is_number(_plain_number(time_s)) or not time_s >= 0:
            raise UserError(f"time_s = {time_s!r}: must be a number of seconds, >= 0 and finite")
        return UntilTime(float(time_s))

    def after(self, seconds: float) -> Wait:
        """For so many seconds from now."""
        if not is_number(_plain_number(seconds)) or not seconds >= 0:
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
            clients=_listed(self._some(clients, "clients")),
            channels=_listed(self._some(channels, "channels")),
            count=_whole("count", count, 1),
        )

    def until_change_declared(self, *, channels: Some = None, clients: Some = None) -> Wait:
        """Until a detector declares a change: the scheduler's on one of these sub-channels, the policy's at one of these clients.

        Both None: anywhere. Declarations come as a round closes. Gives a `Declared`.
        """
        if channels is not None:
            self._channels()
        return UntilDeclared(channels=_listed(self._some(channels, "channels")), clients=_listed(self._some(clients, "clients")))

    # What can be done.

    def change(self, target: str, /, *, clients: Some = None, channels: Some = None, **parameters: Any) -> Change:
        """From now on, parameters of a law have other values, until the change is restored.

        `target`: the key of the law in the scenario, such as compute.delay, uplink.channel, channels.states. `parameters`: by the
        names of the law, as a scenario file gives them. `clients`, of sub-channels' laws `channels`: whose; None: all.
        """
        return self._change(target, clients, channels, parameters, scale=False)

    def scale(self, target: str, /, *, clients: Some = None, channels: Some = None, **factors: Any) -> Change:
        """As `change`, but parameters are multiplied, whatever value is in force."""
        return self._change(target, clients, channels, factors, scale=True)

    def _change(self, target: str, clients: Some, channels: Some, parameters: dict[str, Any], *, scale: bool) -> Change:
        found = self._targets.named(target)
        if not parameters:
            raise UserError(f"{target}: changes nothing; name a parameter and its value")
        given = {"clients": clients, "channels": channels}
        wrong = [name for name, some in given.items() if some is not None and name != found.entity]
        if wrong:
            remedy = f"its parameters may differ between {found.entity}" if found.entity else "its parameters are of no client"
            raise UserError(f"{wrong[0]}: {target} has none; {remedy}")
        some = given[found.entity] if found.entity else None
        entities = self._some(some, found.entity or "clients")
        read = {name: _read(value, f"{target}.{name}") for name, value in parameters.items()}
        overlay = Overlay(parameters=read, entities=entities, scale=scale, told=self._runner.told())
        action = "scale" if scale else "change"
        plain = {name: _plain(value) for name, value in parameters.items()}
        live = self._runner.journal.note("act", action, target, _listed(entities), plain)
        change = Change(self, target, _told(some, entities), overlay, self._acts + 1)
        round, _, time_s = self._runner.moment
        before = {name: found.value(name, round, time_s) for name in parameters}
        found.lay(overlay, round, time_s)
        after = {name: found.value(name, round, time_s) for name in parameters}
        self._acts += 1
        if live:
            found.renew()
            for name in parameters:
                shown = _shown(before[name], entities), _shown(after[name], entities)
                self._record(action, target, _told(some, entities), name, shown)
        return change

    def _lift(self, key: str, told: str | None, overlay: Overlay, number: int) -> None:
        if self._runner.over:
            return
        target = self._targets.named(key)
        live = self._runner.journal.note("act", "restore", key, number)
        round, _, time_s = self._runner.moment
        before = {name: target.value(name, round, time_s) for name in overlay.parameters}
        target.lift(overlay, round, time_s)
        self._acts += 1
        if live:
            target.renew()
            for name in overlay.parameters:
                after = target.value(name, round, time_s)
                shown = _shown(before[name], overlay.entities), _shown(after, overlay.entities)
                self._record("restore", key, told, name, shown, of=number)

    def _record(
        self,
        action: str,
        target: str,
        entities: str | None,
        parameter: str | None = None,
        values: tuple[str | None, str | None] = (None, None),
        *,
        of: int | None = None,
    ) -> None:
        round, _, time_s = self._runner.moment
        row = ScriptRow(self._acts, round, time_s, action, target, entities, parameter, *values, of)
        self._runner.recorder.script(row)

    def _some(self, some: Some, what: str) -> IntArray | None:
        """The clients or sub-channels meant; None: all."""
        if some is None:
            return None
        if isinstance(some, str) and what == "clients":
            return self._population.group(some, what)
        count = self._population.count if what == "clients" else self.channel_count
        plain: Any = _plain(some)
        numbers = plain if isinstance(plain, list | tuple | range) else [plain]
        whole = all(isinstance(number, int) and not isinstance(number, bool) and 0 <= number < count for number in numbers)
        if not numbers or not whole or len(set(numbers)) < len(numbers):
            name = " or the name of a group" if what == "clients" else ""
            raise UserError(f"{what} = {some!r}: must be a number from 0 to {count - 1}, some of them, each once,{name}")
        return np.array(numbers, np.int64)


def _plain_number(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _whole(name: str, value: Any, low: int) -> int:
    plain = _plain_number(value)
    if not isinstance(plain, int) or isinstance(plain, bool) or plain < low:
        raise UserError(f"{name} = {value!r}: must be a whole number from {low} on")
    return plain


def _listed(entities: IntArray | None) -> list[int] | None:
    return None if entities is None else entities.tolist()


def _plain(value: Any) -> Any:
    """A value that a script gives, as plain data."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def _read(value: Any, path: str) -> Any:
    """A parameter's value, as a scenario file would have given it; raises UserError."""
    plain = _plain(value)
    if not isinstance(plain, dict):
        return plain
    try:
        return read_per_client(plain)
    except (ValidationError, ValueError) as error:
        reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise UserError(f"{path} = {value!r}: {reason}") from error


def _told(some: Some, entities: IntArray | None) -> str | None:
    if isinstance(some, str):
        return some
    return None if entities is None else json.dumps(entities.tolist())


def _shown(value: Any, entities: IntArray | None) -> str:
    """A parameter of the entities concerned, as JSON."""
    if not isinstance(value, np.ndarray):
        return json.dumps(value)
    numbers: FloatArray = value if entities is None else value[entities]
    numbers = numbers[~np.isnan(numbers)]
    if numbers.size and (numbers == numbers[0]).all():
        return json.dumps(float(numbers[0]))
    if len(numbers) <= _LISTED:
        return json.dumps(numbers.tolist())
    mean = math.fsum(numbers.tolist()) / len(numbers)
    return json.dumps({"least": float(numbers.min()), "mean": mean, "largest": float(numbers.max())})
