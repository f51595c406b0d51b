"""Simulations may be large: one that nobody uses any more makes room before the next is built."""

from __future__ import annotations

import gc
from pathlib import Path
from weakref import ref

import pytest

from scenarios.runs.run import simulate
from scenarios.wiring.simulation import build
from tests.helpers.small_scenario import small

TRAINED = (
    'learner.data={kind="digits", samples=100}',
    'learner.network={kind="mlp", hidden=[4]}',
    'learner.optimizer={kind="sgd", learning_rate=0.1}',
    "learner.batch_size=10",
    "learner.epochs=1",
)


@pytest.mark.parametrize("settings", [TRAINED, pytest.param(("clients.count=10000",), marks=pytest.mark.slow)])
def test_a_simulation_that_is_over_makes_room_for_the_next(settings: tuple[str, ...], tmp_path: Path) -> None:
    study = small(*settings)
    gc.disable()  # it may come at any time, but with few objects it does not
    try:
        built = build(study)
        simulate(built, study, tmp_path / "run")
        first = ref(built.server.clients)
        second = build(study)
        assert first() is built.server.clients  # which is still used
        del built
        third = build(study)
        assert first() is None
        assert second.server.clients is not third.server.clients
    finally:
        gc.enable()
