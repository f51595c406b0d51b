"""Training on workers leaves the models of training in process, bit for bit, ahead of its use or not."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch

from models.errors import ParameterError
from models.fl.aggregation.scaffold import Scaffold
from models.fl.devices import check_devices
from models.fl.networks.kinds import mlp
from models.fl.options.names import TrainingOptions
from models.fl.training.optimizers import Sgd
from models.fl.training.own_training import Trained
from tests.helpers.learners import batch_normed, deliver, make, model
from tests.helpers.training_workers import WorkersHere

pytestmark = pytest.mark.usefixtures("one_thread")


def own_steps(parameters: Any, data: Any, steps: int, generator: Any) -> Any:
    return {name: value - generator.normal() for name, value in parameters.items()}, 3, [1.0, 2.0]


class Counting:
    """Trainer of one's own that counts the jobs of each client in its state, and draws both kinds of random numbers."""

    def __init__(self, eager: bool) -> None:
        self.eager = eager

    def train(self, jobs: Any) -> Any:
        return [self._trained(job) for job in jobs]

    def _trained(self, job: Any) -> Trained:
        done = (job.state or 0) + 1
        torch.manual_seed(job.seed)
        step = done * torch.rand(1) + job.generator.normal()
        parameters = {name: value - step for name, value in job.parameters.items()}
        return Trained(parameters=parameters, samples=3 + done, steps=done, losses=[1.0, 2.0], state=done)


CASES: dict[str, dict[str, Any]] = {
    "stacked": {"training_loss": True},
    "client by client": {"network": batch_normed, "training_loss": True, "client_losses": True},
    "with memory": {"network": batch_normed, "optimizer_state": "kept", "batch_statistics": "local"},
    "shifted": {"network": batch_normed, "optimizer": Sgd(learning_rate=0.1), "aggregation": Scaffold()},
    "own function": {"local_training": own_steps},
    "own trainer": {"trainer": Counting(eager=False), "network": batch_normed},
    "own eager trainer": {"trainer": Counting(eager=True)},
    "cropped images": {"network": batch_normed, "augmentation": "crop-flip"},
}


def trained(workers: WorkersHere | None, promised: bool, **options: Any) -> Any:
    network = options.pop("network", lambda: mlp((1, 4, 4), 5, seed=1, hidden=[8]))
    learner = make(network=network(), workers=workers, max_steps=2, **options)
    contents = []
    for round, clients in enumerate([[0, 1, 3], [2, 0], [3, 1]], 1):
        if learner.eager:
            learner.begin(round, learner.version, np.array(clients), None)
        if promised:
            learner.promise(round, np.array(clients), learner.version, None)
            learner.end_promise(clients[0], round, needed=True)
        contents.append(learner.aggregate(deliver(round, clients, learner.version), True, want_losses=round == 2))
    quality = learner.tests.quality(3)
    return model(learner), contents, (quality.loss, quality.training_loss), learner.state_dict()["memory"]


@pytest.mark.each_nth(3)
@pytest.mark.parametrize(
    ("name", "promised"), [*((name, False) for name in CASES), ("client by client", True), ("with memory", True)]
)
def test_models_losses_and_memory_are_those_of_training_in_process(name: str, promised: bool) -> None:
    here, there = trained(None, False, **CASES[name]), trained(WorkersHere(2), promised, **CASES[name])
    np.testing.assert_array_equal(here[0], there[0])
    for one, other in zip(here[1], there[1], strict=True):
        np.testing.assert_array_equal(one.updates, other.updates)
        assert (one.loss is None) == (other.loss is None)
        if one.loss is not None:
            np.testing.assert_array_equal([one.loss, one.loss_rms], [other.loss, other.loss_rms])
    np.testing.assert_array_equal(here[2], there[2])
    np.testing.assert_equal(here[3], there[3])


def test_a_promise_is_used_once_and_one_that_turns_out_otherwise_is_trained_again() -> None:
    workers = WorkersHere(1)
    learner = make(network=batch_normed(), workers=workers)
    learner.promise(1, np.array([0, 1, 2]), 0, np.array([2, 3, 2]))
    learner.end_promise(2, 1, needed=False)
    # Client 0 was promised with 2 steps, which are asked for; client 1 with 3, where those planned are asked for.
    delivered = deliver(1, [0, 1], 0)
    delivered = type(delivered)(
        delivered.round, delivered.clients, delivered.rounds, delivered.versions, delivered.epsilon, steps=np.array([2, 0])
    )
    learner.aggregate(delivered, False)
    facts = learner.worker_facts
    assert facts is not None
    assert (facts["ahead"], learner.trained_updates) == (1, 2)
    # No promise is left that could be dropped once more.
    learner._work.executor.forget_all()
    assert (learner.worker_facts or {})["unused"] == facts["unused"]


def test_only_networks_that_are_trained_client_by_client_are_trained_ahead() -> None:
    assert make(network=batch_normed(), workers=WorkersHere(1)).promises
    assert not make(workers=WorkersHere(1)).promises
    assert not make(network=batch_normed()).promises


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"devices": ["gpu"]}, 'devices = ["gpu"]: must be a list of "cpu", or of "cuda"'),
        ({"devices": ["cpu", "cuda:0"]}, 'must be a list of "cpu", or of "cuda"'),
        ({"devices": ["cpu"], "device": "cuda"}, "must be of the kind of device = 'cuda'; leave one of them out"),
        ({"devices": ["cpu", "cpu"], "workers": 1}, "workers = 1: must be at least the 2 devices; leave it out"),
        ({"workers": 1000}, "workers = 1000: must be >= 0 and <= 256"),
    ],
)
def test_keys_of_workers_that_exclude_each_other_are_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ParameterError, match=re.escape(told.replace('["gpu"]', "['gpu']"))):
        TrainingOptions(**options)


def test_each_worker_has_a_device_in_turn_and_one_that_torch_does_not_see_is_refused() -> None:
    assert TrainingOptions(devices=["cpu", "cpu"]).worker_devices == ["cpu", "cpu"]
    assert TrainingOptions(devices=["cuda:0", "cuda:1"], workers=3).worker_devices == ["cuda:0", "cuda:1", "cuda:0"]
    assert TrainingOptions().worker_devices == []
    with pytest.raises(ParameterError, match=r"devices = \['cuda:99'\]: cuda:99: torch sees .* here; leave it out"):
        check_devices(["cuda:99"])
