"""The `[edges]` table: nodes between server and clients, each a server to its members and a client of the node above."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from scenarios.registry.components import component_of
from scenarios.schema.errors import did_you_mean
from scenarios.schema.per_client import PerClientField
from scenarios.schema.probe import asks_clients
from scenarios.schema.section import Section, default_table, problem
from scenarios.schema.servers.base import refuse_reward
from scenarios.schema.servers.buffered import Buffered
from scenarios.schema.servers.full_participation import Compass, Safa
from scenarios.schema.servers.kinds import KINDS, SemiSynchronous, Synchronous
from scenarios.schema.servers.own_server import OwnServer
from scenarios.schema.world import Downlink

if TYPE_CHECKING:
    from scenarios.schema.scenario import Scenario

Count = Annotated[int, Field(ge=1)]
_SHARED = "belongs to one server; with [edges] each has links of its own; leave it out"


class EdgeSynchronous(Synchronous):
    """A round of an edge waits for all selected members, unless a deadline or a count of deliveries closes it earlier."""

    kind: Literal["synchronous"] = "synchronous"
    """synchronous: rounds one after the other, each with the members selected for it."""
    per_round: Count | None = None  # type: ignore[assignment]
    """m, members selected a round. Absent: all members of the edge."""
    when_short: Literal["wait", "proceed"] = "proceed"
    """Fewer than m selectable: go on with those there are (at least one), or wait until members that are busy are free."""


class EdgeBuffered(Buffered):
    """An edge keeps `concurrency` members at work; every `buffer` deliveries make a new model of the edge: a round of it."""

    kind: Literal["buffered"] = "buffered"
    """buffered: asynchronous, a new model of the edge after so many deliveries."""
    concurrency: Count | None = None  # type: ignore[assignment]
    """Members at work at once, as long as there are so many to choose from. Absent: all members of the edge."""


MEMBER_KEYS = ("count", "groups", "table", "nearest")
"""Keys of a tier that say which members belong to its edges. A tier has one of them."""


class EdgeSemiSynchronous(SemiSynchronous):
    """Rounds of an edge that last `round_s` each; an update that misses a close enters the next round."""

    kind: Literal["semi-synchronous"] = "semi-synchronous"
    """semi-synchronous: rounds of fixed length; an update that misses a close enters the next round."""
    per_round: Count | None = None  # type: ignore[assignment]
    """m, members selected a round, as long as so many are not at work. Absent: all members of the edge."""
    round_s: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    """Length of a round, from its opening."""

    from_opening: ClassVar[bool] = True


class EdgeSafa(Safa):
    """All members of an edge train all the time; of the updates that arrive in a round so many are picked for its model (SAFA).

    The edge has a cache of its members' last models. As the model of the node above arrives, all entries move by its difference
    from the edge's own. A client that comes from another edge is sent the edge's model, which is its entry until it delivers.
    """

    kind: Literal["safa"] = "safa"
    """safa: semi-asynchronous, every member at work, a share of what arrives picked, a cache of all."""
    per_round: Count | None = None  # type: ignore[assignment]
    """Updates picked a round. Absent: as many as the edge has members."""


RULES: dict[str, Any] = {
    "synchronous": EdgeSynchronous,
    "semi-synchronous": EdgeSemiSynchronous,
    "buffered": EdgeBuffered,
    "safa": EdgeSafa,
    "compass": Compass,
}


def remedy(reason: str, kinds: Iterable[str] = RULES) -> str:
    """Return the reason why a server cannot coordinate members, with one of `kinds` as the remedy."""
    *others, last = kinds
    return f"{reason}; set kind = {', '.join(map(repr, others))} or {last!r}"


def refuse_as_coordinator_of_edges(server: Any, place: tuple[str | int, ...], way_out: str = "") -> None:
    """Refuse a `server` at `place` whose members cannot be edges. `way_out`: a further remedy."""
    reason = server.why_no_tier or server.why_not_of_edges  # empty if it can
    if reason:
        kinds = [name for name, rule in RULES.items() if not rule.why_not_of_edges]
        raise problem((*place, "kind"), server.kind, f"{remedy(reason, kinds)}{way_out}")


class Tier(Section):
    """Edges that are alike: how many, who belongs to each, and by which rules they coordinate.

    Who belongs to the edges, one of: `count`, `groups`, `table`, `nearest`.
    """

    names: ClassVar[frozenset[str]] = frozenset({"above"})

    name: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$")]
    """Name of the tier. Its edges are called NAME-0, NAME-1, ..., or as `groups` and `table` say."""
    above: str | None = None
    """Name of the tier whose members these edges are. Absent: they are members of the server."""
    count: Count | None = None
    """Number of edges. Members are dealt out to them in equal numbers (within one) and in their order."""
    groups: Annotated[list[str], Field(min_length=1)] | None = None
    """Groups of clients (`clients.groups`): an edge for each, of its name."""
    table: Annotated[str, Field(min_length=1)] | None = None
    """A CSV file with the columns member and edge, a line for each member: a client's number, or the name of an edge of the tier
    below."""
    nearest: Literal["delay", "km", "hops"] | None = None
    """With `[network]`: an edge at each of `nodes`; a member belongs to the edge from which the route to it has the least
    propagation delay, length or number of cables, of several to the first. Edges are called NAME-0, NAME-1, ..."""
    nodes: Annotated[list[str], Field(min_length=1)] | None = None
    """With `[network]`: the node of each edge of the tier, in their order."""
    rounds: Count = 1
    """Rounds of the edge for each round of the node above in which it takes part."""
    weight: Literal["arrived", "registered", "equal"] = "arrived"
    """Weight of an edge's model above: the samples of clients whose updates arrived in its last rounds, of all clients that
    belong to it, or the same for every edge."""
    goes_on: bool = False
    """True: while its model travels up and the next one down, the edge makes rounds of its next term, at most all of them, from
    the model it sent. The model that arrives then gets what the edge has learnt since. False: it waits for that model."""
    server: component_of("server", described=RULES, base=OwnServer) = {"kind": "synchronous"}  # type: ignore[valid-type]
    """Course of the edge's rounds: synchronous, semi-synchronous, buffered, safa, compass (of clients), or a class of your own.
    `per_round` and `concurrency` may be left out: all members of the edge."""
    policy: component_of("policy") = {"kind": "random"}  # type: ignore[valid-type]
    """Policy by which an edge selects among its members."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_servers(cls, value: object) -> object:
        """Give the reason for a built-in server that edges cannot have, before pydantic reports an unknown kind."""
        server = value.get("server") if isinstance(value, dict) else None
        kind = server.get("kind") if isinstance(server, dict) else None
        if kind in KINDS and kind not in RULES:
            raise problem(("server", "kind"), kind, remedy(KINDS[kind].why_no_tier))
        return value

    @model_validator(mode="after")
    def _check_members(self) -> Self:
        """Refuse a tier without exactly one key that says which members belong to its edges."""
        keys = [name for name in MEMBER_KEYS if getattr(self, name) is not None]
        if len(keys) != 1:
            key = keys[1] if keys else "name"
            reason = f"give one of {', '.join(MEMBER_KEYS)}, which says who belongs to each edge"
            raise problem((key,), getattr(self, key), reason)
        return self


class Edges(Section):
    """Edges between server and clients, in one tier or several.

    `[server]` and `[policy]` are then of edges: `server.per_round` of them take part in a round. Clients exchange models with
    their edge, over `[downlink]` and `[uplink]`.
    """

    tiers: Annotated[list[Tier], Field(min_length=1)]
    """Tiers of edges."""
    downlink: Downlink = default_table()
    """The way of the model down to an edge, from the node above. A list or table of values is over edges, groups being tiers."""
    uplink: Downlink = default_table()
    """The way of an edge's model up to the node above."""
    model_bytes: PerClientField | None = None
    """Bytes of a model on these ways. Absent: those of a model on its way to a client."""
    moves: Annotated[str, Field(min_length=1)] | None = None
    """A CSV file with the columns client, start_s, end_s and edge: meanwhile the client belongs to this edge, otherwise to its
    own. Absent: nobody moves."""
    moving: Literal["lost", "finishes", "handed-over", "with-state"] = "lost"
    """Consequence of a move for an update that the client is making or sending: it is lost (aborted, cause moved), it is finished
    over the old link, for the old edge, it goes on for the new edge, or it does so once the client's state has arrived there."""
    state_bytes: Count | None = None
    """With moving = "with-state": bytes of the state of a client, which go from the old edge to the new one."""
    availability: component_of("availability") = {"kind": "always"}  # type: ignore[valid-type]
    """Presence of the edges: while one is away, it coordinates nobody, and what its members do then is lost."""

    @model_validator(mode="after")
    def _check_moving(self) -> Self:
        """Refuse a state that moves without a size, and a size of a state that does not move."""
        if self.state_bytes is None and self.moving == "with-state":
            raise problem(("moving",), self.moving, "moves the state of a client; give state_bytes, its size")
        if self.state_bytes is not None and self.moving != "with-state":
            raise problem(("state_bytes",), self.state_bytes, "no state moves; set moving = 'with-state', or leave it out")
        return self

    @model_validator(mode="after")
    def _check_tree(self) -> Self:
        """Refuse tiers that do not form a tree below the server, and tiers of edges whose members are groups of clients."""
        names = [tier.name for tier in self.tiers]
        above = {tier.name: tier.above for tier in self.tiers}
        for i, tier in enumerate(self.tiers):
            if tier.name in names[:i]:
                raise problem(("tiers", i, "name"), tier.name, "is used twice; give every tier its own name")
            if tier.above is not None and tier.above not in names:
                remedy = did_you_mean(tier.above, names, "leave it out: the server is above")
                raise problem(("tiers", i, "above"), tier.above, f"is no tier; {remedy}")
        for i, tier in enumerate(self.tiers):
            # Follow the tiers up to the server; a tier that comes twice closes a circle.
            path = [tier.name]
            next_above = tier.above
            while next_above is not None:
                if next_above in path:
                    circle = " below ".join([*path, next_above])
                    reason = f"is a circle: {circle}; leave out above of the highest tier"
                    raise problem(("tiers", i, "above"), tier.above, reason)
                path.append(next_above)
                next_above = above[next_above]
        for i, tier in enumerate(self.tiers):
            if tier.name in above.values() and tier.groups is not None:
                reason = "are groups of clients, and the members of this tier are edges; give count or table"
                raise problem(("tiers", i, "groups"), tier.groups, reason)
        return self

    def asking_tiers(self) -> list[tuple[int, Tier]]:
        """Return the tiers whose policy asks clients before it selects, each with its index."""
        tiers = [(i, self.tiers[i]) for i in self.leaves()]
        return [(i, tier) for i, tier in tiers if tier.server.decider == "policy" and asks_clients(tier.policy)]

    def leaves(self) -> list[int]:
        """Return the indices of the tiers whose members are clients."""
        above = {tier.above for tier in self.tiers}
        return [i for i, tier in enumerate(self.tiers) if tier.name not in above]


def check_edges(scenario: "Scenario") -> None:
    """Raise a pydantic refusal for the first table or key that does not go with edges."""
    edges, server = scenario.edges, scenario.server
    if edges is None:
        return
    refuse_as_coordinator_of_edges(server, ("server",), ", or leave [edges] out")
    refused = {
        "channels": "are of one server; leave them out, each client then has a link to its edge",
        "scheduler": "assigns sub-channels of one server; leave it out",
    }
    for name, reason in refused.items():
        if getattr(scenario, name) is not None:
            raise problem((name,), "..", reason)
    if scenario.jammers_of("channels"):
        reason = "jam sub-channels of one server; set jams = 'uplink' or 'downlink', or give them cables of [network]"
        raise problem(("jammers",), "..", reason)
    if edges.moves is None and scenario.script is None and edges.moving != "lost":
        raise problem(("edges", "moving"), edges.moving, "nobody moves; give moves or a script, or leave it out")
    refuse_reward(scenario, "measures a selection of clients by the server; leave it out")
    links = {
        ("downlink",): scenario.downlink,
        ("edges", "downlink"): edges.downlink,
        ("uplink",): scenario.uplink,
        ("edges", "uplink"): edges.uplink,
    }
    for path, link in links.items():
        if link.shared is not None:
            raise problem((*path, "shared"), "..", f"a bandwidth that all share {_SHARED}")
    if scenario.uplink.sub_channels is not None:
        raise problem(("uplink", "sub_channels"), scenario.uplink.sub_channels, _SHARED)
    _check_network(scenario, edges)
    _check_rules(scenario, edges)
    _refuse_policies_that_ask_edges(scenario, edges)
    _check_learner(scenario)


def _check_network(scenario: "Scenario", edges: Edges) -> None:
    """Refuse `[network]` without nodes of edges or beside bandwidths of their links; without it, nodes of edges."""
    for i, tier in enumerate(edges.tiers):
        if tier.nearest is not None and scenario.network is None:
            reason = "there are no routes; add [network], or give count, groups or table"
            raise problem(("edges", "tiers", i, "nearest"), tier.nearest, reason)
        if (tier.nodes is None) != (scenario.network is None):
            reason = "there are no nodes; add [network], or leave it out" if tier.nodes else "must name the nodes of the edges"
            raise problem(("edges", "tiers", i, "nodes"), tier.nodes, reason)
    if scenario.network is None:
        return
    for name in ("downlink", "uplink"):
        section = getattr(edges, name)
        for key in ("bandwidth_bytes_per_s", "bandwidth"):
            if getattr(section, key) is not None:
                raise problem(("edges", name, key), "..", "bandwidth belongs to the cables of [network]; leave it out")


def _check_rules(scenario: "Scenario", edges: Edges) -> None:
    """Refuse a tier whose table leaves open which clients belong to it, and keys without a meaning for an edge's server.

    A server of the user's own judges its own keys.
    """
    leaves = edges.leaves()
    # With two tiers of clients, a number of edges does not say which clients are in which tier.
    if len(leaves) > 1:
        for i in leaves:
            for key in ("count", "nearest"):
                if getattr(edges.tiers[i], key) is not None:
                    reason = "does not say which clients belong to this tier, as there is another one; give groups or table"
                    raise problem(("edges", "tiers", i, key), getattr(edges.tiers[i], key), reason)
    for i, tier in enumerate(edges.tiers):
        place = ("edges", "tiers", i, "server")
        if tier.server.own:
            continue
        if i not in leaves:
            refuse_as_coordinator_of_edges(tier.server, place)
        if tier.server.decider == "server" and tier.policy.kind != "random":
            reason = f"server.kind = {tier.server.kind!r} selects nobody: all members take part; leave it out"
            raise problem(("edges", "tiers", i, "policy", "kind"), tier.policy.kind, reason)
        tier.server.check_members(scenario, place, of_edges=i not in leaves)
        parameters = tier.server.parameters()
        per_round = parameters.get("per_round")
        for key in ("first", "at_least"):
            value = parameters.get(key)
            if value is not None and per_round is not None and value > per_round:
                raise problem((*place, key), value, f"must be at most the {per_round} members of per_round")
        if tier.server.contends:
            reason = "is about the sub-channels of [channels], which belong to one server; leave it out"
            raise problem((*place, "contention"), True, reason)


def _refuse_policies_that_ask_edges(scenario: "Scenario", edges: Edges) -> None:
    """Refuse policies that ask before they select, on the server and on every tier whose members are edges."""
    leaves = edges.leaves()
    policies: dict[tuple[str | int, ...], Any] = {("policy",): scenario.policy}
    policies |= {("edges", "tiers", i, "policy"): tier.policy for i, tier in enumerate(edges.tiers) if i not in leaves}
    for place, policy in policies.items():
        if policy is not None and asks_clients(policy):
            reason = "asks before it selects, and edges have no loss, battery or speed of their own to answer with"
            raise problem((*place, "kind"), policy.kind, f"{reason}; choose another policy")


def _check_learner(scenario: "Scenario") -> None:
    """Refuse options of `[learner]` that are not defined over edges."""
    learner = scenario.learner
    if learner is None:
        return
    demands = learner.aggregation.demands
    if demands.name:
        reason = f"{demands.name} is not defined over edges yet; set aggregation.kind = 'size', 'equal' or 'fixed-share'"
        raise problem(("learner", "aggregation", "kind"), learner.aggregation.kind, reason)
    if learner.buffer > 1:
        raise problem(("learner", "buffer"), learner.buffer, "leave it out: the rules of the edges say what makes a new model")
    if learner.contribution_samples:
        reason = "is not measured at edges yet; leave it out"
        raise problem(("learner", "contribution_samples"), learner.contribution_samples, reason)
