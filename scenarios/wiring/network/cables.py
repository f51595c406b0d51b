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
from netsim.core.protocols import DelayLaw, FloatArray, IntArray
from netsim.network.bandwidth.carriers import SERVER, NoCarrier
from netsim.network.draws import Survivals
from netsim.network.flows.corrections import PRESETS, Corrections
from netsim.network.outages import ClientOutages
from netsim.network.routed.background import ConstantTraffic, OnOffTraffic, PoissonTraffic, Source
from netsim.network.routed.cables import Cable
from netsim.network.routed.carrier import Direction, RoutedCarrier, UnusedDirection
from netsim.network.routed.journeys import Hops
from netsim.network.routed.log import TransferLog
from netsim.network.routed.network import RoutedNetwork
from netsim.network.sizes import Sizes
from netsim.network.transport.messages import PeerGraph
from scenarios.networks import read_network
from scenarios.registry.components import Keywords
from scenarios.schema.errors import UserError, did_you_mean, name_source
from scenarios.schema.network import Background, Generator, Network, NetworkLink
from scenarios.schema.scenario import Scenario
from scenarios.wiring.clients.population import Context, Population
from scenarios.wiring.laws import channel_timeline, delay_timeline
from scenarios.wiring.network.bandwidth import Carried, ends_for_ever, link_bandwidth
from scenarios.wiring.network.jammers import build_jammers
from scenarios.wiring.network.outages import outage_of, schedule_in_seconds
from scenarios.wiring.network.payload import LONGEST_S
from scenarios.wiring.servers.edge_layout import lay_out

_DEFAULT_LINK = NetworkLink(a="-", b="-")


@dataclass(frozen=True)
class CablePlan:
    """Cable as the scenario describes it, before it has laws. Its ends are the nodes `a` and `b`."""

    name: str
    a: str
    b: str
    delay_s: float = 0.0
    km: float | None = None
    bytes_per_s: float | None = None
    link: NetworkLink = _DEFAULT_LINK
    """Keys of the cable in the scenario."""
    path: str = "network"
    """Path of these keys."""


class Layout:
    """Nodes, cables and routes of `[network]`, and the nodes of the server and the clients. Raises UserError."""

    def __init__(self, section: Network, clients: int, generator: np.random.Generator) -> None:
        self.section = section
        self.plans = _plan_cables(section, generator)
        self._cable_numbers = {plan.name: number for number, plan in enumerate(self.plans)}
        self.nodes = list(dict.fromkeys([node for plan in self.plans for node in (plan.a, plan.b)]))
        self._node_numbers = {node: number for number, node in enumerate(self.nodes)}
        self._check_node(section.server, "network.server")
        self.client_nodes = self._place_clients(clients)
        self._stated_routes = {self._route_ends(i): self._stated_hops(i) for i in range(len(section.routes))}
        self._hops: dict[tuple[str, str], Hops] = {}
        # Computing the routes refuses a network that is not connected.
        self.underlay  # noqa: B018

    def _check_node(self, node: str, key: str) -> None:
        """Raise UserError about `key` unless `node` is a node of the network."""
        if node not in self._node_numbers:
            raise UserError(f"{key} = {node!r}: is no node of the network; {did_you_mean(node, self.nodes)}")

    def _place_clients(self, clients: int) -> list[str]:
        """Return the node of each client (K,); raises UserError.

        `network.clients` lists them, or names a set of nodes that clients take in turn: "leaves", which are the nodes with one
        cable, or "others", all nodes. The server's node is in neither.
        """
        section = self.section
        if isinstance(section.clients, list):
            for i, node in enumerate(section.clients):
                self._check_node(node, f"network.clients.{i}")
            if len(section.clients) != clients:
                count = len(section.clients)
                reason = f"client {count} has no node" if count < clients else "there are fewer clients"
                raise UserError(f"network.clients: names {count} nodes for {clients} clients: {reason}; name one for each")
            return section.clients
        nodes = [node for node in self.nodes if node != section.server]
        if section.clients == "leaves":
            cable_counts = Counter(node for plan in self.plans for node in (plan.a, plan.b))
            nodes = [node for node in nodes if cable_counts[node] == 1]
        if not nodes:
            raise UserError(f"network.clients = {section.clients!r}: there is no such node; name the node of each client")
        return [nodes[client % len(nodes)] for client in range(clients)]

    @cached_property
    def underlay(self) -> Underlay:
        """Nodes and cables with the lengths by which routes are the shortest; raises UserError for a network in parts."""
        routing = self.section.routing
        cables = []
        for plan in self.plans:
            # An underlay takes its lengths as `delay_ms`; only their ratios matter, whatever their unit.
            length = {"delay": plan.delay_s * 1e3, "km": plan.km, "hops": 1.0}[routing]
            if length is None:
                raise UserError(f"network.routing = 'km': cable {plan.name!r} has no km; give it, or set routing = 'delay'")
            cables.append(Length(self._node_numbers[plan.a], self._node_numbers[plan.b], delay_ms=length))
        try:
            return Underlay("network", tuple(self.nodes), tuple(cables), ties="sites")
        except ParameterError as error:
            raise UserError(f"network: {error}") from error

    def cable(self, name: str, key: str) -> int:
        """Return the number of the cable called `name`; raises UserError about `key`."""
        if name not in self._cable_numbers:
            raise UserError(f"{key} = {name!r}: is no cable of the network; {did_you_mean(name, self._cable_numbers)}")
        return self._cable_numbers[name]

    def _route_ends(self, i: int) -> tuple[str, str]:
        """Return the first and the last node of route `i` of the scenario; raises UserError for an unknown node."""
        route = self.section.routes[i]
        self._check_node(route.start, f"network.routes.{i}.from")
        self._check_node(route.to, f"network.routes.{i}.to")
        return route.start, route.to

    def _stated_hops(self, i: int) -> Hops:
        """Return the hops of route `i` of the scenario; raises UserError unless its cables follow one another.

        A hop is the number of a cable, and the node where the route leaves it.
        """
        route, key = self.section.routes[i], f"network.routes.{i}"
        node, hops, visited = route.start, [], {route.start}
        for index, name in enumerate(route.links):
            cable = self.cable(name, f"{key}.links.{index}")
            plan = self.plans[cable]
            if node not in (plan.a, plan.b):
                raise UserError(f"{key}.links.{index} = {name!r}: does not begin at {node!r}, where the cable before it ends")
            node = plan.b if node == plan.a else plan.a
            if node in visited:
                raise UserError(f"{key}.links.{index} = {name!r}: leads back to {node!r}, a loop; leave the loop out")
            visited.add(node)
            hops.append((cable, node))
        if node != route.to:
            raise UserError(f"{key}: ends at {node!r}, not at {route.to!r}; name the cables up to there")
        return hops

    def node(self, end: int) -> str:
        """Return the node of an end: a client's number, SERVER, or a number of `other_end`."""
        if end >= 0:
            return self.client_nodes[end]
        if end == SERVER:
            return self.section.server
        return self.nodes[SERVER - 1 - end]  # inverse of `other_end`

    def other_end(self, node: str, key: str) -> int:
        """Return the number, below SERVER, of an end that is neither a client nor the server. Raises UserError."""
        self._check_node(node, key)
        return SERVER - 1 - self._node_numbers[node]

    def hops(self, source: int, target: int) -> Hops:
        """Return the route between two ends, each a client's number, SERVER, or a number of `other_end`."""
        return self.route_between(self.node(source), self.node(target))

    def route_between(self, a: str, b: str) -> Hops:
        """Return the route between two nodes, each a name."""
        hops = self._hops.get((a, b))
        if hops is None:
            hops = self._hops[a, b] = self._find_route(a, b)
        return hops

    def distance(self, a: str, b: str, measure: str, key: str) -> float:
        """Return the propagation delay, the km or the number of cables ("hops") from `a` to `b`; raises UserError."""
        for node in (a, b):
            self._check_node(node, key)
        total = 0.0
        for cable, _ in self.route_between(a, b):
            plan = self.plans[cable]
            if measure == "km" and plan.km is None:
                raise UserError(f"{key} = 'km': cable {plan.name!r} has no km; give it, or set nearest = 'delay'")
            km = plan.km or 0.0  # None is refused above if the distance is in km
            total += {"delay": plan.delay_s, "km": km, "hops": 1.0}[measure]
        return total

    def _find_route(self, a: str, b: str) -> Hops:
        """Return the route that the scenario states from `a` to `b`, or from `b` to `a`; else the shortest one."""
        if (a, b) in self._stated_routes:
            return self._stated_routes[a, b]
        if (b, a) in self._stated_routes:
            # Take the same cables in reverse order. A hop is a cable and the node where it ends: in this direction the node
            # where the opposite hop begins.
            opposite = self._stated_routes[b, a]
            cables = [cable for cable, _ in opposite]
            begins = [b, *(node for _, node in opposite[:-1])]
            return list(zip(reversed(cables), reversed(begins), strict=True))
        shortest = self.underlay.ways[self._node_numbers[a]][self._node_numbers[b]]
        return [(cable, self.nodes[site]) for cable, site in zip(shortest.cables, shortest.sites[1:], strict=True)]


def _plan_cables(section: Network, generator: np.random.Generator) -> list[CablePlan]:
    """Return the cables of `network.source` or the generator, with `network.links` added or laid over; raises UserError."""
    plans: dict[str, CablePlan] = {}
    if section.source is not None:
        with name_source("network.source"):
            plans = _plan_underlay(section.source, section.speed_km_per_s)
    elif section.generator is not None:
        plans = _plan_generator(section.generator, section.speed_km_per_s, generator)
    for i, link in enumerate(section.links):
        path, name = f"network.links.{i}", link.name or f"{link.a}-{link.b}"
        plan = plans.get(name)
        if plan is not None and plan.link is not _DEFAULT_LINK:
            raise UserError(f"{path}.name = {name!r}: is the name of two cables; give each a name of its own")
        if plan is None:
            if link.a is None or link.b is None:
                raise UserError(f"{path}.name = {name!r}: is no cable of the file; give a and b; {did_you_mean(name, plans)}")
            plan = CablePlan(name, link.a, link.b)
        elif link.name is not None and link.a is not None and {link.a, link.b} != {plan.a, plan.b}:
            problem = f"joins {plan.a!r} and {plan.b!r}; leave a and b out, or give another name"
            raise UserError(f"{path}.name = {name!r}: {problem}")
        km, delay_s = plan.km, plan.delay_s
        if link.km is not None:
            km, delay_s = link.km, link.km / section.speed_km_per_s
        elif link.delay_s is not None:
            delay_s = link.delay_s
        plans[name] = replace(plan, link=link, path=path, km=km, delay_s=delay_s)
    return list(plans.values())


def _plan_underlay(source: str, speed_km_per_s: float) -> dict[str, CablePlan]:
    """Return the cables of a network file, by name; raises UserError, also where two would have the same name."""
    underlay = read_network(source)
    plans: dict[str, CablePlan] = {}
    for cable in underlay.cables:
        a, b = underlay.sites[cable.a], underlay.sites[cable.b]
        delay_s = cable.km / speed_km_per_s if cable.km is not None else (cable.delay_ms or 0.0) / 1e3
        rate = None if cable.bits_per_s is None else cable.bits_per_s / 8
        name = f"{a}-{b}"
        if name in plans:
            other = plans[name]
            ends = f"the cables {other.a!r} to {other.b!r} and {a!r} to {b!r} would both be called {name!r}"
            raise UserError(f"network.source = {source!r}: {ends}; give one of the nodes another name")
        plans[name] = CablePlan(name, a, b, delay_s=delay_s, km=cable.km, bytes_per_s=rate)
    return plans


def _plan_generator(section: Generator, speed_km_per_s: float, generator: np.random.Generator) -> dict[str, CablePlan]:
    """Return the cables of a generated network, by name, with the delay and bandwidth of their level; raises UserError."""
    generate = getattr(generators, section.kind.replace("-", "_"))
    keywords = section.keywords | ({"generator": generator} if section.kind == "waxman" else {})
    try:
        _, cables = generate(**keywords)
    except ParameterError as error:
        raise UserError(str(error.rename(f"network.generator.{error.name}"))) from error
    levels = 1 + max(level for _, _, level, _ in cables)
    for key in ("level_bytes_per_s", "level_delay_s"):
        value = getattr(section, key)
        if value is not None and len(value) != levels:
            raise UserError(f"network.generator.{key}: has {len(value)} numbers for {levels} levels; give one for each")
    plans: dict[str, CablePlan] = {}
    for a, b, level, km in cables:
        delay_s = km / speed_km_per_s if section.level_delay_s is None else section.level_delay_s[level]
        rate = None if section.level_bytes_per_s is None else section.level_bytes_per_s[level]
        name = f"{a}-{b}"
        plans[name] = CablePlan(name, a, b, delay_s=delay_s, km=km, bytes_per_s=rate)
    return plans


@dataclass(frozen=True)
class WiredNetwork:
    """Network of a scenario, and the carriers of models and updates over it."""

    network: RoutedNetwork
    layout: Layout
    down: Carried
    up: Carried

    def peer_carrier(self, graph: PeerGraph) -> RoutedCarrier:
        """Return the carrier of messages over the links of `graph`; each message states its size. Raises UserError."""
        for source, target in zip(graph.source.tolist(), graph.target.tolist(), strict=True):
            _require_bandwidth(self.layout, self.network.cables, (source, target), f"the message of client {source} to {target}")
        return RoutedCarrier(network=self.network, direction="peers", sizes=np.zeros(len(self.layout.client_nodes)))

    def edge_ends(self, nodes: Sequence[str]) -> list[int]:
        """Return the end of each edge, by its node; raises UserError for an unknown node."""
        return [self.layout.other_end(node, "edges.tiers.nodes") for node in nodes]

    def connect(self, client: int, end: int) -> None:
        """Route messages of `client` that begin from now on to and from `end`: the server or an edge."""
        for carried, ends in ((self.down, (end, client)), (self.up, (client, end))):
            assert isinstance(carried.carrier, RoutedCarrier)
            carried.carrier.redirect(client, ends)

    def require_way(self, client: int, end: int) -> None:
        """Raise UserError if a cable without bandwidth lies between `client` and `end`."""
        for ends in ((end, client), (client, end)):
            _require_bandwidth(self.layout, self.network.cables, ends, f"the model of client {client}")

    def require_way_between(self, ends: tuple[int, int]) -> None:
        """Raise UserError if a cable without bandwidth lies between two `ends`, which are edges."""
        _require_bandwidth(self.layout, self.network.cables, ends, "the state of a client")


def build_network(scenario: Scenario, context: Context, clock: Clock, sizes: Sizes) -> WiredNetwork | None:
    """Return the network of `[network]` with outages, background traffic and jammers, and the carriers of models and updates.

    None without the table. Servers that send no updates get carriers that are never used. Raises UserError.
    """
    section = scenario.network
    if section is None:
        return None
    count = context.population.count
    layout = Layout(section, count, context.streams.generator("network.layout"))
    cables = [_build_cable(plan, section, context) for plan in layout.plans]
    network = RoutedNetwork(
        clock=clock,
        cables=cables,
        hops=layout.hops,
        streams=context.streams,
        corrections=_corrections(section),
        outages=_outages(section, layout, context),
    )
    network.background.extend(_build_traffic(source, i, layout, network, context) for i, source in enumerate(section.background))
    if context.multiplier is not None:
        context.multiplier.renewals.append(network.renew)
    if context.targets is not None:
        for cable in cables:
            if cable.bandwidth is not None:
                context.targets.after_change(f"network.links.{cable.name}.bandwidth", network.renew)
    if scenario.server.sends_updates:
        coordinators = _coordinator_ends(scenario, context, layout)
        _require_bandwidths(layout, cables, scenario, sizes, coordinators)
        down = _build_direction(network, "down", sizes.down, [(end, client) for client, end in enumerate(coordinators)])
        up = _build_direction(network, "up", sizes.up, [(client, end) for client, end in enumerate(coordinators)])
    else:
        down, up = Carried(UnusedDirection(network)), Carried(NoCarrier())
    if scenario.output.transfers_table:
        TransferLog(network, layout.node)  # attaches itself to the network
    if scenario.jams_cables:
        _add_cable_jammers(network, layout, scenario, context)
    return WiredNetwork(network=network, layout=layout, down=down, up=up)


def _coordinator_ends(scenario: Scenario, context: Context, layout: Layout) -> list[int]:
    """Return the end (K,) with which each client exchanges models: the server, or its edge. Raises UserError."""
    if scenario.edges is None:
        return [SERVER] * context.population.count
    tree = lay_out(scenario.edges, context.population, layout)
    ends_of_edges = [layout.other_end(node, "edges.tiers.nodes") for node in tree.nodes(scenario.edges)]
    return [ends_of_edges[edge] for edge in tree.coordinator]


def edge_carriers(
    wired: WiredNetwork, size: int | IntArray, nodes: Sequence[str], above: Sequence[int]
) -> tuple[Carried, Carried]:
    """Return the carriers, down and up, of models between each edge and its coordinator; raises UserError.

    `size`: bytes of a model, a number or (E,). `nodes`: node of each edge (E,). `above`: edge above each (E,), -1 for the server.
    """
    layout, network = wired.layout, wired.network
    ends = wired.edge_ends(nodes)
    down_ends = [(SERVER if parent < 0 else ends[parent], node_end) for parent, node_end in zip(above, ends, strict=True)]
    for edge, route_ends in enumerate(down_ends):
        if np.max(size) > 0:
            _require_bandwidth(layout, network.cables, route_ends, f"the model of edge {edge}")
    down = _build_direction(network, "edges down", size, down_ends)
    return down, _build_direction(network, "edges up", size, [(node_end, parent_end) for parent_end, node_end in down_ends])


def _add_cable_jammers(network: RoutedNetwork, layout: Layout, scenario: Scenario, context: Context) -> None:
    """Build the jammers of cables. The network asks them about each transfer."""
    jammed = network.jammed_cables()
    # With priority LAST a dwell starts after all transfers that leave at the same time: it does not hit them.
    jammers = build_jammers(
        scenario, {"network": jammed}, context.streams, network.clock, priority=LAST, cable=layout.cable
    )
    network.let_jam(jammed, jammers)


def _build_cable(plan: CablePlan, section: Network, context: Context) -> Cable:
    """Return the engine's cable for a plan.

    Laws that take no time or lose nothing are left out, unless a script or a change point may replace them.
    """
    # The laws of a cable belong to one entity.
    link, alone = plan.link, replace(context, population=Population.single_client())
    # Scripts address a cable by its name, because its index in the file may change.
    key = f"network.links.{plan.name}"
    scripted = context.targets is not None
    replaceable = scripted or link.random_changes is not None
    has_waits = replaceable or link.delay != _DEFAULT_LINK.delay or any(change.delay for change in link.changes)
    has_losses = replaceable or link.channel != _DEFAULT_LINK.channel or any(change.channel for change in link.changes)
    # The bandwidth of the file, or of the section, is for cables whose own keys give none.
    rate = plan.bytes_per_s or section.bandwidth_bytes_per_s
    if rate is not None and link.bandwidth is None and link.bandwidth_bytes_per_s is None:
        link = link.model_copy(update={"bandwidth_bytes_per_s": rate})
    link = link.model_copy(update={"name": plan.name})
    survivals = None
    if has_losses:
        draws, law = context.streams[f"{key}.state"], channel_timeline(link, key, alone)
        survivals = Survivals(clients=1, law=law, draws=draws, state_draws=draws)
    return Cable(
        name=plan.name,
        a=plan.a,
        b=plan.b,
        delay_s=plan.delay_s,
        duplex=link.duplex or section.duplex,
        bandwidth=link_bandwidth(link, key, alone),
        wait=delay_timeline(link, key, alone) if has_waits else None,
        survivals=survivals,
    )


def _require_bandwidths(
    layout: Layout, cables: Sequence[Cable], scenario: Scenario, sizes: Sizes, coordinators: Sequence[int]
) -> None:
    """Raise UserError if bytes between a client and its end in `coordinators` (K,) must cross a cable without bandwidth."""
    # Name, True for the direction to the clients, and bytes of each kind of message.
    messages: list[tuple[str, bool, int | IntArray]] = [("model", True, sizes.down), ("update", False, sizes.up)]
    if scenario.server.slotted and not scenario.server.peer_to_peer and scenario.opinions is not None:
        messages.append(("opinion", False, scenario.opinions.size_bytes))
    if scenario.flower is not None:
        # The sizes of an app's messages are known only when they are sent.
        messages += [("message of the app", True, 1), ("reply of the app", False, 1)]
    for kind, is_down, size in messages:
        client_sizes = np.broadcast_to(size, (len(layout.client_nodes),))
        for client in np.flatnonzero(client_sizes > 0).tolist():
            ends = (coordinators[client], client) if is_down else (client, coordinators[client])
            message = f"the {kind}" if scenario.flower is not None else f"the {kind} of {client_sizes[client]:,} bytes"
            _require_bandwidth(layout, cables, ends, f"{message} of client {client}")


def _require_bandwidth(layout: Layout, cables: Sequence[Cable], ends: tuple[int, int], message: str) -> None:
    """Raise UserError if a cable without bandwidth lies on the route between two ends.

    `message`: the message that needs it, such as "the update of client 3".
    """
    for cable, _ in layout.hops(*ends):
        if cables[cable].bandwidth is None:
            raise UserError(
                f"network.links: cable {cables[cable].name!r} has no bandwidth, which {message} needs; "
                "give it bandwidth_bytes_per_s, or network.bandwidth_bytes_per_s for all"
            )


def _corrections(section: Network) -> Corrections | None:
    """Return the corrections of `network.corrections`: its preset with its other keys laid over; None without the table."""
    table = section.corrections
    if table is None:
        return None
    preset = PRESETS[table.preset] if table.preset is not None else Corrections()
    stated = {field.name: getattr(table, field.name) for field in fields(Corrections)}
    return replace(preset, **{name: value for name, value in stated.items() if value is not None})


def _outages(section: Network, layout: Layout, context: Context) -> ClientOutages:
    """Return the outages of `network.outages`, each with its cables and times; raises UserError."""
    outages = []
    for i, outage in enumerate(section.outages):
        path = f"network.outages.{i}"
        names = [plan.name for plan in layout.plans] if outage.links is None else outage.links
        cables = np.array([layout.cable(name, f"{path}.links.{index}") for index, name in enumerate(names)], np.int64)
        schedule = schedule_in_seconds(outage, context.streams[f"network.outage.{outage.name}"], path)
        assert schedule is not None
        outages.append(outage_of(outage.name, schedule, len(layout.plans), cables, path))
    return ClientOutages(outages)


def _build_traffic(section: Background, i: int, layout: Layout, network: RoutedNetwork, context: Context) -> Source:
    """Return the background traffic of table `i` of `network.background`; raises UserError."""
    path = f"network.background.{i}"
    ends = layout.other_end(section.start, f"{path}.from"), layout.other_end(section.to, f"{path}.to")
    _require_bandwidth(layout, network.cables, ends, f"the transfer of {path}")
    shared_keywords: Keywords = {
        "network": network,
        "name": section.name,
        "ends": ends,
        "draws": context.streams[f"network.background.{section.name}"],
        "limit_bytes_per_s": math.inf if section.bytes_per_s is None else section.bytes_per_s,
    }
    if section.kind == "constant":
        return ConstantTraffic(**shared_keywords)
    # The section has checked that each kind has its keys.
    kind_keywords: Keywords
    if section.kind == "on-off":
        kind_keywords = {"on_s": section.mean_on_s, "off_s": section.mean_off_s}
        return OnOffTraffic(**shared_keywords, **kind_keywords)
    kind_keywords = {"per_s": section.per_s, "size_bytes": section.size_bytes, "exponential": section.sizes == "exponential"}
    return PoissonTraffic(**shared_keywords, **kind_keywords)


class _Expected:
    """Timeline of the expected seconds of each client's message, alone on its route, at the mean bandwidths in force."""

    fixed = False

    def __init__(self, network: RoutedNetwork, ends: Sequence[tuple[int, int]], sizes: FloatArray) -> None:
        self._network, self._ends, self._sizes = network, ends, sizes
        self._cached: tuple[tuple[Any, ...], DelayLaw] | None = None
        """Laws in force at the last call of `at`, in the order of the cables, and the expectation under them."""

    def at(self, round: int, time_s: float) -> tuple[DelayLaw, float]:
        """Return the law of the expected seconds, a constant per client, and the time until which it holds (inf: always)."""
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
        network, first_entity = self._network, np.zeros(1, np.int64)
        rates, waits_s = [], []  # by cable
        for cable in network.cables:
            rate, wait_s = math.inf, 0.0
            if cable.bandwidth is not None:
                rate = float(cable.bandwidth.at(round, time_s)[0].mean_rate(first_entity)[0])
            if cable.wait is not None:
                wait_s = float(cable.wait.at(round, time_s)[0].mean_s(first_entity)[0])
            rates.append(rate)
            waits_s.append(wait_s)
        # The time of a message: delays of its cables, their mean waits, and its bytes at the slowest cable.
        mean_s = np.zeros(len(self._ends))
        for message, (source, target) in enumerate(self._ends):
            cables = [cable_number for cable_number, _ in network.hops(source, target)]
            delay_s = network.transfers.delay_s(network.route(source, target), float(self._sizes[message]))
            mean_s[message] = delay_s + sum(waits_s[cable_number] for cable_number in cables)
            slowest_rate = min((rates[cable_number] for cable_number in cables), default=math.inf)
            mean_s[message] += self._sizes[message] / (slowest_rate * network.transfers.corrections.bandwidth_factor)
        return mean_s


def _build_direction(
    network: RoutedNetwork, direction: Direction, size: int | IntArray, ends: Sequence[tuple[int, int]]
) -> Carried:
    """Return the carrier of one direction with its expected times; raises UserError for messages that take too long.

    `size`: bytes of a message, a number or one for each of `ends`. `ends`: first and last end of each message.
    """
    sizes = np.array(np.broadcast_to(size, (len(ends),)), np.float64)
    expected = _Expected(network, ends, sizes)
    mean_s = expected.mean_s(round=1, time_s=0.0)
    if not mean_s.max() <= LONGEST_S:  # also true for NaN
        client = int(mean_s.argmax())
        problem = f"a message of client {client} takes {mean_s[client]:g} s alone"
        raise UserError(f"network: {problem}; must be at most {LONGEST_S:g} s")
    stops = any(ends_for_ever(cable.bandwidth, np.zeros(1, np.int64)) for cable in network.cables)
    carrier = RoutedCarrier(network=network, direction=direction, sizes=sizes, ends=ends)
    return Carried(carrier=carrier, expected=(expected,), least_s=0.0, stops=stops)
