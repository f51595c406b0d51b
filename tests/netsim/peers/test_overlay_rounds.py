"""Rounds over an overlay: by hand, and against the recursion that defines them."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from netsim.core.clock import Clock
from netsim.peers.overlay_rounds import OverlayRounds, Pair, mean_round_s


def begins(
    count: int, arcs_of: Sequence[Sequence[Pair]], times_s: Sequence[Sequence[float]], waiting: str, rounds: int
) -> list[list[float]]:
    """Return when each node begins each round; arcs and times repeat, and work takes 1 s."""
    clock = Clock()
    period = len(arcs_of)
    it = OverlayRounds(
        clock=clock,
        count=count,
        work_s=1.0,
        arcs_of=lambda round: arcs_of[round % period],
        carry=lambda round, places, arrived: clock.call_in(
            max(times_s[round % period][place] for place in places), lambda _: arrived()
        ),
        waiting=waiting,  # type: ignore[arg-type]
    )
    it.run(rounds)
    return [row.tolist() for row in it.begins[:rounds]]


def test_a_pair_by_hand() -> None:
    # Node 1 hears of 0 at 1 + 2 s; node 0 of 1 at 1 + 4 s, and begins round 1 then; 1 has begun it at 3 s.
    assert begins(2, [[(0, 1), (1, 0)]], [[2.0, 4.0]], "neighbours", 3) == [[0.0, 0.0], [5.0, 3.0], [8.0, 8.0]]
    assert begins(2, [[(0, 1), (1, 0)]], [[2.0, 4.0]], "all", 3) == [[0.0, 0.0], [5.0, 5.0], [10.0, 10.0]]
    # The centre sends (2 s), the other works (1 s) and answers (4 s).
    assert begins(2, [[(0, 1), (1, 0)]], [[2.0, 4.0]], "centre", 3) == [[0.0, 0.0], [7.0, 7.0], [14.0, 14.0]]


def test_where_all_wait_for_all_the_slowest_message_ends_the_round() -> None:
    """Node 0 sends to both others, node 2 to nobody: 1 s of work and the slowest of 2, 7 and 4 s; without messages work alone."""
    arcs = [(0, 1), (0, 2), (1, 0)]
    assert begins(3, [arcs, []], [[2.0, 7.0, 4.0], []], "all", 4) == [[0.0] * 3, [8.0] * 3, [9.0] * 3, [17.0] * 3]


@pytest.mark.parametrize("seed", range(20))
def test_against_the_recursion(seed: int) -> None:
    """t_j(k + 1) = max over j and its in-neighbours i in round k of t_i(k) + work + message (i, j)."""
    rng = random.Random(seed)
    count, period = rng.randint(1, 6), rng.randint(1, 3)
    pairs = [(a, b) for a in range(count) for b in range(count) if a != b]
    arcs_of = [rng.sample(pairs, rng.randint(0, len(pairs))) for _ in range(period)]
    times_s = [[rng.uniform(0.1, 5.0) for _ in arcs] for arcs in arcs_of]
    expected = [[0.0] * count]
    for round in range(15):
        last = expected[-1]
        following = [time + 1.0 for time in last]
        for (a, b), message_s in zip(arcs_of[round % period], times_s[round % period], strict=True):
            following[b] = max(following[b], last[a] + 1.0 + message_s)
        expected.append(following)
    got = begins(count, arcs_of, times_s, "neighbours", 16)
    assert np.array(got) == pytest.approx(np.array(expected), rel=1e-12)


def test_the_mean_of_rounds_that_repeat() -> None:
    rows = [np.array([0.0, 0.0]), np.array([5.0, 3.0]), np.array([8.0, 8.0]), np.array([13.0, 11.0]), np.array([16.0, 16.0])]
    assert mean_round_s(rows[:3], 1) is None
    assert mean_round_s(rows[:4], 1) == 4.0
    assert mean_round_s(rows, 2) == 4.0
    assert mean_round_s(rows, 3) is None
