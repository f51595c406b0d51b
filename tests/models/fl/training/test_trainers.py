"""A trainer of the user's own is one class: jobs in, updates out; eager ones decide how long their clients take."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from analysis import open_run
from models.fl.training.optimizers import Sgd
from scenarios.runs.reading import parse
from scenarios.runs.run import go_on, run
from scenarios.schema.errors import UserError
from tests.helpers.fl_scenario import netsim, tables, to_toml
from tests.helpers.learners import deliver, make, model
from tests.helpers.own_trainers import Descent, Remembering
from tests.helpers.random_worlds import copied

OWN = "tests.helpers.own_trainers"
LAZY: Any = type("LazyDescent", (Descent,), {"eager": False})


def trained_by(kind: str, **learner: Any) -> dict[str, Any]:
    """A study whose compute times are 0.01 s a sample, trained by a class of `own_trainers`."""
    study = tables(trainer={"kind": f"{OWN}:{kind}"}, **learner)
    return study | {"compute": {"seconds_per_sample": 0.01}}


def test_ones_own_descent_is_the_built_in_one() -> None:
    trainer = LAZY(rate=0.1)
    own, built_in = make(optimizer=Sgd(learning_rate=0.1), trainer=trainer), make(optimizer=Sgd(learning_rate=0.1))
    contents = [learner.aggregate(deliver(1, [0, 2, 3], 0), True, True) for learner in (own, built_in)]
    np.testing.assert_allclose(contents[0].updates, contents[1].updates, atol=1e-5)
    np.testing.assert_allclose(contents[0].loss, contents[1].loss, rtol=1e-4)
    np.testing.assert_allclose(model(own), model(built_in), atol=1e-5)
    # All jobs that are needed together come in one call.
    assert trainer.calls == [[0, 2, 3]]
    assert own.training_mode == "sequential: the trainer is your own"
    assert own.notes == []


def test_a_job_does_not_depend_on_its_company() -> None:
    together = make(trainer=LAZY()).aggregate(deliver(1, [0, 2, 3], 0), True).updates
    alone = make(trainer=LAZY()).aggregate(deliver(4, [2], 0, rounds=[1]), True).updates
    np.testing.assert_array_equal(alone[0], together[1])


def moves(learner: Any, round: int, clients: list[int], **named: Any) -> list[float]:
    content = learner.aggregate(deliver(round, clients, learner.version, **named), True)
    return content.updates.mean(1).round(4).tolist()


def test_states_of_clients_go_on_with_what_is_delivered() -> None:
    learner, other = make(trainer=Remembering()), make(trainer=Remembering())
    assert moves(learner, 1, [0, 1]) == [0.0, 0.0]
    assert moves(learner, 2, [1, 2]) == [1.0, 0.0]
    # Two updates of one client: the second goes on from the first.
    assert moves(learner, 4, [1, 1, 2], rounds=[3, 4, 4]) == [2.0, 3.0, 1.0]
    other.load_state_dict(copied(learner.state_dict()))
    assert moves(learner, 5, [0, 1, 2]) == moves(other, 5, [0, 1, 2]) == [1.0, 4.0, 2.0]


def test_other_samples_than_planned_are_noted_and_change_no_time(tmp_path) -> None:
    summary = run(parse(trained_by("Remembering")), tmp_path / "own")
    rows = open_run(tmp_path / "own").clients
    assert (rows["samples"] == 20).all()
    assert summary["learner"]["notes"] == [
        "the trainer processed 9 samples, and time and tables count the 180 that were planned; a trainer with eager = True has "
        "them count what it processes (without [edges], and with a server)"
    ]


def test_an_eager_trainer_decides_how_long_its_clients_take(tmp_path) -> None:
    summary = run(parse(trained_by("UntilGood") | {"rounds": 6}), tmp_path / "own")
    rows = open_run(tmp_path / "own").clients
    np.testing.assert_allclose(rows["compute_end_s"] - rows["compute_start_s"], 0.01 * rows["samples"])
    assert (rows["samples"] == 20 * rows["steps"]).all()
    assert rows["samples"].nunique() > 2
    assert summary["learner"]["notes"] == []
    assert summary["final"]["accuracy"] > 0.1
    # The policy hears of them, too: they are in the reports and in the books.
    assert summary["totals"]["delivered"] == 18


LOSSY = {
    "rounds": 8,
    "server": {"kind": "buffered", "concurrency": 4, "buffer": 3},
    "uplink": {"channel": {"kind": "bernoulli", "success": 0.7}},
}


@pytest.mark.each_nth(2)
@pytest.mark.parametrize("server", [{}, LOSSY], ids=["synchronous", "buffered, with losses"])
def test_an_eager_run_resumes_the_same(tmp_path, server) -> None:
    study = parse(trained_by("UntilGood") | {"rounds": 6} | server)
    straight = run(study, tmp_path / "straight")

    def interrupt(simulation: Any) -> None:
        if simulation.server.round == 3:
            raise KeyboardInterrupt

    run(study, tmp_path / "cut", after_round=interrupt)
    resumed = go_on(tmp_path / "cut")
    assert resumed["final"] == straight["final"]
    first, second = (open_run(tmp_path / name).clients for name in ("straight", "cut"))
    assert second.equals(first)


def test_what_an_eager_trainer_did_for_lost_updates_is_dropped() -> None:
    learner = make(trainer=type("Eager", (LAZY,), {"eager": True})())
    for round in range(1, 6):
        learner.begin(round, 0, np.array([0, 1]), None)
        if round == 2:
            learner.on_delivery(1, 2)
    ahead = learner.state_dict()["ahead"]
    assert sorted((client, round) for client, round, *_ in ahead) == [(0, 5), (1, 2), (1, 5)]
    learner.aggregate(deliver(6, [1], 0, rounds=[2]), False)
    assert sorted((client, round) for client, round, *_ in learner.state_dict()["ahead"]) == [(0, 5), (1, 5)]


@pytest.mark.each_nth(3)
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("Short", "must be a list of 3 results, one a job"),
        ("Pairs", "returned 'tuple'; must be a models.fl.training.own_training.Trained"),
        ("Uncountable", "returned 0.5; samples must be a whole number >= 0"),
        ("Unsaveable", "state must hold None, numbers, strings, NumPy arrays, lists and dicts only"),
    ],
)
def test_wrong_results_are_told_with_the_round(tmp_path, kind, words) -> None:
    with pytest.raises(UserError) as refusal:
        run(parse(trained_by(kind)), tmp_path / "own")
    assert str(refusal.value).startswith(f"learner.trainer.kind = '{OWN}:{kind}': train returned")
    assert words in str(refusal.value)


@pytest.mark.each_nth(3)
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"trainer": {"kind": f"{OWN}:NoTrain"}}, "lacks train; see Trainer in models.fl.protocols"),
        ({"proximal": 0.1}, "learner.proximal = 0.1: leave it out: trainer takes the steps"),
        ({"optimizer_state": "kept", "optimizer": {"kind": "adam", "learning_rate": 0.1}}, "leave it out: trainer takes the"),
        ({"aggregation": {"kind": "fednova"}}, 'learner.trainer = "..": fednova goes by the steps of sgd; leave it out'),
        ({"local_training": "tests.helpers.fl_scenario:tables"}, "give either this or local_training"),
    ],
)
def test_what_does_not_go_with_a_trainer_is_refused(tmp_path, monkeypatch, capsys, changes, words) -> None:
    study = trained_by("Descent", **{name: value for name, value in changes.items() if name != "trainer"})
    study["learner"] |= changes
    code, told = netsim(
        monkeypatch, capsys, "run", to_toml(tmp_path / "own.toml", study), "--quiet", "--out", str(tmp_path / "out")
    )
    assert (code, len(told.splitlines())) == (2, 1)
    assert words in told
    assert not (tmp_path / "out").exists()


def on_a_ring(kind: str) -> dict[str, Any]:
    """Peers on a ring that train by a class of `own_trainers`."""
    study = tables(trainer={"kind": f"{OWN}:{kind}"})
    del study["policy"]
    return study | {"server": {"kind": "peers", "protocol": {"kind": "d-psgd"}}, "peers": {"topology": {"kind": "ring"}}}


def test_peers_train_by_ones_own_trainer_as_by_the_built_in_steps(tmp_path) -> None:
    own = on_a_ring("Unhurried")
    built_in = own | {"learner": {key: value for key, value in own["learner"].items() if key != "trainer"}}
    for name, study in (("own", own), ("built in", built_in)):
        run(parse(study), tmp_path / name)
    columns = ["loss", "accuracy", "consensus_distance"]
    found, wanted = (open_run(tmp_path / name).rounds[columns].to_numpy() for name in ("own", "built in"))
    np.testing.assert_allclose(found, wanted, rtol=1e-4)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("Remembering", "a peer keeps its model only; return no state"),
        ("UntilGood", "learner.trainer: trains ahead, which peers do not; set eager = False"),
    ],
)
def test_peers_refuse_what_they_have_no_place_for(tmp_path, kind, words) -> None:
    study = on_a_ring(kind)
    with pytest.raises(UserError, match=words):
        run(parse(study), tmp_path / "own")
