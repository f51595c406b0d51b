"""The scenario file: every table, its keys, their units, defaults and limits. `netsim schema` prints it as JSON Schema."""

from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from models.fl.privacy.unprotected import Unprotected
from models.privacy import NoiseMode
from scenarios.registry.components import component_of
from scenarios.schema.energy import Energy
from scenarios.schema.fit import LARGEST, SLOT_TABLES, check_fit
from scenarios.schema.jamming import target_of
from scenarios.schema.learning import Learner
from scenarios.schema.network import Network
from scenarios.schema.payload import Payload
from scenarios.schema.probe import Probe, policy_probes
from scenarios.schema.script import script_field
from scenarios.schema.section import NO_VALUE, Section, Tables, default_table, problem
from scenarios.schema.servers.edges import Edges
from scenarios.schema.servers.flower import Flower, fill_implied, relax_required
from scenarios.schema.servers.kinds import Jammer, has_slots, server_field
from scenarios.schema.servers.slotted import Belief, Gossip, Slots
from scenarios.schema.work import Work
from scenarios.schema.world import Channels, ClientOutage, Clients, Compute, Downlink, Opinions, Peers, Positive, Uplink

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.+=-]*$", max_length=100)]


class Privacy(Section):
    """Local differential privacy: what each release may spend and how it is protected."""

    mechanism: Literal["laplace", "gaussian", "none"] = "laplace"
    """laplace: epsilon-LDP; gaussian: (epsilon, delta)-LDP; none: updates are released as they are, and nothing is spent."""
    guarantee: Literal["per_coordinate", "l1", "l2"] = "per_coordinate"
    """per_coordinate: each coordinate is clamped to +-sensitivity/2 (PAUSE's study); l1 (with laplace) and l2 (with gaussian):
    the whole update is clipped in this norm."""
    sensitivity: Annotated[float, Field(gt=0, le=1e38)]
    """Delta_f: the largest distance of two clipped updates in the norm of the guarantee, or of two values of a coordinate."""
    delta: Annotated[float, Field(gt=0, lt=1)] | None = None
    """The delta of each release, for gaussian, where it is required."""
    schedule: component_of("schedule")  # type: ignore[valid-type]
    """The budget of each participation."""
    accountant: Literal["sum", "rdp", "pld"] = "sum"
    """Accountant of all releases of a client together, in the summary and in reports. sum: budgets add up (PAUSE, Theorem 2);
    rdp, pld: by Renyi divergences or privacy loss distributions, at total_delta (dp-accounting, extra `privacy`), as a rule less.
    What tables call a leak, and what policies go by, is the sum in any case. Sampling of clients amplifies nothing here: the
    guarantee is against the server, which sees who sends each update."""
    total_delta: Annotated[float, Field(gt=0, lt=1)] | None = None
    """With rdp and pld: the delta of all releases of a client together."""
    charge_on: Literal["upload", "delivery"] = "upload"
    """Time at which a participation is spent: as the upload begins (a message that left is released), or on delivery."""
    unprotected: Unprotected | None = None
    """Parameters that are sent as they are, neither clipped nor noised; the summary then says so. batch-norm: weights,
    biases and running statistics of batch normalisation, as in the code of PAUSE's authors. Absent: nothing."""

    @model_validator(mode="after")
    def _check_mechanism(self) -> Self:
        """Refuse a guarantee or an accountant that the mechanism does not have, and a delta that is missing or needless."""
        norm = {"laplace": "l1", "gaussian": "l2"}.get(self.mechanism)
        if norm is not None and self.guarantee not in ("per_coordinate", norm):
            raise problem(("guarantee",), self.guarantee, f"must be per_coordinate or {norm} for {self.mechanism} noise")
        if self.mechanism == "gaussian" and self.delta is None:
            raise problem(("delta",), None, "must be given for gaussian noise, in (0, 1)")
        if self.accountant == "sum" and self.total_delta is not None:
            raise problem(("total_delta",), self.total_delta, "is of rdp and pld; leave it out, or set accountant")
        if self.accountant != "sum" and self.mechanism == "none":
            raise problem(("accountant",), self.accountant, "nothing is protected; leave it out, or set mechanism")
        if self.accountant != "sum" and self.total_delta is None:
            raise problem(("total_delta",), None, f"must be given for {self.accountant}, in (0, 1)")
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
    """Measures beside the tables."""

    reward: component_of("reward") | None = None  # type: ignore[valid-type]
    """Reward and the genie's reward in every round (regret is their difference)."""
    fastest_round: bool = False
    """Work out, for the summary, the expected latency of a round of the m clients that are fastest in expectation, under the laws
    of round 1. Takes a quarter of a second at m = 15, and grows with the square of m. Synchronous server."""
    oracle: Literal["means", "means-age", "csi", "none"] | None = None
    """Which oracle AoI regret is measured against (asynchronous server). means knows the sub-channels' present means and rotates
    the clients; means-age gives the best to the oldest; csi sees the states. Absent: means, or none where there are more clients
    than sub-channels, of which an oracle gives each client one."""


class Output(Section):
    """Files that a run leaves."""

    clients_table: bool = True
    """Write clients.parquet, one row for each attempt of a client."""
    messages_table: bool = False
    """Write messages.parquet, a row for each message between clients and each opinion (fl-da, fl-fa, peers); all are events."""
    transfers_table: bool = False
    """Write transfers.parquet, a row for each transfer with the links that limited it, and link_loads.parquet, the bytes on each
    link in each round (`[network]`)."""
    beliefs_table: bool = False
    """Write beliefs.parquet, a row for each client and slot, and links.parquet, the graph between the clients (fl-da)."""


class Variant(Section):
    """One way to change the scenario, compared with the others on common random numbers."""

    name: Name
    """Names its folder."""
    label: str = ""
    """Name in tables and figures; absent: its name."""
    set: dict[str, Any] = {}
    """Keys to override, as in `--set`: {"policy.kind" = "random"}. Setting "x.kind" drops the other keys of x, but for
    those that are set beside it or vary in the grid."""


class Until(Section):
    """Rule by which a sweep adds seeds."""

    metric: str
    """Name of the metric that is compared, such as final_accuracy, target_s, mean_round_s, regret (docs/metrics.md)."""
    names = frozenset({"against"})

    against: str | None = None
    """The variant that every other one is compared with, seed by seed; absent: the baseline."""
    half_width: Annotated[float, Field(gt=0)]
    """Add seeds until the interval of every difference is no wider than this to either side, in the metric's own unit."""
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95
    """Confidence of each interval. It holds at every number of seeds together, so that looking after each does no harm."""
    at_most: Annotated[int, Field(ge=2, le=10_000)] = 100
    """Seeds of each variant at most."""


class Sweep(Section):
    """Runs of one scenario that `netsim sweep` compares."""

    names = frozenset({"baseline"})

    seeds: Annotated[list[Annotated[int, Field(ge=0, le=LARGEST)]], Field(min_length=1, max_length=10_000)] | None = None
    """Seeds of the runs of every variant; absent: the scenario's own `seed` alone."""
    variants: list[Variant] = []
    """Variants that are compared; empty: the scenario as it stands."""
    grid: dict[str, Annotated[list[Any], Field(min_length=1)]] = {}
    """Keys with lists of values; every combination is a variant (of every variant above, if there are any)."""
    baseline: str | None = None
    """The variant others are compared with; absent: the first."""
    target_accuracy: Annotated[float, Field(gt=0, le=1)] | None = None
    """Compare the simulated seconds to this test accuracy, restricted to the end of the shortest run: give the variants a common
    `time_limit_s`."""
    smoothing_s: Annotated[float, Field(ge=0)] = 0.0
    """Average accuracies over so many simulated seconds, in figures and on the way to the target; 0: each evaluation as it is."""
    until: Until | None = None
    """Add seeds after those of `seeds` until differences are known well enough; absent: those of `seeds` are all."""


class Scenario(Section):
    """A whole study. Times are seconds, sizes bytes; clients count from 0, rounds from 1."""

    model_config = ConfigDict(json_schema_extra=relax_required)

    name: Name
    """Names the study; its results go to runs/NAME unless `--out` says otherwise."""
    description: str = ""
    """Purpose of the study, in a line."""
    seed: Annotated[int, Field(ge=0, le=LARGEST)] = 1
    """Everything random in a run follows from it."""
    rounds: Annotated[int, Field(ge=1, le=10**12)]
    """Rounds to run at most."""
    time_limit_s: Positive | None = None
    """Stop at this simulated time, even in mid-round."""
    clients: Clients
    """Clients that take part."""
    server: server_field()  # type: ignore[valid-type]
    """Course of the rounds."""
    edges: Edges | None = None
    """Edges between server and clients. Absent: the server coordinates the clients itself."""
    policy: component_of("policy") | None = None  # type: ignore[valid-type]
    """Policy that selects clients (synchronous server)."""
    probe: Probe | None = None
    """Probes of a policy that asks clients for their loss before it selects. Absent: over the links, with the defaults."""
    scheduler: component_of("scheduler") | None = None  # type: ignore[valid-type]
    """Scheduler that assigns the sub-channels (asynchronous server)."""
    channels: Channels | None = None
    """The sub-channels of the uplink (asynchronous server)."""
    jammers: list[Jammer] = []
    """Jammers of sub-channels, of links, of opinions, or of cables."""
    outages: list[ClientOutage] = []
    """Outages that cut off many clients together."""
    slots: Slots | None = None
    """Parts of a slot (fl-fa, fl-da)."""
    opinions: Opinions | None = None
    """Tests of the model by all clients (fl-fa, fl-da)."""
    peers: Peers | None = None
    """The links between clients (fl-da; fl-fa ignores these three tables, so that the two can be compared in a sweep)."""
    belief: Belief | None = None
    """Belief propagation between clients (fl-da)."""
    gossip: Gossip | None = None
    """Spreading of the clients' indices (fl-da)."""
    network: Network | None = None
    """Nodes and cables that all messages cross. Absent: each client has a link of its own, as `[downlink]` and `[uplink]` say."""
    downlink: Downlink = default_table()
    """The way of the model to the clients."""
    compute: Compute = default_table()
    """Local training as time."""
    uplink: Uplink = default_table()
    """The way of the updates to the server."""
    work: Work | None = None
    """Work of clients. Absent: that of `[learner]`; without one, unknown."""
    payload: Payload = default_table()
    """Sizes of the messages between server and clients, in bytes."""
    availability: component_of("availability") = {"kind": "always"}  # type: ignore[valid-type]
    """Presence of the clients."""
    energy: Energy | None = None
    """Power and batteries of the clients; absent: energy is not counted."""
    privacy: Privacy | None = None
    """Absent: updates are released as they are."""
    learner: Learner | None = None
    """Absent: a latency study, in which nothing is trained."""
    flower: Flower | None = None
    """A Flower app of your own, in place of `[learner]`, `[policy]` and `[server]`. Absent: none."""
    script: script_field() = None  # type: ignore[valid-type]
    """Script that acts on the run: a generator function of your own, by its name "module:function", or as a table with that
    as `kind` and with its further arguments. Absent: nothing."""
    metrics: Metrics = default_table()
    """Measures beside the tables."""
    output: Output = default_table()
    """Files that a run leaves."""
    sweep: Sweep = default_table()
    """Variants and seeds of `netsim sweep`; `netsim run` runs the scenario as it stands."""

    @property
    def method(self) -> Any:
        """The deciding component: the policy that selects clients, or the scheduler that assigns sub-channels."""
        deciders = {"policy": self.policy, "scheduler": self.scheduler, "server": self.server}
        # A user's server may select no clients, or select without a policy.
        return deciders[self.server.decider] or self.server

    @property
    def servers_of_clients(self) -> dict[tuple[str | int, ...], Any]:
        """Servers whose members are clients, by their path: `[server]`, or with `[edges]` those of the lowest tiers."""
        edges = self.edges
        if edges is None:
            return {("server",): self.server}
        return {("edges", "tiers", i, "server"): edges.tiers[i].server for i in edges.leaves()}

    @property
    def keeps_caches(self) -> bool:
        """True if the server, or a coordinator of clients, keeps a cache of the last models of its members."""
        return any(server.caches for server in (self.server, *self.servers_of_clients.values()))

    @property
    def oracle(self) -> str:
        """Return the name of the oracle of ages; "none" by default if there are more clients than sub-channels."""
        more_clients = self.channels is not None and self.channels.count < self.clients.count
        return self.metrics.oracle or ("none" if more_clients else "means")

    @property
    def jams_cables(self) -> bool:
        """True if a jammer jams cables of `[network]`."""
        return any(jammer.cables is not None for jammer in self.jammers)

    def jammers_of(self, target: str) -> list[Jammer]:
        """Return the jammers that jam `target`: "network" for cables, or a value of the key `jams`."""
        return [jammer for jammer in self.jammers if target_of(jammer, self) == target]

    @property
    def probes(self) -> bool:
        """True if the policy, or that of an edge, asks clients for their loss before it selects."""
        of_edges = [] if self.edges is None else self.edges.asking_tiers()
        return bool(of_edges) or policy_probes(self)

    @model_validator(mode="before")
    @classmethod
    def _fill_tables(cls, value: Any) -> object:
        """Add what the file leaves out: server and rounds of a `[flower]` app, and tables with all defaults for slots."""
        value = fill_implied(value)
        server = value.get("server") if isinstance(value, dict) else None
        if not has_slots(server):
            return value
        # Validators of the base class run later, so that a table left out by NO_VALUE is still there.
        defaults: Tables = {name: {} for name in SLOT_TABLES if value.get(name, NO_VALUE) in (None, NO_VALUE)}
        return value | defaults

    @model_validator(mode="after")
    def _check_fit(self) -> Self:
        check_fit(self)
        return self
