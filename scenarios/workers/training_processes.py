"""Processes of this machine that train the clients of one run. All map the files with vectors and samples."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from scenarios.schema.errors import UserError
from scenarios.workers.allocator import keep_freed_memory
from scenarios.workers.processes import Killed, Place, end, ends_of_process, give_back, reason_of, start, submit, take_executor
from scenarios.workers.training import Failure, Ticket, TrainingWorkers, failure_of, portable_bytes, refusal, train
from scenarios.workers.vectors import Block, SharedVectors, forget_mappings

if TYPE_CHECKING:
    from models.fl.training.bench import Bench, Site
    from models.fl.training.stacks import Report, Shape, Stack, Vectors

_MODULES = ("models.fl.training.stacks", "scenarios.workers.training_processes")
_BEAT_S = 0.25
"""Seconds between two signs of life of a worker."""
HANG_S = 60.0
"""Seconds without a sign of life after which a worker counts as hanging."""
_SLOW = 20.0
"""Multiple of the longest job so far after which a job counts as hanging, if it has taken `_SLOW_S` seconds."""
_SLOW_S = 600.0


class TrainingProcesses(TrainingWorkers):
    """`len(devices)` processes, each with the device on which it trains.

    `memory_bytes`: most shared memory of vectors on their way; what does not fit goes by way of a file. None: half of what is
    free.
    """

    def __init__(self, devices: Sequence[str], memory_bytes: int | None = None) -> None:
        super().__init__(len(devices))
        self._devices, self._memory_bytes = list(devices), memory_bytes
        self._executors: dict[int, Any] = {}
        self._site: Site
        self._vectors: SharedVectors
        self._beats: Any = None
        self._threads = 1
        self._longest_s = 0.0

    def open(self, stack: ExitStack) -> None:
        from models.fl.training.bench import Site

        assert self._recipe is not None
        recipe = portable_bytes(self._recipe, self.key)
        self._vectors = SharedVectors.open(stack, self._memory_bytes)
        memory, disk = self._vectors.memory, self._vectors.spill
        needed = 4 * self._widest * self.count
        if self._vectors.most_bytes < needed:
            reason = f"{self.count} workers need {needed} bytes for vectors on their way, of which there are fewer"
            raise UserError(f"learner.workers = {self.count}: {reason}, in memory and on disk; use fewer, or a smaller network")
        # Samples are read once, and mapped by all workers.
        self._site = Site(str(memory if 4 * self._x.numel() < shutil.disk_usage(memory).free // 4 else disk))
        self._site.write(self._x, self._y, recipe)
        self._beats = np.memmap(f"{disk}/beats", np.float64, "w+", shape=(self.count,))
        self._beat_file, self._threads = f"{disk}/beats", self._recipe.options.threads or 1
        self._executors = {line: take_executor(self._threads, _MODULES) for line in range(self.count)}
        stack.callback(self._end)
        opened = [self._open_site(line) for line in range(self.count)]
        for line, future in enumerate(opened):
            self._await_site(line, future)
        self._free = list(range(self.count))

    def _seat(self, line: int) -> _Seat:
        return _Seat(Place.here(), self._site, self._devices[line], self._beat_file, line, self.count)

    def _open_site(self, line: int) -> Any:
        """Return the future of a worker's bench; an idle process that has come to an end is replaced."""
        self._beats[line] = time.monotonic()
        try:
            return submit(self._executors[line], _open, self._seat(line))
        except ends_of_process():
            return self._open_site_anew(line)

    def _open_site_anew(self, line: int) -> Any:
        self._executors[line] = start(self._threads, _MODULES)
        return submit(self._executors[line], _open, self._seat(line))

    def _await_site(self, line: int, future: Any) -> None:
        """Wait until a worker can train; raises UserError."""
        if isinstance(future.exception(), ends_of_process()):
            # An idle process may end, or be seen to have ended, after it was given the work.
            future = self._open_site_anew(line)
        try:
            problem = future.result()
        except ends_of_process() as error:
            raise UserError(f"learner.workers: worker {line} did not start: {reason_of(error)}") from error
        if problem is not None:
            raise UserError(f"learner.workers: worker {line} cannot train: {problem}")

    def _end(self) -> None:
        """Kill processes that are at work, and keep idle processes for the next run."""
        idle = []
        for line, executor in self._executors.items():
            if line in self._free:
                with contextlib.suppress(TimeoutError, *ends_of_process()):
                    executor.submit(_close, self._site).result(timeout=10)
                    idle.append(executor)
                    continue
            end(executor)
        give_back(self._threads, idle)
        self._executors, self._free = {}, []

    def send(self, line: int, ticket: Ticket) -> bool:
        from models.fl.training.stacks import Shape

        shape = Shape.of_vectors(ticket.starts)
        block = self._vectors.take(shape.size)
        if block is None:
            return False
        ticket.place = (block, shape)
        for there, value in zip(shape.views(block.numbers()).parts(), ticket.starts.parts(), strict=True):
            there.copy_(value)
        try:
            future = self._executors[line].submit(_train, self._seat(line), ticket.stack, block, shape)
        except ends_of_process() as error:  # it came to an end while it waited for work
            reason = reason_of(error)
            threading.Thread(target=self.on_end, args=(line, ticket, Killed(reason)), daemon=True).start()
            return True
        future.add_done_callback(lambda future: self._on_done(line, ticket, future))
        return True

    def _on_done(self, line: int, ticket: Ticket, future: Any) -> None:
        error = future.exception()
        if error is not None:
            outcome = Killed(reason_of(error)) if isinstance(error, ends_of_process()) else failure_of(f"worker {line}", error)
        else:
            outcome = future.result()
        self._longest_s = max(self._longest_s, outcome.seconds)
        self.on_end(line, ticket, outcome)

    def fetch(self, ticket: Ticket, ends: Vectors) -> None:
        block, shape = ticket.place
        for value, there in zip(ends.parts(), shape.views(block.numbers()).parts(), strict=False):
            value.copy_(there)

    def release(self, ticket: Ticket) -> None:
        if ticket.place is not None:
            self._vectors.give(ticket.place[0])
            ticket.place = None

    def tend(self) -> None:
        with self._lock:
            broken, self._broken = self._broken, []
            running = dict(self._running)
        now = time.perf_counter()
        for line, ticket in running.items():
            too_long = now - ticket.began_s > max(_SLOW_S, _SLOW * self._longest_s) if self._longest_s else False
            if too_long or time.monotonic() - self._beats[line] > HANG_S:
                end(self._executors[line])
        for line, _ in broken:
            end(self._executors[line])
            self._executors[line] = start(self._threads, _MODULES)
            self._await_site(line, self._open_site(line))
            with self._lock:
                self._free.append(line)

    def facts(self) -> dict[str, Any]:
        return super().facts() | {"devices": self._devices, "spilled": self._vectors.spilled if self._beats is not None else 0}


# In a worker

_BENCHES: dict[str, tuple[Bench, str]] = {}
"""The bench of each run, and the name of this worker, by the folder of the site."""


@dataclass(frozen=True)
class _Seat:
    """Data that a process needs to be a worker of a run."""

    place: Place
    site: Site
    device: str
    beats: str
    """File of the signs of life."""
    line: int
    count: int
    """Workers of the run."""

    def bench(self) -> tuple[Bench, str]:
        """Return the bench of the run and the name of this worker, which are made where they are not there.

        The library of processes ends one that has waited long, and starts another with the next job.
        """
        if self.site.folder not in _BENCHES:
            self.place.enter()
            _keep_process()
            keep_freed_memory()
            threading.Thread(target=_beat, args=(self.beats, self.line, self.count), daemon=True).start()
            _BENCHES[self.site.folder] = (self.site.bench(self.device), f"worker {self.line}, process {os.getpid()}")
        return _BENCHES[self.site.folder]


def _keep_process() -> None:
    """Let this process grow: loky takes 300 MB more than at its start for a leak, and replaces the process after its job."""
    from joblib.externals.loky import process_executor

    process_executor._MAX_MEMORY_LEAK_SIZE = sys.maxsize


def _open(seat: _Seat) -> str | None:
    """Make the bench of a seat; returns an error in words, or None."""
    try:
        seat.bench()
    except Exception as error:  # whatever code of the user's own raises as it is imported
        return refusal(error)
    return None


def _beat(file: str, line: int, count: int) -> None:
    try:
        beats = np.memmap(file, np.float64, "r+", shape=(count,))
    except OSError:
        return
    while os.path.exists(file):
        beats[line] = time.monotonic()
        time.sleep(_BEAT_S)


def _close(site: Site) -> None:
    _BENCHES.pop(site.folder, None)
    forget_mappings()


def _train(seat: _Seat, stack: Stack, block: Block, shape: Shape) -> Report | Failure:
    bench, name = seat.bench()
    return train(bench, name, stack, shape.views(block.numbers()))
