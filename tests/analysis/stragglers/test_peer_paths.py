"""The critical path of a run without a server: by hand, and without a gap."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import netsim
from analysis.stragglers.critical_path import critical_path
from analysis.stragglers.records import run_records
from scenarios.runs.reading import parse
from scenarios.runs.run import run
from tests.helpers.derivative_worlds import ABSENT, varied
from tests.helpers.longer_phases import LONGER_S, Phase, end_s, played
from tests.helpers.peer_training import CONSTANT, EXPONENTIAL, protocol, study
from tests.helpers.suites import each_nth

SLOW = {"delay": CONSTANT | {"value_s": [1.0, 1.0, 10.0]}}
PATH = {"topology": {"kind": "grid", "rows": 1}, "speed_km_per_s": 1e300, "delay": CONSTANT | {"value_s": 0.5}}


def path_of(folder: Path, **tables: object) -> list[tuple[str, float]]:
    run(parse(study(rounds=2, clients={"count": 3}, peers=PATH, compute=SLOW, **tables)), folder)
    path = critical_path(run_records(netsim.open_run(folder)))
    assert (path["start_s"].to_numpy()[1:] == path["end_s"].to_numpy()[:-1]).all()
    assert path["start_s"].iloc[0] == 0
    return [(phase, end - start) for phase, start, end in zip(path["phase"], path["start_s"], path["end_s"], strict=True)]


def test_the_path_leads_over_training_and_messages_of_the_slow_peer(tmp_path: Path) -> None:
    # Peer 2 trains 0 to 10 s and 10 to 20 s; its model reaches peer 1 half a second later.
    assert path_of(tmp_path / "run") == [("compute", 10.0), ("compute", 10.0), ("message", 0.5)]


def test_a_message_that_left_as_training_began(tmp_path: Path) -> None:
    # Messages take 0.5 s and training of peer 2 10 s: rounds end with its training.
    found = path_of(tmp_path / "run", server=protocol(order="combine-while-computing"))
    assert found == [("compute", 10.0), ("compute", 10.0)]


def test_a_round_after_a_timeout_is_begun_by_the_training_that_set_the_timer(tmp_path: Path) -> None:
    # Peer 1 trains until 1 s, has the model of peer 0 at 1.5 s, and waits for peer 2 until 3 s.
    run(parse(study(rounds=2, clients={"count": 3}, peers=PATH, compute=SLOW, server=protocol(timeout_s=2.0))), tmp_path / "run")
    attempts = netsim.open_run(tmp_path / "run").clients.set_index(["client", "round"])
    first, second = attempts.loc[(1, 1)], attempts.loc[(1, 2)]
    assert (first["outcome_s"], second["selected_s"]) == (1.0, 3.0)
    assert (second["begun_by"], second["begun_after"]) == ("end", first["number"])


@pytest.mark.parametrize("order", ["train-first", "combine-while-computing"])
def test_random_times_leave_no_gap(tmp_path: Path, order: str) -> None:
    run(parse(study(rounds=20, server=protocol(order=order))), tmp_path / "run")
    path = critical_path(run_records(netsim.open_run(tmp_path / "run")))
    assert (path["start_s"].to_numpy()[1:] == path["end_s"].to_numpy()[:-1]).all()
    assert {"compute", "message"} == set(path["phase"])
    assert path["exact"].all()


PROTOCOLS: dict[str, dict[str, Any]] = {
    "train-first": {"kind": "d-psgd"},
    "combine-while-computing": {"kind": "d-psgd", "order": "combine-while-computing"},
    "timeout": {"kind": "d-psgd", "timeout_s": 0.2},
    "backup": {"kind": "d-psgd", "backup": 1},
    "matcha": {"kind": "matcha"},
    "choco": {"kind": "choco", "gamma": 0.5},
    "push-sum": {"kind": "push-sum"},
    "one-peer": {"kind": "one-peer"},
    "epidemic": {"kind": "epidemic", "targets": 1},
    "ad-psgd": {"kind": "ad-psgd"},
    "gossip-learning": {"kind": "gossip-learning", "period_s": 0.7},
}


LOSSY = {"channel": {"kind": "bernoulli", "success": 0.7}}
TROUBLES: dict[str, dict[str, Any]] = {
    "none": {},
    "losses": {"peers": LOSSY},
    "absences": ABSENT,
    "jammed": {"jammers": [{"name": "noise", "law": {"kind": "random"}, "dwell_s": 0.7}]},
    "outages": {"outages": [{"name": "mast", "mean_up_s": 3.0, "mean_down_s": 1.0}]},
}
RESENT = [name for name in PROTOCOLS if name in ("train-first", "ad-psgd", "push-sum", "choco", "matcha")]
"""Protocols that can send a message again until it arrives."""
CASES = [(name, "none") for name in PROTOCOLS] + [(name, trouble) for name in RESENT for trouble in TROUBLES if trouble != "none"]


def topology_of(name: str) -> dict[str, Any]:
    """Return a topology that holds the links of the protocol."""
    return {"kind": "exponential" if name == "one-peer" else "ring"}


@pytest.mark.parametrize(("name", "trouble"), each_nth(7, CASES))
def test_training_that_is_longer_moves_the_end_as_often_as_the_path_holds_it(name: str, trouble: str) -> None:
    protocol = PROTOCOLS[name] | ({} if trouble == "none" else {"retry_s": 0.4})
    others = TROUBLES[trouble]
    links = {"delay": EXPONENTIAL | {"shift_s": 0.1, "mean_excess_s": 0.3}, "topology": topology_of(name)}
    server = {"kind": "peers", "protocol": protocol}
    tables = study(rounds=8, clients={"count": 6}, server=server, compute=varied(0.5, 1.0), output={}, seed=5)
    tables |= others | {"peers": links | others.get("peers", {})}
    path, was_s = critical_path(run_records(played(tables))), end_s(tables)
    held = path[path["exact"] & (path["phase"] == "compute")].groupby("client")["attempt"].nunique()
    # When a peer of gossip learning sends, its clock alone says, and when a peer returns, its presence does.
    assert path["exact"].all() == (name != "gossip-learning" and trouble != "absences")
    assert (path["start_s"].to_numpy()[1:] == path["end_s"].to_numpy()[:-1]).all()
    assert path["start_s"].iloc[0] == 0
    for client in range(6):
        moved = (end_s(tables, Phase("compute", None, client)) - was_s) / LONGER_S
        assert moved == pytest.approx(held.get(client, 0), abs=5e-3), client


# The messages of an exchange of AD-PSGD are one step of the path; before a model that a clock sends, there is the clock alone.
@pytest.mark.parametrize("name", each_nth(3, [name for name in PROTOCOLS if name not in ("ad-psgd", "gossip-learning")]))
def test_messages_that_take_longer_move_the_end_as_often_as_the_path_holds_them(name: str) -> None:
    def slower(seconds: float) -> dict[str, Any]:
        links = {"delay": EXPONENTIAL | {"shift_s": 0.1 + seconds, "mean_excess_s": 0.3}, "topology": topology_of(name)}
        server = {"kind": "peers", "protocol": PROTOCOLS[name]}
        return study(rounds=8, clients={"count": 6}, server=server, peers=links, compute=varied(0.5, 1.0), output={}, seed=5)

    path = critical_path(run_records(played(slower(0.0))))
    moved = (end_s(slower(LONGER_S)) - end_s(slower(0.0))) / LONGER_S
    assert moved == pytest.approx((path["phase"] == "message").sum(), abs=5e-3)
