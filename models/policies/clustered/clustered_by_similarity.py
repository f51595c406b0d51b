"""Clustered sampling by similarity of updates (Fraboni, Vidal, Kameni, Lorenzi, ICML 2021, Algorithm 2).

Every client has a representative gradient: its last delivered update, zero before the first. Ward's hierarchical clustering of
their distances gives a tree, cut into the largest groups that hold no more than 1/m of the data. The m groups of most data
become the distributions; the clients of the other groups fill these up.

Readings. A client with 1/m of the data or more first fills as many distributions of its own as it can, and enters the tree with
the rest. The angle between a zero vector and any other is pi/2 (inner product 0), between two zero vectors 0. Distances enter
Ward's recursion as they are; the authors' code clusters the rows of the distance matrix instead.
"""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from annotated_doc import Doc
from numpy.typing import NDArray
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import cdist, squareform

from models.errors import ParameterError
from models.policies.clustered.distributions import ROUNDING, Distribution, draw_set, make_distribution
from models.policies.protocols import FloatArray, IntArray, NoProbes, Outcome, View, check_round, data_shares
from netsim.core.state import StateFields

MOST_CLIENTS = 10_000
"""Largest number of clients: the distances of more would take over 800 MB."""
LARGEST = 1e12
"""Largest coordinate of a usable update. One beyond it, or NaN, leaves the representative of its client unchanged."""
Similarity = Literal["arccos", "l2", "l1"]


def compute_distances(kind: Similarity, rows: NDArray[np.floating], others: NDArray[np.floating]) -> FloatArray:
    """Return the distance of each of `rows` (n, d) from each of `others` (K, d); shape (n, K).

    `kind`: the angle ("arccos"), Euclidean ("l2") or absolute ("l1").
    """
    if kind == "l1":
        return cdist(rows, others, "cityblock")
    if kind == "l2":
        return cdist(rows, others, "euclidean")
    norms = np.linalg.norm(rows, axis=1)[:, None] * np.linalg.norm(others, axis=1)
    cosine = np.divide(rows @ others.T, norms, out=np.zeros_like(norms), where=norms > 0)
    angle: FloatArray = np.arccos(np.clip(cosine, -1.0, 1.0))
    # Two zero vectors have no angle; it counts as 0 (see the readings above).
    zero_rows, zero_others = np.flatnonzero(np.all(rows == 0, axis=1)), np.flatnonzero(np.all(others == 0, axis=1))
    angle[np.ix_(zero_rows, zero_others)] = 0.0
    return angle


def cut_tree(tree: FloatArray, masses: FloatArray) -> list[IntArray]:
    """Return the largest subtrees of total mass <= 1, as groups of leaves.

    `tree` (n-1, 4) as SciPy's `linkage` returns it: row j joins two nodes into node n + j. `masses` (n,) of the leaves, each at
    most 1.
    """
    groups: dict[int, IntArray] = {i: np.array([i]) for i in range(len(masses))}
    mass: dict[int, float] = dict(enumerate(masses.tolist()))
    for node, (left, right) in enumerate(tree[:, :2].astype(np.int64).tolist(), start=len(masses)):
        mass[node] = mass[left] + mass[right]
        # A subtree above the limit keeps its parts, and so do all that contain it.
        if mass[node] <= 1.0 + ROUNDING:
            groups[node] = np.concatenate((groups.pop(left), groups.pop(right)))
    return [np.sort(group) for group in groups.values()]


def fill_groups(groups: list[IntArray], masses: FloatArray, count: int) -> list[Distribution]:
    """Return the `count` groups of largest mass as distributions, each filled up to mass 1 with clients of the other groups.

    A client that does not fit whole is split: it continues in the next distribution.
    """
    # By mass; of equal masses the group of the lowest client comes first.
    ranked = sorted(groups, key=lambda group: (-float(masses[group].sum()), int(group[0])))
    # Clients of each distribution, the mass that each has there, and the mass that the distribution lacks.
    members = [group.tolist() for group in ranked[:count]]
    member_masses = [masses[group].tolist() for group in ranked[:count]]
    lacking = [1.0 - sum(part) for part in member_masses]
    k, last = 0, count - 1
    """Distribution that is being filled, and the last one."""
    for group in ranked[count:]:
        for client in group.tolist():
            rest = float(masses[client])
            while rest > ROUNDING:
                while k < last and lacking[k] <= ROUNDING:
                    k += 1
                # The last distribution takes all that is left, so that rounding loses nothing.
                part = min(rest, lacking[k]) if k < last else rest
                members[k].append(client)
                member_masses[k].append(part)
                lacking[k] -= part
                rest -= part
    return [make_distribution(np.array(members[k], np.int64), np.array(member_masses[k])) for k in range(count)]


class ClusteredBySimilarity(NoProbes, StateFields):
    """Policy that draws one client from each of m distributions made of clients with similar updates (Algorithm 2).

    Memory and state hold 4 K d bytes of representatives (single precision) and 8 K^2 of distances, from the first delivered
    update.

    Example:
        >>> import numpy as np
        >>> policy = ClusteredBySimilarity(clients=3, per_round=2, data_sizes=np.array([20.0, 30.0, 50.0]))
        >>> [each.clients for each in policy.distributions]
        [array([2]), array([0, 1])]
    """

    state_fields = ("_gradients", "_distances")
    needs_updates = True

    def __init__(
        self,
        *,
        clients: int,
        per_round: int,
        data_sizes: FloatArray,
        similarity: Annotated[
            Literal["arccos", "l2", "l1"],
            Doc("Distance of representative gradients: the angle (arccos), Euclidean (l2) or absolute (l1)."),
        ] = "arccos",
    ) -> None:
        check_round(clients, per_round)
        if clients > MOST_CLIENTS:
            raise ParameterError("clients", clients, f"at most {MOST_CLIENTS} can be clustered by similarity (K^2 distances)")
        if similarity not in ("arccos", "l2", "l1"):
            raise ParameterError("similarity", similarity, "must be 'arccos', 'l2' or 'l1'")
        self._shares = data_shares(data_sizes, clients)
        self._kind: Similarity = similarity
        masses = per_round * self._shares
        whole = np.floor(masses + ROUNDING)
        # A client of mass 2.5 fills two distributions alone.
        owners = np.repeat(np.arange(clients), whole.astype(np.int64))
        self._own = [make_distribution(np.array([client]), np.ones(1)) for client in owners.tolist()]
        """Distributions of a single client, which has 1/m of the data or more."""
        self._masses: FloatArray = np.maximum(masses - whole, 0.0)
        """(K,) m times each client's share of the data, less what `_own` holds."""
        self._count = per_round - len(self._own)
        # It has no columns before the first update, which shows the length of a gradient.
        self._gradients: NDArray[np.float32] = np.zeros((clients, 0), np.float32)
        self._distances: FloatArray = np.zeros((clients, clients))
        self._distributions: list[Distribution] | None = None

    @property
    def distributions(self) -> list[Distribution]:
        """The m distributions of the next round; computed once after each change of the representatives."""
        if self._distributions is None:
            self._distributions = self._own + self._cluster()
        return self._distributions

    def select(self, view: View) -> IntArray:
        """Return min(m, selectable) clients, ascending; shape (n,)."""
        return draw_set(self.distributions, self._shares, view.selectable, view.rng)

    def observe(self, outcome: Outcome) -> None:
        """Make the delivered updates the representative gradients of their clients.

        Raises:
            ParameterError: the outcome does not hold one update for each delivered client.
        """
        delivered = outcome.clients[~outcome.censored]
        if len(delivered) == 0:
            return
        if outcome.updates is None or len(outcome.updates) != len(delivered):
            reason = f"clustered sampling by similarity needs one for each of the {len(delivered)} delivered clients"
            raise ParameterError("updates", outcome.updates, reason, shown="")
        if self._gradients.shape[1] != outcome.updates.shape[1]:
            self._gradients = np.zeros((len(self._shares), outcome.updates.shape[1]), np.float32)
        # Privacy noise grows without bound: an update beyond single precision has no direction left to compare.
        is_usable = np.max(np.abs(outcome.updates), axis=1, initial=0.0) < LARGEST
        changed = delivered[is_usable]
        if len(changed) == 0:
            return
        self._gradients[changed] = outcome.updates[is_usable]
        rows = compute_distances(self._kind, self._gradients[changed], self._gradients)
        self._distances[changed] = rows
        self._distances[:, changed] = rows.T
        # Rounding differs between the two triangles of the rows' own square; the tree needs a symmetric matrix.
        square = rows[:, changed]
        symmetric = (square + square.T) / 2
        np.fill_diagonal(symmetric, 0.0)
        self._distances[np.ix_(changed, changed)] = symmetric
        # They are computed again at the next selection.
        self._distributions = None

    def on_load(self) -> None:
        """Forget the distributions, which follow from the restored distances."""
        self._distributions = None

    def _cluster(self) -> list[Distribution]:
        """Return the distributions that groups of similar clients fill, in addition to `_own`."""
        if self._count == 0:
            return []
        # Clients of the tree; below, they are numbered by their places in this array.
        in_tree = np.flatnonzero(self._masses > ROUNDING)
        masses = self._masses[in_tree]
        if len(in_tree) == 1:
            groups = [np.zeros(1, np.int64)]
        else:
            distances = self._distances[np.ix_(in_tree, in_tree)]
            tree = linkage(squareform(distances, checks=False), "ward")
            groups = cut_tree(tree, masses)
        filled = fill_groups(groups, masses, self._count)
        return [Distribution(in_tree[places], upper) for places, upper in filled]
