"""The `[learner]` table. Its parts are written out here, so that a scenario can be read without importing torch."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from scenarios.parts import Part, Section, part_of

Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
Count = Annotated[int, Field(ge=1)]
DATA_SETS = ("digits", "mnist", "fashion-mnist", "cifar-10", "cifar-100")


class Data(Section):
    """The data set and how much of it is used."""

    kind: Literal["digits", "mnist", "fashion-mnist", "cifar-10", "cifar-100"] = "digits"
    """digits comes with scikit-learn; the others are read from the folder named by the environment variable NETSIM_DATA."""
    samples: Count | None = None
    """Training samples kept, a seeded choice; absent: all."""
    download: bool = False
    """Fetch the data set through torchvision if it is absent."""


class Linear(Part):
    """Linear softmax classifier."""

    kind: Literal["linear"] = "linear"


class Svm(Part):
    """Linear multi-class SVM, trained with the hinge loss."""

    kind: Literal["svm"] = "svm"


class Mlp(Part):
    """Fully connected layers with ReLU between them."""

    kind: Literal["mlp"] = "mlp"
    hidden: list[Count]
    """Widths of the hidden layers; [32, 16] is PAUSE's network for MNIST."""


class Cnn(Part):
    """3x3 convolutions with pooling, then two dense layers."""

    kind: Literal["cnn"] = "cnn"
    channels: Annotated[list[Count], Field(min_length=1)] | None = None
    """Absent: [32, 64, 64] for colour images, [16, 32, 32] otherwise."""
    hidden: Count = 64


class OwnNetwork(Part):
    """A callable of your own, "package.module:name", called with (input_shape, classes); it returns a torch module."""

    kind: str = Field(pattern=r"^[\w.]+:\w+$")


class Sgd(Part):
    """Stochastic gradient descent."""

    kind: Literal["sgd"] = "sgd"
    learning_rate: Positive
    momentum: Fraction = 0.0
    weight_decay: NonNegative = 0.0


class Adam(Part):
    """Adam (Kingma and Ba 2015), its moments fresh in every round."""

    kind: Literal["adam"] = "adam"
    learning_rate: Positive
    beta1: Fraction = 0.9
    beta2: Fraction = 0.999
    epsilon: Positive = 1e-8
    weight_decay: NonNegative = 0.0


NETWORKS: dict[str, type[Part]] = {"linear": Linear, "svm": Svm, "mlp": Mlp, "cnn": Cnn}
OPTIMIZERS: dict[str, type[Part]] = {"sgd": Sgd, "adam": Adam}


class Learner(Section):
    """What is trained, on what, and how. An update is computed when it is delivered; what nobody will use is never trained."""

    data: Data = Data()
    partition: part_of("partition") = {"kind": "equal"}  # type: ignore[valid-type]
    """Who holds which training samples."""
    network: part_of("network", described=NETWORKS, own=OwnNetwork)  # type: ignore[valid-type]
    optimizer: part_of("optimizer", described=OPTIMIZERS)  # type: ignore[valid-type]
    """The clients' optimizer."""
    loss: Literal["cross-entropy", "hinge"] | None = None
    """Absent: hinge for the svm, cross-entropy for every other network."""
    batch_size: Count = 20
    epochs: Count = 1
    """Local epochs of an update."""
    max_steps: Count | None = None
    """Most local steps of an update; absent: as many as the epochs take."""
    evaluate_every_rounds: Count = 1
    """Test-set accuracy after every n-th round and after the last."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: Count | None = None
    """Threads of torch; absent: 1, so that runs side by side do not get in each other's way."""


def plain(section: Any) -> dict[str, Any]:
    """A part as the dictionary that `models.fl` takes."""
    return {key: value for key, value in section.model_dump().items() if value is not None}
