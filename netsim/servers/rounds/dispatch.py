"""Dispatch of the model: to clients chosen by a policy, or to the members of a slot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from netsim.clients.attempts import Attempts, ObjectAttempts
from netsim.core.protocols import BoolArray, IntArray, Learner, RoundView, Selection, SelectionPolicy
from netsim.core.reports import NOBODY_PROBED, RoundOutcome
from netsim.core.state import StateFields
from netsim.servers.rounds.checks import check_probe, check_selection
from netsim.servers.rounds.loop import ClosedRound, Dispatch, Instrument, NobodyLeftError
from netsim.servers.rounds.presence import Presence
from netsim.servers.rounds.reports import round_outcome

if TYPE_CHECKING:
    from netsim.clients.served import ServedClients
    from netsim.core.clock import Process
    from netsim.core.streams import Streams
    from netsim.servers.rounds.probing import Probing

_NOBODY: IntArray = np.zeros(0, np.int64)
_NO_HOLDERS: frozenset[int] = frozenset()


@dataclass(frozen=True, kw_only=True, slots=True)
class SelectionRule:
    """Rule of selection: the policy, and the clients that it selects from."""

    policy: SelectionPolicy
    streams: Streams
    """Source of the policy's random numbers, at the address "policy"."""
    need: int = 0
    """Number of selectable clients that a round waits for; 0: a round may pass without clients."""
    reselect_busy: bool = False
    """True if a busy client may be selected, which aborts its old update."""
    probing: Probing | None = None
    """Probes of clients, for a policy that uses them, or None."""

    @property
    def instruments(self) -> Sequence[Instrument]:
        """Instruments of the selection."""
        return () if self.probing is None else (self.probing,)


class PolicyDispatch(StateFields, Dispatch):
    """Dispatch in which the policy of `rule` chooses all clients of a round at its opening, out of the selectable ones.

    `carry_over`: the policy learns latencies of attempts that ended in the round; otherwise of attempts begun in it, and an
    undelivered one counts as the time after which the server stopped waiting.
    """

    state_fields = ("policy",)

    def __init__(self, *, pool: ServedClients, rule: SelectionRule, learner: Learner, carry_over: bool = False) -> None:
        policy = rule.policy
        self.pool = pool
        self.policy = policy
        self.learner = learner
        self.need = rule.need
        self.reselect_busy = rule.reselect_busy
        self.carry_over = carry_over
        self.needs_updates, self.needs_losses = policy.needs_updates, policy.needs_losses
        self.attempts: Attempts = ObjectAttempts()
        self.view: RoundView
        """View of the policy at the beginning of the present round."""
        self.outcome: RoundOutcome
        """Outcome that the policy observed when the last round closed."""
        self._selectable: BoolArray
        """True (K,) for clients that may be selected in the present round."""
        self._chosen: IntArray
        """Clients of the present round, in the order in which the policy named them."""
        self._steps: IntArray | None = None
        """Local steps of each of these; None: as planned."""
        self._repeated: IntArray | Selection | None = None
        """Selection that replaces the policy's, or None."""
        self._probing = rule.probing
        self._probed = NOBODY_PROBED
        """Answers to the probes of the present round."""
        self._draws = rule.streams["policy"]
        self._rng: np.random.Generator
        self._presence = Presence(pool)

    def repeat(self, selection: IntArray | Selection) -> None:
        """Repeat `selection` from the next round on; the policy then decides only about probes."""
        self._repeated = selection

    @property
    def restarts(self) -> Sequence[tuple[int, int]]:
        """Changes that the policy has declared so far, as (round, client)."""
        return self.policy.restarts

    @property
    def selection(self) -> IntArray | Selection:
        """Clients of the present round, with steps if the policy set them."""
        return self._chosen if self._steps is None else Selection(self._chosen, self._steps)

    def wait(self, number: int) -> Process[None]:
        """Wait until `need` clients are selectable; raise NobodyLeftError if no client ever will be and none is at work."""
        pool, busy_too = self.pool, self.reselect_busy
        self._selectable = yield from self._presence.wait_for(
            lambda: pool.selectable(busy_too=busy_too), candidates=None, count=self.need
        )
        if not (self._selectable.any() or pool.under_way or pool.ever_selectable().any()):
            raise NobodyLeftError

    def prepare(self, number: int) -> Process[None]:
        """Let the policy probe clients before it selects, repeatedly if it wants more.

        Clients come and go during probes, so this waits for selectable clients again afterwards.
        """
        # One generator for all answers of the policy in the round: repeated probes and the selection draw from it in turn.
        self._rng, self._probed = self._draws.generator(number), NOBODY_PROBED
        if self._probing is None:
            return
        pool = self.pool
        idle = pool.selectable(busy_too=False)
        if not idle.any():
            return
        view = RoundView(number, pool.clock.now, idle, pool.accountant.participations.copy(), self._rng)
        clients = check_probe(self.policy.probe(view), idle)
        repetition = 0
        while len(clients):
            self._probed = yield from self._probing.ask(
                number, clients, self.learner.version, times=repetition, test=self.policy.tests
            )
            if not self.policy.asks_again:
                break
            repetition += 1
            idle = pool.selectable(busy_too=False)
            view = RoundView(number, pool.clock.now, idle, view.participations, self._rng, self._probed)
            clients = check_probe(self.policy.probe(view), idle)
        if len(self._probed.clients):
            yield from self.wait(number)

    def choose(self, number: int, start_s: float) -> IntArray:
        """Return the policy's selection among the clients that `wait` found, after checking it."""
        selectable = self._selectable
        participations = self.pool.accountant.participations.copy()
        self.view = RoundView(number, start_s, selectable, participations, self._rng, self._probed)
        # A round may pass without clients; no policy is asked for a choice among none.
        if not selectable.any():
            self._chosen = _NOBODY
            return self._chosen
        selection = self.policy.select(self.view) if self._repeated is None else self._repeated
        self._chosen, self._steps = check_selection(selection, selectable, nobody=self.policy.may_select_nobody)
        return self._chosen

    def leave_out(self, client: int) -> None:
        """Remove `client` from the selection of the present round."""
        stays = self._chosen != client
        self._chosen = self._chosen[stays]
        if self._steps is not None:
            self._steps = self._steps[stays]

    def send(self, number: int) -> None:
        """Begin the attempts of the selected clients. Clients that answered a probe hold the model already."""
        if not len(self._chosen):
            self.attempts = ObjectAttempts()
            return
        holders = _NO_HOLDERS if self._probing is None else self._probing.holders
        self.attempts = self.pool.start(number, self._chosen, self.learner.version, self._steps, holders)

    def tell(self, closed: ClosedRound) -> None:
        """Let the policy observe the latencies and the censored updates of the closed round."""
        attempts = closed.attempts
        if not len(attempts):
            # The policy observes nothing. Reset the outcome, or instruments would read that of the round before.
            nothing = np.zeros(0)
            self.outcome = round_outcome(closed, nothing, nothing.astype(np.bool_), phases=self.pool.reports_phases)
            return
        # Of a censored update the server knows only that it has not come by the close.
        censored, ended_s = np.asarray(attempts.column("censored"), np.bool_), np.asarray(attempts.column("outcome_s"))
        if not self.carry_over:
            ended_s = np.where(censored, closed.end_s, ended_s)
        latency_s = ended_s - np.asarray(attempts.column("selected_s"))
        self.outcome = round_outcome(closed, latency_s, censored, phases=self.pool.reports_phases)
        self.policy.observe(self.outcome)


class MembersDispatch(StateFields, Dispatch):
    """Dispatch to the members of a slot that are present, in every round.

    `whole`: a round waits until every member is selectable; otherwise for the first one. `reselect_busy`: True if a busy client
    may be selected, which aborts its old update.
    """

    needs_updates = needs_losses = False
    restarts: Sequence[tuple[int, int]] = ()

    def __init__(self, *, pool: ServedClients, learner: Learner, whole: bool = True, reselect_busy: bool = False) -> None:
        self.pool = pool
        self.learner = learner
        self.whole = whole
        self.reselect_busy = reselect_busy
        self.members: IntArray = np.zeros(0, np.int64)
        """Members of the present slot, ascending."""
        self.attempts: Attempts = ObjectAttempts()
        self._steps: IntArray | None = None
        """Local steps (n,) of each member; None: as planned."""
        self._selectable: BoolArray
        """True (K,) for members that may be selected in the present round."""
        self._chosen: IntArray
        """Members that take part in the present round."""
        self._chosen_steps: IntArray | None = None
        """Local steps of each of these; None: as planned."""
        self._presence = Presence(pool)

    def open_slot(self, members: IntArray | Selection) -> None:
        """Set the members of the slot; raises ValueError unless they are distinct clients, at least one."""
        chosen, steps = check_selection(members, selectable=np.ones(self.pool.count, np.bool_))
        # Ascending, so that results do not depend on the order in which members were named.
        order = np.argsort(chosen)
        self.members = chosen[order]
        self._steps = None if steps is None else steps[order]

    @property
    def selection(self) -> IntArray | Selection:
        """Members that take part in the present round, with steps if they are set."""
        return self._chosen if self._chosen_steps is None else Selection(self._chosen, self._chosen_steps)

    def wait(self, number: int) -> Process[None]:
        """Wait until all members are selectable, or with `whole` False the first one; raise NobodyLeftError if that never comes.
        """
        pool, busy_too = self.pool, self.reselect_busy
        is_member = np.zeros(pool.count, np.bool_)
        is_member[self.members] = True
        need = len(self.members) if self.whole else 1
        self._selectable = yield from self._presence.wait_for(
            lambda: pool.selectable(busy_too=busy_too), candidates=is_member, count=need
        )

    def choose(self, number: int, start_s: float) -> IntArray:
        """Return the members that are selectable."""
        selectable = self._selectable[self.members]
        self._chosen = self.members[selectable]
        self._chosen_steps = None if self._steps is None else self._steps[selectable]
        return self._chosen

    def leave_out(self, client: int) -> None:
        """Remove `client` from the members of the present round."""
        stays = self._chosen != client
        self._chosen = self._chosen[stays]
        if self._chosen_steps is not None:
            self._chosen_steps = self._chosen_steps[stays]

    def send(self, number: int) -> None:
        """Begin the attempts of the chosen members."""
        if not len(self._chosen):
            self.attempts = ObjectAttempts()
            return
        self.attempts = self.pool.start(number, self._chosen, self.learner.version, self._chosen_steps)

    def tell(self, closed: ClosedRound) -> None:
        """Do nothing: members are decided for slots, so no policy learns from a round."""
