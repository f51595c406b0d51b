"""Devices on which training runs."""

from __future__ import annotations

import torch

from models.errors import ParameterError


def device_of(name: str) -> torch.device:
    """Return the device of that name; "auto": a GPU if there is one, else the CPU.

    Raises:
        ParameterError: "cuda" if torch sees no such device.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cuda" and not torch.cuda.is_available():
        raise ParameterError("device", "cuda", "torch sees no such device here; use auto or cpu")
    return torch.device(name)
