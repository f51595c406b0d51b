"""Losses of a model on the samples of clients, without training: the clients' answers to probes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.fl.evaluation.quality import Randomness, score_batches
from models.fl.training.local_trainer import LocalTrainer
from models.fl.training.losses import Loss, bound_losses

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


class Probing:
    """Measures the losses of models on the samples of clients, as `partition` divides them; clients share one forward pass."""

    def __init__(self, *, partition: list[IntArray], trainer: LocalTrainer, loss: Loss, streams: Randomness) -> None:
        self._partition, self._trainer, self._loss, self._streams = partition, trainer, loss, streams

    def losses(
        self, model: Tensor, clients: IntArray, round: int, samples: int | None, statistics: Mapping[int, Tensor] | None
    ) -> FloatArray:
        """Return the mean losses (n,) of `model` (d,) on samples of each client; see `moments` for the arguments."""
        means: FloatArray = self.moments(model, clients, round, samples, statistics)[0]
        return means

    def moments(
        self, model: Tensor, clients: IntArray, round: int, samples: int | None, statistics: Mapping[int, Tensor] | None
    ) -> FloatArray:
        """Return the mean and the root mean square of the losses of `model` (d,) on samples of each client, (2, n).

        The model is in evaluation mode. `samples`: samples of each client, drawn at the address (`round`, client); None: all.
        `statistics`: the clients' own statistics of batch normalisation, by client; None if all share those of the model.
        A client without an entry normalises each batch by itself. A loss counts as at most `losses.LOSS_CEILING`.
        """
        numbers = clients.tolist()
        rows = [self._rows(client, round, samples) for client in numbers]
        if statistics is None:
            return self._moments(model, rows, batch_statistics=False)
        moments: FloatArray = np.zeros((2, len(numbers)))
        for column, (client, client_rows) in enumerate(zip(numbers, rows, strict=True)):
            # Every client has a model of its own, with its statistics, and so a pass of its own.
            own_model = model
            if client in statistics:
                own_model = torch.cat([model[: self._trainer.parameters], statistics[client]])
            of_client = self._moments(own_model, [client_rows], batch_statistics=client not in statistics)
            moments[:, column] = of_client[:, 0]
        return moments

    def _rows(self, client: int, round: int, samples: int | None) -> IntArray:
        """Return the numbers of a client's training samples to score: `samples` drawn without replacement; None: all."""
        own = self._partition[client]
        if samples is None or samples >= len(own):
            return own
        return self._streams.generator("probe-samples", round, client).choice(own, samples, replace=False)

    def _moments(self, model: Tensor, rows: list[IntArray], *, batch_statistics: bool) -> FloatArray:
        """Return mean and root mean square (2, n) of the losses of `model` (d,) on the samples `rows` of n clients.

        All samples are scored in one pass, and the losses are then added up by client.
        """
        if not rows:
            return np.zeros((2, 0))
        counts = np.array([len(of_client) for of_client in rows])
        all_rows = torch.from_numpy(np.concatenate(rows)).to(self._trainer.device)
        # Column of `totals` of each sample: its client.
        columns = torch.from_numpy(np.repeat(np.arange(len(rows)), counts)).to(self._trainer.device)
        totals = torch.zeros((2, len(rows)), dtype=torch.float64, device=self._trainer.device)
        done = 0
        batches = score_batches(
            self._trainer,
            model,
            len(all_rows),
            lambda first, last: self._trainer.samples(all_rows[first:last]),
            batch_statistics=batch_statistics,
        )
        for scores, labels in batches:
            losses = bound_losses(self._loss.value(scores, labels)).double()
            totals.index_add_(1, columns[done : done + len(labels)], torch.stack([losses, losses.square()]))
            done += len(labels)
        moments: FloatArray = totals.cpu().numpy() / counts
        moments[1] = np.sqrt(moments[1])
        return moments
