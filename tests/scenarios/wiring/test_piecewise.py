"""Laws between change points: made as they are asked for, where changes are drawn, they are those that would be kept."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import pytest

from scenarios.wiring.changes import Step
from scenarios.wiring.piecewise import _build_all, _build_on_demand


@dataclass(frozen=True)
class Values:
    """One number for each of five clients."""

    numbers: tuple[float, ...]

    def apply(self, step: Step) -> Values:
        numbers = list(self.numbers)
        for client in range(5) if step.clients is None else step.clients:
            numbers[client] = step.parameters["x"]
        return Values(tuple(numbers))

    def build(self, step: Step | None = None) -> Any:
        return self.numbers, step

    def apply_overlay(self, overlay: Any, path: str) -> Any:
        raise NotImplementedError

    def value(self, name: str, path: str) -> Any:
        raise NotImplementedError

    def build_at(self, path: str) -> Any:
        raise NotImplementedError


def steps(rng: Random) -> list[Step]:
    """Drawn ones, all of the same clients, among written ones of any, some at the same time."""
    mine = rng.choice([None, np.array([0, 1, 2])])
    found = []
    for _ in range(rng.randrange(1, 9)):
        drawn, value = rng.random() < 0.6, rng.random()
        clients = mine if drawn else np.array(sorted(rng.sample(range(5), rng.randrange(1, 6))))
        start = float(rng.randrange(2, 9))
        found.append(Step("rounds", start, clients, {"x": value}, None, "path", factor=value if drawn else None))
    # As `pieced` is given them: what is written comes first.
    return sorted(sorted(found, key=lambda step: step.factor is not None), key=lambda step: step.start)


@pytest.mark.parametrize("seed", range(50))
def test_what_is_made_is_what_would_be_kept(seed: int) -> None:
    first, changes = Values((1.0, 2.0, 3.0, 4.0, 5.0)), steps(Random(seed))
    for made, kept in zip(_build_on_demand(first, changes), _build_all(first, changes), strict=True):
        assert list(made) == list(kept)
