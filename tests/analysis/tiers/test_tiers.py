"""Seconds by tier, by hand; the figure and the section of them."""

from __future__ import annotations

import pytest

import netsim
from analysis.catalogue import draw
from analysis.tiers.measure import PARTS, tier_times
from analysis.tiers.section import tier_sections
from tests.helpers.edge_tiers import constant, study, tier

SLOW = study(rounds=1, compute=constant([0.5, 0.5, 0.5, 1.0]))


def test_the_seconds_of_two_edges_by_hand() -> None:
    """The round lasts 3.2 s. Each edge's model is on its way for 2 s; rounds of edges last .7 and 1.2 s, and edge 0 waits .5 s.

    Means over edges: .95 s in rounds, 2 s on the way, .25 s of waiting. Of 3.8 s of four clients in their edges' rounds, 2.5 s
    are training, .8 s on links, and .5 s are client 2's, who waits for client 3: .95 s are divided likewise.
    """
    times = tier_times(netsim.run(SLOW))
    expected = {"compute": 0.625, "links": 0.2, "edge_wait": 0.125, "backhaul": 2.0, "wait": 0.25}
    assert times == {name: pytest.approx(value) for name, value in expected.items()}


def test_without_edges_the_rounds_of_the_server_are_divided() -> None:
    """A round of 1.2 s: of 4.8 s of four clients 2.5 s are training, .8 s on links and 1.5 s waiting."""
    tables = {name: table for name, table in SLOW.items() if name != "edges"} | {"server": {"per_round": 4}}
    times = tier_times(netsim.run(tables))
    expected = {"compute": 0.625, "links": 0.2, "edge_wait": 0.375, "backhaul": 0.0, "wait": 0.0}
    assert times == {name: pytest.approx(value) for name, value in expected.items()}


def test_what_travels_while_an_edge_goes_on_costs_no_time() -> None:
    """Both edges make rounds from 1 to 3.8 s and from 4.4 to 5.1 s; the second model of the server is there at 5.4 s.

    Only from 0 to 1, from 3.8 to 4.4 and from 5.1 s on nothing but a model is under way: 1.9 s, in two rounds of the server.
    """
    times = tier_times(netsim.run(study(tier(rounds=2, goes_on=True), rounds=2)))
    assert (times["backhaul"], times["wait"]) == (pytest.approx(0.95), pytest.approx(0.0))
    assert sum(times.values()) == pytest.approx(2.7)


def test_of_three_tiers_the_ways_of_all_models_are_backhaul() -> None:
    """Down 2 s, two rounds of .7 s, up and down between region and edge 2 s, again two rounds, up 2 s: 8.8 s, of which 2.8 s."""
    run = netsim.run(
        study(tier(name="region", rounds=2), tier(count=4, above="region", rounds=2), clients={"count": 8}, rounds=1)
    )
    times = tier_times(run)
    assert (times["backhaul"], times["compute"] + times["links"]) == (pytest.approx(6.0), pytest.approx(2.8))


def test_the_figure_and_the_section_say_the_same() -> None:
    run = netsim.run(SLOW)
    figure = draw(run, "tiers")
    assert "training 0.625 s" in figure.description
    assert "backhaul 2 s" in figure.description
    (section,) = tier_sections({"edges": [run]})
    times, attempts = section.blocks
    assert times.cells[0] == ["", *(f"{words} (s)" for words in PARTS.values())]
    assert times.cells[1][0][1:] == ["0.625", "0.200", "0.125", "2.00", "0.250"]
    assert attempts.cells[1][0][:3] == ["edges", "2", "100 %"]
    flat = netsim.run({name: table for name, table in SLOW.items() if name != "edges"} | {"server": {"per_round": 4}})
    assert not tier_sections({"flat": [flat]})
    with pytest.raises(ValueError, match="tiers"):
        draw(flat, "tiers")
