"""What is changed of Flower's modules for a run is as before after it."""

from __future__ import annotations

import types

import pytest

pytest.importorskip("flwr", reason="needs flwr: pip install 'netsim[flower]'")

from scenarios.flower.internals import replace_attributes


@pytest.mark.parametrize("fails", [False, True])
def test_replaced_attributes_are_as_before_after_the_block_also_after_an_exception(fails: bool) -> None:
    owner = types.SimpleNamespace(first=1, second=2)
    try:
        with replace_attributes([(owner, "first", 10), (owner, "second", 20)]):
            assert (owner.first, owner.second) == (10, 20)
            if fails:
                raise RuntimeError
    except RuntimeError:
        assert fails
    assert (owner.first, owner.second) == (1, 2)
