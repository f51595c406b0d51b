"""Workers against each other: tasks of a second on a Dask scheduler and on local processes, as a ratio in one run."""

from __future__ import annotations

import pytest

from tests.benchmarks.sweep_costs import KINDS, open_workers, seconds


def test_runs_of_a_second_take_as_long_on_dask_as_on_processes(benchmark: pytest.FixtureRequest) -> None:
    took: dict[str, float] = {}

    def both() -> None:
        for kind, which in KINDS.items():
            with open_workers(which, runs=16) as workers:
                seconds(workers, 2, 0.0)  # the workers start
                took[kind] = seconds(workers, 16, 1.0)

    benchmark.pedantic(both, rounds=1)  # type: ignore[attr-defined]
    benchmark.extra_info["ratio"] = took["Dask"] / took["processes"]  # type: ignore[attr-defined]
    assert took["Dask"] <= 1.1 * took["processes"]
