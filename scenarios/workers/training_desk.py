"""Desks, at which Dask workers train the clients of one run.

A desk is the value of a future of the run: Dask drops it with the run's client, however the run ends. Jobs come straight from the
run, by a handler of the worker: as tasks of the scheduler they would take several times the processor time.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import pickle
import shutil
import socket
import tempfile
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scenarios.schema.errors import UserError
from scenarios.workers.allocator import keep_freed_memory
from scenarios.workers.dask_worker import is_wanted, this_worker
from scenarios.workers.processes import Killed, Place
from scenarios.workers.training import Failure, failure_of, portable_bytes, refusal, train
from scenarios.workers.vectors import Block, forget_mappings
from scenarios.workers.versions import refuse_versions, versions

if TYPE_CHECKING:
    from models.fl.training.bench import Bench, BenchRecipe
    from models.fl.training.stacks import Report, Shape, Stack

Numbers = NDArray[np.float32]
Samples = tuple[Any, Any]
"""Training inputs (N, ...) and their classes (N,), as tensors."""
TRAIN = "netsim_train"
"""Name of the worker's handler `train_at_desk`."""
_LOOK_S = 0.5
"""Seconds between two checks by which a worker sees that its run still exists."""
_TRAINING = threading.Lock()
"""Held while a stack is trained: networks of torch draw from one generator for a process."""


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
class Parcel:
    """All that a worker needs to make its bench."""

    key: str
    cluster: Cluster
    recipe: BenchRecipe
    digest: str
    """Checksum of the samples."""
    device: str


class DeskFacts(NamedTuple):
    """Facts of a desk for the process of the run."""

    folder: str
    """Folder of the worker's machine that holds the samples."""
    problem: str | None
    """Reason in words for which the worker cannot train, or None."""
    near: bool
    """True if the worker maps the vectors of the run: it is on the run's machine."""


class TrainingCall(NamedTuple):
    """A stack, and the place of its vectors."""

    stack: Stack
    shape: Shape
    block: Block | None
    """Place in shared memory; None: the vectors travel with the call, and back with its result."""


class Desk:
    """Bench of a run in a worker, or the reason why there is none.

    The folder with the samples is removed with the desk of the worker that made it.
    """

    def __init__(self, bench: Bench | None, name: str, folder: str, problem: str | None) -> None:
        self.bench, self.name, self.folder, self.problem = bench, name, folder, problem
        self.calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        weakref.finalize(self, forget_mappings)

    def __reduce__(self) -> Any:
        raise TypeError("a desk stays in the memory of its worker")

    def train(self, content: bytes, numbers: Numbers | None) -> tuple[Report | Failure | Killed, Numbers | None]:
        """Return the outcome of a pickled `TrainingCall`, and its vectors where they travel."""
        if self.bench is None:
            # Dask has made the desk again, for its worker was started again at the same address.
            return Killed(str(self.problem)), None
        try:
            call: TrainingCall = pickle.loads(content)
            # Numbers that Dask hands over may be read-only.
            ends = np.require(numbers, requirements="W") if call.block is None else call.block.numbers()
        except Exception as error:  # whatever a state of the user's own raises as it is read
            return failure_of(self.name, error), None
        with _TRAINING:
            outcome = train(self.bench, self.name, call.stack, call.shape.views(ends))
        return outcome, ends if call.block is None else None


_DESKS: weakref.WeakValueDictionary[str, Desk] = weakref.WeakValueDictionary()
"""Desks of this process, by the keys of their futures."""


def host() -> str:
    """Return the name of this machine."""
    return socket.gethostname()


def open_desk(key: str, place: Place, wanted: dict[str, str | None], content: bytes, folder: str | None) -> Desk:
    """Return a desk with the bench of this worker, or with the reason why it cannot train; registers the handler of jobs.

    `key`: key of the desk's future, by which jobs name the desk. `wanted`: versions of packages in the process of the run.
    `content`: a pickled `Parcel`. `folder`: samples that another worker of this machine has read, or None.
    """
    worker = this_worker()
    name = f"worker {worker.address}"
    worker.handlers[TRAIN] = train_at_desk
    try:
        refuse_versions("versions", "it", wanted, versions())
        with suppress(OSError):  # a folder that this machine does not have; what is missed is named as it is looked for
            place.enter()
        parcel: Parcel = pickle.loads(content)
        keep_freed_memory()
        desk = _build_desk(parcel, name, folder if folder and Path(folder).is_dir() else None, worker.local_directory)
    except Exception as error:  # whatever code of the user's own raises as it is imported
        desk = Desk(None, name, "", refusal(error))
    _DESKS[key] = desk
    return desk


def _build_desk(parcel: Parcel, name: str, folder: str | None, parent: str) -> Desk:
    """Return a desk whose bench maps the samples in `folder`; None: read and check them, and write them below `parent` first.

    A folder that is made here is removed with the desk, or at once if the bench cannot be built. Raises UserError for code or
    samples other than those of the run.
    """
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


def describe(desk: Desk, run_host: str, vectors: str) -> DeskFacts:
    """Return the facts of a desk; `vectors`: file of the machine `run_host` that holds the vectors of the run."""
    return DeskFacts(desk.folder, desk.problem, host() == run_host and os.access(vectors, os.R_OK | os.W_OK))


def serve(desk: Desk) -> None:
    """Train the stacks that come to a desk as long as the run exists.

    The scheduler counts this task as work of long duration: it keeps a worker that has it, and gives the worker other tasks.
    """
    from distributed import secede

    secede()
    while is_wanted():
        with suppress(Empty):
            desk.calls.get(timeout=_LOOK_S)()


async def train_at_desk(desk: str, call: bytes, numbers: Numbers | None = None) -> dict[str, Any]:
    """Handler of a worker: have a stack trained in the thread that serves the desk with the key `desk`; return the outcome.

    `call`: a pickled `TrainingCall`. `numbers`: its vectors, unless they are in shared memory. The event loop only passes bytes
    on: training, or unpickling what users wrote, would keep it from giving signs of life.
    """
    from distributed.protocol.serialize import to_serialize

    own_desk = _DESKS.get(desk)
    if own_desk is None:
        return {"outcome": pickle.dumps(Killed("its worker has left the run")), "numbers": None}
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[tuple[Report | Failure | Killed, Numbers | None]] = loop.create_future()

    def set_answer(result: tuple[Report | Failure | Killed, Numbers | None]) -> None:
        # The handler may have been cancelled meanwhile.
        if not answer.done():
            answer.set_result(result)

    def train_and_answer() -> None:
        result = own_desk.train(call, numbers)
        # Futures may be set only in the thread of their loop.
        loop.call_soon_threadsafe(set_answer, result)

    own_desk.calls.put(train_and_answer)
    outcome, ends = await answer
    return {"outcome": pickle.dumps(outcome), "numbers": None if ends is None else to_serialize(ends)}


def digest(x: Any, y: Any) -> str:
    """Return a checksum of samples `x`, `y`: of their types, shapes and values, wherever they are stored."""
    checksum = hashlib.blake2b(digest_size=16)
    for tensor in (x, y):
        checksum.update(repr((tensor.dtype, tensor.shape)).encode())
        checksum.update(np.ascontiguousarray(tensor.cpu().numpy()).data)
    return checksum.hexdigest()
