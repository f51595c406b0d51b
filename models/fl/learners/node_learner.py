"""Learners of a tree of edges: each node aggregates the models of its members; clients train as in `FederatedLearner`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.fl.aggregation.cache import ModelCache
from models.fl.aggregation.rules import sum_weighted
from models.fl.evaluation.quality import Quality
from models.fl.learners.learner import Content, Delivered, FederatedLearner, delivered_rows
from models.fl.learners.versions import Versions
from models.fl.store.models import SERVER, ModelId, edge_node
from models.fl.training.local_work import ComputedUpdates, Update
from netsim.core.state import State

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
Weight = Literal["arrived", "registered", "equal"]


class NodeLearner:
    """Model of one node of a tree. Its members are clients (`clients`), or edges with models of their own (`edges`).

    Updates of clients are trained and aggregated by the methods of `learner`. The model of edge i, which started from start_i,
    has the weight w_i of its tier (these sum to 1) and the staleness factor s_i of start_i: the new model is the present one plus
    the sum of w_i s_i (model_i - start_i).

    With `cache` the new model is the mean of the last models of all members instead.
    """

    aggregates = True

    def __init__(
        self,
        learner: FederatedLearner,
        *,
        versions: Versions,
        node: int,
        above: NodeLearner | None,
        weight: Weight,
        clients: IntArray,
        cache: ModelCache | None = None,
    ) -> None:
        self._learner, self._versions, self._node, self._above, self._weight = learner, versions, node, above, weight
        self._clients = clients
        """Clients that are members; empty if the members are edges."""
        self.edges: dict[int, NodeLearner] = {}
        """Edges that are members, by number."""
        self.cache = cache
        self._arrived: dict[int, float] = {}
        """Number of samples behind the last delivery of each member in the present term, by member."""
        self._answers: dict[int, tuple[ModelId, float]] = {}
        """Models on their way to the node above, with their weights, by round of that node."""
        self._sent: Tensor | None = None
        """Model (d,) that the edge sent up last, if it goes on working from it; otherwise None."""
        self._adopted: dict[tuple[int, int, int], ModelId] = {}
        """Models from which clients that moved here from other edges started.

        The key is (client, round of the other edge in which the update began, version as which the model counts here).
        """
        self.records_losses = learner.records_losses and len(clients) > 0
        self.round_columns: Sequence[str] = learner.round_columns if above is None else ()

    @property
    def version(self) -> int:
        """Number of the present model of this node, from 0."""
        return self._versions.newest

    @property
    def registered(self) -> int:
        """Number of samples of all clients below the node."""
        return int(self._learner.data_sizes[self._clients].sum()) + sum(edge.registered for edge in self.edges.values())

    # Terms

    def begin_term(self, version: int, *, ahead: bool) -> None:
        """Begin a term of the edge with the model `version` from above; `ahead`: add what it learnt since it sent its model.

        A term is the work of an edge from one model of the node above to the next.
        """
        assert self._above is not None
        received, before = self._above._versions[version].clone(), self._versions.model
        if ahead and self._sent is not None:
            # received + (present - sent), as a step from the present model.
            self._versions.push(self._learner.aggregator.add_step(before, received - self._sent))
        else:
            self._versions.push(received)
            self._arrived.clear()
        self._sent = None
        if self.cache is not None:
            # The cache moves with the model, so that its mean stays the model.
            self.cache.shift(self._versions.model - before)

    def end_term(self, round: int, *, goes_on: bool) -> None:
        """End a term: keep the present model with its weight as what the edge sends in `round` of the node above.

        `goes_on`: True if the edge goes on working while its model travels; later changes then count for the next term.
        """
        store, model = self._learner.store, self._versions.model
        # The model of a cache is made of the last updates of all members.
        arrived = sum(self._arrived.values()) if self.cache is None else float(self.registered)
        weights = {"arrived": arrived, "registered": float(self.registered), "equal": 1.0}
        id = store.put(ModelId(self._node, "trained", round), model)
        self._answers[round] = id, weights[self._weight]
        if goes_on:
            self._sent = model
            self._arrived.clear()

    def drop_term(self, round: int) -> None:
        """Release the model sent up in `round`, if there is one: it has arrived, or is lost."""
        if round in self._answers:
            id, _ = self._answers.pop(round)
            self._learner.store.release(id)

    def adopt(self, client: int, round: int, version: int, source: NodeLearner, start: int) -> None:
        """Keep the model from which an update of `client` started, which began at edge `source` and is now for this node.

        `round`, `start`: round and version at `source`; `version`: version as which the model counts here.
        """
        # The client may have moved before: then `source` adopted the model itself.
        id = source._adopted.get((client, round, start))
        if id is None:
            id = source._versions.start(start)
        self._adopted[client, round, version] = self._learner.store.hold(id)

    def drop(self, client: int, round: int, version: int) -> None:
        """Release the model that `adopt` held."""
        self._learner.store.release(self._adopted.pop((client, round, version)))

    def _update(self, client: int, round: int, version: int, epsilon: float, steps: int) -> Update:
        """Return the update of a client; if it began at another edge, it starts from the model that `adopt` kept."""
        adopted = self._adopted.get((client, round, version))
        if adopted is None:
            return Update(client, round, start=self._versions.start(version), epsilon=epsilon, steps=steps)
        return Update(client, round, start=adopted, epsilon=epsilon, steps=steps, since=version)

    # Learner of a round loop

    def aggregate(self, deliveries: Delivered, want_updates: bool, want_losses: bool = False) -> Content | None:
        """Aggregate what the members delivered into the node's model; return the requested content of clients' updates, or None.

        Raises:
            MemoryError: the device cannot hold the updates.
        """
        if not self.edges:
            return self._aggregate_clients(deliveries, want_updates, want_losses)
        self._aggregate_edges(deliveries)
        return None

    def _aggregate_clients(self, deliveries: Delivered, want_updates: bool, want_losses: bool) -> Content | None:
        """Aggregate the updates of clients into the node's model; return their content as `aggregate` does."""
        learner = self._learner
        rows = delivered_rows(deliveries)
        updates = [self._update(*row) for row in rows]
        computed: ComputedUpdates | None
        step: Tensor | None
        if self.cache is not None:
            present = self._versions.id(self.version)
            computed, step = learner.aggregator.compute_cached_step(self.cache, updates, deliveries, present, want_losses)
        else:
            clients_and_samples = len(self._clients), self.registered
            computed, step = learner.aggregator.compute_step(updates, self._versions, clients_and_samples, want_losses)
        if step is not None:
            self._apply_step(step)
        for client, round, version, *_ in rows:
            self._arrived[client] = float(learner.data_sizes[client])
            # The model kept for an update that another edge began has been used.
            if (client, round, version) in self._adopted:
                self.drop(client, round, version)
        return learner.content_of(computed, want_updates, want_losses)

    def _aggregate_edges(self, deliveries: Delivered) -> None:
        """Make a model of the node of the edges' models, and release these models."""
        store = self._learner.store
        numbers, rounds = deliveries.clients.tolist(), deliveries.rounds.tolist()
        answers = []
        for number, round in zip(numbers, rounds, strict=True):
            id, weight = self.edges[number]._answers[round]
            self._arrived[number] = weight
            answers.append((id, weight))
        if self.cache is not None:
            present = self._versions.id(self.version)
            no_models = store[present][None][:0]
            models = torch.stack([store[id] for id, _ in answers]) if answers else no_models
            held, renewed = deliveries.held, deliveries.renewed
            self._apply_step(self.cache.step(deliveries.clients, models, held=held, renewed=renewed, present=present))
        else:
            self._add_changes(deliveries, answers)
        for number, round in zip(numbers, rounds, strict=True):
            self.edges[number].drop_term(round)

    def _add_changes(self, deliveries: Delivered, answers: list[tuple[ModelId, float]]) -> None:
        """Add the weighted changes of the edges' models, `answers` (n,) of (model, weight), to the node's model.

        The model stays if all weights are 0.
        """
        store, weights = self._learner.store, np.array([weight for _, weight in answers])
        staleness = self.version - deliveries.versions
        factors = np.asarray(self._learner.staleness.factor(staleness), np.float64)
        starts = torch.stack([self._versions[version] for version in deliveries.versions.tolist()])
        models = torch.stack([store[id] for id, _ in answers])
        # An edge whose clients delivered nothing has weight 0 and changes nothing.
        if weights.any():
            shares = weights / weights.sum()
            self._apply_step(sum_weighted(shares * factors, models - starts))

    def _apply_step(self, step: Tensor) -> None:
        """Apply `step` (d,) to the present model, at the root by the server optimizer; the result is the next version."""
        if self._above is None:
            self._learner.apply_step(step)
        else:
            self._versions.push(self._learner.aggregator.add_step(self._versions.model, step))

    def evaluate(self, round: int, time_s: float, last: bool) -> Quality | None:
        """Return the quality of the root's model if an evaluation is due; models of edges are not evaluated."""
        return self._learner.evaluate(round, time_s, last) if self._above is None else None

    def losses_of(self, clients: IntArray, round: int, samples: int | None) -> FloatArray:
        """Return the mean loss (n,) of the node's present model on all samples of each client, or on `samples` of them."""
        return self._learner.tests.losses_of(clients, round, samples, self._versions.model)

    def accuracies_of(self, clients: IntArray) -> FloatArray:
        """Return NaN (n,): clients do not test models of edges."""
        return np.full(len(clients), np.nan)

    def retain(self, versions: list[int]) -> None:
        """Keep `versions`, from which attempts under way started.

        A start that was adopted from another edge needs no version of this node: `adopt` keeps its model.
        """
        adopted = {version for _, _, version in self._adopted}
        own = [version for version in versions if version not in adopted or version in self._versions.kept]
        self._versions.retain(own, holder="engine")

    def contribution(self) -> FloatArray | None:
        """Return None: contributions are not measured in trees."""

    def state_dict(self) -> State:
        """Return the models of the node; the root's models are in the state of `FederatedLearner`."""
        store = self._learner.store
        models = self._learner.state_dict() if self._above is None else self._versions.state_dict()
        answers = [(round, store[id].cpu().numpy(), weight) for round, (id, weight) in self._answers.items()]
        # Client, round, version; node, kind and number of the id; model.
        adopted = [(*key, *id, store[id].cpu().numpy()) for key, id in self._adopted.items()]
        sent = None if self._sent is None else self._sent.cpu().numpy().copy()
        state = {"models": models, "arrived": dict(self._arrived), "answers": answers, "adopted": adopted, "sent": sent}
        return state if self.cache is None else state | {"cache": self.cache.state_dict()}

    def load_state_dict(self, state: State) -> None:
        """Restore the models of the node, in place of those it has; raises ParameterError if their network has another size."""
        if self._above is None:
            self._learner.load_state_dict(state["models"])
        else:
            self._versions.load_state_dict(state["models"])
        self._arrived = dict(state["arrived"])
        # Take the present models out of the store before others are put in under the same names.
        for round in list(self._answers):
            self.drop_term(round)
        for key in list(self._adopted):
            self.drop(*key)
        store, device = self._learner.store, self._versions.model.device

        def tensor(model: FloatArray) -> Tensor:
            """Return a saved model (d,) as a tensor on the device."""
            return torch.from_numpy(np.array(model, np.float32)).to(device)

        for round, model, weight in state["answers"]:
            id = store.put(ModelId(self._node, "trained", round), tensor(model))
            self._answers[round] = id, weight
        self._sent = None if state["sent"] is None else tensor(state["sent"])
        if self.cache is not None:
            self.cache.load_state_dict(state["cache"], device)
        for client, round, version, node, kind, number, model in state["adopted"]:
            self._adopted[client, round, version] = store.put(ModelId(node, kind, number), tensor(model))


def node_learners(
    learner: FederatedLearner,
    *,
    above: Sequence[int],
    coordinator: IntArray,
    weights: Sequence[Weight],
    goes_on: Sequence[bool],
    caches: Sequence[bool],
) -> dict[int, NodeLearner]:
    """Return the learners of a tree by node, -1 being the root.

    `above` (E,): number of the edge above each edge, lower than its own; -1: the root. `coordinator` (K,): number of the edge of
    each client, up to date at all times. `weights` (E,): kind of weight of the model of each edge at the node above. `goes_on`
    (E,): True for edges that go on working while their model travels. `caches` (1 + E,): True for nodes whose model is the mean
    of a cache of their members' last models; the root first.
    """
    root = NodeLearner(
        learner, versions=learner.versions, node=SERVER, above=None, weight="arrived", clients=np.zeros(0, np.int64)
    )
    nodes = {-1: root}
    for edge, (parent, weight) in enumerate(zip(above, weights, strict=True)):
        node = edge_node(edge)
        # A model from above may arrive within a round of an edge that goes on, beside the one that the round makes.
        kept = 3 if goes_on[edge] else 2
        versions = Versions(first=learner.model.clone(), kept=kept, store=learner.store, node=node)
        nodes[edge] = NodeLearner(
            learner, versions=versions, node=node, above=nodes[parent], weight=weight, clients=np.flatnonzero(coordinator == edge)
        )
        nodes[parent].edges[edge] = nodes[edge]
    for node, cached in zip(nodes, caches, strict=True):
        if cached:
            nodes[node].cache = _cache_of(nodes[node], learner, node, coordinator, above, weights)
    return nodes


def _cache_of(
    node: NodeLearner,
    learner: FederatedLearner,
    number: int,
    coordinator: IntArray,
    above: Sequence[int],
    weights: Sequence[Weight],
) -> ModelCache:
    """Return the cache of the last models of the members of `node`: edges, or the clients that are there at present.

    `number`: number of the node, -1 for the server. `coordinator` (K,): present edge of each client. `above`: the node above each
    edge. `weights`: weight of each edge. Clients count by their samples, edges by the samples of all clients below them, or
    equally if their weight is "equal".
    """
    node_of_entries = SERVER if number < 0 else edge_node(number)
    make_cache = partial(ModelCache, first=node._versions.id(0), store=learner.store, node=node_of_entries)
    if not node.edges:
        # Clients may move, so the members are looked up at each use.
        return make_cache(sizes=learner.data_sizes, members=lambda: np.asarray(coordinator == number))
    sizes = np.zeros(len(above), np.int64)
    for edge, member in node.edges.items():
        sizes[edge] = 1 if weights[edge] == "equal" else member.registered
    # Edges stay where they are.
    is_member = np.array(above) == number
    return make_cache(sizes=sizes, members=lambda: is_member)
