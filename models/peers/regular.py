"""Topologies of peers without places: ring, star, torus, hypercube and exponential graph, with links of one length."""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np
from annotated_doc import Doc

from models.errors import ParameterError
from models.overlays.exponential import strides
from models.peers.graph import PeerGraph

LinkKm = Annotated[float, Doc("Length of each link in km.")]


def _graph(clients: int, pairs: np.ndarray, link_km: float) -> PeerGraph:
    """Return the graph whose links are `pairs` (n, 2), in any order, without repetitions and links from a client to itself."""
    links = np.unique(np.sort(np.asarray(pairs, np.int64).reshape(-1, 2), axis=1), axis=0)
    links = links[links[:, 0] != links[:, 1]]
    return PeerGraph.from_links(clients=clients, links=links, distance_km=np.full(len(links), float(link_km)))


def ring(*, clients: int, link_km: LinkKm = 0.0) -> PeerGraph:
    """Ring: each client is linked to the next, and the last to the first.

    >>> ring(clients=5).degree.tolist()
    [2, 2, 2, 2, 2]
    """
    number = np.arange(clients)
    return _graph(clients, np.stack((number, (number + 1) % max(clients, 1)), axis=1), link_km)


def star(*, clients: int, link_km: LinkKm = 0.0) -> PeerGraph:
    """Star: client 0 is linked to all others.

    >>> star(clients=4).degree.tolist()
    [3, 1, 1, 1]
    """
    return _graph(clients, np.stack((np.zeros(clients, np.int64), np.arange(clients)), axis=1), link_km)


def torus(
    *,
    clients: int,
    rows: Annotated[int | None, Doc("Rows; absent: as nearly square as the number of clients allows.")] = None,
    link_km: LinkKm = 0.0,
) -> PeerGraph:
    """Return a lattice, with its last row and column linked to the first.

    >>> set(torus(clients=16).degree.tolist())
    {4}
    """
    if rows is None:
        rows = max(divisor for divisor in range(1, math.isqrt(clients) + 1) if clients % divisor == 0)
    if rows < 1 or clients % rows:
        raise ParameterError("rows", rows, f"must be >= 1 and divide the number of clients, {clients}")
    number = np.arange(clients).reshape(rows, -1)
    # The neighbour below each client, and the one to its right.
    pairs = [np.stack((number, np.roll(number, -1, axis)), axis=-1).reshape(-1, 2) for axis in (0, 1)]
    return _graph(clients, np.concatenate(pairs), link_km)


def hypercube(*, clients: int, link_km: LinkKm = 0.0) -> PeerGraph:
    """Hypercube: clients are linked if their numbers differ in one binary digit. Needs a power of 2 of clients.

    >>> set(hypercube(clients=8).degree.tolist())
    {3}
    """
    digits = clients.bit_length() - 1
    if clients < 1 or clients != 1 << digits:
        raise ParameterError("clients", clients, "must be a power of 2")
    number = np.arange(clients)
    no_pairs = np.zeros((0, 2), np.int64)
    pairs = [np.stack((number, number ^ (1 << digit)), axis=1) for digit in range(digits)]
    return _graph(clients, np.concatenate([no_pairs, *pairs]), link_km)


def exponential(*, clients: int, link_km: LinkKm = 0.0) -> PeerGraph:
    """Link each client i to i + 1, i + 2, i + 4, .. modulo their number (Ying et al. 2021); links carry messages both ways.

    >>> exponential(clients=5).degree.tolist()
    [4, 4, 4, 4, 4]
    """
    number = np.arange(clients)
    no_pairs = np.zeros((0, 2), np.int64)
    pairs = [np.stack((number, (number + stride) % clients), axis=1) for stride in strides(clients)]
    return _graph(clients, np.concatenate([no_pairs, *pairs]), link_km)
