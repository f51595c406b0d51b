"""Mistakes of an app or of its scenario end in one message, and leave nothing behind."""

from __future__ import annotations

import random
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")

import netsim
from scenarios.workers import interrupts
from tests.helpers.flower import client, request, run, server, world

APP = """[tool.flwr.app.components]
serverapp = "{module}:server"
clientapp = "{module}:client"

[tool.flwr.app.config]
rounds = 3
"""


def folder(path: Path, text: str, module: str = "small_app") -> dict[str, Any]:
    """Write an app of one module; return a scenario for it."""
    (path / "pyproject.toml").write_text(APP.format(module=module), encoding="utf-8")
    (path / "small_app.py").write_text(text, encoding="utf-8")
    return world() | {"flower": {"app": str(path)}}


def refused(tables: dict[str, Any], *words: str) -> None:
    with pytest.raises(netsim.ScenarioError if hasattr(netsim, "ScenarioError") else ValueError) as caught:
        netsim.run(tables)
    for word in words:
        assert word in str(caught.value)
    assert str(caught.value).count("\n") == 0


def test_folders_that_are_no_app(tmp_path: Path) -> None:
    refused(world() | {"flower": {"app": "nowhere"}}, "flower.app = 'nowhere'", "is no folder")
    refused(world() | {"flower": {"app": str(tmp_path)}}, "has no pyproject.toml")
    (tmp_path / "pyproject.toml").write_text("[project]\n", encoding="utf-8")
    refused(world() | {"flower": {"app": str(tmp_path)}}, "names no serverapp", "[tool.flwr.app.components]")


def test_components_that_do_not_import(tmp_path: Path) -> None:
    refused(folder(tmp_path, "import absent_module"), "serverapp = 'small_app:server'", "install absent_module")
    refused(folder(tmp_path, "server = client = 1"), "serverapp is a int", "must be a ServerApp")
    refused(folder(tmp_path, "", "other_app"), "other_app")


def test_run_config_has_known_keys(tmp_path: Path) -> None:
    tables = folder(tmp_path, "server = client = 1")
    tables["flower"]["run_config"] = {"round": 4}
    refused(tables, "flower.run_config.round = 4", "no such key", "rounds")


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"payload": {"down_bytes": 5}}, ("payload.down_bytes", "have their own sizes")),
        ({"server": {"per_round": 2}}, ("server.kind", "leave [server] out")),
        ({"work": {"steps": 3, "batch_size": 1}}, ("work", "replies say how many")),
    ],
)
def test_tables_that_an_app_replaces(table: dict[str, Any], words: tuple[str, ...]) -> None:
    refused(world() | {"flower": {"app": "flower-digits"}} | table, *words)


def test_a_project_file_whose_tables_are_no_tables(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool]\nflwr = 3\n", encoding="utf-8")
    refused(world() | {"flower": {"app": str(tmp_path)}}, "names no serverapp")


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (
            {"uplink": {"changes": [{"at_round": 3, "delay": {"value_s": 2.0}}]}},
            ("uplink.changes.0.at_round = 3", "give seconds"),
        ),
        ({"outages": [{"name": "storm", "from_round": 2}]}, ("outages.0.from_round = 2", "give seconds")),
        (
            {"downlink": {"random_changes": {"count": 1, "parameter": "delay.value_s"}}},
            ("downlink.random_changes.unit", 'unit = "seconds"'),
        ),
    ],
)
def test_change_points_in_rounds(table: dict[str, Any], words: tuple[str, ...]) -> None:
    refused(world() | {"flower": {"app": "flower-digits"}} | table, *words, "rounds begin as the app goes on")


def test_a_world_without_work() -> None:
    nothing = {name: table for name, table in world().items() if name != "compute"}
    refused(nothing | {"flower": {"app": "flower-digits"}}, "compute: nothing says how long the work", "samples_per_s")
    none = {"compute": {"delay": {"kind": "constant", "value_s": 0.0}}}
    done = netsim.run(nothing | none | {"flower": {"app": "x"}}, app=(server(ask), client()))
    assert done.clients["outcome_s"].tolist() == [4.0]


def ask(grid: Any, context: Any) -> None:
    grid.send_and_receive([request(2)])


def test_a_reply_without_samples_where_samples_take_time() -> None:
    app = client(train=lambda message, context: {"images": 10}, query=lambda message, context: {"sum": 3})
    speed = {"samples_per_s": 5.0}
    told = r"flower.samples_key = 'num-examples': the reply to message 1 \(train\) at node 2 .* images;"
    with pytest.raises(ValueError, match=told):
        run(ask, app, compute=speed)
    done = run(ask, app, compute=speed, flower={"samples_key": "images"})
    assert done.clients["outcome_s"].tolist() == [1.0 + 2.0 + 3.0]
    run(ask, app)
    run(lambda grid, context: grid.send_and_receive([request(2, "query")]), app, compute=speed)


def test_a_server_that_sends_what_is_no_message() -> None:
    with pytest.raises(ValueError, match="its ServerApp sends a int; must send Messages"):
        run(lambda grid, context: grid.send_and_receive([5]))


@pytest.mark.parametrize(("timeout", "words"), [(None, "without a timeout"), (3600.0, "with a timeout of 3600 s"), (60.0, "")])
def test_losses_beside_a_long_timeout_are_warned_of(timeout: float | None, words: str) -> None:
    def main(grid: Any, context: Any) -> None:
        grid.send_and_receive([request(2)], timeout=timeout)

    delay = {"kind": "constant", "value_s": 3.0}
    lossy = {"delay": delay, "channel": {"kind": "bernoulli", "success": 0.0}}
    for polls in (0.0, 4.0):
        with pytest.warns(UserWarning, match="ever delivered") as caught:
            done = run(main, uplink=lossy, flower={"polls": {"server_s": polls}})
        found = [caution["text"] for caution in done.summary["warnings"] if caution["name"] == "long-timeout"]
        told = f'flower.lost = "silent": the app waited {words} for messages that were lost; '
        remedy = 'give the start of its strategy a timeout, or set flower.lost = "error"'
        assert found == ([told + remedy] if words else [])
        assert bool(words) == any(told in str(one.message) for one in caught)
        with pytest.warns(UserWarning, match="ever delivered"):
            done = run(main, uplink=lossy, flower={"lost": "error"})
        assert "long-timeout" not in [caution["name"] for caution in done.summary["warnings"]]


def test_a_server_that_sends_nothing() -> None:
    with pytest.raises(ValueError, match="returned without sending a message"):
        run(lambda grid, context: None)


def test_a_server_that_raises_names_its_line_and_restores_the_process(tmp_path: Path) -> None:
    text = """
import random
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
server, client = ServerApp(), ClientApp()
@server.main()
def main(grid, context):
    random.seed(5)
    raise RuntimeError("out of ideas")
"""
    state, clock = random.getstate(), (time.time, time.sleep)
    refused(folder(tmp_path, text), "its ServerApp raised RuntimeError: out of ideas", "small_app.py:9", "seed 1")
    assert random.getstate() == state
    assert (time.time, time.sleep) == clock


def test_a_client_that_raises_is_an_error_reply_and_a_refusal_if_it_always_does() -> None:
    seen = []

    def fails(message: Any, context: Any) -> dict[str, float]:
        if context.node_config["partition-id"] == 1 or message.content["config"]["server-round"] == 2:
            raise RuntimeError("no data")
        return {"num-examples": 1}

    def main(grid: Any, context: Any) -> None:
        for reply in grid.send_and_receive([request(2), request(3)]):
            seen.append(reply.error.code if reply.has_error() else 0)
            if reply.has_error():
                assert "(train) at node 3: RuntimeError: no data" in reply.error.reason

    run(main, client(train=fails))
    assert seen == [0, 2]

    def second(grid: Any, context: Any) -> None:
        grid.send_and_receive([request(2, round=2)])

    with pytest.raises(ValueError, match=r"ClientApp raised at every message, first message 1 \(train\) at node 2: RuntimeError"):
        run(second, client(train=fails))


def test_a_client_that_raises_names_app_node_message_and_line(tmp_path: Path) -> None:
    text = """
from flwr.app import Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
server, client = ServerApp(), ClientApp()
@client.train()
def train(message, context):
    raise RuntimeError("no data")
@server.main()
def main(grid, context):
    grid.send_and_receive([Message(RecordDict(), 3, "train")])
"""
    words = ("its ClientApp raised at every message, first message 1 (train) at node 3: RuntimeError: no data", "small_app.py:8")
    refused(folder(tmp_path, text), f"flower.app = {str(tmp_path)!r}", *words)


def test_a_reply_that_is_no_message() -> None:
    from flwr.clientapp import ClientApp

    app = ClientApp()
    app.train()(lambda message, context: 5)
    with pytest.raises(ValueError, match="its ClientApp returned int to a message 'train' at node 2"):
        run(lambda grid, context: grid.send_and_receive([request(2)]), app)


def test_threads_that_call_the_grid() -> None:
    def main(grid: Any, context: Any) -> None:
        grid.send_and_receive([request(2)])
        def call() -> None:
            with suppress(ValueError):
                grid.get_node_ids()

        thread = threading.Thread(target=call)
        thread.start()
        thread.join()

    with pytest.raises(ValueError, match=r"calls Grid\.get_node_ids in a thread"):
        run(main)


def test_a_server_that_waits_for_nothing() -> None:
    def main(grid: Any, context: Any) -> None:
        while True:
            grid.pull_messages([])

    with pytest.raises(ValueError, match="nothing is left to happen"):
        run(main)


def test_a_server_that_never_returns_meets_the_wall_limit() -> None:
    def main(grid: Any, context: Any) -> None:
        while True:
            grid.send_and_receive([request(2)])
            time.sleep(1.0)

    clock = time.time
    with pytest.raises(TimeoutError):
        netsim.run(world() | {"flower": {"app": "x"}}, app=(server(main), client()), wall_limit_s=1.0)
    assert time.time is clock


def test_a_server_that_only_computes_meets_the_wall_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    def main(grid: Any, context: Any) -> None:
        while True:
            pass

    monkeypatch.setattr(interrupts, "GRACE_S", 0.05)
    clock = time.time
    with pytest.raises(TimeoutError, match=r"the wall limit of 0\.1 s was reached"):
        netsim.run(world() | {"flower": {"app": "x"}}, app=(server(main), client()), wall_limit_s=0.1)
    assert time.time is clock


def test_the_wall_limit_interrupts_again_where_an_interrupt_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = 0

    def main(grid: Any, context: Any) -> None:
        nonlocal lost
        while True:
            try:
                while True:
                    pass
            except KeyboardInterrupt:
                if lost:
                    raise
                lost += 1

    monkeypatch.setattr(interrupts, "GRACE_S", 0.05)
    with pytest.raises(TimeoutError, match=r"the wall limit of 0\.1 s was reached"):
        netsim.run(world() | {"flower": {"app": "x"}}, app=(server(main), client()), wall_limit_s=0.1)
    assert lost == 1


def test_the_time_limit_ends_an_app_that_catches_all_exceptions() -> None:
    def main(grid: Any, context: Any) -> None:
        while True:
            try:
                grid.send_and_receive([request(2)])
            except Exception:
                continue

    assert run(main, time_limit_s=100.0).summary["ended"] == "time limit"


def test_a_run_in_a_folder_cannot_be_resumed(tmp_path: Path) -> None:
    def stop(done: int, most: int) -> None:
        raise KeyboardInterrupt

    tables = world() | {"flower": {"app": "flower-digits", "run_config": {"num-server-rounds": 2}}}
    with pytest.raises(KeyboardInterrupt, match="a Flower app cannot be resumed: run it again"):
        netsim.run(tables, out=tmp_path / "run", progress=stop)
    with pytest.raises(ValueError, match="a Flower app cannot go on from where it was"):
        netsim.resume(tmp_path / "run")
