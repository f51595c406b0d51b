"""Cost of a message of a Flower app, against flwr's own objects and the app; run with `-m "" --benchmark-only -s`."""

from __future__ import annotations

from time import process_time
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

pytest.importorskip("flwr")

from flwr.app import Context, RecordDict

import netsim
from scenarios.flower import internals
from tests.helpers.flower import client, request, server, world

NODES, ROUNDS = 1000, 5
DEARER = 5.0
"""A message may cost so many times what flwr takes to make it, to call the app and to make the reply: 250 us beside 50 us."""


def plain_s() -> float:
    """Return the seconds of making all messages and calling the app with each, without a network."""
    app, context = client(), Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config={})
    began = process_time()
    with internals.task_identity(1):
        for number in range(1, ROUNDS + 1):
            messages = [request(node, round=number) for node in range(2, NODES + 2)]
            for place, message in enumerate(messages):
                internals.set_message_id(message, place)
                app(message, context)
    return process_time() - began


def simulated_s() -> float:
    """Return the seconds of the same messages over a simulated network; building and writing do not count."""
    took = []

    def main(grid: Any, context: Any) -> None:
        # Of the process: an app sees no other clock than the simulation's by `time.time`.
        began = process_time()
        for number in range(1, ROUNDS + 1):
            grid.send_and_receive([request(node, round=number) for node in grid.get_node_ids()])
        took.append(process_time() - began)

    delay = {"compute": {"delay": {"kind": "constant", "value_s": 1.0}}}
    netsim.run(world(NODES, **delay) | {"flower": {"app": "x"}}, app=(server(main), client()))
    return took[0]


def test_a_message_beside_the_objects_of_flwr_and_the_app(benchmark: BenchmarkFixture) -> None:
    benchmark.pedantic(simulated_s, rounds=1, warmup_rounds=1)
    plain, simulated = min(plain_s() for _ in range(5)), min(simulated_s() for _ in range(3))
    each_us = 1e6 / (NODES * ROUNDS)
    beside = simulated - plain
    print(f"\n{NODES:,} nodes: {beside * each_us:.0f} us a message beside flwr's objects and the app, {plain * each_us:.0f} us")
    assert beside <= DEARER * plain
