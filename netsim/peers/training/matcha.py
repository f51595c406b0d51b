"""MATCHA (Wang, Sahu, Yang, Joshi and Kar, "MATCHA: Speeding Up Decentralized SGD via Matching Decomposition Sampling", 2019)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Protocol

from annotated_doc import Doc

from netsim.core.errors import ParameterError
from netsim.peers.training.exchange import Exchange, ExchangeProtocol, Order, RetryS, TimeoutS

if TYPE_CHECKING:
    from netsim.core.protocols import FloatArray
    from netsim.peers.training.protocol import Host

Pair = tuple[int, int]
_NO_CONNECTIVITY = 1e-9
"""Algebraic connectivity below which a graph counts as not connected."""
_KEPT_ROUNDS = 64
"""Rounds whose draws are kept: peers are seldom farther apart, and a round that is not kept is drawn again."""


class DrawnMatchings(Protocol):
    """Matchings of a graph of which each round draws some."""

    @property
    def groups(self) -> Sequence[Sequence[Pair]]:
        """Links of each of the m matchings."""

    @property
    def probabilities(self) -> FloatArray:
        """(m,) probability that each is on in a round."""

    @property
    def step(self) -> float:
        """Mixing step alpha."""

    @property
    def connectivity(self) -> float:
        """Second smallest eigenvalue of the expected Laplacian."""


class Matcha(ExchangeProtocol):
    """D-PSGD in which each round uses a random part of the links: matchings, each of which is on or off.

    The links are divided into matchings, in which no peer has two links. Matching j is on in a round with probability p_j,
    independently, and the same for all peers. The p_j maximise the algebraic connectivity of the expected graph; their sum is
    `budget` times the number of matchings. Peers combine by W_k = I - alpha L_k with the Laplacian L_k of the links that are on.
    The step alpha minimises the spectral norm of E[W_k^2] - J, by which disagreement shrinks on average. A peer without a link in
    a round goes on at once.
    """

    mixes = False

    def __init__(
        self,
        *,
        matchings: Callable[[int, Sequence[Pair], float], DrawnMatchings],
        budget: Annotated[float, Doc("Mean share of the matchings that are on, > 0 and at most 1.")] = 0.5,
        order: Order = "train-first",
        retry_s: RetryS = None,
        timeout_s: TimeoutS = None,
    ) -> None:
        super().__init__(order=order, retry_s=retry_s, timeout_s=timeout_s)
        if not 0 < budget <= 1:
            raise ParameterError("budget", budget, "must be > 0 and <= 1")
        self.budget, self._divide = budget, matchings

    def attach(self, host: Host) -> None:
        """Divide the graph into matchings; raises ParameterError for one that is not connected."""
        super().attach(host)
        graph = host.graph
        ends = list(zip(graph.source.tolist(), graph.target.tolist(), strict=True))
        links = sorted({(min(pair), max(pair)) for pair in ends})
        matchings = self._divide(graph.clients, links, self.budget)
        if graph.clients > 1 and matchings.connectivity < _NO_CONNECTIVITY:
            reason = "needs a connected graph: disagreement of its pieces never shrinks; add links to peers.topology"
            raise ParameterError("kind", "matcha", reason)
        self._step, self._probabilities = matchings.step, matchings.probabilities.tolist()
        matching_of = {link: matching for matching, group in enumerate(matchings.groups) for link in group}
        self._matching = [matching_of[min(pair), max(pair)] for pair in ends]
        """(E,) matching of each edge."""
        self._reverse: list[int] = graph.reverse.tolist()
        self._drawn = lru_cache(_KEPT_ROUNDS)(self._draw)

    def _draw(self, round: int) -> list[bool]:
        """Return (m,) True for each matching that is on: all peers read the same addressed numbers."""
        chances = enumerate(self._probabilities)
        return [self.host.uniforms("matching", matching, round) < chance for matching, chance in chances]

    def exchange(self, peer: int, round: int) -> Exchange:
        """Return the messages of `peer` over the links that are on in `round`."""
        is_on = self._drawn(round)
        incoming = [edge for edge in self.host.neighbours[peer] if is_on[self._matching[edge]]]
        outgoing = [self._reverse[edge] for edge in incoming]
        weights = [self._step] * len(incoming)
        return Exchange(outgoing, incoming, weights, own=1.0 - sum(weights))
