"""Uploads that share a medium: worked out by hand, against exact arithmetic, against queueing theory, and in whole runs."""

from __future__ import annotations

import math
import sys
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import t as student

from models.laws.availability.traces import Trace
from models.laws.sub_channels.jammers import Sweep
from netsim.clients.update import OUTCOMES
from netsim.core.clock import Clock
from netsim.network.bandwidth.sharing import SharedMedium
from tests.helpers.async_world import Table, world
from tests.helpers.shared_links import shared_medium
from tests.helpers.small_worlds import World, constant, sized

SHARED = {"uplink": {"shared": {"bandwidth_bytes_per_s": 100.0}}, "server": {"per_round": 3}, "payload": sized(100)}


class Bench:
    """A medium by itself: who joins and leaves when, and when each upload ends."""

    def __init__(self, **parameters: Any) -> None:
        self.clock = Clock()
        given = {"clients": 8, "size_bytes": 100, "bandwidth_bytes_per_s": 100.0} | parameters
        self.medium = shared_medium(clock=self.clock, **given)
        self.port = self.medium.port("message")
        self.port.listen(lambda client, cause: self.ends.append((client, self.clock.now)))
        self.ends: list[tuple[int, float]] = []

    def join(self, client: int, at_s: float) -> None:
        self.clock.call_at(at_s, lambda one: self.port.join(one, one), client)

    def leave(self, client: int, at_s: float) -> None:
        self.clock.call_at(at_s, lambda one: self.port.leave(one) if one in self.port else None, client)

    def play(self) -> list[tuple[int, float]]:
        self.clock.run()
        return self.ends


def test_two_uploads_that_overlap() -> None:
    # A has sent 50 of 100 bytes as B comes at 0.5; at 50 bytes a second each, A is through at 1.5. B then has 50 left: at 2.
    bench = Bench()
    bench.join(0, 0.0)
    bench.join(1, 0.5)
    assert bench.play() == [(0, 1.5), (1, 2.0)]


def test_three_uploads_that_overlap() -> None:
    # By 0.5 A has 64 of 128 bytes; by 1.0 A 96, B 32. From then on a third of 128 each: A's 32 take 0.75 s, to 1.75; B has 64,
    # C 32. Of two, B's 64 take 1 s, to 2.75; C has 96, and its 32 take 0.25 s. In all, 384 bytes in 3 s.
    bench = Bench(size_bytes=128, bandwidth_bytes_per_s=128.0)
    for client in range(3):
        bench.join(client, client / 2)
    assert [client for client, _ in bench.play()] == [0, 1, 2]
    assert [end_s for _, end_s in bench.ends] == pytest.approx([1.75, 2.75, 3.0], rel=1e-15)


def test_who_leaves_leaves_the_share_to_the_others() -> None:
    # Until 1 s A and B get 50 bytes each; B breaks off; A's other 50 take 0.5 s.
    bench = Bench()
    for client in (0, 1):
        bench.join(client, 0.0)
    bench.leave(1, 1.0)
    assert bench.play() == [(0, 1.5)]
    assert len(bench.medium) == 0


def test_what_a_slow_client_cannot_take_goes_to_the_others() -> None:
    # 20 bytes a second for the slow one, 40 each for the others: these are through at 2.5. Its other 50 bytes take 2.5 s.
    bench = Bench(per_client_bytes_per_s=np.array([20.0, math.inf, 500.0, *[math.inf] * 5]))
    for client in range(3):
        bench.join(client, 0.0)
    assert bench.play() == [(1, 2.5), (2, 2.5), (0, 5.0)]
    # One limit for all: two take 40 each of the 100, and five share 20 each.
    few, many = Bench(per_client_bytes_per_s=40.0), Bench(per_client_bytes_per_s=40.0)
    for client in range(5):
        many.join(client, 0.0)
    for client in range(2):
        few.join(client, 0.0)
    assert few.play() == [(0, 2.5), (1, 2.5)]
    assert many.play() == [(client, 5.0) for client in range(5)]


@pytest.mark.parametrize("count", [1, 3, 7, 1000])
def test_all_who_start_together_end_together(count: int) -> None:
    """The closed form: n uploads of s bytes that start at once are through after n s / B."""
    bench = Bench(clients=count, size_bytes=12.5, bandwidth_bytes_per_s=1e3)
    for client in range(count):
        bench.join(client, 2.0)
    ends = bench.play()
    assert [client for client, _ in ends] == list(range(count))
    assert [end_s for _, end_s in ends] == pytest.approx([2.0 + count * 12.5 / 1e3] * count, rel=1e-12)


def rates(limits: dict[int, Fraction | None], bandwidth: Fraction) -> dict[int, Fraction]:
    """Max-min fair rates by progressive filling: all rise alike until the bandwidth is used up or one is at its limit."""
    given: dict[int, Fraction] = {}
    left, waiting = bandwidth, sorted(limits, key=lambda client: math.inf if limits[client] is None else limits[client])
    while waiting:
        level = left / len(waiting)
        limit = limits[waiting[0]]
        given[waiting[0]] = level if limit is None else min(level, limit)
        left -= given[waiting.pop(0)]
    return given


def exact(
    joins: dict[int, Fraction], leaves: dict[int, Fraction], limits: dict[int, Fraction | None], size: int, bandwidth: int
) -> tuple[dict[int, Fraction], Fraction]:
    """When each upload ends, and the integral of the bandwidth used: every stretch between two events, in rational numbers."""
    left: dict[int, Fraction] = {}
    ends: dict[int, Fraction] = {}
    now, used = Fraction(0), Fraction(0)
    pending = sorted([(t, 1, c) for c, t in joins.items()] + [(t, 0, c) for c, t in leaves.items()])
    while pending or left:
        speed = rates({client: limits[client] for client in left}, Fraction(bandwidth))
        next_end = min((now + left[c] / speed[c] for c in left), default=None)
        then = min(t for t in (next_end, pending[0][0] if pending else None) if t is not None)
        for client in left:
            left[client] -= (then - now) * speed[client]
        used += (then - now) * sum(speed.values())
        now = then
        for client in [c for c in left if left[c] == 0]:
            ends[client] = now
            del left[client]
        while pending and pending[0][0] == now:
            _, comes, client = pending.pop(0)
            if comes:
                left[client] = Fraction(size)
            else:
                left.pop(client, None)
    return ends, used


@given(
    joins=st.lists(st.integers(0, 80), min_size=1, max_size=8),
    stays=st.lists(st.integers(1, 60), min_size=8, max_size=8),
    some_leave=st.lists(st.booleans(), min_size=8, max_size=8),
    limits=st.lists(st.sampled_from([None, 8, 16, 24, 200]), min_size=8, max_size=8),
)
@settings(max_examples=100)
def test_against_exact_arithmetic(joins: list[int], stays: list[int], some_leave: list[bool], limits: list[int | None]) -> None:
    """Ends agree to rounding, and work is conserved: bytes received = integral of the bandwidth used."""
    clients = range(len(joins))
    comes = {client: Fraction(joins[client], 8) for client in clients}
    goes = {client: comes[client] + Fraction(stays[client], 8) for client in clients if some_leave[client]}
    expected, used = exact(comes, goes, {c: None if limits[c] is None else Fraction(limits[c]) for c in clients}, 48, 64)
    # An end and a departure of one instant are decided by rounding.
    ties = {client for client, end in expected.items() if end == goes.get(client)}
    caps = np.array([math.inf if limit is None else float(limit) for limit in limits])
    bench = Bench(size_bytes=48, bandwidth_bytes_per_s=64.0, per_client_bytes_per_s=caps)
    got = dict.fromkeys(clients, 0.0)

    def before(client: int, leave: bool) -> None:
        if not leave:
            bench.port.join(client, client)
        elif client in bench.port:
            group, number = bench.medium._members["message", client]
            (done_at,) = (end for end, _, key in group.queue if key == number)
            got[client] = 48 - (done_at - bench.medium._bundle.served_bytes(group, bench.clock.now))
            bench.port.leave(client)

    for client, time in sorted(goes.items(), key=lambda item: item[1]):
        bench.clock.call_at(float(time), lambda one: before(one, True), client)
    for client, time in sorted(comes.items(), key=lambda item: item[1]):
        bench.clock.call_at(float(time), lambda one: before(one, False), client)
    ends = dict(bench.play())
    assert ends.keys() - ties == expected.keys() - ties
    assert all(ends[client] == pytest.approx(float(expected[client]), rel=1e-12) for client in ends.keys() - ties)
    assert sum(got.values()) + 48 * len(ends.keys() & expected.keys()) == pytest.approx(float(used), rel=1e-12, abs=1e-9)


@pytest.mark.slow
def test_mean_time_in_the_system_of_m_g_1_processor_sharing() -> None:
    """Poisson arrivals of load rho, uploads that take x alone: E[T] = x / (1 - rho) (Kleinrock 1967).

    The mean of 40 independent replications lies within the 99.99 % interval of Student's law.
    """
    alone_s, rho, count = 0.25, 0.7, 3000
    means = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        begins = np.cumsum(rng.exponential(alone_s / rho, count))
        bench = Bench(clients=count, size_bytes=1.0, bandwidth_bytes_per_s=1 / alone_s)
        for client, at_s in enumerate(begins.tolist()):
            bench.join(client, at_s)
        ends = dict(bench.play())
        # The system begins empty; what comes first is left out.
        means.append(np.mean([ends[client] - begins[client] for client in range(500, count)]))
    half = student.ppf(1 - 0.5e-4, len(means) - 1) * np.std(means, ddof=1) / math.sqrt(len(means))
    assert abs(np.mean(means) - alone_s / (1 - rho)) < half
    assert half < 0.1 * alone_s / (1 - rho)


def test_a_saved_medium_goes_on() -> None:
    caps = np.array([20.0, 30.0, *[math.inf] * 6])
    whole = Bench(per_client_bytes_per_s=caps)
    for client in range(6):
        whole.join(client, client / 3)
    whole.leave(4, 2.0)
    whole.clock.run(until=2.5)
    state = whole.medium.state_dict()
    whole.ends.clear()
    other = Bench(per_client_bytes_per_s=caps)
    other.clock.start_at(2.5)
    other.medium.load_state_dict(state, 1, 2.5)
    assert other.medium.state_dict() == state
    assert other.play() == whole.play()


def test_messages_without_bytes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"size_bytes = 0\.0: must be > 0 bytes"):
        Bench(size_bytes=0)


# Whole runs.


def test_uploads_of_a_round_share_the_servers_bandwidth() -> None:
    # Client 0 has computed at 0, client 1 at 0.5; a delay of 0.25 s comes before the medium: 0.25 and 0.75. As by hand above.
    it = World([[0, 1]], compute=constant(0, 0.5, 0), **SHARED | {"uplink": constant(0.25, 0.25, 0.25) | SHARED["uplink"]}).play()
    assert it.rows("client", "upload_start_s", "upload_end_s", "outcome") == [
        (0, 0.0, 1.75, "delivered"),
        (1, 0.5, 2.25, "delivered"),
    ]
    # Alone, everyone would have taken a delay and 1 s.
    assert it.server.clients.medium.latency_s(1, 0.0, np.arange(3)).tolist() == [1.25, 1.75, 1.25]


def test_who_is_called_off_at_the_deadline_frees_a_share() -> None:
    # At the deadline of 1.25 client 1, who set out at 0.5, has 37.5 of 100 bytes, and client 0, who set out at 0, 87.5.
    deadline: dict[str, Any] = {"deadline_s": 1.25}
    it = World([[0, 1], [2]], compute=constant(0, 0.5, 0), **SHARED | {"server": deadline}).play()
    # Nobody is cancelled: client 2 joins at 1.25, and three share. Client 0's 12.5 take 0.375 s.
    assert it.rows("client", "outcome", "outcome_s")[0] == (0, "late", 1.625)
    cancel = deadline | {"stragglers": "cancel"}
    it = World([[0, 1], [2]], compute=constant(0, 0.5, 0), **SHARED | {"server": cancel}).play()
    assert it.rows("client", "outcome", "outcome_s") == [(0, "late", 1.25), (1, "late", 1.25), (2, "delivered", 2.25)]
    assert it.rows("upload_end_s") == [(1.25,), (1.25,), (2.25,)]


def test_who_goes_away_frees_a_share(tmp_path: Any) -> None:
    path = tmp_path / "presence.csv"
    path.write_text("client,on_s,off_s\n0,0,inf\n1,0,1\n2,0,2\n")
    away = {"availability": {"kind": "trace", "path": str(path)}}
    # Until 1 client 0 gets 50 bytes, then, client 1 having left, all.
    it = World([[0, 1]], **SHARED, **away).play()
    assert it.rows("client", "outcome", "outcome_s") == [(1, "aborted", 1.0), (0, "delivered", 1.5)]
    # Presence is [comes, goes): who would be through at the moment of leaving has left.
    it = World([[1]], **SHARED, **away).play()
    assert it.rows("outcome", "outcome_s") == [("aborted", 1.0)]


def test_a_lost_upload_takes_its_share_to_the_end() -> None:
    it = World([[0, 1]], **SHARED | {"uplink": SHARED["uplink"] | {"channel": {"kind": "bernoulli", "success": [0.0, 1.0, 1.0]}}})
    assert it.play().rows("client", "outcome", "upload_end_s", "cause") == [
        (0, "lost", 2.0, "channel"),
        (1, "delivered", 2.0, None),
    ]


def test_sub_channels_and_a_shared_medium() -> None:
    # Two of three send at once, 50 bytes a second each, to 2 s; the third then has all.
    it = World([[0, 1, 2]], **SHARED | {"uplink": SHARED["uplink"] | {"sub_channels": 2}}).play()
    assert it.rows("client", "upload_start_s", "upload_end_s") == [(0, 0, 2), (1, 0, 2), (2, 2, 3)]


def shared(clock: Clock, clients: int = 2, **parameters: Any) -> SharedMedium:
    return shared_medium(clock=clock, clients=clients, **{"size_bytes": 100, "bandwidth_bytes_per_s": 100.0} | parameters)


def test_the_asynchronous_server_shares_too() -> None:
    parameters: dict[str, Any] = {"compute_s": [0.0, 0.5], "channel_s": 0.25, "wait_for_compute": True, "rounds": 1}
    it = world(scheduler=Table([[0, 1]]), states=[[1, 1, 1]], shared=shared, **parameters).play()
    assert it.table("upload_end_s") == [[1.75, 2.25]]
    assert it.table("outcome") == [["delivered", "delivered"]]


def test_a_round_that_ends_cuts_who_shares_and_they_begin_again() -> None:
    # A round of 1.5 s: client 0 gets 50 + 50 bytes by 1.5, in time; client 1 is cut with 50 bytes, and begins again.
    it = world(
        scheduler=Table([[0, 1]]), states=[[1, 1, 1]] * 2, compute_s=[0.0, 0.5], round_s=1.5, rounds=2, shared=shared
    ).play()
    assert it.table("outcome")[0] == ["delivered", "late"]
    # In round 2 client 0 sends a new update at once, client 1 the old one: 50 bytes a second each, and 75 bytes are not enough.
    assert it.table("outcome")[1] == ["late", "late"]
    assert len(it.server.clients.medium.up) == 0


def test_jamming_hits_who_shares() -> None:
    jammer = {"law": Sweep(), "dwell_s": 1.0, "start": 1.75, "reach": [0]}
    it = world(scheduler=Table([[0, 1]]), states=[[1, 1, 1]], rounds=1, shared=shared, jammers=[jammer]).play()
    # Both end at 2.0; the jammer comes at 1.75 to the sub-channel of client 0.
    assert it.table("cause") == [["jammed", None]]
    late = jammer | {"start": 2.0}
    it = world(scheduler=Table([[0, 1]]), states=[[1, 1, 1]], rounds=1, shared=shared, jammers=[late]).play()
    assert it.table("cause") == [[None, None]]


def test_who_goes_away_in_mid_share_keeps_the_update(tmp_path: Any) -> None:
    path = tmp_path / "presence.csv"
    path.write_text("client,on_s,off_s\n0,0,inf\n1,0,1\n")
    it = world(
        scheduler=Table([[0, 1]]), states=[[1, 1, 1]], rounds=1, shared=shared, availability=Trace(clients=2, path=str(path))
    ).play()
    assert it.table("outcome") == [["delivered", "aborted"]]
    assert it.table("outcome_s") == [[1.5, 1.0]]
    assert it.server.clients.ended == dict.fromkeys(OUTCOMES, 0) | {"delivered": 1, "aborted": 1}


def steps(count: int) -> int:
    """Return how many lines are executed while `count` uploads, each with a limit of its own, share a link."""
    rng = np.random.default_rng(1)
    limits, begins = rng.uniform(0.5, 50.0, count), rng.random(count)
    bench = Bench(clients=count, bandwidth_bytes_per_s=10.0 * count, per_client_bytes_per_s=limits)
    for client, at_s in enumerate(begins.tolist()):
        bench.join(client, at_s)
    lines = 0

    def tally(frame: Any, event: str, argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return tally

    before = sys.gettrace()
    sys.settrace(tally)
    try:
        bench.play()
    finally:
        sys.settrace(before)
    assert len(bench.ends) == count
    return lines


def test_an_upload_costs_the_same_beside_many_with_limits_of_their_own() -> None:
    assert steps(400) < 1.2 * 4 * steps(100)
