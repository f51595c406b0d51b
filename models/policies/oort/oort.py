"""Oort: guided participant selection (Lai, Zhu, Madhyastha and Chowdhury, OSDI 2021).

Statistical utility of a client, known from its last delivered update: U_k = n_k sqrt(mean of its squared losses). Score:
norm(min(U_k, c95)) + sqrt(0.1 ln t / L_k), times (T / D_k)^alpha where its duration D_k exceeds the preferred duration T. Of m
clients a share e is explored among those never seen, the rest drawn by score among those near the best; e falls round by round.
The paper's text has no norm; its utilities of hundreds drown the second term. Which losses the mean is of is the learner's matter
(`reported_rms`): the paper's are all, public implementations take a moving average, the first or the last batch.
"""

from __future__ import annotations

import math

import numpy as np

from models.policies.draws import explored, largest, successive_draws, uniform_draws
from models.policies.oort.pacer import Pacer, pacer_of, percentile_of
from models.policies.oort.parameters import OortParameters
from models.policies.protocols import (
    AsksNobody,
    BoolArray,
    FloatArray,
    IntArray,
    Outcome,
    State,
    Truth,
    View,
    check_round,
    check_sizes,
    losses_of_arrived,
)

_MOST_BLACKLISTED = 0.3


class Oort(AsksNobody):
    """Selects by the root mean square of losses and by speed; nothing is known of a client before its first delivery.

    A duration is the time from selection to delivery; of an update that did not arrive, the time waited, where that is longer
    than what was known (`credit_cut` adds the mean utility of the others, as the authors' code does). Over-commitment is the
    server's: close at the first n deliveries. Ties are broken, and shares rounded down, as of the clients that can be selected.
    """

    needs_updates = False
    needs_losses = True

    def __init__(
        self,
        *,
        clients: int,
        per_round: int,
        data_sizes: FloatArray,
        truth: Truth,
        parameters: OortParameters = OortParameters(),
        per_model: int | None = None,
    ) -> None:
        check_round(clients, per_round)
        check_sizes(data_sizes, clients)
        self._per_round, self._sizes, self._truth = per_round, np.asarray(data_sizes, np.float64), truth
        self._with = parameters
        self._one_by_one = per_model is not None
        self._pacer: Pacer = pacer_of(parameters)
        self.utility: FloatArray = np.zeros(clients)
        """(K,) U_k; 0 of a client that is not seen yet."""
        self.last_round: FloatArray = np.zeros(clients)
        """(K,) L_k."""
        self._duration_s: FloatArray = np.full(clients, np.nan)
        self._count: IntArray = np.zeros(clients, np.int64)
        self._seen: BoolArray = np.zeros(clients, np.bool_)
        self._exploited: BoolArray = np.zeros(clients, np.bool_)
        self._all_seen = False

    def exploration(self, round: int) -> float:
        """e in `round`; 0 for good once nobody is left to explore."""
        first, decay, least = (self._with.of(name) for name in ("exploration", "decay", "least_exploration"))
        return 0.0 if self._all_seen else max(first * decay ** (round - 1), least)

    def select(self, view: View) -> IntArray:
        """min(m, selectable) clients, ascending; shape (n,)."""
        if np.isnan(self._duration_s).all():
            self._duration_s[:] = self._truth.mean_latency_s(1, 0.0)
        rng, able = view.rng, self._unlisted(view.selectable, view.rng)
        seen, unseen = able & self._seen, able & ~self._seen
        wanted = min(self._per_round, int(np.count_nonzero(able)))
        new = explored(wanted, self.exploration(view.round), one_by_one=self._one_by_one, rng=rng)
        known = min(wanted - new, int(np.count_nonzero(seen)))
        # What one part cannot fill, the other takes.
        new = min(wanted - known, int(np.count_nonzero(unseen)))
        known = wanted - new
        best = self._exploit(seen, known, view.round, rng)
        self._exploited[best] = True
        fresh = self._explore(unseen, new, view.round, rng)
        self._exploited[fresh] = False
        return np.sort(np.concatenate((best, fresh)))

    def _unlisted(self, able: BoolArray, rng: np.random.Generator) -> BoolArray:
        """Those of `able` (K,) that are not blacklisted; where these are fewer than m, also some that are."""
        limit = self._with.blacklist_after
        if limit is None:
            return able
        counts = self._count.astype(np.float64)
        listed = np.zeros(len(able), np.bool_)
        listed[largest(counts, self._count > limit, int(_MOST_BLACKLISTED * len(able)), rng)] = True
        spare = max(int(np.count_nonzero(able)) - self._per_round, 0)
        left = able.copy()
        left[largest(counts, listed & able, spare, rng)] = False
        return left

    def scores(self, clients: BoolArray, round: int) -> FloatArray:
        """(n,) the scores in `round` of the seen clients marked in `clients` (K,), in ascending order of clients."""
        utility = self.utility[clients]
        score = clipped_and_scaled(utility, self._with.of("clip"), scale=self._with.norm)
        if self._with.temporal:
            score = score + np.sqrt(0.1 * math.log(round) / self.last_round[clients])
        return self._slowed(score, self._duration_s[clients])

    def _slowed(self, score: FloatArray, duration_s: FloatArray) -> FloatArray:
        target_s = self._pacer.target_s(self._duration_s)
        if target_s is None or self._with.alpha == 0:
            return score
        slower, late = np.ones(len(score)), duration_s > target_s
        slower[late] = (target_s / duration_s[late]) ** self._with.alpha
        return np.asarray(score * slower)

    def _exploit(self, seen: BoolArray, size: int, round: int, rng: np.random.Generator) -> IntArray:
        if not size:
            return np.zeros(0, np.int64)
        score = np.full(len(seen), -np.inf)
        score[seen] = self.scores(seen, round)
        values = score[seen]
        rank = np.partition(values, len(values) - size)[len(values) - size]
        near = seen & (score >= self._with.of("cut_off") * rank)
        with np.errstate(divide="ignore", invalid="ignore"):
            drawn = successive_draws(np.log(np.maximum(score, 0.0)), near, size, rng)
        if len(drawn) < size:
            # A score of 0, as a T of 0 makes of them: after all others, but sooner than nobody.
            near[drawn] = False
            drawn = np.concatenate((drawn, uniform_draws(near, size - len(drawn), rng)))
        return drawn

    def _explore(self, unseen: BoolArray, size: int, round: int, rng: np.random.Generator) -> IntArray:
        # The first round is uniform.
        if round == 1 or self._with.explore == "uniform":
            return uniform_draws(unseen, size, rng)
        with np.errstate(divide="ignore"):
            by = -np.log(self._duration_s) if self._with.explore == "speed" else np.log(self._sizes)
        return successive_draws(by, unseen, size, rng)

    def observe(self, outcome: Outcome) -> None:
        clients, arrived = outcome.clients, ~outcome.censored
        came, cut = clients[arrived], clients[~arrived]
        held, trained = self._sizes[came], outcome.reports.samples[arrived]
        # In several passes a client trains on more than it holds.
        counted = np.where(trained >= 0, np.minimum(trained, held), held) if self._with.counted == "trained" else held
        self.utility[came] = counted * losses_of_arrived(outcome.reports.loss_rms[arrived])
        self._duration_s[came] = outcome.latency_s[arrived]
        self._duration_s[cut] = np.fmax(self._duration_s[cut], outcome.latency_s[~arrived])
        self._count[came] += 1
        told = came
        if self._with.credit_cut and len(came):
            self.utility[cut] = self.utility[came].mean()
            told = clients
        self._seen[told] = True
        self.last_round[told] = outcome.round
        self._all_seen = self._all_seen or bool(self._seen.all())
        best = self.utility[came[self._exploited[came]]]
        self._pacer.observe(outcome.round, float(best.mean()) if len(best) else 0.0)

    def state_dict(self) -> State:
        return {
            "utility": self.utility.copy(),
            "last_round": self.last_round.copy(),
            "duration_s": self._duration_s.copy(),
            "count": self._count.copy(),
            "seen": self._seen.copy(),
            "exploited": self._exploited.copy(),
            "all_seen": self._all_seen,
            "pacer": self._pacer.state_dict(),
        }

    def load_state_dict(self, state: State) -> None:
        self.utility[:], self.last_round[:] = state["utility"], state["last_round"]
        self._duration_s[:], self._count[:] = state["duration_s"], state["count"]
        self._seen[:], self._exploited[:] = state["seen"], state["exploited"]
        self._all_seen = bool(state["all_seen"])
        self._pacer.load_state_dict(state["pacer"])


def clipped_and_scaled(utility: FloatArray, clip: float, *, scale: bool) -> FloatArray:
    """norm(min(U, c)) of `utility` (q,), c their `clip` quantile, a[min(floor(clip q), q - 1)] in ascending order.

    Nothing is cut of few. norm(u) = (u - 0.999 min) / max(max - 0.999 min, 1e-4), least and greatest before they are cut.
    """
    if not len(utility):
        return utility
    cut = np.minimum(utility, percentile_of(utility, clip))
    if not scale:
        return cut
    least, greatest = 0.999 * float(utility.min()), float(utility.max())
    scaled: FloatArray = (cut - least) / max(greatest - least, 1e-4)
    return scaled


