"""Amounts of work in `[learner]` that `[work]` replaces are warned of, each with the key that counts."""

from __future__ import annotations

from typing import Any

import pytest

from scenarios.runs.reading import parse
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
