"""Data sets as tensors.

scikit-learn's digits; through torchvision MNIST, Fashion-MNIST, CIFAR-10 and CIFAR-100; or a user's own arrays.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.errors import ParameterError
from models.fl.data.files import check_counts, data_paths, require_files, require_known
from models.fl.data.own_data import Arrays, Source, place_of, read_own
from models.fl.networks.torchvision_compat import torchvision
from models.fl.options.names import DataOptions

_TORCHVISION = {"mnist": "MNIST", "fashion-mnist": "FashionMNIST", "cifar-10": "CIFAR10", "cifar-100": "CIFAR100"}
# torchvision publishes checksums of the packed files only; these belong to the contents of the packed MNIST files.
_UNPACKED_MD5 = {
    "mnist": {
        "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
        "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
        "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
        "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
    }
}


@dataclass(frozen=True, slots=True)
class Dataset:
    """Images as float32 (N, C, H, W), labels as int64 (N,) in 0..labels-1.

    The validation set is taken from the training samples and is empty by default. The class of a label is learned: `class_of`
    (labels,) in 0..classes-1; None: the label itself. Partitions use labels.
    """

    name: str
    classes: int
    # Inputs x and labels y of the three parts.
    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor
    validation_x: Tensor
    validation_y: Tensor
    class_of: Tensor | None = None

    @property
    def labels(self) -> int:
        """Number of labels; at least `classes`."""
        return self.classes if self.class_of is None else len(self.class_of)

    def targets(self, labels: Tensor) -> Tensor:
        """Return the classes of `labels`, of the same shape."""
        return labels if self.class_of is None else self.class_of.to(labels.device)[labels]

    @property
    def input_shape(self) -> tuple[int, ...]:
        """(C, H, W) of one sample."""
        return tuple(self.train_x.shape[1:])


def _digest(data: bytes) -> str:
    """Return the MD5 checksum of `data`."""
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def _read_idx_file(kind: str, path: Path, packed_md5: str) -> NDArray[np.uint8]:
    """Return the array in an idx file of the data set `kind`: images (N, 28, 28) or labels (N,).

    The length of the file is compared with its header. Its content is compared with a known checksum, or else with the packed
    file (`.gz`) beside it, of which `packed_md5` is the checksum; without either the content is not checked. The files are read
    here, because torchvision would read the folder "processed" of its old versions instead, for which there are no checksums.

    Raises:
        ParameterError: the file is damaged.
    """
    data = path.read_bytes()
    sample_shape = [28, 28] if "images" in path.name else []
    # The header: a magic number with the number of axes, then the length of each axis.
    start = 4 + 4 * (1 + len(sample_shape))
    # 8: the numbers are bytes.
    has_header = data[:4] == bytes([0, 0, 8, 1 + len(sample_shape)]) and len(data) >= start
    shape = np.frombuffer(data[4:start], ">u4").tolist() if has_header else []
    if not has_header or shape[1:] != sample_shape or len(data) != start + math.prod(shape):
        raise ParameterError("data.kind", kind, f"{path} is truncated or no idx file; get it again")
    known_md5 = _UNPACKED_MD5.get(kind, {}).get(path.name)
    packed = path.with_name(path.name + ".gz")
    is_intact = True
    if known_md5 is not None:
        is_intact = _digest(data) == known_md5
    elif packed.is_file():
        content = packed.read_bytes()
        is_intact = _digest(content) == packed_md5 and gzip.decompress(content) == data
    if not is_intact:
        raise ParameterError("data.kind", kind, f"{path} has a wrong checksum; get it again")
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def _read_idx(kind: str, root: Path, dataset_class: Any) -> Arrays:
    """Return the images and labels of a data set in idx files; raises ParameterError for damaged ones.

    `dataset_class`: the class of torchvision, which has the checksums of the packed files.
    """
    packed_md5 = {name.removesuffix(".gz"): md5 for name, md5 in dataset_class.resources}
    paths = data_paths(kind, root)
    train_x, train_y, test_x, test_y = (_read_idx_file(kind, path, packed_md5[path.name]) for path in paths)
    for x, y, path in ((train_x, train_y, paths[1]), (test_x, test_y, paths[3])):
        if len(x) != len(y) or y.max(initial=0) > 9:
            problem = f"{path} holds {len(y)} labels, up to {y.max(initial=0)}, of {len(x)} images in 10 classes"
            raise ParameterError("data.kind", kind, f"{problem}; get it again")
    # Images get an axis of one channel.
    return Arrays(
        train_x=train_x[:, None],
        train_y=train_y.astype(np.int64),
        test_x=test_x[:, None],
        test_y=test_y.astype(np.int64),
        classes=len(dataset_class.classes),
    )


def _check_checksums(kind: str, root: Path, dataset_class: Any) -> None:
    """Raise ParameterError if a file does not have the MD5 checksum that torchvision states; call it before unpickling."""
    meta = dataset_class.meta
    # The lists of torchvision hold (file name, checksum).
    md5_of = dict([*dataset_class.train_list, *dataset_class.test_list, (meta["filename"], meta["md5"])])
    for path in data_paths(kind, root):
        if _digest(path.read_bytes()) != md5_of[path.name]:
            raise ParameterError("data.kind", kind, f"{path} has a wrong checksum; get it again")


def _read_digits() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return images (1797, 1, 8, 8) and labels (1797,) of scikit-learn's digits, from the file in its package.

    `sklearn.datasets.load_digits` reads the same file, but imports estimators first, which takes as long as importing torch.
    """
    path = None
    spec = importlib.util.find_spec("sklearn")
    if spec is not None and spec.origin:
        path = Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz"
    if path is None or not path.is_file():
        raise ParameterError("data.kind", "digits", "is a file of scikit-learn's, which is not there; install scikit-learn again")
    with gzip.open(path, "rt", encoding="ascii") as lines:
        table = np.loadtxt(lines, np.int64, delimiter=",")
    if table.shape != (1797, 65):
        raise ParameterError("data.kind", "digits", f"{path} has the shape {table.shape}; must be (1797, 65)")
    # A line holds the 64 pixels of an image, then its label.
    return table[:, :-1].astype(np.uint8).reshape(-1, 1, 8, 8), table[:, -1].copy()


@lru_cache(maxsize=2)
def _read_once(kind: str, root: Path, download: bool, stamps: tuple[tuple[int, int], ...]) -> Arrays:
    """Return the arrays of `read_published`, read once for all runs of a process, and locked against changes.

    `stamps`: times and lengths of the files. They are part of the cache key only: changed files are read again.
    """
    published = read_published(kind, root, download)
    for array in (published.train_x, published.train_y, published.test_x, published.test_y):
        array.flags.writeable = False
    return published


def _stamps(kind: str, root: Path) -> tuple[tuple[int, int], ...]:
    """Return time of change and length of the existing files of a data set."""
    states = [path.stat() for path in data_paths(kind, root) if path.is_file()]
    return tuple((state.st_mtime_ns, state.st_size) for state in states)


def read_published(kind: str, root: Path, download: bool) -> Arrays:
    """Return the images (N, C, H, W), as bytes, and the labels of a published data set.

    Raises:
        ParameterError: files are missing, truncated or altered.
    """
    if kind == "digits":
        digits, labels = _read_digits()
        # The file is ordered by writer: every fifth image makes a test set of all writers.
        is_test = np.arange(len(digits)) % 5 == 0
        return Arrays(
            train_x=digits[~is_test], train_y=labels[~is_test], test_x=digits[is_test], test_y=labels[is_test], classes=10
        )
    if not download:
        # Before the import of torchvision, which takes seconds.
        require_files(kind, root)
    dataset_class = getattr(torchvision("datasets"), _TORCHVISION[kind])
    if download:
        try:
            dataset_class(str(root), train=True, download=True)
        except (OSError, RuntimeError) as error:
            raise ParameterError("data.download", True, f"{kind} could not be downloaded to {root} ({error})") from error
        require_files(kind, root)
    if kind in ("mnist", "fashion-mnist"):
        return _read_idx(kind, root, dataset_class)
    _check_checksums(kind, root, dataset_class)
    train = dataset_class(str(root), train=True, download=False)
    test = dataset_class(str(root), train=False, download=False)
    # The images of torchvision have their channels last.
    return Arrays(
        train_x=np.asarray(train.data).transpose(0, 3, 1, 2),
        train_y=np.asarray(train.targets, dtype=np.int64),
        test_x=np.asarray(test.data).transpose(0, 3, 1, 2),
        test_y=np.asarray(test.targets, dtype=np.int64),
        classes=len(train.classes),
    )


class _Scale(NamedTuple):
    """Scale of each channel (C,): pixels become (pixel - shift) / divisor."""

    shift: NDArray[np.float64]
    divisor: NDArray[np.float64]


def _standard_scale(images: NDArray[Any]) -> _Scale:
    """Return mean and standard deviation of every channel; for bytes exactly, from the histogram of their 256 values.

    A constant channel gets the deviation 1.
    """
    if images.dtype != np.uint8:
        all_but_channels = tuple(axis for axis in range(images.ndim) if axis != 1)
        mean = images.mean(all_but_channels, dtype=np.float64)
        deviation = images.std(all_but_channels, dtype=np.float64)
    else:
        histograms = np.stack([np.bincount(images[:, c].ravel(), minlength=256) for c in range(images.shape[1])])
        values, pixels = np.arange(256), histograms.sum(1)
        mean = histograms @ values / pixels
        deviation = np.sqrt(np.maximum(histograms @ values**2 / pixels - mean**2, 0.0))
    return _Scale(shift=mean, divisor=np.where(deviation > 0, deviation, 1.0))


def _scale_of(scale: str, kind: str | Source, name: str, images: NDArray[Any]) -> _Scale:
    """Return the scale of every channel that the option `scale` means. `images` (N, C, ...) are those of training.

    Raises ParameterError, naming the data set by `name`, for a scale that needs bytes.
    """
    if scale in ("unit", "signed-unit") and images.dtype != np.uint8:
        raise ParameterError("data.scale", scale, f"{name} holds {images.dtype}, no bytes; use standard or raw")
    if scale == "standard":
        return _standard_scale(images)
    # The digits of scikit-learn have grey levels from 0 to 16.
    white = 16.0 if kind == "digits" else 255.0
    shift, divisor = {"unit": (0.0, white), "signed-unit": (white / 2, white / 2), "raw": (0.0, 1.0)}[scale]
    channels = images.shape[1]
    return _Scale(shift=np.full(channels, shift), divisor=np.full(channels, divisor))


def _choose(usable: NDArray[np.int64], count: int | None, choice: str, generator: np.random.Generator) -> NDArray[np.int64]:
    """Return the numbers of `count` of the samples `usable`, ascending; None: all. `choice`: "first" ones, or "random" ones."""
    if count is None or choice == "first":
        return usable[:count]
    return usable[np.sort(generator.choice(len(usable), count, replace=False))]


def load_dataset(data: DataOptions, *, root: Path, generator: np.random.Generator) -> Dataset:
    """Read a data set: `data.kind` is one of `data_files.DATASETS`, or a function of the user's own (see `own_data.read_own`).

    `options.DataOptions` explains the options. `generator` draws all random choices. Validation samples are drawn from the
    training samples that are kept. The scale "standard" goes by the whole published training set; for the user's own data,
    "unit" and "signed-unit" need bytes. Digits: every fifth of the 1797 images is a test image. Files are compared with the
    checksums of torchvision before anything is unpickled.

    Raises:
        ValueError: unknown data set, files missing (names the paths and NETSIM_DATA), truncated or altered; a failed download;
            more samples asked for than there are.
    """
    kind = data.kind
    if isinstance(kind, str):
        require_known(kind)
        name, arrays = kind, _read_once(kind, root, data.download, _stamps(kind, root))
    else:
        name, arrays = place_of(kind), read_own(kind)
    images, labels = arrays.train_x, arrays.train_y
    scale = _scale_of(data.scale, kind, name, images)
    check_counts(data, name, train=len(images), test=len(arrays.test_x))
    usable = np.arange(len(images))
    if data.unused_samples:
        usable = np.delete(usable, generator.choice(len(images), data.unused_samples, replace=False))
    train = _choose(usable, data.samples, data.choice, generator)
    test = _choose(np.arange(len(arrays.test_x)), data.test_samples, data.choice, generator)
    for_validation = np.zeros(len(train), np.bool_)
    if data.validation_samples:
        for_validation[generator.choice(len(train), data.validation_samples, replace=False)] = True
    train_x, train_y = _tensors(images, labels, train[~for_validation], scale)
    validation_x, validation_y = _tensors(images, labels, train[for_validation], scale)
    test_x, test_y = _tensors(arrays.test_x, arrays.test_y, test, scale)
    by_parity = data.labels == "parity"
    return Dataset(
        name=name,
        classes=2 if by_parity else arrays.classes,
        train_x=train_x,
        train_y=train_y,
        test_x=test_x,
        test_y=test_y,
        validation_x=validation_x,
        validation_y=validation_y,
        class_of=torch.arange(arrays.classes) % 2 if by_parity else None,
    )


def _tensors(
    images: NDArray[Any], labels: NDArray[Any], chosen: NDArray[np.int64], scale: _Scale
) -> tuple[Tensor, Tensor]:
    """Return the samples of numbers `chosen` as tensors: images on this `scale`, and labels."""
    # One number for each channel, which is the second axis.
    shift, divisor = (numbers.astype(np.float32).reshape(-1, *[1] * (images.ndim - 2)) for numbers in scale)
    x = images[chosen].astype(np.float32)
    x -= shift
    x /= divisor
    return torch.from_numpy(x), torch.from_numpy(labels[chosen].astype(np.int64))
