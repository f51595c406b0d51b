"""The server of FedCompass: it assigns each client a number of local steps such that clients of a group arrive together.

Li et al., "FedCompass: Efficient Cross-Silo Federated Learning on Heterogeneous Client Devices Using a Computing Power-Aware
Scheduler", ICLR 2024. The server measures a client's speed as the seconds from dispatch to arrival, divided by the steps. It puts
clients into groups that are expected to arrive at one time. The updates of a group make a model together; a group does not wait
for clients after its latest time. A round is the time from one new model to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from netsim.clients.attempts import Attempts, EndedAttempts, ObjectAttempts
from netsim.core.clock import LAST, Process
from netsim.core.state import StateFields
from netsim.servers.kinds.step_groups import LATE, StepScheduler
from netsim.servers.rounds.close import EndsOfRound
from netsim.servers.rounds.loop import Attempt, ClosedRound, Dispatch, Instrument, NobodyLeftError, RoundLoop
from netsim.servers.rounds.round_server import RoundServer
from netsim.servers.rounds.waking import Waking
from netsim.servers.sub_channels.channels import OwnLinks

if TYPE_CHECKING:
    from netsim.clients.served import ServedClients
    from netsim.clients.update import Update
    from netsim.core.protocols import BoolArray, IntArray, Learner, Selection
    from netsim.core.rows import ColumnValues


class BySteps(StateFields, Dispatch):
    """Dispatch in which every present client works its assigned steps, unless its update waits for its group.

    A client begins at most once in a round, because (round, client) addresses its draws.
    """

    state_fields = ("scheduler", "waiting", "_begun", "_number")
    needs_updates = needs_losses = False
    restarts: Sequence[tuple[int, int]] = ()

    def __init__(self, *, pool: ServedClients, learner: Learner, scheduler: StepScheduler) -> None:
        self.pool = pool
        self.learner = learner
        self.scheduler = scheduler
        self._sent = ObjectAttempts()
        """Attempts begun in the present round; the same list as `attempts`."""
        self.attempts: Attempts = self._sent
        self.waiting: dict[int, int] = {}
        """Clients that wait for the model that their update enters, with the round in which the update began."""
        self._on_group: Callable[[int], None] = lambda number: None
        self._begun: BoolArray = np.zeros(pool.count, np.bool_)
        """True (K,) for clients that have begun an update in this round, or must not begin one."""
        self._number = 0
        """Number of the present round."""
        self._chosen: IntArray = np.zeros(0, np.int64)
        """Clients that begin as the round opens."""

    def listen(self, on_group: Callable[[int], None]) -> None:
        """Call `on_group` with the number of every new group."""
        self._on_group = on_group

    def keep_waiting(self, update: Update) -> None:
        """Note that the client of an arrived update waits for the model that the update enters."""
        self.waiting[update.client] = update.begun_round

    @property
    def selection(self) -> IntArray | Selection:
        """Clients that begin as the round opens."""
        return self._chosen

    def choose(self, number: int, start_s: float) -> IntArray:
        """Open the round, in which no client has begun yet, and return the idle clients: all of them begin."""
        self._number = number
        self._begun[:] = False
        self._sent = self.attempts = ObjectAttempts()
        self._chosen = self._idle_clients()
        return self._chosen

    def leave_out(self, client: int) -> None:
        """Exclude `client` from this round."""
        self._chosen = self._chosen[self._chosen != client]
        self._begun[client] = True

    def send(self, number: int) -> None:
        """Assign steps to the chosen clients, and begin their updates."""
        self._start(self._chosen)

    def refill(self) -> None:
        """Begin an update at each idle client that has not begun one in this round."""
        self._start(self._idle_clients())

    def _idle_clients(self) -> IntArray:
        """Return the clients (n,) that may begin an update now."""
        idle = self.pool.selectable(busy_too=False) & ~self._begun
        idle[list(self.waiting)] = False
        return np.flatnonzero(idle)

    def _start(self, clients: IntArray) -> None:
        """Assign steps to idle `clients` (n,), and begin their updates."""
        if not len(clients):
            return
        now, scheduler = self.pool.clock.now, self.scheduler
        self._begun[clients] = True
        # Steps by client in the order of `clients`, in which the pool takes them.
        steps = dict.fromkeys(clients.tolist(), 0)
        # The fastest first: slower clients can join its group with fewer steps, while it would need more steps than allowed to
        # join theirs. NaN, an unknown speed, sorts last; such clients get all steps and no group.
        for client in clients[np.argsort(scheduler.step_s[clients], kind="stable")].tolist():
            scheduler.group_of.pop(client, None)
            steps[client], group = scheduler.assign(client, now)
            if group is not None:
                self._on_group(group)
        step_counts = np.array(list(steps.values()), np.int64)
        self._sent += self.pool.start(self._number, clients, self.learner.version, step_counts).updates

    def abandon(self) -> None:
        """End all groups: their clients begin again in the next round."""
        self.waiting.clear()
        self.scheduler.abandon()

    def tell(self, closed: ClosedRound) -> None:
        """Do nothing: the scheduler has learned of updates at their arrival."""


class GroupComplete(EndsOfRound):
    """Close when a group is complete, or at its latest time if at least one update has arrived.

    An update of a client without a group makes a model alone, and closes the round when it arrives. An update later than its
    group enters the next model of a group, or makes a model if no client is at work any more.
    """

    state_fields = ("_late", "_ready")

    def __init__(self, *, pool: ServedClients, dispatch: BySteps) -> None:
        super().__init__()
        self.pool = pool
        self.dispatch = dispatch
        self._late: list[tuple[int, int]] = []
        """Updates that have arrived later than their group, as (client, round of the beginning)."""
        self._ready: list[list[tuple[int, int]]] = []
        """Updates of the next models, one list for each model, as (client, round of the beginning)."""
        self._waking = Waking(pool.clock)
        dispatch.listen(self._set_alarm)
        pool.watchers.append(self._waking.wake)
        pool.follow(self._on_end)

    def open(self, number: int, start_s: float, expected: int) -> None:
        """Open the round. Attempts that ended before it count for it."""

    def wait(self) -> Process[None]:
        """Wait until a model is ready."""
        yield from self._wait()
        self.pool.causes.close_now("group complete", "latest time of a group")

    def _wait(self) -> Process[None]:
        """Wait for updates that make a model, and begin new updates at idle clients meanwhile."""
        pool = self.pool
        while not self._ready:
            self.dispatch.refill()
            # Updates without durations may have arrived within `refill`.
            if self._ready:
                return
            if not pool.in_flight:
                if self._late:
                    # No group is left that the late update could enter.
                    self._ready.append(self._late)
                    self._late = []
                    return
                # No update can come any more, and some were lost: close without a model, so that their clients may begin again.
                if any(end.censored for end in self.ends):
                    return
                if not pool.ever_selectable().any():
                    raise NobodyLeftError
            self._waking.wake_at(float(pool.availability.next_change_s.min()))
            yield self._waking.event()

    def _set_alarm(self, number: int) -> None:
        """Put the latest time of group `number` on the clock."""
        # After everything else of that instant: an update exactly at the latest time is in time.
        self.pool.clock.call_at(self.dispatch.scheduler.groups[number].latest_s, self._on_alarm, number, priority=LAST)

    def _on_alarm(self, number: int) -> None:
        """Callback at the latest time of a group: close it."""
        scheduler = self.dispatch.scheduler
        if number in scheduler.groups:
            self._on_group_end(scheduler.close(number))

    def _on_end(self, update: Update) -> None:
        """Handle the end of an attempt: measure the client's speed, and pass its update to its group, or to a model of its own.
        """
        client, scheduler, dispatch = update.client, self.dispatch.scheduler, self.dispatch
        self.ends.append(update)
        if update.censored:
            self._on_group_end(scheduler.leave(client) or [])
            self._waking.wake_at_end_of_instant()
            return
        # An update that another edge began says nothing of the time from here: this edge did not dispatch it.
        if not update.handed_over:
            scheduler.measure(client, update.outcome_s - update.selected_s, update.drawn_steps)
        group = scheduler.group_of.get(client)
        if group is None:
            dispatch.keep_waiting(update)
            self._ready.append([(client, update.begun_round)])
        elif group == LATE:
            # The update waits for a group, but its client does not.
            self._late.append((client, update.begun_round))
        else:
            dispatch.keep_waiting(update)
            self._on_group_end(scheduler.arrive(client) or [])
        self._waking.wake_at_end_of_instant()

    def _on_group_end(self, arrived: list[int]) -> None:
        """Handle the end of a group, of which the clients `arrived` have delivered. An empty group makes no model."""
        if arrived:
            self._ready.append([*((client, self.dispatch.waiting[client]) for client in arrived), *self._late])
            self._late = []
            self._waking.wake_at_end_of_instant()

    def collect(self, attempts: Attempts) -> Attempts:
        """Return the attempts whose updates enter this model, and the attempts without a delivery.

        The clients of these updates wait no longer.
        """
        # One model a round: if several are ready, the next rounds close at once.
        of_model = set(self._ready.pop(0)) if self._ready else set()
        collected: list[Attempt] = []
        for_later: list[Attempt] = []
        for end in self.ends:
            if end.censored or (end.client, end.begun_round) in of_model:
                collected.append(end)
            else:
                for_later.append(end)
        self.ends = for_later
        waiting = self.dispatch.waiting
        for client, begun_round in of_model:
            if waiting.get(client) == begun_round:
                del waiting[client]
        return EndedAttempts(collected)

    def abandon(self) -> None:
        """Forget the attempts that have ended, updates that wait for a model, and all groups."""
        super().abandon()
        self._late, self._ready = [], []
        self.dispatch.abandon()

    def on_load(self) -> None:
        """Put the latest times of the groups on the clock again."""
        super().on_load()
        for number in self.dispatch.scheduler.groups:
            self._set_alarm(number)


class OpenGroups(Instrument):
    """Instrument for the number of groups at work when a round closes."""

    round_columns = ("groups",)

    def __init__(self, *, scheduler: StepScheduler) -> None:
        self.scheduler = scheduler

    def columns(self, closed: ClosedRound) -> ColumnValues:
        """Return `groups`."""
        return {"groups": len(self.scheduler.groups)}


def compass_server(
    *,
    pool: ServedClients,
    learner: Learner,
    min_steps: int = 20,
    max_steps: int = 100,
    slack: float = 1.5,
    channels: OwnLinks | None = None,
) -> RoundServer:
    """Return the server. `StepScheduler` explains `min_steps`, `max_steps` and `slack`."""
    channels = channels or OwnLinks()
    scheduler = StepScheduler(clients=pool.count, least=min_steps, most=max_steps, slack=slack)
    dispatch = BySteps(pool=pool, learner=learner, scheduler=scheduler)
    loop = RoundLoop(
        pool=pool,
        dispatch=dispatch,
        close=GroupComplete(pool=pool, dispatch=dispatch),
        learner=learner,
        instruments=[OpenGroups(scheduler=scheduler), *channels.instruments],
        assignment=channels.assignment,
        outlast=True,
    )
    return RoundServer(loop=loop, recording=channels.recording)
