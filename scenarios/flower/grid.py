"""The Grid of an app: messages go over the simulated world, and waiting lets simulated time pass."""

from __future__ import annotations

import math
import threading
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar

from flwr.app import Error, Message
from flwr.serverapp import Grid

from netsim.core.clock import LAST, NothingScheduledError
from netsim.servers.kinds import messages as engine
from scenarios.flower import internals
from scenarios.flower.randomness import restore_state, save_state
from scenarios.flower.simulated_time import EPOCH_S, AppTime, mark_code
from scenarios.schema.errors import UserError
from scenarios.schema.section import Tables

if TYPE_CHECKING:
    from flwr.app import RecordDict

    from netsim.clients.rules import Load
    from netsim.servers.kinds.messages import MessageServer
    from scenarios.flower.nodes import Answer, Nodes
    from scenarios.flower.reports import Reports
    from scenarios.schema.servers.flower import Flower

P = ParamSpec("P")
T = TypeVar("T")
_MOST_POLLS = 1000
"""Most calls of `get_node_ids` in a row without a message. After that the app would wait for ever if no node comes or goes."""
_ERRORS = {
    engine.ABSENT: (internals.NODE_UNAVAILABLE, "the node is not connected"),
    engine.EXPIRED: (internals.REPLY_UNAVAILABLE, "the message has expired without a reply"),
    "lost": (internals.REPLY_UNAVAILABLE, "the message was lost on its way"),
}


def _called_by_app(method: Callable[P, T]) -> Callable[P, T]:
    """Decorator of the methods that the app calls.

    Calls from other threads are refused, and kept failures raised again. Within the method time is real.
    """

    @wraps(method)
    def check_and_call(*args: P.args, **kwargs: P.kwargs) -> T:
        """Check the caller and earlier failures, and call the method in real time."""
        grid: Any = args[0]
        if threading.get_ident() != grid.time.thread:
            message = f"its ServerApp calls Grid.{method.__name__} in a thread of its own"
            grid.refuse(f"{message}, whose place in simulated time nothing tells; call the Grid in the thread of main")
        grid.check()
        with mark_code(grid.time, is_app=False), grid.own_randomness():
            return method(*args, **kwargs)

    return check_and_call


class SimulatedGrid(Grid):
    """Grid over the clients of `server`; `nodes` answer messages, `reports` collect the reported metrics."""

    def __init__(
        self,
        *,
        server: MessageServer,
        nodes: Nodes,
        reports: Reports,
        section: Flower,
        run_config: Tables,
        is_file: Callable[[str], bool],
    ) -> None:
        """`is_file`: function that returns True for names of files of the app."""
        self.section = section
        self._server, self._nodes, self._reports = server, nodes, reports
        self._clock = server.clients.clock
        self.time = AppTime(self._now_s, self._sleep, is_file)
        self._run = internals.run_details(run_config)
        self._replies: dict[str, Message] = {}
        self._waiting: Tables = {}
        """Messages whose replies the app waits for, with their group and the event of its last reply."""
        self._timeout_s = 0.0
        """Timeout of the present wait for replies; 0 outside of `send_and_receive`."""
        self._message_count = 0
        self._app_round = 0
        self._early = False
        """True while the first round has only messages that belong to no round, such as requests for initial parameters."""
        self._pulled_s = -1.0
        """Time of the last `pull_messages` without a reply; -1: none."""
        self._polls = 0
        """Calls of `get_node_ids` since the last message was sent."""
        self._working = False
        """True while a ClientApp runs."""
        self._randomness: tuple[Any, ...] | None = None
        """Random state of the ServerApp, kept while ClientApps run."""
        self.failure: Exception | None = None
        """Failure of the simulation or of a ClientApp. It is kept, because the ServerApp may catch it."""
        self._failure_traceback: types.TracebackType | None = None

    def check(self) -> None:
        """Raise the kept failure again, with its own traceback instead of the app's."""
        if self.failure is not None:
            raise self.failure.with_traceback(self._failure_traceback)

    @contextmanager
    def _keep_failures(self) -> Iterator[None]:
        """Keep an exception of the block for `check`: it is a failure of the simulation, and not an error of the ServerApp."""
        try:
            yield
        except Exception as error:
            self.failure, self._failure_traceback = error, error.__traceback__
            raise

    def refuse(self, problem: str) -> NoReturn:
        """Raise UserError for a mistake of the app, and keep it."""
        with self._keep_failures():
            raise UserError(f"flower.app = {self.section.app!r}: {problem}")

    @contextmanager
    def own_randomness(self) -> Iterator[None]:
        """Context manager: restore the ServerApp's random state after a wait in which ClientApps ran.

        It acts once for each wait, because restoring is slow.
        """
        try:
            yield
        finally:
            if self._randomness is not None:
                restore_state(self._randomness)
                self._randomness = None

    # Interface of the app

    @property
    def now(self) -> float:
        """Simulated seconds since the beginning of the run."""
        return float(self._clock.now)

    def set_run(self, run: Any) -> None:
        """Do nothing: a simulated app has one run."""

    @property
    def run(self) -> Any:
        """Details of the run, as flwr gives them to an app."""
        return self._run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """Return a new message of the app."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    @_called_by_app
    def get_node_ids(self) -> list[int]:
        """Return the nodes that the app may send messages to now: those of the clients that the policy names.

        No time passes, so that an app which only asks would never end: it is refused after `_MOST_POLLS` calls.
        """
        self._refuse_endless_polls()
        with self._keep_failures():
            return [internals.node_id(client) for client in self._server.choice.clients().tolist()]

    @_called_by_app
    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Send messages and return their ids."""
        # A generator of messages is code of the app, so it runs in simulated time.
        with mark_code(self.time, is_app=True):
            batch = list(messages)
        return self._push(batch)

    @_called_by_app
    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Return the replies to these messages that have arrived, and forget them.

        An app that polls repeatedly in one instant lets the next event happen: otherwise it would wait for ever.
        """
        ids = list(message_ids)
        replies = self._pull(ids)
        if replies:
            self._pulled_s = -1.0
            return replies
        if self._pulled_s == self._clock.now:
            # The app polls without a pause: run the next event.
            self._wait(self._server.step)
            replies = self._pull(ids)
        self._pulled_s = self._clock.now
        return replies

    @_called_by_app
    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Send messages and return their replies, after at most `timeout` seconds (None: no limit)."""
        with mark_code(self.time, is_app=True):
            batch = list(messages)
        ids = self._push(batch)
        self._timeout_s = float("inf") if timeout is None else timeout
        try:
            return self._receive(ids, timeout)
        finally:
            self._timeout_s = 0.0

    # Calls of the engine

    def _refuse_endless_polls(self) -> None:
        """Count a call of `get_node_ids`; raise UserError for an app that waits for nodes which never come."""
        self._polls += 1
        pool = self._server.clients
        if self._polls < _MOST_POLLS or pool.under_way or float(pool.availability.next_change_s.min()) < math.inf:
            return
        chosen, present = len(self._server.choice.clients()), int(self._server.messages.present().sum())
        text = f"its ServerApp asked {_MOST_POLLS:,} times for nodes without sending a message; {present} of {pool.count} are"
        nodes = "present, and no node will come or go" if chosen == present else f"present, of which the policy names {chosen}"
        self.refuse(f"{text} {nodes}; let it wait for fewer, such as by min_available_nodes of its strategy")

    def _receive(self, ids: list[str], timeout: float | None) -> list[Message]:
        """Wait for the replies to `ids`, at most `timeout` seconds (None: without a limit); return those that arrived.

        With `flower.polls.server_s` the app looks for replies at such intervals, as real strategies do.
        """
        step_s, until_s = self.section.polls.server_s, self._clock.now + self._timeout_s
        while step_s:
            if all(name in self._replies for name in ids) or self._clock.now >= until_s:
                return self._pull(ids)
            self._wait(lambda: self._server.wait_until(self._clock.now + step_s))
        missing = {name for name in ids if name not in self._replies}
        if missing and timeout is not None and timeout <= 0:
            return self._pull(ids)
        if missing:
            all_arrived = self._clock.event()
            self._waiting = dict.fromkeys(missing, (missing, all_arrived))
            if timeout is not None:
                # With priority LAST, replies that arrive at the timeout still count.
                self._clock.call_at(until_s, lambda _: None if all_arrived.triggered else all_arrived.succeed(), None, LAST)
            self._wait(lambda: self._server.wait(all_arrived))
            self._waiting = {}
        return self._pull(ids)

    def _now_s(self) -> float:
        """Return the simulated time that code of the app sees; a ClientApp sees its own pauses."""
        return float(self._clock.now) + (self._nodes.pause_s if self._working else 0.0)

    def _sleep(self, seconds: float) -> None:
        """Sleep for the app: a ClientApp works longer; a ServerApp lets simulated time pass."""
        if self._working:
            self._nodes.pause(seconds)
            return
        with mark_code(self.time, is_app=False), self.own_randomness():
            self._wait(lambda: self._server.wait_until(self._clock.now + seconds))

    def _wait(self, wait: Callable[[], None]) -> None:
        """Call `wait`, which lets simulated time pass; raises UserError if the clock has no further event."""
        try:
            with self._keep_failures():
                wait()
        except NothingScheduledError:
            message = f"its ServerApp waits at {self._clock.now:g} s, and nothing is left to happen"
            self.refuse(f"{message}; let it send messages, or return")

    def _pull(self, ids: Iterable[str]) -> list[Message]:
        """Return the replies to `ids` that have arrived, in order of arrival, and forget them."""
        wanted = set(ids)
        names = [name for name in self._replies if name in wanted]
        return [self._replies.pop(name) for name in names]

    def _push(self, messages: list[Any]) -> list[str]:
        """Send messages of the app into the simulation; return their ids."""
        if not messages:
            return []
        self._polls = 0
        for message in messages:
            if not isinstance(message, Message):
                self.refuse(f"its ServerApp sends a {type(message).__name__}; must send Messages of flwr.app")
        with self._keep_failures():
            self._open_round(messages)
        frozen: dict[int, tuple[RecordDict, int]] = {}
        prepared, ids = [], []
        for message in messages:
            prepared.append(self._prepare(message, frozen))
            ids.append(message.metadata.message_id)
        with self._keep_failures():
            self._server.send(prepared)
        return ids

    def _prepare(self, message: Message, frozen: dict[int, tuple[RecordDict, int]]) -> engine.Message:
        """Return the engine's message for `message`, with a copy of its present content.

        `frozen`: copies and sizes of the contents so far, by `id`; an app often sends one content to many nodes.
        """
        metadata = message.metadata
        client = internals.client_of(metadata.dst_node_id)
        if not 0 <= client < self._server.clients.count:
            raise ValueError(f"there is no node {metadata.dst_node_id}; Grid.get_node_ids names those that are present")
        self._message_count += 1
        name = internals.set_message_id(message, self._message_count)
        internals.set_source(message, internals.SERVER_NODE)
        key = id(message.content)
        if key not in frozen:
            content = internals.copy_content(message.content)
            frozen[key] = content, max(internals.count_bytes(content), 1)
        content, size = frozen[key]
        instruction = internals.replace_content(message, content)

        answers: list[Answer] = []  # the answer, once there is one

        def work(sent: engine.Message) -> Load:
            """Run the client's app on a copy of the message when its work begins; return the load that its reply states."""
            received = internals.replace_content(instruction, internals.copy_content(content))
            if self._randomness is None:
                self._randomness = save_state()
            self._working = True
            try:
                answer = self._nodes.call(client, received, self.time)
            finally:
                self._working = False
            sent.loss = self._loss_of(sent, answer)
            if answer.reply.has_content():
                reply = internals.replace_content(answer.reply, internals.copy_content(answer.reply.content))
                answer = answer._replace(reply=reply)
            answers.append(answer)
            return answer.load

        def on_end(sent: engine.Message) -> None:
            """Callback as the message ends: give the app a reply or an error, or nothing for a lost message."""
            if sent.outcome == "delivered":
                self._deliver(name, answers[0], sent.kind)
            elif sent.outcome in _ERRORS and (sent.outcome != "lost" or self.section.lost == "error"):
                self._fail(name, instruction, *_ERRORS[sent.outcome])
            else:
                self._server.note_loss(self._timeout_s)

        return engine.Message(
            client=client,
            kind=metadata.message_type,
            bytes_down=size,
            expires_s=self._clock.now + metadata.ttl,
            work=work,
            on_end=on_end,
        )

    def _loss_of(self, sent: engine.Message, answer: Answer) -> float:
        """Return the loss that an answer reports, NaN without one; raises UserError if the policy needs a loss."""
        loss = self._reports.loss_of(answer.metrics)
        reply = answer.reply
        if self._server.choice.needs_losses and sent.trains and reply.has_content() and math.isnan(loss):
            names = ", ".join(answer.metrics) or "no metrics"
            problem = f"flower.loss_key = {self.section.loss_key!r}: the policy chooses by losses, and the reply of node"
            problem = f"{problem} {internals.node_id(sent.client)} at {self._clock.now:g} s reports none; it has {names}"
            raise UserError(f"{problem}; name the metric with the loss, or choose another policy")
        return loss

    def _deliver(self, name: str, answer: Answer, kind: str) -> None:
        """Add the metrics of an answer to message `name` to the reports, and give its reply to the app."""
        self._message_count += 1
        internals.set_message_id(answer.reply, self._message_count)
        if answer.metrics:
            self._reports.add_reply(kind, answer.metrics, answer.load.samples)
        self._store_reply(name, answer.reply)

    def _fail(self, name: str, instruction: Message, code: int, reason: str) -> None:
        """Give the app an error as the reply to message `name`."""
        with internals.task_identity(internals.SERVER_NODE):
            reply = Message(Error(code, reason), reply_to=instruction)
        internals.set_source(reply, internals.SERVER_NODE)
        self._store_reply(name, reply)

    def _store_reply(self, name: str, reply: Message) -> None:
        """Store the reply to message `name` with the present time, and end the wait for its group if it is the last one."""
        reply.metadata.__dict__["_created_at"] = EPOCH_S + self._clock.now
        self._replies[name] = reply
        group, all_arrived = self._waiting.get(name, (None, None))
        if group is not None:
            group.discard(name)
            if not group and not all_arrived.triggered:
                all_arrived.succeed()

    def _open_round(self, messages: list[Message]) -> None:
        """Open a round if the app begins one with these messages.

        A round begins with a larger round number in the messages. Without numbers, each push of training messages begins one.
        Messages before the first round, such as requests for initial parameters, open it too, so that their bytes are counted in
        a round. The app's first round then goes on with that one: until it begins, `_early` is True.
        """
        numbers = [number for message in messages if (number := _round_of(message)) is not None]
        trains = any(engine.trains(message.metadata.message_type) for message in messages)
        if numbers:
            opens = max(numbers) > self._app_round
            self._app_round = max(self._app_round, *numbers)
        else:
            opens = trains
        if not self._server.is_open:
            self._server.open_round()
            self._early = not opens
        elif opens and not self._early:
            self._server.open_round()
        self._early = self._early and not opens


def _round_of(message: Message) -> int | None:
    """Return the number of the app's round to which a message belongs; None if it has none."""
    if message.has_content():
        for record in internals.config_records(message.content):
            number = record.get("server-round")
            if isinstance(number, int):
                return number
    group = message.metadata.group_id
    return int(group) if group.isdigit() else None
