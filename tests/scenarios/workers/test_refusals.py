"""Refusals and warnings of the workers that train: one message with key and remedy."""

from __future__ import annotations

import os
import sys
from collections import namedtuple
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch

from models.fl.options.names import TrainingOptions
from models.fl.training.bench import BenchRecipe, Site
from models.fl.training.optimizers import Sgd
from scenarios.runs.reading import parse
from scenarios.runs.run import run
from scenarios.schema.errors import UserError
from scenarios.wiring.simulation import build
from scenarios.workers.processes import Place
from scenarios.workers.training import portable_bytes
from scenarios.workers.training_processes import TrainingProcesses, _open, _WorkerSetup
from tests.helpers.learners import batch_normed, make
from tests.helpers.training_workers import WorkersHere

TABLES: dict[str, Any] = {
    "name": "refused",
    "rounds": 1,
    "clients": {"count": 4},
    "server": {"per_round": 2},
    "policy": {"kind": "random"},
    "compute": {"delay": {"kind": "constant", "value_s": 1.0}},
    "learner": {
        "data": {"kind": "digits", "samples": 40, "test_samples": 10},
        "network": {"kind": "cnn", "channels": [2], "hidden": 4, "norm": "batch"},
        "optimizer": {"kind": "sgd", "learning_rate": 0.1},
        "max_steps": 1,
    },
}


def with_learner(**keys: Any) -> Any:
    return parse(TABLES | {"learner": TABLES["learner"] | keys})


@pytest.fixture
def workers_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers of this process in place of processes."""
    monkeypatch.setattr(
        "scenarios.wiring.learning.training._workers", lambda options, cluster: WorkersHere(len(options.worker_devices))
    )


def test_a_device_that_does_not_exist_is_refused_by_its_key() -> None:
    with pytest.raises(UserError, match=r"^learner\.devices = \['cuda:99'\]: cuda:99: torch sees .* here; leave it out$"):
        build(with_learner(devices=["cuda:99"]))


def test_a_network_that_cannot_be_sent_to_a_worker_is_refused() -> None:
    network = batch_normed()
    network.frame = sys._getframe()  # type: ignore[assignment]
    told = r"^learner\.workers: the network or another component cannot be sent to a worker .*, or leave learner\.workers out$"
    with pytest.raises(UserError, match=told):
        portable_bytes(network, "learner.workers")


def test_a_class_that_a_worker_cannot_import_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone_from_workers.py").write_text("from torch import nn\nclass Loss(nn.Module): ...\n", encoding="utf-8")
    with monkeypatch.context() as here:
        here.syspath_prepend(str(tmp_path))
        import gone_from_workers  # type: ignore[import-not-found]

        recipe = BenchRecipe(batch_normed(), gone_from_workers.Loss(), Sgd(learning_rate=0.1), TrainingOptions(), 0.0, None, None)
        content = portable_bytes(recipe, "learner.workers")
        Site(str(tmp_path)).write(torch.zeros(4, 1, 4, 4), torch.zeros(4, dtype=torch.int64), content)
    monkeypatch.delitem(sys.modules, "gone_from_workers")
    opened: Future[str | None] = Future()
    opened.set_result(_open(_WorkerSetup(Place(os.getcwd(), ()), Site(str(tmp_path)), "cpu", str(tmp_path / "beats"), 1, 2)))
    told = r"^learner\.workers: worker 1 cannot train: No module named 'gone_from_workers'; see that it is installed where"
    with pytest.raises(UserError, match=told):
        TrainingProcesses(["cpu"])._await_site(1, opened)


def test_a_model_that_neither_memory_nor_disk_can_hold_is_refused_before_workers_start(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "free")
    monkeypatch.setattr("shutil.disk_usage", lambda folder: usage(1000))
    monkeypatch.setattr("scenarios.workers.training_processes.take_executor", None)
    workers = TrainingProcesses(["cpu", "cpu"], memory_bytes=10**9)
    learner = make(network=batch_normed(), workers=workers)
    # Adam keeps two numbers for each parameter; with the model and a correction there are four vectors, and the means and
    # variances of three channels and four hidden units.
    numbers = 4 * learner.parameters + 2 * (3 + 4)
    told = rf"^learner\.workers = 2: 2 workers need {4 * 2 * numbers} bytes for vectors .* use fewer, or a smaller network$"
    with pytest.raises(UserError, match=told), ExitStack() as stack:
        workers.open(stack)


@pytest.mark.parametrize("last", ["nn.BatchNorm1d(classes)", "nn.Identity()"], ids=["one by one", "stacked"])
def test_an_exception_in_a_users_network_names_key_client_round_and_worker(
    last: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers_here: None
) -> None:
    text = f"""
from torch import nn

class Network(nn.Sequential):
    def __init__(self, inputs, classes):
        super().__init__(nn.Flatten(), nn.Linear(64, classes), {last})

    def forward(self, x):
        if self.training:
            raise ValueError("not today")
        return super().forward(x)
"""
    module = f"failing_on_workers_{last[3]}"
    (tmp_path / f"{module}.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    scenario = with_learner(network={"kind": f"{module}:Network"}, workers=1)
    place = r"failing_on_workers_\w\.py, line 10 \(client \d( and \d more)?, round 1, worker 0, seed 1\)$"
    told = rf"^learner\.network\.kind = '{module}:Network': ValueError: not today, .*" + place
    with pytest.raises(UserError, match=told):
        run(scenario, tmp_path / "out")


def test_more_workers_than_cores_and_short_jobs_are_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers_here: None
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    facts = WorkersHere.facts

    def warnings(job_s: float, **keys: Any) -> dict[str, str]:
        monkeypatch.setattr(WorkersHere, "facts", lambda workers: facts(workers) | {"job_s": job_s})
        told = run(with_learner(**keys), tmp_path / "out", overwrite=True)["warnings"]
        return {each["name"]: each["text"] for each in told}

    assert warnings(0.004, workers=2) == {}
    assert warnings(0.002, devices=["cpu"] * 3) == {
        "workers-and-cores": "learner.workers = 3: this machine has 2 cores; give at most as many",
        "short-jobs": "learner.workers: a job of training took 2 ms, less than to give it to a worker, some 3 ms; "
        "leave learner.workers out",
    }
    monkeypatch.setattr(WorkersHere, "overhead_s", 0.01)
    assert set(warnings(0.004, workers=2)) == {"short-jobs"}, "workers of a cluster cost more"
