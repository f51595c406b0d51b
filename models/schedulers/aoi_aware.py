"""AoI-aware variant AA-x of any scheduler x, which exploits known channels when ages are high.

Li et al., Section IV-B, last paragraph, and Section VI-B; after Bhandari et al. 2020.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Annotated, Literal

import numpy as np
from annotated_doc import Doc

from models.errors import ParameterError
from models.schedulers.matchers.rotation import rotation_order
from models.schedulers.protocols import (
    BoolArray,
    Declared,
    FloatArray,
    IntArray,
    Matcher,
    Scheduler,
    SlotView,
    check_finite,
    check_sizes,
)
from models.schedulers.running_means import DiscountedMeans, OwnMeans, RunningMeans, WindowedMeans
from netsim.core.state import StateFields

_WINDOW_ROUNDS = 250


class AoiAware(StateFields):
    """Scheduler that follows another while ages are low, and gives clients of high age the channels of best empirical mean.

    An age is high above h(t) = 1 / (largest empirical mean), infinite if no mean is > 0. Channels without observations come
    last, the lower first. The wrapped `scheduler` learns from every round, also from overridden ones; M-Exp3 has the parameter
    `credit` for these.

    Example:
        >>> import numpy as np
        >>> from models.schedulers.round_robin import RoundRobin
        >>> from netsim.core.scheduling import SlotView
        >>> scheduler = AoiAware(clients=2, channels=3, scheduler=RoundRobin(clients=2, channels=3))
        >>> scheduler.assign(SlotView(1, np.ones(2, int), np.ones(2), np.random.default_rng(1)))
        array([0, 1])
    """

    state_fields = ("_running", "_scheduler")

    def __init__(
        self,
        *,
        clients: int,
        channels: int,
        scheduler: Annotated[Scheduler, Doc("Scheduler that is followed while ages are low.")],
        mode: Annotated[
            Literal["per-client", "total"],
            Doc(
                '"per-client" (evaluated in the paper): a client whose age exceeds h(t) gets the channel of best empirical mean '
                "that no older such client has taken (equal ages: in the order of rotation); a client that was assigned this "
                "channel gets the other's in exchange. \"total\" (the paper's prose): see total_threshold."
            ),
        ] = "per-client",
        means: Annotated[
            Literal["own", "history", "window", "discount"] | None,
            Doc(
                'Empirical means that are exploited. "own": those of the scheduler, since its last restart if it has any; '
                '"history": of all rounds; "window": of the last window_rounds; "discount": weighted by discount^(rounds ago). '
                'Absent: "own" for a scheduler that detects changes and restarts; "window" for any other, whose own means never '
                "forget the time before a change."
            ),
        ] = None,
        window_rounds: Annotated[int | None, Doc('Rounds of the means "window" (absent: 250).')] = None,
        discount: Annotated[float | None, Doc('Weight of a round in the means "discount" against the next one.')] = None,
        total_threshold: Annotated[
            float | None,
            Doc(
                'Sum of ages above which mode "total" uses the K channels of best empirical means, assigned by the scheduler\'s '
                "matcher, in place of the scheduler's choice; absent: K h(t)."
            ),
        ] = None,
    ) -> None:
        check_sizes(clients, channels)
        if mode not in ("per-client", "total"):
            raise ParameterError("mode", mode, "must be 'per-client' or 'total'")
        if total_threshold is not None:
            if mode != "total":
                raise ParameterError("total_threshold", total_threshold, f"has no meaning where mode = {mode!r}")
            check_finite("total_threshold", total_threshold)
        self._clients, self._channels = clients, channels
        self._scheduler = scheduler
        self._total = mode == "total"
        self._total_threshold = total_threshold
        if means is None:
            means = "own" if scheduler.forgets else "window"
        self._running = _make_running_means(means, channels, scheduler, window_rounds, discount)

    contends = False
    """False: every client has a channel of its own."""

    def detects(self) -> bool:
        """Return True if the wrapped scheduler detects changes."""
        return self._scheduler.forgets

    @property
    def matcher(self) -> Matcher:
        """Matcher of the wrapped scheduler."""
        return self._scheduler.matcher

    @matcher.setter
    def matcher(self, matcher: Matcher) -> None:
        """Replace the matcher of the wrapped scheduler."""
        self._scheduler.matcher = matcher

    @property
    def restarts(self) -> list[int]:
        """Restarts of the wrapped scheduler."""
        return self._scheduler.restarts

    @property
    def forgets(self) -> bool:
        """True if the wrapped scheduler drops the observations before a change from its means."""
        return self._scheduler.forgets

    @property
    def declared(self) -> Sequence[Declared]:
        """Changes that the wrapped scheduler declared in the last `observe`."""
        return self._scheduler.declared

    def assign(self, view: SlotView) -> IntArray:
        """Return the channel of each client; (K,): the wrapped scheduler's choice, overridden where ages are high."""
        means = self._running.means()
        # Channels without observations, of mean nan, drop out: nan > 0 is false.
        best_mean = max([mean for mean in means if mean > 0.0], default=0.0)
        threshold = 1.0 / best_mean if best_mean else inf
        ages: list[int] = view.ages.tolist()
        if self._total:
            limit = self._clients * threshold if self._total_threshold is None else self._total_threshold
            if sum(ages) <= limit:
                return self._scheduler.assign(view)
            ranked = self._sort_by_mean(means)[: self._clients]
            return np.array(self.matcher.match(view, ranked), np.int64)
        assigned = self._scheduler.assign(view)
        overdue = [client for client in rotation_order(view.round, self._clients) if ages[client] > threshold]
        if not overdue:
            return assigned
        # Oldest first. The sort is stable: clients of equal age stay in the order of rotation.
        overdue.sort(key=ages.__getitem__, reverse=True)
        return np.array(_promote(overdue, self._sort_by_mean(means), assigned.tolist()), np.int64)

    def _sort_by_mean(self, means: list[float]) -> list[int]:
        """Return all channels by mean, best first; channels without observations last."""
        scores = [mean if mean >= 0.0 else -1.0 for mean in means]
        return sorted(range(self._channels), key=scores.__getitem__, reverse=True)

    def observe(self, view: SlotView, channels: IntArray, good: BoolArray) -> None:
        """Learn from the closed round, and let the wrapped scheduler learn."""
        self._running.observe(channels, good)
        self._scheduler.observe(view, channels, good)

    def means(self) -> FloatArray:
        """Return the empirical means that are exploited; (N,), nan without observations."""
        return np.array(self._running.means())


def _promote(overdue: list[int], best_first: list[int], assigned: list[int]) -> list[int]:
    """Give the overdue clients the best channels, and return the channel of each client: `assigned`, changed in place.

    `overdue` holds clients, oldest first; `best_first` channels. A client whose channel goes to an overdue one gets that one's
    former channel in exchange, so that all channels stay distinct.
    """
    client_of = {channel: client for client, channel in enumerate(assigned)}
    for client, channel in zip(overdue, best_first, strict=False):
        former_channel, former_client = assigned[client], client_of.get(channel)
        assigned[client] = channel
        client_of[channel] = client
        if former_client is None:
            # No client had `channel`, and now none has `former_channel`.
            del client_of[former_channel]
        elif former_client != client:
            assigned[former_client] = former_channel
            client_of[former_channel] = former_client
    return assigned


def _make_running_means(
    means: str, channels: int, scheduler: Scheduler, window_rounds: int | None, discount: float | None
) -> RunningMeans:
    """Return the empirical means that `AoiAware` exploits, by its options. Raises ParameterError if they contradict each other.
    """
    if window_rounds is not None and means != "window":
        raise ParameterError("window_rounds", window_rounds, f"has no meaning where means = {means!r}")
    if discount is not None and means != "discount":
        raise ParameterError("discount", discount, f"has no meaning where means = {means!r}")
    if means == "own":
        return OwnMeans(scheduler=scheduler)
    if means == "history":
        return DiscountedMeans(channels=channels, discount=1.0)
    if means == "window":
        rounds = _WINDOW_ROUNDS if window_rounds is None else window_rounds
        return WindowedMeans(channels=channels, window_rounds=rounds)
    if means == "discount":
        if discount is None:
            raise ParameterError("discount", None, "must be given where means = 'discount'")
        return DiscountedMeans(channels=channels, discount=discount)
    raise ParameterError("means", means, "must be 'own', 'history', 'window' or 'discount'")
