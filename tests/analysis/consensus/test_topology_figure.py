"""The graph between clients with their beliefs: what is drawn is what the tables of the run say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.collections import LineCollection, PathCollection

import netsim
from analysis.catalogue import draw
from analysis.consensus.topology_figure import belief_map
from analysis.results.run import Run
from scenarios.schema.errors import UserError

LINKS: dict[str, Any] = {
    "name": "ring",
    "rounds": 3,
    "clients": {"count": 5},
    "server": {"kind": "fl-da", "per_round": 2},
    "policy": {"kind": "bp-index", "mu": 0.1},
    "slots": {"start": "zero"},
    "peers": {"topology": {"kind": "complete"}},
    "opinions": {"synthetic": {"worth": {"from": 0.3, "to": 0.7}}},
    "output": {"beliefs_table": True},
}


@pytest.fixture(scope="module")
def run() -> Run:
    return netsim.run(LINKS)


def test_the_tables_hold_every_client_in_every_slot_and_every_link_once(run: Run) -> None:
    beliefs, links = run.arrow("beliefs").to_pandas(), run.arrow("links").to_pandas()
    assert beliefs[["round", "client"]].to_numpy().tolist() == [[slot, n] for slot in (1, 2, 3) for n in range(5)]
    assert beliefs["belief"].between(0.0, 1.0).all()
    assert beliefs["opinion"].between(0.0, 1.0).all()
    assert beliefs.groupby("round")["member"].sum().tolist() == run.rounds["members"].tolist()
    # The paper's cold start: those with the largest index take part, whatever they are.
    for _, slot in beliefs.groupby("round"):
        chosen = slot[slot["member"]]["index_value"].min()
        assert chosen >= slot[~slot["member"]]["index_value"].max()
    assert links[["source", "target"]].to_numpy().tolist() == [[a, b] for a in range(5) for b in range(a + 1, 5)]
    apart = np.hypot(links["source_x_km"] - links["target_x_km"], links["source_y_km"] - links["target_y_km"])
    assert apart.to_numpy() == pytest.approx(links["distance_km"].to_numpy())


def test_what_is_drawn_is_what_the_tables_say(run: Run) -> None:
    figure = draw(run, "topology", round=3)
    axes = figure.axes[0]
    (lines,) = (one for one in axes.collections if isinstance(one, LineCollection))
    assert len(lines.get_segments()) == 10
    others, members = (one for one in axes.collections if isinstance(one, PathCollection))
    beliefs, chosen = belief_map(run)[2], belief_map(run, "member")[2] > 0.5
    assert np.asarray(members.get_array()).tolist() == beliefs[chosen].tolist()
    assert np.asarray(others.get_array()).tolist() == beliefs[~chosen].tolist()
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("east (km)", "north (km)")
    assert f"members {', '.join(map(str, np.flatnonzero(chosen)))}" in figure.description
    assert [panel.get_title(loc="left") for panel in draw(run, "topology").axes[:3]] == ["slot 1", "slot 2", "slot 3"]
    with pytest.raises(ValueError, match="round = 4: the run has 3 slots"):
        draw(run, "topology", round=4)


def test_a_run_in_files_goes_on_with_the_same_beliefs(tmp_path: Path, run: Run) -> None:
    written = netsim.run(LINKS, out=tmp_path / "run")
    for name in ("beliefs", "links"):
        assert written.arrow(name).to_pandas().equals(run.arrow(name).to_pandas())


def test_beliefs_are_asked_for_where_there_are_some() -> None:
    synchronous = {"name": "x", "rounds": 1, "clients": {"count": 2}, "server": {"per_round": 2}, "policy": {"kind": "all"}}
    with pytest.raises(UserError, match=r"there are beliefs of clients with server\.kind = 'fl-da' only"):
        netsim.run(synchronous | {"output": {"beliefs_table": True}})
    without = netsim.run(LINKS | {"output": {}})
    assert not without.source.has("beliefs")
    with pytest.raises(ValueError, match="figure = 'topology': these runs have no data for it"):
        draw(without, "topology")
    assert not netsim.run(LINKS | {"server": {"kind": "fl-fa", "per_round": 2}, "policy": {"kind": "random"}}).source.has("links")


def test_a_run_without_beliefs_says_how_to_have_them() -> None:
    without = netsim.run(LINKS | {"rounds": 1, "output": {}})
    with pytest.raises(ValueError, match=r"no data for it; .*; run with server.kind = 'fl-da' and output.beliefs_table = true$"):
        draw(without, "topology")
