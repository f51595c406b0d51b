"""Scenarios with a network of links."""

from __future__ import annotations

from typing import Any

LINE: dict[str, Any] = {
    "server": "s",
    "clients": ["x", "y"],
    "links": [
        {"name": "far", "a": "x", "b": "y", "delay_s": 0.25, "bandwidth_bytes_per_s": 1000.0},
        {"name": "near", "a": "y", "b": "s", "delay_s": 0.5, "bandwidth_bytes_per_s": 1000.0},
    ],
}
"""Client 0 at x, client 1 at y, in a line to the server at s."""

SHARED: dict[str, Any] = {
    "name": "shared",
    "rounds": 12,
    "clients": {"count": 6},
    "server": {"kind": "buffered", "concurrency": 4, "buffer": 2},
    "policy": {"kind": "random"},
    "payload": {"down_bytes": 700, "up_bytes": 1300},
    "compute": {"delay": {"kind": "shifted-exponential", "shift_s": 0.5, "mean_excess_s": 1.0}},
    "network": {
        "server": "root",
        "clients": "leaves",
        "generator": {"kind": "tree", "fan_out": [2, 3], "level_bytes_per_s": [600.0, 500.0], "level_delay_s": [0.1, 0.01]},
        "links": [
            {
                "name": "root-root.0",
                "bandwidth": {"kind": "gauss-markov", "mean_bytes_per_s": 600.0, "std_bytes_per_s": 200.0, "memory": 0.9},
                "channel": {"kind": "gilbert-elliott", "to_bad": 0.2, "to_good": 0.5},
                "delay": {"kind": "shifted-exponential", "shift_s": 0.0, "mean_excess_s": 0.05},
            }
        ],
        "outages": [{"name": "digger", "links": ["root-root.1"], "mean_up_s": 10.0, "mean_down_s": 1.0}],
        "background": [
            {"name": "video", "kind": "on-off", "from": "root", "to": "root.0", "mean_on_s": 3.0, "mean_off_s": 3.0},
            {"name": "web", "kind": "poisson", "from": "root.1", "to": "root", "per_s": 0.5, "size_bytes": 300.0},
            {"name": "line", "kind": "constant", "from": "root.1.0", "to": "root", "bytes_per_s": 50.0},
        ],
    },
}


class Cut(BaseException):
    """Ends a run where no handler expects it."""
