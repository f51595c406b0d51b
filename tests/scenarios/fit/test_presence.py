"""Presence fitted to intervals: a two-state law by hand, shares by hour by hand, a known day recovered, bad intervals refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import netsim
from scenarios.fit.log import read_log
from scenarios.fit.presence import fit_presence, presence_rows
from scenarios.schema.errors import UserError

DAY_S = 86_400.0


def log_of(intervals: list[tuple[int, float, float]], outcome: str = "") -> pd.DataFrame:
    rows = [{"client": c, "phase": "present", "start_s": a, "end_s": b, "outcome": outcome} for c, a, b in intervals]
    clients = sorted({client for client, _, _ in intervals})
    begin = min(start for _, start, _ in intervals)
    places = [(client, round) for client in clients for round in (1, 2, 3)]
    rows += [{"client": c, "round": r, "phase": "total", "start_s": begin, "end_s": begin + 1.0 + c + r} for c, r in places]
    return pd.DataFrame(rows)


def test_two_states_by_hand() -> None:
    # Client 0: on 0-10, off, on 30-40, off to the end. Client 1: on 0-100, when the log ends: cut.
    law = fit_presence(read_log(log_of([(0, 0.0, 10.0), (0, 30.0, 40.0), (1, 0.0, 100.0)])), "markov")
    assert law is not None
    # On: 120 s and two ends. Off: 20 s with an end, and 60 s without one.
    assert law.table == {"kind": "markov", "mean_on_s": 60.0, "mean_off_s": 80.0}
    # 2 T / mean is chi-square with 2 n degrees of freedom: 240 / 11.1433 and 240 / 0.484419 for n = 2.
    on = law.parameters["all mean_on_s"]
    assert (on.low, on.high) == (pytest.approx(21.5375, rel=1e-4), pytest.approx(495.439, rel=1e-4))


def test_a_known_two_state_world_is_recovered(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    intervals = []
    for client in range(12):
        now, present = 0.0, client % 3 > 0
        while now < 4 * DAY_S:
            stay = float(rng.exponential(7200.0 if present else 3600.0))
            if present:
                intervals.append((client, now, min(now + stay, 4 * DAY_S)))
            now, present = now + stay, not present
    fitted = netsim.fit(log_of(intervals), out=tmp_path / "out", laws={"present": "markov"}, seeds=0)
    law = fitted.estimates.presence
    assert law is not None
    assert law.parameters["all mean_on_s"].low < 7200.0 < law.parameters["all mean_on_s"].high
    assert law.parameters["all mean_off_s"].low < 3600.0 < law.parameters["all mean_off_s"].high
    assert netsim.load(fitted.scenario).availability.kind == "markov"
    assert not (tmp_path / "out" / "presence.csv").exists()


def test_shares_by_hour_by_hand() -> None:
    # Two days from 6:00 on: one client of two is there from 6:00 to 18:00, on both days; the other from 0:00 to 0:30 once.
    begin = 6 * 3600.0
    intervals = [(0, begin, 18 * 3600.0), (0, begin + DAY_S, 18 * 3600.0 + DAY_S), (1, DAY_S, DAY_S + 1800.0)]
    intervals.append((1, 2 * DAY_S + begin - 60.0, 2 * DAY_S + begin))
    law = fit_presence(read_log(log_of(intervals)), "diurnal")
    assert law is not None
    shares = law.table["by_hour"]
    assert shares[6:18] == [0.5] * 12
    assert shares[0] == pytest.approx(0.5 / 4)
    assert shares[18:] == [0.0] * 6
    assert (law.table["start_h"], law.table["mean_session_s"]) == (6.0, pytest.approx((24 * 3600 + 1800 + 60) / 4))


def test_a_trace_begins_with_the_log() -> None:
    unix_s = 1_700_000_000.0
    rows = presence_rows(read_log(log_of([(0, unix_s + 5.0, unix_s + 10.0), (1, unix_s, unix_s + 20.0)])))
    assert rows[["client", "start_s", "end_s"]].to_numpy().tolist() == [[0, 5.0, 10.0], [1, 0.0, 20.0]]


@pytest.mark.parametrize(
    ("intervals", "kind", "message"),
    [
        ([(0, 0.0, 10.0), (0, 5.0, 20.0)], None, "row 2: client is present twice at once"),
        ([(0, 0.0, 10.0), (1, 0.0, 10.0)], "markov", "no client leaves; use --law present=trace"),
        ([(0, 0.0, 10.0), (1, 0.0, 20.0)], "markov", "no client comes back; use --law present=trace"),
        ([(0, 0.0, 10.0), (1, 0.0, 20.0)], "diurnal", "needs a log of a day or more"),
    ],
)
def test_intervals_that_tell_no_law_are_refused(
    intervals: list[tuple[int, float, float]], kind: str | None, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        fit_presence(read_log(log_of(intervals)), kind)
