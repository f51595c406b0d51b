"""All clients of a run: presence, busy clients, last deliveries, and live updates.

A client without an update is only an entry in a few arrays, so that a run may have millions of clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from netsim.clients.attempts import Attempts, ObjectAttempts
from netsim.clients.lifecycle import ProbesOfPool, UpdateLifecycle
from netsim.clients.rules import USUAL, UpdateRules
from netsim.clients.saved import restored_updates, updates_state
from netsim.clients.steps.stages import COMPUTE, DOWNLOAD, ENDED, KEPT, UPLOAD, WAIT
from netsim.clients.tallies import Tallies
from netsim.clients.update import Drawn, ModelDraws, SendDraws, Update, WorkOfUpdate, renew_draws
from netsim.clients.vectorised.whole_rounds import WholeRounds
from netsim.core.causes import EARLIER, Cause, Causes
from netsim.core.clock import LAST

if TYPE_CHECKING:
    from netsim.clients.power.energy import Energy, FollowedPresence
    from netsim.clients.serving import Serving
    from netsim.clients.vectorised.columns import Columns, Groups
    from netsim.core.clock import Clock
    from netsim.core.protocols import Accountant, Availability, BoolArray, IntArray, State
    from netsim.network.medium import Medium

_EVER = float("inf")
_UNKNOWN_WORK: WorkOfUpdate = (0, None, None)
"""Work of an update as planned, with unknown numbers of samples and steps."""


class ClientPool(Tallies):
    """The K clients of `medium` (their links, work and draws), and their updates.

    Further keywords are those of `UpdateLifecycle`. `presence`: law by which clients come and go. `groups`: groups of the
    clients, or None. `taken_away` (K,): True for clients that a script took away and may bring back; the script keeps it up to
    date. None: no script acts on clients, links or laws, so the attempts of a round can be simulated as arrays.
    """

    settled = False
    """True once no client will ever come or go again. Presence is then not asked any more, which saves a twelfth of a round of
    15 attempts.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        medium: Medium,
        presence: FollowedPresence,
        accountant: Accountant,
        rules: UpdateRules = USUAL,
        energy: Energy | None = None,
        groups: Groups | None = None,
        taken_away: BoolArray | None = None,
    ) -> None:
        super().__init__(medium.clients)
        self.coordinator: str | None = None
        """Name of the edge that begins attempts now, for their records; None for the server."""
        self.probes: ProbesOfPool | None = None
        """The probes of clients beside their updates, or None."""
        self._taken_away = taken_away
        self.clock, self.medium, self.causes = clock, medium, Causes(clock, medium.inexact_phases())
        self.groups, self.reports_phases = groups, rules.reports_phases
        self.presence = presence.presence
        """Presence of the clients."""
        self.energy = energy
        """Powers and batteries of the clients; None if energy is not counted."""
        self.accountant = accountant
        self.alive_now: dict[int, Update] = {}
        """Updates stored as objects, by client."""
        self.life = UpdateLifecycle(
            clock=clock,
            medium=medium,
            accountant=accountant,
            rules=rules,
            energy=energy,
            find=lambda client: self.alive_now[client],
            on_end=self._on_end,
        )
        """Executor of the updates that go by events."""
        self.followers: list[Callable[[Update], object]] = []
        """Listeners called with each update whose attempt ends, inside the event that ended it."""
        self.begin_followers: list[Callable[[int, IntArray, int, IntArray | None], object]] = []
        """Listeners called when updates begin, with the round, the clients, the version of their model, and the `steps` of
        `start`.
        """
        self._in_flight: dict[int, Update] = {}
        """Updates stored as objects whose attempt is in flight, by client."""
        self.watchers: list[Callable[[], object]] = []
        """Listeners called when a script has moved a client in or out."""
        self._presence_draws = presence.draws
        self._charged = energy is not None and energy.batteries is not None
        """True if clients have batteries."""
        self.whole_rounds = WholeRounds(pool=self, possible=taken_away is None and not self._charged and not medium.work.eager)
        """Attempts that are simulated together as arrays."""

    def serve(self, server: Serving) -> None:
        """Set the server that takes updates and assigns sub-channels. The round loop calls this in its constructor."""
        self.life.serve(server)

    def add_probes(self, probes: ProbesOfPool) -> None:
        """Attach `probes`: they are notified when clients leave or laws change, and their bytes are counted."""
        self.probes = probes

    def follow_singly(self) -> None:
        """Run every attempt by events, because a listener reads single updates."""
        self.whole_rounds.switch_off()

    @property
    def pool(self) -> ClientPool:
        """The pool itself: it is all clients that its coordinator serves (`ServedClients.pool`)."""
        return self

    @property
    def alive(self) -> dict[int, Update]:
        """Live updates by client; copies of updates that are simulated as arrays."""
        return self._include_copies(self.alive_now)

    @property
    def in_flight(self) -> dict[int, Update]:
        """Updates in flight, by client; copies of updates that are simulated as arrays."""
        return self._include_copies(self._in_flight)

    def _include_copies(self, updates: dict[int, Update]) -> dict[int, Update]:
        """Return `updates` and copies of those that are simulated as arrays, by client."""
        if not self.whole_rounds.left:
            return updates
        return updates | {update.client: update for update in self.whole_rounds.copies()}

    @property
    def under_way(self) -> int:
        """Number of attempts that have not ended."""
        return len(self._in_flight) + self.whole_rounds.left

    def follow_moves(self, on_move: Callable[[int], object]) -> None:
        """Do nothing: all clients belong to one coordinator."""

    def follow(self, each: Callable[[Update], object], together: Callable[[Columns], object] | None = None) -> None:
        """Call `each` with every update whose attempt ends, and `together` with attempts that were simulated as arrays.

        A listener without `together` switches arrays off: every attempt then runs by events.
        """
        self.followers.append(each)
        if together is None:
            self.follow_singly()
        else:
            self.whole_rounds.followers.append(together)

    @property
    def availability(self) -> Availability | Energy:
        """Presence of clients with enough charge to be selected."""
        return self.presence if self.energy is None else self.energy

    def unused_columns(self) -> list[str]:
        """Return the columns of an attempt's record that have no content in this run."""
        knows_work = self.medium.work.samples is not None
        used = {
            ("sent_after",): not self.medium.access.free,
            ("compute_j", "send_j", "receive_j"): self.energy is not None,
            ("samples",): knows_work or self.life.says_samples,
            ("steps",): knows_work,
            ("kind",): self.life.says_samples,
            ("group",): self.groups is not None,
            ("edge",): self.life.serving.tiered,
            ("started_round",): self.life.retry,
        }
        return [name for names, is_used in used.items() if not is_used for name in names]

    def advance(self) -> None:
        """Bring presence, and the charges of batteries, up to the present time."""
        # Once no client will ever come or go again, presence need not be asked any more.
        if not self.settled:
            if self.energy is None:
                self.presence.advance(self.clock.now, self._presence_draws)
            else:
                self.energy.advance(self.clock.now)
            # Batteries still change while clients work, so with batteries nothing is ever settled.
            presence_is_final = self.presence.settles and self.presence.next_change_s.min() == _EVER
            self.settled = presence_is_final and not self._charged

    def selectable(self, *, busy_too: bool) -> BoolArray:
        """Return True (K,) for clients that may be selected now: present, with charge and privacy budget left, and not busy.

        `busy_too`: busy clients may be selected, too. Presence and attempts are brought up to the present time first.
        """
        self.advance()
        self.whole_rounds.settle(self.clock.now)
        may_begin = self.availability.on & ~self.accountant.exhausted
        return may_begin if busy_too else may_begin & ~self.busy

    def present_and_charged(self) -> BoolArray:
        """Return True (K,) for clients that are present, and have enough charge to begin an update or to continue theirs.

        `alive` of the energy of clients is False for an absent client, too.
        """
        able, energy = self.availability.on, self.energy
        if energy is not None and self.alive_now:
            # A client at work goes on until its battery is empty; to begin takes more (the threshold of its battery).
            at_work = list(self.alive_now)
            able = able.copy()
            able[at_work] = energy.alive[at_work]
        return able

    def reachable(self) -> BoolArray:
        """Return True (K,) for clients that are present now and whose battery is not empty: messages reach them."""
        self.advance()
        return self.presence.on if self.energy is None else self.energy.alive

    def can_contribute(self) -> BoolArray:
        """Return True (K,) for clients that have an update, or privacy budget to make one."""
        able = ~self.accountant.exhausted
        able[list(self.alive_now)] = True
        return able

    def ever_selectable(self) -> BoolArray:
        """Return True (K,) for clients that are present or will come, and have privacy budget left. A round that needs more
        clients than these can never begin.
        """
        ever = self.ever_present()
        if self._taken_away is not None and self.under_way:
            # While attempts are under way, time goes on, and a script may bring these clients back.
            ever |= self._taken_away
        return ever & ~self.accountant.exhausted

    def ever_present(self) -> BoolArray:
        """Return True (K,) for clients that are present with enough charge to be selected, or may become so."""
        if self.energy is not None:
            return self.energy.ever_on()
        return self.presence.on | (self.presence.next_change_s < _EVER)

    def start(
        self,
        round: int,
        chosen: IntArray,
        version: int,
        steps: IntArray | None = None,
        holders: frozenset[int] = frozenset(),
        address: int | None = None,
    ) -> Attempts:
        """Begin an attempt of each of `chosen` (n,) in `round`, over the sub-channels that the server assigns.

        A client without an update is sent the model of `version`, unless it is one of `holders`, which have it already. A client
        with a kept update sends that update. A client whose attempt is in flight drops its update, which ends as aborted.

        `steps` (n,): local steps requested of each new update; None: as the work law says. `address`: round that addresses the
        random numbers of the attempts; None: `round`.
        """
        whole, medium, now = self.whole_rounds, self.medium, self.clock.now
        draw_round = round if address is None else address
        if steps is None:
            steps = medium.work.plan_steps(round, chosen)
        if whole.left:
            whole.abort(chosen)
        if self._in_flight:
            dropped = [self._in_flight[client] for client in chosen.tolist() if client in self._in_flight]
            self.end_all(dropped, "aborted")
        if medium.outages is not None:
            # Outages before the oldest phase under way can no longer hit a transmission.
            oldest_s = min((update.phase_start_s for update in self.alive_now.values()), default=now)
            medium.outages.forget(oldest_s)
        # Random numbers are addressed by (round, client), so the order of draws changes nothing.
        send = SendDraws.draw(medium, draw_round, now, chosen)
        models = None
        # Try the fast form first. If an attempt cannot be foreseen, all attempts in flight go by events from here.
        if whole.possible and whole.can_take(len(chosen)):
            models = ModelDraws.draw(medium, draw_round, now, chosen)
            together = whole.begin(round, chosen, version, steps, models, send)
            if together is not None:
                self._call_begin_followers(round, chosen, version, steps)
                return together
            whole.release()
        return self._start_each(round, chosen, version, steps, holders, send, models)

    def _start_each(
        self,
        round: int,
        chosen: IntArray,
        version: int,
        steps: IntArray | None,
        holders: frozenset[int],
        send: SendDraws,
        models: ModelDraws | None,
    ) -> ObjectAttempts:
        """Begin the attempts of `start` by events, one update after the other, and return them.

        The counterpart of `WholeRounds.begin`; both give the same records. `send`: draws of the attempts; its `round` is the
        `address` of `start`. `models`: draws of new updates, or None if not drawn yet.
        """
        now, medium, alive, clients = self.clock.now, self.medium, self.alive_now, chosen.tolist()
        channels: Sequence[int | None] | None = self.life.serving.channels(chosen)
        if channels is None:
            channels = [None] * len(clients)
        departures = self.presence.next_change_s[chosen].tolist()
        last_rounds = self.last_delivery[chosen].tolist()
        causes = self.causes.begin_causes(clients)
        # Without live updates, as in most rounds, all chosen clients are new.
        new_clients = clients if not alive else [client for client in clients if client not in alive]
        if new_clients:
            sent_to = chosen if len(new_clients) == len(clients) else np.array(new_clients, np.int64)
            requested = steps if steps is None or sent_to is chosen else steps[np.isin(chosen, sent_to)]
            if models is None:
                models = ModelDraws.draw(medium, send.round, now, sent_to)
            self._create(models, version, requested)
        updates, selections = ObjectAttempts(), self.selections
        in_flight, retry, energy = self._in_flight, self.life.retry, self.energy
        attempts = zip(clients, last_rounds, departures, channels, causes, strict=True)
        for place, (client, last_round, departure_s, channel, cause) in enumerate(attempts):
            update = alive[client]
            if retry and update.begun_round != send.round and update.phase != KEPT:
                # An update still in training goes on by itself; a kept update is sent now.
                cause = Cause(EARLIER, update.number)
            update.begin_attempt(round, round - last_round, departure_s, now, send, place, channel, cause)
            update.number, update.edge = self.started + place + 1, self.coordinator
            if energy is not None:
                energy.begin(update, now)
            if retry:
                update.started_round = update.begun_round
            in_flight[client] = update
            selections[client] += 1
            updates.append(update)
        # Count before anything is sent: an attempt without durations may end within `_send_models`, and listeners read counts.
        self.busy[chosen] = True
        self.started += len(updates)
        self.models_sent += len(new_clients)
        self._send_models(round, new_clients, updates, holders)
        return updates

    def begin_again(self, update: Update, *, round: int, version: int, edge: str) -> None:
        """Begin another attempt of an update that the edge named `edge` takes over in its `round`, as its client moves there.

        The caller says how the update goes on (`UpdateLifecycle.go_on`). `update`: the `successor` of one whose attempt has
        ended. `version`: the model of the new edge from which the update counts as begun.
        """
        client, now = update.client, self.clock.now
        age, departure_s = round - int(self.last_delivery[client]), float(self.presence.next_change_s[client])
        cause = Cause(EARLIER, update.number)
        self.started += 1
        self.selections[client] += 1
        update.begin_attempt(
            round=round,
            age_rounds=age,
            departure_s=departure_s,
            now_s=now,
            draws=update.send_draws,
            place=update.send_place,
            channel=None,
            begun=cause,
        )
        update.number, update.edge = self.started, edge
        update.version, update.handed_over = version, True
        if self.energy is not None:
            self.energy.begin(update, now)
        self.alive_now[client] = self._in_flight[client] = update
        self.busy[client] = True

    def refuse(self, round: int, client: int, version: int, cause: str) -> None:
        """Count and record an attempt of `client` that is aborted for `cause` before anything is sent or drawn."""
        now, no_clients = self.clock.now, np.zeros(0, np.int64)
        group = None if self.groups is None else self.groups.names_of(np.array([client]))[0]
        update = Update(
            client=client,
            round=round,
            version=version,
            place=0,
            now_s=now,
            draws=ModelDraws(round, now, no_clients),
            work=_UNKNOWN_WORK,
            group=group,
        )
        self.started += 1
        self.selections[client] += 1
        update.begin_attempt(
            round=round,
            age_rounds=round - int(self.last_delivery[client]),
            departure_s=now,
            now_s=now,
            draws=SendDraws(round, now, no_clients),
            place=0,
            channel=None,
            begun=self.causes.begin_cause(client),
        )
        update.number = self.started
        update.phase = ENDED
        update.outcome, update.outcome_s, update.cause = "aborted", now, cause
        self.count_end(update)
        self.causes.end(update, self.followers)

    def _create(self, draws: ModelDraws, version: int, steps: IntArray | None) -> None:
        """Create an update of each client of `draws` (n,) and call the listeners. `steps` (n,): local steps requested of each."""
        now, round, clients, alive = self.clock.now, draws.round, draws.clients, self.alive_now
        groups = [None] * len(clients) if self.groups is None else self.groups.names_of(clients)
        works = self._draw_work(round, version, clients, steps)
        for place, (client, work, group) in enumerate(zip(clients.tolist(), works, groups, strict=True)):
            alive[client] = Update(client, round, version, place, now, draws, work, group)
        self._call_begin_followers(round, clients, version, steps)

    def _call_begin_followers(self, round: int, clients: IntArray, version: int, steps: IntArray | None) -> None:
        """Call the listeners to updates that begin."""
        for on_begin in self.begin_followers:
            on_begin(round, clients, version, steps)

    def add(self, updates: Sequence[Update], order: IntArray) -> None:
        """Let `updates` (n,), which were simulated as arrays so far, go on by events.

        The ends of their steps are put on the clock in `order` (n,), indices of `updates`: of events of one instant, the first to
        be put there comes first.
        """
        for update in updates:
            self.alive_now[update.client] = self._in_flight[update.client] = update
            self.busy[update.client] = True
            self.life.adopt(update)
            if self.energy is not None:
                self.energy.go_on(update)
        for place in order.tolist():
            self.life.schedule(updates[place])

    def _send_models(self, round: int, new_clients: list[int], updates: list[Update], holders: frozenset[int]) -> None:
        """Begin the first step of `new_clients`: a download, which `holders` skip. Other `updates` go on, or are sent again."""
        now, life = self.clock.now, self.life
        for client in new_clients:
            life.begin(self.alive_now[client], now, has_model=client in holders)
        if holders:
            self.models_sent -= len(holders.intersection(new_clients))
        if len(new_clients) == len(updates):
            return
        # Updates that were begun in an earlier round: kept ones are sent again, unfinished ones go on by themselves.
        for update in updates:
            if update.begun_round != round:
                life.begin_again(update, now)

    def _draw_work(
        self, round: int, version: int, clients: IntArray, steps: IntArray | None
    ) -> Iterable[WorkOfUpdate]:
        """Return the work of a new update of each of `clients` (n,): (steps requested, samples, steps)."""
        if steps is None and self.medium.work.samples is None:
            return [_UNKNOWN_WORK] * len(clients)
        samples, steps_taken = self.medium.work.begin(round, version, clients, steps)
        requested = [0] * len(clients) if steps is None else steps.tolist()
        return zip(requested, samples, steps_taken, strict=True)

    def charge(self) -> None:
        """Subtract the energy of tests of the model and of messages from the batteries."""
        if self.energy is not None:
            self.advance()
            self.energy.charge(self.clock.now)
            if self.energy.batteries is not None:
                # Batteries of clients at work are empty earlier now.
                for update in list(self._in_flight.values()):
                    self.life.predict(update)

    def cut(self) -> None:
        """End all attempts as late: the server no longer waits for them."""
        self.whole_rounds.cut()
        self.end_all(list(self._in_flight.values()), "late")

    def end_all(self, updates: list[Update], outcome: str) -> None:
        """End the attempts of `updates` by a decision of the server."""
        # Updates that wait in a queue first: none may take over a sub-channel only to leave it at the same instant.
        for update in sorted(updates, key=lambda update: update.phase != WAIT):
            self.life.cut(update, outcome)

    def _on_end(self, update: Update) -> None:
        """Handle the end of an attempt: count it, free its client, forget an update that is not kept, and call the listeners."""
        # Listeners come last: they may begin the client's next attempt, and must find it idle and counted.
        client = update.client
        self.count_end(update)
        del self._in_flight[client]
        self.busy[client] = False
        if update.phase == ENDED:
            del self.alive_now[client]
        if update.cause == "battery" and self.energy is not None:
            self.energy.aborted += 1
        self.causes.end(update, self.followers)

    def leave(self, clients: IntArray) -> None:
        """Take clients (n,) away. Unfinished updates end as aborted; clients keep finished updates."""
        self.on_move(clients)
        if self.probes is not None:
            self.probes.leave(clients)
        self.abort(clients.tolist())

    def abort(self, clients: Sequence[int]) -> None:
        """End updates of `clients` in training or in flight as aborted. Clients keep finished updates that are not being sent."""
        self.go_by_events()
        updates = [self.alive_now[client] for client in clients if client in self.alive_now]
        self.end_all([update for update in updates if update.client in self._in_flight], "aborted")
        for update in updates:
            # Between two rounds an update can be in training without an attempt: the last has ended, the next has not begun.
            if update.phase in (DOWNLOAD, COMPUTE):
                self.life.drop(update)
                del self.alive_now[update.client]

    def on_move(self, clients: IntArray) -> None:
        """Handle that a script moved clients (n,) in or out: energy learns of it now, listeners at the end of this instant."""
        now = self.clock.now
        if self.energy is not None:
            self.energy.on_move(clients, now)
        self.clock.call_at(now, self._call_watchers, priority=LAST)

    def _call_watchers(self, payload: None) -> None:
        """Call the listeners to moves by scripts."""
        for watch in list(self.watchers):
            watch()

    def go_by_events(self) -> None:
        """Continue each attempt in flight by events. Must be called before time passes between rounds, which arrays cannot do."""
        self.whole_rounds.release()

    def renew(self, name: Drawn) -> None:
        """Re-evaluate the draws `name` of steps not begun yet with the same uniform numbers, after their law was replaced."""
        now = self.clock.now
        self.go_by_events()
        renew_draws(name, self.medium, self.alive_now.values(), now)
        if self.probes is not None:
            renew_draws(name, self.probes.medium, self.probes.under_way.values(), now)

    def updates_in_flight(self) -> list[Update]:
        """Return the attempts in flight, by round and place."""
        return sorted(self.in_flight.values(), key=lambda update: (update.round, update.send_place))

    def state_dict(self) -> State:
        """Return presence, ages, counts, and every update with its next event.

        `precede_jammers`: number of updates whose event is on the clock before the next dwell of a jammer; `load_state_dict`
        schedules that (`arm`) at the same place.
        """
        alive, jamming = self.alive, self.medium.jamming
        before_dwell = sum(not jamming.precedes(update.call_number) for update in alive.values())
        return {
            **self.tallies_state(),
            **self.life.counts(),
            **updates_state(alive.values()),
            "precede_jammers": before_dwell,
            "on_jammed_links": jamming.senders(),
            "in_flight": list(self.in_flight),
            "queue": [update.client for update in self.medium.access.waiting()],
            "availability": self.presence.state_dict(),
            "energy": None if self.energy is None else self.energy.state_dict(),
            "accountant": self.accountant.state_dict(),
        }

    def load_state_dict(self, state: State) -> None:
        """Restore the state. The next events of updates are scheduled in the saved order, which decides ties."""
        # Presence and batteries before updates, which read them as they resume.
        self.load_tallies(state)
        self.alive_now, self._in_flight = {}, {}
        self.life.load_counts(state)
        self.presence.load_state_dict(state["availability"])
        if self.energy is not None:
            self.energy.load_state_dict(state["energy"])
        self.accountant.load_state_dict(state["accountant"])
        for place, update in enumerate(restored_updates(self.medium, state)):
            if place == state["precede_jammers"]:
                self.medium.jamming.arm()
            self.alive_now[update.client] = update
            self.life.resume(update)
            if not update.outcome:
                self._in_flight[update.client] = update
                self.busy[update.client] = True
        # In the order of their beginning: events of one instant keep this order.
        self._in_flight = {client: self._in_flight[client] for client in state["in_flight"]}
        if len(self.alive_now) == state["precede_jammers"]:
            self.medium.jamming.arm()
        sending = [update for update in self.alive_now.values() if update.phase == UPLOAD]
        waiting = [self.alive_now[client] for client in state["queue"]]
        self.medium.access.resume(sending, waiting)
        self.medium.jamming.resume(state["on_jammed_links"], self.alive_now)
