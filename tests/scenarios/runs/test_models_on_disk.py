"""Runs whose models exceed `learner.memory_bytes`: part of them lies on disk, and the tables are the same."""

from __future__ import annotations

from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest

import netsim
from scenarios.runs.reading import parse
from scenarios.runs.run import go_on, run
from scenarios.schema.errors import ScenarioError, UserError
from tests.helpers.training_workers import results

PARAMETERS = 64 * 16 + 16 + 16 * 10 + 10
MODEL_BYTES = 4 * PARAMETERS


def tables_with(server: dict[str, Any], **learner: Any) -> dict[str, Any]:
    """Return the tables of a scenario of 12 clients, with 2 models' room in memory unless `learner` says otherwise."""
    options = {"network": {"kind": "mlp", "hidden": [16]}, "optimizer": {"kind": "sgd", "learning_rate": 0.1}, "max_steps": 2}
    data = {"kind": "digits", "samples": 240, "test_samples": 50}
    peers = {} if server["kind"] != "peers" else {"peers": {"topology": {"kind": "ring"}}}
    return {
        "name": "on-disk",
        "rounds": 6,
        "clients": {"count": 12},
        "server": server,
        "compute": {"delay": {"kind": "shifted-exponential", "shift_s": 0.5, "mean_excess_s": 1.0}},
        "learner": {"data": data, **options, "memory_bytes": 2 * MODEL_BYTES, **learner},
        **peers,
    } | ({} if server["kind"] != "buffered" else {"policy": {"kind": "random"}})


SERVERS = [
    {"kind": "safa", "per_round": 6, "deadline_s": 2.0},
    {"kind": "buffered", "concurrency": 6, "buffer": 1},
    {"kind": "peers", "protocol": {"kind": "d-psgd"}},
]


@pytest.mark.each_nth(2)
@pytest.mark.parametrize("server", SERVERS, ids=[str(server["kind"]) for server in SERVERS])
def test_models_on_disk_leave_the_tables_of_models_in_memory(tmp_path: Path, server: dict[str, Any]) -> None:
    inside = run(parse(tables_with(server, memory_bytes=10**9)), tmp_path / "memory")
    outside = run(parse(tables_with(server)), tmp_path / "disk")
    assert "disk_bytes" not in inside["learner"]
    # Each of 12 peers has a model of its own, whose file takes whole pages.
    least = (12 - 2 if server["kind"] == "peers" else 1) * MODEL_BYTES
    assert outside["learner"]["disk_bytes"] >= least
    assert results(tmp_path / "memory") == results(tmp_path / "disk")


@pytest.mark.parametrize("server", [SERVERS[0], SERVERS[2]], ids=["safa", "peers"])
def test_a_run_with_models_on_disk_is_resumed(tmp_path: Path, server: dict[str, Any]) -> None:
    def interrupt(simulation: Any) -> None:
        if simulation.server.round == 3:
            raise KeyboardInterrupt

    scenario = parse(tables_with(server))
    run(scenario, tmp_path / "cut", after_round=interrupt)
    assert go_on(tmp_path / "cut")["learner"]["disk_bytes"] > 0
    run(scenario, tmp_path / "whole")
    assert results(tmp_path / "cut") == results(tmp_path / "whole")


def test_models_that_fit_neither_memory_nor_disk_are_refused_beforehand(tmp_path: Path, monkeypatch: Any) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr("shutil.disk_usage", lambda folder: usage(0, 0, 9 * MODEL_BYTES))
    words = rf"learner.memory_bytes = {2 * MODEL_BYTES}: the models of 12 clients beyond it take {10 * MODEL_BYTES:,} bytes, and "
    with pytest.raises(UserError, match=rf"^{words}\S+ has {9 * MODEL_BYTES:,}; raise it, or let TMPDIR name another folder$"):
        run(parse(tables_with(SERVERS[0])), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_disk_that_fills_up_ends_the_run_with_one_message(monkeypatch: Any) -> None:
    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    with pytest.raises(ScenarioError, match=r"^learner.memory_bytes = \d+: the disk has no room .* \(round \d+, .* s, seed 1\)$"):
        netsim.run(tables_with(SERVERS[0]))
