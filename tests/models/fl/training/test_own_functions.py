"""Local training and metrics by functions of the user's own: what they are given, and what becomes of their answers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from analysis import open_run
from models.fl.training.optimizers import Sgd
from scenarios.runs.folders.own_code import own_code
from scenarios.runs.reading import override, parse
from scenarios.runs.run import go_on, run
from scenarios.schema.errors import UserError
from scenarios.wiring.simulation import build
from tests.helpers.fl_scenario import tables
from tests.helpers.learners import deliver, make, model

MODULE = """
import numpy as np
import torch

def sgd(parameters, data, steps, generator, rate=0.1):
    values = dict(parameters)
    losses, samples, first = [], 0, -(-len(data.x) // max(len(batch) for batch in data.batches))
    assert steps == len(data.batches)
    for step, batch in enumerate(data.batches):
        leaves = {name: values[name].detach().requires_grad_() for name in data.trained}
        each = data.loss(data.scores(values | leaves, data.x[batch]), data.y[batch])
        slopes = torch.autograd.grad(each.mean(), list(leaves.values()))
        values |= {name: (leaf - rate * slope).detach() for (name, leaf), slope in zip(leaves.items(), slopes)}
        samples += len(batch)
        if step < first:
            losses.append(each)
    return values, samples, torch.cat(losses)

def noisy(parameters, data, steps, generator):
    out = {name: value + 0.01 * generator.standard_normal() + 0 * torch.rand(1) for name, value in parameters.items()}
    return out, sum(map(len, data.batches)), []

def fails(parameters, data, steps, generator):
    raise RuntimeError("no luck")

def counts(parameters, data, steps, generator):
    return parameters, -3, []

def shapes(parameters, data, steps, generator):
    return {name: value.flatten() for name, value in parameters.items()}, sum(map(len, data.batches)), []

def alone(parameters, data, steps, generator):
    return parameters

def worst_class(scores, classes):
    right = scores.argmax(1) == classes
    return min(right[classes == one].mean() for one in set(classes.tolist()))

def samples(scores, classes):
    assert scores.shape == (len(classes), 10)
    return len(classes)

def words(scores, classes):
    return "good"

def breaks(scores, classes):
    return {}["no"]

NUMBER = 3
"""


@pytest.fixture(autouse=True)
def functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "own_functions.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield __import__("own_functions")
    sys.modules.pop("own_functions", None)


def scenario(**learner: Any) -> Any:
    return parse(tables(**learner))


@pytest.mark.parametrize("trained", [None, ["layers.1.*"]])
def test_ones_own_sgd_is_the_built_in_one(functions, trained):
    own = make(optimizer=Sgd(learning_rate=0.1), local_training=functions.sgd, epochs=2, trained=trained)
    built_in = make(optimizer=Sgd(learning_rate=0.1), epochs=2, trained=trained)
    for learner in (own, built_in):
        content = learner.aggregate(deliver(1, [0, 2, 3], 0), True, True)
        learner.told = content
    np.testing.assert_allclose(own.told.updates, built_in.told.updates, atol=1e-5)
    np.testing.assert_allclose(own.told.loss, built_in.told.loss, rtol=1e-4)
    np.testing.assert_allclose(model(own), model(built_in), atol=1e-5)
    assert own.training_mode == "sequential: local training is a function of your own"


def test_its_draws_belong_to_client_and_round(functions):
    together = make(local_training=functions.noisy).aggregate(deliver(1, [0, 2, 3], 0), True).updates
    before = torch.get_rng_state()
    alone = make(local_training=functions.noisy).aggregate(deliver(4, [2], 0, rounds=[1]), True).updates
    assert torch.equal(before, torch.get_rng_state())
    np.testing.assert_array_equal(alone[0], together[1])
    assert not np.array_equal(together[0], together[1])


def test_what_is_not_trained_keeps_its_numbers_whatever_is_returned(functions):
    updates = make(local_training=functions.noisy, trained=["layers.1.*"]).aggregate(deliver(1, [0, 1], 0), True).updates
    assert (updates[:, :136] == 0).all()
    assert (updates[:, 136:] != 0).all()


def test_a_run_records_its_metrics_and_resumes_the_same(tmp_path, functions):
    study = scenario(local_training="own_functions:sgd", metrics=["own_functions:worst_class", "own_functions:samples"])
    summary = run(study, tmp_path / "straight")
    assert set(own_code(study)) == {"own_functions:sgd", "own_functions:worst_class", "own_functions:samples"}
    assert list(summary["own_code"][0]["components"]) == sorted(own_code(study))
    straight = open_run(tmp_path / "straight")
    table = straight.evaluations
    assert table["metric"].astype(str).tolist() == ["worst_class", "samples"] * 3
    assert table["round"].tolist() == [1, 1, 2, 2, 3, 3]
    assert table["time_s"].tolist() == pytest.approx(np.repeat(straight.rounds["end_s"], 2).tolist())
    assert (table["value"][table["metric"] == "samples"] == 360).all()
    worst = table["value"][table["metric"] == "worst_class"].to_numpy()
    assert (worst <= straight.rounds["accuracy"].to_numpy()).all()

    def interrupt(simulation: Any) -> None:
        if simulation.server.round == 1:
            raise KeyboardInterrupt

    run(study, tmp_path / "cut", after_round=interrupt)
    go_on(tmp_path / "cut")
    assert open_run(tmp_path / "cut").evaluations.equals(table)
    assert not (tmp_path / "cut/unfinished").exists()


def test_a_resume_after_an_edit_is_refused(tmp_path, functions):
    def interrupt(simulation: Any) -> None:
        raise KeyboardInterrupt

    study = scenario(local_training="own_functions:sgd")
    run(study, tmp_path / "cut", after_round=interrupt)
    (tmp_path / "own_functions.py").write_text(MODULE + "\n# edited\n", encoding="utf-8")
    sys.modules.pop("own_functions")
    with pytest.raises(UserError, match=r"the code of 'own_functions:sgd' \(own_functions\) has changed since"):
        go_on(tmp_path / "cut")


@pytest.mark.each_nth(5)
@pytest.mark.parametrize(
    ("learner", "said"),
    [
        ({"local_training": "own_functions:fails"}, "learner.local_training = 'own_functions:fails': RuntimeError: no luck, "),
        (
            {"local_training": "own_functions:counts"},
            "learner.local_training = 'own_functions:counts': returned -3; samples must be a whole number >= 0",
        ),
        (
            {"local_training": "own_functions:shapes"},
            "learner.local_training = 'own_functions:shapes': returned (512,); par",
        ),
        (
            {"local_training": "own_functions:alone"},
            "learner.local_training = 'own_functions:alone': returned 'dict'; must be",
        ),
        ({"metrics": ["own_functions:words"]}, "learner.metrics = 'own_functions:words': returned 'good'; must be a number"),
        ({"metrics": ["own_functions:breaks"]}, "learner.metrics = 'own_functions:breaks': KeyError: 'no', "),
    ],
)
def test_what_fails_or_answers_wrongly_is_told_with_round_and_seed(tmp_path, functions, learner, said):
    with pytest.raises(UserError) as refusal:
        run(scenario(**learner), tmp_path / "run")
    assert str(refusal.value).startswith(said)
    assert str(refusal.value).endswith("(round 1, 1 s, seed 1)")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"learner.local_training": "own_functions:NUMBER"},
            'learner.local_training = "own_functions:NUMBER": is no function',
        ),
        (
            {"learner.local_training": "own_functions:sdg"},
            'learner.local_training = "own_functions:sdg": module \'own_f',
        ),
        ({"learner.metrics": ["accuracy"]}, 'learner.metrics.0 = "accuracy": name a function of your own as'),
        ({"learner.metrics": ["own_functions:words"] * 2}, "learner.metrics = "),
        (
            {"learner.local_training": "own_functions:sgd", "learner.proximal": 0.1},
            "learner.proximal = 0.1: leave it out: local_training takes the steps",
        ),
    ],
)
def test_what_is_no_function_is_refused_before_the_run(functions, changes, said):
    with pytest.raises(UserError) as refusal:
        build(parse(override(tables(), changes)))
    assert str(refusal.value).removeprefix("scenario: ").startswith(said)
