"""Opinions on their way: by hand, over arrays as event by event, shared, cut off, and told to who counts energy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from models.laws.availability.presence import Markov
from models.laws.bandwidth.laws import Constant as ConstantBandwidth
from models.laws.bandwidth.laws import Successive
from models.laws.changes import Piecewise, Unchanging
from models.laws.channels import Bernoulli, GilbertElliott
from models.laws.delays import Constant, ShiftedExponential
from netsim.core.clock import Clock
from netsim.core.streams import Streams
from netsim.network.bandwidth_sharing import SharedMedium
from netsim.network.carriers import Carrier, NoCarrier, VaryingLinks
from netsim.network.known_links import KnownLinks
from netsim.network.outages import ClientOutage, ClientOutages, DrawnInSeconds, InSeconds
from netsim.network.resending import Resending
from netsim.network.varying_medium import VaryingMedium
from netsim.servers.close import WaitRule
from netsim.servers.opinions import OpinionUplink
from tests.helpers.peer_world import opinion_uplink
from tests.helpers.random_worlds import copied


def uplink(carrier_on: Callable[[Clock], Carrier], clients: int = 3, delay: Any = None, channel: Any = None, **more: Any) -> Any:
    streams = Streams(1)
    return opinion_uplink(clients=clients, delay=delay, channel=channel, streams=streams, carrier_on=carrier_on, **more)


def sharing(bandwidth: float, size: float = 10.0, clients: int = 3) -> Callable[[Clock], Carrier]:
    return lambda clock: SharedMedium(clock=clock, clients=clients, size_bytes=size, bandwidth_bytes_per_s=bandwidth)


def test_opinions_share_a_bandwidth_by_hand() -> None:
    # 10 bytes each over 10 bytes/s: alone until 0.5 s, two until 1.5 s (client 0 through), then client 1 alone for 0.5 s.
    ready = np.array([100.0, 100.5, 103.0])
    told: list[Any] = []
    sender = uplink(sharing(10.0))
    sender.on_sending = lambda clients, start_s, end_s: told.append((clients.tolist(), start_s.tolist(), end_s.tolist()))
    end_s, arrived = sender.send(1, ready, 99.0)
    assert (end_s, arrived.tolist()) == (104.0, [True] * 3)
    assert told == [([0], [100.0], [101.5]), ([1], [100.5], [102.0]), ([2], [103.0], [104.0])]
    # With the delay before the bytes, the wait for the last test, and an outage that client 1 meets in its delay.
    told.clear()
    when = InSeconds(start_s=100.6, end_s=100.7)
    outages = ClientOutages([ClientOutage(name="mast", when=when, clients=3, members=np.array([1]))])
    sender = uplink(sharing(10.0), delay=Constant(value_s=1.0), wait_s=0.5, outages=outages)
    sender.on_sending = lambda clients, start_s, end_s: told.append((clients.tolist(), start_s.tolist(), end_s.tolist()))
    end_s, arrived = sender.send(1, ready, 99.0)
    assert (end_s, arrived.tolist()) == (103.5, [True, False, False])
    # Client 2 is cut off in its delay.
    assert told == [([0], [100.0], [102.5]), ([1], [100.5], [103.0]), ([2], [103.0], [103.5])]


def test_what_is_lost_takes_part_in_sharing_again() -> None:
    # Nothing gets through: three sendings of 1 s each (alone), 0.25 s apart.
    sender = uplink(sharing(10.0, clients=1), clients=1, channel=Bernoulli(success=0.0), max_resends=2, resend_after_s=0.25)
    end_s, arrived = sender.send(1, np.array([5.0]), 5.0)
    assert (end_s, arrived.tolist()) == (5.0 + 3 * 1.0 + 2 * 0.25, [False])


def test_a_channel_that_changes_in_seconds_goes_on_from_a_saved_state() -> None:
    # Every sub-channel is now Good, now Bad, slot by slot; from 5 s on it becomes Good and stays so.
    def made() -> OpinionUplink:
        laws: list[Any] = [GilbertElliott(clients=8, to_bad=to_bad, to_good=1.0) for to_bad in (1.0, 0.0)]
        channel = Piecewise(laws=laws, starts=[5.0], unit="seconds")
        return OpinionUplink(clients=8, delay=Unchanging(Constant(value_s=0.0)), channel=channel, streams=Streams(1))

    def sent(sender: OpinionUplink, slot: int, now_s: float) -> list[bool]:
        arrived: list[bool] = sender.send(slot, np.full(8, now_s), now_s)[1].tolist()
        return arrived

    first, second = made(), made()
    good = sent(first, 1, 1.0)
    bad = [not one for one in good]
    assert len(set(good)) == 2
    second.load_state_dict(copied(first.state_dict()), 1, 1.0)
    for sender in (first, second):
        heard = [sent(sender, slot, now_s) for slot, now_s in ((2, 2.0), (3, 3.0), (4, 4.0), (5, 5.0))]
        assert heard == [bad, good, bad, [True] * 8]


class Stops(ConstantBandwidth):
    """A trace that ends at 2 s."""

    def ends_s(self, start_s: Any, size_bytes: Any, entities: Any) -> Any:
        ends = super().ends_s(start_s, size_bytes, entities)
        return np.where(ends <= 2.0, ends, math.inf)

    def stops_s(self, entities: Any) -> Any:
        return np.full(len(entities), 2.0)


def test_a_bandwidth_that_ends_loses_what_is_under_way() -> None:
    law: Any = Stops(bytes_per_s=10.0)
    sender = uplink(lambda clock: VaryingLinks(clock=clock, clients=3, law=Unchanging(law), size_bytes=10.0))
    end_s, arrived = sender.send(1, np.array([0.5, 1.5, 3.0]), 0.0)
    assert (end_s, arrived.tolist()) == (3.0, [True, False, False])


def test_a_bandwidth_that_never_comes_is_waited_for_no_longer_than_all_else() -> None:
    class Dead(ConstantBandwidth):
        def ends_s(self, start_s: Any, size_bytes: Any, entities: Any) -> Any:
            return np.where(entities == 1, math.inf, super().ends_s(start_s, size_bytes, entities))

    law: Any = Dead(bytes_per_s=10.0)
    sender = uplink(lambda clock: VaryingLinks(clock=clock, clients=3, law=Unchanging(law), size_bytes=10.0))
    end_s, arrived = sender.send(1, np.array([0.0, 0.0, 3.0]), 0.0)
    assert (end_s, arrived.tolist()) == (4.0, [True, False, True])


def test_the_laws_are_those_of_the_slot_however_often_opinions_may_be_sent() -> None:
    # From slot 5 on a sending takes 3 s in place of 1 s, and none gets through.
    delays: list[Any] = [Constant(value_s=1.0), Constant(value_s=3.0)]
    losses: list[Any] = [Bernoulli(success=1.0), Bernoulli(success=0.0)]
    for resends in (0, 1, 3):
        sender = OpinionUplink(
            clients=2,
            delay=Piecewise(laws=delays, starts=[5.0]),
            channel=Piecewise(laws=losses, starts=[5.0]),
            streams=Streams(1),
            resending=Resending(max_resends=resends),
        )
        found = [sender.send(slot, np.full(2, 10.0), 10.0) for slot in (1, 4, 5)]
        assert [end_s for end_s, _ in found] == [11.0, 11.0, 13.0 + 3.0 * resends]
        assert [arrived.tolist() for _, arrived in found] == [[True] * 2, [True] * 2, [False] * 2]


def test_what_is_under_way_when_the_server_stops_waiting_is_cut_off_and_nothing_is_sent_again() -> None:
    # Each sending takes 1 s and is lost. The server waits up to 5.25 s: client 0 has begun its third sending by then.
    told: list[Any] = []
    sender = uplink(
        lambda clock: NoCarrier(),
        clients=2,
        delay=Constant(value_s=1.0),
        channel=Bernoulli(success=0.0),
        max_resends=9,
        wait_s=1.25,
    )
    sender.on_sending = lambda clients, start_s, end_s: told.extend(zip(clients, start_s, end_s, strict=True))
    end_s, _ = sender.send(1, np.array([3.0, 4.0]), 3.0)
    assert end_s == 5.25
    assert sorted(told) == [(0, 3.0, 4.0), (0, 4.0, 5.0), (0, 5.0, 5.25), (1, 4.0, 5.0), (1, 5.0, 5.25)]


def drawn_outages(clients: int) -> ClientOutages:
    when = DrawnInSeconds(presence=Markov(clients=1, mean_on_s=2.0, mean_off_s=0.5), draws=Streams(3)["outage.x"])
    return ClientOutages([ClientOutage(name="mast", when=when, clients=clients, members=np.arange(0, clients, 2))])


@pytest.mark.parametrize("wait_s", [None, 1.0])
def test_over_arrays_and_one_by_one_are_the_same(wait_s: float | None) -> None:
    clients = 40
    rng = np.random.default_rng(6)
    sizes = rng.integers(1, 30, clients).astype(float)
    steps: Any = Successive(
        laws=[ConstantBandwidth(bytes_per_s=rng.uniform(5, 40, clients)) for _ in range(3)], starts_s=[2.0, 9.0]
    )
    found, seconds = [], []
    for made in (
        lambda clock: KnownLinks(clients=clients, law=Unchanging(steps), size_bytes=sizes),
        lambda clock: VaryingLinks(clock=clock, clients=clients, law=Unchanging(steps), size_bytes=sizes),
        # A link that is so wide that nobody slows down another.
        lambda clock: VaryingMedium(
            clock=clock,
            clients=clients,
            size_bytes=sizes,
            link=Unchanging(ConstantBandwidth(bytes_per_s=1e9)),
            own=Unchanging(steps),
        ),
    ):
        sender = uplink(
            made,
            clients=clients,
            delay=ShiftedExponential(shift_s=0.05, mean_excess_s=0.2),
            channel=Bernoulli(success=0.6),
            max_resends=3,
            resend_after_s=0.1,
            wait_s=wait_s,
            outages=drawn_outages(clients),
        )
        slots = []
        now = 0.0
        on_air = np.zeros(clients)

        def sends(who: Any, start_s: Any, end_s: Any, on_air: Any = on_air) -> None:
            on_air[who] += end_s - start_s

        sender.on_sending = sends
        for slot in range(1, 6):
            ready = now + np.random.default_rng(slot).uniform(0, 1, clients)
            now, arrived = sender.send(slot, ready, now)
            slots.append((now, arrived.tolist()))
        found.append(slots)
        seconds.append(on_air)
    for on_air in seconds[1:]:
        assert on_air == pytest.approx(seconds[0], rel=1e-9)
    for slots in found[1:]:
        assert [arrived for _, arrived in slots] == [arrived for _, arrived in found[0]]
        assert [now for now, _ in slots] == pytest.approx([now for now, _ in found[0]], rel=1e-9)
    heard = [sum(arrived) for _, arrived in found[0]]
    assert 0 < sum(heard) < 5 * clients


@pytest.mark.parametrize(
    ("given", "told"), [({"deadline_s": 0.0}, "deadline_s = 0.0: must be > 0"), ({"first": 0}, "first = 0: must be at least 1")]
)
def test_a_close_that_can_never_come_is_refused_by_name(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=f"^{told}"):
        WaitRule(**given)
