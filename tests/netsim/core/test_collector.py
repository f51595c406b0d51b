"""What the garbage collector passes over while a run lasts."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from netsim.core import collector
from netsim.core.collector import exempt_existing_objects, free_at_the_end, pause_collector


@pytest.fixture(autouse=True)
def _nothing_is_set_aside(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Undo for each test of this file what the whole suite does to the collector."""
    monkeypatch.setattr(collector, "_frozen_here", False)
    seldom = gc.get_threshold()
    gc.set_threshold(700, 10, 10)  # those that Python begins with
    gc.unfreeze()
    yield
    gc.freeze()
    gc.set_threshold(*seldom)


def test_what_there_is_is_passed_over_within_the_block_alone() -> None:
    assert gc.get_freeze_count() == 0
    with exempt_existing_objects():
        assert gc.get_freeze_count() > 10_000
        with exempt_existing_objects():
            pass
        assert gc.get_freeze_count() > 10_000
    assert gc.get_freeze_count() == 0
    with pytest.raises(KeyError), exempt_existing_objects():
        raise KeyError
    assert gc.get_freeze_count() == 0


def test_what_was_set_aside_is_not_counted_for_every_run(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[None] = []
    monkeypatch.setattr(gc, "get_freeze_count", lambda: len(counted) if counted.append(None) else 0)
    with free_at_the_end(), exempt_existing_objects():
        pass
    assert len(counted) == 1


class Circle:
    """Refers to itself."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
def test_a_run_of_many_frees_what_it_has_made_and_looks_at_nothing_older() -> None:
    older = weakref.ref(Circle())
    with free_at_the_end():
        mine = weakref.ref(Circle())
        with free_at_the_end():
            pass
        assert gc.get_freeze_count() > 10_000
        assert mine() is not None
    assert gc.get_freeze_count() == 0
    assert (mine(), older() is None) == (None, False)
    gc.collect()
    assert older() is None
    with pytest.raises(KeyError), free_at_the_end():
        raise KeyError
    assert gc.get_freeze_count() == 0


def test_a_run_among_many_is_gone_over_rarely() -> None:
    usual = gc.get_threshold()
    with free_at_the_end():
        with exempt_existing_objects():
            assert gc.get_threshold() == (*usual[:2], 1000)
            assert gc.get_freeze_count() > 10_000
        assert gc.get_threshold() == usual


def test_what_is_made_at_rest_is_not_looked_through_as_if_it_were_young() -> None:
    looked_at: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            looked_at.append(len(gc.get_objects(generation=0)) + len(gc.get_objects(generation=1)))

    gc.callbacks.append(note)
    try:
        with pause_collector():
            made = [[number] for number in range(50_000)]
            assert not gc.isenabled()
        _more = [[number] for number in range(2_000)]
    finally:
        gc.callbacks.remove(note)
    assert gc.isenabled()
    assert looked_at
    assert max(looked_at) < 10_000
    assert gc.is_tracked(made)
    assert gc.get_freeze_count() == 0
    with exempt_existing_objects():
        before = gc.get_freeze_count()
        with pause_collector():
            pass
        assert gc.get_freeze_count() == before > 10_000


@pytest.mark.usefixtures("no_collector")
def test_a_collector_that_was_off_stays_off() -> None:
    with pause_collector():
        pass
    assert not gc.isenabled()


def test_a_command_leaves_nothing_for_the_collector_to_look_through(tmp_path: Path) -> None:
    told = "atexit.register(lambda: print('set aside:', gc.get_freeze_count()))"
    check = "sys.argv = ['netsim', 'check', 'unreliable']; from netsim import _command; _command()"
    code = f"import atexit, gc, sys; {told}; {check}"
    path = {"PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=os.environ | path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.splitlines()[-1].removeprefix("set aside: ")) > 50_000
