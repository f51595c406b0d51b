"""Local training of all clients of a round in one computation.

The parameters of n copies of a network lie in one matrix (n, d), a row a client. A step computes all rows' gradients at once,
each on its own mini-batch, and updates the matrix. Clients are sorted by their number of steps, so that those still at work are
always the first rows: ragged step counts cost nothing and change nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from models.errors import ParameterError
from models.fl.data.augmentation import crop_flip
from models.fl.data.batches import stack_batches
from models.fl.networks.initialisation import seed_globally
from models.fl.networks.layout import Layout
from models.fl.options.names import TrainingOptions
from models.fl.protocols import Optimizer, Trainer
from models.fl.store.memory import is_out_of_memory, keep_freed_memory, release
from models.fl.training.client_memory import OptimizerStates
from models.fl.training.gradients import Gradients
from models.fl.training.local_steps import LocalSteps
from models.fl.training.losses import FirstPass, Loss, LossTally, StepLosses
from models.fl.training.own_training import OwnTraining

IntArray = NDArray[np.int64]

# Above this many numbers a sample, convolutions on a CPU are faster client by client than stacked (15 clients, batches of 20, one
# thread: stacked, 8x8x1 images take 0.4 to 0.5 times the sequential time, 28x28x1 images 1.1, 32x32x3 images 1.3 to 1.5 times).
_STACKED_CPU_INPUT = 512
# Numbers (parameters, gradients, moments) of the clients trained at once. On a CPU, training is faster if they fit into the
# cache (300 clients of the 784-32-16-10 network: 20 % slower all at once than 15 to 30 at a time); on a GPU, with as many as
# fit.
_CHUNK_BYTES = {"cpu": 8 * 2**20, "cuda": 4 * 2**30}


_BLOCK = 64
"""Number of samples whose gradient is computed at once, for gradients over all samples of a client."""


class LocalTrainer:
    """Trains copies of one network on mini-batches of one data set.

    A row of parameters holds `parameters` numbers in the order of `Module.parameters()` and then, as `buffers` further columns,
    the floating-point buffers (running statistics of batch normalisation), which change with local training; such a network skips
    batches of a single sample, which have no variance. Parameters that `options.trained` does not name keep the numbers that they
    start from, and so do the running statistics of layers of which no parameter is trained.
    `vectorised`: True if several clients are trained in one computation; `reason`: why not, or None.
    `options.proximal` is FedProx's mu (Li et al. 2020, eq. 2): every step's loss gets mu/2 |theta - theta_start|^2 added; `pull`
    is a further mu, of the method of aggregation.
    `options.precision` "bfloat16" computes forward and backward in mixed precision; parameters and moments stay float32.

    On a CPU the result is the same bit for bit at the same number of threads. At another number it agrees to rounding error:
    convolutions that are trained client by client then add up in another order (dense networks, and small images whose
    convolutions are stacked, came out the same at 1 and 2 threads). On CUDA sums may be taken in another order from run to run,
    and convolutions may use TF32: results agree to rounding error only, which training amplifies.
    """

    def __init__(
        self,
        *,
        network: nn.Module,
        loss: Loss,
        optimizer: Optimizer,
        x: Tensor,
        y: Tensor,
        options: TrainingOptions,
        pull: float = 0.0,
    ) -> None:
        keep_freed_memory()
        self._network = network
        self._loss = loss
        self._optimizer = optimizer
        self.moments = optimizer.moments
        """Numbers that the optimizer keeps for each parameter."""
        self._x, self._y = x, y
        self._proximal = options.proximal + pull
        self.notes: list[str] = []
        """Sentences for the user about events of training, once each."""
        self.layout = Layout(network, options.trained)
        self.parameters, self.buffers = self.layout.parameters, self.layout.buffers
        if not self.parameters:
            raise ParameterError("network", network, "it has no parameters: there is nothing to train or to send", shown="")
        self._convolves = any(isinstance(layer, nn.Conv2d) for layer in network.modules())
        self._gradients = Gradients(
            network=network,
            layout=self.layout,
            loss=loss,
            mixed_precision=options.precision == "bfloat16",
            channels_last=self._convolves and x.dim() == 4 and x.device.type == "cpu",
            device=x.device,
        )
        self._moving = self.layout.moves[self.parameters :].to(x.device)
        self.reason = self._why_sequential()
        self.vectorised = self.reason is None
        row_bytes = 4 * self.parameters * (2 + optimizer.moments)
        self._chunk = max(1, _CHUNK_BYTES[x.device.type] // row_bytes) if self.vectorised else 1

    @property
    def data(self) -> tuple[Tensor, Tensor]:
        """Inputs (N, ...) and classes (N,) of all training samples."""
        return self._x, self._y

    @property
    def stacked(self) -> int:
        """Largest number of clients that are trained in one computation."""
        return self._chunk

    def stacks(self, batches: Sequence[IntArray]) -> list[list[int]]:
        """Return the places of clients with these `batches` that are trained in one computation each, the longest first."""
        if self.skips_single:
            # Count only steps that are taken; -1 fills short batches.
            steps = [int(((batch >= 0).sum(1) > 1).sum()) for batch in batches]
        else:
            steps = [len(batch) for batch in batches]
        order = sorted(range(len(batches)), key=lambda k: -steps[k])
        return [order[first : first + self._chunk] for first in range(0, len(order), self._chunk)]

    @property
    def skips_single(self) -> bool:
        """True if batches of a single sample are left out: the network normalises over batches."""
        return bool(self.buffers or self.layout.normalisers)

    def own_training(self, trainer: Trainer, key: str) -> OwnTraining:
        """Return the training of this network on these data by a user's `trainer`, and mark this trainer as not vectorised.

        `key`: option of the scenario that named the user's trainer, "local_training" or "trainer". It decides the text of
        `reason`.
        """
        words = {"local_training": "local training is a function of your own", "trainer": "the trainer is your own"}
        self.reason, self.vectorised = words[key], False
        return OwnTraining(
            trainer=trainer,
            network=self._network,
            layout=self.layout,
            loss=self._loss,
            optimizer=self._optimizer,
            x=self._x,
            y=self._y,
        )

    @property
    def device(self) -> torch.device:
        """Device of the data, on which training runs."""
        return self._x.device

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return tuple(self._x.shape[1:])

    def samples(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return inputs (n, ...) and labels (n,) of the training samples of numbers `rows` (n,)."""
        return self._x.index_select(0, rows), self._y[rows]

    def initial(self) -> Tensor:
        """Return the network's present parameters and buffers as one row (d,)."""
        return self.layout.row(self._network).to(self._x.device)

    def scores(self, row: Tensor, x: Tensor, *, batch_statistics: bool = False) -> Tensor:
        """Return the scores (B, classes) of the network with the parameters of `row` (d,), in evaluation mode.

        `batch_statistics`: batch normalisation uses the statistics of `x` in place of the running ones in `row`, unless `x` is a
        single sample.
        """
        self._gradients.training(now=False)
        if batch_statistics and len(x) > 1:
            # Copy first: in training mode these layers overwrite running statistics, which must not reach the caller's row.
            row = row.clone()
            for layer in self.layout.normalisers:
                layer.train()
        tensors = [view[0] for view in self.layout.views(row.unsqueeze(0))]
        with torch.no_grad():
            return self._gradients.scores(tensors, x)

    def train(
        self,
        start: Tensor,
        batches: Sequence[IntArray],
        seeds: Sequence[int],
        moves: Sequence[IntArray] | None = None,
        states: OptimizerStates | None = None,
        tally: LossTally | None = None,
        first: FirstPass | None = None,
        shift: Tensor | None = None,
    ) -> Tensor:
        """Return the final rows (n, d) of n clients that start from the rows of `start` and take the steps of `batches`.

        `seeds`: one for each client, for networks that draw random numbers themselves (dropout); empty if `vectorised`. `moves`:
        crops and flips of each client's samples, (steps, batch_size, 3) each, from `augmentation.draw_moves`; None: none.
        `states`: optimizer states of the clients, changed in place by their steps; None: all start without memory. `tally`: adds
        up the losses of all samples, each before the step that uses it, without the proximal term. `first`: collects the losses
        of each client's first pass. Both use the scores from which the gradients are computed: there is no further forward pass.
        `shift` (n, trained columns): term added to every gradient.

        If the device cannot hold the training of several clients at once, half as many are trained at once from then on, and a
        note says so.

        Raises:
            MemoryError: the device cannot hold the training of a single client.
        """
        self._gradients.training(now=True)
        if self.skips_single:
            batches, moves = self._drop_single(batches, moves, first)
        steps = LocalSteps(batches=batches, moves=moves, states=states, tally=tally, first=first, shift=shift)
        out = start.clone()
        # Clients with the most steps first, as `stack_batches` requires.
        order = sorted(range(len(batches)), key=lambda k: -len(batches[k]))
        all_rows, done = list(range(len(batches))), 0
        # `_halve` may make the chunks smaller in between.
        while done < len(order):
            rows = order[done : done + self._chunk]
            # One chunk of all rows in their order needs no copy.
            in_place = rows == all_rows
            # `select` returns copies, which `keep` commits only after the chunk: a chunk that does not fit is repeated in
            # halves.
            chunk = steps.select(rows)
            draws: AbstractContextManager[None] = nullcontext()
            if not self.vectorised:
                # A network that is trained alone may draw from torch's global generators.
                draws = seed_globally(seeds[rows[0]], self._x.device)
            try:
                chunk_rows = out if in_place else out[rows]
                with draws:
                    trained, moments = self._train_chunk(chunk_rows, chunk)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                self._halve(len(rows), error)
                if in_place:
                    # Undo the steps taken so far.
                    out.copy_(start)
                continue
            if not in_place:
                out[rows] = trained
            steps.keep(rows, chunk, moments)
            done += len(rows)
        if not self.layout.all_move:
            # Running statistics of layers that are not trained keep their start.
            before, after = start[:, self.parameters :], out[:, self.parameters :]
            out[:, self.parameters :] = torch.where(self._moving, after, before)
        return out

    @staticmethod
    def _drop_single(
        batches: Sequence[IntArray], moves: Sequence[IntArray] | None, first: FirstPass | None
    ) -> tuple[list[IntArray], list[IntArray] | None]:
        """Return the steps of each client whose batches have more than one sample, and their moves; `first` skips other steps."""
        has_several = [(batch >= 0).sum(1) > 1 for batch in batches]
        if first is not None:
            first.skip(has_several)
        batches_of_several = [batch[several] for batch, several in zip(batches, has_several, strict=True)]
        if moves is None:
            return batches_of_several, None
        return batches_of_several, [move[several] for move, several in zip(moves, has_several, strict=True)]

    def _halve(self, clients: int, error: Exception) -> None:
        """Train half as many clients at once from now on, because the device could not hold this number; note it.

        Raises:
            MemoryError: it was a single client.
        """
        release(self.device)
        if clients == 1:
            raise MemoryError(
                f"device = {self._x.device.type!r}: out of memory while training a single client; "
                "use a smaller batch_size or network, or device = 'cpu'"
            ) from error
        self._chunk = clients // 2
        self.note(f"out of memory while training {clients} clients at once: from then on {self._chunk} at once")

    def note(self, text: str) -> None:
        """Add `text` to `notes`, once."""
        if text not in self.notes:
            self.notes.append(text)

    def _train_chunk(self, rows: Tensor, local: LocalSteps) -> tuple[Tensor, list[Tensor]]:
        """Return the rows (n, d) of a few clients, changed in place by their steps, and the final moments of their optimizers."""
        step_counts, chosen, weights, full, shifts = stack_batches(local.batches, local.moves, rows.device)
        taken_before, shift = local.taken, local.shift
        theta, gradient = rows[:, : self.parameters], torch.zeros_like(rows)
        columns = self.layout.columns
        copies = not isinstance(columns, slice)
        """True if indexing by `columns` gives copies, not views."""
        # Only FedProx's term reads the start of the training.
        anchor = theta[:, columns].clone() if self._proximal else theta
        if local.states is None:
            moments = [torch.zeros_like(theta[:, columns]) for _ in range(self._optimizer.moments)]
        else:
            moments = local.states.moments
        compute = self._gradients.gradients_of_copies if self.vectorised else self._gradients.gradients_of_single
        # Clients with the most steps come first, so those still at work are always the first `active` rows.
        active, active_at_step = 0, (step_counts > np.arange(len(chosen))[:, None]).sum(1).tolist()
        each_step = zip(chosen.unbind(), self._y[chosen].unbind(), weights.unbind(), strict=True)
        losses = StepLosses(self._loss, local.tally, local.first, stacked=self.vectorised)
        # Allocate buffers once: memory allocated in every step is mapped again, page by page, which takes longer than filling
        # it.
        sample_shape, batch_size = self.input_shape, chosen.shape[2]
        buffer = self._x.new_empty((chosen[:1].numel(), *sample_shape))
        with torch.no_grad():
            for step, (index, y, weight) in enumerate(each_step):
                if active_at_step[step] != active:
                    # Some clients have taken their last step: narrow all views to the others.
                    active = active_at_step[step]
                    active_theta, active_gradient = theta[:active], gradient[:active]
                    views, slots = self.layout.views(rows[:active]), self.layout.views(gradient[:active])[: self.layout.count]
                    active_moments = [moment[:active] for moment in moments]
                    trained, slope = active_theta[:, columns], active_gradient[:, columns]
                    # One buffer in two shapes: (active * batch, ...) and (active, batch, ...).
                    samples = buffer[: active * batch_size]
                    x_of_clients = samples.view(active, batch_size, *sample_shape)
                if active < len(rows):
                    index, y, weight = index[:active], y[:active], weight[:active]
                torch.index_select(self._x, 0, index.flatten(), out=samples)
                x = x_of_clients
                if shifts is not None:
                    x = crop_flip(samples, shifts[step, :active].flatten(0, 1)).reshape(x_of_clients.shape)
                scores = compute(views, slots, x, y, weight)
                losses.note(step, scores, y, weight, full=full[step])
                if copies:
                    # Views follow `rows` and `gradient` by themselves; copies are made again.
                    trained, slope = active_theta[:, columns], active_gradient[:, columns]
                if self._proximal:
                    slope.add_(trained - anchor[:active], alpha=self._proximal)
                if shift is not None:
                    slope.add_(shift[:active])
                self._optimizer.step(trained, slope, active_moments, taken_before[:active] + step + 1)
                if copies:
                    theta[:active, columns] = trained
            losses.finish()
        return rows, moments

    def gradients(self, start: Tensor, samples: Sequence[IntArray]) -> Tensor:
        """Return the gradients (n, trained columns) of the mean losses of n clients on all their `samples`, at the rows of
        `start`.

        Networks are in evaluation mode: running statistics are used unchanged, and nothing is drawn.
        """
        self._gradients.training(now=False)
        columns, out = self.layout.columns, []
        for first in range(0, len(samples), self._chunk):
            rows, chunk = start[first : first + self._chunk], samples[first : first + self._chunk]
            # The client with the most samples first, as `stack_batches` requires.
            order = np.argsort([-len(shard) for shard in chunk], kind="stable")
            shards = [chunk[k] for k in order]
            rows, total = rows[torch.from_numpy(order)], torch.zeros_like(rows)
            # Fill the last block of each client with -1, no sample.
            blocks = [np.pad(shard, (0, -len(shard) % _BLOCK), constant_values=-1).reshape(-1, _BLOCK) for shard in shards]
            block_counts, chosen, weights, *_ = stack_batches(blocks, None, rows.device)
            compute = self._gradients.gradients_of_copies if self.vectorised else self._gradients.gradients_of_single
            with torch.no_grad():
                for block in range(len(chosen)):
                    # The first `active` clients have a block of this number.
                    active, of_block = int((block_counts > block).sum()), torch.zeros_like(rows)
                    views = self.layout.views(rows[:active])
                    slots = self.layout.views(of_block[:active])[: self.layout.count]
                    x, y, weight = self._x[chosen[block, :active]], self._y[chosen[block, :active]], weights[block, :active]
                    compute(views, slots, x, y, weight)
                    # A block gives the gradient of its mean loss, so it is weighted by its number of samples.
                    sizes = torch.tensor([len(shard) for shard in shards[:active]], device=rows.device)
                    shares = (weight > 0).sum(1) / sizes
                    total[:active] += of_block[:active] * shares[:, None]
            # Back to the order of `samples`.
            out.append(total[torch.from_numpy(np.argsort(order))][:, columns])
        return torch.cat(out)

    def _why_sequential(self) -> str | None:
        """Return the reason why clients must be trained one by one; None if they can be stacked."""
        if self._gradients.by_hand is not None:
            return None
        if any(True for _ in self._network.buffers()):
            return "the network keeps running statistics"
        if self.layout.normalisers:
            # Samples that fill up short batches would enter the statistics.
            return "batch normalisation mixes the samples of a batch"
        if self._convolves and self._x.device.type == "cpu" and self._x[0].numel() > _STACKED_CPU_INPUT:
            return "convolutions of large images are faster client by client on a CPU"
        row = self.initial()
        views = self.layout.views(torch.stack([row, row]))
        self._network.train()
        try:
            with torch.no_grad(), self._gradients.autocast():
                self._gradients.scores_of_copies(views, self._x[:1].expand(2, 2, *self._x.shape[1:]))
        except torch.OutOfMemoryError:
            raise  # not caused by the network
        except (RuntimeError, ValueError, NotImplementedError) as error:
            # torch.func raises RuntimeError for an operation without a rule. Networks that do not fit the data were refused
            # when built, by a plain forward pass.
            first_line = str(error).splitlines()[0] if str(error) else type(error).__name__
            return f"torch.func cannot stack the network ({first_line})"
        return None
