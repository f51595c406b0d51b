"""Oracle `csi`: sees the channel states before it schedules (Li et al., above eq. 14), so regret against it grows linearly."""

from __future__ import annotations

import numpy as np

from models.errors import ParameterError
from models.schedulers.matchers.age_first import AgeFirst
from models.schedulers.protocols import BoolArray, ChosenMatcher, SlotView, Truth
from models.schedulers.ranked import RankedScheduler


class Csi(RankedScheduler):
    """Scheduler that knows the states of a round and selects Good channels first, the lower first.

    Without a matcher (None) they are matched by age, so that the oldest clients get through if not all can. The states come
    from `show`, if it was called before the round, else from `truth`.

    Example:
        >>> import numpy as np
        >>> from netsim.core.scheduling import SlotView
        >>> scheduler = Csi(clients=2, channels=3)
        >>> scheduler.show(np.array([False, True, True]))
        >>> scheduler.assign(SlotView(1, np.array([2, 5]), np.ones(2), np.random.default_rng(1)))
        array([2, 1])
    """

    state_fields = ("_shown",)

    def __init__(self, *, clients: int, channels: int, truth: Truth | None = None, matcher: ChosenMatcher = None) -> None:
        super().__init__(clients=clients, channels=channels, matcher=AgeFirst() if matcher is None else matcher)
        self._truth = truth
        self._shown: BoolArray | None = None

    def show(self, good: BoolArray) -> None:
        """Take the states `good` (N,) of the coming round; they hold for that round only."""
        self._shown = np.array(good, np.bool_)

    def _rank(self, view: SlotView) -> list[int]:
        """Return the first K channels, those Good in this round before the Bad ones; forget the states that were shown."""
        states, self._shown = self._shown, None
        if states is None:
            if self._truth is None:
                raise ParameterError("truth", None, "the states of every round must be shown")
            states = self._truth.states(view.round)
        good: list[bool] = states.tolist()
        return sorted(range(self._channels), key=good.__getitem__, reverse=True)[: self._clients]
