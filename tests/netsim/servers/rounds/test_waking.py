"""Waking of the server's process: who asks for what, and how often it wakes."""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import Any

from netsim.core.clock import LAST, Clock
from netsim.servers.rounds.waking import Waking


def woken(clock: Clock, waking: Waking, times: int) -> list[float]:
    """When a process that waits again and again is woken, `times` times at most."""
    seen: list[float] = []

    def wait() -> Generator[Any, Any, None]:
        for _ in range(times):
            yield waking.event()
            seen.append(clock.now)

    clock.process(wait())
    clock.run()
    return seen


def test_several_who_ask_in_one_instant_wake_it_once() -> None:
    clock = Clock()
    waking = Waking(clock)
    for _ in range(3):
        clock.call_at(2.0, lambda payload: waking.wake_at_end_of_instant())
    assert woken(clock, waking, 2) == [2.0]


def test_it_may_ask_again_in_the_instant_in_which_it_was_woken() -> None:
    clock = Clock()
    waking = Waking(clock)
    clock.call_at(2.0, lambda payload: waking.wake_at_end_of_instant())
    clock.call_at(2.0, lambda payload: clock.call_at(2.0, lambda payload: waking.wake_at_end_of_instant(), priority=2))
    assert woken(clock, waking, 2) == [2.0, 2.0]


def test_a_time_is_asked_for_once_and_infinity_never() -> None:
    clock = Clock()
    waking = Waking(clock)
    for time_s in (3.0, 3.0, math.inf):
        waking.wake_at(time_s)
    assert woken(clock, waking, 2) == [3.0]


def test_what_was_asked_for_later_for_the_end_of_that_instant_comes_before() -> None:
    clock = Clock()
    waking = Waking(clock)
    happened: list[list[float]] = []
    waking.wake_at(3.0)
    seen: list[float] = []
    clock.call_at(3.0, lambda payload: happened.append(list(seen)), priority=LAST)

    def wait() -> Generator[Any, Any, None]:
        yield waking.event()
        seen.append(clock.now)

    clock.process(wait())
    clock.run()
    assert (happened, seen) == ([[]], [3.0])


def test_who_does_not_wait_is_not_woken() -> None:
    clock = Clock()
    waking = Waking(clock)
    waking.wake()
    clock.call_at(1.0, waking.wake)
    assert woken(clock, waking, 2) == [1.0]
