"""What code within a Dask worker asks of it, and the set-up of workers that netsim starts (a "preload" of Dask's)."""

from __future__ import annotations

import atexit
import os
from typing import Any

from scenarios.workers.interrupts import ignore_interrupts


def dask_setup(worker: object) -> None:
    """Ignore Ctrl-C, which reaches all processes of a terminal: the main process stops the workers."""
    ignore_interrupts()
    # A thread that still trains as Python ends would end the process by a message of the C++ library.
    atexit.register(os._exit, 0)


def this_worker() -> Any:
    """Return the worker that runs the present task."""
    from distributed import get_worker

    return get_worker()


def is_wanted() -> bool:
    """Return True if the client of the present task still exists."""
    worker = this_worker()
    task = worker.state.tasks.get(worker.get_current_task())
    return task is not None and task.state not in ("cancelled", "released", "forgotten")
