"""Wherever a table has a `kind`, it may name a class or a function of one's own, which is checked like a built-in one."""

from __future__ import annotations

import sys
import typing

import pydantic
import pytest

import netsim
from scenarios.build.simulation import build
from scenarios.registry import in_process
from scenarios.registry.components import _ComponentOf
from scenarios.registry.kinds import BUILT_IN, NESTED
from scenarios.runs.own_code import own_code
from scenarios.runs.reading import parse
from scenarios.runs.run import go_on, run
from scenarios.schema.errors import UserError
from scenarios.schema.scenario import Scenario
from tests.helpers.small_scenario import small_tables

pytest.importorskip("torch", reason="needs torch, which is not installed: pip install 'netsim[fl]'")

MODULE = '''
import numpy as np

from models.detection.no_detection import NoDetection
from models.fl.aggregation import Equal
from models.fl.compression.int8 import Int8
from models.fl.optimizers import Sgd
from models.fl.partition import equal
from models.fl.server_optimizers import ServerSgd
from models.laws.availability import Always
from models.laws.bandwidth import Constant as Steady
from models.laws.channels import Perfect
from models.laws.delays import Constant
from models.laws.noise import LogNormal
from models.laws.jammers import Sweep
from models.laws.sub_channels import Stationary
from models.peers.topologies import complete
from models.policies.random import Random
from models.privacy import GeometricSchedule
from models.schedulers.cucb import Cucb
from models.schedulers.rotation import Rotation
from models.theory.regret import PauseRewardMeter
from netsim.core.null_objects import NoMeter
from netsim.servers.close import WaitRule
from netsim.servers.dispatch import SelectionRule
from netsim.servers.synchronous import synchronous_server
from scenarios.build.channels import channels_and_pool
from scenarios.build.world import Composed

SEEN = []


def seen(name, level):
    SEEN.append((name, level))


class Policy(Random):
    def __init__(self, *, clients: int, per_round: int, level: int = 0):
        super().__init__(clients=clients, per_round=per_round)
        seen("policy", level)


class Delay(Constant):
    def __init__(self, *, level: int = 0):
        super().__init__(value_s=0.1)
        seen("delay", level)


class Noise(LogNormal):
    def __init__(self, *, level: int = 0):
        super().__init__(sigma=0.1)
        seen("noise", level)


class Bandwidth(Steady):
    def __init__(self, *, clients: int, draws, level: int = 0):
        super().__init__(bytes_per_s=1e3 * (1.0 + draws.uniforms(0, clients)))
        seen("bandwidth", level)


class Channel(Perfect):
    def __init__(self, *, level: int = 0):
        super().__init__()
        seen("channel", level)


class Availability(Always):
    def __init__(self, *, clients: int, level: int = 0):
        super().__init__(clients=clients)
        seen("availability", level)


class Schedule(GeometricSchedule):
    def __init__(self, *, level: int = 0):
        super().__init__(epsilon_total=10.0, eta=0.04)
        seen("schedule", level)


class Reward(PauseRewardMeter):
    def __init__(self, *, clients: int, per_round: int, data_sizes, schedule, truth, level: int = 0):
        super().__init__(clients=clients, per_round=per_round, data_sizes=data_sizes, schedule=schedule, truth=truth)
        seen("reward", level)


class Scheduler(Cucb):
    def __init__(self, *, clients: int, channels: int, level: int = 0):
        super().__init__(clients=clients, channels=channels)
        seen("scheduler", level)


class States(Stationary):
    def __init__(self, *, channels: int, generator, level: int = 0):
        super().__init__(channels=channels, generator=generator)
        seen("states", level)


class Jammer(Sweep):
    def __init__(self, *, level: int = 0):
        super().__init__()
        seen("jammer", level)


class Matcher(Rotation):
    def __init__(self, *, level: int = 0):
        super().__init__()
        seen("matcher", level)


class Detector(NoDetection):
    def __init__(self, *, level: int = 0):
        super().__init__()
        seen("detector", level)


def script(world, *, level: int = 0):
    seen("script", level)
    yield world.until_round(2)


def topology(*, clients: int, generator, level: int = 0):
    seen("topology", level)
    return complete(clients=clients, generator=generator)


def partition(labels, *, clients: int, generator, level: int = 0):
    seen("partition", level)
    return equal(labels, clients=clients, generator=generator)


def network(shape, classes, *, level: int = 0):
    from torch import nn

    seen("network", level)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))


class Optimizer(Sgd):
    def __init__(self, *, level: int = 0):
        super().__init__(learning_rate=0.1)
        seen("optimizer", level)


class Aggregation:
    def __init__(self, *, level: int = 0):
        seen("aggregation", level)

    def step(self, model, starts, updates, arrivals, factors):
        return updates.median(0).values


class Staleness:
    def __init__(self, *, level: int = 0):
        seen("staleness", level)

    def factor(self, staleness):
        return 0.5 * np.ones(len(staleness))


class ServerOptimizer(ServerSgd):
    def __init__(self, *, level: int = 0):
        super().__init__(learning_rate=0.9)
        seen("server_optimizer", level)


class Compression(Int8):
    def __init__(self, *, level: int = 0):
        super().__init__()
        seen("compression", level)


class WrongCompression(Compression):
    def compress(self, rows, tensors, generators):
        return rows[0]


class WrongBytes(Compression):
    def message_bytes(self, tensors):
        return -1


class Server:
    def __init__(self, *, level: int = 0, per_round: int = 2):
        seen("server", level)
        self.per_round = per_round

    def compose(self, world):
        channels, pool = channels_and_pool(world, self.per_round)
        server = synchronous_server(
            pool=pool,
            selecting=SelectionRule(policy=world.policy(self.per_round), streams=world.streams, need=1),
            learner=world.learner,
            wait=WaitRule(first=1),
            meter=NoMeter(),
            channels=channels,
        )
        return Composed(server=server)


class Nobody(Server):
    selects = False


class Half(Server):
    def compose(self, world):
        return None


class Broken(Server):
    def compose(self, world):
        return world.weather


class Shadowing(Server):
    def __init__(self, *, limit_s: float = 1.0):
        pass


class Empty:
    pass


class WrongStep(Aggregation):
    def step(self, model, starts, updates, arrivals, factors):
        return updates.sum()


class WrongFactor(Staleness):
    def factor(self, staleness):
        return [2.0] * len(staleness)


class WrongServer(ServerOptimizer):
    def step(self, delta):
        return delta[1:]


def pairs(*, clients: int):
    return [(0, 1)]


def small(*, generator):
    return complete(clients=2, generator=generator)
'''
CHANNELS = {
    "name": "channels",
    "rounds": 4,
    "clients": {"count": 2},
    "server": {"kind": "asynchronous"},
    "channels": {"count": 3, "states": {"kind": "stationary"}},
    "scheduler": {"kind": "cucb"},
    "jammers": [{"name": "one", "law": {"kind": "sweep"}}],
}
PEERS = {
    "name": "peers",
    "rounds": 2,
    "clients": {"count": 4},
    "server": {"kind": "fl-da", "per_round": 2},
    "policy": {"kind": "bp-index"},
    "slots": {"rounds": 1},
    "opinions": {"synthetic": {}},
    "peers": {"topology": {"kind": "complete"}},
}
TRAINED = {
    "name": "trained",
    "rounds": 2,
    "clients": {"count": 4},
    "server": {"per_round": 2},
    "policy": {"kind": "random"},
    "learner": {
        "data": {"kind": "digits", "samples": 80, "test_samples": 40},
        "network": {"kind": "linear"},
        "optimizer": {"kind": "sgd", "learning_rate": 0.1},
        "max_steps": 1,
    },
}
SAMPLES = small_tables() | {
    "clients": small_tables()["clients"] | {"data_sizes": 20},
    "work": {},
    "compute": {"samples_per_s": 10.0},
}
CASES = {
    "policy": (small_tables(), "policy"),
    "delay": (small_tables(), "downlink.delay"),
    "noise": (SAMPLES, "compute.noise"),
    "bandwidth": ({**small_tables(), "payload": {"down_bytes": 100}}, "downlink.bandwidth"),
    "channel": (small_tables(), "downlink.channel"),
    "availability": (small_tables(), "availability"),
    "schedule": (small_tables(), "privacy.schedule"),
    "reward": (small_tables(), "metrics.reward"),
    "detector": (small_tables(), "policy.detector"),
    "scheduler": (CHANNELS, "scheduler"),
    "matcher": (CHANNELS, "scheduler.matcher"),
    "states": (CHANNELS, "channels.states"),
    "jammer": (CHANNELS, "jammers.0.law"),
    "topology": (PEERS, "peers.topology"),
    **{name: (TRAINED, f"learner.{name}") for name in ("partition", "network", "optimizer", "aggregation", "staleness")},
    "server_optimizer": (TRAINED, "learner.server_optimizer"),
    "script": (small_tables(), "script"),
    "server": (small_tables(), "server"),
    "compression": (TRAINED, "payload.compression"),
}
FUNCTIONS = {"topology", "partition", "network", "script"}


@pytest.fixture(autouse=True)
def module(tmp_path, monkeypatch):
    (tmp_path / "own_all.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(in_process, "_REGISTERED", {})  # what a test registers is gone after it
    yield
    sys.modules.pop("own_all", None)


def tables(group, name, **keys):
    """The scenario of a group, with the component `name` of the module in its place."""

    def put(value, path):
        if not path:
            return {"kind": name, **keys}
        head, *rest = path
        if isinstance(value, list):
            return [put(entry, rest) for entry in value]
        return {**value, head: put(value.get(head, {}), rest)}

    base, path = CASES[group]
    return put(base, path.split("."))


def name_of(group):
    return group if group in FUNCTIONS else "".join(word.capitalize() for word in group.split("_"))


def groups(model, above=()):
    """The groups of all fields below a section that hold a component."""
    for field in model.model_fields.values():
        waiting = [field.annotation, *field.metadata]
        while waiting:
            hint = waiting.pop()
            waiting += [*typing.get_args(hint), *getattr(hint, "__metadata__", ())]
            if isinstance(hint, _ComponentOf):
                yield hint.group
            elif isinstance(hint, type) and issubclass(hint, pydantic.BaseModel) and hint not in above:
                yield from groups(hint, (*above, hint))


def test_there_is_a_case_for_every_table_with_a_kind():
    assert {*groups(Scenario), *NESTED.values()} == set(CASES) == set(BUILT_IN)


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
    assert refused(group, own, level="high").startswith(f"{path}.level = \"high\": must be a whole number")
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
