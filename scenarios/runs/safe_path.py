"""The start of Python processes that import nothing from the present folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

SAFE_PATH = {"PYTHONSAFEPATH": "1"}
"""Environment in which Python does not put the present folder on `sys.path`."""


@contextmanager
def safe_path() -> Iterator[None]:
    """Start the Python processes of the block with a safe path.

    `python -c` and `python -m`, by which processes of a pool and their helpers start, search the present folder before the
    standard library: a `json.py` beside a scenario would run in each of them. What a scenario names is still found: a worker
    receives the `sys.path` of its parent before its first run.
    """
    (name, value), = SAFE_PATH.items()
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
