"""Random states of the process (`random`, NumPy, torch), seeded for the code of an app and restored after it."""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np


def save_state() -> tuple[Any, ...]:
    """Return the states of all global generators."""
    torch = sys.modules.get("torch")
    numpy = np.random.get_state()  # noqa: NPY002  (apps may use the global generator)
    return random.getstate(), numpy, None if torch is None else torch.get_rng_state()


def restore_state(state: tuple[Any, ...]) -> None:
    """Restore what `save_state` returned."""
    random.setstate(state[0])
    np.random.set_state(state[1])  # noqa: NPY002
    if state[2] is not None:
        sys.modules["torch"].set_rng_state(state[2])


def seed_all(*address: int) -> None:
    """Seed all global generators from an address, such as (seed, node, number of its message)."""
    digest = hashlib.sha256(repr(address).encode()).digest()
    random.seed(digest)
    np.random.seed(np.frombuffer(digest[:16], np.uint32))  # noqa: NPY002
    torch = sys.modules.get("torch")
    if torch is not None:
        # Not torch.manual_seed: it looks for accelerators, which is slow.
        torch.default_generator.manual_seed(int.from_bytes(digest[16:24], "little") >> 1)


@contextmanager
def preserve_states() -> Iterator[None]:
    """Context manager: restore the states of all global generators after the block."""
    state = save_state()
    try:
        yield
    finally:
        restore_state(state)
