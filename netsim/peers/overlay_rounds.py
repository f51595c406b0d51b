"""Rounds of nodes that train, send their models over an overlay, and wait for the models of other nodes; for the round time of an
overlay.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from netsim.core.clock import Clock
    from netsim.core.protocols import FloatArray

Pair = tuple[int, int]
_ALL = -1
"""Key in place of a node in counts of arrivals, if all nodes wait for all."""
Carry = Callable[[int, Sequence[int], Callable[[], None]], None]
"""Function that sends messages. Arguments: a round, the places of arcs in that round, and a callback, called once when all their
messages have arrived."""


class OverlayRounds:
    """Rounds of `count` nodes by events. Rounds count from 0.

    In a round every node works `work_s` seconds and sends its model along its arcs of that round (`arcs_of`: pairs of source and
    target). `waiting` says when it begins the next round:

    - "neighbours": when its own work is done and the messages of all its in-neighbours have arrived;
    - "all": when that holds for all nodes;
    - "centre": node 0 sends first, without work; other nodes work when its message has arrived, and answer; all nodes begin the
      next round when all answers have arrived.

    Messages of a later round that arrive early count for that round. `carry` sends messages: one a call, or with "all" all
    messages of a node in one call.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        count: int,
        work_s: float,
        arcs_of: Callable[[int], Sequence[Pair]],
        carry: Carry,
        waiting: Literal["neighbours", "all", "centre"],
    ) -> None:
        self.clock = clock
        self.count = count
        self.work_s = work_s
        self.waiting = waiting
        self.begins: list[FloatArray] = []
        """Time at which each node began each round (n,), of rounds that all nodes have begun."""
        self._arcs_of = arcs_of
        self._carry = carry
        self._round = [-1] * count
        """Present round of each node; -1 before the first."""
        self._partial: dict[int, FloatArray] = {}
        """Times at which nodes began rounds that not all nodes have begun, by round."""
        self._begun: Counter[int] = Counter()
        """Number of nodes that have begun each round."""
        self._arrived: Counter[tuple[int, int]] = Counter()
        """Number of arrivals by (round, node), the end of a node's own work included; by (round, `_ALL`) if all wait for all."""
        self._outgoing: dict[int, dict[int, list[tuple[int, int]]]] = {}
        """(place of the arc, target) by round and source."""
        self._needed: dict[int, Counter[int]] = {}
        """Number of arrivals that end a round of each node, by round and node."""

    def run(self, rounds: int, is_over: Callable[[], bool] = lambda: False) -> None:
        """Run until all nodes have begun this number of rounds, or `is_over` returns True after one of them."""
        has_started = bool(self.begins or self._partial)
        if not has_started:
            for node in range(self.count):
                self._begin(node)
        begun = len(self.begins)
        while len(self.begins) < rounds:
            self.clock.step()
            if len(self.begins) > begun:
                # One more round that all nodes have begun.
                begun = len(self.begins)
                if is_over():
                    break

    def _plan(self, round: int) -> None:
        """Note the arcs of a round, and the numbers of arrivals that end it."""
        outgoing: dict[int, list[tuple[int, int]]] = defaultdict(list)
        arcs = self._arcs_of(round)
        for place, (source, target) in enumerate(arcs):
            outgoing[source].append((place, target))
        self._outgoing[round] = outgoing
        # The end of a node's own work counts as an arrival. With "all" each sender counts once, by its last message.
        if self.waiting == "all":
            self._needed[round] = Counter({_ALL: len(outgoing) + self.count})
        else:
            self._needed[round] = Counter(target for _, target in arcs) + Counter(range(self.count))

    def _begin(self, node: int) -> None:
        """Begin the next round of `node`: note the time, and start its work. With a centre node 0 sends its model at once, and
        other nodes wait for it.
        """
        self._round[node] += 1
        round = self._round[node]
        if round not in self._outgoing:
            self._plan(round)
        times = self._partial.setdefault(round, np.zeros(self.count))
        times[node] = self.clock.now
        self._begun[round] += 1
        if self._begun[round] == self.count:
            self.begins.append(self._partial.pop(round))
            self._outgoing.pop(round - 1, None)
        if self.waiting != "centre":
            self.clock.call_in(self.work_s, self._finish_work, node)
        elif node == 0:
            self._send(node)

    def _finish_work(self, node: int) -> None:
        """Callback at the end of a node's work: send its model, and count the end of the work."""
        # Send first: counting may begin the node's next round at once.
        round = self._round[node]
        self._send(node)
        self._count(round, node)

    def _send(self, node: int) -> None:
        """Send the model of `node` along its arcs of its present round."""
        round = self._round[node]
        outgoing = self._outgoing[round][node]
        if self.waiting == "all":
            # No node looks at a single message: only the last one of each sender can end the round.
            if outgoing:
                self._carry(round, [place for place, _ in outgoing], lambda: self._count(round, _ALL))
            return
        for place, target in outgoing:
            self._carry(round, [place], lambda target=target: self._arrive(round, target))  # type: ignore[misc]

    def _arrive(self, round: int, node: int) -> None:
        """Handle the arrival of a message of `round` at `node`: with a centre, other nodes start to work; else count it."""
        if self.waiting == "centre" and node:
            self.clock.call_in(self.work_s, self._send, node)
        else:
            self._count(round, node)

    def _count(self, round: int, node: int) -> None:
        """Count an arrival of `round` at `node`, or the end of its work; begin the next round after the last one needed."""
        counted = _ALL if self.waiting == "all" else node
        key = round, counted
        self._arrived[key] += 1
        needed = self.count - 1 if self.waiting == "centre" else self._needed[round][counted]
        if self._arrived[key] < needed:
            return
        del self._arrived[key]
        if self.waiting == "neighbours":
            self._begin(node)
            return
        # "all" and "centre" are barriers for all nodes: the last arrival begins the round of each.
        for every_node in range(self.count):
            self._begin(every_node)


def mean_round_s(begins: Sequence[FloatArray], period: int) -> float | None:
    """Return the mean time of a round in seconds once rounds repeat; None if they do not repeat yet.

    `begins`: time (n,) at which each node began each round. `period`: number of rounds after which the overlay repeats. Rounds
    repeat if, for some multiple p of `period`, all nodes begin the last round the same time after they began round last - p. The
    same must hold for the round before the last.
    """
    # The begins follow a max-plus recursion, which repeats with some period p after finitely many rounds. Two rounds one after
    # the other guard against a shift that is constant by chance.
    last = len(begins) - 1
    for rounds in range(period, last, period):
        since_s = begins[last] - begins[last - rounds]
        since_before_s = begins[last - 1] - begins[last - 1 - rounds]
        spread_s = float(np.ptp(np.concatenate([since_s, since_before_s])))
        # Equal up to the rounding of times.
        if spread_s <= 1e-12 * max(float(begins[last].max()), 1e-300):
            return float(since_s.mean()) / rounds
    return None
