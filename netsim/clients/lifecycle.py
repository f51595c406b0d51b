"""The executor of updates by events: it runs the steps of the recipe one after the other until the attempt has an outcome.

A step of known length is one timed callback. An attempt ends exactly once, as delivered, lost (a transmission failed), late (the
server had stopped waiting for it, or cancelled it) or aborted (the client went away, or was selected again). Until then it is in
flight. `netsim.clients.vectorised.foreseen` runs the same steps as arrays, with the same result.

The present time is passed from step to step as `now`, in seconds: every update of a run takes this path, so it must be fast.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from netsim.clients.power.power_integral import IDLE
from netsim.clients.rules import USUAL, UpdateRules
from netsim.clients.serving import Serving, TakesAll
from netsim.clients.steps.recipe import update_recipe
from netsim.clients.steps.stages import COMPUTE, ENDED, KEPT, WAIT

if TYPE_CHECKING:
    from netsim.clients.power.energy import Energy
    from netsim.clients.steps.step import Step
    from netsim.clients.steps.transfer import Transfer
    from netsim.clients.update import Update
    from netsim.core.clock import Clock
    from netsim.core.protocols import Accountant, IntArray, State
    from netsim.network.medium import Medium

_EVER = float("inf")

# A step needs one entry of the clock: its end, or the departure of its client if that is earlier. Entries cannot be taken back.
# So each update remembers time and number of its valid call (`due_s`, `call_number`), and `_on_due` ignores every other call.
# Whatever reschedules a step sets both, or the step would end twice.


class UpdateLifecycle:
    """Runs the steps of updates over `medium` (links, work and draws of the clients), by events.

    `accountant`: counts the privacy that updates spend. `find`: callback that returns the update of a client after a carrier has
    moved its bytes. `on_end`: called with each update whose attempt ends, inside the event that ended it. `energy`: powers and
    batteries of the clients, or None. `kind`: name of the messages on carriers, different for each executor on one medium.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        medium: Medium,
        accountant: Accountant,
        find: Callable[[int], Update],
        on_end: Callable[[Update], None],
        rules: UpdateRules = USUAL,
        energy: Energy | None = None,
        kind: str = "update",
    ) -> None:
        self.clock, self.accountant = clock, accountant
        self.retry = rules.retry
        """True if an update that was not delivered is kept, and sent again in a later attempt."""
        self.charges_on_upload = rules.charge_on == "upload"
        """True if privacy is spent as an upload begins; otherwise it is spent as the update arrives."""
        self.serving: Serving = TakesAll()
        """The server. It decides which arriving updates it takes; other updates are late."""
        self.recipe = update_recipe(self, medium, rules, kind)
        """Steps of an update, in order."""
        self.says_samples = rules.on_work is not None
        """True if a callback says the number of samples of an update as its work begins."""
        # The step of each phase: an update names its present step by its phase.
        self._step = {step.phase: step for step in self.recipe.steps}
        self._find, self._energy, self._on_end = find, energy, on_end
        self._battery = energy is not None and energy.batteries is not None
        """True if clients have batteries."""
        self._charged = energy is not None and energy.charger is not None
        """True if clients have chargers."""
        for transfer in (self.recipe.model, self.recipe.update):
            transfer.listen(self._on_carrier_end)

    @property
    def uploads(self) -> int:
        """Number of uploads begun so far."""
        return self.recipe.update.begun

    @property
    def sending(self) -> int:
        """Number of uploads in flight."""
        return self.recipe.update.under_way

    @property
    def bytes_down(self) -> int:
        """Bytes of models sent so far, models in flight included."""
        return self.recipe.model.bytes

    @property
    def bytes_up(self) -> int:
        """Bytes of uploads begun so far."""
        return self.recipe.update.bytes

    def serve(self, server: Serving) -> None:
        """Set the server that decides which updates it takes."""
        self.serving = server

    def begin(self, update: Update, now: float, *, has_model: bool = False) -> None:
        """Run the first step of a new update, or the second if its client has the model already."""
        self.recipe.steps[1 if has_model else 0].begin(update, now)

    def begin_again(self, update: Update, now: float) -> None:
        """Send a kept update in a new attempt. An update that is still in training goes on by itself."""
        if update.phase == KEPT:
            self.recipe.again.begin(update, now)

    def go_on(self, update: Update, phase: str, left_s: float, now: float) -> None:
        """Go on in `phase` with an update whose attempt has just begun: train for `left_s` seconds more, or send it from the
        start. For updates that another edge has handed over.
        """
        step = self._step[phase]
        if phase == COMPUTE:
            self.run(update, step, now + left_s, now)
        else:
            step.begin(update, now)

    def await_state(self, update: Update, now: float) -> None:
        """Begin to wait for the state of a client that moved here (a transfer between edges), until `receive_state`.

        Recorded as the download of a model.
        """
        step = self.recipe.model
        update.phase, update.phase_start_s = step.phase, now
        step.resume(update)
        self.wait(update, IDLE, now)

    def receive_state(self, update: Update, phase: str, left_s: float, now: float) -> None:
        """End the wait of `await_state`, and go on as `go_on` does."""
        self.recipe.model.close(update, now)
        self.go_on(update, phase, left_s, now)

    def cut(self, update: Update, outcome: str) -> None:
        """End the attempt by a decision of the server."""
        self.end(update, outcome, self.clock.now)

    def drop(self, update: Update) -> None:
        """Discard an update that is still in training and has no attempt at present, so that no record is made of it."""
        self._step[update.phase].drop(update)
        update.phase, update.due_s = ENDED, _EVER
        if self._energy is not None:
            self._energy.change(update, IDLE, self.clock.now)

    def run(self, update: Update, step: Step, ends_s: float, now: float) -> None:
        """Run `step` until `ends_s`, or until the client leaves if that is earlier: one timed callback."""
        if self._energy is not None:
            if self._battery:
                update.ends_s = ends_s
            self._energy.change(update, step.power, now)
        # Presence is [comes, goes): a client that would end at the very moment of leaving has left.
        if ends_s >= update.departure_s:
            ends_s = update.departure_s
        # An update that waited has its departure on the clock already, unless a change of power moved the departure.
        if update.phase != WAIT or ends_s < update.departure_s or self._energy is not None:
            update.call_number = self.clock.call_at(ends_s, self._on_due, update)
        update.phase, update.phase_start_s, update.due_s = step.phase, now, ends_s
        if self._charged:
            self._watch_charger(update)

    def _on_due(self, update: Update) -> None:
        """Callback at the end of the present step of `update`: finish it, or abort if its client departs now."""
        now = self.clock.now
        # Ignore stale calls: the wait ended, the step was timed again, or the attempt was cut.
        if update.due_s != now or update.call_number != self.clock.calling:
            return
        # Presence is [comes, goes): a step that would end at the very moment of leaving does not end.
        if now == update.departure_s:
            self.leave(update, now)
        else:
            self._step[update.phase].finish(update, now)

    def proceed(self, update: Update, now: float) -> None:
        """End the present step and begin the one that follows; after the last the update has arrived."""
        step = self._step[update.phase]
        following = step.following
        if following is None:
            self._arrive(update, now)
        else:
            step.close(update, now)
            following.begin(update, now)

    def _arrive(self, update: Update, now: float) -> None:
        """End the attempt of an update that has arrived, as delivered or late."""
        if not self.charges_on_upload:
            self.charge(update)
        if self.serving.takes(update):
            update.censored = False
            self.end(update, "delivered", now)
        else:
            self.end(update, "late", now)

    def wait(self, update: Update, power: int, now: float) -> None:
        """Wait until other code ends the present step, or the client leaves. `power`: state of the client meanwhile."""
        if self._energy is not None:
            update.ends_s = _EVER
            self._energy.change(update, power, now)
        # Of this step only the departure of the client is known beforehand.
        update.due_s = update.departure_s
        self.schedule(update)
        if self._charged:
            self._watch_charger(update)

    def schedule(self, update: Update) -> None:
        """Put the end of the present step (`due_s`) on the clock, unless it is unknown. An earlier call becomes stale."""
        update.call_number = -1 if update.due_s == _EVER else self.clock.call_at(update.due_s, self._on_due, update)

    def replan(self, update: Update, ends_s: float) -> None:
        """Move the end of the present step to `ends_s`, unless the client leaves or its battery is empty before."""
        if self._energy is not None:
            update.ends_s = ends_s
            self.predict(update)
        else:
            update.due_s = min(ends_s, update.departure_s)
            self.schedule(update)

    def predict(self, update: Update) -> None:
        """Reschedule the present step, after something other than a step has changed how long the client's battery lasts."""
        assert self._energy is not None
        self._energy.predict(update, self.clock.now)
        due_s = min(update.ends_s, update.departure_s)
        if due_s != update.due_s:
            update.due_s = due_s
            self.schedule(update)
        if self._charged:
            self._watch_charger(update)

    def _watch_charger(self, update: Update) -> None:
        """Have the step rescheduled when the client comes to a charger or leaves it, if that is before the step ends."""
        assert self._energy is not None
        next_s = self._energy.next_charging_s(update.client)
        if next_s < update.due_s:
            self.clock.call_at(next_s, self._on_charger_change, update)

    def _on_charger_change(self, update: Update) -> None:
        """Callback when the client comes to a charger or leaves it: reschedule the step that the update is in, if any."""
        if update.phase in self._step:
            assert self._energy is not None
            self._energy.advance(self.clock.now)
            self.predict(update)

    def adopt(self, update: Update) -> None:
        """Take over an update in the middle of a step: its step counts it as under way. Schedules nothing."""
        if update.phase in self._step:
            self._step[update.phase].resume(update)

    def resume(self, update: Update) -> None:
        """Continue an update that was restored from a saved state: schedule its next event and follow its energy and battery.

        The order (`adopt`, energy, clock, charger) is that at the start of an update, so that events of one instant keep theirs.
        """
        self.adopt(update)
        if self._energy is not None:
            self._energy.resume(update)
        self.schedule(update)
        if self._charged and update.phase in self._step:
            self._watch_charger(update)

    def charge(self, update: Update) -> None:
        """Spend privacy on the update, and record the budget spent (`epsilon`) and the leak."""
        update.charged = True
        update.epsilon, update.leak = self.accountant.charge(update.client)
        update.budget = update.epsilon

    def _on_carrier_end(self, transfer: Transfer, client: int, cause: str | None) -> None:
        """Handle the end of a client's message on a carrier. `cause`: of a loss on the way, or None.

        If the client departs at this very instant, the departure counts, not the end of the message.
        """
        update, now = self._find(client), self.clock.now
        if now == update.departure_s:
            self.leave(update, now)
        else:
            transfer.arrive(update, now, cause)

    def leave(self, update: Update, now: float) -> None:
        """End the attempt as aborted: the client leaves, or its battery is empty (cause "battery")."""
        empty = self._energy is not None and self._energy.runs_empty(update, now)
        self.end(update, "aborted", now, "battery" if empty else None)

    def end(self, update: Update, outcome: str, now: float, cause: str | None = None) -> None:
        """End the attempt of `update` in its present step: set outcome, time and cause, close the step, and call `on_end`.

        Then release what the step holds, such as a sub-channel. With `retry` (rules of updates) the update itself may live on. A
        finished update that was not delivered is kept for a new attempt. Training goes on after an attempt that is late.
        """
        step = self._step[update.phase]
        update.outcome, update.outcome_s, update.cause = outcome, now, cause
        if self.retry and outcome == "late" and not step.finished:
            # The step goes on, and is recorded in the later attempt in which it ends: remove it from the record of this one.
            if self._energy is not None:
                self._energy.account(update, now)
            update.erase_phase()
            self._on_end(update)
            return
        if self._energy is not None:
            self._energy.change(update, IDLE, now)
        # Record the end of the present step; steps that were not reached keep NaN.
        step.close(update, now)
        update.phase = KEPT if self.retry and step.finished and outcome != "delivered" else ENDED
        # Make the call on the clock stale. Both fields are part of a saved state.
        update.due_s, update.call_number = _EVER, -1
        self._on_end(update)
        # Last: this may begin the transmission of the next update in the queue, which must find this attempt ended.
        if step.hold is not None:
            step.hold.release(update, now)

    def counts(self) -> State:
        """Return the counts of transfers and bytes sent so far."""
        return {name: getattr(self, name) for name in ("uploads", "bytes_down", "bytes_up")}

    def load_counts(self, state: State) -> None:
        """Restore saved counts. No update may be in flight: `resume` counts those under way again."""
        model, update = self.recipe.model, self.recipe.update
        model.bytes, update.begun, update.bytes = state["bytes_down"], state["uploads"], state["bytes_up"]
        model.under_way = update.under_way = 0


class ProbesOfPool(Protocol):
    """Probes beside updates (`netsim.clients.probes`), as the pool sees them."""

    under_way: dict[int, Update]
    """Probes in flight, by client."""
    joules: dict[str, float]
    """Energy that probes have drawn, by column, joules."""

    @property
    def medium(self) -> Medium:
        """Medium with the draws, sizes and durations of the present question, or the last one."""

    @property
    def bytes_down(self) -> int:
        """Bytes sent to clients so far."""

    @property
    def bytes_up(self) -> int:
        """Bytes sent by clients so far."""

    def leave(self, clients: IntArray) -> None:
        """Abort the probes of clients (n,) that a script took away."""
