"""Delay, misses, false alarms and recovery of each variant over all its seeds, with intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from analysis.breakpoints.changes import WINDOW, Unit, change_table, detects, true_changes
from analysis.detections.measure import run_detections
from analysis.results.groups import Groups
from analysis.statistics.intervals import Interval, mean_interval
from analysis.statistics.survival import Reached, share_reached

if TYPE_CHECKING:
    import pandas as pd

    from analysis.results.run import Run


@dataclass(frozen=True, slots=True)
class Answered:
    """What became of the changes that the runs of one variant went through. Times are in rounds, or in seconds."""

    label: str
    runs: int
    changes: int
    declared: int
    """Changes that were declared."""
    jamming: int
    """Declarations that jamming caused."""
    false_alarms: Interval
    """Further declarations, in a thousand rounds; over seeds. NaN: nothing declares changes."""
    delay: Interval
    """Restricted mean of the delay: of min(delay, `delay_horizon`) over all changes, missed ones included; over seeds."""
    delay_horizon: float
    """As long as all changes could have been declared in."""
    recovered: int
    watched: int
    """Changes of which it could be said."""
    recovery: Interval
    """Restricted mean of the time to recovery, up to `recovery_horizon`; over seeds."""
    recovery_horizon: float

    @property
    def missed(self) -> int:
        """Changes that nothing was declared after, before the next or the end of the run."""
        return self.changes - self.declared


def tables(runs: Sequence[Run], *, window: int = WINDOW) -> pd.DataFrame:
    """`change_table` of all runs, one below the other, with the column seed before the others."""
    import pandas as pd

    frames = []
    for run in runs:
        frame = change_table(run, window=window)
        frame.insert(0, "seed", run.seed)
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def answered(groups: Groups, *, window: int = WINDOW, unit: Unit = "rounds") -> list[Answered]:
    """A row for each variant whose runs went through changes; the horizons are those of all variants, so that they compare.

    ValueError: seconds are asked for, and no time passes.
    """
    import pandas as pd

    told = {label: tables(runs, window=window) for label, runs in groups.items()}
    told = {label: frame for label, frame in told.items() if len(frame)}
    if not told:
        return []
    if unit == "seconds" and not any(frame["seconds"].any() for frame in told.values()):
        raise ValueError("unit = 'seconds': no time passes in these runs; count rounds")
    length, watched = ("rounds", "watched_rounds") if unit == "rounds" else ("seconds", "watched_s")
    whole = pd.concat(told.values(), ignore_index=True)
    horizons = _horizon(whole, length), _horizon(whole[whole["watched_rounds"] > 0], watched)
    return [_answered(label, groups[label], frame, unit, *horizons) for label, frame in told.items()]


def _horizon(frame: pd.DataFrame, column: str) -> float:
    """The shortest time between a change and the next; where no run has two changes, between a change and the end of a run."""
    if not len(frame):
        return math.nan
    last = frame["ends_run"].to_numpy(np.bool_)
    return float((frame if last.all() else frame[~last])[column].min())


def _answered(
    label: str, runs: Sequence[Run], frame: pd.DataFrame, unit: Unit, delay_horizon: float, recovery_horizon: float
) -> Answered:
    suffix = "rounds" if unit == "rounds" else "s"
    watched = frame[frame["watched_rounds"] > 0]
    declares = [run for run in runs if detects(run)]
    scores = [run_detections(run, true_changes(run)) for run in declares]
    rounds = [max(1, len(run.columns(["round"])["round"])) for run in declares]
    alarms = [1000.0 * sum(score.false_alarms.values()) / count for count, score in zip(rounds, scores, strict=True)]
    length, looked_for = ("rounds", "watched_rounds") if unit == "rounds" else ("seconds", "watched_s")
    delays = _by_seed(frame, f"delay_{suffix}", length, delay_horizon) if declares else []
    return Answered(
        label=label,
        runs=len(runs),
        changes=len(frame),
        declared=int(frame["delay_rounds"].notna().sum()),
        jamming=sum(sum(score.jamming.values()) for score in scores),
        false_alarms=mean_interval(alarms),
        delay=_restricted(delays, delay_horizon),
        delay_horizon=delay_horizon,
        recovered=int(watched["recovery_rounds"].notna().sum()),
        watched=len(watched),
        recovery=_restricted(_by_seed(watched, f"recovery_{suffix}", looked_for, recovery_horizon), recovery_horizon),
        recovery_horizon=recovery_horizon,
    )


def _by_seed(frame: pd.DataFrame, column: str, length: str, horizon: float) -> list[float]:
    """Of each seed the mean over its changes of min(time, `horizon`); what was censored lasted longer than the horizon.

    A change that the end of the run followed sooner than that is left out, whatever came of it.
    """
    long = frame[frame[length] >= horizon]
    restricted = long[column].fillna(math.inf).clip(upper=horizon)
    return [float(mean) for mean in restricted.groupby(long["seed"]).mean()]


def _restricted(means: Sequence[float], horizon: float) -> Interval:
    """The mean over seeds; where all were censored it is the horizon, and has no interval, as of `restricted_mean`."""
    interval = mean_interval(means)
    return interval if any(mean < horizon for mean in means) else Interval(interval.mean, math.nan, interval.count)


def share_over_time(frame: pd.DataFrame, what: str, unit: Unit = "rounds") -> Reached | None:
    """Kaplan-Meier estimate of the share of changes that were declared (`what` = "delay") or recovered from ("recovery").

    `frame` as of `tables`; None where there is none that could be.
    """
    suffix, ends = ("rounds", "rounds") if unit == "rounds" else ("s", "seconds")
    if what == "recovery":
        frame, ends = frame[frame["watched_rounds"] > 0], "watched_rounds" if unit == "rounds" else "watched_s"
    if not len(frame):
        return None
    times = frame[f"{what}_{suffix}"].fillna(np.inf).to_numpy(np.float64)
    return share_reached(times.tolist(), frame[ends].to_numpy(np.float64).tolist())
