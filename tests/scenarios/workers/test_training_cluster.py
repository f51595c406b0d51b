"""One run whose clients the workers of a Dask scheduler train: the tables of this process, whatever becomes of the workers."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import netsim
from scenarios.runs.folders.checkpoint import FILE as CHECKPOINT
from scenarios.runs.folders.own_code import learner_code, refuse_other_code
from scenarios.runs.reading import parse, to_toml
from scenarios.runs.run import go_on, run
from scenarios.runs.training_machines import TrainingMachines
from scenarios.schema.errors import UserError
from scenarios.wiring.learning import training
from scenarios.workers import training_cluster
from scenarios.workers.training_desk import Desk, digest
from scenarios.workers.training_processes import TrainingProcesses
from tests.helpers.commands import living, start, tables
from tests.helpers.training_workers import NETWORK, ONCE, own_network, results, small

pytestmark = pytest.mark.usefixtures("one_thread")


@contextmanager
def scheduler(folder: Path, workers: int, *, processes: bool = False) -> Iterator[Any]:
    """Start a scheduler with workers of one thread each, in this process or in others; yield the cluster."""
    from distributed import LocalCluster

    make: Any = LocalCluster
    options = {"protocol": "tcp", "local_directory": str(folder), "dashboard_address": "127.0.0.1:0", "silence_logs": "CRITICAL"}
    with make(n_workers=workers, threads_per_worker=1, processes=processes, memory_limit=0, **options) as cluster:
        yield cluster


def on(cluster: Any) -> TrainingMachines:
    return TrainingMachines(cluster=str(cluster.scheduler_address))


@pytest.mark.each_nth(2)
@pytest.mark.parametrize("server", [{}, {"per_round": 4}])
def test_a_cluster_leaves_the_tables_of_this_process_and_the_scenario_as_it_is(tmp_path: Path, server: dict[str, Any]) -> None:
    scenario = parse(small(0, **server))
    run(scenario, tmp_path / "here")
    with scheduler(tmp_path / "dask", 2) as cluster:
        told = run(scenario, tmp_path / "there", machines=on(cluster))
        wait_until(lambda: not kept_samples(tmp_path / "dask"))
        assert not kept_samples(tmp_path / "dask"), "the samples go with the run"
    assert results(tmp_path / "here") == results(tmp_path / "there")
    assert (tmp_path / "here" / "scenario.toml").read_bytes() == (tmp_path / "there" / "scenario.toml").read_bytes()
    facts = told["learner"]["workers"]
    assert (facts["count"], facts["machines"], facts["again"], facts["jobs"] >= 8) == (2, 1, 0, True)
    assert facts["ahead"] > 0 or server
    assert facts["overhead_s"] > TrainingProcesses.overhead_s
    assert 0 < facts["busy_share"] <= 1


@pytest.mark.parametrize("reached", [True, False], ids=["straight", "by way of the scheduler"])
def test_the_vectors_of_other_machines_travel_through_dask(tmp_path: Path, monkeypatch: Any, reached: bool) -> None:
    async def answers(workers: Any, addresses: Any) -> set[str]:
        return set(addresses if reached else ())

    def taken(vectors: Any, count: int) -> None:
        raise AssertionError("other machines map no file of this one")

    monkeypatch.setattr(training_cluster, "host", lambda: "elsewhere")
    monkeypatch.setattr(training_cluster.TrainingCluster, "_find_reachable", answers)
    monkeypatch.setattr(training_cluster.SharedVectors, "take", taken)
    tables_ = small(0) | {"rounds": 2}
    run(parse(tables_), tmp_path / "here")
    with scheduler(tmp_path / "dask", 2) as cluster:
        told = run(parse(tables_), tmp_path / "there", machines=on(cluster))
    assert results(tmp_path / "here") == results(tmp_path / "there")
    assert told["learner"]["workers"]["count"] == 2


def test_workers_of_this_machine_map_the_vectors(tmp_path: Path, monkeypatch: Any) -> None:
    from distributed import protocol

    def sent(numbers: Any) -> None:
        raise AssertionError("no vector travels through Dask")

    monkeypatch.setattr(protocol, "to_serialize", sent)
    with scheduler(tmp_path, 1) as cluster:
        told = run(parse(small(0) | {"rounds": 1}), tmp_path / "out", machines=on(cluster))
    assert told["learner"]["workers"]["jobs"] >= 2


_READ: list[int] = []
_read_samples = training._read_samples


def _note_reading(*args: Any) -> Any:
    _READ.append(os.getpid())
    return _read_samples(*args)


def test_samples_are_read_once_for_a_machine(tmp_path: Path, monkeypatch: Any) -> None:
    _READ.clear()
    monkeypatch.setattr(training, "_read_samples", _note_reading)
    with scheduler(tmp_path, 3) as cluster:
        told = netsim.run(small(0) | {"rounds": 1}, cluster=str(cluster.scheduler_address)).summary
    assert (len(_READ), told["learner"]["workers"]["count"]) == (1, 3)


def _no_data(*args: Any) -> Any:
    raise UserError("learner.data.kind = 'mnist': missing /data/a; set NETSIM_DATA to the folder that holds them")


def _other_data(*args: Any) -> Any:
    return torch.zeros(160, 1, 8, 8), torch.zeros(160, dtype=torch.int64)


@pytest.mark.parametrize(
    ("replaced", "words"),
    [
        (_no_data, r"cannot train: learner.data.kind = 'mnist': missing /data/a; set NETSIM_DATA to the folder that holds them$"),
        (_other_data, r"cannot train: it reads other samples than this machine; give it the same data files$"),
    ],
)
def test_workers_without_the_data_are_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: Any, replaced: Any, words: str
) -> None:
    monkeypatch.setattr(training, "_read_samples", replaced)
    with (
        scheduler(tmp_path / "dask", 1) as cluster,
        pytest.raises(UserError, match=r"^--cluster 'tcp://.*': worker tcp://\S* " + words),
    ):
        run(parse(small(0)), tmp_path / "out", machines=on(cluster))
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    untrained = {key: value for key, value in small(0).items() if key != "learner"}
    for tables_, arguments, words in [
        (small(0), {"cluster": "nonsense://x"}, "--cluster 'nonsense://x': no scheduler with workers answers there"),
        (small(0), {"cluster": "local:0"}, "--cluster 'local:0': needs a worker at least"),
        (small(0), {"cluster": "local:1", "workers": 2}, "--workers 2: a --cluster has its own workers; give one of the two"),
        (untrained, {"cluster": "local:1"}, r"--cluster local:1: the scenario has no \[learner\] to train; leave it out"),
        (untrained, {"workers": 2}, r"--workers 2: the scenario has no \[learner\] to train; leave it out"),
    ]:
        with pytest.raises(UserError, match=words):
            run(parse(tables_), tmp_path / "out", machines=TrainingMachines(**arguments))  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def interrupt_after_two_rounds(simulation: Any) -> None:
    if simulation.server.round == 2:
        raise KeyboardInterrupt


def test_a_run_that_began_in_this_process_goes_on_on_a_cluster(tmp_path: Path) -> None:
    run(parse(small(2)), tmp_path / "out", after_round=interrupt_after_two_rounds, machines=TrainingMachines(workers=0))
    with scheduler(tmp_path / "dask", 1) as cluster:
        told = go_on(tmp_path / "out", machines=on(cluster))
    run(parse(small(0)), tmp_path / "whole")
    assert results(tmp_path / "out") == results(tmp_path / "whole")
    assert told["learner"]["workers"]["count"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1, 3])
def test_a_run_that_began_on_a_cluster_goes_on_with_any_number_of_workers(tmp_path: Path, workers: int) -> None:
    with scheduler(tmp_path / "dask", 2) as cluster:
        run(parse(small(0)), tmp_path / "out", after_round=interrupt_after_two_rounds, machines=on(cluster))
    told = go_on(tmp_path / "out", machines=TrainingMachines(workers=workers))
    run(parse(small(0)), tmp_path / "whole")
    assert results(tmp_path / "out") == results(tmp_path / "whole")
    assert told["learner"].get("workers", {"count": 0})["count"] == workers


def kept_samples(folder: Path) -> list[Path]:
    """Return the samples that workers keep in their folders, but for folders that go meanwhile, for which `glob` raises."""
    return [Path(name) for name, _, files in os.walk(folder) if "recipe" in files]


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait until a condition holds, for five minutes at most."""
    deadline = time.monotonic() + 300
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.02)


def test_workers_that_leave_and_join_are_used_while_they_are_there(tmp_path: Path, monkeypatch: Any) -> None:

    monkeypatch.setattr(training_cluster, "_LOOK_S", 0.05)
    tables_ = small(0) | {"rounds": 8}
    run(parse(tables_), tmp_path / "here")
    with scheduler(tmp_path / "dask", 2) as cluster:

        def change(simulation: Any) -> None:
            if simulation.server.round == 2:
                cluster.scale(1)
            if simulation.server.round == 5:
                cluster.scale(3)
                wait_until(lambda: len(cluster.scheduler.workers) == 3)
            if simulation.server.round == 7:
                # The run looked for workers in the rounds between, and lets them in beside its work.
                wait_until(lambda: simulation.server.loop.learner.worker_facts["count"] == 3)

        told = run(parse(tables_), tmp_path / "there", machines=on(cluster), after_round=change)
    assert results(tmp_path / "here") == results(tmp_path / "there")
    assert told["learner"]["workers"]["count"] == 3


def test_code_that_differs_is_refused(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "own_net_of_cluster.py").write_text(NETWORK, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    own = small(0) | {"learner": small(0)["learner"] | {"network": {"kind": "own_net_of_cluster:Net"}}}
    ((place, modules),) = learner_code(parse(own)).items()
    refuse_other_code({place: modules})
    with pytest.raises(UserError, match=r"^the code of 'own_net_of_cluster:Net' \(own_net_of_cluster\) is other than"):
        refuse_other_code({place: dict.fromkeys(modules, "0")})


def test_a_desk_stays_in_its_worker() -> None:
    import pickle

    with pytest.raises(TypeError, match="stays in the memory of its worker"):
        pickle.dumps(Desk(None, "worker", "", None))


def test_checksums_tell_samples_apart() -> None:
    x, y = torch.arange(4.0).reshape(2, 2), torch.tensor([0, 1])
    assert digest(x, y) == digest(x.clone(), y.clone())
    others = [digest(x.reshape(1, 4), y), digest(x, y + 1), digest(x + 1, y), digest(x.double(), y)]
    assert len({digest(x, y), *others}) == 5
    assert np.isfinite(x).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGKILL", "SIGSTOP"])
@pytest.mark.parametrize("own_scheduler", [True, False], ids=["own scheduler", "local"])
def test_a_worker_that_dies_or_hangs_is_done_without(tmp_path: Path, monkeypatch: Any, name: str, own_scheduler: bool) -> None:
    # A healthy worker of a busy machine can be silent for some seconds, and a job has three attempts only.
    monkeypatch.setattr(training_cluster, "HANG_S", 12.0)
    module = f"ending_on_cluster_{name.lower()}_{own_scheduler}"
    own = own_network(tmp_path, monkeypatch, module, ONCE.format(mark=str(tmp_path / "mark"), signal=name))
    run(parse(own), tmp_path / "here")
    if own_scheduler:
        with scheduler(tmp_path / "dask", 2, processes=True) as cluster:
            told = run(parse(own), tmp_path / "ended", machines=on(cluster))
    else:
        told = run(parse(own), tmp_path / "ended", machines=TrainingMachines(cluster="local:2"))
    assert told["learner"]["workers"]["again"] >= 1
    assert results(tmp_path / "ended") == results(tmp_path / "here")


@pytest.mark.slow
def test_a_job_that_ends_its_workers_is_named(tmp_path: Path, monkeypatch: Any) -> None:
    own = own_network(tmp_path, monkeypatch, "ending_all_on_cluster", "    os.kill(os.getpid(), signal.SIGKILL)\n")
    words = r"--cluster 'local:2': the training of client \d+, round 1 came to no end in 3 attempts: its worker .*; see that"
    with pytest.raises(UserError, match=words):
        run(parse(own), tmp_path / "out", machines=TrainingMachines(cluster="local:2"))


@pytest.mark.slow
def test_an_exception_in_a_network_of_the_users_own_names_client_round_and_worker(tmp_path: Path, monkeypatch: Any) -> None:
    own = own_network(tmp_path, monkeypatch, "failing_on_cluster", "    raise ValueError('no')\n")
    words = r"learner.network.kind = 'failing_on_cluster:Net': ValueError: no, \S*/failing_on_cluster.py, line \d+ "
    words += r"\(client \d+, round 1, worker tcp://\S+, seed \d+\)"
    with pytest.raises(UserError, match=words):
        run(parse(own), tmp_path / "out", machines=TrainingMachines(cluster="local:1"))


@pytest.mark.slow
def test_a_class_that_workers_cannot_import_is_refused(tmp_path: Path, monkeypatch: Any) -> None:
    with scheduler(tmp_path / "dask", 1, processes=True) as cluster:
        own = own_network(tmp_path, monkeypatch, "missing_on_cluster", "    pass\n")
        monkeypatch.setattr(training_cluster.Place, "here", lambda: training_cluster.Place("/", ()))
        words = r"cannot train: .*missing_on_cluster.*; see that it is installed where workers find it"
        with pytest.raises(UserError, match=words):
            run(parse(own), tmp_path / "out", machines=on(cluster))
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("own_scheduler", [True, False], ids=["own scheduler", "local"])
def test_nothing_is_left_where_the_run_ends(number: int, own_scheduler: bool, tmp_path: Path, monkeypatch: Any) -> None:
    for name in ("temporary", "dask"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "long.toml").write_text(to_toml(parse(small(0) | {"rounds": 100_000})), encoding="utf-8")
    with scheduler(tmp_path / "dask", 1, processes=True) as cluster:
        address = cluster.scheduler_address if own_scheduler else "local:2"
        started = start(tmp_path, "run", "long.toml", "--out", "out", "--quiet", "--cluster", address)
        deadline = time.monotonic() + 120
        while not (tmp_path / "out" / CHECKPOINT).exists() and started.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        if number == signal.SIGINT:
            os.killpg(started.pid, number)
        else:
            os.kill(started.pid, number)
        started.communicate(timeout=120)
        deadline = time.monotonic() + 30
        while (living(started.pid) or kept_samples(tmp_path / "dask")) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert living(started.pid) == []
        assert not kept_samples(tmp_path / "dask")
    assert list((tmp_path / "temporary").iterdir()) == []
    assert tables(tmp_path / "out") or number == signal.SIGKILL
