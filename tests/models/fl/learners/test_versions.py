"""Learning under the asynchronous server: contributions reach the matching, and versions live as long as updates need them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scenarios.runs.reading import load, parse
from scenarios.runs.run import simulate
from scenarios.wiring.simulation import build

CLIENTS = 5


def study(**changes: Any) -> dict[str, Any]:
    tables: dict[str, Any] = {
        "name": "adaptive",
        "rounds": 40,
        "clients": {"count": CLIENTS},
        "server": {"kind": "asynchronous"},
        "channels": {"count": 7, "states": {"kind": "stationary", "low": 0.2, "high": 0.8}},
        "scheduler": {"kind": "glr-cucb", "matcher": {"kind": "adaptive", "beta": 0.0}},
        "learner": {
            "data": {"kind": "digits", "validation_samples": 150},
            "partition": {"kind": "label-dirichlet", "concentration": 0.5},
            "network": {"kind": "mlp", "hidden": [16]},
            "optimizer": {"kind": "sgd", "learning_rate": 0.1},
            "max_steps": 10,
            "aggregation": {"kind": "contribution"},
            "contribution_samples": 20,
        },
    }
    return tables | changes


def watched(tables: dict[str, Any], out: Path) -> tuple[dict[str, Any], list[tuple[Any, list[int], list[int]]]]:
    """The summary, and what the matcher was asked and answered in every round."""
    built = build(scenario := parse(tables))
    server = built.simulation.server
    matches, inner = [], server.loop.assignment.scheduler.matcher.match

    def match(view, ranked):
        answer = inner(view, ranked)
        np.testing.assert_array_equal(view.contribution, server.learner.contribution())
        matches.append((view, ranked, answer))
        return answer

    server.loop.assignment.scheduler.matcher.match = match
    return simulate(built, scenario, out), matches


def test_whoever_is_worth_most_to_the_model_gets_the_best_channel(tmp_path: Path) -> None:
    summary, matches = watched(study(), tmp_path / "run")
    assert len(matches) == 40
    worth = np.array([view.contribution for view, _, _ in matches])
    # All alike until two have delivered; then an error on 20 samples of their own times 1 - cos, in [0, 2].
    np.testing.assert_array_equal(worth[0], 1.0)
    assert ((worth >= 0.0) & (worth <= 2.0)).all()
    assert len({tuple(row) for row in worth.round(6).tolist()}) > 10
    for view, ranked, answer in matches:
        # beta = 0: by contribution alone.
        order = [view.contribution[answer.index(channel)] for channel in ranked]
        assert order == sorted(order, reverse=True)
    # It learns, and those who fit the model well already are worth less than at first.
    assert summary["final"]["accuracy"] > 0.8
    assert worth[-1].mean() < worth[5].mean()


def test_contributions_are_what_makes_the_difference(tmp_path: Path) -> None:
    _, told = watched(study(), tmp_path / "told")
    learner = study()["learner"] | {"aggregation": {"kind": "size"}, "contribution_samples": 0}
    _, blind = watched(study(learner=learner), tmp_path / "blind")
    assert all((view.contribution == 1.0).all() for view, _, _ in blind)
    assert [answer for *_, answer in told] != [answer for *_, answer in blind]


def test_versions_are_kept_as_long_as_updates_start_from_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Bad channels: updates wait for long while the model goes on.
    tables = study(channels={"count": 7, "states": {"kind": "stationary", "low": 0.05, "high": 0.4}})
    built = build(scenario := parse(tables | {"rounds": 80}))
    server, behind = built.simulation.server, []
    learner, inner = server.learner, server.learner.retain

    def retain(versions: list[int]) -> None:
        inner(versions)
        kept = learner.state_dict()["versions"]
        assert set(versions) <= set(kept)
        # No more than these, the newest, and the one that clients may have been sent since the last call.
        assert len(kept) <= len(set(versions)) + 2
        behind.append(learner.version - min(versions, default=learner.version))

    monkeypatch.setattr(learner, "retain", retain)
    summary = simulate(built, scenario, tmp_path / "run")
    assert len(behind) == 80
    assert max(behind) > 5
    assert summary["learner"]["trained_updates"] == summary["totals"]["delivered"]


def test_a_run_goes_on_from_a_state_with_contributions_and_old_versions() -> None:
    whole, restored = (build(parse(study(rounds=30))).simulation for _ in range(2))
    whole.run(until_round=12)
    restored.load_state_dict(whole.state_dict())
    learner, other = whole.server.learner, restored.server.learner
    assert other.version == learner.version > 0
    np.testing.assert_array_equal(other.contribution(), learner.contribution())
    for simulation in (whole, restored):
        simulation.run()
    np.testing.assert_array_equal(other.state_dict()["models"][-1], learner.state_dict()["models"][-1])
    assert whole.server.clients.last_delivery.tolist() == restored.server.clients.last_delivery.tolist()


@pytest.mark.parametrize("setting", ["piecewise", "extreme"])
@pytest.mark.parametrize("data", ["cifar10", "cifar100"])
def test_the_channel_studys_files_are_well_formed(data: str, setting: str) -> None:
    study = load(f"channels_fig3_4_{data}_{setting}")
    assert study.rounds == 250
    assert (study.channels.count, study.clients.count) == ((30, 20) if setting == "piecewise" else (6, 4))
    assert study.scheduler.kind == ("glr-cucb" if setting == "piecewise" else "m-exp3")
    assert study.learner.network.kind == ("cnn8" if data == "cifar10" else "resnet18")
    assert study.learner.partition.concentration == 0.5
    assert [variant.name.rpartition("-")[2] for variant in study.sweep.variants] == ["random", "random", "aware"]


@pytest.mark.needs_torch
def test_without_the_data_a_file_of_the_study_says_where_they_belong(tmp_path: Path, monkeypatch, capsys) -> None:
    from tests.helpers.fl_scenario import netsim

    monkeypatch.setenv("NETSIM_DATA", str(tmp_path))
    for command in (["check"], ["run", "--out", str(tmp_path / "out"), "--quiet"]):
        code, said = netsim(monkeypatch, capsys, command[0], "channels_fig3_4_cifar100_extreme", *command[1:])
        assert code == 2
        assert f"learner.data.kind = 'cifar-100': missing {tmp_path / 'cifar-100-python' / 'train'}" in said
        assert "NETSIM_DATA" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_file_of_the_study_plays_on_images_of_that_size(tmp_path: Path) -> None:
    small = ["rounds=2", "learner.max_steps=1", "learner.batch_size=4", "learner.contribution_samples=4"]
    images = 'learner.data={kind = "tests.helpers.own_learning:small_cifar", validation_samples = 40}'
    partition = 'learner.partition={kind = "label-dirichlet", concentration = 0.5}'
    scenario = load("channels_fig3_4_cifar100_extreme", [*small, images, partition])
    summary = simulate(build(scenario), scenario, tmp_path / "run")
    assert summary["learner"]["trained_updates"] == summary["totals"]["delivered"] > 0
    assert summary["privacy"]["parameters"] > 11_000_000
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["aoi"]["cumulated_age_variance"] >= 0
