"""Workers of a Dask scheduler that train the clients of one run, on this machine or on others.

Vectors travel through Dask. Each worker keeps a `Desk` with its bench, as the value of a future of the run: Dask drops it with
the run's client, however the run ends. Samples are read by the workers themselves, once on each machine.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import pickle
import shutil
import tempfile
import threading
import time
import uuid
import warnings
import weakref
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scenarios.schema.errors import UserError
from scenarios.workers.allocator import keep_freed_memory
from scenarios.workers.dask_client import connect
from scenarios.workers.processes import Killed, Place
from scenarios.workers.training import Failure, Ticket, TrainingWorkers, failure_of, portable_bytes, refusal, train
from scenarios.workers.versions import refuse_versions, versions

if TYPE_CHECKING:
    from models.fl.training.bench import Bench, BenchRecipe
    from models.fl.training.stacks import Report, Shape, Vectors

Numbers = NDArray[np.float32]
Samples = tuple[Any, Any]
"""Training inputs (N, ...) and their classes (N,), as tensors."""
_PLACES = 2
"""Tickets that a worker has at a time: one that it trains, and one whose vectors travel meanwhile."""
_LOOK_S = 1.0
"""Seconds between two counts of the workers."""
HANG_S = 60.0
"""Seconds without a sign of life after which a worker counts as hanging."""
_SLOW = 20.0
"""Multiple of the longest job so far after which a job counts as hanging, if it has taken `_SLOW_S` seconds."""
_SLOW_S = 600.0
ALONE_S = 60.0
"""Seconds that a run waits for a worker after the last one has left."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Scheduler whose workers train, and what each of them does before it trains."""

    address: str
    """The address, or "local:N", which starts a scheduler with N workers on this machine."""
    check_code: Callable[[], None]
    """Called in a worker: raises UserError where code of the user's own is other than in the process of the run."""
    read_samples: Callable[[], Samples]
    """Called in a worker: reads the samples from the worker's own data folder; raises UserError."""


@dataclass(frozen=True)
class _Parcel:
    """All that a worker needs to make its bench."""

    key: str
    cluster: Cluster
    recipe: BenchRecipe
    digest: str
    """Checksum of the samples."""
    device: str


@dataclass(eq=False)
class _Seat:
    """A worker that trains."""

    address: str
    host: str
    desk: Any
    """Future of the worker's `Desk`."""
    folder: str
    """Folder of the worker's machine that holds the samples."""
    lines: list[int]
    running: dict[int, tuple[Ticket, Any]] = field(default_factory=dict)
    """Ticket and future of each line that is in use, in the order of their beginning."""
    alive: tuple[float, float] = (0.0, 0.0)
    """Last sign of life by the scheduler's clock, and the time by this process's clock when it was first seen."""


class TrainingCluster(TrainingWorkers):
    """All workers of a scheduler, which may come and go.

    `memory_bytes`: most memory of vectors on their way; jobs that nothing waits for yet do not begin beyond it. None: half of
    what is free. `device`: the kind of device on which the process of the run computes.
    """

    def __init__(self, cluster: Cluster, *, device: str, memory_bytes: int | None = None) -> None:
        super().__init__(0)
        self.key = f"--cluster {cluster.address!r}"
        self._cluster, self._device = cluster, device
        self._memory_bytes = free_memory_bytes() // 2 if memory_bytes is None else memory_bytes
        self._held = 0
        """Bytes of vectors on their way."""
        self._client: Any = None
        self._parcel = b""
        self._name = ""
        self._seats: dict[str, _Seat] = {}
        self._arriving: set[str] = set()
        self._refused: set[str] = set()
        self._machines: set[str] = set()
        self._lines = 0
        self._looked_s = self._last_seat_s = 0.0
        self._longest_s = 0.0
        self._lost = False
        """True if the scheduler has gone."""

    def open(self, stack: ExitStack) -> None:
        assert self._recipe is not None
        parcel = _Parcel(self.key, self._cluster, self._recipe, digest(self._x, self._y), self._device)
        self._parcel, self._name = portable_bytes(parcel, self.key), f"netsim-{uuid.uuid4().hex}"
        self._client = stack.enter_context(connect(self._cluster.address, "--cluster"))
        import dask

        # The model of a job is part of its call, and may be large.
        stack.enter_context(dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 PB"}))
        stack.callback(self._release_all)
        try:
            problems = self._admit(list(self._client.nthreads()))
        except OSError as error:
            raise UserError(f"{self.key}: a worker does not answer ({error}); try again") from error
        if problems:
            raise UserError(problems[0])
        self._looked_s = self._last_seat_s = time.monotonic()

    def _admit(self, addresses: Sequence[str]) -> list[str]:
        """Give each of these workers a desk, the first of a machine before its others; return the problems of those without."""
        from distributed import KilledWorker

        problems, hosts = [], {seat.host: seat.folder for seat in self._seats.values()}
        waiting: dict[str, str] = self._client.run(_hostname, workers=list(addresses))
        while waiting:
            # Of a machine whose samples no worker has read, one worker comes first.
            chosen: dict[str, str] = {}
            for address, host in waiting.items():
                chosen.setdefault(address if host in hosts else host, address)
            desks = {address: self._open_desk(address, hosts.get(waiting[address])) for address in chosen.values()}
            for address, (desk, told) in desks.items():
                host = waiting.pop(address)
                try:
                    folder, problem = told.result()
                except (KilledWorker, OSError) as error:
                    folder, problem = "", f"it has left ({error})"
                if problem is not None:
                    problems.append(f"{self.key}: worker {address} cannot train: {problem}")
                    self._refused.add(address)
                    continue
                hosts[host] = folder
                self._take_seat(_Seat(address, host, desk, folder, self._new_lines(), alive=(0.0, time.monotonic())))
        return problems

    def _open_desk(self, address: str, folder: str | None) -> tuple[Any, Any]:
        """Return the futures of a worker's desk, and of what it says of itself."""
        where = {"workers": [address], "pure": False, "retries": 0}
        name = f"{self._name}-desk-{uuid.uuid4().hex}"
        desk = self._client.submit(_open, Place.here(), versions(), self._parcel, folder, key=name, **where)
        return desk, self._client.submit(_describe, desk, **where)

    def _new_lines(self) -> list[int]:
        self._lines += _PLACES
        return list(range(self._lines - _PLACES, self._lines))

    def _take_seat(self, seat: _Seat) -> None:
        with self._lock:
            self._seats[seat.address] = seat
            self._machines.add(seat.host)
            self._free += seat.lines
            self._recount(len(self._seats))
            if self._resources is not None:
                self._feed()

    def _release_all(self) -> None:
        """Let go of all jobs and workers as the run ends."""
        with self._lock:
            # Emptied first: a cancelled future of a job that still runs would say that the scheduler has gone.
            running = [future for seat in self._seats.values() for _, future in seat.running.values()]
            for seat in self._seats.values():
                seat.running = {}
            for future in running:
                future.release()
            # The client ends, too: then the workers drop their desks.
            self._seats, self._free, self._client = {}, [], None

    # Jobs

    def _seat_of(self, line: int) -> _Seat:
        return next(seat for seat in self._seats.values() if line in seat.lines)

    def next_line(self) -> int:
        # A second ticket waits at its worker: workers without one come first.
        return min(self._free, key=lambda line: len(self._seat_of(line).running))

    def send(self, line: int, ticket: Ticket) -> bool:
        from models.fl.training.stacks import Shape

        seat = self._seat_of(line)
        shape = Shape.of(ticket.starts)
        size = 4 * shape.size
        if ticket.rank and self._held + size > self._memory_bytes:
            return False
        numbers = np.empty(shape.size, np.float32)
        for there, value in zip(shape.views(numbers).parts(), ticket.starts.parts(), strict=True):
            there.copy_(value)
        self._held += size
        ticket.place = _Place(shape, size)
        future = self._client.submit(
            _train,
            seat.desk,
            pickle.dumps((ticket.stack, shape)),
            numbers,
            key=f"{self._name}-{uuid.uuid4().hex}",
            workers=[seat.address],
            pure=False,
            retries=0,
        )
        seat.running[line] = (ticket, future)
        future.add_done_callback(partial(self._on_done, seat, line, ticket))
        return True

    def _on_done(self, seat: _Seat, line: int, ticket: Ticket, future: Any) -> None:
        from distributed import KilledWorker

        outcome: Report | Failure | Killed
        numbers = None
        try:
            if future.cancelled() or future.status == "lost":
                with self._lock:
                    # Unless this process has let it go.
                    self._lost = self._lost or line in seat.running
                    self._changed.notify_all()
                return
            outcome, numbers = future.result()
        except KilledWorker as error:
            outcome = Killed(f"its worker was killed ({error.last_worker.address})")
        except Exception as error:
            outcome = failure_of(f"worker {seat.address}", error)
        with self._lock:
            if seat.running.pop(line, None) is None or self._running.get(line) is not ticket:
                return
            if isinstance(outcome, Killed):
                self._vacate(seat, outcome.reason, {line: (ticket, future)})
                return
            self._longest_s = max(self._longest_s, outcome.seconds)
            ticket.place.numbers = numbers
            self.on_end(line, ticket, outcome)

    def fetch(self, ticket: Ticket, ends: Vectors) -> None:
        place = ticket.place
        for value, there in zip(ends.parts(), place.shape.views(place.numbers).parts(), strict=False):
            value.copy_(there)

    def release(self, ticket: Ticket) -> None:
        if ticket.place is not None:
            self._held -= ticket.place.size
            ticket.place = None

    # Workers that come and go

    def tend(self) -> None:
        now = time.monotonic()
        if self._lost:
            raise UserError(f"{self.key}: the scheduler has gone; start it again, and go on with netsim resume")
        if now - self._looked_s < _LOOK_S:
            return
        self._looked_s = now
        try:
            seen = self._signs_of_life()
        except OSError as error:
            reason = f"the scheduler does not answer ({error})"
            raise UserError(f"{self.key}: {reason}; start it again, and go on with netsim resume") from error
        longest_s = max(_SLOW_S, _SLOW * self._longest_s)
        with self._lock:
            self._broken.clear()
            for seat in list(self._seats.values()):
                if seen.get(seat.address, seat.alive[0]) != seat.alive[0]:
                    seat.alive = (seen[seat.address], now)
                began_s = min((ticket.began_s for ticket, _ in seat.running.values()), default=np.inf)
                if seat.address not in seen:
                    self._vacate(seat, f"its worker has left ({seat.address})")
                elif now - seat.alive[1] > HANG_S:
                    self._vacate(seat, f"its worker gave no sign of life for {HANG_S:g} s ({seat.address})")
                elif self._longest_s and time.perf_counter() - began_s > longest_s:
                    self._refused.add(seat.address)
                    self._vacate(seat, f"its worker took longer than {longest_s:g} s ({seat.address})")
            arrived = sorted(set(seen) - set(self._seats) - self._arriving - self._refused)
            self._arriving.update(arrived)
            if self._seats or self._arriving:
                self._last_seat_s = now
        if arrived:
            threading.Thread(target=self._on_arrival, args=(arrived,), daemon=True).start()
        if now - self._last_seat_s > ALONE_S:
            reason = f"no worker is left since {ALONE_S:g} s"
            raise UserError(f"{self.key}: {reason}; start workers, and go on with netsim resume")

    def _signs_of_life(self) -> dict[str, float]:
        """Return the time of the last sign of life of each worker, by the clock of the scheduler."""
        info: Any = self._client.scheduler_info
        # Some versions tell of five workers unless they are asked for all.
        asked = {"n_workers": -1} if "n_workers" in inspect.signature(info).parameters else {}
        return {address: float(worker["last_seen"]) for address, worker in info(**asked)["workers"].items()}

    def _on_arrival(self, addresses: Sequence[str]) -> None:
        """Let workers that have joined train; warn of those that cannot."""
        # The run may end meanwhile, and with it the client.
        with suppress(Exception):
            for problem in self._admit(addresses):
                warnings.warn(f"{problem}; it is not used", stacklevel=2)
        self._arriving.difference_update(addresses)

    def _vacate(self, seat: _Seat, reason: str, also: dict[int, tuple[Ticket, Any]] | None = None) -> None:
        """Do without a worker; its tickets are given to others."""
        self._seats.pop(seat.address, None)
        self._recount(len(self._seats))
        self._free = [line for line in self._free if line not in seat.lines]
        running, seat.running = {**(also or {}), **seat.running}, {}
        for place, (line, (ticket, future)) in enumerate(running.items()):
            # The second waited at the worker: its end is not the ticket's doing.
            ticket.attempts -= place > 0
            self.on_end(line, ticket, Killed(reason))
            future.release()
        seat.desk.release()

    def facts(self) -> dict[str, Any]:
        return super().facts() | {"machines": len(self._machines)}


@dataclass(eq=False)
class _Place:
    """Vectors of a ticket: on their way, or back in this process."""

    shape: Shape
    size: int
    numbers: Numbers | None = None


def free_memory_bytes() -> int:
    """Return the bytes of memory of this machine that are free."""
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def digest(x: Any, y: Any) -> str:
    """Return the checksum of samples."""
    summed = hashlib.blake2b(digest_size=16)
    for part in (x, y):
        summed.update(repr((part.dtype, part.shape)).encode())
        summed.update(np.ascontiguousarray(part.cpu().numpy()).data)
    return summed.hexdigest()


# In a worker

_LOCK = threading.Lock()
"""Held while a stack is trained: networks of torch draw from one generator for a process."""


class Desk:
    """Bench of a run in a worker, or the reason why there is none.

    The folder with the samples is removed with the desk of the worker that made it.
    """

    def __init__(self, bench: Bench | None, name: str, folder: str, problem: str | None) -> None:
        self.bench, self.name, self.folder, self.problem = bench, name, folder, problem

    def __reduce__(self) -> Any:
        raise TypeError("a desk stays in the memory of its worker")


def _hostname() -> str:
    import socket

    return socket.gethostname()


def _open(place: Place, wanted: dict[str, str | None], content: bytes, folder: str | None) -> Desk:
    """Make the bench of this worker; `folder`: samples that another worker of this machine has read, or None."""
    from distributed import get_worker

    worker = get_worker()
    name = f"worker {worker.address}"
    try:
        refuse_versions("versions", "it", wanted, versions())
        with suppress(OSError):  # a folder that this machine does not have; what is missed is named as it is looked for
            place.enter()
        parcel: _Parcel = pickle.loads(content)
        keep_freed_memory()
        return _desk(parcel, name, folder if folder and Path(folder).is_dir() else None, worker.local_directory)
    except Exception as error:
        return Desk(None, name, "", refusal(error))


def _desk(parcel: _Parcel, name: str, folder: str | None, parent: str) -> Desk:
    from models.fl.devices import check_devices
    from models.fl.training.bench import Site

    parcel.cluster.check_code()
    (device,) = check_devices([parcel.device])
    if folder is not None:
        return Desk(Site(folder).bench(device), name, folder, None)
    x, y = parcel.cluster.read_samples()
    if digest(x, y) != parcel.digest:
        raise UserError("it reads other samples than this machine; give it the same data files")
    own = tempfile.mkdtemp(prefix="netsim-", dir=parent)
    try:
        Site(own).write(x, y, portable_bytes(parcel.recipe, parcel.key))
        desk = Desk(Site(own).bench(device), name, own, None)
    except BaseException:
        shutil.rmtree(own, ignore_errors=True)
        raise
    weakref.finalize(desk, shutil.rmtree, own, ignore_errors=True)
    return desk


def _describe(desk: Desk) -> tuple[str, str | None]:
    return desk.folder, desk.problem


def _train(desk: Desk, content: bytes, numbers: Numbers) -> tuple[Report | Failure | Killed, Numbers | None]:
    """Train a stack; Dask may have made the desk again, where its worker was started again at the same address."""
    if desk.bench is None:
        return Killed(str(desk.problem)), None
    stack, shape = pickle.loads(content)
    ends = np.array(numbers)  # what Dask hands over may be read-only
    with _LOCK:
        outcome = train(desk.bench, desk.name, stack, shape.views(ends))
    return outcome, ends
