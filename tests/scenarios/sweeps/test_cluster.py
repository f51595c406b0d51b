"""Sweeps on the workers of a Dask scheduler: the same files, byte for byte, whoever simulates the runs and in which order."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import netsim
from scenarios.runs.reading import parse
from scenarios.schema.errors import UserError
from scenarios.schema.servers.kinds import KINDS
from scenarios.sweeps.options import Earlier, Machines
from scenarios.sweeps.plan import Plan, PlannedRun, plan
from scenarios.sweeps.sweep import sweep
from scenarios.sweeps.workers import SweepProgress
from scenarios.workers.versions import refuse_versions, versions
from tests.helpers.commands import LONG, living, start, tables
from tests.helpers.own_policies import KILLING
from tests.helpers.server_worlds import WORLDS
from tests.helpers.small_scenario import small_tables


def every_server() -> Plan:
    """One sweep over all kinds of servers, two seeds each."""
    scenarios = {name.replace(", ", "-"): parse(world) for name, world in WORLDS.items()}
    # Apps of Flower need flwr, an extra; tests/scenarios/flower sweeps over them.
    assert {scenario.server.kind for scenario in scenarios.values()} == set(KINDS) - {"flower"}
    runs = [PlannedRun(n, n, seed, s.model_copy(update={"seed": seed})) for n, s in scenarios.items() for seed in (1, 2)]
    return Plan("servers", runs, runs[0].variant, None)


def results(folder: Path) -> dict[str, bytes]:
    return tables(folder) | {"sweep.json": (folder / "sweep.json").read_bytes()}


@pytest.mark.slow
def test_two_workers_of_a_scheduler_leave_the_files_of_this_process(tmp_path: Path) -> None:
    planned = plan(small_tables(), "small")
    seen: list[SweepProgress] = []
    sweep(planned, tmp_path / "one", machines=Machines(jobs=1))
    before = dict(os.environ)
    sweep(planned, tmp_path / "two", machines=Machines(cluster="local:2"), progress=seen.append)
    changed = {name for name in {*before, *os.environ} if before.get(name) != os.environ.get(name)}
    # Set as their libraries are imported, not by a sweep.
    assert changed <= {"__DASK_PARENT_PID", "KMP_INIT_AT_FORK"}
    assert results(tmp_path / "one") == results(tmp_path / "two")
    assert len(results(tmp_path / "two")) == 4 * 3 + 1


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one process leaves that simulates one run after the other."""
    folder = tmp_path_factory.mktemp("whole") / "out"
    return sweep(every_server(), folder, machines=Machines(jobs=1))


@pytest.fixture(scope="module", params=["processes", "threads"])
def scheduler(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    from distributed import LocalCluster

    started: Any = LocalCluster(
        n_workers=2 if request.param == "processes" else 1,
        threads_per_worker=1 if request.param == "processes" else 2,
        processes=request.param == "processes",
        dashboard_address="127.0.0.1:0",
        local_directory=str(tmp_path_factory.mktemp("dask")),
        protocol="tcp",
    )
    with started:
        yield str(started.scheduler_address)


@pytest.mark.slow
@pytest.mark.parametrize("send_back", [False, True], ids=["shared folder", "sent back"])
def test_every_server_leaves_the_same_bytes_on_a_cluster(whole: Path, scheduler: str, send_back: bool, tmp_path: Path) -> None:
    sweep(every_server(), tmp_path / "out", machines=Machines(cluster=scheduler, send_back=send_back))
    assert results(tmp_path / "out") == results(whole)


@pytest.mark.slow
def test_every_server_leaves_the_same_bytes_in_any_order_and_interrupted_or_not(whole: Path, tmp_path: Path) -> None:
    planned = every_server()
    backwards = dataclasses.replace(planned, runs=planned.runs[::-1])
    sweep(backwards, tmp_path / "backwards", machines=Machines(jobs=2))
    assert tables(tmp_path / "backwards") == tables(whole)

    def interrupt(standing: SweepProgress) -> None:
        if any(standing.rounds) and not interrupted:
            interrupted.append(standing.rounds)
            os.kill(os.getpid(), signal.SIGINT)

    for _ in range(6):
        interrupted: list[list[int]] = []
        try:
            sweep(planned, tmp_path / "interrupted", machines=Machines(jobs=2), earlier=Earlier(resume=True), progress=interrupt)
        except KeyboardInterrupt:
            continue
        break
    sweep(planned, tmp_path / "interrupted", machines=Machines(jobs=1), earlier=Earlier(resume=True))
    assert results(tmp_path / "interrupted") == results(whole)


@pytest.mark.slow
def test_in_memory_the_workers_send_their_tables(scheduler: str) -> None:
    here, there = (netsim.sweep(small_tables(), cluster=which, jobs=None if which else 1) for which in (None, scheduler))
    assert here.rounds.equals(there.rounds)
    assert here.clients.equals(there.clients)


@pytest.mark.slow
def test_the_run_of_a_killed_worker_is_simulated_again(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "killing.py").write_text(KILLING, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))

    def variant(name: str, times: int) -> dict[str, Any]:
        return {"name": name, "set": {"policy": {"kind": "killing:Killing", "times": times, "file": str(tmp_path / name)}}}

    variants = [variant("never", 0), variant("once", 1), variant("always", 99)]
    wanted = small_tables() | {"sweep": {"seeds": [1], "variants": variants}}
    with pytest.raises(UserError, match=r"variant always, seed 1: its worker was killed \(tcp:.*\); see(.|\n)*1 run failed"):
        sweep(plan(wanted, "small"), tmp_path / "out", machines=Machines(cluster="local:2", retries=4))
    # The scheduler sets the environment again as it starts another worker.
    assert "PYTHONSAFEPATH" not in os.environ
    listed = json.loads((tmp_path / "out" / "sweep.json").read_text())
    assert [run["variant"] for run in listed["runs"]] == ["never", "once"]
    found = {name: tables(tmp_path / "out" / name / "seed-1")["rounds.parquet"] for name in ("never", "once")}
    assert found["once"] == found["never"]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_no_worker_goes_on_where_the_main_process_ends(number: int, tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "long.toml").write_text(f"{LONG}\n[sweep]\nseeds = [1, 2]\n", encoding="utf-8")
    started = start(tmp_path, "sweep", "long.toml", "--out", "out", "--quiet", "--cluster", "local:2")
    folders = [tmp_path / "out" / "random" / f"seed-{seed}" for seed in (1, 2)]
    deadline = time.monotonic() + 120
    while not all((folder / "scenario.toml").exists() for folder in folders) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(1.0)
    if number == signal.SIGINT:  # as Ctrl-C does
        os.killpg(started.pid, signal.SIGINT)
    else:
        started.send_signal(number)
    _, err = started.communicate(timeout=120)
    if number == signal.SIGINT:
        assert started.returncode == 130
        assert err == "interrupted; 0 of 2 runs are complete: out. To go on: the same command with --resume\n"
        ended = [json.loads((folder / "summary.json").read_text())["ended"] for folder in folders]
        assert ended == ["interrupted"] * 2
    deadline = time.monotonic() + 20
    while living(started.pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert living(started.pid) == []
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.slow
def test_tasks_of_a_client_that_was_killed_end(scheduler: str, tmp_path: Path) -> None:
    (tmp_path / "long.toml").write_text(f"{LONG}\n[sweep]\nseeds = [1, 2]\n", encoding="utf-8")
    started = start(tmp_path, "sweep", "long.toml", "--out", "out", "--quiet", "--cluster", scheduler)
    folders = [tmp_path / "out" / "random" / f"seed-{seed}" for seed in (1, 2)]
    deadline = time.monotonic() + 120
    while not all((folder / "scenario.toml").exists() for folder in folders) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(1.0)
    os.kill(started.pid, signal.SIGKILL)
    started.communicate(timeout=60)
    # The workers live on; they end the runs in good order.
    deadline = time.monotonic() + 180
    while not all((folder / "summary.json").exists() for folder in folders) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert [json.loads((folder / "summary.json").read_text())["ended"] for folder in folders] == ["interrupted"] * 2


def test_what_cannot_be_is_told_before_anything_is_written(tmp_path: Path) -> None:
    planned = plan(small_tables(), "small")
    for arguments, words in [
        ({"cluster": "local:0"}, "--cluster 'local:0': needs a worker at least"),
        ({"cluster": "local:2", "jobs": 2}, "--jobs 2: a --cluster knows its own workers; give one of the two"),
        ({"send_back": True}, "--send-back: is for the workers of a --cluster"),
        ({"cluster": "nonsense://x"}, "--cluster 'nonsense://x': no scheduler with workers answers there"),
    ]:
        with pytest.raises(UserError, match=f"^{words}"):
            sweep(planned, tmp_path / "out", machines=Machines(**arguments))  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_workers_of_other_versions_are_refused() -> None:
    refuse_versions("--cluster", "worker a", versions(), versions())
    with pytest.raises(UserError, match=r"^--cluster: worker a has numpy 1.0 \(here 2.*\), torch None \(here "):
        refuse_versions("--cluster", "worker a", versions(), versions() | {"numpy": "1.0", "torch": None})


@pytest.mark.slow
def test_a_folder_that_workers_do_not_share_is_refused(scheduler: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("scenarios.sweeps.cluster._content", _nothing)
    words = r"worker \S+ does not find this folder; name one that all workers share, or .* --send-back"
    with pytest.raises(UserError, match=words):
        sweep(plan(small_tables(), "small"), tmp_path / "out", machines=Machines(cluster=scheduler))
    assert list(tmp_path.iterdir()) == []


def _nothing(path: str) -> None:
    return None
