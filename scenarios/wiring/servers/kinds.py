"""Wiring of `server.kind` to a server: a function for each kind, in one table. A run imports only the servers that it needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from netsim.core.protocols import DelayLaw, FloatArray
from netsim.servers.rounds.close import WaitRule
from scenarios.registry.components import name_refusals
from scenarios.schema.errors import UserError, describe_own_error
from scenarios.wiring.servers.server import Server

if TYPE_CHECKING:
    from netsim.clients.served import ServedClients
    from netsim.servers.kinds.pacing import LatencyPacing
    from netsim.servers.kinds.staleness_bound import StalenessRule
    from scenarios.registry.server_mode import ServerMode
    from scenarios.schema.servers.base import Server as ServerSection
    from scenarios.schema.servers.buffered import Buffered
    from scenarios.schema.servers.flower import FlowerServer
    from scenarios.schema.servers.full_participation import Compass, Safa
    from scenarios.schema.servers.kinds import Asynchronous, SemiSynchronous, Synchronous
    from scenarios.schema.servers.peer_training import PeerTraining
    from scenarios.schema.servers.slotted import FlDa, FlFa
    from scenarios.wiring.world import World


def compose_synchronous(world: World, section: Synchronous) -> Server:
    """Return the server of kind "synchronous", with the policy, close rule and reward of the scenario; raises UserError."""
    from netsim.servers.kinds.synchronous import synchronous_server

    channels, pool = world.channels_and_pool(section.per_round)
    return synchronous_server(
        pool=pool,
        selecting=world.selection(pool, section.per_round, need=section.needed_clients, reselect_busy=section.reselect_busy),
        learner=world.learner,
        wait=_wait_rule(world, section),
        meter=world.meter(section.per_round),
        channels=channels,
        stragglers=section.stragglers,
    )


def _wait_rule(world: World, section: Synchronous) -> WaitRule:
    """Return the close rule of a synchronous server; each field is a key of the section. Raises UserError."""
    keywords = {field.name: getattr(section, field.name) for field in fields(WaitRule)}
    with name_refusals(world.rule_path, keywords):
        return WaitRule(**keywords)


def compose_buffered(world: World, section: Buffered) -> Server:
    """Return the server of kind "buffered": its policy, pacing and rule for old updates are the scenario's; raises UserError."""
    from netsim.servers.kinds.buffered import ModelRule, buffered_server

    channels, pool = world.channels_and_pool(section.concurrency, refill=True)
    return buffered_server(
        pool=pool,
        # The server asks the policy for one client at a time, and makes a model of several.
        policy=world.policy(per_round=1, per_model=section.buffer),
        learner=world.learner,
        streams=world.streams,
        concurrency=section.concurrency,
        rule=ModelRule(buffer=section.buffer, pacing=_pacing(section), staleness=_staleness_rule(section, pool)),
        channels=channels,
    )


def _pacing(section: Buffered) -> LatencyPacing | None:
    """Return the rule by which a buffered server paces its models by latency, or None if it counts deliveries."""
    from netsim.servers.kinds.pacing import LatencyPacing

    if section.pacing != "latency":
        return None
    keywords = {name: getattr(section, name) for name in ("unknown_latency_s", "check_every_s")}
    return LatencyPacing(**{name: value for name, value in keywords.items() if value is not None})


def _staleness_rule(section: Buffered, pool: ServedClients) -> StalenessRule | None:
    """Return the rule of a buffered server for old updates, or None."""
    from netsim.servers.kinds.staleness_bound import UrgentNotices, WaitForOld

    bound = section.staleness_bound
    if bound is None:
        return None
    if section.urgent_notices:
        return UrgentNotices(pool=pool, bound=bound, notice_s=section.notice_s)
    return WaitForOld(pool=pool, bound=bound)


def compose_semi_synchronous(world: World, section: SemiSynchronous) -> Server:
    """Return the server of kind "semi-synchronous", whose rounds last `round_s` seconds; raises UserError."""
    from netsim.servers.kinds.semi_synchronous import semi_synchronous_server

    channels, pool = world.channels_and_pool(section.per_round)
    return semi_synchronous_server(
        pool=pool,
        selecting=world.selection(pool, section.per_round),
        learner=world.learner,
        round_s=section.round_s,
        from_opening=section.from_opening,
        channels=channels,
    )


def compose_safa(world: World, section: Safa) -> Server:
    """Return the server of kind "safa"; all clients take part, and none is picked by a policy. Raises UserError."""
    from netsim.servers.kinds.safa import safa_server

    clients = np.arange(world.population.count)
    channels, pool = world.channels_and_pool(len(clients), refill=True)
    sample = world.training.sample

    def speed_s(number: int) -> FloatArray:
        """Return the mean seconds (K,) that each client takes for a sample in round `number`."""
        assert sample is not None
        law: DelayLaw = sample.at(number, world.clock.now)[0]
        return law.mean_s(clients)

    return safa_server(
        pool=pool,
        learner=world.learner,
        per_round=section.per_round,
        lag_tolerance=section.lag_tolerance,
        deadline_s=section.deadline_s,
        selection=section.selection,
        speed_s=speed_s if section.order == "speed" else None,
        channels=channels,
    )


def compose_compass(world: World, section: Compass) -> Server:
    """Return the server of kind "compass", which gives all clients their steps; raises UserError for bounds that do not fit."""
    from netsim.servers.kinds.compass import compass_server

    channels, pool = world.channels_and_pool(world.population.count, refill=True)
    with name_refusals(world.rule_path, ("min_steps", "max_steps", "slack")):
        return compass_server(
            pool=pool,
            learner=world.learner,
            min_steps=section.min_steps,
            max_steps=section.max_steps,
            slack=section.slack,
            channels=channels,
        )


def compose_asynchronous(world: World, section: Asynchronous) -> Server:
    """Return the server of kind "asynchronous"."""
    from scenarios.wiring.servers import age_aware

    return age_aware.asynchronous(world, section)


def compose_fl_fa(world: World, section: FlFa) -> Server:
    """Return the server of kind "fl-fa" (FL&FA)."""
    from scenarios.wiring.servers import slotted

    return slotted.fl_fa(world, section)


def compose_fl_da(world: World, section: FlDa) -> Server:
    """Return the server of kind "fl-da"."""
    from scenarios.wiring.servers import slotted

    return slotted.fl_da(world, section)


def compose_flower(world: World, section: FlowerServer) -> Server:
    """Return the server of kind "flower": an app's messages make its rounds, and the metrics that they report are its learner.

    With `per_round` a policy chooses which idle clients the app is told of, otherwise all that are present. Raises UserError.
    """
    from netsim.servers.kinds.message_selection import ChosenByPolicy, EveryonePresent
    from netsim.servers.kinds.messages import (
        ClosedByApp,
        MessageDispatch,
        Messages,
        MessageSelection,
        MessageServer,
        MessageSizes,
    )
    from netsim.servers.rounds.loop import RoundLoop
    from scenarios.flower.reports import ReportedMetrics, Reports

    app, sizes = world.scenario.flower, world.sizes
    assert app is not None
    assert isinstance(sizes, MessageSizes)
    messages = Messages(sizes, ask_s=app.polls.node_s)
    pool = world.new_pool(on_work=messages.work_on)
    messages.connect(pool)
    reports = Reports(app.samples_key, app.accuracy_key, app.loss_key)
    choice: MessageSelection = EveryonePresent(messages)
    if app.per_round is not None:
        policy = world.policy(app.per_round, reported_losses=True)
        choice = ChosenByPolicy(messages=messages, policy=policy, streams=world.streams, per_round=app.per_round)
    dispatch = MessageDispatch(messages, choice)
    loop = RoundLoop(pool=pool, dispatch=dispatch, close=ClosedByApp(pool), learner=ReportedMetrics(reports))
    return MessageServer(loop=loop, messages=messages, choice=choice)


def compose_peers(world: World, section: PeerTraining) -> Server:
    """Return the server of kind "peers"."""
    from scenarios.wiring.servers import peer_training

    return peer_training.peers_server(world, section)


COMPOSERS: dict[str, Callable[[World, Any], Server]] = {
    "synchronous": compose_synchronous,
    "buffered": compose_buffered,
    "semi-synchronous": compose_semi_synchronous,
    "safa": compose_safa,
    "compass": compose_compass,
    "asynchronous": compose_asynchronous,
    "fl-fa": compose_fl_fa,
    "fl-da": compose_fl_da,
    "flower": compose_flower,
    "peers": compose_peers,
}


def compose(world: World) -> Server:
    """Return the server that the scenario names, with a tree of edges below it if there are any; raises UserError."""
    if world.scenario.edges is not None:
        from scenarios.wiring.servers import edges

        return edges.tree(world, compose_one)
    return compose_one(world)


def compose_one(world: World) -> Server:
    """Return the server of one coordinator, the run's or an edge's, by the table `world.rule`; raises UserError."""
    section = world.rule
    return COMPOSERS[section.kind](world, section) if section.kind in COMPOSERS else _own_server(world, section)


def _own_server(world: World, section: ServerSection) -> Server:
    """Return the server that the `compose` of a user's own class builds; raises UserError."""
    from netsim.servers.kinds.slotted import SlotServer
    from netsim.servers.rounds.round_server import RoundServer

    path = world.rule_path
    mode: ServerMode = world.component(section, "server", path, {})
    try:
        server: object = mode.compose(world)
    except UserError:
        raise
    except Exception as error:
        problem = f"{path}.kind = {section.kind!r} cannot be put together: {describe_own_error(error)}; fix its compose"
        raise UserError(problem) from error
    if not isinstance(server, RoundServer | SlotServer):
        allowed = "must return a server, such as a netsim.servers.rounds.round_server.RoundServer"
        problem = f"compose returns {type(server).__name__}; {allowed}"
        raise UserError(f"{path}.kind = {section.kind!r}: {problem}")
    return server
