"""AoI-aware variant AA-x of any scheduler x: exploits what is known where ages are high (Li et al., Section IV-B, last paragraph,
and Section VI-B; after Bhandari et al. 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Annotated, Literal

import numpy as np
from annotated_doc import Doc

from models.errors import ParameterError
from models.schedulers.matchers.rotation import turn
from models.schedulers.protocols import (
    BoolArray,
    Declared,
    FloatArray,
    IntArray,
    Matcher,
    Scheduler,
    SlotView,
    State,
    check_finite,
    check_sizes,
)
from models.schedulers.running_means import DiscountedMeans, OwnMeans, RunningMeans, WindowedMeans

_WINDOW_ROUNDS = 250


class AoiAware:
    """Follows `scheduler` while ages are low; the threshold is h(t) = 1 / (largest empirical mean), infinite without one > 0.

    Channels without an observation come last, the lower first. The scheduler learns from every round; what M-Exp3 makes of a
    round that was overridden is its own `credit`.
    """

    def __init__(
        self,
        *,
        clients: int,
        channels: int,
        scheduler: Annotated[Scheduler, Doc("The scheduler that is followed while ages are low.")],
        mode: Annotated[
            Literal["per-client", "total"],
            Doc(
                '"per-client" (the one the paper evaluates): a client whose age exceeds h(t) is given the channel of best '
                "empirical mean that no older such client has taken (equal ages: in the order of rotation); if another client "
                "was to have that channel, the two change places. \"total\" (the paper's prose): see total_threshold."
            ),
        ] = "per-client",
        means: Annotated[
            Literal["own", "history", "window", "discount"] | None,
            Doc(
                'Which empirical means are meant (absent: "own" for a scheduler that detects changes and restarts, "window" for '
                'any other, whose own means would never forget what a channel was before it changed): "own" are the '
                "scheduler's, since its last restart where it has any; \"history\" are of all rounds, \"window\" of the last "
                'window_rounds, "discount" weighted by discount^(rounds ago).'
            ),
        ] = None,
        window_rounds: Annotated[int | None, Doc('Rounds of the means "window" (absent: 250).')] = None,
        discount: Annotated[float | None, Doc('Weight of a round in the means "discount" against the next one.')] = None,
        total_threshold: Annotated[
            float | None,
            Doc(
                'Where mode is "total" and the sum of ages exceeds this (absent: K h(t)), the K channels of best empirical means '
                "are used, given out by the scheduler's matcher, and the scheduler is not asked."
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
        self._running = _running_means(means, channels, scheduler, window_rounds, discount)

    contends = False

    @property
    def matcher(self) -> Matcher:
        """The scheduler's."""
        return self._scheduler.matcher

    @matcher.setter
    def matcher(self, matcher: Matcher) -> None:
        self._scheduler.matcher = matcher

    @property
    def restarts(self) -> list[int]:
        """The scheduler's."""
        return self._scheduler.restarts

    @property
    def forgets(self) -> bool:
        """The scheduler's."""
        return self._scheduler.forgets

    @property
    def declared(self) -> Sequence[Declared]:
        """The scheduler's."""
        return self._scheduler.declared

    def assign(self, view: SlotView) -> IntArray:
        """The channel of each client; (K,), distinct."""
        means = self._running.means()
        # nan compares as false with everything.
        best = max([mean for mean in means if mean > 0.0], default=0.0)
        threshold = 1.0 / best if best else inf
        ages: list[int] = view.ages.tolist()
        if self._total:
            limit = self._clients * threshold if self._total_threshold is None else self._total_threshold
            if sum(ages) > limit:
                ranked = self._by_mean(means)[: self._clients]
                return np.array(self.matcher.match(view, ranked), np.int64)
            return self._scheduler.assign(view)
        assigned = self._scheduler.assign(view)
        overdue = [client for client in turn(view.round, self._clients) if ages[client] > threshold]
        if not overdue:
            return assigned
        overdue.sort(key=ages.__getitem__, reverse=True)
        return np.array(_promote(overdue, self._by_mean(means), assigned.tolist()), np.int64)

    def _by_mean(self, means: list[float]) -> list[int]:
        scores = [mean if mean >= 0.0 else -1.0 for mean in means]
        return sorted(range(self._channels), key=scores.__getitem__, reverse=True)

    def observe(self, view: SlotView, channels: IntArray, good: BoolArray) -> None:
        """Learn from the round just closed, and let the scheduler learn."""
        self._running.observe(channels, good)
        self._scheduler.observe(view, channels, good)

    def means(self) -> FloatArray:
        """The empirical means that are exploited; (N,), nan where there is no observation."""
        return np.array(self._running.means())

    def state_dict(self) -> State:
        return {"means": self._running.state_dict(), "scheduler": self._scheduler.state_dict()}

    def load_state_dict(self, state: State) -> None:
        self._running.load_state_dict(state["means"])
        self._scheduler.load_state_dict(state["scheduler"])


def _promote(overdue: list[int], best_first: list[int], assigned: list[int]) -> list[int]:
    """`assigned` after each of `overdue` in turn has got the next of `best_first`, changing places with whoever had it."""
    holder = {channel: client for client, channel in enumerate(assigned)}
    for client, channel in zip(overdue, best_first, strict=False):
        former, other = assigned[client], holder.get(channel)
        assigned[client] = channel
        holder[channel] = client
        if other is None:
            del holder[former]
        elif other != client:
            assigned[other] = former
            holder[former] = other
    return assigned


def _running_means(
    means: str, channels: int, scheduler: Scheduler, window_rounds: int | None, discount: float | None
) -> RunningMeans:
    if window_rounds is not None and means != "window":
        raise ParameterError("window_rounds", window_rounds, f"has no meaning where means = {means!r}")
    if discount is not None and means != "discount":
        raise ParameterError("discount", discount, f"has no meaning where means = {means!r}")
    if means == "own":
        return OwnMeans(scheduler=scheduler)
    if means == "history":
        return DiscountedMeans(channels=channels, discount=1.0)
    if means == "window":
        return WindowedMeans(channels=channels, window_rounds=_WINDOW_ROUNDS if window_rounds is None else window_rounds)
    if means == "discount":
        if discount is None:
            raise ParameterError("discount", None, "must be given where means = 'discount'")
        return DiscountedMeans(channels=channels, discount=discount)
    raise ParameterError("means", means, "must be 'own', 'history', 'window' or 'discount'")
