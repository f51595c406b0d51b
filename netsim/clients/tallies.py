"""Arrays with an entry for each client, and counts of attempts. The pool of clients is a `Tallies`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from netsim.clients.update import OUTCOMES
from netsim.clients.vectorised.columns import CLIENT, DELIVERED, END, OUTCOME, ROUND

if TYPE_CHECKING:
    from netsim.clients.update import Update
    from netsim.clients.vectorised.columns import Columns
    from netsim.core.protocols import BoolArray, FloatArray, IntArray, State

_SAVED_ARRAYS = ("last_delivery", "last_delivery_s", "successes", "selections")


class Tallies:
    """Busy clients, last deliveries, and attempts begun and ended, for a number of `clients`."""

    def __init__(self, clients: int) -> None:
        self.count = clients
        self.busy: BoolArray = np.zeros(clients, np.bool_)
        """True (K,) while an attempt of the client is in flight."""
        self.last_delivery: IntArray = np.zeros(clients, np.int64)
        """Round (K,) of each client's last delivered update; 0: none yet. The age of information after round t is
        t - `last_delivery` + 1.
        """
        self.last_delivery_s: FloatArray = np.zeros(clients)
        """Time (K,) at which each client's last update arrived, seconds; 0 before the first."""
        self.selections: IntArray = np.zeros(clients, np.int64)
        """Number of attempts (K,) begun by each client."""
        self.successes: IntArray = np.zeros(clients, np.int64)
        """Number of updates (K,) delivered by each client."""
        self.started = self.models_sent = 0
        """Numbers of attempts begun and of models sent to clients, so far."""
        self.ended = dict.fromkeys(OUTCOMES, 0)
        """Number of attempts ended so far, by outcome."""
        self.numbered_ends = 0
        """Number of attempts that `count_end` has numbered so far; the next attempt to end gets this number."""

    def count_end(self, update: Update) -> None:
        """Count an attempt that ended by its own event, and number it in the order of ends (compared within a round only)."""
        self.ended[update.outcome] += 1
        update.end_number = self.numbered_ends
        self.numbered_ends += 1
        if not update.censored:
            self.last_delivery[update.client] = update.round
            self.last_delivery_s[update.client] = update.outcome_s
            self.successes[update.client] += 1

    def count_begun(self, clients: IntArray) -> None:
        """Count an attempt of each of `clients` (n,), which is sent a model. A client may occur more than once."""
        np.add.at(self.selections, clients, 1)
        self.started += len(clients)
        self.models_sent += len(clients)

    def count_ends(self, ended: Columns, *, all_delivered: bool) -> None:
        """Count the attempts `ended`, simulated as arrays and in the order of ends, as `count_end` does for each of them.

        It gives them no numbers. `all_delivered`: True if every update was delivered.
        """
        outcomes = ended.counts[OUTCOME]
        delivered: BoolArray | slice = slice(None)
        if all_delivered:
            self.ended["delivered"] += len(ended)
        else:
            # `ended` has the order of OUTCOMES, which the column indexes.
            numbers = np.bincount(outcomes, minlength=len(OUTCOMES)).tolist()
            for outcome, number in zip(self.ended, numbers, strict=True):
                self.ended[outcome] += number
            delivered = outcomes == DELIVERED
        # Attempts are in the order of ends, so of two deliveries of a client the later one is written last.
        clients = ended.counts[CLIENT, delivered]
        self.last_delivery[clients] = ended.counts[ROUND, delivered]
        self.last_delivery_s[clients] = ended.times[END, delivered]
        np.add.at(self.successes, clients, 1)

    def tallies_state(self) -> State:
        """Return all arrays and counts but `busy`, which follows from the updates."""
        arrays = {name: getattr(self, name).copy() for name in _SAVED_ARRAYS}
        return arrays | {"started": self.started, "models_sent": self.models_sent, "ended": dict(self.ended)}

    def load_tallies(self, state: State) -> None:
        """Restore a saved state. No client is busy afterwards."""
        for name in _SAVED_ARRAYS:
            getattr(self, name)[:] = state[name]
        self.started, self.models_sent, self.ended = state["started"], state["models_sent"], dict(state["ended"])
        # A round under way is saved with its numbered ends; the ends to come must get larger numbers.
        self.numbered_ends = sum(self.ended.values())
        self.busy[:] = False
