"""M-Exp3: Exp3 whose arms are the C(N, K) sets of channels (Li et al., Algorithm 1).

It has the sharing of Exp3.S, which the paper says it extends (Auer et al. 2002, Section 8), and the gamma that Theorem 3
assumes (Auer et al. 2002, Corollary 3.2).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated, Literal

from annotated_doc import Doc

from models.errors import ParameterError
from models.schedulers.protocols import ChosenMatcher, SlotView, check_finite, check_rounds
from models.schedulers.ranked import RankedScheduler
from models.schedulers.super_arm_weights import SuperArm, SuperArmWeights


class MExp3(RankedScheduler):
    """Scheduler that draws one of the C = C(N, K) sets of channels, called super-arms, each by its weight.

    Super-arm I is drawn with p_I = (1 - gamma) w_I / W + gamma / C, W the sum of all weights. Its reward X, the number of Good
    channels of I, multiplies w_I by exp(gamma X / (p_I C)). Exact for any C up to 1e300; time and memory grow with the number
    of arms drawn. The channels of the drawn arm are ranked by empirical mean (eq. 31).

    A wrapper may override the draw. A channel of the credited arm that was not used then counts as Bad. If fewer than K
    channels were used, they are credited to the drawn arm if it holds them all, and to no arm otherwise.

    Example:
        >>> import numpy as np
        >>> from netsim.core.scheduling import SlotView
        >>> scheduler = MExp3(clients=2, channels=3, gamma=0.3)
        >>> scheduler.assign(SlotView(1, np.ones(2, int), np.ones(2), np.random.default_rng(1)))
        array([1, 0])
    """

    state_fields = ("_weights", "_drawn")

    def __init__(
        self,
        *,
        clients: int,
        channels: int,
        rounds: int | None = None,
        gamma: Annotated[
            float | Literal["tuned"],
            Doc(
                'Share of rounds in which a set is drawn uniformly, in (0, 1]; or "tuned", the value behind Theorem 3, for '
                "rewards in [0, 1]: min(1, sqrt(C ln C / ((e - 1) T))) for a run of T rounds."
            ),
        ] = 0.5,
        normalize: Annotated[
            bool,
            Doc(
                "True: divide X, the number of Good channels of I, by K, for rewards in [0, 1] as the analysis of Exp3 needs. "
                "False: the paper's line."
            ),
        ] = True,
        share: Annotated[
            float,
            Doc(
                "Exp3.S's alpha: every weight grows by e share / C times the sum of all. The printed algorithm has none: 0."
            ),
        ] = 0.0,
        credit: Annotated[
            Literal["drawn", "played"],
            Doc(
                "Credit of a round in which a wrapper overrode the draw, and channels outside the drawn arm were used. "
                '"played": the used set is credited, by its own probability p; "drawn": the round counts for the empirical means '
                "only."
            ),
        ] = "played",
        matcher: ChosenMatcher = None,
    ) -> None:
        super().__init__(clients=clients, channels=channels, matcher=matcher)
        check_finite("share", share, zero=True)
        if credit not in ("drawn", "played"):
            raise ParameterError("credit", credit, "must be 'drawn' or 'played'")
        self._credits_used = credit == "played"
        self._unit = clients if normalize else 1
        self._weights = SuperArmWeights(count=math.comb(channels, clients))
        self._gamma, self._share = _read_gamma(gamma, rounds, clients, channels, normalize), share
        self._drawn: SuperArm = ()

    @property
    def gamma(self) -> float:
        """Share of rounds in which a set is drawn uniformly."""
        return self._gamma

    def probability(self, channels: Iterable[int]) -> float:
        """Return p_I of the set `channels` in the next round."""
        return self._scaled_probability(tuple(sorted(channels))) / math.comb(self._channels, self._clients)

    def _scaled_probability(self, arm: SuperArm) -> float:
        """Return p_I C of `arm`: C may be too large for p_I itself."""
        return (1.0 - self._gamma) * self._weights.relative(arm) + self._gamma

    def _rank(self, view: SlotView) -> list[int]:
        """Draw a super-arm, and return its channels by empirical mean, best first.

        The draw is uniform with probability gamma, and where the weight is spread evenly over all arms; else by the weights
        that rewards added.
        """
        rng = view.rng
        common = self._weights.common_share
        if common == 1.0 or rng.random() < self._gamma + (1.0 - self._gamma) * common:
            drawn: list[int] = rng.permutation(self._channels)[: self._clients].tolist()
            drawn.sort()
            self._drawn = tuple(drawn)
        else:
            self._drawn = self._weights.pick(rng.random())
        return sorted(self._drawn, key=self._scores.__getitem__, reverse=True)

    def _learn(self, round: int, used: list[int], won: list[bool]) -> None:
        """Reward the credited super-arm, if any, for the channels `used` in which an update got through (`won` True)."""
        arm = self._arm_to_credit(used)
        self._drawn = ()
        if arm:
            reward = sum(won) / self._unit
            self._weights.update(arm, self._gamma * reward / self._scaled_probability(arm), self._share)

    def _arm_to_credit(self, used: list[int]) -> SuperArm:
        """Return the super-arm that the round credits; empty if it credits none."""
        if self._drawn and set(self._drawn).issuperset(used):
            return self._drawn
        # If updates outlast a round, two of them may end on one channel in the same round: the used channels are no super-arm.
        is_super_arm = len(used) == len(set(used)) == self._clients
        return tuple(sorted(used)) if self._credits_used and is_super_arm else ()


def tune_gamma(rounds: int, *, clients: int, channels: int) -> float:
    """Return gamma = min(1, sqrt(C ln C / ((e - 1) T))) for T = `rounds` and C = C(N, K) arms; 1 for a single arm.

    It is for rewards in [0, 1]: Auer et al. 2002, Corollary 3.2 with g = T, a bound on the total reward of an arm. With it Exp3
    loses at most 2 sqrt(e - 1) sqrt(T C ln C) to the best arm, from which Li et al. derive Theorem 3 (eq. 19). Raises
    ParameterError for `rounds` < 1.
    """
    check_rounds(rounds)
    arms = math.comb(channels, clients)
    if arms == 1:
        return 1.0
    return min(1.0, math.sqrt(arms / rounds * math.log(arms) / (math.e - 1.0)))


def _read_gamma(gamma: float | Literal["tuned"], rounds: int | None, clients: int, channels: int, normalize: bool) -> float:
    """Return gamma as a number. Raises ParameterError for a value outside (0, 1], or "tuned" without its conditions."""
    if gamma == "tuned":
        if not normalize:
            raise ParameterError("gamma", "tuned", "is for rewards in [0, 1]; set normalize = true, or give gamma as a number")
        if rounds is None:
            raise ParameterError("gamma", "tuned", "needs a number of rounds; limit the run by rounds, or give gamma as a number")
        return tune_gamma(rounds, clients=clients, channels=channels)
    if not 0.0 < gamma <= 1.0:
        raise ParameterError("gamma", gamma, "must be > 0 and <= 1, or 'tuned'")
    return gamma
