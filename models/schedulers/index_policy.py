"""Base class of combinatorial UCB over channels (Chen et al. 2013; Li et al., eq. 29), with forced exploration and restarts.

Its own base, `RankedScheduler`, keeps the counts and means of the channels and has the matcher, which gives the selected
channels to the clients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, log, sqrt

from models.detection.no_detection import NoDetection
from models.detection.protocols import Detector, kind_of
from models.schedulers.protocols import Declared, Matcher, SlotView
from models.schedulers.ranked import RankedScheduler


class IndexPolicy(RankedScheduler):
    """Scheduler that selects the K channels of largest index mean_i + sqrt(3 ln(t - tau) / (2 D_i)).

    The index is infinite while D_i = 0, and ties go to the lower channel. t is the round, tau the round of the last restart (0:
    none), D_i the number of observations of channel i since then and mean_i their mean. `period` > 0 forces exploration: if
    i = (t - tau) mod `period` is a channel, it is used with K - 1 others drawn uniformly, and the set is ranked by the same
    index. After every transmission the channel's detector sees the observation. A declared change resets all D_i and all
    detectors and sets tau to this round; the remaining channels of the round are not tested.
    """

    state_fields = ("_restarts", "_detectors")

    def __init__(
        self,
        *,
        clients: int,
        channels: int,
        detector: Callable[[], Detector],
        period: int,
        matcher: Matcher | None = None,
    ) -> None:
        super().__init__(clients=clients, channels=channels, matcher=matcher)
        self._detectors = [detector() for _ in range(channels)]
        self._kind = kind_of(self._detectors[0])
        self._period = period
        self._restarts: list[int] = []
        self._declared: Sequence[Declared] = ()
        self._clear()

    @property
    def restarts(self) -> list[int]:
        """Rounds in which a change was declared, ascending; a copy."""
        return self._restarts.copy()

    @property
    def forgets(self) -> bool:
        """True if there is a detector: means are then of the observations since the last restart."""
        return self._kind != kind_of(NoDetection())

    @property
    def declared(self) -> Sequence[Declared]:
        """Change declared in the last `observe`, if any; not part of the saved state."""
        return self._declared

    @property
    def period(self) -> int:
        """Rounds from one forced exploration of a channel to the next; 0: no forced exploration."""
        return self._period

    def index(self, round: int) -> list[float]:
        """Return the index of every channel in `round` (eq. 29); (N,)."""
        width = sqrt(1.5 * log(round - self._tau))
        return [mean + width * root for mean, root in zip(self._means_or_inf, self._inverse_roots, strict=True)]

    def _rank(self, view: SlotView) -> list[int]:
        """Return the K selected channels, by index, best first; one of them is the explored one if exploration is forced."""
        index = self.index(view.round)
        # In the first N rounds of each period, one channel after the other is explored by force.
        explored = (view.round - self._tau) % self._period if self._period else self._channels
        if explored >= self._channels:
            return sorted(range(self._channels), key=index.__getitem__, reverse=True)[: self._clients]
        # K - 1 random ones of the other channels; their numbers skip that of the explored one.
        draws = view.rng.permutation(self._channels - 1)[: self._clients - 1].tolist()
        others = [draw + (draw >= explored) for draw in draws]
        # The inner sort makes ties go to the lower channel.
        return sorted(sorted([explored, *others]), key=index.__getitem__, reverse=True)

    def _learn(self, round: int, used: list[int], won: list[bool]) -> None:
        """Update the indices of the channels `used`, then test them for changes; `won`: True where an update got through.

        The first change that is declared restarts all channels, so the detectors of the channels after it are not asked.
        """
        for channel in used:
            self._means_or_inf[channel] = self._scores[channel]
            self._inverse_roots[channel] = 1.0 / sqrt(self._counts[channel])
        self._declared = ()
        detectors = self._detectors
        for channel, success in zip(used, won, strict=True):
            if detectors[channel].update(success):
                self._declared = (Declared(channel, self._kind, self._counts[channel]),)
                self._restart(round)
                return

    def _restart(self, round: int) -> None:
        """Reset all counts and detectors after a change declared in `round`."""
        self._restarts.append(round)
        self._forget()
        self._clear()
        for detector in self._detectors:
            detector.reset()

    def _clear(self) -> None:
        """Reset the indices to those of channels without observations."""
        self._tau = self._restarts[-1] if self._restarts else 0
        # The index is mean + width / sqrt(D_i), and inf + 0 where there is no observation.
        self._means_or_inf = [inf] * self._channels
        self._inverse_roots = [0.0] * self._channels
        """1 / sqrt(D_i) of each channel."""

    def on_load(self) -> None:
        """Recompute the indices from the restored counts."""
        super().on_load()
        self._clear()
        for channel, counts in enumerate(self._counts):
            if counts:
                self._means_or_inf[channel] = self._scores[channel]
                self._inverse_roots[channel] = 1.0 / sqrt(counts)
