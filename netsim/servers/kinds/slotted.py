"""Servers with slots (Tong et al. 2024): FL&FA, where the server sees all opinions, and FL&DA, where clients decide themselves.

In a slot, members are chosen, they train for L communication rounds (those of the synchronous server, with its losses and
deadlines), and then all clients test the model. A client's opinion is the result of its test. The theta of the paper says if an
update counts; it is not drawn here: an update counts unless its training outlasts the round (a deadline), the channel loses it,
or its client goes away.
A record is a slot. In the client table and in the draws, `round` counts communication rounds: (slot - 1) L + 1 .. slot L.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np

from netsim.clients.power.power_integral import COMPUTING, RECEIVING, SENDING
from netsim.core.clock import LAST, Process
from netsim.core.errors import ParameterError
from netsim.core.jamming import add_jamming
from netsim.core.protocols import FloatArray, IntArray, Learner, Notes, RoundView, Selection, State, Stateful, optional
from netsim.records.sinks import NoRecorder, Recorder
from netsim.servers.rounds.reports import communication_row
from netsim.servers.rounds.round_server import AttemptRows, Book, LoopServer, Recording, record_metrics

if TYPE_CHECKING:
    from netsim.core.rows import ColumnValues
    from netsim.core.streams import Streams
    from netsim.network.transport.messages import Message
    from netsim.network.transport.transport import Transport
    from netsim.peers.consensus import ConsensusOutcome, ConsensusPhase
    from netsim.servers.kinds.opinions import OpinionUplink, Tests
    from netsim.servers.rounds.dispatch import MembersDispatch
    from netsim.servers.rounds.loop import RoundLoop

_NAN = math.nan


class OpinionLearner(Learner, Protocol):
    """Learner whose model all clients can test."""

    def opinions(self, slot: int) -> FloatArray:
        """Return the opinion (K,) of each client of the present model, in [0, 1]."""

    def best_opinion(self, slot: int) -> float:
        """Return the average opinion that training by the best m clients would give in this slot; NaN if unknown."""

    def reset(self) -> None:
        """Reset the model to that before slot 1."""


class OpinionPolicy(Stateful, Protocol):
    """Chooses the clients of a slot for a server that sees opinions."""

    def select(self, view: RoundView) -> IntArray | Selection:
        """Return distinct clients, at least one; shape (n,)."""

    @optional
    def observe_opinions(self, round: int, clients: IntArray, opinions: FloatArray) -> None:
        """Learn from slot `round`. `clients`: selected clients. `opinions` (K,): opinions of all clients."""

    @optional
    def notes(self) -> Notes:
        """Return entries of the summary, as plain data."""
        return {}


class IndexPolicy(Stateful, Protocol):
    """Index policy that each client computes by itself."""

    def index(self, round: int, belief: FloatArray) -> FloatArray:
        """Return the indices (K,) of slot `round` from beliefs (K,) (eq. 17)."""

    @optional
    def observe_opinions(self, round: int, clients: IntArray, opinions: FloatArray) -> None:
        """Learn from slot `round`. `clients`: selected clients. `opinions` (K,): opinions of all clients."""


@dataclass(frozen=True, kw_only=True)
class SlotParts:
    """Parts that both servers with slots are made of."""

    training: RoundLoop
    """The communication rounds of a slot."""
    members: MembersDispatch
    """Dispatch of these rounds to the members of the slot."""
    learner: OpinionLearner
    tests: Tests
    rounds_per_slot: int
    """L, the number of communication rounds of a slot."""
    reset_each_slot: bool = False
    """True if every slot trains from the first model again; otherwise the model goes on (the times of the paper's Table I show
    that it does).
    """
    recording: Sequence[Recording] = ()
    """Further writers of records."""

    def __post_init__(self) -> None:
        if self.rounds_per_slot < 1:
            raise ParameterError("rounds_per_slot", self.rounds_per_slot, "must be >= 1")


class SlotServer(LoopServer, ABC):
    """Common base of both servers: slots one after the other. `run_round` runs a slot, `round` counts slots."""

    state_fields: ClassVar[tuple[str, ...]] = ("round", "training", "rows", "_book")

    def __init__(self, parts: SlotParts) -> None:
        training = parts.training
        self.clock = training.clock
        self.training = self.loop = training
        self.members = parts.members
        self.learner = parts.learner
        self.tests = parts.tests
        self.recorder: Recorder = NoRecorder()
        self._on_open: Callable[[int], None] = lambda slot: None
        self.rounds_per_slot = parts.rounds_per_slot
        self.reset_each_slot = parts.reset_each_slot
        self.round = 0
        """Number of slots closed."""
        self._last_round = 0
        """Last slot of the run, whose model is evaluated."""
        self.rows = AttemptRows(loop=training, recorder=self.recorder)
        self._recording = parts.recording
        self._book = Book(training.pool)

    @property
    def round_columns(self) -> Sequence[str]:
        """Columns of rounds that the server fills, beside those of its learner and instruments."""
        return ("reward", "genie_reward", "members", "opinion", "opinion_s", "consensus_s")

    def end_after(self, rounds: int) -> None:
        """Make `rounds` the last slot of the run: its model is evaluated."""
        self._last_round = rounds

    def run_round(self) -> Process[None]:
        """Run one slot as a process of the clock. Raises NobodyLeftError if no member can ever take part again."""
        slot, start_s = self.round + 1, self.clock.now
        self._on_open(slot)
        members = yield from self._decide(slot)
        decided_s = self.clock.now
        if self.reset_each_slot and slot > 1:
            self.learner.reset()
        self.members.open_slot(members)
        training_sums: ColumnValues = {}
        for _ in range(self.rounds_per_slot):
            closed = yield from self.training.run_round()
            self.rows.record_round(closed)
            self.recorder.communication(communication_row(slot, closed))
            measured = self.training.columns(closed)
            training_sums = {name: training_sums.get(name, 0) + value for name, value in measured.items()}
        # Time passes now, for tests and messages between clients, and attempts in flight may end meanwhile. Arrays know only the
        # rounds, so these attempts go on by events.
        self.clients.go_by_events()
        trained_s = self.clock.now
        ready_s = self._test(slot, trained_s)
        opinions = self.learner.opinions(slot)
        columns: ColumnValues = {"consensus_s": decided_s - start_s, **training_sums}
        closing_columns = yield from self._close_slot(slot, self.members.members, opinions, ready_s)
        columns = add_jamming(columns, closing_columns)
        self.round = slot
        self._record(slot, start_s, trained_s, opinions, columns)

    def _test(self, slot: int, time_s: float) -> FloatArray:
        """Return the times (K,) at which clients finish the test after `slot`, begun at `time_s`; account for its energy."""
        ready_s = time_s + self.tests.durations_s(slot, time_s)
        energy = self.clients.energy
        if energy is not None:
            energy.spend(COMPUTING, np.arange(len(ready_s)), np.full(len(ready_s), time_s), ready_s)
        return ready_s

    @abstractmethod
    def _decide(self, slot: int) -> Process[IntArray | Selection]:
        """Return the members of the slot, as a process: the decision may take time."""

    @abstractmethod
    def _close_slot(
        self, slot: int, members: IntArray, opinions: FloatArray, ready_s: FloatArray
    ) -> Process[ColumnValues]:
        """Close the slot, as a process, and return further columns of its record.

        `members` (n,): clients that trained. `opinions` (K,): opinions of all clients, which the policy observes. `ready_s`
        (K,): times at which clients finish their tests.
        """

    def _record(self, slot: int, start_s: float, trained_s: float, opinions: FloatArray, columns: ColumnValues) -> None:
        """Record a closed slot, after the evaluation of its model."""
        self.clients.charge()
        now, learner, opinion = self.clock.now, self.learner, float(opinions.mean())
        evaluation = learner.evaluate(slot, now, slot == self._last_round)
        values = {
            "reward": opinion,
            "genie_reward": learner.best_opinion(slot),
            "members": len(self.members.members),
            "opinion": opinion,
            "opinion_s": now - trained_s,
        }
        self.recorder.round(
            self._book.row(
                round=slot,
                start_s=start_s,
                end_s=now,
                evaluation=evaluation,
                version=learner.version,
                columns=values | columns,
            )
        )
        record_metrics(self.recorder, slot, now, learner.version, evaluation)

    def listen_to_slots(self, on_open: Callable[[int], None]) -> None:
        """Call `on_open` with the number of every slot before its first event; it replaces an earlier callback."""
        self._on_open = on_open

    def notes(self) -> Notes:
        """Return entries of the summary that no table holds."""
        return {"rounds_per_slot": self.rounds_per_slot}

    def record_to(self, recorder: Recorder) -> None:
        """Send all records to `recorder` from now on."""
        self.recorder = recorder
        recorder.rounds_with(self._book.choose((*self.training.round_columns, *self.round_columns)))
        self.rows.record_to(recorder)
        for writer in self._recording:
            writer.record_to(recorder)

    def record_unfinished(self) -> None:
        """Record attempts and messages in flight at the end of the run."""
        self.rows.record_unfinished()


class FlFaServer(SlotServer):
    """FL&FA: all clients upload their opinions, and the server's policy selects.

    If an opinion does not arrive, the server uses the client's last one; without one, the average of the opinions that arrived
    (1/2 if there are none).
    """

    state_fields = ("_heard", "policy")

    def __init__(self, parts: SlotParts, *, policy: OpinionPolicy, uplink: OpinionUplink, streams: Streams) -> None:
        super().__init__(parts)
        self.policy = policy
        self.uplink = uplink
        self._policy_draws = streams["policy"]
        self._heard: FloatArray = np.full(self.clients.count, _NAN)
        """Last opinion (K,) of each client that arrived; NaN before the first."""
        self._counts = uplink.transport.counts()
        """Counts of jammers of opinions at the close of the last slot."""
        if self.clients.energy is not None:
            uplink.transport.listen(self._meter)

    @property
    def round_columns(self) -> Sequence[str]:
        """Columns of rounds, those of jammers of opinions and missing opinions included."""
        return (*super().round_columns, *self._counts, "opinions_missing")

    @property
    def transport(self) -> Transport:
        """Transport of the opinions."""
        return self.uplink.transport

    def _meter(self, message: Message) -> None:
        """Account for the energy of an opinion's transmission."""
        energy = self.clients.energy
        assert energy is not None
        energy.spend(SENDING, np.array([message.edge]), np.array([message.sent_s]), np.array([message.due_s]))

    def _decide(self, slot: int) -> Process[IntArray | Selection]:
        """Return the selection of the policy, which takes no time."""
        clients = self.clients
        everyone = np.ones(clients.count, np.bool_)
        participations = clients.accountant.participations.copy()
        view = RoundView(slot, self.clock.now, everyone, participations, self._policy_draws.generator(slot))
        chosen = self.policy.select(view)
        yield from ()
        return chosen

    def _close_slot(
        self, slot: int, members: IntArray, opinions: FloatArray, ready_s: FloatArray
    ) -> Process[ColumnValues]:
        """Collect the opinions that arrive, let the policy observe them, and return columns of jamming and missing opinions."""
        # The policy sees the opinions as the server has them: fresh, old, or replaced by an average.
        arrived = yield from self.uplink.collect(slot, ready_s)
        self._heard = np.where(arrived, opinions, self._heard)
        known = ~np.isnan(self._heard)
        average = float(self._heard[known].mean()) if known.any() else 0.5
        self.policy.observe_opinions(slot, members, np.where(known, self._heard, average))
        before, self._counts = self._counts, self.uplink.transport.counts()
        jamming = {name: count - before[name] for name, count in self._counts.items()}
        return jamming | {"opinions_missing": int(np.count_nonzero(~arrived))}

    def counts(self) -> dict[str, int]:
        """Return the counts since the start of the run, those of opinions and their jammers included."""
        opinions = self.uplink.transport
        return add_jamming(super().counts(), opinions.counts()) | {
            "messages": opinions.sent,
            "messages_delivered": opinions.delivered,
            "messages_lost": opinions.lost,
            "messages_in_flight": opinions.in_flight,
        }

    def record_to(self, recorder: Recorder) -> None:
        """Send all records to `recorder` from now on."""
        super().record_to(recorder)
        self.uplink.transport.record_to(recorder)

    def record_unfinished(self) -> None:
        """Record messages in flight, and present jamming, at the end of the run."""
        super().record_unfinished()
        self.uplink.transport.record_unfinished()

    def notes(self) -> Notes:
        """Return entries of the summary that no table holds, those of the policy included."""
        return super().notes() | self.policy.notes()

    def state_dict(self) -> State:
        """Return the state at a slot boundary, with the opinions that the server has received."""
        return super().state_dict() | {"uplink": self.uplink.state_dict()}

    def load_state_dict(self, state: State) -> None:
        """Restore a state of a slot boundary. The clock must be at its time."""
        super().load_state_dict(state)
        self.uplink.load_state_dict(state["uplink"], self.round, self.clock.now)
        self._counts = self.uplink.transport.counts()


class FlDaServer(SlotServer):
    """FL&DA (Algorithm 2): clients test the model, exchange beliefs, spread their indices, and the top m take part.

    The opinions of a slot come from the test at the end of the slot before, and in slot 1 from a test of the first model. A slot
    begins when the last client has tested. `beliefs`: True to record the beliefs.
    """

    state_fields = ("policy", "_opinions")

    def __init__(self, parts: SlotParts, *, policy: IndexPolicy, consensus: ConsensusPhase, beliefs: bool = False) -> None:
        super().__init__(parts)
        self.policy = policy
        self._consensus = consensus
        self._links = consensus.links
        self.outcome: ConsensusOutcome | None = None
        """Outcome of the last consensus phase."""
        self._records_beliefs = beliefs
        if self.clients.energy is not None:
            consensus.links.count_bytes()
        self._opinions: FloatArray | None = None
        """Opinions (K,) from the last test, which decide the members of the next slot; None before the first test."""
        self._counts = self._message_counts()
        """Counts at the close of the last slot."""

    @property
    def round_columns(self) -> Sequence[str]:
        """Columns of rounds, those of messages and of the consensus phase included."""
        of_phase = ("messages_in_flight", "converged_s", "agreed_s", "exchanges", "residual", "disagreement")
        return (*super().round_columns, *self._counts, *of_phase)

    @property
    def consensus(self) -> ConsensusPhase:
        """The phase in which clients choose the members."""
        return self._consensus

    @property
    def transport(self) -> Transport:
        """Transport of the messages between clients."""
        return self._links

    def renew_messages(self) -> None:
        """Draw messages under a new law from now on."""
        self._consensus.renew()

    def _message_counts(self) -> dict[str, int]:
        """Return the counts of messages, and of jammers, since the start of the run."""
        links = self._links
        return links.counts() | {
            "messages": links.sent,
            "messages_delivered": links.delivered,
            "messages_lost": links.lost,
            "messages_resent": links.resent,
            "message_bytes": links.sent_bytes,
        }

    def _decide(self, slot: int) -> Process[IntArray | Selection]:
        """Run the consensus phase, by which clients choose the members of the slot."""
        if self._opinions is None:
            # Before slot 1 all clients test the first model, which gives the opinions of that slot.
            ready_s = self._test(0, self.clock.now)
            yield self.clock.event_at(float(ready_s.max()), LAST)
            self._opinions = self.learner.opinions(0)
        opinions = self._opinions
        outcome = yield from self.consensus.run(slot, opinions, lambda beliefs: self.policy.index(slot, beliefs))
        self.outcome = outcome
        self._meter_messages()
        if self._records_beliefs:
            for row in outcome.rows(slot, opinions):
                self.recorder.belief(row)
        return outcome.members

    def _meter_messages(self) -> None:
        """Account for the energy of messages since the last call, and charge the batteries."""
        energy = self.clients.energy
        if energy is not None:
            everyone = np.arange(self.clients.count)
            for state, seconds in zip((SENDING, RECEIVING), self._links.airtime_s(), strict=True):
                energy.spend_on_air(state, everyone, seconds)
            self.clients.charge()

    def _close_slot(
        self, slot: int, members: IntArray, opinions: FloatArray, ready_s: FloatArray
    ) -> Process[ColumnValues]:
        """Wait for the last test, let the policy observe the opinions, and return columns of messages and of the consensus phase.
        """
        yield self.clock.event_at(float(ready_s.max()), LAST)
        self._opinions = opinions
        self.policy.observe_opinions(slot, members, opinions)
        outcome, before = self.outcome, self._counts
        assert outcome is not None
        self._counts = self._message_counts()
        changes = {name: count - before[name] for name, count in self._counts.items()}
        return changes | {
            "messages_in_flight": self._links.in_flight,
            "consensus_s": outcome.duration_s,
            "converged_s": outcome.converged_s,
            "agreed_s": outcome.agreed_s,
            "exchanges": outcome.exchanges,
            "residual": outcome.residual,
            "disagreement": outcome.disagreement,
        }

    def notes(self) -> Notes:
        """Return notes on the graph, the condition for a unique fixed point of the beliefs, and the messages."""
        links = self._links
        return super().notes() | {
            "clients": links.graph.clients,
            "links": links.graph.edges // 2,
            "convergence_constant": self.consensus.convergence_constant,
            "messages": links.sent,
            "messages_delivered": links.delivered,
            "messages_lost": links.lost,
            "messages_in_flight": links.in_flight,
            "message_bytes": links.sent_bytes,
        }

    def counts(self) -> dict[str, int]:
        """Return the counts since the start of the run, those of messages included."""
        counts = add_jamming(super().counts(), self._message_counts())
        return counts | {"messages_in_flight": self._links.in_flight}

    def record_to(self, recorder: Recorder) -> None:
        """Send all records to `recorder` from now on."""
        super().record_to(recorder)
        self._links.record_to(recorder)

    def record_unfinished(self) -> None:
        """Record attempts and messages in flight at the end of the run."""
        super().record_unfinished()
        self._links.record_unfinished()

    def state_dict(self) -> State:
        """Return the state at a slot boundary, with messages in flight."""
        return super().state_dict() | {"consensus": self.consensus.state_dict()}

    def load_state_dict(self, state: State) -> None:
        """Restore a state of a slot boundary. The clock must be at its time."""
        super().load_state_dict(state)
        self.consensus.load_state_dict(state["consensus"], self.round)
        self._counts = self._message_counts()
