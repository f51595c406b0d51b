"""A module with a component of one's own for every table with a `kind`, and scenarios to put them into."""

from __future__ import annotations

from tests.helpers.small_scenario import small_tables

MODULE = """
import numpy as np

from models.detection.no_detection import NoDetection
from models.fl.aggregation.rules import Equal
from models.fl.compression.int8 import Int8
from models.fl.training.optimizers import Sgd
from models.fl.training.own_training import Trained
from models.fl.data.partition import equal
from models.fl.aggregation.server_optimizers import ServerSgd
from models.laws.availability.presence import Always
from models.laws.bandwidth.laws import Constant as Steady
from models.laws.channels import Perfect
from models.laws.delays import Constant
from models.laws.noise import LogNormal
from models.laws.sub_channels.jammers import Sweep
from models.laws.sub_channels.stationary import Stationary
from models.peers.mixing import metropolis
from models.peers.topologies import complete
from models.policies.random import Random
from models.privacy import GeometricSchedule
from models.schedulers.cucb import Cucb
from models.schedulers.matchers.rotation import Rotation
from models.theory.regret import PauseRewardMeter
from netsim.peers.training.d_psgd import DPsgd
from netsim.servers.rounds.close import WaitRule
from netsim.servers.rounds.dispatch import SelectionRule
from netsim.servers.kinds.synchronous import synchronous_server

SEEN = []


def seen(name, level):
    SEEN.append((name, level))


class Trainer:
    def __init__(self, *, level: int = 0):
        seen("trainer", level)

    def train(self, jobs):
        return [Trained(parameters=job.parameters, samples=len(job.data.y), steps=1) for job in jobs]


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


def mixing(*, graph, level: int = 0):
    seen("mixing", level)
    return metropolis(graph=graph)


class Protocol(DPsgd):
    def __init__(self, *, level: int = 0):
        super().__init__()
        seen("protocol", level)


def partition(labels, *, clients: int, generator, level: int = 0):
    seen("partition", level)
    return equal(labels, clients=clients, generator=generator)


def network(inputs, classes, *, level: int = 0):
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
        channels, pool = world.channels_and_pool(self.per_round)
        server = synchronous_server(
            pool=pool,
            selecting=SelectionRule(policy=world.policy(self.per_round), streams=world.streams, need=1),
            learner=world.learner,
            wait=WaitRule(first=1),
            channels=channels,
        )
        return server


class Nobody(Server):
    selects = False


class Keys(Server):
    # Of netsim's servers these keys are numbers of seconds.

    def __init__(self, *, per_round: int = 2, deadline_s: str = "soon", round_s: str = "long"):
        self.per_round = per_round


class Meeting(Server):
    contends = True


class Half(Server):
    def compose(self, world):
        return None


class Broken(Server):
    def compose(self, world):
        return world.climate


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
"""

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

WITHOUT_A_SERVER = {
    "name": "peers",
    "rounds": 2,
    "clients": {"count": 4},
    "server": {"kind": "peers", "protocol": {"kind": "d-psgd"}},
    "compute": {"delay": {"kind": "constant", "value_s": 1.0}},
    "peers": {"topology": {"kind": "ring"}},
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
    "protocol": (WITHOUT_A_SERVER, "server.protocol"),
    "mixing": (WITHOUT_A_SERVER, "server.mixing"),
    **{name: (TRAINED, f"learner.{name}") for name in ("partition", "network", "optimizer", "aggregation", "staleness")},
    "server_optimizer": (TRAINED, "learner.server_optimizer"),
    "trainer": (TRAINED, "learner.trainer"),
    "script": (small_tables(), "script"),
    "server": (small_tables(), "server"),
    "compression": (TRAINED, "payload.compression"),
}

FUNCTIONS = {"topology", "mixing", "partition", "network", "script"}


def tables(group, name, **keys):
    """Return the tables of the scenario of a group, with the component `name` of the module in its place."""

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
    """Return the name of the component of a group in the module."""
    return group if group in FUNCTIONS else "".join(word.capitalize() for word in group.split("_"))
