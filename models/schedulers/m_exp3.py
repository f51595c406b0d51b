"""M-Exp3: Exp3 whose arms are the C(N, K) sets of channels (Li et al., Algorithm 1), with the sharing of Exp3.S, which it is said
to extend (Auer et al. 2002, Section 8)."""

from __future__ import annotations

import math
from collections.abc import Iterable

from models.schedulers.protocols import Matcher, SlotView, State, check_finite
from models.schedulers.ranked import RankedScheduler
from models.schedulers.super_arm_weights import SuperArm, SuperArmWeights


class MExp3(RankedScheduler):
    """Draws a super-arm with p_I = (1 - gamma) w_I / W + gamma / C; a reward X multiplies its weight by exp(gamma X / (p_I C)).

    X is the number of Good channels of I, divided by K where `normalize` (rewards in [0, 1], as the analysis of Exp3 wants;
    False: the paper's line). `share` > 0: every weight then grows by e share / C times the sum of all (Exp3.S's alpha; the
    algorithm prints none: 0). Exact for any C(N, K) up to 1e300; time and memory go by the arms drawn. Channels are ranked
    by empirical mean (eq. 31).

    Only a round in which nothing but channels of the drawn arm were used teaches anything about weights: the estimate X / p
    is that of the arm drawn. So where a wrapper plays other channels instead, the round counts for the empirical means alone.
    A channel of the drawn arm that was not used counts as Bad.
    """

    def __init__(
        self,
        *,
        clients: int,
        channels: int,
        gamma: float = 0.5,
        normalize: bool = True,
        share: float = 0.0,
        matcher: Matcher | None = None,
    ) -> None:
        super().__init__(clients=clients, channels=channels, matcher=matcher)
        if not 0.0 < gamma <= 1.0:
            raise ValueError(f"gamma = {gamma!r}: must be > 0 and <= 1")
        check_finite("share", share, zero=True)
        self._gamma, self._share = gamma, share
        self._unit = clients if normalize else 1
        self._weights = SuperArmWeights(count=math.comb(channels, clients))
        self._drawn: SuperArm = ()

    @property
    def arms_stored(self) -> int:
        """The number of super-arms whose weight differs from the common one; memory goes by it."""
        return len(self._weights)

    def probability(self, channels: Iterable[int]) -> float:
        """p_I of the set `channels` in the next round."""
        return self._times_count(tuple(sorted(channels))) / math.comb(self._channels, self._clients)

    def _times_count(self, arm: SuperArm) -> float:
        """p_I C."""
        return (1.0 - self._gamma) * self._weights.relative(arm) + self._gamma

    def _rank(self, view: SlotView) -> list[int]:
        rng = view.rng
        common = self._weights.common_share
        if common == 1.0 or rng.random() < self._gamma + (1.0 - self._gamma) * common:
            drawn: list[int] = rng.permutation(self._channels)[: self._clients].tolist()
            drawn.sort()
            self._drawn = tuple(drawn)
        else:
            self._drawn = self._weights.pick(rng.random())
        return sorted(self._drawn, key=self._scores.__getitem__, reverse=True)

    def _learn(self, round: int, played: list[int], won: list[bool]) -> None:
        arm, self._drawn = self._drawn, ()
        if arm and set(arm).issuperset(played):
            reward = sum(won) / self._unit
            self._weights.update(arm, self._gamma * reward / self._times_count(arm), self._share)

    def state_dict(self) -> State:
        return {**super().state_dict(), "weights": self._weights.state_dict(), "drawn": list(self._drawn)}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self._weights.load_state_dict(state["weights"])
        self._drawn = tuple(int(channel) for channel in state["drawn"])
