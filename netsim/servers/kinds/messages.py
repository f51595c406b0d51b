"""Rounds of an application that drives the clock itself: it sends messages to clients and waits for their replies.

A message goes through the steps of any update: transfer, local work, access, transfer of the reply. A client works on one message
at a time; further messages wait in the order in which they were sent.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Protocol

import numpy as np

from netsim.clients.attempts import ObjectAttempts
from netsim.core.clock import LAST, Event, EventLimitError, NothingScheduledError, Process
from netsim.network.sizes import Sizes
from netsim.servers.rounds.close import EndsOfRound
from netsim.servers.rounds.loop import Dispatch
from netsim.servers.rounds.round_server import RoundServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from simpy.events import Event

    from netsim.clients.attempts import Attempts
    from netsim.clients.pool import ClientPool
    from netsim.clients.rules import Load
    from netsim.clients.update import Update
    from netsim.core.protocols import BoolArray, IntArray, State
    from netsim.servers.rounds.loop import ClosedRound, RoundLoop

_EVER = float("inf")
BY_ROUNDS, BY_TIME, BY_EVENTS = "rounds", "time limit", "event limit"
"""Reasons why a run is over; others are in `netsim.simulation`."""
_NO_CLIENTS: IntArray = np.zeros(0, np.int64)
ABSENT, EXPIRED, UNSENT = "absent", "expired", "unsent"
"""Causes of messages that end before they leave the server: the client is absent, the message expires in its queue, the run
ends."""


def trains(kind: str) -> bool:
    """Return True if messages of this kind, "train" or "train.NAME", ask for training."""
    return kind.partition(".")[0] == "train"


class Message:
    """A message to `client`, of `bytes_down` bytes, that is void after `expires_s`.

    `work`: called as the client begins to work on it; returns the load. `on_end`: called as the message ends; `outcome` is then
    "delivered", "lost", or one of the causes above.
    """

    __slots__ = ("bytes_down", "client", "expires_s", "kind", "loss", "number", "on_end", "outcome", "round", "sent_s", "work")

    def __init__(
        self,
        *,
        client: int,
        kind: str,
        bytes_down: int,
        expires_s: float,
        work: Callable[[Message], Load],
        on_end: Callable[[Message], object],
    ) -> None:
        self.client, self.kind, self.bytes_down, self.expires_s = client, kind, bytes_down, expires_s
        self.work, self.on_end = work, on_end
        self.outcome = ""
        """Outcome; empty while the message is in progress."""
        self.number = self.round = 0
        self.sent_s = 0.0
        """Time at which the application sent it."""
        self.loss = float("nan")
        """Loss that the reply reports; NaN: none."""

    @property
    def trains(self) -> bool:
        """True if the message asks for training."""
        return trains(self.kind)


class MessageSizes(Sizes):
    """Sizes of messages (`requests`) and `replies`, bytes by client. Each message sets them before it is sent."""

    __slots__ = ("replies", "requests")

    def __init__(self, clients: int) -> None:
        super().__init__(down=1, up=1)
        self.requests: list[int] = [1] * clients
        self.replies: list[int] = [1] * clients

    def model_sizes(self, clients: int) -> Sequence[int]:
        """Return the list of requests itself: the transfer of messages reads changes."""
        return self.requests

    def update_sizes(self, clients: int) -> Sequence[int]:
        """Return the list of replies itself: the transfer of replies reads changes."""
        return self.replies


class Messages:
    """Messages to clients: each client's queue, and the message on which it works.

    A client without an earlier message in its queue begins at once; a client that is absent by then begins as it returns.
    `work_on` is the rule `UpdateRules.on_work` of the pool.
    """

    def __init__(self, sizes: MessageSizes, ask_s: float = 0.0) -> None:
        """Create empty queues. `ask_s`: an idle client asks for messages every so many seconds; 0: the server sends at once."""
        self.sizes = sizes
        self._ask_s = ask_s
        self._idle_since_s = [0.0] * len(sizes.requests)
        """Time at which each client ended its last message."""
        self.pool: ClientPool
        self.round = 0
        """The round under way."""
        self._in_work: dict[int, Message] = {}
        """Message that has left the server and has not ended, by client."""
        self._queues: dict[int, deque[Message]] = {}
        """Messages that wait at the server, by client."""
        self._open: dict[int, Message] = {}
        """Messages in progress that can expire, by number."""
        self._ending: Message | None = None
        """Message that ends before it leaves the server."""
        self._numbers: IntArray = np.zeros(len(sizes.requests), np.int64)
        """Number of messages (K,) begun by each client, which addresses their random numbers."""
        self._sent = 0
        """Number of messages sent so far."""
        self.followers: list[Callable[[Message, Update], object]] = []
        """Listeners called with each message that has left the server, and its update, as the update ends."""

    def open_round(self, number: int) -> None:
        """Let messages that are sent from now on belong to round `number`."""
        self.round = number

    def connect(self, pool: ClientPool) -> None:
        """Connect to `pool`; called once, before other listeners follow its attempts."""
        self.pool = pool
        pool.follow(self._on_end)
        pool.watchers.append(self._on_presence)

    def present(self) -> BoolArray:
        """Return True (K,) for clients that are present."""
        return self.pool.selectable(busy_too=True)

    def idle(self) -> BoolArray:
        """Return True (K,) for clients that are present and have no message."""
        idle = self.present().copy()
        idle[list(self._in_work)] = False
        idle[[client for client, queue in self._queues.items() if queue]] = False
        return idle

    def send(self, messages: Sequence[Message]) -> None:
        """Send messages in this order. Messages to absent clients end at once."""
        # A message has one of four fates now: its client is absent (it ends), at work (it queues), idle and not asking yet (it
        # queues until the client asks), or ready (it begins). All that begin are started in one call.
        now, present = self.pool.clock.now, self.present()
        ready: list[Message] = []
        for message in messages:
            self._sent += 1
            message.number, message.round, message.sent_s = self._sent, self.round, now
            client = message.client
            if not present[client]:
                self._end_unsent(message, ABSENT)
                continue
            if message.expires_s < _EVER:
                self._open[message.number] = message
                self.pool.clock.call_at(max(message.expires_s, now), self._expire, message.number, LAST)
            if client in self._in_work or self._queues.get(client):
                self._queues.setdefault(client, deque()).append(message)
                continue
            asks_s = self._next_ask_s(client)
            if asks_s > now:
                self._queues.setdefault(client, deque()).append(message)
                self.pool.clock.call_at(asks_s, self._begin_next, client)
            else:
                self._in_work[client] = message
                ready.append(message)
        self._begin(ready)

    def _next_ask_s(self, client: int) -> float:
        """Return the time at which an idle client asks for messages next, now at the earliest."""
        now, since_s = self.pool.clock.now, self._idle_since_s[client]
        if not self._ask_s:
            return now
        # The client asks at multiples of `_ask_s` since it became idle. Rounding may put the product a little before now.
        asks = math.ceil((now - since_s) / self._ask_s)
        return max(since_s + asks * self._ask_s, now)

    def _begin(self, messages: Sequence[Message]) -> None:
        """Begin one message for each of several clients.

        Messages of equal rank (the k-th message of each client) have the same address of random numbers, so they share one call
        of the pool.
        """
        by_address: dict[int, list[Message]] = {}
        for message in messages:
            self.sizes.requests[message.client] = message.bytes_down
            self._numbers[message.client] += 1
            by_address.setdefault(int(self._numbers[message.client]), []).append(message)
        for address, same_rank in by_address.items():
            clients = np.array([message.client for message in same_rank], np.int64)
            # Messages carry no model: the round stands for its version.
            self.pool.start(self.round, clients, version=self.round, address=address)

    def work_on(self, update: Update) -> Load:
        """Return the load of the message of `update`, as its work begins."""
        message = self._in_work[update.client]
        load = message.work(message)
        self.sizes.replies[update.client] = load.bytes_up
        return load

    def describe(self, update: Update) -> None:
        """Copy kind, send time and round of the message to the record of `update`."""
        message = self._in_work.get(update.client) if self._ending is None else self._ending
        if message is not None:
            update.kind, update.selected_s, update.round = message.kind, message.sent_s, message.round

    def _on_end(self, update: Update) -> None:
        """Handle the end of an update: end its message, and begin the client's next message at this instant."""
        self.describe(update)
        if self._ending is not None:
            # `_end_unsent` ends the message itself.
            return
        message = self._in_work.pop(update.client)
        self._idle_since_s[update.client] = self.pool.clock.now
        if self._queues.get(update.client):
            # By a call, not directly: the application hears of this end first, and may send more messages to the client.
            self.pool.clock.call_at(self.pool.clock.now, self._begin_next, update.client)
        for follower in self.followers:
            follower(message, update)
        # To the application every other outcome is a loss.
        outcome = "delivered" if update.outcome == "delivered" else "lost"
        self._end(message, outcome)

    def _end(self, message: Message, outcome: str) -> None:
        """Set the outcome of a message and call its `on_end`, unless it has expired before."""
        if message.outcome:
            return
        message.outcome = outcome
        # The application does not learn of a loss: a lost message stays open until it expires.
        if outcome != "lost":
            self._open.pop(message.number, None)
        message.on_end(message)

    def _end_unsent(self, message: Message, cause: str) -> None:
        """End a message that never leaves the server."""
        # The pool records the end at once, and `describe` then reads which message it is.
        self._ending = message
        self.pool.refuse(self.round, message.client, version=self.round, cause=cause)
        self._ending = None
        self._end(message, cause)

    def _begin_next(self, client: int) -> None:
        """Begin the next message of `client`; if the client is absent, try again at its return."""
        queue = self._queues.get(client)
        if not queue or client in self._in_work:
            return
        if self.present()[client]:
            self._in_work[client] = queue.popleft()
            self._begin([self._in_work[client]])
            return
        next_s = float(self.pool.availability.next_change_s[client])
        if next_s < _EVER:
            self.pool.clock.call_at(max(next_s, self.pool.clock.now), self._begin_next, client, LAST)

    def _on_presence(self) -> None:
        """Handle that a script moved clients: begin messages that wait for clients that are present now."""
        for client, queue in self._queues.items():
            if queue:
                self._begin_next(client)

    def _expire(self, number: int) -> None:
        """Callback at the time at which message `number` expires: end it if it is still open."""
        message = self._open.pop(number, None)
        if message is None:
            return
        queue = self._queues.get(message.client, ())
        if message in queue:
            self._queues[message.client].remove(message)
            self._end_unsent(message, EXPIRED)
        else:
            # The client does not know that the message has expired: it works on, and its reply is void.
            message.outcome = EXPIRED
            message.on_end(message)

    def stop(self) -> None:
        """End the messages in queues at the end of the run."""
        for queue in self._queues.values():
            while queue:
                self._end_unsent(queue.popleft(), UNSENT)


class MessageSelection(Protocol):
    """Selection of the clients that an application may send messages to."""

    needs_losses: bool
    """True if the selection reads the losses that replies report."""

    @property
    def restarts(self) -> Sequence[tuple[int, int]]:
        """Changes of clients' latencies that a policy has declared so far, as (round, client)."""

    def clients(self) -> IntArray:
        """Return the clients (n,) that the application may send messages to now, ascending."""

    def on_training(self) -> None:
        """Note that training messages have been sent."""

    def close(self) -> None:
        """Report the outcomes of training messages since the last selection to the policy, if there are any."""


class MessageDispatch(Dispatch):
    """Dispatch without clients at the opening of a round: the application sends messages later.

    `choice` names the clients that it may send messages to.
    """

    needs_updates = needs_losses = False
    selection = _NO_CLIENTS

    def __init__(self, messages: Messages, choice: MessageSelection) -> None:
        self.attempts: Attempts = ObjectAttempts()
        self.choice = choice
        self._messages = messages

    @property
    def restarts(self) -> Sequence[tuple[int, int]]:
        """Changes that the policy of the selection has declared so far."""
        return self.choice.restarts

    def wait(self, number: int) -> Iterable[Event]:
        """Return no events: a round opens at once."""
        return ()

    def prepare(self, number: int) -> Iterable[Event]:
        """Return no events: nothing is prepared."""
        return ()

    def choose(self, number: int, start_s: float) -> IntArray:
        """Return no clients: the application sends later."""
        return _NO_CLIENTS

    def send(self, number: int) -> None:
        """Let messages that are sent from now on belong to round `number`."""
        self._messages.open_round(number)

    def leave_out(self, client: int) -> None:
        """Do nothing: no client is chosen at the opening."""

    def tell(self, closed: ClosedRound) -> None:
        """Report the outcomes of training messages to the policy of the selection."""
        self.choice.close()

    def state_dict(self) -> State:
        """Return an empty state: a run of an application cannot be resumed."""
        return {}

    def load_state_dict(self, state: State) -> None:
        """Do nothing: there is no state."""


class ClosedByApp(EndsOfRound):
    """Close rule: a round closes when the application begins the next round, or ends. Attempts that ended in it belong to it."""

    def __init__(self, pool: ClientPool) -> None:
        super().__init__()
        self._pool = pool
        pool.follow(self._on_end)

    def _on_end(self, update: Update) -> None:
        """Count an ended attempt for this round."""
        self.ends.append(update)

    def open(self, number: int, start_s: float, expected: int) -> None:
        """Do nothing: the application closes the round."""

    def wait(self) -> Iterable[Event]:
        """Yield an event once; the process goes on when the application closes the round (`MessageServer.close_round`)."""
        yield self._pool.clock.event()
        self._pool.causes.close_now("application")


class RunOverError(BaseException):
    """Signal that the run is over, raised inside the application; `why`: a reason of `netsim.simulation` or of this module.

    A BaseException, so that an application that catches every Exception does not catch it.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class MessageServer(RoundServer):
    """A server whose rounds an application opens, and whose clock goes on while the application waits.

    `choice` names the clients that the application may send messages to.
    """

    def __init__(self, *, loop: RoundLoop, messages: Messages, choice: MessageSelection) -> None:
        super().__init__(loop=loop)
        self.messages, self.choice = messages, choice
        self._limit_s = _EVER
        """Time at which the run ends at the latest."""
        self._on_round: Callable[[], object] = lambda: None
        self._round: Process[None] | None = None
        """Process of the round under way; None: no round is open."""

    def begin(self, limit_s: float, on_round: Callable[[], object]) -> None:
        """End the run at `limit_s`, and call `on_round` after each close of a round."""
        self._limit_s, self._on_round = limit_s, on_round

    @property
    def is_open(self) -> bool:
        """True while a round is under way."""
        return self._round is not None

    def open_round(self) -> None:
        """Close the round under way, if there is one, and open the next; raises RunOverError past the last one."""
        self.close_round()
        if self.round >= self.last_round:
            raise RunOverError(BY_ROUNDS)
        self._round = self.run_round()
        next(self._round)

    def close_round(self) -> None:
        """Close the round under way, if there is one."""
        if self._round is not None:
            # The process of the round waits at its one event (`ClosedByApp.wait`): going on with it runs the close to its end.
            closing, self._round = self._round, None
            for _ in closing:
                raise AssertionError("a round of an application has one close")
            self._on_round()

    def send(self, messages: Sequence[Message]) -> None:
        """Send messages in this order."""
        self.messages.send(messages)
        if any(message.trains for message in messages):
            self.choice.on_training()

    def note_loss(self, timeout_s: float) -> None:
        """Note that a message was lost for which the application waits up to `timeout_s`; inf: without a timeout."""
        self.waited_for_lost_s = max(self.waited_for_lost_s, timeout_s)

    def wait(self, awaited: Event) -> None:
        """Run the simulation until the event `awaited` has happened.

        Raises RunOverError if the run is over before, and NothingScheduledError if the event can never happen.
        """
        try:
            happened = self.loop.clock.run_until(awaited, self._limit_s)
        except EventLimitError as error:
            raise RunOverError(BY_EVENTS) from error
        if not happened:
            raise RunOverError(BY_TIME)

    def wait_until(self, time_s: float) -> None:
        """Run the simulation up to and including `time_s`; raises RunOverError."""
        clock = self.loop.clock
        if time_s > clock.now:
            self.wait(clock.event_at(time_s, LAST))

    def step(self) -> None:
        """Run the events of the next instant; raises RunOverError, and NothingScheduledError if no event is left."""
        clock = self.loop.clock
        next_s = clock.peek()
        if next_s == _EVER:
            raise NothingScheduledError("nothing is scheduled any more")
        self.wait(clock.event_at(next_s, LAST))

    def record_unfinished(self) -> None:
        """End messages in queues, and record messages in work as in flight, at the end of the run."""
        self.messages.stop()
        for update in self.clients.in_flight.values():
            self.messages.describe(update)
        super().record_unfinished()
