"""Epidemic learning on the clock: targets, notes and means by hand and by their laws."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, chisquare

from scenarios.runs.reading import parse
from scenarios.schema.errors import UserError
from scenarios.wiring.simulation import build
from tests.helpers.peer_training import CONSTANT, simulated, study, weights_of, with_numbers

COMPLETE = {"topology": {"kind": "complete"}}


def epidemic(**keys: Any) -> dict[str, Any]:
    return {"kind": "peers", "protocol": {"kind": "epidemic", "targets": 1} | keys}


def world(**tables: Any) -> dict[str, Any]:
    return study(**{"peers": COMPLETE, "compute": {"delay": CONSTANT | {"value_s": 1.0}}} | tables)


def test_a_peer_takes_the_mean_of_what_it_has_by_hand() -> None:
    # Whom each of three peers chose is in the table of messages: models have 1,000 bytes, notes 40.
    tables = world(rounds=1, clients={"count": 3}, server=epidemic(note_bytes=40))
    simulation, models = with_numbers(tables, [0.0, 6.0, 30.0])
    simulation.run()
    _, records = simulated(**tables)
    heard = [[value] for value in (0.0, 6.0, 30.0)]
    chosen = [row for row in records.messages if row.size_bytes == 1000]
    for row in chosen:
        heard[row.target].append([0.0, 6.0, 30.0][row.source])
    assert sorted(row.source for row in chosen) == [0, 1, 2]
    assert models()[:, 0].tolist() == [pytest.approx(np.mean(one)) for one in heard]
    assert records.rounds[0].message_bytes == 3 * 1000 + 3 * 40


def test_a_peer_hears_from_a_binomial_number_of_others() -> None:
    peers, targets, rounds = 12, 3, 60
    server = epidemic(targets=targets, note_bytes=7)
    simulation, records = simulated(**world(rounds=rounds, clients={"count": peers}, server=server))
    heard = np.zeros((rounds, peers), np.int64)
    for row in records.messages:
        if row.size_bytes == 1000:
            heard[row.number - 1, row.target] += 1
    assert heard.sum() == rounds * peers * targets
    counts = simulation.server.counts()
    assert counts["messages"] == rounds * peers * (peers - 1)
    assert counts["message_bytes"] == rounds * peers * (targets * 1000 + (peers - 1 - targets) * 7)
    law = binom(peers - 1, targets / (peers - 1))
    # From 7 messages on together: fewer than 5 are expected of each.
    found = np.append(np.bincount(heard.ravel(), minlength=7)[:7], (heard >= 7).sum())
    expected = np.append(law.pmf(np.arange(7)), law.sf(6)) * rounds * peers
    assert chisquare(found, expected).pvalue > 1e-3
    alone = (1 - targets / (peers - 1)) ** (peers - 1)
    assert (heard == 0).mean() == pytest.approx(alone, abs=4 * math.sqrt(alone / (rounds * peers)))


def test_all_others_as_targets_give_the_mean() -> None:
    simulation, models = with_numbers(world(rounds=1, server=epidemic(targets=4)), np.arange(5.0) ** 2)
    simulation.run()
    assert models()[:, 0] == pytest.approx(np.full(5, 6.0))


def test_the_oracle_draws_one_regular_graph_a_round_and_keeps_the_mean() -> None:
    tables = world(rounds=6, clients={"count": 8}, server=epidemic(variant="oracle", targets=3))
    simulation, models = with_numbers(tables, np.arange(8.0) ** 2)
    graphs = []
    for round in range(1, 7):
        matrix = weights_of(simulation, round)
        graphs.append(matrix)
        assert ((matrix == 0.25).sum(0) == 4).all()
        assert (matrix == matrix.T).all()
        simulation.run(until_round=round)
        assert models().mean() == pytest.approx(17.5)
    assert len({matrix.tobytes() for matrix in graphs}) > 3


def test_without_notes_a_peer_waits_until_the_timeout() -> None:
    _, records = simulated(**world(rounds=3, server=epidemic(notes=False, timeout_s=0.5)))
    assert [row.end_s for row in records.rounds] == pytest.approx([1.5, 3.0, 4.5], abs=1e-4)
    _, records = simulated(**world(rounds=3, server=epidemic()))
    assert [row.end_s for row in records.rounds] == pytest.approx([1.0, 2.0, 3.0], abs=1e-4)


@pytest.mark.parametrize(
    ("tables", "told"),
    [
        ({"server": epidemic(targets=0)}, r"server\.protocol\.targets = 0: must be >= 1"),
        ({"server": epidemic(targets=5)}, r"server\.protocol\.targets = 5: must be at most 4, the most neighbours"),
        ({"server": epidemic(note_bytes=-1)}, r"server\.protocol\.note_bytes = -1"),
        ({"server": epidemic(notes=False)}, r"server\.protocol\.timeout_s.*without notes"),
        ({"server": epidemic(variant="oracle", targets=3)}, r"server\.protocol\.targets = 3: no graph of 5 peers"),
        ({"server": epidemic(variant="oracle", targets=6)}, r"server\.protocol\.targets = 6: no graph of 5 peers"),
        ({"server": epidemic(variant="oracle"), "peers": {"topology": {"kind": "ring"}}}, r"server\.protocol\.variant.*complete"),
    ],
)
def test_scenarios_that_it_cannot_have_are_refused(tables: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=told):
        build(parse(world(**tables)))
