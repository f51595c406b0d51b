"""Workers that are killed, and what becomes of them where the process is killed that they work for."""

from __future__ import annotations

import json
import os
import pickle
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analysis import open_sweep
from scenarios.schema.errors import DefectError, UserError
from scenarios.sweeps.options import Earlier, Machines
from scenarios.sweeps.plan import Plan, plan
from scenarios.sweeps.sweep import sweep
from scenarios.workers.processes import end, give_back, submit, take_executor
from scenarios.workers.processes import start as start_executor
from tests.helpers.commands import LONG, living, start, tables
from tests.helpers.own_policies import KILLING
from tests.helpers.small_scenario import small_tables


def test_an_idle_process_that_was_killed_is_not_taken_for_the_next_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKERS_OF", "a test of idle processes")
    executor = start_executor(1, ())
    process = submit(executor, os.getpid).result()
    give_back(1, [executor])
    os.kill(process, signal.SIGKILL)
    # At once, so that the executor has not seen the end of its process yet.
    taken = take_executor(1, ())
    assert submit(taken, os.getpid).result() != process
    end(taken)


GROWTH: list[bytes] = []


def grow(size: int) -> int:
    GROWTH.append(b"x" * size)
    return os.getpid()


def test_a_process_that_keeps_400_mb_of_data_is_not_replaced() -> None:
    executor = start_executor(1, ())
    process = submit(executor, os.getpid).result()
    time.sleep(1.1)  # loky compares sizes a second apart
    assert submit(executor, grow, 400_000_000).result() == process
    assert submit(executor, os.getpid).result() == process
    end(executor)


@pytest.fixture
def killing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Plan]:
    """Plan a sweep with a variant for each name: the number of times that its run kills its process.

    Its workers are new ones. An idle process that an earlier test has killed would count as a kill of the run that it is given.
    """
    monkeypatch.setenv("WORKERS_OF", str(tmp_path))
    site = tmp_path / "site"
    site.mkdir()
    (site / "killing.py").write_text(KILLING, encoding="utf-8")
    monkeypatch.syspath_prepend(str(site))

    def planned(**times: int) -> Plan:
        policies = {name: {"kind": "killing:Killing", "times": n, "file": str(tmp_path / name)} for name, n in times.items()}
        variants = [{"name": name, "set": {"policy": policy}} for name, policy in policies.items()]
        return plan(small_tables() | {"sweep": {"seeds": [1], "variants": variants}}, "small")

    return planned


AGAIN = "variant {}, seed 1: its process was killed (SIGKILL(-9)); it is simulated again"


@pytest.mark.slow
def test_the_run_of_a_killed_worker_is_simulated_again(tmp_path: Path, killing: Callable[..., Plan]) -> None:
    with pytest.warns(UserWarning, match="again") as warned:
        sweep(killing(never=0, once=1), tmp_path / "out", machines=Machines(jobs=2, retries=1))
    assert [str(w.message) for w in warned] == [AGAIN.format("once")]
    # What was killed once left nothing behind in the tables.
    found = {name: tables(tmp_path / "out" / name / "seed-1") for name in ("never", "once")}
    assert found["once"]["rounds.parquet"] == found["never"]["rounds.parquet"]


@pytest.mark.slow
def test_a_run_that_kills_its_workers_fails_after_its_retries(tmp_path: Path, killing: Callable[..., Plan]) -> None:
    with pytest.warns(UserWarning, match="again") as warned, pytest.raises(UserError) as refusal:
        sweep(killing(never=0, always=9), tmp_path / "out", machines=Machines(jobs=2, retries=1))
    assert [str(w.message) for w in warned] == [AGAIN.format("always")]
    first, last = str(refusal.value).splitlines()
    assert first.startswith("variant always, seed 1: its process was killed (SIGKILL(-9)); see that its worker has memory enough")
    assert last == f"1 run failed; the others are complete: {tmp_path / 'out'}"
    assert (tmp_path / "always").read_text() == "xx"
    left = open_sweep(tmp_path / "out")
    assert ([entry.variant for entry in left.entries], left.missing) == (["never"], (("always", 1),))
    failures = json.loads((tmp_path / "out" / "failures.json").read_text())["failures"]
    assert [(f["variant"], f["again"]) for f in failures] == [("always", True), ("always", False)]


def test_a_defect_of_netsim_keeps_no_other_run_from_its_end(tmp_path: Path, monkeypatch: Any) -> None:
    from models.policies.pause.pause import Pause

    def broken(self: Any, view: Any) -> Any:
        raise KeyError("ours")

    monkeypatch.setattr(Pause, "select", broken)
    with pytest.raises(DefectError, match="variant pause, seed 2: KeyError: 'ours'"):
        sweep(plan(small_tables(), "small"), tmp_path / "out", machines=Machines(jobs=1))
    left = open_sweep(tmp_path / "out")
    assert [entry.variant for entry in left.entries] == ["random", "random"]
    assert left.baseline == "random", "of the baseline no run is complete"
    failures = json.loads((tmp_path / "out" / "failures.json").read_text())["failures"]
    assert all("KeyError: 'ours'\n" in failure["traceback"] for failure in failures)
    monkeypatch.undo()
    sweep(plan(small_tables(), "small"), tmp_path / "out", machines=Machines(jobs=1), earlier=Earlier(resume=True))
    assert not (tmp_path / "out" / "failures.json").exists()


def test_a_worker_that_starts_leaves_ctrl_c_to_the_main_process() -> None:
    executor = start_executor(1, ())
    (process,) = executor._processes.values()
    os.kill(process.pid, signal.SIGINT)
    assert executor.submit(os.getpid).result() == process.pid
    os.kill(process.pid, signal.SIGINT)
    assert executor.submit(os.getpid).result() == process.pid
    executor.shutdown(kill_workers=True)
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, set())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "after_s"), [(("--jobs", "2"), 1.5), (("--jobs", "2"), 4.0), (("--cluster", "local:2"), 3.0)]
)
def test_ctrl_c_while_a_sweep_begins_is_one_line(where: tuple[str, str], after_s: float, tmp_path: Path) -> None:
    (tmp_path / "long.toml").write_text(f"{LONG}\n[sweep]\nseeds = [1, 2]\n", encoding="utf-8")
    started = start(tmp_path, "sweep", "long.toml", "--out", "out", "--quiet", *where)
    time.sleep(after_s)
    os.killpg(started.pid, signal.SIGINT)
    _, err = started.communicate(timeout=120)
    assert started.returncode == 130
    assert err in ("interrupted\n", "interrupted; 0 of 2 runs are complete: out. To go on: the same command with --resume\n")
    assert (tmp_path / "out").exists() == ("--resume" in err)
    assert not (tmp_path / "out" / "failures.json").exists()


@pytest.mark.slow
def test_workers_end_where_the_process_is_killed_that_they_work_for(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "long.toml").write_text(f"{LONG}\n[sweep]\nseeds = [1, 2]\n", encoding="utf-8")
    started = start(tmp_path, "sweep", "long.toml", "--out", "out", "--quiet", "--jobs", "2")
    begun = [tmp_path / "out" / "random" / f"seed-{seed}" / "rounds.parquet" for seed in (1, 2)]
    deadline = time.monotonic() + 60
    while not all(file.exists() for file in begun) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert list((tmp_path / "temporary").iterdir()) != []
    os.kill(started.pid, signal.SIGKILL)
    started.communicate(timeout=60)
    deadline = time.monotonic() + 20
    while living(started.pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert living(started.pid) == []
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_run_goes_to_its_worker_as_plain_data(tmp_path: Path) -> None:
    for p in plan(small_tables(), "small").runs:
        sent = pickle.dumps(p)
        assert len(sent) < 3000
        assert pickle.loads(sent) == p
