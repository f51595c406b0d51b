"""Cost of edge tiers: linear in the clients below the edges; `pytest -m "" --benchmark-only -s` prints the figures.

Times are of the process, not of the clock on the wall.
"""

from __future__ import annotations

from time import process_time
from typing import Any

from tests.helpers.edge_tiers import ready, study, tier

DELAY = {"kind": "shifted-exponential", "shift_s": 0.1, "mean_excess_s": 0.7}


def seconds(clients: int) -> float:
    """Return the processor time of five rounds of ten edges, each of four own rounds with all its clients."""
    tables = study(
        tier(count=10, rounds=4),
        clients={"count": clients},
        server={"per_round": 10},
        compute={"delay": DELAY},
        rounds=5,
    )
    built, records = ready(tables)
    begun_s = process_time()
    built.simulation.run()
    spent_s = process_time() - begun_s
    assert len(records.updates) == 20 * clients
    return spent_s


def test_ten_edges_cost_in_proportion_to_their_clients(benchmark: Any) -> None:
    least = {clients: min(seconds(clients) for _ in range(3)) for clients in (250, 1000)}
    benchmark.pedantic(seconds, (1000,), rounds=1)
    each_us = least[1000] / 20_000 * 1e6
    print(f"\n10 edges of 100 clients: {each_us:.0f} us an update; {least[1000] / least[250]:.2f} times the time of 25")
    # Four times as many updates: at most half as much again for each.
    assert least[1000] < 6 * least[250]
