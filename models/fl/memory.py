"""What torch says where memory runs out: on a GPU an error of its own, on a CPU a RuntimeError like any other."""

from __future__ import annotations

import torch

_WORDS = ("can't allocate memory", "Storage size calculation overflowed")


def is_out_of_memory(error: RuntimeError | MemoryError) -> bool:
    """Whether `error` says that the device could not hold what was asked for."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or any(words in str(error) for words in _WORDS)


def roomier(device: torch.device) -> str:
    """What to do where `device` cannot hold what is asked of it."""
    return "use a smaller network" if device.type == "cpu" else "use a smaller network, or device = 'cpu'"


def release(device: torch.device) -> None:
    """Give back what torch has cached on the device."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
