"""AD-PSGD on the clock: by hand, sums that are kept, what is lost, and graphs in which peers would wait in a circle."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from scenarios.runs.reading import parse
from scenarios.schema.errors import UserError
from scenarios.wiring.simulation import build
from tests.helpers.peer_training import CONSTANT, EXPONENTIAL, simulated, study, with_numbers

PATH = {"topology": {"kind": "grid", "rows": 1}, "speed_km_per_s": 1e300, "delay": CONSTANT | {"value_s": 0.5}}


def asynchronous(**keys: Any) -> dict[str, Any]:
    return {"kind": "peers", "protocol": {"kind": "ad-psgd"} | keys}


def test_three_peers_by_hand() -> None:
    # 0 - 1 - 2: peers 0 and 2 ask, peer 1 answers. Trainings of 1, 10 and 1.2 s add 1, 2 and 4; messages take 0.5 s.
    # 0 asks at 1 s, 1 answers at 1.5 s; at 2 s the mean of 8 and 0 is 4, and 0 goes on with 5.
    # 2 asks at 1.2 s, and waits from 1.7 s until 1 is free at 2 s; at 2.5 s the mean of 4 and 4 is 4, and 2 goes on with 8.
    # 0 asks again at 3 s; at 4 s the mean of 5 and 4 is 4.5, and 0 goes on with 5.5. 2 asks again at 3.7 s, waits from 4.2 s? No:
    # 1 is free since 4 s, so its answer is there at 4.7 s: the mean of 8 and 4.5 is 6.25, and 2 goes on with 10.25.
    tables = study(
        rounds=9,
        clients={"count": 3},
        peers=PATH,
        compute={"delay": CONSTANT | {"value_s": [1.0, 10.0, 1.2]}},
        server=asynchronous(),
        time_limit_s=4.8,
    )
    simulation, models = with_numbers(tables, [8.0, 0.0, 4.0], steps=[1.0, 2.0, 4.0])
    simulation.run()
    assert models()[:, 0].tolist() == [5.5, 6.25, 10.25]
    _, records = simulated(**tables)
    starts = sorted((row.client, row.compute_start_s) for row in records.updates)
    assert starts == [(0, 0.0), (0, 2.0), (0, 4.0), (1, 0.0), (2, 0.0), (2, 2.5), (2, 4.7)]


def test_the_step_of_a_peer_that_answers_is_added_once_its_exchange_ends() -> None:
    # 1 answers at 1.5 s and ends its training at 1.7 s; its step is added at 2 s, to the mean of 8 and 0.
    compute = {"delay": CONSTANT | {"value_s": [1.0, 1.7]}}
    peers = PATH | {"topology": {"kind": "complete"}}
    tables = study(rounds=9, clients={"count": 2}, peers=peers, compute=compute, server=asynchronous(), time_limit_s=2.1)
    simulation, models = with_numbers(tables, [8.0, 0.0], steps=[1.0, 2.0])
    simulation.run()
    assert models()[:, 0].tolist() == [5.0, 6.0]


@pytest.mark.parametrize("keys", [{"retry_s": 0.3}, {"timeout_s": 4.0}, {"bipartite": False, "timeout_s": 4.0}])
def test_exchanges_keep_the_sum_of_all_models_at_any_time(keys: dict[str, Any]) -> None:
    lossy = {"topology": {"kind": "hypercube"}, "channel": {"kind": "bernoulli", "success": 0.7}, "delay": EXPONENTIAL}
    away = {"kind": "markov", "mean_on_s": 20.0, "mean_off_s": 2.0}
    tables = study(rounds=40, clients={"count": 8}, peers=lossy, server=asynchronous(**keys), availability=away)
    start = np.arange(8.0) ** 2
    simulation, models = with_numbers(tables, start)
    for round in range(1, 41):
        simulation.run(until_round=round)
        assert models().sum() == pytest.approx(start.sum(), rel=1e-12)
    assert models().std() < 0.2 * start.std()


def test_an_exchange_shrinks_the_variance_by_one_over_the_other_peers_on_average() -> None:
    # A pair of n peers, drawn at random: E[V'] = V (1 - 1 / (n - 1)). Sums of the differences from that are a martingale.
    peers = {"topology": {"kind": "complete"}, "speed_km_per_s": 1e300}
    keys = {"bipartite": False, "timeout_s": 1e6}
    tables = study(rounds=25, clients={"count": 8}, peers=peers, server=asynchronous(**keys), output={})
    simulation, models = with_numbers(tables, np.arange(8.0))
    host, variances = simulation.server.peers, [models().var()]

    def finish(peer: int, model: int, finish: Any = host.finish) -> None:
        finish(peer, model)
        variances.append(models().var())

    host.finish = finish
    simulation.run()
    before, after = np.array(variances[:-1]), np.array(variances[1:])
    sample = after / before - (1 - 1 / 7)
    assert len(sample) == 200
    assert abs(sample.mean()) < 4 * sample.std() / math.sqrt(len(sample))


def test_a_slow_peer_does_not_slow_the_others() -> None:
    # Peer 1 of a ring of 4 takes 100 s; the peers that ask it get its answer at once.
    compute = {"delay": CONSTANT | {"value_s": [1.0, 100.0, 1.0, 1.0]}}
    simulation, _ = simulated(
        rounds=99, clients={"count": 4}, peers={"topology": {"kind": "ring"}}, compute=compute, server=asynchronous(),
        time_limit_s=20.5,
    )
    assert simulation.server.peers.round.tolist() == [21, 1, 21, 21]  # type: ignore[attr-defined]


LOSSY = {"topology": {"kind": "ring"}, "channel": {"kind": "bernoulli", "success": 0.5}}


@pytest.mark.parametrize(
    ("tables", "told"),
    [
        ({"server": asynchronous()}, r"server\.protocol\.bipartite = True: needs a bipartite graph, and peers \d and \d"),
        ({"server": asynchronous(bipartite=False)}, r"server\.protocol\.timeout_s.*in a circle"),
        ({"server": asynchronous(), "peers": LOSSY, "clients": {"count": 4}}, "give retry_s or timeout_s"),
        ({"server": asynchronous(timeout_s=-1.0)}, r"server\.protocol\.timeout_s = -1"),
        ({"server": asynchronous() | {"mixing": {"kind": "uniform"}}}, r"server\.mixing.*ad-psgd.*leave it out"),
    ],
)
def test_scenarios_that_it_cannot_have_are_refused(tables: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=told):
        build(parse(study(**tables)))
