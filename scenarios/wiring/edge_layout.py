"""Layout of the edges of `[edges]`: tiers, edges, and the edge of each member."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from scenarios.schema.errors import UserError, did_you_mean
from scenarios.wiring.data_files import read_table

if TYPE_CHECKING:
    from netsim.core.protocols import IntArray
    from scenarios.schema.edges import Edges, Tier
    from scenarios.wiring.population import Population


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
        found = []
        for tier in self.tiers:
            named = section.tiers[tier].nodes or []
            count = self.tiers.count(tier)
            if len(named) != count:
                told = f"names {len(named)} nodes for {count} edges; name one for each, in their order"
                raise UserError(f"edges.tiers.{tier}.nodes: {told}")
            found.append(named[places[tier]])
            places[tier] += 1
        return found

    def has_edges(self, edge: int) -> bool:
        """Return True if the members of `edge` are edges."""
        return edge in self.above


def lay_out(section: Edges, population: Population) -> Layout:
    """Return the tree; raises UserError."""
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
        if below:
            for place, over in _dealt(tier, i, [layout.names[edge] for edge in below], layout.names, edges, population).items():
                layout.above[below[place]] = over
        else:
            members = [str(client) for client in range(population.count)]
            for client, edge in _dealt(tier, i, members, layout.names, edges, population).items():
                if client in of_clients:
                    other = layout.names[of_clients[client]]
                    raise UserError(f"edges.tiers.{i}: client {client} belongs to {other!r} already; name it once")
                of_clients[client] = edge
    _require_all(section, layout, of_clients, population)
    layout.coordinator = [of_clients[client] for client in range(population.count)]
    for edge, name in enumerate(layout.names):
        if not len(layout.members(edge)):
            told = f"nobody belongs to edge {name!r}; leave it out, or give it members"
            raise UserError(f"edges.tiers.{layout.tiers[edge]}: {told}")
    return layout


def _require_all(section: Edges, layout: Layout, of_clients: Mapping[int, int], population: Population) -> None:
    """Refuse a client without an edge, and an edge without an edge of the tier above."""
    lacking = next((client for client in range(population.count) if client not in of_clients), None)
    if lacking is not None:
        i = section.leaves()[-1]
        key = next(name for name in ("count", "groups", "table") if getattr(section.tiers[i], name) is not None)
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
    if tier.count is not None:
        return [f"{tier.name}-{place}" for place in range(tier.count)]
    if tier.groups is not None:
        for place, group in enumerate(tier.groups):
            if group not in population.members:
                told = f"is no group of clients; {did_you_mean(group, population.members)}"
                raise UserError(f"edges.tiers.{i}.groups.{place} = {group!r}: {told}")
        return list(dict.fromkeys(tier.groups))
    return list(dict.fromkeys(edge for _, edge, _ in _rows(tier, i)))


def _rows(tier: Tier, i: int) -> list[tuple[str, str, str]]:
    """Return member and edge of each line of the tier's table, and where the line stands; raises UserError."""
    assert tier.table is not None
    key = f"edges.tiers.{i}.table"
    return [(member, edge, where) for where, (member, edge) in read_table(tier.table, ("member", "edge"), key)]


def _dealt(
    tier: Tier, i: int, members: list[str], names: list[str], edges: list[int], population: Population
) -> dict[int, int]:
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
    found: dict[int, int] = {}
    places = {member: place for place, member in enumerate(members)}
    for member, edge, where in _rows(tier, i):
        if member not in places:
            told = f"must be a client from 0 to {len(members) - 1}" if members[0] == "0" else did_you_mean(member, members)
            raise UserError(f"{where}: member {member!r} is not known; {told}")
        if places[member] in found:
            raise UserError(f"{where}: member {member!r} belongs to {names[found[places[member]]]!r} already; name it once")
        found[places[member]] = by_name[edge]
    return found
