"""Power-of-Choice (Cho, Wang and Joshi, AISTATS 2022): of d clients drawn by data size, those with the largest loss.

pow-d: the candidates are d clients from successive draws with p_k = n_k / n, without replacement. Each reports the mean loss
F_k(w) of the present model, which takes a probe; the m largest are selected. d = m is sampling by size. cpow-d, the loss on one
batch, is pow-d with `probe.samples`. rpow-d takes the loss that each client last reported with an update, infinite before the
first. adapow-d: d = K up to a round, then d = m.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_doc import Doc

from models.errors import ParameterError
from models.policies.draws import largest, successive_draws, uniform_draws
from models.policies.protocols import (
    BoolArray,
    FloatArray,
    IntArray,
    NoProbes,
    Outcome,
    View,
    check_round,
    data_shares,
    fill_missing_losses,
)
from netsim.core.state import StateFields

Variant = Literal["pow-d", "rpow-d", "adapow-d"]


class PowerOfChoice(NoProbes, StateFields):
    """Policy that selects the m clients of largest loss among d candidates; ties uniformly at random.

    Candidates that have not answered are not selected; if none has, m selectable clients are drawn uniformly. Data sizes may be
    0: such a client is a candidate only if all clients are.

    Example:
        >>> import numpy as np
        >>> from netsim.core.protocols import RoundView
        >>> policy = PowerOfChoice(clients=4, per_round=1, data_sizes=np.array([1.0, 1.0, 0.0, 2.0]), candidates=3)
        >>> policy.probe(RoundView(1, 0.0, np.full(4, True), np.zeros(4, int), np.random.default_rng(1)))
        array([0, 1, 3])
    """

    state_fields = ("_last",)
    needs_updates = False
    needs_losses = True
    probes = True
    probes_where: ClassVar[dict[str, tuple[str, ...]]] = {"variant": ("pow-d", "adapow-d")}

    def __init__(
        self,
        *,
        clients: int,
        per_round: int,
        data_sizes: FloatArray,
        candidates: Annotated[
            int | None, Doc("d, the number of candidates, m <= d <= K. Leave it out for adapow-d: K, then m.")
        ] = None,
        variant: Annotated[
            Variant,
            Doc(
                "pow-d asks the candidates for their loss (its `[probe]` may limit the samples: cpow-d); rpow-d takes the loss "
                "that they last reported; adapow-d asks all clients up to `until_round`, and then as many as are selected."
            ),
        ] = "pow-d",
        until_round: Annotated[int | None, Doc("adapow-d: the last round in which all clients are asked.")] = None,
    ) -> None:
        check_round(clients, per_round)
        if variant not in ("pow-d", "rpow-d", "adapow-d"):
            raise ParameterError("variant", variant, "must be pow-d, rpow-d or adapow-d")
        # adapow-d has its own numbers of candidates, which change at `until_round`; the others have one number.
        adaptive = variant == "adapow-d"
        if adaptive != (candidates is None):
            advice = "left out" if adaptive else "given"
            raise ParameterError("candidates", candidates, f"must be {advice}, with variant {variant}")
        if adaptive != (until_round is not None):
            advice = "given" if adaptive else "left out"
            raise ParameterError("until_round", until_round, f"must be {advice}, with variant {variant}")
        if candidates is not None and not per_round <= candidates <= clients:
            raise ParameterError("candidates", candidates, f"must be between server.per_round, {per_round}, and {clients}")
        if until_round is not None and until_round < 0:
            raise ParameterError("until_round", until_round, "must be >= 0")
        self._clients, self._per_round = clients, per_round
        self._candidates, self._until_round = candidates, until_round
        self._asks = variant != "rpow-d"
        with np.errstate(divide="ignore"):
            self._log_share = np.log(data_shares(data_sizes, clients))
        self._last: FloatArray = np.full(clients, np.inf)
        """(K,) loss that each client reported last; inf before the first."""

    def probe(self, view: View) -> IntArray:
        """Return the candidates of the round, ascending; no client for rpow-d."""
        if not self._asks:
            return np.zeros(0, np.int64)
        if self._candidates is not None:
            count = self._candidates
        else:
            assert self._until_round is not None
            count = self._clients if view.round <= self._until_round else self._per_round
        return successive_draws(self._log_share, view.selectable, count, view.rng)

    def select(self, view: View) -> IntArray:
        """Return m of the candidates, ascending; fewer if fewer have answered or are selectable."""
        selectable, rng = view.selectable, view.rng
        if not self._asks:
            assert self._candidates is not None
            candidates = successive_draws(self._log_share, selectable, self._candidates, rng)
            return largest(self._last, self._mask_of(candidates), self._per_round, rng)
        probed = view.probed
        answered = probed.answered & selectable[probed.clients]
        if not answered.any():
            return uniform_draws(selectable, self._per_round, rng)
        candidates = probed.clients[answered]
        losses = np.full(self._clients, -np.inf)
        losses[candidates] = probed.loss[answered]
        return largest(losses, self._mask_of(candidates), self._per_round, rng)

    def _mask_of(self, clients: IntArray) -> BoolArray:
        """Return a mask (K,), True for `clients` (n,)."""
        mask = np.zeros(self._clients, np.bool_)
        mask[clients] = True
        return mask

    def observe(self, outcome: Outcome) -> None:
        """Store the losses of the clients whose updates arrived."""
        arrived = ~outcome.censored
        self._last[outcome.clients[arrived]] = fill_missing_losses(outcome.reports.loss[arrived])
