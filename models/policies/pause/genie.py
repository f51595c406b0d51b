"""The genie of PAUSE (Peleg et al., eq. 10): the same maximisation with the true mu_k = E[tau_min/tau_k] in place of the ucb.

As a policy, its T_k of eq. 7 and 8 counts its own selections. The genie that a run is measured against counts likewise
(`models.theory.regret`), so the regret of this policy is zero wherever all clients can be selected.
"""

from __future__ import annotations

import numpy as np

from models.policies.pause.exact_search import best_set
from models.policies.pause.parameters import RewardParameters
from models.policies.pause.rewards import Rewards, Schedule
from models.policies.protocols import FloatArray, IntArray, NoProbes, Outcome, Truth, View
from netsim.core.state import StateFields


class Genie(NoProbes, StateFields):
    """Policy that selects the set that maximises eq. 10 under the laws in force as the round begins; ties to the lower client.

    Example:
        >>> import numpy as np
        >>> from models.laws.changes import Unchanging
        >>> from models.laws.delays import Constant
        >>> from models.laws.expectations import Truth
        >>> from models.privacy import NoSchedule
        >>> from netsim.core.protocols import RoundView
        >>> latency = Constant(value_s=np.array([3.0, 1.0, 2.0]))
        >>> truth = Truth(clients=3, phases=[Unchanging(latency)], kinds=["compute"])
        >>> policy = Genie(clients=3, per_round=2, data_sizes=np.ones(3), schedule=NoSchedule(), truth=truth)
        >>> policy.select(RoundView(1, 0.0, np.full(3, True), np.zeros(3, int), np.random.default_rng(1)))
        array([1, 2])
    """

    state_fields = ("_rewards",)
    needs_updates = False
    counts_updates = True

    def __init__(
        self,
        *,
        clients: int,
        per_round: int,
        data_sizes: FloatArray,
        schedule: Schedule,
        truth: Truth,
        parameters: RewardParameters = RewardParameters(),
        per_model: int | None = None,
    ) -> None:
        self._rewards = Rewards(
            clients=clients,
            per_round=per_round,
            data_sizes=data_sizes,
            schedule=schedule,
            parameters=parameters,
            per_model=per_model,
        )
        self._per_round = per_round
        self._truth = truth
        self._tau_min_s = parameters.tau_min_s

    def select(self, view: View) -> IntArray:
        """Return min(m, selectable) clients, ascending; shape (n,)."""
        candidates = np.flatnonzero(view.selectable)
        modular = self._rewards.update_by_counts(view.round)[candidates]
        ratios = self._truth.mean_ratio(self._tau_min_s, view.round, view.time_s)[candidates]
        return np.sort(candidates[best_set(ratios, modular, self._per_round, None)])

    def observe(self, outcome: Outcome) -> None:
        """Count the selections of the round, T_k."""
        self._rewards.count(outcome.clients)
