"""Models and updates by identity: a store of vectors that learners, caches and mixing share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, device

from models.errors import ParameterError
from models.fl.store.vector_file import VectorFile

FloatArray = NDArray[np.float64]
SERVER = -1
"""Number of the server as a node; clients are 0, 1, ..."""


def edge_node(edge: int) -> int:
    """Return the number of an edge as a node; `edge` counts from 0."""
    return SERVER - 1 - edge


def _node_name(node: int) -> str:
    """Return the name of a node for messages."""
    if node == SERVER:
        return "the server"
    # The inverse of `edge_node`.
    return f"client {node}" if node >= 0 else f"edge {SERVER - 1 - node}"


class ModelId(NamedTuple):
    """Identity of a vector. It says who made the vector and when, and so does not depend on the order of computing."""

    node: int
    """Node that made the vector: `SERVER`, a client, or `edge_node` of an edge."""
    kind: Literal["version", "trained", "entry", "peer"]
    """"version": a version of the node's model; "trained": the node's model after local training; "entry": an entry of the node's
    cache; "peer": a model of a run of peers, where all models are numbered together, with `SERVER` as their node."""
    number: int
    """Number of the version, the round in which training began, or the number of the entry or of a peer's model."""


class ModelStore:
    """Vectors (d,) by id, each kept as long as it is held.

    Holds are counted: `put` and `hold` add one, `release` takes one away, and the vector of an id without holds is dropped.
    `memory_bytes`: vectors beyond it are kept in a file on disk (`VectorFile`); None: all are in memory.

    >>> import torch
    >>> store = ModelStore()
    >>> first = store.put(ModelId(SERVER, "version", 0), torch.zeros(2))
    >>> other = store.put(ModelId(3, "trained", 1), torch.ones(2))
    >>> store.mix([first, other], np.array([0.25, 0.75])).tolist()
    [0.75, 0.75]
    >>> store.release(other)
    >>> other in store
    False
    """

    def __init__(self, memory_bytes: int | None = None) -> None:
        self._memory_bytes = memory_bytes
        self._in_memory: dict[ModelId, int] = {}
        """Bytes of each vector that is in memory; counted only with a bound."""
        self._bytes = 0
        """Sum of `_in_memory`."""
        self._file: VectorFile | None = None
        self._device = device("cpu")
        """Device on which vectors are used; those on disk are copied to it."""
        self._vectors: dict[ModelId, Tensor] = {}
        self._holds: dict[ModelId, int] = {}

    def __contains__(self, id: ModelId) -> bool:
        return id in self._vectors

    def __len__(self) -> int:
        return len(self._vectors)

    def __getitem__(self, id: ModelId) -> Tensor:
        """Return the vector (d,) of `id`; raises ParameterError if it was dropped."""
        vector = self._vectors.get(id)
        if vector is None:
            owner = _node_name(id.node)
            problem = f"{id.kind} {id.number} of {owner} is no longer kept; hold it as long as something starts from it"
            raise ParameterError("versions", id, problem, shown="")
        # Vectors on disk are on the CPU. Without a bound there are none: skip the comparison, which is slow.
        return vector if self._memory_bytes is None or vector.device == self._device else vector.to(self._device)

    def put(self, id: ModelId, vector: Tensor) -> ModelId:
        """Keep `vector` (d,), or a copy of it on disk, as `id`, with one more hold. The same id stands for the same numbers.

        Raises:
            MemoryError: neither memory nor the disk has room for it.
        """
        self._vectors[id] = vector if self._memory_bytes is None else self._place(id, vector)
        self._holds[id] = self._holds.get(id, 0) + 1
        return id

    def hold(self, id: ModelId) -> ModelId:
        """Add a hold to `id`; raises ParameterError if it was dropped."""
        self[id]  # raises
        self._holds[id] += 1
        return id

    def release(self, id: ModelId) -> None:
        """Remove one hold; drop the vector with the last one."""
        self._holds[id] -= 1
        if not self._holds[id]:
            del self._holds[id], self._vectors[id]
            self._bytes -= self._in_memory.pop(id, 0)

    @property
    def disk_bytes(self) -> int:
        """Largest number of bytes of vectors that were on disk at a time."""
        return 0 if self._file is None else self._file.size

    def _place(self, id: ModelId, vector: Tensor) -> Tensor:
        """Return `vector` if `memory_bytes` has room for it, otherwise a copy on disk, and keep the count of bytes."""
        assert self._memory_bytes is not None
        self._device = vector.device
        self._bytes -= self._in_memory.pop(id, 0)
        if self._bytes + vector.nbytes <= self._memory_bytes:
            self._in_memory[id] = vector.nbytes
            self._bytes += vector.nbytes
            return vector
        if self._file is None:
            self._file = VectorFile()
        try:
            return self._file.copy(vector)
        except OSError as error:
            problem = f"memory_bytes = {self._memory_bytes}: the disk has no room for the models beyond it ({error.strerror})"
            raise MemoryError(f"{problem}; make room, raise it, or let TMPDIR name another folder") from error

    def mix(self, ids: Sequence[ModelId], weights: FloatArray) -> Tensor:
        """Return the weighted sum (d,) of the vectors of `ids`, each times its entry of `weights` (n,).

        An id may appear several times: its vector is added once, with the sum of its weights. Sums are in 64 bits, because
        hundreds of models may be added that differ little from each other.
        """
        total_weights: dict[ModelId, float] = {}
        for id, weight in zip(ids, weights.tolist(), strict=True):
            total_weights[id] = total_weights.get(id, 0.0) + weight
        first, *others = total_weights
        total = self[first].double() * total_weights[first]
        for id in others:
            total.add_(self[id].double(), alpha=total_weights[id])
        return total.to(self[first].dtype)
