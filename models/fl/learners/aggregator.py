"""Aggregation of updates: from the updates of a node's members to the step of its model."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.errors import AnswerError
from models.fl.aggregation.cache import ModelCache
from models.fl.aggregation.contribution import Contributions
from models.fl.aggregation.rules import Arrivals, check_factors, check_step
from models.fl.evaluation.quality import Randomness
from models.fl.learners.methods import Methods
from models.fl.learners.versions import Versions
from models.fl.options.checks import check_fresh_updates
from models.fl.store.memory import explain_out_of_memory
from models.fl.store.models import ModelId, ModelStore
from models.fl.training.local_trainer import LocalTrainer
from models.fl.training.local_work import ComputedUpdates, LocalWork, Update
from models.fl.training.losses import finite_rows
from netsim.core.state import State

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

# Far above the numbers of any working model, and low enough for sums of models to stay finite in float32.
_PARAMETER_LIMIT = 1e30


class CachedDeliveries(Protocol):
    """The part of deliveries that a cache reads (`learner.Delivered` explains it)."""

    @property
    def clients(self) -> IntArray: ...
    @property
    def held(self) -> BoolArray | None: ...
    @property
    def renewed(self) -> IntArray | None: ...


class Aggregator:
    """Computes updates by `work` from models of `store`, and the step that the aggregation of `methods` makes of them.

    An update that is not finite is refused: it counts in `refused_updates` and enters no step. `contributions`: their meter, or
    None. `received_losses`: function from clients (n,) to the mean losses (n,) of the present model, as they receive it, on all
    their samples.
    """

    def __init__(
        self,
        *,
        work: LocalWork,
        store: ModelStore,
        trainer: LocalTrainer,
        methods: Methods,
        streams: Randomness,
        data_sizes: IntArray,
        contributions: Contributions | None,
        received_losses: Callable[[IntArray], FloatArray],
    ) -> None:
        self._work, self._store, self._trainer, self._methods, self._streams = work, store, trainer, methods, streams
        self._data_sizes, self._contributions, self._received_losses = data_sizes, contributions, received_losses
        self.trained_updates = 0
        """Number of updates computed and offered to the model so far."""
        self.refused_updates = 0
        """Number of these updates that were not finite and so entered no model."""
        frozen = ~trainer.layout.moves
        if work.local_statistics:
            frozen[trainer.parameters :] = True
        self._frozen = frozen.to(trainer.device) if frozen.any() else None
        """Columns of frozen parameters, which no update may change, even if the server optimizer turns zeros into a step."""

    def collect(self, updates: list[Update], want_losses: bool, *, compress: bool = True) -> tuple[ComputedUpdates, BoolArray]:
        """Compute `updates`; return the content that their clients send, and True (n,) for finite ones. Others become zeros.

        Clients go on from the states after this training, and the counts of updates grow. `want_losses`: True to measure the
        losses of training. `compress`: False for content that is not sent.
        """
        computed = self._work.content(updates, self._store, want_losses=want_losses, compress=compress)
        self._work.keep(computed)
        self.trained_updates += len(updates)
        accepted: BoolArray = finite_rows(computed.content).cpu().numpy()
        if not accepted.all():
            refused = ~accepted
            computed.content[torch.from_numpy(refused).to(computed.content.device)] = 0.0
            self.refused_updates += int(refused.sum())
        return computed, accepted

    def trained_models(self, updates: list[Update]) -> Tensor:
        """Return the models (n, d) of the clients of `updates` after local training, without compression.

        A client whose update is not finite keeps the model that it started from.

        Raises:
            AnswerError: a user's trainer returned a state: models may be computed in another order than they were begun.
        """
        computed, _ = self.collect(updates, want_losses=False, compress=False)
        for result in computed.results.values():
            if result.state is not None:
                raise AnswerError("trainer", "train", result.state, "a peer keeps its model only; return no state")
        return computed.content.add_(computed.starts).clamp_(-_PARAMETER_LIMIT, _PARAMETER_LIMIT)

    def compute_step(
        self, updates: list[Update], versions: Versions, totals: tuple[int, int], want_losses: bool
    ) -> tuple[ComputedUpdates, Tensor | None]:
        """Train `updates`; return what they computed, and the aggregated step (d,) from the newest of `versions`.

        The step is None if no update is finite. `versions`: models of any node, in the store. `totals`: number of clients of
        that node, and of their samples.

        Raises:
            MemoryError: the device cannot hold the updates.
        """
        aggregation = self._methods.aggregation
        demands = aggregation.demands
        clients = np.array([update.client for update in updates])
        # Before training: probing scores the model that clients receive, not the one that they make of it.
        losses = self._received_losses(clients) if demands.loss == "received" else None
        computed, accepted = self.collect(updates, want_losses or demands.loss == "running")
        if not accepted.any():
            return computed, None
        if losses is None and computed.first is not None:
            losses = computed.first.mean
        # A slice where possible: rows by index are copied.
        rows: slice | Tensor = slice(None) if accepted.all() else torch.from_numpy(accepted).to(computed.content.device)
        starts, content = computed.starts[rows], computed.content[rows]
        accepted_updates = [updates[row] for row in np.flatnonzero(accepted)]
        clients = clients[accepted]
        version = versions.newest
        # Versions of the model since the one from which each accepted update started.
        staleness = version - np.array([update.version for update in accepted_updates])
        contribution = self.contribution()[clients] if aggregation.needs_contribution else None
        check_fresh_updates(demands, updates, staleness)

        def stored_starts() -> Tensor:
            """Return the models (n, d) from which the accepted updates started, as the server stores them."""
            return torch.stack([self._store[update.start] for update in accepted_updates])

        local = None if demands.steps == "any" else self._work.local_steps(accepted_updates)
        arrivals = Arrivals(
            sizes=self._data_sizes[clients],
            staleness=staleness,
            contribution=contribution,
            generator=partial(self._streams.generator, "aggregation", version),
            parameters=self._trainer.parameters,
            version=version,
            origins=None if self._work.down.exact else stored_starts,
            totals=totals,
            local=local,
            losses=None if losses is None else losses[accepted],
        )
        model = versions.model
        factors = check_factors(self._methods.staleness.factor(staleness), staleness)
        step = aggregation.step(model, starts, content, arrivals, factors)
        self.record(clients, content, starts + content)
        check_step("aggregation", step, model)
        if computed.own is not None and computed.after is not None:
            self._work.corrections.deliver(clients.tolist(), computed.own[rows], computed.after[rows])
            # After `deliver`: the server's part is made of the new mean.
            self._work.corrections.add_to(step, self._trainer.layout.columns)
        return computed, step

    def compute_cached_step(
        self, cache: ModelCache, updates: list[Update], deliveries: CachedDeliveries, present: ModelId, want_losses: bool
    ) -> tuple[ComputedUpdates | None, Tensor]:
        """Compute `updates`, those of `deliveries`, for `cache`; return their content and the step (d,) from the `present` model.

        The cache makes a step without updates, too; their content is then None.
        """
        held, renewed = deliveries.held, deliveries.renewed
        if not updates:
            no_models = self._store[present][None][:0]
            return None, cache.step(deliveries.clients, no_models, held=held, renewed=renewed, present=present)
        computed, accepted = self.collect(updates, want_losses)
        rows = torch.from_numpy(np.flatnonzero(accepted)).to(computed.content.device)
        clients, content = deliveries.clients[accepted], computed.content[rows]
        models = computed.starts[rows] + content
        self.record(clients, content, models)
        accepted_held = None if held is None else held[accepted]
        return computed, cache.step(clients, models, held=accepted_held, renewed=renewed, present=present)

    def optimize(self, model: Tensor, step: Tensor) -> Tensor:
        """Return the model (d,) that the server optimizer makes of `model` and an aggregated `step` (d,). Frozen columns stay.

        `step` is overwritten. Running statistics, the columns after the parameters, are added without the optimizer.
        """
        step.clamp_(-_PARAMETER_LIMIT, _PARAMETER_LIMIT)
        of_parameters = step[: self._trainer.parameters]
        optimized = self._methods.server_optimizer.step(of_parameters)
        of_parameters.copy_(check_step("server_optimizer", optimized, of_parameters))
        return self.add_step(model, step)

    def add_step(self, model: Tensor, step: Tensor) -> Tensor:
        """Return `model` + `step` (d,), for a node without a server optimizer. Frozen columns stay; `step` is overwritten."""
        if self._frozen is not None:
            step[self._frozen] = 0.0
        return (model + step).clamp_(-_PARAMETER_LIMIT, _PARAMETER_LIMIT)

    def record(self, clients: IntArray, content: Tensor, models: Tensor) -> None:
        """Tell the meter of contributions the updates `content` (n, d) of `clients` (n,), and their `models` (n, d)."""
        if self._contributions is not None:
            self._contributions.record(clients, content, models)

    def contribution(self) -> FloatArray:
        """Return the marginal contributions (K,), each >= 0; ones if they are not measured."""
        if self._contributions is None:
            return np.ones(len(self._data_sizes))
        with explain_out_of_memory(self._trainer.device, "measuring contributions"):
            return self._contributions.contribution()

    def state_dict(self) -> State:
        """Return counts, the server optimizer, and contributions if they are measured."""
        state = {
            "trained_updates": self.trained_updates,
            "refused_updates": self.refused_updates,
            "server_optimizer": self._methods.server_optimizer.state_dict(),
        }
        return state if self._contributions is None else state | {"contributions": self._contributions.state_dict()}

    def load_state_dict(self, state: State) -> None:
        """Restore counts, the server optimizer and contributions."""
        device = self._trainer.device
        self.trained_updates = int(state["trained_updates"])
        self.refused_updates = int(state["refused_updates"])
        self._methods.server_optimizer.load_state_dict(state["server_optimizer"], device)
        if self._contributions is not None:
            self._contributions.load_state_dict(state["contributions"], device)
