"""The same world twice: as a scenario, and as a plain SimPy script that shares no code with it."""

from __future__ import annotations

from pathlib import Path

import pytest
import simpy

from scenarios.runs.reading import parse
from scenarios.wiring.simulation import build
from tests.helpers.memory_recorder import MemoryRecorder

ROUNDS, COUNT, EPOCHS, BATCH, DELAY_S, DOWN, UP = 12, 10, 2, 16, 0.25, 3000, 1700
SPEED = {"phone": 20.0, "tablet": 55.0, "laptop": 260.0}
RATES = {"phone": (400.0, 90.0, 700.0), "tablet": (900.0, 800.0, 250.0), "laptop": (3000.0, 5000.0, 100.0)}
CHANGES_S = (7.6, 46.0)
CLASSES = ["phone"] * 5 + ["tablet"] * 3 + ["laptop"] * 2
HELD = [37 + 11 * client for client in range(COUNT)]


def plain() -> list[tuple[int, int, float, float, float]]:
    """(round, client, end of download, of training, of upload), every client in every round, which waits for all."""
    env, told = simpy.Environment(), []

    def transfer(size, rates):
        yield env.timeout(DELAY_S)
        while size > 1e-9:
            passed = sum(env.now >= change for change in CHANGES_S)
            until = (*CHANGES_S, float("inf"))[passed]
            step = min(size / rates[passed], until - env.now)
            yield env.timeout(step)
            size -= step * rates[passed]

    def client(number, round):
        yield env.process(transfer(DOWN, RATES[CLASSES[number]]))
        received = env.now
        samples = sum(min(BATCH, HELD[number] - first) for first in range(0, HELD[number], BATCH)) * EPOCHS
        yield env.timeout(samples / SPEED[CLASSES[number]])
        trained = env.now
        yield env.process(transfer(UP, RATES[CLASSES[number]]))
        told.append((round, number, received, trained, env.now))

    def server():
        for round in range(1, ROUNDS + 1):
            yield env.all_of([env.process(client(number, round)) for number in range(COUNT)])

    env.run(env.process(server()))
    return sorted(told)


def test_a_plain_simpy_script_gives_the_same_times(tmp_path: Path) -> None:
    lines = [f"{name},{CLASSES.count(name) / COUNT},{speed},{RATES[name][0]},{RATES[name][0]}" for name, speed in SPEED.items()]
    file = tmp_path / "devices.csv"
    file.write_text("class,share,samples_per_s,down_bytes_per_s,up_bytes_per_s\n" + "\n".join(lines) + "\n", encoding="utf-8")
    link = {
        "delay": {"kind": "constant", "value_s": DELAY_S},
        "bandwidth_bytes_per_s": 1.0,  # the table takes its place
        "changes": [
            {"at_s": at_s, "bandwidth_bytes_per_s": {"by_group": {name: rates[i] for name, rates in RATES.items()}}}
            for i, at_s in enumerate(CHANGES_S, start=1)
        ],
    }
    scenario = {
        "name": "twice",
        "rounds": ROUNDS,
        "clients": {"count": COUNT, "devices": str(file), "data_sizes": HELD},
        "server": {"per_round": COUNT},
        "policy": {"kind": "all"},
        "work": {"epochs": EPOCHS, "batch_size": BATCH},
        "payload": {"down_bytes": DOWN, "up_bytes": UP},
        "downlink": link,
        "uplink": link,
    }
    simulation, records = build(parse(scenario)).simulation, MemoryRecorder()
    simulation.record_to(records)
    simulation.run()
    found = sorted((row.round, row.client, row.download_end_s, row.compute_end_s, row.upload_end_s) for row in records.updates)
    expected = plain()
    assert len(found) == ROUNDS * COUNT
    assert found == [pytest.approx(row, rel=1e-12) for row in expected]
    # Changes fell into transfers, not only between them.
    for at_s in CHANGES_S:
        assert any(row.download_start_s + DELAY_S < at_s < row.download_end_s for row in records.updates)
        assert any(row.upload_start_s + DELAY_S < at_s < row.upload_end_s for row in records.updates)
