"""A scenario in which nothing takes time is warned of, and one in which anything does is not."""

from __future__ import annotations

from typing import Any

import pytest

from scenarios.runs.reading import override, parse
from scenarios.schema.errors import UserError
from scenarios.wiring.simulation import build

TIMELESS: dict[str, Any] = {
    "name": "timeless",
    "rounds": 10,
    "clients": {"count": 4},
    "server": {"per_round": 2},
    "policy": {"kind": "random"},
}
WITH_TIME: dict[str, dict[str, Any]] = {
    "a delay": {"downlink.delay": {"kind": "constant", "value_s": 0.5}},
    "a delay that may be zero": {"uplink.delay": {"kind": "shifted-exponential", "shift_s": 0.0, "mean_excess_s": 0.5}},
    "a delay after a change": {"compute.changes": [{"at_round": 5, "delay": {"value_s": 1.0}}]},
    "bytes": {"uplink.bandwidth_bytes_per_s": 100.0, "payload.up_bytes": 10},
    "bytes over a trace": {
        "uplink.bandwidth": {"kind": "trace", "time_s": [0.0, 1.0], "bytes_per_s": [10.0, 20.0]},
        "payload.up_bytes": 10,
    },
    "work": {"work": {"steps": 3, "batch_size": 2}, "compute.seconds_per_sample": 0.1, "clients.data_sizes": 10},
    "presence": {"availability": {"kind": "markov", "mean_on_s": 1.0, "mean_off_s": 1.0}},
    "rounds of a length": {"server": {"kind": "semi-synchronous", "per_round": 2, "round_s": 1.0}},
}


def names(changes: dict[str, Any]) -> list[str]:
    return [caution.name for caution in build(parse(override(TIMELESS, changes))).cautions]


def test_a_scenario_in_which_nothing_takes_time_is_warned_of() -> None:
    assert names({}) == ["nothing-takes-time"]
    assert "nothing-takes-time" in names({"payload.up_bytes": 1000})
    with pytest.raises(UserError, match="no update takes any time"):
        build(parse(TIMELESS), strict=True)


@pytest.mark.parametrize("what", WITH_TIME)
def test_a_scenario_with_time_is_not(what: str) -> None:
    assert "nothing-takes-time" not in names(WITH_TIME[what])


def test_a_check_without_the_learner_does_not_take_its_work_for_none() -> None:
    learner = {"network": {"kind": "linear"}, "optimizer": {"kind": "sgd", "learning_rate": 0.1}}
    study = parse(override(TIMELESS, {"learner": learner, "compute.seconds_per_sample": 0.01}))
    assert "nothing-takes-time" not in [caution.name for caution in build(study, learner=False).cautions]
    timeless = parse(override(TIMELESS, {"learner": learner}))
    assert "nothing-takes-time" in [caution.name for caution in build(timeless, learner=False).cautions]
