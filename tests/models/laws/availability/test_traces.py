"""Presence from files: by hand, with and without repetition, against a plain reading, and refusals that name the line."""

from __future__ import annotations

import json
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models.laws.availability.fedscale import FedScale
from models.laws.availability.traces import Toggles, Trace
from netsim.core.streams import Stream

INF = math.inf
TRACE = "client,start_s,end_s\n0,0,10\n2,5,6\n0,20,30\n2,6,8.5\n2,9,inf\n"


def stream() -> Stream:
    return Stream(seed=17, name="presence")


def seen(law: Any, *times: float) -> list[tuple[list[bool], list[float]]]:
    """What a law says at each time; a second one, of the same arguments, leaps there at once and says the same."""
    found = []
    for now in times:
        law.advance(now, stream())
        found.append((law.on.tolist(), law.next_change_s.tolist()))
    return found


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def to(text: str | bytes) -> str:
        path = tmp_path / "presence.txt"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return str(path)

    return to


@pytest.mark.parametrize("columns", ["client,start_s,end_s", "client,on_s,off_s", " client , start_s,end_s"])
def test_trace_by_hand(write: Any, columns: str) -> None:
    path = write(TRACE.replace("client,start_s,end_s", columns))
    law = Trace(clients=3, path=path)
    expected = {
        0.0: ([True, False, False], [10.0, INF, 5.0]),
        5.0: ([True, False, True], [10.0, INF, 8.5]),  # 5..6 and 6..8.5 are one interval
        8.5: ([True, False, False], [10.0, INF, 9.0]),
        15.0: ([False, False, True], [20.0, INF, INF]),
        20.0: ([True, False, True], [30.0, INF, INF]),
        99.0: ([False, False, True], [INF, INF, INF]),
    }
    assert (law.on.tolist(), law.next_change_s.tolist()) == expected[0.0]
    for now, answer in expected.items():
        assert seen(law, now) == [answer]
        assert seen(Trace(clients=3, path=path), now) == [answer]
    absent = Trace(clients=3, path=path, absent="always")
    assert (absent.on[1], absent.next_change_s[1]) == (True, INF)


def test_a_trace_that_repeats_by_hand(write: Any) -> None:
    # Client 0 across the period's end, client 1 to its end only, client 2 all of it, client 3 in its middle, client 4 never.
    path = write("client,start_s,end_s\n0,0,2\n0,8,10\n1,7,10\n2,0,4\n2,4,10\n3,3,5\n")
    law = Trace(clients=5, path=path, repeat_s=10.0)
    assert seen(law, 0.0, 2.0, 7.5, 10.0, 19.0, 20.0, 1003.0) == [
        ([True, False, True, False, False], [2.0, 7.0, INF, 3.0, INF]),
        ([False, False, True, False, False], [8.0, 7.0, INF, 3.0, INF]),
        ([False, True, True, False, False], [8.0, 10.0, INF, 13.0, INF]),
        ([True, False, True, False, False], [12.0, 17.0, INF, 13.0, INF]),
        ([True, True, True, False, False], [22.0, 20.0, INF, 23.0, INF]),
        ([True, False, True, False, False], [22.0, 27.0, INF, 23.0, INF]),
        ([False, False, True, True, False], [1008.0, 1007.0, INF, 1005.0, INF]),
    ]


def test_toggles_by_hand(write: Any) -> None:
    path = write("[[0, 10, 20, 30],\n null,\n [5, 8.5, 9],\n []]")
    expected = [
        ([True, False, False, False, False], [10.0, INF, 5.0, INF, INF]),
        ([False, False, True, False, False], [20.0, INF, INF, INF, INF]),
        ([True, False, True, False, False], [30.0, INF, INF, INF, INF]),
    ]
    assert seen(Toggles(clients=5, path=path), 0.0, 15.0, 25.0) == expected
    # Of clients 1 and 4 the file does not speak; client 3 is never there.
    assert Toggles(clients=5, path=path, absent="always").on.tolist() == [True, True, False, False, True]
    again = Toggles(clients=5, path=path, repeat_s=30.0)
    assert seen(again, 29.0, 30.0, 36.0) == [
        ([True, False, True, False, False], [40.0, INF, 30.0, INF, INF]),
        ([True, False, False, False, False], [40.0, INF, 35.0, INF, INF]),
        ([True, False, True, False, False], [40.0, INF, 38.5, INF, INF]),
    ]
    assert not seen(Toggles(clients=1, path=write("[]")), 5.0)[0][0][0]
    arrives_at_the_end = Toggles(clients=1, path=write("[[3, 5, 7]]"), repeat_s=7.0)
    assert seen(arrives_at_the_end, 6.9, 10.0) == [([False], [10.0]), ([True], [12.0])]


PHONES = {
    "107740": {"duration": 1, "inactive": [88494, 93284], "finish_time": 518400, "active": [88494, 93283], "model": "a"},
    "107743": {"duration": 1, "inactive": [1], "finish_time": 259200, "active": [0], "model": "b"},
    "9": {"inactive": [90, 200], "finish_time": 100, "active": [80, 95]},
    "10": {"inactive": [20, 130], "finish_time": 100, "active": [20, 120]},
}


def test_fedscale_by_hand(write: Any) -> None:
    path = write(json.dumps(PHONES))
    law = FedScale(clients=6, path=path)  # clients 4 and 5 are phones 0 and 1 again
    assert seen(law, 0.0, 97.0, 100.0) == [
        ([False, True, False, False, False, True], [93283.0, 1.0, 80.0, INF, 93283.0, 1.0]),
        ([False, False, True, False, False, False], [93283.0, 259200.0, 100.0, INF, 93283.0, 259200.0]),
        ([False, False, False, False, False, False], [93283.0, 259200.0, 180.0, INF, 93283.0, 259200.0]),
    ]
    assert seen(law, 518400.0 + 93283.5)[0][0] == [True, False, True, False, True, False]
    pickled = pickle.dumps({1: PHONES["9"]})
    with pytest.raises(ValueError, match=r"is a pickle, .* convert it: python -c \"import json, pickle"):
        FedScale(clients=1, path=write(pickled))


def test_drawn_phones_come_from_the_seed_and_all_of_the_table(write: Any) -> None:
    phones = {str(k): {"active": [k], "inactive": [k + 1], "finish_time": 50} for k in range(40)}
    path = write(json.dumps(phones))
    few, many = (FedScale(clients=k, path=path, phones="drawn") for k in (300, 4000))
    for now in (0.0, 7.5):
        few.advance(now, stream())
        many.advance(now, stream())
        np.testing.assert_array_equal(few.on, many.on[:300])
    # Who is which phone is part of the state: it is known before the next advance.
    resumed = FedScale(clients=4000, path=path, phones="drawn")
    resumed.load_state_dict(many.state_dict())
    np.testing.assert_array_equal(resumed.on, many.on)
    np.testing.assert_array_equal(resumed.next_change_s, many.next_change_s)
    # Present at 7.5 is who is phone 7; 4.4 deviations of a binomial share: probability 1e-5.
    assert abs(many.on.mean() - 1 / 40) < 4.4 * math.sqrt(1 / 40 * 39 / 40 / 4000)
    other = FedScale(clients=4000, path=path, phones="drawn")
    other.advance(7.5, Stream(seed=18, name="presence"))
    assert (other.on != many.on).any()


def test_traces_equal_a_plain_reading(write: Any) -> None:
    rng = np.random.default_rng(5)
    for repeat_s in (None, 40.0, 37.3):
        whole = [np.unique(np.round(rng.uniform(0, 37.3, rng.integers(0, 12)), 1)) for _ in range(30)]
        intervals = [times[: len(times) // 2 * 2].reshape(-1, 2) for times in whole]
        lines = [f"{k},{a},{b}" for k, pairs in enumerate(intervals) for a, b in pairs]
        rng.shuffle(lines)
        lines.sort(key=lambda line: float(line.split(",")[1]))  # clients in any order, each one's intervals in order of time
        law = Trace(clients=30, path=write("client,start_s,end_s\n" + "\n".join(lines)), repeat_s=repeat_s)
        for now in np.sort(rng.uniform(0, 500, 200)).tolist():
            law.advance(now, stream())
            within = now % repeat_s if repeat_s else now
            expected = [any(a <= within < b for a, b in pairs) for pairs in intervals]
            assert law.on.tolist() == expected, now
            assert (law.next_change_s > now).all()


def test_periods_that_floating_point_cannot_hold_do_not_drift(write: Any) -> None:
    law = Trace(clients=1, path=write("client,start_s,end_s\n0,0,0.05\n"), repeat_s=0.1)
    for cycle in range(1, 3000):
        law.advance(cycle * 0.1, stream())
        assert law.on[0], cycle
        law.advance(float(np.nextafter((cycle + 1) * 0.1, 0)), stream())
        assert not law.on[0], cycle
        assert law.next_change_s[0] == (cycle + 1) * 0.1


def test_a_change_just_before_the_period_ends_comes_when_it_was_told(write: Any) -> None:
    # Beside a multiple of the period, the sum of the two is rounded to that multiple, or past it.
    last = float(np.nextafter(0.1, 0))
    path = write(f"client,start_s,end_s\n0,0.02,{last!r}\n1,{last!r},0.1\n")
    law = Trace(clients=2, path=path, repeat_s=0.1)
    leaps = [Trace(clients=2, path=path, repeat_s=0.1) for _ in range(2)]
    for _ in range(300):
        due = float(law.next_change_s.min())
        for now, leap in zip((float(np.nextafter(due, 0)), due), leaps, strict=True):
            law.advance(now, stream())
            leap.load_state_dict({"now_s": now})
            assert law.on.tolist() == leap.on.tolist(), now
            assert law.next_change_s.tolist() == leap.next_change_s.tolist(), now


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"line 1: the columns are \[\]"),
        ("client,from,to\n", r"line 1: the columns are \['client', 'from', 'to'\]; must be client, start_s, end_s"),
        ("client,on_s,off_s\n0,5,6\n0,1,2\n", r"line 3: on_s = 1.0: must be >= 6.0, where client 0's last"),
        ("client,start_s,end_s\n0,5,6\n1,0,9\n1,8,9\n0,1,2\n", r"line 4: start_s = 8.0: must be >= 9.0, where client 1's last"),
        ("client,on_s,off_s\n0,5,inf\n0,7,8\n", r"line 3: on_s = 7.0: must be >= inf"),
        ("client,on_s,off_s\n\n0,-1,2\n", r"line 3: on_s = -1.0, off_s = 2.0: must be 0 <= on_s < off_s"),
        ("client,on_s,off_s\n0,2,2\n", r"line 2: on_s = 2.0, off_s = 2.0"),
        ("client,start_s,end_s\n0,nan,2\n", r"line 2: start_s = nan"),
        ("client,on_s,off_s\n3,1,2\n", r"line 2: client = 3: must lie in 0..2"),
        ("client,on_s,off_s\n-1,1,2\n", r"line 2: client = -1: must lie in 0..2"),
        ("client,on_s,off_s\n0.5,1,2\n", r"line 2: client = 0.5: must be a whole number"),
        ("client,on_s,off_s\ninf,1,2\n", r"line 2: client = inf: must be a whole number"),
        ("client,on_s,off_s\n0,1,2\n0,3,5,6\n", r"line 3: '0,3,5,6' is not a client number and two times"),
        ("client,on_s,off_s\n0,1,5,6\n", r"line 2: '0,1,5,6' is not a client number and two times"),
        ("client,on_s,off_s\n0,1\n", r"line 2: '0,1' is not a client number and two times"),
        ("client,on_s,off_s\n0,1,2\n\na,1,2\n", r"line 4: 'a,1,2' is not"),
        (b"\xff\xfe\x00", r"cannot be read as a text file"),
        (pickle.dumps([1, 2]), r"is a pickle, which can run any code"),
    ],
)
def test_malformed_traces_are_refused_with_the_line(write: Any, text: str | bytes, message: str) -> None:
    with pytest.raises(ValueError, match=r"^path = .*presence.txt': " + message):
        Trace(clients=3, path=write(text))


def test_an_interval_past_the_period_is_refused_with_the_line(write: Any) -> None:
    with pytest.raises(ValueError, match=r"line 3: start_s = 3.0, end_s = 5.0: must end by repeat_s = 4.0"):
        Trace(clients=1, path=write("client,start_s,end_s\n0,1,2\n0,3,5\n"), repeat_s=4.0)
    with pytest.raises(ValueError, match=r"line 1: client 0: 5 is after repeat_s = 4"):
        Toggles(clients=1, path=write("[[1, 2, 5]]"), repeat_s=4.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"line 1: must be JSON, a list with one list of times a client"),
        ("\n{}", r"line 2: must be JSON, a list with"),
        ("[[1, 2],\n [3, 3]]", r"line 2: client 1: 3 stands after 3; times must ascend"),
        ("[\n\n[1, 2]\n,\n\n[5, 3]]", r"line 6: client 1: 3 stands after 5; times must ascend"),
        ("[[1],\n [-1]]", r"line 2: client 1: must be a list of times in seconds, finite and >= 0, or null"),
        ("[[1, NaN]]", r"line 1: client 0: must be a list of times"),
        ('[["1"]]', r"line 1: client 0: must be a list of times"),
        ("[3]", r"line 1: client 0: must be a list of times"),
        ("[[1], [2],\n[3]]", r"line 2: holds a list for client 2; there are 2 clients, from 0"),
        ("[[1,\n2, ]]", r"line 2: is not JSON \("),
        ("[[1]\n [2]]", r"line 2: is not JSON \(expecting , or \]\)"),
        ("[[1]]\n]", r"line 2: is not JSON \(nothing may follow\)"),
        ("[[1]", r"line 1: is not JSON"),
        ("[" * 100_000, r"line 1: is nested too deeply"),
        (pickle.dumps([[1, 2]]), r"is a pickle, which can run any code as it is read; if you trust it, convert it: python -c"),
        (pickle.dumps([[1, 2]], protocol=0), r"is a pickle"),
        (pickle.dumps({"a": [1, 2]}, protocol=1), r"is a pickle"),
        (pickle.dumps({}, protocol=0), r"is a pickle"),
        (pickle.dumps([], protocol=1), r"is a pickle"),
    ],
)
def test_malformed_toggles_are_refused_with_the_line(write: Any, text: str | bytes, message: str) -> None:
    with pytest.raises(ValueError, match=r"^path = .*presence.txt': " + message):
        Toggles(clients=2, path=write(text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", r"line 1: must be JSON, FedScale's availability table"),
        ("{}", r"holds no phone"),
        ('{1: {"active": [], "inactive": [], "finish_time": 5}}', r"line 1: is not JSON \(expecting a name in quotes\)"),
        ('{"1": 3}', r"line 1: entry '1': must be a table"),
        ('{"1":\n {"active": [], "inactive": []}}', r"line 1: entry '1': finish_time = None: must be a number of seconds > 0"),
        ('{"1": {"active": [1], "finish_time": 5}}', r"entry '1': inactive must be a list of times"),
        ('{"1": {"active": [1], "inactive": [], "finish_time": 5}}', r"has 1 times in active, but 0 in inactive"),
        ('{"1": {"active": [3], "inactive": [2], "finish_time": 5}}', r"active = 3, inactive = 2: goes back in time"),
        ('{"1": {"active": [1, 2], "inactive": [3, 4], "finish_time": 5}}', r"active = 2, inactive = 4: .* begins before"),
        (
            '{"1": {"active": [], "inactive": [], "finish_time": 5},\n "1": {"active": [], "inactive": [], "finish_time": 5}}',
            r"line 2: entry '1' stands twice",
        ),
    ],
)
def test_malformed_tables_of_phones_are_refused_with_the_line(write: Any, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=r"^path = .*presence.txt': .*" + message):
        FedScale(clients=2, path=write(text))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: Trace(clients=2, path=path, absent="no"), r"^absent = 'no'"),  # type: ignore[arg-type]
        (lambda path: Toggles(clients=2, path=path, absent="no"), r"^absent = 'no'"),  # type: ignore[arg-type]
        (lambda path: Trace(clients=2, path=path, repeat_s=0.0), r"^repeat_s = 0.0: must be > 0 and <= 1e"),
        (lambda path: Toggles(clients=2, path=path, repeat_s=INF), r"^repeat_s = inf"),
        (lambda path: FedScale(clients=2, path=path, phones="all"), r"^phones = 'all'"),  # type: ignore[arg-type]
        (lambda path: Trace(clients=2, path="no such file"), r"^path = 'no such file': cannot be read"),
        (lambda path: Trace(clients=0, path=path), r"^clients = 0"),
    ],
)
def test_bad_values_are_refused_by_name(write: Any, make: Any, message: str) -> None:
    path = write("client,start_s,end_s\n")
    with pytest.raises(ValueError, match=message):
        make(path)
