"""The start of Python processes that import nothing from the present folder."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

SAFE_PATH = {"PYTHONSAFEPATH": "1"}
"""Environment in which Python does not put the present folder on `sys.path`."""


@contextmanager
def restored_environment(names: Iterable[str]) -> Iterator[None]:
    """Give environment variables the values after the block that they had before it."""
    before = {name: os.environ.get(name) for name in names}
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def safe_path() -> Iterator[None]:
    """Set PYTHONSAFEPATH within the block: processes started in it import nothing from the present folder.

    `python -c` and `python -m`, by which processes of a pool and their helpers start, search the present folder before the
    standard library: a `json.py` beside a scenario would run in each of them. What a scenario names is still found: a worker
    receives the `sys.path` of its parent before its first run.
    """
    with restored_environment(SAFE_PATH):
        os.environ.update(SAFE_PATH)
        yield
