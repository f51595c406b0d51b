"""Gossip as timed messages: rules, mathematics, and the common base of `flooding.py` and `push.py`.

In a slot every client makes one index, and messages spread (client, index) pairs. The code names clients by rank, their place in
the decreasing order of all indices; a client uses only ranks of which it has heard. Agreement: each client knows the true top m,
so all name the same m clients. Clients do not notice agreement, and go on until training starts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from netsim.core.errors import ParameterError
from netsim.peers.protocol import PeerProtocol

if TYPE_CHECKING:
    from netsim.core.protocols import FloatArray, IntArray
    from netsim.network.transport.message_draws import EdgeDraws
    from netsim.network.transport.transport import Transport

Known = Any
"""Knowledge of a client, or content of a message: plain, immutable, false if empty. Only a `Payload` makes and reads it."""


class Payload(Protocol):
    """Algebra of the knowledge that messages carry: pairs (client, index), by rank."""

    def item(self, rank: int) -> Known:
        """Return the knowledge of one pair."""

    def merge(self, held: Known, arrived: Known) -> tuple[Known, Known]:
        """Return (`held` and `arrived` together, the part of `arrived` that is new)."""

    def difference(self, held: Known, arrived: Known) -> Known:
        """Return the part of `held` that `arrived` does not contain."""

    def pairs(self, known: Known) -> int:
        """Return the number of pairs."""

    def top_ranks(self, held: Known, size: int) -> tuple[int, ...]:
        """Return the best ranks of `held`, at most `size` of them, ascending."""

    def knows_top(self, held: Known, size: int) -> bool:
        """Return True if `held` contains the best `size` of all clients."""


class GossipMath(Protocol):
    """Gossip over one graph without time."""

    @property
    def payload(self) -> Payload:
        """Algebra of the knowledge that messages carry."""

    @property
    def keeps_all(self) -> bool:
        """True if clients forward everything they receive, so that an item's spread depends on no other item."""

    def ranks(self, index: FloatArray, priority: FloatArray | None) -> IntArray:
        """Return the place (K,) of each client in the decreasing order of `index`; among equals the lower `priority` comes
        first.
        """

    def contacts(self, u: FloatArray) -> IntArray:
        """Return the edge to a random neighbour of each client that has one, from uniforms (K,)."""

    def believers(self, held: Sequence[Known], ranks: IntArray) -> IntArray:
        """Return the clients that believe themselves in the top m, ascending."""

    def disagreement(self, held: Sequence[Known]) -> float:
        """Return the share of clients that do not name the true top m."""

    def flooding_times(self, *, origins: IntArray, start_s: float, latency_s: FloatArray, work_s: float) -> FloatArray:
        """Return the time at which each client knows the item of each origin if all flood; seconds (origins, K)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GossipRules:
    """Rules for the spread of indices.

    `forwarding` "flooding": `work_s` after an arrival, a client sends what is new to it to all neighbours except the sender; when
    a link comes back from an outage, its two ends send each other all they know. "push": every `interval_s` each client sends
    all it knows to one random neighbour. "push-pull": that neighbour answers with pairs that the message did not contain.
    `max_repetitions`: of push and push-pull. A message has `header_bytes`, and `pair_bytes` for each pair.
    """

    forwarding: Literal["flooding", "push", "push-pull"] = "flooding"
    interval_s: float = 0.01
    max_repetitions: int = 10_000
    work_s: float = 0.0
    header_bytes: int = 16
    pair_bytes: int = 12

    def __post_init__(self) -> None:
        if self.forwarding not in ("flooding", "push", "push-pull"):
            raise ParameterError("forwarding", self.forwarding, "must be 'flooding', 'push' or 'push-pull'")
        for name, value in (("interval_s", self.interval_s), ("work_s", self.work_s)):
            if not 0 <= value < math.inf:
                raise ParameterError(name, value, "must be >= 0 seconds and finite")
        if not 1 <= self.max_repetitions < 1 << 24:
            raise ParameterError("max_repetitions", self.max_repetitions, f"must be between 1 and {(1 << 24) - 1}")
        for name, count in (("header_bytes", self.header_bytes), ("pair_bytes", self.pair_bytes)):
            if count < 0:
                raise ParameterError(name, count, "must be >= 0 bytes")


class GossipProtocol(PeerProtocol):
    """Common base of all ways of forwarding: the knowledge of each client, and the time of agreement."""

    def __init__(
        self, *, links: Transport, draws: EdgeDraws, maths: GossipMath, rules: GossipRules, ranks: IntArray, size: int
    ) -> None:
        super().__init__(links=links, draws=draws)
        self.rules = rules
        self.agreed_s = math.nan
        """Time at which all clients first named the same top m; NaN before."""
        self.until_agreement = True
        """True if the protocol stops at agreement, or once that is impossible; False if only `stop` ends it."""
        self.payload = maths.payload
        self.held: list[Known] = [maths.payload.item(rank) for rank in ranks.tolist()]
        """Knowledge of each client."""
        self._maths, self._size, self._ranks = maths, size, ranks
        self._client_of = np.argsort(ranks).tolist()
        """Client of each rank."""
        self._informed = [self.payload.knows_top(held, size) for held in self.held]
        """True for clients that know the true top m."""
        self._uninformed = self._informed.count(False)
        """Number of clients that do not."""
        self._outstanding = 0
        """Number of messages in flight and of clients that work on one."""

    def go_past_agreement(self) -> None:
        """Go on after agreement: only `stop` ends the protocol."""
        self.until_agreement = False

    def _merge(self, client: int, arrived: Known) -> None:
        """Add the content `arrived` of a message to the knowledge of `client`."""
        held, new = self.payload.merge(self.held[client], arrived)
        if new:
            self._update_knowledge(client, held)

    def _update_knowledge(self, client: int, held: Known) -> None:
        """Set the knowledge of `client` to `held`; the last client to know the top m makes agreement."""
        # Count the clients that know the top m, so that agreement is noticed at its event without a look at all clients.
        self.held[client] = held
        if not self._informed[client] and self.payload.knows_top(held, self._size):
            self._informed[client] = True
            self._uninformed -= 1
            if self._uninformed == 0:
                self._agree()

    def _agree(self) -> None:
        """Note that all clients agree now, and stop unless the protocol goes on."""
        self.agreed_s = self.links.clock.now
        if self.until_agreement:
            self.stop_at(self.agreed_s)

    def _teaches(self, edge: int) -> bool:
        """Return True if the sender of `edge` knows something that its receiver does not."""
        links = self.links
        sender, receiver = links.sources[edge], links.targets[edge]
        _, new = self.payload.merge(self.held[receiver], self.held[sender])
        return bool(new)

    def _size_bytes(self, known: Known) -> int:
        """Return the size of a message that carries `known`."""
        return self.rules.header_bytes + self.rules.pair_bytes * self.payload.pairs(known)
