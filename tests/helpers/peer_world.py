"""A small world for tests of clients that send each other messages: a graph, links, protocols on a clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from models.laws.changes import Unchanging
from models.laws.channels import Perfect
from models.laws.delays import Constant
from models.peers.graph import FloatArray, PeerGraph
from models.peers.mathematics import PeerBelief, PeerGossip
from netsim.core.clock import Clock
from netsim.core.streams import Streams
from netsim.network.bandwidth.carriers import VaryingLinks
from netsim.network.bandwidth.varying_medium import VaryingMedium
from netsim.network.resending import Resending
from netsim.network.transport.laws import Disturbances, LinkLaws
from netsim.network.transport.link_outages import Outage, Outages
from netsim.network.transport.messages import Star, jammed_links
from netsim.network.transport.transport import Transport
from netsim.peers.belief.exchange import BeliefRules
from netsim.peers.consensus import ConsensusOutcome, ConsensusPhase, ConsensusRules, StartRule
from netsim.peers.gossip.exchange import GossipRules
from netsim.servers.kinds.opinions import OpinionUplink
from tests.helpers.memory_recorder import MemoryRecorder

# Seconds to cross each link: with 1 km/s the lengths of links are their latencies. All sums are exact in binary.
FOUR = {(0, 1): 1.0, (1, 2): 2.0, (2, 3): 0.5, (0, 2): 4.0}


def four() -> PeerGraph:
    """Clients 0, 1, 2 in a triangle, 3 behind 2."""
    return PeerGraph.from_links(clients=4, links=np.array(list(FOUR)), distance_km=np.array(list(FOUR.values())))


@dataclass
class World:
    clock: Clock
    links: Transport
    consensus: ConsensusPhase
    recorder: MemoryRecorder
    belief: PeerBelief

    def run(self, slot: int, opinions: FloatArray, index: FloatArray | None = None) -> ConsensusOutcome:
        """One slot's consensus phase; the index is given, or the opinion."""
        found: list[ConsensusOutcome] = []

        def process() -> Any:
            found.append((yield from self.consensus.run(slot, opinions, lambda beliefs: opinions if index is None else index)))

        self.clock.run_until(self.clock.process(process()))
        return found[0]

    def rows(self, protocol: str) -> list[tuple[Any, ...]]:
        """(number, source, target, sent_s, end_s) of the recorded messages of one protocol, in order of sending."""
        rows = [row for row in self.recorder.messages if row.protocol == protocol]
        return sorted((row.number, row.source, row.target, row.sent_s, row.end_s) for row in rows)


def links_between(
    clock: Clock,
    graph: PeerGraph,
    streams: Streams,
    *,
    delay: Any = None,
    channel: Any = None,
    outages: Any = None,
    client_outages: Any = None,
    jammed: Any = None,
    max_resends: int = 0,
    resend_after_s: float = 0.0,
    bandwidth: Any = None,
    shared: Any = None,
    recording: bool = False,
    **laws: Any,
) -> Transport:
    """Links without delay, loss and disturbances, unless given otherwise; `bandwidth`, `shared`: timelines."""
    if shared is not None:
        laws["carrier"] = VaryingMedium(clock=clock, clients=graph.clients, size_bytes=1.0, link=shared, own=bandwidth)
    elif bandwidth is not None:
        laws["carrier"] = VaryingLinks(clock=clock, clients=graph.clients, size_bytes=1.0, law=bandwidth)
    return Transport(
        clock=clock,
        graph=graph,
        laws=LinkLaws(delay=Unchanging(delay or Constant(value_s=0.0)), channel=Unchanging(channel or Perfect()), **laws),
        streams=streams,
        resending=Resending(max_resends=max_resends, resend_after_s=resend_after_s),
        disturbances=Disturbances(outages=[] if outages is None else [outages], clients=client_outages, jammed=jammed),
        recording=recording,
    )


def opinion_uplink(
    *,
    clients: int,
    streams: Streams,
    clock: Clock | None = None,
    delay: Any = None,
    channel: Any = None,
    max_resends: int = 0,
    resend_after_s: float = 0.0,
    outages: Any = None,
    jammed: Any = None,
    jammers: Any = None,
    carrier_on: Any = None,
    **more: Any,
) -> OpinionUplink:
    """A channel for opinions without delay and loss, unless given otherwise; laws, or timelines of them."""
    clock, star = clock or Clock(), Star(clients)
    delay, channel = delay or Constant(value_s=0.0), channel or Perfect()
    transport = Transport(
        clock=clock,
        graph=star,
        laws=LinkLaws(
            delay=delay if hasattr(delay, "at") else Unchanging(delay),
            channel=channel if hasattr(channel, "at") else Unchanging(channel),
            carrier=None if carrier_on is None else carrier_on(clock),
        ),
        streams=streams,
        resending=Resending(max_resends=max_resends, resend_after_s=resend_after_s),
        disturbances=Disturbances(clients=outages, jammed=jammed, jammers=jammers),
        kind="opinion",
    )
    return OpinionUplink(transport=transport, streams=streams, **more)


def collected(sender: OpinionUplink, slot: int, ready_s: Any, now_s: float) -> tuple[float, Any]:
    """When the server goes on, and whose opinions it then has; its clock, which may be earlier, first comes to `now_s`."""
    clock, heard = sender.transport.clock, list[Any]()

    def process() -> Any:
        if clock.now < now_s:
            yield clock.event_at(now_s)
        heard.append((yield from sender.collect(slot, np.array(ready_s, np.float64))))

    clock.run_until(clock.process(process()))
    return clock.now, heard[0]


def world(
    graph: PeerGraph,
    *,
    per_round: int,
    seed: int = 1,
    delay: Any = None,
    channel: Any = None,
    coupling: float = 0.05,
    payload: Any = "all",
    belief: BeliefRules | None = None,
    gossip: GossipRules | None = None,
    start: StartRule | None = None,
    engine: Any = "events",
    record: bool = False,
    outages: list[Outage] | None = None,
    jam: bool = False,
    **links: Any,
) -> World:
    """Links without delay and loss, unless given otherwise; 1 km/s."""
    clock, streams, recorder = Clock(), Streams(seed), MemoryRecorder()
    medium = links_between(
        clock,
        graph,
        streams,
        delay=delay,
        channel=channel,
        outages=Outages(graph=graph, outages=outages or []),
        jammed=jammed_links(graph) if jam else None,
        recording=record,
        **({"speed_km_per_s": 1.0} | links),
    )
    medium.record_to(recorder)
    maths = PeerBelief(graph=graph, coupling=coupling)
    consensus = ConsensusPhase(
        links=medium,
        belief=maths,
        gossip=PeerGossip(graph=graph, size=per_round, payload=payload),
        rules=ConsensusRules(
            belief=belief or BeliefRules(),
            gossip=gossip or GossipRules(),
            start=start or StartRule(),
            per_round=per_round,
            engine=engine,
            ties="first",
        ),
        streams=streams,
    )
    return World(clock, medium, consensus, recorder, maths)
