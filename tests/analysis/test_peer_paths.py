"""The critical path of a run without a server: by hand, and without a gap."""

from __future__ import annotations

from pathlib import Path

import pytest

import netsim
from analysis.stragglers.critical_path import critical_path
from analysis.stragglers.records import run_records
from scenarios.runs.reading import parse
from scenarios.runs.run import run
from tests.helpers.peer_training import CONSTANT, protocol, study

SLOW = {"delay": CONSTANT | {"value_s": [1.0, 1.0, 10.0]}}
PATH = {"topology": {"kind": "grid", "rows": 1}, "speed_km_per_s": 1e300, "delay": CONSTANT | {"value_s": 0.5}}


def path_of(folder: Path, **tables: object) -> list[tuple[str, float]]:
    run(parse(study(rounds=2, clients={"count": 3}, peers=PATH, compute=SLOW, **tables)), folder)
    path = critical_path(run_records(netsim.open_run(folder)))
    assert (path["start_s"].to_numpy()[1:] == path["end_s"].to_numpy()[:-1]).all()
    assert path["start_s"].iloc[0] == 0
    return [(phase, end - start) for phase, start, end in zip(path["phase"], path["start_s"], path["end_s"], strict=True)]


def test_the_path_leads_over_training_and_messages_of_the_slow_peer(tmp_path: Path) -> None:
    # Peer 2 trains 0 to 10 s and 10 to 20 s; its model reaches peer 1 half a second later.
    assert path_of(tmp_path / "run") == [("compute", 10.0), ("compute", 10.0), ("message", 0.5)]


def test_a_message_that_left_as_training_began(tmp_path: Path) -> None:
    # Messages take 0.5 s and training of peer 2 10 s: rounds end with its training.
    found = path_of(tmp_path / "run", server=protocol(order="combine-while-computing"))
    assert found == [("compute", 10.0), ("compute", 10.0)]


@pytest.mark.parametrize("order", ["train-first", "combine-while-computing"])
def test_random_times_leave_no_gap(tmp_path: Path, order: str) -> None:
    run(parse(study(rounds=20, server=protocol(order=order))), tmp_path / "run")
    path = critical_path(run_records(netsim.open_run(tmp_path / "run")))
    assert (path["start_s"].to_numpy()[1:] == path["end_s"].to_numpy()[:-1]).all()
    assert {"compute", "message"} == set(path["phase"])
    assert path["exact"].all()
