"""Regret of a selection policy against PAUSE's genie (Peleg et al., eq. 9, 10, 15), and the theorem's bound (eq. 16, 17)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Literal, NamedTuple

import numpy as np
from annotated_doc import Doc

from models.errors import ParameterError
from models.policies.pause.exact_search import best_set
from models.policies.pause.parameters import RewardParameters
from models.policies.pause.rewards import Rewards, Schedule, latency_ratio
from models.policies.protocols import FloatArray, IntArray, Outcome, Truth, View, check_at_least
from netsim.core.state import StateFields


class PauseRewardMeter(StateFields):
    """Reward of the selected sets and of the genie's, round by round (eq. 9); satisfies `RewardMeter`.

    Both sets are scored on the draws of the round: the whole latencies of their clients, as if no update were lost, waited in a
    queue or were cut off by a deadline or by over-selection. T_k of eq. 7 and 8 counts selections. Losses and delays change a
    regret only through the policy's selections. The genie may choose any client, also one that the policy could not select;
    ties go to the lower client. The rewards g_k, p_k are those before the round, for both. A selected set that is smaller or
    larger than m (few selectable clients, policy `all`) is scored with its own size in the place of m: by the means of g_k and
    p_k over the set.

    Example:
        >>> import numpy as np
        >>> from models.laws.changes import Unchanging
        >>> from models.laws.delays import Constant
        >>> from models.laws.expectations import Truth
        >>> from models.privacy import NoSchedule
        >>> truth = Truth(clients=3, phases=[Unchanging(Constant(value_s=1.0))], kinds=["compute"])
        >>> meter = PauseRewardMeter(clients=3, per_round=2, data_sizes=np.ones(3), schedule=NoSchedule(), truth=truth)
        >>> meter.history
        'own'
    """

    state_fields = ("_played", "_genie")

    def __init__(
        self,
        *,
        clients: int,
        per_round: int,
        data_sizes: FloatArray,
        schedule: Schedule,
        truth: Truth,
        parameters: RewardParameters = RewardParameters(),
        history: Annotated[
            Literal["own", "shared"],
            Doc(
                'Counts on which the genie selects. "own": those of its own sets (eq. 10, 15); it looks one round ahead, so '
                'another history may earn more, and regret may be negative. "shared": those of the policy\'s sets, as in the '
                "proof of Theorem 3, so that the regret of a round is the cost of that one selection."
            ),
        ] = "own",
    ) -> None:
        if history not in ("own", "shared"):
            raise ParameterError("history", history, "must be 'own' or 'shared'")

        def new_rewards() -> Rewards:
            """Return rewards with no selections counted yet."""
            return Rewards(
                clients=clients,
                per_round=per_round,
                data_sizes=data_sizes,
                schedule=schedule,
                parameters=parameters,
            )

        self.history = history
        self._played = new_rewards()
        self._genie = new_rewards() if history == "own" else self._played
        self._per_round = per_round
        self._truth = truth
        self._tau_min_s = parameters.tau_min_s

    def measure(self, outcome: Outcome, view: View, latency_s: Callable[[IntArray], FloatArray]) -> tuple[float, float]:
        """Return the reward of the selected set and of the genie's in the round of `outcome`; call it once a round, in order.

        `view`: the policy's view as the round began. `latency_s` returns the latencies (n,) in seconds that the round has drawn
        for clients (n,). A round without clients has reward 0.
        """
        ratios = self._truth.mean_ratio(self._tau_min_s, view.round, view.time_s)
        scores = self._genie.update_by_counts(view.round)
        # Sorted, so that the scores of two equal sets are added in one order, and their sums are equal to the last bit.
        genie = np.sort(best_set(ratios, scores, self._per_round, rng=None))
        genie_scores = scores[genie]
        # With a shared history this is the same state again: an update by the same counts returns the same scores.
        played_scores = self._played.update_by_counts(view.round)
        played = outcome.clients
        drawn_s = latency_s(np.concatenate((genie, played)))
        genie_reward = self._reward(drawn_s[: len(genie)], genie_scores)
        reward = self._reward(drawn_s[len(genie) :], played_scores[played]) if len(played) else 0.0
        self._played.count(played)
        if self._genie is not self._played:
            self._genie.count(genie)
        return reward, genie_reward

    def _reward(self, latency_s: FloatArray, scores: FloatArray) -> float:
        """Return the reward (eq. 9) of a set of n clients from their latencies (n,) and scores alpha g_k/m + gamma p_k/m (n,)."""
        # The scores are divided by m; the set has n clients.
        m_over_n = self._per_round / len(scores)
        return float(latency_ratio(self._tau_min_s, latency_s).min() + scores.sum() * m_over_n)


def delta_max_bound(alpha: float, gamma: float, mu: FloatArray) -> float:
    """Return the greatest gap between two rewards: 2 alpha + gamma + max mu_k - min mu_k (Lemma 1; eq. 16 prints max - max).

    `mu` (K,): E[tau_min / tau_k] of each client.
    """
    return float(2.0 * alpha + gamma + np.max(mu) - np.min(mu))


def regret_bound(n: int, *, clients: int, per_round: int, delta_max: float, delta: float, c: float = 4.0) -> float:
    """Return the bound of Theorem 3 (eq. 17) on the expected regret after `n` rounds.

    It is K (Dmax + delta)(4 (m+1) ln n / delta^2 + 1 + c pi^2/3). `delta_max` bounds the gap of two rewards (`delta_max_bound`),
    `delta` > 0 is the least difference between two clients' expectations. The theorem is printed with c = 2, but its proof gives
    c = 4, the default: state c where the bound is plotted.
    """
    if n < 1:
        raise ParameterError("n", n, "must be >= 1")
    bound = regret_bound_terms(clients=clients, per_round=per_round, delta_max=delta_max, delta=delta, c=c)
    return bound.constant + bound.per_log_round * math.log(n)


class BoundTerms(NamedTuple):
    """The bound `constant` + `per_log_round` ln n."""

    constant: float
    per_log_round: float


def regret_bound_terms(*, clients: int, per_round: int, delta_max: float, delta: float, c: float = 4.0) -> BoundTerms:
    """Return the two terms of `regret_bound`: its value at n = 1, and its growth with every unit of ln n."""
    check_at_least("delta_max", delta_max, 0)
    check_at_least("delta", delta, 0, strict=True)
    factor = clients * (delta_max + delta)
    return BoundTerms(
        constant=factor * (1.0 + c * math.pi**2 / 3.0), per_log_round=factor * 4.0 * (per_round + 1) / delta**2
    )
