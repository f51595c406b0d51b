"""Belief propagation between clients without time: sum-product over binary states "select me" (Tong et al. 2024, eq. 4-7).

A message i -> n is one number, the logarithm of its odds log(m(1) / m(0)); messages are an array (E,) over the directed edges
of a `PeerGraph`. Products run over neighbours: the paper's factor e_in would zero every product at a non-neighbour. As printed,
phi and psi do not depend on the state, every normalised message is 1/2, and a belief contains nothing about neighbours. Two
models replace it: `Ising`, the form of the paper's convergence proof, and `Opinion`, the printed equations normalised over
clients.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from models.errors import ParameterError, ParameterWarning
from models.peers.graph import FloatArray, PeerGraph

CLIP = 1e-6
"""Opinions are clipped to [CLIP, 1 - CLIP], so that log-odds stay finite."""


class ConvergenceWarning(ParameterWarning):
    """Warning that the sufficient condition for one fixed point of belief propagation does not hold."""


class Ising:
    """Model of the proof of Theorem 2, in place of eq. 5 and 7.

    phi_n(1) = r^2, phi_n(0) = 1 - r^2; psi_in = exp(J_in) where the states agree, exp(-J_in) where they do not; J_in =
    `coupling` exp(-`attenuation` d^`exponent`), d in km.

    With the paper's attenuation, -30 dB = 0.001, and exponent 3.7 the exponential is 1.00 to three digits at every distance in
    a square of 1 km (0.9964 across its diagonal): distance does not matter there. With the default coupling the condition of
    `convergence_constant` holds in every graph of up to 22 clients.
    """

    def __init__(
        self, *, coupling: float = 0.05, attenuation: float = 0.001, exponent: float = 3.7, strict: bool = False
    ) -> None:
        for name, value in (("coupling", coupling), ("attenuation", attenuation), ("exponent", exponent)):
            # Greater couplings give the same messages; with these bounds powers and doubles stay finite.
            most = 20.0 if name == "exponent" else 1e6
            if not 0 <= value <= most:
                raise ParameterError(name, value, f"must be >= 0 and at most {most:g}")
        self._coupling, self._attenuation, self._exponent, self._strict = coupling, attenuation, exponent, strict

    def couplings(self, graph: PeerGraph) -> FloatArray:
        """Return J (E,) of each directed edge, the same both ways.

        If the condition for one fixed point fails: ConvergenceWarning, or ParameterError if `strict`.
        """
        values: FloatArray = self._coupling * np.exp(-self._attenuation * graph.distance_km**self._exponent)
        constant = convergence_constant(graph, values)
        if constant >= 1:
            reason = (
                f"the largest sum of tanh|J| over all but one of a client's neighbours is {constant:.4g}; must be < 1 for one "
                "fixed point from any start (a smaller coupling, or fewer links)"
            )
            if self._strict:
                raise ParameterError("coupling", self._coupling, reason)
            warnings.warn(ConvergenceWarning("coupling", self._coupling, reason), stacklevel=2)
        return values

    @staticmethod
    def fields(opinions: FloatArray) -> FloatArray:
        """Return log(phi(1) / phi(0)) of opinions (K,): the log-odds of each client's belief without neighbours."""
        # With r the opinion, phi(1) = r^2 and phi(0) = 1 - r^2.
        r = np.clip(check_opinions(opinions), CLIP, 1 - CLIP)
        return np.asarray(2 * np.log(r) - np.log1p(-r * r))


class Opinion:
    """The printed equations, normalised over clients: b_n = r_n^2 / sum r^2. Messages are empty."""

    @staticmethod
    def beliefs(opinions: FloatArray) -> FloatArray:
        """Return the beliefs (K,) of opinions (K,), with sum 1; equal if all opinions are 0."""
        squares = check_opinions(opinions) ** 2
        total = squares.sum()
        return np.asarray(squares / total) if total > 0 else np.full(len(squares), 1 / len(squares))


def check_opinions(opinions: FloatArray) -> FloatArray:
    """Return `opinions` as float64 (K,). Raises ParameterError unless each is in [0, 1]."""
    values = np.asarray(opinions, np.float64)
    wanted = "must be one number in [0, 1] for each client"
    if values.ndim != 1:
        raise ParameterError("opinions", values, wanted, shown=f" has shape {values.shape}")
    is_allowed = (values >= 0) & (values <= 1)
    if not is_allowed.all():
        # The first client whose opinion is not.
        client = int(np.argmin(is_allowed))
        raise ParameterError("opinions", values, wanted, shown=f" = {float(values[client])!r} of client {client}")
    return values


def convergence_constant(graph: PeerGraph, couplings: FloatArray) -> float:
    """Return the largest sum of tanh|J| over all but one of a client's links (Mooij and Kappen 2007).

    In the paper's letters: the max over clients l and k in N(l) of the sum over i in N(l) without k of tanh|J_il|.

    Below 1, a synchronous step shrinks the sum over edges of the differences of any two sets of messages by at least this
    factor: one fixed point, reached from any start. The condition is sufficient, not necessary (on a tree every coupling
    converges).
    """
    strength = np.tanh(np.abs(couplings))
    # The sum is largest without the weakest neighbour.
    sums = graph.sum_incoming(strength) + graph.max_incoming(-strength)
    return max(0.0, float(sums.max()))


def step(graph: PeerGraph, couplings: FloatArray, fields: FloatArray, messages: FloatArray) -> FloatArray:
    """Return the messages (E,) of exchange k+1 from those of exchange k (eq. 6), for all clients at once.

    `make_message` is its twin for single messages: both must give the same numbers. If a message of exchange k was lost, the
    caller leaves the receiver's last one in its place.
    """
    totals = fields + graph.sum_incoming(messages)
    # The message to a neighbour leaves out the message from that neighbour: log-odds h.
    cavity = totals[graph.source] - messages[graph.reverse]
    # The message is log((e^(h+J) + e^-J) / (e^(h-J) + e^J)), odd in h and in J. For h, J >= 0 that equals
    # min(h, 2J) + log(1 + e^-(h+2J)) - log(1 + e^-|h-2J|), which does not overflow for large h or J.
    abs_h, two_j = np.abs(cavity), 2 * np.abs(couplings)
    smaller, larger = np.minimum(abs_h, two_j), np.maximum(abs_h, two_j)
    size = smaller + np.log1p(np.exp(-(abs_h + two_j))) - np.log1p(np.exp(smaller - larger))
    return np.asarray(np.copysign(np.maximum(size, 0.0), cavity * np.sign(couplings)))


def make_message(cavity: float, coupling: float) -> float:
    """Return the message of a client over a link of `coupling`: 2 atanh(tanh(coupling) tanh(cavity / 2)), without overflow.

    `cavity`: the sender's log-odds, leaving out what the receiver has told it. Twin of `step` in plain numbers: both must
    give the same numbers.
    """
    abs_h, two_j = abs(cavity), 2 * abs(coupling)
    smaller, larger = (abs_h, two_j) if abs_h < two_j else (two_j, abs_h)
    size = smaller + math.log1p(math.exp(-(abs_h + two_j))) - math.log1p(math.exp(smaller - larger))
    signed_like = cavity if coupling >= 0 else -cavity
    return math.copysign(max(size, 0.0), signed_like)


def node_messages(
    field: float, received: Sequence[float], couplings: Sequence[float], sent: Sequence[float], damping: float
) -> list[float]:
    """Return the messages of one client to each of its neighbours, in plain numbers, for an engine that updates on arrival.

    `field`: the client's own log-odds. `received` (the last message from each neighbour), `couplings` and `sent` (the last
    message to each) are in the same order of neighbours. Damping mixes the last message in: damping * sent + (1 - damping) *
    new, in log-odds.
    """
    total = field + sum(received)
    return [
        damping * old + (1 - damping) * make_message(total - heard, coupling)
        for heard, coupling, old in zip(received, couplings, sent, strict=True)
    ]


def beliefs(graph: PeerGraph, fields: FloatArray, messages: FloatArray) -> FloatArray:
    """Return belief_n(1) (K,) from the messages (E,) that arrived (eq. 4)."""
    from scipy.special import expit

    return np.asarray(expit(fields + graph.sum_incoming(messages)))


@dataclass(frozen=True, slots=True)
class FixedPoint:
    """Result of `settle`."""

    messages: FloatArray
    """(E,) last messages, as log-odds."""
    iterations: int
    residual: float
    """Largest change of a message in the last iteration."""
    residual_sum: float
    """Sum of the changes in the last iteration, which bounds the distance to the fixed point."""
    converged: bool


def settle(
    graph: PeerGraph,
    couplings: FloatArray,
    fields: FloatArray,
    *,
    start: FloatArray | None = None,
    damping: float = 0.0,
    tolerance: float = 1e-9,
    max_iterations: int = 1000,
) -> FixedPoint:
    """Exchange messages synchronously until none changes by more than `tolerance`, or `max_iterations` are done.

    `start` (E,) finite log-odds; None: all 0, no information.

    Raises:
        ParameterError: a bad limit, tolerance, damping or start.
    """
    check_limits(damping=damping, tolerance=tolerance, max_iterations=max_iterations)
    messages = np.zeros(graph.edges) if start is None else np.array(start, np.float64)
    if messages.shape != (graph.edges,) or not np.isfinite(messages).all():
        raise ParameterError(
            "start", messages, f"must be {graph.edges} finite log-odds, one a directed edge", shown=f" has shape {messages.shape}"
        )
    iteration, residual, residual_sum = 0, math.inf, math.inf
    while residual > tolerance and iteration < max_iterations:
        next_messages = damping * messages + (1 - damping) * step(graph, couplings, fields, messages)
        change = np.abs(next_messages - messages)
        residual, residual_sum = float(change.max(initial=0.0)), float(change.sum())
        messages = next_messages
        iteration += 1
    return FixedPoint(
        messages=messages,
        iterations=iteration,
        residual=residual,
        residual_sum=residual_sum,
        converged=residual <= tolerance,
    )


def check_limits(*, damping: float, tolerance: float, max_iterations: int) -> None:
    """Raise ParameterError unless 0 <= `damping` < 1, `tolerance` >= 0 and `max_iterations` >= 1."""
    if not 0 <= damping < 1:
        raise ParameterError("damping", damping, "must lie in [0, 1)")
    if not (math.isfinite(tolerance) and tolerance >= 0):
        raise ParameterError("tolerance", tolerance, "must be finite and >= 0")
    if max_iterations < 1:
        raise ParameterError("max_iterations", max_iterations, "must be >= 1")


def answers_until_quiet(graph: PeerGraph, couplings: FloatArray, *, tolerance: float, limit: int) -> float:
    """Return the largest number of messages over an edge, up to `limit`, if every arrival is answered at once.

    A client answers a message by messages to all its other neighbours.

    An edge's message first changes by at most 2 J, and a link passes on at most tanh J of a change, J the largest |coupling|.
    So the messages are the walks, without turning back, that end in the edge before a change has fallen to `tolerance`. In most
    graphs they multiply with every step.
    """
    coupling = float(np.abs(couplings).max(initial=0.0))
    # Walks of the present length that end in each edge, those of all lengths so far, and the change that they pass on.
    walks, total = np.ones(graph.edges), np.zeros(graph.edges)
    change = 2 * coupling
    while change > tolerance and walks.any() and total.max(initial=0.0) < limit:
        total += walks
        # A walk goes on over all edges of the client that it reaches, but not back.
        walks = graph.sum_incoming(walks)[graph.source] - walks[graph.reverse]
        change *= math.tanh(coupling)
    return min(float(total.max(initial=0.0)), float(limit))


