"""The cache of SAFA: the last model of every client that the server has, of which the model of a round is the mean.

Wu, He, Lin, Mao, Maple and Jarvis, "SAFA: a semi-asynchronous protocol for fast federated learning with low overhead", IEEE
Trans. Computers 70(5), 2021, eq. 6 to 8: before the aggregation the entries of the picked are replaced by their updates and those
of the deprecated by the model of the round before; after it, the entries of what arrived and was not picked by theirs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.errors import ParameterError

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
MOST_BYTES = 16 * 2**30
"""Of the entries of all clients, once each has its own."""


class ModelCache:
    """An entry for every client, `first` (d,) at the beginning, and their mean weighted by `sizes` (K,), samples.

    Entries that are the same model share its memory: what is kept grows with the clients that have delivered. Raises ValueError
    where the entries of all of them would take more than `MOST_BYTES`.
    """

    def __init__(self, *, sizes: IntArray, first: Tensor) -> None:
        needed = len(sizes) * len(first) * 4
        if needed > MOST_BYTES:
            reason = (
                f"the cache of the models of {len(sizes)} clients would take {needed / 2**30:.0f} GiB, more than the "
                f"{MOST_BYTES / 2**30:.0f} allowed; use fewer clients or a smaller network"
            )
            raise ParameterError("clients", len(sizes), reason)
        self._shares: FloatArray = np.asarray(sizes / sizes.sum(), np.float64)
        self._first = first
        self._entries: dict[int, Tensor] = {}

    def renew(self, clients: IntArray, model: Tensor) -> None:
        """Give the entries of `clients` (n,) up for `model` (d,)."""
        self._entries |= dict.fromkeys(clients.tolist(), model)

    def put(self, clients: IntArray, models: Tensor) -> None:
        """Replace the entries of `clients` (n,) by `models` (n, d), of each client the last."""
        for client, model in zip(clients.tolist(), models, strict=True):
            self._entries[client] = model.clone()

    def mean(self) -> Tensor:
        """The mean of all entries (d,), each weighted by its client's share of all samples."""
        weights: dict[int, float] = {}
        entries: dict[int, Tensor] = {}
        for client, entry in sorted(self._entries.items()):
            weights[id(entry)] = weights.get(id(entry), 0.0) + float(self._shares[client])
            entries[id(entry)] = entry
        # In 64 bits: hundreds of terms that differ little from each other.
        rest = 1.0 - float(self._shares[sorted(self._entries)].sum())
        total = self._first.double() * rest
        for key, entry in entries.items():
            total.add_(entry.double(), alpha=weights[key])
        return total.to(self._first.dtype)

    def state_dict(self) -> dict[str, Any]:
        """The entries, those that are the same model once."""
        different = {id(entry): entry for _, entry in sorted(self._entries.items())}
        places = {key: place for place, key in enumerate(different)}
        return {
            "first": self._first.cpu().numpy().copy(),
            "models": [entry.cpu().numpy().copy() for entry in different.values()],
            "entries": {client: places[id(entry)] for client, entry in sorted(self._entries.items())},
        }

    def load_state_dict(self, state: dict[str, Any], device: torch.device) -> None:
        """Take over a state."""
        models = [torch.from_numpy(np.array(model, np.float32)).to(device) for model in state["models"]]
        self._first = torch.from_numpy(np.array(state["first"], np.float32)).to(device)
        self._entries = {int(client): models[place] for client, place in state["entries"].items()}
