"""Stacks: clients whose local training is one computation, as plain data that any process can compute.

The learner hands stacks to workers (`executors`); a worker computes them on its bench (`bench`). The result depends on the stack
and its vectors only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.fl.training.losses import RmsMeasure
from models.fl.training.own_training import Address, Result

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class OwnPart:
    """Part of a stack for a user's trainer; an entry for each client."""

    shards: list[IntArray]
    """Numbers of each client's samples."""
    addresses: list[Address]
    states: list[Any]
    """State that the trainer returned for each client before; None: no state yet."""

    def select(self, places: Sequence[int]) -> OwnPart:
        """Return the entries at `places`."""
        return OwnPart(
            shards=[self.shards[place] for place in places],
            addresses=[self.addresses[place] for place in places],
            states=[self.states[place] for place in places],
        )


@dataclass(frozen=True, slots=True)
class Stack:
    """Clients that are trained in one computation, without the vectors."""

    clients: list[int]
    rounds: list[int]
    """Rounds in which the updates began."""
    batches: list[IntArray]
    seeds: list[int]
    moves: list[IntArray] | None = None
    taken: IntArray | None = None
    """Number of steps (n,) that the clients' optimizers have taken before; None: all start without memory."""
    counts_losses: bool = False
    """True if the losses of all samples are added up."""
    passes: IntArray | None = None
    """Number of steps (n,) of the clients' first passes; None: their losses are not measured."""
    measure: RmsMeasure = "all"
    own: OwnPart | None = None

    @property
    def work(self) -> int:
        """Number of samples to process, by which workers find the longest stack."""
        return sum(int(batch.size) for batch in self.batches)

    def name(self) -> str:
        """Return the first client, the number of others if any, and the round of the first, for messages."""
        others = f" and {len(self.clients) - 1} more" if len(self.clients) > 1 else ""
        return f"client {self.clients[0]}{others}, round {self.rounds[0]}"

    def select(self, places: Sequence[int]) -> Stack:
        """Return the stack of the clients at `places`; fields that are no lists of clients stay as they are."""
        # Without their own random draws, clients have no seeds.
        seeds = [self.seeds[place] for place in places] if self.seeds else []
        moves = None if self.moves is None else [self.moves[place] for place in places]
        taken = None if self.taken is None else self.taken[list(places)]
        passes = None if self.passes is None else self.passes[list(places)]
        own = None if self.own is None else self.own.select(places)
        return replace(
            self,
            clients=[self.clients[place] for place in places],
            rounds=[self.rounds[place] for place in places],
            batches=[self.batches[place] for place in places],
            seeds=seeds,
            moves=moves,
            taken=taken,
            passes=passes,
            own=own,
        )


@dataclass(slots=True)
class Vectors:
    """Vectors of a stack of n clients, before or after training."""

    rows: Tensor
    """Networks (n, d)."""
    moments: list[Tensor]
    """Moments of the optimizers, each (n, trained parameters); empty if all start without memory."""
    shift: Tensor | None = None
    """Term (n, trained parameters) added to every gradient."""

    def parts(self) -> list[Tensor]:
        """Return all vectors, always in the same order."""
        return [self.rows, *self.moments, *([] if self.shift is None else [self.shift])]


@dataclass(frozen=True, slots=True)
class Report:
    """Result of a stack, without the vectors."""

    total: float = 0.0
    """Sum of the losses of `samples` samples."""
    samples: int = 0
    mean: FloatArray | None = None
    rms: FloatArray | None = None
    """Root mean square (n,) of the losses of the first passes; None if not requested."""
    taken: IntArray | None = None
    """Number of steps (n,) that the clients' optimizers have taken, this training included."""
    results: tuple[Result, ...] = ()
    """Results of the user's trainer, without the rows, which are in the vectors."""
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    """Wall time of the computation."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Shapes of the vectors of a stack, which lie one after the other in one array."""

    clients: int
    numbers: int
    moments: int
    trained: int
    shifted: bool

    @classmethod
    def of_vectors(cls, vectors: Vectors) -> Shape:
        clients, numbers = vectors.rows.shape
        # All vectors but the networks have one width: the number of trained parameters.
        others = vectors.parts()[1:]
        return cls(
            clients=clients,
            numbers=numbers,
            moments=len(vectors.moments),
            trained=others[0].shape[1] if others else 0,
            shifted=vectors.shift is not None,
        )

    @property
    def size(self) -> int:
        """Number of numbers in all vectors."""
        return self.clients * (self.numbers + (self.moments + self.shifted) * self.trained)

    def views(self, numbers: NDArray[np.float32]) -> Vectors:
        """Return the vectors in `numbers` (size,), without a copy; counterpart of `Vectors.parts`, in the same order."""
        widths = [self.numbers, *[self.trained] * (self.moments + self.shifted)]
        parts = torch.split(torch.from_numpy(numbers), [self.clients * width for width in widths])
        rows, *others = [part.view(self.clients, width) for part, width in zip(parts, widths, strict=True)]
        return Vectors(rows, others[: self.moments], others[-1] if self.shifted else None)


def split(rows: Sequence[Sequence[int]], stack: Stack) -> list[Stack]:
    """Return a part of `stack` for each entry of `rows`: the clients at these places of `stack`."""
    return [stack.select(places) for places in rows]
