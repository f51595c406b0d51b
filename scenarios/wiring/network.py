"""Wiring of `[network]` to the network of a simulation: nodes, cables with their laws, routes, and carriers of all messages."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from models.errors import ParameterError
from models.laws.delays import Constant as ConstantDelay
from models.overlays import generators
from models.overlays.underlay import Cable as Length
from models.overlays.underlay import Underlay
from netsim.core.clock import LAST, Clock
from netsim.core.protocols import DelayLaw, FloatArray
from netsim.network.carriers import SERVER, NoCarrier
from netsim.network.draws import Survivals
from netsim.network.flows.corrections import PRESETS, Corrections
from netsim.network.jamming import Jammers
from netsim.network.outages import ClientOutages
from netsim.network.routed.background import ConstantTraffic, OnOffTraffic, PoissonTraffic, Source
from netsim.network.routed.cables import Cable
from netsim.network.routed.carrier import Direction, RoutedCarrier, UnusedDirection
from netsim.network.routed.journeys import Hops
from netsim.network.routed.log import TransferLog
from netsim.network.routed.network import RoutedNetwork
from netsim.network.sizes import Sizes
from netsim.network.transport.messages import PeerGraph
from netsim.records.sinks import NoRecorder
from scenarios.networks import read_network
from scenarios.registry.components import Keywords
from scenarios.schema.errors import UserError, did_you_mean, name_source
from scenarios.schema.network import Background, Generator, Network, NetworkLink
from scenarios.schema.scenario import Scenario
from scenarios.wiring.bandwidth import Carried, link_bandwidth
from scenarios.wiring.edge_layout import lay_out
from scenarios.wiring.jammers import build_jammers
from scenarios.wiring.laws import timeline
from scenarios.wiring.outages import outage_of, schedule_in_seconds
from scenarios.wiring.payload import LONGEST_S
from scenarios.wiring.population import Context, Population

_UNWRITTEN = NetworkLink(a="-", b="-")


@dataclass(frozen=True)
class Plan:
    """A cable as the scenario describes it, before it has laws."""

    name: str
    a: str
    b: str
    delay_s: float = 0.0
    km: float | None = None
    bytes_per_s: float | None = None
    link: NetworkLink = _UNWRITTEN
    path: str = "network"


class Layout:
    """Nodes, cables and routes of `[network]`, and the nodes of the server and the clients. Raises UserError."""

    def __init__(self, section: Network, clients: int, generator: np.random.Generator) -> None:
        self.section = section
        self.plans = _plans(section, generator)
        self._numbers = {plan.name: n for n, plan in enumerate(self.plans)}
        self.nodes = list(dict.fromkeys([node for plan in self.plans for node in (plan.a, plan.b)]))
        self._sites = {node: n for n, node in enumerate(self.nodes)}
        self._check_node(section.server, "network.server")
        self.places = self._places(clients)
        self._given = {self._ends(i): self._written(i) for i in range(len(section.routes))}
        self._hops: dict[tuple[str, str], Hops] = {}
        # Pieces that no cable joins are refused here.
        self.underlay  # noqa: B018

    def _check_node(self, node: str, key: str) -> None:
        if node not in self._sites:
            raise UserError(f"{key} = {node!r}: is no node of the network; {did_you_mean(node, self.nodes)}")

    def _places(self, clients: int) -> list[str]:
        """Return the node of each client."""
        section = self.section
        if isinstance(section.clients, list):
            for i, node in enumerate(section.clients):
                self._check_node(node, f"network.clients.{i}")
            if len(section.clients) != clients:
                named = len(section.clients)
                reason = f"client {named} has no node" if named < clients else "there are fewer clients"
                raise UserError(f"network.clients: names {named} nodes for {clients} clients: {reason}; name one for each")
            return section.clients
        ends = Counter(node for plan in self.plans for node in (plan.a, plan.b))
        wanted = [node for node in self.nodes if section.clients == "others" or ends[node] == 1]
        nodes = [node for node in wanted if node != section.server]
        if not nodes:
            raise UserError(f"network.clients = {section.clients!r}: there is no such node; name the node of each client")
        return [nodes[client % len(nodes)] for client in range(clients)]

    @cached_property
    def underlay(self) -> Underlay:
        """The nodes and cables, with lengths by which routes are the shortest."""
        routing = self.section.routing
        cables = []
        for plan in self.plans:
            length = {"delay": plan.delay_s * 1e3, "km": plan.km, "hops": 1.0}[routing]
            if length is None:
                raise UserError(f"network.routing = 'km': cable {plan.name!r} has no km; give it, or set routing = 'delay'")
            cables.append(Length(self._sites[plan.a], self._sites[plan.b], delay_ms=length))
        try:
            return Underlay("network", tuple(self.nodes), tuple(cables), ties="sites")
        except ParameterError as error:
            raise UserError(f"network: {error}") from error

    def cable(self, name: str, key: str) -> int:
        """Return the number of a cable; raises UserError."""
        if name not in self._numbers:
            raise UserError(f"{key} = {name!r}: is no cable of the network; {did_you_mean(name, self._numbers)}")
        return self._numbers[name]

    def _ends(self, i: int) -> tuple[str, str]:
        route = self.section.routes[i]
        self._check_node(route.start, f"network.routes.{i}.from")
        self._check_node(route.to, f"network.routes.{i}.to")
        return route.start, route.to

    def _written(self, i: int) -> Hops:
        """Return the hops of route `i` of the file; raises UserError unless its cables follow one another."""
        route, key = self.section.routes[i], f"network.routes.{i}"
        node, hops, visited = route.start, [], {route.start}
        for place, name in enumerate(route.links):
            n = self.cable(name, f"{key}.links.{place}")
            plan = self.plans[n]
            if node not in (plan.a, plan.b):
                raise UserError(f"{key}.links.{place} = {name!r}: does not begin at {node!r}, where the cable before it ends")
            node = plan.b if node == plan.a else plan.a
            if node in visited:
                raise UserError(f"{key}.links.{place} = {name!r}: leads back to {node!r}, a loop; leave the loop out")
            visited.add(node)
            hops.append((n, node))
        if node != route.to:
            raise UserError(f"{key}: ends at {node!r}, not at {route.to!r}; name the cables up to there")
        return hops

    def node(self, end: int) -> str:
        """Return the node of a client, of the server (SERVER), or of an end that `other_end` has numbered."""
        if end >= 0:
            return self.places[end]
        return self.section.server if end == SERVER else self.nodes[SERVER - 1 - end]

    def other_end(self, node: str, key: str) -> int:
        """Return the number, below SERVER, of an end that is neither a client nor the server. Raises UserError."""
        self._check_node(node, key)
        return SERVER - 1 - self._sites[node]

    def hops(self, source: int, target: int) -> Hops:
        """Return the route between two ends, each a client's number, SERVER, or a number of `other_end`."""
        return self.way(self.node(source), self.node(target))

    def way(self, a: str, b: str) -> Hops:
        """Return the route between two nodes."""
        known = self._hops.get((a, b))
        if known is None:
            known = self._hops[a, b] = self._found(a, b)
        return known

    def distance(self, a: str, b: str, measure: str, key: str) -> float:
        """Return the propagation delay, the km or the number of cables ("hops") from `a` to `b`; raises UserError."""
        for node in (a, b):
            self._check_node(node, key)
        total = 0.0
        for n, _ in self.way(a, b):
            plan = self.plans[n]
            if measure == "km" and plan.km is None:
                raise UserError(f"{key} = 'km': cable {plan.name!r} has no km; give it, or set nearest = 'delay'")
            total += {"delay": plan.delay_s, "km": plan.km or 0.0, "hops": 1.0}[measure]
        return total

    def _found(self, a: str, b: str) -> Hops:
        if (a, b) in self._given:
            return self._given[a, b]
        if (b, a) in self._given:
            there = self._given[b, a]
            nodes = [b, *(node for _, node in there)]
            return [(n, nodes[place]) for place, (n, _) in reversed(list(enumerate(there)))]
        way = self.underlay.ways[self._sites[a]][self._sites[b]]
        return [(n, self.nodes[site]) for n, site in zip(way.cables, way.sites[1:], strict=True)]


def _plans(section: Network, generator: np.random.Generator) -> list[Plan]:
    """Return the cables of a file or generator, together with those of the scenario; raises UserError."""
    plans: dict[str, Plan] = {}
    if section.source is not None:
        with name_source("network.source"):
            plans = _from_underlay(read_network(section.source), section.speed_km_per_s)
    elif section.generator is not None:
        plans = _generated(section.generator, section.speed_km_per_s, generator)
    for i, link in enumerate(section.links):
        path, name = f"network.links.{i}", link.name or f"{link.a}-{link.b}"
        known = plans.get(name)
        if known is not None and known.link is not _UNWRITTEN:
            raise UserError(f"{path}.name = {name!r}: is the name of two cables; give each a name of its own")
        if known is None:
            if link.a is None or link.b is None:
                raise UserError(f"{path}.name = {name!r}: is no cable of the file; give a and b; {did_you_mean(name, plans)}")
            known = Plan(name, link.a, link.b)
        elif link.name is not None and link.a is not None and {link.a, link.b} != {known.a, known.b}:
            raise UserError(f"{path}.name = {name!r}: joins {known.a!r} and {known.b!r}; leave a and b out, or give another name")
        delay_s = link.delay_s if link.km is None else link.km / section.speed_km_per_s
        km = known.km if link.km is None else link.km
        plans[name] = replace(known, link=link, path=path, km=km, delay_s=known.delay_s if delay_s is None else delay_s)
    return list(plans.values())


def _from_underlay(underlay: Underlay, speed_km_per_s: float) -> dict[str, Plan]:
    plans = {}
    for cable in underlay.cables:
        a, b = underlay.sites[cable.a], underlay.sites[cable.b]
        delay_s = cable.km / speed_km_per_s if cable.km is not None else (cable.delay_ms or 0.0) / 1e3
        rate = None if cable.bits_per_s is None else cable.bits_per_s / 8
        plans[f"{a}-{b}"] = Plan(f"{a}-{b}", a, b, delay_s, cable.km, rate)
    return plans


def _generated(section: Generator, speed_km_per_s: float, generator: np.random.Generator) -> dict[str, Plan]:
    """Return the cables of the generator, by name, with the keys of their levels."""
    rule = getattr(generators, section.kind.replace("-", "_"))
    keywords = section.keywords | ({"generator": generator} if section.kind == "waxman" else {})
    try:
        _, cables = rule(**keywords)
    except ParameterError as error:
        raise UserError(str(error.rename(f"network.generator.{error.name}"))) from error
    levels = 1 + max(level for _, _, level, _ in cables)
    for key in ("level_bytes_per_s", "level_delay_s"):
        value = getattr(section, key)
        if value is not None and len(value) != levels:
            raise UserError(f"network.generator.{key}: has {len(value)} numbers for {levels} levels; give one for each")
    plans = {}
    for a, b, level, km in cables:
        delay_s = km / speed_km_per_s if section.level_delay_s is None else section.level_delay_s[level]
        rate = None if section.level_bytes_per_s is None else section.level_bytes_per_s[level]
        plans[f"{a}-{b}"] = Plan(f"{a}-{b}", a, b, delay_s, km, rate)
    return plans


@dataclass(frozen=True)
class WiredNetwork:
    """A network, and what carries the messages of a scenario over it."""

    network: RoutedNetwork
    layout: Layout
    down: Carried
    up: Carried

    def between_clients(self, graph: PeerGraph) -> RoutedCarrier:
        """Return the carrier of messages over the links of `graph`; each message states its size. Raises UserError."""
        for source, target in zip(graph.source.tolist(), graph.target.tolist(), strict=True):
            _require_bandwidth(self.layout, self.network.cables, (source, target), f"the message of client {source} to {target}")
        return RoutedCarrier(network=self.network, direction="peers", sizes=np.zeros(len(self.layout.places)))


    def edge_ends(self, nodes: Sequence[str]) -> list[int]:
        """Return the ends at these nodes of edges; raises UserError."""
        return [self.layout.other_end(node, "edges.tiers.nodes") for node in nodes]

    def connect(self, client: int, end: int) -> None:
        """Let messages of `client` that begin from now on go between the client and `end`."""
        for carried, ends in ((self.down, (end, client)), (self.up, (client, end))):
            assert isinstance(carried.carrier, RoutedCarrier)
            carried.carrier.redirect(client, ends)

    def require_way(self, client: int, end: int) -> None:
        """Raise UserError if no bytes pass between `client` and `end`."""
        for ends in ((end, client), (client, end)):
            _require_bandwidth(self.layout, self.network.cables, ends, f"the model of client {client}")

    def require_way_between(self, ends: tuple[int, int]) -> None:
        """Raise UserError if no bytes pass from the first of `ends`, both edges, to the second."""
        _require_bandwidth(self.layout, self.network.cables, ends, "the state of a client")


def build_network(scenario: Scenario, context: Context, clock: Clock, sizes: Sizes) -> WiredNetwork | None:
    """Return the network of `[network]`; None without one. Raises UserError."""
    section = scenario.network
    if section is None:
        return None
    count = context.population.count
    layout = Layout(section, count, context.streams.generator("network.layout"))
    cables = [_cable(plan, section, context) for plan in layout.plans]
    network = RoutedNetwork(
        clock=clock,
        cables=cables,
        hops=layout.hops,
        streams=context.streams,
        corrections=_corrections(section),
        outages=_outages(section, layout, context),
    )
    network.background.extend(_source(source, i, layout, network, context) for i, source in enumerate(section.background))
    if context.multiplier is not None:
        context.multiplier.renewals.append(network.renew)
    if context.targets is not None:
        for cable in cables:
            if cable.bandwidth is not None:
                context.targets.after_change(f"network.links.{cable.name}.bandwidth", network.renew)
    if scenario.server.sends_updates:
        others = _other_ends(scenario, context, layout)
        _require_bandwidths(layout, cables, scenario, sizes, others)
        down = _carried(network, "down", sizes.down, [(other, client) for client, other in enumerate(others)])
        up = _carried(network, "up", sizes.up, [(client, other) for client, other in enumerate(others)])
    else:
        down, up = Carried(UnusedDirection(network)), Carried(NoCarrier())
    if scenario.output.transfers_table:
        TransferLog(network, layout.node)
    if scenario.jams_cables:
        _let_jam(network, layout, scenario, context)
    return WiredNetwork(network, layout, down, up)


def _other_ends(scenario: Scenario, context: Context, layout: Layout) -> list[int]:
    """Return the end with which each client exchanges models: the server, or the node of its edge. Raises UserError."""
    if scenario.edges is None:
        return [SERVER] * context.population.count
    tree = lay_out(scenario.edges, context.population, layout)
    nodes = [layout.other_end(node, "edges.tiers.nodes") for node in tree.nodes(scenario.edges)]
    return [nodes[edge] for edge in tree.coordinator]


def carried_between_edges(wired: WiredNetwork, size: Any, nodes: Sequence[str], above: Sequence[int]) -> tuple[Carried, Carried]:
    """Return the carriers of models of `size` between edges, at `nodes` (E,), and the edges above (-1: the server).

    Raises UserError.
    """
    layout, network = wired.layout, wired.network
    ends = wired.edge_ends(nodes)
    ways = [(SERVER if over < 0 else ends[over], end) for over, end in zip(above, ends, strict=True)]
    for edge, way in enumerate(ways):
        if np.max(size) > 0:
            _require_bandwidth(layout, network.cables, way, f"the model of edge {edge}")
    down = _carried(network, "edges down", size, ways)
    return down, _carried(network, "edges up", size, [(end, other) for other, end in ways])


def _let_jam(network: RoutedNetwork, layout: Layout, scenario: Scenario, context: Context) -> None:
    jammed = network.jammed_cables()
    actors = build_jammers(scenario, context.streams, jammed.count, cable=lambda name, key: layout.cable(name, key))
    # A dwell comes last in its instant, unless a transfer begins then: what leaves at that time is not hit.
    jammers = Jammers(jammers=actors, clock=network.clock, spectrum=jammed, recorder=NoRecorder(), priority=LAST)
    network.let_jam(jammed, jammers)


def _cable(plan: Plan, section: Network, context: Context) -> Cable:
    """Return the engine's cable for a plan. Laws that take no time or lose nothing are left out, unless a script may change
    them.
    """
    link, alone = plan.link, replace(context, population=Population.single_client())
    # Scripts name a cable, not its place in the file.
    key = f"network.links.{plan.name}"
    scripted = context.targets is not None
    waits = scripted or link.delay != _UNWRITTEN.delay or any(change.delay for change in link.changes)
    loses = scripted or link.channel != _UNWRITTEN.channel or any(change.channel for change in link.changes)
    if link.random_changes is not None:
        waits, loses = True, True
    rate = plan.bytes_per_s or section.bandwidth_bytes_per_s
    if rate is not None and link.bandwidth is None and link.bandwidth_bytes_per_s is None:
        link = link.model_copy(update={"bandwidth_bytes_per_s": rate})
    link = link.model_copy(update={"name": plan.name})
    survivals = None
    if loses:
        draws, law = context.streams[f"{key}.state"], timeline(link, "channel", key, alone)
        survivals = Survivals(clients=1, law=law, draws=draws, state_draws=draws)
    return Cable(
        name=plan.name,
        a=plan.a,
        b=plan.b,
        delay_s=plan.delay_s,
        duplex=link.duplex or section.duplex,
        bandwidth=link_bandwidth(link, key, alone),
        wait=timeline(link, "delay", key, alone) if waits else None,
        survivals=survivals,
    )


def _require_bandwidths(
    layout: Layout, cables: Sequence[Cable], scenario: Scenario, sizes: Sizes, others: Sequence[int]
) -> None:
    """Refuse a cable without bandwidth that bytes between clients and the `others` (K,), server or edges, must cross."""
    sent: list[tuple[str, bool, Any]] = [("model", True, sizes.down), ("update", False, sizes.up)]
    if scenario.server.slotted and not scenario.server.peer_to_peer and scenario.opinions is not None:
        sent.append(("opinion", False, scenario.opinions.size_bytes))
    if scenario.flower is not None:
        # The sizes of an app's messages are known only when they are sent.
        sent += [("message of the app", True, 1), ("reply of the app", False, 1)]
    for what, down, size in sent:
        each = np.broadcast_to(size, (len(layout.places),))
        for client in np.flatnonzero(each > 0).tolist():
            ends = (others[client], client) if down else (client, others[client])
            words = f"the {what}" if scenario.flower is not None else f"the {what} of {each[client]:,} bytes"
            _require_bandwidth(layout, cables, ends, f"{words} of client {client}")


def _require_bandwidth(layout: Layout, cables: Sequence[Cable], ends: tuple[int, int], message: str) -> None:
    """Refuse a cable without bandwidth on the route between two ends.

    `message`: name of the message in the refusal, such as "the update".
    """
    for n, _ in layout.hops(*ends):
        if cables[n].bandwidth is None:
            raise UserError(
                f"network.links: cable {cables[n].name!r} has no bandwidth, which {message} needs; "
                "give it bandwidth_bytes_per_s, or network.bandwidth_bytes_per_s for all"
            )


def _corrections(section: Network) -> Corrections | None:
    table = section.corrections
    if table is None:
        return None
    preset = PRESETS[table.preset] if table.preset is not None else Corrections()
    own = {outage.name: getattr(table, outage.name) for outage in fields(Corrections) if getattr(table, outage.name) is not None}
    return replace(preset, **own)


def _outages(section: Network, layout: Layout, context: Context) -> ClientOutages:
    outages = []
    for i, one in enumerate(section.outages):
        path = f"network.outages.{i}"
        names = [plan.name for plan in layout.plans] if one.links is None else one.links
        members = np.array([layout.cable(name, f"{path}.links.{place}") for place, name in enumerate(names)], np.int64)
        when = schedule_in_seconds(one, context.streams[f"network.outage.{one.name}"], path)
        assert when is not None
        outages.append(outage_of(one.name, when, len(layout.plans), members, path))
    return ClientOutages(outages)


def _source(section: Background, i: int, layout: Layout, network: RoutedNetwork, context: Context) -> Source:
    """Return the traffic of `network.background.I`; raises UserError."""
    path = f"network.background.{i}"
    ends = layout.other_end(section.start, f"{path}.from"), layout.other_end(section.to, f"{path}.to")
    _require_bandwidth(layout, network.cables, ends, f"the transfer of {path}")
    common: Keywords = {
        "network": network,
        "name": section.name,
        "ends": ends,
        "draws": context.streams[f"network.background.{section.name}"],
        "limit_bytes_per_s": math.inf if section.bytes_per_s is None else section.bytes_per_s,
    }
    if section.kind == "constant":
        return ConstantTraffic(**common)
    # The section has checked that each kind has its keys.
    own: Keywords
    if section.kind == "on-off":
        own = {"on_s": section.mean_on_s, "off_s": section.mean_off_s}
        return OnOffTraffic(**common, **own)
    own = {"per_s": section.per_s, "size_bytes": section.size_bytes, "exponential": section.sizes == "exponential"}
    return PoissonTraffic(**common, **own)


class _Expected:
    """Expected seconds of the messages of all clients, each alone on its route, over time."""

    fixed = False

    def __init__(self, network: RoutedNetwork, ends: Sequence[tuple[int, int]], sizes: FloatArray) -> None:
        self._network, self._ends, self._sizes = network, ends, sizes
        self._cached: tuple[tuple[Any, ...], DelayLaw] | None = None
        """Laws in force at the last call of `at`, in the order of the cables, and the expectation under them."""

    def at(self, round: int, time_s: float) -> tuple[DelayLaw, float]:
        """Return the law of the expected seconds (a constant per client), and the time until which it holds (inf: always)."""
        laws, until_s = [], math.inf
        for cable in self._network.cables:
            for law in (cable.bandwidth, cable.wait):
                if law is not None:
                    present, ends_s = law.at(round, time_s)
                    laws.append(present)
                    until_s = min(until_s, ends_s)
        # A law in force stays the same object until it is replaced.
        if self._cached is None or any(a is not b for a, b in zip(self._cached[0], laws, strict=True)):
            self._cached = tuple(laws), ConstantDelay(value_s=self.mean_s(round, time_s))
        return self._cached[1], until_s

    def mean_s(self, round: int, time_s: float) -> FloatArray:
        """Return the seconds of each message at the mean bandwidths and mean waits of the laws in force."""
        network, origin = self._network, np.zeros(1, np.int64)
        laws = [None if cable.bandwidth is None else cable.bandwidth.at(round, time_s)[0] for cable in network.cables]
        rates = [None if law is None else float(law.mean_rate(origin)[0]) for law in laws]
        waits = [None if cable.wait is None else cable.wait.at(round, time_s)[0] for cable in network.cables]
        waits_s = [0.0 if law is None else float(law.mean_s(origin)[0]) for law in waits]
        takes_s = np.zeros(len(self._ends))
        for place, (source, target) in enumerate(self._ends):
            hops = [n for n, _ in network.hops(source, target)]
            delay_s = network.transfers.delay_s(network.route(source, target), float(self._sizes[place]))
            takes_s[place] = delay_s + sum(waits_s[n] for n in hops)
            least = min((bandwidth for n in hops if (bandwidth := rates[n]) is not None), default=math.inf)
            takes_s[place] += self._sizes[place] / (least * network.transfers.corrections.bandwidth_factor)
        return takes_s


def _carried(network: RoutedNetwork, direction: Direction, size: Any, ends: Sequence[tuple[int, int]]) -> Carried:
    """Return the carrier of one direction with its expected times; raises UserError for messages that take too long."""
    sizes = np.array(np.broadcast_to(size, (len(ends),)), np.float64)
    expected = _Expected(network, ends, sizes)
    mean_s = expected.mean_s(1, 0.0)
    if not mean_s.max() <= LONGEST_S:
        client = int(mean_s.argmax())
        shown = f"a message of client {client} takes {mean_s[client]:g} s alone"
        raise UserError(f"network: {shown}; must be at most {LONGEST_S:g} s")
    stops = any(
        bool(np.isfinite(law.stops_s(np.zeros(1, np.int64))).any())
        for cable in network.cables
        if cable.bandwidth is not None
        for law in getattr(cable.bandwidth, "laws", ())
    )
    carrier = RoutedCarrier(network=network, direction=direction, sizes=sizes, ends=ends)
    return Carried(carrier=carrier, expected=(expected,), least_s=0.0, stops=stops)
