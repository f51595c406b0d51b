"""Random scheduling: K channels uniformly, matched at random (the baseline of Li et al., Section VI-A)."""

from __future__ import annotations

from models.schedulers.matchers.random_matching import RandomMatching
from models.schedulers.protocols import ChosenMatcher, SlotView
from models.schedulers.ranked import RankedScheduler


class Random(RankedScheduler):
    """Every set of K channels equally likely; ranked by empirical mean for matchers that go by rank (None: random matching)."""

    def __init__(
        self,
        *,
        clients: int,
        channels: int,
        matcher: ChosenMatcher = None,
    ) -> None:
        super().__init__(clients=clients, channels=channels, matcher=RandomMatching() if matcher is None else matcher)

    def _rank(self, view: SlotView) -> list[int]:
        return self._by_score(view.rng.permutation(self._channels)[: self._clients].tolist())
