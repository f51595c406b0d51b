from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from models.fl.aggregation.rules import (
    Arrivals,
    ByContribution,
    BySize,
    Equal,
    FixedShare,
    HingeStaleness,
    Mixing,
    NoStaleness,
    Polynomial,
)
from models.fl.aggregation.server_optimizers import FedAdam, FedAvgM, ServerSgd
from tests.helpers.learners import deliver, make, model
from tests.helpers.random_worlds import copied

ONE = np.ones(2)


def arrivals(contribution=None) -> Arrivals:
    return Arrivals(np.array([10, 30]), np.array([0, 3]), contribution, lambda: np.random.default_rng(7))


def step(aggregation, factors=ONE, contribution=None) -> list[float]:
    model, starts = torch.tensor([1.0, 2.0]), torch.tensor([[1.0, 2.0], [0.0, 0.0]])
    updates = torch.tensor([[4.0, 0.0], [0.0, 8.0]])
    return aggregation.step(model, starts, updates, arrivals(contribution), factors).tolist()


def test_weights_by_hand():
    assert step(BySize()) == [1.0, 6.0]
    assert step(Equal()) == [2.0, 4.0]
    assert step(ByContribution(), contribution=np.array([0.1, 0.3])) == pytest.approx([1.0, 6.0])
    # Nobody contributes anything: equal weights.
    assert step(ByContribution(), contribution=np.zeros(2)) == [2.0, 4.0]
    # Factors are not made to sum to 1 again: two updates that count half make half a step (FedBuff).
    assert step(Equal(), np.array([1.0, 0.5])) == [2.0, 2.0]
    assert step(BySize(), np.array([0.5, 0.5])) == [0.5, 3.0]


def test_fedbuff_divides_by_the_buffer_or_not():
    # Updates 1 and 2 of staleness 0 and 3, which count 1 and 1/2.
    model, starts, updates = torch.zeros(1), torch.zeros(2, 1), torch.tensor([[1.0], [2.0]])
    factors = Polynomial(exponent=0.5).factor(arrivals().staleness)
    found = [Equal(divide=by).step(model, starts, updates, arrivals(), factors) for by in ("buffer", "none")]
    assert [step.item() for step in found] == pytest.approx([1.0, 2.0])
    # FLSim's factors are 2^1/2 times these.
    assert ServerSgd(learning_rate=2**0.5).step(found[1]).item() == pytest.approx(2.83, abs=0.005)
    with pytest.raises(ValueError, match=r"aggregation\.divide = 'half': must be buffer or none"):
        Equal(divide="half")


def test_mixing_by_hand():
    # Half-way from (1, 2) to (5, 2): (3, 2); from there a quarter (half, times the factor) to (0, 8): (2.25, 3.5).
    assert step(Mixing(alpha=0.5), np.array([1.0, 0.5])) == [1.25, 1.5]
    # alpha 1 replaces the model by the last that arrived.
    assert step(Mixing(alpha=1.0)) == [-1.0, 6.0]


def test_mixing_is_lowered_from_versions_on():
    mixing = Mixing(alpha=0.8, mixing_decay=[[3, 0.5], [5, 0.25]])
    # Of the models that follow on versions 0 to 5; factors of pairs multiply.
    assert [mixing.share(version + 1) for version in range(6)] == pytest.approx([0.8, 0.8, 0.4, 0.4, 0.1, 0.1])
    model, starts, updates = torch.tensor([1.0]), torch.tensor([[1.0]]), torch.tensor([[10.0]])
    one = Arrivals(np.array([10]), np.array([0]), None, lambda: np.random.default_rng(7))
    found = [mixing.step(model, starts, updates, replace(one, version=v), np.ones(1)).item() for v in range(6)]
    assert found == pytest.approx([8.0, 8.0, 4.0, 4.0, 1.0, 1.0])


def test_in_the_learner_mixing_is_lowered_from_versions_on():
    learner = make(aggregation=Mixing(alpha=0.5, mixing_decay=[[2, 0.1]]))
    for number, share in ((1, 0.5), (2, 0.05)):
        before = model(learner)
        update = learner.aggregate(deliver(number, [0], number - 1), True).updates[0]
        np.testing.assert_allclose(model(learner), before + share * update, atol=1e-6)


@pytest.mark.parametrize(
    "decay", [[[0, 0.5]], [[1.5, 0.5]], [[3, 0.0]], [[3, 1.5]], [[3]], [[5, 0.5], [3, 0.5]], [[3, 0.5], [3, 0.5]]]
)
def test_decays_that_are_none_are_refused(decay: list[list[float]]) -> None:
    with pytest.raises(ValueError, match=r"aggregation\.mixing_decay = .* must "):
        Mixing(mixing_decay=decay)


def test_staleness_by_hand():
    ages = np.array([0, 1, 3, 8])
    assert NoStaleness().factor(ages).tolist() == [1, 1, 1, 1]
    assert Polynomial(exponent=0.5).factor(ages).tolist() == pytest.approx([1, 2**-0.5, 0.5, 1 / 3])
    assert Polynomial(exponent=2.0).factor(ages).tolist() == pytest.approx([1, 1 / 4, 1 / 16, 1 / 81])
    assert HingeStaleness(free=1, slope=2.0).factor(ages).tolist() == pytest.approx([1, 1, 1 / 5, 1 / 15])


def test_server_optimizers_by_hand():
    delta = torch.tensor([2.0, -4.0])
    assert ServerSgd(learning_rate=0.5).step(delta).tolist() == [1.0, -2.0]
    momentum = FedAvgM(learning_rate=0.5, momentum=0.5)
    # Velocities 2, 2 + 1 = 3 and 0 + 1.5.
    assert [momentum.step(d).tolist()[0] for d in (delta, delta, 0 * delta)] == [1.0, 1.5, 0.75]
    adam = FedAdam(learning_rate=0.1, beta1=0.5, beta2=0.75, tau=1.0)
    # First moments 1 and 1.5; second ones .75 + .25 4 = 1.75 and .75 1.75 + 1 = 2.3125.
    expected = [0.1 / (1.75**0.5 + 1), 0.15 / (2.3125**0.5 + 1)]
    assert [adam.step(delta).tolist()[0] for _ in range(2)] == pytest.approx(expected)
    assert delta.tolist() == [2.0, -4.0]


def test_server_adam_is_torchs_adam_without_bias_correction():
    # With the corrections undone by hand and v started at tau^2 -> 0, minus delta is the gradient.
    g = torch.Generator().manual_seed(0)
    adam = FedAdam(learning_rate=0.1, beta1=0.9, beta2=0.99, tau=1e-6)
    first = second = torch.zeros(5)
    for _ in range(6):
        delta = torch.randn(5, generator=g)
        first, second = 0.9 * first + 0.1 * delta, 0.99 * second + 0.01 * delta**2
        torch.testing.assert_close(adam.step(delta), 0.1 * first / (second.sqrt() + 1e-6), rtol=1e-4, atol=1e-6)


def test_fedavg_over_the_successes_is_fedavg_over_the_delivered():
    # Client analytics eq. 2: sum X_n |D_n| w_n / sum X_n |D_n| with X = (1, 0, 0, 1).
    learner, whole = make(), make()
    before = model(learner)
    updates = whole.aggregate(deliver(1, [0, 1, 2, 3], 0), True).updates
    learner.aggregate(deliver(1, [0, 3], 0), False)
    np.testing.assert_allclose(model(learner), before + (10 * updates[0] + 35 * updates[3]) / 45, atol=1e-6)


def test_stale_updates_count_less():
    learner = make(aggregation=Equal(), staleness=Polynomial(exponent=1.0), versions_kept=3)
    learner.aggregate(deliver(1, [0], 0), False)
    learner.aggregate(deliver(2, [1], 1), False)
    before = model(learner)
    updates = learner.aggregate(deliver(3, [2, 3], np.array([2, 0]), rounds=[3, 1]), True).updates
    np.testing.assert_allclose(model(learner) - before, (updates[0] + updates[1] / 3) / 2, atol=1e-6)


def test_mixing_moves_towards_the_clients_model():
    learner = make(aggregation=Mixing(alpha=0.25))
    first = model(learner)
    learner.aggregate(deliver(1, [0], 0), False)
    second = model(learner)
    update = learner.aggregate(deliver(2, [1], 0, rounds=[1]), True).updates[0]
    np.testing.assert_allclose(model(learner), 0.75 * second + 0.25 * (first + update), atol=1e-6)


def test_buffered_updates_wait_and_are_trained_together():
    learner, at_once = make(buffer=3), make(versions_kept=9)
    before = model(learner)
    assert learner.aggregate(deliver(1, [0], 0), False) is None
    # Computed because they are wanted, and yet not part of the model.
    wanted = learner.aggregate(deliver(2, [1], 0, rounds=[1]), True).updates
    assert (learner.version, learner.trained_updates) == (0, 0)
    np.testing.assert_array_equal(model(learner), before)
    last = learner.aggregate(deliver(3, [2, 3], 0, rounds=[1, 1]), True).updates
    assert (learner.version, learner.trained_updates) == (1, 4)
    together = at_once.aggregate(deliver(1, [0, 1, 2, 3], 0), True).updates
    np.testing.assert_allclose(model(learner), model(at_once), atol=1e-6)
    np.testing.assert_allclose(np.concatenate([wanted, last]), together[1:], atol=1e-6)


def test_what_waits_keeps_its_version():
    learner = make(buffer=2, versions_kept=1)
    learner.aggregate(deliver(1, [0, 1], 0), False)
    learner.aggregate(deliver(2, [2], 1), False)
    learner.retain([])
    # The waiting update started from version 1, which is still the newest; then it is not any more.
    learner.aggregate(deliver(3, [3], 1, rounds=[2]), False)
    assert learner.state_dict()["versions"] == [2]
    expected = make(versions_kept=3)
    expected.aggregate(deliver(1, [0, 1], 0), False)
    expected.aggregate(deliver(2, [2, 3], 1), False)
    np.testing.assert_allclose(model(learner), model(expected), atol=1e-6)


@pytest.mark.parametrize("optimizer", [lambda: ServerSgd(learning_rate=0.5), lambda: FedAvgM(momentum=0.5), FedAdam])
def test_the_server_optimizer_takes_the_step(optimizer):
    learner, plain, server = make(server_optimizer=optimizer()), make(), optimizer()
    for round in range(1, 4):
        start = model(learner)
        state = plain.state_dict()
        state["models"] = np.full_like(np.stack(state["models"]), start)
        plain.load_state_dict(state)
        plain.aggregate(deliver(round, [0, 2], plain.version), False)
        learner.aggregate(deliver(round, [0, 2], learner.version), False)
        expected = start + server.step(torch.from_numpy(model(plain) - start)).numpy()
        np.testing.assert_allclose(model(learner), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        # 10 and 30 of 80 samples, two of five clients; updates 4 and 8 from models 1 and 3, the present one is 2.
        ({}, 0.5 / 4 * 4 + 1.5 / 4 * 8),
        ({"by": "equal"}, 0.2 * 4 + 0.2 * 8),
        ({"by": "equal", "alpha": 0.5}, 0.1 * 4 + 0.1 * 8),
        ({"form": "mixing"}, 0.5 / 4 * (1 + 4 - 2) + 1.5 / 4 * (3 + 8 - 2)),
    ],
)
def test_fixed_shares_do_not_depend_on_who_delivers(named: dict[str, Any], expected: float) -> None:
    told = replace(arrivals(), totals=(5, 80))
    model, starts, updates = torch.tensor([2.0]), torch.tensor([[1.0], [3.0]]), torch.tensor([[4.0], [8.0]])
    step = FixedShare(**named).step(model, starts, updates, told, np.ones(2))
    assert step.tolist() == pytest.approx([expected])
    halved = FixedShare(**named).step(model, starts, updates, told, np.full(2, 0.5))
    assert halved.tolist() == pytest.approx([expected / 2])


def test_in_the_learner_those_who_did_not_deliver_stand_for_the_present_model() -> None:
    fixed, plain = make(aggregation=FixedShare()), make()
    before = model(plain)
    for learner in (fixed, plain):
        learner.aggregate(deliver(1, [0, 2], 0), want_updates=False)
    # 10 and 25 of 100 samples.
    np.testing.assert_allclose(model(fixed) - before, 0.35 * (model(plain) - before), atol=1e-6)


class _Backwards(ServerSgd):
    """Goes the wrong way."""

    def __init__(self) -> None:
        super().__init__(learning_rate=1.0)

    def step(self, delta: torch.Tensor) -> torch.Tensor:
        return -2.0 * delta


def test_only_the_best_model_is_kept() -> None:
    kept, plain = make(keep="best"), make()
    losses = []
    for number in range(1, 9):
        for learner in (kept, plain):
            learner.aggregate(deliver(number, [0, 1, 2, 3], number - 1), want_updates=False)
        before = losses[-1] if losses else np.inf
        quality = kept.evaluate(number, 0.0, last=False)
        assert quality is not None
        assert quality.loss <= before
        assert kept.version == plain.version == number
        losses.append(quality.loss)
    bad = make(keep="best", server_optimizer=_Backwards())
    first = model(bad)
    bad.aggregate(deliver(1, [0, 1, 2, 3], 0), want_updates=False)
    second = model(bad)
    assert not np.array_equal(first, second)  # the first is the best so far, whatever it is
    bad.aggregate(deliver(2, [0, 1, 2, 3], 1), want_updates=False)
    np.testing.assert_array_equal(model(bad), second)
    again = make(keep="best", server_optimizer=_Backwards())
    again.load_state_dict(copied(bad.state_dict()))
    again.aggregate(deliver(3, [0, 1], 2), want_updates=False)
    np.testing.assert_array_equal(model(again), second)
