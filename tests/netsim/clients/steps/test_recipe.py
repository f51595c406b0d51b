"""The recipe of an update: which worlds can be worked out as arrays, and what an executor finds in it."""

from __future__ import annotations

from typing import Any

import pytest

from netsim.clients.steps.recipe import Recipe
from tests.helpers.random_worlds import built
from tests.helpers.small_worlds import constant

BYTES: dict[str, Any] = {"payload": {"down_bytes": 10, "up_bytes": 10}}
QUEUE: dict[str, Any] = {"uplink": {"sub_channels": 1}}
SHARED: dict[str, Any] = BYTES | {"uplink": {"shared": {"bandwidth_bytes_per_s": 5.0}}}
TRACE = {"kind": "trace", "time_s": [0.0, 1.0], "bytes_per_s": [4.0, 8.0]}


ALL: dict[str, Any] = {"server": {"per_round": 3}, "policy": {"kind": "all"}}
SUB_CHANNELS: dict[str, Any] = {
    "server": {"kind": "asynchronous"},
    "channels": {"count": 3},
    "scheduler": {"kind": "random"},
}


def recipe_of(tables: dict[str, Any]) -> Recipe:
    simulation, _ = built({"name": "three", "rounds": 1, "clients": {"count": 3}} | tables)
    recipe: Recipe = simulation.server.clients.life.recipe
    return recipe


def test_an_update_is_a_transfer_then_training_then_access_then_a_transfer() -> None:
    recipe = recipe_of(ALL)
    assert [step.phase for step in recipe.steps] == ["download", "compute", "wait", "upload"]
    assert [step.following for step in recipe.steps] == [*recipe.steps[1:], None]
    assert (recipe.model, recipe.again, recipe.update) == (recipe.steps[0], recipe.steps[2], recipe.steps[3])


@pytest.mark.parametrize(
    ("tables", "declining"),
    [
        (ALL, []),
        (ALL | BYTES | {"uplink": {"bandwidth": TRACE}, "compute": constant(1.0, 2.0, 3.0)}, []),
        (ALL | QUEUE, ["wait"]),
        (ALL | SHARED, ["upload"]),
        (ALL | BYTES | {"downlink": {"shared": {"bandwidth_bytes_per_s": 5.0}}}, ["download"]),
        (SUB_CHANNELS, ["wait", "upload"]),
    ],
)
def test_a_recipe_is_foreseeable_if_no_attempt_is_in_the_way_of_another(tables: dict[str, Any], declining: list[str]) -> None:
    recipe = recipe_of(tables)
    assert [step.phase for step in recipe.steps if not step.foreseeable] == declining
    assert recipe.foreseeable == (not declining)


def test_only_an_update_that_has_to_wait_for_the_uplink_holds_a_place_on_it() -> None:
    assert [step.hold for step in recipe_of(ALL).steps] == [None] * 4
    queued = recipe_of(ALL | QUEUE)
    assert [step.hold for step in queued.steps] == [None, None, None, queued.again]
