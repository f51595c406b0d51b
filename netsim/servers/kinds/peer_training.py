"""Training without a server: peers train, send each other models and combine them, each by a clock of its own.

A protocol says when (`netsim.peers.training`). An own round of a peer holds one local training, which is an attempt of the client
table. Round r of the run closes once every peer present has finished its own round r (or, for protocols without a barrier, once
peers have finished r on average); peers that are ahead go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from netsim.clients.attempts import Attempts, ObjectAttempts
from netsim.clients.vectorised.columns import Columns, Selected
from netsim.core.causes import END, MESSAGE, SCHEDULE, SENT, Cause
from netsim.core.clock import LAST, Event, Process
from netsim.core.errors import ParameterError
from netsim.core.state import StateFields
from netsim.network.transport.message_draws import EdgeDraws
from netsim.peers.training.protocol import NOTE, Arrival, MixingWeights, NoModels, PeerModels, TrainingProtocol
from netsim.servers.kinds.peer_rounds import PeerRounds
from netsim.servers.rounds.close import EndsOfRound
from netsim.servers.rounds.loop import ClosedRound, Instrument, NobodyLeftError, RoundLoop
from netsim.servers.rounds.round_server import RoundServer
from netsim.servers.rounds.waking import Waking

if TYPE_CHECKING:
    from netsim.clients.pool import ClientPool
    from netsim.clients.update import Update
    from netsim.core.protocols import BoolArray, IntArray, Learner, Selection, State
    from netsim.core.rows import ColumnValues
    from netsim.core.streams import Streams
    from netsim.network.transport.messages import Message, PeerGraph
    from netsim.network.transport.transport import Transport
    from netsim.records.sinks import Recorder

_EVER = float("inf")
_NOBODY = np.zeros(0, np.int64)
_NAMED = 3
"""Most peers that the text of a standstill names."""
_OFTEN = 16
"""Losses in a row after which a message may be one that can never arrive."""


class ModelDraws(EdgeDraws):
    """Draws of messages at (own round of the sender, attempt, edge). They do not depend on the round of the run."""

    def _address(self, key: int, attempt: int) -> int:
        """Return the address of the draws for messages of the own round `key`, at an `attempt` from 0."""
        return attempt << 64 | key


class PeersAtWork(StateFields):
    """The peers of `pool`: dispatch of a run without a server, and host of `protocol`.

    `size_bytes` (K,): bytes of a model as each peer sends it.
    """

    state_fields = ("protocol", "model", "round", "training", "_start", "_away", "_timers")
    needs_updates = needs_losses = False
    restarts: Sequence[tuple[int, int]] = ()
    selection: IntArray | Selection = _NOBODY
    live = True

    def __init__(
        self,
        *,
        pool: ClientPool,
        transport: Transport,
        protocol: TrainingProtocol,
        mixing: MixingWeights,
        streams: Streams,
        size_bytes: Sequence[int],
        models: PeerModels | None = None,
    ) -> None:
        peers = pool.count
        self.pool, self.transport, self.protocol, self.mixing = pool, transport, protocol, mixing
        self.graph: PeerGraph = transport.graph
        self.models: PeerModels = NoModels() if models is None else models
        self.draws = ModelDraws(transport, "peers", streams)
        transport.handlers[self.draws.name] = self
        self._foreseen: PeerRounds | None = None
        """Own rounds that are computed as arrays; None: all goes by events."""
        if protocol.retry_s is not None:
            transport.listen(self._on_sending_end)
        self._streams, self._sizes = streams, list(size_bytes)
        self.sizes: IntArray = np.array(self._sizes, np.int64)
        """(K,) bytes of a model as each peer sends it."""
        starts = self.graph.starts.tolist()
        self.neighbours = [range(starts[i], starts[i + 1]) for i in range(peers)]
        """Edges into each peer."""
        self.model: IntArray = np.full(peers, self.models.first())
        """(K,) number of each peer's present model."""
        self.round: IntArray = np.ones(peers, np.int64)
        """(K,) own round of each peer, from 1: the one under way, or the next to begin."""
        self.training: BoolArray = np.zeros(peers, np.bool_)
        """(K,) True for peers in local training."""
        self._start: IntArray = self.model.copy()
        """Model (K,) from which each peer's last local training started; the present model may change meanwhile."""
        self._at_work = 0
        """Number of peers in local training."""
        self._away: BoolArray = np.ones(peers, np.bool_)
        """(K,) True for peers that have not begun yet, or have gone away."""
        self._timers: list[tuple[float, int, int, Cause]] = []
        """Time, peer, key and cause of each timer that runs, in the order in which they were set."""
        self.attempts: Attempts = ObjectAttempts()
        self.open_round = 0
        """Number of the present round of the run."""
        self.last_round = 0
        """Own round after which a peer stops."""
        self.waking = Waking(pool.clock)
        self._left = 0
        """Number of own rounds still to finish before the present round of the run closes."""
        self._may_finish = 0
        """Number of own rounds that all peers together may still finish in the run."""
        self.standstill = ""
        """In words, which peers wait for which, where no round can close any more; empty otherwise."""
        self._never_moves = False
        """True if all peers were present at the last look, and none will come or go by its law."""
        self._beginning = -1
        """The peer whose own round begins at this instant and has not started its training; -1: none."""
        self._cause: Cause | None = None
        """Cause of present events; None: the opening of a round, or a return."""
        self.closer: Cause | None = None
        """The cause of the close of the present round, once all own rounds are finished."""
        protocol.attach(self)
        pool.watchers.append(self.waking.wake)
        # Nothing to do for attempts that are computed as arrays: `PeerRounds.settle` reports their ends to the protocol.
        pool.follow(self._on_end, lambda ended: None)

    # Dispatch

    def wait(self, number: int) -> Iterable[Event]:
        return ()

    def prepare(self, number: int) -> Iterable[Event]:
        return ()

    def choose(self, number: int, start_s: float) -> IntArray:
        """Open round `number` for messages, and return no client: peers begin their own rounds by themselves."""
        self.open_round = number
        self.closer = self._cause = None
        self.transport.open_slot(number, start_s)
        self.draws.open_slot(number, start_s)
        return _NOBODY

    def send(self, number: int) -> None:
        """Begin the peers that have not begun; the others go on by themselves.

        Own rounds are computed as arrays while that is possible. From the first round in which it is not they go by events, for
        good.
        """
        if self.pool.started == 0:
            self._foreseen = PeerRounds.if_foreseeable(self)
            if self._foreseen is not None:
                self.transport.copies = self._foreseen.messages
        elif self._foreseen is not None and not self._foreseen.prepare(number):
            self._foreseen.release()
            self._foreseen, self.transport.copies = None, list
        self.look_around()
        if self._foreseen is not None:
            self.pool.clock.call_at(self._foreseen.closes_s, self._play)

    def _play(self, payload: None) -> None:
        """Callback at the foreseen close of the present round: play all that happens up to it."""
        self.settle()

    def settle(self) -> None:
        """Bring peers up to the present time, if their rounds are computed as arrays."""
        if self._foreseen is not None:
            self._foreseen.settle(self.now)

    def leave_out(self, client: int) -> None:
        """All peers take part."""

    def held_versions(self, number: int) -> Iterable[int]:
        return ()

    def repeat(self, selection: IntArray | Selection) -> None:
        """Do nothing: all peers take part."""

    def tell(self, closed: ClosedRound) -> None:
        """Report the models in use to the store, which releases the others: those of peers, of trainings, of the protocol, and of
        messages on their way.
        """
        if self._foreseen is not None:
            contents = list(self._foreseen.contents())
        else:
            contents = [message.content for message in self.transport.unfinished()]
        models_on_the_way = [model for model, *_ in contents if model != NOTE]
        starts = self._start[self.training].tolist()
        self.models.settle(self.model, [*self.protocol.kept(), *starts, *models_on_the_way])

    def end_after(self, rounds: int) -> None:
        """Let peers stop after this own round."""
        self.last_round = rounds

    def look_around(self) -> None:
        """Handle peers that came and went since the last call, and count the own rounds that the present round still needs."""
        pool, self._cause = self.pool, None
        self._may_finish = self.last_round * pool.count - int((self.round - 1).sum())
        if not (pool.settled and self._never_moves):
            pool.advance()
            present = pool.present_and_charged()
            # A peer in training leaves with the end of its attempt (`_on_end`).
            for peer in np.flatnonzero(~present & ~self._away & ~self.training).tolist():
                self._leave(peer)
            for peer in np.flatnonzero(present & self._away).tolist():
                self._away[peer] = False
                self.round[peer] = self._round_at_return(peer)
                self._begin(peer)
            self._never_moves = pool.settled and not self._away.any()
        self._left = self._rounds_left()

    def _rounds_left(self) -> int:
        """Return the number of own rounds to finish until the present round of the run closes."""
        finished_rounds = self.round - 1
        if self.protocol.every_peer:
            return int(np.count_nonzero(~self._away & (finished_rounds < self.open_round)))
        return max(0, self.open_round * self.pool.count - int(finished_rounds.sum()))

    def is_closed(self) -> bool:
        """Return True if the present round of the run is over."""
        return self._left == 0 and not self._away.all()

    def is_blocked(self) -> bool:
        """Return True if no round ever closes: peers wait for messages that nothing under way can bring.

        Messages that can still arrive, training, timers that end a wait, and peers that come back and go on are under way.
        """
        # The timers of a protocol that never rests go on for ever, also if nothing can arrive any more.
        endless = self.protocol.never_rests
        if self._foreseen is not None or self._at_work or (self._timers and not endless):
            return False
        returning = np.flatnonzero(self._away & self.pool.ever_present()).tolist()
        if not all(self._rests_at_return(peer) for peer in returning):
            return False
        if not (self.transport.waiting or self._timers or (returning and endless)):
            return True
        return self.transport.is_futile(anywhere=endless)

    def _rests_at_return(self, peer: int) -> bool:
        """Return True if `peer`, which is away, would only wait for messages at its return."""
        round = self._round_at_return(peer)
        return not self._may_begin(round) or self.protocol.rests(peer, round)

    def _round_at_return(self, peer: int) -> int:
        """Return the own round that `peer` begins when it comes back."""
        round = int(self.round[peer])
        # With a barrier, a peer that comes back takes part in the round that is open, and leaves out those that it missed.
        return max(round, self.open_round) if self.protocol.every_peer else round

    def describe_waits(self) -> str:
        """Return in words for which others peers wait, of the first few peers that wait; empty if the protocol does not say."""
        waits = []
        for peer in range(self.pool.count):
            others = [str(self.transport.sources[edge]) for edge in self.protocol.awaited(peer)]
            if others:
                waits.append(f"peer {peer} for {', '.join(others)}")
        text = "; ".join(waits[:_NAMED])
        if len(waits) > _NAMED:
            text += f"; and {len(waits) - _NAMED} more"
        return text

    def note_standstill(self) -> None:
        """Note that no round can close any more, and who waits for whom."""
        self.standstill = self.describe_waits() or "nothing is under way"

    def rounds_ahead(self) -> int:
        """Number of own rounds by which the farthest peer is ahead of the run's round."""
        return int(self.round.max()) - 1 - self.open_round

    # Host

    @property
    def now(self) -> float:
        return self.pool.clock.now

    def uniforms(self, name: str, peer: int, key: int) -> float:
        return float(self._streams[f"peers.{name}"].uniforms_at(key, np.array([peer]), self.pool.count)[0])

    def outgoing(self, peer: int) -> Sequence[int]:
        return self.transport.outgoing[peer]

    def train(self, peer: int, start: int | None = None) -> None:
        """Begin the local training of `peer`, an attempt of its present own round, from the model `start`; None: its own."""
        self.training[peer] = True
        self._start[peer] = self.model.item(peer) if start is None else start
        self._at_work += 1
        # The attempt has its number from here on: messages that the peer sends later are not sent before it (`_send`).
        self._beginning = -1
        pool, round = self.pool, self.round.item(peer)
        if self._foreseen is not None:
            self._foreseen.begin(peer, round, self._cause or pool.causes.begin_cause(peer))
            return
        with pool.causes.attribute_to(self._cause):
            pool.start(round, np.array([peer]), 0)

    def _next_attempt(self) -> int:
        """Return the number of the attempt that begins next."""
        # Attempts that are computed as arrays are counted by the pool only at `settle`.
        begun_as_arrays = 0 if self._foreseen is None else self._foreseen.begun
        return self.pool.started + begun_as_arrays + 1

    def send_model(self, peer: int, edges: Sequence[int], key: int, model: int, attached: float = 0.0) -> int:
        compressed = self.models.compress(peer, key, model)
        self._send(peer, edges, key, self._sizes[peer], compressed, attached)
        return compressed

    def send_note(self, peer: int, edges: Sequence[int], key: int, size_bytes: int) -> None:
        if size_bytes < 0:
            raise ParameterError("size_bytes", size_bytes, "must be >= 0 bytes")
        self._send(peer, edges, key, size_bytes, NOTE, 0.0)

    def _send(self, peer: int, edges: Sequence[int], key: int, size_bytes: int, model: int, attached: float) -> None:
        """Send `model` or a note (NOTE) over `edges`, with the number `attached` and the cause of what it makes its receiver do.
        """
        if not edges:
            return
        # The cause travels with the message, because what it makes its receiver do was caused by the attempt behind it: SENT if
        # the message left at the beginning of an attempt, MESSAGE if at the end of one; an answer keeps the cause of its message.
        cause = self._cause or Cause(SCHEDULE)
        if self._beginning == peer:
            cause = Cause(SENT, self._next_attempt())
        elif cause.kind == END:
            cause = Cause(MESSAGE, cause.after)
        content = [model, attached, cause]
        if self._foreseen is not None:
            self._foreseen.send(peer, key, content)
        else:
            self.transport.send(self, list(edges), key, size_bytes, content)

    def call_in(self, delay_s: float, peer: int, key: int) -> None:
        self._arm(self.now + delay_s, peer, key, self._cause or Cause(SCHEDULE))

    def combine(self, models: Sequence[int], weights: Sequence[float]) -> int:
        return self.models.combine(models, weights)

    def finish(self, peer: int, model: int) -> None:
        """Finish the own round of `peer` with `model`, wake the close rule after the last round needed, and begin the next round.
        """
        # Count before the next round begins: without durations it may end within `_begin`.
        round = self.round.item(peer) + 1
        self.model[peer], self.round[peer] = model, round
        self._may_finish -= 1
        if not self.protocol.every_peer or round == self.open_round + 1:
            self._left -= 1
            if self._left <= 0:
                self.closer = self.closer or self._cause
                self.waking.wake_at_end_of_instant()
        self._begin(peer)

    def _begin(self, peer: int) -> None:
        """Begin the present own round of `peer`, if the run needs it."""
        if self._may_begin(self.round.item(peer)):
            self._beginning = peer
            self.protocol.begin(peer)
            self._beginning = -1

    def _may_begin(self, round: int) -> bool:
        """Return True if a peer may begin its own `round`: without any durations a run would go on for ever in one instant."""
        return round <= self.last_round if self.protocol.every_peer else self._may_finish > 0

    def _leave(self, peer: int) -> None:
        """Note that `peer` has gone away: its timers never ring, and the protocol hears of it."""
        self._away[peer] = True
        self._never_moves = False
        self._timers = [(time_s, timed, key, cause) for time_s, timed, key, cause in self._timers if timed != peer]
        self.protocol.on_leave(peer)

    def _arm(self, time_s: float, peer: int, key: int, cause: Cause) -> None:
        """Set a timer, at which the protocol is called with `peer` and `key`. `cause`: cause of what that call does."""
        timer = (time_s, peer, key, cause)
        self._timers.append(timer)
        # Messages that arrive at the same instant come before.
        self.pool.clock.call_at(time_s, self._ring, timer, priority=LAST)

    def _ring(self, timer: tuple[float, int, int, Cause]) -> None:
        """Callback at the time of a timer: call the protocol, unless the peer has gone away since the timer was set."""
        if timer in self._timers:
            self._timers.remove(timer)
            _, peer, key, self._cause = timer
            self.protocol.on_timer(peer, key)

    def _on_end(self, update: Update) -> None:
        """Handle the end of a peer's training: give the model to the protocol, or note that the peer has left."""
        peer = update.client
        if update.outcome == "delivered":
            self.handle_training(peer, update.number, update.begun_round, int(update.drawn_steps), update.epsilon)
            self._look_for_block()
        else:
            self._note_end(peer, update.number)
            self._leave(peer)
            self.waking.wake_at_end_of_instant()

    def handle_training(self, peer: int, attempt: int, round: int, steps: int, epsilon: float) -> None:
        """Handle the end of the local training of `peer`, which was its `attempt` in its own `round`; `steps`, `epsilon`: as
        `PeerModels.train` takes them.
        """
        self._note_end(peer, attempt)
        self.protocol.on_trained(peer, self.models.train(peer, round, self._start.item(peer), steps, epsilon))

    def _note_end(self, peer: int, attempt: int) -> None:
        """Note that `peer` trains no longer, and that the end of its `attempt` causes what happens now."""
        self.training[peer] = False
        self._at_work -= 1
        self._cause = Cause(END, attempt)

    # Handler of messages

    def on_arrival(self, message: Message) -> None:
        self.handle_message(message.edge, message.key, message.content)
        self._look_for_block()

    def handle_message(self, edge: int, key: int, content: Any) -> None:
        """Hand a message that has arrived over `edge` to the protocol."""
        transport = self.transport
        model, attached, self._cause = content
        # Not by the constructor, which costs several times as much: every message passes here.
        fields = transport.targets[edge], transport.sources[edge], edge, key, model, attached
        self.protocol.on_message(tuple.__new__(Arrival, fields))

    def on_loss(self, message: Message) -> None:
        _, _, self._cause = message.content
        self.protocol.on_lost(self.transport.sources[message.edge], message.edge, message.key)
        self._look_for_block()

    def _on_sending_end(self, message: Message) -> None:
        """Wake the close rule, which checks `is_blocked`, if a message was lost so often that it may never arrive."""
        # The protocol does not hear of such a message: it is sent again and again.
        if message.tries >= _OFTEN and not self._at_work:
            self.waking.wake_at_end_of_instant()

    def _look_for_block(self) -> None:
        """Wake the close rule if perhaps nothing is under way any more; it then checks `is_blocked`."""
        if not self._at_work and (self.protocol.never_rests or not self.transport.waiting):
            self.waking.wake_at_end_of_instant()

    # State

    def state_dict(self) -> State:
        return super().state_dict() | {"transport": self.transport.state_dict(), "open_round": self.open_round}

    def load_state_dict(self, state: State) -> None:
        """Restore the peers; put their messages on the clock again, then their timers."""
        super().load_state_dict(state)
        self.open_round = state["open_round"]
        self._at_work = int(np.count_nonzero(self.training))
        now = self.now
        self.transport.load_state_dict(state["transport"], self.open_round, now)
        # A saved state holds causes as plain lists: make them causes again, in contents (model, attached, cause) and in timers.
        for message in self.transport.unfinished():
            message.content[2] = Cause(*message.content[2])
        saved_timers, self._timers = self._timers, []
        for time_s, peer, key, cause in saved_timers:
            self._arm(time_s, peer, key, Cause(*cause))


class AllFinished(EndsOfRound):
    """Close once the peers have finished their own rounds."""

    def __init__(self, *, pool: ClientPool, peers: PeersAtWork) -> None:
        super().__init__()
        self._pool, self._peers = pool, peers
        self._ended_tables: list[Columns] = []
        """Attempts that have ended since the last close and were computed as arrays; other attempts are in `ends`."""
        pool.follow(self._on_end, self._ended_tables.append)

    def _on_end(self, update: Update) -> None:
        """Note that an attempt has ended."""
        self.ends.append(update)

    def collect(self, attempts: Attempts) -> Attempts:
        """Return the attempts that ended since the last close, in the order of ends."""
        # The attempts of a round are either all computed as arrays, or all simulated by events.
        if not self._ended_tables:
            return super().collect(attempts)
        ended = self._ended_tables[0].append_tables(self._ended_tables[1:])
        self._ended_tables.clear()
        return Selected(ended, np.arange(len(ended)), _EVER)

    def open(self, number: int, start_s: float, expected: int) -> None:
        return None

    def wait(self) -> Process[None]:
        """Wait until the present round is over; raises NobodyLeftError if it never can be, because peers wait for each other."""
        # Every waking looks again: which peers are present, which have finished, and whether anything can still go on.
        pool, peers = self._pool, self._peers
        while not peers.is_closed():
            if peers.is_blocked():
                peers.note_standstill()
                raise NobodyLeftError
            if not pool.settled:
                peers.waking.wake_at(float(pool.availability.next_change_s.min()))
            yield peers.waking.event()
            peers.look_around()
        rule = "all peers" if peers.protocol.every_peer else "one each"
        if peers.closer is not None:
            pool.causes.close(peers.closer, rule)
        pool.causes.close_now(rule)


class MessagesBetweenPeers(Instrument):
    """Instrument for the messages of a round, jamming of them, and the lead of the farthest peer."""

    state_fields = ("_before",)

    def __init__(self, peers: PeersAtWork) -> None:
        self._peers = peers
        self._before = self._counts_now()
        """Counts at the last close."""
        self.round_columns = (*self._before, "messages_in_flight", "rounds_ahead")

    def _counts_now(self) -> dict[str, int]:
        """Return the counts of messages, and of jammers, since the start of the run."""
        links = self._peers.transport
        return {
            "messages": links.sent,
            "messages_delivered": links.delivered,
            "messages_lost": links.lost,
            "messages_resent": links.resent,
            "message_bytes": links.sent_bytes,
            **links.counts(),
        }

    def columns(self, closed: ClosedRound) -> ColumnValues:
        """Return the counts since the last close, the messages in flight, and the lead of the farthest peer."""
        now, before = self._counts_now(), self._before
        self._before = now
        changes = {name: count - before[name] for name, count in now.items()}
        in_flight = self._peers.transport.in_flight
        return changes | {"messages_in_flight": in_flight, "rounds_ahead": self._peers.rounds_ahead()}

    def counts(self) -> dict[str, int]:
        return self._counts_now() | {"messages_in_flight": self._peers.transport.in_flight}


class PeerServer(RoundServer):
    """Rounds of a run without a server."""

    def __init__(self, *, loop: RoundLoop, peers: PeersAtWork) -> None:
        self.peers = peers
        super().__init__(loop=loop)

    @property
    def transport(self) -> Transport:
        return self.peers.transport

    @property
    def standstill(self) -> str:
        return self.peers.standstill

    def renew_messages(self) -> None:
        """Draw messages from now on under the new law: a script has replaced a law of the links."""
        self.peers.draws.renew()

    def end_after(self, rounds: int) -> None:
        super().end_after(rounds)
        self.peers.end_after(rounds)

    def record_to(self, recorder: Recorder) -> None:
        super().record_to(recorder)
        self.peers.transport.record_to(recorder)

    @property
    def in_flight(self) -> int:
        """Number of attempts in flight, after peers are brought up to the present time."""
        self.peers.settle()
        return super().in_flight

    def counts(self) -> dict[str, int]:
        """Return the counts since the start of the run, after peers are brought up to the present time."""
        self.peers.settle()
        return super().counts()

    def record_unfinished(self) -> None:
        """Record attempts and messages that are under way as the run ends."""
        self.peers.settle()
        self.clients.go_by_events()
        for update in self.clients.in_flight.values():
            # Peers begin one by one: unfinished attempts of a round are recorded in the order of their beginnings.
            update.send_place = update.number
        super().record_unfinished()
        self.peers.transport.record_unfinished()


def peer_server(*, pool: ClientPool, peers: PeersAtWork, learner: Learner) -> PeerServer:
    """Return the coordinator of a run without a server; `learner` measures the peers' models."""
    loop = RoundLoop(
        pool=pool,
        dispatch=peers,
        close=AllFinished(pool=pool, peers=peers),
        learner=learner,
        instruments=[MessagesBetweenPeers(peers)],
    )
    return PeerServer(loop=loop, peers=peers)
