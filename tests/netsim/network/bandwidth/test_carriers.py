"""What carries bytes over time: own links and a shared one whose bandwidths change; by hand, and in exact arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.laws.bandwidth.laws import Constant, Successive
from models.laws.bandwidth.traces import AfterEnd, Trace
from models.laws.changes import Piecewise, Unchanging
from netsim.core.clock import Clock
from netsim.core.protocols import BandwidthLaw, Timeline
from netsim.core.streams import Stream
from netsim.network.bandwidth.carriers import Carrier, VaryingLinks
from netsim.network.bandwidth.sharing import SharedMedium
from netsim.network.bandwidth.varying_medium import VaryingMedium, fair_level
from tests.helpers.shared_links import shared_medium

DRAWS = Stream(seed=1, name="test")


def steps(times: list[float], rates: list[float], end_s: float | None = None, after_end: AfterEnd = "hold") -> Trace:
    return Trace(clients=1, draws=DRAWS, time_s=times, bytes_per_s=rates, end_s=end_s, after_end=after_end)


class Bench:
    """A carrier by itself: who joins and leaves when, and when each message ends or is lost."""

    def __init__(self, make: Callable[[Clock], Carrier]) -> None:
        self.make = make
        self.clock = Clock()
        self.carrier = make(self.clock)
        self.ends: list[tuple[int, float]] = []
        self.lost: list[tuple[int, float]] = []
        self._listen()

    def _listen(self) -> None:
        self.port = self.carrier.port("message")
        self.port.listen(
            lambda client, cause: (self.lost if cause else self.ends).append((client, self.clock.now)),
        )

    def join(self, client: int, at_s: float) -> Bench:
        self.clock.call_at(at_s, lambda one: self.port.join(one, one), client)
        return self

    def leave(self, client: int, at_s: float) -> Bench:
        self.clock.call_at(at_s, lambda one: self.port.leave(one) if one in self.port else None, client)
        return self

    def open_round(self, round: int, at_s: float) -> Bench:
        self.clock.call_at(at_s, lambda one: self.carrier.open_round(one, at_s), round)
        return self

    def play(self, until_s: float | None = None) -> list[tuple[int, float]]:
        self.clock.run(until_s)
        return self.ends

    def restore(self, round: int = 1) -> None:
        """Go on from the saved state, on a new clock."""
        state, now = self.carrier.state_dict(), self.clock.now
        self.clock = Clock()
        self.carrier = self.make(self.clock)
        self.clock.start_at(now)
        self.carrier.load_state_dict(state, round, now)
        self._listen()


def links(law: BandwidthLaw | Timeline[BandwidthLaw], **given: Any) -> Bench:
    timeline: Any = law if hasattr(law, "at") else Unchanging(law)
    return Bench(lambda clock: VaryingLinks(clock=clock, law=timeline, **({"clients": 8, "size_bytes": 100} | given)))


def medium(link: BandwidthLaw | Timeline[BandwidthLaw], own: Any = None, **given: Any) -> Bench:
    timeline: Any = link if hasattr(link, "at") else Unchanging(link)
    own = Unchanging(own) if own is not None and not hasattr(own, "at") else own
    keywords = {"clients": 8, "size_bytes": 100} | given
    return Bench(lambda clock: VaryingMedium(clock=clock, link=timeline, own=own, **keywords))


def test_two_uploads_share_a_link_whose_rate_halves_on_the_way() -> None:
    # Until 1 s A and B get 50 of the 100 bytes a second each. From then on 25 each: the other 50 take 2 s.
    assert medium(steps([0.0, 1.0], [100.0, 50.0])).join(0, 0.0).join(1, 0.0).play() == [(0, 3.0), (1, 3.0)]
    # B comes at 0.5 s, when A has 50; at 1 s they have 75 and 25. A is through at 2 s with B at 50, which takes 1 s alone.
    assert medium(steps([0.0, 1.0], [100.0, 50.0])).join(0, 0.0).join(1, 0.5).play() == [(0, 2.0), (1, 3.0)]


def test_own_limits_that_change() -> None:
    # A alone has 10 bytes a second until 2 s, then as much as the link. Until 2 s B gets the other 90: through after 100 / 90 s.
    own = Successive(laws=[Constant(bytes_per_s=np.array([10.0, 1e3])), Constant(bytes_per_s=1e3)], starts_s=[2.0])
    ends = medium(Constant(bytes_per_s=100.0), own).join(0, 0.0).join(1, 0.0).play()
    assert ends == [(1, pytest.approx(100 / 90)), (0, pytest.approx(2.8))]


def test_a_link_that_carries_nothing_for_a_while() -> None:
    pause = steps([0.0, 0.5, 2.0], [100.0, 0.0, 100.0])
    assert medium(pause).join(0, 0.0).play() == [(0, 2.5)]
    assert medium(Constant(bytes_per_s=100.0), pause).join(0, 0.0).play() == [(0, 2.5)]
    assert links(pause).join(0, 0.0).play() == [(0, 2.5)]


def test_who_leaves_leaves_the_share_to_the_others() -> None:
    bench = medium(steps([0.0, 1.0], [100.0, 50.0])).join(0, 0.0).join(1, 0.0).leave(1, 1.0)
    assert bench.play() == [(0, 2.0)]
    assert bench.lost == []
    assert links(Constant(bytes_per_s=100.0)).join(0, 0.0).leave(0, 0.5).join(0, 0.75).play() == [(0, 1.75)]


@pytest.mark.parametrize("shared", [False, True])
def test_what_is_under_way_as_a_trace_ends_is_lost(shared: bool) -> None:
    law = steps([0.0], [100.0], end_s=1.5, after_end="stop")
    if shared:
        # 75 bytes each until the end.
        bench = medium(law).join(0, 0.0).join(1, 0.0).join(2, 2.0)
        assert bench.play() == []
        assert bench.lost == [(0, 1.5), (1, 1.5), (2, 2.0)]
        bench = medium(Constant(bytes_per_s=100.0), law).join(0, 0.0).join(1, 0.25)
    else:
        bench = links(law).join(0, 0.0).join(1, 1.0).join(2, 2.0)
        assert bench.play() == [(0, 1.0)]
    assert bench.play() == ([] if shared else [(0, 1.0)])
    assert bench.lost == ([(0, 1.5), (1, 1.5)] if shared else [(1, 1.5), (2, 2.0)])


def changing(*rates: Any) -> Piecewise[BandwidthLaw]:
    laws: list[BandwidthLaw] = [Constant(bytes_per_s=rate) for rate in rates]
    return Piecewise(laws=laws, starts=[float(round) for round in range(2, len(rates) + 1)])


def test_a_change_of_round_times_again_what_is_under_way() -> None:
    # 100 bytes a second until round 2 opens at 0.25 s, 50 until round 3 at 0.75 s, then 200.
    for bench in (links(changing(100.0, 50.0, 200.0)), medium(changing(100.0, 50.0, 200.0))):
        bench.join(0, 0.0).open_round(2, 0.25).open_round(3, 0.75)
        assert bench.play() == [(0, 1.0)]
    own = medium(Constant(bytes_per_s=1e3), changing(100.0, 50.0, 200.0)).join(0, 0.0).open_round(2, 0.25).open_round(3, 0.75)
    assert own.play() == [(0, 1.0)]


@pytest.mark.parametrize("at_s", [0.1, 0.25, 0.6, 0.75, 0.9])
def test_a_saved_state_goes_on(at_s: float) -> None:
    law = Successive(laws=[Constant(bytes_per_s=100.0), Constant(bytes_per_s=30.0)], starts_s=[0.7])
    stopping = steps([0.0], [1.0], end_s=1.0, after_end="stop")
    for bench, whole in (
        (links(law), links(law)),
        (medium(law, Constant(bytes_per_s=70.0)), medium(law, Constant(bytes_per_s=70.0))),
        (links(stopping), links(stopping)),
    ):
        for one in (bench, whole):
            one.join(0, 0.0).join(1, 0.05)
        bench.play(at_s)
        bench.restore()
        assert bench.play() == whole.play()
        assert bench.lost == whole.lost
        assert len(whole.ends + whole.lost) == 2


def test_alone_nobody_shares() -> None:
    law = steps([0.0, 1.0], [100.0, 50.0])
    own = steps([0.0, 2.0], [80.0, 10.0])
    starts, who = np.array([0.0, 0.5]), np.array([0, 0])
    for bench in (links(law), medium(law)):
        assert bench.carrier.alone_s(1, starts, who).tolist() == [1.0, 1.5]
    # 80 bytes by 1 s, then 50 a second: 0.4 s; from 0.5 s on 40 by 1 s, 50 by 2 s, and 10 in a second.
    assert medium(law, own).carrier.alone_s(1, starts, who) == pytest.approx([1.4, 2.5])
    ending = steps([0.0], [10.0], end_s=5.0, after_end="stop")
    assert medium(law, ending).carrier.alone_s(1, np.zeros(1), np.zeros(1, np.int64)).tolist() == [math.inf]


def test_alone_the_bandwidths_are_those_of_the_round_and_the_second() -> None:
    # 100 bytes take 1 s in round 1 and 2 s from round 2 on, be it the link that slows down or the client's own.
    who, wide = np.zeros(1, np.int64), Constant(bytes_per_s=1e3)
    for bench in (medium(changing(100.0, 50.0)), medium(wide, changing(100.0, 50.0))):
        assert [bench.carrier.alone_s(round, np.zeros(1), who).item() for round in (1, 2)] == [1.0, 2.0]
    # The client's own slows down at 0.5 s: 50 bytes by then, and 50 in another second.
    slower: list[BandwidthLaw] = [Constant(bytes_per_s=100.0), Constant(bytes_per_s=50.0)]
    assert medium(wide, Piecewise(laws=slower, starts=[0.5], unit="seconds")).join(0, 0.0).play() == [(0, 1.5)]


LIMITS = st.lists(st.one_of(st.just(math.inf), st.integers(0, 40).map(float)), min_size=1, max_size=30)


@given(limits=LIMITS, capacity=st.integers(0, 300))
@settings(max_examples=100)
def test_the_level_fills_the_link_or_reaches_every_limit(limits: list[float], capacity: int) -> None:
    given_ = np.array(limits)
    level = fair_level(given_, float(capacity))
    if given_.sum() <= capacity:
        assert level == math.inf
    else:
        assert np.minimum(given_, level).sum() == pytest.approx(capacity, abs=1e-9)


def exact(joins: list[int], sizes: list[int], link: list[int], own: list[list[int]], length: Fraction) -> dict[int, Fraction]:
    """Every end, in rational numbers: traces of steps of equal `length`, repeated; progressive filling between events."""
    left: dict[int, Fraction] = {}
    ends: dict[int, Fraction] = {}
    now, pending = Fraction(0), sorted((Fraction(at), client) for client, at in enumerate(joins))
    while pending or left:
        step = int(now // length)
        limits = {client: Fraction(own[client][step % len(own[client])]) for client in left}
        speed, rest = {}, Fraction(link[step % len(link)])
        for place, client in enumerate(sorted(left, key=lambda one: limits[one])):
            speed[client] = min(limits[client], rest / (len(left) - place))
            rest -= speed[client]
        then = min([(step + 1) * length, *(now + left[c] / speed[c] for c in left if speed[c])])
        if pending:
            then = min(then, pending[0][0])
        for client in left:
            left[client] -= (then - now) * speed[client]
        now = then
        for client in [client for client in left if not left[client]]:
            ends[client] = now
            del left[client]
        while pending and pending[0][0] == now:
            client = pending.pop(0)[1]
            left[client] = Fraction(sizes[client])
    return ends


RATES = st.lists(st.integers(0, 30), min_size=1, max_size=5).filter(any)


@given(
    joins=st.lists(st.integers(0, 12), min_size=1, max_size=7),
    sizes=st.lists(st.integers(1, 60), min_size=7, max_size=7),
    link=RATES,
    own=st.lists(RATES, min_size=7, max_size=7),
)
@settings(max_examples=60)
def test_sharing_against_exact_arithmetic(
    joins: list[int], sizes: list[int], link: list[int], own: list[list[int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Random own limits and a random link, all changing in time; ends agree to rounding."""
    file = tmp_path_factory.mktemp("own") / "own.csv"
    lines = [f"{client},{i / 2},{rate}" for client, rates in enumerate(own) for i, rate in enumerate(rates)]
    file.write_text("client,time_s,bytes_per_s\n" + "\n".join(lines))
    limits = Trace(clients=7, draws=DRAWS, path=str(file))
    shared = steps([i / 2 for i in range(len(link))], [float(rate) for rate in link], after_end="repeat")
    bench = medium(shared, limits, clients=7, size_bytes=np.array(sizes))
    for client, at in enumerate(joins):
        bench.join(client, float(at))
    expected = exact(joins, sizes, link, own, Fraction(1, 2))
    assert dict(bench.play()) == {client: pytest.approx(float(end), rel=1e-9) for client, end in expected.items()}


def test_equal_to_the_medium_of_fixed_limits() -> None:
    """Both carriers of a shared link, on random joins and departures."""
    rng = np.random.default_rng(3)
    limits = rng.choice([5.0, 20.0, 500.0], 200)
    sizes = rng.integers(1, 200, 200)
    fixed = Bench(
        lambda clock: shared_medium(
            clock=clock, clients=200, size_bytes=sizes, bandwidth_bytes_per_s=100.0, per_client_bytes_per_s=limits
        )
    )
    varying = medium(Constant(bytes_per_s=100.0), Constant(bytes_per_s=limits), clients=200, size_bytes=sizes)
    for client, at_s in enumerate(rng.uniform(0.0, 150.0, 200).tolist()):
        for bench in (fixed, varying):
            bench.join(client, at_s)
            if client % 7 == 0:
                bench.leave(client, at_s + 3.0)
    assert [client for client, _ in fixed.play()] == [client for client, _ in varying.play()]
    assert [end_s for _, end_s in fixed.ends] == pytest.approx([end_s for _, end_s in varying.ends], rel=1e-9)


@pytest.mark.parametrize("unit", ["rounds", "seconds"])
def test_equal_to_the_medium_of_fixed_limits_where_constants_change(unit: Any) -> None:
    """Both carriers of a shared link, whose bandwidth and limits change thrice; one of them is saved and goes on."""
    rng = np.random.default_rng(4)
    sizes, starts = rng.integers(1, 200, 60), [2, 3, 4] if unit == "rounds" else [10.0, 20.0, 45.5]
    link = Piecewise(laws=[Constant(bytes_per_s=rate) for rate in (100.0, 30.0, 150.0, 80.0)], starts=starts, unit=unit)
    limits = [Constant(bytes_per_s=rng.choice([5.0, 20.0, 90.0, 500.0], 60)) for _ in range(4)]
    own = Piecewise(laws=limits, starts=starts, unit=unit)
    makes: list[Callable[[Clock], Carrier]] = [
        lambda clock: SharedMedium(clock=clock, clients=60, size_bytes=sizes, link=link, own=own),
        lambda clock: VaryingMedium(clock=clock, clients=60, size_bytes=sizes, link=link, own=own),
    ]
    at_s, found = rng.uniform(0.0, 50.0, 60).tolist(), []
    for make in [*makes, makes[0]]:
        bench = Bench(make)
        for round, begins_s in ((2, 10.0), (3, 20.0), (4, 45.5)) if unit == "rounds" else ():
            bench.open_round(round, begins_s)
        for client in range(60):
            bench.join(client, at_s[client])
            if client % 7 == 0:
                bench.leave(client, at_s[client] + 3.0)
        if len(found) == 2 and unit == "seconds":
            bench.play(20.0)
            assert len(bench.carrier) > 3
            bench.restore()
            for client in range(60):
                if at_s[client] >= 20.0:
                    bench.join(client, at_s[client])
                if client % 7 == 0 and at_s[client] + 3.0 >= 20.0:
                    bench.leave(client, at_s[client] + 3.0)
        found.append(bench.play())
    fixed, varying, resumed = found
    assert [client for client, _ in fixed] == [client for client, _ in varying]
    assert [end_s for _, end_s in fixed] == pytest.approx([end_s for _, end_s in varying], rel=1e-9)
    assert resumed == fixed


@pytest.mark.parametrize("size", [0, -1, math.inf, math.nan])
def test_a_message_has_bytes(size: float) -> None:
    for make in (links, medium):
        with pytest.raises(ValueError, match=r"size_bytes = .*: must be > 0 bytes and finite"):
            make(Constant(bytes_per_s=1.0), size_bytes=np.array([*[1.0] * 7, size]))


@pytest.mark.parametrize("make", [medium, links])
def test_a_client_may_have_several_messages_under_way(make: Callable[..., Bench]) -> None:
    # Of one client two messages of its own size, 100 bytes, and a probe of 50: on its own link each has all of the 100 bytes/s.
    # Shared, each gets a third: the probe ends at 1.5 s, the others, with 50 bytes left each, at 2.5 s.
    bench = make(Constant(bytes_per_s=100.0))
    probes = bench.carrier.port("probe", 50.0)
    ends: list[tuple[int, float]] = []
    probes.listen(lambda number, cause: ends.append((number, bench.clock.now)))
    for number in (7, 8):
        bench.port.join(number, 0)
    probes.join(7, 0)
    assert 7 in probes
    assert 8 not in probes
    shared = make is medium
    assert dict(bench.play()) == pytest.approx(dict.fromkeys((7, 8), 2.5 if shared else 1.0))
    assert dict(ends) == pytest.approx({7: 1.5 if shared else 0.5})


def test_a_law_that_changes_at_a_time_takes_effect_on_a_message_in_flight() -> None:
    # 50 of the 100 bytes until 0.5 s, the others at 25 bytes a second.
    laws: list[BandwidthLaw] = [Constant(bytes_per_s=100.0), Constant(bytes_per_s=25.0)]
    for make in (links, medium):
        assert make(Piecewise(laws=laws, starts=[0.5], unit="seconds")).join(0, 0.0).play() == [(0, 2.5)]


def test_a_message_ends_if_its_last_bytes_take_less_time_than_the_clock_can_tell() -> None:
    # At 2**30 s the clock goes in steps of 2**-22 s. The message takes 2.25 of them, so that some bytes seem left after two.
    begin_s, step_s = 2.0**30, 2.0**-22
    bench = medium(Constant(bytes_per_s=100 / (2.25 * step_s))).join(0, begin_s)
    # It joins, and ends at the next event.
    bench.clock.step()
    bench.clock.step()
    assert bench.ends == [(0, begin_s + 2 * step_s)]
