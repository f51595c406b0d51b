"""The clock: exact times, the order of one instant, waiting for an event, limits."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from netsim.core.clock import FIRST, LAST, Clock


class Log(list[Any]):
    def __call__(self, payload: Any) -> None:
        self.append(payload)


def test_calls_come_in_order_of_time_and_carry_what_they_were_given() -> None:
    clock, log = Clock(), Log()
    clock.call_at(2.0, log, "b")
    clock.call_in(1.0, log, "a")
    clock.call_at(3.0, lambda payload: log((payload, clock.now)), "c")
    clock.run()
    assert log == ["a", "b", ("c", 3.0)]


def test_calls_of_one_instant_come_by_priority_and_then_in_scheduling_order() -> None:
    clock, log = Clock(), Log()
    numbers = [
        clock.call_at(1.0, log, "last", LAST),
        clock.call_at(1.0, log, "second"),
        clock.call_at(1.0, log, "third"),
        clock.call_at(1.0, log, "first", FIRST),
    ]
    assert numbers == sorted(numbers)
    clock.run()
    assert log == ["first", "second", "third", "last"]


def test_an_absolute_time_arrives_exactly() -> None:
    # 0.2 + (0.9 - 0.2) is not 0.9: a delay would miss it.
    assert 0.2 + (0.9 - 0.2) != 0.9
    clock, log = Clock(), Log()
    clock.call_at(0.2, lambda _: clock.call_at(0.9, lambda _: log(clock.now)))
    clock.run()
    assert log == [0.9]


def test_calls_and_simpy_events_share_one_order() -> None:
    clock, log = Clock(), Log()

    def process() -> Generator[Any, Any, None]:
        yield clock.timeout(1.0)
        log("timeout")
        yield clock.event_at(2.0, LAST)
        log("event")

    clock.call_at(1.0, log, "before")
    clock.process(process())
    clock.call_at(2.0, log, "call")
    clock.run()
    assert log == ["before", "timeout", "call", "event"]


@pytest.mark.parametrize("schedule", [Clock.call_at, Clock.event_at])
def test_the_past_is_refused(schedule: Any) -> None:
    clock = Clock(start_s=5.0)
    for time_s in (4.0, float("nan")):
        arguments = (time_s, print) if schedule is Clock.call_at else (time_s,)
        with pytest.raises(ValueError, match=r"time_s = .*present time 5\.0"):
            schedule(clock, *arguments)
    with pytest.raises(ValueError, match=r"delay_s = -0\.5: must be >= 0"):
        clock.call_in(-0.5, print)


def test_a_clock_is_set_only_while_nothing_is_scheduled() -> None:
    clock = Clock()
    clock.start_at(3.5)
    assert clock.now == 3.5
    clock.call_in(1.0, print)
    with pytest.raises(ValueError, match=r"time_s = 9\.0"):
        clock.start_at(9.0)


def test_running_until_an_event_leaves_the_rest_where_it_is() -> None:
    clock, log = Clock(), Log()
    over = clock.event_at(2.0)
    for time_s in (1.0, 2.0, 3.0):
        clock.call_at(time_s, log, time_s)
    assert clock.run_until(over)
    # The call at 2 was scheduled after the event: it is still to come.
    assert (log, clock.now) == ([1.0], 2.0)
    clock.run()
    assert log == [1.0, 2.0, 3.0]


def test_a_limit_stops_the_clock_there() -> None:
    clock, log = Clock(), Log()
    for time_s in (1.0, 2.0, 2.5):
        clock.call_at(time_s, log, time_s)
    assert not clock.run_until(clock.event_at(9.0), 2.0)
    # What happens exactly at the limit has happened.
    assert (log, clock.now) == ([1.0, 2.0], 2.0)
    assert not clock.run_until(clock.event_at(9.0), 2.25)
    assert (log, clock.now) == ([1.0, 2.0], 2.25)


def test_an_event_that_nothing_can_bring_about() -> None:
    clock = Clock()
    clock.call_in(1.0, lambda _: None)
    with pytest.raises(RuntimeError, match="nothing is scheduled"):
        clock.run_until(clock.event())


def test_a_failure_is_raised_as_it_was() -> None:
    class OddError(Exception):
        def __init__(self, first: int, *, second: int) -> None:
            super().__init__("odd")
            self.both = (first, second)

    def process(clock: Clock) -> Generator[Any, Any, None]:
        yield clock.timeout(1.0)
        raise OddError(1, second=2)

    clock = Clock()
    with pytest.raises(OddError) as caught:
        clock.run_until(clock.process(process(clock)))
    assert caught.value.both == (1, 2)
    # A failure in a call comes out as it is, too.
    clock.call_in(1.0, lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        clock.run_until(clock.event_at(9.0))


@pytest.mark.parametrize("by_simpy", [True, False])
def test_a_process_runs_in_the_order_of_a_simpy_process_that_is_waited_for(by_simpy: bool) -> None:
    clock, log = Clock(), Log()

    def process() -> Generator[Any, Any, None]:
        log("begins")
        clock.call_at(clock.now, log, "normal, from the beginning")
        yield clock.event_at(1.0)
        log("goes on")
        clock.call_at(clock.now, lambda _: clock.call_at(clock.now, log, "normal, called after its end"))
        clock.call_at(clock.now, log, "last", LAST)

    clock.call_at(0.0, log, "normal, from before")
    clock.call_at(0.0, log, "first", FIRST)
    clock.call_at(1.0, log, "before the event")
    assert clock.run_until(clock.process(process())) if by_simpy else clock.run_process(process())
    log("over")
    clock.run()
    assert log == [
        "first",
        "begins",
        "normal, from before",
        "normal, from the beginning",
        "before the event",
        "goes on",
        "over",
        "normal, called after its end",
        "last",
    ]


def test_a_process_is_left_at_the_limit_and_what_it_raises_is_raised() -> None:
    clock = Clock()

    def process(error: Exception | None) -> Generator[Any, Any, None]:
        yield clock.event_at(9.0)
        if error is not None:
            raise error

    assert not clock.run_process(process(None), 2.0)
    assert clock.now == 2.0
    with pytest.raises(KeyError, match="of its own"):
        clock.run_process(process(KeyError("of its own")))


def test_what_has_passed_is_refused_with_its_time() -> None:
    clock = Clock()
    clock.start_at(5.0)
    with pytest.raises(ValueError, match=r"^time_s = 4.0: must be at or after the present time 5.0 s"):
        clock.event_at(4.0)
