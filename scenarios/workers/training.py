"""Workers that train the clients of one run, of this machine (`training_processes`) or of a cluster (`training_cluster`).

A ticket is a stack of clients. This module does not import torch. The computation of a worker is in `models.fl.training.bench`,
which the worker imports as it starts.
"""

from __future__ import annotations

import pickle
import threading
import time
import traceback
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from netsim.core.errors import AnswerError
from scenarios.schema.errors import UserError, first_line, users_line
from scenarios.workers.allocator import keep_freed_memory
from scenarios.workers.processes import Killed

if TYPE_CHECKING:
    from models.fl.training.bench import Bench, BenchRecipe
    from models.fl.training.stacks import Report, Stack, Vectors

ATTEMPTS = 3
"""Number of attempts at a job whose workers are killed, after which the run ends."""
_WAIT_S = 0.25
"""Seconds between two looks at the workers while this process waits for them."""


Call = tuple[str, frozenset[str]]


def calls_of(error: BaseException) -> tuple[Call, ...]:
    """Return the calls through which an exception came, the outermost first, as data that can travel to another process.

    A call has the module of its frame, and the "module:Name" of its function and of all classes of its first argument: of the
    object, if it is a method. So it can be told whether code of a component raised the exception, also an inherited method.
    """
    calls = []
    for frame, _ in traceback.walk_tb(error.__traceback__):
        code, module = frame.f_code, str(frame.f_globals.get("__name__"))
        first_argument: Any = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
        bases = {f"{base.__module__}:{base.__qualname__}" for base in type(first_argument).__mro__}
        calls.append((module, frozenset({f"{module}:{code.co_qualname.partition('.')[0]}"} | bases)))
    return tuple(calls)


@dataclass(frozen=True)
class Failure:
    """Result in place of a report: an exception in a worker."""

    worker: str
    error: BaseException | None
    """The exception, None if it cannot travel."""
    text: str
    """Its class and first line."""
    calls: tuple[Call, ...] = ()
    """Calls, as `calls_of` returns them."""
    line: str = ""
    """Place in the user's code that raised the exception, as text."""
    seconds: ClassVar[float] = 0.0
    """As of `Report`: 0, since nothing was computed."""


class TrainingError(RuntimeError):
    """Exception in a worker, with its client, round and worker."""

    def __init__(self, where: str, failure: Failure) -> None:
        super().__init__(f"{failure.text} ({where}, {failure.worker})")
        self.where, self.failure = where, failure


@dataclass(eq=False)
class Ticket:
    """A stack in the queue or in work, and its result."""

    number: int
    stack: Stack
    starts: Vectors
    work: int
    rank: int = 2
    """0: the run waits for the result; 1: the result will be needed; 2: the update is under way, so the result may be dropped."""
    state: str = "waiting"
    """waiting, running, done, failed or dropped."""
    attempts: int = 0
    began_s: float = 0.0
    report: Report | None = None
    problem: BaseException | None = None
    place: Any = None
    """Place of the vectors while the ticket is running or done, in the form of the kind of workers; None: they take no memory."""

    def order(self) -> tuple[int, int, int, int]:
        """Return the key by which tickets begin: rank, then the older round (of updates under way), then the longest first."""
        return (self.rank, 0 if self.rank < 2 else self.stack.rounds[0], -self.work, self.number)


@dataclass
class _Tally:
    jobs: int = 0
    again: int = 0
    unused: int = 0
    busy_s: float = 0.0
    there_s: float = 0.0
    """Seconds of all workers together, up to `counted_s`."""
    counted_s: float = field(default_factory=time.perf_counter)
    most: int = 0
    """Most workers at a time."""


class TrainingWorkers(ABC):
    """Queue of tickets for workers, each of which trains one ticket at a time: base class for processes and for Dask.

    The thread of the run calls the public methods. Threads of the workers' library report ends of jobs, and give the next job.
    The thread of the run replaces workers that have died.
    """

    key = "learner.workers"
    """Key or option that asked for the workers, for messages."""
    overhead_s = 0.003
    """Seconds from one job to the next of a worker beside the training: a job below it is not worth giving out."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._waiting: dict[int, Ticket] = {}
        self._running: dict[int, Ticket] = {}
        """Ticket of each line, by its number. A worker has one line, or several where tickets wait at the worker."""
        self._done: dict[int, Ticket] = {}
        """Tickets whose results take memory until they are fetched."""
        self._free: list[int] = []
        self._broken: list[tuple[int, str]] = []
        self._numbers = 0
        self._tally = _Tally()
        self._recipe: BenchRecipe | None = None
        self._x: Any = None
        self._y: Any = None
        self._widest = 0
        self._resources: ExitStack | None = None

    # Methods that differ between kinds of workers

    @abstractmethod
    def open(self, stack: ExitStack) -> None:
        """Start the workers, and register their end with `stack`; raises UserError."""

    @abstractmethod
    def send(self, line: int, ticket: Ticket) -> bool:
        """Give a ticket to a free worker; False if there is no room for its vectors now."""

    def next_line(self) -> int:
        """Return the free line that gets the next ticket."""
        return self._free[0]

    @abstractmethod
    def fetch(self, ticket: Ticket, ends: Vectors) -> None:
        """Write the vectors of a ticket that is done into `ends`."""

    @abstractmethod
    def release(self, ticket: Ticket) -> None:
        """Free the memory of the vectors of a ticket."""

    @abstractmethod
    def tend(self) -> None:
        """Replace workers that have died, and end workers that hang."""

    # Workers of a learner (`models.fl.training.executors.Workers`)

    def prepare(self, recipe: BenchRecipe, x: Any, y: Any, widest: int) -> None:
        self._recipe, self._x, self._y, self._widest = recipe, x, y, widest

    @contextmanager
    def start_workers(self) -> Iterator[None]:
        self._ensure_open()
        try:
            yield
        finally:
            self.close()

    def close(self) -> None:
        """End the workers."""
        with self._lock:
            resources, self._resources = self._resources, None
            self._waiting.clear()
            self._done.clear()
            self._recount(self.count)
        if resources is not None:
            self._at_exit.detach()
            resources.close()
        self._running.clear()

    def _ensure_open(self) -> None:
        """Start the workers, unless they run. If one cannot start, all that was opened is closed again."""
        if self._resources is None:
            # This process, too, combines models that may be large.
            keep_freed_memory()
            with ExitStack() as stack:
                self.open(stack)
                self._tally.counted_s, self._tally.most = time.perf_counter(), max(self._tally.most, self.count)
                self._resources = stack.pop_all()
            # A simulation without a `start_workers` block would leave the workers running: end them when this object is gone.
            self._at_exit = weakref.finalize(self, ExitStack.close, self._resources)

    def submit(self, stack: Stack, starts: Vectors) -> Ticket:
        """Queue a stack with the lowest rank, and begin it at once if a worker is free; starts the workers if needed."""
        self._ensure_open()
        with self._lock:
            ticket = Ticket(self._numbers, stack, starts, stack.work)
            self._numbers += 1
            self._waiting[ticket.number] = ticket
            self._feed()
        return ticket

    def collect(self, tickets: Sequence[Ticket], ends: Sequence[Vectors]) -> None:
        """Wait for tickets, and write the results of each into the vectors of `ends` at the same place.

        Raises the first problem of a ticket, and cancels those left, also after an interrupt. Workers that die meanwhile are
        replaced by this loop (`tend`), since only the thread of the run may do so.
        """
        left = dict(enumerate(tickets))
        try:
            with self._lock:
                for ticket in tickets:
                    ticket.rank = 0
                self._feed()
            while left:
                self.tend()
                with self._lock:
                    ended = [index for index, ticket in left.items() if ticket.state in ("done", "failed")]
                    if not ended:
                        self._feed()
                        self._changed.wait(_WAIT_S)
                for index in ended:
                    ticket = left[index]
                    if ticket.problem is not None:
                        raise ticket.problem
                    self.fetch(ticket, ends[index])
                    del left[index]
                    with self._lock:
                        self._drop_result(ticket)
                        self._feed()
        finally:
            for ticket in left.values():
                self.cancel(ticket)

    def arrive(self, ticket: Ticket) -> None:
        ticket.rank = min(ticket.rank, 1)

    def cancel(self, ticket: Ticket) -> None:
        """Drop a ticket: out of the queue, or its result. A running one goes on, and `on_end` drops its result."""
        with self._lock:
            if self._waiting.pop(ticket.number, None) is None:
                self._tally.unused += 1
            if ticket.state == "done":
                self._drop_result(ticket)
                self._feed()
            ticket.state = "dropped"

    def facts(self) -> dict[str, Any]:
        """Return facts for the summary: workers, jobs, and the share of the workers' time that training took.

        `again`: jobs begun again because a worker died. `unused`: jobs whose result was dropped. `job_s`: mean seconds of a job.
        """
        tally = self._tally
        if self._resources is not None:
            # Add the time since the last count to `there_s`.
            self._recount(self.count)
        busy_share = tally.busy_s / tally.there_s if tally.there_s > 0 else 0.0
        job_s = tally.busy_s / tally.jobs if tally.jobs else 0.0
        return {
            "count": tally.most,
            "busy_share": min(busy_share, 1.0),
            "jobs": tally.jobs,
            "job_s": job_s,
            "overhead_s": self.overhead_s,
            "again": tally.again,
            "unused": tally.unused,
        }

    def _recount(self, count: int) -> None:
        """Note that there are `count` workers from now on, and add the time of those until now to `there_s`."""
        tally, now = self._tally, time.perf_counter()
        tally.there_s += self.count * (now - tally.counted_s)
        tally.counted_s, tally.most, self.count = now, max(tally.most, count), count

    # Ends of jobs

    def _feed(self) -> None:
        """Give waiting tickets to free workers, in the order of `Ticket.order`, until one has no room for its vectors.

        The caller holds the lock.
        """
        while self._free and self._waiting:
            ticket = min(self._waiting.values(), key=Ticket.order)
            line = self.next_line()
            self._free.remove(line)
            # Before `send`, because a short job may end within it.
            ticket.state, ticket.began_s = "running", time.perf_counter()
            self._running[line] = self._waiting.pop(ticket.number)
            if not self.send(line, ticket):
                ticket.state, self._waiting[ticket.number] = "waiting", self._running.pop(line)
                self._free.insert(0, line)
                if not self._make_room(ticket):
                    return

    def _drop_result(self, ticket: Ticket) -> None:
        # A ticket that was collected may be cancelled afterwards.
        if self._done.pop(ticket.number, None) is not None:
            self.release(ticket)

    def _make_room(self, ticket: Ticket) -> bool:
        """Drop the result that is needed last, to make room for `ticket`, and queue it to be computed again; True if dropped.

        Only for a ticket that the run waits for, while no job runs whose end could make room. Otherwise the run would wait
        forever for a ticket whose room is taken by results that are needed after it.
        """
        later = [done for done in self._done.values() if done.rank > 0]
        if ticket.rank or self._running or not later:
            return False
        last = max(later, key=Ticket.order)
        self._drop_result(last)
        self._tally.unused += 1
        last.state, last.report, self._waiting[last.number] = "waiting", None, last
        return True

    def on_end(self, line: int, ticket: Ticket, outcome: Report | Failure | Killed) -> None:
        """Take the outcome of a ticket: free its worker, or note that it must be replaced, and wake the thread of the run.

        Called from any thread. A ticket that was dropped meanwhile keeps no result. A killed worker's ticket waits again, and its
        line is not free until `tend` has replaced the worker.
        """
        with self._lock:
            # The workers were closed, or the worker was given up before this report came.
            if self._resources is None or self._running.get(line) is not ticket:
                return
            del self._running[line]
            dropped = ticket.state == "dropped"
            if isinstance(outcome, Killed):
                self._broken.append((line, outcome.reason))
                self.release(ticket)
                if not dropped:
                    self._retry(ticket, outcome.reason)
            else:
                self._free.append(line)
                self._tally.jobs += 1
                if dropped:
                    self.release(ticket)
                elif isinstance(outcome, Failure):
                    self.release(ticket)
                    ticket.state, ticket.problem = "failed", _problem(ticket, outcome)
                else:
                    self._tally.busy_s += outcome.seconds
                    ticket.state, ticket.report, self._done[ticket.number] = "done", outcome, ticket
                self._feed()
            self._changed.notify_all()

    def _retry(self, ticket: Ticket, reason: str) -> None:
        """Queue the ticket of a killed worker again; after `ATTEMPTS` attempts it has failed, with a UserError that says why."""
        ticket.attempts += 1
        if ticket.attempts < ATTEMPTS:
            self._tally.again += 1
            ticket.state = "waiting"
            self._waiting[ticket.number] = ticket
            return
        remedy = "see that there is memory enough, or use fewer workers"
        text = f"{self.key}: the training of {ticket.stack.name()} came to no end in {ATTEMPTS} attempts: {reason}; {remedy}"
        ticket.state, ticket.problem = "failed", UserError(text)


def _problem(ticket: Ticket, failure: Failure) -> BaseException:
    """Return the exception that the thread of the run raises for a failure in a worker.

    Errors that have a handler of their own there keep their class; all others become a `TrainingError` with client and round.
    """
    error = failure.error
    if error is not None and isinstance(error, MemoryError | AnswerError):
        return error
    return TrainingError(ticket.stack.name(), failure)


def train(bench: Bench, worker: str, stack: Stack, vectors: Vectors) -> Report | Failure:
    """Train a stack in a worker; an exception goes back as data."""
    try:
        return bench.train(stack, vectors)
    except Exception as error:
        return failure_of(worker, error)


def failure_of(worker: str, error: BaseException) -> Failure:
    """Return an exception as data that can be pickled; of one that cannot, only class and message are kept."""
    kept: BaseException | None = error
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        # A class of the user's may fail in any way as it is pickled; its text is kept instead.
        kept = None
    return Failure(worker, kept, f"{type(error).__name__}: {first_line(error)}", calls_of(error), users_line(error))


def portable_bytes(recipe: Any, key: str) -> bytes:
    """Pickle a recipe for workers that `key` asked for; raises UserError."""
    import cloudpickle

    try:
        content: bytes = cloudpickle.dumps(recipe)
    except Exception as error:  # whatever an object of the user's own does
        told = f"{type(error).__name__}: {first_line(error)}"
        remedy = f"let it hold plain data and torch modules, or leave {key.partition(' ')[0]} out"
        raise UserError(f"{key}: the network or another component cannot be sent to a worker ({told}); {remedy}") from error
    return content


def refusal(error: Exception) -> str:
    """Return the reason, in words, for which a worker cannot train; `error` was raised as it made its bench."""
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, ImportError | AttributeError):
        return f"{error}; see that it is installed where workers find it"
    return f"{type(error).__name__}: {first_line(error)}"
