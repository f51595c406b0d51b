"""The old API of flwr (`client_fn`, `server_fn`, NumPyClient) without its threads, which would decide the order of messages."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from scenarios.flower.internals import replace_attributes

if TYPE_CHECKING:
    from scenarios.flower.grid import SimulatedGrid

_REGISTER_S = 3.0
"""Seconds between two looks at the nodes while a server of the old API waits for some."""


class _CollectedError(Exception):
    """Error that stops a call after `_Mail` has collected its messages. The call is made again when the replies are there."""


class _Mail:
    """Grid for proxies of clients, which batches their calls.

    It first collects the messages of all calls, so that they are sent together. Then each call is made again with its replies.
    """

    def __init__(self, grid: SimulatedGrid) -> None:
        self._grid = grid
        self._messages: list[Any] | None = None
        self._replies: list[Any] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grid, name)

    def collect(self, call: Callable[[], Any]) -> list[Any] | None:
        """Return the first messages that `call` sends, and stop it there; None if it ends without sending."""
        self._messages = []
        try:
            call()
        except _CollectedError:
            return self._messages
        except Exception:
            # Code of an app may raise anything. The executor makes the call again later, and the exception is raised then.
            return None
        finally:
            self._messages = None
        return None

    def replay(self, call: Callable[[], Any], replies: list[Any]) -> Any:
        """Return the result of `call`. Its messages are not sent: they get `replies`."""
        self._replies = replies
        try:
            return call()
        finally:
            self._replies = None

    def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> Any:
        """Send messages and return their replies. During `collect` keep them and stop the call; during `replay` send nothing."""
        if self._messages is not None:
            self._messages.extend(messages)
            raise _CollectedError
        if self._replies is not None:
            replies, self._replies = self._replies, None
            return replies
        return self._grid.send_and_receive(messages, timeout=timeout)


class _OrderedFuture(Future):  # type: ignore[type-arg]
    """Future with its number of submission as its hash, so that sets keep the order of submission."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def __hash__(self) -> int:
        return self._number


class _BatchExecutor:
    """Executor that sends the messages of all calls together, in the order of their nodes, and completes the calls afterwards."""

    def __init__(self, mail: _Mail) -> None:
        self._mail = mail
        self._calls: list[tuple[_OrderedFuture, Callable[[], Any]]] = []

    def __enter__(self) -> _BatchExecutor:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def submit(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> _OrderedFuture:
        """Keep a call for `run`; return its future."""
        future = _OrderedFuture(len(self._calls))
        self._calls.append((future, lambda: function(*args, **kwargs)))
        return future

    def run(self) -> None:
        """Run all calls that were submitted: collect their messages, send these together, and replay each call with its replies.

        The result or the exception of a call goes into its future.
        """
        calls, self._calls = self._calls, []
        collected = [self._mail.collect(call) for _, call in calls]
        batch = [message for messages in collected for message in messages or ()]
        replies = {reply.metadata.reply_to_message_id: reply for reply in self._mail.send_and_receive(batch)} if batch else {}
        for (future, call), messages in zip(calls, collected, strict=True):
            answers = [replies[name] for message in messages or () if (name := message.metadata.message_id) in replies]
            try:
                future.set_result(call() if messages is None else self._mail.replay(call, answers))
            except Exception as error:
                future.set_exception(error)


@contextmanager
def run_in_one_thread(grid: SimulatedGrid) -> Iterator[None]:
    """Context manager: run servers and workflows of the old API in the caller's thread.

    Their thread pools are replaced by executors that send the messages of all calls together, in the order of submission, so that
    a run is the same each time. The thread that follows the nodes is replaced by a look at the nodes before each use.
    """
    from flwr.server import server
    from flwr.server.compat import app, app_utils
    from flwr.server.compat.grid_client_proxy import GridClientProxy
    from flwr.server.workflow import default_workflows

    mail = _Mail(grid)
    executors: list[_BatchExecutor] = []

    def make_executor(max_workers: int | None = None) -> _BatchExecutor:
        """Return a new executor in place of a thread pool."""
        executors.append(_BatchExecutor(mail))
        return executors[-1]

    def wait(fs: Any, timeout: float | None = None) -> tuple[list[Any], set[Any]]:
        """Run the calls of the last executor. Return the done futures and the others, of which there are none."""
        executors.pop().run()
        return sorted(fs, key=hash), set()

    def start_manager(grid: Any, manager: Any) -> tuple[Any, Any, Any]:
        """Follow the nodes without a thread; return null objects in place of the thread and its events."""
        _follow_nodes(mail, manager, GridClientProxy)
        null_thread = types.SimpleNamespace(join=lambda: None, set=lambda: None, wait=lambda: None)
        return null_thread, null_thread, null_thread

    futures = types.SimpleNamespace(ThreadPoolExecutor=make_executor, wait=wait, Future=Future)
    changes: list[tuple[Any, str, Any]] = [(server, "concurrent", types.SimpleNamespace(futures=futures))]
    changes += [(module, "start_update_client_manager_thread", start_manager) for module in (app, app_utils, default_workflows)]
    with replace_attributes(changes):
        yield


def _follow_nodes(mail: _Mail, manager: Any, proxy: Any) -> None:
    """Make every call of `manager` update its clients to the present nodes first."""
    proxies: dict[int, Any] = {}

    def update() -> None:
        """Register nodes that came, and unregister nodes that left."""
        present = mail.get_node_ids()
        gone = [node for node in proxies if node not in present]
        for node in gone:
            manager.unregister(proxies.pop(node))
        for node in present:
            if node not in proxies:
                proxies[node] = proxy(node_id=node, grid=mail, run_id=mail.run.run_id)
                manager.register(proxies[node])

    def update_first(method: Callable[..., Any]) -> Callable[..., Any]:
        """Return a method that updates the clients, and then calls `method`."""

        def call(*args: Any, **kwargs: Any) -> Any:
            """Update the nodes, and call the method."""
            update()
            return method(*args, **kwargs)

        return call

    def wait_for(num_clients: int, timeout: int = 86_400) -> bool:
        """Wait in simulated time until `num_clients` nodes are present; return False after `timeout` seconds."""
        until_s = mail.now + timeout
        update()
        while len(manager) < num_clients and mail.now < until_s:
            mail.time.sleep(_REGISTER_S)
            update()
        return len(manager) >= num_clients

    for name in ("num_available", "all", "sample"):
        with suppress(AttributeError):
            setattr(manager, name, update_first(getattr(manager, name)))
    manager.wait_for = wait_for
