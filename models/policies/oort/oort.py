"""Oort: guided participant selection (Lai, Zhu, Madhyastha and Chowdhury, OSDI 2021).

Statistical utility of a client, from its last delivered update: U_k = n_k sqrt(mean of its squared losses). Score:
norm(min(U_k, c95)) + sqrt(0.1 ln t / L_k), times (T / D_k)^alpha if its duration D_k exceeds the preferred duration T. Of m
clients a share e is explored among those never seen; the rest is drawn by score among the clients near the best. e falls round
by round. The paper's text has no norm; its utilities of hundreds drown the second term. The learner chooses the losses of the
mean (`reported_rms`): all of them in the paper, a moving average, the first or the last batch in public implementations.
"""

from __future__ import annotations

import math

import numpy as np

from models.policies.draws import count_explored, largest, successive_draws, uniform_draws
from models.policies.oort.pacer import Pacer, make_pacer, percentile_of
from models.policies.oort.parameters import OortParameters
from models.policies.protocols import (
    BoolArray,
    FloatArray,
    IntArray,
    NoProbes,
    Outcome,
    Truth,
    View,
    check_round,
    check_sizes,
    fill_missing_losses,
)
from netsim.core.state import StateFields

_MOST_BLACKLISTED = 0.3  # share of all clients


class Oort(NoProbes, StateFields):
    """Policy that selects by the root mean square of losses and by speed; a client is unseen before its first delivery.

    A duration is the time from selection to delivery. For an update that did not arrive it is the time waited, if that is
    longer than the known duration (`credit_cut` adds the mean utility of the others, as the authors' code does).
    Over-commitment is the server's: close at the first n deliveries. Shares are rounded down, and ties broken, among the
    selectable clients.

    Example:
        >>> import numpy as np
        >>> from models.laws.changes import Unchanging
        >>> from models.laws.delays import Constant
        >>> from models.laws.expectations import Truth
        >>> from netsim.core.protocols import RoundView
        >>> truth = Truth(clients=3, phases=[Unchanging(Constant(value_s=1.0))], kinds=["compute"])
        >>> policy = Oort(clients=3, per_round=2, data_sizes=np.full(3, 100.0), truth=truth)
        >>> policy.select(RoundView(1, 0.0, np.full(3, True), np.zeros(3, int), np.random.default_rng(1)))
        array([0, 2])
    """

    state_fields = ("utility", "last_round", "_duration_s", "_count", "_seen", "_exploited", "_all_seen", "_pacer")
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
        self._parameters = parameters
        self._one_by_one = per_model is not None
        self._pacer: Pacer = make_pacer(parameters)
        self.utility: FloatArray = np.zeros(clients)
        """(K,) U_k; 0 for clients not seen yet."""
        self.last_round: FloatArray = np.zeros(clients)
        """(K,) L_k, the round of the last participation."""
        self._duration_s: FloatArray = np.full(clients, np.nan)
        """(K,) D_k; NaN before the first selection, which fills in the expected latencies."""
        self._count: IntArray = np.zeros(clients, np.int64)
        """(K,) delivered updates of each client."""
        self._seen: BoolArray = np.zeros(clients, np.bool_)
        """(K,) True for clients that have delivered, or were credited for an update that was cut."""
        self._exploited: BoolArray = np.zeros(clients, np.bool_)
        """(K,) True for clients that were last selected by score, not explored."""
        self._all_seen = False

    def exploration(self, round: int) -> float:
        """Return e of `round`; 0 from the time at which all clients have been seen."""
        if self._all_seen:
            return 0.0
        first, decay, least = (self._parameters.number(name) for name in ("exploration", "decay", "least_exploration"))
        return max(first * decay ** (round - 1), least)

    def select(self, view: View) -> IntArray:
        """Return min(m, selectable) clients, ascending; shape (n,)."""
        if np.isnan(self._duration_s).all():
            # The first selection: until a client delivers, its duration is the one expected before the first round.
            self._duration_s[:] = self._truth.mean_latency_s(1, 0.0)
        rng, able = view.rng, self._remove_blacklisted(view.selectable, view.rng)
        seen, unseen = able & self._seen, able & ~self._seen
        wanted = min(self._per_round, int(np.count_nonzero(able)))
        count_unseen = count_explored(wanted, self.exploration(view.round), one_by_one=self._one_by_one, rng=rng)
        count_seen = min(wanted - count_unseen, int(np.count_nonzero(seen)))
        # Places that too few seen clients leave empty go to unseen ones, and the other way round.
        count_unseen = min(wanted - count_seen, int(np.count_nonzero(unseen)))
        best = self._exploit(seen, wanted - count_unseen, view.round, rng)
        self._exploited[best] = True
        explored = self._explore(unseen, count_unseen, view.round, rng)
        self._exploited[explored] = False
        return np.sort(np.concatenate((best, explored)))

    def _remove_blacklisted(self, able: BoolArray, rng: np.random.Generator) -> BoolArray:
        """Return `able` (K,) without the blacklisted clients; some of these stay if fewer than m clients would be left."""
        limit = self._parameters.blacklist_after
        if limit is None:
            return able
        counts = self._count.astype(np.float64)
        is_blacklisted = np.zeros(len(able), np.bool_)
        most = int(_MOST_BLACKLISTED * len(able))
        is_blacklisted[largest(counts, self._count > limit, most, rng)] = True
        # So many clients can be left out; those that took part most often go first.
        spare = max(int(np.count_nonzero(able)) - self._per_round, 0)
        remaining = able.copy()
        remaining[largest(counts, is_blacklisted & able, spare, rng)] = False
        return remaining

    def scores(self, clients: BoolArray, round: int) -> FloatArray:
        """Return the scores (n,) in `round` of the clients that are True in `clients` (K,), in ascending order of clients.

        All of them must have been seen. The score is norm(min(U_k, c)) + sqrt(0.1 ln t / L_k), with t the round, times
        (T / D_k)^alpha for slow clients. Parameters switch norm, the second term and the factor off.
        """
        score = clip_and_scale(self.utility[clients], self._parameters.number("clip"), scale=self._parameters.norm)
        if self._parameters.temporal:
            score = score + np.sqrt(0.1 * math.log(round) / self.last_round[clients])
        return self._penalise_slow(score, self._duration_s[clients])

    def _penalise_slow(self, score: FloatArray, duration_s: FloatArray) -> FloatArray:
        """Return the scores (n,), those of clients slower than the target T of the pacer multiplied by (T / duration)^alpha."""
        target_s = self._pacer.target_s(self._duration_s)
        if target_s is None or self._parameters.alpha == 0:
            return score
        factor, is_slower = np.ones(len(score)), duration_s > target_s
        factor[is_slower] = (target_s / duration_s[is_slower]) ** self._parameters.alpha
        return np.asarray(score * factor)

    def _exploit(self, seen: BoolArray, size: int, round: int, rng: np.random.Generator) -> IntArray:
        """Draw `size` of the clients that are True in `seen` (K,), with probabilities proportional to their scores.

        Only clients with at least `cut_off` times the `size`-th best score can be drawn.
        """
        if not size:
            return np.zeros(0, np.int64)
        seen_scores = self.scores(seen, round)
        score = np.full(len(seen), -np.inf)
        score[seen] = seen_scores
        size_th_best = np.partition(seen_scores, len(seen_scores) - size)[len(seen_scores) - size]
        near = seen & (score >= self._parameters.number("cut_off") * size_th_best)
        with np.errstate(divide="ignore", invalid="ignore"):
            log_weights = np.log(np.maximum(score, 0.0))
            drawn = successive_draws(log_weights, near, size, rng)
        if len(drawn) < size:
            # Clients of score 0 (from a preferred duration T of 0) have no weight: draw them uniformly for the remaining places.
            near[drawn] = False
            drawn = np.concatenate((drawn, uniform_draws(near, size - len(drawn), rng)))
        return drawn

    def _explore(self, unseen: BoolArray, size: int, round: int, rng: np.random.Generator) -> IntArray:
        """Draw `size` of the clients marked in `unseen`, by speed, by data size or uniformly."""
        # Round 1 is uniform, as in the authors' code, which asks its sampler only from the second round on.
        if round == 1 or self._parameters.explore == "uniform":
            return uniform_draws(unseen, size, rng)
        with np.errstate(divide="ignore"):
            log_weights = -np.log(self._duration_s) if self._parameters.explore == "speed" else np.log(self._sizes)
        return successive_draws(log_weights, unseen, size, rng)

    def observe(self, outcome: Outcome) -> None:
        """Update utilities and durations by a round, and report the mean utility of the exploited clients to the pacer."""
        arrived = ~outcome.censored
        delivered, undelivered = outcome.clients[arrived], outcome.clients[~arrived]
        counted = self._sizes[delivered]
        if self._parameters.counted == "trained":
            trained = outcome.reports.samples[arrived]
            # In several passes a client trains on more than it holds; -1 stands for an unknown number.
            counted = np.where(trained >= 0, np.minimum(trained, counted), counted)
        self.utility[delivered] = counted * fill_missing_losses(outcome.reports.loss_rms[arrived])
        self._duration_s[delivered] = outcome.latency_s[arrived]
        # A client whose update did not arrive would have taken at least the time that the server waited.
        self._duration_s[undelivered] = np.fmax(self._duration_s[undelivered], outcome.latency_s[~arrived])
        self._count[delivered] += 1
        credited = delivered
        if self._parameters.credit_cut and len(delivered):
            self.utility[undelivered] = self.utility[delivered].mean()
            credited = outcome.clients
        self._seen[credited] = True
        self.last_round[credited] = outcome.round
        self._all_seen = self._all_seen or bool(self._seen.all())
        exploited = delivered[self._exploited[delivered]]
        mean_utility = float(self.utility[exploited].mean()) if len(exploited) else 0.0
        self._pacer.observe(outcome.round, mean_utility)


def clip_and_scale(utility: FloatArray, clip: float, *, scale: bool) -> FloatArray:
    """Return norm(min(U, c)) of `utility` U (q,): utilities clipped at a quantile c, and scaled if `scale`.

    c is entry number min(floor(clip q), q - 1) of the utilities in ascending order; of few utilities it is the greatest, which
    clips nothing. norm(u) = (u - 0.999 min) / max(max - 0.999 min, 1e-4), with the least and the greatest utility before
    clipping.
    """
    if not len(utility):
        return utility
    clipped = np.minimum(utility, percentile_of(utility, clip))
    if not scale:
        return clipped
    least, greatest = 0.999 * float(utility.min()), float(utility.max())
    scaled: FloatArray = (clipped - least) / max(greatest - least, 1e-4)
    return scaled
