"""A model or updates that are not finite: the run says so, in its output and in its summary."""

from __future__ import annotations

import json

import torch

from models.fl.aggregation.rules import Equal
from tests.helpers.fl_scenario import netsim, tables, to_toml


class Poison(Equal):
    """An aggregation of a user's own that divides by zero."""

    def step(self, model, starts, updates, arrivals, factors):
        return torch.zeros_like(model) / 0.0


def told(tmp_path, monkeypatch, capsys, *, rounds=3, **learner):
    file, out = to_toml(tmp_path / "study.toml", tables(**learner) | {"rounds": rounds}), tmp_path / "out"
    code, said = netsim(monkeypatch, capsys, "run", file, "--quiet", "--overwrite", "--out", str(out))
    return code, said, json.loads((out / "summary.json").read_text())


def test_a_model_that_is_not_finite_is_warned_of(tmp_path, monkeypatch, capsys):
    poisoned = {"aggregation": {"kind": "tests.models.fl.test_not_finite:Poison"}}
    code, said, summary = told(tmp_path, monkeypatch, capsys, **poisoned)
    assert code == 0
    words = "from round 1 on the model has no finite scores for 360 of 360 test samples"
    assert said.count(words) == 1
    assert summary["warnings"][0]["name"] == "model-not-finite"
    assert summary["learner"]["unscored_samples"] == 360
    assert summary["final"]["accuracy"] == 0.0
    file = to_toml(tmp_path / "study.toml", tables(**poisoned))
    assert netsim(monkeypatch, capsys, "run", file, "--quiet", "--strict", "--out", str(tmp_path / "strict"))[0] == 2


def test_updates_that_are_not_finite_are_warned_of(tmp_path, monkeypatch, capsys):
    diverging = {"optimizer": {"kind": "sgd", "learning_rate": 1e30}, "epochs": 3}
    _, said, summary = told(tmp_path, monkeypatch, capsys, **diverging)
    assert "9 of 9 updates were not finite and entered no model; lower learner.optimizer.learning_rate" in said
    assert [one["name"] for one in summary["warnings"]] == ["updates-not-finite"]
    # The first model stays, and it is finite.
    assert summary["final"]["accuracy"] > 0.0


def test_a_finite_model_is_not_warned_of(tmp_path, monkeypatch, capsys):
    _, said, summary = told(tmp_path, monkeypatch, capsys)
    assert said == ""
    assert summary["warnings"] == []
    assert "unscored_samples" not in summary["learner"]
