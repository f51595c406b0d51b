"""Workers of a Dask cluster, on other machines or on this one."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, ClassVar

import numpy as np

from netsim.records import atomic
from scenarios.schema.errors import UserError
from scenarios.sweeps.options import Machines
from scenarios.sweeps.workers import Board, SweepProgress, Work, Workers, open_processes
from scenarios.workers.dask_client import connect, is_local
from scenarios.workers.dask_worker import is_wanted, this_worker
from scenarios.workers.processes import Killed, Place, take_all
from scenarios.workers.versions import refuse_versions, versions

_MOST_REPORTS_PER_S = 200.0
"""Largest rate of progress reports of all workers together, so that a thousand workers do not overload the scheduler."""
_COUNT_S = 2.0
"""Seconds between two counts of the workers, which may come and go."""
_STOPPED: set[str] = set()
"""Sweeps that have been stopped; used within a worker."""


@dataclass(frozen=True)
class _ClusterBoard:
    """Board of a run on a cluster: it reports to the client of the scheduler. A run stops, too, if that client has gone."""

    sweep: str
    index: int
    every_s: float
    """Seconds between two reports of rounds."""
    own_process: ClassVar[bool] = False

    def report_rounds(self, rounds: int) -> None:
        now_s = time.monotonic()
        if now_s - _REPORTED_S.get(self.sweep, 0.0) >= self.every_s:
            _REPORTED_S[self.sweep] = now_s
            this_worker().log_event(self.sweep, (self.index, rounds))

    def wait_reporter(self) -> Callable[[str], None]:
        worker = this_worker()  # found here, because another thread cannot find it
        return lambda text: worker.log_event(self.sweep, (self.index, text))

    def is_stopped(self) -> bool:
        return self.sweep in _STOPPED or not is_wanted()

    def scratch(self) -> str | None:
        return str(this_worker().local_directory)


_REPORTED_S: dict[str, float] = {}
"""Time of the last progress report of each sweep; used within a worker."""


class Cluster:
    """Workers of a Dask scheduler."""

    def __init__(self, client: Any, runs: int, *, send_back: bool, ahead: bool) -> None:
        """Connect to the scheduler of `client` for a number of `runs`.

        `send_back`: workers do not share this machine's folders. `ahead`: give every worker one run more than it can simulate at
        a time, so that it never waits.
        """
        self._client, self._ahead = client, ahead
        self._name = f"netsim-{uuid.uuid4().hex}"
        self._rounds = np.zeros(runs, np.int64)
        self._waits: dict[int, str] = {}
        self._place, self._send_back = Place.here(), send_back
        self._stopped = False
        self._under_way: dict[int, Any] = {}
        self._done: SimpleQueue[tuple[int, Any]] = SimpleQueue()
        self._counted_s = -_COUNT_S  # so long ago that the workers are counted at once
        self._attempts = 0
        self.count = 0
        self._count_workers()
        client.subscribe_topic(self._name, self._on_report)

    def _on_report(self, event: tuple[float, tuple[int, int | str]]) -> None:
        """Note a report of a run: `event` is a time, and the run's number with rounds done (int) or what it waits for (str)."""
        _, (index, report) = event
        if isinstance(report, str):
            self._waits[index] = report if index in self._under_way else ""  # reports may come after the end of the run
        else:
            self._rounds[index] = max(self._rounds[index], report)  # reports may overtake one another

    def _count_workers(self) -> None:
        """Set `count` to the number of threads of the present workers, at most every `_COUNT_S` seconds."""
        now_s = time.monotonic()
        if now_s - self._counted_s >= _COUNT_S:
            self._counted_s = now_s
            self.count = sum(self._client.nthreads().values())

    def free_places(self) -> int:
        self._count_workers()
        runs_a_worker = 2 if self._ahead else 1
        return max(runs_a_worker * self.count, 1) - len(self._under_way)

    def submit(self, index: int, work: Work) -> None:
        """Give the run to the scheduler. Each attempt has a key of its own: under an equal key Dask returns the result before."""
        self._attempts += 1
        # Each worker reports every half second, or less often if there are so many that the scheduler would not keep up.
        every_s = max(self.count / _MOST_REPORTS_PER_S, 0.5)
        future = self._client.submit(
            _do_work,
            self._place,
            not self._send_back,
            versions(),
            work,
            _ClusterBoard(sweep=self._name, index=index, every_s=every_s),
            key=f"{self._name}-{index}-{self._attempts}",
            pure=False,
            retries=0,
        )
        self._under_way[index] = future
        future.add_done_callback(lambda done: self._done.put((index, done)))

    def collect(self, wait_s: float) -> list[tuple[int, Any]]:
        """Return the runs that ended, each with its result or `Killed`; raises UserError if the scheduler has gone."""
        from distributed import KilledWorker

        results = []
        for index, future in take_all(self._done, wait_s):
            if self._under_way.pop(index, None) is None:
                continue  # its result was collected before
            self._waits[index] = ""
            if future.cancelled() or future.status == "lost":
                raise UserError("--cluster: the scheduler has gone; start it again, and go on with --resume")
            try:
                results.append((index, future.result()))
            except KilledWorker as error:
                results.append((index, Killed(f"its worker was killed ({error.last_worker.address})")))
        return results

    def progress(self) -> SweepProgress:
        return SweepProgress(self._rounds.tolist(), {index: text for index, text in list(self._waits.items()) if text})

    def mark_complete(self, index: int, rounds: int) -> None:
        self._rounds[index] = rounds

    def stop(self) -> None:
        if not self._stopped:
            self._stopped = True
            with suppress(OSError, RuntimeError):  # the scheduler has gone, or is about to
                self._client.run(_stop, self._name)

    def check_reach(self, folder: Path) -> None:
        """Raise UserError unless every worker reads in `folder` a file that this process writes there, and removes afterwards.

        Workers that send results back need not reach it. A folder of the same path on another machine does not hold the file.
        """
        if self._send_back:
            return
        probe = folder / f".{self._name}.netsim-tmp"
        try:
            atomic.write(probe, self._name.encode())
            contents = self._client.run(_content, str(probe.resolve()))
        finally:
            probe.unlink(missing_ok=True)
        for address, content in contents.items():
            if content != self._name.encode():
                raise UserError(
                    f"--out {str(folder)!r}: worker {address} does not find this folder; name one that all workers share, or let "
                    "results be sent back: --send-back"
                )


def _do_work(place: Place, shared: bool, client_versions: dict[str, str | None], work: Work, board: Board) -> Any:
    """Return the result of `work`, done in a worker in the working folder of the client.

    `shared`: True if client and worker reach the same folders, so that a missing one is an error. Raises UserError.
    """
    address = this_worker().address
    refuse_versions("--cluster", f"worker {address}", client_versions, versions())
    try:
        place.enter()
    except OSError as error:
        if shared:
            raise UserError(f"--cluster: worker {address} cannot work in {place.folder} ({error.strerror})") from error
    return work(board)


def _stop(sweep: str) -> None:
    """Note within a worker that a sweep is stopped."""
    _STOPPED.add(sweep)


def _content(path: str) -> bytes | None:
    """Return the content of a file, or None if this worker cannot read it."""
    try:
        return Path(path).read_bytes()
    except OSError:
        return None


@contextmanager
def open_workers(machines: Machines, *, runs: int, modules: Sequence[str] = ()) -> Iterator[Workers]:
    """Open the workers that `machines` describes, for a number of `runs`; raises UserError for wrong options.

    `modules`: modules that the runs need; processes of this machine import them as they start.
    """
    jobs, address = machines.jobs, machines.cluster
    if jobs is not None and jobs < 1:
        raise UserError(f"--jobs {jobs}: must be >= 1; leave it out for all cores")
    if machines.retries < 0:
        raise UserError(f"--retries {machines.retries}: must be >= 0")
    if address is None:
        if machines.send_back:
            raise UserError("--send-back: is for the workers of a --cluster; those of this machine write into the folder")
        with open_processes(min(jobs or os.cpu_count() or 1, runs), runs, modules=modules) as workers:
            yield workers
        return
    if jobs is not None:
        raise UserError(f"--jobs {jobs}: a --cluster knows its own workers; give one of the two")
    with open_cluster(address, runs, send_back=machines.send_back) as cluster:
        yield cluster


@contextmanager
def open_cluster(address: str, runs: int, *, send_back: bool) -> Iterator[Cluster]:
    """Open the workers of the scheduler at `address` (see `dask_client.connect`) for a number of `runs`; raises UserError.

    `send_back`: True if results are sent back, so that workers need no shared folder.
    """
    with connect(address, "--cluster") as client:
        # The scheduler of "local:N" gives up all runs of a killed worker, also one that has not begun: so there is none ahead.
        # Other schedulers give such a run to another worker.
        yield Cluster(client, runs, send_back=send_back, ahead=not is_local(address))
