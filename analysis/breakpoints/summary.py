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
from analysis.statistics.survival import ReachedShare, share_reached

if TYPE_CHECKING:
    import pandas as pd

    from analysis.results.run import Run


@dataclass(frozen=True, slots=True)
class ChangeSummary:
    """Declarations of, and recoveries from, the changes in the runs of one variant. Times are in rounds or in seconds."""

    label: str
    runs: int
    changes: int
    declared: int
    """Changes that were declared."""
    jamming: int
    """Declarations that jamming caused."""
    false_alarms: Interval
    """Declarations without a cause in a thousand rounds, over seeds. NaN: the scheduler declares no changes."""
    delay: Interval
    """Restricted mean of the delay: of min(delay, `delay_horizon`) over all changes, missed ones included; over seeds."""
    delay_horizon: float
    """Time within which every change could have been declared."""
    recovered: int
    watched: int
    """Changes that were watched for recovery."""
    recovery: Interval
    """Restricted mean of the time to recovery, up to `recovery_horizon`; over seeds."""
    recovery_horizon: float

    @property
    def missed(self) -> int:
        """Changes without a declaration before the next change or the end of the run."""
        return self.changes - self.declared


def change_tables(runs: Sequence[Run], *, window: int = WINDOW) -> pd.DataFrame:
    """Return the `change_table` of all runs, one below the other, with the column seed before the others."""
    import pandas as pd

    frames = []
    for run in runs:
        frame = change_table(run, window=window)
        frame.insert(0, "seed", run.seed)
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def summarize_changes(groups: Groups, *, window: int = WINDOW, unit: Unit = "rounds") -> list[ChangeSummary]:
    """Return a summary for each variant with changes. All variants share the horizons, so that their means compare.

    ValueError: seconds are asked for, but no time passes in the runs.
    """
    import pandas as pd

    frames = {label: change_tables(runs, window=window) for label, runs in groups.items()}
    frames = {label: frame for label, frame in frames.items() if len(frame)}
    if not frames:
        return []
    if unit == "seconds" and not any(frame["seconds"].any() for frame in frames.values()):
        raise ValueError("unit = 'seconds': no time passes in these runs; count rounds")
    length, watched = ("rounds", "watched_rounds") if unit == "rounds" else ("seconds", "watched_s")
    whole = pd.concat(frames.values(), ignore_index=True)
    horizons = _horizon(whole, length), _horizon(whole[whole["watched_rounds"] > 0], watched)
    return [_summarize(label, groups[label], frame, unit, *horizons) for label, frame in frames.items()]


def _horizon(frame: pd.DataFrame, column: str) -> float:
    """Return the shortest time from a change to the next; where no run has two changes, to the end of a run."""
    if not len(frame):
        return math.nan
    last = frame["ends_run"].to_numpy(np.bool_)
    return float((frame if last.all() else frame[~last])[column].min())


def _summarize(
    label: str, runs: Sequence[Run], frame: pd.DataFrame, unit: Unit, delay_horizon: float, recovery_horizon: float
) -> ChangeSummary:
    """Return the summary of `runs`, the seeds of one variant, whose change points are the rows of `frame`.

    Delays and recoveries count in `unit`. One that never came, or took longer than its horizon, counts as the horizon.
    """
    suffix = "rounds" if unit == "rounds" else "s"
    watched = frame[frame["watched_rounds"] > 0]
    with_detector = [run for run in runs if detects(run)]
    scores = [run_detections(run, true_changes(run)) for run in with_detector]
    rounds = [max(1, len(run.columns(["round"])["round"])) for run in with_detector]
    alarms = [1000.0 * sum(score.false_alarms.values()) / count for count, score in zip(rounds, scores, strict=True)]
    length_column = "rounds" if unit == "rounds" else "seconds"
    delays = _seed_means(frame, f"delay_{suffix}", length_column, delay_horizon) if with_detector else []
    recoveries = _seed_means(watched, f"recovery_{suffix}", f"watched_{suffix}", recovery_horizon)
    return ChangeSummary(
        label=label,
        runs=len(runs),
        changes=len(frame),
        declared=int(frame["delay_rounds"].notna().sum()),
        jamming=sum(sum(score.jamming.values()) for score in scores),
        false_alarms=mean_interval(alarms),
        delay=_restricted_interval(delays, delay_horizon),
        delay_horizon=delay_horizon,
        recovered=int(watched["recovery_rounds"].notna().sum()),
        watched=len(watched),
        recovery=_restricted_interval(recoveries, recovery_horizon),
        recovery_horizon=recovery_horizon,
    )


def _seed_means(frame: pd.DataFrame, column: str, length: str, horizon: float) -> list[float]:
    """Return the mean of min(time, `horizon`) over the changes of each seed, (seeds,).

    `column` holds the times, missing where a change was not answered, `length` for how long each change was watched. Changes
    watched for less than the horizon are left out; so an unanswered one lasted longer than the horizon.
    """
    long_watched = frame[frame[length] >= horizon]
    restricted = long_watched[column].fillna(math.inf).clip(upper=horizon)
    return [float(mean) for mean in restricted.groupby(long_watched["seed"]).mean()]


def _restricted_interval(means: Sequence[float], horizon: float) -> Interval:
    """Return the mean over seeds; where all were censored it is the horizon, without an interval, as in `restricted_mean`."""
    interval = mean_interval(means)
    return interval if any(mean < horizon for mean in means) else Interval(interval.mean, math.nan, interval.count)


def share_over_time(frame: pd.DataFrame, what: str, unit: Unit = "rounds") -> ReachedShare | None:
    """Return the estimated share of changes that were declared or recovered from, over time (Kaplan-Meier).

    `frame`: a row for each change (`change_table`). `what`: "delay" for declarations, "recovery" for recoveries. None if there
    is no change to declare, or none to recover from.
    """
    in_rounds = unit == "rounds"
    if what == "delay":
        # A change can be declared until the next one.
        end_column = "rounds" if in_rounds else "seconds"
    else:
        frame = frame[frame["watched_rounds"] > 0]
        end_column = "watched_rounds" if in_rounds else "watched_s"
    if not len(frame):
        return None
    times = frame[f"{what}_rounds" if in_rounds else f"{what}_s"].fillna(np.inf).to_numpy(np.float64)
    return share_reached(times.tolist(), frame[end_column].to_numpy(np.float64).tolist())
