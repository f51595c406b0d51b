"""What a user gets wrong about training: one message that names the key, exit code 2, nothing written."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch

from models.fl.training.local_trainer import LocalTrainer
from tests.helpers.fl_scenario import netsim, play, tables, to_toml

torch.set_num_threads(1)

OWN = "tests.helpers.own_learning"
SKEWED = {"kind": "label-dirichlet", "concentration": 0.5}
# What is wrong, what is said of it, and whether `netsim check` says so, too.
CASES = {
    "missing data": ({"data": {"kind": "cifar-10"}}, "learner.data.kind = 'cifar-10': missing ", "NETSIM_DATA", True),
    "unknown data": ({"data": {"kind": "cifar"}}, 'learner.data.kind = "cifar": did you mean ', "'cifar-10'", True),
    "more clients than samples": ({"data": {"kind": "digits", "samples": 5}}, "clients.count = 6: more clients than", "5", True),
    "held back": (
        {"data": {"kind": "digits", "samples": 9, "validation_samples": 4}},
        "clients.count = 6: more clients",
        "the 5 training samples",
        True,
    ),
    "minimum": ({"partition": {"kind": "equal", "minimum": 30}}, "learner.partition.minimum = 30", "need 180 samples", True),
    "skewed minimum": ({"partition": SKEWED | {"minimum": 21}}, "learner.partition.minimum = 21", "need 126 samples", True),
    "concentration": ({"partition": SKEWED | {"concentration": -1.0}}, "learner.partition.concentration = -1.0", "", True),
    "share": (
        {"partition": {"kind": "dominant-label", "concentration": 1.0, "share": 1.5}},
        "learner.partition.share = 1.5",
        "[0, 1]",
        True,
    ),
    "scarce label": (
        {"partition": {"kind": "dominant-label", "concentration": 0.02, "share": 1.0}},
        "learner.partition.share = 1.0: no label has",
        "",
        False,
    ),
    "iid clients": ({"partition": SKEWED | {"kind": "mixed", "iid_clients": 7}}, "learner.partition.iid_clients = 7", "", True),
    "owners": ({"partition": {"kind": "file", "path": "nowhere.txt"}}, "learner.partition.path = 'nowhere.txt'", "", True),
    "too many samples": ({"data": {"kind": "digits", "samples": 9999}}, "learner.data.samples = 9999", "1..1437", True),
    "too many held": (
        {"data": {"kind": "digits", "samples": 99, "validation_samples": 99}},
        "learner.data.validation_samples = 99",
        "0..98",
        True,
    ),
    "no optimizer state": ({"optimizer_state": "kept"}, 'learner.optimizer_state = "kept"', "has no state", True),
    "too many unused": (
        {"data": {"kind": "digits", "unused_samples": 1400, "samples": 40}},
        "learner.data.samples = 40",
        "1..37",
        True,
    ),
    "no room": (
        {"network": {"kind": "cnn", "padding": 0}},
        "learner.network.padding = 0: after 2 of 3 convolutions",
        "use padding = 1",
        False,
    ),
    "norm": ({"network": {"kind": "cnn8", "norm": "layer"}}, 'learner.network.norm = "layer"', "", True),
    "widths": ({"network": {"kind": "cnn8", "channels": [3]}}, "learner.network.channels = [3]", "", True),
    "alpha": ({"aggregation": {"kind": "mixing", "alpha": 0.0}}, "learner.aggregation.alpha = 0.0", "must be > 0", True),
    "no losses of batches": (
        {"reported_rms": "first-batch", "reported_losses": "received", "client_losses": True},
        'learner.reported_rms = "first-batch"',
        "leave one of them out",
        True,
    ),
    "nobody goes by them": ({"reported_rms": "last-batch"}, 'learner.reported_rms = "last-batch"', "nobody goes by losses", True),
    "no batches": (
        {"reported_rms": "last-batch", "client_losses": True, "local_training": f"{OWN}:rings"},
        'learner.reported_rms = "last-batch"',
        "local_training says nothing",
        True,
    ),
    "half a sum": ({"aggregation": {"kind": "equal", "divide": "half"}}, 'learner.aggregation.divide = "half"', "'none'", True),
    "no pair": (
        {"aggregation": {"kind": "mixing", "mixing_decay": [[800, 0.5], [400, 0.5]]}},
        "learner.aggregation.mixing_decay = [[800.0, 0.5], [400.0, 0.5]]",
        "ascending versions",
        True,
    ),
    "a vote without a step": ({"aggregation": {"kind": "majority-vote"}}, "learner.aggregation.learning_rate", "missing", True),
    "a vote on statistics": (
        {
            "aggregation": {"kind": "majority-vote", "learning_rate": 0.1},
            "network": {"kind": "cnn8", "channels": [4] * 8, "norm": "batch"},
        },
        'learner.aggregation.kind = "majority-vote": running statistics of batch normalisation cannot be voted on',
        "batch_statistics = 'local'",
        True,
    ),
    "no aggregation": ({"aggregation": {"kind": "mixin"}}, "learner.aggregation.kind", "did you mean 'mixing'?", True),
    "contribution": ({"aggregation": {"kind": "contribution"}}, "learner.contribution_samples = 0", "must be > 0", True),
    "validation": ({"contribution_samples": 5}, "learner.contribution_samples = 5", "data.validation_samples", True),
    "labels not held back": (
        {
            "contribution_samples": 5,
            "data": {"kind": "digits", "samples": 120, "validation_samples": 1},
            "partition": {"kind": "label-dirichlet", "concentration": 0.01},
        },
        "learner.contribution_samples = 5: among the validation samples, there is none of any label that client ",
        "keep more samples",
        False,
    ),
    "local": ({"batch_statistics": "local"}, 'learner.batch_statistics = "local"', "no running statistics", True),
    "local, own": (
        {"batch_statistics": "local", "network": {"kind": f"{OWN}:TwoLayers"}},
        "learner.batch_statistics = 'local'",
        "no running statistics",
        False,
    ),
    "evaluation": ({"evaluate_every_s": 1.0, "evaluate_every_rounds": 2}, "learner.evaluate_every_s = 1.0", "", True),
    "misfit": ({"network": {"kind": f"{OWN}:Narrow"}}, "learner.network: does not fit input of shape (1, 8, 8)", "", False),
    "broken": ({"network": {"kind": f"{OWN}:Broken"}}, "learner.network.kind = ", "no such thing", False),
    "absent": ({"network": {"kind": f"{OWN}:Nothing"}}, "learner.network.kind = ", "has no 'Nothing'", False),
    "no images to crop": (
        {"data": {"kind": f"{OWN}:rings"}, "augmentation": "crop-flip"},
        "learner.augmentation = 'crop-flip': needs images (C, H, W), the data are (2,)",
        "",
        False,
    ),
    "no images to convolve": (
        {"data": {"kind": f"{OWN}:rings"}, "network": {"kind": "cnn"}},
        "learner.network.kind = 'cnn': needs images (C, H, W), the data are (2,)",
        "",
        False,
    ),
}


LAPLACE = {"sensitivity": 0.5, "schedule": {"kind": "geometric", "epsilon_total": 10.0, "eta": 0.04}}
PRIVATE = {
    "bare statistics": (
        {"network": {"kind": "resnet18"}},
        {},
        'learner.batch_statistics = "averaged"',
        "privacy.unprotected = 'batch-norm'",
        True,
    ),
    "bare statistics, own": (
        {"network": {"kind": f"{OWN}:Normalised"}},
        {},
        "learner.batch_statistics = 'averaged'",
        "network.norm = 'group'",
        False,
    ),
    "nothing to name": ({}, {"unprotected": "batch-norm"}, 'privacy.unprotected = "batch-norm"', "no batch normalisation", True),
    "nothing to name, own": (
        {"network": {"kind": f"{OWN}:TwoLayers"}},
        {"unprotected": "batch-norm"},
        "privacy.unprotected = 'batch-norm'",
        "leave it out",
        False,
    ),
    "no such layers": ({}, {"unprotected": "all"}, 'privacy.unprotected = "all"', "batch-norm", True),
}


@pytest.mark.parametrize("case", PRIVATE)
def test_claims_of_privacy_that_would_not_hold_are_refused(tmp_path: Path, monkeypatch, capsys, case):
    learner, privacy, *words, at_check = PRIVATE[case]
    file, out = to_toml(tmp_path / "bare.toml", {**tables(**learner), "privacy": {**LAPLACE, **privacy}}), tmp_path / "out"
    code, said = netsim(monkeypatch, capsys, "run", file, "--quiet", "--out", str(out))
    assert code == 2, said
    assert all(word in said for word in words), said
    assert not out.exists()
    if at_check:
        assert netsim(monkeypatch, capsys, "check", file) == (2, said)


@pytest.mark.each_nth(3)
@pytest.mark.parametrize("case", CASES)
def test_what_is_wrong_is_said_in_one_message(tmp_path: Path, monkeypatch, capsys, case):
    learner, *words, at_check = CASES[case]
    monkeypatch.setenv("NETSIM_DATA", str(tmp_path / "nowhere"))
    file, out = to_toml(tmp_path / "wrong.toml", tables(**learner)), tmp_path / "out"
    code, said = netsim(monkeypatch, capsys, "run", file, "--quiet", "--out", str(out))
    assert code == 2, said
    assert all(word in said for word in words), said
    assert "Traceback" not in said
    assert not out.exists()
    if at_check:
        assert netsim(monkeypatch, capsys, "check", file) == (2, said)


def on_a_gpu():
    raise torch.OutOfMemoryError("CUDA out of memory")


def on_this_cpu():
    torch.empty(2**60)


def in_numpy():
    raise MemoryError


@pytest.mark.parametrize("exhaust", [on_a_gpu, on_this_cpu, in_numpy])
def test_no_memory_left_is_one_message(tmp_path: Path, monkeypatch, capsys, exhaust):
    monkeypatch.setattr(LocalTrainer, "_train_chunk", lambda *args: exhaust())
    file = to_toml(tmp_path / "full.toml", tables())
    code, said = netsim(monkeypatch, capsys, "run", file, "--quiet", "--out", str(tmp_path / "out"))
    assert code == 2
    assert said.startswith("learner.device = 'cpu': out of memory while training a single client")


@pytest.mark.each_nth(2)
@pytest.mark.parametrize("exhaust", [on_a_gpu, on_this_cpu, in_numpy])
def test_halved_chunks_are_noted_in_the_summary(tmp_path: Path, monkeypatch, exhaust):
    inner = LocalTrainer._train_chunk

    def scarce(self, rows, *rest):
        if len(rows) > 2:
            exhaust()
        return inner(self, rows, *rest)

    whole = play(tmp_path, "whole")
    monkeypatch.setattr(LocalTrainer, "_train_chunk", scarce)
    summary = play(tmp_path)
    assert summary["learner"]["notes"] == ["out of memory while training 3 clients at once: from then on 1 at once"]
    assert summary["final"]["accuracy"] == pytest.approx(whole["final"]["accuracy"], abs=0.02)


@pytest.mark.each_nth(2)
@pytest.mark.parametrize("exhaust", [on_a_gpu, on_this_cpu, in_numpy])
def test_tests_of_the_model_that_do_not_fit_are_cut_smaller(tmp_path: Path, monkeypatch, capsys, exhaust):
    inner, fits = LocalTrainer.scores, 100

    def scarce(self, row, x, **options):
        if len(x) > fits:
            exhaust()
        return inner(self, row, x, **options)

    whole = play(tmp_path, "whole")
    monkeypatch.setattr(LocalTrainer, "scores", scarce)
    summary = play(tmp_path)
    assert summary["final"]["accuracy"] == whole["final"]["accuracy"]
    assert summary["final"]["loss"] == pytest.approx(whole["final"]["loss"], rel=1e-6)
    # 360 test samples, halved twice; told once, however many rounds there are.
    halved = [f"out of memory while testing {n} samples at once: tested {n // 2} at once" for n in (360, 180)]
    assert summary["learner"]["notes"] == halved
    fits = 0
    file = to_toml(tmp_path / "full.toml", tables())
    code, said = netsim(monkeypatch, capsys, "run", file, "--quiet", "--out", str(tmp_path / "full"))
    assert (code, said.partition(";")[0]) == (2, "learner.device = 'cpu': out of memory while testing a single sample")


@pytest.mark.each_nth(5)
@pytest.mark.parametrize("exhaust", [on_a_gpu, on_this_cpu, in_numpy])
@pytest.mark.parametrize(
    ("place", "doing"),
    [
        ("models.fl.evaluation.quality.measure", "testing the model"),
        ("models.fl.learners.aggregator.check_factors", "computing 3 updates"),
    ],
)
def test_memory_that_runs_out_anywhere_in_the_learner_is_one_message(tmp_path: Path, monkeypatch, capsys, exhaust, place, doing):
    monkeypatch.setattr(place, lambda *args, **options: exhaust())
    file = to_toml(tmp_path / "full.toml", tables(device="cpu"))
    code, said = netsim(monkeypatch, capsys, "run", file, "--quiet", "--out", str(tmp_path / "out"))
    assert (code, said.partition(";")[0]) == (2, f"learner.device = 'cpu': out of memory while {doing}")
    assert "Traceback" not in said


def test_a_device_that_cannot_hold_the_data_is_one_message(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setattr(LocalTrainer, "initial", lambda self: on_this_cpu())
    file, out = to_toml(tmp_path / "full.toml", tables(device="cpu")), tmp_path / "out"
    code, said = netsim(monkeypatch, capsys, "run", file, "--quiet", "--out", str(out))
    assert code == 2
    assert "learner.device = 'cpu': cannot hold the data and the model" in said
    assert not out.exists()


def test_other_errors_of_torch_are_not_taken_for_a_lack_of_memory(tmp_path: Path, monkeypatch):
    def broken(*args):
        raise RuntimeError("shapes do not fit")

    monkeypatch.setattr(LocalTrainer, "_train_chunk", broken)
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        play(tmp_path)


def test_a_wrong_checksum_is_one_message(tmp_path: Path, monkeypatch, capsys):
    from models.fl.data.files import data_paths

    for path in data_paths("mnist", tmp_path):
        path.parent.mkdir(parents=True, exist_ok=True)
        shape = (7, 28, 28) if "images" in path.name else (7,)
        header = bytes([0, 0, 8, len(shape)]) + np.array(shape, ">u4").tobytes()
        path.write_bytes(header + bytes(int(np.prod(shape))))
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(b"not this"))
    monkeypatch.setenv("NETSIM_DATA", str(tmp_path))
    file = to_toml(tmp_path / "sum.toml", tables(data={"kind": "mnist"}))
    code, said = netsim(monkeypatch, capsys, "run", file, "--quiet", "--out", str(tmp_path / "out"))
    assert code == 2
    assert said.endswith("has a wrong checksum; get it again")
    assert not (tmp_path / "out").exists()
    path = data_paths("mnist", tmp_path)[0]
    path.write_bytes(path.read_bytes()[:-1])
    code, said = netsim(monkeypatch, capsys, "run", file, "--quiet", "--out", str(tmp_path / "out"))
    assert code == 2
    assert said.endswith(f"{path} is truncated or no idx file; get it again")
    assert not (tmp_path / "out").exists()
