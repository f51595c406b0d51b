"""A learner's options, once: their names, types, bounds, defaults and meaning. No torch: a scenario is read without it.

The tables `[learner]` and `[learner.data]` of a scenario are derived from these classes (`scenarios.schema.learning`): a field is
a key, the string below it says what the key means. The objects go as they are to what trains. They refuse values out of bounds,
with the name of the field.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from models.errors import ParameterError
from models.fl.bounds import Amount, Count, Decay, Positive, Threads, Whole, check_bounds

Table = Mapping[str, Any]
"""A component: its "kind", by name or a callable of the user's own, and its parameters."""


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """The data set and how much of it is used.

    Raises:
        ValueError: a value out of its bounds.
    """

    kind: str | Callable[[], Any] = "digits"
    """digits comes with scikit-learn; the others are read from the folder named by the environment variable NETSIM_DATA. Or
    "package.module:function" of your own, called without arguments, which returns four arrays: training inputs (samples,
    channels, ...), training labels 0, 1, .., test inputs and test labels."""
    samples: Count | None = None
    """Training samples kept; absent: all."""
    test_samples: Count | None = None
    """Test samples kept; absent: all."""
    validation_samples: Whole = 0
    """Training samples held back for the server; no client gets them."""
    unused_samples: Whole = 0
    """Training samples split off at random before any are kept, and used for nothing (PAUSE's authors: 10000)."""
    choice: Literal["random", "first"] = "random"
    """Which samples are kept where not all are: a seeded choice, or the first ones in the published order."""
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
    """How clients train, when the server aggregates and evaluates, and where this is computed.

    Raises:
        ValueError: a value out of its bounds, or two that exclude each other.
    """

    optimizer_state: Literal["fresh", "kept"] = "fresh"
    """kept: every client's optimizer goes on from the moments and the number of steps of its last participation that was
    delivered (PAUSE's authors); fresh: it starts again with every update."""
    trained: list[str] | None = None
    """Names of the parameters that are trained and sent, or patterns of names with * and ?; the others stay as the server's first
    model has them, at all clients. Absent: all."""
    batch_size: Amount = 20
    """Samples of a local step."""
    epochs: Count = 1
    """Local epochs of an update."""
    max_steps: Amount | None = None
    """Most local steps of an update; absent: as many as the epochs take."""
    proximal: Decay = 0.0
    """FedProx's mu: mu/2 times the squared distance from the model a client started from is added to its loss."""
    augmentation: Literal["none", "crop-flip"] = "none"
    """crop-flip: training images are padded by 4 pixels, cropped at random and flipped left to right in half of the cases."""
    batch_statistics: Literal["averaged", "local"] = "averaged"
    """Running statistics of batch normalisation: averaged with the updates, or kept by each client and never sent."""
    keep: Literal["latest", "best"] = "latest"
    """best: a new model whose test loss is not the lowest so far is dropped, and the present one stays (as SAFA's authors do)."""
    buffer: Count = 1
    """Deliveries wait until there are so many, and are then aggregated together."""
    client_state_bytes: Count = 8 * 2**30
    """Most memory for the vectors that clients keep from one participation to the next, each as long as an update: of compression
    with error feedback, of scaffold and feddyn, and of optimizers whose state is kept, each kind by itself. Only clients of which
    an update was delivered have one."""
    contribution_samples: Whole = 0
    """Validation samples held for each client, out of data.validation_samples, to measure marginal contributions; 0: none are."""
    evaluate_every_rounds: Count | None = None
    """Test-set accuracy after the first, the last and every n-th round; absent: every round, or as evaluate_every_s says."""
    evaluate_every_s: Positive | None = None
    """Test-set accuracy each time so many simulated seconds have passed, as the next round closes; and after first and last."""
    training_loss: bool = False
    """Record the training loss (column `training_loss` of rounds.parquet)."""
    client_losses: bool = False
    """Record the losses that each delivered update was trained with (columns `loss` and `loss_rms` of clients.parquet)."""
    reported_losses: Literal["training", "received"] = "training"
    """Which losses come with updates, for policies and columns. training: those of the first pass, of which only the first batch
    is at the model that was received; received: of that model on all of a client's samples, in a forward pass before training,
    which takes work.forward_share of the time of training on them."""
    reported_rms: Literal["all", "moving-average", "first-batch", "last-batch"] = "all"
    """Of which losses in training their root mean square is that comes with updates (oort, pisces, column `loss_rms`). all: of
    the first pass; moving-average: of its batches, the newest with weight 0.2 (Oort's code); first-batch: of the first batch
    (flame); last-batch: of the last batch of the whole training (FedScale)."""
    local_test_samples: Count | None = None
    """Test samples of each client's local test set, for opinions; absent: an equal share of the test set."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where training runs; auto: on a GPU if there is one."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """bfloat16: local training in mixed precision; parameters and evaluation stay float32."""
    threads: Threads | None = None
    """Threads of torch; absent: 1, so that runs side by side do not get in each other's way. On a CPU the same number gives the
    same tables byte for byte; another one may change trained weights in their last digits."""

    def __post_init__(self) -> None:
        check_bounds(self)
        if self.evaluate_every_s is not None and self.evaluate_every_rounds is not None:
            raise ParameterError("evaluate_every_s", self.evaluate_every_s, "give either this or evaluate_every_rounds")
        if self.reported_rms != "all" and self.reported_losses == "received":
            why = "is of losses in training, and reported_losses = 'received' asks for others; leave one of them out"
            raise ParameterError("reported_rms", self.reported_rms, why)


@dataclass(frozen=True, kw_only=True)
class LearnerComponents:
    """What a learner is made of: its data, and a table for each of its components."""

    data: DataOptions = DataOptions()
    """The samples."""
    partition: Table = field(default_factory=lambda: {"kind": "equal"})
    """Who holds which training samples. A function of your own, "package.module:function", is given `labels`, `clients` and
    `generator`, and returns the sample numbers of every client."""
    network: Table
    """What is trained."""
    loss: Literal["cross-entropy", "hinge", "squared-hinge"] | None = None
    """hinge and squared-hinge: one class against the rest. Absent: hinge for the svm, cross-entropy for every other network."""
    optimizer: Table
    """The clients' optimizer."""
    local_training: str | Callable[..., Any] | None = None
    """A function of your own that trains a client, "package.module:function", given parameters, data, the number of steps and a
    generator; it returns parameters, the number of samples and their losses. Absent: steps of the optimizer."""
    trainer: Table | None = None
    """A class of your own that trains clients: jobs in, updates out (docs/own-trainer.md). Absent: steps of the optimizer."""
    metrics: list[Any] = field(default_factory=list)
    """Functions of your own of the test samples' scores and classes, whose numbers go to evaluations.parquet."""
    aggregation: Table = field(default_factory=lambda: {"kind": "size"})
    """What weight each delivered update has."""
    staleness: Table = field(default_factory=lambda: {"kind": "none"})
    """What an update counts that started from an old version of the model; a factor of its weight."""
    server_optimizer: Table = field(default_factory=lambda: {"kind": "sgd"})
    """What the server makes of the aggregated step."""


@dataclass(frozen=True, kw_only=True)
class LearnerOptions(TrainingOptions, LearnerComponents):
    """All that `[learner]` says.

    Raises:
        ValueError: a value out of its bounds, or two that exclude each other.
    """
