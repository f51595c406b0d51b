"""The figure of one round where updates take several attempts: every client at work has a bar."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

import netsim
from analysis.stragglers.gantt_figure import gantt_figure
from tests.helpers.peer_training import study


def test_a_client_that_trains_all_round_has_a_bar_as_long_as_the_round() -> None:
    # Training of 3 s in rounds of 1 s: it ends in round 3, and is recorded there alone.
    tables: dict[str, Any] = {
        "name": "ages",
        "rounds": 4,
        "clients": {"count": 1},
        "server": {"kind": "asynchronous", "round_s": 1.0},
        "compute": {"delay": {"kind": "constant", "value_s": 2.75}},
        "channels": {
            "count": 1,
            "states": {"kind": "stationary", "means": [1.0]},
            "delay": {"kind": "constant", "value_s": 0.125},
        },
        "scheduler": {"kind": "round-robin"},
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = netsim.run(tables)
    for round, widths in ((2, [0.0, 1.0, 0.0, 0.0]), (3, [0.0, 0.75, 0.0, 0.125])):
        figure = gantt_figure({"a": [run]}, round=round)
        assert figure is not None
        bars = [bar.get_width() for bar in figure.axes[0].patches]
        assert np.allclose(bars, widths), round


def test_a_peer_that_waits_has_a_bar_with_the_number_of_the_peer_that_it_waited_for() -> None:
    # A path 0 - 1 - 2 with trainings of 1, 1 and 10 s and messages of 0.5 s: 1 waits for 2 until 10.5 s, 0 for 1 until 1.5 s.
    path = {"topology": {"kind": "grid", "rows": 1}, "speed_km_per_s": 1e300, "delay": {"kind": "constant", "value_s": 0.5}}
    slow = {"delay": {"kind": "constant", "value_s": [1.0, 1.0, 10.0]}}
    run = netsim.run(study(rounds=2, clients={"count": 3}, peers=path, compute=slow))
    figure = gantt_figure({"a": [run]}, round=1)
    assert figure is not None
    (axes,) = figure.axes
    waits = sorted((bar.get_x(), bar.get_width()) for bar in axes.patches[12:])
    assert waits == [(1.0, 0.5), (1.0, 9.5)]
    # Peers in the order of the ends of their trainings. Numbers stand beside the bars: a wait may be narrower than its number.
    numbers = axes.texts[-2:]
    assert [(number.xy, number.get_text()) for number in numbers] == [((1.5, 0), "1"), ((10.5, 1), "2")]
    assert all(number.get_window_extent().x0 > axes.transData.transform(number.xy)[0] for number in numbers)
    assert max(number.get_window_extent().x1 for number in numbers) < axes.get_window_extent().x1
    assert axes.get_xlabel() == "time since the first attempt of the round began (s)"
