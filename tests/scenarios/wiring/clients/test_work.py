"""Work and speed: the times of training worked out by hand, and with a learner the samples that it really processes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from netsim.core.errors import AnswerError
from netsim.core.protocols import RoundView, Selection
from netsim.core.streams import Streams
from scenarios.runs.reading import override, parse
from scenarios.schema.errors import UserError
from scenarios.wiring.simulation import build
from tests.helpers.memory_recorder import MemoryRecorder
from tests.helpers.small_worlds import Script, World, constant

WORK: dict[str, Any] = {
    "clients": {"count": 3, "data_sizes": [10, 8, 9]},
    "server": {"per_round": 3},
    "work": {"epochs": 2, "batch_size": 4},
    "compute": constant(1, 1, 1) | {"samples_per_s": [1.0, 2.0, 4.0]},
}


def world(rounds: list[Any], **tables: Any) -> World:
    return World(rounds, **WORK | tables)


class Asking(Script):
    """Asks for steps beside clients: the lists of a round are [clients, steps]."""

    def __init__(self, *, rounds: list[list[list[int]]]) -> None:
        super().__init__(rounds=[])
        self._asked = rounds

    def select(self, view: RoundView) -> Any:
        clients, steps = (np.array(given, np.int64) for given in self._asked[view.round - 1])
        return Selection(clients, steps)


def test_training_takes_a_delay_and_samples_over_speed() -> None:
    # 20 samples at 1 a second, 16 at 2, 18 at 4, each after 1 s.
    it = world([[0, 1, 2]]).play()
    assert it.rows("client", "compute_end_s", "samples", "steps") == [(2, 5.5, 18, 6), (1, 9, 16, 4), (0, 21, 20, 6)]
    assert it.server.clients.medium.latency_s(1, 0.0, np.arange(3)).tolist() == [21, 9, 5.5]


@pytest.mark.parametrize(
    ("speed", "ends"),
    [
        ({"seconds_per_sample": [1.0, 0.5, 0.25]}, [5.5, 9, 21]),
        ({"flops_per_sample": 200.0, "flops_per_s": [200.0, 400.0, 800.0]}, [5.5, 9, 21]),
        ({"flops_per_sample": [50.0, 100.0, 200.0], "flops_per_s": 200.0}, [6, 9, 19]),
    ],
)
def test_a_speed_may_be_given_in_three_ways(speed: dict[str, Any], ends: list[float]) -> None:
    it = world([[0, 1, 2]], compute=constant(1, 1, 1) | speed).play()
    assert it.rows("compute_end_s") == [(end,) for end in ends]


def test_clients_do_different_amounts_of_work() -> None:
    # Client 0: three passes of 10; client 1: one of 8; client 2: two of 9, in batches of 9, 2 and 4.
    it = world([[0, 1, 2]], work={"epochs": [3, 1, 2], "batch_size": [9, 2, 4]}).play()
    assert sorted(it.rows("client", "samples", "steps")) == [(0, 30, 6), (1, 8, 4), (2, 18, 6)]
    it = world([[0, 1, 2]], work={"steps": [1, 2, 3], "batch_size": 4}).play()
    assert sorted(it.rows("client", "samples", "steps")) == [(0, 4, 1), (1, 8, 2), (2, 9, 3)]
    # 10/3, 20/3 and 10 samples, rounded up to whole ones.
    it = world([[0, 1, 2]], work={}, clients={"count": 3, "data_sizes": {"from": 0.0, "to": 10.0}}).play()
    assert sorted(it.rows("client", "samples", "steps")) == [(0, 4, 1), (1, 7, 1), (2, 10, 1)]
    it = world([[0, 1, 2]], work={"steps": 3, "batch_size": 4}, clients={"count": 3}).play()
    assert sorted(it.rows("client", "samples", "steps")) == [(0, 12, 3), (1, 12, 3), (2, 12, 3)]


def test_a_policy_may_choose_the_steps() -> None:
    # Of batches of 4, 4 and 2 client 0 takes one: 4 samples in 4 s; client 2 four of 4, 4, 1: 13 samples in 3.25 s.
    policy = {"kind": "tests.scenarios.wiring.clients.test_work:Asking"}
    it = world([[[2, 0], [4, 1]], [[1], [2]]], policy=policy).play()
    assert it.rows("round", "client", "compute_end_s", "samples", "steps") == [
        (1, 2, 1 + 3.25, 13, 4),
        (1, 0, 1 + 4, 4, 1),
        (2, 1, 5 + 1 + 4, 8, 2),
    ]


@pytest.mark.parametrize(
    ("answer", "work", "message"),
    [
        ([[0, 1], [1]], WORK["work"], "^policy: select returned .*; expected the steps of each of 2 clients, >= 1"),
        ([[0, 1], [1, 0]], WORK["work"], "^policy: select returned .*; expected the steps of each of 2 clients, >= 1"),
        ([[0, 1], [1, 1]], None, "nothing says what a local step is"),
    ],
)
def test_steps_that_cannot_be_are_refused(answer: list[list[int]], work: Any, message: str) -> None:
    tables: dict[str, Any] = {"policy": {"kind": "tests.scenarios.wiring.clients.test_work:Asking"}}
    tables |= {"work": work} if work is not None else {"work": None, "compute": constant(1, 1, 1)}
    with pytest.raises(AnswerError, match=message):
        world([answer], **tables).play()


def test_speed_changes_act_on_what_begins_after_them() -> None:
    # At 5 s client 0, which is computing, goes on as it began; round 2 begins at 21 with twice the speed.
    changes = [{"at_s": 5.0, "samples_per_s": 2.0, "clients": [0]}, {"at_round": 2, "delay": {"value_s": 3.0}}]
    compute = WORK["compute"] | {"changes": changes}
    it = world([[0, 1], [0, 1]], compute=compute).play()
    assert it.rows("round", "client", "compute_end_s") == [(1, 1, 9), (1, 0, 21), (2, 1, 21 + 3 + 8), (2, 0, 21 + 3 + 10)]
    # A client that begins to compute after the change, in the same round, is faster.
    it = world([[0, 1]], compute=compute, downlink=constant(6, 0, 0)).play()
    assert it.rows("client", "compute_end_s") == [(1, 9), (0, 6 + 1 + 10)]


def test_noise_multiplies_the_time_of_all_samples_and_has_a_stream_of_its_own() -> None:
    noisy = WORK["compute"] | {"noise": {"kind": "log-normal", "sigma": [0.5, 0.0, 0.5]}}
    it = world([[0, 1, 2]] * 3, compute=noisy)
    u = [Streams(1)["compute.noise"].uniforms(t, 3) for t in (1, 2, 3)]
    it.play()
    factors = it.simulation.server.clients.medium.sample.law.at(1, 0.0)[0].noise
    spent = {(row.round, row.client): row.compute_end_s - row.compute_start_s for row in it.records.updates}
    for (number, client), seconds in spent.items():
        factor = factors.quantile(u[number - 1], np.arange(3))[client]
        assert seconds == pytest.approx(1 + [20, 8, 4.5][client] * factor, rel=1e-12)
    assert len({round(seconds, 6) for (_, client), seconds in spent.items() if client != 1}) == 6
    # The delay's draws are those of a world without noise.
    lumped = {"delay": {"kind": "shifted-exponential", "shift_s": 0.0, "mean_excess_s": 1.0}}
    free = World([[0, 1, 2]], server={"per_round": 3}, compute=lumped).play()
    free_s = {row.client: row.compute_end_s for row in free.records.updates}
    both = world([[0, 1, 2]], compute=noisy | lumped).play()
    for row in both.records.updates:
        factor = factors.quantile(u[0], np.arange(3))[row.client]
        assert row.compute_end_s == pytest.approx(free_s[row.client] + [20, 8, 4.5][row.client] * factor)


def test_expected_latencies_know_the_work() -> None:
    compute = WORK["compute"] | {"noise": {"kind": "gamma", "shape": 2.0}, "changes": [{"at_round": 5, "samples_per_s": 0.5}]}
    tables = {"name": "work", "rounds": 9, "policy": {"kind": "random"}} | WORK | {"compute": compute}
    truth = build(parse(tables)).truth
    assert truth.mean_latency_s(1, 0.0).tolist() == [21, 9, 5.5]
    assert truth.mean_latency_s(5, 0.0).tolist() == [41, 33, 37]
    # E[min(1, 1/(1 + 20 G))], G gamma with shape 2 and mean 1, by a fine sum.
    u = (np.arange(1 << 18) + 0.5) / (1 << 18)
    noise = build(parse(tables)).server.clients.medium.sample.law.at(1, 0.0)[0].noise
    drawn = 1 + 20 * noise.quantile(u, np.zeros(len(u), np.int64))
    assert truth.mean_ratio(1.0, 1, 0.0)[0] == pytest.approx((1 / drawn).mean(), rel=1e-4)
    assert truth.round_s(np.arange(3), 1, 0.0) > 21


def test_warnings_know_the_work() -> None:
    tables = {"name": "work", "rounds": 9, "policy": {"kind": "random"}} | WORK
    server = {"per_round": 3, "deadline_s": 5.0}
    texts = [caution.text for caution in build(parse(tables | {"server": server})).cautions]
    assert ["the shortest possible update of any client, 5.5 s" in text for text in texts] == [True]
    assert build(parse(tables | {"server": server | {"deadline_s": 21.0}})).cautions == ()
    # A policy of the user's own may ask for fewer steps.
    own = {"policy": {"kind": "tests.scenarios.wiring.clients.test_work:Asking", "rounds": [[[0], [1]]]}}
    assert build(parse(tables | {"server": server} | own)).cautions == ()


SLOTS: dict[str, Any] = {
    "name": "slots",
    "rounds": 2,
    "clients": {"count": 3, "data_sizes": 12},
    "server": {"kind": "fl-fa", "per_round": 3},
    "slots": {"rounds": 2},
    "policy": {"kind": "all"},
    "work": {},
    "compute": {"samples_per_s": [12.0, 6.0, 4.0]},
    "opinions": {"synthetic": {"worth": 0.5}, "test_samples": [36.0, 6.0, 6.0]},
}


def opinion_s(**changes: Any) -> list[Any]:
    simulation, records = build(parse(override(SLOTS, changes))).simulation, MemoryRecorder()
    simulation.record_to(records)
    simulation.run()
    return [row.opinion_s for row in records.rounds]


def test_tests_of_the_model_take_a_share_of_the_time_of_training() -> None:
    # A third of 36 samples at 12 a second is 1 s, of 6 at 6 a third, of 6 at 4 a half; the slot waits for the last.
    assert opinion_s() == pytest.approx([1.0, 1.0])
    assert opinion_s(work={"forward_share": 0.5}) == pytest.approx([1.5, 1.5])
    assert opinion_s(**{"opinions.test": {"kind": "constant", "value_s": 0.25}}) == pytest.approx([1.25, 1.25])
    # From communication round 4, the last of slot 2, client 0 is half as fast.
    changes = [{"at_round": 4, "samples_per_s": 6.0, "clients": [0]}]
    assert opinion_s(**{"compute.changes": changes}) == pytest.approx([1.0, 2.0])
    assert opinion_s(opinions={"synthetic": {"worth": 0.5}}) == [0.0, 0.0]
    noisy = opinion_s(**{"compute.noise": {"kind": "gamma", "shape": 1.0}})
    assert noisy[0] != noisy[1]


def test_the_local_test_sets_size_is_known_with_a_learner() -> None:
    pytest.importorskip("torch")
    tables = override(
        {name: table for name, table in SLOTS.items() if name != "work"},
        {"learner": LEARNER | {"local_test_samples": 24}, "opinions": {"test_samples": "local"}, "clients": {"count": 3}},
    )
    simulation, records = build(parse(tables)).simulation, MemoryRecorder()
    simulation.record_to(records)
    simulation.run()
    assert [row.opinion_s for row in records.rounds] == pytest.approx([24 / 3 / 4] * 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"opinions.test_samples": "own"}, "opinions.test_samples = \"own\": must be 'local', or numbers of samples"),
        ({"opinions.test_samples": "local"}, "opinions.test_samples = 'local': is of [learner]"),
        ({"opinions.test_samples": [1.0, -1.0, 0.0]}, "opinions.test_samples = -1.0: must be >= 0 samples"),
        ({"compute": {}}, "opinions.test_samples = [36.0, 6.0, 6.0]: takes time by a speed"),
        ({"opinions.test": {"kind": "constant", "value_s": -1.0}}, "opinions.test.value_s = -1.0: must be finite"),
        ({"opinions.test": {"kind": "constant", "value_s": 1e13}}, "opinions.test: takes 1e+13 s on average"),
    ],
)
def test_samples_of_tests_that_cannot_be_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        opinion_s(**changes)
    assert message in str(caught.value)


LEARNER: dict[str, Any] = {
    "data": {"kind": "digits", "samples": 130},
    "partition": {"kind": "dirichlet-sizes", "concentration": 3.0},
    "network": {"kind": "linear"},
    "optimizer": {"kind": "sgd", "learning_rate": 0.1},
    "batch_size": 8,
    "epochs": 2,
}
NORMED = LEARNER | {"network": {"kind": "tests.scenarios.wiring.clients.test_work:normed"}}


def normed(*, classes: int) -> Any:
    from torch import nn

    return nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.BatchNorm1d(6), nn.Linear(6, classes))


ASKED = {"kind": "tests.scenarios.wiring.clients.test_work:Asking", "rounds": [[[0, 1], [3, 1]], [[2], [7]], [[3, 0], [1, 2]]]}


def trained(**changes: Any) -> tuple[Any, list[tuple[int, int]], bool]:
    """A run of three rounds, the samples and steps of each update as training saw them, and whether a batch was left out."""
    tables = {
        "name": "trained",
        "rounds": 3,
        "clients": {"count": 4},
        "server": {"per_round": 4},
        "policy": {"kind": "all"},
        "learner": LEARNER,
        "compute": {"samples_per_s": 8.0},
    }
    built = build(parse(override(tables, changes)))
    records = MemoryRecorder()
    built.simulation.record_to(records)
    seen: list[tuple[int, int]] = []
    trainer = built.trained._trainer
    chunk = trainer._train_chunk

    def counting(rows: Any, local: Any) -> Any:
        # What reaches the steps, after whatever is left out.
        seen.extend((int((batch >= 0).sum()), len(batch)) for batch in local.batches)
        return chunk(rows, local)

    trainer._train_chunk = counting
    built.simulation.run()
    work = built.trained.work
    return records, seen, bool((work.steps < work.drawn).any())


@pytest.mark.each_nth(3)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"learner.max_steps": 5},
        {"work": {"epochs": [1, 2, 3, 1], "batch_size": [3, 8, 16, 5]}},
        {"work": {"steps": [1, 9, 2, 4]}},
        {"learner": NORMED},
        {"learner": NORMED, "work": {"epochs": 3, "batch_size": [1, 2, 3, 4]}},
        {"policy": ASKED},
    ],
)
def test_samples_and_steps_are_those_that_the_learner_processes(changes: dict[str, Any]) -> None:
    pytest.importorskip("torch")
    records, seen, left_out = trained(**changes)
    assert sorted(seen) == sorted((row.samples, row.steps) for row in records.updates)
    assert all(row.compute_end_s - row.compute_start_s == pytest.approx(row.samples / 8.0) for row in records.updates)
    if "learner" in changes:
        # Some batch held a single sample, and was left out.
        assert left_out


REFUSED: dict[str, dict[str, Any]] = {
    "work.steps = 2.0: leave it out; epochs says how much": {"work": {"epochs": 1, "steps": 2}},
    "work.epochs = 1.5: must be a whole number >= 1": {"work": {"epochs": 1.5}},
    "work.batch_size = 0.0 for client 1: must be a whole number >= 1": {"work": {"batch_size": [1, 0, 2]}},
    "work.epochs = 2.0: give clients.data_sizes": {"clients": {"count": 3}},
    "work.batch_size = null: must be given with steps": {"clients": {"count": 3}, "work": {"steps": 3}},
    "clients.data_sizes = -1.5 for client 1: every client must hold": {"clients": {"count": 3, "data_sizes": [2, -1.5, 1]}},
    "compute.samples_per_s: nothing says how many samples": {"work": None},
    "compute.samples_per_s = 3.0: leave it out; seconds_per_sample says it": {
        "compute": {"samples_per_s": 3.0, "seconds_per_sample": 1.0}
    },
    "compute.samples_per_s = 0.0 for client 1: must be finite and > 0": {"compute": {"samples_per_s": [1.0, 0.0, 1.0]}},
    "compute.seconds_per_sample = -1.0: must be finite and >= 0": {"compute": {"seconds_per_sample": -1.0}},
    "compute.flops_per_s is missing": {"compute": {"flops_per_sample": 3.0}},
    "compute.flops_per_sample is missing": {"compute": {"flops_per_s": 3.0}},
    "compute.noise.kind = 'gamma': multiplies the time of samples": {"compute": {"noise": {"kind": "gamma", "shape": 1.0}}},
    "compute.noise.shape = 0.0: must be finite and": {
        "compute": {"seconds_per_sample": 1.0, "noise": {"kind": "gamma", "shape": 0.0}}
    },
    "compute.changes.0.flops_per_s = 3.0: speed is given as samples_per_s": {
        "compute": {"samples_per_s": 1.0, "changes": [{"at_s": 1.0, "flops_per_s": 3.0}]}
    },
    "compute.changes.0.samples_per_s = 3.0: there was none before": {
        "compute": {"changes": [{"at_s": 1.0, "samples_per_s": 3.0}]}
    },
    "compute.changes.0.noise = {'sigma': 1.0}: noise multiplies the time of samples; give one of seconds_per_sample": {
        "compute": {"changes": [{"at_s": 1.0, "noise": {"sigma": 1.0}}]}
    },
    "compute.random_changes.parameter = ['noise.sigma']: noise multiplies the time of samples": {
        "compute": {"random_changes": {"count": 1, "parameter": "noise.sigma"}}
    },
    "compute.changes.0.samples_per_s = -3.0: must be finite and > 0": {
        "compute": {"samples_per_s": 1.0, "changes": [{"at_s": 1.0, "samples_per_s": -3.0}]}
    },
    "uplink.changes.0: speed and noise are of [compute]": {"uplink": {"changes": [{"at_s": 1.0, "samples_per_s": 3.0}]}},
    "compute: changes of speed are in rounds and in seconds": {
        "compute": {"samples_per_s": 1.0, "changes": [{"at_s": 1.0, "samples_per_s": 3.0}, {"at_round": 2, "samples_per_s": 3.0}]}
    },
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_is_refused(message: str) -> None:
    with pytest.raises(UserError) as caught:
        world([[0]], **REFUSED[message])
    assert message in str(caught.value)
