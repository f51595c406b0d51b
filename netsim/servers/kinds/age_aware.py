"""Asynchronous server with ages: in every round each client that is present gets a sub-channel and sends its update.

Clients whose update was delivered are sent the new model and train; other clients keep their update and send it again. A round
lasts a fixed time, or until nothing is being sent any more. If no phase takes time, the clock stands still and round t is round
t of the untimed algorithm (Li et al. 2025).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from netsim.clients.attempts import Attempts, ObjectAttempts
from netsim.core.state import StateFields
from netsim.servers.rounds.close import FixedLength, NothingOnTheAir, check_round_s
from netsim.servers.rounds.loop import ClosedRound, CloseRule, Dispatch, Instrument, NobodyLeftError, RoundLoop
from netsim.servers.rounds.round_server import RoundServer

if TYPE_CHECKING:
    from netsim.clients.pool import ClientPool
    from netsim.core.clock import Event, Process
    from netsim.core.protocols import BoolArray, IntArray, Learner, Selection
    from netsim.core.rows import ColumnValues
    from netsim.core.scheduling import AgeMeter
    from netsim.network.spectrum import Spectrum
    from netsim.servers.sub_channels.channels import ScheduledChannels

_EVER = float("inf")


class AllPresent(StateFields, Dispatch):
    """Dispatch of a round in which every client that is present takes part.

    A client with an undelivered update sends it again; other clients are sent the model. `round_s`: length of a round, which
    passes even if no client is present; None: rounds have no fixed length.
    """

    needs_updates = needs_losses = False
    restarts: Sequence[tuple[int, int]] = ()

    def __init__(self, *, pool: ClientPool, learner: Learner, round_s: float | None = None) -> None:
        self.pool = pool
        self.learner = learner
        self.round_s = round_s
        self.attempts: Attempts = ObjectAttempts()
        self._chosen: IntArray
        """Clients of the present round."""
        self._for_good = False
        """True if no client will come or go any more, so that `_chosen` stays valid while all clients have budget."""

    def _present(self) -> BoolArray:
        """Return True (K,) for clients that can take part now: present, with charge, and an update or budget to make one."""
        pool = self.pool
        pool.advance()
        present = pool.present_and_charged()
        # Fast path: while all clients have budget, all of them can contribute.
        if True not in pool.accountant.exhausted.tolist():
            return present
        return present & pool.can_contribute()

    @property
    def selection(self) -> IntArray | Selection:
        """Clients of the present round."""
        return self._chosen

    def wait(self, number: int) -> Iterable[Event]:
        """Wait until a client is present; a round of fixed length does not wait past its end.

        Fast path: once no client will come or go, the clients of the last round are those of this one, too.
        """
        if self._for_good and True not in self.pool.accountant.exhausted.tolist():
            return ()
        return self._wait(number)

    def _wait(self, number: int) -> Process[None]:
        """Wait until a client is present, or until a round of fixed length must begin. Set the clients of the round."""
        pool = self.pool
        present = self._present()
        while not present.any():
            next_s = float(pool.availability.next_change_s.min())
            if next_s == _EVER or not (pool.can_contribute() & pool.ever_present()).any():
                raise NobodyLeftError
            # A round of fixed length passes even without clients.
            if self.round_s is not None and next_s >= number * self.round_s:
                break
            yield pool.clock.event_at(next_s)
            present = self._present()
            first_present = int(np.argmax(present)) if present.any() else None
            pool.causes.note_return(first_present)
        self._chosen = np.flatnonzero(present)
        self._for_good = pool.settled and pool.energy is None and bool(present.any())

    def choose(self, number: int, start_s: float) -> IntArray:
        """Return the present clients, as `wait` has found them."""
        return self._chosen

    def leave_out(self, client: int) -> None:
        """Exclude `client` from the round. It keeps an update that it holds or computes."""
        self._chosen = self._chosen[self._chosen != client]
        # The next round must choose its clients by itself: this client takes part in it again.
        self._for_good = False

    def send(self, number: int) -> None:
        """Begin an attempt of each chosen client."""
        if len(self._chosen):
            self.attempts = self.pool.start(number, self._chosen, self.learner.version)
        else:
            self.attempts = ObjectAttempts()


class Ages(Instrument):
    """Ages of information (Li et al. eq. 8), in the records of rounds and of attempts, beside those of an oracle."""

    state_fields = ("meter",)
    round_columns = ("sum_age", "age_variance", "oracle_sum_age")

    def __init__(self, *, pool: ClientPool, spectrum: Spectrum, dispatch: AllPresent, meter: AgeMeter) -> None:
        self.pool = pool
        self.spectrum = spectrum
        self.dispatch = dispatch
        self.meter = meter
        self._oracle = float("nan")
        """Sum of ages that the oracle reaches in the present round."""

    def open(self, number: int) -> None:
        """Run the oracle on the states of the round."""
        self._oracle = self.meter.measure(number, self.spectrum.open_to_all())

    def columns(self, closed: ClosedRound) -> ColumnValues:
        """Return `sum_age`, `age_variance` and `oracle_sum_age`; set `age_after_rounds` and `age_after_s` of each attempt."""
        # Lists, because with few clients a single operation on an array costs more than a loop over all.
        pool = self.pool
        next_round = closed.number + 1
        ages = [next_round - last for last in pool.last_delivery.tolist()]
        last_s = pool.last_delivery_s.tolist()
        for update in self.dispatch.attempts.updates:
            update.age_after_rounds = ages[update.client]
            update.age_after_s = closed.end_s - last_s[update.client]
        total, sum_of_squares = sum(ages), sum([age * age for age in ages])
        # The sum of (age - mean)^2 is sum(age^2) - total^2 / K. Integers up to the last division keep it exact.
        variance = (pool.count * sum_of_squares - total * total) / pool.count
        return {"sum_age": total, "age_variance": variance, "oracle_sum_age": self._oracle}


def age_aware_server(
    *,
    pool: ClientPool,
    channels: ScheduledChannels,
    learner: Learner,
    meter: AgeMeter,
    round_s: float | None = None,
    wait_for_compute: bool = False,
) -> RoundServer:
    """Return an asynchronous server over sub-channels, with ages of information in its records.

    `meter`: ages that an oracle would reach. `round_s`: length of a round in seconds; None: a round ends when no transmission is
    in flight, and with `wait_for_compute` no client computes (`NothingOnTheAir`). Raises ValueError for a length that is not > 0.
    """
    spectrum = channels.access.spectrum
    close: CloseRule
    if round_s is None:
        close = NothingOnTheAir(pool=pool, wait_for_compute=wait_for_compute)
    else:
        close = FixedLength(pool=pool, round_s=check_round_s(round_s), announce=spectrum.announce_end)
    dispatch = AllPresent(pool=pool, learner=learner, round_s=round_s)
    loop = RoundLoop(
        pool=pool,
        dispatch=dispatch,
        close=close,
        learner=learner,
        instruments=[Ages(pool=pool, spectrum=spectrum, dispatch=dispatch, meter=meter), *channels.instruments],
        assignment=channels.assignment,
        straggle=False,
        outlast=True,
    )
    return RoundServer(loop=loop, rows_at_close=True, recording=channels.recording)
