"""The learner of one server: it trains the clients of delivered updates and aggregates the updates into the model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from models.fl.aggregation.cache import ModelCache
from models.fl.aggregation.contribution import make_contributions
from models.fl.devices import device_of
from models.fl.evaluation.model_tests import ModelTests, Unscored
from models.fl.evaluation.probing import Probing
from models.fl.evaluation.quality import Quality, Randomness
from models.fl.learners.aggregator import Aggregator
from models.fl.learners.methods import Methods
from models.fl.learners.task import Task
from models.fl.learners.versions import Versions
from models.fl.options.checks import check_aggregation, check_training
from models.fl.options.names import TrainingOptions
from models.fl.protocols import Staleness
from models.fl.store.memory import explain_out_of_memory
from models.fl.store.models import ModelStore
from models.fl.training.executors import Workers
from models.fl.training.local_work import ComputedUpdates, LocalWork, Update, work_of
from models.laws.work import WorkPlan
from netsim.core.state import State

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

@dataclass(frozen=True, slots=True)
class Content:
    """Requested content of delivered updates. Arrays have an entry for each update, in the order of deliveries."""

    updates: FloatArray | None = None
    """Protected updates (n, d); a refused update is all zeros."""
    loss: FloatArray | None = None
    """Mean loss (n,) of the first pass over the client's samples, in training: see `losses.FirstPass`."""
    loss_rms: FloatArray | None = None
    """Root mean square (n,) of the losses of all samples of that pass."""


class Delivered(Protocol):
    """Deliveries of one aggregation (`netsim.core.protocols.Deliveries`); arrays have an entry for each update."""

    @property
    def clients(self) -> IntArray:
        """Clients (n,)."""
    @property
    def rounds(self) -> IntArray:
        """Round (n,) in which each update began."""
    @property
    def versions(self) -> IntArray:
        """Version (n,) of the model from which each update started."""
    @property
    def epsilon(self) -> FloatArray:
        """Privacy budget (n,) of each update; inf: no noise."""
    @property
    def steps(self) -> IntArray | None:
        """Local steps (n,) requested of each; None: as planned."""
    @property
    def held(self) -> BoolArray | None:
        """True (n,) for updates that enter the model only at the next aggregation; None: none do."""
    @property
    def renewed(self) -> IntArray | None:
        """Clients (j,) whose entries of the cache become the present model first; None: none."""


def delivered_rows(deliveries: Delivered) -> list[tuple[int, int, int, float, int]]:
    """Return client, round, version, epsilon and number of steps (0: as planned) of each of the `deliveries`."""
    steps = np.zeros(len(deliveries.clients), np.int64) if deliveries.steps is None else deliveries.steps
    columns = (deliveries.clients, deliveries.rounds, deliveries.versions, deliveries.epsilon, steps)
    return list(zip(*(column.tolist() for column in columns), strict=True))


class FederatedLearner:
    """Trains the clients whose updates were delivered, all in one call, and aggregates what they sent into the model.

    An update is theta_k - theta after local training. `methods.mechanism` protects it; `methods.aggregation` makes one step of
    all delivered updates (by default their mean weighted by |D_k|, PAUSE eq. 2); `methods.staleness` reduces the weights of
    updates from old versions; `methods.server_optimizer` takes the step. An update that is not finite is refused: it counts in
    `refused_updates` and in no step. The content of an update depends on the seed, its client, the round in which it began, and
    the model it started from (up to rounding: the other updates of the same call may change the order of sums).

    Running statistics of batch normalisation are averaged or local (`options.batch_statistics`). The server optimizer does not
    touch averaged ones, and no mechanism protects them (`release.Release`, `Methods.unprotected`). If each client keeps its own
    (Andreux et al. 2020), the server has none, and evaluates with the statistics of the test batch.

    `options.TrainingOptions` explains `options`. `plan`: amount of work of each client, if `options` do not say it. `workers`:
    train the clients, also ahead of deliveries (`promise`); None: this process trains them. `versions_kept`: number of newest
    versions of the model that are always kept. `cached`: the step is that of a cache of all clients' last models
    (`cache.ModelCache`) in place of `methods.aggregation`.
    """

    aggregates = True
    """True: the learner uses deliveries."""

    def __init__(
        self,
        *,
        task: Task,
        methods: Methods,
        streams: Randomness,
        options: TrainingOptions,
        plan: WorkPlan | None = None,
        versions_kept: int = 2,
        cached: bool = False,
        workers: Workers | None = None,
    ) -> None:
        self.data_sizes: IntArray = task.data_sizes
        """Number of samples (K,) of each client."""
        self.label_counts: IntArray = task.label_counts
        """Number of samples (K, labels) of each label that each client holds."""
        self.records_losses = options.client_losses
        self.round_columns: Sequence[str] = ("accuracy", "loss", *(("training_loss",) if options.training_loss else ()))
        self._methods = methods
        self._buffer, self._waiting = options.buffer, list[Update]()
        self._device = device_of(options.own_device)
        check_training(methods, options)
        self._trainer = trainer = methods.local_trainer(task, self._device, options)
        self.work = work_of(plan or WorkPlan(), options, self.data_sizes, single=not trainer.skips_single)
        """Samples and steps of an update of each client."""
        probing = Probing(partition=task.partition, trainer=trainer, loss=task.loss, streams=streams)
        self._work = work = LocalWork(
            work=self.work, workers=workers, probing=probing, trainer=trainer, methods=methods,
            task=task, streams=streams, options=options,
        )
        check_aggregation(methods, options, averages_statistics=trainer.buffers > 0 and not work.local_statistics)
        self.store = ModelStore(options.memory_bytes)
        """Store of all models."""
        self.versions = Versions(first=trainer.initial(), kept=versions_kept, store=self.store)
        """Versions of the server's model."""
        self.tests = ModelTests(
            versions=self.versions, work=work, probing=probing, trainer=trainer, methods=methods,
            task=task, streams=streams, options=options,
        )
        """Tests of the present model."""
        self.aggregator = Aggregator(
            work=work, store=self.store, trainer=trainer, methods=methods, streams=streams, data_sizes=self.data_sizes,
            contributions=make_contributions(trainer=trainer, task=task, streams=streams, options=options),
            received_losses=self._received_losses,
        )
        """Aggregator that makes a step of updates, for the model of the server and of other nodes."""
        self._cache = ModelCache(sizes=self.data_sizes, first=self.versions.id(0), store=self.store) if cached else None
        self.release = self._work.release
        """Part of an update that is sent, and how much of it is protected."""
        self.up_bytes, self.down_bytes = self._work.up.bytes, self._work.down.bytes
        """Bytes of an update and of a model as they are sent."""

    @property
    def version(self) -> int:
        """Number of aggregations that changed the model."""
        return self.versions.newest

    @property
    def training_mode(self) -> str:
        """Way of training the clients of an aggregation: "vectorised", or "sequential" with the reason."""
        return "vectorised" if self._trainer.vectorised else f"sequential: {self._trainer.reason}"

    @property
    def notes(self) -> list[str]:
        """Sentences for the user: computations beside updates, and events of training."""
        of_method = self._methods.aggregation.demands.description
        # Of an eager trainer, time and tables count what it processes: nothing differs.
        of_work = None if self.eager else self._work.counted.description
        descriptions = [of_method, self._work.description_of_reports, of_work]
        return [text for text in descriptions if text is not None] + self._trainer.notes

    @property
    def trained_updates(self) -> int:
        """Number of updates computed and offered to the model so far."""
        return self.aggregator.trained_updates

    @property
    def refused_updates(self) -> int:
        """Number of these updates that were not finite and so entered no model."""
        return self.aggregator.refused_updates

    @property
    def unscored(self) -> Unscored:
        """Test samples that the last evaluation could not score."""
        return self.tests.unscored

    @property
    def staleness(self) -> Staleness:
        """Rule for updates from old models."""
        return self._methods.staleness

    def content_of(self, computed: ComputedUpdates | None, want_updates: bool, want_losses: bool) -> Content | None:
        """Return the requested content of all `computed` updates (None: there are none); None if nothing is requested."""
        if not (want_updates or want_losses):
            return None
        count = 0 if computed is None else len(computed.content)
        return self._content(computed, count, want_updates, want_losses)

    def retain(self, versions: list[int]) -> None:
        """Keep only `versions` of the model: updates in flight started from them. Called after every aggregation.

        Raises:
            ValueError: one of them is not there any more.
        """
        self.versions.retain(versions, holder="engine")

    @property
    def eager(self) -> bool:
        """True if training runs when the model is sent, because durations depend on it: see `begin`."""
        return self._work.eager

    @property
    def model(self) -> torch.Tensor:
        """Present model (d,)."""
        return self.versions.model

    @property
    def parameters(self) -> int:
        """Number of parameters of the network, which are the first columns of a model."""
        return self._trainer.parameters

    def replace_model(self, model: torch.Tensor) -> None:
        """Make `model` (d,) the newest version, without the server optimizer."""
        self.versions.push(model)

    def train(self, updates: list[Update]) -> torch.Tensor:
        """Return the models (n, d) of the clients of `updates` after local training, without aggregation and compression.

        A client whose update is not finite keeps the model that it started from.

        Raises:
            MemoryError: the device cannot hold the updates.
        """
        with explain_out_of_memory(self._device, f"computing {len(updates)} updates"):
            return self.aggregator.trained_models(updates)

    @property
    def sends_exactly(self) -> bool:
        """True if `compress` changes nothing."""
        return self._work.up.exact

    def compress(self, models: torch.Tensor, addresses: Sequence[tuple[int, int]]) -> torch.Tensor:
        """Return `models` (n, d), or differences of models, in the form in which they arrive if sent like updates.

        The draws of each are at its address. Running statistics, and parameters that are not trained, are not compressed.
        """
        return self._work.compress(models, addresses)

    def begin(self, round: int, version: int, clients: IntArray, steps: IntArray | None) -> tuple[Sequence[int], Sequence[int]]:
        """Train updates of `clients` (n,) from the model `version` ahead of their delivery, where training is `eager`.

        `steps` (n,): steps requested of each; None: as planned. Returns the samples that each processed, and its steps.

        Raises:
            MemoryError: the device cannot hold the updates.
        """
        updates = self._new_updates(round, clients, version, steps)
        with explain_out_of_memory(self._device, f"computing {len(updates)} updates"):
            return self._work.begin(updates, self.store)

    def _new_updates(self, round: int, clients: IntArray, version: int, steps: IntArray | None) -> list[Update]:
        """Return the updates that `clients` (n,) begin in `round` from the model `version`.

        Their privacy budgets are not known yet, and inf, no noise, stands for them: it does not matter for training.
        """
        requested = [0] * len(clients) if steps is None else steps.tolist()
        start = self.versions.start(version)
        return [
            Update(client=client, round=round, start=start, epsilon=math.inf, steps=step_count)
            for client, step_count in zip(clients.tolist(), requested, strict=True)
        ]

    def on_delivery(self, client: int, round: int) -> None:
        """Keep the result of the update that `client` began in `round`, trained ahead of its delivery, which has now come."""
        self._work.on_delivery(client, round)

    @property
    def promises(self) -> bool:
        """True if updates may be trained before they are needed: see `promise`."""
        return self._work.executor.ahead

    def promise(self, round: int, clients: IntArray, version: int, steps: IntArray | None) -> None:
        """Let workers train, ahead of their use, the updates that `clients` (n,) begin in `round` from the model `version`.

        `steps` (n,): steps requested of each; None: as planned. A promise changes no result: if the update later needs other
        training, it is trained again.
        """
        self._work.promise(self._new_updates(round, clients, version, steps), self.store)

    def end_promise(self, client: int, round: int, *, needed: bool) -> None:
        """Note the end of an update's attempt. `needed`: True if it was delivered; otherwise its promise is dropped."""
        executor = self._work.executor
        if needed:
            executor.arrive(client, round)
        else:
            executor.forget(client, round)

    def start_workers(self) -> AbstractContextManager[None]:
        """Start the workers that train, and end them after the block."""
        return self._work.executor.start_workers()

    @property
    def worker_facts(self) -> dict[str, Any] | None:
        """Facts of the workers for the summary; None without workers."""
        return self._work.executor.facts()

    def _delivered_updates(self, deliveries: Delivered) -> list[Update]:
        """Return the delivered updates, each with the model that it started from; raises ParameterError for one not kept."""
        return [
            Update(client=client, round=round, start=self.versions.start(version), epsilon=epsilon, steps=steps)
            for client, round, version, epsilon, steps in delivered_rows(deliveries)
        ]

    def aggregate(self, deliveries: Delivered, want_updates: bool, want_losses: bool = False) -> Content | None:
        """Train the delivered updates and aggregate them into the model; return their requested content, or None.

        `version` counts up if an update was accepted. With a buffer, updates wait until there are enough of them, and are then
        aggregated together. If their content is requested while they wait, they are trained now, and again later.

        Raises:
            ValueError: an update starts from a version that is no longer kept.
            MemoryError: the device cannot hold the updates.
        """
        new = self._delivered_updates(deliveries)
        wants_content = want_updates or want_losses
        # A cache makes a step without updates, too.
        if not new and self._cache is None:
            return self._content(None, 0, want_updates, want_losses) if wants_content else None
        computed: ComputedUpdates | None = None
        with explain_out_of_memory(self._device, f"computing {len(new)} updates"):
            if self._cache is not None:
                present = self.versions.id(self.version)
                computed, step = self.aggregator.compute_cached_step(self._cache, new, deliveries, present, want_losses)
                self.apply_step(step)
            elif len(self._waiting) + len(new) < self._buffer:
                # The buffer is not full: keep the updates, and the versions from which they started.
                self._waiting += new
                self.versions.retain([update.start.number for update in self._waiting], holder="buffer")
                computed = self._work.content(new, self.store, want_losses=want_losses) if wants_content else None
            else:
                buffered, self._waiting = self._waiting, []
                computed = self._aggregate_updates(buffered + new, want_losses)
                if buffered:
                    self.versions.retain([], holder="buffer")
        return self._content(computed, len(new), want_updates, want_losses) if wants_content else None

    def _content(self, computed: ComputedUpdates | None, new: int, want_updates: bool, want_losses: bool) -> Content:
        """Return the requested content of the last `new` of the `computed` updates; the ones before waited in the buffer."""
        width = self._trainer.parameters
        if computed is None:
            no_updates = np.zeros((0, width)) if want_updates else None
            no_losses = np.zeros(0) if want_losses else None
            return Content(updates=no_updates, loss=no_losses, loss_rms=no_losses)
        new_rows = slice(len(computed.content) - new, None)
        updates = loss = loss_rms = None
        if want_updates:
            # Running statistics, the columns after the parameters, are no part of this content.
            updates = computed.content[new_rows, :width].cpu().numpy().astype(np.float64)
        if want_losses and computed.first is not None:
            loss, loss_rms = computed.first.mean[new_rows], computed.first.rms[new_rows]
        return Content(updates=updates, loss=loss, loss_rms=loss_rms)

    def _aggregate_updates(self, updates: list[Update], want_losses: bool) -> ComputedUpdates:
        """Train `updates` and aggregate them into the model, which stays if none is finite; return what they computed."""
        clients_and_samples = (len(self.data_sizes), int(self.data_sizes.sum()))
        computed, step = self.aggregator.compute_step(updates, self.versions, clients_and_samples, want_losses)
        if step is not None:
            self.apply_step(step)
        return computed

    def _received_losses(self, clients: IntArray) -> FloatArray:
        """Return the mean loss (n,) of the present model, as clients receive it, on all samples of `clients` (n,)."""
        received = self._work.receive(self.versions.id(self.version), self.store)
        return self.tests.losses_of(clients, 0, None, received)

    def apply_step(self, step: torch.Tensor) -> None:
        """Apply an aggregated `step` (d,) to the present model by the server optimizer; the result is the next version.

        `ModelTests.better_model` may keep the present model instead. `step` is overwritten.
        """
        present = self.versions.model
        new = self.aggregator.optimize(present, step)
        self.versions.push(self.tests.better_model(new, present))

    def evaluate(self, round: int, time_s: float, last: bool) -> Quality | None:
        """Return the quality of the present model, or None if no evaluation is due: see `ModelTests`."""
        return self.tests.quality(round) if self.tests.take_due(round, time_s, last) else None

    def losses_of(self, clients: IntArray, round: int, samples: int | None) -> FloatArray:
        """Return the mean loss (n,) of the present model on all samples of each client, or on `samples` of them."""
        return self.tests.losses_of(clients, round, samples)

    def accuracies_of(self, clients: IntArray) -> FloatArray:
        """Return the accuracy (n,) of the present model on the local test sets of `clients` (n,), which have their labels."""
        return self.tests.opinions("own")[clients]

    def contribution(self) -> FloatArray:
        """Return the marginal contributions (K,), each >= 0; ones if `contribution_samples` is 0."""
        return self.aggregator.contribution()

    def state_dict(self) -> State:
        """Return models, local work, tests and aggregation, and the updates that wait in the buffer, as one flat dictionary."""
        state = self.versions.state_dict() | self._work.state_dict() | self.tests.state_dict() | self.aggregator.state_dict()
        # In the order in which `load_state_dict` reads the fields.
        state["waiting"] = [
            [update.client, update.round, update.start.number, update.epsilon, update.steps] for update in self._waiting
        ]
        return state if self._cache is None else state | {"cache": self._cache.state_dict()}

    def load_state_dict(self, state: State) -> None:
        """Restore a saved state."""
        # Versions first: waiting updates start from them.
        self.versions.load_state_dict(state)
        self._waiting = []
        for client, round, version, epsilon, steps in state["waiting"]:
            start = self.versions.id(int(version))
            self._waiting.append(Update(int(client), int(round), start, epsilon=float(epsilon), steps=int(steps)))
        self._work.load_state_dict(state, self._device)
        if self._cache is not None:
            self._cache.load_state_dict(state["cache"], self._device)
        self.aggregator.load_state_dict(state)
        self.tests.load_state_dict(state)
