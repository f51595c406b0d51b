"""Server of SAFA: semi-asynchronous, with a cache and a tolerance of lag (Wu, He, Lin, Mao, Maple and Jarvis 2021).

All clients train all the time. A round begins with a distribution by version. A client that has delivered since its last model
gets the new one. A client whose model is more than `lag_tolerance` rounds old is forced to take it. Others go on with theirs.

Of the updates that arrive `per_round` are picked, first those of clients that were not picked in the last round (CFCFM, Algorithm
1). Picked updates enter the model of this round, others that of the next. The learner keeps the cache
(`models.fl.aggregation.cache`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from netsim.clients.attempts import Attempts, EndedAttempts, ObjectAttempts
from netsim.core.alarm import Alarm
from netsim.core.errors import ParameterError
from netsim.core.state import StateFields
from netsim.servers.rounds.close import EndsOfRound
from netsim.servers.rounds.loop import Attempt, ClosedRound, Dispatch, Instrument, RoundLoop
from netsim.servers.rounds.presence import Presence
from netsim.servers.rounds.round_server import RoundServer
from netsim.servers.rounds.waking import Waking
from netsim.servers.sub_channels.channels import OwnLinks

if TYPE_CHECKING:
    from netsim.clients.served import ServedClients
    from netsim.clients.update import Update
    from netsim.core.clock import Process
    from netsim.core.protocols import BoolArray, Deliveries, FloatArray, IntArray, Learner, Selection
    from netsim.core.rows import ColumnValues

_EVER = float("inf")
_NAN = float("nan")


class ByVersion(StateFields, Dispatch):
    """Dispatch to all present clients.

    Each trains from the newest model, or goes on from the model that it holds. `lag_tolerance`: largest age in rounds of a
    model with which a client may go on; a client at work on an older model drops its update, which ends as aborted. A client
    whose update was lost, or that came back, trains again from the model that it holds, without a download. If the model was
    lost on its way, the newest model is sent. A client that came from another coordinator is sent the newest model, too. Raises
    ValueError for a tolerance below 0.
    """

    state_fields = ("_wants", "_begun", "_made_round", "_version", "_moved", "renewed")
    needs_updates = needs_losses = False
    restarts: Sequence[tuple[int, int]] = ()

    def __init__(self, *, pool: ServedClients, learner: Learner, lag_tolerance: int) -> None:
        if lag_tolerance < 0:
            raise ParameterError("lag_tolerance", lag_tolerance, "must be at least 0 rounds")
        self.pool = pool
        self.learner = learner
        self.lag_tolerance = lag_tolerance
        self.attempts: Attempts = ObjectAttempts()
        self.renewed: IntArray = np.zeros(0, np.int64)
        """Clients whose entries of the cache become the present model: forced to take it when the round opened, or come from
        another coordinator.
        """
        self._wants: BoolArray = np.ones(pool.count, np.bool_)
        """True (K,) for clients that need a new model: they have delivered, or never got a model."""
        self._made_round: IntArray = np.zeros(pool.count, np.int64)
        """Round (K,) after which the model that each client holds was made."""
        self._version: IntArray = np.zeros(pool.count, np.int64)
        """Version (K,) of this model."""
        self._begun: IntArray = np.zeros(pool.count, np.int64)
        """Round (K,) in which each client last began an attempt."""
        self._moved: BoolArray = np.zeros(pool.count, np.bool_)
        """True (K,) for clients that came from another coordinator and have not delivered since, nor been renewed."""
        self._chosen: IntArray = np.zeros(0, np.int64)
        """Clients that begin an attempt in this round."""
        self._sent_to: IntArray = np.zeros(0, np.int64)
        """Clients that are sent the newest model in this round."""
        self._presence = Presence(pool)
        pool.follow(self._on_end)
        pool.follow_moves(self._on_move)

    @property
    def selection(self) -> IntArray | Selection:
        """Clients that begin an attempt in this round."""
        return self._chosen

    def wait(self, number: int) -> Process[None]:
        """Wait until a client is present or at work."""
        pool = self.pool
        if not pool.in_flight:
            yield from self._presence.wait_for(lambda: pool.selectable(busy_too=False), None, 1)

    def choose(self, number: int, start_s: float) -> IntArray:
        """Choose by version: clients that need or must take the new model, and idle clients that go on with theirs."""
        # The distribution by version (Algorithm 1): up-to-date clients (`_wants`) get the new model, deprecated ones (`too_old`)
        # are forced to take it, and tolerable ones go on; if they are not at work, they begin again from their model.
        present, busy = self.pool.selectable(busy_too=True), self.pool.busy
        too_old = ~self._wants & (number - 1 - self._made_round > self.lag_tolerance)
        self.renewed = np.flatnonzero(present & (too_old | self._moved))
        self._moved[self.renewed] = False
        begins = present & (too_old | ~busy)
        # A client that moved may be busy with an update for its last coordinator: it is sent the model after that.
        self._sent_to = np.flatnonzero(begins & (too_old | self._wants))
        self._chosen = np.flatnonzero(begins)
        return self._chosen

    def leave_out(self, client: int) -> None:
        """Exclude `client` from new attempts of the round; an attempt in flight goes on."""
        self._chosen = self._chosen[self._chosen != client]
        self._sent_to = self._sent_to[self._sent_to != client]
        self.renewed = self.renewed[self.renewed != client]

    def send(self, number: int) -> None:
        """Begin the attempts: first from the newest model, then from each version that clients hold."""
        version = self.learner.version
        self.attempts = ObjectAttempts()
        if not len(self._chosen):
            return
        # Update the state before attempts begin: without durations they may end within the call.
        self._begun[self._chosen] = number
        self._wants[self._sent_to] = False
        self._made_round[self._sent_to], self._version[self._sent_to] = number - 1, version
        updates: list[Update] = []
        if len(self._sent_to):
            updates += self.begin(number, self._sent_to, version).updates
        # Other chosen clients begin again from the versions that they hold, one version after the other.
        with_model = self._chosen[~np.isin(self._chosen, self._sent_to)]
        for held_version in sorted(set(self._version[with_model].tolist())):
            clients = with_model[self._version[with_model] == held_version]
            updates += self.begin(number, clients, held_version, holders=frozenset(clients.tolist())).updates
        # A close rule reads attempts in the order of selection. Some chosen clients may not have begun (`begin`).
        by_client = {update.client: update for update in updates}
        self.attempts = ObjectAttempts(by_client[client] for client in self._chosen.tolist() if client in by_client)

    def begin(self, number: int, clients: IntArray, version: int, holders: frozenset[int] = frozenset()) -> Attempts:
        """Begin the attempts of `clients` (n,) from one version, and return them. `holders`: clients that have the model already.

        Subclasses may begin fewer clients: other clients keep the model, and may begin in a later round.
        """
        return self.pool.start(number, clients, version, holders=holders)

    def _on_end(self, update: Update) -> None:
        """Note that a client needs a new model: it has delivered, or the model was lost on its way."""
        if not update.censored:
            self._moved[update.client] = False
        if update.begun_round < self._begun[update.client]:
            return  # the client has dropped this update for the new model
        was_sent_model = self._made_round[update.client] == update.begun_round - 1
        has_trained = update.compute_start_s >= 0.0
        if not update.censored or (was_sent_model and not has_trained):
            self._wants[update.client] = True

    def _on_move(self, client: int) -> None:
        """Note that a client comes from another coordinator, or goes to one: it needs a new model when it is here next."""
        self._wants[client] = True
        self._moved[client] = True

    def held_versions(self, number: int) -> list[int]:
        """Return the versions from which clients may still begin in round `number`."""
        may_go_on = ~self._wants & (number - 1 - self._made_round <= self.lag_tolerance)
        return sorted(set(self._version[may_go_on].tolist()))


class PickedArrived(EndsOfRound):
    """Close once `per_round` updates are picked, at a deadline, or when no client is at work any more.

    Priority clients are those that were not picked in the last round. `selection` says when enough updates have arrived:

    - "first-come": as soon as `per_round` updates of priority clients have arrived, or `per_round` of any clients once no
      priority client is at work any more;
    - "after-all": once no client is at work. An update that began in an earlier round is then not picked.

    Updates of priority clients are picked first, then those of other clients; both in ascending order of `speed_s` (a function
    from the round to an array (K,)), or of arrival if that is None. Raises ValueError for fewer than one update, and a deadline
    that is not > 0.
    """

    state_fields = ("_last", "_number", "_due_s", "_arrived", "_first")
    folds_none = True

    def __init__(
        self,
        *,
        pool: ServedClients,
        dispatch: ByVersion,
        per_round: int,
        deadline_s: float | None = None,
        selection: Literal["first-come", "after-all"] = "first-come",
        speed_s: Callable[[int], FloatArray] | None = None,
    ) -> None:
        super().__init__()
        if per_round < 1:
            raise ParameterError("per_round", per_round, "must be at least 1 update")
        if deadline_s is not None and not deadline_s > 0:
            raise ParameterError("deadline_s", deadline_s, "must be > 0 seconds")
        self.pool = pool
        self.dispatch = dispatch
        self.per_round = per_round
        self.deadline_s = _EVER if deadline_s is None else deadline_s
        self.picked: list[Attempt] = []
        """Updates picked as the last round closed, in order."""
        self._after_all = selection == "after-all"
        """True if updates are picked only once no client is at work."""
        self._speed_s = speed_s
        self._last: set[int] = set()
        """Clients whose updates were picked in the last round. They have lower priority in this one."""
        self._others: list[int] = []
        """Clients not in `_last` that were at work at the last scan.

        Clients are scanned again only when all of these have ended, so that an end costs one step instead of one for each
        client.
        """
        self._arrived = self._first = 0
        """Number of updates that arrived in this round, and number of these from clients that are not in `_last`."""
        self._number, self._due_s = 0, _EVER
        self._waking = Waking(pool.clock)
        # Rings after everything else of its instant: an update exactly at the deadline is in time.
        self._alarm = Alarm(pool.clock, self._waking.wake)
        pool.follow(self._on_end)

    def limit(self, deadline_s: float) -> None:
        """Set the deadline from the next round on."""
        self.deadline_s = deadline_s

    def open(self, number: int, start_s: float, expected: int) -> None:
        """Open the round. Attempts that ended since the last close count for it."""
        self._number, self._due_s = number, start_s + self.deadline_s
        self._arrived = self._first = 0
        for end in self.ends:
            self._count(end)

    def wait(self) -> Process[None]:
        """Wait until enough updates have arrived, until the deadline, or until no client is at work."""
        pool = self.pool
        self._alarm.set(self._due_s)
        while pool.in_flight and pool.clock.now < self._due_s and not self._has_enough():
            yield self._waking.event()
        if pool.clock.now >= self._due_s and pool.in_flight and not self._has_enough():
            pool.causes.close_by_deadline()
        # The first cause that is stated counts, so this changes nothing after a deadline.
        rule = "enough arrived" if pool.in_flight else "all ended"
        pool.causes.close_now(rule)

    def _has_enough(self) -> bool:
        """Return True if enough updates have arrived."""
        if self._after_all:
            return False
        if self._first >= self.per_round:
            return True
        return self._arrived >= self.per_round and not self._others_at_work()

    def _others_at_work(self) -> bool:
        """Return True if a client is at work that was not picked in the last round."""
        # Drop those that have ended from the end of the list. While one is left, no scan is needed.
        at_work, others = self.pool.in_flight, self._others
        while others and others[-1] not in at_work:
            others.pop()
        if not others:
            self._others = [client for client in at_work if client not in self._last]
        return bool(self._others)

    def _on_end(self, update: Update) -> None:
        """Count an ended attempt, and check at the end of this instant if the round is over."""
        self.ends.append(update)
        self._count(update)
        self._waking.wake_at_end_of_instant()

    def _count(self, end: Attempt) -> None:
        """Count an end of this round."""
        if not end.censored:
            self._arrived += 1
            self._first += end.client not in self._last

    def collect(self, attempts: Attempts) -> Attempts:
        """Return all attempts that ended since the last close, in order, and set `picked` to the updates picked among them."""
        ends, self.ends = self.ends, []
        arrived = [end for end in ends if not end.censored]
        candidates = [end for end in arrived if self.may_be_picked(end)]
        speed_s = np.zeros(self.pool.count) if self._speed_s is None else self._speed_s(self._number)

        def priority(end: Attempt) -> tuple[bool, float]:
            """Return the key by which updates are picked, smallest first. The sort keeps the order of arrival for equal keys."""
            was_picked_last_time = end.client in self._last
            return was_picked_last_time, float(speed_s[end.client])

        self.picked = sorted(candidates, key=priority)[: self.per_round]
        self._last = {update.client for update in self.picked}
        self._others = []
        return EndedAttempts(ends)

    def may_be_picked(self, end: Attempt) -> bool:
        """Return True if an arrived update may be picked for this round's model."""
        return not self._after_all or end.begun_round == self._number

    def amend(self, deliveries: Deliveries) -> Deliveries:
        """Return `deliveries` with the updates held back for the next model, and the clients whose entries are renewed."""
        picked = {(end.client, end.begun_round) for end in self.picked}
        updates = zip(deliveries.clients.tolist(), deliveries.rounds.tolist(), strict=True)
        held = np.array([update not in picked for update in updates], np.bool_)
        return replace(deliveries, held=held, renewed=self.dispatch.renewed)

    def on_load(self) -> None:
        """Restore the rule; clients at work are scanned again."""
        super().on_load()
        self._others = []


class Picks(Instrument):
    """Instrument for the number of picked updates, the arrival of the last of them, and the clients forced to renew."""

    round_columns = ("picked", "picked_s", "renewed")

    def __init__(self, *, dispatch: ByVersion, close: PickedArrived) -> None:
        self.dispatch = dispatch
        self.close = close

    def columns(self, closed: ClosedRound) -> ColumnValues:
        """Return `picked`, `picked_s` and `renewed`."""
        picked = self.close.picked
        last_s = max((end.outcome_s for end in picked), default=_NAN)
        return {"picked": len(picked), "picked_s": last_s - closed.start_s, "renewed": len(self.dispatch.renewed)}


def safa_server(
    *,
    pool: ServedClients,
    learner: Learner,
    per_round: int,
    lag_tolerance: int = 5,
    deadline_s: float | None = None,
    selection: Literal["first-come", "after-all"] = "first-come",
    speed_s: Callable[[int], FloatArray] | None = None,
    channels: OwnLinks | None = None,
) -> RoundServer:
    """Return a server of SAFA: clients train by the version of their model (`ByVersion`), and a round closes once `per_round`
    updates are picked (`PickedArrived`). These two classes explain the parameters.

    `channels`: the sub-channels of clients; None: each client has links of its own.
    """
    dispatch = ByVersion(pool=pool, learner=learner, lag_tolerance=lag_tolerance)
    close = PickedArrived(
        pool=pool, dispatch=dispatch, per_round=per_round, deadline_s=deadline_s, selection=selection, speed_s=speed_s
    )
    return server_of(dispatch=dispatch, close=close, learner=learner, channels=channels or OwnLinks())


def server_of(*, dispatch: ByVersion, close: PickedArrived, learner: Learner, channels: OwnLinks) -> RoundServer:
    """Return a server of SAFA made of a dispatch and a close rule, which may be instances of subclasses."""
    loop = RoundLoop(
        pool=dispatch.pool,
        dispatch=dispatch,
        close=close,
        learner=learner,
        instruments=[Picks(dispatch=dispatch, close=close), *channels.instruments],
        assignment=channels.assignment,
        outlast=True,
    )
    return RoundServer(loop=loop, recording=channels.recording)
