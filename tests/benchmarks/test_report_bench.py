"""Cost of comparing many finished runs, as a ratio within one run; pytest with `-m "" --benchmark-only -s` prints the figures."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tracemalloc
from pathlib import Path
from time import perf_counter

import numpy as np
import pyarrow.parquet as pq
from pytest_benchmark.fixture import BenchmarkFixture

from analysis.api import open_sweep
from analysis.metrics.comparison import compare
from analysis.results.sources import KEPT_BYTES
from tests.helpers.result_folders import PARTS, write_run, write_sweep

VARIANTS, SEEDS, ROUNDS = 20, 5, 1000


def test_a_comparison_costs_little_more_than_to_read_its_tables(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    ends = np.arange(1.0, ROUNDS + 1.0)
    runs = {
        f"v{variant}": {
            seed: {
                "round": list(range(1, ROUNDS + 1)),
                "start_s": (ends - 1.0).tolist(),
                "end_s": ends.tolist(),
                "delivered": rng.integers(0, 9, ROUNDS).tolist(),
                "accuracy": rng.random(ROUNDS).tolist(),
            }
            for seed in range(SEEDS)
        }
        for variant in range(VARIANTS)
    }
    path = write_sweep(tmp_path / "s", runs, baseline="v0")
    files = sorted(path.glob("*/*/rounds.parquet"))

    def read_alone() -> float:
        start = perf_counter()
        for file in files:
            pq.read_table(file).to_pandas()
        return perf_counter() - start

    def compared() -> float:
        start = perf_counter()
        compare(open_sweep(path))
        return perf_counter() - start

    compared()  # what is imported on the way is not what is measured
    benchmark.pedantic(compared, rounds=1)
    alone_s, compared_s = min(read_alone() for _ in range(3)), min(compared() for _ in range(3))
    tracemalloc.start()
    compared()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    each_s = compared_s / (VARIANTS * SEEDS)
    ratio = compared_s / alone_s
    print(f"\n{VARIANTS * SEEDS} runs of {ROUNDS} rounds: {compared_s:.2f} s, {ratio:.1f} times what reading takes;")
    print(f"  1,000 runs: {1000 * each_s:.1f} s; peak {peak / 1e6:.0f} MB")
    assert ratio < 4.0
    assert peak < KEPT_BYTES


def test_a_report_on_a_thousand_runs_of_a_thousand_rounds(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    variants, seeds = 20, 50
    rng = np.random.default_rng(1)
    ends = np.arange(1.0, ROUNDS + 1.0)
    runs = {
        "v0": {
            seed: {
                "round": list(range(1, ROUNDS + 1)),
                "start_s": (ends - 1.0).tolist(),
                "end_s": ends.tolist(),
                "selected": [9] * ROUNDS,
                "delivered": rng.integers(0, 9, ROUNDS).tolist(),
                "accuracy": np.sort(rng.random(ROUNDS)).tolist(),
                "loss": rng.random(ROUNDS).tolist(),
                "max_leak": np.sort(rng.random(ROUNDS)).tolist(),
                "bytes_up": [1000] * ROUNDS,
                "reward": rng.random(ROUNDS).tolist(),
                "genie_reward": (1.0 + rng.random(ROUNDS)).tolist(),
            }
            for seed in range(seeds)
        }
    }
    path = write_sweep(tmp_path / "s", runs, baseline="v0", target=0.8)
    for variant in range(1, variants):
        shutil.copytree(path / "v0", path / f"v{variant}")
    listed = json.loads((path / "sweep.json").read_text(encoding="utf-8"))
    listed["runs"] = [
        entry | {name: str(entry[name]).replace("v0", f"v{variant}") for name in ("variant", "label", "path")}
        for variant in range(variants)
        for entry in listed["runs"]
    ]
    (path / "sweep.json").write_text(json.dumps(listed), encoding="utf-8")

    def costs(code: str) -> tuple[float, float]:
        """Seconds of processor time, and bytes at most."""
        told = f"import resource, time\ntry:\n    {code}\nfinally:\n    print('costs', time.process_time(), "
        told += "resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)"
        done = subprocess.run([sys.executable, "-c", told, "report", str(path)], check=True, capture_output=True, text=True)
        seconds, peak = done.stdout.rpartition("costs ")[2].split()
        return float(seconds), float(peak)

    read = "import pathlib, sys, pyarrow.parquet as pq; files = pathlib.Path(sys.argv[2]).rglob('rounds.parquet'); "
    read += "[pq.read_table(file).to_pandas() for file in files]"
    report_s, peak = benchmark.pedantic(costs, args=("from scenarios.cli.main import main; main()",), rounds=1)
    reading_s, _ = costs(read)
    ratio = report_s / reading_s
    print(f"\n{variants * seeds:,} runs of {ROUNDS:,} rounds: {report_s:.1f} s, {ratio:.1f} times what reading takes;")
    print(f"  peak {peak / 2**20:.0f} MiB")
    assert ratio < 4.0
    assert peak < 2**30


def test_a_report_of_a_small_run_takes_little_longer_than_what_it_imports(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    count = 300
    ends = np.arange(1.0, count + 1.0)
    rounds = {"round": list(range(1, count + 1)), "start_s": (ends - 1.0).tolist(), "end_s": ends.tolist()}
    rounds |= {"delivered": [2] * count, "accuracy": np.linspace(0.1, 0.9, count).tolist(), "loss": (1.0 / ends).tolist()}
    run = write_run(tmp_path / "run", rounds, PARTS)

    def seconds(code: str) -> float:
        start = perf_counter()
        subprocess.run([sys.executable, "-c", code, "report", str(run)], check=True, capture_output=True)
        return perf_counter() - start

    report = "from scenarios.cli.main import main; main()"
    imports = "import pandas, pyarrow.parquet, scipy.stats, matplotlib.figure, matplotlib.backends.backend_svg"
    benchmark.pedantic(seconds, args=(report,), rounds=1)
    report_s, imports_s = (min(seconds(code) for _ in range(3)) for code in (report, imports))
    print(f"\nreport of a run of {count} rounds: {report_s:.2f} s, {report_s / imports_s:.1f} times what its imports take")
    assert report_s < 4.0 * imports_s
