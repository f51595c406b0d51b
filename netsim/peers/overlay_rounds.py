"""Rounds of nodes that train, send their models over an overlay, and wait for those of others."""

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
"""Stands for the node in counts of arrivals where all nodes wait for all."""
Carry = Callable[[int, Sequence[int], Callable[[], None]], None]
"""Called with a round, the places of arcs in that round, and what to call, once, when all their messages have arrived."""


class OverlayRounds:
    """Rounds of `count` nodes by events. Rounds count from 0.

    In a round every node works `work_s`, sends its model along its arcs of that round (`arcs_of`), and begins the next one when

    - "neighbours": its own work is done and the messages of all its in-neighbours are there;
    - "all": the same holds for all nodes;
    - "centre": node 0 sends first, without work; the others work when its message is there, and answer; the round ends for
      everybody when all answers are there.

    Messages of a later round that arrive early are kept for it. `carry` brings messages over: each alone, or,
    where all nodes wait for all, those of a node together.
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
        self._partial: dict[int, FloatArray] = {}
        self._begun: Counter[int] = Counter()
        self._arrived: Counter[tuple[int, int]] = Counter()
        """Arrivals by (round, node), a node's own work among them; by (round, `_ALL`) where all wait for all."""
        self._outgoing: dict[int, dict[int, list[tuple[int, int]]]] = {}
        """(place of the arc, target) by round and source."""
        self._needed: dict[int, Counter[int]] = {}

    def run(self, rounds: int, over: Callable[[], bool] = lambda: False) -> None:
        """Go on until all nodes have begun so many rounds, or `over` is true after one of them."""
        if not self.begins and not self._partial:
            for node in range(self.count):
                self._begin(node)
        seen = len(self.begins)
        while len(self.begins) < rounds:
            self.clock.step()
            if len(self.begins) > seen:
                seen = len(self.begins)
                if over():
                    break

    def _plan(self, round: int) -> None:
        outgoing: dict[int, list[tuple[int, int]]] = defaultdict(list)
        arcs = self._arcs_of(round)
        for place, (source, target) in enumerate(arcs):
            outgoing[source].append((place, target))
        self._outgoing[round] = outgoing
        if self.waiting == "all":
            self._needed[round] = Counter({_ALL: len(outgoing) + self.count})
        else:
            self._needed[round] = Counter(target for _, target in arcs) + Counter(range(self.count))

    def _begin(self, node: int) -> None:
        """Begin the next round of `node`: note the time, and start its work. With a centre only node 0 starts without work."""
        round = self._round[node] = self._round[node] + 1
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
        # First the messages: if all others are there, the node goes on to its next round at once.
        round = self._round[node]
        self._send(node)
        self._count(round, node)

    def _send(self, node: int) -> None:
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
        if self.waiting == "centre" and node:
            self.clock.call_in(self.work_s, self._send, node)
        else:
            self._count(round, node)

    def _count(self, round: int, node: int) -> None:
        key = round, _ALL if self.waiting == "all" else node
        self._arrived[key] += 1
        needed = self.count - 1 if self.waiting == "centre" else self._needed[round][key[1]]
        if self._arrived[key] < needed:
            return
        del self._arrived[key]
        for ready in [node] if self.waiting == "neighbours" else range(self.count):
            self._begin(ready)


def mean_round_s(begins: Sequence[FloatArray], period: int) -> float | None:
    """Return the mean time of a round once rounds repeat, seconds; None if they do not yet.

    `begins`: as `OverlayRounds.begins`. Rounds repeat if all nodes begin the last one, and the one before it, the same time after
    an earlier round; `period`: rounds after which arcs repeat.
    """
    last = len(begins) - 1
    for back in range(period, last, period):
        since = begins[last] - begins[last - back]
        before = begins[last - 1] - begins[last - 1 - back]
        both = np.concatenate([since, before])
        if float(np.ptp(both)) <= 1e-12 * max(float(begins[last].max()), 1e-300):
            return float(since.mean()) / back
    return None
