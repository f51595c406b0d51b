"""A small scenario for every kind of server, each with something that could make two attempts differ."""

from __future__ import annotations

from typing import Any

from tests.helpers.rough_scenarios import BUFFERED, COMPASS, NOBODY_SELECTS, other, rough

LEARNER = {
    "data": {"kind": "digits", "samples": 200},
    "network": {"kind": "linear"},
    "optimizer": {"kind": "sgd", "learning_rate": 0.1},
    "max_steps": 1,
}
PEERS: dict[str, Any] = {
    "name": "peers",
    "rounds": 30,
    "clients": {"count": 7},
    "server": {"kind": "peers", "protocol": {"kind": "d-psgd", "timeout_s": 0.75, "retry_s": 0.25}},
    # Constant times: much happens in one instant.
    "compute": {"delay": {"kind": "constant", "value_s": [1.0, 1.0, 0.5, 2.0, 1.0, 0.5, 1.0]}},
    "peers": {
        "topology": {"kind": "ring"},
        "delay": {"kind": "constant", "value_s": 0.5},
        "channel": {"kind": "bernoulli", "success": 0.8},
    },
    "payload": {"up_bytes": 100},
    "availability": {"kind": "markov", "mean_on_s": 20.0, "mean_off_s": 5.0},
    "output": {"messages_table": True},
}
WORLDS: dict[str, dict[str, Any]] = {
    "synchronous": rough(rounds=30),
    "synchronous, training": rough("policy", "clustered-by-similarity", rounds=20),
    "asynchronous, jammed": other("jammer", "reactive"),
    "asynchronous, m-exp3": other("scheduler", "m-exp3"),
    "asynchronous, glr-cucb": other("scheduler", "glr-cucb"),
    "semi-synchronous": rough(rounds=30, server={"kind": "semi-synchronous", "per_round": 4, "round_s": 2.0}),
    "safa, training": NOBODY_SELECTS
    | {"rounds": 30, "server": {"kind": "safa", "per_round": 3, "lag_tolerance": 2, "deadline_s": 1.5}, "learner": LEARNER},
    "compass, training": {key: table for key, table in COMPASS.items() if key != "work"}
    | {"rounds": 30, "clients": {"count": 9}, "learner": LEARNER | {"aggregation": {"kind": "fixed-share", "by": "equal"}}},
    "buffered, training": BUFFERED | {"rounds": 30, "learner": LEARNER},
    "fl-fa": other("policy", "quick-init-ucb"),
    "fl-da": other("policy", "bp-index") | {"output": {"messages_table": True, "beliefs_table": True}, "rounds": 12},
    "peers": PEERS,
}
