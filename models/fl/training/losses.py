"""Losses of single samples and their derivatives in the scores, and sums of losses during training."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

LOSS_CEILING = 1e6
"""Largest loss of a single sample that enters a mean; NaN counts as this."""


_AT_ONCE = 2**16
"""Number of scores that are collected before their losses are computed."""


RmsMeasure = Literal["all", "moving-average", "first-batch", "last-batch"]
_NEWEST = 0.2
"""Weight of the newest batch in the moving average of Oort's code."""
_MINUS_ONE = torch.tensor(-1.0)
_MANY_CLASSES = 32
"""Number of classes from which torch's logarithm of the softmax is used without gradients.

On a CPU it takes 3 times as long as a logarithm of sums for 10 classes, and half as long for 100. With gradients it is always
used, because it is a single operation.
"""


class Loss(Protocol):
    """Loss of scores (..., classes) and labels (...)."""

    def value(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of each sample; shape (...)."""

    def slope(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Return the derivative of each sample's loss in its scores; shape (..., classes), a new tensor."""


class CrossEntropy:
    """Minus the logarithm of the softmax probability of the label."""

    def value(self, scores: Tensor, labels: Tensor) -> Tensor:
        if scores.requires_grad or scores.shape[-1] >= _MANY_CLASSES:
            return -torch.log_softmax(scores, -1).gather(-1, labels.unsqueeze(-1)).squeeze(-1)
        # Subtract the largest score, so that no exponential overflows.
        shifted = scores - scores.amax(-1, keepdim=True)
        return shifted.exp().sum(-1).log_().sub_(shifted.gather(-1, labels.unsqueeze(-1)).squeeze(-1))

    def slope(self, scores: Tensor, labels: Tensor) -> Tensor:
        minus_one = _MINUS_ONE.to(scores).expand(*labels.shape, 1)
        # The softmax by its definition: for ten classes torch's own takes twice as long on a CPU.
        powers = (scores - scores.amax(-1, keepdim=True)).exp_()
        return powers.div_(powers.sum(-1, keepdim=True)).scatter_add_(-1, labels.unsqueeze(-1), minus_one)


class Hinge:
    """One-against-rest hinge: sum over classes j of max(0, 1 - t_j s_j), t_j = 1 for the label's class and -1 for the others.

    Among the multi-class hinge losses this one reproduces the linear SVM's accuracy on raw MNIST pixels.
    """

    def value(self, scores: Tensor, labels: Tensor) -> Tensor:
        return torch.relu(1 - _signs(scores, labels) * scores).sum(-1)

    def slope(self, scores: Tensor, labels: Tensor) -> Tensor:
        signs = _signs(scores, labels)
        return torch.where(signs * scores < 1, -signs, 0.0)


class SquaredHinge:
    """One-against-rest squared hinge: sum over classes j of max(0, 1 - t_j s_j)^2, t_j = 1 for the label's class, else -1."""

    def value(self, scores: Tensor, labels: Tensor) -> Tensor:
        return torch.relu(1 - _signs(scores, labels) * scores).square().sum(-1)

    def slope(self, scores: Tensor, labels: Tensor) -> Tensor:
        signs = _signs(scores, labels)
        return -2 * signs * torch.relu(1 - signs * scores)


def finite_rows(values: Tensor) -> Tensor:
    """Return True for the rows of `values` (n, d) that hold finite numbers only; (n,)."""
    # A sum is finite only if all its numbers are. So one pass is enough where all rows are finite, and no sum is too large.
    if values.sum().isfinite():
        return torch.ones(len(values), dtype=torch.bool, device=values.device)
    # 0 times inf or NaN is NaN. On a CPU this is faster than a reduction of booleans, 40 times for the updates of ten clients.
    return (values * 0.0).sum(1) == 0.0


def bound_losses(losses: Tensor) -> Tensor:
    """Return losses of single samples, none greater than `LOSS_CEILING`; NaN counts as that."""
    return losses.nan_to_num(nan=LOSS_CEILING, posinf=LOSS_CEILING).clamp_(max=LOSS_CEILING)


def sum_bounded(losses: Tensor) -> Tensor:
    """Return the sum of the bounded losses, in double precision."""
    return bound_losses(losses).sum(dtype=torch.float64)


class LossTally:
    """Sum of losses of samples; `total` stays on the device of the losses until it is read."""

    def __init__(self, *, total: float = 0.0, samples: int = 0) -> None:
        self._total: Tensor | float = total
        self._samples = samples

    def fresh(self) -> LossTally:
        """Return an empty tally."""
        return LossTally()

    def add(self, losses: Tensor) -> None:
        """Add the losses (n,) of n samples."""
        self._total = self._total + sum_bounded(losses)
        self._samples += len(losses)

    def merge(self, other: LossTally) -> None:
        """Add the losses of `other`."""
        self._total = self._total + other._total
        self._samples += other._samples

    def take(self) -> float:
        """Return the mean of the losses added since the last call, NaN without any, and start again from nothing."""
        mean = float(self._total) / self._samples if self._samples else math.nan
        self._total, self._samples = 0.0, 0
        return mean

    def state_dict(self) -> dict[str, float]:
        return {"total": float(self._total), "samples": self._samples}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        self._total, self._samples = float(state["total"]), int(state["samples"])


class FirstPass:
    """Losses of n clients' samples in the first pass of each over its own samples, as they occur in training.

    Each loss is at its client's parameters before the step that uses the sample: only those of the first step are at the model
    that the client received. `steps` (n,): number of steps of each client's first pass. `measure`: the losses of which `rms` is
    taken, as in `TrainingOptions.reported_rms`.
    """

    def __init__(self, steps: IntArray, measure: RmsMeasure = "all") -> None:
        self.steps = np.asarray(steps, np.int64)
        self.measure = measure
        self.mean: FloatArray = np.full(len(self.steps), np.nan)
        """(n,) mean loss of the pass; NaN if not computed, or without steps."""
        self.rms: FloatArray = np.full(len(self.steps), np.nan)
        """(n,) root mean square of the losses of all samples of the pass, or of those that `measure` names; NaN likewise."""
        self._noted: list[tuple[Tensor, Tensor]] = []

    def fresh(self, rows: Sequence[int]) -> FirstPass:
        """Return an empty record of the clients `rows`."""
        return FirstPass(self.steps[rows], self.measure)

    def skip(self, kept: Sequence[BoolArray]) -> None:
        """Lower each client's number of steps to those that are `kept`: for each client, True for its steps (steps,) to count."""
        self.steps = np.array([is_kept[:steps].sum() for is_kept, steps in zip(kept, self.steps, strict=True)], np.int64)

    def note(self, step: int, losses: Tensor, real: Tensor) -> None:
        """Take in the losses (r,) of a step's samples. `real` (active, batch): True for the samples, r in all, of the first
        `active` clients. Steps after all first passes are ignored, unless `measure` needs the last one.
        """
        if step < self.steps.max(initial=0) or self.measure == "last-batch":
            self._noted.append((losses, real))

    def merge(self, rows: Sequence[int], other: FirstPass) -> None:
        """Set the results of the clients `rows` to those of `other`, whose training is over."""
        if other._noted:
            other._compute()
        self.mean[rows], self.rms[rows] = other.mean, other.rms

    def _compute(self) -> None:
        """Compute `mean` and `rms` of all clients from the noted losses, and drop these."""
        noted, self._noted = self._noted, []
        first_losses, first_real = noted[0]
        shape = (len(noted), len(self.steps), first_real.shape[1])
        """Steps, clients, samples of a batch: the axes of all arrays below."""
        losses = torch.zeros(shape, dtype=torch.float64, device=first_losses.device)
        in_pass = torch.zeros_like(losses, dtype=torch.bool)
        for step, (values, real) in enumerate(noted):
            losses[step, : len(real)].masked_scatter_(real, bound_losses(values).double())
            in_pass[step, : len(real)] = real
        # The last batch is the last of all training, also of later passes: keep the mask before it is narrowed to the first pass.
        trained = in_pass.clone() if self.measure == "last-batch" else in_pass
        # Some clients may be in their second pass while others are still in their first.
        steps = torch.from_numpy(self.steps).to(losses.device)
        in_pass &= torch.arange(len(noted), device=losses.device)[:, None, None] < steps[:, None]
        by_batch = None if self.measure == "all" else self._mean_square_of_batches(losses, in_pass, trained)
        losses *= in_pass
        sums = torch.stack([losses.sum((0, 2)), losses.square().sum((0, 2)), in_pass.sum((0, 2)).double()])
        # One transfer from the device for all clients.
        total, squares, samples = sums.cpu().numpy()
        # A client without samples in its pass has 0 / 0: NaN.
        with np.errstate(invalid="ignore"):
            mean_square = squares / samples if by_batch is None else by_batch.cpu().numpy()
            self.mean, self.rms = total / samples, np.sqrt(mean_square)

    def _mean_square_of_batches(self, losses: Tensor, in_pass: Tensor, trained: Tensor) -> Tensor:
        """Return one mean squared loss for each client (n,), from `losses` (steps, n, batch); NaN where there is no batch.

        `measure` says which: that of the first or the last batch, or the exponential moving average over all batches of the pass.
        `in_pass`, `trained`: masks of the losses of the first pass, and of all training.
        """
        counted = trained if self.measure == "last-batch" else in_pass
        means = (losses * counted).square().sum(2) / counted.sum(2)
        if self.measure == "first-batch":
            means = means[:1]
        result = torch.full_like(means[0], math.nan)
        for mean in means:
            # Without a moving average the newest batch replaces the value, so that the last batch stays.
            updated = result + _NEWEST * (mean - result) if self.measure == "moving-average" else mean
            # A step without samples (NaN) leaves a client's value as it is; the first batch with samples starts it.
            started = torch.where(result.isnan(), mean, updated)
            result = torch.where(mean.isnan(), result, started)
        return result


class StepLosses:
    """Losses of the samples that local steps use, each before its step, for `tally` and for the clients' `first` passes.

    `stacked`: scores are (n, B, classes) of n clients, including missing samples; otherwise they are of one client's real
    samples.
    """

    def __init__(self, loss: Loss, tally: LossTally | None, first: FirstPass | None, *, stacked: bool) -> None:
        self._loss, self._tally, self._first, self._stacked = loss, tally, first, stacked
        self._scores: list[Tensor] = []
        """Scores of steps whose losses are not computed yet."""
        self._labels: list[Tensor] = []
        self._waiting = 0
        """Number of these scores."""

    def note(self, step: int, scores: Tensor, labels: Tensor, weights: Tensor, *, full: bool) -> None:
        """Take in a step's scores, labels (n, B) and weights (n, B), 0 for missing samples; `full`: no sample is missing.

        Losses for `tally` alone are computed once scores of several steps have been collected, or at `finish`.
        """
        if self._first is not None:
            real = weights > 0
            losses = self._loss.value((scores[real] if self._stacked else scores).float(), labels[real])
            self._first.note(step, losses, real)
            if self._tally is not None:
                self._tally.add(losses)
        elif self._tally is not None:
            if full:
                scores, labels = scores.reshape(-1, scores.shape[-1]), labels.reshape(-1)
            else:
                real = weights > 0
                scores, labels = (scores[real] if self._stacked else scores), labels[real]
            # Collect several steps: for few samples the calls take longer than the losses.
            self._scores.append(scores)
            self._labels.append(labels)
            self._waiting += scores.numel()
            if self._waiting >= _AT_ONCE:
                self.finish()

    def finish(self) -> None:
        """Compute the losses of the collected steps."""
        if self._tally is not None and self._scores:
            self._tally.add(self._loss.value(torch.cat(self._scores).float(), torch.cat(self._labels)))
            self._scores, self._labels, self._waiting = [], [], 0


def _signs(scores: Tensor, labels: Tensor) -> Tensor:
    """Return t_j of the hinge losses: 1 for the label's class and -1 for the others; shape of `scores`."""
    return torch.full_like(scores, -1.0).scatter_(-1, labels.unsqueeze(-1), 1.0)
