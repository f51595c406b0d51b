"""Rounds that wait for clients which are away."""

from __future__ import annotations

from pathlib import Path

from tests.helpers.small_worlds import World


def test_a_round_that_waited_is_opened_by_the_client_that_came_last(tmp_path: Path) -> None:
    presence = tmp_path / "presence.csv"
    presence.write_text("client,on_s,off_s\n0,0,100\n1,2,100\n2,5,100\n", encoding="utf-8")
    # Client 0 is there from the start, 1 comes at 2 s, and 2, the third of three, at 5 s.
    it = World(
        [[0, 1, 2]],
        server={"per_round": 3, "when_short": "wait"},
        availability={"kind": "trace", "path": str(presence)},
    ).play()
    assert it.rounds("start_s", "opened_by", "opened_after") == [(5.0, "return", 2)]
