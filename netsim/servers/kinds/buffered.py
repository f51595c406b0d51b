"""Buffered asynchronous server: a fixed number of clients is at work, and every b deliveries make a new model.

When the update of a client ends, another client is sent the present model; no client waits. With b > 1 it is FedBuff (Nguyen et
al. 2022, Algorithm 1), with b = 1 FedAsync (Xie, Koyejo and Gupta 2019). In place of the number of deliveries, the latencies of
the clients at work may decide when a model is made, as in Pisces. A round is the time from one new model to the next. No update
is late: it may only have started from an old version.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from netsim.clients.attempts import Attempts, EndedAttempts, ObjectAttempts
from netsim.core.errors import ParameterError
from netsim.core.protocols import RoundView, Selection
from netsim.core.state import StateFields
from netsim.servers.kinds.pacing import ByLatency, Deliveries, LatencyPacing, Pacing
from netsim.servers.kinds.staleness_bound import NoBound, StalenessRule
from netsim.servers.rounds.checks import check_selection
from netsim.servers.rounds.close import EndsOfRound
from netsim.servers.rounds.loop import ClosedRound, Dispatch, NobodyLeftError, RoundLoop
from netsim.servers.rounds.reports import round_outcome
from netsim.servers.rounds.round_server import RoundServer
from netsim.servers.rounds.waking import Waking
from netsim.servers.sub_channels.channels import OwnLinks

if TYPE_CHECKING:
    from netsim.clients.served import ServedClients
    from netsim.clients.update import Update
    from netsim.core.clock import Process
    from netsim.core.protocols import BoolArray, IntArray, Learner, SelectionPolicy, State
    from netsim.core.streams import Streams

_NOBODY: IntArray = np.zeros(0, np.int64)
_NO_CLIENT = -1


class KeepAtWork(StateFields, Dispatch):
    """Dispatch that keeps `concurrency` clients at work: below that, the policy chooses more, one decision at a time.

    A client begins at most once in a round, and not in the round in which its last attempt ended, because (round, client)
    addresses its draws. Raises ValueError for a concurrency that is not in 1..K.
    """

    state_fields = ("policy",)

    def __init__(
        self, *, pool: ServedClients, policy: SelectionPolicy, learner: Learner, streams: Streams, concurrency: int
    ) -> None:
        if not 1 <= concurrency <= pool.count:
            raise ParameterError("concurrency", concurrency, f"must be in 1..{pool.count}, the number of clients")
        self.pool = pool
        self.policy = policy
        self.learner = learner
        self.concurrency = concurrency
        self.needs_updates, self.needs_losses = policy.needs_updates, policy.needs_losses
        self.attempts: Attempts = ObjectAttempts()
        self._begun = ObjectAttempts()
        """Attempts begun in the present round; the same list as `attempts`."""
        self._number = 0
        """Number of the present round; 0 before the first."""
        self._left_out = _NO_CLIENT
        """Client that must not begin in this round (`leave_out`): its place stays empty."""
        self._empty_places = 0
        """Number of places (0 or 1) that stay empty for this client."""
        self._excluded: BoolArray = np.zeros(pool.count, np.bool_)
        """True (K,) for clients that may not be chosen any more in this round."""
        self._draws = streams["policy"]
        self._rng: np.random.Generator
        pool.follow(self._on_end)

    @property
    def restarts(self) -> Sequence[tuple[int, int]]:
        """Changes that the policy has declared so far, as (round, client)."""
        return self.policy.restarts

    @property
    def selection(self) -> IntArray | Selection:
        """No client: none is chosen at the opening."""
        return _NOBODY

    def choose(self, number: int, start_s: float) -> IntArray:
        """Begin round `number` and return no client: clients are chosen one by one, as places become free."""
        self._number = number
        self._left_out, self._empty_places = _NO_CLIENT, 0
        self._excluded[:] = False
        self._begun = self.attempts = ObjectAttempts()
        self._rng = self._draws.generator(number)
        return _NOBODY

    def exclude(self, client: int) -> None:
        """Exclude `client` from selections of this round: its last attempt ended in it."""
        self._excluded[client] = True

    def leave_out(self, client: int) -> None:
        """Leave the place of `client` empty until the round closes, if it is at work or chosen in this round."""
        self._left_out = client
        self._empty_places = int(client in self.pool.in_flight)

    def send(self, number: int) -> None:
        """Send nothing at the opening: clients at work go on, and the close rule calls `refill`."""

    def refill(self) -> None:
        """Let the policy choose clients, and begin their attempts, until enough are at work or no client is left to choose."""
        # Ask again while places are free: a policy may fill fewer places than it is offered, and an attempt without durations
        # ends within `start`.
        pool = self.pool
        while True:
            free_places = self.concurrency - len(pool.in_flight) - self._empty_places
            if free_places <= 0:
                return
            selectable = pool.selectable(busy_too=False) & ~self._excluded
            if not selectable.any():
                return
            view = RoundView(self._number, pool.clock.now, selectable, pool.accountant.participations.copy(), self._rng)
            chosen, steps = check_selection(self.policy.select(view), selectable, at_most=free_places)
            self._excluded[chosen] = True
            begins = chosen != self._left_out
            if not begins.all():
                # The client that is left out takes a place and a sub-channel as if it began, so that all else stays the same:
                # `channels` gives it one, which nothing uses.
                pool.life.serving.channels(chosen[~begins])
                self._empty_places += 1
                chosen = chosen[begins]
                if steps is not None:
                    steps = steps[begins]
            if len(chosen):
                self._begun += pool.start(self._number, chosen, self.learner.version, steps).updates

    def _on_end(self, update: Update) -> None:
        """Exclude a client whose attempt has ended from selections of this round."""
        self._excluded[update.client] = True

    def state_dict(self) -> State:
        """Return the state of the policy, and the excluded clients and random numbers of the round."""
        state = super().state_dict()
        if self._number:
            state |= {"number": self._number, "asked": self._excluded.copy(), "draws": deepcopy(self._rng.bit_generator.state)}
        return state

    def load_state_dict(self, state: State) -> None:
        """Restore the policy, the excluded clients and the random numbers of the round."""
        super().load_state_dict(state)
        if "number" in state:
            self._number, self._excluded[:] = state["number"], state["asked"]
            self._rng = self._draws.generator(self._number)
            self._rng.bit_generator.state = deepcopy(state["draws"])

    def tell(self, closed: ClosedRound) -> None:
        """Let the policy observe the latencies of the attempts that ended in the round."""
        attempts = closed.attempts
        latency_s = np.asarray(attempts.column("outcome_s")) - np.asarray(attempts.column("selected_s"))
        censored = np.asarray(attempts.column("censored"), np.bool_)
        self.policy.observe(round_outcome(closed, latency_s, censored, phases=self.pool.reports_phases))


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRule:
    """Rule for a new model: after every `buffer` deliveries or, if `pacing` is given, by the latencies of clients.

    `staleness`: rule for updates that grow too old; None: there is none.
    """

    buffer: int = 1
    pacing: LatencyPacing | None = None
    staleness: StalenessRule | None = None


class BufferFull(EndsOfRound):
    """Close when `rule` says that a model is due, or once no client is at work and none can be chosen.

    When an update ends, `dispatch` chooses another client. Raises ValueError for a buffer below 1.
    """

    state_fields = ("rule", "pacing", "_number", "_waited")

    def __init__(self, *, pool: ServedClients, dispatch: KeepAtWork, rule: ModelRule) -> None:
        super().__init__()
        self.pool = pool
        self.dispatch = dispatch
        self.rule = rule.staleness or NoBound()
        self._number = 0
        """Number of the present round."""
        self._waited = False
        """True if the model was due in this round and the rule did not let it close."""
        self._waking = waking = Waking(pool.clock)
        self.pacing: Pacing = Deliveries(buffer=rule.buffer)
        if rule.pacing is not None:
            self.pacing = ByLatency(pool=pool, concurrency=dispatch.concurrency, wake=waking.wake, parameters=rule.pacing)
        pool.watchers.append(self._waking.wake)
        pool.follow(self._on_end)

    def open(self, number: int, start_s: float, expected: int) -> None:
        """Open the round; clients whose attempts have ended already are not chosen again in it."""
        self._number = number
        self._waited = False
        self.pacing.on_open(start_s)
        for end in self.ends:
            self.dispatch.exclude(end.client)

    def wait(self) -> Process[None]:
        """Wait until a model is due; keep clients at work meanwhile."""
        pool = self.pool
        # Each pass handles all ends of one instant: close, or fill free places, or give up; then sleep until something changes.
        while not self._may_close():
            self.dispatch.refill()
            if not pool.in_flight:
                if self.ends and self.pacing.gives_up(self.ends):
                    pool.causes.close_now("nobody at work")
                    return
                if not self.ends and not pool.ever_selectable().any():
                    raise NobodyLeftError
            # If all places are taken, no client is chosen.
            if len(pool.in_flight) < self.dispatch.concurrency:
                self._waking.wake_at(float(pool.availability.next_change_s.min()))
            yield self._waking.event()
        pool.causes.close_now(self.pacing.name)

    def _may_close(self) -> bool:
        """Return True if a model is due and the staleness rule lets the round close."""
        if not self.pacing.is_due(self.ends):
            return False
        may_close = self.rule.may_close(self._number)
        self._waited = self._waited or not may_close
        return may_close

    def _on_end(self, update: Update) -> None:
        """Count an ended attempt, and check at the end of this instant if a model is due."""
        self.ends.append(update)
        self.pacing.on_end(update)
        # Count, and replace, all clients that end at one instant together.
        self._waking.wake_at_end_of_instant()

    def collect(self, attempts: Attempts) -> Attempts:
        """Return the ended attempts that enter the model: those that the pacing takes.

        All of them if the round waited for old updates, or if one left over would be too old for the next model.
        """
        # Clients whose updates are too old are notified before the next round begins new ones.
        self.rule.on_close(self._number)
        count = self.pacing.count_taken(self.ends)
        left_over = self.ends[count:]
        if self._waited or self.rule.too_old(self._number, left_over):
            count = len(self.ends)
        collected, self.ends = self.ends[:count], self.ends[count:]
        return EndedAttempts(collected)


def buffered_server(
    *,
    pool: ServedClients,
    policy: SelectionPolicy,
    learner: Learner,
    streams: Streams,
    concurrency: int,
    rule: ModelRule,
    channels: OwnLinks | None = None,
) -> RoundServer:
    """Return a server that keeps `concurrency` clients at work and makes a new model by `rule`, of the updates that have arrived.

    `policy` selects a client for each one that ends; `streams` has its random numbers. `channels`: the sub-channels of clients;
    None: each client has links of its own.
    """
    channels = channels or OwnLinks()
    dispatch = KeepAtWork(pool=pool, policy=policy, learner=learner, streams=streams, concurrency=concurrency)
    loop = RoundLoop(
        pool=pool,
        dispatch=dispatch,
        close=BufferFull(pool=pool, dispatch=dispatch, rule=rule),
        learner=learner,
        instruments=channels.instruments,
        assignment=channels.assignment,
        outlast=True,
    )
    return RoundServer(loop=loop, recording=channels.recording)
