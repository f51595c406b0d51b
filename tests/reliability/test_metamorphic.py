"""Changes of scenarios that must change nothing, or all results in a known way: a part here, more by the command."""

from __future__ import annotations

import itertools
from random import Random

import pytest

from tests.helpers.suites import each_nth
from tests.reliability import metamorphic
from tests.reliability.metamorphic import RELATIONS, WORLDS, Relation, broken, checked_case, difference, play
from tests.reliability.worlds import SERVERS, world_of


@pytest.mark.each_nth(5)
@pytest.mark.parametrize("relation", each_nth(2, RELATIONS))
def test_a_relation_holds_in_two_worlds(relation: str) -> None:
    cases = list(itertools.product(SERVERS, list(WORLDS)[:6]))
    Random(relation).shuffle(cases)
    applied = 0
    for server, world in cases:
        wrong = checked_case(server, world, relation)
        assert not wrong, (server, world, wrong)
        applied += wrong is not None
        if applied == 2:
            return
    pytest.fail("the relation is about less than two worlds")


@pytest.mark.slow
def test_relations_hold_in_drawn_worlds() -> None:
    found = {number: metamorphic.check(1, number) for number in range(20)}
    assert {number: result["about"] for number, result in found.items() if result["kind"] == "broken"} == {}
    assert sum(result["kind"] == "good" for result in found.values()) > 5


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("bytes and bandwidths doubled", {"factor": lambda column: 1.0}),
        ("times stretched", {"factor": lambda column: 1.0}),
        ("metering", {"ignored": frozenset()}),
        ("clients permuted", {"row": lambda row: row}),
    ],
)
def test_a_relation_that_does_not_hold_is_found(name: str, change: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    tables = world_of("synchronous", {"times": "constants", "down": "own bandwidth"})
    assert broken(name, tables) == ""
    fields = {field: getattr(RELATIONS[name], field) for field in Relation.__slots__}
    monkeypatch.setitem(RELATIONS, name, Relation(**fields | change))
    assert broken(name, tables)


def test_one_changed_digit_is_found() -> None:
    first, second = play(world_of("buffered")), play(world_of("buffered"))
    nothing = Relation(lambda tables: tables)
    assert difference(first, second, nothing) == ""
    row = second.updates[5]
    second.updates[5] = row._replace(outcome_s=row.outcome_s * (1 + 2e-16))
    assert "outcome_s" in difference(first, second, nothing)
    del second.updates[5]
    assert "rows" in difference(first, second, nothing)
