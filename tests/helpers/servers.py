"""A scenario for each kind of server, of nine clients, to which features are added."""

from __future__ import annotations

from typing import Any

SLOTS: dict[str, Any] = {
    "slots": {"rounds": 2},
    "opinions": {"synthetic": {"worth": {"from": 0.4, "to": 0.9}, "own": 0.2, "noise": 0.02}},
}
CHANNELS: dict[str, Any] = {
    "channels": {
        "count": 9,
        "channel": {"kind": "gilbert-elliott", "to_bad": 0.3, "to_good": 0.4},
        "delay": {"kind": "shifted-exponential", "shift_s": 0.1, "mean_excess_s": 0.2},
    },
    "scheduler": {"kind": "cucb"},
}
SERVERS: dict[str, dict[str, Any]] = {
    "synchronous": {"server": {"per_round": 4, "when_short": "proceed", "deadline_s": 1.6}, "policy": {"kind": "random"}},
    "semi-synchronous": {"server": {"kind": "semi-synchronous", "per_round": 4, "round_s": 1.0}, "policy": {"kind": "random"}},
    "buffered": {"server": {"kind": "buffered", "concurrency": 5, "buffer": 3}, "policy": {"kind": "random"}},
    "safa": {"server": {"kind": "safa", "per_round": 4, "deadline_s": 1.6}},
    "compass": {
        "server": {"kind": "compass", "min_steps": 2, "max_steps": 8},
        "clients": {"count": 9, "data_sizes": 100.0},
        "work": {"batch_size": 10},
        "compute": {"seconds_per_sample": 0.03, "noise": {"kind": "log-normal", "sigma": 0.5}},
    },
    "asynchronous": {"server": {"kind": "asynchronous", "round_s": 0.9}, **CHANNELS},
    "fl-fa": {"server": {"kind": "fl-fa", "per_round": 4, "when_short": "proceed"}, "policy": {"kind": "round-robin"}, **SLOTS},
    "fl-da": {
        "server": {"kind": "fl-da", "per_round": 4, "when_short": "proceed"},
        "policy": {"kind": "bp-index"},
        "peers": {"topology": {"kind": "complete"}, "delay": {"kind": "constant", "value_s": 0.001}},
        "slots": {"rounds": 2, "start": "agreement"},
        "opinions": SLOTS["opinions"],
    },
}


def scenario_of(kind: str, rounds: int = 12) -> dict[str, Any]:
    """Return the tables of a scenario with the server of that kind."""
    world: dict[str, Any] = {
        "name": "features",
        "rounds": rounds,
        "clients": {"count": 9},
        "compute": {"delay": {"kind": "shifted-exponential", "shift_s": 0.1, "mean_excess_s": 0.5}},
        "uplink": {"delay": {"kind": "constant", "value_s": 0.04}},
    }
    return world | SERVERS[kind]
