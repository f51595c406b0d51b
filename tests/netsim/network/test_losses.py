"""One order of causes for all that is sent: by hand, of single losses and of arrays, and in worlds where two causes meet."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import netsim
from netsim.network.losses import cause_of_loss, causes_of_losses
from netsim.network.outages import ClientOutage, ClientOutages, IntervalInSeconds

ENDING = {"kind": "trace", "time_s": [0.0], "bytes_per_s": [10.0], "end_s": 2.0, "after_end": "stop"}
MAST = {"name": "mast", "clients": [0], "from_s": 1.0, "to_s": 1.5}


def test_causes_in_their_order() -> None:
    named: list[str | None] = ["mast", "jammed", "trace-end"]
    for first in range(3):
        assert cause_of_loss(*[None] * first, *named[first:], survives=False) == named[first]
    assert cause_of_loss(None, None, None, survives=False) == "channel"
    assert cause_of_loss(None, None, None, survives=True) is None


def test_arrays_name_the_causes_of_single_losses() -> None:
    rng = np.random.default_rng(5)
    count = 300
    outages = ClientOutages(
        [
            ClientOutage(
                name=name, when=IntervalInSeconds(start_s=start_s, end_s=start_s + 3.0), clients=4, members=np.array(members)
            )
            for name, start_s, members in (("mast", 2.0, [0, 1]), ("power", 4.0, [1, 2]))
        ]
    )
    clients, starts = rng.integers(0, 4, count), rng.random(count) * 8.0
    ends, survives, sent = starts + rng.random(count), rng.random(count) < 0.7, rng.random(count) < 0.9
    causes: Any = np.full(count, None)
    for lost, cause in causes_of_losses(sent, survives, outages, clients, starts, ends):
        causes[lost] = cause
    each = zip(sent.tolist(), clients.tolist(), starts.tolist(), ends.tolist(), survives.tolist(), strict=True)
    expected = [
        cause_of_loss(outages.cause(client, start_s, end_s), None, None, good) if is_sent else None
        for is_sent, client, start_s, end_s, good in each
    ]
    assert causes.tolist() == expected
    assert set(expected) == {None, "mast", "power", "channel"}


@pytest.mark.parametrize("direction", ["downlink", "uplink"])
def test_an_outage_comes_before_the_end_of_a_trace_of_an_update(direction: str) -> None:
    # 40 bytes at 10 bytes/s until 2 s: both are lost at 2 s; client 0 has met the outage besides.
    done = netsim.run(
        {
            "name": "ends",
            "rounds": 1,
            "clients": {"count": 2},
            "server": {"per_round": 2},
            "policy": {"kind": "all"},
            "payload": {"down_bytes": 40, "up_bytes": 40},
            direction: {"bandwidth": ENDING},
            "outages": [MAST],
        }
    )
    rows = done.clients.sort_values("client")
    assert rows[["outcome_s", "cause"]].values.tolist() == [[2.0, "mast"], [2.0, "trace-end"]]
