"""Versions of a node's model from which updates in flight started."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from models.errors import ParameterError
from models.fl.store.models import SERVER, ModelId, ModelStore
from netsim.core.state import State


class Versions:
    """Versions of the model of `node` in `store`: the newest `kept` ones, and those that a holder needs.

    Memory grows with the clients in flight, not with the rounds. An engine whose updates may start from older versions calls
    `retain` after every aggregation with all versions in use. Between two calls clients may be sent the newest version, of which
    only the engine knows: `kept` >= 2 keeps it until the next call.
    """

    def __init__(self, *, first: Tensor, kept: int, store: ModelStore, node: int = SERVER) -> None:
        if kept < 1:
            raise ParameterError("versions_kept", kept, "must be >= 1")
        self.newest = 0
        self.store, self._node, self._kept = store, node, kept
        self._recent = [store.put(self.id(0), first)]
        """Ids of the newest versions, ascending; each is held once in the store."""
        self._held: dict[str, dict[int, ModelId]] = {}
        """Ids of versions that each holder needs, by number."""

    def id(self, version: int) -> ModelId:
        """Return the id of a version."""
        return ModelId(self._node, "version", version)

    @property
    def model(self) -> Tensor:
        """Present model (d,)."""
        return self.store[self.id(self.newest)]

    def __getitem__(self, version: int) -> Tensor:
        return self.store[self.start(version)]

    def start(self, version: int) -> ModelId:
        """Return the id of the version from which an update starts; raises ParameterError if it is no longer kept."""
        id = self.id(version)
        if id not in self.store:
            reason = (
                f"an update starts from version {version}, but only {self.kept} are kept; retain what is in use, or "
                "raise versions_kept"
            )
            raise ParameterError("versions", version, reason, shown="")
        return id

    @property
    def kept(self) -> list[int]:
        """Numbers of the newest versions, and of versions that holders need, ascending."""
        numbers = {id.number for id in self._recent}
        for held_versions in self._held.values():
            numbers.update(held_versions)
        return sorted(numbers)

    def push(self, model: Tensor) -> None:
        """Make `model` (d,) the newest version, and release the oldest of the `kept` newest ones."""
        self.newest += 1
        self._recent.append(self.store.put(self.id(self.newest), model))
        while len(self._recent) > self._kept:
            self.store.release(self._recent.pop(0))

    def retain(self, versions: Iterable[int], *, holder: str) -> None:
        """Keep the `versions` that `holder` ("engine", "buffer") needs from now on; release those that it needed before.

        Raises:
            ParameterError: a version is no longer kept.
        """
        held_before, needed = self._held.get(holder, {}), sorted(set(versions))
        # Check all before any is held.
        for version in needed:
            self.start(version)
        self._held[holder] = {version: self.store.hold(self.id(version)) for version in needed}
        # Release after holding: a version that is still needed must not be dropped in between.
        for id in held_before.values():
            self.store.release(id)

    def state_dict(self) -> State:
        """Return the kept versions with their models, and which holder needs which."""
        return {
            "versions": self.kept,
            # Not one array, nor copies: models beyond the store's memory are on disk, and a checkpoint writes them one by one.
            "models": [self[version].cpu().numpy() for version in self.kept],
            "held": {holder: list(versions) for holder, versions in self._held.items()},
        }

    def load_state_dict(self, state: State) -> None:
        """Restore a state in place of the present versions.

        Raises:
            ParameterError: the state is of a network of another size.
        """
        models, size, device = state["models"], len(self.model), self.model.device
        if len(models[0]) != size:
            raise ParameterError("models", (len(models), len(models[0])), f"this network has {size} numbers")
        old_ids = list(self._recent)
        for held_versions in self._held.values():
            old_ids += held_versions.values()
        loaded = [int(version) for version in state["versions"]]
        loaded_ids = [self.id(version) for version in loaded]
        self.newest = max(loaded)
        for id, model in zip(loaded_ids, models, strict=True):
            self.store.put(id, torch.from_numpy(np.array(model, np.float32)).to(device))
        recent = [version for version in sorted(loaded) if version > self.newest - self._kept]
        self._recent = [self.store.hold(self.id(version)) for version in recent]
        self._held = {}
        for holder, versions in state["held"].items():
            self._held[str(holder)] = {version: self.store.hold(self.id(version)) for version in versions}
        # The store keeps a model as long as it is held. `put` holds each loaded one once more than is needed.
        for id in [*old_ids, *loaded_ids]:
            self.store.release(id)
