"""Shared links and sub-channels as queues: against formulas of queueing theory, and against Ciw (Palmer et al. 2019)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ciw
import numpy as np
import pytest
from scipy.stats import t as student

from models.laws.bandwidth.laws import Constant
from models.laws.changes import Unchanging
from netsim.core.clock import Clock
from netsim.network.bandwidth.carriers import Carrier
from netsim.network.bandwidth.varying_medium import VaryingMedium
from tests.helpers.shared_links import shared_medium
from tests.helpers.small_worlds import World

FloatArray = np.ndarray[Any, np.dtype[np.float64]]
BYTES_PER_S = 1000.0


def fixed(clock: Clock, sizes: FloatArray, limit: float = math.inf) -> Carrier:
    return shared_medium(
        clock=clock, clients=len(sizes), size_bytes=sizes, bandwidth_bytes_per_s=BYTES_PER_S, per_client_bytes_per_s=limit
    )


def varying(clock: Clock, sizes: FloatArray, limit: float = math.inf) -> Carrier:
    link = Unchanging(Constant(bytes_per_s=BYTES_PER_S))
    own = None if limit == math.inf else Unchanging(Constant(bytes_per_s=limit))
    return VaryingMedium(clock=clock, clients=len(sizes), size_bytes=sizes, link=link, own=own)


def sojourns(make: Callable[..., Carrier], arrivals_s: FloatArray, sizes: FloatArray, **given: float) -> FloatArray:
    """How long each message is under way that begins at its arrival."""
    clock = Clock()
    carrier = make(clock, sizes, **given)
    ends = np.full(len(sizes), np.nan)

    def end(client: int, cause: str | None) -> None:
        ends[client] = clock.now

    port = carrier.port("message")
    port.listen(end)
    for client, at_s in enumerate(arrivals_s.tolist()):
        clock.call_at(at_s, lambda one: port.join(one, one), client)
    clock.run()
    return ends - arrivals_s


def interval(means: list[float]) -> tuple[float, float]:
    """The mean of independent estimates, and half the width of its interval of confidence 0.9999."""
    half = student.ppf(1 - 0.5e-4, len(means) - 1) * np.std(means, ddof=1) / math.sqrt(len(means))
    return float(np.mean(means)), float(half)


def exponential(rng: np.random.Generator, count: int) -> FloatArray:
    return 100.0 * rng.exponential(size=count)


def two_kinds(rng: np.random.Generator, count: int) -> FloatArray:
    """Mean 100, squared coefficient of variation 4: small ones of 50 and few of 550."""
    return np.where(rng.random(count) < 0.9, 50.0, 550.0)


def drawn(rng: np.random.Generator, law: Callable[..., FloatArray], load: float, count: int) -> tuple[FloatArray, FloatArray]:
    """Poisson arrivals at such a load, with their sizes."""
    return np.cumsum(rng.exponential(100.0 / BYTES_PER_S / load, size=count)), law(rng, count)


@pytest.mark.parametrize("law", [exponential, two_kinds])
def test_the_time_under_way_is_that_of_processor_sharing(law: Callable[..., FloatArray]) -> None:
    """M/M/1-PS and M/G/1-PS: a message of s bytes takes s / B / (1 - load) on average, whatever the law of sizes."""
    load = 0.5
    rng = np.random.default_rng(5)
    means, large = [], []
    for _ in range(14):
        arrivals, sizes = drawn(rng, law, load, 2500)
        took = sojourns(fixed, arrivals, sizes)[300:]
        means.append(float(took.mean()))
        # The same holds of messages of one size alone, and of them all the time over the size.
        large.append(float((took / sizes[300:]).mean()) * BYTES_PER_S)
    mean, half = interval(means)
    assert abs(mean - 0.1 / (1 - load)) < half < 0.15 * mean
    slowed, half = interval(large)
    assert abs(slowed - 1 / (1 - load)) < half < 0.15 * slowed


def test_a_medium_whose_limits_may_vary_is_the_same_queue() -> None:
    rng = np.random.default_rng(6)
    for limit in (math.inf, 250.0):
        arrivals, sizes = drawn(rng, exponential, 0.8, 300)
        expected = sojourns(fixed, arrivals, sizes, limit=limit)
        assert sojourns(varying, arrivals, sizes, limit=limit) == pytest.approx(expected, rel=1e-9)


def erlang_c(servers: int, load: float) -> float:
    """The probability to wait in M/M/c at an offered load of so many erlangs."""
    last = load**servers / math.factorial(servers) / (1 - load / servers)
    return last / (sum(load**n / math.factorial(n) for n in range(servers)) + last)


def uploads(arrivals_s: FloatArray, **uplink: Any) -> World:
    """A round in which client k has trained until its arrival."""
    count = len(arrivals_s)
    return World(
        [list(range(count))],
        clients=count,
        server={"per_round": count},
        compute={"delay": {"kind": "constant", "value_s": arrivals_s.tolist()}},
        **uplink,
    ).play()


def waits(arrivals_s: FloatArray, services_s: FloatArray, channels: int) -> FloatArray:
    """How long each upload waits for one of so many sub-channels."""
    delay = {"kind": "constant", "value_s": services_s.tolist()}
    world = uploads(arrivals_s, uplink={"delay": delay, "sub_channels": channels})
    rows = sorted(world.rows("client", "compute_end_s", "upload_start_s", "upload_end_s"))
    assert len(rows) == len(arrivals_s)
    return np.array([start - ready for _, ready, start, _ in rows])


def test_waiting_for_sub_channels_is_that_of_erlang() -> None:
    """M/M/c: the probability to wait, and the mean wait C(c, a) / (c mu - lambda)."""
    channels, load = 3, 1.8
    rng = np.random.default_rng(7)
    means, shares = [], []
    for _ in range(12):
        arrivals = np.cumsum(rng.exponential(1 / load, size=1500))
        waited = waits(arrivals, rng.exponential(size=1500), channels)[200:]
        means.append(float(waited.mean()))
        shares.append(float((waited > 1e-9).mean()))
    likely = erlang_c(channels, load)
    share, half = interval(shares)
    assert abs(share - likely) < half < 0.2 * likely
    mean, half = interval(means)
    assert abs(mean - likely / (channels - load)) < half < 0.5 * mean


def ciw_times(arrivals_s: FloatArray, services_s: FloatArray, node: type, **network: Any) -> FloatArray:
    """When each leaves a node of Ciw, which it enters at its arrival."""
    gaps = [*np.diff(arrivals_s, prepend=0.0).tolist(), 1e12]
    made = ciw.create_network(
        arrival_distributions=[ciw.dists.Sequential(gaps)],
        service_distributions=[ciw.dists.Sequential([*services_s.tolist(), 1.0])],
        **network,
    )
    simulation = ciw.Simulation(made, node_class=node)
    simulation.simulate_until_max_time(1e9)
    records = sorted(simulation.get_all_records(), key=lambda record: record.arrival_date)
    return np.array([record.exit_date for record in records])


@pytest.mark.parametrize("seed", range(4))
def test_whole_runs_against_ciw(seed: int) -> None:
    """Uploads of random sizes that share a link, without a limit and with one; and that wait for sub-channels."""
    rng = np.random.default_rng(seed)
    count = 60
    arrivals = np.cumsum(rng.exponential(0.12, size=count))
    sizes = rng.integers(20, 300, size=count).astype(np.float64)
    times = sizes / BYTES_PER_S
    payload = {"up_bytes": sizes.tolist()}
    shared = {"shared": {"bandwidth_bytes_per_s": BYTES_PER_S}}
    ends = uploads(arrivals, uplink=shared, payload=payload).rows("client", "upload_end_s")
    assert [end_s for _, end_s in sorted(ends)] == pytest.approx(
        ciw_times(arrivals, times, ciw.PSNode, number_of_servers=[math.inf]), rel=1e-9
    )
    # So many are served at their own limit; from one more on they share.
    at_once = 3
    limited = {"shared": {"bandwidth_bytes_per_s": at_once * BYTES_PER_S / 4}, "bandwidth_bytes_per_s": BYTES_PER_S / 4}
    ends = uploads(arrivals, uplink=limited, payload=payload).rows("client", "upload_end_s")
    assert [end_s for _, end_s in sorted(ends)] == pytest.approx(
        ciw_times(arrivals, 4 * times, ciw.PSNode, number_of_servers=[math.inf], ps_thresholds=[at_once]), rel=1e-9
    )
    alone = {"bandwidth_bytes_per_s": BYTES_PER_S / 4, "sub_channels": at_once}
    ends = uploads(arrivals, uplink=alone, payload=payload).rows("client", "upload_end_s")
    assert [end_s for _, end_s in sorted(ends)] == pytest.approx(
        ciw_times(arrivals, 4 * times, ciw.Node, number_of_servers=[at_once]), rel=1e-9
    )
