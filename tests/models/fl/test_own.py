"""Data, partitions and networks of the user's own: named as "module:function", used, and refused where they will not do."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from analysis import open_run
from models.fl.data.datasets import load_dataset
from models.fl.options.names import DataOptions
from scenarios.runs.reading import parse
from scenarios.runs.run import run
from tests.helpers.fl_scenario import netsim, play, tables, to_toml

torch.set_num_threads(1)

OWN = "tests.helpers.own_learning"


def test_a_network_of_the_users_own_end_to_end(tmp_path: Path, monkeypatch, capsys):
    file = to_toml(tmp_path / "own.toml", tables(network={"kind": f"{OWN}:TwoLayers"}, epochs=4))
    assert netsim(monkeypatch, capsys, "check", file) == (0, "")
    code, _ = netsim(monkeypatch, capsys, "run", file, "--quiet", "--out", str(tmp_path / "own"), "--set", "rounds=12")
    assert code == 0
    summary = json.loads((tmp_path / "own" / "summary.json").read_text())
    assert summary["privacy"]["parameters"] == 64 * 12 + 12 + 120 + 10
    assert summary["final"]["accuracy"] > 0.6
    assert summary["learner"]["training"] == "vectorised"
    again = run(parse(tables(network={"kind": f"{OWN}:TwoLayers"}, epochs=4) | {"rounds": 12}), tmp_path / "again")
    assert again["final"] == summary["final"]
    other = play(tmp_path, network={"kind": f"{OWN}:dropping"})
    assert other["learner"]["training"].startswith("sequential: torch.func cannot stack the network")


def learner_of(tmp_path: Path, **learner):
    folder = tmp_path / "out"
    run(parse(tables(**learner)), folder, overwrite=True)
    return open_run(folder).arrow("partition").to_pandas()


def test_a_partition_of_the_users_own_decides_who_holds_what(tmp_path: Path, monkeypatch, capsys):
    partition = {"kind": f"{OWN}:by_turns", "step": 20}
    file = to_toml(tmp_path / "own.toml", tables(partition=partition))
    assert netsim(monkeypatch, capsys, "check", file) == (0, "")
    held = learner_of(tmp_path, partition=partition)
    # 120 samples in the order of their labels, dealt in packs of 20 to 6 clients: each holds neighbouring labels.
    assert held.groupby("client")["samples"].sum().tolist() == [20] * 6
    assert held.groupby("client")["label"].agg(["min", "max"]).to_numpy().tolist() == sorted(
        held.groupby("client")["label"].agg(["min", "max"]).to_numpy().tolist()
    )
    assert held.groupby("client")["label"].nunique().max() <= 4
    assert open_run(tmp_path / "out").scenario["learner"]["partition"] == {"kind": f"{OWN}:by_turns", "step": 20, "odd": False}
    again = learner_of(tmp_path, partition={"kind": f"{OWN}:Turns"})
    assert again.groupby("client")["label"].nunique().min() >= 8
    # The generator is the run's: the same seed, the same shares.
    chance = [learner_of(tmp_path, partition={"kind": f"{OWN}:by_turns", "odd": True}) for _ in range(2)]
    assert chance[0].equals(chance[1])
    assert not chance[0].equals(again)


@pytest.mark.each_nth(3)
@pytest.mark.parametrize(
    ("partition", "fragments"),
    [
        ({"kind": f"{OWN}:by_turns", "stop": 1}, ["learner.partition.stop = 1: unknown key; did you mean 'step'?"]),
        ({"kind": f"{OWN}:by_turns", "step": "a"}, ['learner.partition.step = "a": must be a whole number']),
        ({"kind": f"{OWN}:by_turns", "step": 0}, ["learner.partition.step = 0: must be >= 1"]),
        ({"kind": f"{OWN}:fails"}, [f"learner.partition.kind = '{OWN}:fails': fails (RuntimeError: no luck)"]),
        ({"kind": f"{OWN}:refuses"}, [f"learner.partition.kind = '{OWN}:refuses': fails (ValueError: I will not)"]),
        ({"kind": f"{OWN}:too_few"}, ["returned 5 groups of samples; there are 6 clients"]),
        ({"kind": f"{OWN}:twice"}, ["gave sample 0 away 6 times; a sample has one client at most"]),
        ({"kind": f"{OWN}:far"}, ["samples count from 0 to 119; it returned 120..125"]),
        ({"kind": f"{OWN}:empty"}, ["some whole numbers for every client; for client 0 it returned ndarray of shape (0,)"]),
        ({"kind": f"{OWN}:positional"}, ["argument 'step'", "must be keyword-only"]),
        ({"kind": f"{OWN}:np"}, [f"'{OWN}:np' is module", "name a function as 'package.module:function'"]),
        ({"kind": f"{OWN}:by_trun"}, ["did you mean 'by_turns'?"]),
        ({"kind": "even"}, ["learner.partition.kind", "unknown partition 'even'"]),
    ],
)
def test_a_partition_that_will_not_do_is_refused(tmp_path: Path, monkeypatch, capsys, partition, fragments):
    file, out = to_toml(tmp_path / "own.toml", tables(partition=partition)), tmp_path / "out"
    code, said = netsim(monkeypatch, capsys, "run", file, "--quiet", "--out", str(out))
    assert code == 2, said
    assert all(fragment in said for fragment in fragments), said
    assert "\n" not in said
    assert not out.exists()


def test_data_of_the_users_own_are_learnt(tmp_path: Path, monkeypatch, capsys):
    learner = {
        "data": {"kind": f"{OWN}:rings", "samples": 240, "validation_samples": 30},
        "network": {"kind": "mlp", "hidden": [16]},
        "optimizer": {"kind": "adam", "learning_rate": 0.02},
        "partition": {"kind": "label-dirichlet", "concentration": 5.0},
        "epochs": 20,
    }
    file = to_toml(tmp_path / "own.toml", tables(**learner))
    assert netsim(monkeypatch, capsys, "check", file) == (0, "")
    code, said = netsim(monkeypatch, capsys, "run", file, "--quiet", "--out", str(tmp_path / "own"), "--set", "rounds=60")
    assert (code, said) == (0, "")
    summary = json.loads((tmp_path / "own" / "summary.json").read_text())
    assert summary["privacy"]["parameters"] == 2 * 16 + 16 + 16 * 3 + 3
    # Three rings a unit apart with a spread of 0.1; one coordinate is a hundred times the other until it is standardised.
    assert summary["final"]["accuracy"] > 0.9
    assert open_run(tmp_path / "own").arrow("partition").to_pandas()["samples"].sum() == 210


def test_scales_of_the_users_own_data():
    from tests.helpers.own_learning import bytes_of_images, rings

    def loaded(source, **options):
        return load_dataset(DataOptions(kind=source, **options), root=Path(), generator=np.random.default_rng(0))

    data = loaded(rings)
    assert (data.name, data.classes, data.input_shape) == (f"{OWN}:rings", 3, (2,))
    np.testing.assert_allclose(data.train_x.mean(0), 0.0, atol=1e-6)
    np.testing.assert_allclose(data.train_x.std(0, correction=0), 1.0, rtol=1e-5)
    x, y, z, _ = rings()
    np.testing.assert_allclose(data.test_x, (z.numpy() - x.mean(0)) / x.std(0), rtol=1e-4, atol=1e-5)
    assert data.train_y.tolist() == y.tolist()
    np.testing.assert_array_equal(loaded(rings, scale="raw").train_x, x.astype(np.float32))
    with pytest.raises(ValueError, match=r"^data\.scale = 'unit': .*:rings holds float32, no bytes"):
        loaded(rings, scale="unit")
    images = loaded(bytes_of_images, scale="unit")
    assert images.input_shape == (3, 8, 8)
    np.testing.assert_allclose(images.train_x, bytes_of_images()[0] / 255.0, rtol=1e-6)
    # Bytes are counted, other numbers summed: the same moments.
    floats = loaded(lambda: tuple(part.astype(float) if part.ndim > 1 else part for part in bytes_of_images()))
    np.testing.assert_allclose(floats.train_x, loaded(bytes_of_images).train_x, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "fragment"),
    [
        ("short", ":short': returned 3 values; it must return training inputs, training labels, test inputs, test labels"),
        ("unequal", ":unequal': training labels: int64 of shape (299,); must be 300 whole numbers >= 0"),
        ("not_finite", ":not_finite': training inputs: some are not finite"),
        ("negative", ":negative': training labels: int64 of shape (300,); must be 300 whole numbers >= 0"),
        ("scalars", ":scalars': training inputs: float64 of shape (300,); must be numbers of shape (samples, channels, ...)"),
        ("other_shape", ":other_shape': test inputs have shape (1,), training inputs (2,); must be alike"),
        ("no_data", ":no_data': fails (OSError: the disk is on fire)"),
        ("absent", "has no 'absent'"),
    ],
)
def test_data_that_will_not_do_are_refused(tmp_path: Path, monkeypatch, capsys, name, fragment):
    file, out = to_toml(tmp_path / "own.toml", tables(data={"kind": f"{OWN}:{name}"})), tmp_path / "out"
    code, said = netsim(monkeypatch, capsys, "run", file, "--quiet", "--out", str(out))
    assert code == 2, said
    assert fragment in said
    assert not out.exists()
