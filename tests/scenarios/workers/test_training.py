"""Workers that train the clients of one run: the order of jobs, jobs whose worker ends, and processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from models.fl.options.names import TrainingOptions
from models.fl.training.bench import BenchRecipe, Site
from models.fl.training.losses import CrossEntropy
from models.fl.training.optimizers import Sgd
from scenarios.runs.folders.checkpoint import FILE as CHECKPOINT
from scenarios.runs.reading import load, parse, to_toml
from scenarios.runs.run import go_on, run
from scenarios.schema.errors import UserError
from scenarios.workers.processes import Place
from scenarios.workers.training import TrainingError, portable_bytes
from scenarios.workers.training_processes import TrainingProcesses, _WorkerSetup
from scenarios.workers.vectors import SharedVectors
from tests.helpers.commands import living, start
from tests.helpers.learners import batch_normed, deliver, make, model
from tests.helpers.training_workers import ONCE, WorkersHere, own_network, results, small

pytestmark = pytest.mark.usefixtures("one_thread")


def test_jobs_begin_as_they_are_needed_the_longest_first_among_equals() -> None:
    workers = WorkersHere(1)
    learner = make(network=batch_normed(), workers=workers, max_steps=4, threads=1, versions_kept=4)
    # Client 3 begins at once. Of the others client 0 of round 3 has arrived; in round 2 it has fewer steps than clients 1 and 2.
    for round, clients in ((1, [3]), (2, [0, 1, 2]), (3, [0])):
        learner.promise(round, np.array(clients), 0, None)
    learner.end_promise(0, 3, needed=True)
    learner.aggregate(deliver(1, [3], 0), False)
    assert workers.begun == [(3, 1), (0, 3)]
    learner.aggregate(deliver(2, [2], 0), False)
    assert workers.begun[2] == (2, 2), "what is waited for comes first"
    assert workers.begun[3] == (1, 2), "the longest comes first among equals"


def test_a_job_whose_worker_ends_is_computed_again_a_limited_number_of_times() -> None:
    def trained(kills: Any) -> tuple[np.ndarray, Any]:
        learner = make(network=batch_normed(), workers=WorkersHere(2, kills), max_steps=1)
        learner.aggregate(deliver(1, [0, 1, 2], 0), False)
        return model(learner), learner.worker_facts

    killed: list[int] = []

    def twice(ticket: Any) -> bool:
        killed.append(ticket.stack.clients[0])
        return ticket.stack.clients[0] == 1 and killed.count(1) <= 2

    whole, _ = trained(lambda ticket: False)
    again, facts = trained(twice)
    np.testing.assert_array_equal(whole, again)
    assert facts["again"] == 2
    told = r"learner.workers: the training of client 1, round 1 came to no end in 3 attempts: it was killed; see that .* memory"
    with pytest.raises(UserError, match=told):
        trained(lambda ticket: ticket.stack.clients[0] == 1 and not killed.append(9))
    assert killed.count(9) == 3


def test_an_exception_names_its_client_round_and_worker() -> None:
    class Failing(type(batch_normed())):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            if self.training:
                raise ValueError("no")
            return super().forward(x)

    network = batch_normed()
    network.__class__ = Failing
    learner = make(network=network, workers=WorkersHere(1))
    with pytest.raises(TrainingError, match=r"ValueError: no \(client 3, round 7, worker 0\)"):
        learner.aggregate(deliver(7, [3], 0), False)


def test_blocks_are_used_again_and_lie_on_disk_beyond_the_bound(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    (tmp_path / "disk").mkdir()
    vectors = SharedVectors(memory=tmp_path / "memory", memory_bytes=3 * 4096, spill=tmp_path / "disk", spill_bytes=4096)
    first, second = vectors.take(1500), vectors.take(1000)  # two pages and one
    assert first is not None
    assert second is not None
    first.numbers()[:], second.numbers()[:] = 1.0, 2.0
    third = vectors.take(1024)
    assert third is not None
    assert ("disk" in third.file, vectors.spilled) == (True, 1)
    assert vectors.take(1) is None
    assert (set(first.numbers()), set(second.numbers())) == ({1.0}, {2.0})
    vectors.give(second)
    vectors.give(first)
    whole = vectors.take(3072)
    assert whole is not None
    assert "memory" in whole.file, "gaps beside each other are one"
    assert not list((tmp_path / "memory").glob("spilled*"))


def test_a_result_makes_room_for_one_that_is_waited_for_and_is_computed_again() -> None:
    def trained(workers: WorkersHere | None) -> np.ndarray:
        learner = make(network=batch_normed(), workers=workers, max_steps=1, versions_kept=4)
        learner.promise(1, np.array([0, 1, 2, 3]), 0, None)
        for clients in ([2, 3], [0], [1]):
            learner.aggregate(deliver(1, clients, 0), False)
        return model(learner)

    workers = WorkersHere(2, room=2)
    np.testing.assert_array_equal(trained(workers), trained(None))
    # Clients 0 and 1 begin as they are promised; 2 and 3, which are waited for, take the room of their results.
    assert [client for client, _ in workers.begun] == [0, 1, 2, 3, 0, 1]
    assert (workers.held, workers.facts()["unused"]) == (0, 2)


def test_two_processes_leave_the_tables_of_this_one(tmp_path: Path) -> None:
    run(parse(small(0)), tmp_path / "here")
    told = run(parse(small(2)), tmp_path / "there")
    assert results(tmp_path / "here") == results(tmp_path / "there")
    facts = told["learner"]["workers"]
    assert (facts["count"], facts["devices"], facts["ahead"] > 0, facts["again"]) == (2, ["cpu", "cpu"], True, 0)
    assert 0 < facts["busy_share"] <= 1


@pytest.mark.slow
@pytest.mark.parametrize("pause_s", [0.0, 1.0], ids=["seen at the answer", "seen at the call"])
def test_idle_processes_that_are_killed_before_the_next_run_are_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pause_s: float
) -> None:
    idle: dict[Any, list[Any]] = {}
    monkeypatch.setattr("scenarios.workers.processes._IDLE", idle)
    run(parse(small(2)), tmp_path / "first")
    (executors,) = idle.values()
    assert len(executors) == 2
    for executor in list(executors):
        for process in list(executor._processes):
            os.kill(process, signal.SIGKILL)
    time.sleep(pause_s)
    told = run(parse(small(2)), tmp_path / "second")
    assert told["learner"]["workers"]["again"] == 0
    assert results(tmp_path / "first") == results(tmp_path / "second")


def test_a_worker_builds_its_bench_once(tmp_path: Path) -> None:
    site, options = Site(str(tmp_path)), TrainingOptions()
    recipe = BenchRecipe(batch_normed(), CrossEntropy(), Sgd(learning_rate=0.1), options, 0.0, None, None)
    site.write(torch.zeros(4, 1, 4, 4), torch.zeros(4, dtype=torch.int64), portable_bytes(recipe, "learner.workers"))
    setup = _WorkerSetup(Place.here(), site, "cpu", str(tmp_path / "beats"), 3, 4)
    bench, name = setup.bench()
    assert setup.bench()[0] is bench
    assert name == f"worker 3, process {os.getpid()}"


@pytest.mark.slow
def test_shared_memory_stays_within_its_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    taken = SharedVectors.take

    def take(vectors: SharedVectors, count: int) -> Any:
        sizes.append(os.stat(vectors.file).st_size)
        return taken(vectors, count)

    monkeypatch.setattr(SharedVectors, "take", take)
    bound = {"learner": small(2)["learner"] | {"memory_bytes": 8192}}
    told = run(parse(small(2) | bound), tmp_path / "bound")
    assert set(sizes) == {8192}
    assert told["learner"]["workers"]["spilled"] > 0
    run(parse(small(0)), tmp_path / "here")
    assert results(tmp_path / "bound") == results(tmp_path / "here")


@pytest.mark.slow
def test_a_worker_that_waited_too_long_for_its_library_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scenarios.workers.processes._IDLE_S", 1)
    monkeypatch.setattr("scenarios.workers.processes._IDLE", {})

    def trained(workers: Any) -> np.ndarray:
        learner = make(network=batch_normed(), workers=workers, max_steps=1)
        for round in (1, 2):
            learner.aggregate(deliver(round, [0, 1], round - 1), False)
            time.sleep(2.5 * (workers is not None))
        return model(learner)

    workers = TrainingProcesses(["cpu"])
    with contextlib.closing(workers):
        np.testing.assert_array_equal(trained(workers), trained(None))


@pytest.mark.slow
def test_a_classifier_of_torchvision_trains_on_workers(tmp_path: Path) -> None:
    small = ["learner.network.name=squeezenet1_1", "rounds=2", "learner.data.samples=200", "learner.data.test_samples=20"]
    for workers in (0, 2):
        run(load("resnet_on_cifar", [*small, f"learner.workers={workers}"]), tmp_path / str(workers))
    assert results(tmp_path / "0") == results(tmp_path / "2")


@pytest.mark.slow
@pytest.mark.parametrize(
    "server",
    [
        {"per_round": 4},
        {"kind": "semi-synchronous", "per_round": 3, "round_s": 2.0},
        {"kind": "buffered", "concurrency": 4, "buffer": 1},
    ],
)
def test_one_and_three_processes_leave_the_same_tables_and_go_on_with_any_number(tmp_path: Path, server: dict[str, Any]) -> None:
    run(parse(small(0, **server)), tmp_path / "0")
    for count in (1, 3):
        run(parse(small(count, **server)), tmp_path / str(count))
        assert results(tmp_path / str(count)) == results(tmp_path / "0")

    def interrupt(simulation: Any) -> None:
        if simulation.server.round == 2:
            raise KeyboardInterrupt

    run(parse(small(2, **server)), tmp_path / "cut", after_round=interrupt)
    go_on(tmp_path / "cut")
    assert results(tmp_path / "cut") == results(tmp_path / "0")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGKILL", "SIGSTOP"])
def test_a_worker_that_is_killed_or_hangs_is_replaced(tmp_path: Path, monkeypatch: Any, name: str) -> None:
    monkeypatch.setattr("scenarios.workers.training_processes.HANG_S", 8.0)
    act = ONCE.format(mark=str(tmp_path / "mark"), signal=name)
    own = own_network(tmp_path, monkeypatch, f"ending_{name.lower()}", act, workers=2)
    told = run(parse(own), tmp_path / "ended")
    assert told["learner"]["workers"]["again"] == 1
    run(parse(own | {"learner": own["learner"] | {"workers": 0}}), tmp_path / "here")
    assert results(tmp_path / "ended") == results(tmp_path / "here")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_where_the_run_ends(number: int, tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    shared = Path("/dev/shm")
    before = set(shared.glob("netsim-*"))
    (tmp_path / "long.toml").write_text(to_toml(parse(small(2) | {"rounds": 100_000})), encoding="utf-8")
    started = start(tmp_path, "run", "long.toml", "--out", "out", "--quiet")
    deadline = time.monotonic() + 120
    while not (tmp_path / "out" / CHECKPOINT).exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert set(shared.glob("netsim-*/vectors")) - before
    if number == signal.SIGINT:
        os.killpg(started.pid, number)
    else:
        os.kill(started.pid, number)
    started.communicate(timeout=120)
    deadline = time.monotonic() + 30
    while (living(started.pid) or set(shared.glob("netsim-*")) - before) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert living(started.pid) == []
    assert set(shared.glob("netsim-*")) - before == set()
    assert list((tmp_path / "temporary").iterdir()) == []
    if number != signal.SIGKILL:
        assert json.loads((tmp_path / "out" / "summary.json").read_text())["ended"] == "interrupted"
