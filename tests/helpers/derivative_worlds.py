"""Worlds without ties, for derivatives of the end of a run, on every server and on servers of one's own."""

from __future__ import annotations

from typing import Any

from tests.helpers.rough_scenarios import other


def varied(shift_s: float, mean_s: float) -> dict[str, Any]:
    return {"delay": {"kind": "shifted-exponential", "shift_s": shift_s, "mean_excess_s": mean_s}}


WORLD: dict[str, Any] = {
    "name": "derivatives",
    "rounds": 8,
    "seed": 5,
    "clients": {"count": 6},
    "policy": {"kind": "random"},
    "downlink": varied(0.1, 0.2),
    "compute": varied(0.5, 1.0),
    "uplink": varied(0.2, 0.5) | {"channel": {"kind": "bernoulli", "success": 0.7}},
}
CHANNELS: dict[str, Any] = {
    "count": 6,
    "states": {"kind": "stationary", "means": [0.4] * 6},
    **varied(0.1, 0.4),
}
NOBODY_SELECTS = {key: table for key, table in WORLD.items() if key != "policy"}
AGES = NOBODY_SELECTS | {"channels": CHANNELS, "scheduler": {"kind": "random"}, "uplink": varied(0.1, 0.2), "rounds": 20}
ABSENT = {"availability": {"kind": "markov", "mean_on_s": 4.0, "mean_off_s": 4.0}}
QUEUE = WORLD | {"uplink": WORLD["uplink"] | {"sub_channels": 1}}
SLOTS = {"slots": {"rounds": 2}, "opinions": {"synthetic": {"worth": 0.5}, "test": {"kind": "constant", "value_s": 0.3}}}
WORLDS: dict[str, dict[str, Any]] = {
    "synchronous": WORLD | {"server": {"per_round": 4}},
    "whole rounds": WORLD | {"clients": {"count": 12}, "server": {"per_round": 10}},
    "whole rounds, first": WORLD | {"clients": {"count": 12}, "server": {"per_round": 10, "first": 4}},
    "first": WORLD | {"server": {"per_round": 4, "first": 2}},
    "deadline": WORLD | {"server": {"per_round": 4, "deadline_s": 3.0}},
    "queue": QUEUE | {"server": {"per_round": 5}},
    "sub-channels": WORLD
    | {"server": {"per_round": 4}, "channels": CHANNELS, "scheduler": {"kind": "random"}, "uplink": varied(0.1, 0.2)},
    "waits": WORLD | {"server": {"per_round": 5, "when_short": "wait", "first": 2}},
    "absences": WORLD | ABSENT | {"server": {"per_round": 4, "when_short": "wait"}},
    "buffered": WORLD | {"server": {"kind": "buffered", "concurrency": 3, "buffer": 2}},
    "buffered, queue": QUEUE | {"server": {"kind": "buffered", "concurrency": 3, "buffer": 2}},
    "buffered, absences": WORLD | ABSENT | {"server": {"kind": "buffered", "concurrency": 3, "buffer": 2}},
    "buffered, bound": WORLD | {"server": {"kind": "buffered", "concurrency": 3, "buffer": 1, "staleness_bound": 2}},
    "buffered, paced": WORLD | {"server": {"kind": "buffered", "concurrency": 3, "pacing": "latency", "unknown_latency_s": 3.0}},
    "semi-synchronous": WORLD | {"server": {"kind": "semi-synchronous", "per_round": 3, "round_s": 2.0}},
    "safa": NOBODY_SELECTS | {"server": {"kind": "safa", "per_round": 3, "lag_tolerance": 2}},
    "safa, deadline": NOBODY_SELECTS | {"server": {"kind": "safa", "per_round": 4, "deadline_s": 1.5}},
    "compass": NOBODY_SELECTS
    | {
        "clients": {"count": 6, "data_sizes": 100.0},
        "server": {"kind": "compass", "min_steps": 2, "max_steps": 8},
        "work": {"batch_size": 10},
        "compute": varied(0.5, 1.0) | {"seconds_per_sample": 0.01},
    },
    "asynchronous": AGES | {"server": {"kind": "asynchronous"}},
    "asynchronous, whole": AGES | {"server": {"kind": "asynchronous", "wait_for_compute": True}},
    "asynchronous, jammed": AGES
    | {"server": {"kind": "asynchronous"}, "jammers": [{"name": "noise", "law": {"kind": "random"}, "dwell_s": 0.7}]},
    "fl-da": other("policy", "random-set") | {"rounds": 3, "compute": varied(0.5, 1.0)},
    "fl-fa": WORLD | SLOTS | {"server": {"kind": "fl-fa", "per_round": 3}, "policy": {"kind": "super-arm-ucb"}},
    "fl-fa, deadline": WORLD
    | SLOTS
    | {"server": {"kind": "fl-fa", "per_round": 3, "deadline_s": 2.5}, "policy": {"kind": "super-arm-ucb"}},
}
OWN = "tests.helpers.own_servers:"
WORLDS |= {
    "own, quiet": WORLD | {"server": {"kind": OWN + "QuietServer", "per_round": 4, "quiet_s": 0.9}},
    "own, quiet, whole rounds": WORLD
    | {"clients": {"count": 12}, "server": {"kind": OWN + "QuietServer", "per_round": 10, "quiet_s": 0.4}},
    "own, bonus": WORLD | {"server": {"kind": OWN + "QuietServer", "per_round": 4, "bonus_s": 0.3, "least_s": 1.0}},
    "own, bonus, whole rounds": WORLD
    | {"clients": {"count": 12}, "server": {"kind": OWN + "QuietServer", "per_round": 10, "bonus_s": 0.15, "least_s": 0.8}},
    "own, grace": WORLD | {"server": {"kind": OWN + "GraceByQuorum", "per_round": 4, "quorum": 2, "grace_s": 0.7}},
}
_SERVERS: dict[str, dict[str, Any]] = {
    **{name: WORLDS[name] for name in ("buffered", "semi-synchronous", "safa", "compass", "asynchronous", "fl-fa")},
    "synchronous": WORLD | {"server": {"per_round": 4, "when_short": "wait"}},
    "own, quiet": WORLDS["own, quiet"],
    "own, grace": WORLDS["own, grace"],
}
_JAMMED = {
    "channels": CHANNELS,
    "scheduler": {"kind": "random"},
    "uplink": varied(0.1, 0.2),
    "jammers": [{"name": "noise", "law": {"kind": "random"}, "dwell_s": 0.7}],
}
_JAMMED_LINKS = {
    "jammers": [
        {"name": name, "law": {"kind": "random"}, "jams": jams, "at_once": 2, "dwell_s": 0.7}
        for name, jams in (("above", "uplink"), ("below", "downlink"))
    ],
}
for _name, _tables in _SERVERS.items():
    WORLDS.setdefault(f"{_name}, absences", _tables | ABSENT)
    WORLDS.setdefault(f"{_name}, jammed", _tables | _JAMMED)
    WORLDS.setdefault(f"{_name}, own links jammed", _tables | _JAMMED_LINKS)
    if "channels" not in _tables:
        WORLDS.setdefault(f"{_name}, queue", _tables | {"uplink": WORLD["uplink"] | {"sub_channels": 1}})
INEXACT = frozenset(name for name in WORLDS if "absences" in name or "semi-synchronous" in name or name == "compass, jammed")
"""Worlds in which a client's return, a time of the clock or a group's latest time lies on the path."""
