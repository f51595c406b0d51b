"""Quality of a model on the test set, and on the local test sets of all clients at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.errors import AnswerError, ParameterError
from models.fl.learners.task import Task
from models.fl.options.demands import check_call
from models.fl.options.names import TrainingOptions
from models.fl.store.memory import is_out_of_memory, release
from models.fl.training.local_trainer import LocalTrainer
from models.fl.training.losses import Loss, finite_rows, sum_bounded

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
LocalTest = Literal["iid", "own"]

_BATCH = 1000
"""Samples that are scored at once."""


class Draws(Protocol):
    """Addressed draws of one purpose (`netsim.core.streams.Stream`)."""

    def generator(self, index: int) -> np.random.Generator: ...


class Randomness(Protocol):
    """Addressed random generators (`netsim.core.streams.Streams`)."""

    def __getitem__(self, name: str) -> Draws: ...

    def generator(self, name: str, *index: int) -> np.random.Generator: ...

    def integer_seed(self, name: str, *index: int) -> int: ...


Metric = Callable[[NDArray[np.float32], IntArray], float]
"""Function from the scores (n, classes) of the test samples and their classes (n,) to a number."""


@dataclass(frozen=True, slots=True)
class Quality:
    """Accuracy in [0, 1] and mean loss on the test set; both are always finite."""

    accuracy: float
    loss: float
    unscored: int = 0
    """Test samples whose scores are not finite, because the model is not or its numbers overflow. They count as wrong."""
    training_loss: float = math.nan
    """Mean loss of the samples trained on since the last evaluation; NaN: there were none, or it was not requested."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Values of the user's metrics, by name."""
    columns: Mapping[str, float] = field(default_factory=dict)
    """Further columns of the round, by name."""


def score_batches(
    trainer: LocalTrainer,
    model: Tensor,
    samples: int,
    read: Callable[[int, int], tuple[Tensor, Tensor]],
    *,
    batch_statistics: bool,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield scores (b, classes) of `model` (d,) and labels (b,) of `samples` samples, in batches of b <= 1000.

    `read(first, last)` returns inputs and labels of the samples first, .., last - 1. If the device cannot hold a batch, that
    batch and all later ones are halved, and the trainer gets a note.

    Raises:
        MemoryError: the device cannot hold a single sample.
    """
    first, size = 0, _BATCH
    while first < samples:
        x, labels = read(first, min(first + size, samples))
        try:
            scores = trainer.scores(model, x, batch_statistics=batch_statistics)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            # Repeat this batch, in halves.
            size = _halve_batch(trainer, len(labels), error)
            continue
        first += size
        yield scores, labels


class _Measurement(NamedTuple):
    """Measurement of one version of the model on the test set."""

    version: int
    is_right: BoolArray
    """True (n,) for test samples that the model classifies correctly."""
    quality: Quality


class SampleResults(NamedTuple):
    """Result of a model on n samples with labels."""

    is_right: BoolArray
    """True (n,) for samples that are classified correctly."""
    loss: float
    """Mean loss."""
    unscored: int
    """Number of samples without finite scores; they are not right."""


def measure(
    trainer: LocalTrainer,
    model: Tensor,
    x: Tensor,
    y: Tensor,
    loss: Loss,
    batch_statistics: bool,
    scores_out: list[Tensor] | None = None,
) -> SampleResults:
    """Return the result of `model` (d,) on the samples x (n, ...) with labels y (n,).

    No sample's loss counts as more than `losses.LOSS_CEILING`. `batch_statistics`: True to normalise each batch by itself, not
    by the model's running statistics. `scores_out`: list to which the scores (b, classes) of each batch are appended, or None.
    """
    # One mask for each batch.
    right: list[Tensor] = []
    finite: list[Tensor] = []
    total_loss = torch.zeros((), dtype=torch.float64, device=x.device)
    batches = score_batches(
        trainer, model, len(y), lambda first, last: (x[first:last], y[first:last]), batch_statistics=batch_statistics
    )
    for scores, labels in batches:
        if scores_out is not None:
            scores_out.append(scores)
        is_scored = finite_rows(scores)
        finite.append(is_scored)
        # The largest of scores that are not finite means nothing.
        right.append((scores.argmax(1) == labels) & is_scored)
        total_loss += sum_bounded(loss.value(scores, labels))
    # Both masks leave the device in a single transfer: each transfer waits for the device.
    is_right, is_finite = torch.stack([torch.cat(right), torch.cat(finite)]).cpu().numpy()
    return SampleResults(is_right=is_right, loss=float(total_loss) / len(y), unscored=len(y) - int(is_finite.sum()))


def _halve_batch(trainer: LocalTrainer, samples: int, error: Exception) -> int:
    """Return half of `samples`, the size of a batch that the device could not hold, and note it with the trainer.

    Raises:
        MemoryError: it was a single sample.
    """
    release(trainer.device)
    if samples == 1:
        raise MemoryError(
            f"device = {trainer.device.type!r}: out of memory while testing a single sample; use a smaller network, or "
            "device = 'cpu'"
        ) from error
    half = samples // 2
    trainer.note(f"out of memory while testing {samples} samples at once: tested {half} at once")
    return half


def draw_local_sets(
    labels: IntArray, label_counts: IntArray, local: LocalTest, *, samples: int, generator: np.random.Generator
) -> IntArray:
    """Draw the local test sets of all clients from samples with `labels` (n,); return their numbers in 0..n-1, (K, samples).

    - "iid": all samples in random order, cut into shares. Once they are used up, again in another order.
    - "own": labels in the proportions of the client's training data, `label_counts` (K, classes), as nearly as whole samples
      allow. A label of which there is no sample is left out.

    Raises:
        ValueError: an unknown kind; "own" where there is no sample of any label that a client holds.
    """
    clients = len(label_counts)
    if local == "iid":
        # As many random orders of all samples as give every client its share.
        order_count = math.ceil(clients * samples / len(labels))
        orders = [generator.permutation(len(labels)) for _ in range(order_count)]
        return np.concatenate(orders)[: clients * samples].reshape(clients, samples)
    if local != "own":
        raise ParameterError("local", local, "must be 'iid' or 'own'")
    pools = [np.flatnonzero(labels == label) for label in range(label_counts.shape[1])]
    present = np.array([len(pool) > 0 for pool in pools])
    sets = np.empty((clients, samples), np.int64)
    for client, counts in enumerate(label_counts * present):
        if not counts.any():
            raise ValueError(f"there is none of any label that client {client} holds; keep more samples, or share them out alike")
        needed = _whole_shares(counts / counts.sum(), samples)
        parts = []
        for label in np.flatnonzero(needed).tolist():
            # Draw with replacement only where there are too few samples of a label.
            replace = bool(needed[label] > len(pools[label]))
            parts.append(generator.choice(pools[label], needed[label], replace=replace))
        sets[client] = np.concatenate(parts)
    return sets


def _whole_shares(share: FloatArray, total: int) -> IntArray:
    """Return whole numbers (n,) near `share` * `total` that sum to `total`; `share` (n,) sums to 1.

    Method of largest remainders: all are rounded down, and what is missing goes to those that lost most.
    """
    exact = share * total
    counts = np.floor(exact).astype(np.int64)
    missing = total - int(counts.sum())
    lost_most_first = np.argsort(counts - exact, kind="stable")
    counts[lost_most_first[:missing]] += 1
    return counts


class Evaluator:
    """Decides when the model is evaluated, and evaluates it on the whole test set and on every client's local test set.

    A local test set may have the proportions of labels of the client's training samples (`draw_local_sets`).
    """

    def __init__(
        self,
        *,
        trainer: LocalTrainer,
        task: Task,
        streams: Randomness,
        options: TrainingOptions,
        metrics: Mapping[str, Metric] | None = None,
    ) -> None:
        dataset, label_counts = task.dataset, task.label_counts
        self._trainer, self._loss, self._streams = trainer, task.loss, streams
        self._metrics = dict(metrics or {})
        for metric in self._metrics.values():
            check_call("metrics", metric, ("scores", "classes"))
        self._scores: list[Tensor] | None = None
        self._x, self._y = dataset.test_x.to(trainer.device), dataset.targets(dataset.test_y).to(trainer.device)
        self._labels, self._label_counts = dataset.test_y.numpy(), label_counts
        # Without a period, evaluate after every round.
        self._every_rounds, self._every_s = options.evaluate_every_rounds or 1, options.evaluate_every_s
        self._local_samples = options.local_test_samples or max(1, len(self._y) // len(label_counts))
        self._sets: dict[LocalTest, IntArray] = {}
        self._last_measurement: _Measurement | None = None
        """Measurement of the version last measured; None: none since the start, or since `forget`."""
        self.due_s = 0.0
        """Time from which on the next evaluation is due, if evaluations go by simulated time."""

    def take_due(self, round: int, time_s: float, last: bool) -> bool:
        """Return True if an evaluation is due now, which then counts as done; in the first and the last round one always is."""
        if self._every_s is None:
            return last or round == 1 or round % self._every_rounds == 0
        if not (last or round == 1 or time_s >= self.due_s):
            return False
        # The next one is due at the next multiple of the period. At an infinite time, where none follows, it stays due.
        periods = time_s / self._every_s
        self.due_s = self._every_s * (math.floor(periods) + 1) if math.isfinite(periods) else time_s
        return True

    def resume(self, due_s: float) -> None:
        """Continue with the next evaluation due at `due_s`."""
        self.due_s = due_s

    def forget(self) -> None:
        """Forget the last measurement, so that the same version number is measured again."""
        self._last_measurement = None

    def quality(self, version: int, model: Tensor, *, batch_statistics: bool) -> Quality:
        """Return the quality of `model` (d,) on the test set, measured once for each `version`.

        The same version must mean the same model.
        """
        measurement = self._measure(version, model, batch_statistics)
        # The user's metrics may be slow, so that they are computed only for models that are reported.
        if self._metrics and not measurement.quality.metrics:
            quality = replace(measurement.quality, metrics=self._own_metrics())
            measurement = measurement._replace(quality=quality)
            self._last_measurement = measurement
        return measurement.quality

    def accuracy(self, model: Tensor, *, batch_statistics: bool) -> float:
        """Return the accuracy of `model` (d,) on the test set, in [0, 1]."""
        result = measure(self._trainer, model, self._x, self._y, self._loss, batch_statistics)
        return float(result.is_right.mean())

    def _own_metrics(self) -> dict[str, float]:
        """Return the values of the user's metrics on the scores of the last measurement, by name."""
        assert self._scores is not None
        scores, classes = torch.cat(self._scores).float().cpu().numpy(), self._y.cpu().numpy()
        values: dict[str, float] = {}
        for name, metric in self._metrics.items():
            value: Any = metric(scores.copy(), classes.copy())
            if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.integer | np.floating):
                raise AnswerError("metrics", "the function", value, "must be a number", name=name)
            values[name] = float(value)
        return values

    def local_tests(self, local: LocalTest) -> IntArray:
        """Return every client's local test set (K, n) (see `draw_local_sets`), drawn once."""
        if local not in self._sets:
            generator = self._streams.generator(f"local-tests-{local}")
            counts, samples = self._label_counts, self._local_samples
            self._sets[local] = draw_local_sets(self._labels, counts, local, samples=samples, generator=generator)
        return self._sets[local]

    def opinions(self, version: int, model: Tensor, local: LocalTest, statistics: Mapping[int, Tensor] | None) -> FloatArray:
        """Return the accuracy (K,) of `model` on every client's local test set, in [0, 1].

        One pass over the test set serves all clients. If they have batch-normalisation `statistics` of their own, each client
        has a model of its own, and so a pass of its own.
        """
        sets = self.local_tests(local)
        if statistics is None:
            is_right = self._measure(version, model, batch_statistics=False).is_right
            accuracies: FloatArray = is_right[sets].mean(1)
            return accuracies
        return np.array(
            [self._opinion_with_own_statistics(model, statistics.get(client), rows) for client, rows in enumerate(sets)]
        )

    def _opinion_with_own_statistics(self, model: Tensor, statistics: Tensor | None, rows: IntArray) -> float:
        """Return the accuracy of `model` on the test samples `rows`, with a client's own `statistics`; None: those of batches."""
        if statistics is not None:
            model = torch.cat([model[: self._trainer.parameters], statistics])
        chosen = torch.from_numpy(rows).to(self._y.device)
        x, y = self._x[chosen], self._y[chosen]
        result = measure(self._trainer, model, x, y, self._loss, batch_statistics=statistics is None)
        return float(result.is_right.mean())

    def _measure(self, version: int, model: Tensor, batch_statistics: bool) -> _Measurement:
        """Return the measurement of `model` on the test set; measured once for a `version`, and kept until the next one."""
        if self._last_measurement is None or self._last_measurement.version != version:
            # Keep the scores for the user's metrics (`_own_metrics`).
            self._scores = [] if self._metrics else None
            result = measure(self._trainer, model, self._x, self._y, self._loss, batch_statistics, self._scores)
            quality = Quality(accuracy=float(result.is_right.mean()), loss=result.loss, unscored=result.unscored)
            self._last_measurement = _Measurement(version, result.is_right, quality)
        return self._last_measurement
