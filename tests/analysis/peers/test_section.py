"""Waits of peers by hand, and the section of a report that shows them."""

from __future__ import annotations

from pathlib import Path

import pytest

import netsim
from analysis.documents.blocks import Table, Text
from analysis.documents.numbers import MISSING
from analysis.metrics.targets import run_extent
from analysis.peers.measure import waits
from analysis.peers.section import peer_sections
from scenarios.runs.reading import parse
from scenarios.runs.run import run
from tests.helpers.peer_training import CONSTANT, learning, study
from tests.helpers.result_folders import run_of

SLOW = {"delay": CONSTANT | {"value_s": [1.0, 1.0, 10.0]}}
PATH = {"topology": {"kind": "grid", "rows": 1}, "speed_km_per_s": 1e300, "delay": CONSTANT | {"value_s": 0.5}}


@pytest.fixture
def slow_peer(tmp_path: Path) -> netsim.Run:
    run(parse(study(rounds=2, clients={"count": 3}, peers=PATH, compute=SLOW, payload={"up_bytes": 100_000})), tmp_path / "run")
    return netsim.open_run(tmp_path / "run")


def test_waits_of_a_path_with_a_slow_peer(slow_peer: netsim.Run) -> None:
    # Peers 0 - 1 - 2; peer 2 trains for 10 s, the others for 1 s, a message takes 0.5 s. After round 2 no peer begins another.
    found = {(row.peer, row.round): (row.from_s, row.until_s, row.waited_for) for row in waits(slow_peer).itertuples(index=False)}
    assert found == {(0, 1): (1.0, 1.5, 1), (1, 1): (1.0, 10.5, 2)}


def test_the_section_of_a_run_names_who_waited_for_whom(slow_peer: netsim.Run) -> None:
    (section,) = peer_sections({"a": [slow_peer]}, single=slow_peer)
    models, words, pairs = section.blocks
    assert isinstance(models, Table)
    # 4 edges, 2 rounds, 100 kB each; nothing is trained.
    assert models.cells[1] == [["a", *[MISSING] * 5, "0.800", "0.000"]]
    assert isinstance(words, Text)
    # 0.5 s and 9.5 s of 3 x 20.5 s: the second model of peer 2 is at peer 1 at 20.5 s.
    assert "16.3 % of their time" in words.text
    assert "for peer 2: 9.50 s" in words.text
    assert isinstance(pairs, Table)
    assert pairs.cells[1] == [["1", "2", "9.50", "1"], ["0", "1", "0.500", "1"]]


def test_bytes_of_messages_count_as_sent(slow_peer: netsim.Run) -> None:
    assert run_extent(slow_peer).sent_bytes == 800_000.0


def test_a_sweep_has_a_row_for_each_variant_and_models_where_they_are_trained(tmp_path: Path, slow_peer: netsim.Run) -> None:
    run(parse(learning(rounds=2)), tmp_path / "trained")
    trained = netsim.open_run(tmp_path / "trained")
    (section,) = peer_sections({"a": [slow_peer], "b": [trained, trained], "c": [run_of(tmp_path / "c")]})
    (table,) = section.blocks
    assert isinstance(table, Table)
    assert [row[0] for row in table.cells[1]] == ["a", "b"]
    distance = trained.rounds["consensus_distance"].iloc[-1]
    assert float(table.cells[1][1][5].split()[0]) == pytest.approx(distance, rel=0.01)


def test_other_runs_have_no_such_section(tmp_path: Path) -> None:
    assert peer_sections({"a": [run_of(tmp_path / "a")]}) == []
