"""An alarm rings at the time that was set last, whatever calls of the clock are left from before."""

import math

import pytest

from netsim.core.alarm import Alarm
from netsim.core.clock import Clock


@pytest.mark.parametrize(
    ("settings", "rings"),
    [
        ([(0, 5)], [5]),
        ([(0, 5), (2, 8)], [8]),
        ([(0, 9), (2, 4)], [4]),
        ([(0, 9), (2, 4), (4.5, 12)], [4, 12]),
        ([(0, 5), (2, math.inf)], []),
        ([(0, 5), (2, math.inf), (3, 7)], [7]),
        ([(0, 5), (5, 6)], [6]),  # set again at the instant at which it is due, before it rings
    ],
)
def test_rings_at_the_time_set_last(settings, rings):
    clock, heard = Clock(), []
    alarm = Alarm(clock, lambda: heard.append(clock.now))
    for at_s, due_s in settings:
        clock.call_at(at_s, alarm.set, due_s)
    clock.run()
    assert heard == rings


def test_rings_after_everything_else_of_the_instant():
    clock, heard = Clock(), []
    Alarm(clock, lambda: heard.append("alarm")).set(3.0)
    clock.call_at(3.0, heard.append, "end")
    clock.run()
    assert heard == ["end", "alarm"]


def test_later_times_add_no_calls():
    clock = Clock()
    alarm = Alarm(clock, lambda: None)
    for due_s in range(10, 110):
        alarm.set(due_s)
    assert len(clock.entries) == 1
