"""What the garbage collector passes over while a run lasts."""

from __future__ import annotations

import gc

import pytest

from scenarios.runs.collector import long_lived


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
