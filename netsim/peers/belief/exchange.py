"""Belief propagation as timed messages: rules, mathematics, results, and the base of both protocols.

The protocols, synchronous (`synchronous.py`) or on arrival (`asynchronous.py`), decide when messages are sent; `BeliefMath`
computes their content. Belief propagation ends when no message changes any more. The simulation sees that; a client could not.
"""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from netsim.core.errors import ParameterError, ParameterWarning
from netsim.peers.protocol import PeerProtocol

if TYPE_CHECKING:
    from netsim.core.protocols import FloatArray
    from netsim.network.transport.message_draws import EdgeDraws
    from netsim.network.transport.transport import Transport


class MessageStormWarning(ParameterWarning):
    """Asynchronous updates may multiply messages up to their limit."""


class BeliefMath(Protocol):
    """Belief propagation over one graph, without time. Messages are log-odds, one for each directed edge (E,)."""

    @property
    def couplings(self) -> FloatArray:
        """Coupling (E,) of each edge."""

    @property
    def convergence_constant(self) -> float:
        """Convergence constant: below 1 there is one fixed point, reached from any start."""

    def fields(self, opinions: FloatArray) -> FloatArray:
        """Return the field of each client (K,) before any message, from the opinions (K,)."""

    def step(self, fields: FloatArray, messages: FloatArray) -> FloatArray:
        """Return the messages (E,) of an exchange, log-odds, from the `messages` (E,) of the one before."""

    def node_messages(
        self, field: float, received: Sequence[float], couplings: Sequence[float], sent: Sequence[float], damping: float
    ) -> list[float]:
        """Return the log-odds that a client would now send to each neighbour, from its `field` and from what it last `received`
        from and `sent` to each.
        """

    def beliefs(self, opinions: FloatArray, messages: FloatArray) -> FloatArray:
        """Return the beliefs (K,) that follow from the opinions (K,) and the messages (E,) that arrived."""

    def answers_until_quiet(self, tolerance: float, limit: int) -> float:
        """Return the number of messages, counted up to `limit`, that an edge may carry if every arrival is answered at once."""

    def exchange_times(
        self, *, exchanges: int, start_s: float, latency_s: Callable[[int], FloatArray], work_s: float
    ) -> FloatArray:
        """Return the time at which each client finishes each exchange if nothing is lost; seconds (exchanges + 1, K)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BeliefRules:
    """Rules for the exchange of beliefs.

    `update` "synchronous": a client sends exchange k+1 `work_s` after it has all of exchange k. A message that was given up
    counts as the last one from that neighbour. "asynchronous": `work_s` after an arrival, a client sends a message to each
    neighbour for whom it has changed by more than `tolerance`; `work_s` also gathers what arrives meanwhile. Without it, every
    arrival is answered at once, and messages multiply until changes fall below the tolerance. No edge carries more than
    `max_exchanges`; an exchange that needs more has not converged (`warn_of_storms` warns beforehand). `exchanges`: number of
    exchanges, converged or not (synchronous); None: until no message changes by more than `tolerance`, at most `max_exchanges`
    (asynchronous: messages on an edge). `damping` in [0, 1): share of the old message in the new one, in log-odds.
    """

    update: Literal["synchronous", "asynchronous"] = "synchronous"
    exchanges: int | None = None
    max_exchanges: int = 1000
    tolerance: float = 1e-9
    damping: float = 0.0
    work_s: float = 0.0
    message_bytes: int = 24

    def __post_init__(self) -> None:
        if self.update not in ("synchronous", "asynchronous"):
            raise ParameterError("update", self.update, "must be 'synchronous' or 'asynchronous'")
        if self.exchanges is not None and self.exchanges < 1:
            raise ParameterError("exchanges", self.exchanges, "must be >= 1")
        if self.exchanges is not None and self.update == "asynchronous":
            raise ParameterError("exchanges", self.exchanges, "asynchronous updates have no exchanges; use max_exchanges")
        if self.max_exchanges < 1:
            raise ParameterError("max_exchanges", self.max_exchanges, "must be >= 1")
        if not 0 <= self.tolerance < math.inf:
            raise ParameterError("tolerance", self.tolerance, "must be >= 0 and finite")
        if not 0 <= self.damping < 1:
            raise ParameterError("damping", self.damping, "must lie in [0, 1)")
        if not 0 <= self.work_s < math.inf:
            raise ParameterError("work_s", self.work_s, "must be >= 0 seconds and finite")
        if self.damping > 0 and self.update == "asynchronous" and self.work_s == 0:
            # With damping a client updates repeatedly without new messages, and this must take time.
            raise ParameterError("damping", self.damping, "asynchronous updates with damping need work_s > 0")
        if self.message_bytes < 0:
            raise ParameterError("message_bytes", self.message_bytes, "must be >= 0")


@dataclass(frozen=True, slots=True)
class BeliefResult:
    """Result of belief propagation."""

    messages: FloatArray
    """Last messages (E,) that arrived, as log-odds."""
    exchanges: int
    """Number of exchanges that all clients have finished; if asynchronous, the largest number of messages sent over an edge."""
    residual: float
    """Largest change of a message in the last exchange."""
    converged: bool
    """True if no message changed by more than the tolerance."""


class BeliefProtocol(PeerProtocol):
    """Common base of the two ways of exchanging beliefs."""

    def __init__(self, *, links: Transport, draws: EdgeDraws, maths: BeliefMath, rules: BeliefRules, fields: FloatArray) -> None:
        super().__init__(links=links, draws=draws)
        self.rules = rules
        self._maths, self._fields = maths, fields

    @abstractmethod
    def result(self) -> BeliefResult:
        """Return the messages that have arrived by now."""


def warn_of_storms(*, rules: BeliefRules, maths: BeliefMath) -> None:
    """Warn with MessageStormWarning if asynchronous updates without `work_s` may send `max_exchanges` messages over an edge."""
    if rules.update == "synchronous" or rules.work_s > 0:
        return
    if maths.answers_until_quiet(rules.tolerance, rules.max_exchanges) >= rules.max_exchanges:
        reason = (
            f"where every arrival is answered at once, messages may multiply up to max_exchanges = {rules.max_exchanges} an edge "
            f"before changes fall below tolerance = {rules.tolerance!r}; give clients work_s > 0, which gathers arrivals, or a "
            "larger tolerance"
        )
        warnings.warn(MessageStormWarning("work_s", rules.work_s, reason), stacklevel=2)
