"""Processes of this machine that train the clients of one run. All map the files with vectors and samples."""

from __future__ import annotations

import contextlib
import os
import shutil
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
        """Seconds of the longest job so far."""

    def open(self, stack: ExitStack) -> None:
        """Write samples and recipe to files, start all processes at once, and wait until each can train.

        All files lie in folders that `stack` removes. Refuses, by UserError, a memory and disk too small for the vectors of one
        client for each worker: a job without room for its vectors would wait forever.
        """
        from models.fl.training.bench import Site

        assert self._recipe is not None
        recipe = portable_bytes(self._recipe, self.key)
        self._vectors = SharedVectors.open(stack, self._memory_bytes)
        memory, disk = self._vectors.memory, self._vectors.spill
        needed = 4 * self._widest * self.count
        if self._vectors.most_bytes < needed:
            reason = f"{self.count} workers need {needed} bytes for vectors on their way, of which there are fewer"
            raise UserError(f"learner.workers = {self.count}: {reason}, in memory and on disk; use fewer, or a smaller network")
        # Samples are written once, and mapped by all workers: in memory if they take less than a quarter of what is free.
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

    def _setup(self, line: int) -> _WorkerSetup:
        """Return the setup of worker number `line`; each job carries it, because a process may have been replaced."""
        return _WorkerSetup(Place.here(), self._site, self._devices[line], self._beat_file, line, self.count)

    def _open_site(self, line: int) -> Any:
        """Let a worker build its bench; return the future. An idle process that has come to an end is replaced."""
        # The start counts as a sign of life: `tend` must not take a worker that imports torch for one that hangs.
        self._beats[line] = time.monotonic()
        try:
            return submit(self._executors[line], _open, self._setup(line))
        except ends_of_process():
            return self._open_site_anew(line)

    def _open_site_anew(self, line: int) -> Any:
        """Start a new process for a worker and let it build its bench; return the future."""
        self._executors[line] = start(self._threads, _MODULES)
        return submit(self._executors[line], _open, self._setup(line))

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
        """Kill processes that are at work, and keep idle processes, without their benches, for the next run."""
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
        """Copy the vectors of a ticket into a block, which the worker overwrites with its result, and submit the job.

        False if no block is free. A worker that has died does not raise: its end is reported like one during the job.
        """
        from models.fl.training.stacks import Shape

        shape = Shape.of_vectors(ticket.starts)
        block = self._vectors.take(shape.size)
        if block is None:
            return False
        ticket.place = (block, shape)
        for target, value in zip(shape.views(block.numbers()).parts(), ticket.starts.parts(), strict=True):
            target.copy_(value)
        try:
            future = self._executors[line].submit(_train, self._setup(line), ticket.stack, block, shape)
        except ends_of_process() as error:  # it came to an end while it waited for work
            reason = reason_of(error)
            # From another thread, as by `_on_done`: the caller holds the lock, and is in the midst of giving out tickets.
            threading.Thread(target=self.on_end, args=(line, ticket, Killed(reason)), daemon=True).start()
            return True
        future.add_done_callback(lambda future: self._on_done(line, ticket, future))
        return True

    def _on_done(self, line: int, ticket: Ticket, future: Any) -> None:
        """Hand the outcome of a job to `on_end`: its report, `Killed` for the end of the process, `Failure` for another error.

        Called in a thread of the executor.
        """
        error = future.exception()
        if error is not None:
            outcome = Killed(reason_of(error)) if isinstance(error, ends_of_process()) else failure_of(f"worker {line}", error)
        else:
            outcome = future.result()
        self._longest_s = max(self._longest_s, outcome.seconds)
        self.on_end(line, ticket, outcome)

    def fetch(self, ticket: Ticket, ends: Vectors) -> None:
        block, shape = ticket.place
        # `ends` may lack the last part, the shift, which training does not change.
        for value, result in zip(ends.parts(), shape.views(block.numbers()).parts(), strict=False):
            value.copy_(result)

    def release(self, ticket: Ticket) -> None:
        if ticket.place is not None:
            self._vectors.give(ticket.place[0])
            ticket.place = None

    def tend(self) -> None:
        """End workers that hang, and replace those that have ended; raises UserError if a new one cannot train.

        A worker hangs if it gives no sign of life or takes far longer than any job before. It is only killed here: its executor
        then reports the end, `on_end` notes it in `_broken`, and a later call replaces it.
        """
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
            # Only now may it get tickets: `on_end` does not free the line of a killed worker.
            with self._lock:
                self._free.append(line)

    def facts(self) -> dict[str, Any]:
        return super().facts() | {"devices": self._devices, "spilled": self._vectors.spilled if self._beats is not None else 0}


# What follows runs in a worker, `_WorkerSetup` is made in the process of the run and sent with each job.

_BENCHES: dict[str, tuple[Bench, str]] = {}
"""Bench of each run in this process, and the name of this worker in messages, by the folder of the run's `Site`.

A bench holds the network and the samples, and trains stacks of clients.
"""


@dataclass(frozen=True)
class _WorkerSetup:
    """All that a process needs to become worker number `line` of a run."""

    place: Place
    site: Site
    device: str
    beats: str
    """File of the signs of life."""
    line: int
    count: int
    """Workers of the run."""

    def bench(self) -> tuple[Bench, str]:
        """Return the bench of the run and the name of this worker in messages; build the bench at the first call in a process.

        Every job calls this: the library ends a process that has waited long, and starts another, without a bench, for the next
        job. The first call also enters the run's folder and starts the signs of life.
        """
        if self.site.folder not in _BENCHES:
            self.place.enter()
            keep_freed_memory()
            threading.Thread(target=_beat, args=(self.beats, self.line, self.count), daemon=True).start()
            _BENCHES[self.site.folder] = (self.site.bench(self.device), f"worker {self.line}, process {os.getpid()}")
        return _BENCHES[self.site.folder]


def _open(setup: _WorkerSetup) -> str | None:
    """Build the bench of this process; return the reason why it cannot train, in words, or None."""
    try:
        setup.bench()
    except Exception as error:  # whatever code of the user's own raises as it is imported
        return refusal(error)
    return None


def _beat(file: str, line: int, count: int) -> None:
    """Write signs of life of worker `line` into `file`, a time for each of `count` workers, until the run removes the file.

    Times are of the monotonic clock, which all processes of a machine share.
    """
    try:
        beats = np.memmap(file, np.float64, "r+", shape=(count,))
    except OSError:  # the run has ended already
        return
    while os.path.exists(file):
        beats[line] = time.monotonic()
        time.sleep(_BEAT_S)


def _close(site: Site) -> None:
    """Forget the bench of a run that ends, so that this process can wait for the next run without its memory."""
    _BENCHES.pop(site.folder, None)
    forget_mappings()


def _train(setup: _WorkerSetup, stack: Stack, block: Block, shape: Shape) -> Report | Failure:
    """Train a stack from the vectors in `block`, and overwrite them with the results; the report alone travels back."""
    bench, name = setup.bench()
    return train(bench, name, stack, shape.views(block.numbers()))
