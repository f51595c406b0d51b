"""What a run of a sweep costs on this machine: the run, the workers, the scheduler, the disk.

    python -m tests.benchmarks.sweep_costs

Prints for local processes and for a Dask scheduler with two workers each: seconds until the workers have started, seconds a task
of no work (the rate at which a scheduler and the main process see to runs), and how much longer than ideal tasks take that sleep
a second; for two scenarios seconds, peak memory and bytes of a run; and the memory of the plan. `netsim scale` plans with these.
"""

from __future__ import annotations

import tempfile
import time
import tracemalloc
from functools import partial
from pathlib import Path

from scenarios.runs.reading import load, read
from scenarios.runs.run import run
from scenarios.sweeps.attempts import attempt_all
from scenarios.sweeps.cluster import open_workers
from scenarios.sweeps.options import Machines
from scenarios.sweeps.plan import add_grid, plan
from scenarios.sweeps.workers import Board, Workers
from scenarios.workers.interrupts import StopRequest

KINDS = {"processes": Machines(jobs=2), "Dask": Machines(cluster="local:2")}
SCENARIOS = {"latency study": ("unreliable", ["rounds=300"]), "training": ("quickstart", ["rounds=100"])}


def rest(board: Board, seconds: float) -> None:
    """A run that needs no processor."""
    if seconds:
        time.sleep(seconds)


def seconds(workers: Workers, tasks: int, length_s: float) -> float:
    """How long two workers take for so many tasks."""
    started = time.perf_counter()
    work = partial(rest, seconds=length_s)
    done = attempt_all(workers, range(tasks), lambda index: work, StopRequest(), retries=0, lost=lambda *_: None)
    assert len(list(done)) == tasks
    return time.perf_counter() - started


def measured(kind: str, *, tasks: int = 400, sleeping: int = 16) -> dict[str, float]:
    """Start, a task of no work, and tasks of a second against what they need at least, for one kind of workers."""
    started = time.perf_counter()
    with open_workers(KINDS[kind], runs=tasks) as workers:
        seconds(workers, 2, 0.0)
        start_s = time.perf_counter() - started
        before_s = time.process_time()
        task_s = min(seconds(workers, tasks, 0.0) for _ in range(3)) / tasks
        # Of this process, in which the scheduler is, too: what a core is kept busy with, however busy the machine is.
        busy_s = (time.process_time() - before_s) / (3 * tasks)
        ratio = seconds(workers, sleeping, 1.0) / (sleeping / 2)
    return {"start_s": start_s, "task_s": task_s, "busy_s": busy_s, "second_ratio": ratio}


def of_a_run(name: str, changes: list[str]) -> dict[str, float]:
    """Seconds, peak memory and bytes of the second run of a scenario in this process."""
    with tempfile.TemporaryDirectory() as folder:
        summaries = [run(load(name, [*changes, f"seed={seed}"]), Path(folder) / str(seed)) for seed in (1, 2)]
        size = sum(file.stat().st_size for file in (Path(folder) / "2").rglob("*") if file.is_file())
        files = len(list((Path(folder) / "2").iterdir()))
    machine = summaries[1]["machine"]
    peak = machine["peak_memory_bytes"]
    return {"wall_s": summaries[1]["wall_time_s"], "cpu_s": machine["cpu_time_s"], "peak": peak, "bytes": size, "files": files}


def of_the_plan(name: str, seeds: int = 10_000) -> float:
    """Bytes of the main process that one run takes in the plan of a sweep of so many seeds."""
    tables = read(name, [])
    plan(add_grid(tables, {}, [1]), name)
    tracemalloc.start()
    planned = plan(add_grid(tables, {}, list(range(seeds))), name)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return used / len(planned.runs)


def main() -> None:
    """Measure and print."""
    for kind in KINDS:
        found = measured(kind)
        print(
            f"{kind}: workers start in {found['start_s']:.2f} s; {found['task_s'] * 1e3:.2f} ms a task of no work, "
            f"{found['busy_s'] * 1e3:.2f} ms of them processor time of the main process; "
            f"tasks of a second take {found['second_ratio']:.3f} of the ideal"
        )
    for title, (name, changes) in SCENARIOS.items():
        cost = of_a_run(name, changes)
        print(
            f"{title} ({name}, {', '.join(changes)}): {cost['wall_s']:.2f} s ({cost['cpu_s']:.2f} s of processor), "
            f"{cost['peak'] / 2**20:.0f} MiB, {cost['bytes']:,} bytes in {cost['files']} files"
        )
    print(f"plan of a sweep of {SCENARIOS['training'][0]}: {of_the_plan(SCENARIOS['training'][0]):,.0f} bytes a run")


if __name__ == "__main__":
    main()
