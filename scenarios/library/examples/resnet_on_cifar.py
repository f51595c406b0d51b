"""Images of resnet_on_cifar.toml: CIFAR-10 where its files are, made images of the same shape elsewhere."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.errors import ParameterError
from models.fl.data.files import published_shape, require_files
from models.fl.data.own_data import StandInWarning
from scenarios.wiring.learning.training import data_folder

Arrays = tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]

TRAIN, TEST = 2000, 500
"""Samples of the made images."""


def images() -> Arrays:
    """Return training images, training labels, test images and test labels of CIFAR-10, which is never downloaded.

    Where it is not on the machine, made images take its place, with a warning.
    """
    try:
        require_files("cifar-10", data_folder())
    except ParameterError:
        text = f"CIFAR-10 is not in {data_folder()}: made images of its shape take its place; set NETSIM_DATA to its folder"
        warnings.warn(StandInWarning("learner.data.kind", f"{__name__}:images", text), stacklevel=2)
        return made_images()
    from models.fl.data.datasets import read_published

    *arrays, _ = read_published("cifar-10", data_folder(), download=False)
    train_x, train_y, test_x, test_y = arrays
    return train_x, train_y, test_x, test_y


def made_images() -> Arrays:
    """Return images of ten classes: the 8x8 pattern of a class, enlarged to 32x32, with noise; the same on every machine."""
    planes, side, classes = published_shape("cifar-10")
    # numpy promises that the stream of this generator never changes.
    generator = np.random.RandomState(7)
    patterns = generator.randint(64, 192, (classes, planes, 8, 8)).repeat(side // 8, 2).repeat(side // 8, 3)

    def part(count: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        labels = np.arange(count) % classes
        generator.shuffle(labels)
        noise = generator.randint(-64, 64, (count, planes, side, side))
        return (patterns[labels] + noise).astype(np.uint8), labels.astype(np.int64)

    return (*part(TRAIN), *part(TEST))
