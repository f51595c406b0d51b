"""Round-robin: the clients move over the channels in step."""

from __future__ import annotations

from models.schedulers.protocols import ChosenMatcher, SlotView
from models.schedulers.ranked import RankedScheduler
from netsim.core.state import StateFields


class RoundRobin(RankedScheduler):
    """Scheduler that uses the channels (t - 1 + j) mod N, j = 0..K-1, in round t.

    Without a matcher (None) client j takes the j-th of them, so that in N rounds every client uses every channel once. With a
    matcher they are ranked by empirical mean, and it assigns them.

    Example:
        >>> import numpy as np
        >>> from netsim.core.scheduling import SlotView
        >>> scheduler = RoundRobin(clients=2, channels=3)
        >>> scheduler.assign(SlotView(2, np.ones(2, int), np.ones(2), np.random.default_rng(1)))
        array([1, 2])
    """

    def __init__(self, *, clients: int, channels: int, matcher: ChosenMatcher = None) -> None:
        super().__init__(clients=clients, channels=channels, matcher=_InOrder() if matcher is None else matcher)
        self._in_order = matcher is None

    def _rank(self, view: SlotView) -> list[int]:
        """Return the K channels of the round: in order of j without a matcher, else by empirical mean, best first."""
        channels = [(view.round - 1 + j) % self._channels for j in range(self._clients)]
        return channels if self._in_order else self._sort_by_score(channels)


class _InOrder(StateFields):
    """Matcher that gives client j the j-th channel."""

    def match(self, view: SlotView, ranked: list[int]) -> list[int]:
        return ranked
