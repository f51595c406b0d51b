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
    second, ring = {"delay": {"kind": "constant", "value_s": 1.0}}, RING | {"speed_km_per_s": 1e300}
    instant = ring | {"delay": {"kind": "constant", "value_s": 0.0}}
    _, records = simulated(rounds=4, peers=instant, compute=second, script=script, server=protocol(timeout_s=9.0))
    # Messages of rounds 1 and 2 take no time; those of round 3 leave at 3 s, and take 2 s.
    assert [row.end_s for row in records.rounds] == [1.0, 2.0, 5.0, 8.0]
