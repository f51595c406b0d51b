"""A model for each client in one store: jobs start from any node's model, and models are mixed by rows of weights."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from models.fl.learners import peer_learner
from models.fl.learners.peer_learner import _mix, _Mixture
from models.fl.store.models import ModelId, ModelStore
from models.fl.training.local_work import Update
from tests.helpers.learners import deliver, make, model

CLIENTS = [0, 1, 2, 3]


def version(client: int, number: int) -> ModelId:
    return ModelId(client, "version", number)


def trained(learner: Any, store: ModelStore, round: int, clients: list[int]) -> list[ModelId]:
    """The ids of what `clients` end with after local training from their own models of the round before."""
    updates = [Update(client, round, version(client, round - 1), math.inf) for client in clients]
    computed = learner._work.content(updates, store)
    models = computed.starts + computed.content
    return [store.put(ModelId(client, "trained", round), row) for client, row in zip(clients, models, strict=True)]


def mixed(store: ModelStore, ids: list[ModelId], weights: np.ndarray, round: int) -> np.ndarray:
    """Models (n, d) of `round`: each client's is the sum of those of `ids`, times its row of `weights` (n, n)."""
    for client, row in zip(CLIENTS, weights, strict=True):
        store.put(version(client, round), store.mix(ids, row))
    return np.stack([store[version(client, round)].numpy() for client in CLIENTS])


def started() -> tuple[Any, ModelStore]:
    learner, store = make(), ModelStore()
    for client in CLIENTS:
        store.put(version(client, 0), torch.from_numpy(model(learner)))
    return learner, store


def test_rows_of_one_mean_are_federated_averaging() -> None:
    learner, store = started()
    sizes = learner.data_sizes[CLIENTS]
    averaged = make()
    for round in (1, 2):
        after = mixed(store, trained(learner, store, round, CLIENTS), np.tile(sizes / sizes.sum(), (4, 1)), round)
        averaged.aggregate(deliver(round, CLIENTS, round - 1), False)
        np.testing.assert_allclose(after, np.tile(model(averaged), (4, 1)), atol=1e-5)


def test_a_ring_of_models_is_the_recursion_of_its_weights() -> None:
    ring = (np.eye(4) + np.roll(np.eye(4), 1, 0) + np.roll(np.eye(4), -1, 0)) / 3
    learner, store = started()
    for round in (1, 2, 3):
        ids = trained(learner, store, round, CLIENTS)
        # Each client alone ends with the same model, up to the order of sums.
        alone, apart = make(), ModelStore()
        for client in CLIENTS:
            apart.put(version(client, round - 1), store[version(client, round - 1)])
            one = trained(alone, apart, round, [client])[0]
            np.testing.assert_allclose(apart[one], store[one], atol=1e-5)
        before = np.stack([store[id].numpy() for id in ids]).astype(np.float64)
        after = mixed(store, ids, ring, round)
        np.testing.assert_allclose(after, ring @ before, atol=1e-6)
        np.testing.assert_allclose(after.mean(0), before.mean(0), atol=1e-6)
        assert np.abs(after - after.mean(0)).max() > 1e-4


@pytest.mark.parametrize("neighbours", [3, 40])
@pytest.mark.parametrize("at_once", [2**21, 100])
def test_few_and_many_neighbours_are_mixed_alike_in_blocks_and_a_model_may_come_twice(
    neighbours: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_learner, "_CHUNK_NUMBERS", at_once)
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((40, 7)).astype(np.float32)
    # Mixtures have different numbers of models, and the last one names its first model twice.
    drawn = [rng.permutation(40)[: neighbours - peer % 2] for peer in range(40)]
    drawn[-1] = np.append(drawn[-1], drawn[-1][0])
    mixtures = [_Mixture(tuple(own.tolist()), tuple(rng.random(len(own)).tolist())) for own in drawn]
    expected = [sum(w * rows[m].astype(float) for m, w in zip(*mixture, strict=True)) for mixture in mixtures]
    mixed = _mix(mixtures, lambda number: torch.from_numpy(rows[number]))
    np.testing.assert_allclose(mixed.numpy(), np.array(expected, np.float32), rtol=1e-6)
