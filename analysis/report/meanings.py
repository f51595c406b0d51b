"""Explanations of the numbers of a report, in a sentence or two each."""

from __future__ import annotations

from collections.abc import Collection

from analysis.ages.section import AGE_WORDS
from analysis.detections.section import DETECTION_WORDS
from analysis.documents.comparison_tables import horizon_of
from analysis.documents.numbers import format_cost, format_percent, format_seconds
from analysis.metrics.comparison import TARGETS, Comparison
from analysis.metrics.registry import metric
from analysis.results.groups import Groups

LAST = 10
"""Evaluations averaged for the final accuracy."""


def metric_explanations(
    target_accuracy: float | None, smoothing_s: float, comparison: Comparison | None, groups: Groups, shown: Collection[str]
) -> list[str]:
    """Return a paragraph of explanation for each metric that is `shown`, and for ±; `comparison`: None for a single run."""
    lines = []
    if target_accuracy is not None:
        target = format_percent(target_accuracy)
        smooth = f"the mean accuracy of the last {smoothing_s:g} s" if smoothing_s else "the accuracy"
        words = f"Seconds to {target}: simulated seconds until {smooth} on the test set first was at least {target}."
        if comparison is not None:
            words += (
                f" Every run counts with min(time, {format_seconds(comparison.horizon_s)}), which all runs reach (the restricted "
                "mean): runs that missed the target are not left out. The count says how many did. Where only a few runs of many "
                "miss it, five seeds may not show one of these, and the interval knows nothing of them."
            )
        lines.append(words)
    where = {"time": ", up to the end of the shortest run", "bytes": ", within the bytes that every run sent"}
    shortest = where[comparison.equal] if comparison is not None else ""
    accuracy = f"Mean of the last {LAST} evaluations on the test set, of all where there are fewer{shortest}."
    for name in shown:
        if name == "target_s":
            continue
        words = accuracy if name == "final_accuracy" else metric(name).meaning
        if comparison is not None and name in TARGETS:
            limit = format_cost(horizon_of(comparison, TARGETS[name]), TARGETS[name])
            words += f" Runs count with {limit} at most, as they do with seconds: all runs come to that."
        title = metric(name).title
        lines.append(f"{title[:1].upper()}{title[1:]}: {words}")
    runs = [run for several in groups.values() for run in several]
    if any(run.summary.get("aoi") for run in runs):
        lines += AGE_WORDS
    if any(run.has_detections and len(run.detections) for run in runs):
        lines.append(DETECTION_WORDS)
    if comparison is not None:
        lines += [
            f"± is the half-width of the {format_percent(comparison.confidence)} Student-t interval over seeds, each figure by "
            "itself.",
            "A difference is variant minus baseline at the same seed, averaged over the seeds that have both. Where its "
            "interval excludes zero, the difference is more than chance usually makes; of many intervals, a few do so by chance: "
            "what is said in words is decided by those that hold together.",
        ]
    return lines
