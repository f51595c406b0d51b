"""At least n deliveries, whatever the deadline: by hand, and the same by single events and in arrays."""

from __future__ import annotations

from typing import Any

import pytest

from netsim.clients.vectorised import whole_rounds
from netsim.clients.vectorised.whole_rounds import WholeRounds
from scenarios.runs.reading import parse
from scenarios.schema.errors import UserError
from scenarios.wiring.simulation import build
from tests.helpers.random_worlds import built
from tests.helpers.small_worlds import World, constant


@pytest.mark.parametrize("arrays_from", [1, 100])
def test_four_clients_by_hand(arrays_from: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_rounds, "FROM", arrays_from)
    # They take 1, 2, 5 and 9 s. Three are waited for past the deadline of 3 s; 3 goes on, and is busy in rounds 2 and 3.
    # Round 2: only three take part, and all have ended at 10 s. Round 3: at 13 s two are there, and no third can come.
    it = World(
        [[0, 1, 2, 3], [0, 1, 2], [0, 1]],
        clients=4,
        compute=constant(1.0, 2.0, 5.0, 9.0),
        server={"per_round": 4, "deadline_s": 3.0, "at_least": 3, "when_short": "proceed"},
    ).play()
    assert it.rounds("start_s", "end_s", "delivered", "late") == [(0.0, 5.0, 3, 0), (5.0, 10.0, 3, 1), (10.0, 12.0, 2, 0)]


@pytest.mark.parametrize("arrays_from", [1, 100])
def test_what_is_lost_ends_the_wait(arrays_from: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_rounds, "FROM", arrays_from)
    # 0, 1 and 2 take 1, 2 and 6 s, and an outage loses the update of 2: from 6 s on no third can arrive, though 3 is at work.
    it = World(
        [[0, 1, 2, 3]],
        clients=4,
        compute=constant(1.0, 2.0, 5.0, 20.0),
        uplink=constant(0.0, 0.0, 1.0, 0.0),
        outages=[{"name": "mast", "clients": [2], "from_s": 5.5, "to_s": 6.5}],
        server={"per_round": 4, "deadline_s": 3.0, "at_least": 4, "stragglers": "cancel"},
    ).play()
    assert it.rounds("end_s", "delivered", "lost", "late") == [(6.0, 2, 1, 1)]


def tables(clients: int, rounds: int) -> dict[str, Any]:
    """Rounds of all clients that are free; updates are lost, clients go away, and some miss a close."""
    return {
        "name": "many",
        "rounds": rounds,
        "clients": {"count": clients},
        "server": {
            "per_round": clients,
            "deadline_s": 1.5,
            "at_least": max(clients * 3 // 4, 1),
            "when_short": "proceed",
        },
        "policy": {"kind": "random"},
        "compute": {"delay": {"kind": "shifted-exponential", "shift_s": 0.3, "mean_excess_s": 1.0}},
        "uplink": {"channel": {"kind": "bernoulli", "success": 0.85}, "delay": {"kind": "constant", "value_s": 0.25}},
        "availability": {"kind": "markov", "mean_on_s": 30.0, "mean_off_s": 2.0},
    }


@pytest.mark.parametrize(("clients", "rounds"), [(4, 60), (8, 60), pytest.param(10_000, 4, marks=pytest.mark.slow)])
def test_both_executors_close_at_the_same_ends(clients: int, rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    together: list[bool] = []
    begin = WholeRounds.begin

    def counted(whole: WholeRounds, *arguments: Any) -> Any:
        begun = begin(whole, *arguments)
        together.append(begun is not None)
        return begun

    monkeypatch.setattr(WholeRounds, "begin", counted)
    played = []
    for arrays_from in (1, 10**9):
        monkeypatch.setattr(whole_rounds, "FROM", arrays_from)
        simulation, records = built(tables(clients, rounds))
        simulation.run()
        played.append((records.rounds, [tuple(row) for row in records.updates]))
    assert repr(played[0]) == repr(played[1])
    assert sum(together) > rounds / 2
    waited = [row for row in played[0][0] if row.end_s - row.start_s > 1.5 + 1e-9]
    assert waited
    for row in played[0][0]:
        mine = [one for one in records.updates if one.round == row.round]
        in_time = sum(one.outcome == "delivered" for one in mine)
        can_arrive = sum(not one.outcome_s <= row.end_s for one in mine)
        assert in_time >= clients * 3 // 4 or in_time + can_arrive < clients * 3 // 4 or not can_arrive
        if row.end_s - row.start_s > 1.5 + 1e-9 and in_time >= clients * 3 // 4:
            # It closed with the delivery that was waited for.
            assert in_time == clients * 3 // 4
            assert row.end_s == max(one.outcome_s for one in mine if one.outcome == "delivered")


@pytest.mark.parametrize(
    ("server", "said"),
    [
        ({"at_least": 3}, r"server.at_least = 3: is of rounds with a deadline; give server.deadline_s|give deadline_s"),
        ({"at_least": 5, "deadline_s": 1.0}, "server.at_least = 5: must be at most the 4 clients of server.per_round"),
        ({"at_least": 3, "first": 2, "deadline_s": 1.0}, "server.at_least = 3: must be below first = 2"),
        ({"at_least": 0, "deadline_s": 1.0}, "server.at_least"),
    ],
)
def test_what_makes_no_sense_is_refused(server: dict[str, Any], said: str) -> None:
    changed = tables(4, 2)
    changed["server"] = {"per_round": 4, **server}
    with pytest.raises(UserError, match=said):
        built(changed)


def test_a_short_deadline_is_not_warned_of_where_a_round_waits_for_deliveries() -> None:
    changed = tables(4, 2)
    changed["uplink"]["delay"]["value_s"] = 9.0
    assert not [c for c in build(parse(changed)).cautions if c.name == "deadline-too-short"]
    del changed["server"]["at_least"]
    assert [c for c in build(parse(changed)).cautions if c.name == "deadline-too-short"]
