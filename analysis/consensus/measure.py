"""Times, agreement and cost of the consensus phase in which clients choose the members of a slot (footnote 4 of Tong et al.
2024).

The sweep must be over servers of kind "fl-da", such as `bp_ucb_timing`. It may vary the message latency and hold runs in zero
time (`slots.start = "zero"`). Regret is then compared with the runs in zero time of the same task, latency and seed. The result
is the largest ratio of latency to slot length up to which message time may be neglected.

Message time may be neglected at a latency if it costs neither time nor regret, there and at every lower latency of the sweep.
Time: the 95 % interval of the share of a slot spent in the consensus phase ends below 5 %. Regret: the paired 95 % interval of
its difference lies within a margin around zero (two one-sided tests at 2.5 %). An interval that merely contains zero shows
nothing: the fewer seeds, the more easily it does. Regret is shown to differ where the interval lies outside the margin; else the
question is open.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from analysis.results.run import Run
from analysis.results.sweep import Sweep
from analysis.statistics.inference import Verdict, verdict
from analysis.statistics.intervals import Interval, mean_interval

MOST_CONSENSUS = 0.05
"""The share of a slot that the consensus phase may take."""
MARGIN = 0.005
"""Margin: regret a slot, of either sign, that counts as none; half a point of the average opinion."""
_NO_TASK = ("seed", "name", "description", "output", "sweep", "slots", "peers", "belief", "gossip")
"""Tables of a scenario in which compared runs may differ: they set the decisions of clients, not the task."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Message times and decisions of one run, as means over its slots; NaN where there is nothing to average."""

    latency_s: float
    """Mean of the law of a message's delay; distance and bytes are left out."""
    slot_s: float
    """Duration of a slot without the consensus phase."""
    converged_s: float
    """Seconds from the start of the consensus phase until beliefs settled; mean over slots in which they settled before
    training started."""
    converged_share: float
    """Share of the slots in which beliefs settled before training started."""
    agreed_s: float
    """Seconds from the start of the consensus phase until all clients named the same members; mean over slots in which they did
    so before training started."""
    agreed_share: float
    """Share of the slots in which all clients named the same members before training started."""
    consensus_share: float
    """Share of the run's time that is spent in consensus phases."""
    disagreement: float
    """Share of clients that did not name the true members, those of highest index, when training started."""
    members: float
    """Number of clients that took part in a slot."""
    messages: float
    """Messages sent in a slot."""
    regret: float
    """Average opinion of the best set of clients, minus that of the chosen clients."""


@dataclass(frozen=True, slots=True)
class Point:
    """Means of one variant over its seeds, of the fields that `Timing` has for a run."""

    start: str
    """The variant's label, without the latency."""
    label: str
    zero_time: bool
    """True if messages take no time."""
    latency_s: float
    slot_s: float
    converged_s: Interval
    converged_share: Interval
    agreed_s: Interval
    agreed_share: Interval
    consensus_share: Interval
    disagreement: Interval
    members: Interval
    messages: Interval
    regret: Interval
    regret_difference: Interval
    """Regret minus that of the run in zero time at the same seed; NaN without such runs."""

    @property
    def ratio(self) -> float:
        """Message latency over slot length."""
        return self.latency_s / self.slot_s

    @property
    def is_quick(self) -> bool:
        """True if the consensus phase takes less than `MOST_CONSENSUS` of the time."""
        return bool(self.consensus_share.mean + np.nan_to_num(self.consensus_share.half_width) < MOST_CONSENSUS)

    def regret_verdict(self, margin: float) -> Verdict:
        """Say if the difference in regret is shown to lie within `margin` of zero, shown not to, or open."""
        return verdict(self.regret_difference, margin)


def mean_delay_s(law: dict[str, Any]) -> float:
    """Return the mean in seconds of the law of a message's delay, `peers.delay` of a scenario.

    ValueError: a law that differs between clients, or of another kind than constant and shifted-exponential.
    """
    kind = law.get("kind")
    # Keys of the law whose sum is the mean.
    names = {"constant": ("value_s",), "shifted-exponential": ("shift_s", "mean_excess_s")}.get(str(kind))
    if names is None or not all(isinstance(law.get(name), int | float) for name in names):
        raise ValueError(f"peers.delay = {law!r}: must be constant or shifted-exponential, and the same for all clients")
    return float(sum(law[name] for name in names))


def has_consensus(run: Run) -> bool:
    """Return True if the clients of a run decided among themselves, so that they could disagree."""
    return bool(run.rounds["disagreement"].notna().any())


def run_timing(run: Run) -> Timing:
    """Return the means over the slots of one run.

    Raises:
        ValueError: the run has no slots, or its slots have no consensus phase.
    """
    slots = run.rounds
    if not len(slots):
        raise ValueError(f"{run.source.place}: has no slot; run it to the end")
    if not has_consensus(run):
        raise ValueError(f"{run.source.place}: its clients do not decide among themselves; use server.kind = 'fl-da'")
    length_s = slots["end_s"] - slots["start_s"]
    # A slot in which beliefs did not settle, or clients did not agree, has null in `converged_s` or `agreed_s`.
    return Timing(
        latency_s=mean_delay_s(run.scenario["peers"]["delay"]),
        slot_s=float((length_s - slots["consensus_s"]).mean()),
        converged_s=float(slots["converged_s"].astype(float).mean()),
        converged_share=float(slots["converged_s"].notna().mean()),
        agreed_s=float(slots["agreed_s"].astype(float).mean()),
        agreed_share=float(slots["agreed_s"].notna().mean()),
        consensus_share=float(slots["consensus_s"].sum() / length_s.sum()),
        disagreement=float(slots["disagreement"].mean()),
        members=float(slots["members"].mean()),
        messages=float(slots["messages"].mean()),
        regret=float((slots["genie_reward"] - slots["reward"]).astype(float).mean()),
    )


def timing_study(sweep: Sweep) -> list[Point]:
    """Return a point for each variant, in the order of the sweep: its timing, and its regret minus that with messages in no time.

    ValueError: the clients of a variant do not decide among themselves.
    """
    # Averages of each run, by variant and seed.
    timings: dict[str, dict[int, Timing]] = {}
    in_zero_time: dict[str, bool] = {}
    # Text of the tables of the scenario that state the task: equal text, equal task.
    tasks: dict[str, str] = {}
    for run in sweep:
        timings.setdefault(run.variant, {})[run.seed] = run_timing(run)
        in_zero_time[run.variant] = run.scenario["slots"]["start"] == "zero"
        tasks[run.variant] = repr({name: table for name, table in run.scenario.items() if name not in _NO_TASK})
    # Regrets of runs whose messages take no time, by task, message latency and seed. Others are compared with these.
    references: dict[tuple[str, float, int], list[float]] = {}
    for variant, by_seed in timings.items():
        if in_zero_time[variant]:
            for seed, timing in by_seed.items():
                references.setdefault((tasks[variant], timing.latency_s, seed), []).append(timing.regret)
    averaged = [field.name for field in fields(Timing) if field.name not in ("latency_s", "slot_s")]
    points = []
    for variant, by_seed in timings.items():
        differences = []
        for seed, timing in by_seed.items():
            # A run in zero time is its own reference.
            regrets = [timing.regret] if in_zero_time[variant] else references.get((tasks[variant], timing.latency_s, seed), [])
            # With several runs in zero time, none is the reference.
            differences.append(timing.regret - regrets[0] if len(regrets) == 1 else math.nan)
        run_timings = list(by_seed.values())
        intervals = {field: mean_interval([getattr(timing, field) for timing in run_timings]) for field in averaged}
        points.append(
            Point(
                start=_strip_grid_words(sweep.labels[variant]),
                label=sweep.labels[variant],
                zero_time=in_zero_time[variant],
                latency_s=run_timings[0].latency_s,
                slot_s=float(np.mean([timing.slot_s for timing in run_timings])),
                regret_difference=mean_interval(differences),
                **intervals,
            )
        )
    return points


def _strip_grid_words(label: str) -> str:
    """Return a variant's label without the words that a sweep adds for the values of its grid."""
    return ", ".join(word for word in label.split(", ") if "=" not in word) or label


def points_by_start(points: Sequence[Point]) -> dict[str, list[Point]]:
    """Return the points of each kind of start that takes time, by ascending latency.

    A start is left out if it has a single point, or several points at one latency: neither is a line over latencies.
    """
    by_start: dict[str, list[Point]] = {}
    for point in points:
        if not point.zero_time:
            by_start.setdefault(point.start, []).append(point)
    lines = {}
    for start, points_of_start in by_start.items():
        different_latencies = {point.latency_s for point in points_of_start}
        if len(points_of_start) > 1 and len(different_latencies) == len(points_of_start):
            lines[start] = sorted(points_of_start, key=lambda point: point.latency_s)
    return lines


def holds_up_to(line: Sequence[Point], criterion: Callable[[Point], bool]) -> float:
    """Return the largest ratio such that `criterion` is true there and at all smaller ones; 0: at none."""
    below_limit = itertools.takewhile(criterion, sorted(line, key=lambda point: point.latency_s))
    return max((point.ratio for point in below_limit), default=0.0)
