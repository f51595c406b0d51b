"""The garbage collector while a run is set up, while it lasts, and as a command ends."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_RARELY = 1000
"""Threshold of full collections: collections of the middle generation before one of the oldest."""
_here = False
"""True while a block of this module has objects set aside."""


@contextmanager
def resting() -> Iterator[None]:
    """Keep the garbage collector off within the block, in which modules are imported and a scenario is built.

    What is made there stays, and to look through it again and again costs a tenth of a short command's time.
    """
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            if not _is_set_aside():
                # Among the old objects at once: as the young it would all be looked through first thing.
                gc.freeze()
                gc.unfreeze()
            gc.enable()


@contextmanager
def long_lived() -> Iterator[None]:
    """Keep the garbage collector from objects that exist at the beginning of the block: modules, laws, data.

    They stay to the end of a run in any case; scanning them again and again costs a run with many messages in flight a fourth
    of its time. Within a block that has set objects aside already, those stay so, and full collections become rare.
    """
    if _is_set_aside():
        before = gc.get_threshold()
        gc.set_threshold(*before[:2], _RARELY)  # the third threshold is that of full collections
        try:
            yield
        finally:
            gc.set_threshold(*before)
        return
    with _set_aside():
        yield


@contextmanager
def freed_at_the_end() -> Iterator[None]:
    """Free what one run of several has made, as the block ends; what there was before it is not looked at.

    A simulation that is over refers to itself in circles. To find it among all modules takes a tenth of a second, for every run.
    """
    if _is_set_aside():
        yield
        return
    with _set_aside():
        try:
            yield
        finally:
            gc.collect()


def rests_at_the_end() -> None:
    """Keep the collector from all there is as the process ends, where it would take a sixth of a short command's time."""
    gc.freeze()


def _is_set_aside() -> bool:
    # Python counts one by one what was set aside, which takes 15 ms where that is all modules of a learner.
    return _here or gc.get_freeze_count() > 0


@contextmanager
def _set_aside() -> Iterator[None]:
    global _here
    gc.freeze()
    _here = True
    try:
        yield
    finally:
        _here = False
        gc.unfreeze()
