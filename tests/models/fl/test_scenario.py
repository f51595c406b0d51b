"""The learner as a scenario names it: the same keys on both sides, one message for what is wrong, files of a run."""

from __future__ import annotations

import inspect
import math
import re
from dataclasses import MISSING, fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from analysis import draw_all, open_run
from models.fl.aggregation import rules as aggregation
from models.fl.aggregation import server_optimizers
from models.fl.data import partition
from models.fl.learners import methods
from models.fl.networks import kinds as networks
from models.fl.options.names import DataOptions, LearnerOptions, TrainingOptions
from models.fl.privacy import mechanisms
from models.fl.training import optimizers
from scenarios.runs.reading import parse
from scenarios.runs.run import run
from scenarios.schema import learning
from scenarios.schema import networks as described_networks
from scenarios.schema.errors import UserError
from scenarios.schema.protection import also_released
from scenarios.schema.scenario import Privacy
from scenarios.schema.section import attribute_docs
from scenarios.wiring.simulation import build
from tests.helpers.fl_scenario import play, tables

torch.set_num_threads(1)


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
        (described_networks.NETWORKS, networks.NETWORKS, ("input_shape", "classes", "seed")),
        (learning.OPTIMIZERS, optimizers.OPTIMIZERS, ()),
        (learning.AGGREGATIONS, methods.ALL_AGGREGATIONS, ()),
        (learning.STALENESS, aggregation.STALENESS, ()),
        (learning.SERVER_OPTIMIZERS, server_optimizers.SERVER_OPTIMIZERS, ()),
    ],
)
def test_every_kind_has_the_same_keys_and_defaults_on_both_sides(described, built, given):
    assert list(described) == list(built)
    for kind, section in described.items():
        # A scenario may state the classes of a classifier of torchvision; they must then be those of the data.
        supplied = set(given) - ({"classes"} if kind == "torchvision" else set())
        expected = {name: default for name, default in arguments(built[kind]).items() if name not in supplied}
        assert keys(section) == expected, kind
        assert section.model_fields["kind"].default == kind


@pytest.mark.parametrize(("section", "options"), [(learning.Data, DataOptions), (learning.Learner, LearnerOptions)])
def test_a_table_has_the_keys_of_the_options_their_defaults_and_their_meaning(section, options):
    assert list(section.model_fields) == [option.name for option in fields(options)]
    meaning = {name: text for base in options.__mro__ for name, text in attribute_docs(base).items()}
    described = section.model_json_schema()
    for option in fields(options):
        key = section.model_fields[option.name]
        node = described["properties"][key.alias or option.name]
        # Of a key that holds a table which says the same of itself, the table says it.
        told = node.get("description") or described["$defs"][node["$ref"].rpartition("/")[2]]["description"]
        assert told == meaning[option.name]
        assert key.is_required() == (option.default is MISSING and option.default_factory is MISSING)
    given = {"network": {"kind": "linear"}, "optimizer": {"kind": "sgd", "learning_rate": 0.1}}
    if section is learning.Learner:
        default = section(**given).options()
        # A component's table comes back with its own defaults.
        tables = {"optimizer": {**given["optimizer"], "momentum": 0.0, "weight_decay": 0.0}}
        tables |= {"partition": {"kind": "equal", "minimum": 1}, "server_optimizer": {"kind": "sgd", "learning_rate": 1.0}}
        assert default == replace(LearnerOptions(**given), **tables)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("batch_size", 0, "must be >= 1 and <= 1000000000000"),
        ("max_steps", 2**63, "must be >= 1 and <= 1000000000000"),
        ("contribution_samples", -1, "must be >= 0"),
        ("proximal", -0.5, "must be >= 0 and <= 1e+38"),
        ("proximal", math.inf, "must be >= 0 and <= 1e+38"),
        ("evaluate_every_s", 0.0, "must be a finite number > 0"),
        ("optimizer_state", "old", "must be fresh or kept"),
        ("data.scale", "grey", "must be standard, unit, signed-unit or raw"),
        ("data.samples", 0, "must be >= 1"),
    ],
)
def test_bounds_are_checked_in_a_scenario_and_without_one(key, value, reason):
    table, name = [DataOptions, key.removeprefix("data.")] if key.startswith("data.") else [TrainingOptions, key]
    with pytest.raises(ValueError, match=rf"^{re.escape(f'{key} = {value!r}: {reason}')}$"):
        table(**{name: value})
    changed = {name: value} if table is TrainingOptions else {"data": {"kind": "digits", name: value}}
    with pytest.raises(UserError, match=rf"learner\.{re.escape(key)} = "):
        parse(tables(**changed))


def test_every_partition_and_mechanism_is_known_on_both_sides():
    from scenarios.registry.kinds import BUILT_IN

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


@pytest.mark.each_nth(3)
@pytest.mark.parametrize(
    "learner",
    [
        {"aggregation": {"kind": "majority-vote", "learning_rate": 0.01, "tie": "random"}},
        {"aggregation": {"kind": "fixed-share", "by": "equal", "form": "mixing"}, "keep": "best"},
        {"aggregation": {"kind": "mixing"}, "staleness": {"kind": "polynomial"}},
        {"aggregation": {"kind": "median"}, "server_optimizer": {"kind": "fedadagrad"}},
        {"aggregation": {"kind": "trimmed-mean", "share": 0.2}, "server_optimizer": {"kind": "fedyogi", "tau": 0.01}},
        {"aggregation": {"kind": "krum", "wrong": 0, "selected": 2}},
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


def test_the_training_loss_is_a_column(tmp_path: Path):
    play(tmp_path, training_loss=True, evaluate_every_rounds=2)
    table = open_run(tmp_path / "out").rounds
    assert table["training_loss"].notna().tolist() == [True, True, True]
    # Before any training ten classes guessed alike have a loss of ln 10; it falls.
    assert table["training_loss"].iloc[0] < 2.6
    assert table["training_loss"].iloc[-1] < table["training_loss"].iloc[0]
    play(tmp_path, "unasked")
    assert open_run(tmp_path / "unasked").rounds["training_loss"].isna().all()


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
    assert build(scenario).simulation.server.learner.release.guarantee.startswith("(epsilon, delta)-LDP for the whole")
    single = run(parse({**tables(), "privacy": gaussian(guarantee="per_coordinate")}), tmp_path / "single")
    assert "single coordinates only" in single["privacy"]["guarantee"]


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


LAPLACE = {
    "guarantee": "l1",
    "sensitivity": 0.5,
    "schedule": {"kind": "geometric", "epsilon_total": 10.0, "eta": 0.04},
}
BATCH_NORM = {"network": {"kind": "cnn8", "channels": [4] * 8, "norm": "batch"}, "max_steps": 1}


def test_a_summary_says_what_left_the_clients_bare(tmp_path: Path):
    named = {**tables(**BATCH_NORM), "privacy": {**LAPLACE, "unprotected": "batch-norm"}}
    privacy = run(parse(named), tmp_path / "named")["privacy"]
    # Eight layers of 4 channels: a weight, a bias, a mean and a variance each.
    assert privacy["unprotected_parameters"] == 128
    rest = privacy["parameters"] - 128
    told = f"No local differential privacy of the whole update: 128 of its {rest + 128} numbers are sent as they are"
    assert privacy["guarantee"].startswith(told)
    assert f"For the other {rest} taken by themselves: epsilon-LDP of the whole update" in privacy["guarantee"]
    assert privacy["also_released"] == ["how many samples each client holds (for the weights of the aggregation)"]
    assert privacy["guarantee"].endswith(f"Not protected beside updates: {privacy['also_released'][0]}.")
    local = run(parse({**tables(**BATCH_NORM, batch_statistics="local"), "privacy": LAPLACE}), tmp_path / "local")["privacy"]
    assert (local["unprotected_parameters"], local["parameters"]) == (0, rest + 64)
    assert local["guarantee"].startswith("epsilon-LDP of the whole update")
    # Without a mechanism nothing is claimed, and nothing refused.
    off = {**tables(**BATCH_NORM), "privacy": {**LAPLACE, "mechanism": "none", "guarantee": "per_coordinate"}}
    assert run(parse(off), tmp_path / "off")["privacy"]["guarantee"].startswith("No privacy")


def test_everything_else_that_leaves_a_client_is_named():
    contribution = {
        "aggregation": {"kind": "contribution"},
        "contribution_samples": 5,
        "data": {"kind": "digits", "validation_samples": 300},
    }
    assert also_released(parse({**tables(**contribution), "privacy": LAPLACE})) == [
        "in which proportions each client holds the labels (for validation samples to measure contributions on)"
    ]
    shares = {**tables(aggregation={"kind": "fixed-share"}), "privacy": LAPLACE}
    assert also_released(parse(shares)) == ["how many samples each client holds (for the weights of the aggregation)"]
    alike = {**tables(aggregation={"kind": "fixed-share", "by": "equal"}), "privacy": LAPLACE}
    assert also_released(parse(alike)) == []
    sizes = {**tables(aggregation={"kind": "equal"}), "policy": {"kind": "pause", "tau_min_s": 0.1}, "privacy": LAPLACE}
    assert also_released(parse(sizes)) == ["how many samples each client holds (for the policy)"]
    asking = {**tables(aggregation={"kind": "equal"}), "policy": {"kind": "tests.helpers.asking:Highest"}, "privacy": LAPLACE}
    assert also_released(parse(asking)) == ["the loss of the model on the samples of each client that is asked (for the policy)"]
    told = {**tables(aggregation={"kind": "equal"}), "policy": {"kind": "tests.helpers.asking:Told", "rounds": [[0]]}}
    assert also_released(parse(told | {"privacy": LAPLACE})) == ["each delivered update's losses in training (for the policy)"]
    slots = {**tables(aggregation={"kind": "equal"}), "server": {"kind": "fl-fa", "per_round": 3}, "privacy": LAPLACE}
    assert also_released(parse(slots)) == ["each client's opinion in every slot: the accuracy of the model on its local test set"]
    assert also_released(parse({**tables(aggregation={"kind": "equal"}), "privacy": LAPLACE})) == []
