"""Presence by the hour of the day: by hand, and against its table, the length of its sessions, and numerical integration."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from models.laws.availability.diurnal import DAY_S, Diurnal
from netsim.core.streams import Stream
from tests.helpers.suites import each_nth

NIGHT = [0.8, 0.85, 0.9, 0.9, 0.9, 0.8, 0.5, 0.2, 0.1, *[0.05] * 3, *[0.1] * 4, 0.15, 0.2, *[0.3] * 3, 0.4, 0.6, 0.7]
EDGES = [*[0.0] * 6, *[1.0] * 6, *[0.0, 1.0] * 6]
TABLES = {"phones by night": (NIGHT, 3600.0), "long sessions": (NIGHT, 6 * 3600.0), "all or nobody": (EDGES, 1800.0)}


def law(clients: int, table: list[float], session_s: float, **more: Any) -> Diurnal:
    return Diurnal(clients=clients, by_hour=table, mean_session_s=session_s, **more)


def stream(seed: int = 17) -> Stream:
    return Stream(seed=seed, name="presence")


def share(table: list[float], local_h: Any) -> Any:
    """The table, interpolated between the middles of its hours."""
    return np.interp(np.mod(local_h, 24.0), np.arange(-0.5, 25.0), [table[-1], *table, table[0]])


class Fixed:
    """Draws written out: `rows[index][entity]`."""

    def __init__(self, rows: list[list[float]]) -> None:
        self.rows = np.array(rows)

    def uniforms_at(self, index: int, entities: Any, size: int) -> Any:
        return self.rows[index][entities]


def test_a_flat_table_by_hand() -> None:
    # p = 1/5 always: sessions of 1000 s, and absences of 4000 s; u = 1 - 1/e makes a sojourn equal to its mean.
    m = 1 - math.exp(-1)
    flat = law(2, [0.2] * 24, 1000.0)
    draws = Fixed([[0.19, 0.21], [m, m], [m, m], [m, m]])
    flat.advance(0.0, draws)
    assert flat.on.tolist() == [True, False]
    np.testing.assert_allclose(flat.next_change_s, [1000.0, 4000.0])
    flat.advance(4500.0, draws)
    assert flat.on.tolist() == [False, True]
    np.testing.assert_allclose(flat.next_change_s, [5000.0, 5000.0])
    assert flat.notes()["mean_session_s"] == pytest.approx(1000.0, rel=1e-12)


def test_a_table_that_falls_faster_than_sessions_end_by_hand() -> None:
    # From 0:30 to 1:30 p falls from 0.8 to 0.2; sessions last days, so all departures are those that p' asks for: at -p'/p the
    # hazard gathered until p(t) is ln(0.8 / p(t)), and nobody comes.
    table = [0.8, 0.2, *[0.2] * 22]
    falling = law(2, table, 30 * DAY_S, start_h=0.5)
    half = 0.5  # exp(-level) = 0.5: p has halved, after 0.4 / 0.6 of the hour
    falling.advance(0.0, Fixed([[0.0, 0.9], [half, 0.999]]))
    assert falling.on.tolist() == [True, False]
    np.testing.assert_allclose(falling.next_change_s[0], 3600 * 0.4 / 0.6)
    assert falling.next_change_s[1] > 3600.0


@pytest.mark.parametrize("name", each_nth(3, TABLES, first=1))
def test_the_share_present_is_the_table_at_every_instant(name: str) -> None:
    table, session_s = TABLES[name]
    clients = 1200
    zones = np.repeat([-5.0, 1.0, 8.0], clients // 3)
    here = law(clients, table, session_s, time_zone_h=zones, start_h=20.0)
    for now_h in (0.0, 0.4, 3.0, 4.25, 9.1, 25.0):
        here.advance(now_h * 3600.0, stream())
        for zone in (-5.0, 1.0, 8.0):
            expected = float(share(table, 20.0 + now_h + zone))
            found = here.on[zones == zone].mean()
            # 5 deviations of a binomial share: probability 6e-7 each. Where the table says 0 or 1, exactly.
            assert abs(found - expected) <= 5 * math.sqrt(expected * (1 - expected) / (clients // 3)) + 1e-9, (now_h, zone)


@pytest.mark.parametrize("name", TABLES)
def test_sessions_attain_the_length_that_is_reported(name: str) -> None:
    clients, end_s = 1500, 2 * DAY_S
    here = law(clients, *TABLES[name])
    reported = here.notes()["mean_session_s"]
    here.advance(0.0, stream())
    levels = np.random.default_rng(4)
    present, departures, begins = np.zeros(clients), np.zeros(clients), np.zeros(clients)
    # Each client by its own clock, sojourn after sojourn, over two whole days.
    while (begins < end_s).any():
        ends = here.next_change_s.copy()
        present += here.on * np.maximum(np.minimum(ends, end_s) - begins, 0.0)
        departures += here.on & (ends < end_s)
        begins = ends
        here.on[:] = ~here.on
        here.next_change_s[:] = here._ends_s(np.arange(clients), levels.exponential(size=clients))
    attained = present.sum() / departures.sum()
    error = np.std(present - attained * departures) / math.sqrt(clients) / departures.mean()
    assert abs(attained - reported) < 5 * error, (attained, reported, error)


@pytest.mark.parametrize("leaving", [True, False])
def test_sojourns_equal_numerical_integration_of_the_rates(leaving: bool) -> None:
    grid_s = 0.5
    for table, session_s in (TABLES["phones by night"], TABLES["long sessions"]):
        here = law(1, table, session_s)
        times = np.arange(0.0, 3 * DAY_S, grid_s) + grid_s / 2
        p = share(table, times / 3600.0)
        slope = (share(table, (times + 0.1) / 3600.0) - share(table, (times - 0.1) / 3600.0)) / 0.2
        leave = np.maximum(1 / session_s, -slope / p)
        rate = leave if leaving else np.maximum((slope + leave * p) / (1 - p), 0.0)
        gathered = np.concatenate(([0.0], np.cumsum(rate * grid_s)))
        for begin_s, level in ((0.0, 0.3), (21_000.0, 0.01), (22_000.0, 1.5), (30_000.0, 0.7), (70_000.0, 2.5), (86_300.0, 1.0)):
            at = int(begin_s / grid_s)
            expected = np.interp(gathered[at] + level, gathered, np.arange(len(gathered)) * grid_s)
            here.next_change_s[:], here.on[:] = begin_s, leaving
            found = here._ends_s(np.array([0]), np.array([level]))[0]
            assert abs(found - expected) < 1.0, (begin_s, level, found, expected)


def test_nobody_leaves_where_everyone_is_always_there_and_nobody_comes_where_none_is() -> None:
    always = law(5, [1.0] * 24, 60.0)
    always.advance(0.0, stream())
    assert (always.on.all(), always.next_change_s.tolist(), always.notes()) == (True, [math.inf] * 5, {"mean_session_s": None})
    # Present from 11:30 to 12:30 in full, and at no other time but for the hours before and after.
    noon = law(200, [*[0.0] * 11, 1.0, 1.0, *[0.0] * 11], 60.0)
    noon.advance(10.5 * 3600, stream())
    assert not noon.on.any()
    noon.advance(11.5 * 3600, stream())
    assert noon.on.all()
    assert (noon.next_change_s >= 12.5 * 3600).all()
    noon.advance(13.5 * 3600, stream())
    assert not noon.on.any()
    assert (noon.next_change_s >= 34.5 * 3600).all()


def test_a_time_zone_is_the_same_day_earlier() -> None:
    rows = np.random.default_rng(1).random((3000, 1)).tolist()
    here, ahead = law(1, NIGHT, 3600.0, start_h=5.0), law(1, NIGHT, 3600.0, time_zone_h=5.0)
    for now in (0.0, 1e4, 1e5):
        here.advance(now, Fixed(rows))
        ahead.advance(now, Fixed(rows))
        assert here.on[0] == ahead.on[0]
        assert here.next_change_s[0] == ahead.next_change_s[0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"by_hour": [0.5] * 23}, r"^by_hour has 23 entries: must hold 24 numbers"),
        ({"by_hour": [*[0.5] * 23, 1.2]}, r"^by_hour = 1.2 for hour 23: must be a probability"),
        ({"by_hour": [*[0.5] * 23, math.nan]}, r"^by_hour = nan for hour 23"),
        ({"by_hour": [0.0] * 24}, r"^by_hour is 0 throughout: must be above 0 in some hour"),
        ({"mean_session_s": 0.0}, r"^mean_session_s = 0.0: must be finite and >= 0.001 seconds"),
        ({"time_zone_h": 25.0}, r"^time_zone_h = 25.0: must be finite and in \[-24, 24\] hours"),
        ({"time_zone_h": np.zeros(3)}, r"^time_zone_h has 3 entries: must have 2"),
        ({"start_h": -1.0}, r"^start_h = -1.0: must lie in 0..24"),
    ],
)
def test_bad_values_are_refused_by_name(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Diurnal(clients=2, **({"by_hour": [0.5] * 24, "mean_session_s": 60.0} | changes))
