"""A shared medium: an upload costs the logarithm of how many are under way, and a step for each limit of clients in use."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

from netsim.core.clock import Clock
from netsim.network.bandwidth.carriers import Port
from tests.helpers.shared_links import shared_medium

UPLOADS = 30_000


def uploads_per_s(under_way: int, limits: Any = math.inf) -> float:
    """So many uploads are always under way: whoever is through begins again. The best of three."""
    best = 0.0
    for _ in range(3):
        clock = Clock()
        medium = shared_medium(
            clock=clock, clients=under_way, size_bytes=1.0, bandwidth_bytes_per_s=100.0, per_client_bytes_per_s=limits
        )
        port = medium.port("message")
        over = clock.event()
        count = 0

        def end(client: int, cause: str | None, port: Port = port, over: Any = over) -> None:
            nonlocal count
            count += 1
            if count == UPLOADS:
                over.succeed()
            elif not over.triggered:
                port.join(client, client)

        port.listen(end)
        rng = np.random.default_rng(1)
        for client, at_s in enumerate(np.sort(rng.random(under_way)).tolist()):
            clock.call_at(at_s, lambda one, port=port: port.join(one, one), client)
        began = time.process_time()
        clock.run_until(over)
        best = max(best, UPLOADS / (time.process_time() - began))
    return best


def test_an_upload_costs_the_logarithm_of_how_many_are_under_way(benchmark: Any) -> None:
    few = uploads_per_s(10)
    many = benchmark.pedantic(uploads_per_s, args=(10_000,), rounds=1)
    benchmark.extra_info |= {"at_10": few, "at_10000": many}
    # log 10,000 is four times log 10, and most of the cost is not in the heap.
    assert many > few / 4


def test_limits_of_four_kinds_cost_four_steps(benchmark: Any) -> None:
    limits = np.array([0.001 * (1 + client % 4) for client in range(10_000)])
    limited = benchmark.pedantic(uploads_per_s, args=(10_000, limits), rounds=1)
    assert limited > uploads_per_s(10_000) / 4


def seconds(count: int) -> float:
    """Processor time of `count` uploads that begin within a second, each with a limit of its own. The best of three."""
    best = math.inf
    rng = np.random.default_rng(1)
    limits, begins = rng.uniform(0.5, 50.0, count), np.sort(rng.random(count)).tolist()
    for _ in range(3):
        clock = Clock()
        medium = shared_medium(
            clock=clock, clients=count, size_bytes=100.0, bandwidth_bytes_per_s=10.0 * count, per_client_bytes_per_s=limits
        )
        port = medium.port("message")
        for client, at_s in enumerate(begins):
            clock.call_at(at_s, lambda one, port=port: port.join(one, one), client)
        began = time.process_time()
        clock.run()
        best = min(best, time.process_time() - began)
    return best


def test_a_limit_for_each_client_costs_no_more_with_many_of_them(benchmark: Any) -> None:
    few = seconds(1_000)
    many = benchmark.pedantic(seconds, args=(8_000,), rounds=1)
    exponent = math.log(many / few) / math.log(8)
    benchmark.extra_info |= {"at_1000": few, "at_8000": many, "exponent": exponent}
    assert exponent < 1.3
