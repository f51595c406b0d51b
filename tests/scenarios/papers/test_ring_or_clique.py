"""The study of ring and clique: rounds and seconds to the target, and ratios at equal seeds, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from scenarios.papers.registry import find_reproduction
from scenarios.papers.ring_or_clique import DATA, LAWS, costs_to_target, log_ratio, sections
from scenarios.runs.reading import read_file


class Runs:
    """Two seeds of which the ring reaches the target in rounds 3 and never, the clique in rounds 2 and 1; rounds take 1.5 s."""

    seeds = (1, 2)

    def run(self, variant: str, seed: int) -> Any:
        self.reached = {"ring": (3, 99), "clique": (2, 1)}[variant.split("-")[0]][seed - 1]
        return self

    def columns(self, names: list[str]) -> dict[str, np.ndarray]:
        rounds = np.arange(1.0, 5.0)
        accuracy = np.where(rounds >= self.reached, 0.91, 0.5)
        return {"round": rounds, "end_s": 1.5 * rounds} | {name: accuracy for name in names if "accuracy" in name}


def test_rounds_and_seconds_to_the_target_and_their_ratios() -> None:
    ring, clique = (costs_to_target(Runs(), f"{graph}-constant-alike", "accuracy") for graph in ("ring", "clique"))  # type: ignore[arg-type]
    np.testing.assert_array_equal(ring, [[3.0, 4.5], [np.nan, np.nan]])
    np.testing.assert_array_equal(clique, [[2.0, 3.0], [1.0, 1.5]])
    # Only the first seed counts: 3 / 2.
    assert np.exp(log_ratio(ring[:, 0], clique[:, 0]).mean) == pytest.approx(1.5)
    (section,) = sections(Runs())  # type: ignore[arg-type]
    heads, rows = section.blocks[0].cells  # type: ignore[union-attr]
    assert len(heads) == len(rows[0]) == 8
    assert rows[0] == ["alike, constant", "3.00", "1.5 ± 6.4", "4.50", "2.2 ± 9.5", "1.50", "1.50", "1 of 2 and 2 of 2"]


def test_every_variant_of_the_scenario_is_in_the_tables() -> None:
    study = find_reproduction("ring_or_clique")
    names = {variant["name"] for variant in read_file(study.name)["sweep"]["variants"]}
    assert names == {f"{graph}-{law}-{data}" for graph in ("ring", "clique") for law in LAWS for data in DATA}
