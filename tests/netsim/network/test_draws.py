"""One scenario, one outcome: what a channel with memory does is asked of the channel, by whichever server and between peers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from models.laws.channels import Bernoulli, GilbertElliott, Perfect
from models.laws.delays import Constant
from netsim.core.protocols import FloatArray, IntArray
from netsim.core.rows import RoundRow
from netsim.network.draws import SkippedDraws, loses_nothing, takes_no_time
from tests.helpers.random_worlds import built

# All sub-channels turn Bad and stay so. From round 4 on no Good one would turn Bad any more: in the long run nothing is lost.
BURST = {
    "channel": {"kind": "gilbert-elliott", "to_bad": 1.0, "to_good": 1e-9},
    "changes": [{"at_round": 4, "channel": {"to_bad": 0.0}}],
}
SERVERS: dict[str, dict[str, Any]] = {
    "synchronous": {"server": {"per_round": 4}, "policy": {"kind": "all"}},
    "asynchronous": {
        "server": {"kind": "asynchronous"},
        "channels": {"count": 4},
        "scheduler": {"kind": "round-robin"},
    },
    "semi-synchronous": {"server": {"kind": "semi-synchronous", "per_round": 4, "round_s": 1.0}, "policy": {"kind": "random"}},
    "buffered": {"server": {"kind": "buffered", "concurrency": 4, "buffer": 4}, "policy": {"kind": "random"}},
    "safa": {"server": {"kind": "safa", "per_round": 4}},
    "compass": {
        "server": {"kind": "compass"},
        "clients": {"count": 4, "data_sizes": 100.0},
        "work": {"batch_size": 4},
        "compute": {"samples_per_s": 20.0},
    },
    "fl-fa": {
        "server": {"kind": "fl-fa", "per_round": 4},
        "slots": {"rounds": 1},
        "policy": {"kind": "round-robin"},
        "opinions": {"synthetic": {"worth": 0.5, "own": 0.2, "noise": 0.02}},
    },
}


def rounds_of(tables: dict[str, Any]) -> list[RoundRow]:
    simulation, records = built({"name": "burst", "rounds": 8, "clients": {"count": 4}} | tables)
    simulation.run()
    return records.rounds


@pytest.mark.parametrize("link", ["downlink", "uplink"])
@pytest.mark.parametrize("kind", sorted(SERVERS))
def test_bad_channels_stay_bad_though_they_lose_nothing_in_the_long_run(kind: str, link: str) -> None:
    rows = rounds_of(SERVERS[kind] | {link: BURST})
    assert len(rows) == 8
    assert [(row.delivered, row.lost) for row in rows] == [(0, 4)] * 8


def test_links_between_peers_stay_bad_though_they_lose_nothing_in_the_long_run() -> None:
    rows = rounds_of(
        {
            "server": {"kind": "fl-da", "per_round": 2},
            "slots": {"rounds": 1, "start": "agreement"},
            "policy": {"kind": "bp-index"},
            "opinions": {"synthetic": {"worth": 0.5, "own": 0.2, "noise": 0.02}},
            "peers": {"topology": {"kind": "complete"}, "speed_km_per_s": 1e5} | BURST,
        }
    )
    assert [row.messages_delivered for row in rows] == [0] * 8
    assert all((row.messages_lost or 0) > 0 for row in rows)


def test_opinions_are_lost_on_channels_that_stay_bad() -> None:
    opinions = SERVERS["fl-fa"]["opinions"] | BURST
    assert [row.opinions_missing for row in rounds_of(SERVERS["fl-fa"] | {"opinions": opinions})] == [4] * 8


class _Counted(Constant):
    """A constant that counts how often its mean is asked for."""

    asked = 0

    def mean_s(self, entities: IntArray) -> FloatArray:
        self.asked += 1
        return super().mean_s(entities)


def test_the_rule_asks_the_law() -> None:
    assert takes_no_time(Constant(value_s=0.0), 3)
    assert not takes_no_time(Constant(value_s=np.array([0.0, 0.0, 1e-9])), 3)
    assert takes_no_time(Constant(value_s=np.array([0.0, 0.0, 1e-9])), 2)
    assert loses_nothing(Perfect(), 3)
    assert loses_nothing(Bernoulli(success=1.0), 3)
    assert not loses_nothing(Bernoulli(success=np.array([1.0, 1.0, 0.999])), 3)
    kept = GilbertElliott(clients=3, to_bad=0.0, to_good=1.0)
    assert (kept.success_probability(np.arange(3)) == 1.0).all()
    assert not loses_nothing(kept, 3)


def test_the_rule_is_asked_once_a_law() -> None:
    first, second = _Counted(value_s=0.0), _Counted(value_s=1.0)
    spared: SkippedDraws[Any] = SkippedDraws(takes_no_time, 5)
    assert [spared.may_skip(law) for law in (first, first, second, second, first)] == [True, True, False, False, True]
    assert (first.asked, second.asked) == (2, 1)
