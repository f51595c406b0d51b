"""Training without a server: peers, their links, their protocol and its weights, wired to the clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from models.fl.compression.messages import NO_MODEL
from models.peers.mixing import Mixing
from netsim.network.resending import FOREVER, Resending
from netsim.peers.training.protocol import TrainingProtocol
from netsim.servers.kinds.peer_training import PeersAtWork, peer_server
from scenarios.registry.components import component_model, construct, name_refusals
from scenarios.schema.errors import UserError
from scenarios.wiring.network.compression import build_compressions
from scenarios.wiring.network.peers import build_links, build_peer_graph, message_presence

if TYPE_CHECKING:
    from models.fl.learners.peer_learner import PeerLearner
    from models.overlays.matcha import DrawnMatchings
    from netsim.clients.pool import ClientPool
    from netsim.network.transport.messages import PeerGraph
    from netsim.network.transport.transport import Transport
    from scenarios.registry.components import Component
    from scenarios.schema.scenario import Scenario
    from scenarios.schema.servers.peer_training import PeerTraining
    from scenarios.wiring.servers.server import Server
    from scenarios.wiring.world import World


def peers_server(world: World, section: PeerTraining) -> Server:
    """Return the server of kind "peers"; raises UserError."""
    scenario, pool = world.scenario, world.new_pool()
    supplied = {"matchings": _divide_into_matchings, "regular_graph": _draw_regular_graph}
    protocol: TrainingProtocol = world.component(section.protocol, "protocol", "server.protocol", supplied)
    with name_refusals("server.protocol", section.protocol.parameters()):
        protocol.check(lossy=_is_lossy(scenario))
    if not protocol.mixes and section.mixing is not None:
        problem = f"server.protocol.kind = {section.protocol.kind!r} does not combine by these weights; leave it out"
        raise UserError(f"server.mixing.kind = {section.mixing.kind!r}: {problem}")
    _check_compression(scenario, protocol)
    _refuse_endless(scenario, protocol)
    transport = _links(world, pool, protocol)
    _refuse_dead_channels(scenario, protocol, transport)
    mixing_section = section.mixing or component_model("mixing", "metropolis")(kind="metropolis")
    mixing = _mixing(mixing_section, transport.graph)
    learner = _peer_learner(world, section)
    with name_refusals("server.protocol", {"kind", *section.protocol.parameters()}):
        peers_at_work = PeersAtWork(
            pool=pool,
            transport=transport,
            protocol=protocol,
            mixing=mixing,
            streams=world.streams,
            size_bytes=world.sizes.update_sizes(world.clients),
            models=learner,
        )
    return peer_server(pool=pool, peers=peers_at_work, learner=learner or world.learner)


def _check_compression(scenario: Scenario, protocol: TrainingProtocol) -> None:
    """Raise UserError for a compression that sends only parts of a model, which the receiver cannot complete."""
    kind = scenario.payload.compression.kind
    if not (protocol.sends_differences or build_compressions(scenario).up.whole_models):
        problem = f"server.protocol.kind = {scenario.server.protocol.kind!r} sends whole models, and it {NO_MODEL}"
        raise UserError(
            f"payload.compression.kind = {kind!r}: {problem}; choose 'int8', 'qsgd', or server.protocol.kind = 'choco'"
        )


def _refuse_endless(scenario: Scenario, protocol: TrainingProtocol) -> None:
    """Raise UserError if links may be down without an end, and peers would send over them for ever."""
    section = scenario.peers
    assert section is not None
    if scenario.time_limit_s is not None:
        return
    for number, outage in enumerate(section.outages):
        if outage.to_s is None and (protocol.never_rests or protocol.retry_s is not None):
            kind = scenario.server.protocol.kind
            reason = "by server.protocol.retry_s" if protocol.retry_s is not None else f"as server.protocol.kind = {kind!r} does"
            problem = (
                f"links are down from {outage.from_s:g} s on, and peers that send for ever, {reason}, may never close a round"
            )
            raise UserError(f"peers.outages.{number}.to_s: {problem}; give it, or time_limit_s")


def _refuse_dead_channels(scenario: Scenario, protocol: TrainingProtocol, transport: Transport) -> None:
    """Raise UserError where a channel loses every message, and peers would go on sending over it for ever."""
    law, until_s = transport.survivals.law.at(1, 0.0)
    if protocol.retry_s is None or scenario.time_limit_s is not None or until_s < float("inf"):
        return
    dead = np.flatnonzero(law.success_probability(np.arange(transport.graph.clients)) <= 0.0)
    if dead.size:
        kind = scenario.peers.channel.kind if scenario.peers is not None else ""
        problem = f"messages of peer {dead[0]} never arrive, and server.protocol.retry_s sends them again for ever"
        raise UserError(f"peers.channel.kind = {kind!r}: {problem}; raise its success, or give time_limit_s")


def _mixing(section: Component, graph: PeerGraph) -> Mixing:
    """Return the weights that `server.mixing` describes; raises UserError."""
    mixing = construct(section, "mixing", "server.mixing", section.parameters(), {"graph": graph})
    if not isinstance(mixing, Mixing):
        problem = f"returns {type(mixing).__name__}; must return a models.peers.mixing.Mixing"
        raise UserError(f"server.mixing.kind = {section.kind!r}: {problem}")
    return mixing


def _divide_into_matchings(count: int, pairs: Sequence[tuple[int, int]], budget: float) -> DrawnMatchings:
    """Return the matchings of a graph that the protocol `matcha` draws from."""
    # SciPy's solvers take a while to import.
    from models.overlays.matcha import draw_plan

    return draw_plan(count, pairs, budget)


def _draw_regular_graph(count: int, degree: int, seed: int) -> Sequence[tuple[int, int]]:
    """Return the links of a random graph of `count` peers of `degree` neighbours each, for the protocol `epidemic`."""
    import networkx as nx

    return list(nx.random_regular_graph(degree, count, seed=seed).edges)


def _peer_learner(world: World, section: PeerTraining) -> PeerLearner | None:
    """Return the learner of the peers' models, or None without training, or if the scenario is only checked."""
    if world.trained is None:
        return None
    from models.fl.learners.peer_learner import PeerLearner

    if world.trained.eager:
        raise UserError("learner.trainer: trains ahead, which peers do not; set eager = False")
    tested_count = section.tested_peers or world.clients
    tested = world.streams.generator("tested-peers").permutation(world.clients)[:tested_count]
    return PeerLearner(learner=world.trained, tested=np.sort(tested))


def _is_lossy(scenario: Scenario) -> bool:
    """Return True if a message may be lost, or a peer may be away."""
    section = scenario.peers
    assert section is not None
    may_be_away = scenario.availability.kind != "always" or scenario.script is not None or bool(scenario.outages)
    may_be_lost = section.channel.kind != "perfect" or bool(section.outages) or bool(scenario.jammers)
    return may_be_away or may_be_lost


def _links(world: World, pool: ClientPool, protocol: TrainingProtocol) -> Transport:
    """Return the links between peers, which send again until a message arrives if the protocol says so; raises UserError."""
    scenario = world.scenario
    section = scenario.peers
    assert section is not None

    resending = None
    if protocol.retry_s is not None:
        if section.max_resends:
            problem = "server.protocol.retry_s sends lost messages again until they arrive; leave it out"
            raise UserError(f"peers.max_resends = {section.max_resends}: {problem}")
        if section.resend_after_s:
            problem = "server.protocol.retry_s is the pause before a lost message is sent again; leave one of them out"
            raise UserError(f"peers.resend_after_s = {section.resend_after_s}: {problem}")
        resending = Resending(max_resends=FOREVER, resend_after_s=protocol.retry_s)
    return build_links(
        world,
        section,
        build_peer_graph(section, world.clients, world.streams),
        world.context,
        pool.medium.outages,
        presence=message_presence(world, pool),
        resending=resending,
    )
