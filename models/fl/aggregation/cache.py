"""The cache of SAFA: the last known model of every client. The model of a round is the mean of the entries.

Wu, He, Lin, Mao, Maple and Jarvis, "SAFA: a semi-asynchronous protocol for fast federated learning with low overhead", IEEE
Trans. Computers 70(5), 2021, eq. 6 to 8. Before the aggregation, updates of picked clients replace their entries, and the model
of the round before replaces the entries of deprecated clients. After it, updates that arrived and were not picked replace their
entries.

A node of a tree has a cache of its members. As a model of the node above takes the place of the node's own, all entries move by
the difference, so that their mean does, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.errors import ParameterError
from models.fl.store.models import SERVER, ModelId, ModelStore
from netsim.core.state import State

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
MOST_BYTES = 16 * 2**30
"""Largest memory of the entries, if every client has a different one."""


class ModelCache:
    """Entries of all K clients, each the id of a model in `store`, and their mean, weighted by `sizes` (K,) in samples.

    All entries are `first` at the beginning. Entries that are the same model are one vector: memory grows with the clients that
    have delivered. `node`: node whose cache it is. `members`: returns True (K,) for clients that count now; None: all.

    Raises:
        ParameterError: the entries of all clients would take more than `MOST_BYTES`.
    """

    def __init__(
        self,
        *,
        sizes: IntArray,
        first: ModelId,
        store: ModelStore,
        node: int = SERVER,
        members: Callable[[], BoolArray] | None = None,
    ) -> None:
        count = len(sizes) if members is None else int(np.count_nonzero(members()))
        # 4 bytes a number.
        needed = 4 * count * len(store[first])
        if needed > MOST_BYTES:
            reason = (
                f"the cache of the models of {count} clients would take {needed / 2**30:.0f} GiB, more than the "
                f"{MOST_BYTES / 2**30:.0f} allowed; use fewer clients or a smaller network"
            )
            raise ParameterError("clients", count, reason)
        self._sizes, self._node, self._members = sizes, node, members
        self._store, self._first = store, store.hold(first)
        self._made = 0
        """Number of entries that were made so far."""
        self._entries: dict[int, ModelId] = {}
        """Entries that were replaced, by client; the others are `first`."""

    def renew(self, clients: IntArray, model: ModelId) -> None:
        """Replace the entries of `clients` (n,) by `model`."""
        for client in clients.tolist():
            self._replace(client, self._store.hold(model))

    def put(self, clients: IntArray, models: Tensor) -> None:
        """Replace the entries of `clients` (n,) by `models` (n, d). If a client occurs twice, its last model counts."""
        for client, model in zip(clients.tolist(), models, strict=True):
            self._replace(client, self._make(model.clone()))

    def _make(self, model: Tensor) -> ModelId:
        """Keep `model` (d,) in the store as a new entry, and return its id."""
        self._made += 1
        return self._store.put(ModelId(self._node, "entry", self._made), model)

    def shift(self, difference: Tensor) -> None:
        """Add `difference` (d,) to all entries. Entries that were the same model still are."""
        old_ids = [self._first, *(entry for _, entry in sorted(self._entries.items()))]
        new_id = {id: self._make(self._store[id] + difference) for id in dict.fromkeys(old_ids)}
        self._first = self._store.hold(new_id[self._first])
        self._entries = {client: self._store.hold(new_id[entry]) for client, entry in self._entries.items()}
        # `_make` holds each new entry once, beside the holds above.
        for id in [*old_ids, *new_id.values()]:
            self._store.release(id)

    def step(
        self, clients: IntArray, models: Tensor, *, held: BoolArray | None, renewed: IntArray | None, present: ModelId
    ) -> Tensor:
        """Replace entries, and return the step (d,) from the `present` model to the mean of the entries (SAFA, eq. 6 to 8).

        The order counts. First the entries of the clients `renewed` (j,; None: none) become the present model. Then the `models`
        (n, d) of the picked clients replace theirs, and the mean is taken. Last the models of the clients that are True in `held`
        (n,; None: none) replace theirs: they count from the next mean on. `clients` (n,): the client of each model.
        """
        if renewed is not None:
            self.renew(renewed, present)
        is_held = np.zeros(len(clients), np.bool_) if held is None else held
        picked_rows, held_rows = np.flatnonzero(~is_held), np.flatnonzero(is_held)
        self.put(clients[picked_rows], models[torch.from_numpy(picked_rows).to(models.device)])
        mean, model = self.mean(), self._store[present]
        self.put(clients[held_rows], models[torch.from_numpy(held_rows).to(models.device)])
        # If all members have gone to other nodes, the model stays.
        return torch.zeros_like(model) if mean is None else mean - model

    def _replace(self, client: int, entry: ModelId) -> None:
        """Replace the entry of `client` by `entry`, which the caller has held in the store, and release the old entry."""
        before = self._entries.get(client)
        self._entries[client] = entry
        if before is not None:
            self._store.release(before)

    def mean(self) -> Tensor | None:
        """Return the mean of all members' entries (d,), weighted by their shares of all samples; None without members."""
        sizes = self._sizes if self._members is None else self._sizes * self._members()
        if not sizes.any():
            return None
        clients = sorted(self._entries)
        shares: FloatArray = np.asarray(sizes[clients] / sizes.sum(), np.float64)
        ids = [self._first, *(self._entries[client] for client in clients)]
        # Clients without an entry of their own share the first model.
        share_of_first = 1.0 - shares.sum()
        return self._store.mix(ids, np.concatenate([[share_of_first], shares]))

    def state_dict(self) -> State:
        """Return the entries, and each distinct model once."""
        distinct = [self._first, *dict.fromkeys(entry for _, entry in sorted(self._entries.items()))]
        return {
            "made": self._made,
            "ids": [list(id) for id in distinct],
            "models": [self._store[id].cpu().numpy() for id in distinct],
            "entries": {client: list(entry) for client, entry in sorted(self._entries.items())},
        }

    def load_state_dict(self, state: State, device: torch.device) -> None:
        """Restore the entries, on `device`, and release those before."""
        old_entries = [self._first, *self._entries.values()]
        ids = [_saved_id(id) for id in state["ids"]]
        for id, model in zip(ids, state["models"], strict=True):
            self._store.put(id, torch.from_numpy(np.array(model, np.float32)).to(device))
        self._first, self._made = self._store.hold(ids[0]), int(state["made"])
        self._entries = {int(client): self._store.hold(_saved_id(entry)) for client, entry in state["entries"].items()}
        # `put` holds each id once, beside the holds of the entries.
        for id in [*old_entries, *dict.fromkeys(ids)]:
            self._store.release(id)


def _saved_id(saved: list[Any]) -> ModelId:
    """Return the id of a model from its saved form [node, kind, number]."""
    node, kind, number = saved
    return ModelId(int(node), kind, int(number))
