"""What the numbers of a report mean, in a sentence or two each."""

from __future__ import annotations

from collections.abc import Collection

from analysis.groups import Groups
from analysis.report.channels import AGE_WORDS, DETECTION_WORDS
from analysis.report.comparison import TARGETS, Comparison
from analysis.report.tables import format_cost, format_percent, format_seconds, horizon_of

LAST = 10
"""Evaluations averaged for the final accuracy."""

_MEANINGS = {
    "target_bytes": "MB to the target: bytes sent to clients and by them, headers and lost messages included, up to the close "
    "of the round that first reached the target accuracy.",
    "target_j": "kJ to the target: what all clients drew up to then, idle ones included.",
    "mean_round_s": "Mean round latency: simulated seconds from the start of a round to its close.",
    "max_leak": "Largest leak: what all updates of one client together give away, in units of ε, for the client that gave away "
    "most; the guarantee says what this protects. Unprotected: updates were sent as they are.",
    "delivered_j": "Joules a delivered update: what all clients drew in the whole run, idle ones included, over the updates "
    "delivered.",
    "regret": "Regret: reward of the genie, which knows the true expected latencies (with slots: the clients' worth), minus "
    "reward of the policy, summed over rounds.",
}


def meanings(
    target_accuracy: float | None, smoothing_s: float, comparison: Comparison | None, groups: Groups, shown: Collection[str]
) -> list[str]:
    """What each number means that is `shown`; `comparison` None where there is one run only."""
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
    shortest = ", up to the end of the shortest run" if comparison is not None else ""
    accuracy = f"Final accuracy: mean of the last {LAST} evaluations on the test set, of all where there are fewer{shortest}."
    by_metric = {"final_accuracy": accuracy, **_MEANINGS}
    if comparison is not None:
        for metric, cost in TARGETS.items():
            if metric in _MEANINGS and metric in shown:
                limit = format_cost(horizon_of(comparison, cost), cost)
                by_metric[metric] += f" Runs count with {limit} at most, as they do with seconds: all runs come to that."
    lines += [words for metric, words in by_metric.items() if metric in shown]
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
            "interval excludes zero, the difference is more than chance usually makes; of many intervals, a few do so by chance.",
        ]
    return lines
