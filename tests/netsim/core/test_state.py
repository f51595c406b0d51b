"""Objects whose state is a list of fields."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from netsim.core.state import StateFields


class Counter(StateFields):
    state_fields: ClassVar[tuple[str, ...]] = ("count",)

    def __init__(self) -> None:
        self.count = 0


class Means(StateFields):
    state_fields: ClassVar[tuple[str, ...]] = ("sums", "_pairs", "_seen", "counter", "_parts", "last")

    def __init__(self) -> None:
        self.sums = np.zeros(3)
        self._pairs: list[tuple[int, float]] = []
        self._seen: set[int] = set()
        self.counter = Counter()
        self._parts = [Counter(), Counter()]
        self.last: np.ndarray | None = None

    def observe(self) -> None:
        self.sums[1] += 2.5
        self._pairs.append((1, 0.5))
        self._seen.add(7)
        self.counter.count += 1
        self._parts[1].count += 4
        self.last = np.array([1, 2])


class Weighted(Means):
    state_fields = ("weight",)

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.doubled = 1.0, 2.0

    def on_load(self) -> None:
        self.doubled = 2.0 * self.weight


def observed() -> Means:
    means = Means()
    means.observe()
    return means


def test_a_restored_object_equals_the_saved_one() -> None:
    saved, restored = observed(), Means()
    restored.load_state_dict(saved.state_dict())
    assert restored.sums.tolist() == [0.0, 2.5, 0.0]
    assert (restored._pairs, restored._seen) == ([(1, 0.5)], {7})
    assert (restored.counter.count, [part.count for part in restored._parts]) == (1, [0, 4])
    assert restored.last is not None
    assert restored.last.tolist() == [1, 2]


def test_later_changes_reach_neither_the_state_nor_what_it_was_loaded_into() -> None:
    means, restored = observed(), Means()
    state = means.state_dict()
    restored.load_state_dict(state)
    means.observe()
    restored.observe()
    assert state["sums"][1] == 2.5
    assert state["pairs"] == [(1, 0.5)]
    assert state["counter"] == {"count": 1}
    assert state["last"].tolist() == [1, 2]


def test_arrays_are_filled_in_place_and_a_field_can_be_none_again() -> None:
    means = observed()
    sums = means.sums
    means.load_state_dict(Means().state_dict())
    assert means.sums is sums
    assert not sums.any()
    assert means.last is None


def test_fields_of_bases_come_along_and_what_follows_from_them_is_computed() -> None:
    first, second = Weighted(), Weighted()
    first.observe()
    first.weight = 3.0
    assert list(first.state_dict()) == ["sums", "pairs", "seen", "counter", "parts", "last", "weight"]
    second.load_state_dict(first.state_dict())
    assert (second.doubled, second.counter.count) == (6.0, 1)


def test_without_fields_the_state_is_empty() -> None:
    assert StateFields().state_dict() == {}
