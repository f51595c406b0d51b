"""GLR-CUCB: combinatorial UCB that restarts when a change is detected (Li et al., Algorithm 2; Zhou et al. 2020)."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Annotated

from annotated_doc import Doc

from models.detection.glr_exact import GlrExact
from models.detection.protocols import Detector
from models.errors import ParameterError
from models.schedulers.index_policy import IndexPolicy
from models.schedulers.protocols import ChosenMatcher, check_rounds


class GlrCucb(IndexPolicy):
    """CUCB with forced exploration of every channel once in floor(N / alpha) rounds and a detector of changes on each channel.

    Channels count from 0: after a restart in round tau channel i is due in round tau + i, and channel 0 a period later.

    If `segments` sets alpha and delta, the rounds with a wrong set are of the order of sqrt(C_T N T ln T) (Lemma 4).

    Example:
        >>> import numpy as np
        >>> from netsim.core.scheduling import SlotView
        >>> scheduler = GlrCucb(clients=2, channels=3, rounds=1000)
        >>> scheduler.period
        721
        >>> scheduler.assign(SlotView(1, np.ones(2, int), np.ones(2), np.random.default_rng(1)))
        array([1, 0])
    """

    def __init__(
        self,
        *,
        clients: int,
        channels: int,
        rounds: int | None = None,
        alpha: Annotated[
            float | None,
            Doc(
                "Share of rounds with forced exploration, in (0, 1]; absent: 0.05 sqrt(ln T / T), T = rounds, and none for T = 1."
            ),
        ] = None,
        segments: Annotated[
            int | None,
            Doc(
                "Number C_T of stationary intervals, breakpoints + 1; absent: unknown. It sets alpha = min(1, sqrt(C_T N ln T / "
                "T)) and, if no detector is given, delta = 1 / T."
            ),
        ] = None,
        forced_exploration: Annotated[bool, Doc("True: force exploration.")] = True,
        detector: Annotated[
            Callable[[], Detector] | None,
            Doc("Detector of one channel; absent: the exact GLR test at delta = 0.001."),
        ] = None,
        matcher: ChosenMatcher = None,
    ) -> None:
        period = _exploration_period(channels, rounds, alpha, segments, forced_exploration)
        if detector is None:
            detector = GlrExact
            if segments is not None and rounds is not None:
                # delta = 1 / T must be below 1.
                detector = partial(GlrExact, delta=1.0 / max(rounds, 2))
        super().__init__(clients=clients, channels=channels, detector=detector, period=period, matcher=matcher)


def alpha_for_segments(rounds: int, *, channels: int, segments: int) -> float:
    """Return alpha = min(1, sqrt(C_T N ln T / T)), the share of rounds with forced exploration; 0 for T = 1.

    C_T = `segments` is the number of stationary intervals, N = `channels`, T = `rounds`. alpha T rounds are spent on exploring,
    and every change waits about N ln T / alpha rounds until it has been seen often enough. This alpha makes both equal, and
    with delta = 1 / T gives the order of Lemma 4 (Zhou et al. 2020, Corollary 4.3, which the paper cites). Both papers give
    orders; the constant 1 is a choice. Raises ParameterError for `rounds` < 1 or `segments` < 1.
    """
    check_rounds(rounds)
    if segments < 1:
        raise ParameterError("segments", segments, "must be >= 1, the number of breakpoints + 1")
    return min(1.0, math.sqrt(segments * channels * math.log(rounds) / rounds))


def _exploration_period(channels: int, rounds: int | None, alpha: float | None, segments: int | None, forced: bool) -> int:
    """Return floor(N / alpha), the rounds from one forced exploration of a channel to the next; 0 if none is forced.

    alpha is given, follows from `segments`, or is the default. Raises ParameterError for values that contradict each other.
    """
    if rounds is not None:
        check_rounds(rounds)
    if alpha is not None and not 0.0 < alpha <= 1.0:
        raise ParameterError("alpha", alpha, "must be > 0 and <= 1; without forced exploration say forced_exploration = false")
    if not forced:
        for name, value in (("alpha", alpha), ("segments", segments)):
            if value is not None:
                raise ParameterError(name, value, "has no meaning where forced_exploration = false")
        return 0
    if segments is not None:
        if alpha is not None:
            raise ParameterError("segments", segments, f"sets alpha, which is given as {alpha!r}; leave one of them out")
        if rounds is None:
            raise ParameterError("segments", segments, "needs a number of rounds; limit the run by rounds, or give alpha")
        alpha = alpha_for_segments(rounds, channels=channels, segments=segments)
    elif alpha is None:
        if rounds is None:
            raise ParameterError("alpha", None, "must be given where the number of rounds is open")
        alpha = 0.05 * math.sqrt(math.log(rounds) / rounds)
    # alpha is 0 for a single round.
    return math.floor(channels / alpha) if alpha > 0.0 else 0
