"""Calls repeated while a block runs, by which progress is shown and an interrupt is passed on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def call_every(seconds: float, call: Callable[[], object]) -> Iterator[None]:
    """Call `call` in a thread of its own, with pauses of `seconds`, while the block lasts; no call outlasts the block."""
    over = threading.Event()

    def repeat() -> None:
        while not over.wait(seconds):
            call()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
