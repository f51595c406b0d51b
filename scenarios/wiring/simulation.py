"""From a checked scenario to a simulation: the one place where engine and models meet."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import numpy as np

from models.laws.expectations import Truth
from models.laws.work import WorkPlan
from models.privacy import Ledger, NoPrivacy, NoSchedule, Schedule
from netsim.clients.pool import ClientPool
from netsim.core.clock import Clock
from netsim.core.null_objects import NoLearner
from netsim.core.protocols import Accountant, Availability, DelayLaw, FloatArray, Timeline
from netsim.core.streams import Streams
from netsim.network.access import AssignedAccess, UplinkAccess
from netsim.network.medium import Medium, MediumLaws
from netsim.network.sizes import Sizes
from netsim.records.sinks import NoRecorder
from netsim.servers.instruments import CableJamming
from netsim.simulation import Simulation
from scenarios.registry.components import construct
from scenarios.schema.cautions import Caution, collecting, refuse
from scenarios.schema.errors import UserError
from scenarios.schema.scenario import Scenario
from scenarios.wiring.accounting import require_accountant
from scenarios.wiring.bandwidth import Carried, build_carrier
from scenarios.wiring.cautions import before_run
from scenarios.wiring.cautions.outlook import HasLaws, Outlook, least_s
from scenarios.wiring.client_state import check_client_state
from scenarios.wiring.devices import fill_keys
from scenarios.wiring.endless import refuse_endless
from scenarios.wiring.energy import build_energy
from scenarios.wiring.full_pass import add_extra_pass
from scenarios.wiring.laws import timeline
from scenarios.wiring.multiplied import Multiplier
from scenarios.wiring.network import WiredNetwork, build_network
from scenarios.wiring.outages import build_outages
from scenarios.wiring.payload import build_sizes, codec_s, models_down, updates_up
from scenarios.wiring.population import Context, Population, resolve_parameters
from scenarios.wiring.script.targets import Targets
from scenarios.wiring.script.wiring import build_script
from scenarios.wiring.server_parts import Server
from scenarios.wiring.servers import compose
from scenarios.wiring.training import build_trained, check_trained
from scenarios.wiring.work import Training, build_plan
from scenarios.wiring.world import World

if TYPE_CHECKING:
    from models.fl.learner import FederatedLearner
    from netsim.clients.update import Update
    from netsim.network.transport.messages import PeerGraph

_LARGE: WeakSet[ClientPool] = WeakSet()
"""The clients of simulations that are still in memory and hold data sets, or `_MANY` clients or more."""
_MANY = 10_000
_MOST_SAMPLES = 1e15
"""Most samples of a client: below that every whole number is one of the 64-bit floats."""


@dataclass(frozen=True, kw_only=True)
class Built:
    """A scenario, wired: its world, its server and the simulation of both."""

    world: World
    server: Server
    simulation: Simulation
    cautions: tuple[Caution, ...] = ()
    """The warnings of the scenario."""

    @property
    def clients(self) -> ClientPool:
        """The clients of the server."""
        return self.server.clients

    @property
    def parameters(self) -> int | None:
        """Numbers in one update; None without a learner."""
        trained = self.world.trained
        return None if trained is None else trained.release.numbers

    @property
    def unprotected(self) -> int:
        """Numbers in one update that no mechanism protects."""
        trained = self.world.trained
        return 0 if trained is None else trained.release.unprotected

    @property
    def channels(self) -> AssignedAccess[Update] | None:
        """The sub-channels with states, or None if the server has none."""
        return self.clients.medium.access.assigned

    @property
    def graph(self) -> PeerGraph | None:
        """The graph between the clients, or None if they do not decide among themselves."""
        transport = self.server.transport if self.world.scenario.server.sends_between_clients else None
        return None if transport is None else transport.graph


def build(
    scenario: Scenario,
    *,
    learner: bool = True,
    strict: bool = False,
    trained: FederatedLearner | None = None,
    multiplier: Multiplier | None = None,
) -> Built:
    """Wire a scenario; nothing is written, and records go nowhere until `Simulation.record_to`.

    `learner` False leaves training out (and torch unimported), to check everything else. `trained`: the learner of an earlier
    build of the same `[learner]` and seed, to be used again once a state has been loaded into it. `multiplier`: multiplies the
    bandwidths of `[downlink]` and `[uplink]` while the simulation runs. Raises UserError; with `strict` for what the scenario is
    only warned of, too.
    """
    if _LARGE and trained is None:
        # A simulation that is over refers to itself in circles, and few objects are enough to hold much memory: the collector
        # would not come before many runs had been added up.
        gc.collect()
    cautions: list[Caution] = []
    with collecting(cautions):
        built = _wire(scenario, learner, trained, multiplier)
    if built.world.trained is not None or built.clients.count >= _MANY:
        _LARGE.add(built.clients)
    built = replace(built, cautions=(*cautions, *built.cautions))
    if strict:
        refuse(built.cautions)
    return built


def _wire(scenario: Scenario, learner: bool, trained: FederatedLearner | None, multiplier: Multiplier | None) -> Built:
    streams = Streams(scenario.seed)
    population = Population(scenario.clients)
    scenario = fill_keys(scenario, population.devices)
    context = replace(_context(scenario, population, streams), multiplier=multiplier)

    plan = build_plan(scenario, population)
    trained = _build_learner(scenario, streams, plan, learner) if trained is None else trained
    sent = build_sizes(scenario, population, trained)
    sizes = _data_sizes(scenario, population) if trained is None else np.asarray(trained.data_sizes, np.float64)

    training, delays = add_extra_pass(scenario, context, sent, plan, trained, _delays(scenario, context, sent))
    worked = training.times()
    clock, availability = Clock(), _presence(scenario, context)
    network, down, up = _carriers(scenario, context, clock, sent)
    timed: list[tuple[str, HasLaws]] = [*delays.items(), *(("compute", law) for law in worked)]
    carried = [*(("download", law) for law in down.expected), *(("upload", law) for law in up.expected)]
    truth = _truth(scenario, timed, carried, population.count)
    private, schedule = _schedule(scenario)
    world = World(
        scenario=scenario,
        **vars(context),
        clock=clock,
        medium_with=_medium_of(scenario, context, delays, (down, up), _sizes_to_server(scenario, sent), training),
        availability=availability,
        energy=build_energy(scenario, population, streams, availability),
        accountant=_accountant(population.count, schedule, private),
        learner=trained if trained is not None else NoLearner(),
        trained=trained,
        sizes=sent,
        data_sizes=sizes,
        schedule=schedule,
        truth=truth,
        delays=delays,
        training=training,
        network=network,
    )
    server = _build_server(world)
    return Built(
        world=world,
        server=server,
        simulation=_simulation(world, server),
        cautions=(
            *before_run(
                Outlook(
                    scenario=scenario,
                    population=population,
                    delays=delays,
                    worked=worked,
                    carries=bool(carried),
                    besides_s=_besides_s(down, up, server),
                    stops=down.stops or up.stops,
                    presence=availability,
                    draws=streams["availability"],
                )
            ),
            *check_client_state(scenario, None if trained is None else sum(trained.release.tensors)),
        ),
    )


def _sizes_to_server(scenario: Scenario, sent: Sizes) -> Sizes:
    """Return the sizes of models and updates between clients and server: none where there is no server."""
    return sent if scenario.server.sends_updates else Sizes()


def _carriers(scenario: Scenario, context: Context, clock: Clock, sent: Sizes) -> tuple[WiredNetwork | None, Carried, Carried]:
    """Return the network of the scenario, None without one, and what carries models and updates. Raises UserError."""
    network = build_network(scenario, context, clock, sent)
    if network is not None:
        return network, network.down, network.up
    # The bytes of an app's message are known only as it is sent.
    foreseen = scenario.flower is None
    down = build_carrier(scenario.downlink, "downlink", context, clock, models_down(sent), foreseen=foreseen)
    return None, down, build_carrier(scenario.uplink, "uplink", context, clock, updates_up(sent), foreseen=foreseen)


def _build_server(world: World) -> Server:
    """Return the server, with columns of rounds for the jamming of cables."""
    server = compose(world)
    _keep_results(server, world.trained)
    network = None if world.network is None else world.network.network
    if network is not None and network.jammed is not None and network.jammers is not None:
        server.loop.add_instrument(CableJamming(cables=network.jammed, jammers=network.jammers))
    return server


def _keep_results(server: Server, trained: FederatedLearner | None) -> None:
    """Let the trainer keep what it trained ahead for updates that are delivered; only an eager trainer trains ahead."""
    if trained is not None and trained.eager:
        server.clients.follow(
            lambda update: trained.on_delivery(update.client, update.begun_round) if update.outcome == "delivered" else None
        )


def _besides_s(down: Carried, up: Carried, server: Server) -> dict[str, FloatArray | float]:
    """Return the least seconds of the phases of an update beside their delays, by name."""
    besides_s: dict[str, FloatArray | float] = {"download": down.least_s, "compute": 0.0, "upload": up.least_s}
    if (channels := server.clients.medium.access.assigned) is not None:
        besides_s["upload"] += least_s(channels.spectrum.delay, channels.spectrum.all)
    return besides_s


def _accountant(clients: int, schedule: Schedule, private: bool) -> Accountant:
    return Ledger(clients=clients, schedule=schedule) if private else NoPrivacy(clients=clients)


def _context(scenario: Scenario, population: Population, streams: Streams) -> Context:
    # Laws of training and of its links change by communication rounds, of which a slot has several.
    rounds = scenario.rounds * (scenario.slots.rounds if scenario.slots is not None else 1)
    targets = Targets() if scenario.script is not None else None
    return Context(population, streams, rounds, scenario.time_limit_s, targets)


def _truth(
    scenario: Scenario, timed: list[tuple[str, HasLaws]], carried: list[tuple[str, Timeline[DelayLaw]]], clients: int
) -> Truth:
    """Return the expected latencies from the timelines of phases and of bytes, each with its name; raises UserError."""
    refuse_endless(scenario, [law for _, law in timed], [law for _, law in carried], clients)
    # No law says which clients share a bandwidth, so expected times are those of a client alone.
    phases = [*timed, *carried]
    return Truth(phases=[law for _, law in phases], clients=clients, kinds=[name for name, _ in phases])


def _presence(scenario: Scenario, context: Context) -> Availability:
    population = context.population
    keywords = resolve_parameters(scenario.availability, "availability", "availability", population)
    law = construct(scenario.availability, "availability", "availability", keywords, {"clients": population.count})
    return law if context.targets is None else context.targets.absences(law, population.count)


def _simulation(world: World, server: Server) -> Simulation:
    keywords: dict[str, Any] = {
        "clock": world.clock,
        "recorder": NoRecorder(),
        "rounds": world.scenario.rounds,
        "time_limit_s": world.scenario.time_limit_s,
        "script": build_script(world, server),
        "log": None if world.network is None else world.network.network,
    }
    if world.scenario.flower is not None:
        from scenarios.flower.running import app_simulation

        return app_simulation(world.scenario, server, keywords)
    return Simulation(server=server, **keywords)


def _delays(scenario: Scenario, context: Context, sizes: Sizes) -> dict[str, HasLaws]:
    """Return the timelines of the phases of an update, without the time of bytes."""
    return {
        "download": timeline(scenario.downlink, "delay", "downlink", context),
        "compute": timeline(
            scenario.compute, "delay", "compute", context, besides_s=codec_s(scenario, context.population, sizes)
        ),
        "upload": timeline(scenario.uplink, "delay", "uplink", context),
    }


def _build_learner(scenario: Scenario, streams: Streams, plan: WorkPlan, learner: bool) -> FederatedLearner | None:
    """The learner; None where there is none or `learner` is false."""
    if learner:
        return build_trained(scenario, streams, plan)
    check_trained(scenario)
    return None


def _schedule(scenario: Scenario) -> tuple[bool, Schedule]:
    """Return True if updates are private, and the schedule of their budgets."""
    section = scenario.privacy
    if section is None or section.mechanism == "none":
        return False, NoSchedule()
    require_accountant(scenario)
    return True, construct(section.schedule, "schedule", "privacy.schedule", section.schedule.parameters(), {})


def _medium_of(
    scenario: Scenario,
    context: Context,
    delays: Mapping[str, HasLaws],
    carried: tuple[Carried, Carried],
    sizes: Sizes,
    training: Training,
) -> Callable[[UplinkAccess[Update]], Medium]:
    """The links of all clients, once it is known how they get access to the uplink."""

    def medium(access: UplinkAccess[Update]) -> Medium:
        return Medium(
            clients=context.population.count,
            laws=MediumLaws(
                download=delays["download"],
                compute=delays["compute"],
                upload=delays["upload"],
                downlink=timeline(scenario.downlink, "channel", "downlink", context),
                uplink=timeline(scenario.uplink, "channel", "uplink", context),
                work=training.work,
                sample=training.update_sample(),
            ),
            streams=context.streams,
            access=access,
            down=carried[0].carrier,
            up=carried[1].carrier,
            outages=build_outages(
                scenario, context.streams, context.population, None if context.targets is None else context.targets.cut_offs
            ),
            sizes=sizes,
        )

    return medium


def _data_sizes(scenario: Scenario, population: Population) -> FloatArray:
    given = scenario.clients.data_sizes
    values = population.values(1.0 if given is None else given, "clients.data_sizes")
    sizes = np.array(np.broadcast_to(values, (population.count,)), np.float64)
    good = (sizes > 0) & (sizes <= _MOST_SAMPLES)
    if not good.all():
        client = int(good.argmin())
        shown = f"clients.data_sizes = {sizes[client]} for client {client}"
        raise UserError(f"{shown}: every client must hold more than 0 samples, and at most {_MOST_SAMPLES:g}")
    return sizes
