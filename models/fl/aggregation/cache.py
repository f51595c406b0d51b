"""The cache of SAFA: the last known model of every client. The model of a round is the mean of the entries.

Wu, He, Lin, Mao, Maple and Jarvis, "SAFA: a semi-asynchronous protocol for fast federated learning with low overhead", IEEE
Trans. Computers 70(5), 2021, eq. 6 to 8. Before the aggregation, updates of picked clients replace their entries, and the model
of the round before replaces the entries of deprecated clients. After it, updates that arrived and were not picked replace their
entries.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.errors import ParameterError
from models.fl.store.models import ModelId, ModelStore
from netsim.core.state import State

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
MOST_BYTES = 16 * 2**30
"""Largest memory of the entries, if every client has a different one."""


class ModelCache:
    """Entries of all K clients, each the id of a model in `store`, and their mean, weighted by `sizes` (K,) in samples.

    All entries are `first` at the beginning. Entries that are the same model are one vector: memory grows with the clients that
    have delivered.

    Raises:
        ParameterError: the entries of all clients would take more than `MOST_BYTES`.
    """

    def __init__(self, *, sizes: IntArray, first: ModelId, store: ModelStore) -> None:
        numbers = len(store[first])
        needed = len(sizes) * numbers * 4
        if needed > MOST_BYTES:
            reason = (
                f"the cache of the models of {len(sizes)} clients would take {needed / 2**30:.0f} GiB, more than the "
                f"{MOST_BYTES / 2**30:.0f} allowed; use fewer clients or a smaller network"
            )
            raise ParameterError("clients", len(sizes), reason)
        self._shares: FloatArray = np.asarray(sizes / sizes.sum(), np.float64)
        self._store, self._first = store, store.hold(first)
        self._entries: dict[int, ModelId] = {}
        """Entries that were replaced, by client; the others are `first`."""

    def renew(self, clients: IntArray, model: ModelId) -> None:
        """Replace the entries of `clients` (n,) by `model`."""
        for client in clients.tolist():
            self._replace(client, self._store.hold(model))

    def put(self, clients: IntArray, rounds: IntArray, models: Tensor) -> None:
        """Replace the entries of `clients` (n,) by `models` (n, d), trained in `rounds` (n,).

        If a client occurs twice, its last model counts.
        """
        for client, round, model in zip(clients.tolist(), rounds.tolist(), models, strict=True):
            self._replace(client, self._store.put(ModelId(client, "trained", round), model.clone()))

    def _replace(self, client: int, entry: ModelId) -> None:
        """Replace the entry of `client` by `entry`, which the caller has held in the store, and release the old entry."""
        before = self._entries.get(client)
        self._entries[client] = entry
        if before is not None:
            self._store.release(before)

    def mean(self) -> Tensor:
        """Return the mean of all entries (d,), weighted by the clients' shares of all samples."""
        clients = sorted(self._entries)
        shares = self._shares[clients]
        ids = [self._first, *(self._entries[client] for client in clients)]
        # Clients without an entry of their own share the first model.
        return self._store.mix(ids, np.concatenate([[1.0 - shares.sum()], shares]))

    def state_dict(self) -> State:
        """Return the entries, and each distinct model once."""
        distinct = [self._first, *dict.fromkeys(entry for _, entry in sorted(self._entries.items()))]
        return {
            "ids": [list(id) for id in distinct],
            "models": [self._store[id].cpu().numpy() for id in distinct],
            "entries": {client: list(entry) for client, entry in sorted(self._entries.items())},
        }

    def load_state_dict(self, state: State, device: torch.device) -> None:
        """Restore a state."""
        old_entries = [self._first, *self._entries.values()]
        ids = [_saved_id(id) for id in state["ids"]]
        for id, model in zip(ids, state["models"], strict=True):
            self._store.put(id, torch.from_numpy(np.array(model, np.float32)).to(device))
        self._first = self._store.hold(ids[0])
        self._entries = {int(client): self._store.hold(_saved_id(entry)) for client, entry in state["entries"].items()}
        # `put` holds each id once, beside the holds of the entries.
        for id in [*old_entries, *dict.fromkeys(ids)]:
            self._store.release(id)


def _saved_id(saved: list[Any]) -> ModelId:
    """Return the id of a model from its saved form [node, kind, number]."""
    node, kind, number = saved
    return ModelId(int(node), kind, int(number))
