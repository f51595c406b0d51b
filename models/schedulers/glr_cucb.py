"""GLR-CUCB: combinatorial UCB that restarts where a change is detected (Li et al., Algorithm 2; Zhou et al. 2020)."""

from __future__ import annotations

import math
from collections.abc import Callable

from models.detection.glr_exact import GlrExact
from models.detection.protocols import Detector
from models.schedulers.index_policy import IndexPolicy
from models.schedulers.protocols import Matcher, check_rounds


class GlrCucb(IndexPolicy):
    """CUCB with forced exploration of every channel once in floor(N / alpha) rounds and a detector of changes on each channel.

    `alpha` in (0, 1] is the share of rounds in which exploration is forced (None: 0.05 sqrt(ln T / T), T = `rounds`; with
    T = 1 there is none); `forced_exploration` False: there is none. `detector` makes the detector of one channel (None: the
    exact GLR test at delta = 0.001). Channels count from 0, so that after a restart in round tau channel i is due in round
    tau + i, and channel 0 a period later.
    """

    def __init__(
        self,
        *,
        clients: int,
        channels: int,
        rounds: int | None = None,
        alpha: float | None = None,
        forced_exploration: bool = True,
        detector: Callable[[], Detector] | None = None,
        matcher: Matcher | None = None,
    ) -> None:
        super().__init__(
            clients=clients,
            channels=channels,
            detector=GlrExact if detector is None else detector,
            period=_period(channels, rounds, alpha, forced_exploration),
            matcher=matcher,
        )


def _period(channels: int, rounds: int | None, alpha: float | None, forced: bool) -> int:
    if rounds is not None:
        check_rounds(rounds)
    if alpha is not None and not 0.0 < alpha <= 1.0:
        raise ValueError(f"alpha = {alpha!r}: must be > 0 and <= 1; without forced exploration say forced_exploration = false")
    if not forced:
        if alpha is not None:
            raise ValueError(f"alpha = {alpha!r}: has no meaning where forced_exploration = false")
        return 0
    if alpha is None:
        if rounds is None:
            raise ValueError("alpha = None: must be given where the number of rounds is open")
        alpha = 0.05 * math.sqrt(math.log(rounds) / rounds)
    return math.floor(channels / alpha) if alpha > 0.0 else 0
