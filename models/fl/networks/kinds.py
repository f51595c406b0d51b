"""Networks: modules for an input shape (C, H, W) and a number of classes.

Their parameters are drawn from a seed; torch's global generator stays unchanged.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal, Protocol, cast, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn import functional

from models.errors import ParameterError
from models.fl.networks.deep import cnn8, resnet18, torchvision_classifier
from models.fl.networks.initialisation import from_seed, seed_globally
from models.fl.networks.norms import AnyNorm, after_features, after_images, check_norm
from models.fl.training.losses import CrossEntropy, Hinge, Loss, SquaredHinge

Factory = Callable[..., nn.Module]
"""A class or function that returns a module from (B, *inputs) to scores (B, classes); `from_factory` names its arguments."""


@runtime_checkable
class HandStacked(Protocol):
    """Module that computes the gradients of n copies of itself faster than torch.func."""

    def stacked_gradients(
        self, parameters: Sequence[Tensor], gradients: Sequence[Tensor], x: Tensor, y: Tensor, weights: Tensor, loss: Loss
    ) -> Tensor:
        """Write into `gradients` the gradients of sum_b weights[k, b] loss(network_k(x[k, b]), y[k, b]) for each copy k.

        `parameters` and `gradients` are in the order of `Module.parameters()`, each (n, *shape); x (n, B, *input_shape), y and
        weights (n, B). Returns the scores (n, B, classes).
        """

    def scores(self, parameters: Sequence[Tensor], x: Tensor) -> Tensor:
        """Return the scores (B, classes) of x (B, *input_shape) with `parameters`, each (*shape), in place of the module's own.
        """


# Layers with fewer outputs are computed transposed: 784 to 10 takes 126 us for 5 clients and batches of 100, not 230.
_NARROW = 16
# Products of at most so many numbers a copy are computed side by side and then copied: 10 copies of 64x64 take 18 us, but 25 if
# they are computed in place. For larger ones in place is faster: 15 copies of 784x32 take 185 us, not 200.
_SMALL = 8192
# Gradient with respect to a ReLU's input (arguments: that of its output, the output, 0), without the search for the overload.
_THROUGH_RELU = torch.ops.aten.threshold_backward.default


class Dense(nn.Module):
    """Fully connected layers with ReLU between them; without hidden layers a linear classifier."""

    def __init__(self, *, features: int, hidden: Sequence[int], classes: int) -> None:
        super().__init__()
        widths = [features, *hidden, classes]
        self.layers = nn.ModuleList(nn.Linear(before, after) for before, after in itertools.pairwise(widths))

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores (B, classes) of samples x (B, *input_shape)."""
        return self.scores(list(self.parameters()), x)

    def scores(self, parameters: Sequence[Tensor], x: Tensor) -> Tensor:
        """Return the scores (B, classes) of x (B, *input_shape) with `parameters`: weight and bias of each layer in turn."""
        x = x.flatten(1)
        for i in range(0, len(parameters), 2):
            # ReLU stands between the layers: not before the first, nor after the last.
            x = functional.linear(x if i == 0 else torch.relu(x), parameters[i], parameters[i + 1])
        return x

    def stacked_gradients(
        self, parameters: Sequence[Tensor], gradients: Sequence[Tensor], x: Tensor, y: Tensor, weights: Tensor, loss: Loss
    ) -> Tensor:
        """Write the gradients of n copies of the network into `gradients`, as `HandStacked` says; return the scores.

        Backpropagation by hand: automatic differentiation costs as much as the small matrix products themselves. Place i holds
        the weight of layer i / 2, place i + 1 its bias.
        """
        inputs = [x.flatten(2)]  # of each layer, (n, B, features)
        last = len(parameters) - 2
        for i in range(0, last + 2, 2):
            scores = _layer(inputs[-1], parameters[i], parameters[i + 1])
            if i < last:
                inputs.append(torch.relu_(scores))
        # Gradient of the loss with respect to the outputs of layer i / 2, from the last layer down.
        slope = loss.slope(scores, y).mul_(weights.unsqueeze(-1))
        for i in range(last, -1, -2):
            layer_input = inputs[i // 2]
            if gradients[i].numel() <= _SMALL * len(x):
                gradients[i].copy_(torch.bmm(slope.transpose(1, 2), layer_input))
            else:
                torch.bmm(slope.transpose(1, 2), layer_input, out=gradients[i])
            torch.sum(slope, 1, out=gradients[i + 1])
            if i:
                slope = _THROUGH_RELU(torch.bmm(slope, parameters[i]), layer_input, 0.0)
        return scores


def _layer(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return the outputs (n, B, b) of n linear layers for x (n, B, a), with weights (n, b, a) and biases (n, b)."""
    if weight.shape[1] < _NARROW:
        return torch.baddbmm(bias.unsqueeze(2), weight, x.transpose(1, 2)).transpose(1, 2)
    return torch.baddbmm(bias.unsqueeze(1), x, weight.transpose(1, 2))


class Cnn(nn.Module):
    """Convolutions, `kernel` wide, then fully connected layers.

    Each convolution is followed by ReLU, 2x2 max-pooling (while the image is at least 4 wide) and `norm`, each hidden fully
    connected layer by ReLU and `norm`.
    """

    def __init__(
        self,
        *,
        input_shape: tuple[int, ...],
        channels: Sequence[int],
        hidden: Sequence[int],
        classes: int,
        padding: int,
        norm: AnyNorm,
        kernel: int = 3,
    ) -> None:
        super().__init__()
        before, height, width = input_shape
        layers: list[nn.Module] = []
        for after in channels:
            layers += [nn.Conv2d(before, after, kernel, padding=padding), nn.ReLU()]
            before, height, width = after, height - kernel + 1 + 2 * padding, width - kernel + 1 + 2 * padding
            if min(height, width) >= 4:
                layers.append(nn.MaxPool2d(2))
                height, width = height // 2, width // 2
            layers += after_images(norm, after)
        layers.append(nn.Flatten())
        features = before * height * width
        for after in hidden:
            layers += [nn.Linear(features, after), nn.ReLU(), *after_features(norm, after)]
            features = after
        self.layers = nn.Sequential(*layers, nn.Linear(features, classes))

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores (B, classes) of images x (B, C, H, W)."""
        return cast("Tensor", self.layers(x))


def _features(input_shape: tuple[int, ...]) -> int:
    """Return the number of numbers in a sample."""
    return math.prod(input_shape)


def _check_widths(name: str, widths: Sequence[int]) -> None:
    """Raise ParameterError unless every width is >= 1."""
    if any(width < 1 for width in widths):
        raise ParameterError(f"network.{name}", list(widths), "every width must be >= 1")


def linear(input_shape: tuple[int, ...], classes: int, *, seed: int) -> nn.Module:
    """Return a linear softmax classifier.

    Example:
        >>> linear((1, 8, 8), 10, seed=1).layers[0]
        Linear(in_features=64, out_features=10, bias=True)
    """
    return mlp(input_shape, classes, seed=seed, hidden=[])


def svm(input_shape: tuple[int, ...], classes: int, *, seed: int) -> nn.Module:
    """Return a linear multi-class SVM (for the hinge loss); its parameters start from zero for every seed.

    Example:
        >>> svm((1, 8, 8), 10, seed=1).layers[0]
        Linear(in_features=64, out_features=10, bias=True)
    """
    module = linear(input_shape, classes, seed=seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
    return module


def mlp(input_shape: tuple[int, ...], classes: int, *, seed: int, hidden: list[int]) -> nn.Module:
    """Return a fully connected network; `hidden` holds the widths of the hidden layers ([32, 16] in PAUSE's MNIST study).

    Example:
        >>> len(mlp((1, 28, 28), 10, seed=1, hidden=[32, 16]).layers)
        3
    """
    _check_widths("hidden", hidden)
    return from_seed(lambda: Dense(features=_features(input_shape), hidden=hidden, classes=classes), seed)


def cnn(
    input_shape: tuple[int, ...],
    classes: int,
    *,
    seed: int,
    channels: list[int] | None = None,
    hidden: int | list[int] = 64,
    padding: Literal[0, 1] = 1,
    norm: AnyNorm = "none",
    kernel: Literal[3, 5] = 3,
) -> nn.Module:
    """Return a network of convolutional layers and then fully connected ones (see `Cnn`).

    `channels`: widths of the convolutional layers; None: [32, 64, 64] for colour images, else [16, 32, 32]. `hidden`: widths of
    the hidden fully connected layers; a number for one layer. `padding`, `kernel`: pixels added on each side before a
    convolution, and its width. `norm`: normalisation after each layer. PAUSE's authors train channels [32, 64, 128], hidden
    [128, 64, 32], padding 0 and batch normalisation on CIFAR-10.

    Example:
        >>> cnn((1, 28, 28), 10, seed=1).layers[-1]
        Linear(in_features=64, out_features=10, bias=True)
    """
    widths = channels
    if widths is None:
        widths = [32, 64, 64] if input_shape[0] == 3 else [16, 32, 32]
    dense = [hidden] if isinstance(hidden, int) else hidden
    _check_widths("channels", widths)
    _check_widths("hidden", dense)
    if padding not in (0, 1):
        raise ParameterError("network.padding", padding, "must be 0 or 1")
    if kernel not in (3, 5):
        raise ParameterError("network.kernel", kernel, "must be 3 or 5")
    check_norm(norm, ("batch", "group", "none"))
    if len(input_shape) != 3:
        raise ParameterError("network.kind", "cnn", f"needs images (C, H, W), the data are {input_shape}")
    _check_room(input_shape, len(widths), padding, kernel)
    make = partial(
        Cnn,
        input_shape=input_shape,
        channels=widths,
        hidden=dense,
        classes=classes,
        padding=padding,
        norm=norm,
        kernel=kernel,
    )
    return from_seed(make, seed)


def _check_room(input_shape: tuple[int, ...], convolutions: int, padding: int, kernel: int) -> None:
    """Raise ParameterError if the convolutions leave nothing of the images."""
    # The same sizes as in `Cnn`: a convolution, then 2x2 max-pooling while the image is at least 4 wide.
    side = min(input_shape[1:])
    for done in range(convolutions):
        if side + 2 * padding < kernel:
            reason = (
                f"after {done} of {convolutions} convolutions images of {input_shape} are {side} wide, which leaves nothing; "
                "use padding = 1 or fewer channels"
            )
            raise ParameterError("network.padding", padding, reason)
        side = side - kernel + 1 + 2 * padding
        if side >= 4:
            side //= 2


NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "linear": linear,
    "svm": svm,
    "mlp": mlp,
    "cnn": cnn,
    "cnn8": cnn8,
    "resnet18": resnet18,
    "torchvision": torchvision_classifier,
}
LossName = Literal["cross-entropy", "hinge", "squared-hinge"]
LOSSES: dict[LossName, type[Loss]] = {"cross-entropy": CrossEntropy, "hinge": Hinge, "squared-hinge": SquaredHinge}


def from_factory(factory: Factory, input_shape: tuple[int, ...], classes: int, *, seed: int) -> nn.Module:
    """Return the module of a user's class or function.

    It receives, by name, those of these arguments that it has: `inputs` or `input_shape`, the shape of one sample; `classes` or
    `num_classes`, their number; `seed`, an integer. Layers draw their parameters from torch's global generator, which is seeded
    for the call and restored afterwards.

    Example:
        >>> from_factory(lambda inputs, classes: nn.Linear(inputs[0], classes), (4,), 3, seed=1)
        Linear(in_features=4, out_features=3, bias=True)
    """
    known = {"inputs": input_shape, "input_shape": input_shape, "classes": classes, "num_classes": classes, "seed": seed}
    arguments = {name: known[name] for name in inspect.signature(factory).parameters if name in known}
    with seed_globally(seed, torch.device("cpu")):
        return factory(**arguments)


def check_fit(module: nn.Module, input_shape: tuple[int, ...], classes: int) -> None:
    """Check that a network has parameters and maps samples of `input_shape` to one score a class.

    Raises:
        ParameterError: it has no parameters, fails on such samples, or returns scores of another shape.
    """
    if not any(parameter.numel() for parameter in module.parameters()):
        raise ParameterError("network", module, "it has no parameters: there is nothing to train or to send", shown="")
    was_training = module.training
    module.eval()
    try:
        with torch.no_grad():
            scores = module(torch.zeros(2, *input_shape))
    except Exception as error:  # a network may be the user's own, and fail in any way
        raise ParameterError("network", module, f"does not fit input of shape {input_shape} ({error})", shown="") from error
    finally:
        module.train(was_training)
    if not torch.is_tensor(scores):
        reason = f"returns {type(scores).__name__}; it must return a tensor of scores (samples, classes)"
        raise ParameterError("network", module, reason, shown="")
    shape = tuple(scores.shape)
    if shape != (2, classes):
        reason = f"returns scores of shape {shape} for 2 samples; the data have {classes} classes"
        raise ParameterError("network", module, reason, shown="")
