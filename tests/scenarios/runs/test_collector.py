"""What the garbage collector passes over while a run lasts."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from scenarios.runs.collector import freed_at_the_end, long_lived


def test_what_there_is_is_passed_over_within_the_block_alone() -> None:
    assert gc.get_freeze_count() == 0
    with long_lived():
        assert gc.get_freeze_count() > 10_000
        with long_lived():
            pass
        assert gc.get_freeze_count() > 10_000
    assert gc.get_freeze_count() == 0
    with pytest.raises(KeyError), long_lived():
        raise KeyError
    assert gc.get_freeze_count() == 0


def test_what_was_set_aside_is_not_counted_for_every_run(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[None] = []
    monkeypatch.setattr(gc, "get_freeze_count", lambda: len(counted) if counted.append(None) else 0)
    with freed_at_the_end(), long_lived():
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
    with freed_at_the_end():
        mine = weakref.ref(Circle())
        with freed_at_the_end():
            pass
        assert gc.get_freeze_count() > 10_000
        assert mine() is not None
    assert gc.get_freeze_count() == 0
    assert (mine(), older() is None) == (None, False)
    gc.collect()
    assert older() is None
    with pytest.raises(KeyError), freed_at_the_end():
        raise KeyError
    assert gc.get_freeze_count() == 0


def test_a_run_among_many_is_gone_over_rarely() -> None:
    usual = gc.get_threshold()
    with freed_at_the_end():
        with long_lived():
            assert gc.get_threshold() == (*usual[:2], 1000)
            assert gc.get_freeze_count() > 10_000
        assert gc.get_threshold() == usual
