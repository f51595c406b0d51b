"""Rules of closing: the fold over arrays is what a rule says that is told of one end after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netsim.core.closing import Close, ClosingRule, RoundState, fold_ends, look_follows_end
from netsim.core.errors import ParameterError
from netsim.servers.rounds.close import WaitRule
from tests.helpers.own_servers import Bonus, Quiet


def told_one_by_one(rule: ClosingRule, start_s: float, ends_s: list[float], delivered: list[bool]) -> Close | None:
    """Ask a rule after each end, and at each look that comes before the next one."""
    state = RoundState(start_s, len(ends_s), start_s)
    for place in range(len(ends_s) + 1):
        next_s = ends_s[place] if place < len(ends_s) else float("inf")
        look_s: Any = rule.next_look_s(state)
        if state.now_s <= look_s < next_s:
            looking = RoundState(start_s, state.expected, look_s, state.ended, state.delivered, looking=True)
            if rule.closes(looking):
                return Close(look_s, place, by_end=False)
        if place < len(ends_s):
            state.now_s, state.ended, state.delivered = next_s, place + 1, state.delivered + delivered[place]
            if rule.closes(state):
                return Close(next_s, place + 1, by_end=True)
    return None


TIMES = st.integers(0, 12).map(lambda quarters: 2.0 + quarters / 4)
ENDS = st.lists(st.tuples(TIMES, st.booleans()), max_size=9).map(sorted)
COUNTS = st.none() | st.integers(1, 9)
DEADLINES = st.integers(1, 14).map(lambda quarters: quarters / 4)


@given(ENDS, st.none() | DEADLINES, COUNTS, COUNTS)
def test_the_fold_is_the_rule_told_one_by_one(
    ends: list[tuple[float, bool]], deadline_s: float | None, first: int | None, at_least: int | None
) -> None:
    if deadline_s is None or (first is not None and at_least is not None and first <= at_least):
        at_least = None
    rule = WaitRule(deadline_s=deadline_s, first=first, at_least=at_least)
    check(rule, ends)


@given(ENDS, DEADLINES)
def test_so_it_is_with_a_look_that_moves(ends: list[tuple[float, bool]], grace_s: float) -> None:
    check(Bonus(grace_s), ends)
    check(Quiet(grace_s), ends)


def test_a_look_follows_the_end_whose_time_it_goes_by() -> None:
    state = RoundState(2.0, 5, 4.0, ended=1, delivered=1)
    assert look_follows_end(Quiet(1.0), state)
    assert not look_follows_end(Bonus(1.0), state)
    assert not look_follows_end(WaitRule(deadline_s=3.0), state)


def check(rule: ClosingRule, ends: list[tuple[float, bool]]) -> None:
    ends_s, delivered = [end_s for end_s, _ in ends], [arrived for _, arrived in ends]
    found = fold_ends(rule, 2.0, np.array(ends_s, np.float64), np.array(delivered, np.bool_))
    assert found == told_one_by_one(rule, 2.0, ends_s, delivered)


def test_rounds_by_hand() -> None:
    ends_s, delivered = np.array([1.0, 2.0, 4.0, 7.0]), np.array([True, False, True, True])
    assert fold_ends(WaitRule(), 0.0, ends_s, delivered) == (7.0, 4, True)
    assert fold_ends(WaitRule(first=2), 0.0, ends_s, delivered) == (4.0, 3, True)
    assert fold_ends(WaitRule(deadline_s=3.0), 0.0, ends_s, delivered) == (3.0, 2, False)
    # An end in the instant of the deadline is in time.
    assert fold_ends(WaitRule(deadline_s=4.0), 0.0, ends_s, delivered) == (4.0, 3, False)
    # Two are waited for past the deadline; one is there by then; four can no longer arrive.
    assert fold_ends(WaitRule(deadline_s=3.0, at_least=2), 0.0, ends_s, delivered) == (4.0, 3, True)
    assert fold_ends(WaitRule(deadline_s=3.0, at_least=1), 0.0, ends_s, delivered) == (3.0, 2, False)
    assert fold_ends(WaitRule(deadline_s=3.0, at_least=4), 0.0, ends_s, delivered) == (3.0, 2, False)
    # A loss after the deadline makes three impossible.
    later = np.array([1.0, 4.0, 5.0, 7.0])
    assert fold_ends(WaitRule(deadline_s=3.0, at_least=4), 0.0, later, delivered) == (4.0, 2, True)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"at_least": 0, "deadline_s": 1.0}, "at_least = 0: must be at least 1 delivery"),
        ({"at_least": 2}, "at_least = 2: is of rounds with a deadline; give deadline_s"),
        ({"at_least": 2, "first": 2, "deadline_s": 1.0}, "at_least = 2: must be below first = 2"),
    ],
)
def test_rules_without_sense_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        WaitRule(**given)
