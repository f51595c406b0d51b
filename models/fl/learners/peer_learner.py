"""Learner of a run without a server: a model for each peer, and measures of them all and of their mean."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from models.errors import ParameterError
from models.fl.evaluation.quality import Quality
from models.fl.learners.learner import Content, Delivered, FederatedLearner, FloatArray, IntArray
from models.fl.store.models import SERVER, ModelId
from models.fl.training.local_work import Update
from netsim.core.state import State

_SPARSE = 8
"""Mixtures are computed as a product with the matrix of weights if at least one in this many of its entries is used. Otherwise
sums of single rows are quicker."""
_CHUNK_NUMBERS = 2**21
"""Size of all models that are trained or combined at once, in numbers: 8 MiB, and a few times as much during sums in 64 bits."""
_MOST_PENDING = 2**12
"""Most models that may wait at the close of a round. If more wait, they are computed, although nothing reads them yet."""

# Copies of the rows of a matrix, each with memory of its own. By its other name, `torch.unbind_copy`, it has no type.
_UNBIND_COPY = torch.ops.aten.unbind_copy.int


class _Training(NamedTuple):
    """A model to be computed: the model of `peer` after its local training in its own `round` from the model `start`."""

    peer: int
    round: int
    start: int
    steps: int
    """Local steps; 0: as planned."""
    epsilon: float
    """Privacy budget of its step."""

    @property
    def models(self) -> tuple[int, ...]:
        """Numbers of the models from which it is computed."""
        return (self.start,)


class _Mixture(NamedTuple):
    """A model to be computed: the sum of `models`, each times its entry of `weights`."""

    models: tuple[int, ...]
    weights: tuple[float, ...]


class _Message(NamedTuple):
    """A model to be computed: `model` as it arrives, compressed, if `peer` sends it. The draws are at (`key`, `peer`)."""

    peer: int
    key: int
    model: int

    @property
    def models(self) -> tuple[int, ...]:
        """Numbers of the models from which it is computed."""
        return (self.model,)


_KINDS: tuple[Callable[..., _Training | _Mixture | _Message], ...] = (_Training, _Mixture, _Message)
"""Kinds of models to be computed; a saved state knows each by its place here."""


def _mix(mixtures: Sequence[_Mixture], vector: Callable[[int], Tensor]) -> Tensor:
    """Return the models (n, d) of `mixtures`; `vector` returns a model (d,) by number.

    Sums are in 64 bits, because the models of hundreds of neighbours differ little from each other. Blocks of columns are
    computed one after the other: all models in 64 bits may be more than memory holds.
    """
    # One entry for each model of each mixture, all mixtures one after the other.
    numbers = [number for mixture in mixtures for number in mixture.models]
    all_weights = [weight for mixture in mixtures for weight in mixture.weights]
    # Each model is read once; `row_of` is its place in `vectors`.
    row_of = {number: row for row, number in enumerate(dict.fromkeys(numbers))}
    vectors = [vector(number) for number in row_of]
    device, parameters = vectors[0].device, len(vectors[0])
    rows = torch.from_numpy(np.array([row_of[number] for number in numbers])).to(device)
    weights = torch.from_numpy(np.array(all_weights, np.float64)).to(device)
    counts = torch.from_numpy(np.array([len(mixture.models) for mixture in mixtures])).to(device)
    # Two ways with the same sums: a product with the matrix of weights (mixtures, vectors), or sums of single rows.
    matrix = None
    if len(numbers) * _SPARSE >= len(mixtures) * len(vectors):
        matrix = torch.zeros(len(mixtures), len(vectors), dtype=torch.float64, device=device)
        mixture_of_entry = torch.arange(len(mixtures), device=device).repeat_interleave(counts)
        # A mixture may name a model twice: its weights add up.
        matrix.index_put_((mixture_of_entry, rows), weights, accumulate=True)
    offsets = counts.cumsum(0) - counts
    """First entry of each mixture."""
    result = torch.empty(len(mixtures), parameters, device=device)
    width = max(1, _CHUNK_NUMBERS // len(vectors))
    for first in range(0, parameters, width):
        block = slice(first, first + width)
        block_vectors = vectors if width >= parameters else [vector[block] for vector in vectors]
        models = torch.stack(block_vectors).double()
        if matrix is None:
            result[:, block] = embedding_bag(rows, models, offsets, mode="sum", per_sample_weights=weights)
        else:
            result[:, block] = matrix @ models
    return result


class PeerLearner:
    """Models of peers by number, trained and tested with the data, network and options of `learner`.

    `train`, `combine` and `compress` only note how a model is to be computed, and from which models. It is computed when an
    evaluation reads it, or once many wait (`_MOST_PENDING`), together with the models it needs: all trainings that are ready in
    one call, then the mixtures of them, and so on. The longer models wait, the more peers train in one call. A model that nothing
    needs any more is never computed. A model depends only on the models it is computed from, not on the order of calls. Draws of
    a training are at (own round of the peer, peer). A saved state has the models that wait, so a resumed run computes them
    together, too.

    `tested` (n,): peers whose own models are tested, beside the mean of all. Columns: `accuracy` and `loss` of the mean of all
    peers' models; mean, worst and best accuracy of the tested peers; the consensus distance, which is the mean squared Euclidean
    distance of the peers' parameters from their mean.
    """

    aggregates: bool = False
    """False: without a server there are no deliveries."""
    records_losses: bool = False
    version: int = 0
    """Constant 0: there is no server's model with versions."""

    def __init__(self, *, learner: FederatedLearner, tested: IntArray) -> None:
        self._learner, self._tested = learner, tested.tolist()
        self.round_columns: Sequence[str] = (
            *learner.round_columns,
            *("peer_accuracy", "worst_peer_accuracy", "best_peer_accuracy", "consensus_distance"),
        )
        self._store = learner.store
        self._ids: dict[int, ModelId] = {}
        """Ids of models that have been computed, in the store, by number."""
        self._pending: dict[int, _Training | _Mixture | _Message] = {}
        """Models that have not been computed; each is computed from models with smaller numbers."""
        self._newest = 0
        """Number of the newest model."""
        self._present: IntArray = np.zeros(len(learner.data_sizes), np.int64)
        """Number (K,) of each peer's model, as of the last close."""
        self._kept: list[int] = []
        """Models that are needed besides the peers' present ones, as of the last close."""
        self._put(0, learner.model)

    # Models of peers

    def first(self) -> int:
        return 0

    def train(self, peer: int, round: int, start: int, steps: int = 0, epsilon: float = math.inf) -> int:
        return self._add(_Training(peer, round, start, steps, epsilon))

    def combine(self, models: Sequence[int], weights: Sequence[float]) -> int:
        return self._add(_Mixture(tuple(models), tuple(weights)))

    def compress(self, peer: int, key: int, model: int) -> int:
        return model if self._learner.sends_exactly else self._add(_Message(peer, key, model))

    def _add(self, model: _Training | _Mixture | _Message) -> int:
        """Note a model to be computed, and return its number."""
        self._newest += 1
        self._pending[self._newest] = model
        return self._newest

    def settle(self, present: IntArray, kept: Iterable[int]) -> None:
        """Note the models that are needed from now on: those of the peers, `present` (K,), and `kept`.

        Compute the models of peers and `kept` at once if many wait.

        Raises:
            MemoryError: the device cannot hold the training.
        """
        self._present, self._kept = present.copy(), list(kept)
        if len(self._pending) > _MOST_PENDING:
            self._compute(self._models_in_use())

    def _models_in_use(self) -> set[int]:
        """Return the numbers of the models that peers, their protocol or messages may still read."""
        return {*self._present.tolist(), *self._kept}

    def _compute(self, requested: set[int]) -> None:
        """Compute the `requested` models and those that they are made of, and drop models that nothing can read any more.

        Models in use that are not requested stay pending, with the models that they are made of. Models are computed level by
        level: all trainings of a level in one call, then its mixtures, then its messages.
        """
        in_use = self._models_in_use()
        to_compute = self._pending_for(requested)
        levels = self._levels(to_compute)
        still_needed = set(to_compute)
        if in_use != requested:
            still_needed.update(self._pending_for(in_use))
        self._pending = {number: model for number, model in self._pending.items() if number in still_needed}
        # Count the uses of each model: one that is only needed to compute others is dropped after the last of these.
        uses: Counter[int] = Counter()
        for model in self._pending.values():
            uses.update(model.models)
        # A model in use has one use more, and so is never dropped here.
        uses.update(in_use)
        self._drop([number for number in self._ids if number not in uses])
        for level in levels:
            self._train(level)
            self._combine(level)
            self._compress(level)
            unused = []
            for number in level:
                for source in self._pending.pop(number).models:
                    uses[source] -= 1
                    if not uses[source]:
                        unused.append(source)
            self._drop(unused)

    def _pending_for(self, targets: set[int]) -> list[int]:
        """Return the pending models that must be computed to have the models `targets`, these included, in ascending order."""
        required, pending = set(targets), self._pending
        # Descending, because a model is computed from models with smaller numbers.
        for number in reversed(pending):
            if number in required:
                required.update(pending[number].models)
        return [number for number in pending if number in required]

    def _levels(self, numbers: list[int]) -> list[list[int]]:
        """Divide the pending models `numbers`, ascending, into levels: a model is made only of models of earlier levels."""
        level_of: dict[int, int] = {}
        levels: list[list[int]] = []
        for number in numbers:
            # Models that are computed already have no level: -1.
            level = 1 + max([level_of.get(source, -1) for source in self._pending[number].models])
            level_of[number] = level
            if level == len(levels):
                levels.append([])
            levels[level].append(number)
        return levels

    def _chunks(self, numbers: list[int]) -> Iterator[list[int]]:
        """Yield `numbers` in parts whose models fit into memory at once (`_CHUNK_NUMBERS`)."""
        at_once = max(1, _CHUNK_NUMBERS // len(self._learner.model))
        return (numbers[first : first + at_once] for first in range(0, len(numbers), at_once))

    def _train(self, level: list[int]) -> None:
        """Compute the models of a level that are trainings."""
        trainings: dict[int, _Training] = {}
        for number in level:
            model = self._pending[number]
            if isinstance(model, _Training):
                trainings[number] = model
        for numbers in self._chunks(list(trainings)):
            updates = []
            for number in numbers:
                peer, round, start, steps, epsilon = trainings[number]
                updates.append(Update(peer, round, start=self._ids[start], epsilon=epsilon, steps=steps))
            self._keep(numbers, self._learner.train(updates))

    def _vector(self, number: int) -> Tensor:
        """Return a computed model (d,)."""
        return self._store[self._ids[number]]

    def _put(self, number: int, vector: Tensor) -> None:
        """Put a computed model (d,) into the store."""
        self._ids[number] = self._store.put(ModelId(SERVER, "peer", number), vector)

    def _keep(self, numbers: list[int], rows: Tensor) -> None:
        """Put copies of computed models `rows` (n, d) into the store under `numbers`."""
        # Copies: a view of one row would keep all rows in memory. One call for all: to clone row by row takes four times as long.
        for number, row in zip(numbers, _UNBIND_COPY(rows), strict=True):
            self._put(number, row)

    def _drop(self, numbers: list[int]) -> None:
        """Release computed models."""
        for number in numbers:
            self._store.release(self._ids.pop(number))

    def _combine(self, level: list[int]) -> None:
        """Compute the models of a level that are mixtures."""
        mixtures: dict[int, _Mixture] = {}
        for number in level:
            model = self._pending[number]
            if isinstance(model, _Mixture):
                mixtures[number] = model
        for numbers in self._chunks(list(mixtures)):
            self._keep(numbers, _mix([mixtures[number] for number in numbers], self._vector))

    def _compress(self, level: list[int]) -> None:
        """Compute the models of a level that are messages."""
        messages: dict[int, _Message] = {}
        for number in level:
            model = self._pending[number]
            if isinstance(model, _Message):
                messages[number] = model
        for numbers in self._chunks(list(messages)):
            sent = [messages[number] for number in numbers]
            rows = torch.stack([self._vector(message.model) for message in sent])
            self._keep(numbers, self._learner.compress(rows, [(message.key, message.peer) for message in sent]))

    # Learner of a round loop

    def aggregate(self, deliveries: Delivered, want_updates: bool, want_losses: bool = False) -> Content | None:
        return None

    def retain(self, versions: list[int]) -> None:
        """Do nothing: there are no versions."""

    def models(self) -> Tensor:
        """Return the peers' present models (K, d), as of the last round that closed; models that wait are computed first."""
        return torch.stack([self._vector(number) for number in self._compute_present()])

    def _compute_present(self) -> list[int]:
        """Compute the peers' present models, unless that is done; return their numbers (K,)."""
        present: list[int] = self._present.tolist()
        self._compute(set(present))
        return present

    def evaluate(self, round: int, time_s: float, last: bool) -> Quality | None:
        """Return the quality of the mean of all peers' models, with the columns of peers; None if no evaluation is due.

        The peers' present models are computed, and their mean becomes the model of `learner`.
        """
        learner = self._learner
        if not learner.tests.take_due(round, time_s, last):
            return None
        # Read models one by one: those on disk may be more than memory holds.
        present = self._compute_present()
        mean = torch.zeros_like(learner.model, dtype=torch.float64)
        for number in present:
            mean += self._vector(number)
        mean /= len(present)
        width = learner.parameters
        squares = 0.0
        for number in present:
            squares += float((self._vector(number)[:width] - mean[:width]).square().sum())
        learner.replace_model(mean.to(learner.model.dtype))
        accuracies = [learner.tests.accuracy_of(self._vector(present[peer])) for peer in self._tested]
        columns = {
            "peer_accuracy": float(np.mean(accuracies)),
            "worst_peer_accuracy": min(accuracies),
            "best_peer_accuracy": max(accuracies),
            "consensus_distance": squares / len(present),
        }
        return replace(learner.tests.quality(round), columns=columns)

    def contribution(self) -> FloatArray | None:
        return None

    def state_dict(self) -> State:
        """Return the computed models, and the recipes of models that are not computed yet."""
        numbers = sorted(self._ids)
        return {
            "learner": self._learner.state_dict(),
            "newest": self._newest,
            "present": self._present.copy(),
            "pending": [[number, _KINDS.index(type(model)), *model] for number, model in self._pending.items()],
            "numbers": numbers,
            # Not one array: models on disk may be more than memory holds, and a checkpoint writes them one by one.
            "models": [self._vector(number).cpu().numpy() for number in numbers],
        }

    def load_state_dict(self, state: State) -> None:
        """Take over a state; raises ParameterError for one of a network of another size."""
        self._learner.load_state_dict(state["learner"])
        model, models = self._learner.model, state["models"]
        if len(models[0]) != len(model):
            raise ParameterError("models", (len(models), len(models[0])), f"this network has {len(model)} numbers")
        self._newest, self._present = int(state["newest"]), np.array(state["present"], np.int64)
        self._pending = {number: _KINDS[kind](*parts) for number, kind, *parts in state["pending"]}
        self._drop(list(self._ids))
        for number, vector in zip(map(int, state["numbers"]), models, strict=True):
            self._put(number, torch.from_numpy(np.array(vector, np.float32)).to(model.device))
        # Keep all of them until `settle` says at the next close which are needed.
        self._kept = [*self._ids, *self._pending]
