"""Pisces: guided asynchronous training (Jiang, Wang, Li and Li, SoCC 2022), its selection.

Score of a client that has delivered: V_k = U_k / (sbar_k + 1)^0.5, with U_k = n_k sqrt(mean of its squared losses) and sbar_k
the mean of its last five values of staleness; speed has no term of its own. Of n clients Binomial(n, e) are explored, uniformly
among those that have delivered nothing yet; the others are those of the greatest score, ties at random. Clients whose losses
are outliers may be banned (`outliers.py`).
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from annotated_doc import Doc

from models.policies.draws import count_explored, largest, uniform_draws
from models.policies.outliers import OutlierParameters, Outliers
from models.policies.protocols import (
    BoolArray,
    FloatArray,
    IntArray,
    NoProbes,
    Outcome,
    View,
    check_at_least,
    check_round,
    check_share,
    check_sizes,
    fill_missing_losses,
)
from netsim.core.state import StateFields

_LAST = 5  # values of staleness that are averaged


class Pisces(NoProbes, StateFields):
    """Policy that selects by loss, discounted by staleness. On a server without staleness it selects by loss alone.

    A client that is banned as an outlier is selected only if no other client can be.

    Example:
        >>> import numpy as np
        >>> from netsim.core.protocols import RoundView
        >>> policy = Pisces(clients=4, per_round=1, data_sizes=np.full(4, 100.0))
        >>> policy.select(RoundView(1, 0.0, np.full(4, True), np.zeros(4, int), np.random.default_rng(1)))
        array([2])
    """

    state_fields = ("_utility", "_seen", "_staleness", "_outliers")
    needs_updates = False
    needs_losses = True

    def __init__(
        self,
        *,
        clients: int,
        per_round: int,
        data_sizes: FloatArray,
        exploration: Annotated[float, Doc("e of the first version: the share of clients that are explored.")] = 0.9,
        decay: Annotated[float, Doc("Factor of e from one version to the next.")] = 0.98,
        least_exploration: Annotated[float, Doc("Least value of e.")] = 0.3,
        discount: Annotated[float, Doc("Exponent of 1 + staleness.")] = 0.5,
        outliers: OutlierParameters = OutlierParameters(),
    ) -> None:
        check_round(clients, per_round)
        check_sizes(data_sizes, clients)
        for name, value in {"exploration": exploration, "decay": decay, "least_exploration": least_exploration}.items():
            check_share(name, value)
        check_at_least("discount", discount, 0)
        self._per_round, self._sizes = per_round, np.asarray(data_sizes, np.float64)
        self._exploration, self._decay, self._least, self._discount = exploration, decay, least_exploration, discount
        self._utility: FloatArray = np.zeros(clients)
        """(K,) U_k of the last delivered update."""
        self._seen: BoolArray = np.zeros(clients, np.bool_)
        """(K,) True for clients that have delivered an update."""
        self._staleness: IntArray = np.full((_LAST, clients), -1)
        """(5, K) the last values of each client, newest first; -1 where there are fewer."""
        self._outliers = Outliers(clients, outliers)

    def exploration(self, round: int) -> float:
        """Return e of the selections for version `round` of the model."""
        return max(self._exploration * self._decay ** (round - 1), self._least)

    def scores(self) -> FloatArray:
        """Return V_k (K,); -inf for clients that have delivered nothing."""
        known = self._staleness >= 0
        counts = np.maximum(known.sum(axis=0), 1)
        mean_staleness = np.where(known, self._staleness, 0).sum(axis=0) / counts
        discounted = self._utility / (mean_staleness + 1.0) ** self._discount
        return np.where(self._seen, discounted, -np.inf)

    def select(self, view: View) -> IntArray:
        """Return min(m, selectable) clients, ascending; shape (n,)."""
        candidates, rng = view.selectable & ~self._outliers.banned, view.rng
        if not candidates.any():
            candidates = view.selectable
        seen, unseen = candidates & self._seen, candidates & ~self._seen
        wanted = min(self._per_round, int(np.count_nonzero(candidates)))
        count_unseen = count_explored(wanted, self.exploration(view.round), one_by_one=True, rng=rng)
        # Where one of the two groups has too few clients, the other gives more.
        count_unseen = min(count_unseen, int(np.count_nonzero(unseen)))
        count_seen = min(wanted - count_unseen, int(np.count_nonzero(seen)))
        best = largest(self.scores(), seen, count_seen, rng)
        explored = uniform_draws(unseen, wanted - count_seen, rng)
        return np.sort(np.concatenate((best, explored)))

    def observe(self, outcome: Outcome) -> None:
        """Store utility and staleness of the updates that arrived, and look for outliers among their losses."""
        arrived = ~outcome.censored
        clients, losses = outcome.clients[arrived], outcome.reports.loss_rms[arrived]
        staleness = outcome.reports.staleness[arrived]
        self._utility[clients] = self._sizes[clients] * fill_missing_losses(losses)
        self._seen[clients] = True
        # The newest value comes first, the oldest falls out.
        self._staleness[1:, clients] = self._staleness[:-1, clients]
        self._staleness[0, clients] = staleness
        self._outliers.observe(clients, losses, outcome.round - staleness)
