"""Federated averaging of the updates that the engine says were delivered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from models.fl.data import Dataset
from models.fl.losses import Loss
from models.fl.mechanisms import Mechanism
from models.fl.optimizers import Optimizer
from models.fl.training import LocalTrainer, draw_batches

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

_EVALUATION_BATCH = 1000
LOSS_CEILING = 1e6
"""The largest loss of a single sample that enters a mean; a loss that is no number counts as this."""
# Far above any model that classifies, and far enough below the largest float32 for sums of models to stay finite.
_PARAMETER_LIMIT = 1e30


class Randomness(Protocol):
    """Addressed random generators (`netsim.streams.Streams`)."""

    def generator(self, name: str, *index: int) -> np.random.Generator: ...

    def integer_seed(self, name: str, *index: int) -> int: ...


class Delivered(Protocol):
    """The deliveries of one aggregation (`netsim.interfaces.Deliveries`); every array has an entry an update."""

    @property
    def clients(self) -> IntArray: ...
    @property
    def rounds(self) -> IntArray: ...
    @property
    def versions(self) -> IntArray: ...
    @property
    def epsilon(self) -> FloatArray: ...


@dataclass(frozen=True, slots=True)
class Quality:
    """Accuracy in [0, 1] and mean loss on the test set; both are always finite."""

    accuracy: float
    loss: float


class FederatedLearner:
    """Trains the clients whose updates were delivered, all in one call, and averages what they sent by data size (PAUSE eq. 2).

    An update is theta_k - theta after local training; the mechanism protects it; the server adds to the model the mean of the
    updates delivered, weighted by |D_k| over the delivered. An update that is not finite is refused: it counts in
    `refused_updates` and in no mean. The content of an update depends on the seed, its client, the round it was started in, and
    the model it started from (to rounding error: sums may be ordered differently in another company).

    In evaluation a sample whose scores are not finite counts as wrong, and no sample's loss as more than `LOSS_CEILING`.
    """

    def __init__(
        self,
        *,
        dataset: Dataset,
        partition: list[IntArray],
        network: nn.Module,
        loss: Loss,
        optimizer: Optimizer,
        mechanism: Mechanism,
        streams: Randomness,
        batch_size: int = 20,
        epochs: int = 1,
        max_steps: int | None = None,
        evaluate_every_rounds: int = 1,
        versions_kept: int = 1,
        device: torch.device | str = "cpu",
    ) -> None:
        for name, value in (("batch_size", batch_size), ("epochs", epochs), ("max_steps", 1 if max_steps is None else max_steps)):
            if value < 1:
                raise ValueError(f"{name} = {value!r}: must be >= 1")
        for name, value in (("evaluate_every_rounds", evaluate_every_rounds), ("versions_kept", versions_kept)):
            if value < 1:
                raise ValueError(f"{name} = {value!r}: must be >= 1")
        self.data_sizes: IntArray = np.array([len(part) for part in partition], np.int64)
        """(K,) samples of each client."""
        if not len(partition) or self.data_sizes.min() < 1:
            raise ValueError(f"partition = {self.data_sizes.tolist()} samples: every client needs at least 1")
        self._partition = [np.asarray(part, np.int64) for part in partition]
        labels = dataset.train_y.numpy()
        self.label_counts: IntArray = np.stack([np.bincount(labels[part], minlength=dataset.classes) for part in partition])
        """(K, classes) how many samples of each label each client holds."""
        self._mechanism, self._streams = mechanism, streams
        self._batch_size, self._epochs, self._max_steps = batch_size, epochs, max_steps
        self._every, self._kept = evaluate_every_rounds, versions_kept
        self._test_x, self._test_y = dataset.test_x.to(device), dataset.test_y.to(device)
        self._loss = loss
        self._trainer = LocalTrainer(
            network=network.to(device),
            loss=loss,
            optimizer=optimizer,
            x=dataset.train_x.to(device),
            y=dataset.train_y.to(device),
        )
        self.version = 0
        self.trained_updates = 0
        """Updates computed so far."""
        self.refused_updates = 0
        """Updates among them that were not finite and so entered no model."""
        self._models: dict[int, Tensor] = {0: self._trainer.initial()}
        self._known: tuple[int, Quality] | None = None
        self.payload_bytes = 4 * self._models[0].numel()

    @property
    def guarantee(self) -> str:
        """What the privacy mechanism promises for one participation, in words."""
        return self._mechanism.guarantee

    @property
    def training_mode(self) -> str:
        """How the clients of an aggregation are trained: "vectorised", or "sequential" with the reason."""
        return "vectorised" if self._trainer.vectorised else f"sequential: {self._trainer.reason}"

    def aggregate(self, deliveries: Delivered, want_updates: bool) -> FloatArray | None:
        """Train what was delivered and fold it into the model; `version` counts up if anything was accepted.

        Returns the protected updates (n, d) in the order of the deliveries if wanted (a refused one is all zeros).

        Raises:
            ValueError: an update starts from a version that is no longer kept.
        """
        clients = deliveries.clients.tolist()
        width = self._trainer.parameters
        if not clients:
            return np.zeros((0, width)) if want_updates else None
        rounds = deliveries.rounds.tolist()
        start = torch.stack([self._model(version) for version in deliveries.versions.tolist()])
        updates = self._trainer.train(
            start,
            [self._batches(client, round) for client, round in zip(clients, rounds, strict=True)],
            [self._streams.integer_seed("network-draws", round, client) for client, round in zip(clients, rounds, strict=True)],
        ).sub_(start)
        updates[:, :width] = self._mechanism.protect(
            updates[:, :width],
            deliveries.epsilon,
            lambda row: self._streams.generator("privacy-noise", rounds[row], clients[row]),
        )
        self.trained_updates += len(clients)
        accepted = updates.isfinite().all(1).cpu().numpy()
        self.refused_updates += int((~accepted).sum())
        updates[torch.from_numpy(~accepted).to(updates.device)] = 0.0
        weights = self.data_sizes[deliveries.clients] * accepted
        if weights.any():
            shares = torch.from_numpy((weights / weights.sum()).astype(np.float32)).to(updates.device)
            self._advance((self._models[self.version] + shares @ updates).clamp_(-_PARAMETER_LIMIT, _PARAMETER_LIMIT))
        return updates[:, :width].cpu().numpy().astype(np.float64) if want_updates else None

    def evaluate(self, round: int, time_s: float, last: bool) -> Quality | None:
        """Quality of the present model: due in the first and the last round and every `evaluate_every_rounds`; else None."""
        if not (last or round == 1 or round % self._every == 0):
            return None
        if self._known is None or self._known[0] != self.version:
            self._known = (self.version, self._measure(self._models[self.version]))
        return self._known[1]

    def state_dict(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "trained_updates": self.trained_updates,
            "refused_updates": self.refused_updates,
            "versions": list(self._models),
            "models": np.stack([model.cpu().numpy() for model in self._models.values()]),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        device = self._test_x.device
        models = torch.from_numpy(np.array(state["models"], np.float32)).to(device)
        if models.shape[1] != self._models[self.version].numel():
            raise ValueError(f"models = {tuple(models.shape)}: this network has {self._models[self.version].numel()} numbers")
        self.version = int(state["version"])
        self.trained_updates = int(state["trained_updates"])
        self.refused_updates = int(state["refused_updates"])
        self._models = {int(version): model for version, model in zip(state["versions"], models, strict=True)}
        self._known = None

    def _batches(self, client: int, round: int) -> IntArray:
        return draw_batches(
            self._partition[client],
            self._streams.generator("batches", round, client),
            batch_size=self._batch_size,
            epochs=self._epochs,
            max_steps=self._max_steps,
        )

    def _model(self, version: int) -> Tensor:
        model = self._models.get(version)
        if model is None:
            raise ValueError(
                f"versions: an update starts from version {version}, but only {list(self._models)} are kept; raise versions_kept"
            )
        return model

    def _advance(self, model: Tensor) -> None:
        self.version += 1
        self._models[self.version] = model
        for old in list(self._models)[: -self._kept]:
            del self._models[old]

    def _measure(self, model: Tensor) -> Quality:
        correct = torch.zeros((), dtype=torch.int64)
        total = torch.zeros((), dtype=torch.float64)
        for first in range(0, len(self._test_y), _EVALUATION_BATCH):
            y = self._test_y[first : first + _EVALUATION_BATCH]
            scores = self._trainer.scores(model, self._test_x[first : first + _EVALUATION_BATCH])
            correct += ((scores.argmax(1) == y) & scores.isfinite().all(1)).sum().cpu()
            losses = self._loss.value(scores, y).nan_to_num(nan=LOSS_CEILING, posinf=LOSS_CEILING).clamp_(max=LOSS_CEILING)
            total += losses.sum(dtype=torch.float64).cpu()
        return Quality(int(correct) / len(self._test_y), float(total) / len(self._test_y))
