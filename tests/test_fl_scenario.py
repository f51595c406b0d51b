"""The learner as a scenario names it: the same keys on both sides, one message for what is wrong, files of a run."""

from __future__ import annotations

import gzip
import inspect
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from analysis import draw_all, open_run
from models.fl import aggregation, mechanisms, networks, optimizers, partition, server_optimizers
from models.fl.build import build_learner
from models.fl.data import load_dataset
from scenarios import cli, learning
from scenarios.build import build
from scenarios.reading import parse
from scenarios.run import run
from scenarios.schema import Privacy

torch.set_num_threads(1)


def tables(**learner):
    return {
        "name": "small",
        "rounds": 3,
        "clients": {"count": 6},
        "server": {"per_round": 3},
        "policy": {"kind": "random"},
        "compute": {"delay": {"kind": "constant", "value_s": 1.0}},
        "learner": {
            "data": {"kind": "digits", "samples": 120},
            "network": {"kind": "mlp", "hidden": [8]},
            "optimizer": {"kind": "sgd", "learning_rate": 0.1},
            **learner,
        },
    }


def to_toml(path: Path, content: dict) -> str:
    import tomli_w

    path.write_text(tomli_w.dumps(content))
    return str(path)


def arguments(function) -> dict[str, object]:
    """Names and defaults of what a function or a class takes."""
    found = inspect.signature(function).parameters.values()
    return {p.name: None if p.default is p.empty else p.default for p in found}


def keys(section, *apart: str) -> dict[str, object]:
    fields = {name: field for name, field in section.model_fields.items() if name not in ("kind", *apart)}
    return {name: None if field.is_required() else field.default for name, field in fields.items()}


@pytest.mark.parametrize(
    ("described", "built", "given"),
    [
        (learning.NETWORKS, networks.NETWORKS, ("input_shape", "classes", "seed")),
        (learning.OPTIMIZERS, optimizers.OPTIMIZERS, ()),
        (learning.AGGREGATIONS, aggregation.AGGREGATIONS, ()),
        (learning.STALENESS, aggregation.STALENESS, ()),
        (learning.SERVER_OPTIMIZERS, server_optimizers.SERVER_OPTIMIZERS, ()),
    ],
)
def test_every_kind_has_the_same_keys_and_defaults_on_both_sides(described, built, given):
    assert list(described) == list(built)
    for kind, section in described.items():
        expected = {name: default for name, default in arguments(built[kind]).items() if name not in given}
        assert keys(section) == expected, kind
        assert section.model_fields["kind"].default == kind


def test_the_table_itself_has_the_same_keys_on_both_sides():
    data = {name: default for name, default in arguments(load_dataset).items() if name not in ("kind", "root", "generator")}
    assert keys(learning.Data) == data
    # The seed's streams, the folder, the clients and the privacy come from elsewhere; how many versions are kept is the engine's.
    elsewhere = {"streams", "data_root", "clients", "mechanism", "versions_kept"}
    taken = {name: default for name, default in arguments(build_learner).items() if name not in elsewhere}
    offered = keys(learning.Learner)
    # "loss" goes with the network; absent threads are one.
    assert set(offered) - {"loss"} == set(taken)
    plain = {name for name, default in taken.items() if isinstance(default, int | float | str)} - {"threads"}
    assert {name: offered[name] for name in plain} == {name: taken[name] for name in plain}
    assert set(learning.DATA_SETS) == set(learning.Data.model_fields["kind"].annotation.__args__)


def test_every_partition_and_mechanism_is_known_on_both_sides():
    from scenarios.registry import BUILT_IN

    assert list(BUILT_IN["partition"]) == list(partition.PARTITIONS)
    modes = set()
    for mechanism, guarantee in [
        ("laplace", "per_coordinate"),
        ("laplace", "l1"),
        ("gaussian", "per_coordinate"),
        ("gaussian", "l2"),
    ]:
        privacy = Privacy(
            mechanism=mechanism,
            guarantee=guarantee,
            sensitivity=1.0,
            delta=0.1 if mechanism == "gaussian" else None,
            schedule={"kind": "geometric", "epsilon_total": 1.0, "eta": 0.1},
        )
        modes.add(privacy.mode)
    assert modes | {"none"} == set(mechanisms.MECHANISMS)


def play(tmp_path: Path, name: str = "out", **learner) -> dict:
    return run(parse(tables(**learner)), tmp_path / name)


@pytest.mark.parametrize(
    "learner",
    [
        {"aggregation": {"kind": "mixing"}, "staleness": {"kind": "polynomial"}},
        {
            "aggregation": {"kind": "contribution"},
            "contribution_samples": 5,
            "data": {"kind": "digits", "validation_samples": 300},
        },
        {"server_optimizer": {"kind": "fedadam"}, "proximal": 0.1, "augmentation": "crop-flip", "precision": "bfloat16"},
        {"network": {"kind": "cnn8", "channels": [4] * 8, "norm": "batch"}, "batch_statistics": "local", "max_steps": 1},
        {"buffer": 4, "evaluate_every_s": 1.5, "server_optimizer": {"kind": "fedavgm"}, "staleness": {"kind": "hinge"}},
        {"data": {"kind": "digits", "samples": 120, "test_samples": 30, "scale": "raw"}, "local_test_samples": 4},
    ],
)
def test_options_reach_the_learner(tmp_path: Path, learner):
    summary = play(tmp_path, **learner)
    assert summary["rounds"] == 3
    assert 0 <= summary["final"]["accuracy"] <= 1
    notes = summary["learner"]
    assert notes["training"].startswith("sequential: the network keeps" if "batch_statistics" in learner else "vectorised")
    assert notes["trained_updates"] == (9 if "buffer" not in learner else 6)


def test_evaluation_by_seconds_shows_in_the_table(tmp_path: Path):
    play(tmp_path, evaluate_every_s=1.75)
    # Rounds end at 1, 2 and 3 s; due are the first, the one after 1.75 s, and the last.
    assert open_run(tmp_path / "out").rounds["accuracy"].notna().tolist() == [True, True, True]
    play(tmp_path, "fewer", evaluate_every_s=5.0)
    assert open_run(tmp_path / "fewer").rounds["accuracy"].notna().tolist() == [True, False, True]


def test_a_run_says_who_holds_what(tmp_path: Path):
    partition = {"kind": "label-dirichlet", "concentration": 0.3}
    play(tmp_path, partition=partition)
    opened = open_run(tmp_path / "out")
    table = opened.arrow("partition").to_pandas()
    counts = np.zeros((6, 10), np.int64)
    counts[table["client"], table["label"]] = table["samples"]
    assert counts.sum() == 120
    assert (table["samples"] > 0).all()
    learner = build(parse(tables(partition=partition))).simulation.server.learner
    np.testing.assert_array_equal(counts, learner.label_counts)
    assert "partition.png" in [path.name for path in draw_all(opened, tmp_path / "figures")]
    # Run again without a learner, nothing of it is left.
    run(parse({**tables(), "learner": None}), tmp_path / "out", overwrite=True)
    assert not open_run(tmp_path / "out").has_partition
    assert "partition.png" not in [path.name for path in draw_all(open_run(tmp_path / "out"), tmp_path / "none")]


def gaussian(**changes) -> dict:
    return {
        "mechanism": "gaussian",
        "guarantee": "l2",
        "sensitivity": 0.5,
        "delta": 1e-4,
        "schedule": {"kind": "geometric", "epsilon_total": 10.0, "eta": 0.04},
        **changes,
    }


def test_gaussian_noise_from_a_scenario(tmp_path: Path):
    scenario = parse({**tables(), "privacy": gaussian()})
    summary = run(scenario, tmp_path / "out")
    guarantee = summary["privacy"]["guarantee"]
    assert guarantee.startswith("(epsilon, delta)-LDP of the whole update")
    assert "0.0001 times their number" in guarantee
    assert summary["final"]["max_leak"] > 0
    assert open_run(tmp_path / "out").clients["leak"].max() == summary["final"]["max_leak"]
    assert build(scenario).simulation.server.learner.guarantee.startswith("(epsilon, delta)-LDP for the whole")
    single = run(parse({**tables(), "privacy": gaussian(guarantee="per_coordinate")}), tmp_path / "single")
    assert "single coordinates only" in single["privacy"]["guarantee"]


USER_MODULE = """
import torch
from torch import nn


class TwoLayers(nn.Module):
    def __init__(self, input_shape, classes):
        super().__init__()
        self.first = nn.Linear(input_shape[0] * input_shape[1] * input_shape[2], 12)
        self.second = nn.Linear(12, classes)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x.flatten(1))))


class Narrow(nn.Module):
    def __init__(self, input_shape, classes):
        super().__init__()
        self.only = nn.Linear(5, classes)

    def forward(self, x):
        return self.only(x.flatten(1))


class Broken(nn.Module):
    def __init__(self, input_shape, classes):
        super().__init__()
        raise KeyError("no such thing")


def dropping(input_shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Dropout(0.2), nn.Linear(64, classes))
"""


@pytest.fixture
def own_networks(tmp_path: Path, monkeypatch) -> str:
    (tmp_path / "own_networks_of_a_test.py").write_text(USER_MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("own_networks_of_a_test", None)
    return "own_networks_of_a_test"


def netsim(monkeypatch, capsys, *words: str) -> tuple[int, str]:
    """Exit code and what was said on standard error."""
    monkeypatch.setattr(sys, "argv", ["netsim", *words])
    try:
        cli.main()
        code = 0
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    return code, capsys.readouterr().err.strip()


def test_a_network_of_the_users_own_end_to_end(tmp_path: Path, own_networks, monkeypatch, capsys):
    file = to_toml(tmp_path / "own.toml", tables(network={"kind": f"{own_networks}:TwoLayers"}, epochs=4))
    assert netsim(monkeypatch, capsys, "check", file) == (0, "")
    code, _ = netsim(monkeypatch, capsys, "run", file, "--quiet", "--out", str(tmp_path / "own"), "--set", "rounds=12")
    assert code == 0
    summary = json.loads((tmp_path / "own" / "summary.json").read_text())
    assert summary["privacy"]["parameters"] == 64 * 12 + 12 + 120 + 10
    assert summary["final"]["accuracy"] > 0.6
    assert summary["learner"]["training"] == "vectorised"
    again = run(parse(tables(network={"kind": f"{own_networks}:TwoLayers"}, epochs=4) | {"rounds": 12}), tmp_path / "again")
    assert again["final"] == summary["final"]
    other = play(tmp_path, network={"kind": f"{own_networks}:dropping"})
    assert other["learner"]["training"].startswith("sequential: torch.func cannot stack the network")


CASES = {
    "missing data": ({"data": {"kind": "cifar-10"}}, "learner.data.kind = 'cifar-10': missing ", "NETSIM_DATA", True),
    "unknown data": ({"data": {"kind": "cifar"}}, "learner.data.kind", "", True),
    "more clients than samples": ({"data": {"kind": "digits", "samples": 5}}, "6: more clients than the 5", "", False),
    "minimum": ({"partition": {"kind": "equal", "minimum": 30}}, "learner.partition.minimum = 30", "need 180 samples", False),
    "too many samples": ({"data": {"kind": "digits", "samples": 9999}}, "learner.data.samples = 9999", "1..1437", False),
    "norm": ({"network": {"kind": "cnn8", "norm": "layer"}}, 'learner.network.norm = "layer"', "", True),
    "widths": ({"network": {"kind": "cnn8", "channels": [3]}}, "learner.network.channels = [3]", "", True),
    "alpha": ({"aggregation": {"kind": "mixing", "alpha": 0.0}}, "learner.aggregation.alpha = 0.0", "must be > 0", True),
    "no aggregation": ({"aggregation": {"kind": "mixin"}}, "learner.aggregation.kind", "did you mean 'mixing'?", True),
    "contribution": ({"aggregation": {"kind": "contribution"}}, "learner.contribution_samples = 0", "must be > 0", True),
    "validation": ({"contribution_samples": 5}, "learner.contribution_samples = 5", "data.validation_samples", True),
    "local": ({"batch_statistics": "local"}, "learner.batch_statistics = 'local'", "no running statistics", False),
    "evaluation": ({"evaluate_every_s": 1.0, "evaluate_every_rounds": 2}, "learner.evaluate_every_s = 1.0", "", True),
    "misfit": ({"network": {"kind": "MODULE:Narrow"}}, "learner.network: does not fit input of shape (1, 8, 8)", "", False),
    "broken": ({"network": {"kind": "MODULE:Broken"}}, "learner.network.kind = ", "no such thing", False),
    "absent": ({"network": {"kind": "MODULE:Nothing"}}, "Nothing", "", False),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_wrong_is_said_in_one_message(tmp_path: Path, own_networks, monkeypatch, capsys, case):
    learner, *words, at_check = CASES[case]
    if "network" in learner:
        learner = {"network": learner["network"] | {"kind": learner["network"]["kind"].replace("MODULE", own_networks)}}
    monkeypatch.setenv("NETSIM_DATA", str(tmp_path / "nowhere"))
    file, out = to_toml(tmp_path / "wrong.toml", tables(**learner)), tmp_path / "out"
    code, said = netsim(monkeypatch, capsys, "run", file, "--quiet", "--out", str(out))
    assert code == 2, said
    assert all(word in said for word in words), said
    assert "Traceback" not in said
    assert not out.exists()
    if at_check:
        assert netsim(monkeypatch, capsys, "check", file) == (2, said)


def test_privacy_that_does_not_go_together_is_refused():
    for changes, message in (
        ({"delta": None}, "privacy.delta"),
        ({"guarantee": "l1"}, "privacy.guarantee"),
        ({"mechanism": "laplace", "guarantee": "l1"}, "privacy.delta"),
        ({"mechanism": "laplace", "delta": None}, "privacy.guarantee"),
        ({"delta": 1.0}, "privacy.delta"),
    ):
        privacy = {key: value for key, value in gaussian(**changes).items() if value is not None}
        with pytest.raises(Exception, match=message):
            parse({**tables(), "privacy": privacy})
    # A variant without privacy may leave the other keys as they are.
    parse({**tables(), "privacy": gaussian(mechanism="none")})


def test_no_memory_left_is_one_message(tmp_path: Path, monkeypatch, capsys):
    from models.fl.training import LocalTrainer

    def full(self, *args):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(LocalTrainer, "_train_chunk", full)
    file = to_toml(tmp_path / "full.toml", tables())
    code, said = netsim(monkeypatch, capsys, "run", file, "--quiet", "--out", str(tmp_path / "out"))
    assert code == 2
    assert said.startswith("learner.device = 'cpu': out of memory while training a single client")


def test_halved_chunks_are_noted_in_the_summary(tmp_path: Path, monkeypatch):
    from models.fl.training import LocalTrainer

    inner = LocalTrainer._train_chunk

    def scarce(self, rows, *rest):
        if len(rows) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return inner(self, rows, *rest)

    whole = play(tmp_path, "whole")
    monkeypatch.setattr(LocalTrainer, "_train_chunk", scarce)
    summary = play(tmp_path)
    assert summary["learner"]["notes"] == ["out of memory while training 3 clients at once: from then on 1 at once"]
    assert summary["final"]["accuracy"] == pytest.approx(whole["final"]["accuracy"], abs=0.02)


def test_a_wrong_checksum_is_one_message(tmp_path: Path, monkeypatch, capsys):
    from models.fl.data_files import data_paths

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
    path.write_bytes(path.read_bytes()[:-1])
    code, said = netsim(monkeypatch, capsys, "run", file, "--quiet", "--out", str(tmp_path / "out"))
    assert (code, "truncated" in said or "wrong checksum" in said) == (2, True)


def test_checking_imports_no_torch(tmp_path: Path):
    file = to_toml(tmp_path / "one.toml", tables())
    code = (
        "import sys; import models.fl, models.fl.data_files, models.fl.partition; assert 'torch' not in sys.modules;"
        f"sys.argv = ['netsim', 'check', {file!r}]; from scenarios.cli import main\n"
        "try: main()\nexcept SystemExit as left: assert not left.code\n"
        "assert 'torch' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
