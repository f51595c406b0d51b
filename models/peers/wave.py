"""Times of waves of messages in closed form, without events: the ends of exchanges, and the arrivals of flooded items.

Both hold where nothing is lost, jammed, resent or cut. They add and compare the same numbers in the same order as an engine
that simulates the messages one by one, and rounding preserves order: their times are equal to the last bit on the same
latencies. A latency may consist of parts, (parts, E): a delay, bytes, a flight. They are added one after another, as they pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from models.errors import ParameterError
from models.peers.graph import FloatArray, IntArray, PeerGraph

Latency: TypeAlias = FloatArray | Callable[[int], FloatArray]
"""Latencies in seconds, (E,) or (parts, E), of all exchanges, or a function that returns those of exchange k = 1, 2, .."""


def exchange_times(
    graph: PeerGraph, *, exchanges: int, start_s: float | FloatArray, latency_s: Latency, work_s: float | FloatArray = 0.0
) -> FloatArray:
    """Return the times at which each client finishes each synchronous exchange, in seconds; (exchanges + 1, K).

    Row 0 is `start_s`. A client sends its messages of exchange k as soon as it has finished k-1. So client i finishes exchange k
    at max(own time at k-1, max over neighbours j of time of j at k-1 + latency of j -> i at k) + work. `latency_s` is (E,) or
    (parts, E) for all exchanges, or a function that returns them for k = 1, 2, ..; `start_s` and `work_s` are a number or (K,).
    Raises ParameterError for negative or infinite times.
    """
    if exchanges < 0:
        raise ParameterError("exchanges", exchanges, "must be >= 0")
    start = _check_times("start_s", start_s, graph.clients)
    work = _check_times("work_s", work_s, graph.clients)
    # Latencies that are the same in all exchanges are checked once.
    parts = None if callable(latency_s) else _check_parts(latency_s, graph.edges)
    times = np.empty((exchanges + 1, graph.clients))
    times[0] = start
    arrival = np.empty(graph.edges)
    for k in range(1, exchanges + 1):
        # With mode="clip" `take` writes into `out` without a copy; all positions are valid.
        np.take(times[k - 1], graph.source, out=arrival, mode="clip")
        exchange_parts = _check_parts(_latency_of(latency_s, k), graph.edges) if parts is None else parts
        # Part by part, in the order in which a message passes them, for the same rounding as in the engine.
        for part in exchange_parts:
            arrival += part
        np.maximum(times[k - 1], graph.max_incoming(arrival), out=times[k])
        times[k] += work
    return times


def flooding_times(
    graph: PeerGraph,
    *,
    origins: IntArray,
    start_s: float | FloatArray,
    latency_s: FloatArray,
    work_s: float | FloatArray = 0.0,
) -> FloatArray:
    """Return the times at which each client knows the item of each origin if clients forward new items; seconds, (origins, K).

    Origin j sends its item at its start (`start_s`, a number or (K,)). A client knows an item `work_s` after its first arrival
    and forwards it at once, even before its own start. `latency_s` (E,) or (parts, E). inf: never reached. With start and
    work 0 the maximum of a row is the origin's eccentricity in the graph weighted by latencies.

    All clients name the same top m as soon as all know the true top m, and not before (`models.peers.gossip`): the time to
    agreement is the maximum over the rows of these m origins.
    """
    start = np.broadcast_to(_check_times("start_s", start_s, graph.clients), (graph.clients,))
    work = np.broadcast_to(_check_times("work_s", work_s, graph.clients), (graph.clients,))
    parts = _check_parts(latency_s, graph.edges)
    times = np.full((len(origins), graph.clients), np.inf)
    improved = np.zeros(graph.clients, np.bool_)
    for time, origin in zip(times, np.asarray(origins).tolist(), strict=True):
        if not 0 <= origin < graph.clients:
            raise ParameterError("origins", origin, f"must lie in 0..{graph.clients - 1}", shown=f" has {origin!r}")
        time[origin] = start[origin]
        # `front`: clients with a time that was improved; what they forward may improve their neighbours' times.
        front = np.array([origin])
        while front.size:
            edges = graph.outgoing(front)
            neighbours = graph.target[edges]
            # Times at which the neighbours know the item over these edges.
            known_s = time[graph.source[edges]]
            for part in parts:
                known_s += part[edges]
            known_s += work[neighbours]
            is_earlier = known_s < time[neighbours]
            np.minimum.at(time, neighbours[is_earlier], known_s[is_earlier])
            improved[neighbours[is_earlier]] = True
            front = np.flatnonzero(improved)
            improved[front] = False
    return times


def _latency_of(latency_s: Latency, k: int) -> FloatArray:
    """Return the latencies (E,) of exchange `k`."""
    assert callable(latency_s)
    return latency_s(k)


def _check_parts(latency_s: FloatArray, edges: int) -> list[FloatArray]:
    """Return the parts of the latency, (E,) each, of a number, (E,) or (parts, E); raises as `_check_times`."""
    latency = np.asarray(latency_s, np.float64)
    parts = latency if latency.ndim == 2 else [latency]
    return [np.broadcast_to(_check_times("latency_s", part, edges), (edges,)) for part in parts]


def _check_times(name: str, value: float | FloatArray, size: int) -> FloatArray:
    """Return `value` as an array () or (size,). Raises ParameterError for another shape, or a negative or infinite time."""
    array = np.asarray(value, np.float64)
    if array.shape not in ((), (size,)):
        raise ParameterError(name, array, f"must be a number or ({size},)", shown=f" has shape {array.shape}")
    # A minimum and a maximum make no temporary arrays: this runs once an exchange over millions of edges.
    low, high = array.min(initial=0.0), array.max(initial=0.0)
    if not (low >= 0 and high < np.inf):
        wrong = low if low < 0 else high
        raise ParameterError(name, float(wrong), "must be finite and >= 0 seconds")
    return array
