"""Work that a share of clients does in part: by hand, by its law, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from models.errors import ParameterError
from models.laws import noise as noises
from models.laws.changes import Unchanging
from models.laws.delays import Constant
from models.laws.expectations import Truth
from models.laws.partial_work import PartialWork
from models.laws.work import Mixture, SecondsPerSample, Times, Work
from netsim.core.streams import Streams


class Told:
    """Draws that are written out."""

    def __init__(self, u: list[float]) -> None:
        self._u = np.array(u)

    def uniforms_at(self, index: int, entities: np.ndarray, size: int) -> np.ndarray:
        return self._u[entities]


def partial(epochs, share, draws, held=(10, 11, 20, 3), **named) -> PartialWork:
    sizes = np.array(held)
    asked = np.broadcast_to(np.array(epochs), sizes.shape)
    work = Work(data_sizes=sizes, clients=len(sizes), batch_size=5, epochs=asked, **named)
    return PartialWork(work=work, epochs=epochs, share=share, draws=draws)


def test_partial_work_by_hand() -> None:
    # Passes of 2, 3, 4 and 1 steps. Below a share of 0.5: 1 + floor(u/0.5 x 3) of 4 passes, else all 4.
    work = partial(4, 0.5, Told([0.0, 0.3, 0.499, 0.5]))
    assert work.plan_steps(7, np.arange(4)).tolist() == [1 * 2, 2 * 3, 3 * 4, 4 * 1]
    assert work.plan_steps(7, np.array([2, 0])).tolist() == [12, 2]
    assert work.amounts(np.array([1]), np.array([6])) == ([22], [6])
    assert work.samples.tolist() == [40, 44, 80, 12]
    # At most as many steps as the whole; who does a single pass does it.
    assert partial(4, 1.0, Told([0.9] * 4), max_steps=5).plan_steps(1, np.arange(4)).tolist() == [5, 5, 5, 3]
    single = partial(np.array([1, 2, 3, 1]), 1.0, Told([0.99] * 4))
    assert single.plan_steps(1, np.arange(4)).tolist() == [2, 3, 8, 1]


def test_a_share_does_a_uniform_number_of_passes() -> None:
    clients = np.arange(20_000)
    work = partial(5, 0.4, Streams(3)["partial-work"], held=[5] * len(clients))
    passes = np.bincount(work.plan_steps(1, clients), minlength=6)[1:]
    expected = len(clients) * np.array([0.1, 0.1, 0.1, 0.1, 0.6])
    assert stats.chisquare(passes, expected).pvalue > 1e-3
    # Draws belong to client and round.
    assert (work.plan_steps(1, clients[50:60]) == work.plan_steps(1, clients)[50:60]).all()
    assert (work.plan_steps(2, clients) != work.plan_steps(1, clients)).any()


def test_amounts_of_work_with_their_probabilities() -> None:
    # Passes of 10, 11, 20 and 3 samples; the third client does two passes, the last one only one.
    work = partial(np.array([4, 4, 2, 1]), 0.6, Told([0.0] * 4))
    amounts = [work.likely_amount(passes + 1) for passes in range(work.amounts_asked)]
    shares, samples = (np.array(column) for column in zip(*amounts, strict=True))
    np.testing.assert_allclose(shares, [[0.2, 0.2, 0.6, 0], [0.2, 0.2, 0, 0], [0.2, 0.2, 0, 0], [0.4, 0.4, 0.4, 1]])
    assert samples[:, 0].tolist() == [10, 20, 30, 40]
    assert samples[[0, 3], 2].tolist() == [20, 40]


def mixture(noise: Any = None) -> tuple[PartialWork, Mixture]:
    work = partial(3, 0.5, Told([0.0] * 4))
    law = SecondsPerSample(seconds_per_sample=0.1, noise=noise or noises.Constant())
    amounts = [work.likely_amount(passes + 1) for passes in range(work.amounts_asked)]
    return work, Mixture(parts=[(shares, Times(counts=samples, law=law)) for shares, samples in amounts])


def test_a_mixture_draws_each_law_by_its_probability() -> None:
    _, law = mixture()
    u = np.array([0.0, 0.24, 0.25, 0.49, 0.5, 1.0 - 2.0**-53])
    np.testing.assert_allclose(law.quantile(u, np.zeros(6, np.int64)), [1.0, 1.0, 2.0, 2.0, 3.0, 3.0])
    np.testing.assert_allclose(law.mean_s(np.arange(2)), [2.25, 2.25 * 1.1])


@pytest.mark.parametrize("noise", [None, noises.LogNormal(sigma=0.5)])
def test_expectations_under_a_mixture_are_those_of_many_draws(noise: Any) -> None:
    _, law = mixture(noise)
    truth = Truth(phases=[Unchanging(law), Unchanging(Constant(value_s=0.5))], clients=4)
    everyone, draws = np.arange(4), 200_000
    u = np.random.default_rng(5).random((4, draws))
    latency_s = 0.5 + np.array([law.quantile(u[k], np.full(draws, k)) for k in everyone])
    assert truth.mean_latency_s(1, 0.0) == pytest.approx(latency_s.mean(axis=1), rel=5e-3)
    assert truth.mean_ratio(0.7, 1, 0.0) == pytest.approx(np.minimum(1.0, 0.7 / latency_s).mean(axis=1), rel=5e-3)
    assert truth.round_s(everyone, 1, 0.0) == pytest.approx(latency_s.max(axis=0).mean(), rel=5e-3)


@pytest.mark.parametrize("named", [{"epochs": 1}, {"share": 1.5}])
def test_bad_values_are_refused(named: dict) -> None:
    with pytest.raises(ParameterError) as error:
        partial(**{"epochs": 3, "share": 0.5, "draws": Told([0.1] * 4), **named})
    assert error.value.name == "partial_share"


def test_passes_of_unknown_length_have_no_parts() -> None:
    work = Work(data_sizes=None, clients=2, batch_size=5, steps=4)
    with pytest.raises(ParameterError, match="data_sizes: must be given, for passes to have a length"):
        PartialWork(work=work, epochs=2, share=0.5, draws=Told([0.1] * 2))
