"""The critical path by derivatives: a run ends later by as much as a phase takes longer if its exact path holds the phase.

Where the path does not hold the phase, and all of it is exact, the run does not end later.
"""

from __future__ import annotations

from typing import Any

import pytest

from analysis.stragglers.critical_path import critical_path
from analysis.stragglers.records import run_records
from tests.helpers.longer_phases import LONGER_S, Phase, end_s, played
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
PHASES = ("download", "compute", "upload")
INEXACT = ("absences", "buffered, absences", "semi-synchronous")
"""Worlds in which a client's return, or a time of the clock, lies on the path."""


@pytest.mark.parametrize("name", WORLDS)
def test_the_path_holds_what_moves_the_end(name: str) -> None:
    tables = WORLDS[name]
    view = run_records(played(tables))
    path, was_s = critical_path(view), end_s(tables)
    assert path["exact"].all() == (name not in INEXACT)
    held = path[path["exact"] & path["attempt"].notna()]
    attempts = view.attempts.set_index("number")
    on_path = {(phase, int(number)) for phase, number in zip(held["phase"], held["attempt"], strict=True)}
    everything = {(phase, number) for phase in PHASES for number in attempts.index}
    others = sorted(everything - on_path)[:: max(1, len(everything) // 6)] if path["exact"].all() else []
    for phase, number in [*sorted(on_path)[:: max(1, len(on_path) // 6)], *others]:
        address = _address(phase, number, attempts)
        moved = (end_s(tables, address) - was_s) / LONGER_S
        expected = sum(address == _address(*one, attempts) for one in on_path)
        assert moved == pytest.approx(expected, abs=1e-3), (address, number)


@pytest.mark.parametrize("name", [name for name in WORLDS if name not in INEXACT])
def test_a_phase_that_is_longer_in_every_round_moves_the_end_as_often_as_the_path_holds_it(name: str) -> None:
    tables = WORLDS[name]
    held = critical_path(run_records(played(tables))).groupby(["phase", "client"])["attempt"].nunique()
    was_s = end_s(tables)
    most = held[held.index.isin(PHASES, level="phase")].sort_values().index[-3:]
    for phase, client in [*most, ("compute", 0)]:
        moved = (end_s(tables, Phase(phase, None, int(client))) - was_s) / LONGER_S
        assert moved == pytest.approx(held.get((phase, client), 0), abs=2e-3), (phase, client)


def _address(phase: str, number: int, attempts: Any) -> Phase:
    """Return the address of the draw of a phase: an upload is drawn for the attempt, what comes before for the update."""
    attempt = attempts.loc[number]
    started = attempt["round"] if attempt["started_round"] != attempt["started_round"] else attempt["started_round"]
    return Phase(phase, int(attempt["round"] if phase == "upload" else started), int(attempt["client"]))
