"""The same seed on the same number of threads gives the same bytes; on another number the same to rounding."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from analysis import open_run
from scenarios.runs.reading import parse
from scenarios.runs.run import run
from tests.helpers.fl_scenario import tables
from tests.helpers.suites import each_nth

DENSE = {"network": {"kind": "mlp", "hidden": [32, 16]}, "optimizer": {"kind": "adam", "learning_rate": 0.01}}
STACKED = {"network": {"kind": "cnn", "channels": [4, 8], "hidden": 16}}
SEQUENTIAL = {"network": {"kind": "cnn8", "channels": [4] * 8, "norm": "batch"}, "max_steps": 1}
OWN_IMAGES = {"data": {"kind": "tests.helpers.own_learning:wide_images"}, "network": {"kind": "cnn"}, "max_steps": 1}
CASES = {"dense": DENSE, "stacked": STACKED, "sequential": SEQUENTIAL, "large images": OWN_IMAGES}


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("case", each_nth(4, CASES, first=1))
def test_the_number_of_threads_decides_about_the_last_digits_alone(tmp_path: Path, case: str) -> None:
    bytes_of, rounds = {}, {}
    for threads in (1, 2):
        for again in ("a", "b"):
            out = tmp_path / f"{threads}{again}"
            run(parse(tables(threads=threads, **CASES[case]) | {"rounds": 2}), out)
            assert torch.get_num_threads() == threads
            bytes_of[threads, again] = [(out / f"{name}.parquet").read_bytes() for name in ("rounds", "clients", "partition")]
            rounds[threads] = open_run(out).rounds
        assert bytes_of[threads, "a"] == bytes_of[threads, "b"]
    np.testing.assert_allclose(rounds[1]["loss"], rounds[2]["loss"], rtol=1e-4)
    # What does not depend on weights is the same in any case.
    assert rounds[1]["end_s"].tolist() == rounds[2]["end_s"].tolist()
