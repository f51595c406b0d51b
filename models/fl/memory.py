"""What torch says where memory runs out: on a GPU an error of its own, on a CPU a RuntimeError like any other."""

from __future__ import annotations

import torch


def is_out_of_memory(error: RuntimeError) -> bool:
    """Whether `error` says that the device could not hold what was asked for."""
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def release(device: torch.device) -> None:
    """Give back what torch has cached on the device."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
