"""Disturbances of a run that figures shade behind its curves: jamming, and outages that the scenario writes out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

    from analysis.results.run import Run
    from analysis.statistics.arrays import FloatArray


def disturbances(run: Run) -> pd.DataFrame:
    """Return the intervals of time in which something was jammed or cut off, ascending; overlapping ones of one name are joined.

    Columns: kind (jamming or outage), name, start_s, end_s, first_round, last_round (rounds that lie in it, in part or whole).
    Randomly drawn outages are in no table and are left out, as are outages given in rounds of servers with slots.
    """
    import pandas as pd

    intervals: list[tuple[str, str, float, float]] = []
    starts_s, ends_s = (run.rounds[name].to_numpy() for name in ("start_s", "end_s"))
    end_s = float(ends_s[-1]) if len(ends_s) else 0.0
    if run.source.has("jams"):
        table = run.arrow("jams", ["jammer", "start_s", "end_s"]).to_pandas()
        for name, dwells in table.groupby(table["jammer"].astype(str)):
            for low, high in join_intervals(dwells["start_s"].to_numpy(), dwells["end_s"].to_numpy()):
                intervals.append(("jamming", str(name), low, high))
    for outage in run.scenario.get("outages", ()):
        interval = None if run.scenario.get("slots") else _outage_interval(outage, starts_s)
        if interval is not None:
            intervals.append(("outage", str(outage["name"]), *interval))
    rows = []
    for kind, name, low, high in sorted(intervals, key=lambda interval: interval[2:]):
        if low < end_s:
            # The first round that ends after the interval begins, and the last that starts before it ends.
            first, last = np.searchsorted(ends_s, low, side="right") + 1, np.searchsorted(starts_s, high)
            rows.append((kind, name, low, min(high, end_s), int(first), int(last)))
    return pd.DataFrame(rows, columns=["kind", "name", "start_s", "end_s", "first_round", "last_round"])


def _outage_interval(outage: dict[str, Any], starts_s: FloatArray) -> tuple[float, float] | None:
    """Return (start, end) in seconds of an `outage` that the scenario states; inf: it lasts to the end of the run.

    An outage by rounds ends as its `to_round` opens. None if the outage is drawn at random, or the run ends before it.
    `starts_s` (n,): starts of the rounds.
    """
    if "from_s" in outage:
        return float(outage["from_s"]), float(outage.get("to_s", np.inf))
    first = outage.get("from_round")
    if first is None or first > len(starts_s):
        return None
    last = outage.get("to_round")
    return float(starts_s[first - 1]), float(starts_s[last - 1]) if last is not None and last <= len(starts_s) else np.inf


def join_intervals(starts: FloatArray, ends: FloatArray) -> list[tuple[float, float]]:
    """Join intervals (n,) that overlap or touch: return the fewest that cover the same times, ascending."""
    if not len(starts):
        return []
    order = np.argsort(starts, kind="stable")
    sorted_starts = starts[order]
    latest_end = np.maximum.accumulate(ends[order])  # of each interval and all before it
    # An interval begins a new stretch if all before it have ended.
    first = np.append(0, 1 + np.flatnonzero(sorted_starts[1:] > latest_end[:-1]))
    last = np.append(first[1:], len(order)) - 1
    return list(zip(sorted_starts[first].tolist(), latest_end[last].tolist(), strict=True))
