"""The figure of one round where updates take several attempts: every client at work has a bar."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

import netsim
from analysis.stragglers.gantt_figure import gantt_figure


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
