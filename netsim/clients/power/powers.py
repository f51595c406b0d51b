"""Powers of clients by state, and the energy of attempts simulated as arrays, whose phases are known beforehand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from netsim.clients.power.power_integral import IDLE, RECEIVING
from netsim.clients.steps.stages import STAGES
from netsim.core.errors import ParameterError

if TYPE_CHECKING:
    from netsim.clients.power.power_integral import PhaseEnergy, PowerIntegral
    from netsim.core.protocols import FloatArray, IntArray

MOST_W = 1e12
"""Largest power allowed, watts: sums over many clients and a long time stay far below the largest float."""
PHASES = tuple(stage.power for stage in STAGES)
"""States (`netsim.clients.power.power_integral`) of a client in the three phases of an attempt, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Powers:
    """Powers of each client by state, watts; all (K,). Raises ValueError for a power that is negative or above MOST_W."""

    idle_w: FloatArray
    compute_w: FloatArray
    send_w: FloatArray
    receive_w: FloatArray
    off_w: FloatArray

    def __post_init__(self) -> None:
        for name in ("idle_w", "compute_w", "send_w", "receive_w", "off_w"):
            values: FloatArray = getattr(self, name)
            bad = ~((values >= 0) & (values <= MOST_W))
            if bad.any():
                client = int(np.argmax(bad))
                value = float(values[client])
                allowed = f"must be >= 0 watts and finite, at most {MOST_W:g}"
                raise ParameterError(name, value, allowed, shown=f" = {value!r} for client {client}")

    @property
    def by_state(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Powers of each client while it is present, by state; all (K,)."""
        return self.idle_w, self.receive_w, self.compute_w, self.send_w

    @property
    def same(self) -> tuple[float, ...] | None:
        """Power by state, watts, if all arrays repeat one number (`np.broadcast_to`); otherwise None."""
        # A stride of zero: all entries are the same number in memory. Equal numbers side by side are not looked for.
        if all(not watts.strides[0] for watts in self.by_state):
            return tuple(watts.item(0) for watts in self.by_state)
        return None


class KnownPhases:
    """Account of the energy of attempts simulated as arrays, whose phases are known. Reports to `integral` and `spent`.

    Must give the same bits as `netsim.clients.power.energy.Energy.change`, called for each change of state.
    """

    def __init__(self, *, powers: Powers, integral: PowerIntegral, spent: PhaseEnergy) -> None:
        self._powers, self._integral, self._spent = powers, integral, spent
        same = powers.same
        self._same: FloatArray | None = None if same is None else np.array(same)[:, None]
        """Powers (4, 1) by state if all clients draw the same; otherwise None."""

    def _watts(self, clients: IntArray) -> FloatArray:
        """Return the powers of `clients` (n,) by state, watts: (4, n), or (4, 1) if all draw the same."""
        if self._same is not None:
            return self._same
        return np.stack([watts[clients] for watts in self._powers.by_state])

    def joules(self, state: int, clients: IntArray, seconds: FloatArray) -> FloatArray:
        """Return the joules (n,) that `clients` (n,) drew in `state` for `seconds` (n,); 0 for NaN, a state not reached."""
        joules: FloatArray = self._watts(clients)[state] * seconds
        joules[np.isnan(joules)] = 0.0
        return joules

    def report(
        self, clients: IntArray, times_s: FloatArray, leave_s: FloatArray | None, reported: IntArray | None, until_s: float
    ) -> IntArray | int:
        """Report the changes of state up to `until_s` in attempts of `clients` (n,). Return how many changes of each attempt have
        been reported now: (n,), or one number for all.

        `times_s` (6, n): starts and ends of the phases in the order of PHASES; NaN: not reached. `leave_s` (n,): ends of the
        attempts, if all have ended; None if none has. `reported` (n,): number of changes of each that were reported before;
        None: 0.
        """
        # A client is idle until its first phase begins, goes from phase to phase, and is idle again when its attempt ends.
        # Each phase adds its power at its start and takes it off at its end; joules count from the anchor of the integral.
        watts, anchor_s = self._watts(clients), self._integral.anchor_s
        idle_w, phase_w = watts[IDLE], watts[RECEIVING:]
        seconds = times_s[1::2] - times_s[::2]
        joules, displaced_j = phase_w * seconds, idle_w * seconds
        begin_j, end_j = phase_w * (times_s[::2] - anchor_s), -(phase_w * (times_s[1::2] - anchor_s))
        idle_j = -(idle_w * (times_s[0] - anchor_s))
        if leave_s is not None:
            idle_again_j = idle_w * (leave_s - anchor_s)
            # Fast path: each attempt has gone through all its phases, and nothing of it was reported before.
            if reported is None and not np.isnan(leave_s - times_s[-1]).any():
                self._add_whole_attempts(begin_j, end_j, joules, displaced_j)
                self._integral.pending_j[IDLE] += idle_j.tolist() + idle_again_j.tolist()
                return len(times_s)
            self._integral.pending_j[IDLE] += idle_again_j.tolist()
            self._integral.pending_w[IDLE] += np.broadcast_to(idle_w, leave_s.shape).tolist()
        # Changes of an attempt come in the order of rows, so `reported` of them are known already. NaN compares as False.
        happened = times_s <= until_s
        new = happened if reported is None else happened & (np.arange(len(times_s))[:, None] >= reported)
        begun, ended = new[::2], new[1::2]
        # Watts (4, n) of each client by state.
        each_w = np.broadcast_to(watts, (len(watts), len(clients)))
        for row, state in enumerate(PHASES):
            state_w = each_w[state]
            self._integral.pending_j[state] += begin_j[row, begun[row]].tolist() + end_j[row, ended[row]].tolist()
            self._integral.pending_w[state] += state_w[begun[row]].tolist() + (-state_w[ended[row]]).tolist()
            self._spent.phases_j[state] += joules[row, ended[row]].tolist()
        self._integral.pending_j[IDLE] += idle_j[begun[0]].tolist()
        self._integral.pending_w[IDLE] += (-each_w[IDLE, begun[0]]).tolist()
        self._spent.displaced_j += displaced_j[ended].tolist()
        reported_now: IntArray = happened.sum(axis=0)
        return reported_now

    def _add_whole_attempts(self, begin_j: FloatArray, end_j: FloatArray, joules: FloatArray, displaced_j: FloatArray) -> None:
        """Fast path of `report` for attempts whose phases have all begun and ended, all arrays (3, n).

        The changes of power cancel, so only energy is reported.
        """
        for row, state in enumerate(PHASES):
            self._integral.pending_j[state] += begin_j[row].tolist() + end_j[row].tolist()
            self._spent.phases_j[state] += joules[row].tolist()
        self._spent.displaced_j += displaced_j.ravel().tolist()
