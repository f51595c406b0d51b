"""Set-up of a Dask worker that netsim starts (a "preload" of Dask's)."""

from __future__ import annotations

from scenarios.workers.interrupts import ignore_interrupts


def dask_setup(worker: object) -> None:
    """Leave Ctrl-C, which reaches all processes of a terminal, to the main one, which tells the workers."""
    ignore_interrupts()
