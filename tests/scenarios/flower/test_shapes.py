"""Apps in the shapes that users give them: packages, imports, clocks of libraries, loops that wait, changes of the process."""

from __future__ import annotations

import logging
import os
import queue
import sys
import time as times
import types
import warnings
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

pytest.importorskip("flwr")

import netsim
from tests.helpers.flower import client, request, run, world

PROJECT = """[tool.flwr.app.components]
serverapp = "shaped.server_app:app"
clientapp = "shaped.client_app:app"

[tool.flwr.app.config]
rounds = 2
[tool.flwr.app.config.train.deep]
rate = 0.5
"""
CLIENT = """
from pathlib import Path
from flwr.app import Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from . import task

app = ClientApp()
DATA = Path(__file__).parents[1] / "samples.txt"

@app.train()
def train(message, context):
    metrics = {"num-examples": int(DATA.read_text()), "rate": task.rate(context)}
    return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)
"""
SERVER = """
import time
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import ServerApp

app = ServerApp()

@app.lifespan()
def lifespan(context):
    print("begins")
    yield
    print("ends")

@app.main()
def main(grid, context):
    while len(grid.get_node_ids()) < 2:
        time.sleep(2)
    for number in range(1, context.run_config["rounds"] + 1):
        record = ConfigRecord({"server-round": number})
        grid.send_and_receive([Message(RecordDict({"config": record}), node, "train") for node in grid.get_node_ids()])
    BODY
"""
TASK = "def rate(context):\n    return context.run_config['train.deep.rate']\n"
MakeApp = Callable[..., dict[str, Any]]


@pytest.fixture
def make_app(tmp_path: Path) -> MakeApp:
    """Return a function that writes an app, with a last statement of its ServerApp, and returns a scenario of it."""

    def make(body: str = "pass", below: str = "", **tables: Any) -> dict[str, Any]:
        package = tmp_path / "app" / below / "shaped"
        package.mkdir(parents=True)
        (tmp_path / "app" / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
        (package.parent / "samples.txt").write_text("7", encoding="utf-8")
        for name, text in (("client_app", CLIENT), ("server_app", SERVER.replace("BODY", body)), ("task", TASK)):
            (package / f"{name}.py").write_text(text, encoding="utf-8")
        return world() | {"flower": {"app": str(tmp_path / "app")}} | tables

    return make


@pytest.mark.parametrize("below", ["", "src"])
def test_packages_without_init_relative_imports_nested_config_and_data_beside_the_code(
    below: str, make_app: MakeApp, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = make_app(below=below)
    done = netsim.run(tables)
    assert done.clients["samples"].tolist() == [7] * 6
    assert done.evaluations["value"].tolist() == [0.5, 0.5]
    assert capsys.readouterr().out.splitlines() == ["begins", "ends"]
    tables["flower"]["run_config"] = {"train": {"deep": {"rate": 2.0}}, "rounds": 1}
    assert netsim.run(tables).evaluations["value"].tolist() == [2.0]
    assert not [*tmp_path.rglob("__pycache__")]
    assert not [name for name in sys.modules if name.partition(".")[0] == "shaped"]


def test_a_module_of_the_same_name_is_out_of_the_way_and_comes_back(make_app: MakeApp, monkeypatch: pytest.MonkeyPatch) -> None:
    other = types.ModuleType("shaped")
    monkeypatch.setitem(sys.modules, "shaped", other)
    assert netsim.run(make_app()).rounds["selected"].tolist() == [3, 3]
    assert sys.modules["shaped"] is other


def test_a_module_with_the_name_of_a_package_of_netsim_is_refused(make_app: MakeApp, tmp_path: Path) -> None:
    tables = make_app()
    (tmp_path / "app" / "models").mkdir()
    (tmp_path / "app" / "models" / "net.py").write_text("", encoding="utf-8")
    with pytest.raises(ValueError, match="its models has the name of a package of netsim's, which hides it; move it"):
        netsim.run(tables)


MESS = """
    import logging, os, sys, warnings
    os.chdir("/")
    os.environ["SHAPED"] = "1"
    sys.path.append("/shaped")
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    logging.getLogger().addHandler(logging.NullHandler())
    warnings.simplefilter("error")
"""


@pytest.mark.parametrize("end", ["pass", "raise RuntimeError('two\\nlines')"])
def test_the_process_is_as_before_also_after_an_exception(end: str, make_app: MakeApp) -> None:
    def state() -> list[Any]:
        loggers = [logging.getLogger(), logging.getLogger("flwr")]
        kept = [(one.level, list(one.handlers), one.disabled) for one in loggers]
        clocks = [times.time, times.sleep, times.perf_counter_ns, datetime, type(sys.modules["datetime"])]
        return [os.getcwd(), dict(os.environ), list(sys.path), kept, list(warnings.filters), clocks, sys.dont_write_bytecode]

    tables = make_app(f"{MESS}    {end}")
    import flwr.server.workflow  # noqa: F401  (the loggers of flwr are made as it is imported)

    before = state()
    if end == "pass":
        netsim.run(tables)
    else:
        with pytest.raises(ValueError, match=r"its ServerApp raised RuntimeError: two \(.*server_app\.py:\d+\)") as caught:
            netsim.run(tables)
        assert str(caught.value).count("\n") == 0
    assert state() == before


@pytest.mark.parametrize(("statement", "refused"), [("sys.exit()", False), ("sys.exit(3)", True)])
def test_a_server_that_leaves_by_exit(statement: str, refused: bool, make_app: MakeApp) -> None:
    tables = make_app(f"import sys\n    {statement}")
    if refused:
        with pytest.raises(ValueError, match="its ServerApp raised SystemExit: 3"):
            netsim.run(tables)
    else:
        assert netsim.run(tables).rounds["selected"].tolist() == [3, 3]


def test_a_client_that_leaves_by_exit_is_an_error_reply() -> None:
    def train(message: Any, context: Any) -> dict[str, float]:
        sys.exit(1)

    with pytest.raises(ValueError, match=r"ClientApp raised at every message, first .* SystemExit: 1 \(.*test_shapes\.py:\d+\)"):
        run(lambda grid, context: grid.send_and_receive([request(2)]), client(train=train))


def test_names_that_the_module_of_app_objects_bound_before_tell_simulated_time() -> None:
    seen = []

    def main(grid: Any, context: Any) -> None:
        sleep(5.0)
        seen.append((monotonic(), datetime.now().isoformat()))
        grid.send_and_receive([request(2)])

    run(main)
    assert seen == [(5.0, "2020-01-01T00:00:05")]
    assert sleep is times.sleep


def test_libraries_wait_in_real_time() -> None:
    import asyncio

    seen = []

    def train(message: Any, context: Any) -> dict[str, float]:
        asyncio.run(asyncio.sleep(0.01))
        with pytest.raises(queue.Empty):
            queue.Queue[int]().get(timeout=0.01)
        seen.append(times.monotonic())
        return {"num-examples": 1}

    done = run(lambda grid, context: grid.send_and_receive([request(2)]), client(train=train))
    assert seen == [1.0]
    assert done.clients["outcome_s"].tolist() == [6.0]


def test_an_extension_module_that_is_imported_as_the_app_runs_finds_the_real_datetime() -> None:
    seen = []

    def main(grid: Any, context: Any) -> None:
        import datetime as module

        seen.append(module.datetime.now().year)
        exec(compile("import datetime; found = datetime.datetime", os.__file__, "exec"), names := {})
        seen.append(names["found"])
        grid.send_and_receive([request(2)])

    run(main)
    assert seen == [2020, datetime]


@pytest.mark.parametrize("policy", [False, True])
def test_a_server_that_waits_for_more_nodes_than_there_are(policy: bool) -> None:
    def main(grid: Any, context: Any) -> None:
        while len(grid.get_node_ids()) < 4:
            times.sleep(1.0)

    tables: dict[str, Any] = {"policy": {"kind": "random"}, "flower": {"per_round": 2}} if policy else {}
    which = "3 of 3 are present, of which the policy names 2" if policy else "3 of 3 are present, and no node will come or go"
    with pytest.raises(ValueError, match=f"asked 1,000 times for nodes without .*; {which}; let it wait for fewer"):
        run(main, **tables)


@pytest.mark.parametrize("samples", [-1.0, float("nan"), float("inf")])
def test_samples_that_are_no_number_of_samples(samples: float) -> None:
    app = client(train=lambda message, context: {"num-examples": samples})
    with pytest.raises(ValueError, match=r"samples_key = .num-examples.: the reply to message 1 .* must be at least 0"):
        run(lambda grid, context: grid.send_and_receive([request(2)]), app)
