"""Work of an update: steps and samples by hand, against a count over the batches themselves, and the time they take."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.errors import ParameterError
from models.laws.noise import Constant, Gamma, LogNormal
from models.laws.work import SecondsPerSample, Times, Work

EVERYONE = np.arange(4)


def amounts(**given: Any) -> tuple[list[int], list[int]]:
    work = Work(clients=4, **{"data_sizes": np.array([10, 8, 1, 9])} | given)
    return work.amounts(EVERYONE)


def test_passes_and_steps_by_hand() -> None:
    # Batches of 4: 10 samples are 4 + 4 + 2, 8 are 4 + 4, 9 are 4 + 4 + 1.
    assert amounts(batch_size=4, epochs=2) == ([20, 16, 2, 18], [6, 4, 2, 6])
    # Four steps: 4 + 4 + 2 + 4; 4 + 4 + 4 + 4; four times 1; 4 + 4 + 1 + 4.
    assert amounts(batch_size=4, steps=4) == ([14, 16, 4, 13], [4, 4, 4, 4])
    assert amounts(batch_size=4, epochs=2, max_steps=5) == ([18, 16, 2, 17], [5, 4, 2, 5])
    # Epochs and batches of each client's own.
    own = amounts(batch_size=np.array([4, 3, 2, 9]), epochs=np.array([1, 2, 3, 1]))
    assert own == ([10, 16, 3, 9], [3, 6, 3, 1])
    # All samples in one batch.
    assert amounts(epochs=3) == ([30, 24, 3, 27], [3, 3, 3, 3])
    # Nobody says how many samples clients hold: all batches are full.
    assert amounts(data_sizes=None, batch_size=4, steps=np.array([1, 2, 3, 4])) == ([4, 8, 12, 16], [1, 2, 3, 4])


def test_batches_of_a_single_sample_are_left_out_where_the_network_cannot_take_them() -> None:
    # 10 = 4 + 4 + 2; 8 = 4 + 4; 1 is left out; 9 = 4 + 4, and 1 left out.
    assert amounts(batch_size=4, epochs=2, single=False) == ([20, 16, 0, 16], [6, 4, 0, 4])
    # Of 5 steps client 3 takes 4 + 4, none, 4 + 4.
    assert amounts(batch_size=4, steps=5, single=False) == ([18, 20, 0, 16], [5, 5, 0, 4])
    assert amounts(batch_size=1, steps=5, single=False) == ([0] * 4, [0] * 4)


def test_an_update_may_be_asked_for_other_steps_than_planned() -> None:
    work = Work(clients=4, data_sizes=np.array([10, 8, 1, 9]), batch_size=4, epochs=2)
    assert work.amounts(np.array([3, 0]), np.array([1, 3])) == ([4, 10], [1, 3])
    assert work.drawn.tolist() == [6, 4, 2, 6]


@given(
    held=st.integers(1, 40), batch=st.integers(1, 12), steps=st.integers(1, 50), single=st.booleans(), passes=st.integers(1, 4)
)
def test_as_many_as_a_plain_loop_over_the_batches_counts(held: int, batch: int, steps: int, single: bool, passes: int) -> None:
    an_epoch = [min(batch, held - start) for start in range(0, held, batch)]

    def counted(drawn: list[int]) -> tuple[list[int], list[int]]:
        done = [size for size in drawn if single or size > 1]
        return [sum(done)], [len(done)]

    given: dict[str, Any] = {"data_sizes": np.array([held]), "clients": 1, "batch_size": batch, "single": single}
    assert Work(**given, steps=steps).amounts(np.array([0])) == counted((an_epoch * steps)[:steps])
    assert Work(**given, epochs=passes).amounts(np.array([0])) == counted(an_epoch * passes)
    assert Work(**given, epochs=passes, max_steps=steps).amounts(np.array([0])) == counted((an_epoch * passes)[:steps])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"batch_size": 0}, "batch_size = 0: must be a whole number >= 1"),
        ({"epochs": np.array([1, 2, 0, 1])}, "epochs = 0 for client 2: must be a whole number >= 1"),
        ({"steps": np.array([1, 2, 1.5, 1])}, "steps = 1.5 for client 2: must be a whole number >= 1"),
        ({"data_sizes": np.array([1, 2, -1, 1])}, "data_sizes = -1 for client 2: must be a whole number >= 1"),
        ({"data_sizes": None, "batch_size": 4}, "epochs = 1: need the number of samples that clients hold"),
        ({"data_sizes": None, "steps": 4}, "batch_size = None: must be given if the samples"),
        ({"batch_size": 2**30, "steps": 2**30, "data_sizes": None}, f"steps = {2**60}: are too many samples"),
    ],
)
def test_work_that_cannot_be_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match="^" + re.escape(message)):
        amounts(**given)


NOISES = {
    "constant": (Constant(), 0.0),
    "log-normal": (LogNormal(sigma=0.5), math.expm1(0.25)),
    "gamma": (Gamma(shape=4.0), 0.25),
    "gamma, wide": (Gamma(shape=0.5), 2.0),
}


@pytest.mark.parametrize("name", NOISES)
def test_noise_has_mean_one_and_its_variance(name: str) -> None:
    noise, variance = NOISES[name]
    u = (np.arange(1 << 20) + 0.5) / (1 << 20)
    drawn = noise.quantile(u, np.zeros(len(u), np.int64))
    assert drawn.mean() == pytest.approx(1.0, abs=1e-5)
    assert drawn.var() == pytest.approx(variance, rel=5e-3, abs=1e-12)
    assert (np.diff(drawn) >= 0).all()
    ends = noise.quantile(np.array([0.0, 1.0 - 2.0**-53]), np.zeros(2, np.int64))
    assert np.isfinite(ends).all()
    assert (ends >= 0).all()
    assert noise.constant is (variance == 0.0)


def test_noise_of_each_client() -> None:
    noise = LogNormal(sigma=np.array([0.0, 1.0]))
    assert not noise.constant
    assert noise.quantile(np.array([0.9, 0.5]), np.array([0, 1])).tolist() == [1.0, pytest.approx(math.exp(-0.5))]
    assert LogNormal(sigma=0.0).constant
    with pytest.raises(ParameterError, match=r"^shape = 0.0: "):
        Gamma(shape=0.0)


def test_the_time_of_samples() -> None:
    law = SecondsPerSample(seconds_per_sample=np.array([0.5, 0.25, 0.0, 1.0]), noise=Gamma(shape=2.0))
    times = Times(counts=np.array([10, 20, 30, 0]), law=law)
    assert times.mean_s(EVERYONE).tolist() == [5.0, 5.0, 0.0, 0.0]
    u = np.array([0.1, 0.9, 0.5, 0.5])
    factors = Gamma(shape=2.0).quantile(u, EVERYONE)
    assert times.quantile(u, EVERYONE) == pytest.approx([5 * factors[0], 5 * factors[1], 0.0, 0.0])
    assert (law.constant, times.constant) == (False, False)
    steady = SecondsPerSample(seconds_per_sample=0.5, noise=Constant())
    assert (steady.constant, Times(counts=np.array([2, 4]), law=steady).mean_s(np.arange(2)).tolist()) == (True, [1.0, 2.0])
