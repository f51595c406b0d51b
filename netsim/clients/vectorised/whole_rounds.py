"""The attempts of a round simulated together as arrays, where attempts do not affect each other: no queue, no shared medium.

As attempts begin, `netsim.clients.vectorised.foreseen` computes all their steps, and the rule of the close reads their ends. The
close is the only event on the clock. The records equal those of `UpdateLifecycle`, which runs the same steps by events, to the
last bit, also where two attempts end at one instant.

Events would take a third more time for 15 attempts a round, and ten times as much and more from 1,000 on
(`tests/benchmarks/test_whole_rounds_bench.py`).

Code that reads single updates, such as a checkpoint, gets copies made from the columns (`copies`), which change nothing. Code
that acts on single updates first converts the columns to updates, which go on by events (`release`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from netsim.clients.update import ModelDraws, SendDraws
from netsim.clients.vectorised.columns import (
    ABORTED,
    ARRIVES,
    CHARGED,
    CLIENT,
    DELIVERED,
    END,
    EPSILON,
    LATE,
    LEAK,
    NUMBER,
    OUTCOME,
    PLACE,
    ROUND,
    SELECTED,
    UP_START,
    Columns,
    Groups,
    Selected,
)
from netsim.clients.vectorised.foreseen import Foreseen
from netsim.clients.vectorised.releasing import Released, release_attempts

if TYPE_CHECKING:
    from netsim.clients.lifecycle import UpdateLifecycle
    from netsim.clients.power.energy import Energy
    from netsim.clients.update import Update
    from netsim.core.clock import Clock
    from netsim.core.protocols import Accountant, Availability, BoolArray, FloatArray, IntArray
    from netsim.network.medium import Medium

FROM = 6
"""Smallest number of attempts of a round for which arrays are faster than single updates."""
_EVER = float("inf")


class Pool(Protocol):
    """The part of `netsim.clients.pool.ClientPool` that is used here."""

    clock: Clock
    medium: Medium
    presence: Availability
    accountant: Accountant
    life: UpdateLifecycle
    settled: bool
    groups: Groups | None
    energy: Energy | None
    alive_now: dict[int, Update]
    busy: BoolArray
    last_delivery: IntArray
    started: int

    def count_begun(self, clients: IntArray) -> None:
        """Count attempts that begin together (`netsim.clients.tallies`)."""

    def count_ends(self, ended: Columns, *, all_delivered: bool) -> None:
        """Count attempts that have ended (`netsim.clients.tallies`)."""

    def add(self, updates: Sequence[Update], order: IntArray) -> None:
        """Continue updates by events; their next steps are scheduled in `order` (n,)."""


class _Close(NamedTuple):
    """The close of a round, as far as attempts in the table are concerned."""

    time_s: float
    following: int
    """Place of the first attempt that ends after the close."""


class WholeRounds:
    """Attempts of `pool` that are simulated as arrays, round by round.

    `possible`: False if something may act on single attempts during a round. Attempts that outlast their round stay in the
    table with the attempts of the next round.
    """

    def __init__(self, *, pool: Pool, possible: bool) -> None:
        self._recipe = pool.life.recipe
        self.possible = possible and self._recipe.foreseeable and not pool.life.retry
        """True if attempts may be simulated as arrays in this run."""
        self._pool = pool
        self._foreseen = Foreseen(self._recipe, pool.medium)
        self.followers: list[Callable[[Columns], object]] = []
        """Listeners called with the attempts that have ended, in the order of their ends."""
        self.closes_s: float | None = None
        """Time at which the round under way will close; None if unknown."""
        self.last_end: int | None = None
        """Number of the last attempt of the round that ends by its close; None if none ends by then."""
        self._table: Columns | None = None
        """Attempts in the order of their ends. Those in flight are the last `left`: earlier ones have ended."""
        self._ends_s: FloatArray = np.zeros(0)
        """Ends (n,) of the attempts of the table, ascending."""
        self.left = 0
        """Number of attempts in flight."""
        self._draws: dict[int, tuple[ModelDraws, SendDraws]] = {}
        """Random numbers of the updates and attempts in flight, by round."""
        self._phases = None if pool.energy is None else pool.energy.phases
        self._unmetered: list[Columns] = []
        """Ended attempts whose energy is not accounted for yet."""
        if pool.energy is not None:
            pool.energy.listen(self._meter)
        self._simple = False
        """True if the table holds one round whose attempts are all delivered before its close.

        `_deliver` then handles the table in one piece, which saves a sixth of the time of a round of 15 attempts, and nothing of
        one of 1,000.
        """
        self._outlasting = False
        """True if some attempts outlast the round that closed last."""

    def switch_off(self) -> None:
        """Simulate all attempts of the run by events."""
        self.possible = False

    def can_take(self, count: int) -> bool:
        """Return True if `count` attempts that begin now may be simulated as arrays: the closing rule depends on ends only, no
        update goes by events, and arrays are faster.
        """
        pool = self._pool
        if pool.life.serving.closing is None or pool.alive_now:
            return False
        # While attempts are in the table, a few more go there, too: otherwise all of them would have to be converted.
        return count >= FROM or self.left > 0

    def begin(
        self, round: int, chosen: IntArray, version: int, steps: IntArray | None, models: ModelDraws, sends: SendDraws
    ) -> Selected | None:
        """Begin the attempts of `chosen` (n,) in `round` and return them; the counterpart of `ClientPool._start_each`.

        Return None and do nothing if some attempt, or the close of the round, cannot be foreseen now.
        """
        pool, left_before = self._pool, self.left
        away_s = None if pool.settled else pool.presence.next_change_s[chosen]
        forecast = self._foreseen.foresee(
            chosen=chosen,
            version=version,
            steps=steps,
            ages=round - pool.last_delivery[chosen],
            away_s=away_s,
            models=models,
            sends=sends,
        )
        if forecast is None:
            return None
        times, counts = forecast.times, forecast.counts
        counts[NUMBER] = counts[PLACE] + (pool.started + 1)
        table = Columns(times, counts, self._foreseen.causes, pool.groups, self._phases)
        if left_before:
            table = self._rest().append_tables([table])
        # Change no state of the pool before the close is known: if it is not, the caller goes by events instead.
        order = table.order_by_end()
        table = table.take(order)
        ends_s = table.times[END]
        # Places in the table of the attempts of this round.
        own_places = np.flatnonzero(table.counts[ROUND] == round) if left_before else self._foreseen.places(len(chosen))
        close = self._foresee_close(table, ends_s, own_places)
        if close is None:
            return None
        self._table, self._ends_s, self.left, self.closes_s = table, ends_s, len(ends_s), close.time_s
        self._simple = forecast.all_arrive and not left_before and close.following == len(ends_s)
        self._draws[round] = models, sends
        pool.count_begun(chosen)
        self._recipe.model.count(chosen)
        # Places in the table by order of selection: the inverse of the order by end.
        places = np.empty(len(chosen), np.int64)
        places[table.counts[PLACE, own_places]] = own_places
        # In the simple case all times lie before the close, and none need be hidden.
        hides_after_s = _EVER if self._simple else close.time_s
        return Selected(table, places, hides_after_s)

    def _foresee_close(self, table: Columns, ends_s: FloatArray, own_places: IntArray) -> _Close | None:
        """Return the close of the round, or None if it cannot be foreseen. Make deliveries of this round after it late.

        `ends_s` (n,): ends of the attempts of `table`, ascending. `own_places` (m,): places of this round's attempts.
        """
        closing, counts = self._pool.life.serving.closing, table.counts
        assert closing is not None
        close = closing.fold(ends_s[own_places], counts[OUTCOME, own_places] == DELIVERED)
        if close is None:
            return None
        closes_s, ended, by_end = close
        last = own_places.item(ended - 1) if ended else -1
        self.last_end = counts.item(NUMBER, last) if ended else None
        if not by_end:
            # A look closes the round after everything else of its instant, so ends at that instant are in time.
            following = int(ends_s.searchsorted(closes_s, "right"))
        else:
            # An end closes the round at once: ends that follow it at the same instant are late.
            following = last + 1
            # An update may be ready at the instant of the close, after the end that caused the close, and be sent in no time.
            # It then arrives after the server has gone on. The order of single events matters here, so arrays cannot decide.
            if following < len(ends_s) and ends_s[following] == closes_s:
                tied = slice(following, int(ends_s.searchsorted(closes_s, "right")))
                starts_s = table.times[UP_START, tied]
                if ((starts_s == closes_s) & (table.times[SELECTED, tied] < closes_s)).any():
                    return None
        if following < len(ends_s):
            # Attempts outlast their round. Outages counted in rounds that may hit them are not known yet.
            if self._pool.medium.outages is not None:
                return None
            late = own_places[(own_places >= following) & (counts[OUTCOME, own_places] == DELIVERED)]
            counts[OUTCOME, late] = LATE
        return _Close(closes_s, following)

    def foresee_attempts(
        self, round: int, begins_s: FloatArray
    ) -> tuple[Columns, tuple[ModelDraws, SendDraws]] | None:
        """Return (an attempt in `round` of each of the K clients, from `begins_s` (K,) to its end; their draws).

        None if an attempt cannot be foreseen now. For peers, each of which begins rounds by itself
        (`netsim.servers.kinds.peer_rounds`). The attempts are counted only when they `join`.
        """
        # Draws are addressed by (round, client), so it does not matter that they are read before most attempts begin.
        pool, everyone = self._pool, self._foreseen.places(len(begins_s))
        medium, now = pool.medium, pool.clock.now
        models, sends = ModelDraws.draw(medium, round, now, everyone), SendDraws.draw(medium, round, now, everyone)
        forecast = self._foreseen.foresee(
            chosen=everyone,
            version=0,
            steps=medium.work.plan_steps(round, everyone),
            ages=np.ones(len(everyone), np.int64),
            away_s=None,
            models=models,
            sends=sends,
            begins_s=begins_s,
        )
        if forecast is None or not forecast.all_arrive:
            return None
        attempts = Columns(forecast.times, forecast.counts, self._foreseen.causes, pool.groups, self._phases)
        return attempts, (models, sends)

    def join(self, begun: Columns, draws: dict[int, tuple[ModelDraws, SendDraws]]) -> None:
        """Count and take over attempts of `foresee_attempts` that have begun by now. `draws`: by round, of all attempts in
        flight, in place of those kept so far.
        """
        table = self._rest().append_tables([begun]) if self.left else begun
        self._table = table.take(table.order_by_end())
        self._ends_s, self._draws, self._simple = self._table.times[END], draws, False
        self.left = len(self._ends_s)
        self._pool.count_begun(begun.counts[CLIENT])
        self._recipe.model.count(begun.counts[CLIENT])

    def settle(self, until_s: float) -> None:
        """Count uploads that begin, and end attempts that end, up to and including `until_s`.

        No event does this at its time. Callers settle before they read counts, privacy or busy clients.
        """
        count = self.left
        if not count:
            return
        table = self._rest()
        if self._simple and count == len(self._ends_s) and self._ends_s[-1] <= until_s:
            self.left = 0
            self._deliver(table)
            return
        # `_deliver` counts the whole table, so it must not run after `_count` has counted a part.
        self._simple = False
        self._count(table, until_s)
        ended = count if self._ends_s[-1] <= until_s else int(table.times[END].searchsorted(until_s, "right"))
        if ended:
            self.left -= ended
            self._end(table if ended == count else table.piece(0, ended))

    def _rest(self) -> Columns:
        """Return the attempts in flight, in the order of their ends."""
        assert self._table is not None
        count = len(self._ends_s)
        return self._table.piece(count - self.left, count) if self.left < count else self._table

    def _count(self, table: Columns, until_s: float) -> None:
        """Count the uploads begun up to `until_s`, and spend privacy on them."""
        counts = table.counts
        places = np.flatnonzero((table.times[UP_START] <= until_s) & (counts[CHARGED] == 0))
        if len(places):
            begun = slice(None) if len(places) == len(table) else places
            counts[CHARGED, begun] = 1
            self._recipe.update.count(counts[CLIENT, begun])
            if self._pool.life.charges_on_upload:
                self._charge(table, begun)

    def _charge(self, table: Columns, places: IntArray | slice) -> None:
        """Spend privacy on the updates at `places` of `table`, and record budget and leak there."""
        clients, rounds = table.counts[CLIENT, places], table.counts[ROUND, places]
        if (rounds != rounds[0]).any():
            # The accountant takes distinct clients, and clients are distinct within a round only.
            everyone = np.arange(len(table))[places]
            for round in np.unique(rounds).tolist():
                self._charge(table, everyone[rounds == round])
            return
        table.times[EPSILON, places], table.times[LEAK, places] = self._pool.accountant.charge_all(clients)

    def _deliver(self, table: Columns) -> None:
        """Fast path of `_count` and `_end` for a table in which every update of one round is delivered; has the same effects."""
        self._recipe.update.count(table.counts[CLIENT])
        self._charge(table, slice(None))
        self._report_ends(table, all_delivered=True)

    def _report_ends(self, ended: Columns, *, all_delivered: bool = False) -> None:
        """Count attempts that have ended, in the order of their ends, and call the listeners."""
        self._pool.count_ends(ended, all_delivered=all_delivered)
        if self._outlasting:
            self._pool.busy[ended.counts[CLIENT]] = False
        if self._phases is not None:
            self._unmetered.append(ended)
        for follow in self.followers:
            follow(ended)

    def _meter(self, until_s: float) -> None:
        """Account for the energy drawn up to `until_s`: first by attempts that have ended, then by attempts in flight."""
        for ended in self._unmetered:
            ended.meter(until_s, ended=True)
        self._unmetered.clear()
        if self.left and self._phases is not None:
            self._rest().meter(until_s, ended=False)

    def _end(self, ended: Columns) -> None:
        """End the attempts `ended`, in the order of their ends: spend privacy on arrivals if it is due then, and report."""
        if not self._pool.life.charges_on_upload:
            arrived = np.flatnonzero(ended.counts[ARRIVES])
            if len(arrived):
                self._charge(ended, arrived)
        self._report_ends(ended)

    def on_close(self) -> None:
        """Handle the close of the round: settle up to it, and mark clients of attempts that have not ended as busy."""
        assert self.closes_s is not None
        self.settle(self.closes_s)
        self.closes_s = None
        self._outlasting = self.left > 0
        if self._outlasting:
            counts = self._rest().counts
            self._pool.busy[counts[CLIENT]] = True
            rounds = set(counts[ROUND].tolist())
            self._draws = {round: draws for round, draws in self._draws.items() if round in rounds}
        else:
            self._draws.clear()

    def cut(self) -> None:
        """End all attempts as late, in the order of their selection."""
        if self.left:
            counts = self._rest().counts
            self._end_now(np.lexsort((counts[PLACE], counts[ROUND])), LATE)

    def abort(self, clients: IntArray) -> None:
        """End the attempts of `clients` (n,) as aborted, in this order; clients without an attempt are ignored."""
        if self.left:
            place_of = {client: place for place, client in enumerate(self._rest().counts[CLIENT].tolist())}
            places = [place_of[client] for client in clients.tolist() if client in place_of]
            if places:
                self._end_now(np.array(places, np.int64), ABORTED)

    def _end_now(self, places: IntArray, outcome: int) -> None:
        """End the attempts at `places` of `_rest()` now, in this order, with `outcome` (an index of OUTCOMES)."""
        # Remove the attempts from the table before they are reported: a listener may read the attempts that are left.
        rest, now = self._rest(), self._pool.clock.now
        goes_on = np.ones(len(rest), np.bool_)
        goes_on[places] = False
        self._table = rest.take(np.flatnonzero(goes_on))
        self._ends_s = self._table.times[END]
        self.left = len(self._ends_s)
        ended = rest.take(places).cut(outcome, now)
        # Change the arrays in place: `Selected` of the round refers to them, and its readers must see the ends.
        rest.times[:, places], rest.counts[:, places] = ended.times, ended.counts
        self._end(ended)

    def copies(self) -> list[Update]:
        """Return copies of attempts in flight as single updates in the present state, by round and place.

        `call_number` is their rank in the order in which their next events would have been put on the clock.
        """
        copies = self._convert()
        for number, place in enumerate(copies.order.tolist()):
            copies.updates[place].call_number = number
        if self._pool.energy is not None:
            for update in copies.updates:
                self._pool.energy.go_on(update)
        return copies.updates

    def release(self) -> None:
        """Convert attempts in flight to single updates that go on by events."""
        if self.left:
            released = self.take_out()
            if released.updates:
                self._pool.add(released.updates, released.order)

    def take_out(self) -> Released:
        """Convert attempts in flight to single updates, and empty the table."""
        released = self._convert()
        self._table, self._ends_s, self.left, self._draws = None, np.zeros(0), 0, {}
        return released

    def _convert(self) -> Released:
        """Return attempts in flight as single updates in the present state, after everything up to now is counted."""
        now = self._pool.clock.now
        self.settle(now)
        self._meter(now)
        if not self.left:
            return Released([], np.zeros(0, np.int64))
        return release_attempts(self._rest(), now, self._draws, self._recipe)
