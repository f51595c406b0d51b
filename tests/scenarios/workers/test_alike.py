"""Runs of every kind leave the same tables with workers as without: peers by each protocol, edges, components of one's own."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from scenarios.registry.kinds import BUILT_IN
from scenarios.runs.reading import parse
from scenarios.runs.run import run
from tests.golden import adapter
from tests.golden.cases import FEATURES, INPUTS
from tests.helpers.commands import tables
from tests.helpers.training_workers import WorkersHere

LEARNER = {
    "data": {"kind": "digits", "samples": 160, "test_samples": 40},
    "network": {"kind": "cnn", "channels": [2], "hidden": 4, "norm": "batch"},
    "optimizer": {"kind": "sgd", "learning_rate": 0.1},
    "max_steps": 1,
    "evaluate_every_rounds": 9,
}


def variants(feature: str) -> dict[str, dict[str, Any]]:
    return adapter.variants(tomllib.loads((FEATURES / f"{feature}.toml").read_text(encoding="utf-8")), feature)


_OF_PEERS = [each for each in variants("training_peers").values() if each["clients"]["count"] == 8]
PROTOCOLS = {each["server"]["protocol"]["kind"]: each for each in _OF_PEERS}
EDGES = variants("edges")
QUICK = ("d-psgd", "gossip-learning", "all", "asynchronous-equal")


def quick_first(names: Iterable[str]) -> list[Any]:
    return [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in names]



@pytest.fixture
def workers_here(monkeypatch: pytest.MonkeyPatch) -> list[WorkersHere]:
    """Workers of this process in place of processes, for each run that asks for workers."""
    made: list[WorkersHere] = []

    def workers(options: Any, cluster: Any) -> WorkersHere | None:
        if options.worker_devices:
            made.append(WorkersHere(len(options.worker_devices)))
            return made[-1]
        return None

    monkeypatch.setattr("scenarios.wiring.learning.training._workers", workers)
    return made


def check_alike(scenario: dict[str, Any], folder: Path) -> None:
    """Run with no worker and with two, and compare the tables."""
    for count in (0, 2):
        run(parse(scenario | {"learner": scenario["learner"] | {"workers": count}}), folder / str(count))
    here, there = ({name: held for name, held in tables(folder / count).items() if name.endswith(".parquet")} for count in "02")
    assert here == there


def test_every_protocol_of_peers_has_a_variant() -> None:
    assert set(PROTOCOLS) == set(BUILT_IN["protocol"])


@pytest.mark.parametrize("protocol", quick_first(PROTOCOLS))
def test_peers_train_on_workers_as_in_process(protocol: str, tmp_path: Path, workers_here: list[WorkersHere]) -> None:
    scenario = PROTOCOLS[protocol]
    sizes = {key: size for key, size in scenario["payload"].items() if key != "up_bytes"}
    check_alike(scenario | {"rounds": 2, "payload": sizes, "learner": LEARNER}, tmp_path)
    assert len(workers_here[0].begun) >= 8


@pytest.mark.parametrize("variant", quick_first(EDGES))
def test_clients_of_edges_train_on_workers_as_in_process(
    variant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers_here: list[WorkersHere]
) -> None:
    monkeypatch.chdir(INPUTS)
    check_alike(EDGES[variant] | {"rounds": 2, "learner": LEARNER}, tmp_path)
    assert workers_here[0].begun


OWN = """
import torch
from torch import nn

from models.fl.compression.int8 import Int8
from models.fl.training.optimizers import Sgd
from models.fl.training.own_training import Trained


class Network(nn.Module):
    def __init__(self, inputs, classes):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Dropout(0.2), nn.Linear(64, classes), nn.BatchNorm1d(classes))

    def forward(self, x):
        return self.layers(x)


class Optimizer(Sgd):
    def __init__(self):
        super().__init__(learning_rate=0.1)


class Aggregation:
    def step(self, model, starts, updates, arrivals, factors):
        return updates.median(0).values


class Compression(Int8):
    def __init__(self):
        super().__init__()


class Trainer:
    def __init__(self, *, eager):
        self.eager = eager

    def train(self, jobs):
        return [self.trained(job) for job in jobs]

    def trained(self, job):
        torch.manual_seed(job.seed)
        leaves = {name: job.parameters[name].requires_grad_() for name in job.data.trained}
        losses = job.data.loss(job.data.scores(job.parameters | leaves, job.data.x), job.data.y)
        slopes = torch.autograd.grad(losses.mean(), list(leaves.values()))
        done = (job.state or 0) + 1
        ended = {name: leaf.detach() - slope / done for (name, leaf), slope in zip(leaves.items(), slopes)}
        return Trained(parameters=job.parameters | ended, samples=done * len(losses), steps=done, losses=losses, state=done)


def own_steps(parameters, data, steps, generator):
    return {name: value + 0.01 * torch.rand(1) * generator.normal() for name, value in parameters.items()}, 3, [1.0]
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "training",
    [{}, {"local_training": "own_on_workers:own_steps"}]
    + [{"trainer": {"kind": "own_on_workers:Trainer", "eager": eager}} for eager in (False, True)],
    ids=["steps", "function", "trainer", "eager trainer"],
)
def test_components_of_ones_own_work_in_processes_as_in_this_one(
    training: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_on_workers.py").write_text(OWN, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    own = {name: {"kind": f"own_on_workers:{name.capitalize()}"} for name in ("network", "optimizer", "aggregation")}
    scenario = {
        "name": "own",
        "rounds": 4,
        "clients": {"count": 6},
        "server": {"kind": "buffered", "concurrency": 4, "buffer": 2},
        "policy": {"kind": "random"},
        "compute": {"seconds_per_sample": 0.01},
        "payload": {"compression": {"kind": "own_on_workers:Compression"}},
        "uplink": {"bandwidth_bytes_per_s": 1e4, "channel": {"kind": "bernoulli", "success": 0.8}},
        "learner": {**LEARNER, **own, **training, "training_loss": True},
    }
    check_alike(scenario, tmp_path)
