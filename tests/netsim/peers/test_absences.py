"""Clients that are away: opinions and messages between clients do not reach them, and none comes from them."""

from __future__ import annotations

from typing import Any

import pytest

from scenarios.runs.reading import override, parse
from scenarios.wiring.simulation import build
from tests.helpers.memory_recorder import MemoryRecorder
from tests.helpers.servers import scenario_of

AWAY = "tests.helpers.presence:Away"


def played(kind: str, tables: dict[str, Any], rounds: int = 1) -> MemoryRecorder:
    given = {
        "clients.count": 4,
        "server.per_round": 2,
        "compute.delay": {"kind": "constant", "value_s": 1.0},
        "uplink.delay": {"kind": "constant", "value_s": 0.0},
        "output.messages_table": True,
    }
    simulation, records = build(parse(override(scenario_of(kind, rounds=rounds), given | tables))).simulation, MemoryRecorder()
    simulation.record_to(records)
    simulation.run()
    return records


def opinions(from_s: float, to_s: float) -> dict[int, tuple[str, str | None]]:
    """What became of client 3's opinions, by slot, if it is away over [from_s, to_s); those of the others arrive."""
    tables = {
        "policy": {"kind": "fixed-set", "members": [0, 1]},
        "slots.rounds": 1,
        "opinions.delay": {"kind": "constant", "value_s": 0.25},
        "availability": {"kind": AWAY, "who": [3], "from_s": from_s, "to_s": to_s},
    }
    records = played("fl-fa", tables, rounds=2)
    told = {(row.round, row.source): (row.outcome, row.cause) for row in records.messages}
    assert all(told[slot, client] == ("delivered", None) for slot in (1, 2) for client in range(3))
    found = {slot: told[slot, 3] for slot in (1, 2) if (slot, 3) in told}
    arrived = [found.get(slot) == ("delivered", None) for slot in (1, 2)]
    assert [row.opinions_missing for row in records.rounds] == [0 if one else 1 for one in arrived]
    return found


def test_the_opinion_of_a_client_that_is_away_is_not_sent_or_does_not_arrive() -> None:
    # One round of 1 s a slot: opinions leave at 1 s and at 2.25 s, and take 0.25 s.
    here = ("delivered", None)
    assert opinions(3.0, 4.0) == {1: here, 2: here}
    assert opinions(2.0, 3.0) == {1: here}
    assert opinions(2.375, 3.0) == {1: here, 2: ("lost", "away")}
    # It is there as its opinion leaves and as it arrives.
    assert opinions(2.3125, 2.4375) == {1: here, 2: here}


FORWARDING = ["flooding", "push", "push-pull"]


@pytest.mark.parametrize("forwarding", FORWARDING)
def test_a_client_that_is_away_neither_sends_nor_receives_nor_takes_part(forwarding: str) -> None:
    tables = {
        "peers": {"topology": {"kind": "complete"}, "delay": {"kind": "constant", "value_s": 0.125}},
        "gossip": {"forwarding": forwarding, "interval_s": 0.5},
        "slots": {"rounds": 1, "start": "agreement"},
        "availability": {"kind": AWAY, "who": [0]},
    }
    records = played("fl-da", tables)
    (slot,) = records.rounds
    assert all((row.cause == "away") == (0 in (row.source, row.target)) for row in records.messages)
    # Client 0 has the lowest index. The others agree, which it does not hear: the phase ends as nothing is left to say.
    assert (slot.members, slot.disagreement) == (2, 0.25)
    assert slot.consensus_s < 30
    assert 0 not in {row.client for row in records.updates}


def test_nobody_waits_for_the_return_of_a_client_but_it_hears_what_is_sent_then() -> None:
    # Messages take 1 s. Client 3 is away over [0, 1.5): it misses the exchange of beliefs, and hears the indices from 2 s on.
    tables = {
        "peers": {"topology": {"kind": "complete"}, "delay": {"kind": "constant", "value_s": 1.0}},
        "belief.exchanges": 1,
        "slots": {"rounds": 1, "start": "agreement"},
        "availability": {"kind": AWAY, "who": [3], "to_s": 1.5},
    }
    records = played("fl-da", tables)
    lost = {row.protocol for row in records.messages if row.cause == "away"}
    assert lost == {"belief"}
    assert records.rounds[0].disagreement == 0.0
