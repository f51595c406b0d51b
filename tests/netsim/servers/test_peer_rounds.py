"""Own rounds of peers as arrays and by events: same tables, same state, and the worlds that go by events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from netsim.peers.training.d_psgd import DPsgd
from netsim.servers import peer_rounds
from netsim.servers.peer_rounds import PeerRounds, why_by_events
from tests.helpers.memory_recorder import MemoryRecorder
from tests.helpers.peer_training import CONSTANT, EXPONENTIAL, LEARNER, protocol, ready, study
from tests.helpers.random_worlds import copied
from tests.helpers.suites import each_nth

ALWAYS, NEVER = 1, 10**9
NINE: dict[str, Any] = {"clients": {"count": 9}, "output": {}, "rounds": 6}
LOSSY = {"kind": "bernoulli", "success": 0.7}


@pytest.fixture(autouse=True)
def from_one_peer_on(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(peer_rounds, "FROM", ALWAYS)
    yield


def records_of(records: MemoryRecorder) -> list[str]:
    return [str(row) for table in (records.rounds, records.updates, records.evaluations) for row in table]


def played(tables: dict[str, Any]) -> tuple[Any, list[str], Any]:
    """Return a simulation at its end, its records, and its counts."""
    simulation, records = ready(tables)
    simulation.run()
    counts = simulation.server.counts()
    simulation.close()
    return simulation, records_of(records), counts


def by_events(monkeypatch: pytest.MonkeyPatch, tables: dict[str, Any]) -> tuple[Any, list[str], Any]:
    with monkeypatch.context() as patched:
        patched.setattr(peer_rounds, "FROM", NEVER)
        return played(tables)


def is_foreseen(simulation: Any) -> bool:
    return simulation.server.peers._foreseen is not None


def random_tables(seed: int) -> dict[str, Any]:
    """A small world of peers without interference; a third take their times from half seconds, so that instants are shared."""
    rng = np.random.default_rng(seed)
    ties, count = bool(rng.random() < 0.3), int(rng.choice([2, 3, 4, 8]))

    def some(*options: Any) -> Any:
        return options[int(rng.integers(len(options)))]

    def delay() -> dict[str, Any]:
        if ties:
            return {"kind": "constant", "value_s": (rng.integers(0, 5, count) / 2).tolist()}
        return some(CONSTANT, CONSTANT | {"value_s": 0.4}, EXPONENTIAL, {"kind": "gaussian", "mean_s": 1.0, "std_s": 0.5})

    keys = {"order": some("train-first", "combine-while-computing")}
    kinds = some(
        {"kind": "d-psgd"} | keys,
        {"kind": "matcha", "budget": 0.5} | keys,
        {"kind": "one-peer"} | keys,
        {"kind": "choco", "gamma": 0.4} | keys,
        {"kind": "push-sum"},
        {"kind": "epidemic", "variant": "oracle", "targets": 1 if count % 2 == 0 else 2},
    )
    links: dict[str, Any] = {"topology": {"kind": some("ring", "complete")}, "delay": delay()}
    if kinds["kind"] in ("one-peer", "epidemic") or count < 3:
        links["topology"] = {"kind": "complete"}
    if rng.random() < 0.5:
        links["channel"], kinds["retry_s"] = LOSSY, some(0.25, 0.5)
    if rng.random() < 0.3:
        links["bandwidth_bytes_per_s"] = (1000.0 * rng.integers(1, 4, count)).tolist()
    tables = study(
        seed=seed,
        rounds=8,
        clients={"count": count},
        server={"kind": "peers", "protocol": kinds},
        peers=links,
        compute={"delay": delay() if rng.random() < 0.3 else EXPONENTIAL},
        output={},
    )
    if rng.random() < 0.3:
        tables["time_limit_s"] = 7.7
    if rng.random() < 0.4:
        tables |= {"learner": LEARNER, "payload": {}}
        if kinds["kind"] == "choco":
            tables["payload"] = {"compression": {"kind": "qsgd", "levels": 4}}
    elif rng.random() < 0.5:
        tables |= {"work": {"steps": rng.integers(1, 4, count).tolist(), "batch_size": 5}}
    return tables


@pytest.mark.parametrize("seed", each_nth(4, range(160)))
def test_random_worlds_leave_the_same_records_in_both_forms_and_resumed(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    tables = random_tables(seed)
    _, rows, counts = by_events(monkeypatch, tables)
    _, others, their_counts = played(tables)
    assert others == rows
    assert their_counts == counts
    first, early = ready(tables)
    first.run(until_round=1 + seed % 7)
    if first.ended is not None:
        return
    # A saved state is read and changes nothing; the run that took it and the one that goes on from it end alike.
    second, late = ready(tables)
    second.load_state_dict(copied(first.state_dict()))
    recorded = len(early.updates)
    first.run()
    second.run()
    first.close()
    second.close()
    assert records_of(early) == rows
    assert [str(row) for row in late.updates] == [str(row) for row in early.updates[recorded:]]
    assert [str(row) for row in late.rounds] == [str(row) for row in early.rounds[1 + seed % 7 :]]
    assert second.server.counts() == counts


def test_most_random_worlds_are_foreseen() -> None:
    """Otherwise the test above would compare events with events."""
    foreseen = 0
    for seed in range(40):
        simulation, _ = ready(random_tables(seed))
        simulation.run(until_round=2)
        foreseen += is_foreseen(simulation)
    assert foreseen > 20
