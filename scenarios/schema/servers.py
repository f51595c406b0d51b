"""The `[server]` table, one model for each kind of loop, and the tables that belong to the asynchronous one."""

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from netsim.core.protocols import FloatArray
from scenarios.registry.components import component_of
from scenarios.schema.section import Section, missing, problem
from scenarios.schema.server import (
    Server,
    check_channels,
    refuse_aggregation,
    refuse_oracle,
    refuse_policy,
    refuse_reward,
    require_policy,
)
from scenarios.schema.slotted import SLOT_KINDS
from scenarios.schema.world import SPEEDS

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
    when_short: Literal["wait", "proceed"] = "wait"
    """Fewer than m selectable: wait until there are m, or go on with those there are (at least one)."""
    reselect_busy: bool = False
    """Whether a client that is still computing or sending may be selected; its old update is then aborted."""
    stragglers: Literal["finish", "cancel"] = "finish"
    """What clients do that missed the close of a round: go on until they are done (and stay busy), or stop at once."""
    contention: bool = False
    """With `[channels]`: two clients may be on one sub-channel at once; where they meet on it, both updates are lost. Else the
    later one waits until the sub-channel is free."""

    closes_by_deadline: ClassVar[bool] = True
    waits_for_all: ClassVar[bool] = True
    fresh: ClassVar[bool] = True
    probes: ClassVar[bool] = True

    def check(self, scenario: "Scenario") -> None:
        """It selects by a policy, over the links of `[uplink]`, and sub-channels where there are any."""
        refuse_oracle(scenario)
        check_channels(scenario, self.contention, "server.per_round", self.per_round)
        require_policy(scenario, "per_round", self.per_round)
        if self.first is not None and self.first > self.per_round:
            raise problem(("server", "first"), self.first, f"must be at most the {self.per_round} clients of server.per_round")

    @property
    def needed_clients(self) -> int:
        """All that are selected, where a round waits for them."""
        return self.per_round if self.when_short == "wait" else 1

    @property
    def updates_at_once(self) -> int:
        """Of all that are awaited, unless a deadline comes before."""
        return 1 if self.deadline_s is not None else self.first or self.per_round

    def shortest_round_s(self, whole_s: FloatArray, *, sure: bool, fewest: int | None, rounds: int) -> float:
        """Until the last that is awaited delivers, or the deadline."""
        if not sure:
            return 0.0
        selected = fewest or self.per_round
        last_s = float(whole_s[min(selected, self.first or selected) - 1])
        return min(last_s, self.deadline_s or last_s)


class Asynchronous(Server):
    """Every round each client present is given a sub-channel of `[channels]` by `[scheduler]` and sends the update it holds.

    Whose update arrived is sent the new model; the others keep theirs and send it again. Ages of information are counted.
    """

    kind: Literal["asynchronous"] = "asynchronous"
    """asynchronous: every client takes part in every round, over the sub-channels."""
    round_s: Positive | None = None
    """A round lasts so long; what is not finished is cut and sent again. Absent: a round ends when nothing is sent any more."""
    wait_for_compute: bool = False
    """Whether a round of no fixed length also waits for everyone who still gets the model or computes."""
    contention: bool = False
    """Two clients may be given one sub-channel; where they meet on it, both updates are lost. Else this is refused."""

    decider: ClassVar[Literal["policy", "scheduler", "server"]] = "scheduler"
    limit_key: ClassVar[str] = "round_s"
    limits: ClassVar[Literal["update", "transmission"]] = "transmission"

    def check(self, scenario: "Scenario") -> None:
        """It needs `[channels]` and `[scheduler]`, and selects nobody."""
        if scenario.policy is not None:
            kind = scenario.policy.kind
            raise problem(("policy",), kind, "the asynchronous server selects nobody; leave it out, give [scheduler]")
        refuse_reward(scenario, "measures a selection; leave it out")
        if scenario.channels is None and scenario.scheduler is None:
            raise missing("channels", scenario)
        check_channels(scenario, self.contention, "clients.count", scenario.clients.count)

    def in_words(self, scenario: "Scenario") -> str:
        """Everyone, on so many sub-channels."""
        return f"all of them on {scenario.channels.count if scenario.channels is not None else 0} sub-channels"

    def shortest_round_s(self, whole_s: FloatArray, *, sure: bool, fewest: int | None, rounds: int) -> float:
        """The length of a round, or until the first update is there."""
        if self.round_s is not None:
            return self.round_s
        return float(whole_s[0]) if sure else 0.0


class Buffered(Server):
    """So many clients are at work at all times, and every `buffer` deliveries make a new model: a round.

    Whoever ends is followed by another client, chosen by the policy, which is asked for one at a time. A client is not chosen in
    the round in which its last update ended. No update is late; it may have started from an old version (`learner.staleness`).
    To PAUSE, m is `buffer` in eq. 8, so that clients are chosen in proportion to their data, and 1 in eq. 13 and 14.
    """

    kind: Literal["buffered"] = "buffered"
    """buffered: asynchronous, a new model after so many deliveries (FedBuff), or after each (FedAsync)."""
    concurrency: Count
    """Clients at work at once, as long as there are so many to choose from."""
    buffer: Count = 1
    """Deliveries that make a new model."""
    contention: bool = False
    """With `[channels]`: two clients may be on one sub-channel at once; where they meet on it, both updates are lost. Else the
    later one waits until the sub-channel is free."""

    why_no_probes: ClassVar[str] = (
        "the buffered server selects one client at a time while others are at work; set server.kind = 'synchronous' or "
        "'semi-synchronous'"
    )

    def check(self, scenario: "Scenario") -> None:
        """It selects by a policy, one client at a time, over the links of `[uplink]`, and sub-channels where there are any."""
        refuse_oracle(scenario)
        check_channels(scenario, self.contention, "server.concurrency", self.concurrency)
        require_policy(scenario, "concurrency", self.concurrency)
        refuse_reward(scenario, "measures a selection of m clients; leave it out")
        if scenario.learner is not None and scenario.learner.buffer > 1:
            buffer = scenario.learner.buffer
            raise problem(("learner", "buffer"), buffer, "leave it out: server.buffer says what makes a new model")

    def in_words(self, scenario: "Scenario") -> str:
        """So many at work, and what makes a new model."""
        return f"{self.concurrency} at work, a new model of every {self.buffer} deliveries"

    def shortest_round_s(self, whole_s: FloatArray, *, sure: bool, fewest: int | None, rounds: int) -> float:
        """Until so many clients have delivered: each does so once in a round at most."""
        return float(whole_s[min(self.buffer, len(whole_s)) - 1])


class SemiSynchronous(Server):
    """Rounds of fixed length: a client that misses a close enters the next round.

    As a round opens the policy chooses among the clients that are not at work, at most `per_round`; where there is none, the
    round passes with those at work. As it closes, all updates that arrived since the last close make a new model. No update is
    late; it may have started from an old version (`learner.staleness`).
    """

    kind: Literal["semi-synchronous"] = "semi-synchronous"
    """semi-synchronous: rounds of fixed length, and whoever misses a close enters the next round."""
    per_round: Count
    """m, clients selected a round, as long as so many are not at work."""
    round_s: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    """How long a round lasts: round t ends at t times this."""
    contention: bool = False
    """With `[channels]`: two clients may be on one sub-channel at once; where they meet on it, both updates are lost. Else the
    later one waits until the sub-channel is free."""

    probes: ClassVar[bool] = True

    @property
    def longest_probe_s(self) -> float:
        """A round."""
        return self.round_s

    def check(self, scenario: "Scenario") -> None:
        """It selects by a policy, over the links of `[uplink]`, and sub-channels where there are any."""
        refuse_oracle(scenario)
        check_channels(scenario, self.contention, "server.per_round", self.per_round)
        require_policy(scenario, "per_round", self.per_round)
        refuse_reward(scenario, "measures a selection of m clients and what came of it in the same round; leave it out")
        if scenario.learner is not None and scenario.learner.buffer > 1:
            raise problem(("learner", "buffer"), scenario.learner.buffer, "leave it out: every close makes a new model")

    def shortest_round_s(self, whole_s: FloatArray, *, sure: bool, fewest: int | None, rounds: int) -> float:
        """The length of a round."""
        return self.round_s


class Safa(Server):
    """All clients train all the time; of the updates that arrive in a round so many are picked for its model (SAFA).

    A round begins with a distribution by version: who has delivered is sent the new model; whoever works on a model more than
    `lag_tolerance` rounds old is forced to take it, and its update ends as aborted; the others go on. The model is the mean of a
    cache that holds the last update of every client, weighted by their samples; what arrived and was not picked enters it for the
    next round. Updates of clients that were not picked in the last round have priority.
    """

    kind: Literal["safa"] = "safa"
    """safa: semi-asynchronous, every client at work, a share of what arrives picked, a cache of all."""
    per_round: Count
    """Updates picked a round: the share C of K clients."""
    lag_tolerance: Whole = 5
    """Rounds that a model may be behind for its client to go on with it."""
    deadline_s: Positive | None = None
    """Close a round this long after its start; what arrives later counts for a later round. Absent: no deadline."""
    selection: Literal["first-come", "after-all"] = "first-come"
    """first-come: a round closes once so many updates are there that the picks are settled, and the others go on. after-all: it
    waits for everyone, or the deadline, and picks then, as the authors' simulator does; its length up to the last of the picked
    is the column picked_s; an update that began in an earlier round is not picked."""
    order: Literal["arrival", "speed"] = "arrival"
    """With after-all, who is picked first: who arrived first, or who trains fastest by the speed in `[compute]`."""
    contention: bool = False
    """With `[channels]`: two clients may be on one sub-channel at once; where they meet on it, both updates are lost. Else the
    later one waits until the sub-channel is free."""

    decider: ClassVar[Literal["policy", "scheduler", "server"]] = "server"
    caches: ClassVar[bool] = True
    why_no_probes: ClassVar[str] = "the server of SAFA selects nobody; leave it out"

    @property
    def limit_s(self) -> float | None:
        """None: what misses a close counts for a later round."""
        return None

    def check(self, scenario: "Scenario") -> None:
        """It selects nobody, and aggregates by its cache."""
        refuse_oracle(scenario)
        refuse_policy(scenario)
        refuse_reward(scenario, "measures a selection, and here everyone takes part; leave it out")
        count = scenario.clients.count
        check_channels(scenario, self.contention, "clients.count", count)
        if self.per_round > count:
            raise problem(("server", "per_round"), self.per_round, f"must be at most the {count} clients of clients.count")
        if self.order == "speed":
            if self.selection != "after-all":
                why = "goes with selection = 'after-all'; otherwise who comes first is picked"
                raise problem(("server", "order"), "speed", why)
            if not any(getattr(scenario.compute, name) is not None for name in SPEEDS):
                why = f"nothing says how fast clients train; give one of {', '.join(SPEEDS)} in [compute]"
                raise problem(("server", "order"), "speed", why)
        refuse_aggregation(scenario, "the cache is averaged by the clients' samples, whatever their age")

    def in_words(self, scenario: "Scenario") -> str:
        """Everyone, and how many are picked."""
        return f"all at work, {self.per_round} picked a round"

    def shortest_round_s(self, whole_s: FloatArray, *, sure: bool, fewest: int | None, rounds: int) -> float:
        """Unknown: what was begun earlier may arrive at once."""
        return 0.0


class Compass(Server):
    """Every client is at work with as many steps as make it arrive together with others (FedCompass, Li et al. 2024).

    The server measures each client's seconds per step, transfers included. Clients whose steps can be chosen so that they come
    together form a group; once all of it have arrived, or at its latest time, their updates make a model: a round. A client's
    first update has `max_steps` and is applied alone. An update later than its group enters the next model.
    """

    kind: Literal["compass"] = "compass"
    """compass: steps by speed, so that clients arrive in groups (FedCompass)."""
    min_steps: Count = 20
    """Q_min, the fewest local steps of an update."""
    max_steps: Count = 100
    """Q_max, the most."""
    slack: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 1.5
    """lambda: a group waits for so many times the time that its first member is expected to take."""
    contention: bool = False
    """With `[channels]`: two clients may be on one sub-channel at once; where they meet on it, both updates are lost. Else the
    later one waits until the sub-channel is free."""

    decider: ClassVar[Literal["policy", "scheduler", "server"]] = "server"
    why_no_probes: ClassVar[str] = "the server of FedCompass selects nobody; leave it out"

    def check(self, scenario: "Scenario") -> None:
        """It selects nobody, and gives steps to clients of known speed."""
        refuse_oracle(scenario)
        refuse_policy(scenario)
        refuse_reward(scenario, "measures a selection, and here everyone takes part; leave it out")
        check_channels(scenario, self.contention, "clients.count", scenario.clients.count)
        if self.max_steps < self.min_steps:
            raise problem(("server", "max_steps"), self.max_steps, f"must be at least the {self.min_steps} of server.min_steps")
        if not any(getattr(scenario.compute, name) is not None for name in SPEEDS):
            why = f"gives clients steps by their speed; give one of {', '.join(SPEEDS)} in [compute]"
            raise problem(("server", "kind"), "compass", why)
        learner = scenario.learner
        if learner is None:
            return
        if learner.aggregation.kind in ("size", "equal"):
            why = "would replace the model by a client's first update, which is applied alone; set kind = 'fixed-share'"
            raise problem(("learner", "aggregation", "kind"), learner.aggregation.kind, why)
        if learner.buffer > 1:
            raise problem(("learner", "buffer"), learner.buffer, "leave it out: every close makes a new model")

    def in_words(self, scenario: "Scenario") -> str:
        """Everyone, and how many steps."""
        return f"all at work, {self.min_steps} to {self.max_steps} steps"

    def shortest_round_s(self, whole_s: FloatArray, *, sure: bool, fewest: int | None, rounds: int) -> float:
        """Unknown: what was begun earlier may arrive at once."""
        return 0.0


class Jammer(Section):
    """One jammer: what it does, what it can reach, and what it may spend."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$")]
    """What the tables call it."""
    law: component_of("jammer")  # type: ignore[valid-type]
    """What it jams in each dwell."""
    reach: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)] | None = None
    """The sub-channels it can jam (fl-da: links, in the order of their numbers in jams.parquet); absent: all."""
    links: Annotated[list[Annotated[list[Whole], Field(min_length=2, max_length=2)]], Field(min_length=1)] | None = None
    """fl-da, in place of `reach`: the links it can jam, as pairs of neighbours."""
    at_once: Count = 1
    """Its power: how many sub-channels it can jam in one dwell."""
    budget: Annotated[int, Field(ge=0)] | None = None
    """How many sub-channels it can jam in all, each dwell counted; absent: no end."""
    dwell_rounds: Count | None = None
    """A dwell lasts so many rounds; absent: 1, unless dwell_s is given."""
    dwell_s: Positive | None = None
    """A dwell lasts so many seconds, whatever the rounds do."""
    start: NonNegative | Literal["script"] | None = None
    """The round, or with dwell_s the time in seconds, of its first dwell; absent: from the beginning; "script": it rests until a
    script starts it."""

    @model_validator(mode="after")
    def _one_dwell(self) -> Self:
        if self.dwell_rounds is not None and self.dwell_s is not None:
            raise problem(("dwell_s",), self.dwell_s, "give either dwell_rounds or dwell_s")
        if self.reach is not None and self.links is not None:
            raise problem(("links",), self.links, "give either reach or links")
        return self


class _Synchronous:
    """Marks `[server]`: where it names no kind, it is the synchronous one."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(_with_kind, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        described = handler(schema)
        for kind in described["anyOf"]:
            if kind["properties"]["kind"].get("const") == "synchronous":
                kind["required"] = [name for name in kind["required"] if name != "kind"]
        return described


def _with_kind(value: Any) -> Any:
    return {"kind": "synchronous", **value} if isinstance(value, dict) and "kind" not in value else value


KINDS: dict[str, type[Server]] = {
    "synchronous": Synchronous,
    "semi-synchronous": SemiSynchronous,
    "asynchronous": Asynchronous,
    "buffered": Buffered,
    "safa": Safa,
    "compass": Compass,
    **SLOT_KINDS,
}


def server_field() -> Any:
    """The type of the field that holds the `[server]` table."""
    return Annotated[component_of("server", described=KINDS, closed=True), _Synchronous()]


def by_slots(server: Any) -> bool:
    """Whether a `[server]` table, read or not yet, is of a kind with slots."""
    if isinstance(server, Server):
        return server.slotted
    kind = server.get("kind") if isinstance(server, dict) else None
    return isinstance(kind, str) and kind in KINDS and KINDS[kind].slotted
