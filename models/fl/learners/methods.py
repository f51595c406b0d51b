"""The methods of a learner: training and protection of updates at the clients, and their use at the server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import cast

import torch

from models.fl.aggregation.feddyn import FedDyn
from models.fl.aggregation.fednova import FedNova
from models.fl.aggregation.port import Port
from models.fl.aggregation.q_ffl import QFfl
from models.fl.aggregation.refl import Refl
from models.fl.aggregation.robust import ROBUST_AGGREGATIONS
from models.fl.aggregation.rules import AGGREGATIONS, BySize, NoStaleness
from models.fl.aggregation.scaffold import Scaffold
from models.fl.aggregation.server_optimizers import ServerSgd
from models.fl.compression.none import NoCompression
from models.fl.evaluation.quality import Metric
from models.fl.learners.task import Task
from models.fl.options.names import TrainingOptions
from models.fl.privacy.mechanisms import Mechanism, NoMechanism
from models.fl.privacy.unprotected import Unprotected
from models.fl.protocols import Aggregation, Compression, Optimizer, ServerOptimizer, Staleness, Trainer
from models.fl.training.local_trainer import LocalTrainer
from models.fl.training.own_training import FunctionTrainer, LocalTraining


@dataclass(frozen=True, kw_only=True)
class Methods:
    """One object for each replaceable part of a learner; the defaults are plain federated averaging."""

    optimizer: Optimizer
    mechanism: Mechanism = field(default_factory=NoMechanism)
    unprotected: Unprotected | None = None
    """Layers of an update that the mechanism leaves unchanged; None: none."""
    aggregation: Aggregation = field(default_factory=BySize)
    staleness: Staleness = field(default_factory=NoStaleness)
    server_optimizer: ServerOptimizer = field(default_factory=ServerSgd)
    local_training: LocalTraining | None = None
    """User's function in place of the steps of `optimizer`, or None."""
    trainer: Trainer | None = None
    """User's own trainer in place of the steps of `optimizer`, or None."""
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    """User's own functions of scores and classes of the test set, by their names."""
    compression: Compression = field(default_factory=NoCompression)
    """Compression of the clients' messages."""
    down_compression: Compression = field(default_factory=NoCompression)
    """Compression of the model on its way to the clients."""

    @property
    def own_trainer(self) -> Trainer | None:
        """Trainer in place of the steps of `optimizer`, or None."""
        return self.trainer if self.local_training is None else FunctionTrainer(self.local_training)

    @property
    def own_key(self) -> str | None:
        """Name of the option that holds `own_trainer`, or None."""
        if self.local_training is not None:
            return "local_training"
        return None if self.trainer is None else "trainer"

    def local_trainer(self, task: Task, device: torch.device, options: TrainingOptions) -> LocalTrainer:
        """Return the object that trains copies of the task's network on `device`, to which it also moves the data."""
        dataset = task.dataset
        return LocalTrainer(
            network=task.network.to(device),
            loss=task.loss,
            optimizer=self.optimizer,
            x=dataset.train_x.to(device),
            y=dataset.targets(dataset.train_y).to(device),
            options=options,
            pull=self.aggregation.correction.pull,
        )


ALL_AGGREGATIONS: dict[str, Callable[..., Aggregation]] = {
    **AGGREGATIONS,
    **ROBUST_AGGREGATIONS,
    "port": Port,
    "refl": Refl,
    "scaffold": cast("Callable[..., Aggregation]", Scaffold),
    "feddyn": FedDyn,
    "fednova": FedNova,
    "q-ffl": cast("Callable[..., Aggregation]", QFfl),
}
"""Aggregations by name. The last ones have demands on local training (`demands.Demands`), some of them by their parameters, for
which a type checker needs casts.
"""
