"""A small world for tests of the asynchronous server: written-out schedules, states and times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from models.laws.availability.presence import Always
from models.laws.changes import Unchanging
from models.laws.channels import Bernoulli, Perfect
from models.laws.delays import Constant
from models.privacy import NoPrivacy
from netsim.clients.pool import ClientPool
from netsim.clients.power.energy import FollowedPresence
from netsim.clients.rules import UpdateRules
from netsim.core.clock import Clock
from netsim.core.null_objects import NoOracle
from netsim.core.protocols import Deliveries
from netsim.core.streams import Streams
from netsim.network.access import AssignedAccess
from netsim.network.jamming import Dwells, Jammer, Jammers
from netsim.network.medium import Carriers, Medium, MediumLaws
from netsim.network.outages import ClientOutages
from netsim.network.own_link_jamming import MediumJamming
from netsim.network.sizes import Sizes
from netsim.network.spectrum import Spectrum
from netsim.servers.kinds.age_aware import age_aware_server
from netsim.servers.rounds.round_server import RoundServer
from netsim.servers.sub_channels.channels import ScheduledChannels
from netsim.simulation import Simulation
from tests.helpers.memory_recorder import MemoryRecorder


class Written:
    """A channel law that follows a table of states: row t - 1 is round t."""

    memoryless = False

    def __init__(self, states: Any) -> None:
        self.states = np.array(states, np.bool_)
        self.round = 0

    def step(self, u: Any) -> None:
        self.round += 1

    def good(self, u: Any, entities: Any) -> Any:
        return self.states[self.round - 1, entities]

    def success_probability(self, entities: Any) -> Any:
        return self.states.mean(axis=0)[entities]

    def state_dict(self) -> dict[str, Any]:
        return {"round": self.round}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.round = state["round"]


class Table:
    """A scheduler that follows a table (its last row for ever), and keeps what it is told."""

    contends = False
    declared: Any = ()

    def show(self, good: Any) -> None:
        """Takes no notice."""

    def __init__(self, rows: Any) -> None:
        self.rows = np.array(rows, np.int64)
        self.seen: list[tuple[int, list[int], list[int], list[bool]]] = []

    def assign(self, view: Any) -> Any:
        return self.rows[min(view.round, len(self.rows)) - 1]

    def observe(self, view: Any, channels: Any, good: Any) -> None:
        self.seen.append((view.round, view.ages.tolist(), channels.tolist(), good.tolist()))

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        return None


class Shuffled(Table):
    """A random schedule."""

    def __init__(self, clients: int, channels: int) -> None:
        super().__init__([[0] * clients])
        self.clients, self.channels = clients, channels

    def assign(self, view: Any) -> Any:
        return view.rng.permutation(self.channels)[: self.clients]


@dataclass
class Counting:
    """A learner that keeps every call."""

    version: int = 0
    records_losses: bool = False
    round_columns: Sequence[str] = ()
    calls: list[Deliveries] = field(default_factory=list)
    aggregates: bool = True
    retained: list[list[int]] = field(default_factory=list)

    def retain(self, versions: list[int]) -> None:
        self.retained.append(versions)

    def contribution(self) -> None:
        """Nobody knows of any difference."""

    def aggregate(self, deliveries: Deliveries, want_updates: bool, want_losses: bool = False) -> None:
        self.calls.append(deliveries)
        self.version += 1

    def evaluate(self, round: int, time_s: float, last: bool) -> None:
        return None

    def state_dict(self) -> dict[str, Any]:
        return {"version": self.version}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.version = state["version"]


@dataclass
class World:
    simulation: Simulation
    server: RoundServer
    access: AssignedAccess[Any]
    recorder: MemoryRecorder
    learner: Any
    scheduler: Any

    def play(self, until_round: int | None = None) -> World:
        self.simulation.run(until_round)
        return self

    def column(self, name: str) -> list[Any]:
        return [getattr(row, name) for row in self.recorder.updates]

    def table(self, name: str) -> list[list[Any]]:
        """Values of a column, a list a round, in the order of the clients."""
        rounds: dict[int, list[Any]] = {}
        for row in self.recorder.updates:
            rounds.setdefault(row.round, []).append(getattr(row, name))
        return list(rounds.values())


def timeline(law: Any) -> Any:
    return law if hasattr(law, "at") else Unchanging(law)


def jammer(*, dwell_rounds: int | None = None, dwell_s: float | None = None, start: float | None = None, **given: Any) -> Jammer:
    """A jammer; keywords as those of a scenario."""
    return Jammer(dwells=Dwells(dwell_rounds=dwell_rounds, dwell_s=dwell_s, start=start), **given)


def world(
    *,
    scheduler: Any,
    clients: int = 2,
    channels: int = 3,
    states: Any = None,
    law: Any = None,
    download_s: Any = 0.0,
    compute_s: Any = 0.0,
    upload_s: Any = 0.0,
    channel_s: Any = 0.0,
    downlink: Any = None,
    uplink: Any = None,
    rounds: int = 6,
    seed: int = 1,
    jammers: list[dict[str, Any]] | None = None,
    contention: bool = False,
    availability: Any = None,
    accountant: Any = None,
    charge_on: str = "upload",
    learner: Any = None,
    meter: Any = None,
    time_limit_s: float | None = None,
    shared: Any = None,
    outages: list[Any] | None = None,
    **server: Any,
) -> World:
    clock, streams, recorder = Clock(), Streams(seed), MemoryRecorder()

    def delay(value: Any) -> Any:
        return timeline(
            value if hasattr(value, "quantile") or hasattr(value, "at") else Constant(value_s=np.asarray(value) * 1.0)
        )

    if law is None:
        law = Bernoulli(success=0.5) if states is None else Written(states)
    spectrum = Spectrum(channels=channels, law=timeline(law), delay=delay(channel_s), streams=streams, contention=contention)
    actors = [
        jammer(name=f"j{i}", target=spectrum, draws=streams[f"jammer.j{i}"], **given) for i, given in enumerate(jammers or [])
    ]
    all_jammers = Jammers(jammers=actors, clock=clock, recorder=recorder)
    access: AssignedAccess[Any] = AssignedAccess(spectrum=spectrum, jammers=all_jammers)
    medium = Medium(
        clients=clients,
        laws=MediumLaws(
            download=delay(download_s),
            compute=delay(compute_s),
            upload=delay(upload_s),
            downlink=timeline(downlink or Perfect()),
            uplink=timeline(uplink or Perfect()),
        ),
        streams=streams,
        access=access,
        jamming=MediumJamming(jammers=all_jammers),
        carriers=None if shared is None else Carriers(up=shared(clock, clients)),
        outages=ClientOutages(outages or []),
        sizes=Sizes(down=8, up=8 if shared is None else 100),
    )
    everyone = ClientPool(
        clock=clock,
        medium=medium,
        presence=FollowedPresence(availability or Always(clients=clients), streams["availability"]),
        accountant=accountant or NoPrivacy(clients=clients),
        rules=UpdateRules(charge_on=charge_on, retry=True, instant=not contention),
    )
    learner = learner or Counting()
    built = age_aware_server(
        pool=everyone,
        channels=ScheduledChannels(pool=everyone, access=access, scheduler=scheduler, streams=streams, learner=learner),
        learner=learner,
        meter=meter(streams) if meter else NoOracle(),
        **server,
    )
    built.record_to(recorder)
    simulation = Simulation(clock=clock, server=built, recorder=recorder, rounds=rounds, time_limit_s=time_limit_s)
    return World(simulation, built, access, recorder, learner, scheduler)
