"""Deeper networks for colour images, with a choice of normalisation.

The running statistics of batch normalisation differ between clients. `norm = "batch"` keeps it (the learner averages the
statistics, or leaves them with the clients: its `batch_statistics`), `norm = "group"` replaces it by group normalisation (Wu
and He 2018; for skewed clients Hsieh et al. 2020), which has none. The papers whose studies use these networks state neither
their normalisation nor the widths of the 8-layer network.
"""

from __future__ import annotations

import difflib
from typing import Any

import torch
from torch import nn

from models.errors import ParameterError
from models.fl.networks.initialisation import from_seed, seed_globally
from models.fl.networks.norms import IMAGES, AnyNorm, Norm, check_norm
from models.fl.networks.torchvision_compat import torchvision

_LAYERS = 8


def _check_image(kind: str, input_shape: tuple[int, ...], least: int) -> None:
    """Raise ParameterError unless the data are images of at least `least` x `least` pixels."""
    if len(input_shape) != 3 or min(input_shape[1:]) < least:
        reason = f"needs images (C, H, W) of at least {least}x{least}, the data are {input_shape}"
        raise ParameterError("network.kind", kind, reason)


def cnn8(
    input_shape: tuple[int, ...],
    classes: int,
    *,
    seed: int,
    channels: list[int] | None = None,
    norm: AnyNorm = "group",
) -> nn.Module:
    """Return a network of eight 3x3 convolutions and one dense layer.

    ReLU follows each convolution, 2x2 max-pooling every second one (while the image is at least 4 wide): the channel study's
    "eight-layer CNN with 3x3 convolutional layers" for CIFAR-10. `channels`: eight widths, default [32, 32, 64, 64, 128, 128,
    256, 256]; 1.2 million parameters at 3x32x32 and 10 classes.

    Example:
        >>> network = cnn8((3, 32, 32), 10, seed=1, norm="none")
        >>> network[-1]
        Linear(in_features=1024, out_features=10, bias=True)
    """
    widths = [32, 32, 64, 64, 128, 128, 256, 256] if channels is None else channels
    if len(widths) != _LAYERS or any(width < 1 for width in widths):
        raise ParameterError("network.channels", widths, f"must be {_LAYERS} widths, each >= 1")
    check_norm(norm, ("batch", "group", "none"))
    _check_image("cnn8", input_shape, 1)

    def make() -> nn.Module:
        """Return the module, with parameters that `from_seed` draws again."""
        before, height, width = input_shape
        layers: list[nn.Module] = []
        for number, after in enumerate(widths):
            # A layer of normalisation has a bias of its own.
            convolution = nn.Conv2d(before, after, 3, padding=1, bias=norm == "none")
            layers += [convolution, IMAGES[norm](after), nn.ReLU()]
            before = after
            is_second = number % 2 == 1
            if is_second and min(height, width) >= 4:
                layers.append(nn.MaxPool2d(2))
                height, width = height // 2, width // 2
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(before * height * width, classes))

    return from_seed(make, seed, convolutions="he")


def resnet18(input_shape: tuple[int, ...], classes: int, *, seed: int, norm: Norm = "batch") -> nn.Module:
    """Return torchvision's ResNet-18 for small images: it begins with a 3x3 convolution of stride 1, without max-pooling.

    The original begins with a 7x7 convolution of stride 2. 11.2 million parameters (the channel study's network for CIFAR-100).

    Example:
        >>> network = resnet18((3, 32, 32), 100, seed=1)
        >>> network.fc
        Linear(in_features=512, out_features=100, bias=True)
    """
    check_norm(norm, ("batch", "group"))
    _check_image("resnet18", input_shape, 8)

    def make() -> nn.Module:
        """Return the module, with parameters that `from_seed` draws again."""
        module: Any = torchvision("models").resnet18(num_classes=classes, norm_layer=IMAGES[norm])
        module.conv1 = nn.Conv2d(input_shape[0], 64, 3, padding=1, bias=False)
        module.maxpool = nn.Identity()
        network: nn.Module = module
        return network

    return from_seed(make, seed, convolutions="he")


def torchvision_classifier(input_shape: tuple[int, ...], classes: int, *, seed: int, name: str) -> nn.Module:
    """Return the classifier of this `name` that torchvision has ("resnet18", "vit_b_16", ..), without weights of its own.

    Parameters are drawn as torchvision draws them. Data are images of three channels, as large as the network needs.

    Example:
        >>> network = torchvision_classifier((3, 32, 32), 10, seed=1, name="squeezenet1_1")
        >>> network.num_classes
        10
    """
    models = torchvision("models")
    known = models.list_models(module=models)
    if name not in known:
        remedy = f"for instance {', '.join(known[:3])}"
        near = difflib.get_close_matches(name, known, 3)
        if near:
            remedy = f"did you mean {', '.join(map(repr, near))}?"
        raise ParameterError("network.name", name, f"is no classifier of torchvision; {remedy}")
    if len(input_shape) != 3 or input_shape[0] != 3:
        raise ParameterError("network.kind", "torchvision", f"needs images of 3 channels, the data are {input_shape}")
    # These two have further outputs in training, and weights that SciPy draws for minutes.
    options = {"aux_logits": False, "init_weights": False} if name in ("googlenet", "inception_v3") else {}
    with seed_globally(seed, torch.device("cpu")):
        network: nn.Module = models.get_model(name, weights=None, num_classes=classes, **options)
    return network
