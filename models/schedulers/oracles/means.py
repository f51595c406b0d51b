"""Oracle `means`: knows the present mean of each channel, schedules the K best, clients rotate (the oracle of Theorems 2-5 of
Li et al.)."""

from __future__ import annotations

from models.schedulers.oracles.means_oracle import MeansOracle
from models.schedulers.protocols import ChosenMatcher, Truth


class Means(MeansOracle):
    """The K channels of largest present mean in rotation."""

    def __init__(
        self,
        *,
        clients: int,
        channels: int,
        truth: Truth,
        matcher: ChosenMatcher = None,
    ) -> None:
        super().__init__(clients=clients, channels=channels, truth=truth, matcher=matcher)
