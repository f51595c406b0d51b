"""Running means of tau_min/tau, the observations of PAUSE's eq. 13, with a reset where a detector declares a change."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from models.detection.protocols import Detector
from models.policies.protocols import FloatArray, IntArray
from netsim.core.state import StateFields


class LatencyMeans(StateFields):
    """Means over each client's own observations, all in (0, 1].

    `detector` makes the detector of one client (None: no detection). A declared change drops the client's observations except
    the last one, which the change has already reached. Dropping that one as well, as GLR-CUCB does (Li et al., Algorithm 2),
    would make the client unexplored, and it would be selected again at once. The observations of other clients stay.
    """

    state_fields = ("_counts", "_sums", "_detectors", "restarts")

    def __init__(self, *, clients: int, detector: Callable[[], Detector] | None = None) -> None:
        self._counts: FloatArray = np.zeros(clients)
        self._sums: FloatArray = np.zeros(clients)
        self._detectors = None if detector is None else [detector() for _ in range(clients)]
        self.restarts: list[tuple[int, int]] = []
        """(round, client) of every declared change."""

    def observe(self, round: int, clients: IntArray, ratios: FloatArray) -> None:
        """Add one observation `ratios` (n,) of each of `clients` (n,), distinct, made in `round`."""
        self._counts[clients] += 1.0
        self._sums[clients] += ratios
        if self._detectors is None:
            return
        for client, ratio in zip(clients.tolist(), ratios.tolist(), strict=True):
            detector = self._detectors[client]
            if detector.update(ratio):
                # Begin again with this observation alone.
                detector.reset()
                detector.update(ratio)
                self._counts[client], self._sums[client] = 1.0, ratio
                self.restarts.append((round, client))

    def summarise(self, clients: IntArray) -> MeanAndWidth:
        """Return the means of the observations of `clients` (n,), and their widths; 0 where there are no observations."""
        counts = self._counts[clients]
        divisor = np.maximum(counts, 1.0)
        return MeanAndWidth(self._sums[clients] / divisor, np.minimum(counts, 1.0) / np.sqrt(divisor))


class MeanAndWidth(NamedTuple):
    """Statistics of the observations of some clients; each (n,)."""

    mean: FloatArray
    width: FloatArray
    """1/sqrt(number of observations), to which the confidence bound of eq. 13 is proportional."""
