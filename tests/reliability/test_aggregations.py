"""The model of each round against a replay of its deliveries in NumPy; more runs in the slow suite."""

from __future__ import annotations

from random import Random

import pytest

from tests.helpers.random_worlds import built
from tests.reliability import aggregations, replayed_models
from tests.reliability.aggregations import AGGREGATIONS, OPTIMIZERS, SERVERS, STALENESS, check, different, tables_of
from tests.reliability.metamorphic import complete


@pytest.mark.each_nth(5)
@pytest.mark.parametrize("number", range(6))
def test_models_are_those_replayed(number: int) -> None:
    found = check(1, number)
    assert found["kind"] == "good", found["about"]


@pytest.mark.slow
def test_more_models_are_those_replayed() -> None:
    found = {number: check(3, number) for number in range(20)}
    assert {number: result["about"] for number, result in found.items() if result["kind"] != "good"} == {}


def test_each_rule_is_drawn() -> None:
    drawn = [aggregations.drawn_rules(Random(f"aggregations/2026/{number}")) for number in range(400)]
    assert {rules["server"] for rules in drawn} == set(SERVERS)
    for name, every in (("aggregation", AGGREGATIONS), ("staleness", STALENESS), ("server_optimizer", OPTIMIZERS)):
        assert all(one in [rules[name] for rules in drawn] for one in every)


@pytest.mark.each_nth(3)
@pytest.mark.parametrize("rule", replayed_models.AGGREGATIONS)
def test_a_wrong_rule_is_found(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = next(one for one in AGGREGATIONS if one["kind"] == rule)
    tables = complete(tables_of("buffered", {"aggregation": keys, "staleness": STALENESS[1]}, Random(1)))
    simulation, records = built(tables)
    simulation.run()
    simulation.close()
    assert different(tables, records) == ""
    right = replayed_models.AGGREGATIONS[rule]
    monkeypatch.setitem(replayed_models.AGGREGATIONS, rule, lambda *given: 1.02 * right(*given))
    assert different(tables, records)
