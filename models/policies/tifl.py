"""TiFL: tier-based selection (Chai et al., HPDC 2020).

Before the first round every client makes `sync_rounds` updates that are thrown away; one that is silent in such a round counts as
`timeout_s`, and one whose mean reaches it is never selected. By their mean latencies clients are split into tiers, the fastest
first. Static: a tier is drawn with fixed probabilities, then m of its clients uniformly. Adaptive: every I rounds, unless the
tier last selected has become better, the tiers with credits are ranked and the worst gets the greatest probability, P_i = (q - i)
/ (q (q - 1)/2) for rank i = 1..q; selecting a tier takes one of its credits. Tiers are ranked by the mean accuracy of the present
model that their clients find on test data of their own, for which they are asked. `measure = "loss"` goes by the losses that came
last with updates instead, for which nobody is asked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_doc import Doc

from models.errors import ParameterError
from models.policies.draws import uniform_draws
from models.policies.protocols import (
    AsksNobody,
    FloatArray,
    IntArray,
    Outcome,
    State,
    View,
    check_at_least,
    check_round,
)

TABLES: dict[str, tuple[float, ...]] = {
    "slow": (0.0, 0.0, 0.0, 0.0, 1.0),
    "uniform": (0.2, 0.2, 0.2, 0.2, 0.2),
    "random": (0.7, 0.1, 0.1, 0.05, 0.05),
    "fast": (1.0, 0.0, 0.0, 0.0, 0.0),
    "fast1": (0.225, 0.225, 0.225, 0.225, 0.1),
    "fast2": (0.2375, 0.2375, 0.2375, 0.2375, 0.05),
    "fast3": (0.25, 0.25, 0.25, 0.25, 0.0),
}
"""The paper's probabilities of five tiers, the fastest first, as recalled."""


@dataclass(frozen=True, kw_only=True)
class RankingParameters:
    """How tiers are ranked where that is adaptive, and filled up. Raises ValueError for a value outside its range."""

    interval: Annotated[int | None, Doc("Adaptive: I, rounds between rankings (absent: as many as tiers).")] = None
    credits: Annotated[int | None, Doc("Adaptive: how often each tier can be selected; absent: without limit.")] = None
    weights: Annotated[
        Literal["paper", "shifted"],
        Doc("Adaptive: by the paper the best tier gets 0; shifted: (q - i + 1) / (q (q + 1)/2), as in public code."),
    ] = "paper"
    measure: Annotated[
        Literal["accuracy", "loss"],
        Doc("Adaptive: tiers are ranked by the accuracy that clients are asked for, or by losses that came with updates."),
    ] = "accuracy"
    tested: Annotated[int | None, Doc("Adaptive: clients of each tier that are asked at a ranking; absent: all.")] = None
    fill: Annotated[
        bool,
        Doc(
            "Whether the next slower tiers, then faster ones, fill up one with fewer than m selectable clients (the paper does "
            "not say); otherwise fewer are selected, of the next tier only where it has none."
        ),
    ] = True

    def __post_init__(self) -> None:
        for name, value in {"interval": self.interval, "credits": self.credits, "tested": self.tested}.items():
            if value is not None:
                check_at_least(name, value, 1)
        if self.measure not in ("accuracy", "loss"):
            raise ParameterError("measure", self.measure, "must be accuracy or loss")
        if self.weights not in ("paper", "shifted"):
            raise ParameterError("weights", self.weights, "must be paper or shifted")
        if self.tested is not None and self.measure == "loss":
            raise ParameterError("tested", self.tested, "has no meaning where measure = 'loss': nobody is asked")


class Tifl(AsksNobody):
    """Selects m clients of the tier drawn for the round; where it has too few, the next slower ones fill up, then faster ones.

    Without `fill` fewer are selected.
    """

    needs_updates = False
    needs_losses: bool = False
    """Of an object: whether it ranks tiers by them."""
    probes = True
    question: ClassVar[str] = "profile"
    asks_again = True
    tests: bool = False
    """Whether it has asked for accuracies last."""
    tests_where: ClassVar[Mapping[str, tuple[str, ...]]] = {"probabilities": ("adaptive",), "measure": ("accuracy",)}

    def __init__(
        self,
        *,
        clients: int,
        per_round: int,
        timeout_s: Annotated[float, Doc("Latency that a client which stays silent in a profiling round is taken to have.")],
        tiers: Annotated[int, Doc("Number of tiers.")] = 5,
        sync_rounds: Annotated[int, Doc("Profiling rounds before the first round.")] = 1,
        split: Annotated[
            Literal["equal-count", "equal-width"],
            Doc("Tiers of as many clients each, the rest in the slowest; or of as wide a range of latencies each."),
        ] = "equal-count",
        probabilities: Annotated[
            str | list[float],
            Doc("Of tiers, the fastest first: one of slow, uniform, random, fast, fast1, fast2, fast3, or a list; or adaptive."),
        ] = "uniform",
        ranking: RankingParameters = RankingParameters(),
    ) -> None:
        check_round(clients, per_round)
        check_at_least("timeout_s", timeout_s, 0, strict=True)
        if not 1 <= tiers <= min(clients, 127):
            raise ParameterError("tiers", tiers, f"must be between 1 and {min(clients, 127)}")
        check_at_least("sync_rounds", sync_rounds, 1)
        if split not in ("equal-count", "equal-width"):
            raise ParameterError("split", split, "must be equal-count or equal-width")
        self._clients, self._per_round, self._tiers = clients, per_round, tiers
        self._timeout_s, self._sync_rounds, self._split = timeout_s, sync_rounds, split
        self._adaptive = probabilities == "adaptive"
        if not self._adaptive:
            _refuse_adaptive(ranking)
        self._by_losses, self._tested, self._fill = ranking.measure == "loss", ranking.tested, ranking.fill
        self.needs_losses = self._adaptive and self._by_losses
        self._interval = tiers if ranking.interval is None else ranking.interval
        self._shifted = ranking.weights == "shifted"
        self._share: FloatArray = np.full(tiers, 1.0 / tiers) if self._adaptive else _static(probabilities, tiers)
        self._credits: FloatArray = np.full(tiers, math.inf if ranking.credits is None else float(ranking.credits))
        self._profiled = 0
        self._sum_s: FloatArray = np.zeros(clients)
        self.tier_of: IntArray = np.full(clients, -1, np.int8).astype(np.int64)
        """(K,) the tier of each client, from 0, the fastest; -1: never selected, or not known yet."""
        self._loss: FloatArray = np.full(clients, np.nan)
        self._before: FloatArray = np.full(tiers, np.nan)
        """(tiers,) the figures of the last ranking, greater is better."""
        self._last_tier = -1

    def probe(self, view: View) -> IntArray:
        """Before the first round, everyone, `sync_rounds` times; then, before a ranking by accuracy, clients of every tier."""
        self.tests = False
        if 0 < self._profiled <= self._sync_rounds and len(view.probed.clients):
            self._learn(view)
        if self._profiled < self._sync_rounds:
            self._profiled += 1
            return np.flatnonzero(view.selectable)
        if not self._due(view.round) or self._by_losses or len(view.probed.clients):
            return np.zeros(0, np.int64)
        self.tests = True
        able = view.selectable & (self.tier_of >= 0)
        if self._tested is None:
            return np.flatnonzero(able)
        drawn = [uniform_draws(able & (self.tier_of == tier), self._tested, view.rng) for tier in range(self._tiers)]
        return np.sort(np.concatenate(drawn))

    def _due(self, round: int) -> bool:
        return self._adaptive and (round - 1) % self._interval == 0

    def _learn(self, view: View) -> None:
        """One profiling round is over."""
        took_s = np.full(self._clients, self._timeout_s)
        probed = view.probed
        took_s[probed.clients[probed.answered]] = np.minimum(probed.elapsed_s[probed.answered], self._timeout_s)
        self._sum_s += took_s
        if self._profiled == self._sync_rounds:
            mean_s, width = self._sum_s / self._sync_rounds, self._split == "equal-width"
            self.tier_of = tiers_of(mean_s, self._tiers, self._timeout_s, width=width, rng=view.rng)
            self._profiled += 1  # what clients answer from now on is something else

    def select(self, view: View) -> IntArray:
        """min(m, selectable) clients, ascending; shape (n,). Where all are silent in profiling, uniformly."""
        able, rng = view.selectable, view.rng
        if self._due(view.round):
            self._rank(*(self._losses() if self._by_losses else _answers(view)), rng)
        tier = self._drawn(rng)
        chosen: list[IntArray] = []
        missing = self._per_round
        for other in [*range(tier, self._tiers), *range(tier - 1, -1, -1), -1]:
            # Who was silent in profiling fills up no tier: such clients come where there is nobody else.
            if missing and ((self._fill and other >= 0) or missing == self._per_round):
                chosen.append(uniform_draws(able & (self.tier_of == other), missing, rng))
                missing -= len(chosen[-1])
        self._last_tier = tier
        self._credits[tier] = max(self._credits[tier] - 1.0, 0.0)
        return np.sort(np.concatenate(chosen))

    def _drawn(self, rng: np.random.Generator) -> int:
        """The tier of a round: with credits if any has, all of them otherwise."""
        there = np.bincount(self.tier_of[self.tier_of >= 0], minlength=self._tiers) > 0
        left = there & (self._credits > 0)
        share = np.where(left, self._share, 0.0)
        if not share.any():
            share = (left if left.any() else there if there.any() else np.ones(self._tiers)).astype(np.float64)
        return int(rng.choice(self._tiers, p=share / share.sum()))

    def _losses(self) -> tuple[IntArray, FloatArray]:
        """Who has reported a loss, and the negative of the last."""
        known = np.flatnonzero(~np.isnan(self._loss))
        return known, -self._loss[known]

    def _rank(self, clients: IntArray, figures: FloatArray, rng: np.random.Generator) -> None:
        """New probabilities by the `figures` (n,) of `clients` (n,), unless the tier last selected is better than at the last
        ranking. Equal tiers are ranked at random."""
        placed = self.tier_of[clients] >= 0
        tiers, figures = self.tier_of[clients[placed]], figures[placed]
        counts = np.bincount(tiers, minlength=self._tiers)
        with np.errstate(invalid="ignore", divide="ignore"):
            now = np.bincount(tiers, weights=figures, minlength=self._tiers) / counts
        before, self._before = self._before, now
        last = self._last_tier
        if last < 0 or now[last] > before[last] or np.isnan(now[last]):
            return
        # The least figure first; a tier of which nothing is known counts as the worst.
        worst = np.nan_to_num(now, nan=-math.inf)
        ties = rng.random(self._tiers) if len(np.unique(worst)) < self._tiers else worst
        ranked = [int(tier) for tier in np.lexsort((ties, worst)) if self._credits[tier] > 0]
        self._share = np.zeros(self._tiers)
        if ranked:
            self._share[ranked] = adaptive_shares(len(ranked), shifted=self._shifted)

    def observe(self, outcome: Outcome) -> None:
        loss = outcome.reports.loss
        told = ~np.isnan(loss)
        self._loss[outcome.clients[told]] = loss[told]

    def state_dict(self) -> State:
        return {
            "profiled": self._profiled,
            "sum_s": self._sum_s.copy(),
            "tier_of": self.tier_of.copy(),
            "share": self._share.copy(),
            "credits": self._credits.copy(),
            "loss": self._loss.copy(),
            "before": self._before.copy(),
            "last_tier": self._last_tier,
        }

    def load_state_dict(self, state: State) -> None:
        self._profiled, self._last_tier = int(state["profiled"]), int(state["last_tier"])
        self._sum_s[:], self._loss[:] = state["sum_s"], state["loss"]
        self.tier_of = np.array(state["tier_of"], np.int64)
        self._share, self._credits = np.array(state["share"]), np.array(state["credits"])
        self._before = np.array(state["before"])


def _refuse_adaptive(ranking: RankingParameters) -> None:
    """Refuse what is of adaptive probabilities only."""
    default = RankingParameters()
    for name in ("interval", "credits", "weights", "measure", "tested"):
        value = getattr(ranking, name)
        if value != getattr(default, name):
            raise ParameterError(name, value, "has no meaning unless probabilities = 'adaptive'")


def _answers(view: View) -> tuple[IntArray, FloatArray]:
    """Who has answered with an accuracy, and which."""
    probed = view.probed
    if probed.accuracy is None:
        return np.zeros(0, np.int64), np.zeros(0)
    told = probed.answered & ~np.isnan(probed.accuracy)
    return probed.clients[told], probed.accuracy[told]


def tiers_of(mean_s: FloatArray, tiers: int, timeout_s: float, *, width: bool, rng: np.random.Generator) -> IntArray:
    """(K,) the tier of each client by its mean latency (K,), from 0, the fastest; -1 at or above `timeout_s`.

    `width`: of equal ranges of latency, otherwise of equal numbers of clients, the remainder in the slowest tiers; equal
    latencies at a border are split at random.
    """
    found: IntArray = np.full(len(mean_s), -1, np.int64)
    there = np.flatnonzero(mean_s < timeout_s)
    if not len(there):
        return found
    if width:
        least, greatest = mean_s[there].min(), mean_s[there].max()
        step = (greatest - least) / tiers
        found[there] = np.minimum((mean_s[there] - least) // step, tiers - 1).astype(np.int64) if step else 0
        return found
    each, rest = divmod(len(there), tiers)
    sizes = [each + (tier >= tiers - rest) for tier in range(tiers)]
    found[there[np.lexsort((rng.random(len(there)), mean_s[there]))]] = np.repeat(np.arange(tiers), sizes)
    return found


def adaptive_shares(count: int, *, shifted: bool) -> FloatArray:
    """(q,) P_i of tiers ranked from the worst to the best; a single one has 1."""
    if count == 1:
        return np.ones(1)
    left = np.arange(count, 0, -1.0) - (0.0 if shifted else 1.0)
    shares: FloatArray = left / left.sum()
    return shares


def _static(probabilities: str | list[float], tiers: int) -> FloatArray:
    if isinstance(probabilities, str):
        if probabilities not in TABLES:
            raise ParameterError("probabilities", probabilities, f"must be adaptive, a list, or one of {', '.join(TABLES)}")
        if probabilities == "uniform":
            return np.full(tiers, 1.0 / tiers)
        given = TABLES[probabilities]
    else:
        given = tuple(probabilities)
    share = np.array(given, np.float64)
    if share.shape != (tiers,) or not (np.isfinite(share) & (share >= 0)).all() or not share.sum() > 0:
        raise ParameterError("probabilities", probabilities, f"must be {tiers} numbers >= 0, one for each tier, not all 0")
    shares: FloatArray = share / share.sum()
    return shares
