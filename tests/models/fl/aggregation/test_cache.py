"""The cache of SAFA's server: its mean by hand, and rounds of a learner beside a plain reference."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from models.errors import ParameterError
from models.fl.aggregation.cache import MOST_BYTES, ModelCache
from models.fl.store.models import SERVER, ModelId, ModelStore
from tests.helpers.learners import SIZES, deliver, make, model
from tests.helpers.random_worlds import copied

SHARES = np.array(SIZES) / sum(SIZES)


FIRST = ModelId(SERVER, "version", 0)
SECOND = ModelId(SERVER, "version", 1)


def cache_of(sizes: list[int], first: list[float]) -> tuple[ModelCache, ModelStore]:
    store = ModelStore()
    cache = ModelCache(sizes=np.array(sizes), first=store.put(FIRST, torch.tensor(first)), store=store)
    store.release(FIRST)
    return cache, store


def test_the_mean_counts_every_client_by_its_samples() -> None:
    cache, store = cache_of([1, 1, 2], [4.0, 0.0])
    assert cache.mean().tolist() == [4.0, 0.0]
    cache.put(np.array([2]), torch.tensor([[0.0, 2.0]]))
    assert cache.mean().tolist() == [2.0, 1.0]
    cache.renew(np.array([0, 1]), store.put(SECOND, torch.tensor([8.0, 8.0])))
    store.release(SECOND)
    assert cache.mean().tolist() == [4.0, 5.0]
    # One vector for both clients that were renewed, which goes with the last of them.
    assert len(store) == 3
    cache.put(np.array([0]), torch.tensor([[1.0, 1.0]]))
    assert SECOND in store
    cache.put(np.array([1]), torch.tensor([[1.0, 1.0]]))
    assert SECOND not in store


def test_an_entry_is_a_copy_and_its_state_goes_on() -> None:
    cache, store = cache_of([1, 3], [0.0])
    sent = torch.tensor([[1.0], [2.0]])
    cache.put(np.array([0, 1]), sent)
    sent.zero_()
    assert cache.mean().tolist() == [1.75]
    cache.renew(np.array([0]), store.put(SECOND, torch.tensor([5.0])))
    other, loaded = cache_of([1, 3], [1.0])
    other.load_state_dict(copied(cache.state_dict()), torch.device("cpu"))
    assert other.mean().tolist() == cache.mean().tolist() == [2.75]
    assert len(loaded) == 3


def test_entries_move_together_and_members_alone_count() -> None:
    store, here = ModelStore(), np.array([True, True, True])
    first = store.put(FIRST, torch.tensor([4.0]))
    cache = ModelCache(sizes=np.array([1, 1, 2]), first=first, store=store, members=lambda: here)
    store.release(first)
    cache.put(np.array([2]), torch.tensor([[0.0]]))
    cache.shift(torch.tensor([3.0]))
    # Two vectors: what clients 0 and 1 share, and that of client 2.
    assert (cache.mean().tolist(), len(store)) == ([5.0], 2)
    here[0] = False
    assert cache.mean().tolist() == pytest.approx([(7.0 + 2 * 3.0) / 3])
    here[:] = False
    assert cache.mean() is None


def test_a_cache_that_no_memory_holds_is_refused() -> None:
    clients = MOST_BYTES // (4 * 1000) + 1
    with pytest.raises(ParameterError, match="the cache of the models of"):
        cache_of([1] * clients, [0.0] * 1000)


# Of three rounds: who delivered, from which version, what of it was held back, and who was renewed.
ROUNDS: list[tuple[list[int], list[int], list[bool], list[int]]] = [
    ([0, 2, 3], [0, 0, 0], [False, True, False], []),
    ([1, 2], [0, 1], [False, True], [3]),
    ([3, 0], [1, 2], [False, False], []),
]


def _reference() -> list[np.ndarray[Any, np.dtype[np.float64]]]:
    """The models after each of `ROUNDS`, by the letter of the paper's three steps, of the updates that a learner without a cache
    makes of the same addresses."""
    twin = make(cached=True, versions_kept=9)
    models = [model(twin).astype(np.float64)]
    cache = [models[0]] * 4
    for number, (clients, versions, held, renewed) in enumerate(ROUNDS, start=1):
        told = replace(deliver(number, clients, np.array(versions)), held=np.array(held), renewed=np.array(renewed, np.int64))
        content = twin.aggregate(told, want_updates=True)
        assert content is not None
        assert content.updates is not None
        ends = [models[version] + update for version, update in zip(versions, content.updates, strict=True)]
        for client in renewed:
            cache[client] = models[-1]
        for client, end, later in zip(clients, ends, held, strict=True):
            if not later:
                cache[client] = end
        models.append(sum(share * entry for share, entry in zip(SHARES, cache, strict=True)))
        for client, end, later in zip(clients, ends, held, strict=True):
            if later:
                cache[client] = end
    return models


def test_rounds_are_those_of_a_plain_reference() -> None:
    expected = _reference()
    learner = make(cached=True, versions_kept=9)
    for number, (clients, versions, held, renewed) in enumerate(ROUNDS, start=1):
        told = replace(deliver(number, clients, np.array(versions)), held=np.array(held), renewed=np.array(renewed, np.int64))
        learner.aggregate(told, want_updates=False)
        np.testing.assert_allclose(model(learner), expected[number], atol=1e-6)
        assert learner.version == number
    # What was held back makes a model though nothing arrives.
    before = model(learner)
    late = replace(deliver(4, [1], 3), held=np.array([True]), renewed=np.zeros(0, np.int64))
    learner.aggregate(late, want_updates=False)
    np.testing.assert_allclose(model(learner), before, atol=1e-6)
    nothing = replace(deliver(5, [], 0), held=np.zeros(0, np.bool_), renewed=np.zeros(0, np.int64))
    learner.aggregate(nothing, want_updates=False)
    assert np.abs(model(learner) - before).max() > 1e-4


def test_everyone_picked_every_time_is_federated_averaging() -> None:
    cached, plain = make(cached=True), make()
    for number in range(1, 4):
        told = deliver(number, [0, 1, 2, 3], number - 1)
        plain.aggregate(told, want_updates=False)
        cached.aggregate(replace(told, held=np.zeros(4, np.bool_), renewed=np.zeros(0, np.int64)), want_updates=False)
    np.testing.assert_allclose(model(cached), model(plain), atol=1e-5)


def test_a_refused_update_leaves_its_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = make(cached=True)
    work = learner._work.content

    def spoiled(*args: Any, **named: Any) -> Any:
        computed = work(*args, **named)
        computed.content[0] = float("nan")
        return computed

    monkeypatch.setattr(learner._work, "content", spoiled)
    first = model(learner)
    learner.aggregate(replace(deliver(1, [2], 0), held=np.array([False]), renewed=None), want_updates=False)
    np.testing.assert_allclose(model(learner), first, atol=1e-7)
    assert learner.refused_updates == 1


def test_the_state_of_the_learner_holds_the_cache() -> None:
    first, second = make(cached=True, versions_kept=9), make(cached=True, versions_kept=9)
    for number, (clients, versions, held, renewed) in enumerate(ROUNDS, start=1):
        if number == 3:
            second.load_state_dict(copied(first.state_dict()))
        told = replace(deliver(number, clients, np.array(versions)), held=np.array(held), renewed=np.array(renewed, np.int64))
        first.aggregate(told, want_updates=False)
    second.aggregate(told, want_updates=False)
    np.testing.assert_array_equal(model(first), model(second))


def test_a_model_that_stays_is_added_up_alike_after_a_resume() -> None:
    first, second = (make(cached=True, keep="best", versions_kept=9) for _ in range(2))
    for number, renewed in enumerate([[], [1], [2]], start=1):
        if number == 3:
            second.load_state_dict(copied(first.state_dict()))
        told = replace(deliver(number, [0], number - 1), renewed=np.array(renewed, np.int64))
        first.aggregate(told, want_updates=False)
        first._best_loss = -1.0  # no model is better than the first one made
    second.aggregate(told, want_updates=False)
    assert first.state_dict()["cache"]["entries"] == second.state_dict()["cache"]["entries"]
    assert first.state_dict()["cache"]["entries"] == {
        0: [SERVER, "entry", 3],
        1: [SERVER, "version", 1],
        2: [SERVER, "version", 2],
    }
