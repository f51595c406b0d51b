"""Messages between clients over a bandwidth that changes in time: by hand, and as with a number where it does not change."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from models.laws.bandwidth.laws import Constant as ConstantBandwidth
from models.laws.bandwidth.laws import Successive
from models.laws.changes import Piecewise, Unchanging
from models.laws.channels import Bernoulli
from models.laws.delays import Constant, ShiftedExponential
from models.peers.topologies import random_geometric
from netsim.core.clock import Clock
from netsim.core.streams import Streams
from netsim.network.transport.link_outages import Outage, Outages
from netsim.network.transport.message_draws import EdgeDraws
from netsim.network.transport.messages import Message
from netsim.network.transport.transport import Transport
from netsim.peers.belief.exchange import BeliefRules
from netsim.peers.consensus import StartRule
from tests.helpers.peer_world import FOUR, four, links_between, world

ONE = BeliefRules(exchanges=1, message_bytes=10)


def steps(starts_s: list[float], *bytes_per_s: Any) -> Any:
    return Successive(laws=[ConstantBandwidth(bytes_per_s=one) for one in bytes_per_s], starts_s=starts_s)


def test_a_bandwidth_that_changes_under_a_message_by_hand() -> None:
    # Ten bytes after a delay of 0.5 s: 2 s at 5 bytes/s; from 1.5 s on 10 bytes/s (client 0), or 2.5 bytes/s (the others).
    law = steps([1.5], 5.0, np.array([10.0, 2.5, 2.5, 2.5]))
    w = world(four(), per_round=1, belief=ONE, record=True, bandwidth=Unchanging(law), delay=Constant(value_s=0.5))
    w.run(1, np.full(4, 0.5))
    ends = {(source, target): end for _, source, target, _, end in w.rows("belief")}
    # 5 bytes by 1.5 s; the rest takes 0.5 s, or 2 s; then the flight, 1 s between 0 and 1, 2 s between 1 and 2.
    assert (ends[0, 1], ends[1, 0], ends[1, 2]) == (3.0, 4.5, 5.5)


def test_a_bandwidth_that_ends_loses_what_is_under_way_by_name() -> None:
    class Ends(ConstantBandwidth):
        def ends_s(self, start_s: Any, size_bytes: Any, entities: Any) -> Any:
            ends = super().ends_s(start_s, size_bytes, entities)
            return np.where((ends <= 1.0) | (entities > 0), ends, math.inf)

        def stops_s(self, entities: Any) -> Any:
            return np.where(entities > 0, math.inf, 1.0)

    law = Unchanging(Ends(bytes_per_s=5.0))
    w = world(four(), per_round=1, belief=ONE, record=True, bandwidth=law, max_resends=1, resend_after_s=0.25)
    w.run(1, np.full(4, 0.5))
    told = [(row.resend, row.sent_s, row.end_s, row.cause) for row in w.recorder.messages if (row.source, row.target) == (0, 1)]
    # The second sending is lost as it begins.
    assert [row for row in told if row[3]][:2] == [(0, 0.0, 1.0, "trace-end"), (1, 1.25, 1.25, "trace-end")]
    assert all(row.cause is None for row in w.recorder.messages if row.source > 0)


@pytest.mark.parametrize("seed", range(3))
def test_a_law_that_does_not_change_is_as_a_number(seed: int) -> None:
    graph = random_geometric(clients=12, generator=np.random.default_rng(seed), radius_km=0.5)
    rates = np.random.default_rng(seed).uniform(100, 2000, 12)
    found = []
    for given in ({"bandwidth_bytes_per_s": rates}, {"bandwidth": Unchanging(ConstantBandwidth(bytes_per_s=rates))}):
        w = world(
            graph,
            per_round=3,
            delay=ShiftedExponential(shift_s=0.01, mean_excess_s=0.02),
            channel=Bernoulli(success=0.8),
            max_resends=2,
            start=StartRule(deadline_s=3.0),
            **given,
        )
        w.links.count_bytes()
        outcome = w.run(1, np.random.default_rng(seed).random(12))
        w.clock.run()  # until the bytes of all messages are through
        sent_s, received_s = w.links.airtime_s()
        found.append((outcome, w.links.sent, w.links.lost, w.links.sent_bytes, sent_s, received_s))
    (first, *counts, sent_s, received_s), (second, *others, sent_too_s, received_too_s) = found
    assert counts == others
    assert first.duration_s == pytest.approx(second.duration_s, rel=1e-12)
    assert first.members.tolist() == second.members.tolist()
    np.testing.assert_allclose(sent_s, sent_too_s, rtol=1e-9)
    np.testing.assert_allclose(received_s, received_too_s, rtol=1e-9)


def test_there_is_no_closed_form() -> None:
    with pytest.raises(ValueError, match=r"engine = 'wave'"):
        world(four(), per_round=1, engine="wave", bandwidth=Unchanging(steps([9.0], 5.0, 6.0))).run(1, np.full(4, 0.5))


class Hears:
    """A handler that notes when its messages arrive."""

    live = True

    def __init__(self, links: Transport, streams: Streams) -> None:
        self.clock, self.draws = links.clock, EdgeDraws(links, "gossip", streams)
        self.heard: list[tuple[int, Any, float]] = []

    def on_arrival(self, message: Message) -> None:
        self.heard.append((message.edge, message.content, self.clock.now))

    def on_loss(self, message: Message) -> None:
        """No message is lost."""


def hearing(**given: Any) -> tuple[Transport, Hears]:
    streams, clock = Streams(1), Clock()
    links = links_between(clock, four(), streams, **({"speed_km_per_s": math.inf} | given))
    hears = Hears(links, streams)
    hears.draws.open_slot(1, 0.0)
    return links, hears


def edge_of(links: Transport, source: int, target: int) -> int:
    (edge,) = [e for e in range(links.graph.edges) if (links.sources[e], links.targets[e]) == (source, target)]
    return edge


def test_messages_share_a_bandwidth_by_hand() -> None:
    # 10 bytes/s in all. Two messages of 10 bytes at 5 a second each; a third of 5 bytes of one of the same senders comes at 1 s:
    # 3.33 each, so that the third ends at 2.5 s, and the others, with no byte left, at the same time.
    links, hears = hearing(shared=Unchanging(ConstantBandwidth(bytes_per_s=10.0)))
    a, b = edge_of(links, 0, 1), edge_of(links, 1, 2)
    links.send(hears, [a, b], 1, 10, "long")
    links.clock.call_at(1.0, lambda _: links.send(hears, [a], 2, 5, "short"))
    links.clock.run()
    assert sorted((edge, said) for edge, said, _ in hears.heard) == sorted([(a, "long"), (b, "long"), (a, "short")])
    assert [time_s for _, _, time_s in hears.heard] == pytest.approx([2.5, 2.5, 2.5])
    assert (links.in_flight, links.delivered) == (0, 3)


def test_a_bandwidth_that_changes_in_rounds_acts_on_messages_under_way() -> None:
    # 10 bytes at 5 a second; slot 2 opens at 1 s, with 1 byte a second: the other 5 bytes take 5 s.
    laws = [ConstantBandwidth(bytes_per_s=5.0), ConstantBandwidth(bytes_per_s=1.0)]
    links, hears = hearing(bandwidth=Piecewise(laws=laws, starts=[2.0], unit="rounds"))
    links.send(hears, [edge_of(links, 0, 1)], 1, 10)
    links.clock.call_at(1.0, lambda _: links.open_slot(2, 1.0))
    links.clock.run()
    assert [time_s for _, _, time_s in hears.heard] == [6.0]


@pytest.mark.parametrize(
    ("kind", "at_s"), [("shared", 0.25), ("shared", 1.0), ("shared", 2.6), ("bandwidth", 1.0), ("bandwidth", 2.45)]
)
def test_messages_in_flight_are_saved_with_their_content(kind: str, at_s: float) -> None:
    # After a delay of 0.5 s the bytes, and then a flight of 1 or 2 s: each stage is saved once.
    given: dict[str, Any] = {kind: Unchanging(ConstantBandwidth(bytes_per_s=10.0)), "speed_km_per_s": 1.0}
    given["delay"] = Constant(value_s=0.5)
    links, hears = hearing(**given)
    edges = [edge_of(links, 0, 1), edge_of(links, 1, 2)]
    links.send(hears, edges, 1, 10, (3, "word"))
    links.clock.run(until=at_s)
    state = links.state_dict()
    later, again = hearing(**given)
    later.handlers["gossip"] = again
    later.clock.start_at(at_s)
    later.load_state_dict(state, 1, at_s)
    for one in (links, later):
        one.clock.run()
    assert again.heard == hears.heard
    assert [said for _, said, _ in again.heard] == [(3, "word")] * 2
    assert (later.delivered, later.in_flight) == (2, 0)


@pytest.mark.parametrize("anywhere", [False, True])
@pytest.mark.parametrize(("delay_s", "futile", "delivered"), [(1.0, False, 1), (1.5, True, 0)])
def test_a_message_that_ends_as_its_link_goes_down_for_ever_is_worth_waiting_for(
    anywhere: bool, delay_s: float, futile: bool, delivered: int
) -> None:
    down = Outages(graph=four(), outages=[Outage(start_s=1.0, links=list(FOUR))])
    links, hears = hearing(outages=down, delay=Constant(value_s=delay_s))
    said = []
    # Before the arrival of the same instant, because it is on the clock first.
    links.clock.call_at(1.0, lambda _: said.append((links.in_flight, links.is_futile(anywhere=anywhere))))
    links.send(hears, [edge_of(links, 0, 1)], 1, 10)
    links.clock.run()
    assert said == [(1, futile)]
    assert links.delivered == delivered
