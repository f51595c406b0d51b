"""The documents of a sweep and of a run: their sections in the order of a reader's questions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from analysis.ages.section import age_table, instance_sections
from analysis.breakpoints.section import breakpoint_sections
from analysis.consensus.section import consensus_sections
from analysis.detections.section import declaration_tables, detection_table
from analysis.documents.blocks import Block, Bullets, Document, Picture, Section, Table, Text
from analysis.documents.comparison_tables import (
    aoi_regret_title,
    baseline_label,
    comparison_cells,
    difference_cells,
    extent_words,
    interval_words,
    short_run_note,
)
from analysis.documents.numbers import UNITS, format_number, format_percent
from analysis.documents.run_names import missing_words
from analysis.figures.settings import MOST_VARIANTS, PLAIN, Look
from analysis.grids.section import cell_sections
from analysis.metrics.comparison import TARGETS, Comparison
from analysis.metrics.differences import simultaneous_difference
from analysis.metrics.registry import metric
from analysis.metrics.run_metrics import RunMetrics
from analysis.network.section import network_sections
from analysis.parameters.section import parameter_sections
from analysis.participation.section import participation_sections
from analysis.peers.section import peer_sections
from analysis.privacy.section import guarantee, guarantee_sections
from analysis.report.differences import interval_table
from analysis.report.meanings import metric_explanations
from analysis.report.questions import Questions
from analysis.report.scenario import scenario_facts, settings_sections, variants_table, warning_blocks
from analysis.results.groups import Groups, group_runs
from analysis.results.run import OUTCOMES, Run
from analysis.results.sweep import Sweep
from analysis.stragglers.section import straggler_sections
from analysis.stragglers.time_section import time_sections
from analysis.tiers.section import tier_sections

MOST_NAMED, FEW_NAMED = 8, 3
"""Most variants named in a sentence: the first for sweeps of at most `MOST_VARIANTS` variants, the second for larger ones."""


def sweep_document(
    sweep: Sweep,
    comparison: Comparison,
    command: str,
    pictures: Sequence[Picture],
    *,
    questions: Questions,
    look: Look = PLAIN,
) -> Document:
    """Return the report of a sweep: its sections, in the order of a reader's questions.

    `command`: the command that writes the report. `pictures`: figures of the sweep. `look`: style of the figures that sections
    draw themselves.
    """
    runs = list(sweep)
    groups = group_runs(sweep)
    explanations = metric_explanations(
        comparison.target_accuracy, comparison.smoothing_s, comparison, groups, comparison.shown_metrics()
    )
    first = next((run for run in runs if run.variant == sweep.baseline), None)
    sections = [
        Section("What was asked and run", _scenario_blocks(sweep, first)),
        Section("What came out", _result_blocks(sweep, comparison)),
        Section("How sure", _certainty_blocks(sweep, comparison, runs, questions.margins)),
        *cell_sections(sweep, comparison, within=questions.within, look=look),
        *parameter_sections(sweep, comparison, against=questions.against, look=look),
        *consensus_sections(sweep, questions.margin, look=look),
        *_picture_sections(pictures),
        *peer_sections(groups),
        *tier_sections(groups),
        *participation_sections(groups),
        *_channel_sections(groups),
        *breakpoint_sections(groups),
        *instance_sections(groups),
        *guarantee_sections(groups),
        Section("What the numbers mean", [Bullets(explanations)]),
        *(settings_sections(first, runs, sweep, command) if first is not None else []),
    ]
    return Document(sweep.name, str(first.scenario.get("description", "")) if first is not None else "", sections)


def _scenario_blocks(sweep: Sweep, first: Run | None) -> list[Block]:
    """Return the blocks on what was run: numbers of variants, seeds and runs; facts of the scenario; and the table of variants.

    `first`: a run of the baseline. None if the baseline has no complete run: then only the numbers are returned.
    """
    variants, seeds = len(sweep.variants), len(sweep.seeds)
    text = (
        f"{variants} variant{'s' * (variants != 1)}, {seeds} seed{'s' * (seeds != 1)}, {len(sweep)} runs. At equal seeds the "
        "variants share their random numbers, so that less of a difference between them is chance."
    )
    if first is None:
        return [Text(text)]
    first_runs = [sweep.runs(variant)[0] for variant in sweep.variants]
    return [Text(text), scenario_facts(first_runs), variants_table(sweep)]


def _result_blocks(sweep: Sweep, comparison: Comparison) -> list[Block]:
    """Return the blocks on the results: findings, the table of the comparison, and warnings."""
    note = f"Numbers: {'; '.join([interval_words(comparison), *extent_words(comparison)])}."
    blocks: list[Block] = []
    if sweep.missing:
        blocks.append(Text(missing_words(sweep), lead="Incomplete.", warning=True))
    findings = _findings(comparison)
    if findings:
        blocks += [Text(f"Against {baseline_label(comparison)}, at equal seeds:"), Bullets(findings)]
    blocks.append(Table("comparison", "Comparison", comparison_cells(comparison), note=note))
    warning = short_run_note(comparison)
    if warning:
        blocks.append(Text(warning, warning=True))
    return blocks


def _findings(comparison: Comparison) -> list[str]:
    """Return a sentence for each metric that names the variants shown to differ from the baseline.

    A difference is shown if its interval, one of several that hold at once over all variants, excludes zero. Metrics without any
    such difference share the last sentence.
    """
    header, rows = difference_cells(comparison)
    most = MOST_NAMED if len(rows) <= MOST_VARIANTS else FEW_NAMED
    sentences = []
    # Headings of the metrics by which no variant is shown to differ.
    no_difference: list[str] = []
    # Column 0 of the table holds the labels of variants.
    for column, name in enumerate(comparison.shown_metrics(), start=1):
        more, less, undecided = [], [], []
        for row, cells in zip(comparison.differences, rows, strict=True):
            if name == "aoi_regret" and not row.same_oracle:
                continue
            interval = simultaneous_difference(comparison, row, name)
            if not math.isfinite(interval.half_width):
                continue
            label = _quote_commas(row.label)
            if interval.low > 0.0:
                more.append(f"{label} ({cells[column]})")
            elif interval.high < 0.0:
                less.append(f"{label} ({cells[column]})")
            else:
                undecided.append(label)
        if more or less:
            sides = {"more": more, "less": less, "no difference shown": undecided}
            parts = [f"{side}: {_join_first(labels, most)}" for side, labels in sides.items() if labels]
            sentences.append(f"{header[column]}: {'; '.join(parts)}.")
        elif undecided:
            no_difference.append(header[column])
    if no_difference:
        sentences.append(f"No difference of any variant shown: {'; '.join(no_difference)}.")
    return sentences


def _quote_commas(label: str) -> str:
    """Return the label of a variant for a list; in quotes if it has a comma, which separates the list."""
    return f'"{label}"' if "," in label else label


def _join_first(names: Sequence[str], most: int) -> str:
    """Join the first `most` of `names`, and count the others."""
    others = len(names) - most
    return ", ".join(names[:most]) + (f", and {others} more" if others > 0 else "")


def _certainty_blocks(sweep: Sweep, comparison: Comparison, runs: Sequence[Run], equivalent: Mapping[str, float]) -> list[Block]:
    """Return the blocks on differences to the baseline, their intervals, and warnings of the runs.

    `equivalent`: metric to the difference that counts as none.
    """
    blocks: list[Block] = []
    if len(sweep.seeds) < 2:
        blocks.append(Text("With one seed there is no interval: nothing here tells a difference from chance.", warning=True))
    if comparison.differences:
        caption = f"Difference to {baseline_label(comparison)}"
        blocks.append(Table("differences", caption, difference_cells(comparison), note=f"{interval_words(comparison)}."))
        intervals = interval_table(comparison, equivalent)
        if intervals is not None:
            blocks.append(intervals)
    blocks += warning_blocks(runs)
    if not blocks:
        blocks.append(Text("There is one variant: nothing is compared."))
    return blocks


def run_document(
    run: Run, metrics: RunMetrics, target_accuracy: float | None, smoothing_s: float, command: str, pictures: Sequence[Picture]
) -> Document:
    """Return the report of a single run.

    `metrics`: computed with the same `target_accuracy` and `smoothing_s`. `command`: the command that writes the report.
    """
    shown = [name for name in metrics.values if _is_informative(run, metrics, name)]
    rows = [["rounds", f"{metrics.rounds:,}"], ["simulated time (s)", format_number(metrics.simulated_s)]]
    rows += [_metric_row(metrics, name, target_accuracy) for name in shown if name != "simulated_s"]
    groups = {run.label: [run]}
    facts = f"Policy {run.policy}, seed {run.seed}. The run ended: {run.summary.get('ended', 'not said')}."
    caution = "One run, of one seed: nothing here tells a difference from chance. Several seeds and variants: netsim sweep."
    explanations = metric_explanations(target_accuracy, smoothing_s, None, groups, shown)
    has_attempts = len(run.rounds) and run.has_clients and len(run.clients)
    waiting_sections = [*time_sections(run), *straggler_sections(run)] if has_attempts else []
    privacy_sections = [Section("Privacy guarantee", [Text(guarantee(run))])] if run.has_privacy else []
    sections = [
        Section("What was asked and run", [Text(facts), scenario_facts([run])]),
        Section("What came out", [Table("figures", "Figures of the run", (["figure", "value"], rows)), _outcomes(run)]),
        Section("How sure", [Text(caution), *warning_blocks([run])]),
        *_picture_sections(pictures),
        *waiting_sections,
        *peer_sections(groups, single=run),
        *tier_sections(groups),
        *network_sections(run),
        *participation_sections(groups),
        *_channel_sections(groups, declaration_tables(run)),
        *breakpoint_sections(groups),
        *privacy_sections,
        Section("What the numbers mean", [Bullets(explanations)]),
        *settings_sections(run, [run], None, command),
    ]
    return Document(run.name, str(run.scenario.get("description", "")), sections)


def _outcomes(run: Run) -> Table:
    """Return the table of the numbers of a run's updates by outcome; those in flight are counted at the end of the run."""
    totals = {name: int(run.rounds[name].sum()) for name in ("selected", *OUTCOMES[:-1])}
    totals["in_flight"] = int(run.rounds["in_flight"].iloc[-1]) if len(run.rounds) else 0
    cells = ([name.replace("_", " ") for name in totals], [[f"{count:,}" for count in totals.values()]])
    return Table("outcomes", "What became of the updates", cells, words=())


def _picture_sections(pictures: Sequence[Picture]) -> list[Section]:
    """Return the section of figures, if there are any."""
    return [Section("Figures", list(pictures))] if pictures else []


def _channel_sections(groups: Groups, declared: Sequence[Block] = ()) -> list[Section]:
    """Return the sections on ages of information and on declared changes, without those that have nothing to show.

    `declared`: further blocks of the section on declared changes, left out with it.
    """
    sections = []
    ages, detections = age_table(groups), detection_table(groups)
    if ages:
        sections.append(Section("Age of information", [ages]))
    if detections:
        sections.append(Section("Declared changes", [detections, *declared]))
    return sections


def _is_informative(run: Run, metrics: RunMetrics, name: str) -> bool:
    """Return True if the report of a run shows the metric `name`."""
    if name == "max_leak":
        return run.has_privacy
    return metric(name).worth_showing(np.array([metrics[name]]))


def _metric_row(metrics: RunMetrics, name: str, target_accuracy: float | None) -> list[str]:
    """Return the two cells of a metric of a run: its heading and its value."""
    value = format_number(metrics[name] * metric(name).scale)
    if name in TARGETS and target_accuracy is not None:
        title = f"{UNITS[TARGETS[name]][0]} to {format_percent(target_accuracy)}"
        return [title, "not reached" if math.isinf(metrics[name]) else value]
    if name == "aoi_regret":
        return [aoi_regret_title([metrics.oracle]), value]
    if name == "max_leak":
        return [metric(name).heading, "unprotected" if math.isinf(metrics[name]) else value]
    return [metric(name).heading, value]
