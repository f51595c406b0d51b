"""Active federated learning (Goetz, Malik, Bui, Moon, Liu and Kumar 2019): clients are drawn by the loss that they last
reported.

Valuation of a client: v_k = (sum of its losses) / sqrt(n_k) = sqrt(n_k) times its mean loss, at the model that it received. It
is refreshed only when the client takes part. The floor(alpha1 K) smallest are set aside; floor((1 - alpha3) m) clients are
drawn with probability proportional to exp(alpha2 v_k), the rest uniformly. Agnostic federated learning (Mohri, Sivek and Suresh
2019), for which the same letters stand elsewhere, is another method.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_doc import Doc

from models.errors import ParameterError
from models.policies.draws import count_explored, largest, successive_draws, uniform_draws
from models.policies.protocols import (
    BoolArray,
    FloatArray,
    IntArray,
    NoProbes,
    Outcome,
    View,
    check_round,
    check_share,
    check_sizes,
    fill_missing_losses,
)
from netsim.core.state import StateFields


class ActiveFl(NoProbes, StateFields):
    """Policy that selects by the losses of the first pass of each client's last delivered update.

    A lost update changes nothing. Only selectable clients count: alpha1 is a share of these. If fewer clients have a weight
    than are to be drawn, all of them are selected and the rest uniformly.

    Example:
        >>> import numpy as np
        >>> from netsim.core.protocols import RoundView
        >>> policy = ActiveFl(clients=4, per_round=2, data_sizes=np.full(4, 100.0), alpha3=0.0)
        >>> policy.select(RoundView(1, 0.0, np.full(4, True), np.zeros(4, int), np.random.default_rng(1)))
        array([1, 3])
    """

    state_fields = ("_known", "_value")
    needs_updates = False
    needs_losses = True
    probes = True
    probes_where: ClassVar[dict[str, tuple[str, ...]]] = {"unseen": ("evaluate-all",)}

    def __init__(
        self,
        *,
        clients: int,
        per_round: int,
        data_sizes: FloatArray,
        alpha1: Annotated[float, Doc("Share of the selectable clients, those of least valuation, that are set aside.")] = 0.75,
        alpha2: Annotated[float, Doc("Factor of the valuation in the exponent.")] = 0.01,
        alpha3: Annotated[float, Doc("Share of the selected that are drawn uniformly.")] = 0.1,
        unseen: Annotated[
            Literal["explore", "first", "evaluate-all"],
            Doc(
                "Treatment of clients that have reported no loss yet: explore, they can only be drawn uniformly; first, they "
                "come before all others; evaluate-all, every client is probed for its loss before the first round in which it "
                "can take part."
            ),
        ] = "explore",
        per_model: int | None = None,
    ) -> None:
        check_round(clients, per_round)
        check_sizes(data_sizes, clients)
        check_share("alpha1", alpha1)
        check_share("alpha3", alpha3)
        if not np.isfinite(alpha2):
            raise ParameterError("alpha2", alpha2, "must be finite")
        if unseen not in ("explore", "first", "evaluate-all"):
            raise ParameterError("unseen", unseen, "must be explore, first or evaluate-all")
        self._per_round = per_round
        self._root = np.sqrt(np.asarray(data_sizes, np.float64))
        """(K,) sqrt(n_k)."""
        self._alpha1, self._alpha2, self._alpha3 = alpha1, alpha2, alpha3
        self._asks = unseen == "evaluate-all"
        self._one_by_one = per_model is not None
        self._unseen = np.inf if unseen == "first" else -np.inf
        """Valuation of a client that has reported no loss."""
        self._known = np.zeros(clients, np.bool_)
        """(K,) True for clients that have reported a loss."""
        self._value: FloatArray = np.zeros(clients)
        """(K,) v_k of these clients."""

    @property
    def valuations(self) -> FloatArray:
        """(K,) v_k; inf or -inf, by `unseen`, of a client that has reported no loss. A copy."""
        return np.where(self._known, self._value, self._unseen)

    def probe(self, view: View) -> IntArray:
        """Return the selectable clients of unknown loss if `unseen` is "evaluate-all", no client otherwise."""
        if not self._asks:
            return np.zeros(0, np.int64)
        return np.flatnonzero(view.selectable & ~self._known)

    def select(self, view: View) -> IntArray:
        """Return min(m, selectable) clients, ascending; shape (n,). Learn from the answers to probes first."""
        self._learn(view.probed.clients, view.probed.loss)
        selectable, rng = view.selectable, view.rng
        wanted = min(self._per_round, int(np.count_nonzero(selectable)))
        count_valued = wanted - count_explored(wanted, self._alpha3, one_by_one=self._one_by_one, rng=rng)
        valuations = self.valuations
        # With `unseen` "first", clients without a loss come before all others.
        unseen = selectable & (valuations == np.inf)
        chosen = uniform_draws(unseen, count_valued, rng)
        missing = count_valued - len(chosen)
        if missing:
            log_weights = self._alpha2 * np.where(np.isfinite(valuations), valuations, 0.0)
            candidates = self._keep_valued(selectable & ~unseen, valuations, rng)
            chosen = np.concatenate((chosen, successive_draws(log_weights, candidates, missing, rng)))
        others = selectable.copy()
        others[chosen] = False
        explored = uniform_draws(others, wanted - len(chosen), rng)
        return np.sort(np.concatenate((chosen, explored)))

    def _keep_valued(self, able: BoolArray, valuations: FloatArray, rng: np.random.Generator) -> BoolArray:
        """Return (K,), True for clients of `able` (K,) that can be drawn by valuation.

        A share alpha1 of `able` is set aside: first clients without a valuation, then those of least valuation, ties at random.
        """
        valued = able & (valuations > -np.inf)
        count_valued = int(np.count_nonzero(valued))
        # A product that is a whole number up to rounding counts as that number (1e-9).
        count_aside = int(np.floor(self._alpha1 * np.count_nonzero(able) + 1e-9))
        # Clients without a valuation are out already, and count.
        still_aside = count_aside - int(np.count_nonzero(able & ~valued))
        if still_aside <= 0:
            return valued
        kept = np.zeros(len(able), np.bool_)
        kept[largest(valuations, valued, max(count_valued - still_aside, 0), rng)] = True
        return kept

    def observe(self, outcome: Outcome) -> None:
        """Store the valuations of the clients whose updates arrived."""
        arrived = ~outcome.censored
        self._learn(outcome.clients[arrived], fill_missing_losses(outcome.reports.loss[arrived]))

    def _learn(self, clients: IntArray, loss: FloatArray) -> None:
        """Store the valuations of `clients` (n,) from their mean losses (n,); a NaN is ignored."""
        reported = ~np.isnan(loss)
        reporting = clients[reported]
        self._value[reporting] = self._root[reporting] * loss[reported]
        self._known[reporting] = True
