"""Federated averaging of delivered updates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from models.fl.aggregation.cache import ModelCache
from models.fl.aggregation.contribution import make_contributions
from models.fl.aggregation.rules import Arrivals, checked_factors, checked_step
from models.fl.checks import check_aggregation, check_fresh, check_training
from models.fl.devices import device_of
from models.fl.evaluation import Evaluator, LocalTest, Quality, Randomness
from models.fl.memory import naming_device
from models.fl.methods import Methods
from models.fl.options import TrainingOptions
from models.fl.probing import Probing
from models.fl.protocols import Staleness
from models.fl.store import ModelStore
from models.fl.task import Task
from models.fl.training.executors import Workers
from models.fl.training.local_work import Computed, LocalWork, Models, Update, work_of
from models.fl.training.losses import finite_rows
from models.fl.versions import Versions
from models.laws.work import WorkPlan

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

# Far above the numbers of any working model, and low enough for sums of models to stay finite in float32.
_PARAMETER_LIMIT = 1e30


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
    def clients(self) -> IntArray: ...
    @property
    def rounds(self) -> IntArray: ...
    @property
    def versions(self) -> IntArray: ...
    @property
    def epsilon(self) -> FloatArray: ...
    @property
    def steps(self) -> IntArray | None: ...
    @property
    def held(self) -> BoolArray | None: ...
    @property
    def renewed(self) -> IntArray | None: ...


class Unscored(NamedTuple):
    """Test samples for which the present model has no finite scores: it holds a number that is not finite, or overflows."""

    of: int
    """Number of test samples."""
    samples: int = 0
    """Number of test samples without scores at the last evaluation."""
    since_round: int | None = None
    """First round of the latest evaluations in a row that found such samples; None: the last evaluation found none."""

    def after(self, round: int, samples: int) -> Unscored:
        """Return the record after the evaluation of `round`, which found this number of samples without scores."""
        since = (round if self.since_round is None else self.since_round) if samples else None
        return Unscored(self.of, samples, since)


class FederatedLearner:
    """Trains the clients whose updates were delivered, all in one call, and folds what they sent into the model.

    An update is theta_k - theta after local training; of `methods`, the mechanism protects it, `aggregation` makes one step of
    all of them (by default the mean weighted by |D_k| over the delivered, PAUSE eq. 2), `staleness` says what those from old
    versions count, and `server_optimizer` takes the step. An update that is not finite is refused: it counts in `refused_updates`
    and in no step. The content of an update depends on the seed, its client, the round it was started in, and the model it
    started from (to rounding error: sums may be ordered differently in another company).

    What `options` mean, `options.TrainingOptions` says. Of running statistics of batch normalisation: averaged, they are not
    touched by the server optimizer, and no mechanism protects them (see `release.Release` and `Methods.unprotected`); kept by
    each client (Andreux et al. 2020), the server has none, and evaluates with those of the test batch. Contributions are measured
    on validation samples in the proportions of each client's labels.
    `plan`: how much work each client is asked for, where it is not what `options` say.
    `workers`: train the clients, also ahead of deliveries (`promise`); None: this process trains them.
    `versions_kept`: versions of the model that updates may start from, whatever `retain` says. `cached`: the step is that of a
    cache of all clients' last models (`cache.ModelCache`) in place of `aggregation`.
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
        self._methods, self._streams = methods, streams
        self._buffer, self._waiting = options.buffer, list[Update]()
        self._device = device_of(options.own_device)
        check_training(methods, options)
        self._trainer = methods.local_trainer(task, self._device, options)
        self.work = work_of(plan or WorkPlan(), options, self.data_sizes, single=not self._trainer.skips_single)
        """Samples and steps of an update of each client."""
        self._probing = Probing(partition=task.partition, trainer=self._trainer, loss=task.loss, streams=streams)
        self._work = LocalWork(
            task=task,
            work=self.work,
            trainer=self._trainer,
            methods=methods,
            streams=streams,
            options=options,
            probing=self._probing,
            workers=workers,
        )
        check_aggregation(methods, options, averages_statistics=self._trainer.buffers > 0 and not self._work.local_statistics)
        self._contributions = make_contributions(trainer=self._trainer, task=task, streams=streams, options=options)
        metrics = methods.metrics
        self._evaluator = Evaluator(trainer=self._trainer, task=task, streams=streams, options=options, metrics=metrics)
        self._best_loss = math.inf if options.keep == "best" else None
        """Lowest test loss so far, if only the best model is kept."""
        self.trained_updates = 0
        """Number of updates computed and offered to the model so far."""
        self.refused_updates = 0
        """Number of these updates that were not finite and so entered no model."""
        self.unscored = Unscored(of=len(task.dataset.test_y))
        """Test samples that the last evaluation could not score."""
        frozen = ~self._trainer.layout.moves
        if self._work.local_statistics:
            frozen[self._trainer.parameters :] = True
        self._frozen = frozen.to(self._device) if frozen.any() else None
        """Columns of frozen parameters, which no update may change, even if the server optimizer turns zeros into a step."""
        self._store = store = ModelStore()
        self._versions = Versions(first=self._trainer.initial(), kept=versions_kept, store=store)
        self._cache = ModelCache(sizes=self.data_sizes, first=self._versions.id(0), store=store) if cached else None
        self.release = self._work.release
        """Part of an update that is sent, and how much of it is protected."""
        self.up_bytes, self.down_bytes = self._work.up.bytes, self._work.down.bytes
        """Bytes of an update and of a model as they are sent."""

    @property
    def version(self) -> int:
        """Number of aggregations that changed the model."""
        return self._versions.newest

    @property
    def training_mode(self) -> str:
        """Way of training the clients of an aggregation: "vectorised", or "sequential" with the reason."""
        return "vectorised" if self._trainer.vectorised else f"sequential: {self._trainer.reason}"

    @property
    def notes(self) -> list[str]:
        """Sentences for the user: computations beside updates, and events of training."""
        asked = self._methods.aggregation.demands.in_words
        counted = self._work.counted
        told = [asked, self._work.reported_in_words, None if self.eager else counted.in_words]
        return [*(words for words in told if words is not None), *self._trainer.notes]

    @property
    def versions(self) -> Versions:
        """Versions of the server's model."""
        return self._versions

    @property
    def store(self) -> ModelStore:
        """Store of all models."""
        return self._store

    @property
    def staleness(self) -> Staleness:
        """Rule for updates from old models."""
        return self._methods.staleness

    def content_of(self, computed: Computed, want_updates: bool, want_losses: bool) -> Content | None:
        """Return the requested content of computed updates, or None."""
        if not (want_updates or want_losses):
            return None
        return self._content(computed, len(computed.content), want_updates, want_losses)

    def retain(self, versions: list[int]) -> None:
        """Keep only `versions` of the model: updates in flight started from them. Called after every aggregation.

        Raises:
            ValueError: one of them is not there any more.
        """
        self._versions.retain(versions, holder="engine")

    @property
    def eager(self) -> bool:
        """True if training runs when the model is sent, because durations depend on it: see `begin`."""
        return self._work.eager

    @property
    def model(self) -> torch.Tensor:
        """Present model (d,)."""
        return self._versions.model

    @property
    def parameters(self) -> int:
        """Number of parameters of the network, which are the first columns of a model."""
        return self._trainer.parameters

    def replace_model(self, model: torch.Tensor) -> None:
        """Make `model` (d,) the newest version, as it is."""
        self._versions.push(model)

    def train(self, updates: list[Update], models: Models) -> torch.Tensor:
        """Return the models (n, d) of the clients of `updates` after local training from `models`, without aggregation and
        compression.

        A client whose update is not finite keeps the model that it started from.

        Raises:
            MemoryError: the device cannot hold the updates.
        """
        with naming_device(self._device, f"computing {len(updates)} updates"):
            computed, _ = self._collect(updates, False, models, compress=False)
            return computed.content.add_(computed.starts).clamp_(-_PARAMETER_LIMIT, _PARAMETER_LIMIT)

    @property
    def sends_exactly(self) -> bool:
        """True if `compressed` changes nothing."""
        return self._work.up.exact

    def compressed(self, models: torch.Tensor, addresses: Sequence[tuple[int, int]]) -> torch.Tensor:
        """Return `models` (n, d), or differences of models, in the form in which they arrive if sent like updates.

        The draws of each are at its address. Running statistics, and parameters that are not trained, are not compressed.
        """
        return self._work.compressed(models, addresses)

    def begin(
        self, round: int, version: int, clients: IntArray, steps: IntArray | None
    ) -> tuple[Sequence[int], Sequence[int]]:
        """Train updates of `clients` (n,) from the model `version` ahead of their delivery, where training is `eager`.

        `steps` (n,): steps requested of each; None: as planned. Returns the samples that each processed, and its steps.

        Raises:
            MemoryError: the device cannot hold the updates.
        """
        asked = [0] * len(clients) if steps is None else steps.tolist()
        pairs, start = zip(clients.tolist(), asked, strict=True), self._versions.start(version)
        updates = [Update(client, round, start, math.inf, count) for client, count in pairs]
        with naming_device(self._device, f"computing {len(updates)} updates"):
            return self._work.begin(updates, self._store)

    def on_delivery(self, client: int, round: int) -> None:
        """Keep the result trained ahead for the update that `client` began in `round`: it was delivered."""
        self._work.on_delivery(client, round)

    @property
    def promises(self) -> bool:
        """True if updates may be trained before they are needed: see `promise`."""
        return self._work.executor.ahead

    def promise(self, round: int, clients: IntArray, version: int, steps: IntArray | None) -> None:
        """Let workers train, ahead of their use, the updates that `clients` (n,) begin in `round` from the model `version`.

        `steps` as of `begin`. What is promised changes no result: an update that turns out otherwise is trained again.
        """
        asked = [0] * len(clients) if steps is None else steps.tolist()
        start = self._versions.start(version)
        pairs = zip(clients.tolist(), asked, strict=True)
        self._work.promise([Update(client, round, start, math.inf, count) for client, count in pairs], self._store)

    def end_promise(self, client: int, round: int, *, needed: bool) -> None:
        """Note the end of an update's attempt: it is `needed`, since it was delivered, or its promise is dropped."""
        executor = self._work.executor
        (executor.arrive if needed else executor.forget)(client, round)

    def at_work(self) -> AbstractContextManager[None]:
        """Start the workers that train, and end them after the block."""
        return self._work.executor.at_work()

    @property
    def worker_facts(self) -> dict[str, Any] | None:
        """Return facts of the workers for the summary, or None without workers."""
        return self._work.executor.facts()

    def aggregate(self, deliveries: Delivered, want_updates: bool, want_losses: bool = False) -> Content | None:
        """Train the delivered updates and aggregate them into the model. `version` counts up if an update was accepted.

        Returns the requested content of the updates, or None. Content of updates that stay in the buffer is computed now, and
        again later.

        Raises:
            ValueError: an update starts from a version that is no longer kept.
            MemoryError: the device cannot hold the updates.
        """
        steps = np.zeros(len(deliveries.clients), np.int64) if deliveries.steps is None else deliveries.steps
        columns = (deliveries.clients, deliveries.rounds, deliveries.versions, deliveries.epsilon, steps)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        new = [Update(client, round, self._versions.start(version), *more) for client, round, version, *more in rows]
        wanted = want_updates or want_losses
        if not new and self._cache is None:
            return self._content(None, 0, want_updates, want_losses) if wanted else None
        computed: Computed | None = None
        with naming_device(self._device, f"computing {len(new)} updates"):
            if self._cache is not None:
                computed = self._fold_cached(deliveries, new, want_losses)
            elif len(self._waiting) + len(new) < self._buffer:
                self._waiting += new
                self._versions.retain([update.start.number for update in self._waiting], holder="buffer")
                computed = self._work.content(new, self._store, want_losses=want_losses) if wanted else None
            else:
                waited, self._waiting = self._waiting, []
                computed = self._fold(waited + new, want_losses)
                if waited:
                    self._versions.retain([], holder="buffer")
        return self._content(computed, len(new), want_updates, want_losses) if wanted else None

    def _content(self, computed: Computed | None, new: int, want_updates: bool, want_losses: bool) -> Content:
        """Return the requested content of the last `new` computed updates."""
        width = self._trainer.parameters
        if computed is None:
            none = np.zeros(0)
            return Content(np.zeros((0, width)) if want_updates else None, *((none, none) if want_losses else (None, None)))
        first, last = computed.first if want_losses else None, slice(len(computed.content) - new, None)
        return Content(
            computed.content[last, :width].cpu().numpy().astype(np.float64) if want_updates else None,
            None if first is None else first.mean[last],
            None if first is None else first.rms[last],
        )

    def _fold(self, updates: list[Update], want_losses: bool) -> Computed:
        of_all = (len(self.data_sizes), int(self.data_sizes.sum()))
        computed, step = self.compute_step(updates, self._versions, of_all, want_losses)
        if step is not None:
            self.take(step)
        return computed

    def compute_step(
        self, updates: list[Update], versions: Versions, of_all: tuple[int, int], want_losses: bool
    ) -> tuple[Computed, torch.Tensor | None]:
        """Train `updates`; return them with the step (d,) from the newest of `versions` that their aggregation gives; None if
        no update is finite.

        `versions`: models of any node, in the store of this learner. `of_all`: clients of that node, and their samples.

        Raises:
            MemoryError: the device cannot hold the updates.
        """
        demands = self._methods.aggregation.demands
        exact = self._received_losses(updates) if demands.loss == "received" else None
        computed, accepted = self._collect(updates, want_losses or demands.loss == "running")
        if not accepted.any():
            return computed, None
        losses = exact if computed.first is None or exact is not None else computed.first.mean
        starts, content = computed.starts, computed.content
        clients = np.array([update.client for update in updates])
        kept: slice | torch.Tensor = slice(None) if accepted.all() else torch.from_numpy(accepted).to(content.device)
        version = versions.newest
        staleness = version - np.array([update.version for update in updates])[accepted]
        zeta = self.contribution()[clients[accepted]] if self._methods.aggregation.needs_contribution else None
        check_fresh(demands, updates, staleness)
        entering = [updates[row] for row in np.flatnonzero(accepted)]
        arrivals = Arrivals(
            self.data_sizes[clients[accepted]],
            staleness,
            zeta,
            partial(self._streams.generator, "aggregation", version),
            parameters=self._trainer.parameters,
            version=version,
            begun=None if self._work.down.exact else lambda: torch.stack([self._store[one.start] for one in entering]),
            of_all=of_all,
            local=self._work.local_steps(entering) if demands.steps != "any" else None,
            losses=None if losses is None else losses[accepted],
        )
        model = versions.model
        factors = checked_factors(self._methods.staleness.factor(staleness), staleness)
        step = self._methods.aggregation.step(model, starts[kept], content[kept], arrivals, factors)
        if self._contributions is not None:
            self._contributions.record(clients[accepted], content[kept], starts[kept] + content[kept])
        checked_step("aggregation", step, model)
        if computed.own is not None and computed.after is not None:
            self._work.corrections.deliver(clients[accepted].tolist(), computed.own[kept], computed.after[kept])
            self._work.corrections.add_to(step, self._trainer.layout.columns)
        return computed, step

    def _received_losses(self, updates: list[Update]) -> FloatArray:
        """Return the mean loss (n,) of the present model, as clients receive it, on all samples of each update's client."""
        model = self._work.receive(self._versions.id(self.version), self._store)
        statistics = self._work.memory.statistics if self._work.local_statistics else None
        return self._probing.losses(model, np.array([update.client for update in updates]), 0, None, statistics)

    def _fold_cached(self, deliveries: Delivered, updates: list[Update], want_losses: bool) -> Computed | None:
        """Aggregate by the cache, which also works without updates. Updates held back enter the cache last."""
        assert self._cache is not None
        model = self._versions.model
        if deliveries.renewed is not None:
            self._cache.renew(deliveries.renewed, self._versions.id(self.version))
        if not updates:
            self.take(self._cache.mean() - model)
            return None
        computed, accepted = self._collect(updates, want_losses)
        held = np.zeros(len(updates), np.bool_) if deliveries.held is None else deliveries.held
        models = computed.starts + computed.content
        if self._contributions is not None:
            rows = torch.from_numpy(np.flatnonzero(accepted)).to(models.device)
            self._contributions.record(deliveries.clients[accepted], computed.content[rows], models[rows])

        def enter(now: BoolArray) -> None:
            rows = np.flatnonzero(now)
            assert self._cache is not None
            entering = models[torch.from_numpy(rows).to(models.device)]
            self._cache.put(deliveries.clients[rows], deliveries.rounds[rows], entering)

        enter(accepted & ~held)
        self.take(self._cache.mean() - model)
        enter(accepted & held)
        return computed

    def _collect(
        self, updates: list[Update], want_losses: bool, models: Models | None = None, *, compress: bool = True
    ) -> tuple[Computed, BoolArray]:
        """Return the content that the clients of `updates` send, and (n,) True if it is finite; zeros otherwise.

        `models`: those that the updates start from; None: the versions of the server's model.
        """
        held = self._store if models is None else models
        computed = self._work.content(updates, held, want_losses=want_losses, compress=compress)
        self._work.keep(computed)
        self.trained_updates += len(updates)
        accepted: BoolArray = finite_rows(computed.content).cpu().numpy()
        if not accepted.all():
            computed.content[torch.from_numpy(~accepted).to(computed.content.device)] = 0.0
            self.refused_updates += int((~accepted).sum())
        return computed, accepted

    def take(self, step: torch.Tensor) -> None:
        """Apply `step` (d,) to the present model by the server optimizer, without the frozen columns, as the next version."""
        model, width = self._versions.model, self._trainer.parameters
        step.clamp_(-_PARAMETER_LIMIT, _PARAMETER_LIMIT)
        step[:width] = checked_step("server_optimizer", self._methods.server_optimizer.step(step[:width]), step[:width])
        if self._frozen is not None:
            step[self._frozen] = 0.0
        self._versions.push(self._better((model + step).clamp_(-_PARAMETER_LIMIT, _PARAMETER_LIMIT), model))

    def bounded(self, model: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        """Return `model` + `step` (d,), a step of a node that has no server optimizer, without the frozen columns."""
        if self._frozen is not None:
            step[self._frozen] = 0.0
        return (model + step).clamp_(-_PARAMETER_LIMIT, _PARAMETER_LIMIT)

    def _better(self, new: torch.Tensor, model: torch.Tensor) -> torch.Tensor:
        """`new` (d,), or the present `model` where only the best is kept and `new` has no lower test loss than any before."""
        if self._best_loss is None:
            return new
        loss = self._evaluator.quality(self.version + 1, new, batch_statistics=self._work.local_statistics).loss
        if loss < self._best_loss:
            self._best_loss = loss
            return new
        self._evaluator.forget()
        return model

    def evaluate(self, round: int, time_s: float, last: bool) -> Quality | None:
        """Return the quality of the present model, or None if no evaluation is due.

        It is due in the first and the last round, and every `evaluate_every_rounds` rounds; with `evaluate_every_s` instead at
        the first round that closes at or after each multiple of it. Training losses are those since the last evaluation: they
        are taken out, so that each is reported once.
        """
        return self.quality(round) if self.due(round, time_s, last) else None

    def due(self, round: int, time_s: float, last: bool) -> bool:
        """Return True if an evaluation is due now; it then counts as done. See `evaluate`."""
        return self._evaluator.due(round, time_s, last)

    def quality(self, round: int) -> Quality:
        """Return the quality of the present model at the close of `round`, with the training losses since the last evaluation."""
        with naming_device(self._device, "testing the model"):
            quality = self._evaluator.quality(self.version, self._versions.model, batch_statistics=self._work.local_statistics)
        self.unscored = self.unscored.after(round, quality.unscored)
        return quality if self._work.losses is None else replace(quality, training_loss=self._work.losses.take())

    def accuracy_of(self, model: torch.Tensor) -> float:
        """Return the accuracy of any `model` (d,) on the test set, in [0, 1]."""
        with naming_device(self._device, "testing the model"):
            return self._evaluator.accuracy(model, batch_statistics=self._work.local_statistics)

    def losses_of(self, clients: IntArray, round: int, samples: int | None) -> FloatArray:
        """Return the mean loss (n,) of the present model on all samples of each client, or on `samples` of them: see
        `probing.Probing`.
        """
        statistics = self._work.memory.statistics if self._work.local_statistics else None
        with naming_device(self._device, "testing the model on clients' samples"):
            return self._probing.losses(self._versions.model, clients, round, samples, statistics)

    def accuracies_of(self, clients: IntArray) -> FloatArray:
        """Return the accuracy (n,) of the present model on these clients' local test sets, in the proportions of their labels."""
        return self.opinions("own")[clients]

    def opinions(self, local: LocalTest) -> FloatArray:
        """Return the accuracy (K,) of the present model on every client's local test set, in [0, 1] (client analytics'
        opinions).

        The sets are drawn once, from the test set: see `evaluation.local_sets`.
        """
        statistics = self._work.memory.statistics if self._work.local_statistics else None
        with naming_device(self._device, "testing the model on clients' samples"):
            return self._evaluator.opinions(self.version, self._versions.model, local, statistics)

    def local_tests(self, local: LocalTest) -> IntArray:
        """Return the test samples (K, n), by number, in every client's local test set.

        Raises ValueError if none can be drawn for a client.
        """
        return self._evaluator.local_tests(local)

    def contribution(self) -> FloatArray:
        """Return the marginal contributions (K,), each >= 0; ones if `contribution_samples` is 0."""
        if self._contributions is None:
            return np.ones(len(self.data_sizes))
        with naming_device(self._device, "measuring contributions"):
            return self._contributions.contribution()

    def state_dict(self) -> dict[str, Any]:
        state = self._versions.state_dict() | self._work.state_dict()
        state |= {
            "trained_updates": self.trained_updates,
            "refused_updates": self.refused_updates,
            "due_s": self._evaluator.due_s,
            "best_loss": self._best_loss,
            "unscored": list(self.unscored),
            "waiting": [[one.client, one.round, one.start.number, one.epsilon, one.steps] for one in self._waiting],
            "server_optimizer": self._methods.server_optimizer.state_dict(),
        }
        if self._cache is not None:
            state["cache"] = self._cache.state_dict()
        return state | ({} if self._contributions is None else {"contributions": self._contributions.state_dict()})

    def load_state_dict(self, state: dict[str, Any]) -> None:
        device = self._device
        self._versions.load_state_dict(state)
        self.trained_updates = int(state["trained_updates"])
        self.refused_updates = int(state["refused_updates"])
        self._evaluator.due_s = float(state["due_s"])
        self._best_loss = state["best_loss"]
        self.unscored = Unscored(*state["unscored"])
        start = self._versions.id
        self._waiting = [Update(int(c), int(r), start(int(v)), float(e), int(s)) for c, r, v, e, s in state["waiting"]]
        self._methods.server_optimizer.load_state_dict(state["server_optimizer"], device)
        self._work.load_state_dict(state, device)
        if self._cache is not None:
            self._cache.load_state_dict(state["cache"], device)
        if self._contributions is not None:
            self._contributions.load_state_dict(state["contributions"], device)
        self._evaluator.forget()
