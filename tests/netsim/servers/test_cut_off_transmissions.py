"""What schedulers learn of transmissions that a close cuts off, or that come after it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.helpers.random_worlds import built

SLOW: dict[str, Any] = {
    "name": "slow",
    "rounds": 300,
    "clients": {"count": 2},
    "server": {"kind": "asynchronous", "round_s": 0.5},
    "channels": {"count": 4, "delay": {"kind": "constant", "value_s": [0.9, 0.8, 0.3, 0.2]}},
}


def delivered(scheduler: str, **changes: Any) -> int:
    simulation, records = built(SLOW | {"scheduler": {"kind": scheduler}} | changes)
    simulation.run()
    return sum(row.delivered for row in records.rounds)


@pytest.mark.parametrize("scheduler", ["cucb", "glr-cucb"])
def test_sub_channels_that_are_too_slow_for_a_round_are_learnt(scheduler: str) -> None:
    # Of 600 transmissions those on the two fast sub-channels arrive; at random it is half of them.
    assert delivered(scheduler) > 480 > 360 > delivered("random") > 240


@pytest.mark.slow
def test_m_exp3_is_rewarded_by_what_arrived_in_the_round() -> None:
    assert delivered("m-exp3", rounds=1500) > 1.1 * delivered("random", rounds=1500)


def observed(tables: dict[str, Any]) -> list[tuple[list[int], list[bool]]]:
    """Run a scenario and return what its scheduler was told, round by round."""
    simulation, _ = built(tables)
    assignment, told = simulation.server.loop.assignment, []

    def observe(view: Any, channels: np.ndarray, good: np.ndarray) -> None:
        told.append((channels.tolist(), good.tolist()))

    assignment.scheduler.observe = observe
    simulation.run()
    return told


def test_what_was_never_sent_is_no_observation() -> None:
    # Client 1 computes for two rounds and a half, and sends for the rest of the third.
    slow = SLOW | {"rounds": 3, "scheduler": {"kind": "round-robin"}}
    slow |= {"channels": {"count": 2, "delay": {"kind": "constant", "value_s": 0.375}}}
    slow |= {"compute": {"delay": {"kind": "constant", "value_s": [0.0, 1.25]}}}
    told = observed(slow)
    assert [good for _, good in told] == [[True], [True], [True, False]]


@pytest.mark.parametrize("stragglers", ["cancel", "finish"])
def test_an_update_after_the_deadline_did_not_arrive(stragglers: str) -> None:
    # Sub-channel 1 takes longer than the deadline: it is told as the round closes, or as the update comes, after the next.
    tables = SLOW | {
        "rounds": 3,
        "server": {"per_round": 2, "deadline_s": 0.5, "stragglers": stragglers, "reselect_busy": False, "when_short": "proceed"},
        "policy": {"kind": "random"},
        "scheduler": {"kind": "round-robin"},
        "channels": {"count": 2, "delay": {"kind": "constant", "value_s": [0.25, 0.75]}},
    }
    told = observed(tables)
    every = [pair for channels, good in told for pair in zip(channels, good, strict=True)]
    assert set(every) == {(0, True), (1, False)}
