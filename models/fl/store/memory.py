"""Errors of torch when memory runs out: on a GPU a class of its own, on a CPU a RuntimeError like any other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

_WORDS = ("can't allocate memory", "Storage size calculation overflowed")


def is_out_of_memory(error: RuntimeError | MemoryError) -> bool:
    """Return True if `error` reports that the device could not hold what was allocated."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or any(words in str(error) for words in _WORDS)


def suggest_remedy(device: torch.device) -> str:
    """Return the remedy for a device that is too small."""
    return "use a smaller network" if device.type == "cpu" else "use a smaller network, or device = 'cpu'"


@contextmanager
def naming_device(device: torch.device, doing: str) -> Iterator[None]:
    """Raise MemoryError that begins with the key `device` if the block runs out of memory; `doing` describes the block.

    A MemoryError that names a key already passes unchanged.

    Example:
        >>> with naming_device(torch.device("cpu"), "testing the model"):
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
    """Return torch's cached memory of the device."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
