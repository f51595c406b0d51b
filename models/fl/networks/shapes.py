"""Sizes of the tensors of networks by name, without torch: the sizes of messages are known before a network is built.

The networks are those of `kinds` and `deep`; a test checks that both are equal, name by name.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from models.fl.data.files import DATASETS, published_shape
from models.fl.networks.sub_models import moving_statistics, trained_tensors
from models.fl.options.names import DataOptions, Table


class MessageSizes(NamedTuple):
    """Sizes of the parts of a message, in numbers."""

    tensors: list[int]
    """Size of each trained tensor."""
    statistics: int
    """Running statistics of batch normalisation."""


@dataclass
class Shapes:
    """Sizes of the tensors of a network by their names, in the order of `named_parameters` and of the buffers of a module."""

    parameters: dict[str, int] = field(default_factory=dict)
    buffers: dict[str, int] = field(default_factory=dict)

    def message_sizes(self, trained: Sequence[str] | None, *, local: bool) -> MessageSizes:
        """Return the sizes of the parts of a message. Running statistics that are `local` are not sent.

        `trained`: patterns of the parameters that are trained and sent; None: all.

        Raises:
            ParameterError: a pattern names no parameter.
        """
        names, sizes = list(self.parameters), list(self.parameters.values())
        chosen = trained_tensors(names, trained)
        tensors = [sizes[place] for place in chosen]
        if local:
            return MessageSizes(tensors, statistics=0)
        trained_names = None if trained is None else [names[place] for place in chosen]
        moving = moving_statistics(list(self.buffers), trained_names)
        buffer_sizes = list(self.buffers.values())
        return MessageSizes(tensors, statistics=sum(buffer_sizes[place] for place in moving))

    def linear(self, name: str, before: int, after: int) -> None:
        """Add the tensors of a linear layer from `before` to `after` features."""
        self.parameters |= {f"{name}.weight": before * after, f"{name}.bias": after}

    def convolution(self, name: str, before: int, after: int, *, side: int = 3, bias: bool = True) -> None:
        """Add the tensors of a convolution of `side` x `side` from `before` to `after` channels."""
        self.parameters[f"{name}.weight"] = before * after * side**2
        if bias:
            self.parameters[f"{name}.bias"] = after

    def normalisation(self, name: str, kind: str, channels: int) -> None:
        """Add the tensors of a layer of normalisation, with running statistics for `kind` "batch"."""
        self.parameters |= {f"{name}.weight": channels, f"{name}.bias": channels}
        if kind == "batch":
            self.buffers |= {f"{name}.running_mean": channels, f"{name}.running_var": channels}


def shapes_of(network: Table, data: DataOptions) -> Shapes | None:
    """Return the sizes of a network's tensors, from its table alone; None if the network or its data are a user's own."""
    make = _NETWORKS.get(str(network["kind"]))
    if make is None or data.kind not in DATASETS:
        return None
    images = published_shape(str(data.kind))
    options = {key: value for key, value in network.items() if key != "kind" and value is not None}
    classes = 2 if data.labels == "parity" else images.labels
    return make(images.planes, images.side, classes, **options)


# The functions below name and size the tensors as the constructors of `kinds.py` and `deep.py` do, layer by layer. `planes` are
# the channels of an image, `side` its width; `place` is the number of the next layer in `nn.Sequential`.


def _mlp(planes: int, side: int, classes: int, *, hidden: Sequence[int] = ()) -> Shapes:
    """Return the tensors of `kinds.mlp`; must follow the constructor of `Dense` layer by layer."""
    shapes = Shapes()
    widths = [planes * side**2, *hidden, classes]
    for i, (before, after) in enumerate(itertools.pairwise(widths)):
        shapes.linear(f"layers.{i}", before, after)
    return shapes


def _cnn(
    planes: int,
    side: int,
    classes: int,
    *,
    channels: Sequence[int] | None = None,
    hidden: int | list[int] = 64,
    padding: int = 1,
    norm: str = "none",
    kernel: int = 3,
) -> Shapes:
    """Return the tensors of `kinds.cnn`; must follow its constructor layer by layer."""
    shapes, place, before = Shapes(), 0, planes
    defaults = (32, 64, 64) if planes == 3 else (16, 32, 32)
    for after in channels or defaults:
        shapes.convolution(f"layers.{place}", before, after, side=kernel)
        before, side, place = after, side - kernel + 1 + 2 * padding, place + 2  # the convolution and a ReLU
        if side >= 4:
            side, place = side // 2, place + 1  # max-pooling
        if norm != "none":
            shapes.normalisation(f"layers.{place}", norm, after)
            place += 1
    place += 1  # Flatten
    before *= side**2
    hidden_widths = [hidden] if isinstance(hidden, int) else hidden
    for after in hidden_widths:
        shapes.linear(f"layers.{place}", before, after)
        before, place = after, place + 2  # the linear layer and a ReLU
        if norm != "none":
            shapes.normalisation(f"layers.{place}", norm, after)
            place += 1
    shapes.linear(f"layers.{place}", before, classes)
    return shapes


def _cnn8(
    planes: int, side: int, classes: int, *, channels: Sequence[int] = (32, 32, 64, 64, 128, 128, 256, 256), norm: str = "group"
) -> Shapes:
    """Return the tensors of `deep.cnn8`; must follow its constructor layer by layer."""
    shapes, place, before = Shapes(), 0, planes
    for i, after in enumerate(channels):
        shapes.convolution(f"{place}", before, after, bias=norm == "none")
        if norm != "none":
            shapes.normalisation(f"{place + 1}", norm, after)
        before, place = after, place + 3  # the convolution, its normalisation or an identity, and a ReLU
        if i % 2 and side >= 4:
            side, place = side // 2, place + 1  # max-pooling after every second convolution
    shapes.linear(f"{place + 1}", before * side**2, classes)
    return shapes


def _resnet18(planes: int, side: int, classes: int, *, norm: str = "batch") -> Shapes:
    """Return the tensors of `deep.resnet18`; must follow its constructor layer by layer."""
    shapes, before = Shapes(), 64
    shapes.convolution("conv1", planes, before, bias=False)
    shapes.normalisation("bn1", norm, before)
    for stage, after in enumerate((64, 128, 256, 512), start=1):
        for block in range(2):
            name = f"layer{stage}.{block}"
            for i, inside in ((1, before), (2, after)):
                shapes.convolution(f"{name}.conv{i}", inside, after, bias=False)
                shapes.normalisation(f"{name}.bn{i}", norm, after)
            if before != after:
                shapes.convolution(f"{name}.downsample.0", before, after, side=1, bias=False)
                shapes.normalisation(f"{name}.downsample.1", norm, after)
            before = after
    shapes.linear("fc", before, classes)
    return shapes


_NETWORKS: dict[str, Callable[..., Shapes]] = {
    "linear": _mlp,
    "svm": _mlp,
    "mlp": _mlp,
    "cnn": _cnn,
    "cnn8": _cnn8,
    "resnet18": _resnet18,
}
