"""A part of the campaign of mutated scenarios: some that hypothesis draws and shrinks; more of them in the slow suite."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.helpers.whole_schema import whole_schema
from tests.reliability import mutants
from tests.reliability.grammar import instance, mutant
from tests.reliability.mutants import GOOD, attempt, results
from tests.reliability.workers import DIED, HUNG, errand, outcomes

pytestmark = pytest.mark.needs_torch


@settings(max_examples=3, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
def test_mutated_scenarios_run_or_are_refused(rng: Random) -> None:
    found = attempt(mutant(rng))
    assert found["kind"] in GOOD, found["about"]


@pytest.mark.slow
def test_more_of_them() -> None:
    found = dict(results(2026, list(range(250))))
    assert {number: result for number, result in found.items() if result["kind"] not in GOOD} == {}
    assert sum(result["kind"] == "ran" for result in found.values()) > 40


def test_what_goes_wrong_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise KeyError("a defect")

    monkeypatch.setattr(mutants, "main", fails)
    assert attempt({"name": "x"})["about"].startswith("check: KeyError")
    monkeypatch.setattr(mutants, "main", lambda: exit(2))
    assert attempt({"name": "x"})["kind"] == "silent"
    monkeypatch.setattr(mutants, "main", lambda: exit(7))
    assert attempt({"name": "x"})["kind"] == "code"
    monkeypatch.setattr(mutants, "main", lambda: open("left", "w").close())
    assert attempt({"name": "x"}) == {"kind": "stray", "about": "left"}


def test_a_task_that_hangs_or_ends_its_process_is_told() -> None:
    found = dict(outcomes(errand, range(4), limit_s=0.5))
    assert found == {0: 0, 1: HUNG, 2: (DIED, 5), 3: 9}


def test_instances_reach_every_table_of_the_schema() -> None:
    made = [instance(whole_schema(), Random(seed)) for seed in range(200)]
    assert set().union(*made) == set(whole_schema()["properties"])
