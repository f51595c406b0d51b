"""Options of a learner: names, types, bounds, defaults and meaning. No torch: a scenario is read without it.

The tables `[learner]` and `[learner.data]` of a scenario are derived from these classes (`scenarios.schema.learning`): a field
is a key, and the string below it is the key's description. The objects are passed to the trainer unchanged. They refuse values
out of bounds, with the name of the field.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from models.errors import ParameterError
from models.fl.options.bounds import Amount, Count, Decay, Positive, Threads, Whole, Workers, check_bounds

Table = Mapping[str, Any]
"""Table of a component: its "kind", a name or a user's own callable, and its parameters."""


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """Data set, and the samples of it that are used.

    Raises:
        ParameterError: a value out of its bounds.
    """

    kind: str | Callable[[], Any] = "digits"
    """Data set. digits comes with scikit-learn; the others are read from the folder named by the environment variable
    NETSIM_DATA. Or "package.module:function" of your own, called without arguments, which returns four arrays: training
    inputs (samples, channels, ...), training labels 0, 1, .., test inputs and test labels.
    """
    samples: Count | None = None
    """Training samples kept; absent: all."""
    test_samples: Count | None = None
    """Test samples kept; absent: all."""
    validation_samples: Whole = 0
    """Training samples held back for the server; no client gets them."""
    unused_samples: Whole = 0
    """Training samples removed at random before any are kept, and not used (PAUSE's authors: 10000)."""
    choice: Literal["random", "first"] = "random"
    """Choice of the kept samples: seeded, or the first ones in the published order."""
    scale: Literal["standard", "unit", "signed-unit", "raw"] = "standard"
    """standard: zero mean and unit variance per channel; unit: [0, 1]; signed-unit: [-1, 1], (x - 0.5)/0.5 of the former; raw:
    the stored numbers, 0..255 (digits: 0..16)."""
    labels: Literal["published", "parity"] = "published"
    """parity: two classes, even labels against odd ones; partitions and local tests still go by the published labels."""
    download: bool = False
    """Fetch the data set through torchvision if it is absent."""

    def __post_init__(self) -> None:
        check_bounds(self, "data.")


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """Options of local training, aggregation and evaluation, and of the device.

    Raises:
        ParameterError: a value out of its bounds, or two that exclude each other.
    """

    optimizer_state: Literal["fresh", "kept"] = "fresh"
    """kept: every client's optimizer continues from the moments and the number of steps of its last delivered participation
    (PAUSE's authors); fresh: it starts again with every update.
    """
    trained: list[str] | None = None
    """Names of the parameters that are trained and sent, or patterns of names with * and ?; at all clients the others stay as
    in the server's first model. Absent: all.
    """
    batch_size: Amount = 20
    """Samples of a local step."""
    epochs: Count = 1
    """Local epochs of an update."""
    max_steps: Amount | None = None
    """Largest number of local steps of an update; absent: those of the epochs."""
    proximal: Decay = 0.0
    """FedProx's mu: mu/2 times the squared distance from the model a client started from is added to its loss."""
    augmentation: Literal["none", "crop-flip"] = "none"
    """crop-flip: training images are padded by 4 pixels, cropped at random and flipped left to right in half of the cases."""
    batch_statistics: Literal["averaged", "local"] = "averaged"
    """Running statistics of batch normalisation: averaged with the updates, or kept by each client and never sent."""
    keep: Literal["latest", "best"] = "latest"
    """best: a new model is dropped unless its test loss is the lowest so far, and the present one stays (as SAFA's authors do).
    """
    buffer: Count = 1
    """Number of deliveries that are aggregated together; they wait until there are so many."""
    client_state_bytes: Count = 8 * 2**30
    """Largest memory for the vectors that clients keep between participations, each as long as an update: those of compression
    with error feedback, of scaffold and feddyn, and of optimizers whose state is kept, each kind by itself. Only clients
    that have delivered an update have one. Also of the models of peers that train without a server.
    """
    contribution_samples: Whole = 0
    """Validation samples held for each client, out of data.validation_samples, to measure marginal contributions; 0: none are."""
    evaluate_every_rounds: Count | None = None
    """Rounds between tests of accuracy, which also follow the first and the last round; absent: every round, or as by
    evaluate_every_s.
    """
    evaluate_every_s: Positive | None = None
    """Simulated seconds between tests of accuracy, made as the next round closes, and after the first and the last round."""
    training_loss: bool = False
    """Record the training loss (column `training_loss` of rounds.parquet)."""
    client_losses: bool = False
    """Record the losses of each delivered update in training (columns `loss` and `loss_rms` of clients.parquet)."""
    reported_losses: Literal["training", "received"] = "training"
    """Losses that are reported with updates, for policies and columns. training: those of the first pass, of which only the
    first batch is at the received model; received: of that model on all of a client's samples, in a forward pass before
    training, which takes work.forward_share of the time of training on them.
    """
    reported_rms: Literal["all", "moving-average", "first-batch", "last-batch"] = "all"
    """Losses in training whose root mean square is reported with updates (oort, pisces, column `loss_rms`). all: of the first
    pass; moving-average: of its batches, the newest with weight 0.2 (Oort's code); first-batch: of the first batch (flame);
    last-batch: of the last batch of the whole training (FedScale).
    """
    local_test_samples: Count | None = None
    """Test samples of each client's local test set, for opinions; absent: an equal share of the test set."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device of training; auto: a GPU if there is one."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """bfloat16: local training in mixed precision; parameters and evaluation stay float32."""
    threads: Threads | None = None
    """Threads of torch; absent: 1, so that parallel runs do not slow each other down. On a CPU the same number gives the same
    tables byte for byte; another one may change trained weights in their last digits.
    """

    workers: Workers = 0
    """Processes that train clients, each with `threads`; 0: the process of the run trains them itself. Tables are the same, byte
    for byte, whatever the number.
    """
    devices: list[str] | None = None
    """Devices of the workers, all of one kind, as in ["cuda:0", "cuda:1"] or ["cpu", "cpu"]: one worker each, or in turn where
    `workers` are more. Absent: that of `device`.
    """
    memory_bytes: Count | None = None
    """Largest memory for the models that a run keeps, and apart from these for vectors on their way to workers and back. What
    does not fit lies in a file on disk, in the folder of temporary files (TMPDIR), and is gone with the run. Absent: models stay
    in memory, and vectors on their way take at most half of what is free.
    """

    def __post_init__(self) -> None:
        check_bounds(self)
        if self.evaluate_every_s is not None and self.evaluate_every_rounds is not None:
            raise ParameterError("evaluate_every_s", self.evaluate_every_s, "give either this or evaluate_every_rounds")
        if self.reported_rms != "all" and self.reported_losses == "received":
            why = "selects losses in training, but reported_losses = 'received' selects others; leave one of them out"
            raise ParameterError("reported_rms", self.reported_rms, why)
        self._check_workers()

    def _check_workers(self) -> None:
        """Raise ParameterError if `devices` are not all of one kind, or do not fit `device` and `workers`."""
        devices = self.devices
        if devices is None:
            return
        kinds = {device.partition(":")[0] for device in devices}
        if not all(re.fullmatch(r"cpu|cuda(:\d{1,3})?", device) for device in devices) or len(kinds) != 1:
            raise ParameterError("devices", devices, 'must be a list of "cpu", or of "cuda", "cuda:0", "cuda:1", ..')
        if self.device not in ("auto", *kinds):
            raise ParameterError("devices", devices, f"must be of the kind of device = {self.device!r}; leave one of them out")
        if 0 < self.workers < len(devices):
            raise ParameterError("workers", self.workers, f"must be at least the {len(devices)} devices; leave it out")

    @property
    def own_device(self) -> str:
        """Device on which the process of the run itself computes; it is of the same kind as the workers' devices."""
        return self.device if self.devices is None else self.devices[0].partition(":")[0]

    @property
    def worker_devices(self) -> list[str]:
        """The device of each worker; empty without workers. Workers beyond the devices take them in turn."""
        if self.devices is None:
            return [self.device] * self.workers
        count = self.workers or len(self.devices)
        return [self.devices[worker % len(self.devices)] for worker in range(count)]


@dataclass(frozen=True, kw_only=True)
class LearnerComponents:
    """Parts of a learner: its data, and a table for each of its components."""

    data: DataOptions = DataOptions()
    """Samples."""
    partition: Table = field(default_factory=lambda: {"kind": "equal"})
    """Division of the training samples among the clients. A function of your own, "package.module:function", receives `labels`,
    `clients` and `generator`, and returns the sample numbers of every client.
    """
    network: Table
    """Network that is trained."""
    loss: Literal["cross-entropy", "hinge", "squared-hinge"] | None = None
    """hinge and squared-hinge: one class against the rest. Absent: hinge for the svm, cross-entropy for every other network."""
    optimizer: Table
    """Optimizer of the clients."""
    local_training: str | Callable[..., Any] | None = None
    """Function of your own that trains a client, "package.module:function". It receives parameters, data, the number of steps
    and a generator, and returns parameters, the number of samples and their losses. Absent: steps of the optimizer.
    """
    trainer: Table | None = None
    """Class of your own that trains clients: jobs in, updates out (docs/own-trainer.md). Absent: steps of the optimizer."""
    metrics: list[Any] = field(default_factory=list)
    """Functions of your own of the test samples' scores and classes, whose numbers go to evaluations.parquet."""
    aggregation: Table = field(default_factory=lambda: {"kind": "size"})
    """Weights of the delivered updates."""
    staleness: Table = field(default_factory=lambda: {"kind": "none"})
    """Factor of the weight of an update that started from an old version of the model."""
    server_optimizer: Table = field(default_factory=lambda: {"kind": "sgd"})
    """Rule that turns the aggregated step into a step of the model."""


@dataclass(frozen=True, kw_only=True)
class LearnerOptions(TrainingOptions, LearnerComponents):
    """All keys of `[learner]`.

    Raises:
        ParameterError: a value out of its bounds, or two that exclude each other.
    """
