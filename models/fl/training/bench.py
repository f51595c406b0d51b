"""Benches, with which workers train stacks, and the files from which the workers of one machine build them."""

from __future__ import annotations

import io
import pickle
import time
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from models.fl.networks.torchvision_compat import torchvision
from models.fl.options.names import TrainingOptions
from models.fl.protocols import Optimizer, Trainer
from models.fl.training.client_memory import OptimizerStates
from models.fl.training.local_trainer import LocalTrainer
from models.fl.training.losses import FirstPass, Loss, LossTally
from models.fl.training.own_training import OwnTraining
from models.fl.training.stacks import OwnPart, Report, Stack, Vectors


class Bench:
    """Network, samples and methods with which stacks are trained."""

    def __init__(self, trainer: LocalTrainer, own: OwnTraining | None) -> None:
        self._trainer, self._own = trainer, own

    def train(self, stack: Stack, vectors: Vectors) -> Report:
        """Train the clients of `stack` from `vectors`, and overwrite `vectors` with the results; return a report."""
        began, notes_before = time.perf_counter(), len(self._trainer.notes)
        report = self._train(stack, vectors) if stack.own is None else self._train_own(self._own, stack, stack.own, vectors)
        return replace(report, notes=tuple(self._trainer.notes[notes_before:]), seconds=time.perf_counter() - began)

    def _train(self, stack: Stack, vectors: Vectors) -> Report:
        """Train a stack by steps of the scenario's optimizer, and overwrite the rows and moments of `vectors` with the results.

        The report has the steps of the optimizers and the losses, if the stack asks for them.
        """
        device = self._trainer.device
        states = None
        if stack.taken is not None:
            states = OptimizerStates([moment.to(device, copy=True) for moment in vectors.moments], stack.taken.copy())
        tally = LossTally() if stack.counts_losses else None
        first = None if stack.passes is None else FirstPass(stack.passes, stack.measure)
        shift = None if vectors.shift is None else vectors.shift.to(device)
        trained = self._trainer.train(
            vectors.rows.to(device), stack.batches, stack.seeds, stack.moves, states, tally, first, shift
        )
        vectors.rows.copy_(trained)
        if states is not None:
            for kept, moment in zip(vectors.moments, states.moments, strict=True):
                kept.copy_(moment)
        report = Report()
        if states is not None:
            report = replace(report, taken=states.steps)
        if tally is not None:
            sums = tally.state_dict()
            report = replace(report, total=float(sums["total"]), samples=int(sums["samples"]))
        if first is not None:
            report = replace(report, mean=first.mean, rms=first.rms)
        return report

    def _train_own(self, training: OwnTraining | None, stack: Stack, own: OwnPart, vectors: Vectors) -> Report:
        """Train a stack by the user's own trainer `training`, and overwrite `vectors.rows` with the trained rows.

        `own`: the part of `stack` that such a trainer needs. The report has the other results of each client: losses, counts
        and state.
        """
        assert training is not None
        starts = vectors.rows.to(self._trainer.device)
        results = training.results(starts, own.shards, stack.batches, own.addresses, own.states)
        for row, result in zip(vectors.rows, results, strict=True):
            row.copy_(result.row)
        # The rows are in `vectors` now: leave them out of the report, which may be sent between processes.
        no_row = torch.zeros(0)
        return Report(results=tuple(replace(result, row=no_row, losses=result.losses.cpu()) for result in results))


@dataclass(frozen=True)
class BenchRecipe:
    """All parts of a bench except the samples."""

    network: nn.Module
    loss: Loss
    optimizer: Optimizer
    options: TrainingOptions
    pull: float
    own: Trainer | None
    own_key: str | None

    def portable(self) -> BenchRecipe:
        """Return the same recipe with the network in main memory."""
        return replace(self, network=deepcopy(self.network).cpu())

    def make(self, x: Tensor, y: Tensor) -> Bench:
        """Return the bench with the training samples `x` (N, ...) of classes `y` (N,), on whose device it trains."""
        trainer = LocalTrainer(
            network=self.network.to(x.device),
            loss=self.loss,
            optimizer=self.optimizer,
            x=x,
            y=y,
            options=self.options,
            pull=self.pull,
        )
        own = None if self.own is None else trainer.own_training(self.own, str(self.own_key))
        return Bench(trainer, own)


class _RecipeReader(pickle.Unpickler):
    """Reader of a recipe whose network may be torchvision's, with any build of torch."""

    def find_class(self, module: str, name: str) -> Any:
        """Return the class `name` of `module`, which is imported, torchvision by this project's own import of it."""
        package, _, part = module.partition(".")
        if package == "torchvision":
            torchvision(part)
        return super().find_class(module, name)


def read_recipe(content: bytes) -> BenchRecipe:
    """Return a pickled recipe; raises what the import of its classes raises."""
    recipe: BenchRecipe = _RecipeReader(io.BytesIO(content)).load()
    return recipe


@dataclass(frozen=True)
class Site:
    """Folder with the recipe and the samples of a run, which the benches of one machine share."""

    folder: str

    def write(self, x: Tensor, y: Tensor, recipe: bytes) -> None:
        """Write the samples, and the recipe as `pickle` reads it."""
        np.save(f"{self.folder}/x.npy", x.cpu().numpy())
        np.save(f"{self.folder}/y.npy", y.cpu().numpy())
        Path(self.folder, "recipe").write_bytes(recipe)

    def bench(self, device: str) -> Bench:
        """Return a bench that trains on `device`, and set the threads of torch; on a CPU samples are read as they are used."""
        recipe = read_recipe(Path(self.folder, "recipe").read_bytes())
        torch.set_num_threads(recipe.options.threads or 1)
        # Mapped copy-on-write ("c"), because torch requires writable memory; nothing is written.
        x = torch.from_numpy(np.load(f"{self.folder}/x.npy", mmap_mode="c"))
        y = torch.from_numpy(np.load(f"{self.folder}/y.npy", mmap_mode="c"))
        return recipe.make(x.to(device), y.to(device))
