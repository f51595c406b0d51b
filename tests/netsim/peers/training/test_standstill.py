"""Runs of peers that can never close another round: they are refused beforehand, or end and say which peer waits for which."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import netsim
from scenarios.runs.reading import parse
from scenarios.runs.run import run
from scenarios.schema.errors import UserError
from scenarios.wiring.simulation import build
from tests.helpers.peer_training import protocol, simulated, study

RING = {"topology": {"kind": "ring"}, "delay": {"kind": "constant", "value_s": 0.1}}
CUT = {"script": "tests.netsim.peers.training.test_standstill:cut_peer_1"}
STORM = {"outages": [{"name": "storm", "clients": [1], "from_s": 3.0}]}
LEAVES = {"script": "tests.netsim.peers.training.test_standstill:take_peer_1"}


def cut_peer_1(world: netsim.World) -> netsim.Script:
    """Cuts both links of peer 1 for ever."""
    yield world.until_time(3.0)
    world.cut_links(groups=[[1]])


def heal_peer_1(world: netsim.World) -> netsim.Script:
    """Cuts both links of peer 1 for half a minute."""
    yield world.until_time(3.0)
    cut = world.cut_links(groups=[[1]])
    yield world.after(30.0)
    cut.heal()


def take_peer_1(world: netsim.World) -> netsim.Script:
    """Takes peer 1 away for ever."""
    yield world.until_time(3.0)
    world.take_away([1])


def played(folder: Path, **tables: Any) -> tuple[str, Iterator[str]]:
    """How a run of a ring of five peers ended, and its warnings of a standstill."""
    done = run(parse(study(**{"rounds": 60, "peers": RING} | tables)), folder)
    return done["ended"], (one["text"] for one in done["warnings"] if one["name"] == "standstill")


@pytest.mark.parametrize("tables", [CUT, STORM], ids=["script", "outage"])
@pytest.mark.parametrize("kind", ["d-psgd", "push-sum", "choco"])
def test_a_link_that_is_down_for_ever_ends_a_run_whose_peers_send_again_and_says_who_waits(
    tmp_path: Path, tables: dict[str, Any], kind: str
) -> None:
    keys = {"gamma": 0.5} if kind == "choco" else {}
    server = {"kind": "peers", "protocol": {"kind": kind, "retry_s": 0.5} | keys}
    ended, warnings = played(tmp_path / "run", server=server, **tables)
    assert ended == "nobody left"
    (text,) = warnings
    assert "peer 0 for 1; " in text
    assert "; peer 2 for 1" in text


SECOND = {"delay": {"kind": "constant", "value_s": 1.0}}
SWEEP = {"kind": "sweep", "width": 1, "step": 1}
STAR_OF_CABLES = [{"a": f"n{i}", "b": "hub", "delay_s": 0.05, "bandwidth_bytes_per_s": 1e5} for i in range(5)]
BUSY: dict[str, dict[str, Any]] = {
    "jammers": {"jammers": [{"name": "sweeper", "law": SWEEP, "links": [[2, 3], [3, 4]], "dwell_s": 2.0}]},
    "background": {
        "peers": {"topology": RING["topology"]},
        "network": {
            "server": "hub",
            "clients": [f"n{i}" for i in range(5)],
            "links": STAR_OF_CABLES,
            "background": [{"name": "web", "kind": "poisson", "from": "n3", "to": "n4", "per_s": 1.0, "size_bytes": 100.0}],
        },
    },
    "presence": {"availability": {"kind": "markov", "mean_on_s": 20.0, "mean_off_s": 4.0}},
}
"""Tables by which calls stay on the clock for ever, though nothing of them can help a peer."""


CABLES = {
    "peers": {"topology": RING["topology"]},
    "network": {name: BUSY["background"]["network"][name] for name in ("server", "clients", "links")},
}
EACH_DWELL = {"kind": "pulse", "off": 0}
NEVER_RESTS: dict[str, dict[str, Any]] = {
    "dwells in rounds": {"jammers": [{"name": "jam", "law": SWEEP, "links": [[0, 1], [3, 4]]}]},
    "dwells in seconds": {"jammers": [{"name": "jam", "law": EACH_DWELL, "links": [[0, 1]], "dwell_s": 1.0}]},
    "cable": CABLES | {"jammers": [{"name": "jam", "law": EACH_DWELL, "cables": ["n1-hub"], "dwell_s": 1.0}]},
    "outage of a cable": CABLES
    | {"network": CABLES["network"] | {"outages": [{"name": "dig", "links": ["n1-hub"], "from_s": 3.0}]}},
}


@pytest.mark.parametrize("name", NEVER_RESTS)
def test_links_and_cables_that_are_jammed_or_down_for_ever_end_a_run(tmp_path: Path, name: str) -> None:
    ended, warnings = played(tmp_path / "run", server=protocol(retry_s=0.5), **NEVER_RESTS[name])
    assert ended == "nobody left"
    (text,) = warnings
    assert "peer 0 for 1; " in text


JAM = NEVER_RESTS["dwells in seconds"]["jammers"][0]
RESTS: dict[str, dict[str, Any]] = {
    "budget": {"budget": 20},
    "pulses": {"law": {"kind": "pulse", "on": 5, "off": 2}},
    "two links in turn": {"law": SWEEP, "links": [[0, 1], [1, 2]]},
}


@pytest.mark.parametrize("name", RESTS)
def test_a_jammer_that_rests_ends_nothing(tmp_path: Path, name: str) -> None:
    ended, warnings = played(tmp_path / "run", rounds=5, server=protocol(retry_s=0.5), jammers=[JAM | RESTS[name]])
    assert (ended, [*warnings]) == ("rounds", [])


def stop_the_jammer(world: netsim.World) -> netsim.Script:
    """Stops the jammer after a minute."""
    yield world.until_time(60.0)
    world.stop_jammer("jam")


def test_a_jammer_that_a_script_stops_ends_nothing(tmp_path: Path) -> None:
    script = "tests.netsim.peers.training.test_standstill:stop_the_jammer"
    ended, warnings = played(tmp_path / "run", rounds=5, server=protocol(retry_s=0.5), jammers=[JAM], script=script)
    assert (ended, [*warnings]) == ("rounds", [])


@pytest.mark.parametrize("busy", ["jammers", "background", "presence"])
@pytest.mark.parametrize("tables", [CUT, STORM], ids=["script", "outage"])
def test_a_standstill_is_seen_though_the_clock_stays_busy(tmp_path: Path, tables: dict[str, Any], busy: str) -> None:
    ended, warnings = played(tmp_path / "run", server=protocol(retry_s=0.5), **tables, **BUSY[busy])
    assert ended == "nobody left"
    (text,) = warnings
    assert "peer 0 for 1; " in text


def test_a_standstill_is_seen_though_a_peer_is_away_at_any_time(tmp_path: Path) -> None:
    # Peers 2 and 4, which are no neighbours, take turns to be away. They have sent their models, and return to wait only.
    lines = ["client,start_s,end_s", *(f"{peer},0,inf" for peer in (0, 1, 3))]
    lines += [f"{peer},{start},{start + 5}" for peer, first in ((2, 0), (4, 5)) for start in range(first, 2000, 10)]
    (tmp_path / "turns.csv").write_text("\n".join(lines) + "\n")
    turns = {"kind": "trace", "path": str(tmp_path / "turns.csv")}
    done = run(parse(study(rounds=60, peers=RING, server=protocol(retry_s=0.5), availability=turns, **CUT)), tmp_path / "run")
    assert done["ended"] == "nobody left"
    assert done["simulated_s"] < 100.0


def test_peers_that_come_back_to_wait_only_end_nothing_while_another_may_help(tmp_path: Path) -> None:
    # Peer 1 is cut off until the script heals its links, long after peers have come and gone while all others waited.
    script = "tests.netsim.peers.training.test_standstill:heal_peer_1"
    ended, warnings = played(tmp_path / "run", rounds=20, server=protocol(retry_s=0.2), script=script, **BUSY["presence"])
    assert (ended, [*warnings]) == ("rounds", [])


def test_messages_that_were_lost_before_the_last_training_ended(tmp_path: Path) -> None:
    # Models leave as a round begins, and arrive or are lost while peers train: the last event is the end of a training.
    server = protocol(backup=1, order="combine-while-computing")
    ended, warnings = played(tmp_path / "run", server=server, compute=SECOND, **CUT)
    assert ended == "nobody left"
    (text,) = warnings
    assert "(peer 1 for 0, 2)" in text


def test_peers_of_ad_psgd_name_the_peer_of_their_exchange(tmp_path: Path) -> None:
    # Peer 0 asks at 1 s, peer 1 answers at 1.1 s, and may not add the step of its training until the answer has arrived.
    server = {"kind": "peers", "protocol": {"kind": "ad-psgd", "retry_s": 0.5}}
    script = "tests.netsim.peers.training.test_standstill:cut_two"
    ended, warnings = played(tmp_path / "run", clients={"count": 2}, server=server, script=script, compute=SECOND)
    assert ended == "nobody left"
    (text,) = warnings
    assert "(peer 0 for 1; peer 1 for 0)" in text


def cut_two(world: netsim.World) -> netsim.Script:
    """Cuts the link of two peers for ever, while the answer of peer 1 is under way."""
    yield world.until_time(1.15)
    world.cut_links([(0, 1)])


def test_a_cut_that_heals_ends_nothing(tmp_path: Path) -> None:
    script = "tests.netsim.peers.training.test_standstill:heal_peer_1"
    ended, warnings = played(tmp_path / "run", server=protocol(retry_s=0.2), script=script)
    assert (ended, [*warnings]) == ("rounds", [])


@pytest.mark.parametrize("tables", [CUT, STORM, LEAVES], ids=["script", "outage", "absence"])
def test_with_a_timeout_the_others_go_on(tmp_path: Path, tables: dict[str, Any]) -> None:
    ended, warnings = played(tmp_path / "run", rounds=12, server=protocol(retry_s=0.5, timeout_s=2.0), **tables)
    assert (ended, [*warnings]) == ("rounds", [])


def test_backups_that_are_too_few(tmp_path: Path) -> None:
    # Peers 0 and 2 get one model of two, which is all but one; peer 1 gets none.
    ended, warnings = played(tmp_path / "run", server=protocol(backup=1), **CUT)
    assert ended == "nobody left"
    (text,) = warnings
    assert "(peer 1 for 0, 2)" in text


def test_messages_that_are_all_lost_are_the_last_event(tmp_path: Path) -> None:
    # Nothing arrives after them, and no training ends.
    script = "tests.netsim.peers.training.test_standstill:cut_all"
    ended, warnings = played(tmp_path / "run", server=protocol(backup=1), compute=SECOND, script=script)
    assert ended == "nobody left"
    (text,) = warnings
    assert "peer 0 for 1, 4; " in text


def test_gossip_whose_every_link_is_down_ends(tmp_path: Path) -> None:
    server = {"kind": "peers", "protocol": {"kind": "gossip-learning", "period_s": 1.0}}
    script = "tests.netsim.peers.training.test_standstill:cut_all"
    ended, warnings = played(tmp_path / "run", server=server, script=script)
    assert ended == "nobody left"
    assert len([*warnings]) == 1


def cut_all(world: netsim.World) -> netsim.Script:
    """Cuts all links for ever."""
    yield world.until_time(3.0)
    world.cut_links(groups=[[0], [1], [2], [3], [4]])


def test_a_channel_without_success_is_refused_where_messages_are_sent_again_for_ever() -> None:
    dead = {"peers": RING | {"channel": {"kind": "bernoulli", "success": [0.9, 0.0, 0.9, 0.9, 0.9]}}}
    told = r"peers\.channel.* messages of peer 1 never arrive.*raise its success, or give time_limit_s"
    with pytest.raises(UserError, match=told):
        build(parse(study(server=protocol(retry_s=0.5), **dead)))
    build(parse(study(server=protocol(retry_s=0.5), time_limit_s=9.0, **dead)))
    build(parse(study(server=protocol(timeout_s=0.5), **dead)))


def slow_messages(world: netsim.World) -> netsim.Script:
    """Messages take 2 s from the instant 2.5 s on."""
    yield world.until_time(2.5)
    world.change("peers.delay", value_s=2.0)


def test_a_script_changes_the_messages_of_peers() -> None:
    script = "tests.netsim.peers.training.test_standstill:slow_messages"
    ring = RING | {"speed_km_per_s": 1e300}
    instant = ring | {"delay": {"kind": "constant", "value_s": 0.0}}
    _, records = simulated(rounds=4, peers=instant, compute=SECOND, script=script, server=protocol(timeout_s=9.0))
    # Messages of rounds 1 and 2 take no time; those of round 3 leave at 3 s, and take 2 s.
    assert [row.end_s for row in records.rounds] == [1.0, 2.0, 5.0, 8.0]
