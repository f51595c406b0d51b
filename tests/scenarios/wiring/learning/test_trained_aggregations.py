"""Aggregations that ask something of local training, as scenarios name them: bytes on the clock, servers, refusals."""

from __future__ import annotations

from typing import Any

import pytest

from scenarios.runs.reading import override, parse
from scenarios.schema.errors import UserError
from scenarios.schema.protection import also_released
from scenarios.wiring.simulation import build
from tests.helpers.fl_scenario import TRAINED
from tests.helpers.memory_recorder import MemoryRecorder

KINDS = ("scaffold", "feddyn", "fednova", "q-ffl")


def with_method(kind: str, **changes: Any) -> dict[str, Any]:
    return override(TRAINED, {"learner.aggregation": {"kind": kind}, **changes})


def played(tables: dict[str, Any]) -> MemoryRecorder:
    recorder, built = MemoryRecorder(), build(parse(tables))
    built.simulation.record_to(recorder)
    built.simulation.run()
    return recorder


def test_control_variates_take_time_on_both_links() -> None:
    pytest.importorskip("torch")
    # 650 parameters: 5200 bytes each way, at 100 bytes a second down and 50 up.
    row = played(with_method("scaffold")).updates[0]
    assert (row.bytes_down, row.bytes_up) == (5200, 5200)
    assert row.download_end_s - row.download_start_s == pytest.approx(52.0)
    assert row.upload_end_s - row.upload_start_s == pytest.approx(104.0)


@pytest.mark.parametrize(
    ("kind", "sizes"),
    [("scaffold", (5200, 5200)), ("feddyn", (2600, 2600)), ("fednova", (2600, 2608)), ("q-ffl", (2600, 2608))],
)
def test_sizes_are_known_before_the_network_is_built(kind: str, sizes: tuple[int, int]) -> None:
    known = build(parse(with_method(kind)), learner=False).server.clients.medium.sizes
    assert (known.down, known.up) == sizes


def test_sizes_that_are_given_are_those_of_a_plain_model_and_update() -> None:
    given = {"payload": {"down_bytes": 1000, "up_bytes": {"from": 100.0, "to": 400.0}, "header_bytes": 7}}
    known = build(parse(with_method("scaffold", **given)), learner=False).server.clients.medium.sizes
    assert (known.down, known.up.tolist()) == (2007, [357, 507, 657, 807])
    known = build(parse(with_method("fednova", **given)), learner=False).server.clients.medium.sizes
    assert (known.down, known.up.tolist()) == (1007, [190, 265, 340, 415])


def test_lost_updates_move_no_control_variate() -> None:
    pytest.importorskip("torch")
    lossy = {"uplink.channel": {"kind": "bernoulli", "success": 0.5}, "rounds": 6}
    built, recorder = build(parse(with_method("scaffold", **lossy))), MemoryRecorder()
    built.simulation.record_to(recorder)
    built.simulation.run()
    delivered = {row.client for row in recorder.updates if row.outcome == "delivered"}
    assert len(delivered) < len({row.client for row in recorder.updates}) or len(delivered) == 4
    assert sum(row.outcome == "lost" for row in recorder.updates) > 0
    state = built.trained.state_dict()["corrections"]
    assert set(state["own"]["clients"]) == delivered
    assert sum(state["own"]["vectors"]) / 4 == pytest.approx(state["mean"], abs=1e-6)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"server": {"kind": "buffered", "concurrency": 2}}, "learner.aggregation.kind = .* set server.kind = 'synchronous'"),
    ({"server": {"kind": "semi-synchronous", "per_round": 2, "round_s": 9.0}}, "aggregation.kind = .* present model only"),
    ({"learner.buffer": 2}, "learner.buffer = 2: .* updates of the present model only; leave it out"),
    ({"learner.staleness": {"kind": "polynomial"}}, "learner.staleness.kind = .*no update is of an old model; leave it out"),
    ({"learner.local_training": "tests.helpers.own_learning:sgd_by_hand"}, "learner.local_training"),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("changes", "said"), REFUSED)
def test_what_does_not_go_together_is_refused_before_anything_runs(kind: str, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        parse(with_method(kind, **changes))


ADAM = {"kind": "adam", "learning_rate": 0.1}
PRIVATE = {"sensitivity": 1.0, "schedule": {"kind": "explicit", "epsilons": [1.0]}}
INT8 = {"kind": "int8"}
ONLY: list[tuple[str, dict[str, Any], str]] = [
    ("scaffold", {"learner.optimizer": ADAM}, "learner.optimizer.kind = .adam.: scaffold goes by the steps of sgd"),
    ("scaffold", {"learner.optimizer.momentum": 0.9}, "learner.optimizer.momentum = 0.9: scaffold needs steps along"),
    ("scaffold", {"learner.proximal": 0.1}, "learner.proximal = 0.1: scaffold needs steps along the gradients alone"),
    ("scaffold", {"payload.compression": INT8}, "payload.compression = .int8.: scaffold goes with updates and models"),
    ("scaffold", {"privacy": PRIVATE}, "privacy.mechanism = .laplace.: scaffold has clients and server keep sums of unprotected"),
    ("fednova", {"learner.optimizer": ADAM}, "learner.optimizer.kind = .adam.: fednova"),
    ("feddyn", {"learner.proximal": 0.1}, "learner.proximal = 0.1: feddyn has a proximal term of its own; leave it out"),
    ("feddyn", {"learner.server_optimizer": {"kind": "fedadam"}}, "learner.server_optimizer.kind = .fedadam.: feddyn says what"),
    ("feddyn", {"learner.server_optimizer": {"kind": "sgd", "learning_rate": 2.0}}, "learning_rate = 2.0: feddyn says what"),
    ("feddyn", {"payload.down_compression": INT8}, "payload.down_compression = .int8.: feddyn goes with updates and models"),
]


@pytest.mark.parametrize(("kind", "changes", "said"), ONLY)
def test_what_one_method_does_not_go_with_is_refused(kind: str, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        parse(with_method(kind, **changes))


def test_what_goes_with_a_method_is_accepted() -> None:
    parse(with_method("fednova", **{"payload.compression": INT8, "learner.optimizer.momentum": 0.9, "learner.proximal": 0.1}))
    parse(with_method("scaffold", **{"learner.server_optimizer": {"kind": "fedadam"}, "learner.optimizer.weight_decay": 0.1}))
    parse(with_method("feddyn", **{"learner.optimizer": ADAM}))


def test_who_learns_of_sample_counts_is_told() -> None:
    told = "how many samples each client holds (for the weights of the aggregation)"
    assert also_released(parse(with_method("fednova"))) == [told]
    assert also_released(parse(with_method("scaffold"))) == []


def computing_s(kind: dict[str, Any], **changes: Any) -> list[float]:
    """How long each attempt computes: clients hold 20 samples each and train on 20."""
    rows = played(override(TRAINED, {"learner.aggregation": kind, "learner.max_steps": None, "rounds": 1, **changes})).updates
    return [row.compute_end_s - row.compute_start_s for row in rows]


@pytest.mark.parametrize(
    ("kind", "share"),
    [
        ({"kind": "q-ffl"}, 0.25),
        pytest.param({"kind": "q-ffl", "exact_loss": False}, 0.0, marks=pytest.mark.slow),
        pytest.param({"kind": "scaffold"}, 0.0, marks=pytest.mark.slow),
        ({"kind": "scaffold", "renewal": "gradient"}, 1.0),
    ],
)
def test_a_pass_of_its_own_takes_its_share_of_the_time_of_training(kind: dict[str, Any], share: float) -> None:
    pytest.importorskip("torch")
    work = {"work": {"epochs": 2, "forward_share": 0.25}}
    # With a speed: 2 passes of 20 samples and the share of a third one, 0.1 s each, beside an overhead of 3 s.
    speed = {"compute": {"delay": {"kind": "constant", "value_s": 3.0}, "seconds_per_sample": 0.1}}
    assert computing_s(kind, **work, **speed) == pytest.approx([3.0 + 0.1 * 20 * (2 + share)] * 2)
    # Without one, 8 s are the time of both passes.
    delay = {"compute": {"delay": {"kind": "constant", "value_s": 8.0}}}
    assert computing_s(kind, **work, **delay) == pytest.approx([8.0 * (1 + share / 2)] * 2)
    # Coding takes what it takes.
    coding = {"payload": {"compress_s_per_byte": 0.001}}
    up = {"q-ffl": 2608, "scaffold": 5200}[kind["kind"]]
    assert computing_s(kind, **work, **delay, **coding) == pytest.approx([8.0 * (1 + share / 2) + 0.001 * up] * 2)


def test_a_pass_of_its_own_is_of_all_samples_that_each_client_holds() -> None:
    pytest.importorskip("torch")
    held = {"learner.partition": {"kind": "dirichlet-sizes", "concentration": 1.0}, "clients.count": 3, "server.per_round": 3}
    speed = {"compute": {"seconds_per_sample": 0.1}, "learner.max_steps": 1, "learner.batch_size": 5}
    tables = override(TRAINED, {"learner.aggregation": {"kind": "q-ffl"}, "rounds": 1, **held, **speed})
    rows, sizes = played(tables).updates, build(parse(tables)).trained.data_sizes
    for row in rows:
        expected = 0.1 * (row.samples + sizes[row.client] / 3)
        assert row.compute_end_s - row.compute_start_s == pytest.approx(expected)
    assert len({row.samples for row in rows}) < len(set(sizes.tolist()))


def test_a_probe_does_not_take_the_pass() -> None:
    pytest.importorskip("torch")
    asking = {"policy": {"kind": "power-of-choice", "candidates": 3}, "compute": {"seconds_per_sample": 0.1}}
    tables = [with_method(kind, **asking) for kind in ("q-ffl", "equal")]
    ends = [sorted(row.outcome_s for row in played(one).probes if row.round == 1) for one in tables]
    assert len(ends[0]) == 3
    assert ends[0] == pytest.approx(ends[1])


def test_what_losses_are_is_released_and_told() -> None:
    assert also_released(parse(with_method("q-ffl"))) == ["each delivered update's loss (for the weights of the aggregation)"]


def test_reported_losses_take_a_pass_and_only_where_somebody_goes_by_them() -> None:
    pytest.importorskip("torch")
    work = {"work": {"epochs": 2, "forward_share": 0.25}, "compute": {"seconds_per_sample": 0.1}}
    asked = {"learner.reported_losses": "received", "learner.client_losses": True}
    assert computing_s({"kind": "size"}, **work, **asked) == pytest.approx([0.1 * 20 * 2.25] * 2)
    # One pass serves both.
    assert computing_s({"kind": "q-ffl"}, **work, **asked) == pytest.approx([0.1 * 20 * 2.25] * 2)
    parse(with_method("size", **{"learner.reported_losses": "received", "policy": {"kind": "active-fl"}}))
    with pytest.raises(UserError, match=r"learner\.reported_losses = .received.: nobody goes by losses; leave it out"):
        parse(with_method("size", **{"learner.reported_losses": "received"}))
