"""Runs over a network against an independent solver and queueing theory, and two kinds of messages on one cable by hand."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import netsim
from tests.helpers.max_min import Demand, rates
from tests.helpers.networks import SHARED

ALL: dict[str, Any] = {"name": "n", "rounds": 1, "policy": {"kind": "all"}, "output": {"transfers_table": True}}


def ends_by_definition(capacities: dict[str, Fraction], routes: list[list[str]], sizes: list[int]) -> list[float]:
    """Return the ends of flows that begin together at 0 s, in rational numbers."""
    left, ends, now = {n: Fraction(size) for n, size in enumerate(sizes)}, [Fraction(0)] * len(sizes), Fraction(0)
    while left:
        demands = [Demand({link: Fraction(1) for link in routes[n]}) for n in left]
        rate_of = dict(zip(left, rates(capacities, set(), demands), strict=True))
        step = min(left[n] / rate_of[n] for n in left)
        now += step
        left = {n: size - step * rate_of[n] for n, size in left.items()}
        for n in [n for n, size in left.items() if size == 0]:
            ends[n] = now
            del left[n]
    return [float(end) for end in ends]


@pytest.mark.each_nth(5)
@pytest.mark.parametrize("seed", range(12))
def test_updates_over_a_random_network_end_as_an_independent_solver_says(seed: int) -> None:
    rng = random.Random(seed)
    nodes = [f"n{i}" for i in range(rng.randint(3, 8))]
    pairs = [(nodes[rng.randrange(i)], nodes[i]) for i in range(1, len(nodes))]
    spare = [(a, b) for i, a in enumerate(nodes) for b in nodes[i + 1 :] if (a, b) not in pairs]
    pairs += rng.sample(spare, rng.randint(0, min(3, len(spare))))
    links = [{"name": f"c{n}", "a": a, "b": b, "bandwidth_bytes_per_s": rng.randint(1, 50)} for n, (a, b) in enumerate(pairs)]
    clients = [rng.choice(nodes[1:]) for _ in range(rng.randint(2, 10))]
    sizes = [rng.randint(1, 999) for _ in clients]
    network = {"server": "n0", "clients": clients, "links": links, "routing": "hops"}
    tables = ALL | {"clients": {"count": len(clients)}, "server": {"per_round": len(clients)}, "network": network}
    done = netsim.run(tables | {"payload": {"up_bytes": sizes}})
    sent = done.transfers[done.transfers["size_bytes"] > 0]
    node_of = {link["name"]: {link["a"], link["b"]} for link in links}
    routes = []
    for row in sent.itertuples():
        here, uses = row.source, []
        for cable in row.route.split(">"):
            (here,) = node_of[cable] - {here}
            uses.append(f"{cable}>{here}")
        routes.append(uses)
    capacities = {f"{one['name']}>{end}": Fraction(one["bandwidth_bytes_per_s"]) for one in links for end in (one["a"], one["b"])}
    expected = ends_by_definition(capacities, routes, sent["size_bytes"].tolist())
    assert sent["end_s"].tolist() == pytest.approx(expected, rel=1e-9)
    assert sorted(done.clients["outcome_s"]) == pytest.approx(sorted(expected), rel=1e-9)
    assert sorted(sent["size_bytes"]) == sorted(sizes)


def test_a_model_and_an_update_of_two_clients_share_a_half_duplex_cable_by_hand() -> None:
    """The model of client 1 and, from 0 s on, the update of client 0 have 500 bytes/s each: 400 bytes end at 0.8 s.

    The model of 1,000 bytes has 600 left then, and arrives at 1.4 s; the update of client 1, 200 bytes, ends at 1.6 s.
    """
    near = {"name": "near", "a": "y", "b": "s", "bandwidth_bytes_per_s": 1000.0}
    network = {"server": "s", "clients": ["y", "y"], "links": [near], "duplex": "half-duplex"}
    payload = {"down_bytes": [0, 1000], "up_bytes": [400, 200]}
    done = netsim.run(ALL | {"clients": {"count": 2}, "server": {"per_round": 2}, "network": network, "payload": payload})
    assert done.clients.sort_values("client")["outcome_s"].tolist() == pytest.approx([0.8, 1.6], rel=1e-12)
    assert done.clients.sort_values("client")["download_end_s"].tolist() == pytest.approx([0.0, 1.4], rel=1e-12)


def test_times_scale_with_all_delays_and_bytes() -> None:
    def timed(factor: float) -> Any:
        generator = SHARED["network"]["generator"] | {"level_delay_s": [0.1 * factor, 0.01 * factor]}
        network = SHARED["network"] | {"generator": generator, "links": [], "outages": [], "background": []}
        compute = {"delay": {"kind": "shifted-exponential", "shift_s": 0.5 * factor, "mean_excess_s": factor}}
        payload = {"down_bytes": int(700 * factor), "up_bytes": int(1300 * factor)}
        changes = {"network": network, "compute": compute, "payload": payload}
        return netsim.run(SHARED | {"output": ALL["output"]} | changes).transfers

    one, three = timed(1.0), timed(3.0)
    for column in ("sent_s", "begin_s", "end_s", "limited_s"):
        assert three[column].to_numpy() == pytest.approx(3.0 * one[column].to_numpy(), rel=1e-9)


def test_transfers_that_begin_at_random_take_the_time_of_processor_sharing() -> None:
    """M/G/1-PS (Kleinrock 1967): a service of 1 s at load 0.6 takes 1 / (1 - 0.6) s on average, 1.75 s one after the other."""
    web = {"name": "web", "kind": "poisson", "from": "x", "to": "s", "per_s": 0.6, "size_bytes": 1000.0, "sizes": "constant"}
    link = {"a": "x", "b": "s", "bandwidth_bytes_per_s": 1000.0}
    means = []
    for seed in range(8):
        network = {"server": "s", "clients": ["x"], "links": [link], "background": [web]}
        tables = ALL | {"seed": seed, "clients": {"count": 1}, "server": {"per_round": 1}, "network": network}
        rows = netsim.run(tables | {"compute": {"delay": {"kind": "constant", "value_s": 1000.0}}}).transfers
        rows = rows[(rows["kind"] == "background.web") & (rows["outcome"] == "delivered")]
        means.append(float((rows["end_s"] - rows["sent_s"]).mean()))
    error = np.std(means, ddof=1) / np.sqrt(len(means))
    assert abs(np.mean(means) - 2.5) < 3.5 * error < 0.7


