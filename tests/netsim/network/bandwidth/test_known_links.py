"""Transfers over own links: the delay is added first, then the seconds of the bytes, by numbers and by laws alike."""

from __future__ import annotations

import numpy as np
import pytest

from models.laws.bandwidth.laws import Constant as ConstantRate
from models.laws.changes import Unchanging
from models.laws.delays import Constant
from netsim.core.errors import ParameterError
from netsim.core.streams import Streams
from netsim.network.bandwidth.carriers import Carrier
from netsim.network.bandwidth.known_links import FixedLinks, KnownLinks
from netsim.network.draws import Durations

DELAY_S, RATES, SIZE, START_S = 0.1, np.array([3.0, 7.0]), 1.0, 0.2
LINKS: list[Carrier] = [
    FixedLinks(clients=2, bytes_per_s=RATES, size_bytes=SIZE),
    KnownLinks(clients=2, law=Unchanging(ConstantRate(bytes_per_s=RATES)), size_bytes=SIZE),
]


@pytest.mark.parametrize("links", LINKS)
def test_the_bytes_follow_the_delay_to_the_last_bit(links: Carrier) -> None:
    delays = Durations(clients=2, law=Unchanging(Constant(value_s=DELAY_S)), draws=Streams(1)["uplink.delay"])
    draw = links.add_times(delays).draw(1, 0.0, np.arange(2))
    expected = [START_S + DELAY_S + SIZE / rate for rate in RATES.tolist()]
    # Another order of the additions gives another last bit.
    assert expected[1] != START_S + (DELAY_S + SIZE / 7.0)
    assert [draw.ends_at(place, START_S) for place in range(2)] == expected
    found = draw.ends_of(np.array([np.nan, START_S]))
    assert found is not None
    assert np.isnan(found[0])
    assert found[1] == expected[1]
    # After 0.3 s on a sub-channel of another kind.
    assert draw.ends_at(1, START_S, 0.5) == 0.5 + DELAY_S + SIZE / 7.0


def test_other_sizes_take_other_times() -> None:
    clients = np.arange(2)
    answers = LINKS[0].resize(21.0)
    assert answers.alone_s(1, np.zeros(2), clients).tolist() == [7.0, 3.0]
    assert LINKS[0].resize(None).alone_s(1, np.zeros(2), clients).tolist() == (SIZE / RATES).tolist()
    with pytest.raises(ParameterError, match="size_bytes"):
        LINKS[0].resize(0.0)
