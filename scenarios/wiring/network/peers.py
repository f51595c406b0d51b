"""Links between clients, as `[peers]` describes them, and links of opinions, for all servers with such messages."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from models.laws.changes import Unchanging
from models.laws.channels import Perfect
from models.laws.delays import Constant
from models.peers.graph import PeerGraph
from netsim.core.errors import ParameterWarning
from netsim.core.streams import Streams
from netsim.network.jammable import JammedRoutes
from netsim.network.jamming import Jammers
from netsim.network.outages import ClientOutages
from netsim.network.resending import Resending
from netsim.network.transport.laws import Disturbances, LinkLaws
from netsim.network.transport.link_outages import Absences, Cuts, Outage, Outages, Presence, link_between, links_down
from netsim.network.transport.messages import Star, jammed_links
from netsim.network.transport.transport import Transport
from scenarios.registry.components import Keywords, construct, key_at, name_refusals
from scenarios.schema.world import Peers
from scenarios.wiring.clients.population import Context
from scenarios.wiring.laws import channel_timeline, delay_timeline
from scenarios.wiring.network.bandwidth import build_opinion_carrier, build_peer_carrier
from scenarios.wiring.network.jammers import build_jammers
from scenarios.wiring.network.payload import Message
from scenarios.wiring.network.resending import resending_rule

if TYPE_CHECKING:
    from netsim.clients.pool import ClientPool
    from netsim.network.transport.messages import Message as SentMessage
    from scenarios.wiring.world import World

BuiltT = TypeVar("BuiltT")


def build_peer_graph(section: Peers, clients: int, streams: Streams) -> PeerGraph:
    """Return the graph that `[peers]` describes; raises UserError."""
    supplied = {"clients": clients, "generator": streams.generator("peers.topology")}
    graph: PeerGraph = construct(section.topology, "topology", "peers.topology", section.topology.parameters(), supplied)
    return graph


def message_presence(world: World, pool: ClientPool) -> Presence | None:
    """Return the presence of clients, by which messages to absent clients are lost; None if no client ever leaves."""
    scenario = world.scenario
    has_batteries = pool.energy is not None and pool.energy.batteries is not None
    never_leaves = scenario.availability.kind == "always" and scenario.script is None and not has_batteries
    return None if never_leaves else pool


def build_links(
    world: World,
    section: Peers,
    graph: PeerGraph,
    context: Context,
    client_outages: ClientOutages | None,
    *,
    presence: Presence | None,
    resending: Resending | None = None,
) -> Transport:
    """Return the transport of messages over the links of `graph`; raises UserError.

    `client_outages`: outages of clients that destroy messages, too. `presence`: result of `message_presence`. `resending`: rule
    for lost messages; None: that of `[peers]`.
    """
    scenario, streams = world.scenario, world.streams
    outages = _outages(section, graph)  # before the return for no time, so that wrong ones are refused in any case
    if scenario.slots is not None and scenario.slots.start == "zero":
        no_delay = Unchanging(Constant(value_s=0.0))
        instant = LinkLaws(delay=no_delay, channel=Unchanging(Perfect()))
        return Transport(clock=world.clock, graph=graph, laws=instant, streams=streams, recording=scenario.output.messages_table)
    jammed = jammed_links(graph) if scenario.jammers_of("peers") else None
    carrier, bytes_per_s = build_peer_carrier(section, context, world.clock)
    speed_km_per_s = section.speed_km_per_s
    if world.network is not None:
        # Cables have delays of their own, so that the distance between clients must not count a second time.
        carrier, speed_km_per_s = world.network.peer_carrier(graph), math.inf
    cuts: list[Cuts] = [Outages(graph=graph, outages=outages)]
    if world.context.targets is not None:
        cuts.insert(0, world.context.targets.add_cuts())

    def link_of(a: int, b: int) -> int:
        """Return the number of the link between clients `a` and `b`."""
        return link_between(graph, a, b)

    laws = construct_at(
        LinkLaws,
        "peers",
        {"speed_km_per_s": speed_km_per_s, "bandwidth_bytes_per_s": bytes_per_s},
        {
            # Messages differ in size, so the seconds of their bytes cannot be part of the delay law.
            "carrier": carrier,
            "delay": delay_timeline(section, "peers", context),
            "channel": channel_timeline(section, "peers", context),
        },
    )
    return Transport(
        clock=world.clock,
        graph=graph,
        laws=laws,
        streams=streams,
        resending=resending or resending_rule(section),
        disturbances=Disturbances(
            outages=cuts,
            absences=None if presence is None else Absences(graph=graph, presence=presence),
            clients=client_outages,
            jammed=jammed,
            jammers=_jammers(world, "peers", jammed, link_of),
        ),
        recording=scenario.output.messages_table,
    )


def _outages(section: Peers, graph: PeerGraph) -> list[Outage]:
    """Return the outages of `peers.outages`, over links of `graph`; raises UserError."""
    outages = []
    for i, table in enumerate(section.outages):
        path = f"peers.outages.{i}"
        bounds = {"start_s": table.from_s, "end_s": math.inf if table.to_s is None else table.to_s}
        keys = {"start_s": f"{path}.from_s", "end_s": f"{path}.to_s"}
        with name_refusals(path, {*bounds, "links", "groups"}, keys):
            outage = Outage(links=[(a, b) for a, b in table.links], groups=table.groups, **bounds)
            # Look up the links of each outage by itself, so that an error names its place in the file.
            links_down(graph, outage)
        outages.append(outage)
    return outages


def _jammers(
    world: World, target: str, jammed: JammedRoutes[SentMessage] | None, link_of: Callable[[int, int], int] | None
) -> Jammers | None:
    """Return the jammers of the links `jammed`, which are `target` in the scenario; None without such links.

    `link_of`: function that returns the number of the link between two clients; None: links are not named by clients.
    """
    if jammed is None:
        return None
    return build_jammers(world.scenario, {target: jammed}, world.streams, world.clock, link_between=link_of)


def build_opinion_links(
    world: World,
    context: Context,
    outages: ClientOutages | None,
    *,
    presence: Presence | None,
) -> Transport:
    """Return the transport of opinions to the server; raises UserError.

    `outages`: outages of clients that destroy opinions, too. `presence`: result of `message_presence`.
    """
    section = world.scenario.opinions
    assert section is not None
    star = Star(context.population.count)
    message = Message(section.size_bytes, "opinions.size_bytes")
    carrier = build_opinion_carrier(section, context, world.clock, message)
    if world.network is not None:
        carrier = world.network.up.carrier
    # A carrier times the bytes; without one their seconds are part of the delay.
    message_of_delay = message if carrier is None else None
    jammed = jammed_links(star) if world.scenario.jammers_of("opinions") else None
    return Transport(
        clock=world.clock,
        graph=star,
        laws=LinkLaws(
            delay=delay_timeline(section, "opinions", context, message_of_delay),
            channel=channel_timeline(section, "opinions", context),
            carrier=carrier,
        ),
        streams=world.streams,
        resending=resending_rule(section),
        disturbances=Disturbances(
            absences=None if presence is None else Absences(graph=star, presence=presence),
            clients=outages,
            jammed=jammed,
            jammers=_jammers(world, "opinions", jammed, link_of=None),
        ),
        kind="opinion",
        recording=world.scenario.output.messages_table,
    )


def construct_at(
    target: Callable[..., BuiltT], path: str, keywords: Keywords, supplied: Keywords, names: set[str] | None = None
) -> BuiltT:
    """Return `target(**keywords, **supplied)`. Its errors and warnings about parameters name the keys below `path`.

    `names`: parameters that are keys of the scenario; None: those of `keywords`.
    """
    keys = names or set(keywords)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with name_refusals(path, keys):
            result = target(**keywords, **supplied)
    for warning in caught:
        message = warning.message
        if isinstance(message, ParameterWarning) and message.name in keys:
            message = message.rename(key_at(path, message.name))
        warnings.warn(message, warning.category, stacklevel=2)
    return result
