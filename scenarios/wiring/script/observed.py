"""Facts of a run for a script, and events that it can wait for."""

from __future__ import annotations

from collections.abc import Sequence
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
from scenarios.wiring.clients.population import Population
from scenarios.wiring.script.edges import ScriptedEdges
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
    jammers: Sequence[Jammers]
    """The jammers of the run, those of each kind of target by themselves."""
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
        self._acts = 0  # number of the last act
        self.rng = rng
        """Random numbers of the script: a separate stream of the run's seed."""

    # State of the run.

    @property
    def time_s(self) -> float:
        """The simulated time."""
        return self._runner.moment[2]

    @property
    def round(self) -> int:
        """The open round; between rounds the last one, 0 before the first. With slots: communication rounds."""
        return self._runner.moment[0]

    @property
    def slot(self) -> int:
        """The open slot; 0 before the first, and for servers without slots."""
        return self._runner.moment[1]

    @property
    def client_count(self) -> int:
        """The number of clients, K."""
        return self._population.count

    @property
    def channel_count(self) -> int:
        """The number of sub-channels, N; 0 without `[channels]`."""
        return 0 if self._spectrum is None else self._spectrum.count

    @property
    def edge_names(self) -> tuple[str, ...]:
        """Names of the edges of `[edges]`; empty without."""
        return () if self._targets.edges is None else tuple(self._targets.edges.names)

    def edge_of(self, client: int) -> str:
        """Return the name of the edge to which `client` belongs now."""
        edges, number = self._edges(), integer("client", client, 0)
        if number >= self._population.count:
            raise UserError(f"client = {client!r}: must be a client from 0 to {self._population.count - 1}")
        return str(self._runner.journal.read("edge_of", lambda: edges.edge_of(number)))

    def _edges(self) -> ScriptedEdges:
        """Return the edges of the run; raises UserError if there are none."""
        if self._targets.edges is None:
            raise UserError("this scenario has no edges; add [edges], or leave it out")
        return self._targets.edges

    def group(self, name: str) -> IntArray:
        """Return the clients (n,) of a group of the scenario."""
        return self._population.group(name, "group").copy()

    def deliveries(self) -> IntArray:
        """Return the number of updates (K,) delivered so far by each client."""
        return np.array(self._runner.journal.read("deliveries", self._pool.successes.tolist), np.int64)

    def channel_deliveries(self) -> IntArray:
        """Return the number of updates (N,) delivered so far over each sub-channel."""
        return np.array(self._runner.journal.read("channel_deliveries", self._channels().delivered.copy), np.int64)

    def channel_attempts(self) -> IntArray:
        """Return the number of transmissions (N,) begun so far on each sub-channel."""
        return np.array(self._runner.journal.read("channel_attempts", self._channels().begun.copy), np.int64)

    def _channels(self) -> Spectrum:
        """Return the sub-channels; raises UserError if there are none."""
        if self._spectrum is None:
            raise UserError("this scenario has no sub-channels; add [channels], or leave it out")
        return self._spectrum

    def value(self, target: str, parameter: str, /) -> Any:
        """Return the present value of a parameter of a law: numbers, (K,) or (N,), or a value that is no number.

        `target`: key of the law in the scenario, such as compute.delay.
        """
        round, _, time_s = self._runner.moment
        value = self._targets.find(target).value(parameter, round, time_s)
        return value.copy() if isinstance(value, np.ndarray) else value

    # Waits.

    def until_round(self, number: int) -> Wait:
        """Wait until round `number` is about to open, before it waits for clients. The yield returns the round."""
        return UntilRound(integer("number", number, 1))

    def until_slot(self, number: int) -> Wait:
        """Wait until slot `number` is about to open, before its members are decided. The yield returns the slot."""
        if not self._slots:
            raise UserError("until_slot: this server has no slots; wait for a round")
        return UntilRound(integer("number", number, 1), slot=True)

    def until_time(self, time_s: float) -> Wait:
        """Wait until `time_s`; the script acts before all other events of that instant. The yield returns the time."""
        if not is_number(plain_number(time_s)) or not time_s >= 0:
            raise UserError(f"time_s = {time_s!r}: must be a number of seconds, >= 0 and finite")
        return UntilTime(float(time_s))

    def after(self, seconds: float) -> Wait:
        """Wait for `seconds` from now. The yield returns the time."""
        if not is_number(plain_number(seconds)) or not seconds >= 0:
            raise UserError(f"seconds = {seconds!r}: must be a number of seconds, >= 0 and finite")
        return UntilTime(self.time_s + float(seconds))

    def until_delivery(self, *, clients: Some = None, channels: Some = None, count: int = 1) -> Wait:
        """Wait until `count` updates of `clients` over `channels` (None: any) have been delivered.

        The yield returns the last of them, an `Ended`.
        """
        return self._until_end(outcome="delivered", cause=None, clients=clients, channels=channels, count=count)

    def until_loss(self, *, cause: str | None = None, clients: Some = None, channels: Some = None, count: int = 1) -> Wait:
        """Wait until `count` updates have been lost. The yield returns the last of them, an `Ended`.

        `cause`: cause of a loss, as in clients.parquet; None: any.
        """
        return self._until_end(outcome="lost", cause=cause, clients=clients, channels=channels, count=count)

    def until_end(self, outcome: str | None = None, *, clients: Some = None, channels: Some = None, count: int = 1) -> Wait:
        """Wait until `count` attempts have ended. The yield returns the last of them, an `Ended`.

        `outcome`: delivered, lost, late or aborted; None: any.
        """
        if outcome not in (None, *_OUTCOMES):
            raise UserError(f"outcome = {outcome!r}: must be one of {', '.join(_OUTCOMES)}")
        return self._until_end(outcome=outcome, cause=None, clients=clients, channels=channels, count=count)

    def _until_end(self, *, outcome: str | None, cause: str | None, clients: Some, channels: Some, count: int) -> Wait:
        """Return a wait for `count` ends with these properties (None: any); raises UserError for channels without `[channels]`.
        """
        if channels is not None:
            self._channels()
        return UntilEnded(
            outcome=outcome,
            cause=cause,
            clients=to_list(self._numbers_of(clients, "clients")),
            channels=to_list(self._numbers_of(channels, "channels")),
            count=integer("count", count, 1),
        )

    def until_change_declared(self, *, channels: Some = None, clients: Some = None) -> Wait:
        """Wait until a detector declares a change; the wait gives a `Declared`.

        `channels`: the scheduler's changes on these sub-channels. `clients`: the policy's changes at these clients. With both,
        whichever comes first; with neither, any change. Changes are declared as a round closes.
        Raises UserError if no detector of the scenario can declare such a change.
        """
        # Changes of sub-channels come from the scheduler, those of clients from the policy. Without arguments both count.
        remedies = {}
        if channels is not None or clients is None:
            remedies["scheduler"] = 'give [scheduler] kind = "glr-cucb"'
        if clients is not None or channels is None:
            remedies["policy"] = "give [policy] a detector"
        if not any(self._declares[component] for component in remedies):
            remedy = " or ".join(remedies.values())
            raise UserError(f"until_change_declared: nothing here declares such a change; {remedy}")
        if channels is not None:
            self._channels()
        return UntilDeclared(
            channels=to_list(self._numbers_of(channels, "channels")), clients=to_list(self._numbers_of(clients, "clients"))
        )

    def _numbers_of(self, named: Any, entities: str) -> IntArray | None:
        """Return the numbers (n,) of the entities that a script has named; None, for all, if `named` is None.

        `entities`: "clients", "channels" or "edges". Raises UserError for a name or a number that none of them has.
        """
        if named is None:
            return None
        if entities == "edges":
            return self._edges().numbers_of(named)
        if isinstance(named, str) and entities == "clients":
            return self._population.group(named, entities)
        count = self._population.count if entities == "clients" else self.channel_count
        value: Any = plain(named)
        numbers = value if isinstance(value, list | tuple | range) else [value]
        valid = all(isinstance(number, int) and not isinstance(number, bool) and 0 <= number < count for number in numbers)
        if not numbers or not valid or len(set(numbers)) < len(numbers):
            name = " or the name of a group" if entities == "clients" else ""
            raise UserError(f"{entities} = {named!r}: must be a number from 0 to {count - 1}, some of them, each once,{name}")
        return np.array(numbers, np.int64)
