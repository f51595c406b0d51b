"""Outages that hit clients together: worked out by hand, drawn ones against their laws, and the causes in the tables."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from models.laws.availability.presence import Markov
from models.laws.channels import Bernoulli, GilbertElliott
from models.laws.sub_channels.jammers import Sweep
from netsim.core.intervals import Intervals
from netsim.core.streams import Streams
from netsim.network.outages import (
    ClientOutage,
    ClientOutages,
    CutOffs,
    IntervalInRounds,
    IntervalInSeconds,
    MarkovInRounds,
    MarkovInSeconds,
)
from tests.helpers.async_world import Table, world
from tests.helpers.random_worlds import built, copied
from tests.helpers.small_worlds import World, constant


def test_spans_by_hand() -> None:
    intervals = Intervals([(4.0, 6.0), (1.0, 2.0), (2.0, 3.0), (5.0, 7.0)])
    assert list(intervals) == [(1.0, 3.0), (4.0, 7.0)]
    # Half open on both sides: to touch is not to overlap.
    assert [intervals.overlap(a, b) for a, b in [(0, 1), (0, 1.5), (3, 4), (2.5, 9), (7, 8), (6.5, 6.6)]] == [0, 1, 0, 1, 0, 1]
    assert [intervals.overlap(t, t) for t in (0.5, 1.0, 3.0, 4.0, 6.9, 7.0)] == [0, 1, 0, 1, 1, 0]
    intervals.forget(3.0)
    assert list(intervals) == [(4.0, 7.0)]
    intervals.add(8.0)
    assert list(intervals) == [(4.0, 7.0), (8.0, math.inf)]
    intervals.close(8.0)
    assert list(intervals) == [(4.0, 7.0)]
    intervals.add(7.0)
    intervals.close(7.5)
    assert list(intervals) == [(4.0, 7.5)]


LINKS = {"downlink": constant(1, 1, 1), "compute": constant(1, 2, 3), "uplink": constant(1, 1, 1)}


def played(rounds: list[list[int]], *outages: dict[str, Any], **more: Any) -> World:
    return World(rounds, outages=list(outages), **LINKS | more).play()


def test_an_upload_or_a_download_that_overlaps_is_lost_and_named() -> None:
    # Downloads take 0..1; uploads 2..3, 3..4 and 4..5.
    it = played([[0, 1, 2]], {"name": "mast", "from_s": 2.5, "to_s": 3.0}, {"name": "fibre", "from_s": 4.75, "clients": [1, 2]})
    assert it.rows("client", "outcome", "cause", "outcome_s") == [
        (0, "lost", "mast", 3.0),
        (1, "delivered", None, 4.0),
        (2, "lost", "fibre", 5.0),
    ]
    it = played([[0, 1, 2]], {"name": "mast", "from_s": 0.5, "to_s": 0.75, "clients": [0, 2]})
    assert it.rows("client", "outcome", "cause", "outcome_s") == [
        (0, "lost", "mast", 1.0),
        (2, "lost", "mast", 1.0),
        (1, "delivered", None, 4.0),
    ]


def test_the_first_outage_of_the_list_is_the_cause_and_outages_come_before_the_link() -> None:
    lossy = {"uplink": constant(1, 1, 1) | {"channel": {"kind": "bernoulli", "success": [0.0, 0.0, 1.0]}}}
    both = [{"name": "second", "from_s": 2.0, "to_s": 2.5}, {"name": "first", "from_s": 0.0, "to_s": 2.25, "clients": [1]}]
    it = played([[0], [1]], both[0], **lossy)
    assert it.rows("client", "cause") == [(0, "second"), (1, "channel")]
    it = played([[0], [1]], both[1], both[0], **lossy)
    assert it.rows("client", "cause") == [(0, "second"), (1, "channel")]
    it = played([[1]], both[1], both[0], **lossy)
    assert it.rows("cause", "outcome_s") == [("first", 1.0)]


def test_a_group_is_hit_together() -> None:
    tables: dict[str, Any] = {
        "name": "mast",
        "rounds": 2,
        "clients": {"count": 3, "groups": [{"name": "near", "count": 2}, {"name": "far", "count": 1}]},
        "server": {"per_round": 3},
        "policy": {"kind": "all"},
        "compute": constant(1, 2, 3),
        "outages": [{"name": "power", "clients": "near", "from_s": 1.0, "to_s": 3.0}],
    }
    simulation, records = built(tables)
    simulation.run()
    # Uploads take no time: they meet the outage at 1 and 2, and at 4 and 5 no more.
    seen = [(row.round, row.client, row.cause) for row in records.updates]
    assert seen == [(1, 0, "power"), (1, 1, "power"), (1, 2, None), (2, 0, None), (2, 1, None), (2, 2, None)]


def test_an_outage_in_rounds_lasts_from_one_opening_to_another() -> None:
    it = played([[0]] * 5, {"name": "drill", "from_round": 2, "to_round": 4})
    assert it.rows("round", "cause") == [(1, None), (2, "drill"), (3, "drill"), (4, None), (5, None)]
    assert it.rounds("lost") == [(0,), (1,), (1,), (0,), (0,)]
    # Where the clock stands still, rounds go by all the same.
    it = World([[0]] * 5, outages=[{"name": "drill", "from_round": 2, "to_round": 4}]).play()
    assert it.rows("round", "cause") == [(1, None), (2, "drill"), (3, "drill"), (4, None), (5, None)]


def test_a_straggler_is_hit_by_the_outage_of_a_later_round() -> None:
    # Client 2 uploads from 4 to 5. Round 1 ends at its deadline of 4.5, and the outage begins with round 2.
    it = played([[0, 2], [1]], {"name": "drill", "from_round": 2, "to_round": 3}, server={"deadline_s": 4.5})
    assert (1, 2, "lost", "drill", 5.0) in it.rows("round", "client", "outcome", "cause", "outcome_s")


def test_the_asynchronous_server_names_every_cause() -> None:
    good, bad = [1, 1, 1], [0, 1, 1]
    outage = [ClientOutage(name="mast", when=IntervalInRounds(start=2, end=3), clients=2, members=np.array([1]))]
    parameters: dict[str, Any] = {"channel_s": 1.0, "rounds": 2, "outages": outage}
    it = world(scheduler=Table([[0, 1]]), states=[bad, good], **parameters).play()
    assert it.table("cause") == [["sub-channel", None], [None, "mast"]]
    assert it.table("outcome") == [["lost", "delivered"], ["delivered", "lost"]]
    jammer = {"law": Sweep(), "dwell_rounds": 1, "reach": [0]}
    assert world(scheduler=Table([[0, 1]]), states=[good], rounds=1, jammers=[jammer]).play().table("cause") == [["jammed", None]]
    it = world(scheduler=Table([[1, 1]]), states=[good], rounds=1, contention=True).play()
    assert it.table("cause") == [["collided", "collided"]]
    it = world(scheduler=Table([[0, 1]]), states=[good], rounds=1, uplink=Bernoulli(success=np.array([0.0, 1.0]))).play()
    assert it.table("cause") == [["channel", None]]
    it = world(scheduler=Table([[0, 1]]), states=[good], rounds=1, downlink=Bernoulli(success=np.array([1.0, 0.0]))).play()
    assert it.table("cause") == [[None, "channel"]]


def test_a_download_of_the_asynchronous_server_meets_an_outage() -> None:
    outage = ClientOutage(name="mast", when=IntervalInSeconds(start_s=0.5, end_s=0.75), clients=2, members=np.array([0]))
    it = world(scheduler=Table([[0, 1]]), states=[[1, 1, 1]], download_s=1.0, rounds=1, outages=[outage]).play()
    assert it.table("cause") == [["mast", None]]
    assert it.table("outcome") == [["lost", "delivered"]]
    # One that takes no time meets it at its one instant.
    outage = ClientOutage(name="mast", when=IntervalInSeconds(start_s=0.0, end_s=0.75), clients=2, members=np.array([0]))
    it = world(scheduler=Table([[0, 1]]), states=[[1, 1, 1]], rounds=1, outages=[outage]).play()
    assert it.table("cause") == [["mast", None]]


def test_outages_drawn_in_seconds_follow_their_law() -> None:
    """Times up and down are exponential; their means, over n of them, lie within 4.4 standard deviations (1 in 100,000)."""
    when = MarkovInSeconds(presence=Markov(clients=1, mean_on_s=3.0, mean_off_s=0.5), draws=Streams(4)["outage.x"])
    when.reach(70_000.0)
    starts, ends = np.array([interval for interval in when.intervals if interval[1] < math.inf]).T
    down, up = ends - starts, starts[1:] - ends[:-1]
    for lengths, mean in ((down, 0.5), (up, 3.0)):
        assert len(lengths) > 15_000
        assert abs(lengths.mean() - mean) < 4.4 * mean / math.sqrt(len(lengths))
        # The share beyond the mean is 1/e.
        share = math.exp(-1)
        assert abs((lengths > mean).mean() - share) < 4.4 * math.sqrt(share * (1 - share) / len(lengths))
    # Looked up in small steps, they are the same.
    again = MarkovInSeconds(presence=Markov(clients=1, mean_on_s=3.0, mean_off_s=0.5), draws=Streams(4)["outage.x"])
    for now_s in np.arange(0.0, 500.0, 0.37):
        again.reach(float(now_s))
    again.reach(500.0)
    early = [[interval for interval in one.intervals if interval[1] < 490] for one in (again, when)]
    assert early[0] == early[1]


def test_who_is_cut_off_twice_is_so_until_both_are_over_across_a_saved_state() -> None:
    it, other = CutOffs(), CutOffs()
    it.cut([0], 1.0)
    it.cut([0, 1], 2.0)
    other.load_state_dict(copied(it.state_dict()))
    for each in (it, other):
        each.restore([0, 1], 3.0)
        assert [each.destroys(client, 3.5, 4.0) for client in (0, 1)] == [True, False]
        each.restore([0], 5.0)
        assert [each.destroys(0, start_s, start_s + 1.0) for start_s in (0.0, 0.5, 4.5, 5.0)] == [False, True, True, False]


def test_outages_drawn_in_rounds_follow_their_law() -> None:
    """Numbers of rounds are geometric, with standard deviation sqrt(m (m - 1)) at the mean m; within 4.4 of those of the mean."""
    law = GilbertElliott(clients=1, to_bad=1 / 12, to_good=1 / 4)
    when = MarkovInRounds(law=law, draws=Streams(9)["outage.x"])
    rounds = 60_000
    for round in range(1, rounds + 1):
        when.open_round(round, float(round))
    starts, ends = np.array([interval for interval in when.intervals if interval[1] < math.inf]).T
    for lengths, mean in ((ends - starts, 4.0), (starts[1:] - ends[:-1], 12.0)):
        assert lengths.min() >= 1
        assert abs(lengths.mean() - mean) < 4.4 * math.sqrt(mean * (mean - 1) / len(lengths))


def test_one_outage_more_changes_no_other() -> None:
    drawn = {"mean_up_s": 4.0, "mean_down_s": 2.0}
    one = World([[0]], outages=[{"name": "mast", **drawn}])
    two = World([[0]], outages=[{"name": "power", **drawn}, {"name": "mast", **drawn}])
    intervals = {}
    for it in (one, two):
        for outage in it.server.clients.medium.outages._all:
            outage.when.reach(500.0)
            intervals.setdefault(outage.name, []).append(list(outage.when.intervals))
    assert intervals["mast"][0] == intervals["mast"][1] != intervals["power"][0]
    assert len(intervals["mast"][0]) > 50


def test_what_is_past_is_forgotten() -> None:
    it = played([[0, 1, 2]] * 200, {"name": "mast", "mean_up_s": 1.0, "mean_down_s": 0.2})
    outages = it.server.clients.medium.outages
    outages.forget(it.simulation.clock.now)
    (outage,) = outages._all
    assert outage.when.state_dict()["presence"]["sojourn"][0] > 500
    assert len(list(outage.when.intervals)) <= 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: IntervalInSeconds(start_s=-1.0), r"start_s = -1.0: must be >= 0 seconds"),
        (lambda: IntervalInSeconds(start_s=2.0, end_s=2.0), r"end_s = 2.0: must be after the start, 2.0"),
        (lambda: IntervalInRounds(start=0), r"start = 0: must be a round from 1 on"),
        (lambda: IntervalInRounds(start=3, end=3), r"end = 3: must be after the start, 3"),
        (
            lambda: ClientOutage(name="jammed", when=IntervalInRounds(start=1), clients=1),
            r"name = 'jammed': is the name of another",
        ),
        (
            lambda: ClientOutages([ClientOutage(name="a", when=IntervalInRounds(start=1), clients=1)] * 2),
            r"1.name = 'a': is used twice",
        ),
    ],
)
def test_bad_values_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
