"""The garbage collector while a run lasts."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def long_lived() -> Iterator[None]:
    """Let the garbage collector pass over what there is at the beginning of the block: modules, laws, data sets.

    It stays to the end of a run in any case; to go over it again and again costs a run with many messages in flight a fourth of
    its time. Where something was set aside already, it is left to whoever did so.
    """
    if gc.get_freeze_count():
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
