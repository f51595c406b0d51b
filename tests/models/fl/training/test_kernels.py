"""What training is written out in: the same numbers as torch's own functions give."""

from __future__ import annotations

import math

import pytest
import torch

from models.fl.networks.kinds import _SMALL, Dense
from models.fl.training.losses import CrossEntropy, Hinge, Loss, LossTally, SquaredHinge, StepLosses, finite_rows

FLOAT32 = torch.finfo(torch.float32)


@pytest.mark.parametrize("loss", [CrossEntropy(), Hinge(), SquaredHinge()])
@pytest.mark.parametrize("hidden", [[], [5], [16], [40, 15], [15, 16, 17], [_SMALL // 12 + 1]])
def test_gradients_of_copies_are_those_of_autograd_copy_by_copy(loss: Loss, hidden: list[int]) -> None:
    g = torch.Generator().manual_seed(len(hidden))
    network, copies, batch = Dense(features=12, hidden=hidden, classes=4).double(), 3, 6
    names = [name for name, _ in network.named_parameters()]
    parameters = [torch.randn(copies, *p.shape, generator=g, dtype=torch.float64) for p in network.parameters()]
    x, y = torch.randn(copies, batch, 3, 4, generator=g, dtype=torch.float64), torch.randint(0, 4, (copies, batch), generator=g)
    # The last copy's batch is a short one: two of its samples stand in for nothing.
    weights = torch.full((copies, batch), 1 / batch, dtype=torch.float64)
    weights[2] = torch.tensor([0.25] * 4 + [0.0] * 2)
    slots = [torch.full_like(p, math.nan) for p in parameters]
    scores = network.stacked_gradients(parameters, slots, x, y, weights, loss)
    assert scores.shape == (copies, batch, 4)
    for copy in range(copies):
        leaves = {name: p[copy].clone().requires_grad_() for name, p in zip(names, parameters, strict=True)}
        alone = torch.func.functional_call(network, leaves, (x[copy],))
        torch.testing.assert_close(scores[copy], alone.detach())
        total = (loss.value(alone, y[copy]) * weights[copy]).sum()
        for slot, expected in zip(slots, torch.autograd.grad(total, list(leaves.values())), strict=True):
            torch.testing.assert_close(slot[copy], expected)


def test_the_slope_of_cross_entropy_stands_large_scores() -> None:
    scores = torch.tensor([[1e4, -1e4, 0.0], [-1e30, -1e30, -1e30]])
    slope = CrossEntropy().slope(scores, torch.tensor([1, 0]))
    torch.testing.assert_close(slope, torch.tensor([[1.0, -1.0, 0.0], [1 / 3 - 1, 1 / 3, 1 / 3]]))


@pytest.mark.parametrize("classes", [3, 10, 50])
def test_cross_entropy_is_that_of_torch_whether_it_is_differentiated_or_not(classes: int) -> None:
    g = torch.Generator().manual_seed(classes)
    scores, labels = 10 * torch.randn(40, classes, generator=g), torch.randint(0, classes, (40,), generator=g)
    scores[0], scores[1] = 3e30, -1e4
    expected = torch.nn.functional.cross_entropy(scores, labels, reduction="none")
    for asked in (scores, scores.clone().requires_grad_()):
        torch.testing.assert_close(CrossEntropy().value(asked, labels).detach(), expected, atol=1e-5, rtol=1e-6)


def test_losses_of_steps_are_added_up_whole_however_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    g = torch.Generator().manual_seed(1)
    steps = [(torch.randn(n, 4, 10, generator=g), torch.randint(0, 10, (n, 4), generator=g)) for n in (3, 3, 2)]
    weights = [torch.full((n, 4), 0.25) for n in (3, 3, 2)]
    weights[1][2, 1:] = 0.0  # a batch of a single sample
    expected = [
        torch.nn.functional.cross_entropy(one, label).item()
        for (scores, labels), weight in zip(steps, weights, strict=True)
        for one, label in zip(scores[weight > 0], labels[weight > 0], strict=True)
    ]
    assert len(expected) == 12 + 9 + 8
    for at_once in (1, 150, 10**6):
        monkeypatch.setattr("models.fl.training.losses._AT_ONCE", at_once)
        tally = LossTally()
        losses = StepLosses(CrossEntropy(), tally, None, stacked=True)
        for step, ((scores, labels), weight) in enumerate(zip(steps, weights, strict=True)):
            losses.note(step, scores, labels, weight, full=bool((weight > 0).all()))
        losses.finish()
        assert tally.take() == pytest.approx(sum(expected) / len(expected), rel=1e-6)


def test_rows_of_finite_numbers_are_told_from_others() -> None:
    rows = torch.ones(6, 5)
    rows[0] = FLOAT32.max  # their sum is not finite, they are
    rows[1, 3] = math.inf
    rows[2, 0], rows[2, 1] = math.inf, -math.inf
    rows[3, 4] = math.nan
    rows[4] = -FLOAT32.tiny
    assert finite_rows(rows).tolist() == rows.isfinite().all(1).tolist() == [True, False, False, False, True, True]
    assert finite_rows(torch.ones(2, 0)).tolist() == [True, True]

