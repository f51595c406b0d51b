"""Work that a share of clients does in part: by hand, by its law, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from models.errors import ParameterError
from models.laws.partial_work import PartialWork
from models.laws.work import Work
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
    assert work.asked(7, np.arange(4)).tolist() == [1 * 2, 2 * 3, 3 * 4, 4 * 1]
    assert work.asked(7, np.array([2, 0])).tolist() == [12, 2]
    assert work.amounts(np.array([1]), np.array([6])) == ([22], [6])
    assert work.samples.tolist() == [40, 44, 80, 12]
    # At most as many steps as the whole; who does a single pass does it.
    assert partial(4, 1.0, Told([0.9] * 4), max_steps=5).asked(1, np.arange(4)).tolist() == [5, 5, 5, 3]
    single = partial(np.array([1, 2, 3, 1]), 1.0, Told([0.99] * 4))
    assert single.asked(1, np.arange(4)).tolist() == [2, 3, 8, 1]


def test_a_share_does_a_uniform_number_of_passes() -> None:
    clients = np.arange(20_000)
    work = partial(5, 0.4, Streams(3)["partial-work"], held=[5] * len(clients))
    passes = np.bincount(work.asked(1, clients), minlength=6)[1:]
    expected = len(clients) * np.array([0.1, 0.1, 0.1, 0.1, 0.6])
    assert stats.chisquare(passes, expected).pvalue > 1e-3
    # Draws belong to client and round.
    assert (work.asked(1, clients[50:60]) == work.asked(1, clients)[50:60]).all()
    assert (work.asked(2, clients) != work.asked(1, clients)).any()


@pytest.mark.parametrize("named", [{"epochs": 1}, {"share": 1.5}])
def test_bad_values_are_refused(named: dict) -> None:
    with pytest.raises(ParameterError) as error:
        partial(**{"epochs": 3, "share": 0.5, "draws": Told([0.1] * 4), **named})
    assert error.value.name == "partial_share"


def test_passes_of_unknown_length_have_no_parts() -> None:
    work = Work(data_sizes=None, clients=2, batch_size=5, steps=4)
    with pytest.raises(ParameterError, match="data_sizes: must be given, for passes to have a length"):
        PartialWork(work=work, epochs=2, share=0.5, draws=Told([0.1] * 2))
