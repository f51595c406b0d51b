"""The tables of networks. Written out here, so that a scenario can be read without importing torch."""

from typing import Annotated, Literal

from pydantic import Field

from scenarios.registry.components import Component

Count = Annotated[int, Field(ge=1)]


class Network(Component):
    """Table of every network."""

    @property
    def batch_normalised(self) -> bool | None:
        """True if the network has layers of batch normalisation; None if only the built network shows that."""
        return False


class Linear(Network):
    """Linear softmax classifier."""

    kind: Literal["linear"] = "linear"


class Svm(Network):
    """Linear multi-class SVM, trained with the hinge loss."""

    kind: Literal["svm"] = "svm"


class Mlp(Network):
    """Fully connected layers with ReLU between them."""

    kind: Literal["mlp"] = "mlp"
    hidden: list[Count]
    """Widths of the hidden layers; [32, 16] is PAUSE's network for MNIST."""


class Cnn(Network):
    """Convolutions with ReLU and pooling, then fully connected layers. PAUSE's authors train channels = [32, 64, 128],
    hidden = [128, 64, 32], padding = 0, norm = "batch" on CIFAR-10."""

    kind: Literal["cnn"] = "cnn"
    channels: Annotated[list[Count], Field(min_length=1)] | None = None
    """Absent: [32, 64, 64] for colour images, [16, 32, 32] otherwise."""
    hidden: Count | list[Count] = 64
    """Width of the hidden fully connected layer, or a list of the widths of several."""
    padding: Literal[0, 1] = 1
    """Pixels that a convolution adds at each edge; 1 keeps the image's size where kernel = 3."""
    norm: Literal["batch", "group", "none"] = "none"
    """Normalisation after each pooling and each hidden layer's ReLU."""
    kernel: Literal[3, 5] = 3
    """Width of the convolutions, pixels."""

    @property
    def batch_normalised(self) -> bool:
        return self.norm == "batch"


class Cnn8(Network):
    """Eight 3x3 convolutions, pooling after every second, one dense layer (the channel study's network for CIFAR-10)."""

    kind: Literal["cnn8"] = "cnn8"
    channels: Annotated[list[Count], Field(min_length=8, max_length=8)] | None = None
    """Absent: [32, 32, 64, 64, 128, 128, 256, 256]; the paper does not say."""
    norm: Literal["batch", "group", "none"] = "group"
    """Batch or group normalisation after each convolution, or none; the paper does not say."""

    @property
    def batch_normalised(self) -> bool:
        return self.norm == "batch"


class Resnet18(Network):
    """torchvision's ResNet-18 with a 3x3 stem and no max-pooling, for 32x32 images."""

    kind: Literal["resnet18"] = "resnet18"
    norm: Literal["batch", "group"] = "batch"
    """Batch normalisation (see batch_statistics), or group normalisation in its place; the paper does not say."""

    @property
    def batch_normalised(self) -> bool:
        return self.norm == "batch"


class Torchvision(Network):
    """Any classifier of torchvision, for images of three channels; parameters are drawn as torchvision draws them."""

    kind: Literal["torchvision"] = "torchvision"
    name: str
    """Its name in torchvision.models, such as resnet18 (with its stem for large images), mobilenet_v3_small, vit_b_16."""
    classes: Count | None = None
    """Number of classes, which must be that of the data; absent: that of the data."""

    @property
    def batch_normalised(self) -> None:
        return None


class OwnNetwork(Network):
    """A class or function of your own that returns a torch module; docs/own-network-and-data.md lists its arguments."""

    @property
    def batch_normalised(self) -> None:
        return None


NETWORKS: dict[str, type[Component]] = {
    "linear": Linear,
    "svm": Svm,
    "mlp": Mlp,
    "cnn": Cnn,
    "cnn8": Cnn8,
    "resnet18": Resnet18,
    "torchvision": Torchvision,
}
