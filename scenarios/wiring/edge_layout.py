"""Layout of the edges of `[edges]`: tiers, edges, and the edge of each member."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from scenarios.schema.edges import WAYS
from scenarios.schema.errors import UserError, did_you_mean
from scenarios.wiring.data_files import read_table

if TYPE_CHECKING:
    from netsim.core.protocols import IntArray
    from scenarios.schema.edges import Edges, Tier
    from scenarios.wiring.population import Population


class Routes(Protocol):
    """The network, as far as distances go (`scenarios.wiring.network.Layout`)."""

    places: list[str]
    """The node of each client."""

    def distance(self, a: str, b: str, measure: str, key: str) -> float:
        """Return the length of the route from node `a` to node `b` by `measure`; raises UserError that names `key`."""


@dataclass
class Layout:
    """The tree of a scenario. Edges are numbered so that an edge above comes before the edges below it."""

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
        places = dict.fromkeys(self.tiers, 0)
        result = []
        for tier in self.tiers:
            named = section.tiers[tier].nodes or []
            count = self.tiers.count(tier)
            if len(named) != count:
                problem = f"names {len(named)} nodes for {count} edges; name one for each, in their order"
                raise UserError(f"edges.tiers.{tier}.nodes: {problem}")
            result.append(named[places[tier]])
            places[tier] += 1
        return result

    def has_edges(self, edge: int) -> bool:
        """Return True if the members of `edge` are edges."""
        return edge in self.above


def lay_out(section: Edges, population: Population, routes: Routes | None) -> Layout:
    """Return the tree; `routes`: of `[network]`, if there is one. Raises UserError."""
    layout, numbers = Layout(), dict[str, int]()
    order = _from_above(section)
    for i in order:
        for name in _edge_names(section, i, population):
            if name in numbers:
                raise UserError(f"edges.tiers.{i}: edge {name!r} has the name of another edge; give it a name of its own")
            numbers[name] = len(layout.names)
            layout.names.append(name)
            layout.tiers.append(i)
    layout.above = [-1] * len(layout.names)
    of_clients: dict[int, int] = {}
    for i in order:
        tier, edges = section.tiers[i], [edge for edge, place in enumerate(layout.tiers) if place == i]
        below = [edge for edge, place in enumerate(layout.tiers) if section.tiers[place].above == tier.name]
        members = [layout.names[edge] for edge in below] if below else [str(client) for client in range(population.count)]
        if tier.nearest is None:
            belonging = _dealt(tier, i, members, layout.names, edges, population)
        else:
            assert routes is not None
            nodes = layout.nodes(section)
            belonging = _nearest(tier, i, edges, [nodes[edge] for edge in below] if below else routes.places, routes)
        for member, over in belonging.items():
            if below:
                layout.above[below[member]] = over
            elif member in of_clients:
                other = layout.names[of_clients[member]]
                raise UserError(f"edges.tiers.{i}: client {member} belongs to {other!r} already; name it once")
            else:
                of_clients[member] = over
    _require_all(section, layout, of_clients, population)
    layout.coordinator = [of_clients[client] for client in range(population.count)]
    for edge, name in enumerate(layout.names):
        if not len(layout.members(edge)):
            i = layout.tiers[edge]
            key = (
                f"edges.tiers.{i}" if (nearest := section.tiers[i].nearest) is None else f"edges.tiers.{i}.nearest = {nearest!r}"
            )
            told = f"nobody belongs to edge {name!r}; leave it out, or give it members"
            if nearest is not None:
                told = f"nobody is nearest to edge {name!r} at {layout.nodes(section)[edge]!r}; leave its node out of nodes"
            raise UserError(f"{key}: {told}")
    return layout


def _require_all(section: Edges, layout: Layout, of_clients: Mapping[int, int], population: Population) -> None:
    """Refuse a client without an edge, and an edge without an edge of the tier above."""
    lacking = next((client for client in range(population.count) if client not in of_clients), None)
    if lacking is not None:
        i = section.leaves()[-1]
        key = next(name for name in WAYS if getattr(section.tiers[i], name) is not None)
        raise UserError(f"edges.tiers.{i}.{key}: client {lacking} belongs to no edge; give each client one")
    for edge, name in enumerate(layout.names):
        if layout.above[edge] < 0 and (over := section.tiers[layout.tiers[edge]].above) is not None:
            i = next(i for i, tier in enumerate(section.tiers) if tier.name == over)
            raise UserError(f"edges.tiers.{i}: edge {name!r} belongs to no edge of tier {over!r}; give it one")


def _from_above(section: Edges) -> list[int]:
    """Return the numbers of the tiers, each after the one above it."""
    numbers = {tier.name: i for i, tier in enumerate(section.tiers)}

    def depth(tier: Tier) -> int:
        return 0 if tier.above is None else 1 + depth(section.tiers[numbers[tier.above]])

    return sorted(range(len(section.tiers)), key=lambda i: depth(section.tiers[i]))


def _edge_names(section: Edges, i: int, population: Population) -> list[str]:
    tier = section.tiers[i]
    count = tier.count if tier.nearest is None else len(tier.nodes or [])
    if count is not None:
        return [f"{tier.name}-{place}" for place in range(count)]
    if tier.groups is not None:
        for place, group in enumerate(tier.groups):
            if group not in population.members:
                problem = f"is no group of clients; {did_you_mean(group, population.members)}"
                raise UserError(f"edges.tiers.{i}.groups.{place} = {group!r}: {problem}")
        return list(dict.fromkeys(tier.groups))
    return list(dict.fromkeys(edge for _, edge, _ in _rows(tier, i)))


def _rows(tier: Tier, i: int) -> list[tuple[str, str, str]]:
    """Return member and edge of each line of the tier's table, and where the line stands; raises UserError."""
    assert tier.table is not None
    key = f"edges.tiers.{i}.table"
    return [(member, edge, where) for where, (member, edge) in read_table(tier.table, ("member", "edge"), key)]


def _nearest(tier: Tier, i: int, edges: list[int], places: Sequence[str], routes: Routes) -> dict[int, int]:
    """Return the nearest of the tier's `edges` to each member, by its place among the members; `places`: their nodes."""
    measure, key = str(tier.nearest), f"edges.tiers.{i}.nearest"
    at = dict(zip(edges, tier.nodes or [], strict=True))
    return {
        member: min(edges, key=lambda edge: routes.distance(at[edge], place, measure, key)) for member, place in enumerate(places)
    }


def _dealt(tier: Tier, i: int, members: list[str], names: list[str], edges: list[int], population: Population) -> dict[int, int]:
    """Return the edge of each of `members`, by its place among them; `edges`: the numbers of the tier's edges."""
    if tier.count is not None:
        if tier.count > len(members):
            told = f"nobody belongs to edge {names[edges[len(members)]]!r}: there are {len(members)} members; give fewer edges"
            raise UserError(f"edges.tiers.{i}.count = {tier.count}: {told}")
        parts = np.array_split(np.arange(len(members)), tier.count)
        return {place: edge for edge, part in zip(edges, parts, strict=True) for place in part.tolist()}
    by_name = {names[edge]: edge for edge in edges}
    if tier.groups is not None:
        return {client: by_name[group] for group in tier.groups for client in population.members[group].tolist()}
    edge_of: dict[int, int] = {}
    places = {member: place for place, member in enumerate(members)}
    for member, edge, where in _rows(tier, i):
        if member not in places:
            told = f"must be a client from 0 to {len(members) - 1}" if members[0] == "0" else did_you_mean(member, members)
            raise UserError(f"{where}: member {member!r} is not known; {told}")
        if places[member] in edge_of:
            raise UserError(f"{where}: member {member!r} belongs to {names[edge_of[places[member]]]!r} already; name it once")
        edge_of[places[member]] = by_name[edge]
    return edge_of
