"""Protocols that models satisfy and the engine calls, and the plain data that passes between them.

Everything is an array over clients (or over the clients of one round); an object per client is not the normal form, so that a
million clients fit. `K` is the number of clients, `n` the number of clients in one round, `m` the number a server asks for.
Clients count from 0, rounds from 1, times are simulated seconds.

A member that a Protocol here gives a value, or that is marked `@optional`, may be left out of a class of the user's own: the
Protocol's value is then the class's (`scenarios.registry.protocols`), so that the engine never asks what a component can do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from netsim.core.reports import NOBODY_PROBED, Probed, RoundOutcome

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
LawT = TypeVar("LawT", covariant=True)
Notes = dict[str, Any]
"""Entries of a summary, as plain data."""
State = dict[str, Any]
"""Plain data: numbers, strings, NumPy arrays, and lists and dicts of these. What `state_dict` returns is a copy: later rounds do
not change it; what `load_state_dict` is given is not kept."""

AnyMethod = TypeVar("AnyMethod", bound=Callable[..., Any])


def optional(method: AnyMethod) -> AnyMethod:
    """Mark a method of a Protocol that a class may leave out: its body is the default."""
    setattr(method, OPTIONAL, True)
    return method


OPTIONAL = "netsim_optional"
"""The attribute that marks such methods."""


class Stateful(Protocol):
    """Carries state from round to round and can hand it out and take it back."""

    def state_dict(self) -> State: ...

    def load_state_dict(self, state: State) -> None: ...


class Draws(Protocol):
    """Addressed uniforms (`netsim.core.streams.Stream`): who else is asked for changes no draw."""

    def uniforms(self, index: int, size: int) -> FloatArray:
        """Draws of entities 0..size-1 at `index`, each in [0, 1); shape (size,)."""

    def uniforms_at(self, index: int, entities: IntArray, size: int) -> FloatArray:
        """`uniforms(index, size)[entities]`, without drawing all of it where that is cheaper; shape (n,)."""


class DelayLaw(Protocol):
    """A law of durations in seconds, given by its quantile function, so that a draw is a uniform and nothing else."""

    constant: bool = False
    """True if durations do not depend on the draw, which is then spared in expectations."""

    def quantile(self, u: FloatArray, entities: IntArray) -> FloatArray:
        """Durations of `entities` (n,) at uniforms `u` (n,) in [0, 1); seconds, shape (n,), finite and >= 0."""

    def mean_s(self, entities: IntArray) -> FloatArray:
        """Expected durations of `entities`; seconds, shape (n,)."""


class WorkLaw(Protocol):
    """Amount of local training of an update."""

    eager: bool = False
    """True if only training itself tells: `begin` is then called for every update, and its answer holds."""

    @property
    def samples(self) -> IntArray | None:
        """(K,) samples that an update of each client processes, as planned; None if unknown."""

    @property
    def drawn(self) -> IntArray | None:
        """(K,) steps of an update of each client, as planned, those included that are left out; None if unknown."""

    @property
    def a_pass(self) -> IntArray | None:
        """(K,) steps of a pass over the samples of each client; None if the numbers of samples are unknown."""

    def plan_steps(self, round: int, clients: IntArray) -> IntArray | None:
        """(n,) steps that updates of `clients` (n,) begun in `round` are asked for, where no policy says so; None: as planned."""

    def amounts(self, clients: IntArray, steps: IntArray | None = None) -> tuple[Sequence[int | None], Sequence[int | None]]:
        """Return the samples that updates of `clients` (n,) process, and the steps that they take; None if unknown.

        `steps` (n,): each is asked for so many; None: as planned.
        """

    def begin(
        self, round: int, version: int, clients: IntArray, steps: IntArray | None
    ) -> tuple[Sequence[int | None], Sequence[int | None]]:
        """Return `amounts` of the updates of `clients` (n,) that begin in `round` with the model `version`."""

class BandwidthLaw(Protocol):
    """Bytes a second that each client's link carries over time, piecewise constant."""

    def ends_s(self, start_s: FloatArray, size_bytes: FloatArray, entities: IntArray) -> FloatArray:
        """Return the times at which transfers of `size_bytes` (n,), begun at `start_s` (n,), are through; inf: never; (n,).

        The first instants at which the integrals of the bandwidth from `start_s` on are `size_bytes`.
        """

    def served_bytes(self, start_s: FloatArray, end_s: FloatArray, entities: IntArray) -> FloatArray:
        """The integrals of the bandwidth from `start_s` (n,) to `end_s` (n,), none of them earlier; shape (n,)."""

    def rate(self, time_s: float, entities: IntArray) -> FloatArray:
        """Bytes a second at `time_s` and until the next change; shape (n,)."""

    def next_change_s(self, time_s: float, entities: IntArray) -> FloatArray:
        """Return the next time after `time_s` at which the rate of each of `entities` may change; inf: never; (n,)."""

    def mean_rate(self, entities: IntArray) -> FloatArray:
        """Bytes a second in the long run, > 0; shape (n,)."""

    @optional
    def peak_rate(self, entities: IntArray) -> FloatArray:
        """Return the least upper bound known of the rates of `entities` (n,), bytes a second; (n,)."""
        return np.full(len(entities), np.inf)

    @optional
    def stops_s(self, entities: IntArray) -> FloatArray:
        """From when on nothing ever passes again, so that what is then under way is lost; inf: never; shape (n,)."""
        return np.full(len(entities), np.inf)


class Timeline(Protocol[LawT]):
    """A law that may be replaced by another at change points, in rounds or in seconds."""

    fixed: bool = False
    """True if the law is the same for ever: then it is asked once."""

    def at(self, round: int, time_s: float) -> tuple[LawT, float]:
        """The law in force in `round` at `time_s`, and until when it stays so while the round lasts (inf: to its end)."""


class ChannelLaw(Stateful, Protocol):
    """Loss of transmissions: one sub-channel for each entity."""

    memoryless: bool
    """True: `step` does nothing and need not be called."""

    def step(self, u: FloatArray) -> None:
        """Advance every sub-channel by one round; `u` (K,) uniforms, one for each sub-channel."""

    def good(self, u: FloatArray, entities: IntArray) -> BoolArray:
        """Return True for each of `entities` (n,) whose transmission in this round survives, at uniforms `u` (n,)."""

    def success_probability(self, entities: IntArray) -> FloatArray:
        """Probability that a transmission survives, in the long run; shape (n,)."""


class ChannelStates(Timeline[ChannelLaw], Protocol):
    """The states of the sub-channels over a run, and what is known of them, for a summary."""

    unit: Literal["rounds", "seconds"] = "rounds"
    """Unit of `starts`."""
    starts: Sequence[float] = ()
    """Starts of the segments after the first, ascending."""
    segment_means: FloatArray | None = None
    """(segments, N) the probabilities of the sub-channels to be Good; None: not known."""


class Availability(Stateful, Protocol):
    """Presence of the clients as two arrays, looked up rather than simulated."""

    on: BoolArray
    """(K,) who is present at the time of the last `advance`."""
    next_change_s: FloatArray
    """(K,) when each client next comes or goes; inf: never."""
    settles: bool = True
    """True if presence is final once no client comes or goes by `next_change_s`."""

    def advance(self, now_s: float, draws: Draws) -> None:
        """Bring both arrays up to `now_s` (never earlier than before): changes at exactly `now_s` have happened."""

    @optional
    def changes(self, now_s: float, draws: Draws) -> Iterator[tuple[IntArray, FloatArray]]:
        """Advance as `advance` does, change by change: yield the clients (n,) that came or went, and the times (n,).

        `on` is left as after each change; each client's changes come in order of time. This default advances time by time.
        """
        while (next_s := float(self.next_change_s.min())) <= now_s:
            due = np.flatnonzero(self.next_change_s == next_s)
            self.advance(next_s, draws)
            yield due, np.full(len(due), next_s)
        self.advance(now_s, draws)

    @optional
    def notes(self) -> Notes:
        """Return entries of the summary about presence, beyond the scenario's; plain data."""
        return {}

    @optional
    def forecast(self, from_s: float, to_s: float) -> FloatArray:
        """(K,) the share of [`from_s`, `to_s`] in which each client will be present, as can be told at the last `advance`.

        What is left out says that who is present stays so, and who is away stays away.
        """
        return self.on.astype(np.float64)


@dataclass(frozen=True, slots=True)
class RoundView:
    """View of a selection policy as a round begins."""

    round: int
    time_s: float
    selectable: BoolArray
    """(K,) present and not busy."""
    participations: IntArray
    """(K,) noisy updates each client has released so far: the T of the privacy leak (PAUSE eq. 7)."""
    rng: np.random.Generator
    """The policy's own stream of this round; not to be kept."""
    probed: Probed = NOBODY_PROBED
    """Answers to the probes that the policy asked for in this round."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Clients, and how much each is to train, which a policy may return in place of an array of clients."""

    clients: IntArray
    """(n,) as `SelectionPolicy.select` returns them."""
    steps: IntArray
    """(n,) local steps of each, >= 1."""


class SelectionPolicy(Stateful, Protocol):
    """Chooses the clients of a round."""

    needs_updates: bool
    needs_losses: bool = False
    """True if the policy reads the losses of `RoundOutcome.reports`."""
    probes: bool = False
    """True if the policy asks clients for their loss before it selects. Read from the class, before there is an object."""

    question: Literal["loss", "request", "profile"] = "loss"
    """Question of a probe: the loss of the present model; a small answer to a small message ("request"); an
    update that takes as long as any and is thrown away."""
    asks_again: bool = False
    """True if `probe` is called again in the same round once all have answered or failed, until it names no client."""
    may_select_nobody: bool = False
    """True if `select` may return no client; the round then passes without updates. Read from the class."""
    counts_updates: bool = False
    """True if it depends on the number of updates of a model (`per_model`), which the server must know. Read from the class."""
    selects_everyone: bool = False
    """True if it selects all selectable clients, however many it is asked for. Of the class likewise."""
    probes_where: Mapping[str, tuple[str, ...]] = {}
    """Parameters, and the values of them with which the policy probes. Read from the class. Empty: with all values."""

    uses_late_where: Mapping[str, bool] = {}
    """Flags, and the value with which it counts on late updates to enter models; of the class likewise. Empty: it never does."""
    tests: bool = False
    """True if `probe` has just asked not for the `question`, but for the accuracy of the present model on test data of the
    client's own."""
    tests_where: Mapping[str, tuple[str, ...]] = {}
    """Parameters, and the values of them with which `tests` may be true. Read from the class. Empty: never."""

    restarts: Sequence[tuple[int, int]] = ()
    """(round, client) of every change of a client's latency that it declared so far, in order."""

    @optional
    def probe(self, view: RoundView) -> IntArray:
        """Return distinct clients to ask for the loss of the present model before `select`; shape (d,), may be empty.

        Called once a round if the policy `probes`; `view.selectable` marks the clients that are present and not busy.
        """
        return np.zeros(0, np.int64)

    def select(self, view: RoundView) -> IntArray | Selection:
        """Distinct selectable clients; shape (n,). Fewer than m only where fewer are selectable."""

    def observe(self, outcome: RoundOutcome) -> None:
        """Learn from the round just closed; called once a round, after `select`."""


class Accountant(Stateful, Protocol):
    """Counts what each client has released, and which budget its next release may spend."""

    participations: IntArray
    """(K,) releases so far."""
    exhausted: BoolArray
    """(K,) clients whose budget allows no further release; they are not selectable."""

    def charge(self, client: int) -> tuple[float, float]:
        """Count one more release of `client`: its budget epsilon_i (inf where nothing is protected) and its leak so far."""

    def charge_all(self, clients: IntArray) -> tuple[FloatArray, FloatArray]:
        """`charge` each of distinct `clients` (n,): their budgets and their leaks, (n,) both."""

    def max_leak(self) -> float:
        """The largest composed leak over clients so far (0 without a privacy mechanism)."""


@dataclass(frozen=True, slots=True)
class Deliveries:
    """All that one aggregation needs; each array has one entry a delivered update, in the order of delivery."""

    round: int
    clients: IntArray
    rounds: IntArray
    """The round in which each update was started: with the client, the address of its random draws."""
    versions: IntArray
    """The model version each update started from."""
    epsilon: FloatArray
    """The privacy budget each update spends; inf: no noise."""
    steps: IntArray | None = None
    """The local steps that each update was asked for; 0: as planned. None: all are as planned."""
    held: BoolArray | None = None
    """(n,) which of them enter the model only at the next aggregation, where the server keeps a cache; None: none."""
    renewed: IntArray | None = None
    """(j,) clients whose entries in that cache are replaced by the present model before the aggregation; None: none."""


class Evaluation(Protocol):
    """Quality of the present model on the test set."""

    @property
    def accuracy(self) -> float:
        """Share of samples classified rightly, in [0, 1]."""

    @property
    def loss(self) -> float:
        """Mean loss, finite."""

    @property
    def training_loss(self) -> float:
        """Mean loss of the samples trained on since the last evaluation; NaN: not measured, or there were none."""

    @property
    def metrics(self) -> Mapping[str, float]:
        """Return the values of further metrics by name."""

    @property
    def columns(self) -> Mapping[str, float]:
        """Return the values of further columns of the round by name; `Learner.round_columns` has their names."""


class Content(Protocol):
    """Content of delivered updates, as far as it was asked for; an entry for each update, in the order of deliveries."""

    @property
    def updates(self) -> FloatArray | None:
        """(n, d) the update vectors, as the server received them."""

    @property
    def loss(self) -> FloatArray | None:
        """(n,) mean loss of the first pass over the client's samples, as training saw them; NaN: there was none."""

    @property
    def loss_rms(self) -> FloatArray | None:
        """(n,) root mean square of the losses of all samples of that pass."""


class Learner(Stateful, Protocol):
    """Computes the content of delivered updates, and only of those."""

    aggregates: bool = True
    """True if deliveries change it; a learner that they do not change gets no calls."""
    round_columns: Sequence[str] = ("accuracy", "loss", "training_loss")
    """Columns of rounds that `evaluate` fills."""
    records_losses: bool
    """True if the losses of delivered updates go to the record of attempts."""

    @property
    def version(self) -> int:
        """Counts the aggregations that changed the model, from 0."""

    def aggregate(self, deliveries: Deliveries, want_updates: bool, want_losses: bool = False) -> Content | None:
        """Train what was delivered, all in one call, and fold it into the model; what is wanted of it, None: nothing is."""

    def evaluate(self, round: int, time_s: float, last: bool) -> Evaluation | None:
        """Quality of the present model, or None where none is due at this round."""

    def losses_of(self, clients: IntArray, round: int, samples: int | None) -> FloatArray:
        """(n,) mean loss of the present model on the clients' own samples, or on so many of each, drawn at (`round`, client)."""

    def accuracies_of(self, clients: IntArray) -> FloatArray:
        """(n,) accuracy of the present model on test data of the clients' own, in [0, 1]; NaN where nothing is trained."""

    def retain(self, versions: list[int]) -> None:
        """All versions that updates under way started from, told after every round by a server that lets updates outlast it."""

    def contribution(self) -> FloatArray | None:
        """(K,) marginal contributions of the clients to the model, each >= 0; None if no difference is known."""


class RewardMeter(Stateful, Protocol):
    """Measures a policy from outside: its reward and the genie's (PAUSE eq. 9, 10, 15)."""

    def measure(self, outcome: RoundOutcome, view: RoundView, latency_s: Callable[[IntArray], FloatArray]) -> tuple[float, float]:
        """Reward of the set just selected and of the genie's in this round (NaN: not measured).

        `view` is what the policy saw as the round began; `latency_s` gives any clients' latency in this round.
        """
