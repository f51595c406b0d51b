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
from scenarios.sweeps.workers import SweepProgress, Work, Workers, processes
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
class _OnCluster:
    """Board by which a task reports to its client. Tasks of a client that has gone are not wanted any more."""

    sweep: str
    index: int
    every_s: float
    own_process: ClassVar[bool] = False

    def tell(self, rounds: int) -> None:
        last = _TOLD.get(self.sweep, 0.0)
        now = time.monotonic()
        if now - last >= self.every_s:
            _TOLD[self.sweep] = now
            this_worker().log_event(self.sweep, (self.index, rounds))

    def speaker(self) -> Callable[[str], None]:
        worker = this_worker()  # which another thread does not find
        return lambda text: worker.log_event(self.sweep, (self.index, text))

    def is_stopped(self) -> bool:
        return self.sweep in _STOPPED or not is_wanted()

    def scratch(self) -> str | None:
        return str(this_worker().local_directory)


_TOLD: dict[str, float] = {}
"""Time of the last progress report of each sweep; used within a worker."""


class Cluster:
    """Workers of a Dask scheduler."""

    def __init__(self, client: Any, runs: int, *, send_back: bool, ahead: bool) -> None:
        """`ahead`: give every worker one run more than it can simulate at a time, so that it never waits."""
        self._client, self._ahead = client, ahead
        self._name = f"netsim-{uuid.uuid4().hex}"
        self._shown = np.zeros(runs, np.int64)
        self._waits: dict[int, str] = {}
        self._place, self._send_back = Place.here(), send_back
        self._stopped = False
        self._under_way: dict[int, Any] = {}
        self._done: SimpleQueue[tuple[int, Any]] = SimpleQueue()
        self._counted_s = -_COUNT_S
        self._attempts = 0
        self.count = 0
        self._recount()
        client.subscribe_topic(self._name, self._on_report)

    def _on_report(self, event: tuple[float, tuple[int, int | str]]) -> None:
        index, report = event[1]
        if isinstance(report, str):
            self._waits[index] = report if index in self._under_way else ""
        else:
            self._shown[index] = max(self._shown[index], report)

    def _recount(self) -> None:
        now = time.monotonic()
        if now - self._counted_s >= _COUNT_S:
            self._counted_s = now
            self.count = sum(self._client.nthreads().values())

    def room(self) -> int:
        self._recount()
        return max((1 + self._ahead) * self.count, 1) - len(self._under_way)

    def submit(self, index: int, work: Work) -> None:
        self._attempts += 1
        future = self._client.submit(
            _work_at,
            self._place,
            not self._send_back,
            versions(),
            work,
            _OnCluster(self._name, index, max(self.count / _MOST_REPORTS_PER_S, 0.5)),
            key=f"{self._name}-{index}-{self._attempts}",
            pure=False,
            retries=0,
        )
        self._under_way[index] = future
        future.add_done_callback(lambda future: self._done.put((index, future)))

    def collect(self, wait_s: float) -> list[tuple[int, Any]]:
        from distributed import KilledWorker

        results = []
        for index, future in take_all(self._done, wait_s):
            if self._under_way.pop(index, None) is None:
                continue
            self._waits[index] = ""
            if future.cancelled() or future.status == "lost":
                raise UserError("--cluster: the scheduler has gone; start it again, and go on with --resume")
            try:
                results.append((index, future.result()))
            except KilledWorker as error:
                results.append((index, Killed(f"its worker was killed ({error.last_worker.address})")))
        return results

    def standing(self) -> SweepProgress:
        return SweepProgress(self._shown.tolist(), {index: text for index, text in list(self._waits.items()) if text})

    def complete(self, index: int, rounds: int) -> None:
        self._shown[index] = rounds

    def stop(self) -> None:
        if not self._stopped:
            self._stopped = True
            with suppress(OSError, RuntimeError):  # the scheduler has gone, or is about to
                self._client.run(_stop, self._name)

    def require(self, folder: Path) -> None:
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


def _work_at(place: Place, shared: bool, wanted: dict[str, str | None], work: Work, board: Any) -> Any:
    """Do `work` in a worker, in the working folder of the client. `shared`: True if both reach the same folders."""
    refuse_versions("--cluster", f"worker {this_worker().address}", wanted, versions())
    try:
        place.enter()
    except OSError as error:
        if shared:
            who = this_worker().address
            raise UserError(f"--cluster: worker {who} cannot work in {place.folder} ({error.strerror})") from error
    return work(board)


def _stop(sweep: str) -> None:
    _STOPPED.add(sweep)


def _content(path: str) -> bytes | None:
    try:
        return Path(path).read_bytes()
    except OSError:
        return None


@contextmanager
def open_workers(machines: Machines, *, runs: int, modules: Sequence[str] = ()) -> Iterator[Workers]:
    """Open workers for a number of `runs`.

    `modules`: modules that the runs need; processes of this machine import them at their start.
    """
    jobs, address = machines.jobs, machines.cluster
    if jobs is not None and jobs < 1:
        raise UserError(f"--jobs {jobs}: must be >= 1; leave it out for all cores")
    if machines.retries < 0:
        raise UserError(f"--retries {machines.retries}: must be >= 0")
    if address is None:
        if machines.send_back:
            raise UserError("--send-back: is for the workers of a --cluster; those of this machine write into the folder")
        with processes(min(jobs or os.cpu_count() or 1, runs), runs, modules=modules) as workers:
            yield workers
        return
    if jobs is not None:
        raise UserError(f"--jobs {jobs}: a --cluster knows its own workers; give one of the two")
    with cluster(address, runs, send_back=machines.send_back) as elsewhere:
        yield elsewhere


@contextmanager
def cluster(address: str, runs: int, *, send_back: bool) -> Iterator[Cluster]:
    """Open the workers of the scheduler at `address` (see `dask_client.connect`) for a number of `runs`.

    `send_back`: results are sent back, so that workers need no shared folder. Raises UserError.
    """
    with connect(address, "--cluster") as client:
        # One that is killed here takes no run with it that has not begun; other schedulers are patient with those themselves.
        yield Cluster(client, runs, send_back=send_back, ahead=not is_local(address))
