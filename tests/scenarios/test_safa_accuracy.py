"""The components of SAFA's accuracies: who trains how much in which round, shards, and the network."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from models.errors import ParameterError
from models.fl.networks import cnn
from netsim.core.protocols import RoundView, Selection
from scenarios.library.validation.safa_accuracy import Crashing, normal_sizes


def view(number: int, seed: int = 1) -> RoundView:
    nobody = np.zeros(6, np.int64)
    return RoundView(number, 0.0, np.ones(6, np.bool_), nobody, np.random.default_rng(seed))


def test_in_the_first_round_everyone_trains_and_then_those_picked_that_do_not_crash() -> None:
    # 80 samples are two batches, 81 are three.
    policy = Crashing(per_round=6, data_sizes=np.array([80, 80, 80, 81, 81, 81]), picked=3, crash=0.0)
    first = policy.select(view(1))
    assert isinstance(first, Selection)
    assert first.clients.tolist() == list(range(6))
    batches = np.array([2, 2, 2, 3, 3, 3])
    assert sorted((first.steps / batches).tolist()) == [1, 1, 1, 5, 5, 5]
    later = policy.select(view(2))
    assert isinstance(later, Selection)
    assert len(later.clients) == 3
    assert (later.steps == 5 * batches[later.clients]).all()
    nobody = Crashing(per_round=6, data_sizes=np.full(6, 80), picked=3, crash=1.0).select(view(2))
    assert not isinstance(nobody, Selection)
    assert len(nobody) == 0


def test_crashes_are_as_likely_as_said() -> None:
    policy: Any = Crashing(per_round=6, data_sizes=np.full(6, 80), picked=5, crash=0.3)
    drawn = [policy.select(view(2, seed)) for seed in range(400)]
    works = sum(len(one.clients) if isinstance(one, Selection) else 0 for one in drawn)
    # Of 2,000 drawn 1,400 are expected, with a standard deviation of 20.5.
    assert works == pytest.approx(1400, abs=82)


def test_shards_are_disjoint_and_spread() -> None:
    parts = normal_sizes(np.zeros(60_000, np.int64), clients=100, generator=np.random.default_rng(2))
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(60_000))
    sizes = np.array([len(part) for part in parts])
    assert sizes.min() >= 40
    assert sizes.std() == pytest.approx(180, abs=40)
    with pytest.raises(ParameterError, match="minimum = 40"):
        normal_sizes(np.zeros(1000, np.int64), clients=10, generator=np.random.default_rng(1))


def test_the_network_has_the_published_layers() -> None:
    module = cnn((1, 28, 28), 10, seed=1, channels=[20, 50], hidden=500, kernel=5, padding=0)
    sizes = [tuple(parameter.shape) for parameter in module.parameters() if parameter.ndim > 1]
    assert sizes == [(20, 1, 5, 5), (50, 20, 5, 5), (500, 800), (10, 500)]
    with pytest.raises(ParameterError, match=r"network\.padding"):
        cnn((1, 8, 8), 10, seed=1, channels=[4, 4, 4], kernel=5, padding=0)
    with pytest.raises(ParameterError, match=r"network\.kernel"):
        cnn((1, 28, 28), 10, seed=1, kernel=4)
