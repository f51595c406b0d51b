"""Layers of normalisation, by name."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

from torch import nn

from models.errors import ParameterError

Norm = Literal["batch", "group"]
AnyNorm = Literal["batch", "group", "none"]
_GROUP = 16
"""Channels of a group."""


def group_norm(channels: int) -> nn.Module:
    """Return group normalisation with 16 channels a group, or more where these do not divide `channels` into equal groups."""
    wanted_groups = max(1, channels // _GROUP)
    # The number of groups must divide the channels.
    return nn.GroupNorm(math.gcd(channels, wanted_groups), channels)


IMAGES: dict[str, Callable[[int], nn.Module]] = {"batch": nn.BatchNorm2d, "group": group_norm, "none": nn.Identity}
"""Functions that make the layer for images of so many channels, by name."""


def after_images(norm: AnyNorm, channels: int) -> list[nn.Module]:
    """Return a list of the layer that follows a convolution; an empty one for "none"."""
    return [] if norm == "none" else [IMAGES[norm](channels)]


def after_features(norm: AnyNorm, features: int) -> list[nn.Module]:
    """Return a list of the layer that follows a fully connected one; an empty one for "none"."""
    if norm == "none":
        return []
    return [nn.BatchNorm1d(features) if norm == "batch" else group_norm(features)]


def check_norm(norm: str, allowed: tuple[str, ...]) -> None:
    """Raise ParameterError for a name that is not `allowed`."""
    if norm not in allowed:
        raise ParameterError("network.norm", norm, f"must be one of {', '.join(allowed)}")
