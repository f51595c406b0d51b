"""Gossip learning on the clock: by hand, the number of messages, ages, and what happens to peers and messages that are away."""

from __future__ import annotations

import math
import tomllib
from typing import Any

import numpy as np
import pytest

from scenarios.runs.reading import parse, to_toml
from scenarios.schema.errors import UserError
from scenarios.wiring.simulation import build
from tests.helpers.peer_training import CONSTANT, EXPONENTIAL, by_round, check_resumed, learning, simulated, study


def gossip(**keys: Any) -> dict[str, Any]:
    return {"kind": "peers", "protocol": {"kind": "gossip-learning", "period_s": 2.0} | keys}


PAIR = {
    "clients": {"count": 2},
    "peers": {"topology": {"kind": "complete"}, "delay": CONSTANT | {"value_s": 0.25}, "speed_km_per_s": 1e300},
    "compute": {"delay": CONSTANT | {"value_s": [1.0, 1.5]}},
}


def protocol_of(simulation: Any) -> Any:
    return simulation.server.peers.protocol


def test_two_peers_by_hand() -> None:
    # Both train from 0 s. They send at 2, 4, .. s; at 2.25 s each has the other's model and trains, 0 to 3.25 s, 1 to 3.75 s.
    _, records = simulated(rounds=3, server=gossip(spread=0.0), **PAIR)
    starts, ends = (by_round(records.updates, f"compute_{edge}_s", 2)[:3] for edge in ("start", "end"))
    assert starts.tolist() == [[0.0, 0.0], [2.25, 2.25], [4.25, 4.25]]
    assert ends.tolist() == [[1.0, 1.5], [3.25, 3.75], [5.25, 5.75]]
    # A round of the run closes once peers have trained one more time on average.
    assert [row.end_s for row in records.rounds] == [1.5, 3.75, 5.75]
    assert [row.messages for row in records.rounds] == [0, 2, 2]


def test_models_that_arrive_during_a_training_wait_in_order() -> None:
    slow = PAIR | {"compute": {"delay": CONSTANT | {"value_s": [5.0, 1.0]}}}
    simulation, records = simulated(rounds=4, server=gossip(spread=0.0), time_limit_s=9.0, **slow)
    # Peer 1 sends at 2, 4, 6, 8 s; peer 0 trains to 5 s, then with the model of 2.25 s to 10 s. Three more wait.
    starts = [row.compute_start_s for row in records.updates if row.client == 0]
    assert starts == [0.0, 5.0]
    assert len(protocol_of(simulation)._inbox[0]) == 3


@pytest.mark.parametrize(
    ("variant", "merge", "own", "trainings"),
    [("merge-update", "mean", 8, 1), ("update", "mean", 8, 1), ("update-merge", "mean", 8, 2), ("merge-update", "by-age", 8, 1)],
)
def test_a_merged_model_has_the_larger_age_and_a_training_adds_one(variant: str, merge: str, own: int, trainings: int) -> None:
    host = Surroundings()
    protocol = build(parse(study(server=gossip(variant=variant, merge=merge)))).server.peers.protocol  # type: ignore[union-attr]
    protocol.attach(host)
    host.begin = protocol.begin
    protocol._age[0] = 3
    protocol._inbox[0].append((77, 7))
    protocol._timed[0] = True
    protocol.begin(0)
    for _ in range(trainings):
        protocol.on_trained(0, host.number())
    assert protocol._age[0] == own
    weights = {"update": [], "update-merge": [[0.5, 0.5]], "merge-update": [[0.5, 0.5]]}[variant]
    assert host.weights == ([[0.3, 0.7]] if merge == "by-age" else weights)


class Surroundings:
    """A host that notes what a protocol asks for."""

    def __init__(self) -> None:
        self.neighbours = [[0], [1]]
        self.model = np.array([50, 60])
        self.weights: list[list[float]] = []
        self.begin: Any = None
        self._number = 100

    def number(self) -> int:
        self._number += 1
        return self._number

    def train(self, peer: int, start: int | None = None) -> None:
        return None

    def combine(self, models: list[int], weights: list[float]) -> int:
        self.weights.append(pytest.approx(weights))  # type: ignore[arg-type]
        return self.number()

    def finish(self, peer: int, model: int) -> None:
        self.model[peer] = model
        self.begin(peer)


def test_messages_are_peers_times_seconds_over_the_period() -> None:
    peers = {"topology": {"kind": "complete"}, "channel": {"kind": "bernoulli", "success": 0.7}, "delay": EXPONENTIAL}
    simulation, records = simulated(
        rounds=100_000, clients={"count": 10}, peers=peers, server=gossip(spread=0.4), time_limit_s=200.0
    )
    messages = simulation.server.counts()["messages"]
    # Renewals: the variance of their number is time / period times the squared spread.
    expected = 10 * 200.0 / 2.0
    assert abs(messages - expected) < 3 * math.sqrt(expected) * 0.4 + 10
    sources = np.bincount([row.target for row in records.messages], minlength=10)
    assert abs(sources - messages / 10).max() < 4 * math.sqrt(messages / 10)


def test_where_no_message_arrives_each_peer_trains_alone() -> None:
    cut = {"topology": {"kind": "ring"}, "outages": [{"from_s": 0.0, "groups": [[0], [1], [2], [3]]}]}
    simulation, _ = simulated(rounds=5, peers=cut, server=gossip(), time_limit_s=50.0)
    assert simulation.server.peers.round.tolist() == [2] * 5


def test_a_peer_that_is_away_goes_on_as_it_returns() -> None:
    presence = {"kind": "markov", "mean_on_s": 10.0, "mean_off_s": 5.0}
    simulation, records = simulated(rounds=40, availability=presence, server=gossip())
    assert len(records.rounds) == 40
    assert any(row.outcome == "aborted" for row in records.updates)
    # Peers count their own trainings: none is given for the time away.
    done = simulation.server.peers.round - 1
    delivered = np.bincount([row.client for row in records.updates if row.outcome == "delivered"], minlength=5)
    assert delivered.tolist() == done.tolist()


@pytest.mark.parametrize("variant", ["merge-update", "update", "update-merge"])
def test_a_run_resumed_in_the_middle_ends_with_the_same_models(variant: str) -> None:
    lossy = {"topology": {"kind": "complete"}, "channel": {"kind": "bernoulli", "success": 0.8}, "delay": EXPONENTIAL}
    tables = learning(rounds=6, peers=lossy, server=gossip(variant=variant, period_s=1.0))
    _, _, records = check_resumed(tables)
    assert records.rounds[-1].accuracy > records.rounds[0].accuracy


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"period_s": 0.0}, "period_s"),
        ({"spread": 1.0}, "spread"),
        ({"variant": "merge"}, "variant"),
        ({"merge": "age"}, "merge"),
    ],
)
def test_values_that_it_cannot_have_are_refused(keys: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=rf"server\.protocol\.{told}"):
        build(parse(study(server=gossip(**keys))))


@pytest.mark.parametrize("server", [gossip(), {"kind": "peers", "protocol": {"kind": "d-psgd", "retry_s": 0.5}}])
def test_a_run_that_could_send_for_ever_over_links_that_are_down_needs_a_time_limit(server: dict[str, Any]) -> None:
    cut = {"topology": {"kind": "ring"}, "outages": [{"from_s": 3.0, "groups": [[0]]}]}
    with pytest.raises(UserError, match=r"peers\.outages\.0\.to_s: .* give it, or time_limit_s"):
        build(parse(study(peers=cut, server=server)))
    build(parse(study(peers=cut, server=server, time_limit_s=50.0)))


def test_mixing_weights_that_it_does_not_use_are_refused() -> None:
    with pytest.raises(UserError, match=r"server\.mixing.*gossip-learning.*leave it out"):
        build(parse(study(server=gossip() | {"mixing": {"kind": "uniform"}})))


def test_the_scenario_that_a_run_writes_down_is_read_again() -> None:
    # A run is resumed from this text, which names what the scenario left out.
    written = tomllib.loads(to_toml(parse(study(server=gossip()))))
    build(parse(written))
    assert "mixing" not in written["server"]
