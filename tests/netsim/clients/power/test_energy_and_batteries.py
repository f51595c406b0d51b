"""Energy and batteries in whole runs: by hand, both accounts under every server, an independent integration, and resume."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from scenarios.runs.reading import parse
from scenarios.wiring.simulation import build
from tests.helpers.memory_recorder import MemoryRecorder
from tests.helpers.random_worlds import built
from tests.helpers.small_worlds import World, constant
from tests.helpers.suites import each_nth

WATTS = {"idle_w": 1.0, "compute_w": 5.0, "send_w": 3.0, "receive_w": 2.0}
PHASES = {"downlink": constant(1, 1, 1), "compute": constant(3, 2, 3), "uplink": constant(1, 1, 1)}
SPENT = ("receive_j", "compute_j", "send_j")


def battery(capacity_j: float, **keys: Any) -> dict[str, Any]:
    return WATTS | {"battery": {"capacity_j": capacity_j} | keys}


def test_the_energy_of_a_round_by_hand() -> None:
    it = World([[0, 1]], energy=WATTS, **PHASES).play()
    assert it.rows("client", *SPENT) == [(1, 2.0, 10.0, 3.0), (0, 2.0, 15.0, 3.0)]
    # The round lasts 5 s: client 0 is never idle, client 1 for a second, client 2 throughout.
    assert it.rounds("compute_j", "send_j", "receive_j", "idle_j", "besides_j", "batteries_empty") == [
        (25.0, 6.0, 4.0, 6.0, 0.0, None)
    ]


def test_waiting_for_a_sub_channel_is_idle() -> None:
    uplink = constant(1, 1, 1) | {"sub_channels": 1}
    it = World([[0, 2]], energy=WATTS, **PHASES | {"uplink": uplink}).play()
    assert it.rows("client", "upload_start_s", "upload_end_s", "send_j") == [(0, 4.0, 5.0, 3.0), (2, 5.0, 6.0, 3.0)]
    # Client 1 for 6 s, client 0 for the last one, client 2 for the one in which it waits.
    assert it.rounds("idle_j") == [(8.0,)]


def test_a_shared_medium_is_sent_over_until_the_last_byte() -> None:
    # 10 bytes of each at 10 bytes/s: both end after 2 s.
    it = World([[0, 1]], energy=WATTS, payload={"up_bytes": 10}, uplink={"shared": {"bandwidth_bytes_per_s": 10.0}}).play()
    assert it.rows("client", "outcome_s", "send_j") == [(0, 2.0, 6.0), (1, 2.0, 6.0)]


def test_an_attempt_that_is_cut_short_has_spent_what_it_had_and_the_next_goes_on_from_there() -> None:
    server = {"deadline_s": 3.0, "stragglers": "cancel"}
    it = World([[0], [0]], energy=WATTS, **PHASES, server=server).play()
    assert it.rows("outcome", "outcome_s", *SPENT) == [("late", 3.0, 2.0, 10.0, 0.0), ("late", 6.0, 2.0, 10.0, 0.0)]


def test_what_is_in_flight_as_the_run_ends_is_counted_up_to_there() -> None:
    it = World([[0], [0]], energy=WATTS, **PHASES, time_limit_s=8.0).play()
    assert it.rows("outcome", "outcome_s", *SPENT) == [("delivered", 5.0, 2.0, 15.0, 3.0), ("in_flight", 8.0, 2.0, 10.0, 0.0)]


def test_a_battery_that_empties_in_mid_training_aborts_the_update_at_that_instant() -> None:
    # 10 J, of which the download takes 2; training would take 15, and has 8: 1.6 s. Client 1 idles 2.6 J away before its turn.
    it = World([[0], [1]], energy=battery(10.0), **PHASES).play()
    assert it.rows("client", "outcome", "cause", "compute_end_s") == [
        (0, "aborted", "battery", 2.6),
        (1, "aborted", "battery", pytest.approx(2.6 + 1 + 5.4 / 5)),
    ]
    assert it.rows(*SPENT) == [(2.0, 8.0, 0.0), (2.0, pytest.approx(5.4), 0.0)]
    assert it.rounds("idle_j", "batteries_empty") == [(5.2, 1), (pytest.approx(2.08), 2)]


def test_charging_while_computing_saves_an_update(tmp_path: Any) -> None:
    # 3 J are left at 2 s. 4 W let them last for 3 s; for 1 s only, they leave 2 J, which last for 0.4 s; from 2.5 s on it is
    # 0.5 J that they prolong. Sending draws less than is supplied.
    path = tmp_path / "charger.csv"
    charging = {"kind": "trace", "path": str(path)}
    lasts = {"0,2,3": ("aborted", "battery", 3.4), "0,2,9": ("delivered", None, 5.0), "0,2.5,9": ("aborted", "battery", 3.0)}
    for line, (outcome, cause, end_s) in lasts.items():
        path.write_text(f"client,on_s,off_s\n{line}\n")
        it = World([[0]], energy=battery(10.0, charge_w=4.0, charging=charging), **PHASES).play()
        assert it.rows("outcome", "cause", "outcome_s") == [(outcome, cause, pytest.approx(end_s))]


def test_a_battery_that_empties_in_a_queue_on_a_shared_medium_and_in_a_download() -> None:
    uplink = constant(9, 9, 9) | {"sub_channels": 1}
    it = World([[0, 2]], energy=battery([40.0, 1.0, 19.0]), **PHASES | {"uplink": uplink}).play()
    # Client 2 waits from 4 s on with 2 J; client 0 has 23 J left for 9 s of sending at 3 W.
    assert it.rows("client", "outcome", "cause", "outcome_s", "upload_start_s")[0][:4] == (2, "aborted", "battery", 6.0)
    assert it.rows("client", "outcome", "cause", "outcome_s")[1] == (0, "aborted", "battery", pytest.approx(4 + 23 / 3))
    slow = {"shared": {"bandwidth_bytes_per_s": 1.0}}
    it = World([[0, 1]], energy=battery([9.0, 99.0, 9.0]), payload={"up_bytes": 10}, uplink=slow).play()
    assert it.rows("client", "outcome", "cause", "outcome_s") == [
        (0, "aborted", "battery", 3.0),
        # Half the medium for 3 s, then all of it.
        (1, "delivered", None, 3.0 + 8.5),
    ]
    it = World([[0]], energy=battery(1.0), **PHASES).play()
    assert it.rows("outcome", "cause", "outcome_s", *SPENT) == [("aborted", "battery", 0.5, 1.0, 0.0, 0.0)]


def test_below_the_threshold_a_client_is_not_selected_until_it_is_charged(tmp_path: Any) -> None:
    path = tmp_path / "charger.csv"
    path.write_text("client,on_s,off_s\n0,8,inf\n")
    charging = {"kind": "trace", "path": str(path)}
    energy = battery(30.0, threshold=0.5, charge_w=6.0, charging=charging)
    it = World([[0], [0]], clients=1, energy=energy, downlink=constant(1), compute=constant(3), uplink=constant(1)).play()
    # 10 J after the first round, 7 J as charging begins; 5 W more than it idles at make 15 J of them in 1.6 s.
    assert it.rounds("start_s", "end_s", "delivered") == [(0.0, 5.0, 1), (pytest.approx(9.6), pytest.approx(14.6), 1)]


def test_nobody_is_left_once_all_batteries_are_empty_and_nothing_charges_them() -> None:
    it = World([[0]] * 9, clients=1, energy=battery(30.0), downlink=constant(1), compute=constant(3), uplink=constant(1)).play()
    # 10 J after the first round are enough to be selected; after the second, of which they last 2.6 s, the battery is empty.
    assert it.rounds("end_s", "aborted") == [(5.0, 0), (7.6, 1)]
    assert it.simulation.ended == "nobody left"


@pytest.mark.parametrize(("charge_w", "ended", "starts_s"), [(1.0, "rounds", [2.0]), (0.5, "nobody left", [])])
def test_an_empty_battery_that_is_charged_by_as_much_as_idleness_draws_is_waited_for(
    charge_w: float, ended: str, starts_s: list[float]
) -> None:
    # Off, the client draws nothing, and has 2 J after 2 s; on, it draws 1 W: with less its charge falls as it gets there.
    charger = {"charge_w": charge_w, "charging": {"kind": "always"}}
    tables = {
        "name": "charged",
        "rounds": 1,
        "clients": {"count": 1},
        "server": {"per_round": 1},
        "policy": {"kind": "random"},
        "energy": {"idle_w": 1.0, "battery": {"capacity_j": 10.0, "initial": 0.0, "threshold": 0.2, **charger}},
    }
    simulation, records = build(parse(tables)).simulation, MemoryRecorder()
    simulation.record_to(records)
    simulation.run()
    assert simulation.ended == ended
    assert [row.start_s for row in records.rounds] == starts_s


def test_training_over_several_rounds_is_counted_once_each_attempt_for_its_own_time() -> None:
    tables = {
        "name": "over",
        "rounds": 3,
        "clients": {"count": 1},
        "server": {"kind": "asynchronous", "round_s": 0.5},
        "scheduler": {"kind": "round-robin"},
        "channels": {"count": 1, "delay": {"kind": "constant", "value_s": 0.125}},
        "compute": {"delay": {"kind": "constant", "value_s": 1.25}},
        "energy": WATTS,
    }
    simulation, records = built(tables)
    simulation.run()
    assert [(row.outcome, row.compute_j, row.send_j) for row in records.updates] == [
        ("late", 2.5, 0.0),
        ("late", 2.5, 0.0),
        ("delivered", 1.25, 0.375),
    ]
    spent = [(row.compute_j, row.send_j, row.idle_j) for row in records.rounds]
    assert spent == [(2.5, 0.0, 0.0), (2.5, 0.0, 0.0), (1.25, 0.375, 0.125)]


def of_slots(kind: str, **changes: Any) -> tuple[Any, MemoryRecorder]:
    tables = {
        "name": "slots",
        "rounds": 2,
        "clients": {"count": 4},
        "server": {"kind": kind, "per_round": 2},
        "slots": {"rounds": 1} | ({"start": "agreement"} if kind == "fl-da" else {}),
        "opinions": {
            "synthetic": {"worth": {"from": 0.4, "to": 0.9}},
            "test": {"kind": "constant", "value_s": [1.0, 0.5, 0.25, 0.25]},
        },
        "policy": {"kind": "bp-index" if kind == "fl-da" else "super-arm-ucb"},
        "compute": constant(2, 2, 2, 2),
        "energy": WATTS,
    }
    simulation, records = built(tables | changes)
    simulation.run()
    return simulation.server, records


def test_tests_and_opinions_by_hand() -> None:
    opinions = {"delay": {"kind": "constant", "value_s": 0.5}, "bandwidth_bytes_per_s": 16.0, "size_bytes": 8}
    synthetic = {"worth": {"from": 0.4, "to": 0.9}}
    test = {"kind": "constant", "value_s": [1.0, 0.5, 0.25, 0.25]}
    _, records = of_slots("fl-fa", opinions=opinions | {"synthetic": synthetic, "test": test})
    # Two members train for 2 s; all four test, 2 s in all, and then send for a second each. A slot takes 4 s.
    assert [(row.end_s, row.compute_j, row.send_j, row.idle_j, row.besides_j) for row in records.rounds] == [
        (4.0, 20.0 + 10.0, 12.0, 12.0, 22.0),
        (8.0, 20.0 + 10.0, 12.0, 12.0, 22.0),
    ]


def test_messages_draw_while_their_bytes_are_on_the_wire_by_events_and_in_closed_form() -> None:
    bandwidth = [8.0, 16.0, 32.0, 64.0]
    peers = {"topology": {"kind": "complete"}, "bandwidth_bytes_per_s": bandwidth, "delay": {"kind": "constant", "value_s": 9.0}}
    belief = {"exchanges": 3, "message_bytes": 8}
    found = {}
    for engine in ("auto", "events"):
        slots = {"rounds": 1, "start": "agreement", "engine": engine}
        server, records = of_slots("fl-da", peers=peers, belief=belief, gossip={"header_bytes": 4, "pair_bytes": 4}, slots=slots)
        links, energy = server.consensus.links, server.clients.energy
        assert not links.bytes_over.any()
        found[engine] = [(row.send_j, row.receive_j, row.message_bytes) for row in records.rounds]
        assert energy.besides.joules[3] == sum(row.send_j for row in records.rounds)
    assert found["auto"] == found["events"]
    # All messages of 8 bytes: client k sends its own to three neighbours in 3 exchanges, and what it floods.
    send_j, receive_j, message_bytes = found["auto"][0]
    assert send_j / 3.0 == pytest.approx(receive_j / 2.0)
    everyone = 3 * 3 * 8 * sum(1 / each for each in bandwidth)
    assert send_j / 3.0 > everyone
    assert message_bytes % 8 == 0


def test_what_tests_draw_is_taken_from_the_batteries_as_the_slot_closes() -> None:
    # 12 J each: training takes 10 of the members', tests take 5, 2.5, 1.25 and 1.25.
    energy = WATTS | {"idle_w": 0.0, "battery": {"capacity_j": 12.0, "threshold": 0.25}}
    server, records = of_slots("fl-fa", energy=energy, rounds=1)
    members = {row.client for row in records.updates}
    left = [max(12.0 - 10.0 * (client in members) - test, 0.0) for client, test in enumerate((5.0, 2.5, 1.25, 1.25))]
    batteries = server.clients.energy.batteries
    assert batteries.level_j.tolist() == left
    assert batteries.dead.tolist() == [level == 0.0 for level in left]
    assert records.rounds[0].batteries_empty == left.count(0.0) == 1


def _lines(path: Any, rng: Any, clients: int, end_s: float) -> list[list[tuple[float, float]]]:
    """Intervals of each client, written to a file, on a grid of quarter seconds."""
    times = np.arange(1, int(4 * end_s)) / 4
    every = [np.sort(rng.choice(times, 8, replace=False)).reshape(-1, 2).tolist() for _ in range(clients)]
    rows = [f"{client},{on},{off}" for client, each in enumerate(every) for on, off in each]
    path.write_text("client,on_s,off_s\n" + "\n".join(rows) + "\n")
    return [[(on, off) for on, off in each] for each in every]


# Not all seeds: a charge that grazes zero before it is charged is empty or not, as the length of the step has it.
@pytest.mark.parametrize("seed", each_nth(3, [1, 2, 3]))
def test_as_an_integration_in_small_steps_of_time_finds_it(seed: int, tmp_path: Any) -> None:
    """Each client on its own, step by step, from who is present, at a charger and in which phase; it knows no events."""
    clients, end_s, step = 5, 60.0, 2e-3
    rng = np.random.default_rng(seed)
    here = _lines(tmp_path / "here.csv", rng, clients, end_s)
    at_charger = _lines(tmp_path / "charger.csv", rng, clients, end_s)
    charging = {"kind": "trace", "path": str(tmp_path / "charger.csv")}
    battery = {"capacity_j": 12.0, "threshold": 0.25, "charge_w": 3.0, "charging": charging}
    tables = {
        "name": "steps",
        "rounds": 1000,
        "time_limit_s": end_s,
        "clients": {"count": clients},
        "policy": {"kind": "random"},
        "server": {"kind": "buffered", "concurrency": 3, "buffer": 2},
        "availability": {"kind": "trace", "path": str(tmp_path / "here.csv")},
        "energy": WATTS | {"off_w": 0.5, "battery": battery},
        "downlink": {"delay": {"kind": "gaussian", "mean_s": 0.5, "std_s": 0.2}},
        "compute": {"delay": {"kind": "gaussian", "mean_s": 2.0, "std_s": 1.0}},
        "uplink": {"delay": {"kind": "gaussian", "mean_s": 0.5, "std_s": 0.2}},
    }
    simulation, records = built(tables)
    simulation.run()
    simulation.close()
    found: Any = simulation.server.clients  # type: ignore[attr-defined]
    joules = dict.fromkeys(("compute", "upload", "download", "idle"), 0.0)
    watts = {"compute": 5.0, "upload": 3.0, "download": 2.0}
    deaths = []
    for client in range(clients):
        phases = [
            (getattr(row, f"{phase}_start_s"), getattr(row, f"{phase}_end_s"), phase)
            for row in records.updates
            if row.client == client
            for phase in watts
        ]
        level, off = 12.0, False
        for now in (np.arange(round(end_s / step)) + 0.5) * step:
            state = next((phase for start, end, phase in phases if start <= now and not now >= end), "idle")
            present = any(on <= now < gone for on, gone in here[client])
            drawn = watts.get(state, 0.0 if off else 1.0 if present else 0.5)
            joules[state] += drawn * step
            level = min(level + step * (3.0 * any(on <= now < gone for on, gone in at_charger[client]) - drawn), 12.0)
            # By what a step can draw: the phase that an empty battery ends is over in the records at the exact time.
            if level <= 5.0 * step and not off:
                off = True
                deaths.append((client, now))
            off = off and level < 3.0
    found.advance()
    assert found.energy.batteries.ran_empty == len(deaths)
    integral = found.energy.integral.joules(end_s)
    names = ("idle", "download", "compute", "upload")
    assert integral == pytest.approx([joules[name] for name in names], rel=0.01, abs=0.5)
    # Updates that the battery aborted ended as the steps find it empty.
    aborted = [(row.client, row.outcome_s) for row in records.updates if row.cause == "battery"]
    assert aborted
    for client, end in aborted:
        assert any(client == who and end == pytest.approx(at, abs=0.1) for who, at in deaths)
