"""The section of a report on metrics against the parameters that a sweep varies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from analysis.documents.blocks import Block, Bullets, Picture, Section, Table
from analysis.documents.comparison_tables import heading, horizon_of, restricted_words, value_cell
from analysis.documents.numbers import format_cost, format_percent
from analysis.figures.settings import PLAIN, Look
from analysis.metrics.comparison import TARGETS, Comparison
from analysis.metrics.registry import METRICS, metric
from analysis.parameters.measure import (
    AgainstOne,
    Settings,
    against_one,
    against_two,
    best_text,
    is_tied,
    named_keys,
    numeric_keys,
    settings_of,
)
from analysis.results.sweep import Sweep

MOST_METRICS = 4
"""Largest number of metrics with figures in a report, unless metrics are requested."""
MOST_LINES = 8
"""Largest number of lines in a figure, one for each setting of other keys; with more, a key has a section only if requested."""
_FIRST_METRICS = ("target_s", "final_accuracy", "updates_per_s", "aoi_regret", "regret", "agreed_s", "disagreement", "messages")


def parameter_sections(sweep: Sweep, comparison: Comparison, *, against: Sequence[str] = (), look: Look = PLAIN) -> list[Section]:
    """Return a section for each numeric key that the sweep varies by itself (`against`: only these keys).

    ValueError: a key of `against` that is not varied by itself.
    """
    settings = settings_of(sweep) if len(sweep) else {}
    keys = named_keys(settings, against, "against") or numeric_keys(settings)
    names = metrics_shown(comparison)
    sections = []
    for key in keys:
        studies = [against_one(comparison, sweep, settings, name, key) for name in names]
        if studies and (against or len(studies[0].lines) <= MOST_LINES):
            sections.append(Section(f"Against {key}", _study_blocks(comparison, studies, look)))
    maps = _map_blocks(comparison, settings, names, keys, look) if len(keys) == 2 else []
    return [*sections, *([Section(f"Against {keys[0]} and {keys[1]}", maps)] if maps else [])]


def metrics_shown(comparison: Comparison) -> tuple[str, ...]:
    """Return the metrics to show against parameters: those asked for, otherwise at most `MOST_METRICS` of the study.

    These are metrics with a better direction, `_FIRST_METRICS` before all others, in the order of `METRICS`.
    """
    if comparison.asked:
        return comparison.asked
    shown = comparison.shown_metrics()
    order = [*(name for name in _FIRST_METRICS if name in shown), *(name for name in shown if name not in _FIRST_METRICS)]
    better = [name for name in order if metric(name).better != "neither"]
    return tuple(sorted(better[:MOST_METRICS], key=list(METRICS).index))


def parameter_cells(comparison: Comparison, study: AgainstOne) -> tuple[list[str], list[list[str]]]:
    """Return header and a row for each value of the key: the metric on each line, with a star if it may be best of its line."""
    by_variant = {row.variant: row for row in comparison.rows}
    title = heading(comparison, study.metric)
    header = [study.axis, *(f"{line.label}: {title}" if line.label else title for line in study.lines)]
    values = sorted({value for line in study.lines for value in line.at.tolist()})
    rows = []
    for value in values:
        cells = [f"{value:g}"]
        for line in study.lines:
            line_values = line.at.tolist()
            if value not in line_values:  # this line was not run at the value
                cells.append("")
                continue
            index = line_values.index(value)
            may_be_best = line.best is not None and line.best.members[index] and not is_tied(line)
            cell = value_cell(by_variant[line.variants[index]], comparison, study.metric)
            cells.append(f"{cell} *" if may_be_best else cell)
        rows.append(cells)
    return header, rows


def best_sentences(comparison: Comparison, study: AgainstOne) -> list[str]:
    """Return a sentence for each line of a study: at which values of the key the metric is, or may be, best.

    A line on which all values are equal says so instead. A line without a best value has no sentence.
    """
    title = heading(comparison, study.metric)
    sentences = []
    for line in study.lines:
        if not is_tied(line):
            text = best_text(study, line, comparison.confidence)
        elif _never_reached(comparison, study.metric, line.variants):
            text = f"no run was at the target by {_limit(comparison, study.metric)}"
        else:
            text = f"the same at all values of {study.key}"
        if text:
            subject = f"{title}, {line.label}" if line.label else title
            sentences.append(f"{subject}: {text}.")
    return sentences


def _limit(comparison: Comparison, name: str) -> str:
    """Return the horizon of a cost of the target as text."""
    return format_cost(horizon_of(comparison, TARGETS[name]), TARGETS[name])


def _never_reached(comparison: Comparison, name: str, variants: Sequence[str]) -> bool:
    """Return True if the metric is the cost of a target that no run of the variants reached."""
    return name in TARGETS and not any(row.reached[name] for row in comparison.rows if row.variant in variants)


def _study_blocks(comparison: Comparison, studies: Sequence[AgainstOne], look: Look) -> list[Block]:
    """Return the blocks on studies of one key: sentences on all of them, then a figure and a table for each."""
    from analysis.parameters.figure import parameter_figure

    blocks: list[Block] = []
    sentences = [sentence for study in studies for sentence in best_sentences(comparison, study)]
    blocks += [Bullets(sentences)] if sentences else []
    level = format_percent(comparison.confidence)
    for study in studies:
        name = f"{study.metric}-against-{study.key}".replace(".", "-").replace("_", "-")
        title = heading(comparison, study.metric)
        shown = [variant for line in study.lines for variant in line.variants]
        restricted = restricted_words(comparison, study.metric) if study.metric in TARGETS else ""
        figure = None
        if not _never_reached(comparison, study.metric, shown):
            figure = parameter_figure(study, confidence=comparison.confidence, restricted=restricted, look=look)
        if figure is not None:
            blocks.append(Picture(name, f"{title} against {study.axis}", figure))
        note = f"Mean ± half-width of the {level} interval over seeds."
        if any(line.best is not None and not is_tied(line) for line in study.lines):
            note += (
                f" *: may be the best of its column ({level} set of best: multiple comparisons with the best on paired seeds, "
                "Bonferroni)."
            )
        if study.metric in TARGETS:
            note += f" {_horizon_text(comparison, study)}"
        blocks.append(Table(name, f"{title} against {study.axis}", parameter_cells(comparison, study), note=note, words=()))
    return blocks


def _horizon_text(comparison: Comparison, study: AgainstOne) -> str:
    """Return sentences on the horizon at which costs of a target are cut, and on settings that never reached the target."""
    name = study.metric
    limit = _limit(comparison, name)
    words = f"Every run counts with at most {limit}, to which all runs of the whole sweep come, so that all numbers compare."
    shown = {variant for line in study.lines for variant in line.variants}
    never = sum(row.reached[name] == 0 for row in comparison.rows if row.variant in shown)
    if never:
        words += f" In {never} of {len(shown)} settings no run was at the target by then."
        if len(study.lines) > 1:
            words += f" Which line is best at each value of {study.key}, up to the end of its own runs: --within {study.key}."
    return words


def _map_blocks(
    comparison: Comparison, settings: Mapping[str, Settings], names: Sequence[str], keys: Sequence[str], look: Look
) -> list[Block]:
    """Return a map against two keys for each metric, if all combinations of their values were run."""
    from analysis.parameters.figure import heat_figure

    blocks: list[Block] = []
    for name in names:
        study = against_two(comparison, settings, name, keys[0], keys[1])
        if study is None or _never_reached(comparison, name, [row.variant for row in comparison.rows]):
            continue
        restricted = restricted_words(comparison, name) if name in TARGETS else ""
        figure = heat_figure(study, confidence=comparison.confidence, restricted=restricted, look=look)
        if figure is not None:
            file = f"{name}-against-both".replace("_", "-")
            blocks.append(Picture(file, f"{heading(comparison, name)} against {keys[0]} and {keys[1]}", figure))
    return blocks
