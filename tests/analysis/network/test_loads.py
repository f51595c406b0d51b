"""Loads of links by hand: utilisation, limits, the critical path; and figures and a report that show them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matplotlib.collections import LineCollection, QuadMesh

import netsim
from analysis.catalogue import draw
from analysis.network.measure import link_table, path_limits, utilisation_over_time
from analysis.network.section import network_sections
from analysis.results.run import Run
from analysis.stragglers.critical_path import critical_path
from analysis.stragglers.records import run_records
from tests.helpers.networks import LINE

LINKS = [{**LINE["links"][0], "delay_s": 0.0, "bandwidth_bytes_per_s": 250.0}, {**LINE["links"][1], "delay_s": 0.0}]
TABLES: dict[str, Any] = {
    "name": "by-hand",
    "rounds": 2,
    "clients": {"count": 2},
    "server": {"per_round": 2},
    "policy": {"kind": "all"},
    "output": {"transfers_table": True},
    "payload": {"up_bytes": [500.0, 750.0]},
    "network": LINE | {"links": LINKS},
}
"""`far` limits client 0 to 250 bytes/s for 2 s; `near` limits client 1 for 1 s to the other 750. A round takes 2 s."""


@pytest.fixture(scope="module")
def run() -> Run:
    return netsim.run(TABLES)


def test_utilisation_and_limits_by_hand(run: Run) -> None:
    table = link_table(run)
    assert table.index.tolist() == ["far>y", "near>s"]
    assert table["utilisation"].tolist() == pytest.approx([1.0, 1250 / 2000], rel=1e-9)
    assert table["peak"].tolist() == pytest.approx([1.0, 1250 / 2000], rel=1e-9)
    assert table["transfers"].tolist() == [2, 2]
    assert table["limited_s"].tolist() == pytest.approx([4.0, 2.0], rel=1e-9)


def test_utilisation_over_rounds_and_over_longer_steps(run: Run) -> None:
    edges, shares = utilisation_over_time(run, ["near>s"], 10)
    assert edges.tolist() == pytest.approx([0.0, 2.0, 4.0])
    assert shares.tolist() == [pytest.approx([0.625, 0.625], rel=1e-9)]
    edges, shares = utilisation_over_time(run, ["near>s"], 1)
    assert (edges.tolist(), shares.tolist()) == (pytest.approx([0.0, 4.0]), [[pytest.approx(0.625, rel=1e-9)]])


def test_the_bandwidth_of_a_round_is_its_mean() -> None:
    """`far` has 250 bytes/s for 1 s and then 125 for 2 s: 500 bytes in 3 s, all that it has."""
    links = [LINKS[0] | {"changes": [{"at_s": 1.0, "bandwidth_bytes_per_s": 125.0}]}, LINKS[1]]
    loads = netsim.run(TABLES | {"rounds": 1, "network": LINE | {"links": links}}).link_loads.set_index("link")
    assert loads.loc["far>y", ["bytes_per_s", "carried_bytes"]].tolist() == pytest.approx([500 / 3, 500.0], rel=1e-9)
    assert loads.loc["near>s", "bytes_per_s"] == 1000.0


def test_the_critical_path_names_the_link_that_limits(run: Run) -> None:
    limits = path_limits(run, critical_path(run_records(run)))
    assert limits[["round", "client", "phase", "link"]].to_numpy().tolist() == [[n, 0, "upload", "far>y"] for n in (1, 2)]
    assert limits["limited_s"].tolist() == pytest.approx([2.0, 2.0], rel=1e-9)


def test_the_path_of_a_message_that_two_links_limit_in_turn() -> None:
    """Both share `near` (400 bytes/s) until client 1 has its 200 bytes at 1 s; `far` then limits client 0: 200 + 300 bytes."""
    links = [LINKS[0] | {"bandwidth_bytes_per_s": 300.0}, LINKS[1] | {"bandwidth_bytes_per_s": 400.0}]
    changed = {"rounds": 1, "payload": {"up_bytes": [500.0, 200.0]}, "network": LINE | {"links": links}}
    run = netsim.run(TABLES | changed)
    limits = path_limits(run, critical_path(run_records(run)))
    assert dict(zip(limits["link"], limits["limited_s"], strict=True)) == {
        "near>s": pytest.approx(1.0, rel=1e-9),
        "far>y": pytest.approx(1.0, rel=1e-9),
    }


def test_figures_show_the_loads(run: Run) -> None:
    axes = draw(run, "network").axes[0]
    idle, used = (one for one in axes.collections if isinstance(one, LineCollection))
    assert (len(idle.get_segments()), len(used.get_segments())) == (0, 2)
    assert np.asarray(used.get_array()).tolist() == pytest.approx([62.5, 100.0])
    assert sorted(text.get_text() for text in axes.texts) == ["s", "x", "y"]
    axes = draw(run, "link_loads").axes[0]
    (mesh,) = (one for one in axes.collections if isinstance(one, QuadMesh))
    assert np.asarray(mesh.get_array()).ravel().tolist() == pytest.approx([100.0, 100.0, 62.5, 62.5])
    assert [label.get_text() for label in axes.get_yticklabels()] == ["far>y", "near>s"]


@pytest.mark.draws
def test_names_of_a_map_hide_no_other_name_and_no_node() -> None:
    """Geant has 40 nodes; each is named, and no two boxes of names overlap."""
    network = {"source": "geant", "server": "DE", "clients": "others", "bandwidth_bytes_per_s": 1.25e8}
    tables = TABLES | {"rounds": 1, "clients": {"count": 39}, "server": {"per_round": 39}}
    figure = draw(netsim.run(tables | {"payload": {"up_bytes": 1e6}, "network": network}), "network")
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in figure.axes[0].texts]
    assert len(boxes) == 40
    assert not [1 for i, one in enumerate(boxes) for other in boxes[:i] if one.overlaps(other)]


def test_the_report_names_busy_links(run: Run) -> None:
    (section,) = network_sections(run)
    table = next(block for block in section.blocks if hasattr(block, "cells"))
    assert table.cells[1][0] == ["far>y", "0.001", "100 %", "100 %", "2", "4.00", "4.00"]
    assert not network_sections(netsim.run(TABLES | {"output": {}}))


def test_a_run_without_records_says_how_to_have_them() -> None:
    with pytest.raises(ValueError, match=r"run with \[network\] and output.transfers_table = true$"):
        draw(netsim.run(TABLES | {"output": {}}), "network")
