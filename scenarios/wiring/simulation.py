"""Wiring of a checked scenario to a simulation: the one place where engine and models meet."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import TYPE_CHECKING
from weakref import WeakSet

import numpy as np

from models.laws.expectations import Truth
from models.laws.work import WorkPlan
from netsim.clients.pool import ClientPool
from netsim.core.clock import Clock
from netsim.core.protocols import Availability, DelayLaw, FloatArray, Timeline
from netsim.core.streams import Streams
from netsim.network.sizes import Sizes
from scenarios.registry.components import construct
from scenarios.schema.cautions import Caution, collect_warnings, refuse
from scenarios.schema.errors import UserError
from scenarios.schema.scenario import Scenario
from scenarios.wiring.cautions import before_run
from scenarios.wiring.cautions.outlook import HasLaws, Outlook, least_s
from scenarios.wiring.clients.devices import fill_keys
from scenarios.wiring.clients.full_pass import add_extra_pass
from scenarios.wiring.clients.population import Context, Population, resolve_parameters
from scenarios.wiring.clients.work import build_plan
from scenarios.wiring.endless import refuse_endless
from scenarios.wiring.laws import delay_timeline
from scenarios.wiring.learning.client_state import check_client_state
from scenarios.wiring.learning.training import build_trained, check_learner
from scenarios.wiring.network.bandwidth import Carried, build_carrier
from scenarios.wiring.network.cables import WiredNetwork, build_network
from scenarios.wiring.network.multiplied import Multiplier
from scenarios.wiring.network.payload import build_sizes, codec_s, models_down, updates_up
from scenarios.wiring.own_failures import name_own_component
from scenarios.wiring.script.targets import Targets
from scenarios.wiring.servers.kinds import compose
from scenarios.wiring.servers.server import Server
from scenarios.wiring.world import World

if TYPE_CHECKING:
    from models.fl.learners.learner import FederatedLearner
    from scenarios.workers.training_desk import Cluster

_LARGE_POOLS: WeakSet[ClientPool] = WeakSet()
"""Pools of simulations that are still in memory and hold data sets, or at least `_MANY_CLIENTS` clients."""
_MANY_CLIENTS = 10_000
_LARGEST_DATA_SIZE = 1e15
"""Largest number of samples of a client: up to it every whole number is a 64-bit float."""


def build(
    scenario: Scenario,
    *,
    learner: bool = True,
    strict: bool = False,
    trained: FederatedLearner | None = None,
    multiplier: Multiplier | None = None,
    cluster: Cluster | None = None,
) -> World:
    """Return the simulation of a scenario with its parts; raises UserError. Nothing is written until `Simulation.record_to`.

    Args:
        scenario: the scenario.
        learner: False to check the learner without building it, and without importing torch.
        strict: True to refuse a scenario with warnings.
        trained: learner of an earlier build with the same `[learner]` and seed, in place of a new one; its state is loaded later.
        multiplier: factor of the bandwidths of `[downlink]` and `[uplink]`, set during the run; None: none.
        cluster: workers that train; None: those of the scenario.
    """
    if _LARGE_POOLS and trained is None:
        # A finished simulation has circular references, so only the garbage collector frees it. Few objects hold much memory
        # here: without this call the collector would start only after many runs.
        gc.collect()
    cautions: list[Caution] = []
    with name_own_component(scenario), collect_warnings(cautions):
        world = _wire(scenario, learner=learner, trained=trained, multiplier=multiplier, cluster=cluster, cautions=cautions)
        _ = world.simulation  # built here, so that its errors and warnings are collected
    cautions += before_run(_outlook(world))
    cautions += check_client_state(world.scenario, None if world.trained is None else sum(world.trained.release.tensors))
    if world.trained is not None or world.clients >= _MANY_CLIENTS:
        _LARGE_POOLS.add(world.server.clients)
    if strict:
        refuse(cautions)
    return world


def _wire(
    scenario: Scenario,
    *,
    learner: bool,
    trained: FederatedLearner | None,
    multiplier: Multiplier | None,
    cluster: Cluster | None,
    cautions: list[Caution],
) -> World:
    """Return the parts of a simulation that all servers share, without the server; raises UserError.

    `learner`: True to build the learner that the scenario names. `trained`: a learner that is used in its place, or None.
    `multiplier`: factors of bandwidths, or None. `cluster`: workers that train, or None. `cautions`: list to which warnings are
    added.
    """
    streams = Streams(scenario.seed)
    population = Population(scenario.clients)
    scenario = fill_keys(scenario, population.devices)
    context = replace(_context(scenario, population, streams), multiplier=multiplier)

    plan = build_plan(scenario, population)
    # The learner comes before the links: the size of its network decides the bytes of messages.
    if trained is None:
        trained = _build_or_check_learner(scenario, streams, plan, cluster, only_check=not learner)
    message_sizes = build_sizes(scenario, population, trained)
    data_sizes = _data_sizes(scenario, population) if trained is None else np.asarray(trained.data_sizes, np.float64)

    training, delays = add_extra_pass(scenario, context, message_sizes, plan, trained, _delays(scenario, context, message_sizes))
    clock, availability = Clock(), _presence(scenario, context)
    network, down, up = _carriers(scenario, context, clock, message_sizes)
    work_laws: list[tuple[str, HasLaws]] = [*delays.items(), *(("compute", law) for law in training.times())]
    byte_laws = [*(("download", law) for law in down.expected), *(("upload", law) for law in up.expected)]
    return World(
        compose=compose,
        scenario=scenario,
        context=context,
        clock=clock,
        availability=availability,
        trained=trained,
        sizes=message_sizes,
        data_sizes=data_sizes,
        truth=_expected_latencies(scenario, work_laws, byte_laws, population.count),
        delays=delays,
        training=training,
        down=down,
        up=up,
        network=network,
        warned=cautions,
    )


def _outlook(world: World) -> Outlook:
    """Return the facts that the rules of warnings use before a run."""
    down, up = world.down, world.up
    return Outlook(
        scenario=world.scenario,
        population=world.population,
        delays=world.delays,
        worked=world.training.times(),
        carries=bool(down.expected or up.expected),
        besides_s=_besides_s(down, up, world.server),
        stops=down.stops or up.stops,
        presence=world.availability,
        draws=world.streams["availability"],
    )


def _carriers(scenario: Scenario, context: Context, clock: Clock, sizes: Sizes) -> tuple[WiredNetwork | None, Carried, Carried]:
    """Return the network of the scenario (None without one), and the carriers of models and of updates; raises UserError."""
    network = build_network(scenario, context, clock, sizes)
    if network is not None:
        return network, network.down, network.up
    # The bytes of an app's message are known only when it is sent.
    foreseen = scenario.flower is None
    down = build_carrier(scenario.downlink, "downlink", context, clock, models_down(sizes), foreseen=foreseen)
    up = build_carrier(scenario.uplink, "uplink", context, clock, updates_up(sizes), foreseen=foreseen)
    return None, down, up


def _besides_s(down: Carried, up: Carried, server: Server) -> dict[str, FloatArray | float]:
    """Return the smallest seconds that are added to the delay of each phase of an update: bytes, and delays of sub-channels."""
    besides_s: dict[str, FloatArray | float] = {"download": down.least_s, "compute": 0.0, "upload": up.least_s}
    channels = server.clients.medium.access.assigned
    if channels is not None:
        besides_s["upload"] += least_s(channels.spectrum.delay, channels.spectrum.all)
    return besides_s


def _context(scenario: Scenario, population: Population, streams: Streams) -> Context:
    """Return the context for the laws of a run."""
    # Laws of training and of its links change by communication rounds, of which a slot has several.
    rounds = scenario.rounds * (scenario.slots.rounds if scenario.slots is not None else 1)
    targets = Targets() if scenario.script is not None else None
    return Context(
        population=population, streams=streams, rounds=rounds, time_limit_s=scenario.time_limit_s, targets=targets
    )


def _expected_latencies(
    scenario: Scenario, work_laws: list[tuple[str, HasLaws]], byte_laws: list[tuple[str, Timeline[DelayLaw]]], clients: int
) -> Truth:
    """Return the expected latencies from the timelines of phases and of bytes, each with its name; raises UserError."""
    refuse_endless(scenario, [law for _, law in work_laws], [law for _, law in byte_laws], clients)
    # Which clients share a bandwidth is not known beforehand, so expected times are those of a client alone.
    phases = [*work_laws, *byte_laws]
    return Truth(phases=[law for _, law in phases], clients=clients, kinds=[name for name, _ in phases])


def _presence(scenario: Scenario, context: Context) -> Availability:
    """Return the availability law of the clients; a script may take clients away from it. Raises UserError."""
    population = context.population
    keywords = resolve_parameters(scenario.availability, "availability", "availability", population)
    law = construct(scenario.availability, "availability", "availability", keywords, {"clients": population.count})
    return law if context.targets is None else context.targets.add_absences(law, population.count)


def _delays(scenario: Scenario, context: Context, sizes: Sizes) -> dict[str, HasLaws]:
    """Return the timelines of the phases of an update, without transfers; compute includes the time of compression."""
    compression_s = codec_s(scenario, context.population, sizes)
    return {
        "download": delay_timeline(scenario.downlink, "downlink", context),
        "compute": delay_timeline(scenario.compute, "compute", context, besides_s=compression_s),
        "upload": delay_timeline(scenario.uplink, "uplink", context),
    }


def _build_or_check_learner(
    scenario: Scenario, streams: Streams, plan: WorkPlan, cluster: Cluster | None, *, only_check: bool
) -> FederatedLearner | None:
    """Return the learner, or None without `[learner]`. With `only_check` check it, build nothing, and return None."""
    if only_check:
        check_learner(scenario)
        return None
    return build_trained(scenario, streams, plan, cluster)


def _data_sizes(scenario: Scenario, population: Population) -> FloatArray:
    """Return the number of samples of each client (K,), 1 by default; raises UserError."""
    data_sizes = scenario.clients.data_sizes
    values = population.values(1.0 if data_sizes is None else data_sizes, "clients.data_sizes")
    sizes = np.array(np.broadcast_to(values, (population.count,)), np.float64)
    valid = (sizes > 0) & (sizes <= _LARGEST_DATA_SIZE)
    if not valid.all():
        client = int(valid.argmin())
        problem = f"clients.data_sizes = {sizes[client]} for client {client}"
        raise UserError(f"{problem}: every client must hold more than 0 samples, and at most {_LARGEST_DATA_SIZE:g}")
    return sizes
