"""A Markdown report of a run or a sweep: tables, figures, the privacy guarantee in words, and what each number means."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path

from analysis.groups import Bound, Groups, group_runs
from analysis.report.channels import AGE_WORDS, DETECTION_WORDS, age_table, declaration_tables, detection_table, instance_sections
from analysis.report.comparison import METRICS, TARGETS, Comparison, Equal, compare
from analysis.report.missing import missing_words
from analysis.report.tables import (
    MISSING,
    UNITS,
    aoi_regret_title,
    baseline_label,
    common_words,
    comparison_cells,
    comparison_table,
    cut_short,
    difference_cells,
    difference_table,
    format_cost,
    format_number,
    format_percent,
    format_seconds,
    horizon_of,
    interval_words,
    markdown_table,
)
from analysis.report.time import time_sections
from analysis.results import OUTCOMES, Run, Sweep, is_sweep, open_run, open_sweep
from analysis.statistics import run_metrics
from analysis.targets import Cost

__all__ = ["comparison_table", "difference_table", "write_report"]

LAST = 10
"""Evaluations averaged for the final accuracy."""

CAPTIONS = {
    "accuracy": "Test accuracy against simulated time",
    "accuracy_bytes": "Test accuracy against the bytes sent, both ways",
    "accuracy_joules": "Test accuracy against the energy drawn by all clients",
    "target": "Share of runs that have reached the target accuracy against simulated time",
    "leak": "Largest privacy leak over clients against rounds",
    "latency": "Latency of a round over rounds, and its distribution",
    "regret": "Cumulative regret against rounds",
    "aoi_regret": "AoI regret against rounds",
    "aoi_variance": "AoI variance over rounds, and cumulated",
    "deliveries": "Share of rounds in which each client's update was delivered",
    "detections": "Declared and true changes of the sub-channels",
    "partition": "Training samples by client and label",
}


_MEANINGS = {
    "target_bytes": "- MB to the target: bytes sent to clients and by them, headers and lost messages included, up to the close "
    "of the round that first reached the target accuracy.",
    "target_j": "- kJ to the target: what all clients drew up to then, idle ones included.",
    "mean_round_s": "- Mean round latency: simulated seconds from the start of a round to its close.",
    "max_leak": "- Largest leak: what all updates of one client together give away, in units of ε, for the client that gave away "
    "most; the guarantee says what this protects. Unprotected: updates were sent as they are.",
    "delivered_j": "- Joules a delivered update: what all clients drew in the whole run, idle ones included, over the updates "
    "delivered.",
    "regret": "- Regret: reward of the genie, which knows the true expected latencies (with slots: the clients' worth), minus "
    "reward of the policy, summed over rounds.",
}


def write_report(
    path: str | Path,
    out: str | Path,
    *,
    target_accuracy: float | None = None,
    smoothing_s: float | None = None,
    horizon_s: float | None = None,
    equal: Equal = "time",
    regret_bounds: Sequence[Bound] = (),
    aoi_bounds: Sequence[Bound] = (),
) -> Path:
    """Report on the run or sweep at `path` into `out`: a Markdown file, or a folder that gets `report.md`; figures beside it.

    `regret_bounds` are drawn beside regrets, `aoi_bounds` beside AoI regrets; the other settings are those of `compare`.
    ValueError: `path` is neither a run nor a sweep folder, or the horizon lies beyond the end of the shortest run.
    """
    from analysis.figures.runs import draw_all

    out = Path(out)
    file = out if out.suffix == ".md" else out / "report.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    source = open_sweep(path) if is_sweep(path) else open_run(path)
    draft: Callable[[list[str]], list[str]]
    if isinstance(source, Sweep):
        # Before anything is drawn: a wrong setting leaves no half of a report.
        comparison = compare(
            source, target_accuracy=target_accuracy, smoothing_s=smoothing_s, horizon_s=horizon_s, equal=equal, last=LAST
        )
        draft = partial(_sweep_sections, source, comparison)
    else:
        draft = partial(_run_sections, source, target_accuracy, smoothing_s or 0.0)
    figures = draw_all(
        source,
        file.parent / f"{file.stem}-figures",
        target_accuracy=target_accuracy,
        smoothing_s=smoothing_s,
        horizon_s=horizon_s,
        regret_bounds=regret_bounds,
        aoi_bounds=aoi_bounds,
    )
    links = [f"![{CAPTIONS[figure.stem]}]({figure.parent.name}/{figure.name})" for figure in figures]
    sections = draft(links)
    file.write_text("\n\n".join(sections) + "\n", encoding="utf-8")
    return file


def _sweep_sections(sweep: Sweep, comparison: Comparison, links: list[str]) -> list[str]:
    sections = [
        f"# {sweep.name}",
        f"{len(sweep.variants)} variants, {len(sweep.seeds)} seeds, {len(sweep)} runs. At equal seeds the variants share their "
        "random numbers, so that less of a difference between them is chance.",
        *([f"**Incomplete.** {missing_words(sweep)}"] if sweep.missing else []),
        "## Comparison",
        markdown_table(comparison_cells(comparison)),
        f"Numbers: {'; '.join([interval_words(comparison), *common_words(comparison)])}.",
    ]
    if note := cut_short(comparison):
        sections.append(f"**{note}**")
    if comparison.differences:
        sections += [f"## Difference to {baseline_label(comparison)}", markdown_table(difference_cells(comparison))]
    groups = group_runs(sweep)
    sections += [*_channel_sections(groups), *instance_sections(groups)]
    sections += ["## Figures", *links] if links else []
    sections += _guarantee_sections(groups)
    shown = {metric for metric in METRICS if comparison.has(metric)}
    meanings = _meanings(comparison.target_accuracy, comparison.smoothing_s, comparison, groups, shown)
    sections += ["## What the numbers mean", meanings]
    if len(sweep.seeds) < 2:
        sections.append("With one seed there is no interval: nothing here tells a difference from chance.")
    return sections


def _run_sections(run: Run, target_accuracy: float | None, smoothing_s: float, links: list[str]) -> list[str]:
    metrics = run_metrics(run, target_accuracy=target_accuracy, smoothing_s=smoothing_s, last=LAST)
    figures = [["rounds", f"{metrics.rounds:,}"], ["simulated time (s)", format_number(metrics.simulated_s)]]
    if target_accuracy is not None:
        reached = format_number(metrics.target_s) if math.isfinite(metrics.target_s) else "not reached"
        figures.append([f"seconds to {format_percent(target_accuracy)}", reached])
        costs: tuple[tuple[Cost, float], ...] = (("bytes", metrics.target_bytes), ("joules", metrics.target_j))
        for cost, amount in costs:
            name, scale = UNITS[cost]
            words = "not reached" if math.isinf(amount) else format_number(amount * scale)
            figures.append([f"{name} to {format_percent(target_accuracy)}", words])
    figures += [
        ["final accuracy (%)", format_number(metrics.final_accuracy * 100.0)],
        ["mean round latency (s)", format_number(metrics.mean_round_s)],
        ["largest leak (ε)", _leak(run, metrics.max_leak)],
        ["joules a delivered update", format_number(metrics.delivered_j)],
        ["regret", format_number(metrics.regret)],
        [aoi_regret_title([metrics.oracle]), format_number(metrics.aoi_regret)],
        ["cumulated AoI variance", format_number(metrics.cumulated_age_variance)],
    ]
    totals = {name: int(run.rounds[name].sum()) for name in ("selected", *OUTCOMES[:-1])}
    totals["in_flight"] = int(run.rounds["in_flight"].iloc[-1]) if metrics.rounds else 0
    sections = [
        f"# {run.name}",
        f"Policy {run.policy}, seed {run.seed}. The run ended: {run.summary.get('ended', 'not said')}.",
        "## Figures of the run",
        markdown_table((["figure", "value"], [figure for figure in figures if figure[1] != MISSING])),
        "## What became of the updates",
        markdown_table(([name.replace("_", " ") for name in totals], [[f"{count:,}" for count in totals.values()]])),
    ]
    groups = {run.label: [run]}
    sections += [*_channel_sections(groups), *declaration_tables(run)]
    if run.has_clients and len(run.clients):
        sections += time_sections(run)
    sections += ["## Figures", *links] if links else []
    sections += ["## Privacy guarantee", _guarantee(run)] if run.has_privacy else []
    shown = {metric for metric in METRICS if not math.isnan(getattr(metrics, metric))}
    shown -= set() if run.has_privacy else {"max_leak"}
    sections += ["## What the numbers mean", _meanings(target_accuracy, smoothing_s, None, groups, shown)]
    scenario = run.source.scenario_text().strip()
    versions = ", ".join(f"{name} {version}" for name, version in dict(run.summary.get("versions") or {}).items())
    sections += ["## Scenario", f"```toml\n{scenario}\n```"]
    return [*sections, f"Versions: {versions}."] if versions else sections


def _channel_sections(groups: Groups) -> list[str]:
    """Ages of information and declared changes, where there are any."""
    ages, declared = age_table(groups), detection_table(groups)
    sections = ["## Age of information", ages] if ages else []
    return [*sections, "## Declared changes", declared] if declared else sections


def _meanings(
    target_accuracy: float | None, smoothing_s: float, comparison: Comparison | None, groups: Groups, shown: Collection[str]
) -> str:
    """What each number means that is `shown`; `comparison` None where there is one run only."""
    lines = []
    if target_accuracy is not None:
        target = format_percent(target_accuracy)
        smooth = f"the mean accuracy of the last {smoothing_s:g} s" if smoothing_s else "the accuracy"
        words = f"- Seconds to {target}: simulated seconds until {smooth} on the test set first was at least {target}."
        if comparison is not None:
            words += (
                f" Every run counts with min(time, {format_seconds(comparison.horizon_s)}), which all runs reach (the restricted "
                "mean): runs that missed the target are not left out. The count says how many did. Where only a few runs of many "
                "miss it, five seeds may not show one of these, and the interval knows nothing of them."
            )
        lines.append(words)
    shortest = ", up to the end of the shortest run" if comparison is not None else ""
    accuracy = f"- Final accuracy: mean of the last {LAST} evaluations on the test set, of all where there are fewer{shortest}."
    meanings = {"final_accuracy": accuracy, **_MEANINGS}
    if comparison is not None:
        for metric, cost in TARGETS.items():
            if metric in _MEANINGS and metric in shown:
                limit = format_cost(horizon_of(comparison, cost), cost)
                meanings[metric] += f" Runs count with {limit} at most, as they do with seconds: all runs come to that."
    lines += [words for metric, words in meanings.items() if metric in shown]
    runs = [run for several in groups.values() for run in several]
    if any(run.summary.get("aoi") for run in runs):
        lines.append(AGE_WORDS)
    if any(run.has_detections and len(run.detections) for run in runs):
        lines.append(DETECTION_WORDS)
    if comparison is not None:
        lines += [
            f"- ± is the half-width of the {format_percent(comparison.confidence)} Student-t interval over seeds, each figure by "
            "itself.",
            "- A difference is variant minus baseline at the same seed, averaged over the seeds that have both. Where its "
            "interval excludes zero, the difference is more than chance usually makes; of many intervals, a few do so by chance.",
        ]
    return "\n".join(lines)


def _guarantee(run: Run) -> str:
    return str((run.summary.get("privacy") or {}).get("guarantee") or "none: nothing is protected.")


def _guarantee_sections(groups: Groups) -> list[str]:
    """The guarantee of each variant; nothing where no run has any privacy."""
    if not any(run.has_privacy for runs in groups.values() for run in runs):
        return []
    guarantees: dict[str, list[str]] = {}
    for label, runs in groups.items():
        for text in dict.fromkeys(map(_guarantee, runs)):
            guarantees.setdefault(text, []).append(label)
    return ["## Privacy guarantee", *(f"**{'; '.join(labels)}**: {text}" for text, labels in guarantees.items())]


def _leak(run: Run, leak: float) -> str:
    if not run.has_privacy:
        return MISSING
    return "unprotected" if math.isinf(leak) else format_number(leak)
