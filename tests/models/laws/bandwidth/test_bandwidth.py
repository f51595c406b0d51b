"""Bandwidth over time: transfers worked out by hand, against exact arithmetic, and what the laws say of themselves."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from models.errors import ParameterError
from models.laws.bandwidth.files import Points
from models.laws.bandwidth.laws import BandwidthLaw, ByGroup, Constant, Successive
from models.laws.bandwidth.paths import GaussMarkov, MarkovLevels
from models.laws.bandwidth.traces import AfterEnd, PacketTrace, Steps, Trace
from netsim.core.streams import Stream

DRAWS = Stream(seed=1, name="uplink.bandwidth")
ONE = np.array([0])
THREE_STEPS = {"time_s": [0.0, 2.0, 5.0], "bytes_per_s": [100.0, 50.0, 200.0], "end_s": 6.0}


def trace(clients: int = 1, **keywords: Any) -> Trace:
    return Trace(clients=clients, draws=DRAWS, **({**THREE_STEPS, **keywords} if "path" not in keywords else keywords))


def end(law: BandwidthLaw, start_s: float, size_bytes: float, client: int = 0) -> float:
    return float(law.ends_s(np.array([start_s]), np.array([size_bytes]), np.array([client]))[0])


def test_a_transfer_over_three_steps() -> None:
    # From 1 s on: 100 bytes by 2 s, 150 by 5 s, and the other 50 at 200 bytes a second.
    law = trace()
    assert end(law, 1.0, 300.0) == 5.25
    assert end(law, 1.0, 100.0) == 2.0
    assert end(law, 0.0, 0.0) == 0.0
    # All of the trace is 550 bytes: from 1 s on 450 of it are left, and 100 pass in the first second of the next.
    assert end(law, 1.0, 550.0) == 7.0
    assert end(law, 13.0, 550.0) == 19.0
    # Two whole traces and 10 bytes more.
    assert end(law, 0.0, 1110.0) == pytest.approx(12.1, rel=1e-15)


def test_what_is_through_but_for_rounding_does_not_wait_for_the_end_of_a_pause() -> None:
    # 0.5 + 0.6 + 1.9 bytes add up to less than 3 in floating point; then nothing passes until 1 s.
    rates = [5.0, 6.0, 19.0]
    law = trace(time_s=[0.0, 0.1, 0.2, 0.3, 1.0], bytes_per_s=[*rates, 0.0, 40.0], end_s=2.0)
    assert sum(np.diff([0.0, 0.1, 0.2, 0.3]) * rates) < 3.0
    assert end(law, 0.0, 3.0) == pytest.approx(0.3)
    assert end(law, 0.0, 3.0 + 4.0) == pytest.approx(1.1)


def test_what_comes_after_the_end() -> None:
    assert end(trace(after_end="hold"), 1.0, 550.0) == 6.5
    assert end(trace(after_end="hold"), 100.0, 50.0) == 100.25
    stopped = trace(after_end="stop")
    assert end(stopped, 1.0, 450.0) == 6.0
    assert end(stopped, 1.0, 450.5) == end(stopped, 7.0, 1.0) == math.inf
    assert stopped.stops_s(ONE).tolist() == [6.0]
    assert trace().stops_s(ONE).tolist() == trace(after_end="hold").stops_s(ONE).tolist() == [math.inf]


def test_the_last_step_lasts_as_long_as_the_one_before() -> None:
    law = trace(end_s=None)
    assert law.next_change_s(5.5, ONE).tolist() == [8.0]
    # 200 + 150 + 600 bytes in 8 s.
    assert law.mean_rate(ONE).tolist() == [950.0 / 8.0]
    assert trace(end_s=None, time_s=[0.0], bytes_per_s=[10.0]).mean_rate(ONE).tolist() == [10.0]


def test_nothing_passes_for_a_while() -> None:
    law = trace(time_s=[0.0, 1.0, 3.0], bytes_per_s=[100.0, 0.0, 100.0], end_s=4.0)
    # What is through as the pause begins is through then, and not as it ends.
    assert end(law, 0.0, 100.0) == 1.0
    assert end(law, 0.0, 101.0) == pytest.approx(3.01, rel=1e-15)
    assert end(law, 1.5, 100.0) == 4.0
    # Of 200 bytes a trace, 400 are two whole ones, and the pause of the third has nothing to do with it.
    assert end(law, 0.0, 400.0) == 8.0
    assert [law.rate(t, ONE)[0] for t in (0.0, 1.0, 2.9, 3.0, 4.0, 5.0)] == [100.0, 0.0, 0.0, 100.0, 100.0, 0.0]


def test_rates_and_changes() -> None:
    law = trace()
    assert [law.rate(t, ONE)[0] for t in (0.0, 1.9, 2.0, 5.9, 6.0, 8.0)] == [100.0, 100.0, 50.0, 200.0, 100.0, 50.0]
    assert [law.next_change_s(t, ONE)[0] for t in (0.0, 2.0, 5.5, 6.0, 13.0)] == [2.0, 5.0, 6.0, 8.0, 14.0]
    assert law.mean_rate(ONE)[0] == pytest.approx(550.0 / 6.0)
    assert law.peak_rate(ONE)[0] == 200.0
    held, stopped = trace(after_end="hold"), trace(after_end="stop")
    assert (held.rate(7.0, ONE)[0], held.next_change_s(5.5, ONE)[0], held.mean_rate(ONE)[0]) == (200.0, math.inf, 200.0)
    assert (stopped.rate(5.9, ONE)[0], stopped.rate(6.0, ONE)[0]) == (200.0, 0.0)
    assert (stopped.next_change_s(5.5, ONE)[0], stopped.next_change_s(6.0, ONE)[0]) == (6.0, math.inf)
    # Equal neighbours are one step.
    assert trace(time_s=[0.0, 1.0, 2.0], bytes_per_s=[5.0, 5.0, 7.0]).next_change_s(0.0, ONE)[0] == 2.0


def test_offsets_are_drawn_and_scales_given() -> None:
    law = trace(clients=1000, offset="random", scale=np.linspace(1.0, 2.0, 1000))
    everyone = np.arange(1000)
    u = DRAWS.uniforms(0, 1000)
    plain = trace()
    expected = [end(plain, 6.0 * x, 300.0 / scale) - 6.0 * x for x, scale in zip(u, np.linspace(1.0, 2.0, 1000), strict=True)]
    assert law.ends_s(np.zeros(1000), np.full(1000, 300.0), everyone) == pytest.approx(expected, rel=1e-12)
    assert law.mean_rate(everyone) == pytest.approx(550.0 / 6.0 * np.linspace(1.0, 2.0, 1000))
    stopping = trace(clients=3, offset="random", after_end="stop")
    assert stopping.stops_s(np.arange(3)) == pytest.approx(6.0 * (1.0 - DRAWS.uniforms(0, 3)))


def exact_end(steps: list[tuple[Fraction, Fraction]], start: Fraction, size: Fraction) -> Fraction:
    """The first instant at which the integral of a repeated trace of (duration, rate) from `start` on is `size`; step by step."""
    length = sum(duration for duration, _ in steps)
    now = length * (start // length)
    left, j = size, 0
    while True:
        duration, rate = steps[j % len(steps)]
        begin, now = max(now, start), now + duration
        if now > begin:
            if rate * (now - begin) >= left:
                return begin + left / rate
            left -= rate * (now - begin)
        j += 1


STEPS = st.lists(st.tuples(st.integers(1, 50), st.integers(0, 40)), min_size=1, max_size=12)
SIZES = st.lists(st.integers(1, 3000), min_size=4, max_size=9)


@given(steps=st.lists(STEPS, min_size=1, max_size=4), start=st.integers(0, 4000), sizes=SIZES)
@example(steps=[[(12, 1), (1, 0)]], start=1544, sizes=[1, 1, 1, 76])
@settings(max_examples=80)
def test_against_exact_integration(
    steps: list[list[tuple[int, int]]], start: int, sizes: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Random traces, one or several: the end of every transfer, and the bytes served in between, to rounding."""
    lines = ["client,time_s,bytes_per_s"]
    for client, own in enumerate(steps):
        # The last step lasts as long as the one before it.
        if len(own) > 1:
            own[-1] = (own[-2][0], own[-1][1])
        else:
            own[0] = (10, own[0][1])
        times = np.concatenate(([0], np.cumsum([duration for duration, _ in own])))[:-1] / 10
        lines += [f"{client},{time},{rate}" for time, (_, rate) in zip(times, own, strict=True)]
    if not all(any(rate for _, rate in own) for own in steps):
        return
    file = tmp_path_factory.mktemp("trace") / "trace.csv"
    file.write_text("\n".join(lines))
    law = Trace(clients=len(steps), draws=DRAWS, path=str(file))
    who = np.arange(len(sizes)) % len(steps)
    starts, wanted = np.full(len(sizes), start / 10), np.array(sizes, np.float64)
    ends = law.ends_s(starts, wanted, who)
    for client, size, found in zip(who.tolist(), sizes, ends.tolist(), strict=True):
        fractions = [(Fraction(duration, 10), Fraction(rate)) for duration, rate in steps[client]]
        # Tenths of seconds are rounded: what is left of a transfer as the rate falls to 0 may be nothing, or 1e-13 bytes.
        first, last = (
            float(exact_end(fractions, Fraction(start, 10), size * (1 + Fraction(part, 10**12)))) for part in (-1, 1)
        )
        assert first - 1e-12 * first <= found <= last + 1e-12 * last
    assert law.served_bytes(starts, ends, who) == pytest.approx(wanted, rel=1e-9, abs=1e-6)


def numerical_end(law: BandwidthLaw, start_s: float, size_bytes: float, step_s: float) -> float:
    """The integral of `rate`, by the midpoint rule."""
    now, left = start_s, size_bytes
    while left > 0.0:
        left -= float(law.rate(now + 0.5 * step_s, ONE)[0]) * step_s
        now += step_s
    return now


@pytest.mark.parametrize("seed", range(5))
def test_generated_paths_against_numerical_integration(seed: int) -> None:
    draws = Stream(seed=seed, name="downlink.bandwidth")
    levels = MarkovLevels(draws=draws, levels_bytes_per_s=[5.0, 0.0, 40.0], mean_stay_s=[2.0, 1.0, 3.0], scale=0.5)
    smooth = GaussMarkov(draws=draws, mean_bytes_per_s=20.0, std_bytes_per_s=10.0, memory=0.9, step_s=0.25, scale=2.0)
    both = Successive(laws=[levels, smooth, Constant(bytes_per_s=3.0)], starts_s=[4.0, 9.0])
    for law in (levels, smooth, both):
        for start_s, size in ((0.0, 30.0), (3.3, 200.0), (7.0, 111.0)):
            assert end(law, start_s, size) == pytest.approx(numerical_end(law, start_s, size, 1e-3), abs=0.02)
            served = law.served_bytes(np.array([start_s]), law.ends_s(np.array([start_s]), np.array([size]), ONE), ONE)
            assert served[0] == pytest.approx(size)


def test_paths_have_the_means_that_are_stated() -> None:
    """Within four standard errors; time averages over 400 clients of 500 s each."""
    clients = np.arange(400)
    span = np.zeros(400), np.full(400, 500.0)
    laws: list[BandwidthLaw] = [
        GaussMarkov(draws=DRAWS, mean_bytes_per_s=20.0, std_bytes_per_s=10.0, memory=0.8),
        GaussMarkov(draws=DRAWS, mean_bytes_per_s=5.0, std_bytes_per_s=10.0, memory=0.5, floor_bytes_per_s=2.0, scale=3.0),
        MarkovLevels(draws=DRAWS, levels_bytes_per_s=[0.0, 10.0, 100.0], mean_stay_s=[3.0, 2.0, 1.0]),
        MarkovLevels(draws=DRAWS, levels_bytes_per_s=[0.0, 10.0, 100.0], mean_stay_s=[3.0, 2.0, 1.0], moves="neighbour"),
    ]
    stated = [law.mean_rate(clients)[0] for law in laws]
    # Shares of time 3/6, 2/6, 1/6; and 3/8, 4/8, 1/8 where only the middle one leads to both.
    assert stated[2:] == [pytest.approx(20.0), pytest.approx(17.5)]
    for law, mean in zip(laws, stated, strict=True):
        averages = law.served_bytes(*span, clients) / 500.0
        assert abs(averages.mean() - mean) < 4.0 * averages.std() / math.sqrt(400)


def test_a_path_is_the_clients_own_and_nobodys_asking_changes_it() -> None:
    def made() -> list[BandwidthLaw]:
        return [
            GaussMarkov(draws=DRAWS, mean_bytes_per_s=20.0, std_bytes_per_s=10.0, memory=0.9),
            MarkovLevels(draws=DRAWS, levels_bytes_per_s=[1.0, 50.0], mean_stay_s=[2.0, 1.0]),
        ]

    for asked_often, asked_once in zip(made(), made(), strict=True):
        for t in np.linspace(0.0, 300.0, 60).tolist():
            asked_often.rate(t, np.array([2, 0]))
        starts, sizes, who = np.full(3, 250.0), np.full(3, 300.0), np.arange(3)
        assert asked_often.ends_s(starts, sizes, who).tolist() == asked_once.ends_s(starts, sizes, who).tolist()
        assert len(set(asked_once.ends_s(starts, sizes, who).tolist())) == 3


def test_memory_is_the_correlation_of_neighbours() -> None:
    law = GaussMarkov(draws=DRAWS, mean_bytes_per_s=1e3, std_bytes_per_s=10.0, memory=0.7)
    values = np.array([law.rate(t + 0.5, np.arange(100)) for t in range(200)])
    assert np.corrcoef(values[:-1].ravel(), values[1:].ravel())[0, 1] == pytest.approx(0.7, abs=0.03)
    assert values.std() == pytest.approx(10.0, rel=0.05)


def test_packets_pass_in_their_milliseconds(tmp_path: Path) -> None:
    # 1,500 bytes in the first millisecond, none in the second, 3,000 in the third and fourth together: 4,500 in 4 ms.
    file = tmp_path / "lte.trace"
    file.write_text("1\n3\n4\n")
    law = PacketTrace(clients=1, draws=DRAWS, path=str(file))
    assert [law.rate(t, ONE)[0] for t in (0.0, 0.0015, 0.0025, 0.0035)] == pytest.approx([1.5e6, 0.0, 1.5e6, 1.5e6])
    assert end(law, 0.0, 1500.0) == pytest.approx(0.001)
    assert end(law, 0.0, 2250.0) == pytest.approx(0.0025)
    assert end(law, 0.0, 9000.0) == pytest.approx(0.008)
    assert law.mean_rate(ONE)[0] == pytest.approx(4500.0 / 0.004)
    # Equal lines add up; line 0 belongs to the first millisecond.
    file.write_text("0\n1\n1\n2\n")
    law = PacketTrace(clients=1, draws=DRAWS, path=str(file), packet_bytes=1000.0)
    assert end(law, 0.0, 3000.0) == pytest.approx(0.001)
    assert end(law, 0.0, 4000.0) == pytest.approx(0.002)


def test_a_file_for_each_client(tmp_path: Path) -> None:
    for client, rate in enumerate((10, 20)):
        (tmp_path / f"{client}.csv").write_text(f"time_s,bytes_per_s\n0,{rate}\n")
        (tmp_path / f"{client}.txt").write_text("1\n" * rate)
    law = trace(clients=2, path=str(tmp_path / "{client}.csv"))
    assert law.rate(0.0, np.arange(2)).tolist() == [10.0, 20.0]
    packets = PacketTrace(clients=2, draws=DRAWS, path=str(tmp_path / "{client}.txt"))
    assert packets.rate(0.0, np.array([1, 0])) == pytest.approx([30e6, 15e6])


@pytest.mark.parametrize("after_end", ["repeat", "hold", "stop"])
def test_many_clients_with_traces_of_their_own_are_served_as_each_alone(after_end: AfterEnd) -> None:
    rng, clients = np.random.default_rng(4), 300
    traces = [Points(np.arange(n, dtype=np.float64), rng.integers(0, 4, n) * 10.0 + 1.0, float(n)) for n in (1, 7, 40)]
    law = Steps(traces=traces, trace_of=rng.integers(0, 3, clients), after_end=after_end)
    start_s, size_bytes = rng.integers(0, 100, clients) / 2, rng.integers(0, 50, clients) * 10.0
    everyone = np.arange(clients)
    together = law.ends_s(start_s, size_bytes, everyone)
    alone = [law.ends_s(start_s[i : i + 1], size_bytes[i : i + 1], everyone[i : i + 1]).item() for i in range(clients)]
    assert together.tolist() == alone


def test_groups_have_laws_of_their_own() -> None:
    law = ByGroup(laws=[trace(clients=3), Constant(bytes_per_s=10.0)], group_of=np.array([0, 1, 0]))
    who = np.array([2, 1, 0])
    assert law.ends_s(np.ones(3), np.full(3, 300.0), who).tolist() == [5.25, 31.0, 5.25]
    assert law.served_bytes(np.ones(3), np.full(3, 3.0), who).tolist() == [150.0, 20.0, 150.0]
    assert law.rate(2.0, who).tolist() == [50.0, 10.0, 50.0]
    assert law.next_change_s(2.0, who).tolist() == [5.0, math.inf, 5.0]
    assert law.peak_rate(who).tolist() == [200.0, 10.0, 200.0]
    assert law.stops_s(who).tolist() == [math.inf] * 3


def test_change_points_act_on_what_is_under_way() -> None:
    law = Successive(laws=[Constant(bytes_per_s=100.0), Constant(bytes_per_s=50.0), trace()], starts_s=[2.0, 6.0])
    # By 2 s 100 bytes, by 6 s 200 more; at 6 s the trace begins again with 100 bytes a second.
    assert end(law, 1.0, 350.0) == 6.5
    assert end(law, 0.0, 200.0) == 2.0
    assert end(law, 2.0, 50.0) == 3.0
    assert end(law, 8.0, 100.0) == 10.0
    assert law.served_bytes(np.array([1.0]), np.array([6.5]), ONE).tolist() == [350.0]
    assert [law.next_change_s(t, ONE)[0] for t in (0.0, 2.0, 6.0)] == [2.0, 6.0, 8.0]
    assert law.peak_rate(ONE)[0] == 200.0


BAD_STEPS = {
    "": "line 1: the columns are missing; must be time_s, bytes_per_s, and client where clients differ",
    "time,rate\n0,1\n": "line 1: the columns are time, rate; must be",
    "time_s,bytes_per_s\n": "holds no steps",
    "time_s,bytes_per_s\n0,x\n": "line 2: '0,x' is not a time and a rate",
    "time_s,bytes_per_s\n0,1\n1,5,2\n": "line 3: '1,5,2' has 3 values for 2 columns; write numbers without commas",
    "time_s,bytes_per_s\n0,1\n2\n": "line 3: '2' is not a time and a rate",
    "time_s,bytes_per_s\n1,1\n": "line 2: time_s = 1.0: the first line of a trace must be at 0",
    "time_s,bytes_per_s\n0,1\n2,1\n\n1,1\n": "line 5: time_s = 1.0: must be finite and > 2.0, that of line 3",
    "time_s,bytes_per_s\n0,1\ninf,1\n": "line 3: time_s = inf: must be finite and > 0.0, that of line 2",
    "time_s,bytes_per_s\n0,-1\n": "line 2: bytes_per_s = -1.0: must be finite and >= 0",
    "time_s,bytes_per_s\n0,1e-320\n": "line 2: bytes_per_s = 1e-320: must be 0, or at least 1e-12 bytes per second",
    "time_s,bytes_per_s\n0,nan\n": "line 2: bytes_per_s = nan: must be finite and >= 0",
    "time_s,bytes_per_s\n0,0\n1,0\n": "carries nothing: every rate is 0",
    "client,time_s,bytes_per_s\n2,0,1\n": "line 2: client = 2: must lie in 0..1",
    "client,time_s,bytes_per_s\n1,0,1\n": "has no line of client 0; give every client a trace",
    "client,time_s,bytes_per_s\n0,0,1\n1,0,0\n": "carries nothing for client 1",
    "client,time_s,bytes_per_s\nx,0,1\n": "line 2: 'x,0,1' is not a time and a rate of a client",
}
BAD_PACKETS = {
    "": "holds no packets after 0 ms",
    "0\n": "holds no packets after 0 ms",
    "1\n2.5\n": "line 2: '2.5' is not a whole number of milliseconds",
    "3\n\n2\n": "line 3: 2 ms: must be >= 3, the line before",
    "9999999999\n": "line 1: 9999999999 ms: must be at most 10^9",
}


@pytest.mark.parametrize("text", BAD_STEPS)
def test_a_bad_file_of_steps_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "steps.csv"
    file.write_text(text)
    with pytest.raises(ParameterError) as refused:
        trace(clients=2, path=str(file))
    assert str(refused.value).startswith(f"path = {str(file)!r}: {BAD_STEPS[text]}")


@pytest.mark.parametrize("text", BAD_PACKETS)
def test_a_bad_file_of_packets_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "packets"
    file.write_text(text)
    with pytest.raises(ParameterError) as refused:
        PacketTrace(clients=1, draws=DRAWS, path=str(file))
    assert str(refused.value).startswith(f"path = {str(file)!r}: {BAD_PACKETS[text]}")


@pytest.mark.parametrize(
    ("keywords", "told"),
    [
        ({"path": "/nowhere.csv"}, r"path = '/nowhere.csv': cannot be read"),
        ({"time_s": None, "bytes_per_s": None}, r"path = None: give either path, or time_s and bytes_per_s"),
        ({"bytes_per_s": None}, r"bytes_per_s = None: must be given with time_s"),
        ({"bytes_per_s": [1.0]}, r"bytes_per_s = \[1\.0\]: must have 3 numbers"),
        ({"time_s": [1.0, 2.0, 3.0]}, r"time_s = .*: must hold at least one time, and begin with 0"),
        ({"time_s": [0.0, 2.0, 2.0]}, r"time_s = .*: 2\.0 must be finite and come after 2\.0"),
        ({"bytes_per_s": [1.0, -1.0, 2.0]}, r"bytes_per_s = .*: -1\.0 must be finite and >= 0"),
        ({"bytes_per_s": [0.0, 0.0, 0.0]}, r"bytes_per_s = .*: carry nothing"),
        ({"end_s": 5.0}, r"end_s = 5\.0: must be > 5\.0, the last of time_s"),
        ({"end_s": 0.0}, r"end_s = 0\.0: must be finite and > 0"),
        ({"after_end": "end"}, r"after_end = 'end': must be 'repeat', 'hold' or 'stop'"),
        ({"after_end": "hold", "bytes_per_s": [1.0, 1.0, 0.0]}, r"after_end = 'hold': would hold a rate of 0 for ever"),
        ({"offset": "some"}, r"offset = 'some': must be 'none' or 'random'"),
        ({"scale": 0.0}, r"scale = 0\.0: must be finite and >= 1e-12"),
    ],
)
def test_bad_parameters_of_a_trace_are_refused(keywords: dict[str, Any], told: str) -> None:
    with pytest.raises(ParameterError, match=told):
        trace(**keywords)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Constant(bytes_per_s=0.0), r"bytes_per_s = 0\.0: must be finite and > 0 bytes per second"),
        # A time beyond what numbers hold.
        (lambda: Constant(bytes_per_s=1e-320), r"bytes_per_s = 1e-320: must be finite and >= 1e-12 bytes per second"),
        (lambda: gauss(mean_bytes_per_s=1e-320), r"mean_bytes_per_s = 1e-320: must be finite and >= 1e-12"),
        (lambda: gauss(scale=1e-320), r"scale = 1e-320: must be finite and in \[1e-12, 1e\+100\]"),
        (lambda: gauss(mean_bytes_per_s=1e308), r"mean_bytes_per_s = 1e\+308: must be finite and in \[0, 1e\+100\]"),
        (lambda: gauss(std_bytes_per_s=1e308), r"std_bytes_per_s = 1e\+308: must be finite and in \[0, 1e\+100\]"),
        (lambda: levels(levels_bytes_per_s=[1.0, 1e308]), r"1e\+308 must be <= 1e\+100"),
        (lambda: levels(levels_bytes_per_s=[1.0, 1e-320]), r"1e-320 must be 0, or at least 1e-12 bytes per second"),
        (lambda: gauss(mean_bytes_per_s=0.0), r"mean_bytes_per_s = 0\.0"),
        (lambda: gauss(std_bytes_per_s=-1.0), r"std_bytes_per_s = -1\.0"),
        (lambda: gauss(memory=1.0), r"memory = 1\.0: must be in \[0, 1\)"),
        (lambda: gauss(step_s=0.0), r"step_s = 0\.0: must be finite and >= 1e-6"),
        (lambda: levels(levels_bytes_per_s=[1.0]), r"levels_bytes_per_s = \[1\.0\]: must hold at least two levels"),
        (lambda: levels(levels_bytes_per_s=[0.0, 0.0]), r"must hold at least two levels, one of them above 0"),
        (lambda: levels(levels_bytes_per_s=[1.0, -2.0]), r"-2\.0 must be finite and >= 0"),
        (lambda: levels(mean_stay_s=[1.0]), r"mean_stay_s = \[1\.0\]: must hold 2 times"),
        (lambda: levels(mean_stay_s=[1.0, 0.0]), r"0\.0 must be finite and >= 1e-6"),
        (lambda: levels(moves="jump"), r"moves = 'jump': must be 'any' or 'neighbour'"),
    ],
)
def test_bad_parameters_of_the_others_are_refused(make: Any, told: str) -> None:
    with pytest.raises(ParameterError, match=told):
        make()


def gauss(**changed: Any) -> GaussMarkov:
    given: dict[str, Any] = {"mean_bytes_per_s": 1.0, "std_bytes_per_s": 1.0, "memory": 0.5}
    return GaussMarkov(draws=DRAWS, **(given | changed))


def levels(**changed: Any) -> MarkovLevels:
    given: dict[str, Any] = {"levels_bytes_per_s": [1.0, 2.0], "mean_stay_s": [1.0, 2.0]}
    return MarkovLevels(draws=DRAWS, **(given | changed))
