"""Wiring of `[edges]` to a tree of coordinators: members of each edge, links between nodes, and rules of each edge."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import permutations
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from models.privacy import NoPrivacy
from netsim.clients.pool import ClientPool
from netsim.clients.power.energy import FollowedPresence
from netsim.clients.rules import UpdateRules
from netsim.core.null_objects import NoTime
from netsim.core.streams import RepeatedStreams, Streams
from netsim.network.medium import Carriers, Medium, MediumLaws
from netsim.network.sizes import Sizes
from netsim.servers.rounds.round_server import RoundServer
from netsim.servers.sub_channels.channels import OwnLinks
from netsim.servers.tiers.coordinators import Coordinators
from netsim.servers.tiers.edge import Edge, EdgeRule, NoModels
from netsim.servers.tiers.members import Members, SharedMedium
from netsim.servers.tiers.moves import Move, MoveRule, Moves
from netsim.servers.tiers.state_transfers import LinkStates, ResendingStates, RoutedStates, StateTransfers
from netsim.servers.tiers.tree import TreeAttendance, TreeServer
from scenarios.registry.arguments import argument_names
from scenarios.registry.components import Component, Keywords, construct
from scenarios.registry.kinds import resolve
from scenarios.schema.errors import UserError, did_you_mean
from scenarios.schema.servers.base import Server as ServerSection
from scenarios.schema.world import Clients, Group
from scenarios.wiring.clients.population import Context, Population, resolve_parameters
from scenarios.wiring.data_files import read_table
from scenarios.wiring.laws import channel_timeline, delay_timeline
from scenarios.wiring.network.bandwidth import build_carrier
from scenarios.wiring.network.cables import edge_carriers
from scenarios.wiring.network.payload import LONGEST_S, models_down, updates_up
from scenarios.wiring.network.resending import resending_rule
from scenarios.wiring.script.edges import ScriptedEdges
from scenarios.wiring.servers.edge_layout import Layout, lay_out
from scenarios.wiring.servers.probes import build_probing
from scenarios.wiring.world import World

if TYPE_CHECKING:
    from models.fl.learners.node_learner import NodeLearner
    from netsim.clients.served import ServedClients
    from netsim.clients.update import Update
    from netsim.core.protocols import Availability, FloatArray, IntArray, ProbedLearner, SelectionPolicy
    from netsim.servers.rounds.probing import Probing
    from scenarios.schema.servers.edges import Edges, Tier
    from scenarios.wiring.servers.server import Server

Composer: TypeAlias = "Callable[[World], Server]"


@dataclass(frozen=True, kw_only=True)
class NodeWorld(World):
    """The parts from which the server of one coordinator of a tree is built."""

    members: Members
    """The clients or edges that the coordinator serves."""
    count: int
    """Number of members, at most."""
    section: ServerSection
    """Table of the coordinator's keys: `[server]`, or the table of a tier."""
    policy_section: Component
    models: ProbedLearner
    """Learner that trains and aggregates the coordinator's model."""
    path: str
    """Path of the policy."""
    of_edges: bool
    """True if its members are edges."""

    @property
    def learner(self) -> ProbedLearner:
        return self.models

    @property
    def rule(self) -> ServerSection:
        """Keys of the coordinator; absent numbers of an edge are the number of its members."""
        # The keys of a server of the user's own mean what its class says.
        if self.section.own:
            return self.section
        keys = [key for key in ("per_round", "concurrency") if key in self.section.parameters()]
        absent: Keywords = {key: self.count for key in keys if self.section.parameters()[key] is None}
        rule = self.section.model_copy(update=absent) if absent else self.section
        numbers = {key: rule.parameters()[key] for key in keys}
        for key, number in numbers.items():
            if self.path == "policy" and number > self.count:
                raise UserError(f"server.{key} = {number}: must be at most the {self.count} edges below the server")
            if number > self.members.count:
                members = "edges" if self.of_edges else "clients"
                problem = f"must be at most the {self.members.count} {members} of the scenario"
                raise UserError(f"{self.rule_path}.{key} = {number}: {problem}")
        return rule

    @property
    def rule_path(self) -> str:
        return "server" if self.path == "policy" else self.path.removesuffix("policy") + "server"

    def channels_and_pool(self, places: int, *, refill: bool = False) -> tuple[OwnLinks, Members]:
        return OwnLinks(), self.members

    def policy(self, per_round: int, per_model: int | None = None, *, reported_losses: bool = False) -> SelectionPolicy:
        """Return the policy that selects among the members; raises UserError for a policy that needs what edges do not have."""
        section, path = self.policy_section, self.path
        supplied = self._constructor_arguments(per_round, per_model)
        if self.of_edges and "truth" in argument_names(resolve("policy", section.kind)):
            reason = "goes by expected latencies of clients, which edges do not have; choose another policy"
            raise UserError(f"{path}.kind = {section.kind!r}: {reason}")
        policy: SelectionPolicy = self.component(section, "policy", path, supplied)
        if self.scenario.learner is None and (policy.needs_updates or policy.needs_losses):
            raise UserError(f"{path}.kind = {section.kind!r}: chooses by what is learnt, and nothing is; add a [learner]")
        if (policy.needs_updates or policy.needs_losses) and self.of_edges:
            raise UserError(f"{path}.kind = {section.kind!r}: chooses by the content of clients' updates; choose another policy")
        return policy

    def probing(self, pool: ServedClients) -> Probing | None:
        """Return the probing of the coordinator's clients, or None: its policy asks nothing, or its members are edges."""
        return None if self.of_edges else build_probing(self, pool.pool, self.policy_section, self.members.name)

    def meter(self, per_round: int) -> None:
        """Return None: rewards of edges are not measured."""


def tree(world: World, compose: Composer) -> TreeServer:
    """Return the server of a scenario with `[edges]`: a tree of coordinators, each with its members; raises UserError.

    `compose`: function that builds the server of one coordinator from its parts. Coordinators are built from the root down,
    because edges are clients of the nodes above them, and share one pool and one medium; clients share another.
    """
    section = world.scenario.edges
    assert section is not None
    layout = lay_out(section, world.population, None if world.network is None else world.network.layout)
    context = _edge_context(world, layout)
    # The pool of edges needs the server, which is built after it: the callback looks it up here.
    built: list[TreeServer] = []
    presence = _presence(section, context)
    ways = _ways(section, context)
    edge_pool = _edge_pool(world, section, layout, context, presence, ways, lambda attempt: built[0].begin_term(attempt))
    client_pool = world.new_pool()
    media = {"clients": SharedMedium(client_pool), "nodes": SharedMedium(edge_pool)}
    client_coordinators, edge_coordinators = Coordinators(client_pool), Coordinators(edge_pool)
    coordinator = np.array(layout.coordinator, np.int64)
    attendance = TreeAttendance(clients=client_pool, coordinator=coordinator, above=layout.above)
    learners = _learners(world, section, layout, coordinator)
    clients_move = section.moves is not None or world.scenario.script is not None
    servers: dict[int, RoundServer] = {}
    members_of: dict[int, Members] = {}
    for node in range(-1, len(layout.names)):
        of_edges = node < 0 or layout.has_edges(node)
        name = None if node < 0 else layout.names[node]
        pool, medium = (edge_pool, media["nodes"]) if of_edges else (client_pool, media["clients"])
        is_member = np.array(layout.above) == node if of_edges else coordinator == node
        members = Members(
            pool=pool, name=name, is_member=is_member, medium=medium, waits=node < 0, attendance=attendance if of_edges else None
        )
        coordinators = edge_coordinators if of_edges else client_coordinators
        coordinators.views[name] = members
        # With moves, one edge may get all clients.
        count = world.clients if clients_move and not of_edges else int(np.count_nonzero(is_member))
        models = world.learner if learners is None else learners[node]
        member_edges = (context, presence) if of_edges else None
        node_world = _node_world(world, layout, node, members, count, models, of_edges=member_edges)
        servers[node], members_of[node] = _compose_rounds(node_world, compose), members
    edges = _edges(section, layout, edge_pool, servers, members_of, learners)
    moves = None
    if clients_move:
        moves = _moves(
            world,
            layout,
            edges,
            coordinator=coordinator,
            client_views=client_coordinators,
            edge_views=edge_coordinators,
            edge_medium=media["nodes"],
            ways=ways,
        )
    server = TreeServer(
        root=servers[-1], edges=edges, clients=client_coordinators, nodes=edge_coordinators, media=media, moves=moves
    )
    built.append(server)
    _let_scripts_act(world, server, coordinator)
    return server


def _edges(
    section: Edges,
    layout: Layout,
    edge_pool: ClientPool,
    servers: Mapping[int, RoundServer],
    members_of: Mapping[int, Members],
    learners: Mapping[int, NodeLearner] | None,
) -> list[Edge]:
    """Return the edges of a tree, in the order of their numbers.

    `edge_pool`: the edges as clients of the nodes above them. `servers`, `members_of`, `learners`: server, members and learner of
    each node, -1 being the root; `learners` is None if nothing is trained.
    """
    edges = []
    for number, name in enumerate(layout.names):
        above = layout.above[number]
        name_above = None if above < 0 else layout.names[above]
        edge = Edge(
            number=number,
            name=name,
            above=name_above,
            edges=edge_pool,
            server=servers[number],
            members=members_of[number],
            rule=_edge_rule(section.tiers[layout.tiers[number]]),
            models=NoModels() if learners is None else learners[number],
        )
        edges.append(edge)
    return edges


def _let_scripts_act(world: World, server: TreeServer, coordinator: IntArray) -> None:
    """Let the script of the scenario, if there is one, act on the edges of `server`."""
    targets = world.context.targets
    if targets is not None and targets.absent_edges is not None:
        targets.edges = ScriptedEdges(server=server, absences=targets.absent_edges, coordinator=coordinator)


def _edge_rule(tier: Tier) -> EdgeRule:
    """Return the rule by which an edge of this tier works for its parent."""
    return EdgeRule(rounds=tier.rounds, goes_on=tier.goes_on)


def _node_world(
    world: World,
    layout: Layout,
    node: int,
    members: Members,
    count: int,
    models: ProbedLearner,
    of_edges: tuple[Context, Availability] | None,
) -> NodeWorld:
    """Return the parts of the server of `node` (-1: the root): those of `world`, with some replaced for this node.

    `count`: the largest number of members that it may have, all clients if they move. `of_edges`: context and presence of the
    members if they are edges; None if they are clients.
    """
    section = world.scenario.edges
    assert section is not None
    if node < 0:
        rule, policy, path, prefix = world.scenario.server, world.scenario.method, "policy", "edges."
    else:
        number = layout.tiers[node]
        tier = section.tiers[number]
        rule, policy, path, prefix = tier.server, tier.policy, f"edges.tiers.{number}.policy", f"edges.{layout.names[node]}."
    parts = {field.name: getattr(world, field.name) for field in fields(World)}
    population = world.population
    if of_edges is not None:
        edge_context, edge_availability = of_edges
        parts |= {"data_sizes": _samples_below(world, layout), "availability": edge_availability}
        population = edge_context.population
    streams = Streams(world.streams.seed, prefix)
    parts["context"] = replace(world.context, population=population, streams=streams)
    return NodeWorld(
        **parts,
        members=members,
        count=count,
        section=rule,
        policy_section=policy,
        models=models,
        path=path,
        of_edges=of_edges is not None,
    )


def _compose_rounds(node_world: NodeWorld, compose: Composer) -> RoundServer:
    """Return the server of one node that `compose` builds; UserError: it coordinates slots in place of rounds."""
    server = compose(node_world)
    if not isinstance(server, RoundServer):
        problem = "coordinates slots, which edges do not know; let compose return a RoundServer"
        raise UserError(f"{node_world.rule_path}.kind = {node_world.section.kind!r}: {problem}")
    return server


def _moves(
    world: World,
    layout: Layout,
    edges: Sequence[Edge],
    *,
    coordinator: IntArray,
    client_views: Coordinators,
    edge_views: Coordinators,
    edge_medium: SharedMedium,
    ways: MediumLaws,
) -> Moves:
    """Return the moves of clients between `edges`: those of the file `edges.moves`, and those that a script may make.

    `coordinator` (K,): the edge of each client before the first move. `client_views`, `edge_views`: the members that each
    coordinator of clients, or of edges, sees. `edge_medium`, `ways`: medium between edges and the nodes above, and its laws,
    which carry the states of moving clients without `[network]`.

    Raises UserError for a wrong line of the file, and for a client that could exchange no message with an edge that it moves to.
    """
    section, wired = world.scenario.edges, world.network
    assert section is not None
    moves = [] if section.moves is None else _read_moves(section, layout, coordinator)
    rule = MoveRule(moving=section.moving)
    if wired is not None:
        ends = wired.edge_ends(layout.nodes(section))
        for client, edge in sorted({(move.client, move.edge) for move in moves}):
            wired.require_way(client, ends[edge])
        rule = replace(
            rule,
            connect=lambda client, edge: wired.connect(client, ends[edge]),
            check=lambda client, edge: wired.require_way(client, ends[edge]),
        )
    if section.state_bytes is not None:
        states = _states(world, layout, moves, coordinator, edge_pool=edge_views.pool, edge_medium=edge_medium, ways=ways)
        rule = replace(rule, states=states)
    return Moves(
        moves=moves,
        clients=client_views,
        nodes=edge_views,
        coordinator=coordinator,
        edges=edges,
        rule=rule,
        anywhere=world.scenario.script is not None,
    )


def _states(
    world: World,
    layout: Layout,
    moves: Sequence[Move],
    coordinator: IntArray,
    *,
    edge_pool: ClientPool,
    edge_medium: SharedMedium,
    ways: MediumLaws,
) -> StateTransfers:
    """Return the transfers of clients' states from edge to edge; raises UserError if a cable between them has no bandwidth.

    With `[network]` its cables carry the states; checked are all pairs of edges that one client visits by `moves`. Without it the
    links of the tree do, by the laws `ways`, and random numbers are addressed by the rounds of `edge_medium`.
    """
    section, wired = world.scenario.edges, world.network
    assert section is not None
    assert section.state_bytes is not None
    if wired is not None:
        ends = wired.edge_ends(layout.nodes(section))
        edges_of_client: dict[int, set[int]] = {}
        for move in moves:
            home = int(coordinator[move.client])
            edges_of_client.setdefault(move.client, {home}).add(move.edge)
        pairs: set[tuple[int, int]] = set()
        for visited in edges_of_client.values():
            pairs.update(permutations(visited, 2))
        if section.state_bytes:
            for source, target in sorted(pairs):
                wired.require_way_between((ends[source], ends[target]))
        routed = RoutedStates(network=wired.network, ends=ends, size_bytes=section.state_bytes)
        return ResendingStates(inner=routed, clock=world.clock, resending=ways.up_resending)
    streams = RepeatedStreams(world.streams.seed, "edges.states.")
    medium = edge_pool.medium.probe_links(
        download=ways.download,
        compute=NoTime(),
        sample=None,
        upload=ways.upload,
        streams=streams,
        request_bytes=section.state_bytes,
        answer_bytes=section.state_bytes,
    )
    inner = LinkStates(
        clock=world.clock, medium=medium, above=layout.above, repeat=streams.repeat, round=lambda: edge_medium.round
    )
    return ResendingStates(inner=inner, clock=world.clock, resending=ways.up_resending)


class _Stay(NamedTuple):
    """Line of the file `edges.moves`: the client of the line belongs to `edge` from `start_s` to `end_s`."""

    start_s: float
    end_s: float
    edge: int


def _read_moves(section: Edges, layout: Layout, coordinator: IntArray) -> list[Move]:
    """Return the moves of the file `edges.moves`; raises UserError.

    A client moves at the start of each stay, and back home at its end unless another stay begins then or it never ends.
    """
    assert section.moves is not None
    stays: dict[int, list[_Stay]] = {}
    leaves = {name: edge for edge, name in enumerate(layout.names) if not layout.has_edges(edge)}
    for where, (client, start, end, edge) in read_table(section.moves, ("client", "start_s", "end_s", "edge"), "edges.moves"):
        if not (client.isascii() and client.isdigit() and int(client) < len(coordinator)):
            raise UserError(f"{where}: client = {client!r}: must be a client from 0 to {len(coordinator) - 1}")
        client_number = int(client)
        if edge not in leaves:
            raise UserError(f"{where}: edge = {edge!r}: is no edge of clients; {did_you_mean(edge, leaves)}")
        try:
            start_s, end_s = float(start), float(end)
        except ValueError:
            start_s = end_s = math.nan  # refused next
        if not 0 <= start_s < end_s:
            raise UserError(f"{where}: start_s = {start}, end_s = {end}: must be seconds, the first >= 0 and below the second")
        for other in stays.get(client_number, []):
            if start_s < other.end_s and other.start_s < end_s:
                problem = f"overlaps with {other.start_s:g} to {other.end_s:g} s, when it belongs to {layout.names[other.edge]!r}"
                remedy = "let one stay end before the next begins"
                raise UserError(f"{where}: client {client} from {start} to {end} s {problem}; {remedy}")
        stays.setdefault(client_number, []).append(_Stay(start_s, end_s, leaves[edge]))
    moves = []
    for client_number, client_stays in stays.items():
        starts = {stay.start_s for stay in client_stays}
        moves += [Move(stay.start_s, client_number, stay.edge) for stay in client_stays]
        home = int(coordinator[client_number])
        returns_s = [stay.end_s for stay in client_stays if stay.end_s not in starts and stay.end_s < math.inf]
        moves += [Move(time_s, client_number, home) for time_s in returns_s]
    return moves


def _samples_below(world: World, layout: Layout) -> FloatArray:
    """Return the number of samples of the clients below each edge (E,)."""
    samples = np.zeros(len(layout.names))
    np.add.at(samples, layout.coordinator, world.data_sizes)
    # From the leaves up: an edge has a larger number than the edge above it, so its own sum is complete when it is passed on.
    for edge in reversed(range(len(layout.names))):
        if layout.above[edge] >= 0:
            samples[layout.above[edge]] += samples[edge]
    return samples


def _edge_context(world: World, layout: Layout) -> Context:
    """Return the context of the edges: a population of their own, with the tiers as groups."""
    counts = {tier: layout.tiers.count(tier) for tier in dict.fromkeys(layout.tiers)}
    section = world.scenario.edges
    assert section is not None
    groups = [Group(name=section.tiers[tier].name, count=count) for tier, count in counts.items()]
    population = Population(Clients(count=len(layout.names), groups=groups))
    return replace(world.context, population=population, streams=Streams(world.streams.seed, "edges."))


def _presence(section: Edges, context: Context) -> Availability:
    """Return the availability law of the edges, from which a script, if there is one, may take edges away. Raises UserError."""
    keywords = resolve_parameters(section.availability, "availability", "edges.availability", context.population)
    count = context.population.count
    law: Availability = construct(section.availability, "availability", "edges.availability", keywords, {"clients": count})
    return law if context.targets is None else context.targets.add_edge_absences(law, count)


def _ways(section: Edges, context: Context) -> MediumLaws:
    """Return the laws of the ways between edges and the nodes above."""
    return MediumLaws(
        download=delay_timeline(section.downlink, "edges.downlink", context),
        compute=NoTime(),
        upload=delay_timeline(section.uplink, "edges.uplink", context),
        downlink=channel_timeline(section.downlink, "edges.downlink", context),
        uplink=channel_timeline(section.uplink, "edges.uplink", context),
        down_resending=resending_rule(section.downlink),
        up_resending=resending_rule(section.uplink),
    )


def _edge_pool(
    world: World,
    section: Edges,
    layout: Layout,
    context: Context,
    presence: Availability,
    ways: MediumLaws,
    on_work: Callable[[Update], None],
) -> ClientPool:
    """Return the edges as clients of the nodes above them; raises UserError.

    `context`: the edges as a population. `presence`: law of their availability. `ways`: laws of the ways to the nodes above.
    `on_work`: callback that lets an edge begin its work for the node above, a term of rounds.
    """
    population, count = context.population, context.population.count
    size: int | IntArray = int(np.max(world.sizes.down))
    if section.model_bytes is not None:
        stated_size = population.values(section.model_bytes, "edges.model_bytes")
        stated_sizes = np.array(np.broadcast_to(stated_size, (count,)), np.float64)
        if not stated_sizes.min() >= 0 or not stated_sizes.max() <= LONGEST_S:  # also true for NaN
            raise UserError(f"edges.model_bytes = {float(stated_sizes.min())!r}: must be >= 0 bytes, and at most {LONGEST_S:g}")
        size = np.ceil(stated_sizes).astype(np.int64)
    sizes = Sizes(down=size, up=size)
    if world.network is None:
        down = build_carrier(section.downlink, "edges.downlink", context, world.clock, models_down(sizes))
        up = build_carrier(section.uplink, "edges.uplink", context, world.clock, updates_up(sizes))
    else:
        down, up = edge_carriers(world.network, size, layout.nodes(section), layout.above)
    medium = Medium(
        clients=count,
        laws=ways,
        streams=context.streams,
        carriers=Carriers(down=down.carrier, up=up.carrier),
        sizes=sizes,
    )
    return ClientPool(
        clock=world.clock,
        medium=medium,
        presence=FollowedPresence(presence, context.streams["availability"]),
        accountant=NoPrivacy(clients=count),
        rules=UpdateRules(on_work=on_work),
    )


def _learners(world: World, section: Edges, layout: Layout, coordinator: IntArray) -> dict[int, NodeLearner] | None:
    """Return the learner of each node, -1 being the server; None where nothing is trained.

    `coordinator` (K,): the edge of each client, which moves keep up to date.
    """
    if world.trained is None:
        return None
    from models.fl.learners.node_learner import node_learners

    if world.trained.eager:
        raise UserError("learner.trainer: trains ahead, which edges do not; set eager = False, or leave [edges] out")
    tiers = [section.tiers[tier] for tier in layout.tiers]
    return node_learners(
        world.trained,
        above=layout.above,
        coordinator=coordinator,
        weights=[tier.weight for tier in tiers],
        goes_on=[tier.goes_on for tier in tiers],
        caches=[world.scenario.server.caches, *(tier.server.caches for tier in tiers)],
    )
