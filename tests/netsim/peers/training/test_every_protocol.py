"""What holds for every protocol that comes along: messages and weights balance, and resumed runs end with the same models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from scenarios.registry.kinds import BUILT_IN
from tests.helpers.peer_training import EVERY_PROTOCOL, EXPONENTIAL, LEARNER, check_resumed, learning, ready, study, with_numbers


def test_every_protocol_has_an_example() -> None:
    assert set(EVERY_PROTOCOL) == set(BUILT_IN["protocol"])


def tables_of(kind: str, **tables: Any) -> dict[str, Any]:
    """Six peers on lossy links of a complete graph that go away at times, with bytes that are compressed."""
    lossy = {"topology": {"kind": "complete"}, "channel": {"kind": "bernoulli", "success": 0.8}, "delay": EXPONENTIAL}
    server = {"kind": "peers", "protocol": {"kind": kind} | EVERY_PROTOCOL[kind]}
    away = {"kind": "markov", "mean_on_s": 15.0, "mean_off_s": 2.0}
    payload = {"compression": {"kind": "qsgd", "levels": 4}}
    return learning(**{"rounds": 6, "peers": lossy, "server": server, "availability": away, "payload": payload} | tables)


PRIVACY = {"sensitivity": 0.05, "schedule": {"kind": "geometric", "epsilon_total": 40.0, "eta": 0.3}, "guarantee": "l1"}


@pytest.mark.each_nth(3)
@pytest.mark.parametrize("further", [{}, {"privacy": PRIVACY, "learner": LEARNER | {"evaluate_every_rounds": 6}}])
@pytest.mark.parametrize("kind", EVERY_PROTOCOL)
def test_a_run_resumed_in_the_middle_ends_with_the_same_models(kind: str, further: dict[str, Any]) -> None:
    whole, second, _ = check_resumed(tables_of(kind, **further))
    assert second.server.counts() == whole.server.counts()


@pytest.mark.each_nth(3)
@pytest.mark.parametrize("kind", EVERY_PROTOCOL)
def test_messages_balance_and_bytes_add_up(kind: str) -> None:
    simulation, records = ready(tables_of(kind))
    simulation.run()
    simulation.close()
    rows, counts = records.rounds, simulation.server.counts()
    names = ("messages", "messages_delivered", "messages_lost")
    sent, delivered, lost = (sum(getattr(row, name) for row in rows) for name in names)
    assert sent == delivered + lost + rows[-1].messages_in_flight == counts["messages"]
    outcomes = [row.outcome for row in records.messages]
    assert [outcomes.count(one) for one in ("delivered", "lost", "in_flight")] == [delivered, lost, rows[-1].messages_in_flight]
    assert sum(row.size_bytes for row in records.messages) == sum(row.message_bytes for row in rows)
    # Only models that something still needs are kept.
    assert len(simulation.server.learner._ids) <= 80


def mixed(kind: str, **tables: Any) -> np.ndarray:
    """The models of 8 peers (8, 8) after 10 rounds without training, if peer i begins with unit vector i.

    Row i holds the weights of all first models in the model of peer i: the product of W of all rounds.
    """
    server = {"kind": "peers", "protocol": {"kind": kind} | EVERY_PROTOCOL[kind] | tables.pop("protocol", {})}
    complete = {"topology": {"kind": "complete"}, "delay": EXPONENTIAL} | tables.pop("peers", {})
    scenario = study(**{"rounds": 10, "clients": {"count": 8}, "server": server, "peers": complete} | tables)
    simulation, models = with_numbers(scenario, np.eye(8))
    simulation.run()
    return models()


@pytest.mark.each_nth(3)
@pytest.mark.parametrize("kind", EVERY_PROTOCOL)
def test_rows_of_the_weights_sum_to_one_though_messages_are_lost_and_peers_away(kind: str) -> None:
    away = {"kind": "markov", "mean_on_s": 15.0, "mean_off_s": 2.0}
    weights = mixed(kind, peers={"channel": {"kind": "bernoulli", "success": 0.7}}, availability=away)
    assert weights.sum(1) == pytest.approx(np.ones(8), abs=1e-12)
    assert (weights != np.eye(8)).any()
    if kind != "choco":
        assert weights.min() >= -1e-15, "but for rounding: MATCHA's own weights may be 1 minus a sum that is 1"


KEEPS_THE_MEAN = {kind: {"timeout_s": None} for kind in ("d-psgd", "matcha", "one-peer", "push-sum")} | {
    "choco": {},
    "ad-psgd": {},
    "epidemic": {"variant": "oracle", "targets": 3, "timeout_s": None},
}
"""Protocols whose columns of W sum to 1 where no message is missing, with keys by which peers wait for all."""
OF_EQUAL_DEGREES = ("one-peer", "push-sum", "epidemic")
"""Protocols whose columns sum to 1 only on graphs in which all peers have equally many neighbours."""


@pytest.mark.parametrize("kind", KEEPS_THE_MEAN)
def test_columns_of_the_weights_sum_to_one_where_no_message_is_missing(kind: str) -> None:
    # In the grid peers have 2 or 3 neighbours: weights that depend on those of one end alone would not keep the mean.
    topology = {"kind": "complete"} if kind in OF_EQUAL_DEGREES else {"kind": "grid", "rows": 2}
    weights = mixed(kind, rounds=30, protocol=KEEPS_THE_MEAN[kind], peers={"topology": topology})
    assert weights.sum(0) == pytest.approx(np.ones(8), abs=1e-12)
    assert weights.sum(1) == pytest.approx(np.ones(8), abs=1e-12)
    assert weights.min() > 0.0
