"""Power-of-Choice (Cho, Wang and Joshi, AISTATS 2022): of d clients drawn by size, those with the largest loss.

pow-d: A of d clients by successive draws with p_k = n_k / n, without replacement; each tells the mean loss F_k(w) of the present
model, which takes a probe; the m largest are selected. d = m: sampling by size. cpow-d, the loss on one batch, is pow-d with
`probe.samples`. rpow-d: in place of asking, the loss that each last reported with an update, infinite before the first.
adapow-d: d = K until a round, then d = m.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_doc import Doc

from models.errors import ParameterError
from models.policies.draws import largest, successive_draws, uniform_draws
from models.policies.protocols import (
    AsksNobody,
    BoolArray,
    FloatArray,
    IntArray,
    Outcome,
    State,
    View,
    check_round,
    check_sizes,
    losses_of_arrived,
)

Variant = Literal["pow-d", "rpow-d", "adapow-d"]


class PowerOfChoice(AsksNobody):
    """Selects the m of largest loss among d candidates; ties uniformly.

    Those who have not answered are not selected; where nobody has, m of the selectable are, uniformly. Data sizes may be 0: such
    a client is never a candidate, unless all are.
    """

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
            int | None, Doc("d, the clients to choose from, m <= d <= K; for adapow-d leave it out: K, then m.")
        ] = None,
        variant: Annotated[
            Variant,
            Doc(
                "pow-d asks the candidates for their loss (its `[probe]` may limit the samples: cpow-d); rpow-d takes what they "
                "last reported; adapow-d asks everybody up to `until_round`, and then as many as are selected."
            ),
        ] = "pow-d",
        until_round: Annotated[int | None, Doc("adapow-d: the last round in which everybody is asked.")] = None,
    ) -> None:
        check_round(clients, per_round)
        if variant not in ("pow-d", "rpow-d", "adapow-d"):
            raise ParameterError("variant", variant, "must be pow-d, rpow-d or adapow-d")
        adaptive = variant == "adapow-d"
        if adaptive != (candidates is None):
            told = "left out" if adaptive else "given"
            raise ParameterError("candidates", candidates, f"must be {told}, with variant {variant}")
        if adaptive != (until_round is not None):
            told = "given" if adaptive else "left out"
            raise ParameterError("until_round", until_round, f"must be {told}, with variant {variant}")
        if candidates is not None and not per_round <= candidates <= clients:
            raise ParameterError("candidates", candidates, f"must be between server.per_round, {per_round}, and {clients}")
        if until_round is not None and until_round < 0:
            raise ParameterError("until_round", until_round, "must be >= 0")
        self._clients, self._per_round = clients, per_round
        self._candidates, self._until_round = candidates, until_round
        self._asks = variant != "rpow-d"
        with np.errstate(divide="ignore"):
            self._log_share = np.log(check_sizes(data_sizes, clients))
        self._last: FloatArray = np.full(clients, np.inf)
        """(K,) the loss that each reported last; inf: none."""

    def probe(self, view: View) -> IntArray:
        """The candidates of the round, ascending."""
        if not self._asks:
            return np.zeros(0, np.int64)
        if self._candidates is not None:
            count = self._candidates
        else:
            assert self._until_round is not None
            count = self._clients if view.round <= self._until_round else self._per_round
        return successive_draws(self._log_share, view.selectable, count, view.rng)

    def select(self, view: View) -> IntArray:
        """m of the candidates, ascending; fewer where fewer have answered or are selectable."""
        able, rng = view.selectable, view.rng
        if not self._asks:
            assert self._candidates is not None
            drawn = successive_draws(self._log_share, able, self._candidates, rng)
            return largest(self._last, self._among(drawn), self._per_round, rng)
        probed = view.probed
        told = probed.answered & able[probed.clients]
        if not told.any():
            return uniform_draws(able, self._per_round, rng)
        losses = np.full(self._clients, -np.inf)
        losses[probed.clients[told]] = probed.loss[told]
        return largest(losses, self._among(probed.clients[told]), self._per_round, rng)

    def _among(self, clients: IntArray) -> BoolArray:
        among = np.zeros(self._clients, np.bool_)
        among[clients] = True
        return among

    def observe(self, outcome: Outcome) -> None:
        arrived = ~outcome.censored
        self._last[outcome.clients[arrived]] = losses_of_arrived(outcome.reports.loss[arrived])

    def state_dict(self) -> State:
        return {"last": self._last.copy()}

    def load_state_dict(self, state: State) -> None:
        self._last[:] = state["last"]
