"""Own rounds of peers as arrays and by events: same tables, same state, and the worlds that go by events."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from netsim.peers.training.d_psgd import DPsgd
from netsim.servers.kinds import peer_rounds
from netsim.servers.kinds.peer_rounds import why_by_events
from tests.helpers.memory_recorder import MemoryRecorder
from tests.helpers.peer_training import CONSTANT, EXPONENTIAL, LEARNER, protocol, ready, study
from tests.helpers.random_worlds import copied
from tests.helpers.suites import each_nth

ALWAYS, NEVER = 1, 10**9
NINE: dict[str, Any] = {"clients": {"count": 9}, "output": {}, "rounds": 6}
LOSSY = {"kind": "bernoulli", "success": 0.7}


@pytest.fixture(autouse=True)
def from_one_peer_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_rounds, "FROM", ALWAYS)


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


@pytest.mark.parametrize("seed", each_nth(12, range(96)))
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


@pytest.mark.slow
def test_most_random_worlds_are_foreseen() -> None:
    """Otherwise the test above would compare events with events."""
    foreseen = 0
    for seed in range(20):
        simulation, _ = ready(random_tables(seed))
        simulation.run(until_round=2)
        foreseen += is_foreseen(simulation)
    assert foreseen > 10


RECORDED = {"messages_table": True}
CUT = [{"from_s": 1.0, "to_s": 1.5, "links": [[0, 1]]}]
BURSTS = {"kind": "gilbert-elliott", "to_bad": 0.3, "to_good": 0.5, "loss_bad": 0.5}
LATER = [{"at_s": 3.0, "delay": {"mean_excess_s": 2.0}}]
AWAY = {"kind": "markov", "mean_on_s": 15.0, "mean_off_s": 2.0}
MAST = [{"name": "mast", "clients": [0, 2], "from_s": 1.0, "to_s": 1.5}]
PRIVACY = {"sensitivity": 0.05, "schedule": {"kind": "geometric", "epsilon_total": 40.0, "eta": 0.3}, "guarantee": "l1"}
LINKS = "links that are jammed, down, shared or recorded"
LAWS = "laws of links that change or have states"


def links(**keys: Any) -> dict[str, Any]:
    return {"topology": {"kind": "ring"}, "delay": EXPONENTIAL} | keys


@pytest.mark.each_nth(3)
@pytest.mark.parametrize(
    ("why", "tables"),
    [
        ("peers come and go", {"availability": AWAY}),
        ("outages of peers", {"outages": MAST}),
        ("privacy budgets", {"learner": LEARNER, "payload": {}, "privacy": PRIVACY}),
        (LINKS, {"output": RECORDED}),
        (LINKS, {"peers": links(outages=CUT)}),
        (LINKS, {"peers": links(shared={"bandwidth_bytes_per_s": 1e4})}),
        (LAWS, {"peers": links(channel=BURSTS)}),
        (LAWS, {"peers": links(changes=LATER)}),
        ("", {"server": protocol(timeout_s=1.0)}),
        ("", {"server": protocol(backup=1)}),
        ("", {"server": {"kind": "peers", "protocol": {"kind": "gossip-learning", "period_s": 1.0}}}),
        ("", {"server": {"kind": "peers", "protocol": {"kind": "epidemic", "targets": 1}}, "peers": links(delay=CONSTANT)}),
        ("", {"compute": {"delay": CONSTANT | {"value_s": 1.0}}}),
    ],
)
def test_worlds_that_go_by_events(monkeypatch: pytest.MonkeyPatch, why: str, tables: dict[str, Any]) -> None:
    """No reason beforehand: the protocol does not foresee the first round, or its instants are shared."""
    whole = study(**NINE | {"server": protocol(retry_s=0.2)} | tables)
    simulation, _ = ready(whole)
    assert why_by_events(simulation.server.peers) == why
    simulation.run(until_round=1)
    assert not is_foreseen(simulation)
    assert played(whole)[1:] == by_events(monkeypatch, whole)[1:]


def test_few_peers_and_readers_of_single_attempts_go_by_events(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation, _ = ready(study(**NINE))
    host = simulation.server.peers
    assert why_by_events(host) == ""
    host.pool.begin_followers.append(lambda *begun: None)
    assert why_by_events(host) == "workers train ahead"
    host.pool.follow_singly()
    assert why_by_events(host) == "something acts on single attempts, or reads them"
    monkeypatch.setattr(peer_rounds, "FROM", 10)
    assert why_by_events(host) == "few peers"


@pytest.mark.parametrize("seed", each_nth(4, [30, 40, 44, 45, 57, 73, 78, 95, 108, 117, 186, 201, 204, 253, 258, 271]))
def test_a_run_goes_on_by_events_where_peers_come_to_share_an_instant(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """All times are multiples of a sixteenth of a second. They share an instant from round 3 on, or later."""
    rng = np.random.default_rng(seed)
    count, keys = int(rng.integers(3, 6)), {"order": ["train-first", "combine-while-computing"][seed % 2]}
    delay, compute = (CONSTANT | {"value_s": (rng.integers(1, most, count) / 16).tolist()} for most in (40, 60))
    between = links(delay=delay)
    if seed % 3 == 0:
        between, keys = between | {"channel": LOSSY}, keys | {"retry_s": 0.25}
    tables = {"seed": seed, "rounds": 10, "clients": {"count": count}, "server": protocol(**keys), "peers": between}
    whole = study(**tables, compute={"delay": compute}, output={})
    assert played(whole)[1:] == by_events(monkeypatch, whole)[1:]


@pytest.mark.parametrize("order", ["train-first", "combine-while-computing"])
def test_a_run_goes_on_by_events_before_a_law_changes(monkeypatch: pytest.MonkeyPatch, order: str) -> None:
    compute = {"delay": EXPONENTIAL, "changes": [{"at_s": 25.0, "delay": {"mean_excess_s": 0.5}}]}
    lossy = {"server": protocol(order=order, retry_s=0.25), "peers": links(channel=LOSSY)}
    whole = study(**NINE | lossy | {"rounds": 14, "compute": compute})
    simulation, _ = ready(whole)
    simulation.run(until_round=1)
    assert is_foreseen(simulation)
    simulation, rows, counts = played(whole)
    assert not is_foreseen(simulation)
    assert (rows, counts) == by_events(monkeypatch, whole)[1:]


def test_a_protocol_that_foresees_other_times_than_its_callbacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    known = DPsgd.foresee
    monkeypatch.setattr(DPsgd, "foresee", lambda *arguments: known(*arguments) + 0.5)
    simulation, _ = ready(study(**NINE))
    with pytest.raises(RuntimeError, match=r"DPsgd\.foresee: peer \d begins round 2 at another time than it says"):
        simulation.run()


def test_a_limit_of_time_cuts_a_round_that_was_foreseen(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = study(**NINE, time_limit_s=7.3, server=protocol(retry_s=0.2), peers=links(channel=LOSSY))
    simulation, rows, counts = played(whole)
    assert is_foreseen(simulation)
    assert simulation.ended == "time limit"
    assert (rows, counts) == by_events(monkeypatch, whole)[1:]
    assert counts["messages_in_flight"] + counts["in_flight"] > 0
