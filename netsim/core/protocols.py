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
from netsim.core.state import State as State  # noqa: TC001 - imported from here, too

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
LawT = TypeVar("LawT", covariant=True)
Notes = dict[str, Any]
"""Entries of a summary, as plain data."""

AnyMethod = TypeVar("AnyMethod", bound=Callable[..., Any])


def optional(method: AnyMethod) -> AnyMethod:
    """Mark a method of a Protocol that a class may leave out: its body is the default."""
    setattr(method, OPTIONAL, True)
    return method


OPTIONAL = "netsim_optional"
"""Attribute that marks methods decorated by `optional`."""


class Stateful(Protocol):
    """Object with a state that can be saved and restored."""

    def state_dict(self) -> State:
        """Return the state as plain data, a copy."""

    def load_state_dict(self, state: State) -> None:
        """Restore a state that `state_dict` returned."""


class Draws(Protocol):
    """Addressed uniforms (`netsim.core.streams.Stream`): a draw does not depend on which others are read."""

    def uniforms(self, index: int, size: int) -> FloatArray:
        """Return draws of entities 0..size-1 at `index`, each in [0, 1); shape (size,)."""

    def uniforms_at(self, index: int, entities: IntArray, size: int) -> FloatArray:
        """Return `uniforms(index, size)[entities]`, drawing only these if that is cheaper; shape (n,)."""


class DelayLaw(Protocol):
    """A law of durations in seconds, given by its quantile function, so that a draw is a uniform and nothing else."""

    constant: bool = False
    """True if durations do not depend on the draw, so that expectations need none."""

    def quantile(self, u: FloatArray, entities: IntArray) -> FloatArray:
        """Return the durations of `entities` (n,) at uniforms `u` (n,) in [0, 1); seconds, shape (n,), finite and >= 0."""

    def mean_s(self, entities: IntArray) -> FloatArray:
        """Return the expected durations of `entities`; seconds, shape (n,)."""


class WorkLaw(Protocol):
    """Amount of local training of an update."""

    eager: bool = False
    """True if the amount is known only by training: `begin` is then called for every update, and its answer counts."""

    @property
    def samples(self) -> IntArray | None:
        """Planned number of samples (K,) that an update of each client processes; None if unknown."""

    @property
    def drawn(self) -> IntArray | None:
        """Planned number of steps (K,) of an update of each client, skipped steps included; None if unknown."""

    @property
    def a_pass(self) -> IntArray | None:
        """Number of steps (K,) of a pass over the samples of each client; None if the numbers of samples are unknown."""

    def plan_steps(self, round: int, clients: IntArray) -> IntArray | None:
        """Return the steps (n,) requested of updates of `clients` begun in `round` if no policy decides; None: as planned."""

    def amounts(self, clients: IntArray, steps: IntArray | None = None) -> tuple[Sequence[int | None], Sequence[int | None]]:
        """Return (numbers of samples (n,), numbers of steps (n,)) of updates of `clients` (n,), None for an unknown number.

        `steps` (n,): number of steps requested of each; None: as planned.
        """

    def begin(
        self, round: int, version: int, clients: IntArray, steps: IntArray | None
    ) -> tuple[Sequence[int | None], Sequence[int | None]]:
        """Return `amounts` of the updates of `clients` (n,) that begin in `round` with the model `version`."""


class BandwidthLaw(Protocol):
    """Bandwidth of each client's link over time, piecewise constant."""

    constant: bool = False
    """True if bandwidths are known never to change."""

    def ends_s(self, start_s: FloatArray, size_bytes: FloatArray, entities: IntArray) -> FloatArray:
        """Return the times (n,) at which transfers of `size_bytes` (n,), begun at `start_s` (n,), end; inf: never.

        An end is the first instant at which the integral of the bandwidth from `start_s` on is `size_bytes`.
        """

    def served_bytes(self, start_s: FloatArray, end_s: FloatArray, entities: IntArray) -> FloatArray:
        """Return the integrals of the bandwidth from `start_s` (n,) to `end_s` (n,), which must not be earlier; bytes, shape
        (n,).
        """

    def rate(self, time_s: float, entities: IntArray) -> FloatArray:
        """Return bytes a second at `time_s` and until the next change; shape (n,)."""

    def next_change_s(self, time_s: float, entities: IntArray) -> FloatArray:
        """Return the next time after `time_s` at which the rate of each of `entities` may change; inf: never; (n,)."""

    def mean_rate(self, entities: IntArray) -> FloatArray:
        """Return bytes a second in the long run, > 0; shape (n,)."""

    @optional
    def peak_rate(self, entities: IntArray) -> FloatArray:
        """Return the least upper bound known of the rates of `entities` (n,), bytes a second; (n,)."""
        return np.full(len(entities), np.inf)

    @optional
    def stops_s(self, entities: IntArray) -> FloatArray:
        """Return the times from which on the links carry nothing for ever, so that messages then in flight are lost; inf:
        never; (n,).
        """
        return np.full(len(entities), np.inf)


class Timeline(Protocol[LawT]):
    """A law that is replaced by another at change points, in rounds or in seconds."""

    fixed: bool = False
    """True if the law never changes: callers then ask only once."""

    def at(self, round: int, time_s: float) -> tuple[LawT, float]:
        """Return (law in force in `round` at `time_s`, time until which it stays in force within the round; inf: to its end)."""


class BandwidthTimeline(Timeline[BandwidthLaw], Protocol):
    """Timeline of a bandwidth that knows all of its laws and change points."""

    @property
    def laws(self) -> Sequence[BandwidthLaw]:
        """All laws, in the order in which they come into force."""

    @property
    def starts(self) -> Sequence[float]:
        """Change points between the laws, in `unit`."""

    @property
    def unit(self) -> Literal["rounds", "seconds"]:
        """Unit of `starts`."""


class ChannelLaw(Stateful, Protocol):
    """Law of losses of transmissions: one sub-channel for each entity."""

    memoryless: bool
    """True if `step` does nothing and need not be called."""

    def step(self, u: FloatArray) -> None:
        """Advance every sub-channel by one round; `u` (K,) uniforms, one for each sub-channel."""

    def good(self, u: FloatArray, entities: IntArray) -> BoolArray:
        """Return True for each of `entities` (n,) whose transmission in this round survives, at uniforms `u` (n,)."""

    def success_probability(self, entities: IntArray) -> FloatArray:
        """Return the probability that a transmission survives, in the long run; shape (n,)."""


class ChannelStates(Timeline[ChannelLaw], Protocol):
    """States of the sub-channels over a run, and what is known of their law, for a summary."""

    unit: Literal["rounds", "seconds"] = "rounds"
    """Unit of `starts`."""
    starts: Sequence[float] = ()
    """Starts of the segments after the first, ascending."""
    segment_means: FloatArray | None = None
    """Probabilities (segments, N) that the sub-channels are Good; None if unknown."""


class Availability(Stateful, Protocol):
    """Presence of the clients as two arrays that are looked up, so that no event on the clock is needed."""

    on: BoolArray
    """True (K,) for clients present at the time of the last `advance`."""
    next_change_s: FloatArray
    """Time (K,) at which each client next comes or goes; inf: never."""
    settles: bool = True
    """True if presence is final once `next_change_s` is inf for all clients."""

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
        """Return the share (K,) of [`from_s`, `to_s`] in which each client will be present, as predictable at the last
        `advance`.

        This default predicts that present clients stay and absent clients stay away.
        """
        return self.on.astype(np.float64)


@dataclass(frozen=True, slots=True)
class RoundView:
    """Information that a selection policy has as a round begins."""

    round: int
    time_s: float
    selectable: BoolArray
    """True (K,) for clients that are present and not busy."""
    participations: IntArray
    """Number (K,) of noisy updates that each client has released so far: the T of the privacy leak (PAUSE eq. 7)."""
    rng: np.random.Generator
    """The policy's own stream of this round. It must not be kept."""
    probed: Probed = NOBODY_PROBED
    """Answers to the probes that the policy asked for in this round."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Clients with the amount of training of each. A policy may return it in place of an array of clients."""

    clients: IntArray
    """Clients (n,), as `SelectionPolicy.select` returns them."""
    steps: IntArray
    """Local steps (n,) of each, >= 1."""


class SelectionPolicy(Stateful, Protocol):
    """Chooses the clients of a round."""

    needs_updates: bool
    """True if the policy reads `RoundOutcome.updates`."""
    needs_losses: bool = False
    """True if the policy reads the losses of `RoundOutcome.reports`."""
    probes: bool = False
    """True if the policy asks clients for their loss before it selects. A class attribute: it is read before an object exists."""

    question: Literal["loss", "request", "profile"] = "loss"
    """Question of a probe: the loss of the present model; a small answer to a small message ("request"); an
    update that takes as long as any and is thrown away."""
    asks_again: bool = False
    """True if `probe` is called repeatedly in a round, each time after all probes have ended, until it returns no client."""
    may_select_nobody: bool = False
    """True if `select` may return no client; the round then passes without updates. A class attribute."""
    counts_updates: bool = False
    """True if the policy depends on the number of updates of a model (`per_model`), which the server must know.

    A class attribute.
    """
    selects_everyone: bool = False
    """True if the policy selects all selectable clients and ignores the number requested. A class attribute."""
    probes_where: Mapping[str, tuple[str, ...]] = {}
    """Values of parameters with which the policy probes, by parameter; empty: with all values. A class attribute."""

    uses_late_where: Mapping[str, bool] = {}
    """Value of each flag with which the policy needs late updates to enter models; empty: never. A class attribute."""
    tests: bool = False
    """True if the last `probe` asked for the accuracy of the present model on the client's own test data, instead of
    `question`.
    """
    tests_where: Mapping[str, tuple[str, ...]] = {}
    """Values of parameters with which `tests` may be true, by parameter; empty: never. A class attribute."""

    restarts: Sequence[tuple[int, int]] = ()
    """Changes of clients' latencies that the policy declared so far, as (round, client), in order."""

    @optional
    def probe(self, view: RoundView) -> IntArray:
        """Return distinct clients to ask for the loss of the present model before `select`; shape (d,), may be empty.

        Called once a round if the policy `probes`; `view.selectable` marks the clients that are present and not busy.
        """
        return np.zeros(0, np.int64)

    def select(self, view: RoundView) -> IntArray | Selection:
        """Return distinct selectable clients; shape (n,). Fewer than m only if fewer are selectable."""

    def observe(self, outcome: RoundOutcome) -> None:
        """Learn from the round just closed; called once a round, after `select`."""


class Accountant(Stateful, Protocol):
    """Counts the releases of each client, and knows the budget of its next release."""

    participations: IntArray
    """Number of releases (K,) so far."""
    exhausted: BoolArray
    """True (K,) for clients whose budget allows no further release; they are not selectable."""
    spends: bool
    """True if releases spend budgets; otherwise each has an infinite one."""

    def charge(self, client: int) -> tuple[float, float]:
        """Count a release of `client`; return (its budget epsilon_i, inf without protection; its leak so far)."""

    def charge_all(self, clients: IntArray) -> tuple[FloatArray, FloatArray]:
        """Count a release of each of distinct `clients` (n,); return (budgets (n,), leaks (n,))."""

    def max_leak(self) -> float:
        """Return the largest composed leak over clients so far (0 without a privacy mechanism)."""


@dataclass(frozen=True, slots=True)
class Deliveries:
    """Input of one aggregation. Arrays have one entry for each delivered update, in the order of delivery."""

    round: int
    clients: IntArray
    rounds: IntArray
    """Round in which each update was started. Together with the client it addresses the random draws."""
    versions: IntArray
    """Model version from which each update started."""
    epsilon: FloatArray
    """Privacy budget that each update spends; inf: no noise."""
    steps: IntArray | None = None
    """Local steps requested of each update; 0: as planned. None: all are as planned."""
    held: BoolArray | None = None
    """True (n,) for updates that enter the model only at the next aggregation, with a server that keeps a cache; None: none do.
    """
    renewed: IntArray | None = None
    """Clients (j,) whose entries in that cache are replaced by the present model before the aggregation; None: none."""


class Evaluation(Protocol):
    """Quality of the present model on the test set."""

    @property
    def accuracy(self) -> float:
        """Share of samples classified correctly, in [0, 1]."""

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
    """Requested content of delivered updates. Arrays have an entry for each update, in the order of deliveries."""

    @property
    def updates(self) -> FloatArray | None:
        """Update vectors (n, d), as the server received them."""

    @property
    def loss(self) -> FloatArray | None:
        """Mean loss (n,) of the first pass over the client's samples, as training saw them; NaN: there was none."""

    @property
    def loss_rms(self) -> FloatArray | None:
        """Root mean square (n,) of the losses of all samples of that pass."""


class Learner(Stateful, Protocol):
    """Computes the content of delivered updates only; other updates are never trained."""

    aggregates: bool = True
    """True if deliveries change the learner; otherwise it gets no calls."""
    round_columns: Sequence[str] = ("accuracy", "loss", "training_loss")
    """Columns of rounds that `evaluate` fills."""
    records_losses: bool
    """True if the losses of delivered updates go to the record of attempts."""

    @property
    def version(self) -> int:
        """Number of aggregations that changed the model."""

    def aggregate(self, deliveries: Deliveries, want_updates: bool, want_losses: bool = False) -> Content | None:
        """Train all delivered updates in one call and aggregate them into the model. Return the requested content, or None."""

    def evaluate(self, round: int, time_s: float, last: bool) -> Evaluation | None:
        """Return the quality of the present model, or None if no evaluation is due at this round."""

    def retain(self, versions: list[int]) -> None:
        """Keep only `versions` of the model: updates in flight started from them.

        Called after every round by servers whose updates may outlast a round.
        """

    def contribution(self) -> FloatArray | None:
        """Return the marginal contributions (K,) of the clients to the model, each >= 0; None if no difference is known."""


class ProbedModel(Protocol):
    """Model that clients evaluate when they are probed."""

    @property
    def aggregates(self) -> bool:
        """Return True if there is training, so that losses are known."""

    def losses_of(self, clients: IntArray, round: int, samples: int | None) -> FloatArray:
        """Return the mean loss (n,) of the present model on all samples of each client, or on `samples` of them, drawn at
        (`round`, client).
        """

    def accuracies_of(self, clients: IntArray) -> FloatArray:
        """Return the accuracy (n,) of the present model on the clients' own test data, in [0, 1]; NaN without training."""


class ProbedLearner(Learner, ProbedModel, Protocol):
    """Learner whose present model clients may evaluate when they are probed."""


class RewardMeter(Stateful, Protocol):
    """Measures a policy from outside: its reward and that of the genie (PAUSE eq. 9, 10, 15)."""

    def measure(self, outcome: RoundOutcome, view: RoundView, latency_s: Callable[[IntArray], FloatArray]) -> tuple[float, float]:
        """Return (reward of the selected set, reward of the genie's set) in this round; NaN: not measured.

        `view`: the view of the policy as the round began. `latency_s`: function that returns the latencies (n,) of clients (n,)
        in this round, seconds.
        """
