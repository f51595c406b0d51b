"""Layout of the edges of `[edges]`: tiers, edges, and the edge of each member."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from scenarios.schema.errors import UserError, did_you_mean
from scenarios.schema.servers.edges import MEMBER_KEYS
from scenarios.wiring.data_files import read_table

if TYPE_CHECKING:
    from netsim.core.protocols import IntArray
    from scenarios.schema.servers.edges import Edges, Tier
    from scenarios.wiring.clients.population import Population


class Routes(Protocol):
    """Distances in the network of a scenario. `scenarios.wiring.network.cables.Layout` fulfils it."""

    client_nodes: list[str]
    """The node of each client."""

    def distance(self, a: str, b: str, measure: str, key: str) -> float:
        """Return the length of the route from node `a` to node `b` by `measure`; raises UserError that names `key`."""


@dataclass
class Layout:
    """The tree of a scenario. An edge has a lower number than the edges below it."""

    names: list[str] = field(default_factory=list)
    """Name of each edge."""
    tiers: list[int] = field(default_factory=list)
    """Number of the tier of each edge."""
    above: list[int] = field(default_factory=list)
    """Edge above each edge; -1: the server."""
    coordinator: list[int] = field(default_factory=list)
    """The edge of each client."""

    def members(self, edge: int) -> IntArray:
        """Return the members of `edge`: edges if there are any, otherwise clients."""
        below = np.flatnonzero(np.array(self.above) == edge)
        return below if len(below) else np.flatnonzero(np.array(self.coordinator) == edge)

    def nodes(self, section: Edges) -> list[str]:
        """Return the node of each edge in `[network]`."""
        used = dict.fromkeys(self.tiers, 0)  # nodes of each tier so far: an edge takes the next one
        result = []
        for tier in self.tiers:
            nodes = section.tiers[tier].nodes or []
            count = self.tiers.count(tier)
            if len(nodes) != count:
                problem = f"names {len(nodes)} nodes for {count} edges; name one for each, in their order"
                raise UserError(f"edges.tiers.{tier}.nodes: {problem}")
            result.append(nodes[used[tier]])
            used[tier] += 1
        return result

    def has_edges(self, edge: int) -> bool:
        """Return True if the members of `edge` are edges."""
        return edge in self.above


def lay_out(section: Edges, population: Population, routes: Routes | None) -> Layout:
    """Return the tree of a scenario's edges and clients. `routes`: those of `[network]`; None without it.

    Raises UserError if two edges have one name, a client or an edge has no edge above it or two, or an edge has no members.
    """
    order = _top_down(section)
    layout = _list_edges(section, order, population)
    edge_of_client: dict[int, int] = {}
    for i in order:
        tier = section.tiers[i]
        edges = [edge for edge, tier_number in enumerate(layout.tiers) if tier_number == i]
        below = [edge for edge, tier_number in enumerate(layout.tiers) if section.tiers[tier_number].above == tier.name]
        # The members of a tier are the edges of the tiers below, or else the clients.
        members = [layout.names[edge] for edge in below] if below else [str(client) for client in range(population.count)]
        if tier.nearest is None:
            edge_of_member = _assign(tier, i, members, layout.names, edges, population)
        else:
            assert routes is not None
            member_nodes = routes.client_nodes
            if below:
                nodes = layout.nodes(section)
                member_nodes = [nodes[edge] for edge in below]
            edge_of_member = _nearest(tier, i, edges, member_nodes, routes)
        # A member counts within the tier: member m is the edge below[m], or else client m.
        for member, parent in edge_of_member.items():
            if below:
                layout.above[below[member]] = parent
            elif member in edge_of_client:
                other = layout.names[edge_of_client[member]]
                raise UserError(f"edges.tiers.{i}: client {member} belongs to {other!r} already; name it once")
            else:
                edge_of_client[member] = parent
    _require_all(section, layout, edge_of_client, population)
    layout.coordinator = [edge_of_client[client] for client in range(population.count)]
    _refuse_empty(section, layout)
    return layout


def _list_edges(section: Edges, order: Sequence[int], population: Population) -> Layout:
    """Return a layout with the edges of all tiers, tiers in `order`, and nothing above any edge; raises UserError."""
    layout, known = Layout(), set[str]()
    for i in order:
        for name in _edge_names(section, i, population):
            if name in known:
                raise UserError(f"edges.tiers.{i}: edge {name!r} has the name of another edge; give it a name of its own")
            known.add(name)
            layout.names.append(name)
            layout.tiers.append(i)
    layout.above = [-1] * len(layout.names)
    return layout


def _refuse_empty(section: Edges, layout: Layout) -> None:
    """Raise UserError for an edge without members."""
    for edge, name in enumerate(layout.names):
        if len(layout.members(edge)):
            continue
        i = layout.tiers[edge]
        nearest = section.tiers[i].nearest
        if nearest is None:
            raise UserError(f"edges.tiers.{i}: nobody belongs to edge {name!r}; leave it out, or give it members")
        problem = f"nobody is nearest to edge {name!r} at {layout.nodes(section)[edge]!r}; leave its node out of nodes"
        raise UserError(f"edges.tiers.{i}.nearest = {nearest!r}: {problem}")


def _require_all(section: Edges, layout: Layout, edge_of_client: Mapping[int, int], population: Population) -> None:
    """Refuse a client without an edge, and an edge without an edge of the tier above."""
    missing = next((client for client in range(population.count) if client not in edge_of_client), None)
    if missing is not None:
        i = section.leaves()[-1]
        key = next(name for name in MEMBER_KEYS if getattr(section.tiers[i], name) is not None)
        raise UserError(f"edges.tiers.{i}.{key}: client {missing} belongs to no edge; give each client one")
    for edge, name in enumerate(layout.names):
        tier_above = section.tiers[layout.tiers[edge]].above
        if layout.above[edge] < 0 and tier_above is not None:
            i = next(i for i, tier in enumerate(section.tiers) if tier.name == tier_above)
            raise UserError(f"edges.tiers.{i}: edge {name!r} belongs to no edge of tier {tier_above!r}; give it one")


def _top_down(section: Edges) -> list[int]:
    """Return the numbers of the tiers, each after the one above it."""
    numbers = {tier.name: i for i, tier in enumerate(section.tiers)}

    def depth(tier: Tier) -> int:
        """Return the number of tiers above `tier`."""
        return 0 if tier.above is None else 1 + depth(section.tiers[numbers[tier.above]])

    return sorted(range(len(section.tiers)), key=lambda i: depth(section.tiers[i]))


def _edge_names(section: Edges, i: int, population: Population) -> list[str]:
    """Return the names of the edges of tier `i`, in their order; raises UserError for an unknown group."""
    tier = section.tiers[i]
    count = tier.count if tier.nearest is None else len(tier.nodes or [])
    if count is not None:
        return [f"{tier.name}-{index}" for index in range(count)]
    if tier.groups is not None:
        for index, group in enumerate(tier.groups):
            if group not in population.members:
                problem = f"is no group of clients; {did_you_mean(group, population.members)}"
                raise UserError(f"edges.tiers.{i}.groups.{index} = {group!r}: {problem}")
        return list(dict.fromkeys(tier.groups))
    return list(dict.fromkeys(edge for _, edge, _ in _rows(tier, i)))


def _rows(tier: Tier, i: int) -> list[tuple[str, str, str]]:
    """Return member, edge and location in the file of each line of the tier's table; raises UserError."""
    assert tier.table is not None
    key = f"edges.tiers.{i}.table"
    return [(member, edge, where) for where, (member, edge) in read_table(tier.table, ("member", "edge"), key)]


def _nearest(tier: Tier, i: int, edges: list[int], member_nodes: Sequence[str], routes: Routes) -> dict[int, int]:
    """Return the nearest of `edges` to each member, by index of the member; of equally near edges the first.

    `edges`: numbers of the tier's edges, in the order of `tier.nodes`. `member_nodes`: node of each member.
    """
    measure, key = str(tier.nearest), f"edges.tiers.{i}.nearest"
    node_of_edge = dict(zip(edges, tier.nodes or [], strict=True))
    edge_of: dict[int, int] = {}
    for member, member_node in enumerate(member_nodes):
        distances = [routes.distance(node_of_edge[edge], member_node, measure, key) for edge in edges]
        edge_of[member] = edges[distances.index(min(distances))]
    return edge_of


def _assign(tier: Tier, i: int, members: list[str], names: list[str], edges: list[int], population: Population) -> dict[int, int]:
    """Return the edge of each of `members`, by index of the member: by count, groups or table of `tier`, which is number `i`.

    `names`: name of each edge of the tree, by its number. `edges`: numbers of the tier's edges. A member that groups or table do
    not name is left out; the caller refuses that. Raises UserError.
    """
    edge_of: dict[int, int] = {}
    if tier.count is not None:
        if tier.count > len(members):
            problem = f"nobody belongs to edge {names[edges[len(members)]]!r}: there are {len(members)} members; give fewer edges"
            raise UserError(f"edges.tiers.{i}.count = {tier.count}: {problem}")
        for edge, part in zip(edges, np.array_split(np.arange(len(members)), tier.count), strict=True):
            edge_of |= dict.fromkeys(part.tolist(), edge)
        return edge_of
    edge_of_name = {names[edge]: edge for edge in edges}
    if tier.groups is not None:
        for group in tier.groups:
            edge_of |= dict.fromkeys(population.members[group].tolist(), edge_of_name[group])
        return edge_of
    index_of = {member: index for index, member in enumerate(members)}
    for member, edge_name, where in _rows(tier, i):
        if member not in index_of:
            problem = f"must be a client from 0 to {len(members) - 1}" if members[0] == "0" else did_you_mean(member, members)
            raise UserError(f"{where}: member {member!r} is not known; {problem}")
        index = index_of[member]
        if index in edge_of:
            raise UserError(f"{where}: member {member!r} belongs to {names[edge_of[index]]!r} already; name it once")
        edge_of[index] = edge_of_name[edge_name]
    return edge_of
