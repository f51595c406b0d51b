"""Cost of training without a server: learning beside the same steps in bmm, messages a second, memory, growth with messages.

`pytest -m "" --benchmark-only -s` prints the figures.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from models.fl.data.batches import draw_batches
from models.fl.data.datasets import load_dataset
from models.fl.options.names import DataOptions
from models.peers.mixing import metropolis
from models.peers.regular import ring
from netsim.core.streams import Streams
from scenarios.runs.reading import parse
from scenarios.wiring.simulation import build
from tests.helpers.peer_training import EXPONENTIAL, study

PEERS, RATE, BATCH, HIDDEN = 64, 0.1, 10, 32


class BmmRing:
    """Rounds of D-PSGD on a ring, written out in torch's bmm: all peers take each step together; no clock, no records."""

    def __init__(self, steps: int) -> None:
        rng = np.random.default_rng(0)
        data = load_dataset(DataOptions(kind="digits"), root=Path(), generator=rng)
        self._x, self._y = data.train_x.flatten(1), data.train_y
        self._parts = np.array_split(rng.permutation(len(self._y)), PEERS)
        self._steps, self._round, self._streams = steps, 0, Streams(0)
        shapes = ((HIDDEN, 64), (HIDDEN,), (10, HIDDEN), (10,))
        self._models = [0.1 * torch.randn(shape).expand(PEERS, *shape).clone() for shape in shapes]
        self._weights = torch.from_numpy(metropolis(graph=ring(clients=PEERS)).matrix()).float()

    def __call__(self) -> None:
        self._round += 1
        drawn = [
            draw_batches(
                self._parts[k], self._streams.generator("batches", self._round, k), batch_size=BATCH, steps=self._steps
            )
            for k in range(PEERS)
        ]
        index = torch.from_numpy(np.maximum(np.stack(drawn, axis=1), 0))
        w1, b1, w2, b2 = self._models
        with torch.no_grad():
            for samples in index:
                x, y = self._x[samples], self._y[samples]
                hidden = torch.relu(torch.baddbmm(b1.unsqueeze(1), x, w1.transpose(1, 2)))
                slope = torch.softmax(torch.baddbmm(b2.unsqueeze(1), hidden, w2.transpose(1, 2)), 2)
                slope.scatter_add_(2, y.unsqueeze(2), torch.full_like(slope[..., :1], -1.0)).div_(BATCH)
                below = torch.bmm(slope, w2).mul_(hidden > 0)
                w2.sub_(torch.bmm(slope.transpose(1, 2), hidden), alpha=RATE)
                b2.sub_(slope.sum(1), alpha=RATE)
                w1.sub_(torch.bmm(below.transpose(1, 2), x), alpha=RATE)
                b1.sub_(below.sum(1), alpha=RATE)
            self._models = [(self._weights @ one.flatten(1)).reshape(one.shape) for one in self._models]


def learning_ring(steps: int, rounds: int) -> Any:
    learner = {
        "data": {"kind": "digits"},
        "network": {"kind": "mlp", "hidden": [HIDDEN]},
        "optimizer": {"kind": "sgd", "learning_rate": RATE},
        "batch_size": BATCH,
        "epochs": steps,
        "max_steps": steps,
        "evaluate_every_s": 1e9,
    }
    tables = study(rounds=rounds, clients={"count": PEERS}, peers={"topology": {"kind": "ring"}}, output={}, payload={})
    # One peer is tested, at the end: the steps written out in bmm test none.
    server = {"kind": "peers", "protocol": {"kind": "d-psgd"}, "tested_peers": 1}
    return build(parse(tables | {"learner": learner, "compute": {"delay": EXPONENTIAL}, "server": server})).simulation


@pytest.mark.parametrize(("steps", "least"), [(2, 0.2), (5, 0.3), (20, 0.5)])
def test_learning_peers_beside_the_same_steps_in_bmm(benchmark: Any, steps: int, least: float) -> None:
    benchmark.pedantic(BmmRing(steps), rounds=1)
    rounds, ratios = 20, []
    for _ in range(3):
        simulation, plain = learning_ring(steps, rounds + 1), BmmRing(steps)
        simulation.run(until_round=1)
        plain()
        began = time.process_time()
        for _ in range(rounds):
            plain()
        written_s = time.process_time() - began
        began = time.process_time()
        simulation.run()
        ratios.append(written_s / (time.process_time() - began))
    print(f"\n{steps} steps: {max(ratios):.2f} of the speed of the same steps in bmm ({written_s / rounds / PEERS * 1e6:.0f} us)")
    assert max(ratios) > least


def messages_a_second(peers: int, rounds: int) -> float:
    tables = study(rounds=rounds, clients={"count": peers}, peers={"topology": {"kind": "torus"}}, output={})
    simulation = build(parse(tables)).simulation
    simulation.run(until_round=1)
    sent, began = simulation.server.transport.sent, time.process_time()
    simulation.run()
    return (simulation.server.transport.sent - sent) / (time.process_time() - began)


def test_messages_a_second_of_ten_thousand_peers(benchmark: Any) -> None:
    benchmark.pedantic(messages_a_second, (100, 3), rounds=1)
    few, many = max(messages_a_second(1_000, 21) for _ in range(2)), messages_a_second(10_000, 6)
    print(f"\n1,000 peers: {few:,.0f} messages a second; 10,000: {many:,.0f}")
    # The cost is linear in messages.
    assert many > 0.6 * few


MEMORY = """
import resource
from tests.benchmarks.test_peers_bench import thousand_peers
thousand_peers()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def thousand_peers() -> None:
    """Two rounds of 1,000 peers with models of 25,450 numbers, 100 kB."""
    learner = {
        "data": {"kind": "digits"},
        "network": {"kind": "mlp", "hidden": [339]},
        "optimizer": {"kind": "sgd", "learning_rate": RATE},
        "max_steps": 1,
        "evaluate_every_s": 1e9,
    }
    server = {"kind": "peers", "protocol": {"kind": "d-psgd"}, "tested_peers": 10}
    tables = study(rounds=3, clients={"count": 1_000}, peers={"topology": {"kind": "torus"}}, output={}, payload={})
    build(parse(tables | {"learner": learner, "server": server})).simulation.run()


def test_a_thousand_peers_with_models_of_100_kb_take_less_than_a_gigabyte(benchmark: Any) -> None:
    command = [sys.executable, "-c", MEMORY]
    done = benchmark.pedantic(subprocess.run, (command,), {"capture_output": True, "text": True, "check": True}, rounds=1)
    peak = int(done.stdout.split()[-1]) * 1024
    print(f"\npeak {peak / 1e6:,.0f} MB")
    assert peak < 1e9


