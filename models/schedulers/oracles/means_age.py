"""Oracle `means-age`: the channels of oracle `means`, the best one to the oldest client: a stronger baseline than rotation."""

from __future__ import annotations

from models.schedulers.matchers.age_first import AgeFirst
from models.schedulers.oracles.means_oracle import MeansOracle
from models.schedulers.protocols import ChosenMatcher, Truth


class MeansAge(MeansOracle):
    """The K channels of largest present mean, matched by age (None)."""

    def __init__(
        self,
        *,
        clients: int,
        channels: int,
        truth: Truth,
        matcher: ChosenMatcher = None,
    ) -> None:
        super().__init__(clients=clients, channels=channels, truth=truth, matcher=AgeFirst() if matcher is None else matcher)
