"""The sections of a report on ages of information and declared changes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from analysis.groups import Groups
from analysis.report.blocks import Block, Section, Table
from analysis.report.detections import DetectionScore, run_detections
from analysis.report.tables import MISSING, format_interval, format_number
from analysis.results import Run
from analysis.statistics import delivery_shares, mean_interval, oracle_name
from analysis.studies.instances import MOST_VARIANTS, growths, pairs

AGE_WORDS = (
    "AoI regret: age of information minus that of the oracle on the same channel states, summed over clients and rounds. The "
    "oracle `means` knows the present means and lets its clients rotate over the best channels, `means-age` gives the best of "
    "them to the oldest client, and `csi` sees the states themselves.",
    "AoI variance: sum over clients of (age - mean age)² after a round; cumulated: summed over rounds.",
)
DETECTION_WORDS = (
    "A change of the means is found by the first declaration after it and before the next; the delay counts the first round "
    "of the new means and that of the declaration. Without one it is missed. Any other declaration is put down to jamming where "
    "a jammer had hit the sub-channel that told since the last restart, and is a false alarm otherwise."
)


def age_table(groups: Groups) -> Table | None:
    """Ages and deliveries of each variant, means over its runs with intervals; None where no run has ages."""
    rows = []
    for label, runs in groups.items():
        aged = [run for run in runs if run.summary.get("aoi")]
        if not aged:
            continue
        shares = [delivery_shares(run) for run in aged]
        figures: list[list[float]] = [
            [_number(run.summary["aoi"]["mean_age_rounds"]) for run in aged],
            [run.summary["aoi"]["cumulated_age_variance"] / max(1, run.summary["rounds"]) for run in aged],
            *([100.0 * float(pick(share)) if share.size else math.nan for share in shares] for pick in (np.min, np.mean, np.max)),
        ]
        oracles = " or ".join(dict.fromkeys(oracle_name(run) or MISSING for run in aged))
        rows.append([label, oracles, *(format_interval(mean_interval(values)) for values in figures)])
    header = ["", "oracle", "mean age (rounds)", "AoI variance of a round"]
    header += [f"rounds with a delivery (%), {who}" for who in ("least served client", "mean", "most served")]
    caption = "Age of information and deliveries of each variant, means over its runs"
    return Table("ages", caption, (header, rows), words=(0, 1)) if rows else None


def instance_sections(groups: Groups) -> list[Section]:
    """The order of variants over instances and the growth of their regrets; nothing for one variant, or one seed."""
    if not 1 < len(groups) <= MOST_VARIANTS or max(map(len, groups.values())) < 2:
        return []
    compared = pairs(groups)
    if not compared:
        return []
    order = [
        [pair.first, pair.second, format_interval(pair.difference, signed=True), f"{pair.below} of {pair.difference.count}"]
        for pair in compared
    ]
    grown = [
        [
            growth.label,
            format_interval(growth.first_half),
            format_interval(growth.second_half),
            format_interval(growth.difference, signed=True),
            format_interval(growth.exponent),
            f"{growth.left_out} of {growth.left_out + growth.exponent.count}",
        ]
        for growth in growths(groups)
    ]
    differences = (["this", "minus this", "difference of AoI regrets", "instances on which the first is lower"], order)
    growth = (["", "first half", "second half", "second minus first", "exponent of growth", "runs without"], grown)
    words = (
        "The exponent is the slope of log regret on log round over the last nine tenths of a run, 1 where regret grows linearly. "
        "A run whose regret is not above 0 throughout has none and is left out; where runs are, the mean is of those that did "
        "worse, and says little."
    )
    blocks = [
        Table("aoi-regret-pairs", "AoI regrets of every two variants on the same instances", differences, words=(0, 1)),
        Table("aoi-regret-growth", "Growth of the AoI regret", growth, note=words),
    ]
    return [Section("AoI regret over instances", blocks)]


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def detection_table(groups: Groups) -> Table | None:
    """What each variant's detectors declared, found, missed and raised falsely, over all its runs; None where none declared."""
    rows = []
    for label, runs in groups.items():
        scored = [run_detections(run) for run in runs]
        if not any(score.causes or (run.has_detections and len(run.detections)) for run, score in zip(runs, scored, strict=True)):
            continue
        kinds = dict.fromkeys(str(kind) for run in runs if run.has_detections for kind in run.detections["detector"])
        declared = sum(len(run.detections) for run in runs if run.has_detections)
        known = [score for score in scored if score.changes is not None]
        cells = [MISSING] * 6
        if known:
            delays = [delay for score in known for delay in score.delays_rounds]
            counts = (sum(len(score.changes or ()) for score in known), len(delays), sum(score.missed for score in known))
            causes = (_total(known, "jamming"), _total(known, "false_alarms"))
            spread = format_interval(mean_interval([score.mean_delay_rounds for score in known]))
            cells = [*(f"{n:,}" for n in counts), spread, *(f"{n:,}" for n in causes)]
        rows.append([label, " or ".join(kinds), f"{declared:,}", *cells])
    header = ["", "detector", "declared", "changes", "found", "missed", "mean delay (rounds)", "by jamming", "false alarms"]
    caption = "Declared changes against true ones, over all runs"
    return Table("detections", caption, (header, rows), words=(0, 1)) if rows else None


def _total(scored: Sequence[DetectionScore], name: str) -> int:
    return sum(sum(getattr(score, name).values()) for score in scored)


def declaration_tables(run: Run) -> list[Block]:
    """Of a single run: what the detector of each sub-channel was worth, and its first declarations with their causes."""
    if not run.has_detections or not len(run.detections):
        return []
    score, table = run_detections(run), run.detections
    sections: list[Block] = []
    if score.changes is not None:
        counted: tuple[Mapping[int, int], ...] = (score.found, score.jamming, score.false_alarms)
        channels = sorted(set().union(*counted))
        rows = [[str(channel), *(f"{count.get(channel, 0):,}" for count in counted)] for channel in channels]
        cells = (["sub-channel", "changes it declared first", "by jamming", "false alarms"], rows)
        sections.append(Table("detections-by-channel", "What the detector of each sub-channel was worth", cells))
    first = table.head(20)
    causes: list[str] = list(score.causes[:20]) or [MISSING] * len(first)
    columns = (first["round"], first["time_s"], first["channel"], first["observations"], first["jammed"])
    rows = [
        [f"{round_:,}", format_number(time_s), str(channel), f"{seen:,}", f"{hits:,}", cause]
        for round_, time_s, channel, seen, hits, cause in zip(*(column.tolist() for column in columns), causes, strict=True)
    ]
    header = ["round", "time (s)", "sub-channel", "observations", "of them jammed", "cause"]
    caption = f"The first 20 of {len(table):,} declarations" if len(table) > 20 else "All declarations"
    return [*sections, Table("declarations", caption, (header, rows), words=(5,))]
