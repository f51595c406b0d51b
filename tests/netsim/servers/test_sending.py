"""Opinions on their way: by hand, shared, jammed, cut off, and each as worked out by itself."""

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
from netsim.network.bandwidth.carriers import Carrier, VaryingLinks
from netsim.network.bandwidth.varying_medium import VaryingMedium
from netsim.network.jamming import Dwells, Jammer, Jammers
from netsim.network.outages import ClientOutage, ClientOutages, IntervalInSeconds, MarkovInSeconds
from netsim.network.transport.messages import Star, jammed_links
from netsim.records.sinks import NoRecorder
from netsim.servers.kinds.opinions import OpinionUplink
from netsim.servers.rounds.close import WaitRule
from tests.helpers.peer_world import collected, opinion_uplink
from tests.helpers.random_worlds import copied
from tests.helpers.shared_links import shared_medium


def uplink(carrier_on: Callable[[Clock], Carrier] | None, clients: int = 3, **more: Any) -> Any:
    return opinion_uplink(clients=clients, streams=Streams(1), carrier_on=carrier_on, **({"size_bytes": 10} | more))


def sharing(bandwidth: float, size: float = 10.0, clients: int = 3) -> Callable[[Clock], Carrier]:
    return lambda clock: shared_medium(clock=clock, clients=clients, size_bytes=size, bandwidth_bytes_per_s=bandwidth)


def test_opinions_share_a_bandwidth_by_hand() -> None:
    # 10 bytes each over 10 bytes/s: alone until 0.5 s, two until 1.5 s (client 0 through), then client 1 alone for 0.5 s.
    ready = np.array([100.0, 100.5, 103.0])
    told: list[Any] = []
    sender = uplink(sharing(10.0))
    sender.transport.listen(lambda message: told.append((message.edge, message.sent_s, message.due_s)))
    end_s, arrived = collected(sender, 1, ready, 99.0)
    assert (end_s, arrived.tolist()) == (104.0, [True] * 3)
    assert told == [(0, 100.0, 101.5), (1, 100.5, 102.0), (2, 103.0, 104.0)]
    # With the delay before the bytes, the wait for the last test, and an outage that client 1 meets in its delay.
    told.clear()
    when = IntervalInSeconds(start_s=100.6, end_s=100.7)
    outages = ClientOutages([ClientOutage(name="mast", when=when, clients=3, members=np.array([1]))])
    sender = uplink(sharing(10.0), delay=Constant(value_s=1.0), wait_s=0.5, outages=outages)
    sender.transport.listen(lambda message: told.append((message.edge, message.sent_s, message.due_s)))
    end_s, arrived = collected(sender, 1, ready, 99.0)
    assert (end_s, arrived.tolist()) == (103.5, [True, False, False])
    # Client 2 is cut off in its delay.
    assert told == [(0, 100.0, 102.5), (1, 100.5, 103.0), (2, 103.0, 103.5)]


def test_what_is_lost_takes_part_in_sharing_again() -> None:
    # Nothing gets through: three sendings of 1 s each (alone), 0.25 s apart.
    sender = uplink(sharing(10.0, clients=1), clients=1, channel=Bernoulli(success=0.0), max_resends=2, resend_after_s=0.25)
    end_s, arrived = collected(sender, 1, np.array([5.0]), 5.0)
    assert (end_s, arrived.tolist()) == (5.0 + 3 * 1.0 + 2 * 0.25, [False])


def test_a_channel_that_changes_in_seconds_goes_on_from_a_saved_state() -> None:
    # Every sub-channel is now Good, now Bad, slot by slot; from 5 s on it becomes Good and stays so.
    def made() -> OpinionUplink:
        laws: list[Any] = [GilbertElliott(clients=8, to_bad=to_bad, to_good=1.0) for to_bad in (1.0, 0.0)]
        channel = Piecewise(laws=laws, starts=[5.0], unit="seconds")
        return opinion_uplink(clients=8, channel=channel, streams=Streams(1))

    def sent(sender: OpinionUplink, slot: int, now_s: float) -> list[bool]:
        arrived: list[bool] = collected(sender, slot, np.full(8, now_s), now_s)[1].tolist()
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
    end_s, arrived = collected(sender, 1, np.array([0.5, 1.5, 3.0]), 0.0)
    assert (end_s, arrived.tolist()) == (3.0, [True, False, False])


def test_the_laws_are_those_of_the_slot_however_often_opinions_may_be_sent() -> None:
    # From slot 5 on a sending takes 3 s in place of 1 s, and none gets through.
    delays: list[Any] = [Constant(value_s=1.0), Constant(value_s=3.0)]
    losses: list[Any] = [Bernoulli(success=1.0), Bernoulli(success=0.0)]
    for resends in (0, 1, 3):
        sender = opinion_uplink(
            clients=2,
            delay=Piecewise(laws=delays, starts=[5.0]),
            channel=Piecewise(laws=losses, starts=[5.0]),
            streams=Streams(1),
            max_resends=resends,
        )
        found = [collected(sender, slot, np.full(2, at_s), at_s) for slot, at_s in ((1, 10.0), (4, 20.0), (5, 30.0))]
        assert [end_s for end_s, _ in found] == [11.0, 21.0, 33.0 + 3.0 * resends]
        assert [arrived.tolist() for _, arrived in found] == [[True] * 2, [True] * 2, [False] * 2]


def test_what_is_under_way_when_the_server_stops_waiting_is_cut_off_and_nothing_is_sent_again() -> None:
    # Each sending takes 1 s and is lost. The server waits up to 5.25 s: client 0 has begun its third sending by then.
    told: list[Any] = []
    sender = uplink(
        None,
        clients=2,
        delay=Constant(value_s=1.0),
        channel=Bernoulli(success=0.0),
        max_resends=9,
        wait_s=1.25,
    )
    sender.transport.listen(lambda message: told.append((message.edge, message.sent_s, message.due_s)))
    end_s, _ = collected(sender, 1, np.array([3.0, 4.0]), 3.0)
    assert end_s == 5.25
    assert sorted(told) == [(0, 3.0, 4.0), (0, 4.0, 5.0), (0, 5.0, 5.25), (1, 4.0, 5.0), (1, 5.0, 5.25)]


def drawn_outages(clients: int) -> ClientOutages:
    when = MarkovInSeconds(presence=Markov(clients=1, mean_on_s=2.0, mean_off_s=0.5), draws=Streams(3)["outage.x"])
    return ClientOutages([ClientOutage(name="mast", when=when, clients=clients, members=np.arange(0, clients, 2))])


def by_hand(
    slot: int, ready_s: Any, delays_s: Any, good: Any, ends_s: Callable[..., Any], outages: ClientOutages, limit_s: float
) -> tuple[float, list[bool], Any]:
    """What becomes of the opinions of a slot, worked out client by client: when the server goes on, arrivals, seconds on air."""
    last_s, arrived, on_air = [], [], np.zeros(len(ready_s))
    for client, start_s in enumerate(ready_s):
        time_s, through = start_s, False
        for attempt in range(4):
            begin_s = time_s + (0.1 if attempt else 0.0)
            time_s = ends_s(begin_s + delays_s[attempt][client], client)
            if begin_s < limit_s:
                on_air[client] += min(time_s, limit_s) - begin_s
            through = bool(good[attempt][client]) and outages.cause(client, begin_s, time_s) is None
            if through:
                break
        last_s.append(time_s)
        arrived.append(through)
    end_s = min(max(last_s), limit_s)
    return end_s, [through and time_s <= end_s for through, time_s in zip(arrived, last_s, strict=True)], on_air


@pytest.mark.each_nth(3)
@pytest.mark.parametrize("wait_s", [None, 1.0])
@pytest.mark.parametrize("wide", [False, True])
def test_each_opinion_is_as_worked_out_by_itself(wait_s: float | None, wide: bool) -> None:
    clients, rng = 40, np.random.default_rng(6)
    sizes = np.full(clients, 10.0)
    laws = [ConstantBandwidth(bytes_per_s=rng.uniform(5, 40, clients)) for _ in range(3)]
    steps: Any = Successive(laws=laws, starts_s=[2.0, 9.0])

    def carrier(clock: Clock) -> Carrier:
        if not wide:
            return VaryingLinks(clock=clock, clients=clients, size_bytes=sizes, law=Unchanging(steps))
        # A link that is so wide that no opinion slows down another.
        link = Unchanging(ConstantBandwidth(bytes_per_s=1e9))
        return VaryingMedium(clock=clock, clients=clients, size_bytes=sizes, link=link, own=Unchanging(steps))

    delay, loss = ShiftedExponential(shift_s=0.05, mean_excess_s=0.2), Bernoulli(success=0.6)
    sender = uplink(
        carrier,
        clients=clients,
        delay=delay,
        channel=loss,
        max_resends=3,
        resend_after_s=0.1,
        wait_s=wait_s,
        outages=drawn_outages(clients),
    )
    on_air = np.zeros(clients)

    def sent(message: Any) -> None:
        on_air[message.edge] += message.due_s - message.sent_s

    sender.transport.listen(sent)
    streams, everyone, outages, now = Streams(1), np.arange(clients), drawn_outages(clients), 0.0

    def ends_s(start_s: float, client: int) -> float:
        return float(steps.ends_s(np.array([start_s]), sizes[[client]], np.array([client]))[0])

    for slot in range(1, 6):
        ready = now + np.random.default_rng(slot).uniform(0, 1, clients)
        addresses = [slot * 4 + attempt for attempt in range(4)]
        delays = [delay.quantile(streams["opinion.delay"].uniforms(address, clients), everyone) for address in addresses]
        good = [loss.good(streams["opinion.loss"].uniforms(address, clients), everyone) for address in addresses]
        limit_s = math.inf if wait_s is None else float(ready.max()) + wait_s
        on_air[:] = 0.0
        end_s, arrived, seconds = by_hand(slot, ready, delays, good, ends_s, outages, limit_s)
        now, heard = collected(sender, slot, ready, now)
        assert now == pytest.approx(end_s, rel=1e-9)
        assert heard.tolist() == arrived
        assert on_air == pytest.approx(seconds, rel=1e-9)
        assert sum(arrived) > 0
    assert (sender.transport.resent > 0, sender.transport.in_flight) == (True, 0)


def test_jammers_strike_opinions_under_way_by_hand() -> None:
    # Opinions of 1 s from 0, 0.5 and 2 s; the channels of clients 0 and 2 are jammed over [0.5, 1): only 0's is under way then.
    class Both:
        def choose(self, view: Any) -> Any:
            return np.array([0, 2]) if view.dwell == 2 else np.zeros(0, np.int64)

        def state_dict(self) -> dict[str, Any]:
            return {}

    clock, streams, law = Clock(), Streams(1), Both()
    jammed: Any = jammed_links(Star(3))
    actor = Jammer(name="j", law=law, target=jammed, draws=streams["jammer.j"], dwells=Dwells(dwell_s=0.5), at_once=2)  # type: ignore[arg-type]
    jammers = Jammers(jammers=[actor], clock=clock, recorder=NoRecorder())
    given: dict[str, Any] = {"delay": Constant(value_s=1.0), "jammed": jammed, "jammers": jammers}
    sender = opinion_uplink(clients=3, streams=streams, clock=clock, **given)
    end_s, heard = collected(sender, 1, [0.0, 0.5, 2.0], 0.0)
    assert (end_s, heard.tolist()) == (3.0, [False, True, True])
    assert sender.transport.counts()["jammed"] == 1


@pytest.mark.parametrize(
    ("given", "told"), [({"deadline_s": 0.0}, "deadline_s = 0.0: must be > 0"), ({"first": 0}, "first = 0: must be at least 1")]
)
def test_a_close_that_can_never_come_is_refused_by_name(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=f"^{told}"):
        WaitRule(**given)
