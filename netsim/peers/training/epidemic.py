"""Epidemic learning (de Vos, Farhadkhani, Guerraoui, Kermarrec, Pires and Sharma, "Epidemic Learning: Boosting Decentralized
Learning with Randomized Communication", NeurIPS 2023).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Literal

from annotated_doc import Doc

from netsim.core.errors import ParameterError
from netsim.peers.training.exchange import Exchange, ExchangeProtocol, Order, RetryS, TimeoutS
from netsim.peers.training.protocol import NOTE

if TYPE_CHECKING:
    from netsim.core.protocols import FloatArray, IntArray
    from netsim.peers.training.protocol import Host

_KEPT_ROUNDS = 64
"""Most rounds whose graphs are kept. Peers are seldom farther apart; a graph that is not kept is drawn again."""
_SEEDS = 2**53
"""Number of different values of an addressed uniform number."""


class Epidemic(ExchangeProtocol):
    """D-PSGD in which every round each peer sends to `targets` others at random, and takes the mean of what it has.

    local: each peer draws its targets among its neighbours. A peer does not know from how many it will hear: neighbours tell it
    with notes that it was not chosen, or it waits until `timeout_s`. The mean is over its own model and those that arrived: rows
    of the weights sum to 1, columns on average only. oracle: all peers use one random graph a round, in which each has `targets`
    neighbours, with weights 1 / (targets + 1), which keep the mean of the models.
    """

    mixes = False

    def __init__(
        self,
        *,
        regular_graph: Callable[[int, int, int], Sequence[tuple[int, int]]],
        targets: Annotated[int, Doc("Peers to which each peer sends its model in a round.")],
        variant: Annotated[
            Literal["local", "oracle"],
            Doc("local: each peer draws its targets by itself; oracle: all use one random graph, where each has as many links."),
        ] = "local",
        notes: Annotated[
            bool, Doc("local: true: send a note to each neighbour that is not chosen; false: peers wait until timeout_s.")
        ] = True,
        note_bytes: Annotated[int, Doc("Bytes of a note.")] = 0,
        order: Order = "train-first",
        retry_s: RetryS = None,
        timeout_s: TimeoutS = None,
    ) -> None:
        super().__init__(order=order, retry_s=retry_s, timeout_s=timeout_s)
        if targets < 1:
            raise ParameterError("targets", targets, "must be >= 1")
        if variant not in ("local", "oracle"):
            raise ParameterError("variant", variant, "must be 'local' or 'oracle'")
        if note_bytes < 0:
            raise ParameterError("note_bytes", note_bytes, "must be >= 0 bytes")
        if variant == "local" and not notes and timeout_s is None:
            reason = "without notes a peer does not know from how many it will hear; give timeout_s"
            raise ParameterError("timeout_s", None, reason)
        self.targets, self.variant, self.notes, self.note_bytes = targets, variant, notes, note_bytes
        self._regular_graph = regular_graph

    def attach(self, host: Host) -> None:
        """Prepare the graphs; raises ParameterError if no peer has so many neighbours, or no random graph so many links."""
        super().attach(host)
        graph, peers = host.graph, host.graph.clients
        self._reverse: list[int] = graph.reverse.tolist()
        # Without weights: `mix` takes the mean of what has arrived.
        self._everyone = [
            Exchange(outgoing=host.outgoing(peer), incoming=edges, weights=(), own=0.0)
            for peer, edges in enumerate(host.neighbours)
        ]
        self._edges = lru_cache(_KEPT_ROUNDS)(self._draw_graph)
        if self.variant == "local":
            most = max(map(len, host.neighbours))
            if self.targets > most:
                raise ParameterError("targets", self.targets, f"must be at most {most}, the most neighbours that a peer has")
            return
        if graph.edges < peers * (peers - 1):
            raise ParameterError("variant", "oracle", "links any two peers; choose peers.topology.kind = 'complete', or local")
        if self.targets >= peers or peers * self.targets % 2:
            reason = f"no graph of {peers} peers gives each so many neighbours; must be below {peers}, their product even"
            raise ParameterError("targets", self.targets, reason)

    def exchange(self, peer: int, round: int) -> Exchange:
        """Return the messages of `peer`: all edges (local, where any neighbour may choose it), or those of the round's random
        graph.
        """
        if self.variant == "local":
            return self._everyone[peer]
        incoming = self._edges(round)[peer]
        outgoing = [self._reverse[edge] for edge in incoming]
        weight = 1.0 / (1 + len(incoming))
        return Exchange(outgoing, incoming, weights=[weight] * len(incoming), own=weight)

    def _draw_graph(self, round: int) -> list[list[int]]:
        """Return the edges into each peer that the random graph of `round` has; in a complete graph they lie peer by peer."""
        # One number for all peers, which therefore draw the same graph.
        uniform, peers = self.host.uniforms("epidemic-graph", 0, round), self.host.graph.clients
        seed = int(uniform * _SEEDS)
        incoming: list[list[int]] = [[] for _ in range(peers)]
        for a, b in self._regular_graph(peers, self.targets, seed):
            for source, target in ((a, b), (b, a)):
                # Edges are sorted by (target, source): each target has peers - 1 sources, all but itself.
                incoming[target].append(target * (peers - 1) + source - (source > target))
        return [sorted(edges) for edges in incoming]

    def send(self, peer: int, round: int, model: int) -> None:
        """Send `model` to random neighbours, and notes to the others; or along the round's random graph."""
        if self.variant == "oracle":
            super().send(peer, round, model)
            return
        host = self.host
        edges = list(host.outgoing(peer))
        # The first steps of a Fisher-Yates shuffle: distinct targets, each subset as likely as any other.
        for place in range(min(self.targets, len(edges) - 1)):
            uniform = host.uniforms("epidemic-target", peer, round * len(edges) + place)
            chosen = place + int(uniform * (len(edges) - place))
            edges[place], edges[chosen] = edges[chosen], edges[place]
        host.send_model(peer, edges[: self.targets], round, model)
        if self.notes:
            host.send_note(peer, edges[self.targets :], round, self.note_bytes)

    def foresee(
        self, round: int, begins_s: FloatArray, trained_s: FloatArray, arrivals_s: Callable[[IntArray, FloatArray], FloatArray]
    ) -> FloatArray | None:
        """Return when peers finish the round for the variant oracle; None for local, where not every edge carries a model."""
        if self.variant == "local":
            return None
        return super().foresee(round, begins_s, trained_s, arrivals_s)

    def mix(self, peer: int, round: int, model: int, arrived: dict[int, int]) -> tuple[list[int], list[float]]:
        """Return the models that have arrived and the own one, with equal weights."""
        if self.variant == "oracle":
            return super().mix(peer, round, model, arrived)
        # Notes carry no model.
        models = [model, *(arrived[edge] for edge in sorted(arrived) if arrived[edge] != NOTE)]
        return models, [1.0 / len(models)] * len(models)

    def kept(self) -> list[int]:
        """Return the models in use; notes have none."""
        return [model for model in super().kept() if model != NOTE]
