"""What a Dask worker that netsim starts does first (a "preload" of Dask's)."""

from __future__ import annotations

import signal
from typing import Any


def dask_setup(worker: Any) -> None:
    """Leave Ctrl-C, which reaches all processes of a terminal, to the main one, which tells the workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
