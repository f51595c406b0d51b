"""Memory of training: what is kept for the next step, and errors of torch when it runs out.

On a GPU such an error has a class of its own, on a CPU it is a RuntimeError like any other.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

# Parts of the messages with which torch reports on a CPU that memory ran out; it has no class of its own for that.
_WORDS = ("can't allocate memory", "Storage size calculation overflowed")

_KEPT_BYTES = 16 * 2**20
"""Size up to which blocks of memory on a CPU are used again; twice as many bytes are kept free at most."""


def keep_freed_memory() -> None:
    """Make the C library keep freed memory for the next step of training, on a CPU, in place of returning it to the system.

    Memory that was returned is mapped again page by page, which takes longer than filling it. glibc returns free memory beyond a
    threshold, and raises that to twice the largest block freed so far (mallopt(3), M_MMAP_THRESHOLD; at most 64 MiB). So it is
    enough to allocate and free one large block, which is never written. In other C libraries this changes nothing.
    """
    torch.empty(_KEPT_BYTES, dtype=torch.uint8)


def is_out_of_memory(error: RuntimeError | MemoryError) -> bool:
    """Return True if `error` reports that the device could not hold what was allocated."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or any(words in str(error) for words in _WORDS)


def suggest_remedy(device: torch.device) -> str:
    """Return advice for a user whose device has too little memory."""
    return "use a smaller network" if device.type == "cpu" else "use a smaller network, or device = 'cpu'"


@contextmanager
def explain_out_of_memory(device: torch.device, doing: str) -> Iterator[None]:
    """Return a context that turns running out of memory into a MemoryError with a remedy; `doing` says what the block does.

    The message begins with the key `device`. A MemoryError whose message begins with a key passes unchanged.

    Example:
        >>> with explain_out_of_memory(torch.device("cpu"), "testing the model"):
        ...     raise MemoryError
        Traceback (most recent call last):
        MemoryError: device = 'cpu': out of memory while testing the model; use a smaller network
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error) or str(error).startswith(KEYS):
            raise
        release(device)
        raise MemoryError(f"device = {device.type!r}: out of memory while {doing}; {suggest_remedy(device)}") from error


KEYS = ("device = ", "client_state_bytes = ", "memory_bytes = ")
"""Beginnings of the messages of a learner that ran out of memory."""


def release(device: torch.device) -> None:
    """Free the memory of the device that torch keeps for later use."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
