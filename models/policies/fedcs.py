"""FedCS: as many clients as fit into a round (Nishio and Yonetani, ICC 2019).

A request goes to a share of the clients, drawn uniformly; each answer states estimates of the times of training and of sending,
here the expectations under the laws in force. `sequential`, the paper: uploads take place one after the other on one
sub-channel. Clients are taken greedily, the least t = upload + max(0, training - Theta) first, and kept if Theta + t stays
below the limit, where Theta is the end of the uploads kept so far. `parallel`: m at random of the clients whose own time is
within the limit (the variant whose figures Wu et al. 2021 publish). The round itself runs on real times, and a queue serves the
client that is ready first.
"""

from __future__ import annotations

import heapq
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np
from annotated_doc import Doc

from models.errors import ParameterError
from models.policies.draws import uniform_draws
from models.policies.protocols import (
    FloatArray,
    IntArray,
    NoMemory,
    NoProbes,
    Truth,
    View,
    check_at_least,
    check_round,
    check_share,
)


class FedCs(NoMemory, NoProbes):
    """Policy that selects clients that are expected to finish in time; no client if none is. It keeps nothing between rounds.

    The limit covers download, training, upload and `reserve_s` for the server's own work; multicast of the model takes as long
    as the longest expected download of the selected (`sequential`). The server needs a deadline, or rounds of fixed length.

    Example:
        >>> import numpy as np
        >>> from models.laws.changes import Unchanging
        >>> from models.laws.delays import Constant
        >>> from models.laws.expectations import Truth
        >>> from netsim.core.protocols import RoundView
        >>> phases = [Unchanging(Constant(value_s=value_s)) for value_s in (0.5, np.array([3.0, 1.0, 9.0]), 1.0)]
        >>> policy = FedCs(clients=3, per_round=2, truth=Truth(phases=phases, clients=3), round_s=8.0, asked=1.0)
        >>> policy.probe(RoundView(1, 0.0, np.full(3, True), np.zeros(3, int), np.random.default_rng(1)))
        array([0, 1, 2])
    """

    needs_updates = False
    probes = True
    question: ClassVar[str] = "request"
    may_select_nobody = True

    def __init__(
        self,
        *,
        clients: int,
        per_round: int,
        truth: Truth,
        round_s: Annotated[float, Doc("The limit: length of a round from its selection, in seconds.")],
        asked: Annotated[float, Doc("C, the share of all clients that receive a request.")] = 0.1,
        uploads: Annotated[
            Literal["sequential", "parallel"],
            Doc("Order of the uploads: one after the other (`uplink.sub_channels = 1`), or side by side."),
        ] = "sequential",
        most: Annotated[bool, Doc("True: select server.per_round clients at most.")] = True,
        reserve_s: Annotated[float, Doc("Seconds of the limit that the server needs for itself.")] = 0.0,
    ) -> None:
        check_round(clients, per_round)
        check_at_least("round_s", round_s, 0, strict=True)
        check_at_least("reserve_s", reserve_s, 0)
        if reserve_s >= round_s:
            raise ParameterError("reserve_s", reserve_s, f"must be below round_s = {round_s}, or no client is ever selected")
        check_share("asked", asked)
        if uploads not in ("sequential", "parallel"):
            raise ParameterError("uploads", uploads, "must be sequential or parallel")
        self._clients, self._truth = clients, truth
        self._limit_s = round_s - reserve_s
        self._most = per_round if most else clients
        # A product that is a whole number up to rounding counts as that number (1e-9).
        self._asked = max(1, int(np.ceil(asked * clients - 1e-9)))
        self._one_by_one = uploads == "sequential"

    def probe(self, view: View) -> IntArray:
        """Return ceil(C K) of the selectable clients, drawn uniformly."""
        return uniform_draws(view.selectable, self._asked, view.rng)

    def select(self, view: View) -> IntArray:
        """Return the clients that fit into the round, ascending; shape (n,), n may be 0."""
        probed = view.probed
        candidates = probed.clients[probed.answered & view.selectable[probed.clients]]
        if self._one_by_one:
            # Shuffle the candidates, so that of equal times a random one is taken first.
            candidates = candidates[view.rng.permutation(len(candidates))]
        download_s, train_s, upload_s = (
            self._truth.mean_phase_s(phase, view.round, view.time_s)[candidates] for phase in ("download", "compute", "upload")
        )
        if self._one_by_one:
            accepted = accept_greedily(download_s, train_s, upload_s, self._limit_s)
            return np.sort(candidates[accepted[: self._most]])
        fits = np.zeros(self._clients, np.bool_)
        fits[candidates[download_s + train_s + upload_s <= self._limit_s]] = True
        return uniform_draws(fits, self._most, view.rng)


class _Entry(NamedTuple):
    """Entry of a heap of candidates."""

    time_s: float
    place: int
    """Position of the candidate."""


def accept_greedily(download_s: FloatArray, train_s: FloatArray, upload_s: FloatArray, limit_s: float) -> IntArray:
    """Return the positions of the candidates that FedCS accepts, in the order of acceptance; uploads are one after the other.

    `download_s`, `train_s`, `upload_s` (n,): estimates of each candidate. Candidates that are accepted form the set S; Theta is
    the end of their uploads, dist their longest download. Each step takes the candidate k of least increase, dist(S + k) -
    dist(S) + upload + max(0, train - Theta); ties by position. It is accepted if dist and Theta with it add up to less than
    `limit_s`, else dropped.

    With equal downloads this takes O(n log n), with the same result as `_search_quadratic`, which handles all others.
    """
    if not len(upload_s) or not (download_s == download_s[0]).all():
        return _search_quadratic(download_s, train_s, upload_s, limit_s)
    # The increase is `upload` of a candidate whose training ends by Theta (heap `ready`) and training + upload - Theta of the
    # others (heap `late`). Theta only grows, so a candidate moves from `late` to `ready` once, in the order of heap `trains`.
    # Candidates that were compared already stay in the heaps until they come to the head.
    late = [_Entry(float(t + u), place) for place, (t, u) in enumerate(zip(train_s, upload_s, strict=True))]
    trains = [_Entry(float(t), place) for place, t in enumerate(train_s)]
    ready: list[_Entry] = []
    heapq.heapify(late)
    heapq.heapify(trains)
    is_done = np.zeros(len(upload_s), np.bool_)
    theta_s, dist_s, accepted = 0.0, 0.0, []
    for _ in range(len(upload_s)):
        while trains and trains[0].time_s <= theta_s:
            trained = heapq.heappop(trains).place
            if not is_done[trained]:
                heapq.heappush(ready, _Entry(float(upload_s[trained]), trained))
        while late and (is_done[late[0].place] or train_s[late[0].place] <= theta_s):
            heapq.heappop(late)
        while ready and is_done[ready[0].place]:
            heapq.heappop(ready)
        heads = [ready[0]] if ready else []
        if late:
            heads.append(_Entry(late[0].time_s - theta_s, late[0].place))
        place = min(heads).place
        is_done[place] = True
        new_theta_s = theta_s + float(upload_s[place] + max(0.0, train_s[place] - theta_s))
        new_dist_s = max(dist_s, float(download_s[place]))
        if new_dist_s + new_theta_s < limit_s:
            accepted.append(place)
            theta_s, dist_s = new_theta_s, new_dist_s
    return np.array(accepted, np.int64)


def _search_quadratic(download_s: FloatArray, train_s: FloatArray, upload_s: FloatArray, limit_s: float) -> IntArray:
    """Return the result of `accept_greedily` for any downloads, by comparing all remaining candidates in each step: O(n^2)."""
    is_left = np.ones(len(upload_s), np.bool_)
    theta_s, dist_s, accepted = 0.0, 0.0, []
    for _ in range(len(upload_s)):
        increases_s = np.maximum(download_s, dist_s) - dist_s + upload_s + np.maximum(train_s - theta_s, 0.0)
        place = int(np.argmin(np.where(is_left, increases_s, np.inf)))
        is_left[place] = False
        new_theta_s = theta_s + float(upload_s[place] + max(0.0, train_s[place] - theta_s))
        new_dist_s = max(dist_s, float(download_s[place]))
        if new_dist_s + new_theta_s < limit_s:
            accepted.append(place)
            theta_s, dist_s = new_theta_s, new_dist_s
    return np.array(accepted, np.int64)
