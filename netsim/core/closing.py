"""Rules that close a round, stated without a clock, and their application to all ends of a round at once.

A rule sees the state of a round after each end, in order, and at its looks: times at which it wants to be asked without an end.
It has no state of its own and does not see the future. Where ends happen one by one, the rule is asked as they happen
(`netsim.servers.rounds.close`). Where all ends are known together, `fold_ends` asks it with arrays; both give the same close.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from netsim.core.errors import AnswerError, ParameterError

if TYPE_CHECKING:
    from netsim.core.protocols import BoolArray, FloatArray, IntArray

_EVER = float("inf")
_LATER_S = 1e-6
"""Delay by which `look_follows_end` moves an end as a test, seconds: just long enough to be visible in times of a run."""


@dataclass(slots=True)
class RoundState:
    """State of a round, right after an end or at a look.

    `now_s`, `ended` and `delivered` are numbers, or arrays (n,) for n states of one round. Rules must use comparisons, sums,
    `&` and `|` only, which work for both.
    """

    start_s: float
    """Time at which the round opened."""
    expected: int
    """Number of attempts begun as the round opened."""
    now_s: float | FloatArray
    """Present time."""
    ended: int | IntArray = 0
    """Number of attempts of the round that have ended."""
    delivered: int | IntArray = 0
    """Number of attempts of the round whose update arrived."""
    looking: bool = False
    """True at a look, after everything else of its instant; False right after an end."""


class ClosingRule(Protocol):
    """Decides when a round closes.

    Example: a round closes two seconds after it opened, or with its last attempt.

        class TwoSeconds(ClosingRule):
            def closes(self, state):
                return (state.ended == state.expected) | (state.now_s >= state.start_s + 2.0)

            def next_look_s(self, state):
                return state.start_s + 2.0
    """

    def closes(self, state: RoundState) -> bool | BoolArray:
        """Return True if the round closes in `state`; an array (n,) for n states."""

    def next_look_s(self, state: RoundState) -> float | FloatArray:
        """Return the time at which the rule must be asked again if no end comes before. A past time, or inf, means never."""

    def name(self, state: RoundState) -> str | None:
        """Return the name of the rule that closes a round in `state`, in a word or two for reports; None: it has no name."""
        return None

    def with_deadline(self, deadline_s: float) -> ClosingRule:
        """Return the rule with another deadline; raises ParameterError if rules of its class have none."""
        raise no_deadline(deadline_s)


def no_deadline(deadline_s: float) -> ParameterError:
    """Return the error of a rule that has no deadline to set."""
    return ParameterError("deadline_s", deadline_s, "the rounds of this server close by no deadline")


class Close(NamedTuple):
    """Close of a round."""

    time_s: float
    ended: int
    """Number of attempts of the round that have ended by the close, an end that closes the round included."""
    by_end: bool
    """True if the last of these ends closes the round, False if a look does."""


class Closing(Protocol):
    """A closing rule, bound to the open round."""

    def fold(self, ends_s: FloatArray, delivered: BoolArray) -> Close | None:
        """Return the close of the open round, whose attempts end at `ends_s` (n,), ascending; None if it never closes.

        `delivered` (n,): True where the update arrives.
        """


def ask(rule: ClosingRule, state: RoundState) -> bool | BoolArray:
    """Return whether the round closes in `state` by `rule`; raises AnswerError for an answer that is no truth value.

    A time or a count in place of a truth value would close nearly every round at its first end, without a word.
    """
    answer = rule.closes(state)
    if isinstance(answer, bool | np.bool_) or (isinstance(answer, np.ndarray) and answer.dtype == np.bool_):
        return answer
    raise AnswerError("server", f"{type(rule).__name__}.closes", answer, "must be True or False, or an array of them")


def look_follows_end(rule: ClosingRule, state: RoundState) -> bool:
    """Return True if the time of the next look depends on the last end: a later end would move it. `state`: state right after
    that end.
    """
    return bool(rule.next_look_s(replace(state, now_s=state.now_s + _LATER_S)) != rule.next_look_s(state))


# How all ends are folded at once. After j ends the round is in state j, until the next end: n + 1 states, with at most one look
# in each. One array call finds the first end that closes the round, a second one the looks before that end which close it. If
# there are such looks, the first of them is the close.


def fold_ends(rule: ClosingRule, start_s: float, ends_s: FloatArray, delivered: BoolArray) -> Close | None:
    """Return the close of a round that opens at `start_s` by `rule`, given all its ends; None if it never closes.

    `ends_s` (n,): times at which its attempts end, ascending, all >= `start_s`. `delivered` (n,): True where the update arrives.
    Gives the close that `rule` would give if it were asked at each end and each look in turn.
    """
    count = len(ends_s)
    arrived: IntArray = np.cumsum(delivered, dtype=np.int64)
    # First the ends: `closing_end` is the index of the first end that closes the round, if one does.
    after_ends = RoundState(start_s, expected=count, now_s=ends_s, ended=np.arange(1, count + 1), delivered=arrived)
    closes_at_end = np.broadcast_to(ask(rule, after_ends), count)
    closing_end = int(closes_at_end.argmax()) if count else 0
    by_end = bool(count and closes_at_end[closing_end])
    # Then the looks before that end. State j is the state after j ends. It lasts until the next end; a look at that instant
    # comes after the end.
    states = closing_end + 1 if by_end else count + 1
    since_s, until_s = np.append(start_s, ends_s)[:states], np.append(ends_s, _EVER)[:states]
    at_opening = RoundState(start_s, expected=count, now_s=start_s)
    looks_s = np.append(rule.next_look_s(at_opening), np.broadcast_to(rule.next_look_s(after_ends), count))[:states]
    # States in which the look comes before the next end; the number of a state is that of the ends so far.
    with_look = np.flatnonzero((looks_s >= since_s) & (looks_s < until_s))
    if len(with_look):
        arrived_by_look: Any = np.append(0, arrived)[with_look]
        at_looks = RoundState(
            start_s, expected=count, now_s=looks_s[with_look], ended=with_look, delivered=arrived_by_look, looking=True
        )
        closes_at_look = np.broadcast_to(ask(rule, at_looks), len(with_look))
        if closes_at_look.any():
            ended = with_look.item(closes_at_look.argmax())
            return Close(looks_s.item(ended), ended, by_end=False)
    if not by_end:
        return None
    return Close(ends_s.item(closing_end), closing_end + 1, by_end=True)
