"""Settings of Python's garbage collector while a run is set up, while it lasts, and when a command ends; they save time only."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_RARELY = 1000
"""Threshold for full collections: number of collections of the middle generation before a full one."""
_frozen_here = False
"""True while a block of this module has objects set aside."""


@contextmanager
def pause_collector() -> Iterator[None]:
    """Switch the garbage collector off within the block, in which modules are imported or a scenario is built.

    The objects made there stay alive. Scanning them repeatedly would cost a tenth of a short command's time.
    """
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            if not _is_exempting():
                # Move new objects to the oldest generation at once: the next collection would scan all of them otherwise.
                gc.freeze()
                gc.unfreeze()
            gc.enable()


@contextmanager
def exempt_existing_objects() -> Iterator[None]:
    """Exempt objects that exist at the beginning of the block from garbage collection: modules, laws, data.

    They live to the end of a run in any case; scanning them repeatedly costs a run with many messages in flight a fourth of its
    time. An inner block leaves the exempt objects of an outer block alone; full collections become rare.
    """
    if _is_exempting():
        before = gc.get_threshold()
        gc.set_threshold(*before[:2], _RARELY)  # the third threshold governs full collections
        try:
            yield
        finally:
            gc.set_threshold(*before)
        return
    with _exempt_present_objects():
        yield


@contextmanager
def free_at_the_end() -> Iterator[None]:
    """Free the objects of one run of several when the block ends, without scanning older objects.

    A finished simulation has reference cycles. Finding them among all modules would take a tenth of a second for every run.
    """
    if _is_exempting():
        yield
        return
    with _exempt_present_objects():
        try:
            yield
        finally:
            gc.collect()


def skip_last_collection() -> None:
    """Exempt all objects from the last collection of the process, which would take a sixth of a short command's time."""
    gc.freeze()


def _is_exempting() -> bool:
    """Return True if objects are exempt from collection now."""
    # Python counts frozen objects one by one, which takes 15 ms for all modules of a learner.
    return _frozen_here or gc.get_freeze_count() > 0


@contextmanager
def _exempt_present_objects() -> Iterator[None]:
    """Exempt all present objects from collection within the block."""
    global _frozen_here
    gc.freeze()
    _frozen_here = True
    try:
        yield
    finally:
        _frozen_here = False
        gc.unfreeze()
