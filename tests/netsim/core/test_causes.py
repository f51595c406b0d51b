"""Causes: what is stated, what is inferred, and timers that were set as an attempt ended."""

from __future__ import annotations

from dataclasses import dataclass

from netsim.core.causes import Cause, Causes
from netsim.core.clock import Clock


@dataclass
class Attempt:
    number: int


def test_what_happens_at_this_instant() -> None:
    clock = Clock()
    causes = Causes(clock)
    assert causes.latest() == Cause("schedule")
    causes.end(Attempt(3), [])
    assert causes.latest() == Cause("end", 3)
    assert causes.begin_cause(5) == Cause("end", 3)
    causes.open(2)
    assert causes.latest() == Cause("open", 2)
    assert causes.begin_causes([5, 2]) == [Cause("open", 2), Cause("open", 2)]
    clock.call_at(1.0, lambda payload: None)
    clock.step()
    assert causes.latest() == Cause("schedule")
    assert causes.begin_cause(5) == Cause("return", 5)
    assert causes.begin_causes([5, 2]) == [Cause("return", 5), Cause("return", 2)]


def test_the_opening_of_a_restored_round_is_a_cause() -> None:
    clock = Clock()
    first, restored = Causes(clock), Causes(clock)
    first.open(4)
    restored.load_state_dict(first.state_dict())
    assert restored.latest() == Cause("open", 4)


def test_the_first_cause_of_a_close_counts_until_the_next_opening() -> None:
    causes = Causes(Clock())
    causes.open(1)
    causes.close_by_end(4, "deliveries")
    causes.close_by_deadline()
    assert (causes.closing, causes.rule) == (Cause("end", 4), "deliveries")
    causes.open(2)
    assert (causes.closing, causes.rule) == (None, None)
    causes.close_by_deadline()
    assert (causes.closing, causes.rule) == (Cause("open", 2), "deadline")


def test_a_timer_that_a_listener_sets_is_due_to_the_end_that_it_heard_of() -> None:
    clock = Clock()
    causes = Causes(clock)
    causes.open(1)
    seen: list[Cause] = []

    def listen(attempt: Attempt) -> None:
        if attempt.number == 7:
            clock.call_in(2.0, lambda payload: seen.append(causes.timer_cause(Cause("open", 1))))

    for at_s, number in ((1.0, 7), (2.0, 8)):
        clock.call_at(at_s, lambda number: causes.end(Attempt(number), [listen]), number)
    clock.run()
    assert clock.now == 3.0
    assert seen == [Cause("end", 7)]


def test_a_wait_that_begins_at_an_end_is_due_to_it() -> None:
    clock = Clock(1.0)
    causes = Causes(clock)
    assert causes.timer_cause(Cause("end", 7)) == Cause("end", 7)
    # A time that was set as the round opened may be any: a fixed grid, or a deadline that is not stated.
    assert causes.timer_cause(Cause("open", 1)) == Cause("schedule")
