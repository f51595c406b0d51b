"""The tables of servers with slots, FL&FA and FL&DA (Tong et al. 2024). Without a learner opinions follow a law."""

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator
from pydantic.json_schema import JsonSchemaValue

from netsim.core.protocols import FloatArray
from scenarios.registry.components import component_of
from scenarios.schema.peers import Pause
from scenarios.schema.per_client import PER_CLIENT_JSON, PerClientField, read_per_client
from scenarios.schema.section import Section, missing, problem, refusal
from scenarios.schema.servers.base import Server, check_channels, refuse_oracle, refuse_reward, require_policy

if TYPE_CHECKING:
    from scenarios.schema.scenario import Scenario

Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]
Bytes = Annotated[int, Field(ge=0, le=10**12)]
OPINION_POLICIES = ("super-arm-ucb", "quick-init-ucb", "round-robin", "random-set", "fixed-set")
"""Policies that select by opinions (fl-fa); fl-fa also accepts random and all."""
INDEX_POLICIES = ("bp-index",)
"""Policies whose index each client computes of itself (fl-da)."""


class _Slotted(Server):
    """Communication rounds of a slot, for both kinds. `rounds` at the top of the file counts slots."""

    per_round: Count
    """m, clients that take part in a slot."""
    deadline_s: Positive | None = None
    """Close a communication round this long after its start; later arrivals are late. Absent: no deadline."""
    when_short: Literal["wait", "proceed"] = "wait"
    """A member of the slot is away or busy as a round begins: wait for it, or go on with those there are (at least one)."""
    reselect_busy: bool = False
    """True: a member that is still computing or sending takes part in the next round; its old update is then aborted."""
    stragglers: Literal["finish", "cancel"] = "finish"
    """Members that missed the close of a round go on until they are done (and stay busy), or stop at once."""
    contention: bool = False
    """With `[channels]`: two clients may be on one sub-channel at once; where they meet on it, both updates are lost. Else the
    later one waits until the sub-channel is free."""

    slotted: ClassVar[bool] = True
    why_no_tier: ClassVar[str] = "divides the rounds of one server into slots, in which clients share sub-channels"
    closes_by_deadline: ClassVar[bool] = True
    fresh: ClassVar[bool] = True
    policies: ClassVar[tuple[str, ...]]
    """The built-in policies it goes with."""

    def check(self, scenario: "Scenario") -> None:
        """Refuse tables and policies that do not go with slots. Opinions must come either from a learner or from a law."""
        refuse_oracle(scenario)
        check_channels(scenario, self.contention, "server.per_round", self.per_round)
        refuse_reward(scenario, "leave it out: a slot's reward is the average opinion")
        policy = require_policy(scenario, "per_round", self.per_round)
        is_built_in = ":" not in policy.kind
        if is_built_in and policy.kind not in self.policies:
            allowed = ", ".join(self.policies)
            raise problem(("policy", "kind"), policy.kind, f"must be one of {allowed} where server.kind = '{self.kind}'")
        self.check_peers(scenario)
        assert scenario.opinions is not None
        if (scenario.learner is None) == (scenario.opinions.synthetic is None):
            raise problem(("opinions", "synthetic"), "..", "must be given where there is no [learner], and only there")

    def check_peers(self, scenario: "Scenario") -> None:
        """Raise a pydantic refusal if links between clients are needed and missing; here none are needed."""

    def shortest_round_s(self, whole_s: FloatArray, *, sure: bool, fewest: int | None, rounds: int) -> float:
        """Return a lower bound on a slot, seconds: each of its rounds lasts as long as the fastest client, or to its deadline."""
        fastest_s = float(whole_s[0])
        return rounds * min(fastest_s, self.deadline_s or fastest_s) if sure else 0.0


class FlFa(_Slotted):
    """FL&FA: all clients upload their opinions of the model, and the server's policy selects the members of the next slot."""

    kind: Literal["fl-fa"] = "fl-fa"
    """fl-fa: slots; the server sees all opinions. `[peers]`, `[belief]` and `[gossip]` are left aside."""

    policies: ClassVar[tuple[str, ...]] = (*OPINION_POLICIES, "random", "all")


class FlDa(_Slotted):
    """FL&DA: the clients exchange beliefs and indices over the links of `[peers]`, and the best m by index take part."""

    kind: Literal["fl-da"] = "fl-da"
    """fl-da: slots; the clients decide among themselves."""

    policies: ClassVar[tuple[str, ...]] = INDEX_POLICIES
    peer_to_peer: ClassVar[bool] = True
    sends_between_clients: ClassVar[bool] = True

    def check_peers(self, scenario: "Scenario") -> None:
        """Raise a pydantic refusal if there are no links between clients, over which they exchange beliefs."""
        if scenario.peers is None:
            raise missing("peers", scenario)


class Slots(Section):
    """Parts of a slot."""

    rounds: Count = 15
    """L, communication rounds of a slot."""
    reset_each_slot: bool = False
    """True: every slot trains the first model again; otherwise the model goes on."""
    start: Literal["agreement", "deadline", "zero"] = "agreement"
    """Start of training (fl-da). agreement: as soon as all clients name the same m; deadline: deadline_s after the slot's
    start, with the clients that then believe to be among the m; zero: messages take no time and none is lost, as in the paper."""
    deadline_s: Positive | None = None
    """Seconds from the slot's start until training starts at the latest; for deadline, exactly then."""
    engine: Literal["auto", "events", "wave"] = "auto"
    """Simulation of messages: one by one (events), by closed forms (wave: refused where they never hold, and a run
    ends in the first slot in which they do not), or by these where they hold (auto). The results are the same."""

    @model_validator(mode="after")
    def _check_start(self) -> Self:
        """Refuse a start at a deadline without one, and a deadline where messages take no time."""
        if self.start == "deadline" and self.deadline_s is None:
            raise problem(("deadline_s",), None, "must be given where start = 'deadline'")
        if self.start == "zero" and self.deadline_s is not None:
            raise problem(("deadline_s",), self.deadline_s, "leave it out where start = 'zero': messages take no time")
        return self


class Synthetic(Section):
    """Opinions by a law, for studies of time without a learner.

    A slot's level is the mean worth of the updates delivered in it; an opinion mixes it with the client's own worth, and noise.
    """

    worth: PerClientField = 0.5
    """Each client's worth, in [0, 1]."""
    own: Fraction = 0.2
    """Weight of a client's own worth in its opinion, against the level."""
    noise: NonNegative = 0.02
    """Standard deviation of an opinion."""
    memory: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the last slot's level in this one's: a model that goes on."""
    start: Fraction = 0.1
    """The level before slot 1."""


def _read_samples(value: object) -> object:
    """Return "local" as it is, and other values as numbers per client."""
    if isinstance(value, str) and value != "local":
        raise refusal("must be 'local', or numbers of samples")
    return value if isinstance(value, str) else read_per_client(value)


_SAMPLES_JSON: JsonSchemaValue = {"anyOf": [{"const": "local"}, PER_CLIENT_JSON]}


class OpinionKeys(Section):
    """Tests of the model by clients, and their way to the server (fl-fa): a dedicated channel for each."""

    local: Literal["iid", "own"] = "iid"
    """Samples of a client's test: an i.i.d. share of the test set, or samples of the labels it holds (with a learner)."""
    test: component_of("delay") = {"kind": "constant", "value_s": 0.0}  # type: ignore[valid-type]
    """Time of a client's test."""
    test_samples: Annotated[Any, BeforeValidator(_read_samples), WithJsonSchema(_SAMPLES_JSON)] | None = None
    """Samples of the test, each of which takes `work.forward_share` of the time of training on it, beside `test`; "local": all of
    the local test set (with `[learner]`). Needs a speed in `[compute]`. Absent: the test takes `test` alone."""
    size_bytes: Bytes = 8
    """Size of an opinion as it is uploaded."""
    max_resends: Annotated[int, Field(ge=0, le=999)] = 0
    """Number of times that a lost opinion is sent again. One that never arrives leaves the client's last one in its place."""
    wait_s: Pause | None = None
    """Seconds after the last test that the server waits for opinions; absent: for all that may come."""
    synthetic: Synthetic | None = None
    """Opinions by a law, in place of `[learner]`."""


Exchanges = Annotated[int, Field(ge=1, le=100_000)]
"""Largest number of exchanges of messages in a slot: more would take seconds of computing."""


class Belief(Section):
    """Belief propagation between the clients (fl-da)."""

    model: Literal["ising", "opinion"] = "ising"
    """ising: the form of the paper's proof of convergence; opinion: the printed equations, in which no message says anything."""
    coupling: NonNegative = 0.05
    """J0 of J = J0 exp(-attenuation d^exponent), d in km."""
    attenuation: NonNegative = 0.001
    """C; with the paper's -30 dB distance does not matter within a square of 1 km."""
    exponent: NonNegative = 3.7
    """beta, the path-loss exponent."""
    strict: bool = False
    """Refuse couplings for which the condition for one fixed point fails, instead of warning."""
    update: Literal["synchronous", "asynchronous"] = "synchronous"
    """synchronous: a client sends exchange k+1 when it has all of k; asynchronous: it sends what has changed, on arrival."""
    exchanges: Exchanges | None = None
    """Number of exchanges, whether settled or not (synchronous); absent: until no message changes."""
    max_exchanges: Exchanges = 1000
    """Most exchanges (asynchronous: messages on an edge)."""
    tolerance: NonNegative = 1e-9
    """Largest change of a message that counts as none, in log-odds."""
    damping: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the old message in the new one."""
    work_s: Pause = 0.0
    """Seconds of a client from the last arrival to its next messages; asynchronous: arrivals meanwhile are taken together.
    Asynchronous without it, every arrival is answered at once, and messages multiply until changes fall below the tolerance, up
    to max_exchanges an edge: a warning says where that threatens."""
    message_bytes: Bytes = 24
    """Size of a message."""


class Gossip(Section):
    """Spreading of the clients' indices (fl-da)."""

    forwarding: Literal["flooding", "push", "push-pull"] = "flooding"
    """flooding: each client forwards what is new to it; push: each tells a random neighbour all it knows; push-pull: and the
    neighbour answers with all it knows."""
    payload: Literal["all", "best"] = "all"
    """Pairs of client and index that clients keep and tell: all that they know, or the best m."""
    interval_s: Pause = 0.01
    """Time between the repetitions of push."""
    max_repetitions: Annotated[int, Field(ge=1, le=10**7)] = 10_000
    """Most repetitions of push in a slot."""
    work_s: Pause = 0.0
    """Seconds that a client needs to forward (flooding)."""
    header_bytes: Bytes = 16
    """Size of a message without pairs."""
    pair_bytes: Bytes = 12
    """Size of a pair in a message."""
    ties: Literal["random", "first"] = "random"
    """Of equal indices: a random one in each slot, or the lower client."""


SLOT_KINDS: dict[str, type[Server]] = {"fl-fa": FlFa, "fl-da": FlDa}
