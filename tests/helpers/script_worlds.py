"""Scenarios of every kind of server for scripts to act on."""

from __future__ import annotations

from typing import Any

from netsim.core.rows import UpdateRow
from tests.helpers.memory_recorder import MemoryRecorder
from tests.helpers.scripted import recorded

BASE: dict[str, Any] = {
    "name": "acts",
    "rounds": 12,
    "clients": {"count": 4},
    "downlink": {"delay": {"kind": "constant", "value_s": 0.1}},
    "compute": {"delay": {"kind": "constant", "value_s": [0.5, 0.7, 0.9, 1.1]}},
    "uplink": {"delay": {"kind": "constant", "value_s": 0.6}},
    "channels": {"count": 4},
    "scheduler": {"kind": "round-robin"},
}


SLOTS: dict[str, Any] = {
    "slots": {"rounds": 3},
    "opinions": {"synthetic": {"worth": 0.5}, "test": {"kind": "constant", "value_s": 0.3}},
}


PEERS: dict[str, Any] = {
    "peers": {"topology": {"kind": "complete"}, "delay": {"kind": "constant", "value_s": 0.05}},
    "belief": {},
    "gossip": {},
    "output": {"messages_table": True},
}


SERVERS: dict[str, dict[str, Any]] = {
    "synchronous": {"server": {"per_round": 3}, "policy": {"kind": "random"}},
    "semi-synchronous": {"server": {"kind": "semi-synchronous", "per_round": 3, "round_s": 1.5}, "policy": {"kind": "random"}},
    "buffered": {"server": {"kind": "buffered", "concurrency": 3, "buffer": 2}, "policy": {"kind": "random"}},
    "safa": {"server": {"kind": "safa", "per_round": 3}},
    "compass": {
        "server": {"kind": "compass", "min_steps": 2, "max_steps": 8},
        "rounds": 24,
        "clients": {"count": 4, "data_sizes": 100.0},
        "work": {"batch_size": 10},
        "compute": BASE["compute"] | {"seconds_per_sample": [1e-9, 0.009, 0.01, 0.014]},
    },
    "asynchronous": {"server": {"kind": "asynchronous", "round_s": 2.0}},
    "fl-fa": {"server": {"kind": "fl-fa", "per_round": 4, "when_short": "proceed"}, "policy": {"kind": "random-set"}, **SLOTS},
    "fl-da": {
        "server": {"kind": "fl-da", "per_round": 4, "when_short": "proceed"},
        "policy": {"kind": "bp-index"},
        **SLOTS,
        **PEERS,
    },
}
"""Runs of more than 15 s, whose uploads take 0.6 s on sub-channels that lose nothing."""


UNCERTAIN = ("late", "aborted", "in_flight")
"""Attempts that were cut off before it was settled what became of them."""


def study(server: str, **more: Any) -> dict[str, Any]:
    return BASE | SERVERS[server] | more


def met(row: UpdateRow, start_s: float, end_s: float) -> bool:
    """Whether an upload was on its way at any instant of an interval."""
    return row.upload_start_s < end_s and start_s < row.upload_end_s


def during(tables: dict[str, Any], act: Any, start_s: float = 5.05, end_s: float = 9.05) -> MemoryRecorder:
    """What a run records in which `act` of the world, from one time to another, holds; `act` gives what takes it back."""

    def script(world):
        yield world.until_time(start_s)
        back = act(world)
        yield world.until_time(end_s)
        back()

    rows = recorded(tables, script)
    assert rows.updates[-1].selected_s > end_s, "the run is too short to see that it ends"
    return rows
