"""Devices on which training runs."""

from __future__ import annotations

from collections.abc import Sequence

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


def check_devices(names: Sequence[str]) -> list[str]:
    """Return the devices of these names, as torch spells them.

    Raises:
        ParameterError: torch sees no such device.
    """
    count = torch.cuda.device_count()
    for name in names:
        kind, _, number = name.partition(":")
        # "cuda" alone is the first GPU.
        if kind == "cuda" and int(number or 0) >= count:
            devices = f"torch sees {count} such devices here" if count else "torch sees no such device here"
            raise ParameterError("devices", list(names), f"{name}: {devices}; leave it out")
    return [str(device_of(name)) if name == "auto" else name for name in names]
