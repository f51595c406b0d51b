"""Another bandwidth from one round on: as in a run with a script that multiplies it, whatever kind of bandwidth it is."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import netsim
from models.laws.bandwidth.laws import Constant
from scenarios.runs.what_if.answers import what_if
from scenarios.runs.what_if.branches import Closed
from scenarios.runs.what_if.changes import Change
from tests.helpers.scripted import recorded

TRACE = {"kind": "trace", "time_s": [0.0, 1.0, 1.5], "bytes_per_s": [300.0, 900.0, 200.0], "end_s": 3.0}
LINKS: dict[str, tuple[dict[str, Any], dict[str, dict[str, float]]]] = {
    "numbers": (
        {"bandwidth_bytes_per_s": [300.0, 400.0, 500.0, 600.0]},
        {"uplink.bandwidth": {"bytes_per_s": 2.0}},
    ),
    "constant": ({"bandwidth": {"kind": "constant", "bytes_per_s": 400.0}}, {"uplink.bandwidth": {"bytes_per_s": 2.0}}),
    "trace": ({"bandwidth": TRACE}, {"uplink.bandwidth": {"scale": 2.0}}),
    "drawn path": (
        {"bandwidth": {"kind": "markov-levels", "levels_bytes_per_s": [100.0, 800.0], "mean_stay_s": [0.5, 1.0]}},
        {"uplink.bandwidth": {"scale": 2.0}},
    ),
    "shared": (
        {"shared": {"bandwidth_bytes_per_s": 500.0}},
        {"uplink.shared.bandwidth": {"bytes_per_s": 2.0}},
    ),
    "own and shared": (
        {"bandwidth_bytes_per_s": [300.0, 400.0, 500.0, 600.0], "shared": {"bandwidth": TRACE}},
        {"uplink.bandwidth": {"bytes_per_s": 2.0}, "uplink.shared.bandwidth": {"scale": 2.0}},
    ),
}
SERVERS: dict[str, dict[str, Any]] = {
    "semi-synchronous": {"server": {"kind": "semi-synchronous", "per_round": 4, "round_s": 1.0}, "policy": {"kind": "random"}},
    "buffered": {"server": {"kind": "buffered", "concurrency": 3, "buffer": 2}, "policy": {"kind": "random"}},
    "safa": {"server": {"kind": "safa", "per_round": 2, "deadline_s": 2.0, "lag_tolerance": 2}},
}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def study(server: str, uplink: dict[str, Any], **tables: Any) -> dict[str, Any]:
    compute = {"delay": {"kind": "shifted-exponential", "shift_s": 0.1, "mean_excess_s": 0.3}}
    base = {"name": "links", "seed": 5, "rounds": 5, "clients": {"count": 4}, "payload": {"up_bytes": 700}, "compute": compute}
    return base | SERVERS[server] | {"uplink": uplink} | tables


def doubling(factors: dict[str, dict[str, float]], number: int) -> Any:
    """A script that multiplies bandwidths as round `number` opens."""

    def script(world: Any) -> Iterator[Any]:
        yield world.until_round(number)
        for target, parameters in factors.items():
            world.scale(target, **parameters)

    return script


def ends_in(start_s: float, end_s: float, ends: Iterator[tuple[int, float]]) -> list[tuple[int, float]]:
    return sorted((client, time_s) for client, time_s in ends if start_s < time_s <= end_s)


def deliveries(closed: Closed | None) -> list[tuple[int, float]]:
    """Clients and times of the updates that arrived in a round."""
    assert closed is not None
    return ends_in(closed.start_s, closed.end_s, ((end.client, end.ended_s) for end in closed.attempts if end.delivered))


@pytest.mark.each_nth(5)
@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("link", LINKS)
def test_twice_the_bandwidth_is_that_of_a_script_that_doubles_it(server: str, link: str, tmp_path: Path) -> None:
    uplink, factors = LINKS[link]
    number, tables = 3, study(server, uplink)
    netsim.run(tables, out=tmp_path / "run")
    rows = recorded(tables, doubling(factors, number))
    (row,) = [row for row in rows.rounds if row.round == number]
    arrived = ((update.client, update.outcome_s) for update in rows.updates if update.outcome == "delivered")
    (answer,) = what_if(tmp_path / "run", number, [Change("bandwidth", 2.0)])
    assert answer.then is not None
    assert (answer.then.start_s, answer.then.end_s) == pytest.approx((row.start_s, row.end_s), rel=1e-12)
    told, expected = deliveries(answer.then), ends_in(row.start_s, row.end_s, arrived)
    assert [client for client, _ in told] == [client for client, _ in expected]
    assert [time_s for _, time_s in told] == pytest.approx([time_s for _, time_s in expected], rel=1e-12)


@pytest.mark.parametrize(("factor", "ends_s"), [(2.0, []), (8.0, [2.5, 2.5, 2.5])])
def test_a_shared_link_by_hand(factor: float, ends_s: list[float], tmp_path: Path) -> None:
    # Three clients share 500 bytes/s. Each has sent 1,000 / 3 of 1,000 bytes as round 3 opens at 2 s. At twice the bandwidth the
    # rest takes 2 s, beyond the close at 3 s; at eight times the bandwidth 0.5 s.
    uplink = {"shared": {"bandwidth_bytes_per_s": 500.0}}
    tables = study("semi-synchronous", uplink, payload={"up_bytes": 1000}, compute={}, clients={"count": 3})
    tables |= {"server": tables["server"] | {"per_round": 3}, "policy": {"kind": "all"}}
    netsim.run(tables, out=tmp_path / "run")
    (answer,) = what_if(tmp_path / "run", 3, [Change("bandwidth", factor)])
    assert [time_s for _, time_s in deliveries(answer.then)] == pytest.approx(ends_s, rel=1e-12)


def test_what_a_server_waits_for_before_a_round_is_faster_too(tmp_path: Path) -> None:
    # Both clients send 400 bytes at 100 bytes/s and miss the deadline of 1 s. Round 2 waits for them: until 4 s, or with the
    # other 300 bytes at 200 bytes/s until 2.5 s.
    tables: dict[str, Any] = {
        "name": "waits",
        "rounds": 2,
        "clients": {"count": 2},
        "server": {"per_round": 2, "deadline_s": 1.0},
        "policy": {"kind": "all"},
        "payload": {"up_bytes": 400},
        "uplink": {"bandwidth_bytes_per_s": 100.0},
    }
    netsim.run(tables, out=tmp_path / "run")
    (answer,) = what_if(tmp_path / "run", 2, [Change("bandwidth", 2.0)])
    assert answer.then is not None
    assert (answer.was.start_s, answer.then.start_s) == (4.0, 2.5)


@pytest.mark.parametrize("link", ["uplink", "downlink"])
def test_bandwidths_of_a_device_table_are_multiplied(link: str, tmp_path: Path) -> None:
    # 400 bytes at 200 bytes/s, 2 s of the 3 s of a round; 1 s at twice the bandwidth.
    table = tmp_path / "devices.csv"
    table.write_text(f"class,share,{'up' if link == 'uplink' else 'down'}_bytes_per_s\na,1,200\n", encoding="utf-8")
    tables = {
        "name": "devices",
        "rounds": 2,
        "clients": {"count": 3, "devices": str(table)},
        "server": {"per_round": 2},
        "policy": {"kind": "random"},
        "payload": {"up_bytes": 400, "down_bytes": 400},
        "compute": {"delay": {"kind": "constant", "value_s": 1.0}},
    }
    netsim.run(tables, out=tmp_path / "run")
    (answer,) = what_if(tmp_path / "run", 2, [Change("bandwidth", 2.0)])
    assert answer.then is not None
    assert (answer.was.end_s, answer.then.end_s) == (6.0, 5.0)


class Own(Constant):
    """A law of the user's own, of which no parameter is known."""


def test_a_law_of_ones_own_is_multiplied(tmp_path: Path) -> None:
    uplink = {"bandwidth": {"kind": f"{__name__}:Own", "bytes_per_s": 400.0}}
    tables = study("buffered", uplink)
    netsim.run(tables, out=tmp_path / "own")
    netsim.run(tables | {"uplink": {"bandwidth": {"kind": "constant", "bytes_per_s": 400.0}}}, out=tmp_path / "constant")
    own, constant = (what_if(tmp_path / name, 3, [Change("bandwidth", 2.0)])[0].then for name in ("own", "constant"))
    assert own == constant


def test_answers_come_in_the_order_of_the_questions(tmp_path: Path) -> None:
    netsim.run(study("semi-synchronous", {"bandwidth_bytes_per_s": 400.0}), out=tmp_path / "run")
    changes = [Change("bandwidth", 2.0), Change("nothing"), Change("bandwidth", 4.0)]
    answers = what_if(tmp_path / "run", 2, changes)
    assert [answer.change for answer in answers] == changes
    assert answers[1].then == answers[1].was


def test_any_round_of_a_slot_may_have_another_bandwidth(tmp_path: Path) -> None:
    # Rounds of 1 s of training and 2 s of sending; with twice the bandwidth the second round of a slot takes 2 s.
    tables: dict[str, Any] = {
        "name": "slots",
        "rounds": 2,
        "clients": {"count": 3},
        "server": {"kind": "fl-fa", "per_round": 2},
        "policy": {"kind": "random-set"},
        "slots": {"rounds": 2},
        "opinions": {"synthetic": {"worth": 0.5}},
        "payload": {"up_bytes": 400},
        "compute": {"delay": {"kind": "constant", "value_s": 1.0}},
        "uplink": {"bandwidth_bytes_per_s": 200.0},
    }
    netsim.run(tables, out=tmp_path / "run")
    (answer,) = what_if(tmp_path / "run", 2, [Change("bandwidth", 2.0)])
    assert answer.then is not None
    assert (answer.then.start_s, answer.then.end_s) == (3.0, 5.0)
