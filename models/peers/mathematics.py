"""Belief propagation, gossip and closed forms on one graph, in the form in which an engine with a clock calls them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from models.errors import ParameterError
from models.peers.belief import (
    Ising,
    Opinion,
    answers_until_quiet,
    beliefs,
    check_opinions,
    convergence_constant,
    node_messages,
    step,
)
from models.peers.gossip import AllPairs, BestPairs, believers, compute_ranks, disagreement, draw_contacts
from models.peers.graph import FloatArray, IntArray, PeerGraph
from models.peers.wave import exchange_times, flooding_times


class PeerBelief:
    """Belief propagation over `graph` with the model "ising" or "opinion" (see `models.peers.belief`).

    Messages of "opinion" are empty: all are 1/2, log-odds 0. `strict`: ParameterError instead of a ConvergenceWarning if the
    condition for one fixed point of "ising" fails.
    """

    def __init__(
        self,
        *,
        graph: PeerGraph,
        model: Literal["ising", "opinion"] = "ising",
        coupling: float = 0.05,
        attenuation: float = 0.001,
        exponent: float = 3.7,
        strict: bool = False,
    ) -> None:
        if model not in ("ising", "opinion"):
            raise ParameterError("model", model, "must be 'ising' or 'opinion'")
        self._graph = graph
        self._ising = model == "ising"
        ising = Ising(coupling=coupling, attenuation=attenuation, exponent=exponent, strict=strict)
        self.couplings: FloatArray = ising.couplings(graph) if self._ising else np.zeros(graph.edges)
        """(E,) J of each edge."""
        self.convergence_constant = convergence_constant(graph, self.couplings)
        """Below 1: one fixed point from any start (Mooij and Kappen 2007)."""

    def fields(self, opinions: FloatArray) -> FloatArray:
        """Return the log-odds (K,) of the local functions."""
        return Ising.fields(opinions) if self._ising else np.zeros(len(check_opinions(opinions)))

    def step(self, fields: FloatArray, messages: FloatArray) -> FloatArray:
        """Return the messages (E,) of the next exchange (eq. 6)."""
        return step(self._graph, self.couplings, fields, messages)

    def node_messages(
        self, field: float, received: Sequence[float], couplings: Sequence[float], sent: Sequence[float], damping: float
    ) -> list[float]:
        """Return the messages of one client to each of its neighbours."""
        return node_messages(field, received, couplings, sent, damping)

    def beliefs(self, opinions: FloatArray, messages: FloatArray) -> FloatArray:
        """Return the beliefs b_n (K,) (eq. 4)."""
        return beliefs(self._graph, Ising.fields(opinions), messages) if self._ising else Opinion.beliefs(opinions)

    def answers_until_quiet(self, tolerance: float, limit: int) -> float:
        """Return the messages that an edge may carry if every arrival is answered at once, counted up to `limit`."""
        return answers_until_quiet(self._graph, self.couplings, tolerance=tolerance, limit=limit)

    def exchange_times(
        self, *, exchanges: int, start_s: float, latency_s: Callable[[int], FloatArray], work_s: float
    ) -> FloatArray:
        """Return the times at which each client finishes each exchange if nothing is lost; seconds (exchanges + 1, K)."""
        return exchange_times(self._graph, exchanges=exchanges, start_s=start_s, latency_s=latency_s, work_s=work_s)


class PeerGossip:
    """Gossip over `graph` about the top `size` clients; messages hold "all" known pairs, or only the "best" `size` of them."""

    def __init__(self, *, graph: PeerGraph, size: int, payload: Literal["all", "best"] = "all") -> None:
        if payload not in ("all", "best"):
            raise ParameterError("payload", payload, "must be 'all' or 'best'")
        if not 1 <= size <= graph.clients:
            raise ParameterError("size", size, f"must be between 1 and the number of clients, {graph.clients}")
        self._graph, self._size = graph, size
        # The kind of knowledge, an integer or a tuple, is that of the payload: no type names both.
        self.payload: Any = AllPairs() if payload == "all" else BestPairs(size=size)
        self.keeps_all = payload == "all"
        """True if clients keep all pairs that they receive."""

    def ranks(self, index: FloatArray, priority: FloatArray | None) -> IntArray:
        """Return each client's place, from 0, in the decreasing order of `index`; (K,)."""
        return compute_ranks(index, priority)

    def contacts(self, u: FloatArray) -> IntArray:
        """Return the edge to a random neighbour of each client that has one, drawn by its uniform in `u` (K,)."""
        return draw_contacts(self._graph, u)

    def believers(self, held: Sequence[Any], ranks: IntArray) -> IntArray:
        """Return the clients that believe to be in the top `size`, ascending."""
        return believers(self.payload, held, ranks, self._size)

    def disagreement(self, held: Sequence[Any]) -> float:
        """Return the share of clients that do not name the true top `size`."""
        return disagreement(self.payload, held, self._size)

    def flooding_times(self, *, origins: IntArray, start_s: float, latency_s: FloatArray, work_s: float) -> FloatArray:
        """Return the times at which each client knows the item of each origin if nothing is lost; seconds (origins, K)."""
        return flooding_times(self._graph, origins=origins, start_s=start_s, latency_s=latency_s, work_s=work_s)
