"""The scenario file: every table, its keys, their units, defaults and limits. `netsim schema` prints it as JSON Schema."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from models.privacy import NoiseMode
from scenarios.analytics_sections import (
    INDEX_POLICIES,
    OPINION_POLICIES,
    SLOT_KINDS,
    Belief,
    Gossip,
    OpinionKeys,
    PeerKeys,
    Slots,
)
from scenarios.learning import Learner
from scenarios.parts import part_of
from scenarios.per_client import PER_CLIENT_JSON, PerClientField, read_per_client
from scenarios.section import Section, missing, problem, refusal
from scenarios.servers import Jammer, server_field

NonNegative = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.+=-]*$", max_length=100)]
Size = Annotated[int, Field(ge=1, le=10_000_000)]
LARGEST = 2**63 - 1
"""Largest whole number of a Parquet column, and of TOML."""


def _read_clients(value: Any) -> Any:
    whole = isinstance(value, list) and all(isinstance(k, int) and not isinstance(k, bool) and k >= 0 for k in value)
    if not (whole or isinstance(value, str)):
        raise refusal("must be a group's name, or a list of client numbers from 0")
    return value


def _read_changed(value: Any) -> Any:
    # Parameters that are no numbers may change as well: the law itself knows what it allows.
    return read_per_client(value) if isinstance(value, dict) else value


_CLIENTS_JSON: dict[str, Any] = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "integer", "minimum": 0}}]}
_CHANGED_JSON: dict[str, Any] = {"anyOf": [PER_CLIENT_JSON, {"type": "string"}, {"type": "boolean"}]}
SomeClients = Annotated[Any, BeforeValidator(_read_clients), WithJsonSchema(_CLIENTS_JSON)]
Changed = Annotated[Any, BeforeValidator(_read_changed), WithJsonSchema(_CHANGED_JSON)]


class Group(Section):
    """A named group of clients: consecutive indices, in the order of the list."""

    name: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$")
    """What other keys call the group by."""
    share: Annotated[float, Field(gt=0, le=1)] | None = None
    """Part of all clients; a group's size is its share of them to within one, and the groups fill up `clients.count`."""
    count: Size | None = None
    """Number of clients, in place of a share."""

    @model_validator(mode="after")
    def _one_size(self) -> Group:
        if (self.share is None) == (self.count is None):
            raise ValueError("give either share or count")
        return self


class Clients(Section):
    """Who takes part."""

    count: Size
    """K, the number of clients."""
    groups: list[Group] = []
    """Groups whose parameters differ; empty: one group named "all"."""
    data_sizes: PerClientField | None = None
    """Samples each client holds, for a study without a learner (with one, its partition says). Absent: all hold as many."""


class Change(Section):
    """From a change point on, a law has other parameters."""

    at_round: Annotated[int, Field(ge=2)] | None = None
    """First round with the new values."""
    at_s: Positive | None = None
    """Time of the change."""
    clients: SomeClients | None = None
    """A group's name or client indices; absent: all clients."""
    delay: dict[str, Changed] = {}
    """New values of parameters of the delay law, by their names."""
    channel: dict[str, Changed] = {}
    """New values of parameters of the channel law, by their names."""
    bandwidth_bytes_per_s: PerClientField | None = None
    """New bandwidth (links only)."""

    @model_validator(mode="after")
    def _one_time(self) -> Change:
        if (self.at_round is None) == (self.at_s is None):
            raise ValueError("give either at_round or at_s")
        if not (self.delay or self.channel or self.bandwidth_bytes_per_s is not None):
            raise ValueError("changes nothing: give delay, channel or bandwidth_bytes_per_s")
        return self


class RandomChanges(Section):
    """Change points drawn from the run's seed: when, and by which factor one parameter is multiplied (of its first value)."""

    count: Annotated[int, Field(ge=1, le=100_000)]
    """How many change points."""
    unit: Literal["rounds", "seconds"] = "rounds"
    """What `horizon` and `min_spacing` are in."""
    horizon: Annotated[float, Field(gt=0, le=1e12)] | None = None
    """Last round of a change, or the time before which all fall; absent: the run's rounds, or its time_limit_s."""
    min_spacing: NonNegative = 0.0
    """Least distance between changes, and of the first from the start, in `unit`."""
    parameter: str
    """Which parameter changes, as "delay.NAME" or "channel.NAME"."""
    factor_low: Positive = 0.5
    """Smallest factor; factors are drawn with a uniform logarithm."""
    factor_high: Positive = 2.0
    """Largest factor."""
    clients: SomeClients | None = None
    """A group's name or client indices; absent: all clients."""

    @model_validator(mode="after")
    def _in_order(self) -> RandomChanges:
        if self.factor_high < self.factor_low:
            raise problem(("factor_high",), self.factor_high, f"must be at least factor_low = {self.factor_low}")
        return self


class Compute(Section):
    """Local training as time: how long a client computes."""

    delay: part_of("delay") = {"kind": "constant", "value_s": 0.0}  # type: ignore[valid-type]
    """How long it takes, in seconds (for a link, beside the time that the bandwidth takes)."""
    changes: list[Change] = []
    """Change points, in order of time."""
    random_changes: RandomChanges | None = None
    """Change points drawn from the seed."""


class Downlink(Compute):
    """A link between server and clients: bytes over bandwidth, plus a delay, over a channel that may lose the transmission."""

    bandwidth_bytes_per_s: PerClientField | None = None
    """What a client sends or receives in a second. Absent: unlimited."""
    channel: part_of("channel") = {"kind": "perfect"}  # type: ignore[valid-type]
    """Whether a transmission gets through."""


class Uplink(Downlink):
    """The way back, with sub-channels."""

    sub_channels: Count | None = None
    """How many transmissions fit at once; the others wait in order. Absent: every client has its own sub-channel."""


class Channels(Downlink):
    """N sub-channels, on top of the clients' own links in `[uplink]`: an upload takes the delays of both, and both may lose it.

    Where a key may differ between clients, here it may between sub-channels.
    """

    count: Size
    """N, at least as many as clients."""
    states: part_of("states") | None = None  # type: ignore[valid-type]
    """Which sub-channels are Good when, as a table of means, written out or drawn; absent: `channel` says."""

    @model_validator(mode="after")
    def _one_law(self) -> Channels:
        laws = [change.channel for change in self.changes]
        drawn = self.random_changes is not None and self.random_changes.parameter.startswith("channel.")
        if self.states is not None and (self.channel.kind != "perfect" or any(laws) or drawn):
            raise problem(("states",), self.states.kind, "leave it out where channel, or a change of it, is given")
        return self


class Peers(PeerKeys, Downlink):
    """The links between clients (fl-da). A message takes distance over speed, bytes over bandwidth and a delay.

    A parameter that differs between clients is the sender's.
    """


class Opinions(OpinionKeys, Downlink):
    """What clients find when they test the model, and how the server hears of it (fl-fa): a dedicated channel for each."""


class Privacy(Section):
    """Local differential privacy: what each release may spend and how it is protected."""

    mechanism: Literal["laplace", "gaussian", "none"] = "laplace"
    """laplace: epsilon-LDP; gaussian: (epsilon, delta)-LDP; none: updates are released as they are, and nothing is spent."""
    guarantee: Literal["per_coordinate", "l1", "l2"] = "per_coordinate"
    """per_coordinate: each coordinate is clamped to +-sensitivity/2 (PAUSE's study); l1 (with laplace) and l2 (with gaussian):
    the whole update is clipped in this norm."""
    sensitivity: Positive
    """Delta_f: the largest distance of two clipped updates in the norm of the guarantee, or of two values of a coordinate."""
    delta: Annotated[float, Field(gt=0, lt=1)] | None = None
    """The delta of each release, for gaussian, where it is required."""
    schedule: part_of("schedule")  # type: ignore[valid-type]
    """The budget of each participation."""
    charge_on: Literal["upload", "delivery"] = "upload"
    """When a participation is spent: as the upload begins (a message that left the device is released), or on delivery."""

    @model_validator(mode="after")
    def _one_mechanism(self) -> Privacy:
        norm = {"laplace": "l1", "gaussian": "l2"}.get(self.mechanism)
        if norm is not None and self.guarantee not in ("per_coordinate", norm):
            raise problem(("guarantee",), self.guarantee, f"must be per_coordinate or {norm} for {self.mechanism} noise")
        if self.mechanism == "gaussian" and self.delta is None:
            raise problem(("delta",), None, "must be given for gaussian noise, in (0, 1)")
        if self.mechanism == "laplace" and self.delta is not None:
            raise problem(("delta",), self.delta, "must be left out: only gaussian noise has a delta")
        return self

    @property
    def mode(self) -> NoiseMode:
        """The noise mode, as `models.privacy` and the learner name it."""
        if self.mechanism == "gaussian" and self.guarantee == "per_coordinate":
            return "gaussian_per_coordinate"
        return "none" if self.mechanism == "none" else self.guarantee


class Metrics(Section):
    """What is measured beside the tables."""

    reward: part_of("reward") | None = None  # type: ignore[valid-type]
    """Reward and the genie's reward in every round (regret is their difference)."""
    oracle: Literal["means", "means-age", "csi", "none"] | None = None
    """Which oracle AoI regret is measured against (asynchronous server). means knows the sub-channels' present means and rotates
    the clients; means-age gives the best to the oldest; csi sees the states. Absent: means."""


class Output(Section):
    """What a run leaves."""

    clients_table: bool = True
    """Write clients.parquet, a row for each client's part in a round."""
    messages_table: bool = False
    """Write messages.parquet, a row for each message between clients (fl-da); every message is then played as an event."""


class Variant(Section):
    """One way to change the scenario, compared with the others on common random numbers."""

    name: Name
    """Names its folder."""
    label: str = ""
    """What tables and figures call it; absent: its name."""
    set: dict[str, Any] = {}
    """Keys to override, as in `--set`: {"policy.kind" = "random"}. Setting "x.kind" drops the other keys of x."""


class Sweep(Section):
    """Runs of one scenario that `netsim sweep` compares."""

    seeds: Annotated[list[Annotated[int, Field(ge=0, le=LARGEST)]], Field(min_length=1, max_length=10_000)] | None = None
    """Seeds of the runs of every variant; absent: the scenario's own `seed` alone."""
    variants: list[Variant] = []
    """What is compared; empty: the scenario as it stands."""
    grid: dict[str, Annotated[list[Any], Field(min_length=1)]] = {}
    """Keys with lists of values; every combination is a variant (of every variant above, if there are any)."""
    baseline: str | None = None
    """The variant others are compared with; absent: the first."""
    target_accuracy: Annotated[float, Field(gt=0, le=1)] | None = None
    """Compare the simulated seconds to this test accuracy."""


_SLOT_TABLES = ("slots", "opinions", "peers", "belief", "gossip")


class Scenario(Section):
    """A whole study. Times are seconds, sizes bytes; clients count from 0, rounds from 1."""

    name: Name
    """Names the study; its results go to runs/NAME unless `--out` says otherwise."""
    description: str = ""
    """What it shows, in a line."""
    seed: Annotated[int, Field(ge=0, le=LARGEST)] = 1
    """Everything random in a run follows from it."""
    rounds: Annotated[int, Field(ge=1, le=10**12)]
    """Rounds to play at most."""
    time_limit_s: Positive | None = None
    """Stop at this simulated time, even in mid-round."""
    clients: Clients
    """Who takes part."""
    server: server_field()  # type: ignore[valid-type]
    """How rounds go."""
    policy: part_of("policy") | None = None  # type: ignore[valid-type]
    """Who is selected (synchronous server)."""
    scheduler: part_of("scheduler") | None = None  # type: ignore[valid-type]
    """Who is given which sub-channel (asynchronous server)."""
    channels: Channels | None = None
    """The sub-channels of the uplink (asynchronous server)."""
    jammers: list[Jammer] = []
    """Who jams sub-channels (asynchronous server)."""
    slots: Slots | None = None
    """What a slot is made of (fl-fa, fl-da)."""
    opinions: Opinions | None = None
    """Tests of the model by all clients (fl-fa, fl-da)."""
    peers: Peers | None = None
    """The links between clients (fl-da; fl-fa leaves these three tables aside, so that the two can be compared in a sweep)."""
    belief: Belief | None = None
    """Belief propagation between clients (fl-da)."""
    gossip: Gossip | None = None
    """How clients spread their indices (fl-da)."""
    downlink: Downlink = Downlink()
    """The way of the model to the clients."""
    compute: Compute = Compute()
    """Local training as time."""
    uplink: Uplink = Uplink()
    """The way of the updates to the server."""
    availability: part_of("availability") = {"kind": "always"}  # type: ignore[valid-type]
    """When clients are present."""
    privacy: Privacy | None = None
    """Absent: updates are released as they are."""
    learner: Learner | None = None
    """Absent: a latency study, in which nothing is trained."""
    metrics: Metrics = Metrics()
    """What is measured beside the tables."""
    output: Output = Output()
    """What a run leaves."""
    sweep: Sweep = Sweep()
    """What `netsim sweep` compares; `netsim run` plays the scenario as it stands."""

    @property
    def method(self) -> Any:
        """The part that decides: who is selected, or who is given which sub-channel."""
        return self.scheduler if self.server.kind == "asynchronous" else self.policy

    @model_validator(mode="before")
    @classmethod
    def _with_slots(cls, value: Any) -> Any:
        # Tables that a server needs and that are all defaults are there; those of other servers are not.
        server = value.get("server") if isinstance(value, dict) else None
        kind = server.get("kind") if isinstance(server, dict) else getattr(server, "kind", None)
        by_slots = isinstance(kind, str) and kind in SLOT_KINDS
        return {**{name: {} for name in _SLOT_TABLES if name != "peers"}, **value} if by_slots else value

    @model_validator(mode="after")
    def _fits(self) -> Scenario:
        if self.server.kind == "synchronous":
            self._fits_synchronous()
        elif self.server.kind == "asynchronous":
            self._fits_asynchronous()
        else:
            self._fits_slots()
        if self.server.kind not in SLOT_KINDS:
            self._without_slots()
        payload, sizes = self.server.payload_bytes, self.clients.data_sizes
        if (payload or 0) * self.clients.count > LARGEST:
            raise problem(("server", "payload_bytes"), payload, "must be less; a round of all clients would pass 2^63 bytes")
        if self.learner is not None and sizes is not None:
            raise problem(("clients", "data_sizes"), sizes, "leave it out; learner.partition says who holds what")
        return self

    def _fits_synchronous(self) -> None:
        for name in ("scheduler", "channels", "jammers"):
            if getattr(self, name):
                raise problem((name,), "..", "belongs to the asynchronous server; leave it out, or set server.kind")
        if self.metrics.oracle is not None:
            raise problem(("metrics", "oracle"), self.metrics.oracle, "belongs to the asynchronous server; leave it out")
        if self.policy is None:
            raise missing("policy", self)
        if self.server.per_round > self.clients.count:
            raise problem(
                ("server", "per_round"),
                self.server.per_round,
                f"must be at most the {self.clients.count} clients of clients.count",
            )
        if self.server.first is not None and self.server.first > self.server.per_round:
            raise problem(
                ("server", "first"), self.server.first, f"must be at most the {self.server.per_round} clients of server.per_round"
            )

    def _without_slots(self) -> None:
        for name in _SLOT_TABLES:
            if getattr(self, name) is not None:
                raise problem((name,), "..", "belongs to servers with slots; leave it out, or set server.kind to fl-fa or fl-da")
        if self.policy is not None and self.policy.kind in (*OPINION_POLICIES, *INDEX_POLICIES):
            remedy = "fl-da" if self.policy.kind in INDEX_POLICIES else "fl-fa"
            raise problem(("policy", "kind"), self.policy.kind, f"learns from opinions; set server.kind = '{remedy}'")
        if self.output.messages_table:
            raise problem(
                ("output", "messages_table"), True, "there are messages between clients with server.kind = 'fl-da' only"
            )

    def _fits_slots(self) -> None:
        kind = self.server.kind
        for name in ("scheduler", "channels"):
            if getattr(self, name):
                raise problem((name,), "..", "belongs to the asynchronous server; leave it out, or set server.kind")
        if self.metrics.oracle is not None or self.metrics.reward is not None:
            raise problem(("metrics",), "..", "leave it out: the reward of a slot is the average opinion")
        if self.policy is None:
            raise missing("policy", self)
        if self.server.per_round > self.clients.count:
            raise problem(
                ("server", "per_round"), self.server.per_round, f"must be at most the {self.clients.count} of clients.count"
            )
        allowed = INDEX_POLICIES if kind == "fl-da" else (*OPINION_POLICIES, "random", "all")
        if ":" not in self.policy.kind and self.policy.kind not in allowed:
            raise problem(
                ("policy", "kind"), self.policy.kind, f"must be one of {', '.join(allowed)} where server.kind = '{kind}'"
            )
        if kind == "fl-da" and self.peers is None:
            raise missing("peers", self)
        if self.jammers and self.peers is None:
            raise problem(("jammers",), "..", "jam the links of [peers]; leave them out")
        assert self.opinions is not None
        if (self.learner is None) == (self.opinions.synthetic is None):
            raise problem(("opinions", "synthetic"), "..", "must be given where there is no [learner], and only there")

    def _fits_asynchronous(self) -> None:
        if self.policy is not None:
            raise problem(("policy",), self.policy.kind, "the asynchronous server selects nobody; leave it out, give [scheduler]")
        if self.metrics.reward is not None:
            raise problem(("metrics", "reward"), self.metrics.reward.kind, "measures a selection; leave it out")
        if self.uplink.sub_channels is not None:
            raise problem(("uplink", "sub_channels"), self.uplink.sub_channels, "leave it out: [channels] has the sub-channels")
        if self.scheduler is None or self.channels is None:
            raise missing("channels" if self.channels is None else "scheduler", self)
        if self.channels.count < self.clients.count:
            raise problem(
                ("channels", "count"), self.channels.count, f"must be at least the {self.clients.count} clients of clients.count"
            )
        names = [jammer.name for jammer in self.jammers]
        for i, jammer in enumerate(self.jammers):
            if names.index(jammer.name) < i:
                raise problem(("jammers", i, "name"), jammer.name, "is used twice; give every jammer its own name")
