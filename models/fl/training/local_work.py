"""Local work of clients on a received model: batches, training, protection and compression of the update."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.errors import ParameterError
from models.fl.compression.bits import Generators
from models.fl.compression.messages import both_ways
from models.fl.data.augmentation import draw_moves
from models.fl.data.batches import draw_batches
from models.fl.evaluation.probing import Probing
from models.fl.evaluation.quality import Randomness
from models.fl.learners.methods import Methods
from models.fl.learners.task import Task
from models.fl.options.demands import LocalSteps, check_call, check_exact
from models.fl.options.names import TrainingOptions
from models.fl.privacy.release import Release
from models.fl.store.models import SERVER, ModelId
from models.fl.training.bench import BenchRecipe
from models.fl.training.client_memory import ClientMemory, OptimizerStates
from models.fl.training.client_vectors import ClientVectors
from models.fl.training.corrections import Corrections
from models.fl.training.executors import (
    Executor,
    InProcess,
    LossMeasures,
    OnWorkers,
    OwnTrainingRequest,
    TrainingRequest,
    Workers,
)
from models.fl.training.jobs import Job, ready_together
from models.fl.training.local_trainer import LocalTrainer
from models.fl.training.losses import FirstPass, LossTally, finite_rows
from models.fl.training.own_training import Address, OwnTraining, Result
from models.laws.work import Work, WorkPlan
from netsim.core.state import State

IntArray = NDArray[np.int64]


class Update(NamedTuple):
    """Address of one update: client, round of its beginning, starting model, privacy budget."""

    client: int
    round: int
    start: ModelId
    """Version of the model, of the server or another node, from which the update starts."""
    epsilon: float
    steps: int = 0
    """Number of local steps; 0: as planned."""
    since: int | None = None
    """Version of the aggregating node's model from which the age counts, if `start` is a model of another node; None otherwise.
    """

    @property
    def version(self) -> int:
        """The version of the aggregating node's model from which the staleness counts."""
        return self.start.number if self.since is None else self.since


class SampleCounts(NamedTuple):
    """Sums over all updates that were offered to a model: samples processed and samples planned."""

    processed: int = 0
    planned: int = 0

    @property
    def description(self) -> str | None:
        """Return a sentence about a trainer whose work differs from the amounts that time and tables count; None if it does
        not.
        """
        if self.processed == self.planned:
            return None
        return (
            f"the trainer processed {self.processed} samples, and time and tables count the {self.planned} that were planned; "
            "a trainer with eager = True has them count what it processes (without [edges], and with a server)"
        )

    def plus(self, result: Result) -> SampleCounts:
        """Return the sums with one more result added."""
        return SampleCounts(self.processed + result.samples, self.planned + result.planned)


class Models(Protocol):
    """Models by identity (`store.ModelStore`)."""

    def __getitem__(self, id: ModelId) -> Tensor: ...


class ComputedUpdates(NamedTuple):
    """Computed updates: starting models and content for the server, (n, d) each; new states of the clients, and losses."""

    starts: Tensor
    content: Tensor
    memory: ClientMemory
    left_out: ClientVectors
    losses: LossTally | None
    first: FirstPass | None
    own: Tensor | None
    after: Tensor | None
    """Correction vectors of the clients, before and after training; None without a correction."""
    results: dict[tuple[int, int], Result]
    """Results of the user's trainer, by client and round."""


class LocalWork:
    """Computes updates, all that are requested in one call, from their addresses, the versions they started from and the states
    of their clients (`memory`). Clients keep a state only if `options.batch_statistics` is "local", `options.optimizer_state` is
    "kept", or a user's trainer keeps one.

    An update is trained from the model as its client received it, then bounded and noised, then compressed. With error feedback,
    `left_out` are numbers of the noised update. Running statistics are not compressed in either direction. An update that is not
    finite is sent as it is, so that the server refuses it; its client's memory stays as it was.
    """

    def __init__(
        self,
        *,
        task: Task,
        trainer: LocalTrainer,
        methods: Methods,
        streams: Randomness,
        options: TrainingOptions,
        work: Work,
        probing: Probing,
        workers: Workers | None = None,
    ) -> None:
        _check_options(options, trainer)
        self._augment = options.augmentation == "crop-flip"
        self.local_statistics = options.batch_statistics == "local"
        self.release = Release(
            layout=trainer.layout, mechanism=methods.mechanism, unprotected=methods.unprotected, local=self.local_statistics
        )
        self._own = self._own_training(methods, options, trainer)
        self.executor: Executor = InProcess(trainer, self._own)
        """Executor that trains the clients."""
        if workers is not None:
            self.executor = OnWorkers(workers, _recipe(task, methods, options), trainer)
        self.memory = ClientMemory(
            statistics=self.local_statistics,
            optimizer=options.optimizer_state == "kept",
            own=self._own is not None and methods.local_training is None,
            most_bytes=options.client_state_bytes,
        )
        self._ahead: dict[tuple[int, int], Result] = {}
        """Results of an eager trainer whose updates have not entered a model yet, by client and round."""
        self._arrived: set[tuple[int, int]] = set()
        """Results whose updates were delivered."""
        self.counted = SampleCounts()
        """Sums of the samples that a user's trainer processed, and of those planned for it."""
        self.left_out = ClientVectors(most_bytes=options.client_state_bytes)
        self._demands = demands = methods.aggregation.demands
        compression, down_compression, mechanism = methods.compression, methods.down_compression, methods.mechanism
        # None: the update is released, or sent, exactly as it is.
        check_exact(
            demands,
            protection=mechanism.guarantee if mechanism.protects else None,
            up=None if compression.exact else type(compression).__name__,
            down=None if down_compression.exact else type(down_compression).__name__,
        )
        tensors = self.release.tensors
        others = self.release.numbers - sum(tensors)
        self.up, self.down = both_ways(compression, down_compression, tensors, others, demands)
        """Compression of updates on their way up, and of the model on its way down."""
        self.corrections = Corrections(
            correction=methods.aggregation.correction,
            clients=len(task.partition),
            numbers=sum(tensors),
            most_bytes=options.client_state_bytes,
            device=trainer.device,
        )
        self._probing = probing if options.reported_losses == "received" else None
        self._passes_wanted = (options.client_losses or demands.loss == "running") and self._probing is None
        """True if first passes are measured: a promise must measure them as the last `content` did."""
        self._rms_measure, self._optimizer, self._proximal = options.reported_rms, methods.optimizer, options.proximal
        self.losses = LossTally() if options.training_loss else None
        """Sum of the losses in training; None if they are not requested."""
        self._partition = [np.asarray(shard, np.int64) for shard in task.partition]
        self._trainer, self._streams, self._work = trainer, streams, work

    def _own_training(self, methods: Methods, options: TrainingOptions, trainer: LocalTrainer) -> OwnTraining | None:
        """Return the user's training, or None; raises ParameterError for options that it would leave without effect."""
        own = methods.own_trainer
        if own is None:
            return None
        key = str(methods.own_key)
        # Options of the built-in steps may only have their defaults.
        defaults = {"augmentation": "none", "proximal": 0.0, "optimizer_state": "fresh", "precision": "float32"}
        for name, default in defaults.items():
            value = getattr(options, name)
            if value != default:
                raise ParameterError(name, value, f"leave it out: {key} takes the steps")
        if own.eager and self.local_statistics:
            raise ParameterError("batch_statistics", "local", "does not go with an eager trainer; leave it out")
        if methods.local_training is not None:
            check_call("local_training", methods.local_training, ("parameters", "data", "steps", "generator"))
        return trainer.own_training(own, key)

    @property
    def eager(self) -> bool:
        """True if a user's trainer runs when the model is sent to clients: see `begin`."""
        return self._own is not None and self._own.eager

    def begin(self, updates: list[Update], models: Models) -> tuple[list[int], list[int]]:
        """Train ahead of delivery with an eager trainer; return the samples that each of `updates` processed, and its steps.

        The trainer's state of a client counts from here on, for every outcome of the update.
        """
        assert self._own is not None
        jobs = self._jobs(updates)
        clients = {job.client for job in jobs}
        # A client that begins again has dropped its earlier update, unless that was delivered.
        self._ahead = {key: result for key, result in self._ahead.items() if key[0] not in clients or key in self._arrived}
        starts = torch.stack([self.receive(update.start, models) for update in updates])
        results = self._own_results(self.memory, jobs, self._batches(updates), starts)
        self._ahead |= {(job.client, job.round): result for job, result in zip(jobs, results, strict=True)}
        self.memory.keep_own(*_addresses(jobs), [result.state for result in results])
        return [result.samples for result in results], [result.steps for result in results]

    def on_delivery(self, client: int, round: int) -> None:
        """Keep the result trained ahead for a delivered update until it enters a model."""
        self._arrived.add((client, round))

    def _jobs(self, updates: list[Update]) -> list[Job]:
        """Return the jobs of `updates`, each with the state of its client from which it continues."""
        states = self.memory.state_ids([update.client for update in updates], [update.round for update in updates])
        return [
            Job(client=update.client, round=update.round, start=update.start, state=state, steps=update.steps)
            for update, state in zip(updates, states, strict=True)
        ]

    def _own_results(self, memory: ClientMemory, jobs: list[Job], batches: list[IntArray], starts: Tensor) -> list[Result]:
        """Return the results of the user's trainer for `jobs`. Those not trained ahead are computed now, in one call."""
        assert self._own is not None
        results = [self._ahead.get((job.client, job.round)) for job in jobs]
        missing_rows = [row for row, result in enumerate(results) if result is None]
        if missing_rows:
            missing = [jobs[row] for row in missing_rows]
            request = OwnTrainingRequest(
                jobs=missing,
                shards=[self._partition[job.client] for job in missing],
                batches=[batches[row] for row in missing_rows],
                addresses=[self._address(job) for job in missing],
                states=memory.recall_own([job.client for job in missing]),
            )
            for row, result in zip(missing_rows, self.executor.train_own(request, starts[missing_rows]), strict=True):
                results[row] = result
        return [result for result in results if result is not None]

    def _address(self, job: Job) -> Address:
        """Return the address of a job for a user's trainer, with its random numbers."""
        seed = self._streams.integer_seed("network-draws", job.round, job.client)
        generator = self._streams.generator("local-training", job.round, job.client)
        return Address(client=job.client, round=job.round, start=job.start, seed=seed, generator=generator)

    def content(
        self, updates: list[Update], models: Models, *, want_losses: bool = False, compress: bool = True
    ) -> ComputedUpdates:
        """Return the start of each update, the content that the server receives, and the new states of clients (`keep`).

        `want_losses`: also the losses of each client's first pass. `compress`: False: the content before compression.
        """
        width = self._trainer.parameters
        # Each model is received once: all its receivers get the same form.
        distinct_starts = {update.start for update in updates}
        received = {start: self.receive(start, models) for start in distinct_starts}
        starts = torch.stack([received[update.start] for update in updates])
        memory = self.memory.copy()
        losses = None if self.losses is None else self.losses.fresh()
        batches = self._batches(updates)
        self._passes_wanted = want_losses and self._probing is None
        passes = self._first_passes(updates, batches) if self._passes_wanted else None
        first = None if passes is None else FirstPass(passes, self._rms_measure)
        reported = self._received_moments(updates, received) if want_losses else None
        own = self.corrections.vectors_of([update.client for update in updates]) if self.corrections.keeps else None
        shift = None if own is None else self.corrections.shift(own)
        results: dict[tuple[int, int], Result] = {}
        jobs = self._jobs(updates)
        train = self._train_from_memory if memory.keeps else partial(self._train, states=None)
        trained = train(memory, results, jobs, batches, starts, measured=LossMeasures(losses, first), shift=shift)
        content = trained.sub_(starts)
        # Corrections follow from the training itself, before protection and compression change the content.
        moved = content[:, self._trainer.layout.columns]
        after = None
        if own is not None:
            after = self.corrections.new_vectors(own, moved, self.local_steps(updates), self._gradients(updates, starts))
        if self.local_statistics:
            content[:, width:] = 0.0
            # Models that are sent never change, so a sender's copy stays valid.
            for row, update in enumerate(updates):
                starts[row, width:] = models[update.start][width:]
        self.release.protect(
            content,
            np.array([update.epsilon for update in updates]),
            lambda row: self._streams.generator("privacy-noise", updates[row].round, updates[row].client),
        )
        left_out = self._compress(content, jobs) if compress else self.left_out
        return ComputedUpdates(
            starts=starts,
            content=content,
            memory=memory,
            left_out=left_out,
            losses=losses,
            first=first if reported is None else reported,
            own=own,
            after=after,
            results=results,
        )

    def receive(self, id: ModelId, models: Models) -> Tensor:
        """Return the model (d,) of this `id` in the form in which all receivers get it."""
        model = models[id]
        if self.down.exact:
            return model
        columns, arrived = self._trainer.layout.columns, model.clone()
        address = (id.number,) if id.node == SERVER else (id.number, id.node)
        # One row: the model is compressed once for all receivers, with random numbers at the address of the model.
        sent_row = model[None, columns]
        arrived[columns] = self.down.receive(sent_row, lambda _: self._streams.generator("model-compression", *address))[0]
        return arrived

    def _compress(self, content: Tensor, jobs: list[Job]) -> ClientVectors:
        """Replace the updates `content` (n, d) by what arrives after compression; return the numbers that clients left out.

        Rows that are not finite stay as they are.
        """
        if self.up.exact:
            return self.left_out
        columns = self._trainer.layout.columns
        updates = content[:, columns]
        left_out = self.left_out.copy()
        is_finite = finite_rows(content).tolist()
        # With error feedback two updates of one client go one after the other: the second adds what the first left out.
        groups = ready_together(jobs) if self.up.error_feedback else [list(range(len(jobs)))]
        for group in groups:
            rows = [row for row in group if is_finite[row]]
            if not rows:
                continue
            clients, plain = [jobs[row].client for row in rows], updates[rows]
            if self.up.error_feedback:
                left_out.add_to(plain, clients)
            arrived = self.up.receive(plain, self._draws_at([(jobs[row].round, jobs[row].client) for row in rows]))
            updates[rows] = arrived
            if self.up.error_feedback:
                left_out.keep(clients, plain - arrived)
        # `updates` may be a copy of these columns.
        content[:, columns] = updates
        return left_out

    def _draws_at(self, addresses: Sequence[tuple[int, int]]) -> Generators:
        """Return the function that gives the random generator of each row, whose address is its entry of `addresses`."""
        return lambda row: self._streams.generator("update-compression", *addresses[row])

    def compress(self, models: Tensor, addresses: Sequence[tuple[int, int]]) -> Tensor:
        """Return `models` (n, d), all finite, in the form in which they arrive; row k draws at `addresses[k]`."""
        columns, arrived = self._trainer.layout.columns, models.clone()
        arrived[:, columns] = self.up.receive(models[:, columns], self._draws_at(addresses))
        return arrived

    def keep(self, computed: ComputedUpdates) -> None:
        """Commit updates that have entered the model: clients go on from the states in `computed`, and results are released.

        What was trained ahead of these updates is dropped from `_ahead` and `_arrived`; both must lose the same keys.
        """
        for key, result in computed.results.items():
            self.counted = self.counted.plus(result)
            self._ahead.pop(key, None)
            self._arrived.discard(key)
        self.memory, self.left_out = computed.memory, computed.left_out
        if self.losses is not None and computed.losses is not None:
            self.losses.merge(computed.losses)

    @property
    def description_of_reports(self) -> str | None:
        """A description of the losses reported with updates, or None if they are those of training."""
        if self._probing is None:
            return None
        return "updates report the loss at the received model over all samples: a pass before training"

    def state_dict(self) -> State:
        """Return what clients keep (states, numbers left out, corrections), losses, and results trained ahead of delivery."""
        return {
            "memory": self.memory.state_dict(),
            "left_out": self.left_out.state_dict(),
            "corrections": self.corrections.state_dict(),
            "losses": {} if self.losses is None else self.losses.state_dict(),
            "counted": list(self.counted),
            "ahead": [[client, round, *result.plain()] for (client, round), result in self._ahead.items()],
            "arrived": sorted([client, round] for client, round in self._arrived),
        }

    def load_state_dict(self, state: State, device: torch.device) -> None:
        """Restore what `state_dict` returned, with tensors on `device`, and drop all promises of the executor."""
        self.executor.forget_all()
        self.memory.load_state_dict(state["memory"], device)
        self.left_out.load_state_dict(state["left_out"], device)
        self.corrections.load_state_dict(state["corrections"], device)
        self.counted = SampleCounts(*map(int, state["counted"]))
        self._ahead = {
            (int(client), int(round)): Result.from_plain(saved, device) for client, round, *saved in state["ahead"]
        }
        self._arrived = {(int(client), int(round)) for client, round in state["arrived"]}
        if self.losses is not None:
            self.losses.load_state_dict(state["losses"])

    def _train_from_memory(
        self,
        memory: ClientMemory,
        results: dict[tuple[int, int], Result],
        jobs: list[Job],
        batches: list[IntArray],
        starts: Tensor,
        *,
        measured: LossMeasures,
        shift: Tensor | None,
    ) -> Tensor:
        """Return the trained models (n, d) of `jobs` of clients that keep states from one job to the next.

        `memory` is changed in place to the states after the jobs, and `starts` gets the clients' own running statistics. Jobs of
        one client are trained one after the other, each from the states that the one before it left.
        """
        first = measured.first
        trained, width = torch.empty_like(starts), self._trainer.parameters
        for rows in ready_together(jobs):
            group = [jobs[row] for row in rows]
            clients, rounds = _addresses(group)
            # Indexing by a list copies: the statistics are written into `group_starts`, which goes back to `starts`.
            group_starts = starts[rows]
            memory.recall_statistics(clients, group_starts[:, width:])
            starts[rows] = group_starts
            trainable = group_starts[:, self._trainer.layout.columns]
            states = memory.recall_optimizers(clients, moments=self._trainer.moments, like=trainable)
            first_of_rows = None if first is None else first.fresh(rows)
            trained[rows] = self._train(
                memory,
                results,
                group,
                [batches[row] for row in rows],
                group_starts,
                states=states,
                measured=LossMeasures(measured.losses, first_of_rows),
                shift=None if shift is None else shift[rows],
            )
            if first is not None and first_of_rows is not None:
                first.merge(rows, first_of_rows)
            memory.keep(clients, rounds, trained[rows, width:], states)
            if memory.keeps_own and not self.eager:
                memory.keep_own(clients, rounds, [results[job.client, job.round].state for job in group])
        return trained

    def _train(
        self,
        memory: ClientMemory,
        results: dict[tuple[int, int], Result],
        jobs: list[Job],
        batches: list[IntArray],
        starts: Tensor,
        *,
        states: OptimizerStates | None,
        measured: LossMeasures,
        shift: Tensor | None,
    ) -> Tensor:
        """Return the rows (n, d) after training: job k starts from the row `starts[k]` and takes the steps of `batches[k]`.

        `results`: dictionary that receives the results of a user's trainer, by client and round. `states`: optimizer states,
        changed in place; None: no client has one. `measured`: measures to which losses are added. `shift`: term (n, trained
        columns) added to every gradient, or None.
        """
        if self._own is not None:
            own = self._own_results(memory, jobs, batches, starts)
            results |= {(job.client, job.round): result for job, result in zip(jobs, own, strict=True)}
            return self._own.rows(own, *measured)
        return self.executor.train(self._training_request(jobs, batches), starts, states, measured, shift)

    def _training_request(self, jobs: list[Job], batches: list[IntArray]) -> TrainingRequest:
        """Return the training input of `jobs`, with their batches and seeds."""
        # A network whose copies are trained at once draws no random numbers.
        seeds = []
        if not self._trainer.vectorised:
            seeds = [self._streams.integer_seed("network-draws", job.round, job.client) for job in jobs]
        moves = None
        if self._augment:
            moves = [self._moves(job, len(steps)) for job, steps in zip(jobs, batches, strict=True)]
        return TrainingRequest(jobs=jobs, batches=batches, seeds=seeds, moves=moves)

    def promise(self, updates: list[Update], models: Models) -> None:
        """Let the executor train `updates`, which have begun, before they are needed, if their results cannot change until then.

        The vectors that correct gradients may change, so a method with such vectors trains when results are needed.
        """
        if not self.executor.ahead or self.corrections.keeps:
            return
        width = self._trainer.parameters
        for update, job in zip(updates, self._jobs(updates), strict=True):
            start, batches = self.receive(update.start, models)[None], self._batches([update])
            states = None
            if self.memory.keeps:
                # The client's own statistics must not reach the stored model.
                start = start.clone()
                self.memory.recall_statistics([job.client], start[:, width:])
                like = start[:, self._trainer.layout.columns]
                states = self.memory.recall_optimizers([job.client], moments=self._trainer.moments, like=like)
            first = FirstPass(self._first_passes([update], batches), self._rms_measure) if self._passes_wanted else None
            self.executor.promise(self._training_request([job], batches), start, states, LossMeasures(self.losses, first))

    def local_steps(self, updates: list[Update]) -> LocalSteps:
        """Return the local steps that `updates` take. The optimizer must have a rate."""
        clients = np.array([update.client for update in updates], np.int64)
        requested = np.array([update.steps for update in updates], np.int64)
        steps = np.where(requested > 0, requested, self._work.drawn[clients])
        _, taken = self._work.amounts(clients, steps)
        return LocalSteps(
            taken=np.array(taken, np.int64),
            rate=self._optimizer.rate or 0.0,
            momentum=self._optimizer.momentum,
            proximal=self._proximal,
        )

    def _gradients(self, updates: list[Update], starts: Tensor) -> Tensor | None:
        """Return the gradient of each client's loss over all its samples at the received model, if the method requests it."""
        if not self._demands.gradient:
            return None
        return self._trainer.gradients(starts, [self._partition[update.client] for update in updates])

    def _received_moments(self, updates: list[Update], received: Mapping[ModelId, Tensor]) -> FirstPass | None:
        """Return the mean and rms losses of the received models on all samples of each client; None if losses of training are
        reported.
        """
        if self._probing is None:
            return None
        # The losses are of received models: no step of training belongs to them.
        losses = FirstPass(np.zeros(len(updates), np.int64))
        clients = np.array([update.client for update in updates])
        statistics = self.memory.statistics if self.local_statistics else None
        # One evaluation for all clients that received the same model.
        for start, model in received.items():
            rows = np.flatnonzero([update.start == start for update in updates])
            losses.mean[rows], losses.rms[rows] = self._probing.moments(model, clients[rows], 0, None, statistics)
        return losses

    def _first_passes(self, updates: list[Update], batches: list[IntArray]) -> IntArray:
        """Return the number of steps (n,) of each update's first pass over its client's samples."""
        counts = []
        for update, batch in zip(updates, batches, strict=True):
            # Number of samples processed by the end of each step; -1 fills short batches.
            processed = (batch >= 0).sum(1).cumsum()
            counts.append(np.count_nonzero(processed <= len(self._partition[update.client])))
        return np.array(counts, np.int64)

    def _batches(self, updates: list[Update]) -> list[IntArray]:
        """Return the samples (steps, batch size) of the local steps of each update."""
        clients = [update.client for update in updates]
        sizes, planned = self._work.batch_size[clients].tolist(), self._work.drawn[clients].tolist()
        # One generator that moves from address to address: to create one for each update would take five times as long.
        stream = self._streams["batches"]
        batches = []
        for update, size, planned_steps in zip(updates, sizes, planned, strict=True):
            generator = stream.generator(update.client << 64 | update.round)
            steps = planned_steps if update.steps == 0 else update.steps
            batches.append(draw_batches(self._partition[update.client], generator, batch_size=size, steps=steps))
        return batches

    def _moves(self, job: Job, steps: int) -> IntArray:
        """Return the crops and flips (steps, batch size, 3) of a job's samples."""
        generator = self._streams.generator("augmentation", job.round, job.client)
        return draw_moves(generator, steps=steps, batch_size=int(self._work.batch_size[job.client]))


def _check_options(options: TrainingOptions, trainer: LocalTrainer) -> None:
    """Raise ParameterError for an option that the data, the network or the optimizer leave without a meaning."""
    if options.augmentation == "crop-flip" and len(trainer.input_shape) != 3:
        raise ParameterError("augmentation", "crop-flip", f"needs images (C, H, W), the data are {trainer.input_shape}")
    if options.batch_statistics == "local" and not trainer.buffers:
        raise ParameterError("batch_statistics", "local", "the network keeps no running statistics; leave it out")
    if options.optimizer_state == "kept" and not trainer.moments:
        raise ParameterError("optimizer_state", "kept", "this optimizer has no state; leave it out")


def _recipe(task: Task, methods: Methods, options: TrainingOptions) -> BenchRecipe:
    """Return the recipe by which workers train."""
    return BenchRecipe(
        network=task.network,
        loss=task.loss,
        optimizer=methods.optimizer,
        options=options,
        pull=methods.aggregation.correction.pull,
        own=methods.own_trainer,
        own_key=methods.own_key,
    )


def _addresses(jobs: list[Job]) -> tuple[list[int], list[int]]:
    """Return the clients of `jobs`, and the rounds in which they began."""
    return [job.client for job in jobs], [job.round for job in jobs]


def work_of(plan: WorkPlan, options: TrainingOptions, data_sizes: IntArray, *, single: bool) -> Work:
    """Return the amount of work of an update of each client, by `plan`, and by `options` where `plan` has none.

    `data_sizes` (K,): samples of each client; `single`: batches of one sample are processed, too.
    """
    batch_size = options.batch_size if plan.batch_size is None else plan.batch_size
    return Work(
        data_sizes=data_sizes,
        clients=len(data_sizes),
        # A batch larger than every client's samples holds all samples anyway, and would only take memory.
        batch_size=np.minimum(batch_size, data_sizes.max()),
        epochs=options.epochs if plan.epochs is None else plan.epochs,
        steps=plan.steps,
        max_steps=options.max_steps,
        single=single,
    )
