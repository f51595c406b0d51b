"""The table `[network]` of a scenario file: nodes, cables, routes, and what else crosses them."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from scenarios.schema.section import Section, missing, problem, refusal
from scenarios.schema.world import NonNegative, Positive, VaryingLink

Node = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(ge=1, le=100_000)]
_MOST_BYTES_PER_S = 1.25e14
Rate = Annotated[float, Field(gt=0, le=_MOST_BYTES_PER_S)]
_GENERATED = {
    "star": {"nodes"},
    "tree": {"fan_out"},
    "dumbbell": {"sides"},
    "ring": {"nodes"},
    "fat-tree": {"ports"},
    "waxman": {"nodes", "alpha", "beta", "side_km"},
}
"""Keys that each rule of a generator needs; it takes no others of them."""


def _read_places(value: object) -> object:
    """Return `value` unchanged; refuse anything but a word for all clients and a list of nodes."""
    if value in ("leaves", "others"):
        return value
    if isinstance(value, list) and value and all(isinstance(node, str) for node in value):
        return value
    raise refusal('must be "leaves", "others", or a list with the node of each client')


_PLACES_JSON: dict[str, Any] = {"anyOf": [{"enum": ["leaves", "others"]}, {"type": "array", "items": {"type": "string"}}]}
Places = Annotated[Any, BeforeValidator(_read_places), WithJsonSchema(_PLACES_JSON)]


class NetworkLink(VaryingLink):
    """A cable between two nodes. `delay` is drawn for each transfer, beside the propagation delay; `channel` may lose transfers.

    Every direction has the bandwidth (full-duplex), both share it (half-duplex), or every transfer has all of it (fat-pipe).
    """

    name: Annotated[str, Field(pattern=r"^[^>|]+$")] | None = None
    """Name in tables, in `routes` and for scripts; absent: "A-B" of its nodes. The name of a cable of the file or generator
    changes that cable: `a` and `b` are then left out."""
    a: Node | None = None
    """Node at one end."""
    b: Node | None = None
    """Node at the other end."""
    delay_s: NonNegative | None = None
    """Propagation delay. Absent: that of `km`, that of the file, or 0."""
    km: NonNegative | None = None
    """Length, which `network.speed_km_per_s` makes a delay of."""
    duplex: Literal["full-duplex", "half-duplex", "fat-pipe"] | None = None
    """Use of the bandwidth; absent: that of `[network]`."""

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        """Refuse a cable with one end, with two delays, with values per client, or with an unlikely bandwidth."""
        if (self.a is None) != (self.b is None):
            raise missing("a" if self.a is None else "b", self)
        if self.a is None and self.name is None:
            raise missing("a", self)
        if self.delay_s is not None and self.km is not None:
            raise problem(("km",), self.km, "leave it out where delay_s is given")
        for i, change in enumerate(self.changes):
            if change.clients is not None:
                raise problem(("changes", i, "clients"), change.clients, "a cable has none; leave it out")
        rate = self.bandwidth_bytes_per_s
        if rate is not None and not isinstance(rate, int | float):
            raise problem(("bandwidth_bytes_per_s",), rate, "must be one number; a cable has no clients")
        if rate is not None and rate > _MOST_BYTES_PER_S:
            raise problem(("bandwidth_bytes_per_s",), rate, f"must be <= {_MOST_BYTES_PER_S:g} bytes/s; look at the units")
        return self


class Route(Section):
    """A route that is not the shortest. The way back is the same in reverse, unless it has a route of its own."""

    start: Node = Field(alias="from")
    """Node at which it begins."""
    to: Node
    """Node at which it ends."""
    links: Annotated[list[str], Field(min_length=1)]
    """Names of the cables, in order."""


class NetworkOutage(Section):
    """Cables that lose everything for a while: over `from_s` to `to_s`, or drawn as a two-state Markov process."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$")]
    """Cause of the losses, in the tables."""
    links: list[str] | None = None
    """Names of the cables; absent: all."""
    from_s: NonNegative | None = None
    """Time of its beginning."""
    to_s: Positive | None = None
    """Time of its end; absent: never."""
    mean_up_s: Positive | None = None
    """Mean time from the end of an outage to the beginning of the next."""
    mean_down_s: Positive | None = None
    """Mean length of an outage."""

    @model_validator(mode="after")
    def _check_time(self) -> Self:
        """Refuse an outage without one way to set its times; its end may be absent (never)."""
        if (self.from_s is None) == (self.mean_up_s is None):
            raise problem(("name",), self.name, "give either from_s and to_s, or mean_up_s and mean_down_s")
        if self.mean_up_s is not None and self.mean_down_s is None:
            raise missing("mean_down_s", self)
        return self


class Background(Section):
    """Traffic without a client from one node to another."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$")]
    """Name in tables and of its random numbers."""
    kind: Literal["constant", "on-off", "poisson"]
    """constant: one flow for ever; on-off: one flow during exponential times; poisson: transfers that begin at random times."""
    start: Node = Field(alias="from")
    """Node that sends."""
    to: Node
    """Node that receives."""
    bytes_per_s: Positive | None = None
    """Most that a flow takes; absent: its fair share."""
    mean_on_s: Positive | None = None
    """Mean time during which it sends (on-off)."""
    mean_off_s: Positive | None = None
    """Mean time during which it does not (on-off)."""
    per_s: Positive | None = None
    """Mean number of transfers that begin in a second (poisson)."""
    size_bytes: Annotated[float, Field(gt=0, le=1e15)] | None = None
    """Mean size of a transfer (poisson)."""
    sizes: Literal["constant", "exponential"] = "exponential"
    """Law of the sizes (poisson)."""

    @model_validator(mode="after")
    def _check_kind_keys(self) -> Self:
        """Refuse a kind without its keys, and keys of other kinds; `bytes_per_s` may limit any kind."""
        needed = {"constant": ("bytes_per_s",), "on-off": ("mean_on_s", "mean_off_s"), "poisson": ("per_s", "size_bytes")}
        for kind, keys in needed.items():
            for key in keys:
                is_set = getattr(self, key) is not None
                if kind == self.kind and not is_set:
                    raise missing(key, self)
                if kind != self.kind and is_set and key != "bytes_per_s":
                    raise problem((key,), getattr(self, key), f"is of {kind} traffic; leave it out")
        return self


class Generator(Section):
    """A network made by a rule; its nodes have the names that `netsim.network` gives in docs/network.md."""

    kind: Literal["star", "tree", "dumbbell", "ring", "fat-tree", "waxman"]
    """Rule."""
    nodes: Count | None = None
    """Leaves of a star; nodes of a ring or of a Waxman graph."""
    fan_out: Annotated[list[Count], Field(min_length=1)] | None = None
    """Children of each node of a tree, level by level."""
    sides: Annotated[list[Count], Field(min_length=2, max_length=2)] | None = None
    """Leaves of both ends of a dumbbell."""
    ports: Annotated[int, Field(ge=2, le=64)] | None = None
    """Ports of a switch of a fat tree, an even number."""
    alpha: Annotated[float, Field(gt=0, le=1)] | None = None
    """Waxman: probability of a cable between nodes that are close."""
    beta: Positive | None = None
    """Waxman: how slowly the probability falls with the distance, as a share of the greatest distance."""
    side_km: Positive | None = None
    """Waxman: side of the square."""
    level_bytes_per_s: Annotated[list[Rate], Field(min_length=1)] | None = None
    """Bandwidth of the cables of each level, from the root down. Absent: that of `[network]`."""
    level_delay_s: Annotated[list[NonNegative], Field(min_length=1)] | None = None
    """Propagation delay of the cables of each level. Absent: 0, or by the length of a cable."""

    @property
    def keywords(self) -> dict[str, Any]:
        """Arguments of the rule, by the parameters of the function that makes the network."""
        return {key: getattr(self, key) for key in sorted(_GENERATED[self.kind])}

    @model_validator(mode="after")
    def _check_rule_keys(self) -> Self:
        """Refuse a rule without its keys, and keys of other rules."""
        for key in sorted(set().union(*_GENERATED.values())):
            is_set = getattr(self, key) is not None
            if key in _GENERATED[self.kind] and not is_set:
                raise missing(key, self)
            if key not in _GENERATED[self.kind] and is_set:
                raise problem((key,), getattr(self, key), f"is nothing of a {self.kind}; leave it out")
        return self


class NetworkCorrections(Section):
    """Changes of plain max-min fairness towards TCP; docs/flows.md has their formulas."""

    preset: Literal["lv08", "cm02"] | None = None
    """All of them as SimGrid has them; keys beside it replace single ones."""
    latency_factor: Positive | None = None
    """Factor of the delay of a route."""
    bandwidth_factor: Positive | None = None
    """Bytes that pass for each byte of bandwidth."""
    window_bytes: Positive | None = None
    """A transfer's rate is at most this over twice the delay of its route."""
    rtt_fair: bool | None = None
    """True: shares fall with the delay."""
    weight_s: NonNegative | None = None
    """Weight of the bandwidths in the penalty, with rtt_fair."""
    reverse_share: NonNegative | None = None
    """Share of its rate with which a transfer also loads the way back."""
    first_window_bytes: Positive | None = None
    """Bytes that a connection sends before the first acknowledgement, and doubles in every round trip; 14480 in TCP."""


class Network(Section):
    """Nodes and cables below all messages: each takes the delay of its route, and shares the cables of its route with others.

    The delays and channels of `[downlink]` and `[uplink]` come on top, for each client; their bandwidths belong to the cables.
    """

    source: str | None = None
    """Cables of a network that comes along (gaia, aws-north-america, geant, exodus, ebone) or of a file: CSV with the columns a,
    b, km or delay_s, and bytes_per_s; GraphML or GML with these attributes."""
    generator: Generator | None = None
    """Cables made by a rule, in place of a file."""
    links: list[NetworkLink] = []
    """Cables written out, beside or in place of those of a file, or changes of these."""
    server: Node
    """Node of the server."""
    clients: Places
    """Nodes of the clients: a list with the node of each; "leaves" (nodes with one cable) or "others" (all nodes but the
    server's), one client after the other and then around again."""
    bandwidth_bytes_per_s: Rate | None = None
    """Bandwidth of all cables that name none."""
    duplex: Literal["full-duplex", "half-duplex", "fat-pipe"] = "full-duplex"
    """Use of the bandwidth of all cables that say nothing."""
    speed_km_per_s: Positive = 200_000.0
    """Speed of signals, for cables with a length."""
    routing: Literal["delay", "km", "hops"] = "delay"
    """Measure by which a route is the shortest. Of several shortest routes, the one over the nodes that come first."""
    routes: list[Route] = []
    """Routes that are not the shortest."""
    outages: list[NetworkOutage] = []
    """Cables that fail and come back."""
    background: list[Background] = []
    """Traffic of others."""
    corrections: NetworkCorrections | None = None
    """Changes of plain max-min fairness; absent: none."""

    @model_validator(mode="after")
    def _check_cables(self) -> Self:
        """Refuse a network without cables, with two sources of them, or with a name used twice."""
        if self.source is not None and self.generator is not None:
            raise problem(("source",), self.source, "leave it out where generator is given")
        if self.source is None and self.generator is None and not self.links:
            raise missing("links", self)
        for place, section in (("outages", self.outages), ("background", self.background)):
            names = [entry.name for entry in section]
            for i, name in enumerate(names):
                if name in names[:i]:
                    raise problem((place, i, "name"), name, "is used twice; give each a name of its own")
        return self
