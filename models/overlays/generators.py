"""Networks made by a rule: star, tree, dumbbell, ring, fat tree, Waxman graph. `[network.generator]` names them.

Every function returns the names of the nodes and the pairs of nodes that a cable joins, with its level (0 at the root; 0 where a
network has no levels) and its length in km (0 where nodes have no place).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from models.errors import ParameterError

Plan = tuple[list[str], list[tuple[str, str, int, float]]]
"""Names of nodes, and cables as (node, node, level, km)."""


def star(*, nodes: int) -> Plan:
    """Return `hub` with `nodes` leaves, `leaf0` and so on.

    >>> star(nodes=2)
    (['hub', 'leaf0', 'leaf1'], [('hub', 'leaf0', 0, 0.0), ('hub', 'leaf1', 0, 0.0)])
    """
    leaves = [f"leaf{n}" for n in range(nodes)]
    return ["hub", *leaves], [("hub", leaf, 0, 0.0) for leaf in leaves]


def tree(*, fan_out: Sequence[int]) -> Plan:
    """Return `root` with `fan_out[0]` children, each of which has `fan_out[1]`, and so on; children are named by their path.

    >>> tree(fan_out=[1, 2])[0]
    ['root', 'root.0', 'root.0.0', 'root.0.1']
    """
    nodes, parents, cables = ["root"], ["root"], []
    for depth, count in enumerate(fan_out):
        children = []
        for parent in parents:
            own = [f"{parent}.{n}" for n in range(count)]
            cables += [(parent, child, depth, 0.0) for child in own]
            children += own
        nodes += children
        parents = children
    return nodes, cables


def dumbbell(*, sides: Sequence[int]) -> Plan:
    """Return `left` and `right`, joined by one cable (level 0), with `sides[0]` and `sides[1]` leaves."""
    nodes, cables = ["left", "right"], [("left", "right", 0, 0.0)]
    for side, count in zip(("left", "right"), sides, strict=True):
        leaves = [f"{side}{n}" for n in range(count)]
        nodes += leaves
        cables += [(side, leaf, 1, 0.0) for leaf in leaves]
    return nodes, cables


def ring(*, nodes: int) -> Plan:
    """Return `node0`, `node1` and so on, each joined to the next and the last to the first; at least 3 nodes."""
    if nodes < 3:
        raise ParameterError("nodes", nodes, "must be at least 3 for a ring")
    names = [f"node{n}" for n in range(nodes)]
    return names, [(a, b, 0, 0.0) for a, b in itertools.pairwise([*names, names[0]])]


def fat_tree(*, ports: int) -> Plan:
    """Return the fat tree of switches with `ports` ports, an even number k: k^3 / 4 hosts (Al-Fares et al. 2008).

    Levels: 0 between core and pods, 1 within a pod, 2 to the hosts.

    >>> sum(name.startswith("host") for name in fat_tree(ports=4)[0])
    16
    """
    if ports % 2 or ports < 2:
        raise ParameterError("ports", ports, "must be an even number, at least 2")
    half = ports // 2
    core = [f"core{n}" for n in range(half * half)]
    nodes, cables = list(core), []
    for pod in range(ports):
        upper, lower = [f"pod{pod}.{n}" for n in range(half)], [f"rack{pod}.{n}" for n in range(half)]
        hosts: list[str] = []
        # Upper switch n of each pod is cabled to the n-th group of core switches.
        for n, switch in enumerate(upper):
            cables += [(core[n * half + m], switch, 0, 0.0) for m in range(half)]
        for switch in upper:
            cables += [(switch, rack, 1, 0.0) for rack in lower]
        for n, rack in enumerate(lower):
            own_hosts = [f"host{pod}.{n}.{m}" for m in range(half)]
            cables += [(rack, host, 2, 0.0) for host in own_hosts]
            hosts += own_hosts
        nodes += [*upper, *lower, *hosts]
    return nodes, cables


def waxman(*, nodes: int, alpha: float, beta: float, side_km: float, generator: np.random.Generator) -> Plan:
    """Return nodes at random places of a square, joined with probability alpha exp(-d / (beta L)) (Waxman 1988).

    d: distance of two nodes, L: the greatest of all. The shortest cables that do so join pieces that are left over (Kruskal).
    """
    names = [f"node{n}" for n in range(nodes)]
    places = generator.random((nodes, 2)) * side_km
    # Distances (nodes, nodes).
    km = np.hypot(*(places[:, None] - places[None]).transpose(2, 0, 1))
    # The least number keeps a division by 0 away where all nodes have one place.
    greatest_km = max(float(km.max()), math.ulp(1.0))
    is_drawn = generator.random((nodes, nodes)) < alpha * np.exp(-km / (beta * greatest_km))
    all_pairs = list(itertools.combinations(range(nodes), 2))
    pairs = {(a, b) for a, b in all_pairs if is_drawn[a, b]}
    shortest_first = sorted(all_pairs, key=lambda ends: km[ends])
    # Label of the piece that each node belongs to.
    piece = list(range(nodes))
    # The drawn cables first: they only join the labels. Then the shortest cable between two pieces joins these.
    for a, b in [*sorted(pairs), *shortest_first]:
        if piece[a] != piece[b]:
            pairs.add((a, b))
            old, new = piece[b], piece[a]
            piece = [new if label == old else label for label in piece]
    return names, [(names[a], names[b], 0, float(km[a, b])) for a, b in sorted(pairs)]
