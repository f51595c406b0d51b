"""What every registered availability does: a leap equals many steps, more clients change nobody, state goes on, changes are due.

A kind that is registered and has no example here fails a test.
"""

from __future__ import annotations

import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from netsim.core.protocols import Availability
from netsim.core.streams import Stream
from scenarios.registry.kinds import BUILT_IN, resolve

HOURLY = [round(0.5 + 0.4 * math.sin(hour / 24 * 2 * math.pi), 3) for hour in range(24)]
EXAMPLES: dict[str, list[dict[str, Any]]] = {
    "always": [{}],
    "markov": [{"mean_on_s": 9000.0, "mean_off_s": 5000.0}, {"mean_on_s": 3000.0, "mean_off_s": 5000.0, "start": "on"}],
    "trace": [{"path": "trace.csv"}, {"path": "trace.csv", "repeat_s": 4e4, "absent": "always"}],
    "toggles": [{"path": "toggles.json"}, {"path": "toggles.json", "repeat_s": 4e4}],
    "fedscale": [{"path": "phones.json"}, {"path": "phones.json", "phones": "drawn"}],
    "diurnal": [{"by_hour": HOURLY, "mean_session_s": 5000.0}],
}
ALL = [pytest.param(kind, arguments, id=f"{kind}-{i}") for kind in EXAMPLES for i, arguments in enumerate(EXAMPLES[kind])]
FEW = 20
END_S = 2e5


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(2)
    lists = [np.unique(rng.integers(0, 40_000, 2 * rng.integers(0, 6))).astype(float)[: k % 7 * 2] for k in range(FEW)]
    pairs = [times[: len(times) // 2 * 2].reshape(-1, 2) for times in lists]
    rows = [f"{k},{a},{b}" for k, each in enumerate(pairs) for a, b in each]
    Path("trace.csv").write_text("client,start_s,end_s\n" + "\n".join(rows) + "\n")
    Path("toggles.json").write_text(json.dumps([times.tolist() for times in lists]))
    phones = {
        k: {"active": each[:, 0].tolist(), "inactive": each[:, 1].tolist(), "finish_time": 40_000 + 5 * k}
        for k, each in enumerate(pairs)
    }
    Path("phones.json").write_text(json.dumps(phones))


def made(kind: str, arguments: dict[str, Any], clients: int = FEW) -> Any:
    return resolve("availability", kind)(clients=clients, **arguments)


def stream() -> Stream:
    return Stream(seed=5, name="availability")


def test_every_kind_has_an_example() -> None:
    assert EXAMPLES.keys() == BUILT_IN["availability"].keys()


@pytest.mark.parametrize(("kind", "arguments"), ALL)
def test_one_leap_equals_many_steps(kind: str, arguments: dict[str, Any]) -> None:
    leap, steps = made(kind, arguments), made(kind, arguments)
    steps.advance(0.0, stream())
    for now in np.sort(np.random.default_rng(0).uniform(0, END_S, 300)).tolist():
        before, due = steps.on.copy(), steps.next_change_s.copy()
        steps.advance(now, stream())
        # Nobody comes or goes without being due, and who is not due keeps the time of the next change.
        assert not (before != steps.on)[due > now].any()
        assert (steps.next_change_s == due)[due > now].all()
        assert (steps.next_change_s > now).all()
    steps.advance(END_S, stream())
    leap.advance(END_S, stream())
    np.testing.assert_array_equal(leap.on, steps.on)
    np.testing.assert_array_equal(leap.next_change_s, steps.next_change_s)


@pytest.mark.parametrize(("kind", "arguments"), ALL)
def test_each_change_is_at_the_time_that_was_told(kind: str, arguments: dict[str, Any]) -> None:
    law = made(kind, arguments)
    law.advance(0.0, stream())
    for _ in range(200):
        due = float(law.next_change_s.min())
        if due == math.inf:
            break
        before, whose = law.on.copy(), law.next_change_s == due
        law.advance(float(np.nextafter(due, 0.0)), stream())
        np.testing.assert_array_equal(law.on, before)
        law.advance(due, stream())
        np.testing.assert_array_equal(law.on != before, whose)


@pytest.mark.parametrize(("kind", "arguments"), ALL)
def test_more_clients_change_nobodys_presence(kind: str, arguments: dict[str, Any]) -> None:
    few, many = made(kind, arguments), made(kind, arguments, clients=3000)
    for now in (0.0, 17.0, 9e4):
        few.advance(now, stream())
        many.advance(now, stream())
        np.testing.assert_array_equal(few.on, many.on[:FEW])
        np.testing.assert_array_equal(few.next_change_s, many.next_change_s[:FEW])


@pytest.mark.parametrize(("kind", "arguments"), ALL)
def test_state_survives_a_round_trip_in_mid_run_and_is_a_copy(kind: str, arguments: dict[str, Any]) -> None:
    for stop in (None, 0.0, 3e4):
        law = made(kind, arguments)
        if stop is not None:
            law.advance(stop, stream())
        state = law.state_dict()
        law.advance(1.1e5, stream())
        other = made(kind, arguments)
        # Loading goes back in time as well as forward, into the arrays that others may hold.
        other.advance(1.9e5, stream())
        on = other.on
        other.load_state_dict(state)
        other.advance(1.1e5, stream())
        np.testing.assert_array_equal(on, law.on)
        np.testing.assert_array_equal(other.next_change_s, law.next_change_s)


@pytest.mark.parametrize(("kind", "arguments"), [param for param in ALL if param.values[0] != "always"])
def test_time_does_not_run_backwards(kind: str, arguments: dict[str, Any]) -> None:
    law = made(kind, arguments)
    law.advance(5.0, stream())
    with pytest.raises(ValueError, match=r"^now_s = 4.0: must be >= 5.0"):
        law.advance(4.0, stream())


@pytest.mark.parametrize(("kind", "arguments"), ALL)
def test_its_notes_are_plain_data(kind: str, arguments: dict[str, Any]) -> None:
    notes = made(kind, arguments).notes()
    assert json.loads(json.dumps(notes, allow_nan=False)) == notes


@pytest.mark.parametrize(("kind", "arguments"), ALL)
def test_changes_are_told_as_time_after_time_finds_them(kind: str, arguments: dict[str, Any]) -> None:
    """All due at once, as the law does it, and one time after the other, as the Protocol does for a class of one's own."""
    leap, slow = made(kind, arguments), made(kind, arguments)
    told: list[list[tuple[int, float, bool]]] = [[], []]
    for now in (0.0, 2e4, END_S):
        for law, changes, found in ((leap, leap.changes, told[0]), (slow, partial(Availability.changes, slow), told[1])):
            last: dict[int, float] = {}
            for who, times in changes(now, stream()):
                for client, time_s in zip(who.tolist(), times.tolist(), strict=True):
                    assert last.get(client, -1.0) < time_s <= now
                    last[client] = time_s
                    found.append((client, time_s, bool(law.on[client])))
        np.testing.assert_array_equal(leap.on, slow.on)
        np.testing.assert_array_equal(leap.next_change_s, slow.next_change_s)
    assert sorted(told[0]) == sorted(told[1])
    assert (len(told[0]) > FEW) == (kind != "always")
