"""Members of a `[server]` table of any kind, for the rest of a scenario and for messages."""

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar, Literal

from netsim.core.protocols import FloatArray
from scenarios.registry.components import Component
from scenarios.registry.kinds import resolve
from scenarios.schema.section import missing, problem

if TYPE_CHECKING:
    from scenarios.schema.scenario import Scenario


class Server(Component):
    """Base of all kinds of servers. A kind overrides its differences, so that no other code tests `server.kind`."""

    decider: ClassVar[Literal["policy", "scheduler", "server"]] = "policy"
    """Table that decides about selection or sub-channels: "policy", "scheduler", or "server" if nothing is to decide."""
    slotted: ClassVar[bool] = False
    """True if a round of the run is a slot of several communication rounds, after which all clients test the model."""
    peer_to_peer: ClassVar[bool] = False
    """True if the clients decide among themselves, by messages."""
    sends_between_clients: ClassVar[bool] = False
    """True if clients send each other messages over the links of `[peers]`."""
    sends_updates: ClassVar[bool] = True
    """True if clients are sent a model and send an update over `[downlink]` and `[uplink]`."""
    trains_peers: ClassVar[bool] = False
    """True if there is no server: peers train and send each other models."""
    driven_by_app: ClassVar[bool] = False
    """True if the Flower app of `[flower]` opens and closes the rounds."""
    why_no_tier: ClassVar[str] = "coordinates clients alone"
    """Reason why it is no coordinator of a tree of `[edges]`, neither at the top nor at an edge; empty: it is one."""
    why_not_of_edges: ClassVar[str] = ""
    """Reason why its members cannot be edges, where it may be an edge's server; empty: they can."""
    waits_for_all: ClassVar[bool] = False
    """True if m clients are selected together, and a round lasts as long as the slowest of them unless it closes earlier."""
    fresh: ClassVar[bool] = False
    """True if every update that is aggregated started from the present model."""
    closes_by_deadline: ClassVar[bool] = False
    """True if a round may end at a deadline, with the updates that have arrived."""
    limit_key: ClassVar[str] = "deadline_s"
    """Key with the longest time that a round waits."""
    limits: ClassVar[Literal["update", "transmission"]] = "update"
    """Phases that must fit into the time of `limit_key`. "update": download, training and upload; "transmission": the upload
    alone, because an upload that was cut off is sent again.
    """

    gives_steps: ClassVar[bool] = False
    """True if the server sets the local steps of each update, in place of the planned ones."""
    probes: ClassVar[bool] = False
    """True if a policy selects all clients of a round at once, so that it may probe clients before."""
    why_no_probes: ClassVar[str] = "with this server nobody is selected round by round; set server.kind = 'synchronous'"
    """Reason and remedy in the message where `probes` is False and the policy probes."""

    own: ClassVar[bool] = False
    """True for a user's class, which gives meaning to its keys."""
    moved: ClassVar[dict[str, str]] = {"payload_bytes": "is no key any more; set payload.down_bytes and payload.up_bytes"}

    @property
    def notifies(self) -> bool:
        """True if a notice may end local training early."""
        return False

    @property
    def caches(self) -> bool:
        """True if the model is the mean of a cache with an entry for every client."""
        return False

    @property
    def contends(self) -> bool:
        """True if two clients may use one of the sub-channels of `[channels]` at once."""
        return bool(self.parameters().get("contention"))

    @property
    def longest_probe_s(self) -> float | None:
        """Seconds within which probes must have ended; None: no limit."""
        return None

    @property
    def limit_s(self) -> float | None:
        """Longest time that a round waits, seconds; None: no limit."""
        limit: float | None = self.parameters().get(self.limit_key)
        return limit

    @property
    def waits_past_limit(self) -> bool:
        """True if a round may go on after `limit_s`."""
        return False

    @property
    def needed_clients(self) -> int:
        """Least number of clients present at the beginning of a round."""
        return 1

    @property
    def updates_at_once(self) -> int:
        """Number of updates of an aggregation if none is lost or late; 1 if that is not certain."""
        return 1

    @abstractmethod
    def check(self, scenario: "Scenario") -> None:
        """Raise a pydantic refusal for the first table or key that this server does not go with."""

    def check_members(self, scenario: "Scenario", place: tuple[str | int, ...], *, of_edges: bool) -> None:
        """Raise a pydantic refusal for what does not go with this table at `place`. `of_edges`: its members are edges.

        This default refuses nothing.
        """

    def check_policy(self, policy: Component, scenario: "Scenario") -> None:
        """Raise a pydantic refusal of a policy of `scenario` that does not go with the other keys of this table.

        This default refuses policies that need late updates if every update is fresh. Policies of opinions are not checked.
        """
        parameters = policy.parameters() if self.fresh else {}
        for name, value in resolve("policy", policy.kind).uses_late_where.items():
            if parameters.get(name) is value:
                reason = f"counts on late updates, which server.kind = {self.kind!r} drops; leave it out"
                raise problem(("policy", name), value, reason)

    def describe(self, scenario: "Scenario") -> str:
        """Return the clients of a round in a few words."""
        return f"{self.parameters()['per_round']} a round"

    @abstractmethod
    def shortest_round_s(self, whole_s: FloatArray, *, sure: bool, fewest: int | None, rounds: int) -> float:
        """Return a time before which no round can end, seconds; 0 if unknown.

        `whole_s` (K,): smallest duration of an update of each client, ascending. `sure`: True if no update ends before the end
        of its upload. `fewest`: smallest number of selected clients; None: the number requested. `rounds`: communication rounds
        of a slot.
        """


def refuse_oracle(scenario: "Scenario") -> None:
    """Refuse an oracle of AoI (age of information), which is defined only where every client transmits in every round."""
    if scenario.metrics.oracle is not None:
        raise problem(("metrics", "oracle"), scenario.metrics.oracle, "belongs to the asynchronous server; leave it out")


def check_channels(scenario: "Scenario", contention: bool, key: str, senders: int) -> None:
    """Refuse sub-channels without a scheduler, and fewer sub-channels than `senders` (the clients of a round, set by `key`).

    With `contention`, schedulers that allow two clients on one sub-channel may have any number of sub-channels.
    """
    channels, scheduler = scenario.channels, scenario.scheduler
    if channels is None and scheduler is None:
        if contention:
            raise problem(("server", "contention"), True, "is about the sub-channels of [channels]; leave it out")
        return
    if scheduler is None or channels is None:
        raise missing("channels" if channels is None else "scheduler", scenario)
    if scenario.uplink.sub_channels is not None:
        raise problem(("uplink", "sub_channels"), scenario.uplink.sub_channels, "leave it out: [channels] has the sub-channels")
    if scenario.uplink.max_resends and scenario.uplink.resend_after_s:
        why = "leave it out: a client keeps its sub-channel, and sends a lost update again at once"
        raise problem(("uplink", "resend_after_s"), scenario.uplink.resend_after_s, why)
    contends = resolve("scheduler", scheduler.kind).contends
    if contends and not contention:
        raise problem(("scheduler", "kind"), scheduler.kind, "lets clients collide; set server.contention = true")
    if channels.count < senders and not contends:
        why = f"must be at least the {senders} clients of {key}"
        if contention:
            why += f": scheduler.kind = {scheduler.kind!r} gives each one of its own; set scheduler.kind = 'random-access'"
        raise problem(("channels", "count"), channels.count, why)


def require_policy(scenario: "Scenario", key: str, selected: int) -> Component:
    """Return the policy. Refuse a scenario without one, and more `selected` clients (by `key` of the server) than there are."""
    if scenario.policy is None:
        raise missing("policy", scenario)
    if selected > scenario.clients.count:
        raise problem(("server", key), selected, f"must be at most the {scenario.clients.count} clients of clients.count")
    policy: Component = scenario.policy
    return policy


def refuse_policy(scenario: "Scenario") -> None:
    """Refuse a policy, where all clients take part."""
    if scenario.policy is not None:
        reason = f"server.kind = {scenario.server.kind!r} selects nobody: all clients take part; leave it out"
        raise problem(("policy", "kind"), scenario.policy.kind, reason)


def refuse_aggregation(scenario: "Scenario", why: str) -> None:
    """Refuse weights by staleness, a learner's buffer, and aggregations but the default. `why`: the reason, for the message."""
    learner = scenario.learner
    if learner is None:
        return
    for name, default in (("aggregation", "size"), ("staleness", "none")):
        kind = getattr(learner, name).kind
        if kind != default:
            raise problem(("learner", name, "kind"), kind, f"leave it out: {why}")
    if learner.buffer > 1:
        raise problem(("learner", "buffer"), learner.buffer, "leave it out: every close makes a new model")


def refuse_reward(scenario: "Scenario", why: str) -> None:
    """Refuse `metrics.reward`, a measure of the policy's selection; `why`: the reason and the remedy, for the message."""
    if scenario.metrics.reward is not None:
        raise problem(("metrics", "reward"), scenario.metrics.reward.kind, why)
