"""Wherever a table has a `kind`, it may name a class or a function of one's own, which is checked like a built-in one."""

from __future__ import annotations

import sys
import typing

import numpy as np
import pydantic
import pytest

import netsim
from models.policies.slotted.bp_index import BpIndex
from scenarios.registry import in_process
from scenarios.registry.components import _ComponentOf
from scenarios.registry.kinds import BUILT_IN, NESTED
from scenarios.runs.folders.own_code import own_code
from scenarios.runs.in_memory import run_in_memory
from scenarios.runs.reading import parse
from scenarios.runs.run import go_on, run
from scenarios.schema.errors import UserError
from scenarios.schema.scenario import Scenario
from scenarios.wiring.simulation import build
from tests.helpers.own_of_every_kind import CASES, FUNCTIONS, MODULE, PEERS, name_of, tables
from tests.helpers.small_scenario import small_tables

pytest.importorskip("torch", reason="needs torch, which is not installed: pip install 'netsim[fl]'")


@pytest.fixture(autouse=True)
def module(tmp_path, monkeypatch):
    (tmp_path / "own_all.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(in_process, "_REGISTERED", {})  # what a test registers is gone after it
    yield
    sys.modules.pop("own_all", None)


def groups(model, above=()):
    """The groups of all fields below a section that hold a component."""
    for field in model.model_fields.values():
        waiting = [field.annotation, *field.metadata]
        while waiting:
            hint = waiting.pop()
            waiting += [*typing.get_args(hint), *getattr(hint, "__metadata__", ())]
            if isinstance(hint, _ComponentOf):
                yield hint.group
                for section in hint.described.values():
                    yield from groups(section, (*above, section))
            elif isinstance(hint, type) and issubclass(hint, pydantic.BaseModel) and hint not in above:
                yield from groups(hint, (*above, hint))


def test_there_is_a_case_for_every_table_with_a_kind():
    assert {*groups(Scenario), *NESTED.values()} == set(CASES) == set(BUILT_IN)


@pytest.mark.each_nth(3)
@pytest.mark.parametrize("group", CASES)
def test_ones_own_end_to_end(group, tmp_path):
    scenario = parse(tables(group, f"own_all:{name_of(group)}", level=3))
    summary = run(scenario, tmp_path / "run")
    assert summary["ended"] == "rounds"
    assert (group, 3) in sys.modules["own_all"].SEEN
    assert set(own_code(scenario)) == {f"own_all:{name_of(group)}"}
    assert list(summary["own_code"][0]["components"]) == [f"own_all:{name_of(group)}"]


def test_what_is_registered_goes_wherever_a_kind_does(tmp_path):
    own = __import__("own_all")
    netsim.register("aggregation", "own-median", own.Aggregation)
    study = tables("aggregation", "own-median", level=4) | {"rounds": 1}
    study["learner"] |= {"staleness": {"kind": own.Staleness, "level": 5}}
    assert netsim.run(study).summary["ended"] == "rounds"
    assert {("aggregation", 4), ("staleness", 5)} <= set(own.SEEN)


def refused(group, name, **keys):
    with pytest.raises(UserError) as refusal:
        build(parse(tables(group, name, **keys)))
    return str(refusal.value).removeprefix("scenario: ")


@pytest.mark.parametrize("group", CASES)
def test_what_is_wrong_with_ones_own_is_told_with_its_key(group):
    path, own = CASES[group][1], f"own_all:{name_of(group)}"
    assert refused(group, own, level="high").startswith(f'{path}.level = "high": must be a whole number')
    assert refused(group, own, lever=1).startswith(f"{path}.lever = 1: unknown key; did you mean 'level'?")
    assert refused(group, "own_all:Nothing").startswith(f"{path}.kind = \"own_all:Nothing\": module 'own_all' has no 'Nothing'")
    assert f"{path}.kind = \"zzz\": unknown {group} 'zzz'" in refused(group, "zzz")


@pytest.mark.parametrize("group", sorted(CASES.keys() - FUNCTIONS))
def test_a_class_that_lacks_what_is_called_is_refused(group):
    assert f"{CASES[group][1]}: 'own_all:Empty' lacks " in refused(group, "own_all:Empty")


def test_a_graph_of_ones_own_is_one_of_all_clients():
    assert "peers.topology: 'own_all:pairs' returns list; must return a PeerGraph" in refused("topology", "own_all:pairs")
    assert "peers.topology: 'own_all:small' returns a graph of 2 clients; must have 4" in refused("topology", "own_all:small")


@pytest.mark.parametrize(
    ("group", "name", "message"),
    [
        ("aggregation", "WrongStep", "step returned (); must be a tensor of shape (650,)"),
        ("staleness", "WrongFactor", "factor returned [2.0, 2.0]; must be 2 numbers between 0 and 1"),
        ("compression", "WrongCompression", "compress returned (650,); must be a tensor of shape (2, 650)"),
        ("server_optimizer", "WrongServer", "step returned (649,); must be a tensor of shape (650,)"),
    ],
)
def test_what_ones_own_returns_is_checked_as_it_runs(group, name, message, tmp_path):
    with pytest.raises(UserError) as refusal:
        run(parse(tables(group, f"own_all:{name}")), tmp_path / "run")
    assert str(refusal.value).startswith(f"{CASES[group][1]}.kind = 'own_all:{name}': {message}; ")


WRONG = (None, "text", -1, np.full(3, np.nan), np.zeros(99), [1, "x"])
CALLED = [
    ("bandwidth", "mean_rate"),
    ("channel", "success_probability"),
    ("delay", "quantile"),
    ("delay", "mean_s"),
    ("detector", "update"),
    ("matcher", "match"),
    ("noise", "quantile"),
    ("policy", "index"),
    ("protocol", "kept"),
    ("reward", "measure"),
    ("schedule", "epsilon"),
    ("schedule", "leak"),
    ("states", "at"),
]
"""Methods whose answers the engine uses in the runs of `CASES`, after the world is built."""


@pytest.mark.each_nth(3)
@pytest.mark.parametrize(("group", "method"), CALLED)
def test_an_answer_of_another_form_is_refused_with_its_key(group, method, monkeypatch):
    own = __import__("own_all")
    study = tables(group, f"own_all:{name_of(group)}")
    if method == "index":
        own.Index = type("Index", (BpIndex,), {"__module__": "own_all", "__qualname__": "Index"})
        study = PEERS | {"policy": {"kind": "own_all:Index"}}
    owner = own.Index if method == "index" else getattr(own, name_of(group))
    original, path = getattr(owner, method), CASES[group][1]
    for wrong in WRONG:
        running = []
        monkeypatch.setattr(owner, method, lambda *call: wrong if running else original(*call))  # noqa: B023
        scenario = parse(study)
        world = build(scenario)
        running.append(True)
        with pytest.raises(UserError) as refusal:
            run_in_memory(world, scenario)
        assert str(refusal.value).startswith(f"{path}.kind = 'own_all:{owner.__name__}': {method} returned ")
        assert f"; fix its {method} (round " in str(refusal.value)


def test_an_answer_of_another_form_is_refused_as_the_run_is_put_together(monkeypatch):
    own = __import__("own_all")
    monkeypatch.setattr(own.Bandwidth, "mean_rate", lambda *call: None)
    message = "downlink.bandwidth: 'own_all:Bandwidth': mean_rate returns None; must be an array of 6 numbers, each finite and > "
    assert refused("bandwidth", "own_all:Bandwidth") == message + "0"
    exec("def fails(*call):\n    return 1 / 0", vars(own))
    monkeypatch.setattr(own.Bandwidth, "mean_rate", own.fails)
    message = "downlink.bandwidth.kind = 'own_all:Bandwidth': ZeroDivisionError: division by zero"
    assert refused("bandwidth", "own_all:Bandwidth").startswith(message)


def test_presence_of_another_form_is_refused(monkeypatch):
    own = __import__("own_all")

    class Shrinks(own.Availability):
        def advance(self, now_s, draws):
            self.next_change_s = self.next_change_s[1:]

    monkeypatch.setattr(own, "Availability", Shrinks)
    Shrinks.__module__, Shrinks.__qualname__ = "own_all", "Availability"
    message = "availability.kind = 'own_all:Availability': advance returned None; must be followed by on (K,), truth values, "
    assert refused_in_run("availability").startswith(message)


def refused_in_run(group):
    scenario = parse(tables(group, f"own_all:{name_of(group)}"))
    with pytest.raises(UserError) as refusal:
        run_in_memory(build(scenario), scenario)
    return str(refusal.value)


def test_a_compression_of_ones_own_has_a_size_before_the_run():
    message = "payload.compression: message_bytes returned -1; must be a whole number of bytes >= 0; fix its message_bytes"
    assert refused("compression", "own_all:WrongBytes") == message


def test_a_server_of_ones_own_goes_on_from_a_checkpoint(tmp_path):
    study = tables("server", "own_all:Server", per_round=3) | {"rounds": 8}
    scenario = parse(study)

    def interrupt(simulation):
        if simulation.server.round == 5:
            raise KeyboardInterrupt

    run(scenario, tmp_path / "whole")
    run(scenario, tmp_path / "resumed", after_round=interrupt)
    go_on(tmp_path / "resumed")
    for name in ("rounds", "clients"):
        whole, resumed = (tmp_path / folder / f"{name}.parquet" for folder in ("whole", "resumed"))
        assert whole.read_bytes() == resumed.read_bytes()
    rounds = netsim.open_run(tmp_path / "whole").arrow("rounds").to_pydict()
    assert max(rounds["selected"]) == 3
    # Each closes at the first delivery.
    assert max(rounds["delivered"]) == 1


@pytest.mark.parametrize("clients", [3, 10], ids=["by events", "as arrays"])
def test_a_closing_rule_of_ones_own_answers_with_truth_values(clients):
    own = {"kind": "tests.helpers.own_servers:CountdownServer", "per_round": clients}
    study = {"name": "own", "rounds": 2, "clients": {"count": clients}, "server": own, "policy": {"kind": "random"}}
    study |= {"compute": {"delay": {"kind": "constant", "value_s": 1.0}}}
    with pytest.raises(ValueError, match=r"server\.kind = .*Countdown.*closes returned .*must be True or False"):
        netsim.run(study)


def test_keys_of_a_server_of_ones_own_mean_what_it_likes():
    blinking = {"outages": [{"name": "mast", "mean_up_s": 9.0, "mean_down_s": 1.0}]}
    assert build(parse(tables("server", "own_all:Keys") | blinking)).cautions == ()


def test_a_server_of_ones_own_on_sub_channels(tmp_path):
    channels = {"channels": {"count": 3}, "scheduler": {"kind": "random"}}
    for name in ("Server", "Meeting"):
        assert run(parse(tables("server", f"own_all:{name}") | channels), tmp_path / name)["ended"] == "rounds"
    access = channels | {"scheduler": {"kind": "random-access"}}
    assert run(parse(tables("server", "own_all:Meeting") | access), tmp_path / "access")["ended"] == "rounds"
    with pytest.raises(UserError, match=r"scheduler.kind = \"random-access\": lets .* own_all:Server .* contends = True"):
        parse(tables("server", "own_all:Server") | access)
    with pytest.raises(UserError, match=r"channels.count = 2: must be >= the number of clients, 3"):
        build(parse(tables("server", "own_all:Server", per_round=3) | channels | {"channels": {"count": 2}}))
    # A class that can have clients meet need not be on sub-channels.
    assert run(parse(tables("server", "own_all:Meeting")), tmp_path / "own links")["ended"] == "rounds"


def test_what_a_server_of_ones_own_may_not_do_is_refused():
    own = small_tables()
    policy = own["policy"]["kind"]
    told = f"policy.kind = \"{policy}\": server.kind = 'own_all:Nobody' selects nobody: all clients take part; leave it out"
    assert refused("server", "own_all:Nobody") == told
    assert "server.kind = 'own_all:Half': compose returns NoneType; must return a " in refused("server", "own_all:Half")
    assert "server.kind = 'own_all:Broken' cannot be put together: " in refused("server", "own_all:Broken")
    assert "argument 'limit_s' of its constructor has a name that a key cannot have" in refused("server", "own_all:Shadowing")
    with pytest.raises(ValueError, match="is the server of netsim"):
        netsim.register("server", "synchronous", __import__("own_all").Server)
    without = {key: value for key, value in tables("server", "own_all:Server").items() if key != "policy"}
    with pytest.raises(UserError, match="policy"):
        parse(without)
