"""Mixing weights of peers: how much of its neighbours' models each peer takes when it combines them with its own.

Weights are a matrix W (K, K) with rows that sum to 1, stored as one number a peer (its own) and one a directed edge. If the
columns sum to 1, too, mixing keeps the mean of the models.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_doc import Doc

from models.errors import ParameterError
from models.peers.graph import FloatArray, PeerGraph

_SUM_TOLERANCE = 1e-9
"""Distance of the sum of a row of W from 1 that is put down to rounding."""


@dataclass(frozen=True, slots=True, eq=False)
class Mixing:
    """Weights W over the edges of a graph. Raises ParameterError for a row that does not sum to 1.

    >>> from models.peers.regular import ring
    >>> metropolis(graph=ring(clients=4)).matrix().round(3).tolist()[0]
    [0.333, 0.333, 0.0, 0.333]
    """

    graph: PeerGraph
    own: FloatArray
    """(K,) weight of each peer's own model."""
    edge: FloatArray
    """(E,) weight that the target of each edge gives to the model of the source."""

    def __post_init__(self) -> None:
        rows = self.own + self.graph.sum_incoming(self.edge)
        wrong = np.flatnonzero(~(np.abs(rows - 1) <= _SUM_TOLERANCE))
        if wrong.size:
            peer = int(wrong[0])
            reason = f"the weights of peer {peer} must sum to 1"
            raise ParameterError("weights", float(rows[peer]), reason, shown=f" sum to {rows[peer]:.9g}")

    def matrix(self) -> FloatArray:
        """Return W (K, K), row i the weights by which peer i combines."""
        weights = np.diag(self.own)
        weights[self.graph.target, self.graph.source] = self.edge
        return weights


def metropolis(*, graph: PeerGraph) -> Mixing:
    """Return Metropolis-Hastings weights: W_ij = 1 / (1 + max(deg_i, deg_j)), the rest to oneself.

    W is symmetric and doubly stochastic.

    >>> from models.peers.regular import star
    >>> metropolis(graph=star(clients=4)).matrix().tolist()[0]
    [0.25, 0.25, 0.25, 0.25]
    """
    degree = graph.degree
    edge = 1.0 / (1 + np.maximum(degree[graph.source], degree[graph.target]))
    return Mixing(graph, own=1.0 - graph.sum_incoming(edge), edge=edge)


def max_degree(*, graph: PeerGraph) -> Mixing:
    """Return the same weight 1 / (1 + largest degree) for every edge, the rest to oneself. W is symmetric and doubly stochastic.

    >>> from models.peers.regular import star
    >>> max_degree(graph=star(clients=4)).matrix().tolist()[1]
    [0.25, 0.75, 0.0, 0.0]
    """
    largest_degree = int(graph.degree.max(initial=0))
    edge = np.full(graph.edges, 1.0 / (1 + largest_degree))
    return Mixing(graph, own=1.0 - graph.sum_incoming(edge), edge=edge)


def uniform(*, graph: PeerGraph) -> Mixing:
    """Return the weights 1 / (1 + deg_i): the mean of oneself and all neighbours.

    Columns do not sum to 1 where degrees differ, so mixing moves the mean of all models.

    >>> from models.peers.regular import star
    >>> uniform(graph=star(clients=4)).matrix().tolist()[1]
    [0.5, 0.5, 0.0, 0.0]
    """
    own = 1.0 / (1 + graph.degree)
    return Mixing(graph, own=own, edge=own[graph.target])


def stated_weights(
    *,
    graph: PeerGraph,
    weights: Annotated[list[list[float]], Doc("W, a row for each peer; 0 between peers that are no neighbours.")],
) -> Mixing:
    """Mixing weights W that the scenario states: numbers >= 0 for neighbours, 0 elsewhere, and rows that sum to 1.

    Raises ParameterError for another shape, or a weight that is negative, infinite, or of a pair that has no link.

    >>> from models.peers.regular import star
    >>> stated_weights(graph=star(clients=2), weights=[[0.75, 0.25], [0.25, 0.75]]).own.tolist()
    [0.75, 0.75]
    """
    try:
        matrix = np.array(weights, np.float64)
    except ValueError:  # rows of different lengths; refused below
        matrix = np.zeros(0)
    size = graph.clients
    if matrix.shape != (size, size):
        raise ParameterError("weights", weights, f"must be {size} rows of {size} numbers", shown=f" has shape {matrix.shape}")
    if not (np.isfinite(matrix).all() and (matrix >= 0).all()):
        raise ParameterError("weights", weights, "must be finite and >= 0", shown=f" has {matrix.min():g}")
    linked = np.eye(size, dtype=np.bool_)
    linked[graph.target, graph.source] = True
    not_linked = np.argwhere((matrix != 0) & ~linked)
    if not_linked.size:
        i, j = not_linked[0].tolist()
        shown = f" of peer {i} for peer {j} = {matrix[i, j]:g}"
        raise ParameterError("weights", weights, "must be 0: they are no neighbours", shown=shown)
    return Mixing(graph, own=matrix.diagonal().copy(), edge=matrix[graph.target, graph.source])
