"""TiFL: tier-based selection (Chai et al., HPDC 2020).

Profiling: before the first round every client makes `sync_rounds` updates that are thrown away. A client that is silent in such
a round counts with `timeout_s`; one whose mean reaches `timeout_s` is never selected. The others are split by their mean
latencies into tiers, the fastest first.

Static: a tier is drawn with fixed probabilities, then m of its clients uniformly. Adaptive: every I rounds, unless the tier
last selected has become better, the tiers with credits are ranked and the worst gets the greatest probability, P_i = (q - i) /
(q (q - 1)/2) for rank i = 1..q. Selecting a tier takes one of its credits. Tiers are ranked by the mean accuracy of the present
model that their clients find on test data of their own, for which they are asked. `measure = "loss"` takes the losses that came
last with updates instead, for which no client is asked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np
from annotated_doc import Doc

from models.errors import ParameterError
from models.policies.draws import uniform_draws
from models.policies.protocols import FloatArray, IntArray, NoProbes, Outcome, View, check_at_least, check_round
from netsim.core.state import StateFields

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
    """Parameters of the ranking and the filling of tiers. Raises ParameterError for a value outside its range."""

    interval: Annotated[int | None, Doc("Adaptive: I, rounds between rankings; absent: the number of tiers.")] = None
    credits: Annotated[int | None, Doc("Adaptive: number of times that each tier can be selected; absent: no limit.")] = None
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
            "True: the next slower tiers, then faster ones, fill up a tier with fewer than m selectable clients (the paper does "
            "not say). False: fewer clients are selected, and the next tier is used only if the drawn one has none."
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
            raise ParameterError("tested", self.tested, "has no meaning where measure = 'loss', which asks no client")


class _Figures(NamedTuple):
    """Figures by which tiers are ranked; greater is better."""

    clients: IntArray
    """(n,)"""
    values: FloatArray
    """(n,) accuracy, or loss with the sign changed."""


class Tifl(NoProbes, StateFields):
    """Policy that selects m clients of the tier drawn for the round; slower tiers, then faster ones, fill it up.

    Without `ranking.fill` fewer are selected, and slower or faster tiers help only if no client of the drawn tier is selectable.

    Example:
        >>> import numpy as np
        >>> from netsim.core.protocols import RoundView
        >>> policy = Tifl(clients=4, per_round=2, timeout_s=60.0, tiers=2)
        >>> policy.probe(RoundView(1, 0.0, np.array([True, False, True, True]), np.zeros(4, int), np.random.default_rng(1)))
        array([0, 2, 3])
    """

    state_fields = ("_profiled", "_sum_s", "tier_of", "_share", "_credits", "_loss", "_before", "_last_tier")
    needs_updates = False
    needs_losses: bool = False
    """True for an object that ranks tiers by losses."""
    probes = True
    question: ClassVar[str] = "profile"
    asks_again = True
    tests: bool = False
    """True if the last `probe` asked for accuracies."""
    tests_where: ClassVar[Mapping[str, tuple[str, ...]]] = {"probabilities": ("adaptive",), "measure": ("accuracy",)}

    def __init__(
        self,
        *,
        clients: int,
        per_round: int,
        timeout_s: Annotated[float, Doc("Latency in seconds that counts for a client which stays silent in a profiling round.")],
        tiers: Annotated[int, Doc("Number of tiers.")] = 5,
        sync_rounds: Annotated[int, Doc("Profiling rounds before the first round.")] = 1,
        split: Annotated[
            Literal["equal-count", "equal-width"],
            Doc("Tiers of equal numbers of clients, the rest in the slowest; or of equally wide ranges of latency."),
        ] = "equal-count",
        probabilities: Annotated[
            str | list[float],
            Doc("Of tiers, fastest first: one of slow, uniform, random, fast, fast1, fast2, fast3, or a list; or adaptive."),
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
        self._share: FloatArray = np.full(tiers, 1.0 / tiers) if self._adaptive else _read_probabilities(probabilities, tiers)
        self._credits: FloatArray = np.full(tiers, math.inf if ranking.credits is None else float(ranking.credits))
        self._profiled = 0
        """Profiling rounds begun; one more than `sync_rounds` once the tiers are known (`_learn`)."""
        self._sum_s: FloatArray = np.zeros(clients)
        """(K,) sum of the latencies in profiling rounds."""
        self.tier_of: IntArray = np.full(clients, -1, np.int8).astype(np.int64)
        """(K,) tier of each client, from 0, the fastest; -1: silent in profiling, or not profiled yet."""
        self._loss: FloatArray = np.full(clients, np.nan)
        self._before: FloatArray = np.full(tiers, np.nan)
        """(tiers,) mean figures at the last ranking that was due, greater is better; NaN without any."""
        self._last_tier = -1
        """Tier selected last; -1: none yet."""

    def probe(self, view: View) -> IntArray:
        """Return the clients to probe. The engine calls it again, until it returns none.

        The first `sync_rounds` calls profile all selectable clients. Later, clients of every tier are asked for their accuracy
        before a ranking by accuracy.
        """
        self.tests = False
        has_answers = len(view.probed.clients) > 0
        if has_answers and 0 < self._profiled <= self._sync_rounds:
            # These are answers of a profiling round: learn from them, then ask for the next round.
            self._learn(view)
        if self._profiled < self._sync_rounds:
            self._profiled += 1
            return np.flatnonzero(view.selectable)
        # With answers, clients have been asked already.
        needs_accuracies = self._ranking_is_due(view.round) and not self._by_losses
        if not needs_accuracies or has_answers:
            return np.zeros(0, np.int64)
        self.tests = True
        can_be_asked = view.selectable & (self.tier_of >= 0)
        if self._tested is None:
            return np.flatnonzero(can_be_asked)
        of_tiers = [uniform_draws(can_be_asked & (self.tier_of == tier), self._tested, view.rng) for tier in range(self._tiers)]
        return np.sort(np.concatenate(of_tiers))

    def _ranking_is_due(self, round: int) -> bool:
        """Return True if tiers are ranked before the selection of `round`."""
        return self._adaptive and (round - 1) % self._interval == 0

    def _learn(self, view: View) -> None:
        """Add the latencies of the profiling round just answered; after the last such round, split the clients into tiers.

        A client that did not answer counts with the time-out.
        """
        latency_s = np.full(self._clients, self._timeout_s)
        probed = view.probed
        latency_s[probed.clients[probed.answered]] = np.minimum(probed.elapsed_s[probed.answered], self._timeout_s)
        self._sum_s += latency_s
        was_last_round = self._profiled == self._sync_rounds
        if was_last_round:
            mean_s, equal_width = self._sum_s / self._sync_rounds, self._split == "equal-width"
            self.tier_of = split_into_tiers(mean_s, self._tiers, self._timeout_s, equal_width=equal_width, rng=view.rng)
            # A number above `sync_rounds` tells `probe` that later answers are accuracies, not latencies.
            self._profiled = self._sync_rounds + 1

    def select(self, view: View) -> IntArray:
        """Return the clients of a round, at most m, ascending; shape (n,). Rank the tiers first if that is due.

        If all clients were silent in profiling, they are drawn uniformly. The drawn tier loses a credit.
        """
        rng = view.rng
        if self._ranking_is_due(view.round):
            figures = self._losses() if self._by_losses else _answers(view)
            self._rank(figures, rng)
        tier = self._draw_tier(rng)
        chosen: list[IntArray] = []
        missing = self._per_round
        # The drawn tier, then slower ones, then faster ones, and the silent clients (tier -1) last.
        for candidate in [*range(tier, self._tiers), *range(tier - 1, -1, -1), -1]:
            # Silent clients fill up no tier: they are selected only if no other client can be.
            may_fill_up = self._fill and candidate >= 0
            nothing_chosen = missing == self._per_round
            if missing and (may_fill_up or nothing_chosen):
                clients = uniform_draws(view.selectable & (self.tier_of == candidate), missing, rng)
                chosen.append(clients)
                missing -= len(clients)
        self._last_tier = tier
        self._credits[tier] = max(self._credits[tier] - 1.0, 0.0)
        return np.sort(np.concatenate(chosen))

    def _draw_tier(self, rng: np.random.Generator) -> int:
        """Draw the tier of a round among the non-empty tiers with credits, by their shares.

        Uniform where those shares are all 0; among all non-empty tiers if none has credits; among all tiers if all are empty.
        """
        not_empty = np.bincount(self.tier_of[self.tier_of >= 0], minlength=self._tiers) > 0
        with_credits = not_empty & (self._credits > 0)
        share = np.where(with_credits, self._share, 0.0)
        if not share.any():
            possible = np.ones(self._tiers, np.bool_)
            if with_credits.any():
                possible = with_credits
            elif not_empty.any():
                possible = not_empty
            share = possible.astype(np.float64)
        return int(rng.choice(self._tiers, p=share / share.sum()))

    def _losses(self) -> _Figures:
        """Return the last losses of the clients that have reported one, with the sign changed."""
        clients = np.flatnonzero(~np.isnan(self._loss))
        return _Figures(clients, -self._loss[clients])

    def _rank(self, figures: _Figures, rng: np.random.Generator) -> None:
        """Update the probabilities of tiers from the mean `figures` of their clients; equal tiers are ranked at random.

        They stay as they are if the tier that was selected last has a greater mean than at the ranking before.
        """
        in_tier = self.tier_of[figures.clients] >= 0
        # The tier of each figure.
        tiers, values = self.tier_of[figures.clients[in_tier]], figures.values[in_tier]
        counts = np.bincount(tiers, minlength=self._tiers)
        # A tier without a figure has the mean NaN.
        with np.errstate(invalid="ignore", divide="ignore"):
            means = np.bincount(tiers, weights=values, minlength=self._tiers) / counts
        means_before, self._before = self._before, means
        last_tier = self._last_tier
        if last_tier < 0 or means[last_tier] > means_before[last_tier] or np.isnan(means[last_tier]):
            return
        # Tiers by their figures, least first; a tier without a figure counts as the worst.
        comparable = np.nan_to_num(means, nan=-math.inf)
        # Draw only if there are ties: other runs keep their random numbers.
        ties = rng.random(self._tiers) if len(np.unique(comparable)) < self._tiers else comparable
        ranked = [int(tier) for tier in np.lexsort((ties, comparable)) if self._credits[tier] > 0]
        self._share = np.zeros(self._tiers)
        if ranked:
            self._share[ranked] = adaptive_shares(len(ranked), shifted=self._shifted)

    def observe(self, outcome: Outcome) -> None:
        """Store the losses that came with updates."""
        loss = outcome.reports.loss
        reported = ~np.isnan(loss)
        self._loss[outcome.clients[reported]] = loss[reported]


def _refuse_adaptive(ranking: RankingParameters) -> None:
    """Raise ParameterError if `ranking` sets a parameter that only adaptive probabilities use."""
    default = RankingParameters()
    for name in ("interval", "credits", "weights", "measure", "tested"):
        value = getattr(ranking, name)
        if value != getattr(default, name):
            raise ParameterError(name, value, "has no meaning unless probabilities = 'adaptive'")


def _answers(view: View) -> _Figures:
    """Return the accuracies with which clients answered the probes of this round."""
    probed = view.probed
    if probed.accuracy is None:
        return _Figures(np.zeros(0, np.int64), np.zeros(0))
    answered = probed.answered & ~np.isnan(probed.accuracy)
    return _Figures(probed.clients[answered], probed.accuracy[answered])


def split_into_tiers(
    mean_s: FloatArray, tiers: int, timeout_s: float, *, equal_width: bool, rng: np.random.Generator
) -> IntArray:
    """Return the tier (K,) of each client by its mean latency (K,) in seconds, from 0, the fastest; -1 at or above `timeout_s`.

    `equal_width`: True for tiers of equal ranges of latency. Otherwise tiers have equal numbers of clients, the remainder in
    the slowest tiers, and equal latencies at a border are split at random.
    """
    tier_of: IntArray = np.full(len(mean_s), -1, np.int64)
    clients = np.flatnonzero(mean_s < timeout_s)
    if not len(clients):
        return tier_of
    if equal_width:
        least_s, greatest_s = mean_s[clients].min(), mean_s[clients].max()
        width_s = (greatest_s - least_s) / tiers
        # If all are equally fast, all are in the first tier.
        tier_of[clients] = 0
        if width_s:
            # The slowest client lies at the end of the last tier.
            tier_of[clients] = np.minimum((mean_s[clients] - least_s) // width_s, tiers - 1).astype(np.int64)
        return tier_of
    least_size, remainder = divmod(len(clients), tiers)
    sizes = [least_size + 1 if tier >= tiers - remainder else least_size for tier in range(tiers)]
    fastest_first = clients[np.lexsort((rng.random(len(clients)), mean_s[clients]))]
    tier_of[fastest_first] = np.repeat(np.arange(tiers), sizes)
    return tier_of


def adaptive_shares(count: int, *, shifted: bool) -> FloatArray:
    """Return the probabilities P_i (q,) of `count` = q tiers, ranked from the worst to the best."""
    if count == 1:
        # The formula of the paper would give a single tier 0 / 0.
        return np.ones(1)
    # q, .., 1 for the worst to the best tier; by the paper one less each.
    weights = np.arange(count, 0, -1.0)
    if not shifted:
        weights -= 1.0
    shares: FloatArray = weights / weights.sum()
    return shares


def _read_probabilities(probabilities: str | list[float], tiers: int) -> FloatArray:
    """Return the fixed probabilities (tiers,) that `probabilities` names or lists. Raises ParameterError for any other value."""
    if isinstance(probabilities, str):
        if probabilities not in TABLES:
            raise ParameterError("probabilities", probabilities, f"must be adaptive, a list, or one of {', '.join(TABLES)}")
        if probabilities == "uniform":
            return np.full(tiers, 1.0 / tiers)
        probabilities = list(TABLES[probabilities])
    share = np.array(probabilities, np.float64)
    if share.shape != (tiers,) or not (np.isfinite(share) & (share >= 0)).all() or not share.sum() > 0:
        raise ParameterError("probabilities", probabilities, f"must be {tiers} numbers >= 0, one for each tier, not all 0")
    shares: FloatArray = share / share.sum()
    return shares
