"""Workers of a Dask scheduler that train the clients of one run, on this machine or on others.

Each worker has a desk (`training_desk`). Vectors travel through shared memory to workers of this machine, and through Dask to
others. Samples are read by the workers themselves, once on each machine.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import pickle
import threading
import time
import uuid
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from netsim.core.user_warnings import warn_user
from scenarios.schema.errors import UserError
from scenarios.workers.dask_client import connect
from scenarios.workers.processes import Killed, Place
from scenarios.workers.training import Failure, Ticket, TrainingWorkers, failure_of, portable_bytes
from scenarios.workers.training_desk import (
    TRAIN,
    Cluster,
    DeskFacts,
    Numbers,
    Parcel,
    TrainingCall,
    describe,
    digest,
    host,
    open_desk,
    serve,
)
from scenarios.workers.vectors import Block, SharedVectors
from scenarios.workers.versions import versions

if TYPE_CHECKING:
    from models.fl.training.stacks import Report, Shape, Vectors

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
_REACH_S = 5.0
"""Seconds to wait for the answer of a worker that may be out of reach for all but the scheduler."""


@dataclass(eq=False)
class _Seat:
    """A worker that trains."""

    address: str
    host: str
    desk: Any
    """Future of the worker's `Desk`."""
    facts: DeskFacts
    lines: list[int]
    reached: bool
    """True if this process reaches the worker; False: only the scheduler does."""
    service: Any
    """Future of `serve`, which ends with the worker."""
    running: dict[int, Ticket] = field(default_factory=dict)
    """Ticket of each line that is in use, in the order of their beginning."""
    alive: tuple[float, float] = (0.0, 0.0)
    """Last sign of life by the scheduler's clock, and the time by this process's clock when it was first seen."""


class TrainingCluster(TrainingWorkers):
    """All workers of a scheduler, which may come and go.

    `memory_bytes`: most shared memory of vectors on their way, and as much again of those that travel through Dask; jobs that
    nothing waits for yet do not begin beyond it. None: half of what is free. `device`: the kind of device on which the process
    of the run computes.
    """

    overhead_s = 0.01

    def __init__(self, cluster: Cluster, *, device: str, memory_bytes: int | None = None) -> None:
        super().__init__(0)
        self.key = f"--cluster {cluster.address!r}"
        self._cluster, self._device = cluster, device
        self._shared_bytes = memory_bytes
        self._memory_bytes = free_memory_bytes() // 2 if memory_bytes is None else memory_bytes
        self._held = 0
        """Bytes of vectors that travel through Dask."""
        self._vectors: SharedVectors
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
        """Connect to the scheduler, and give each of its present workers a desk; raises UserError if one cannot train.

        Workers that join later are taken in by `tend`, which only warns of one that cannot train.
        """
        assert self._recipe is not None
        self._vectors = SharedVectors.open(stack, self._shared_bytes)
        parcel = Parcel(self.key, self._cluster, self._recipe, digest(self._x, self._y), self._device)
        self._parcel, self._name = portable_bytes(parcel, self.key), f"netsim-{uuid.uuid4().hex}"
        self._client = stack.enter_context(connect(self._cluster.address, "--cluster"))
        import dask

        # The network is part of the call that opens a desk, and may be large.
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
        """Open a desk at each of these workers, and give it tickets from then on; return the problems of those that cannot train.

        The first worker of a machine reads the samples and writes them to a folder; the others of the machine map its files, so
        they must come later.
        """
        from distributed import KilledWorker

        problems, folders = [], {seat.host: seat.facts.folder for seat in self._seats.values()}
        waiting: dict[str, str] = self._client.run(host, workers=list(addresses))
        reached: set[str] = self._client.sync(self._find_reachable, addresses)
        while waiting:
            # All workers of a machine with a folder of samples, and one of each other machine.
            chosen: dict[str, str] = {}
            for address, machine in waiting.items():
                chosen.setdefault(address if machine in folders else machine, address)
            desks = {address: self._open_desk(address, folders.get(waiting[address])) for address in chosen.values()}
            for address, (desk, description) in desks.items():
                machine = waiting.pop(address)
                try:
                    facts = description.result()
                except (KilledWorker, OSError) as error:
                    facts = DeskFacts("", f"it has left ({error})", False)
                if facts.problem is not None:
                    problems.append(f"{self.key}: worker {address} cannot train: {facts.problem}")
                    self._refused.add(address)
                    continue
                folders[machine] = facts.folder
                service = self._submit(address, serve, desk)
                now = (0.0, time.monotonic())
                self._take_seat(_Seat(address, machine, desk, facts, self._new_lines(), address in reached, service, alive=now))
        return problems

    async def _find_reachable(self, addresses: Sequence[str]) -> set[str]:
        """Return the addresses of the workers that this process can connect to."""

        async def answers(address: str) -> bool:
            with suppress(OSError, TimeoutError):
                await asyncio.wait_for(self._client.rpc(address).identity(), _REACH_S)
                return True
            return False

        answered = await asyncio.gather(*map(answers, addresses))
        return {address for address, is_reachable in zip(addresses, answered, strict=True) if is_reachable}

    def _submit(self, address: str, *work: Any, key: str | None = None) -> Any:
        return self._client.submit(*work, key=key, workers=[address], pure=False, retries=0)

    def _open_desk(self, address: str, folder: str | None) -> tuple[Any, Any]:
        """Open a desk at a worker; return its future and that of its `DeskFacts`.

        `folder`: samples on the worker's machine; None: the worker reads them itself.
        """
        key = f"{self._name}-desk-{uuid.uuid4().hex}"
        desk = self._submit(address, open_desk, key, Place.here(), versions(), self._parcel, folder, key=key)
        return desk, self._submit(address, describe, desk, host(), self._vectors.file)

    def _new_lines(self) -> list[int]:
        self._lines += _PLACES
        return list(range(self._lines - _PLACES, self._lines))

    def _take_seat(self, seat: _Seat) -> None:
        """Let a worker with a desk get tickets, at once if the run has begun, and watch for its end."""
        with self._lock:
            self._seats[seat.address] = seat
            self._machines.add(seat.host)
            self._free += seat.lines
            self._recount(len(self._seats))
            if self._resources is not None:  # None while `open` still admits the first workers
                self._feed()
        seat.service.add_done_callback(partial(self._on_service_end, seat))

    def _release_all(self) -> None:
        """Let go of all jobs and workers as the run ends."""
        with self._lock:
            seats, self._seats = self._seats, {}
            for seat in seats.values():
                seat.running = {}
                seat.service.release()
            # The client ends, too: then the workers drop their desks.
            self._free, self._client = [], None

    # Jobs

    def _seat_of(self, line: int) -> _Seat:
        return next(seat for seat in self._seats.values() if line in seat.lines)

    def next_line(self) -> int:
        # A second ticket waits at its worker: idle workers come first.
        return min(self._free, key=lambda line: len(self._seat_of(line).running))

    def send(self, line: int, ticket: Ticket) -> bool:
        """Copy the vectors of a ticket to where its worker gets them, and have it trained by the thread of the Dask client.

        A worker of this machine gets them in shared memory, if a block is free; any other through Dask. False if vectors that
        travel through Dask would take too much memory; a ticket that the run waits for begins nevertheless.
        """
        from models.fl.training.stacks import Shape

        seat = self._seat_of(line)
        shape = Shape.of_vectors(ticket.starts)
        block = self._vectors.take(shape.size) if seat.facts.near else None
        dask_bytes = 4 * shape.size if block is None else 0
        if dask_bytes and ticket.rank and self._held + dask_bytes > self._memory_bytes:
            return False
        numbers = np.empty(shape.size, np.float32) if block is None else block.numbers()
        for target, value in zip(shape.views(numbers).parts(), ticket.starts.parts(), strict=True):
            target.copy_(value)
        self._held += dask_bytes
        ticket.place = _TicketVectors(shape, dask_bytes, block, numbers)
        seat.running[line] = ticket
        call = pickle.dumps(TrainingCall(ticket.stack, shape, block))
        self._client.loop.add_callback(self._train, self._client, seat, line, ticket, ticket.place, call)
        return True

    async def _train(self, client: Any, seat: _Seat, line: int, ticket: Ticket, place: _TicketVectors, call: bytes) -> None:
        """Send a ticket to its worker, wait for the answer, and hand the outcome to `on_end`.

        Runs in the event loop of `client`. `place` is an argument, because `ticket.place` may change meanwhile. The outcome is
        dropped if the worker was given up before it came.
        """
        from distributed.protocol.serialize import to_serialize

        outcome: Report | Failure | Killed
        numbers = None
        try:
            message = {"desk": seat.desk.key, "call": call}
            if place.block is None:
                message["numbers"] = to_serialize(place.numbers)
            if seat.reached:
                answer = await getattr(client.rpc(seat.address), TRAIN)(**message)
            else:
                answer = await client.scheduler.proxy(worker=seat.address, msg={"op": TRAIN, **message})
            outcome, numbers = pickle.loads(answer["outcome"]), answer["numbers"]
        except OSError as error:
            outcome = Killed(f"its worker was killed ({seat.address}: {error})")
        except Exception as error:  # whatever an exception of the user's own raises as it is read
            outcome = failure_of(f"worker {seat.address}", error)
        with self._lock:
            if seat.running.get(line) is not ticket:
                return
            if isinstance(outcome, Killed):
                self._vacate(seat, outcome.reason)
                return
            del seat.running[line]
            self._longest_s = max(self._longest_s, outcome.seconds)
            if numbers is not None:
                place.numbers = numbers
            self.on_end(line, ticket, outcome)

    def fetch(self, ticket: Ticket, ends: Vectors) -> None:
        place = ticket.place
        # `ends` may lack the last part, the shift, which training does not change.
        for value, result in zip(ends.parts(), place.shape.views(place.numbers).parts(), strict=False):
            value.copy_(result)

    def release(self, ticket: Ticket) -> None:
        if ticket.place is not None:
            self._held -= ticket.place.dask_bytes
            if ticket.place.block is not None:
                self._vectors.give(ticket.place.block)
            ticket.place = None

    # Workers that come and go

    def tend(self) -> None:
        """Give up workers that have left or hang, and take in workers that have joined, at most once every `_LOOK_S` seconds.

        A worker that took too long is not taken in again; one without a sign of life is, when it gives one. New desks are opened
        by another thread, so that the run need not wait for them. Raises UserError if the scheduler has gone, or if there was no
        worker for `ALONE_S` seconds.
        """
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
            # The base class notes lines of killed workers here, to be replaced; here a worker's lines go with it.
            self._broken.clear()
            for seat in list(self._seats.values()):
                if seen.get(seat.address, seat.alive[0]) != seat.alive[0]:
                    seat.alive = (seen[seat.address], now)
                began_s = min((ticket.began_s for ticket in seat.running.values()), default=np.inf)
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
        try:
            for problem in self._admit(addresses):
                warn_user(f"{problem}; it is not used")
        except OSError:
            pass  # the worker has left again
        except Exception:
            # The run may end meanwhile, and with it the client, whose calls then raise errors of several kinds.
            if self._client is not None:
                raise
        finally:
            self._arriving.difference_update(addresses)

    def _on_service_end(self, seat: _Seat, future: Any) -> None:
        """Note that a worker serves no longer: give it up, or note for `tend` that the scheduler has gone."""
        with self._lock:
            if self._seats.get(seat.address) is not seat:
                return
            if future.cancelled() or future.status == "lost":
                self._lost = True
                self._changed.notify_all()
            else:
                self._vacate(seat, f"its worker was killed ({seat.address})")

    def _vacate(self, seat: _Seat, reason: str) -> None:
        """Give up a worker: its lines and its desk go, and its tickets are given to other workers. The caller holds the lock."""
        self._seats.pop(seat.address, None)
        self._recount(len(self._seats))
        self._free = [line for line in self._free if line not in seat.lines]
        running, seat.running = seat.running, {}
        for position, (line, ticket) in enumerate(running.items()):
            # Only the first was being trained. The others waited at the worker: the attempt that `on_end` adds must not count.
            ticket.attempts -= position > 0
            if ticket.place.block is not None:
                # The worker may go on and write there: nothing else may use the block.
                ticket.place = None
            self.on_end(line, ticket, Killed(reason))
        seat.service.release()
        seat.desk.release()

    def facts(self) -> dict[str, Any]:
        return super().facts() | {"machines": len(self._machines)}


@dataclass(eq=False)
class _TicketVectors:
    """Vectors of a ticket."""

    shape: Shape
    dask_bytes: int
    """Bytes that travel through Dask; 0 with a `block`."""
    block: Block | None
    """Place in shared memory, or None."""
    numbers: Numbers
    """The vectors, before the training or after it."""


def free_memory_bytes() -> int:
    """Return the bytes of memory of this machine that are free."""
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
