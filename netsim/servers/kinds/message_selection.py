"""Selections of the clients that an application may send messages to: all present clients, or the choice of a policy.

The application may ask for clients at any time. A selection is for one training: it holds until training messages have been sent,
and the next call makes the next selection. So other messages between two trainings go to the clients that train next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from netsim.clients.attempts import EndedAttempts
from netsim.core.causes import CLOSE, Cause
from netsim.core.errors import AnswerError
from netsim.core.protocols import RoundView
from netsim.servers.rounds.checks import check_selection
from netsim.servers.rounds.loop import ClosedRound
from netsim.servers.rounds.reports import round_outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from netsim.clients.update import Update
    from netsim.core.protocols import BoolArray, FloatArray, IntArray, SelectionPolicy
    from netsim.core.reports import RoundOutcome
    from netsim.core.streams import Streams
    from netsim.servers.kinds.messages import Message, Messages


class EveryonePresent:
    """Selection of all clients that are present."""

    needs_losses = False
    restarts: Sequence[tuple[int, int]] = ()

    def __init__(self, messages: Messages) -> None:
        self._messages = messages

    def clients(self) -> IntArray:
        """Return the present clients (n,)."""
        return np.flatnonzero(self._messages.present())

    def on_training(self) -> None:
        """Do nothing: the selection does not depend on training."""

    def close(self) -> None:
        """Do nothing: no policy observes."""


class _LastEnd(NamedTuple):
    """The last ended training message of a client."""

    update: Update
    first_sent_s: float
    """Time at which the client's first training message of the selection was sent."""
    loss: float


class _Losses(NamedTuple):
    """Content of updates for which the application reports only losses."""

    loss: FloatArray
    loss_rms: FloatArray
    updates: None = None


class ChosenByPolicy:
    """Selection by `policy` among idle clients, `per_round` at a time, without clients that have left since.

    The policy selects again at the next call, at a later time, if a selection has fewer than `per_round` clients, or if a client
    left before its training message was sent. The policy observes training messages that ended since its last choice, of any
    selection: an entry for each client, from its first message to the end of its last message. Only the mean loss of an update is
    known; it also stands for the root mean square.
    """

    def __init__(self, *, messages: Messages, policy: SelectionPolicy, streams: Streams, per_round: int) -> None:
        self._messages, self._policy, self._per_round = messages, policy, per_round
        self.needs_losses = policy.needs_losses
        self._draws = streams["policy"]
        self._number = 1
        """Number of the present selection."""
        self._rng = self._draws.generator(1)
        self._begun_s = 0.0
        """Time of the last report of an outcome to the policy."""
        self._chosen: IntArray = np.zeros(0, np.int64)
        """Clients of the present selection, some of which may have left since."""
        self._chosen_s = -1.0
        """Time of the policy's last choice; -1: no choice yet."""
        self._trained = False
        """True once training messages were sent after the present selection."""
        self._ends: dict[int, _LastEnd] = {}
        """Last ended training message of each client."""
        messages.followers.append(self._on_end)

    @property
    def restarts(self) -> Sequence[tuple[int, int]]:
        """Changes that the policy has declared so far, as (round, client)."""
        return self._policy.restarts

    def clients(self) -> IntArray:
        """Return the present clients (n,) of the selection, ascending. Select first if training has used the last selection, or
        if it lacks clients.
        """
        now = self._messages.pool.clock.now
        if self._trained:
            self.close()
        # Not twice at one instant: an application that asks again gets the same clients, though some may be missing.
        if self._chosen_s < 0.0 or (now > self._chosen_s and not self._is_complete()):
            self._chosen, self._chosen_s = self._choose(self._messages.idle()), now
        is_present = self._messages.present()[self._chosen]
        return np.sort(self._chosen[is_present])

    def _is_complete(self) -> bool:
        """Return True if the present selection has enough clients and all are present."""
        return len(self._chosen) >= self._per_round and bool(self._messages.present()[self._chosen].all())

    def _choose(self, idle: BoolArray) -> IntArray:
        """Return the choice (n,) of the policy among `idle` clients (K,)."""
        if not idle.any():
            return np.zeros(0, np.int64)
        pool, policy = self._messages.pool, self._policy
        view = RoundView(self._number, pool.clock.now, idle, pool.accountant.participations.copy(), self._rng)
        answer = policy.select(view)
        chosen, steps = check_selection(answer, idle, nobody=policy.may_select_nobody)
        if steps is not None:
            raise AnswerError("policy", "select", answer, "expected clients alone: the application decides their steps")
        return chosen

    def on_training(self) -> None:
        """Note that training messages use the selection."""
        self._trained = True

    def _on_end(self, message: Message, update: Update) -> None:
        """Keep the last ended training message of each client, with the send time of its first."""
        if message.trains:
            earlier = self._ends.get(message.client)
            first_sent_s = message.sent_s if earlier is None else earlier.first_sent_s
            self._ends[message.client] = _LastEnd(update, first_sent_s, message.loss)

    def close(self) -> None:
        """Report to the policy how the training of this selection ended, and begin the next selection. Do nothing if no client
        trained.
        """
        if not self._trained:
            return
        ends, self._ends = list(self._ends.values()), {}
        self._trained, self._chosen_s = False, -1.0
        if ends:
            self._policy.observe(self._outcome(ends))
        self._begun_s = self._messages.pool.clock.now
        self._number += 1
        self._rng = self._draws.generator(self._number)

    def _outcome(self, ends: list[_LastEnd]) -> RoundOutcome:
        """Return the outcome of training messages that have ended, in the form of a round, for the policy."""
        pool, version = self._messages.pool, self._messages.round
        updates = [end.update for end in ends]
        censored = np.array([update.censored for update in updates])
        losses = np.array([end.loss for end in ends])[~censored]
        latency_s = np.array([end.update.outcome_s - end.first_sent_s for end in ends])
        # `round_outcome` does not read the causes, but a round has some.
        cause = Cause(CLOSE, self._number)
        closed = ClosedRound(
            number=self._number,
            start_s=self._begun_s,
            end_s=pool.clock.now,
            attempts=EndedAttempts(updates),
            content=_Losses(loss=losses, loss_rms=losses),
            version=version,
            opened_by=cause,
            closed_by=cause,
            close_rule=None,
            ended=(),
        )
        return round_outcome(closed, latency_s, censored, phases=pool.reports_phases)
