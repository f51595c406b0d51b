from __future__ import annotations

import gzip
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from models.fl.data import datasets as data
from models.fl.data.datasets import load_dataset
from models.fl.data.files import DATASETS, data_paths, require_files
from models.fl.options.names import DataOptions

torch.set_num_threads(1)
NOWHERE = Path("nowhere")


def real(kind: str) -> Path:
    root = os.environ.get("NETSIM_DATA")
    if root is None:
        pytest.skip("NETSIM_DATA is not set")
    missing = [str(path) for path in data_paths(kind, Path(root)) if not path.is_file()]
    if missing:
        pytest.skip(f"no {kind} in NETSIM_DATA: {missing[0]} is missing")
    return Path(root)


def load(kind="digits", root=NOWHERE, seed=0, **options):
    return load_dataset(DataOptions(kind=kind, **options), root=root, generator=np.random.default_rng(seed))


def test_digits_are_scikit_learns():
    data = load(scale="raw")
    bunch = load_digits()
    assert data.test_x.shape == (360, 1, 8, 8)
    assert data.train_x.shape == (1437, 1, 8, 8)
    assert np.array_equal(data.test_x[1, 0].numpy(), bunch.images[5])
    assert data.test_y[:4].tolist() == bunch.target[[0, 5, 10, 15]].tolist()
    assert np.array_equal(data.train_x[:4, 0].numpy(), bunch.images[1:5])
    assert (data.classes, data.input_shape, len(data.validation_y)) == (10, (1, 8, 8), 0)
    # Every digit is in the test part often enough to count.
    assert np.bincount(data.test_y.numpy()).min() >= 25


def test_digits_that_are_not_there_are_told_of(tmp_path, monkeypatch):
    class Found:
        origin = str(tmp_path / "sklearn" / "__init__.py")

    for found, words in ((None, "not there"), (Found, "not there")):
        data._read_once.cache_clear()
        monkeypatch.setattr("importlib.util.find_spec", lambda name, found=found: found)
        with pytest.raises(ValueError, match=f"data.kind .*{words}"):
            load()
    folder = tmp_path / "sklearn" / "datasets" / "data"
    folder.mkdir(parents=True)
    with gzip.open(folder / "digits.csv.gz", "wt") as file:
        file.write("1,2,3\n" * 5)
    with pytest.raises(ValueError, match=r"shape \(5, 3\)"):
        load()


def test_scales():
    standard, unit, raw = (load(scale=scale).train_x for scale in ("standard", "unit", "raw"))
    assert standard.mean().abs() < 1e-5
    assert standard.std().item() == pytest.approx(1, abs=1e-3)
    assert (unit.min(), unit.max(), raw.max()) == (0, 1, 16)
    torch.testing.assert_close(unit * 16, raw)
    signed = load(scale="signed-unit").train_x
    torch.testing.assert_close(signed, (unit - 0.5) / 0.5)
    assert (signed.min(), signed.max()) == (-1, 1)
    torch.testing.assert_close((raw - raw.mean()) / raw.std(), standard, atol=1e-3, rtol=0)
    assert standard.dtype == torch.float32


def test_truncation_and_validation_are_seeded_and_disjoint():
    whole = load(scale="raw")
    cut = load(scale="raw", samples=200, test_samples=50, validation_samples=40)
    assert [len(part) for part in (cut.train_y, cut.validation_y, cut.test_y)] == [160, 40, 50]
    every = {image.numpy().tobytes(): i for i, image in enumerate(whole.train_x)}
    numbers = [[every[image.numpy().tobytes()] for image in part] for part in (cut.train_x, cut.validation_x)]
    assert len({*numbers[0], *numbers[1]}) == 200
    assert numbers[0] == sorted(numbers[0])
    assert whole.train_y[numbers[0]].tolist() == cut.train_y.tolist()
    again, other = load(scale="raw", samples=200, seed=0), load(scale="raw", samples=200, seed=1)
    assert torch.equal(again.train_x, load(scale="raw", samples=200).train_x)
    assert not torch.equal(again.train_x, other.train_x)


def test_samples_split_off_are_used_for_nothing_and_the_first_of_the_others_are_kept():
    whole = load(scale="raw")
    every = {image.numpy().tobytes(): i for i, image in enumerate(whole.train_x)}

    def numbers(part):
        return [every[image.numpy().tobytes()] for image in part]

    rest = numbers(load(scale="raw", unused_samples=400).train_x)
    assert len(rest) == 1037
    assert rest == sorted(rest)
    # Split off at random, and not at either end: 400 of 1437, 95 of the first 341 expected, deviation 7.
    assert 60 < 341 - sum(number < 341 for number in rest) < 130
    first = load(scale="raw", unused_samples=400, samples=200, test_samples=30, validation_samples=50, choice="first")
    assert sorted(numbers(first.train_x) + numbers(first.validation_x)) == rest[:200]
    assert torch.equal(first.test_x, whole.test_x[:30])
    assert numbers(load(scale="raw", unused_samples=400, seed=1).train_x) != rest
    assert set(numbers(load(scale="raw", unused_samples=400, samples=200).train_x)) <= set(rest)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"samples": 0}, "data.samples = 0: must be >= 1"),
        ({"test_samples": 361}, "data.test_samples = 361: must be in 1..360"),
        ({"samples": 20, "validation_samples": 20}, "data.validation_samples = 20: must be in 0..19"),
        ({"scale": "half"}, "data.scale = 'half'"),
        ({"choice": "last"}, "data.choice = 'last': must be random or first"),
        ({"unused_samples": 1437}, "data.unused_samples = 1437: must be in 0..1436"),
        ({"unused_samples": 1000, "samples": 438}, "data.samples = 438: must be in 1..437"),
        ({"kind": "imagenet"}, "data.kind = 'imagenet': must be one of digits, "),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match="^" + message.replace(".", r"\.")):
        load(**options)


@pytest.mark.parametrize("kind", [kind for kind in DATASETS if kind != "digits"])
def test_missing_files_are_named_with_the_variable(tmp_path: Path, monkeypatch, kind: str):
    monkeypatch.setattr(data, "torchvision", None)  # its import takes seconds
    with pytest.raises(ValueError, match="NETSIM_DATA") as caught:
        load(kind, tmp_path)
    assert all(str(path) in str(caught.value) for path in data_paths(kind, tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_packed_files_are_recognised(tmp_path: Path):
    for path in data_paths("mnist", tmp_path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_name(path.name + ".gz").touch()
    with pytest.raises(ValueError, match=r"unpack the \.gz files"):
        require_files("mnist", tmp_path)


def write_idx(path: Path, array: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.astype(np.uint8).tobytes())


def write_fashion(root: Path) -> list[Path]:
    rng = np.random.default_rng(0)
    paths = data_paths("fashion-mnist", root)
    for path, shape in zip(paths, [(30, 28, 28), (30,), (12, 28, 28), (12,)], strict=True):
        write_idx(path, rng.integers(0, 256 if len(shape) == 3 else 10, shape))
    return paths


def test_files_in_the_layout_are_read(tmp_path: Path):
    write_fashion(tmp_path)
    data = load("fashion-mnist", tmp_path, scale="unit")
    assert data.train_x.shape == (30, 1, 28, 28)
    assert data.test_y.shape == (12,)
    rng = np.random.default_rng(0)
    torch.testing.assert_close(data.train_x[:, 0] * 255, torch.from_numpy(rng.integers(0, 256, (30, 28, 28))).float())


@pytest.mark.parametrize(
    "damage", [lambda d: d[:-1], lambda d: d + b"x", lambda d: b"", lambda d: b"\0\0\x08\x09" + d[4:], lambda d: d[:6]]
)
def test_truncated_files_are_refused(tmp_path: Path, damage):
    path = write_fashion(tmp_path)[2]
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=rf"^data\.kind = 'fashion-mnist': {path} is truncated"):
        load("fashion-mnist", tmp_path)


def test_altered_files_are_refused(tmp_path: Path):
    for path, shape in zip(data_paths("mnist", tmp_path), [(3, 28, 28), (3,), (2, 28, 28), (2,)], strict=True):
        write_idx(path, np.zeros(shape))
    with pytest.raises(ValueError, match=r"^data\.kind = 'mnist': .*wrong checksum"):
        load("mnist", tmp_path)
    path = write_fashion(tmp_path)[0]
    # A packed file that is not the published one beside it: it cannot vouch for the plain one.
    path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
    with pytest.raises(ValueError, match=r"^data\.kind = 'fashion-mnist': .*wrong checksum"):
        load("fashion-mnist", tmp_path)


def test_what_stands_beside_the_checked_files_is_not_read_in_their_place(tmp_path: Path):
    write_fashion(tmp_path)
    processed = tmp_path / "FashionMNIST" / "processed"
    processed.mkdir()
    for name in ("training.pt", "test.pt"):
        torch.save((torch.zeros(5, 28, 28, dtype=torch.uint8), torch.zeros(5, dtype=torch.int64)), processed / name)
    data = load("fashion-mnist", tmp_path, scale="raw")
    assert (len(data.train_x), len(data.test_x)) == (30, 12)
    assert data.train_x.max() == 255


@pytest.mark.parametrize(("shape", "label"), [((29,), 9), ((30,), 10)])
def test_labels_that_do_not_fit_their_images_are_refused(tmp_path: Path, shape: tuple[int], label: int):
    path = write_fashion(tmp_path)[1]
    write_idx(path, np.full(shape, label))
    with pytest.raises(ValueError, match=rf"{path} holds {shape[0]} labels"):
        load("fashion-mnist", tmp_path)


class Bomb:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize("kind", ["cifar-10", "cifar-100"])
def test_nothing_is_unpickled_before_its_checksum_matched(tmp_path: Path, kind: str):
    trace = tmp_path / "exploded"
    for path in data_paths(kind, tmp_path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pickle.dumps(Bomb(trace)))
    with pytest.raises(ValueError, match=rf"^data\.kind = '{kind}': .*wrong checksum"):
        load(kind, tmp_path)
    assert not trace.exists()
    pickle.loads(path.read_bytes())
    assert trace.exists()


def test_real_mnist():
    data = load("mnist", real("mnist"), scale="raw")
    assert data.train_x.shape == (60_000, 1, 28, 28)
    assert np.bincount(data.train_y.numpy()).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert data.train_x.double().mean().item() / 255 == pytest.approx(0.1307, abs=5e-5)
    standard = load("mnist", real("mnist"), samples=100)
    torch.testing.assert_close(standard.test_x, (data.test_x / 255 - 0.13066) / 0.30811, atol=1e-3, rtol=1e-3)


def test_real_mnist_truncated_or_altered_is_refused(tmp_path: Path):
    shutil.copytree(real("mnist") / "MNIST", tmp_path / "MNIST", copy_function=shutil.copyfile)
    path = data_paths("mnist", tmp_path)[1]
    content = bytearray(path.read_bytes())
    path.write_bytes(content[:-1])
    with pytest.raises(ValueError, match="truncated"):
        load("mnist", tmp_path)
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match="wrong checksum"):
        load("mnist", tmp_path)


def test_real_cifar_10():
    data = load("cifar-10", real("cifar-10"), samples=500, scale="unit")
    assert data.train_x.shape == (500, 3, 32, 32)
    assert np.bincount(data.test_y.numpy()).tolist() == [1000] * 10
    # Means and deviations of the training part per channel, as commonly published; those of the test part are within .005.
    torch.testing.assert_close(data.test_x.mean((0, 2, 3)), torch.tensor([0.4914, 0.4822, 0.4465]), atol=0.005, rtol=0)


@pytest.mark.parametrize("damage", ["truncated", "altered"])
def test_real_cifar_10_truncated_or_altered_is_refused_before_it_is_unpickled(tmp_path: Path, monkeypatch, damage: str):
    source = real("cifar-10")
    for path in data_paths("cifar-10", source):
        target = tmp_path / path.relative_to(source)
        target.parent.mkdir(exist_ok=True)
        target.symlink_to(path)
    path = data_paths("cifar-10", tmp_path)[2]
    content = bytearray(path.read_bytes())
    path.unlink()
    if damage == "altered":
        content[len(content) // 2] ^= 1
    path.write_bytes(content[:-1] if damage == "truncated" else content)

    def load_pickle(*args, **options):
        raise AssertionError("unpickled")

    monkeypatch.setattr(pickle, "load", load_pickle)
    with pytest.raises(ValueError, match=rf"^data\.kind = 'cifar-10': {path} has a wrong checksum"):
        load("cifar-10", tmp_path)


def test_nothing_else_is_unpickled():
    # Data sets are read through torchvision, after their checksums; a model file would have to be read with weights_only.
    for path in Path("models/fl").rglob("*.py"):
        code = path.read_text()
        # A worker reads the recipe that its own run has written, into a folder that only this user can read.
        assert "pickle.load" not in code or path.name == "bench.py"
        assert "allow_pickle=True" not in code
        assert code.count("torch.load(") == code.count("weights_only=True")


@pytest.mark.slow
def test_torchvision_loads_beside_this_torch():
    code = (
        "from models.fl.networks.torchvision_compat import torchvision as t;"
        "assert t('datasets').MNIST.__name__ == 'MNIST';"
        "assert t('models').resnet18 and t('datasets') is t('datasets')"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_data_set_is_read_once_for_all_runs_of_a_process(monkeypatch):
    plain, read = data.read_published, []
    monkeypatch.setattr(data, "read_published", lambda *place: read.append(place) or plain(*place))
    data._read_once.cache_clear()
    first, second = load("digits"), load("digits", scale="raw")
    data._read_once.cache_clear()
    assert len(read) == 1
    assert not torch.equal(first.train_x, second.train_x)
    assert torch.equal(first.train_y, second.train_y)
