"""Servers with slots (Tong et al. 2024): FL&FA, where the server sees all opinions, and FL&DA, where clients decide themselves.

A slot: the clients that take part are decided on, they train for L communication rounds (those of the synchronous server, with
its losses and deadlines), then all clients test the model. A client's opinion is what it finds. The paper's theta is what becomes
of an update here: it counts unless its training outlasts the round (a deadline), the channel loses it, or its client goes away.
A record is a slot. In the client table and in the draws, `round` counts communication rounds: (slot - 1) L + 1 .. slot L.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from typing import Any, Protocol

import numpy as np

from netsim.channel import Durations, Survivals
from netsim.client import Clients
from netsim.clock import LAST
from netsim.interfaces import (
    BoolArray,
    ChannelLaw,
    DelayLaw,
    Deliveries,
    Evaluation,
    FloatArray,
    IntArray,
    Learner,
    RoundOutcome,
    RoundView,
    State,
    Stateful,
    Timeline,
)
from netsim.off import NoMeter
from netsim.peers import Conversation, TalkOutcome
from netsim.rounds import check_selection
from netsim.server import SynchronousServer
from netsim.streams import Streams
from netsim.trace import NoRecorder, Recorder, RoundRow
from netsim.update import OUTCOMES

_NAN = math.nan
_SUMMED = ("selected", *OUTCOMES, "bytes_down", "bytes_up")


class OpinionLearner(Learner, Protocol):
    """A learner whose model all clients can test."""

    def opinions(self, slot: int) -> FloatArray:
        """(K,) each client's opinion of the present model, in [0, 1]."""

    def best_opinion(self, slot: int) -> float:
        """The average opinion, had the best m clients trained in this slot; NaN where nobody can know."""

    def reset(self) -> None:
        """Forget what was learnt: the model of before slot 1."""


class OpinionPolicy(Stateful, Protocol):
    """Chooses the clients of a slot for a server that sees opinions."""

    def select(self, view: RoundView) -> IntArray:
        """Distinct clients, at least one; shape (n,)."""

    def observe_opinions(self, round: int, clients: IntArray, opinions: FloatArray) -> None:
        """Learn from slot `round`: `clients` were selected, `opinions` (K,) are all clients'."""


class IndexPolicy(Stateful, Protocol):
    """What each client computes of itself."""

    def index(self, round: int, belief: FloatArray) -> FloatArray:
        """(K,) indices of slot `round` from beliefs (K,) (eq. 17)."""

    def observe_opinions(self, round: int, clients: IntArray, opinions: FloatArray) -> None:
        """Learn from slot `round`, as of `OpinionPolicy`."""


class _Members:
    """The policy of the communication rounds of a slot: its members, whoever of them is there."""

    needs_updates = False

    def __init__(self) -> None:
        self.members: IntArray = np.zeros(0, np.int64)

    def select(self, view: RoundView) -> IntArray:
        return self.members[view.selectable[self.members]]

    def observe(self, outcome: RoundOutcome) -> None:
        return None

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None:
        return None


class _Training:
    """The learner as the communication rounds see it: the model is not evaluated between them."""

    def __init__(self, learner: OpinionLearner) -> None:
        self._learner = learner
        self.payload_bytes = learner.payload_bytes
        self.version = learner.version

    def aggregate(self, deliveries: Deliveries, want_updates: bool) -> FloatArray | None:
        updates = self._learner.aggregate(deliveries, want_updates)
        self.catch_up()
        return updates

    def catch_up(self) -> None:
        """Start from the learner's present model."""
        self.version = self._learner.version

    def evaluate(self, round: int, time_s: float, last: bool) -> Evaluation | None:
        return None

    def state_dict(self) -> State:
        return self._learner.state_dict()

    def load_state_dict(self, state: State) -> None:
        self._learner.load_state_dict(state)
        self.catch_up()


class _Sums(NoRecorder):
    """Adds up the communication rounds of a slot."""

    def __init__(self) -> None:
        self.totals = dict.fromkeys(_SUMMED, 0)

    def round(self, row: RoundRow) -> None:
        for name in _SUMMED:
            self.totals[name] += getattr(row, name)


class CommunicationRounds(SynchronousServer):
    """Rounds of the synchronous server with the members of a slot. Take its keywords from there, but policy, meter and need.

    `whole`: a round waits until every member is present and not busy; otherwise for the first of them.
    """

    def __init__(self, *, learner: OpinionLearner, recorder: Recorder, whole: bool = True, **keywords: Any) -> None:
        self.choice = _Members()
        self._model = _Training(learner)
        self._sums = _Sums()
        self._whole = whole
        super().__init__(policy=self.choice, learner=self._model, recorder=self._sums, need=1, meter=NoMeter(), **keywords)
        self.clients.recorder = recorder

    def _able(self) -> BoolArray:
        able = super()._able()
        mask = np.zeros_like(able)
        mask[self.choice.members] = able[self.choice.members]
        return mask

    def open_slot(self, members: IntArray) -> None:
        """The members of the slot; raises ValueError unless they are distinct clients, at least one."""
        everyone = np.ones(self.clients.count, np.bool_)
        self.choice.members = np.sort(check_selection(members, everyone))
        self.need = len(self.choice.members) if self._whole else 1
        self._sums.totals = dict.fromkeys(_SUMMED, 0)
        self._model.catch_up()

    @property
    def totals(self) -> dict[str, int]:
        """Counts over the communication rounds of this slot."""
        return dict(self._sums.totals)

    def record_to(self, recorder: Recorder) -> None:
        """Send the records of updates to `recorder`; those of rounds are added up here."""
        self.clients.recorder = recorder


class Tests:
    """All clients test the model at once; a slot waits for the last of them."""

    __test__ = False

    def __init__(self, *, clients: int, law: Timeline[DelayLaw], streams: Streams) -> None:
        self._durations = Durations(clients=clients, law=law, draws=streams["test.delay"])
        self._everyone: IntArray = np.arange(clients)

    def durations_s(self, number: int, time_s: float) -> FloatArray:
        """(K,) how long the test after slot `number` takes (0: before the first)."""
        return np.array(self._durations.draw(number, time_s, self._everyone).values)


class OpinionUplink:
    """A dedicated channel for opinions: nobody waits for anybody, so the arrivals are one array.

    A lost opinion is sent again `resend_after_s` after it would have arrived, at most `max_resends` times. The server waits for
    all that may still come, at most `wait_s` after the last test. The laws are those in force as the tests begin.
    """

    def __init__(
        self,
        *,
        clients: int,
        delay: Timeline[DelayLaw],
        channel: Timeline[ChannelLaw],
        streams: Streams,
        max_resends: int = 0,
        resend_after_s: float = 0.0,
        wait_s: float | None = None,
    ) -> None:
        if max_resends < 0:
            raise ValueError(f"max_resends = {max_resends!r}: must be >= 0")
        if not 0 <= resend_after_s < math.inf:
            raise ValueError(f"resend_after_s = {resend_after_s!r}: must be >= 0 seconds and finite")
        if wait_s is not None and not wait_s >= 0:
            raise ValueError(f"wait_s = {wait_s!r}: must be >= 0 seconds")
        self._everyone: IntArray = np.arange(clients)
        self._delay = Durations(clients=clients, law=delay, draws=streams["opinion.delay"])
        self._channel = Survivals(
            clients=clients, law=channel, draws=streams["opinion.loss"], state_draws=streams["opinion.state"]
        )
        self._max_resends, self._resend_after_s = max_resends, resend_after_s
        self._wait_s = math.inf if wait_s is None else wait_s

    def play(self, slot: int, ready_s: FloatArray, now_s: float) -> tuple[float, BoolArray]:
        """When the server goes on, and whose opinion (K,) it then has; opinions set out at `ready_s` (K,), all >= `now_s`."""
        self._channel.open_round(slot, now_s)
        time_s = np.array(ready_s)
        waiting = np.ones(len(time_s), np.bool_)
        for attempt in range(self._max_resends + 1):
            address = slot * (self._max_resends + 1) + attempt
            delay_s = np.array(self._delay.draw(address, now_s, self._everyone).values)
            time_s[waiting] += delay_s[waiting] + (self._resend_after_s if attempt else 0.0)
            waiting &= ~np.array(self._channel.draw(address, now_s, self._everyone).values)
            if not waiting.any():
                break
        end_s = min(float(time_s.max()), float(ready_s.max()) + self._wait_s)
        return end_s, ~waiting & (time_s <= end_s)

    def state_dict(self) -> State:
        """The state of the channel."""
        return self._channel.state_dict()

    def load_state_dict(self, state: State, slot: int, time_s: float) -> None:
        """Take the state at the close of `slot`."""
        self._channel.load_state_dict(state, slot, time_s)


class SlotServer(ABC):
    """What both servers share: slots one after the other. `play_round` is a slot, `round` counts slots.

    `rounds_per_slot`: L. `reset_each_slot`: every slot trains from the first model again; otherwise the model goes on (the
    times of the paper's Table I show that it does).
    """

    def __init__(
        self,
        *,
        training: CommunicationRounds,
        learner: OpinionLearner,
        tests: Tests,
        recorder: Recorder,
        rounds_per_slot: int,
        reset_each_slot: bool = False,
    ) -> None:
        if rounds_per_slot < 1:
            raise ValueError(f"rounds_per_slot = {rounds_per_slot!r}: must be >= 1")
        self.clock = training.clock
        self.training = training
        self.learner = learner
        self.tests = tests
        self.recorder = recorder
        self.rounds_per_slot = rounds_per_slot
        self.reset_each_slot = reset_each_slot
        self.round = 0
        """Slots closed."""
        self.last_round = 0
        """The slot that will be the run's last, so that its model is evaluated."""

    def play_round(self) -> Generator[Any, Any, None]:
        """One slot, as a process of the clock. Raises NobodyLeftError if no member can ever be there again."""
        slot, start_s = self.round + 1, self.clock.now
        members = yield from self._decide(slot)
        decided_s = self.clock.now
        if self.reset_each_slot and slot > 1:
            self.learner.reset()
        self.training.open_slot(members)
        for _ in range(self.rounds_per_slot):
            yield from self.training.play_round()
        trained_s = self.clock.now
        ready_s = trained_s + self.tests.durations_s(slot, trained_s)
        opinions = self.learner.opinions(slot)
        columns: dict[str, Any] = {"talk_s": decided_s - start_s}
        columns |= yield from self._close_slot(slot, self.training.choice.members, opinions, ready_s)
        self.round = slot
        self._record(slot, start_s, trained_s, opinions, columns)

    @abstractmethod
    def _decide(self, slot: int) -> Generator[Any, Any, IntArray]:
        """Settle who takes part in the slot, which takes time."""

    @abstractmethod
    def _close_slot(
        self, slot: int, members: IntArray, opinions: FloatArray, ready_s: FloatArray
    ) -> Generator[Any, Any, dict[str, Any]]:
        """Let the tests end at `ready_s` (K,) and learn from the `opinions` (K,); further columns of the slot's record."""

    def _record(self, slot: int, start_s: float, trained_s: float, opinions: FloatArray, columns: dict[str, Any]) -> None:
        now, training = self.clock.now, self.training
        evaluation = self.learner.evaluate(slot, now, slot == self.last_round)
        opinion = float(opinions.mean())
        self.recorder.round(
            RoundRow(
                round=slot,
                start_s=start_s,
                end_s=now,
                in_flight=training.in_flight,
                max_leak=training.clients.accountant.max_leak(),
                version=self.learner.version,
                accuracy=_NAN if evaluation is None else evaluation.accuracy,
                loss=_NAN if evaluation is None else evaluation.loss,
                reward=opinion,
                genie_reward=self.learner.best_opinion(slot),
                members=len(training.choice.members),
                opinion=opinion,
                opinion_s=now - trained_s,
                **training.totals,
                **columns,
            )
        )

    @property
    def clients(self) -> Clients:
        """The clients."""
        return self.training.clients

    @property
    def in_flight(self) -> int:
        """Updates that have been started and have not ended."""
        return self.training.in_flight

    def record_to(self, recorder: Recorder) -> None:
        """Send all records to `recorder` from now on."""
        self.recorder = recorder
        self.training.record_to(recorder)

    def record_unfinished(self) -> None:
        """The run is over: record what is still in flight as such."""
        self.training.record_unfinished()

    def state_dict(self) -> State:
        """Everything at a slot boundary."""
        return {"round": self.round, "training": self.training.state_dict()}

    def load_state_dict(self, state: State) -> None:
        """Take over a state of a slot boundary; the clock must stand at its time."""
        self.round = state["round"]
        self.training.load_state_dict(state["training"])


class FlFaServer(SlotServer):
    """FL&FA: all clients upload their opinions, the server's policy selects.

    Of an opinion that did not arrive the server keeps the client's last one; of a client it never heard of, the average of those
    it heard (1/2 if there are none).
    """

    def __init__(self, *, policy: OpinionPolicy, uplink: OpinionUplink, streams: Streams, **keywords: Any) -> None:
        super().__init__(**keywords)
        self.policy = policy
        self.uplink = uplink
        self._policy_draws = streams["policy"]
        self._heard: FloatArray = np.full(self.training.clients.count, _NAN)

    def _decide(self, slot: int) -> Generator[Any, Any, IntArray]:
        clients = self.training.clients
        everyone = np.ones(clients.count, np.bool_)
        participations = clients.accountant.participations.copy()
        view = RoundView(slot, self.clock.now, everyone, participations, self._policy_draws.generator(slot))
        chosen = self.policy.select(view)
        yield from ()
        return chosen

    def _close_slot(
        self, slot: int, members: IntArray, opinions: FloatArray, ready_s: FloatArray
    ) -> Generator[Any, Any, dict[str, Any]]:
        end_s, arrived = self.uplink.play(slot, ready_s, self.clock.now)
        yield self.clock.event_at(end_s, LAST)
        self._heard = np.where(arrived, opinions, self._heard)
        known = ~np.isnan(self._heard)
        rest = float(self._heard[known].mean()) if known.any() else 0.5
        self.policy.observe_opinions(slot, members, np.where(known, self._heard, rest))
        return {"opinions_missing": int(np.count_nonzero(~arrived))}

    def state_dict(self) -> State:
        """Everything at a slot boundary, with what the server has heard."""
        mine = {"heard": self._heard.copy(), "policy": self.policy.state_dict(), "uplink": self.uplink.state_dict()}
        return super().state_dict() | mine

    def load_state_dict(self, state: State) -> None:
        """Take over a state of a slot boundary; the clock must stand at its time."""
        super().load_state_dict(state)
        self._heard = state["heard"].copy()
        self.policy.load_state_dict(state["policy"])
        self.uplink.load_state_dict(state["uplink"], self.round, self.clock.now)


class FlDaServer(SlotServer):
    """FL&DA (Algorithm 2): clients test the model, exchange beliefs, spread their indices, and the top m take part.

    The opinions of a slot's talk are those of the model as it is then: of the test at the end of the slot before, and in slot 1
    of a test of the first model. A slot begins when the last client has tested.
    """

    def __init__(self, *, policy: IndexPolicy, conversation: Conversation, **keywords: Any) -> None:
        super().__init__(**keywords)
        self.policy = policy
        self.conversation = conversation
        self.talk: TalkOutcome | None = None
        """What came of the last talk."""
        self.on_talk: Callable[[int, TalkOutcome], None] = lambda slot, talk: None
        """Told of every talk, before training."""
        self._opinions: FloatArray | None = None
        self._counts = self._count()

    def _count(self) -> dict[str, int]:
        links = self.conversation.links
        return {
            "messages": links.sent,
            "messages_delivered": links.delivered,
            "messages_lost": links.lost,
            "messages_resent": links.resent,
            "message_bytes": links.sent_bytes,
        }

    def _decide(self, slot: int) -> Generator[Any, Any, IntArray]:
        if self._opinions is None:
            now = self.clock.now
            yield self.clock.event_at(now + float(self.tests.durations_s(0, now).max()), LAST)
            self._opinions = self.learner.opinions(0)
        opinions = self._opinions
        talk = yield from self.conversation.play(slot, opinions, lambda beliefs: self.policy.index(slot, beliefs))
        self.talk = talk
        self.on_talk(slot, talk)
        return talk.members

    def _close_slot(
        self, slot: int, members: IntArray, opinions: FloatArray, ready_s: FloatArray
    ) -> Generator[Any, Any, dict[str, Any]]:
        yield self.clock.event_at(float(ready_s.max()), LAST)
        self._opinions = opinions
        self.policy.observe_opinions(slot, members, opinions)
        talk, before = self.talk, self._counts
        assert talk is not None
        self._counts = self._count()
        changes = {name: count - before[name] for name, count in self._counts.items()}
        return changes | {
            "messages_in_flight": self.conversation.links.in_flight,
            "talk_s": talk.talk_s,
            "converged_s": talk.converged_s,
            "agreed_s": talk.agreed_s,
            "exchanges": talk.exchanges,
            "residual": talk.residual,
            "disagreement": talk.disagreement,
        }

    def record_to(self, recorder: Recorder) -> None:
        """Send all records to `recorder` from now on."""
        super().record_to(recorder)
        self.conversation.record_to(recorder)

    def record_unfinished(self) -> None:
        """The run is over: record what is still in flight as such."""
        super().record_unfinished()
        self.conversation.record_unfinished()

    def state_dict(self) -> State:
        """Everything at a slot boundary, with messages in flight."""
        return super().state_dict() | {
            "policy": self.policy.state_dict(),
            "conversation": self.conversation.state_dict(),
            "opinions": None if self._opinions is None else self._opinions.copy(),
        }

    def load_state_dict(self, state: State) -> None:
        """Take over a state of a slot boundary; the clock must stand at its time."""
        super().load_state_dict(state)
        self.policy.load_state_dict(state["policy"])
        self.conversation.load_state_dict(state["conversation"], self.round)
        self._opinions = None if state["opinions"] is None else state["opinions"].copy()
        self._counts = self._count()
