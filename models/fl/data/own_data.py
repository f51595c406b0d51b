"""Data of a user: a function that returns arrays, which are checked before use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.errors import ParameterError, ParameterWarning


class Arrays(NamedTuple):
    """Inputs and labels of a data set."""

    train_x: NDArray[Any]
    """(N, C, ...) training inputs."""
    train_y: NDArray[Any]
    """(N,) training labels."""
    test_x: NDArray[Any]
    """(M, C, ...) test inputs."""
    test_y: NDArray[Any]
    """(M,) test labels."""
    classes: int


Source = Callable[[], tuple[Any, Any, Any, Any]]
"""Function without arguments that returns train inputs, train labels, test inputs, test labels, as arrays or CPU tensors."""


class StandInWarning(ParameterWarning):
    """Warning by a function of a user's own data: it returns other data, because the right ones are missing."""


_PARTS = ("training inputs", "training labels", "test inputs", "test labels")


def place_of(function: Callable[..., Any]) -> str:
    """Return the "module:name" of a user's own function, or of the class of a callable object, for messages."""
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}:{named.__qualname__}"


def _make_error(name: str, reason: str) -> ParameterError:
    """Return the error about the user's function `name`."""
    return ParameterError("data.kind", name, reason)


def read_own(source: Source) -> Arrays:
    """Call `source` and return its arrays. Classes count from 0 to the largest label; bytes stay bytes, others become float32.

    Raises:
        ParameterError: the function fails, or returns anything else than the four arrays, with at least one sample and one
            channel, as many inputs as labels, test inputs of the training inputs' shape, finite inputs, and whole labels >= 0.
    """
    name = place_of(source)
    try:
        arrays: list[NDArray[Any]] = [np.asarray(part) for part in source()]
    except Exception as error:  # whatever the user's own code does
        raise _make_error(name, f"fails ({type(error).__name__}: {error})") from error
    if len(arrays) != len(_PARTS):
        raise _make_error(name, f"returned {len(arrays)} values; it must return {', '.join(_PARTS)}")
    train_x, train_y, test_x, test_y = arrays
    for kind, x, y in (("training", train_x, train_y), ("test", test_x, test_y)):
        if x.ndim < 2 or not x.size or x.dtype.kind not in "buif":
            shape = f"{x.dtype} of shape {x.shape}"
            raise _make_error(name, f"{kind} inputs: {shape}; must be numbers of shape (samples, channels, ...)")
        if x.dtype.kind == "f" and not np.isfinite(x).all():
            raise _make_error(name, f"{kind} inputs: some are not finite; replace them")
        if y.shape != x.shape[:1] or y.dtype.kind not in "ui" or y.min() < 0:
            raise _make_error(name, f"{kind} labels: {y.dtype} of shape {y.shape}; must be {len(x)} whole numbers >= 0")
    if test_x.shape[1:] != train_x.shape[1:]:
        raise _make_error(name, f"test inputs have shape {test_x.shape[1:]}, training inputs {train_x.shape[1:]}; must be alike")
    classes = 1 + int(max(train_y.max(), test_y.max()))
    both_bytes = train_x.dtype == np.uint8 and test_x.dtype == np.uint8
    if not both_bytes:
        train_x, test_x = train_x.astype(np.float32), test_x.astype(np.float32)
    return Arrays(
        train_x=train_x,
        train_y=train_y.astype(np.int64),
        test_x=test_x,
        test_y=test_y.astype(np.int64),
        classes=classes,
    )
