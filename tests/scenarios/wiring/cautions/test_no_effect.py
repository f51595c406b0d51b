"""Amounts of work in `[learner]` that `[work]` replaces are warned of, each with the key that counts."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from scenarios.runs.reading import parse, to_toml
from scenarios.wiring.simulation import build
from tests.helpers.fl_scenario import tables


def told(work: dict[str, Any], **learner: Any) -> list[str]:
    study = tables(**learner) | {"work": work}
    cautions = build(parse(study), learner=False).cautions
    return [caution.text for caution in cautions if caution.name == "without-effect"]


@pytest.mark.parametrize(
    ("work", "learner", "expected"),
    [
        ({"epochs": 2}, {"epochs": 5}, ["learner.epochs = 5: has no effect, as work.epochs is given; leave one of them out"]),
        ({"steps": 2}, {"epochs": 5}, ["learner.epochs = 5: has no effect, as work.steps is given; leave one of them out"]),
        (
            {"epochs": 2, "batch_size": 4},
            {"batch_size": 7},
            ["learner.batch_size = 7: has no effect, as work.batch_size is given; leave one of them out"],
        ),
        ({"batch_size": 4}, {"epochs": 5}, []),
        ({"epochs": 2}, {"batch_size": 7}, []),
    ],
)
def test_what_work_replaces_is_named(work: dict[str, Any], learner: dict[str, Any], expected: list[str]) -> None:
    assert told(work, **learner) == expected


@pytest.mark.parametrize(
    ("start", "expected"), [("zero", ["peers.delay", "peers.max_resends", "peers.outages"]), ("agreement", [])]
)
def test_times_and_losses_of_messages_that_take_no_time_are_named(start: str, expected: list[str]) -> None:
    peers = {
        "topology": {"kind": "complete"},
        "delay": {"kind": "constant", "value_s": 0.1},
        "max_resends": 1,
        "outages": [{"links": [[0, 1]], "from_s": 1.0, "to_s": 2.0}],
    }
    study = tables() | {"server": {"kind": "fl-da", "per_round": 2}, "policy": {"kind": "bp-index"}, "peers": peers}
    cautions = build(parse(study | {"slots": {"start": start}}), learner=False).cautions
    assert [caution.text.split(":")[0] for caution in cautions if caution.name == "without-effect"] == expected


def test_the_complete_scenario_of_a_run_says_nothing_of_defaults() -> None:
    keys = {"server": {"kind": "fl-da", "per_round": 2}, "policy": {"kind": "bp-index"}, "slots": {"start": "zero"}}
    complete = parse(tables() | keys | {"peers": {"topology": {"kind": "complete"}}})
    again = parse(tomllib.loads(to_toml(complete)))
    assert build(again, learner=False).cautions == ()
