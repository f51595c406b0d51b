"""Paths of data sets on disk, in torchvision's layout. No torch here: `netsim check` looks for the files without it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from models.errors import ParameterError
from models.fl.options.names import DataOptions

_IDX = ["train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"]
_FOLDERS: dict[str, tuple[str, list[str]]] = {
    "digits": ("", []),
    "mnist": ("MNIST/raw", _IDX),
    "fashion-mnist": ("FashionMNIST/raw", _IDX),
    "cifar-10": ("cifar-10-batches-py", [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch", "batches.meta"]),
    "cifar-100": ("cifar-100-python", ["train", "test", "meta"]),
}
DATASETS = tuple(_FOLDERS)
"""Names of the published data sets."""


class Sizes(NamedTuple):
    """Numbers of samples of a data set."""

    train: int
    test: int


class ImageShape(NamedTuple):
    """Shape of the images of a data set, which are square, and the number of its labels."""

    planes: int
    """Channels: 1 for grey images, 3 for colours."""
    side: int
    """Pixels."""
    labels: int


_SIZES = {
    "digits": Sizes(1437, 360),
    "mnist": Sizes(60_000, 10_000),
    "fashion-mnist": Sizes(60_000, 10_000),
    "cifar-10": Sizes(50_000, 10_000),
    "cifar-100": Sizes(50_000, 10_000),
}
_SHAPES = {
    "digits": ImageShape(1, 8, 10),
    "mnist": ImageShape(1, 28, 10),
    "fashion-mnist": ImageShape(1, 28, 10),
    "cifar-10": ImageShape(3, 32, 10),
    "cifar-100": ImageShape(3, 32, 100),
}


def published_shape(kind: str) -> ImageShape:
    """Return the shape of the images of a data set, and its number of labels."""
    require_known(kind)
    return _SHAPES[kind]


def require_known(kind: str) -> None:
    """Raise ParameterError unless `kind` is one of `DATASETS`."""
    if kind not in _FOLDERS:
        raise ParameterError("data.kind", kind, f"must be one of {', '.join(DATASETS)}")


def check_counts(data: DataOptions, name: str, *, train: int, test: int) -> int:
    """Return the number of training samples left for the clients of data set `name`, which has `train` and `test` samples.

    Raises:
        ParameterError: more samples are selected than there are.
    """
    if data.unused_samples >= train:
        raise ParameterError("data.unused_samples", data.unused_samples, f"must be in 0..{train - 1} ({name})")
    usable = train - data.unused_samples
    for key, count, total in (("samples", data.samples, usable), ("test_samples", data.test_samples, test)):
        if count is not None and count > total:
            raise ParameterError(f"data.{key}", count, f"must be in 1..{total} ({name})")
    selected = usable if data.samples is None else data.samples
    if data.validation_samples >= selected:
        raise ParameterError("data.validation_samples", data.validation_samples, f"must be in 0..{selected - 1}")
    return selected - data.validation_samples


def published_sizes(kind: str) -> Sizes:
    """Return the numbers of training and of test samples of a data set."""
    require_known(kind)
    return _SIZES[kind]


def data_paths(kind: str, root: Path) -> list[Path]:
    """Return the files of a data set under `root`; none for a data set of scikit-learn."""
    require_known(kind)
    folder, names = _FOLDERS[kind]
    return [root / folder / name for name in names]


def require_files(kind: str, root: Path) -> None:
    """Check that the files of a data set exist, without opening them.

    Raises:
        ParameterError: unknown data set, or missing files: names them and the variable NETSIM_DATA.
    """
    missing = [path for path in data_paths(kind, root) if not path.is_file()]
    if not missing:
        return
    if all(path.with_name(path.name + ".gz").is_file() for path in missing):
        remedy = f"unpack the .gz files in {missing[0].parent}"
    else:
        remedy = "set NETSIM_DATA to the folder that holds them, or download = true in the scenario where the network allows"
    raise ParameterError("data.kind", kind, f"missing {', '.join(str(path) for path in missing)}; {remedy}")
