"""The `[server]` table, one model for each kind of loop, and the tables that belong to the asynchronous one."""

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from netsim.core.protocols import FloatArray
from scenarios.registry.components import component_of
from scenarios.schema.jamming import Jammed
from scenarios.schema.section import Section, missing, problem
from scenarios.schema.servers.base import Server, check_channels, refuse_oracle, refuse_reward, require_policy
from scenarios.schema.servers.buffered import Buffered
from scenarios.schema.servers.flower import FlowerServer
from scenarios.schema.servers.full_participation import Compass, Safa
from scenarios.schema.servers.own_server import OwnServer
from scenarios.schema.servers.peer_training import PeerTraining
from scenarios.schema.servers.slotted import SLOT_KINDS

if TYPE_CHECKING:
    from scenarios.schema.scenario import Scenario

Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]
Whole = Annotated[int, Field(ge=0)]


class Synchronous(Server):
    """A round waits for all selected clients, unless a deadline or a count of deliveries closes it earlier."""

    kind: Literal["synchronous"] = "synchronous"
    """synchronous: rounds one after the other, each with the clients selected for it."""
    per_round: Count
    """m, clients selected a round."""
    deadline_s: Positive | None = None
    """Close a round this long after its start; later arrivals are late. Absent: no deadline."""
    first: Count | None = None
    """Close a round at this many deliveries (over-selection: the first n of m). Absent: wait for all."""
    at_least: Count | None = None
    """Wait for so many deliveries, whatever the deadline, unless fewer can still arrive. Absent: the deadline closes a round."""
    when_short: Literal["wait", "proceed"] = "wait"
    """Fewer than m selectable: wait until there are m, or go on with those there are (at least one)."""
    reselect_busy: bool = False
    """True: a client that is still computing or sending may be selected; its old update is then aborted."""
    stragglers: Literal["finish", "cancel"] = "finish"
    """Clients that missed the close of a round go on until they are done (and stay busy), or stop at once."""
    contention: bool = False
    """With `[channels]`: two clients may be on one sub-channel at once; where they meet on it, both updates are lost. Else the
    later one waits until the sub-channel is free."""

    why_no_tier: ClassVar[str] = ""
    closes_by_deadline: ClassVar[bool] = True
    waits_for_all: ClassVar[bool] = True
    fresh: ClassVar[bool] = True
    probes: ClassVar[bool] = True

    def check(self, scenario: "Scenario") -> None:
        """Refuse a scenario without a policy, with too few clients or sub-channels, or with counts above `per_round`."""
        refuse_oracle(scenario)
        check_channels(scenario, self.contention, "server.per_round", self.per_round)
        require_policy(scenario, "per_round", self.per_round)
        if self.first is not None and self.first > self.per_round:
            raise problem(("server", "first"), self.first, f"must be at most the {self.per_round} clients of server.per_round")
        if self.at_least is not None and self.at_least > self.per_round:
            reason = f"must be at most the {self.per_round} clients of server.per_round"
            raise problem(("server", "at_least"), self.at_least, reason)

    @property
    def waits_past_limit(self) -> bool:
        """True with `at_least`, which makes a round wait past its deadline."""
        return self.at_least is not None

    @property
    def needed_clients(self) -> int:
        """Clients that must be present for a round to begin: all that it selects, unless it goes on with fewer."""
        return self.per_round if self.when_short == "wait" else 1

    @property
    def updates_at_once(self) -> int:
        """Updates of an aggregation if none is lost: all that a round waits for; with a deadline only `at_least` are certain."""
        if self.deadline_s is not None:
            return self.at_least or 1
        return self.first or self.per_round

    def shortest_round_s(self, whole_s: FloatArray, *, sure: bool, fewest: int | None, rounds: int) -> float:
        """Return the earliest time of the last delivery that a round waits for, or its deadline, seconds; 0 if unknown."""
        if not sure:
            return 0.0
        selected = fewest or self.per_round
        last_s = float(whole_s[min(selected, self.first or selected) - 1])
        return min(last_s, self.deadline_s or last_s)


class Asynchronous(Server):
    """Every round each client present is given a sub-channel of `[channels]` by `[scheduler]` and sends the update it holds.

    A client is sent the new model once its update has arrived; the others keep their update and send it again. Ages of
    information are counted.
    """

    kind: Literal["asynchronous"] = "asynchronous"
    """asynchronous: every client takes part in every round, over the sub-channels."""
    round_s: Positive | None = None
    """A round lasts so long; what is not finished is cut and sent again. Absent: a round ends when nothing is sent any more."""
    wait_for_compute: bool = False
    """True: a round of no fixed length also waits for clients that still get the model or compute."""
    contention: bool = False
    """Two clients may be given one sub-channel; where they meet on it, both updates are lost. Else this is refused."""

    decider: ClassVar[Literal["policy", "scheduler", "server"]] = "scheduler"
    limit_key: ClassVar[str] = "round_s"
    limits: ClassVar[Literal["update", "transmission"]] = "transmission"
    why_no_tier: ClassVar[str] = "assigns the sub-channels of [channels], which belong to one server"

    def check(self, scenario: "Scenario") -> None:
        """Refuse tables that do not go with this server, which needs `[channels]` and `[scheduler]` and selects no clients."""
        if scenario.policy is not None:
            kind = scenario.policy.kind
            raise problem(("policy",), kind, "the asynchronous server selects nobody; leave it out, give [scheduler]")
        refuse_reward(scenario, "measures a selection; leave it out")
        if scenario.channels is None and scenario.scheduler is None:
            raise missing("channels", scenario)
        check_channels(scenario, self.contention, "clients.count", scenario.clients.count)
        oracle, channels = scenario.metrics.oracle, scenario.channels
        if oracle not in (None, "none") and channels is not None and channels.count < scenario.clients.count:
            reason = f"gives each of {scenario.clients.count} clients one of channels.count = {channels.count}; leave it out"
            raise problem(("metrics", "oracle"), oracle, reason)

    def describe(self, scenario: "Scenario") -> str:
        """Describe the participation: all clients, and the number of sub-channels."""
        return f"all of them on {scenario.channels.count if scenario.channels is not None else 0} sub-channels"

    def shortest_round_s(self, whole_s: FloatArray, *, sure: bool, fewest: int | None, rounds: int) -> float:
        """Return the length of a round, seconds; without a fixed one the earliest time of the first delivery."""
        if self.round_s is not None:
            return self.round_s
        return float(whole_s[0]) if sure else 0.0


class SemiSynchronous(Server):
    """Rounds of fixed length: a client that misses a close enters the next round.

    As a round opens the policy chooses among the clients that are not at work, at most `per_round`; where there is none, the
    round passes with those at work. As it closes, all updates that arrived since the last close make a new model. No update is
    late; it may have started from an old version (`learner.staleness`).
    """

    kind: Literal["semi-synchronous"] = "semi-synchronous"
    """semi-synchronous: rounds of fixed length; an update that misses a close enters the next round."""
    per_round: Count
    """m, clients selected a round, as long as so many are not at work."""
    round_s: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    """Length of a round: round t ends at t times this."""
    contention: bool = False
    """With `[channels]`: two clients may be on one sub-channel at once; where they meet on it, both updates are lost. Else the
    later one waits until the sub-channel is free."""

    from_opening: ClassVar[bool] = False
    """True if a round lasts `round_s` from its opening; False if the rounds divide the time of the run."""
    why_no_tier: ClassVar[str] = ""
    probes: ClassVar[bool] = True

    @property
    def longest_probe_s(self) -> float:
        """The length of a round: rounds do not wait for probes."""
        return self.round_s

    def check(self, scenario: "Scenario") -> None:
        """Refuse a scenario without a policy or with too few clients or sub-channels for a round, a reward, and a buffer."""
        refuse_oracle(scenario)
        check_channels(scenario, self.contention, "server.per_round", self.per_round)
        require_policy(scenario, "per_round", self.per_round)
        refuse_reward(scenario, "measures a selection of m clients and what came of it in the same round; leave it out")
        if scenario.learner is not None and scenario.learner.buffer > 1:
            raise problem(("learner", "buffer"), scenario.learner.buffer, "leave it out: every close makes a new model")

    def shortest_round_s(self, whole_s: FloatArray, *, sure: bool, fewest: int | None, rounds: int) -> float:
        """Return the length of a round, seconds."""
        return self.round_s


class Jammer(Section):
    """One jammer: what it does, what it can reach, and what it may spend."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$")]
    """Name in the tables."""
    law: component_of("jammer")  # type: ignore[valid-type]
    """Law of the sub-channels that it jams in each dwell."""
    jams: Jammed | None = None
    """What it jams, by the table that describes it. channels: sub-channels; peers: links between clients; opinions: their way to
    the server; uplink, downlink: each client's own link, numbered as the client, with all that crosses it, probes among it.
    Absent: the first of peers, channels and opinions that there are, or `cables`."""
    reach: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)] | None = None
    """The sub-channels it can jam (peers: links, in the order of their numbers in jams.parquet; opinions, uplink, downlink:
    clients); absent: all."""
    links: Annotated[list[Annotated[list[Whole], Field(min_length=2, max_length=2)]], Field(min_length=1)] | None = None
    """In place of `reach`: the links between clients that it can jam, as pairs of neighbours."""
    cables: Literal["all"] | Annotated[list[str], Field(min_length=1)] | None = None
    """In place of `jams` and `reach`: it jams cables of `[network]`, by their names, or "all". What crosses a jammed cable is
    lost."""
    at_once: Count = 1
    """Its power: how many sub-channels it can jam in one dwell."""
    budget: Annotated[int, Field(ge=0)] | None = None
    """Number of sub-channels that it can jam in all, each dwell counted; absent: no end."""
    dwell_rounds: Count | None = None
    """A dwell lasts so many rounds; absent: 1, unless dwell_s is given."""
    dwell_s: Positive | None = None
    """A dwell lasts so many seconds, whatever the rounds do."""
    start: NonNegative | Literal["script"] | None = None
    """The round, or with dwell_s the time in seconds, of its first dwell; absent: from the beginning; "script": it rests until a
    script starts it."""

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        """Refuse two keys for the length of a dwell, and two for the targets."""
        if self.dwell_rounds is not None and self.dwell_s is not None:
            raise problem(("dwell_s",), self.dwell_s, "give either dwell_rounds or dwell_s")
        if self.reach is not None and self.links is not None:
            raise problem(("links",), self.links, "give either reach or links")
        if self.cables is not None and (self.reach is not None or self.links is not None):
            raise problem(("cables",), self.cables, "give one of reach, links and cables")
        if self.cables is not None and self.jams is not None:
            raise problem(("jams",), self.jams, "leave it out, or leave out cables: a jammer has one target")
        return self


class _SynchronousByDefault:
    """Annotation of the field `server`: a table without a `kind` is the synchronous server."""

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(_add_kind, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        described = handler(schema)
        for kind in described["anyOf"]:
            if kind["properties"]["kind"].get("const") == "synchronous":
                kind["required"] = [name for name in kind["required"] if name != "kind"]
        return described


def _add_kind(value: object) -> object:
    """Return a table without a `kind` as one of the synchronous server, any other value unchanged."""
    if isinstance(value, dict) and "kind" not in value:
        return {"kind": "synchronous", **value}
    return value


KINDS: dict[str, type[Server]] = {
    "synchronous": Synchronous,
    "semi-synchronous": SemiSynchronous,
    "asynchronous": Asynchronous,
    "buffered": Buffered,
    "safa": Safa,
    "compass": Compass,
    **SLOT_KINDS,
    "flower": FlowerServer,
    "peers": PeerTraining,
}


def server_field() -> object:
    """Return the type of the field that holds the `[server]` table."""
    return Annotated[component_of("server", described=KINDS, base=OwnServer), _SynchronousByDefault()]


def has_slots(server: object) -> bool:
    """Return True if a `[server]` table, read or not yet, is of a kind with slots."""
    if isinstance(server, Server):
        return server.slotted
    kind = server.get("kind") if isinstance(server, dict) else None
    return isinstance(kind, str) and kind in KINDS and KINDS[kind].slotted
