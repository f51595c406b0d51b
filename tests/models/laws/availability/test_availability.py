"""Presence by Markov processes: by hand, against the theory of the on-off process, and independence of who looks when."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from models.laws.availability.presence import Always, Markov
from netsim.core.streams import Stream


class Table:
    """Draws written out: `rows[index][entity]`."""

    def __init__(self, rows: list[list[float]]) -> None:
        self.rows = np.array(rows)

    def uniforms_at(self, index: int, entities: Any, size: int) -> Any:
        return self.rows[index][entities]


def stream() -> Stream:
    return Stream(seed=17, name="presence")


def test_always() -> None:
    law = Always(clients=3)
    law.advance(1e9, stream())
    assert law.on.tolist() == [True] * 3
    assert law.next_change_s.tolist() == [math.inf] * 3
    law.load_state_dict(law.state_dict())


def test_markov_by_hand() -> None:
    # u = 1 - 1/e makes an exponential sojourn equal to its mean.
    m = 1 - math.exp(-1)
    h = 1 - math.exp(-0.5)
    law = Markov(clients=2, mean_on_s=np.array([3.0, 1.0]), mean_off_s=1.0)
    # Present at 0 with probability 3/4 and 1/2: client 0 is, client 1 is not.
    draws = Table([[0.74, 0.5], [m, m], [h, m], [m, m], [m, m]])
    assert law.next_change_s.tolist() == [0.0, 0.0]
    law.advance(0.0, draws)
    assert law.on.tolist() == [True, False]
    np.testing.assert_allclose(law.next_change_s, [3.0, 1.0])
    law.advance(2.5, draws)  # client 1 came at 1, left at 2
    assert law.on.tolist() == [True, False]
    np.testing.assert_allclose(law.next_change_s, [3.0, 3.0])
    due = float(law.next_change_s[0])
    law.advance(due, draws)  # a change at exactly now has happened
    assert not law.on[0]
    np.testing.assert_allclose(law.next_change_s[0], 3.5)
    started_on = Markov(clients=2, mean_on_s=3.0, mean_off_s=1.0, start="on")
    started_on.advance(0.0, draws)
    assert started_on.on.tolist() == [True, True]


@pytest.mark.parametrize("start", ["stationary", "on"])
def test_one_leap_equals_many_steps(start: Any) -> None:
    clients = 400
    rng = np.random.default_rng(0)
    make = lambda: Markov(clients=clients, mean_on_s=np.linspace(0.5, 9, clients), mean_off_s=2.0, start=start)  # noqa: E731
    leap, steps = make(), make()
    for now in np.sort(rng.uniform(0, 100, 300)):
        steps.advance(float(now), stream())
    steps.advance(100.0, stream())
    leap.advance(100.0, stream())
    np.testing.assert_array_equal(leap.on, steps.on)
    np.testing.assert_array_equal(leap.next_change_s, steps.next_change_s)
    assert (leap.next_change_s > 100.0).all()


def test_more_clients_change_nobodys_presence() -> None:
    few, many = (Markov(clients=k, mean_on_s=1.0, mean_off_s=1.0) for k in (10, 5000))
    for now in (0.0, 3.0, 50.0):
        few.advance(now, stream())
        many.advance(now, stream())
        np.testing.assert_array_equal(few.on, many.on[:10])
        np.testing.assert_array_equal(few.next_change_s, many.next_change_s[:10])


def test_share_present_and_sojourns_follow_the_law() -> None:
    clients = 20_000
    law = Markov(clients=clients, mean_on_s=3.0, mean_off_s=1.0)
    for now in (0.0, 0.7, 40.0):
        law.advance(now, stream())
        # 4.4 deviations of a binomial share: probability 1e-5.
        assert abs(law.on.mean() - 0.75) < 4.4 * math.sqrt(0.75 * 0.25 / clients)
        # Memorylessness: what is left of a sojourn is exponential with the mean of the state, at any time.
        for state, mean in ((True, 3.0), (False, 1.0)):
            left = law.next_change_s[law.on == state] - now
            assert stats.kstest(left, stats.expon(scale=mean).cdf).pvalue > 1e-4


def test_starting_on_relaxes_as_the_chain_does() -> None:
    clients, now = 20_000, 0.4
    law = Markov(clients=clients, mean_on_s=3.0, mean_off_s=1.0, start="on")
    law.advance(now, stream())
    # P(on at t | on at 0) = pi + (1 - pi) exp(-(1/3 + 1) t).
    expected = 0.75 + 0.25 * math.exp(-4 / 3 * now)
    assert abs(law.on.mean() - expected) < 4.4 * math.sqrt(expected * (1 - expected) / clients)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Always(clients=0), r"^clients = 0"),
        (
            lambda: Markov(clients=2, mean_on_s=0.0, mean_off_s=1.0),
            r"^mean_on_s = 0.0: must be finite and in \[1e-06, 1e\+300\] seconds",
        ),
        (lambda: Markov(clients=2, mean_on_s=1.0, mean_off_s=math.inf), r"^mean_off_s = inf"),
        (lambda: Markov(clients=2, mean_on_s=np.ones(3), mean_off_s=1.0), r"^mean_on_s has 3 entries: must have 2"),
        (lambda: Markov(clients=2, mean_on_s=1.0, mean_off_s=1.0, start="off"), r"^start = 'off'"),  # type: ignore[arg-type]
    ],
)
def test_bad_values_are_refused_by_name(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
