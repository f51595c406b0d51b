"""A part of the swarm, and of the kills; more of both in the slow suite."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from models.schedulers.m_exp3 import MExp3
from netsim.core.scheduling import SlotView
from scenarios.runs.reading import parse
from scenarios.runs.run import run
from tests.helpers.rough_scenarios import rough
from tests.helpers.suites import each_nth
from tests.reliability import bits, kills, swarm

GOOD = ("good", "refused")
SURVIVED = ("resumed", "ended", "begun again")
pytestmark = pytest.mark.needs_torch


@pytest.mark.each_nth(3)
@pytest.mark.parametrize("number", range(8))
def test_a_world_of_the_swarm_holds_what_all_must(number: int) -> None:
    found = swarm.checked(1, number)
    assert found["kind"] in GOOD, found["about"]


@pytest.mark.slow
def test_more_worlds_of_the_swarm() -> None:
    found = dict(swarm.results(2026, list(range(80))))
    assert {number: result for number, result in found.items() if result["kind"] not in GOOD} == {}
    assert sum(result["kind"] == "good" for result in found.values()) > 50


@pytest.mark.parametrize("number", each_nth(4, range(4)))
def test_what_is_killed_is_resumed(number: int) -> None:
    found = kills.killed(1, number)
    assert found["kind"] in SURVIVED, found["about"]


@pytest.mark.slow
def test_more_that_is_killed() -> None:
    found = [kills.killed(2026, number) for number in range(20)]
    assert [result for result in found if result["kind"] not in SURVIVED] == []
    assert sum(result["kind"] == "resumed" for result in found) > 4


def test_flipped_bits_are_refused_or_harmless() -> None:
    found = dict(bits.results(2026, list(range(40))))
    assert {number: result for number, result in found.items() if result["kind"] not in ("refused", "harmless")} == {}
    assert sum(result["kind"] == "refused" for result in found.values()) > 10


def test_a_flip_that_is_read_as_something_else_is_wrong() -> None:
    place, contents = bits.folders()
    other = {kind: [*content, "more"] for kind, content in contents.items()}
    assert bits._consequence("finished", place / "finished", place, contents)["kind"] == "harmless"
    assert bits._consequence("finished", place / "finished", place, other)["kind"] == "wrong"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    run(parse(rough(rounds=4)), folder / "run")
    return folder / "run"


@pytest.mark.parametrize(
    ("table", "column", "value", "told"),
    [
        ("clients", "outcome_s", -1.0, "clients.parquet: {"),
        ("clients", "outcome_s", float("nan"), "outcome_s holds nan"),
        ("rounds", "end_s", -1.0, "times go back"),
        ("rounds", "end_s", float("inf"), "end_s holds inf"),
    ],
)
def test_unsound_tables_are_found(finished: Path, tmp_path: Path, table: str, column: str, value: float, told: str) -> None:
    shutil.copytree(finished, tmp_path / "run")
    assert swarm.unsound(tmp_path / "run") == ""
    place = tmp_path / "run" / f"{table}.parquet"
    content = pq.read_table(place)
    values = content[column].to_numpy().copy()
    values[-1] = value
    changed = content.set_column(content.column_names.index(column), column, pa.array(values))
    pq.write_table(changed, place)
    assert told in swarm.unsound(tmp_path / "run")
    assert swarm.different(finished, tmp_path / "run") == f"{table}.parquet"


def test_updates_that_ended_on_one_channel_are_no_super_arm() -> None:
    # Found by a kill: with carry-over two updates of different rounds end on one sub-channel, and the set was drawn later on.
    scheduler = MExp3(clients=2, channels=3, rounds=100)
    view: Any = SlotView(1, np.ones(2, np.int64), np.ones(2), np.random.default_rng(1))
    scheduler.assign(view)
    scheduler.observe(view, np.array([2, 2]), np.array([True, True]))
    assert len(scheduler._weights) <= 1
    for seed in range(50):
        view = SlotView(2, np.ones(2, np.int64), np.ones(2), np.random.default_rng(seed))
        assert len(set(scheduler.assign(view).tolist())) == 2
