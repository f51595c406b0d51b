"""Set-up of a Dask worker that netsim starts (a "preload" of Dask's)."""

from __future__ import annotations

from scenarios.workers.interrupts import ignore_interrupts


def dask_setup(worker: object) -> None:
    """Ignore Ctrl-C, which reaches all processes of a terminal: the main process stops the workers."""
    ignore_interrupts()
