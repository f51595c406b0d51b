"""The sections of a report on ages of information and declared changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from analysis.detections.measure import DetectionScore, run_detections
from analysis.documents.blocks import Block, Table
from analysis.documents.numbers import MISSING, format_interval, format_number
from analysis.results.groups import Groups
from analysis.results.run import Run
from analysis.statistics.intervals import mean_interval

DETECTION_WORDS = (
    "A change of the means is found by the first declaration after it and before the next; the delay counts the first round "
    "of the new means and that of the declaration. Without one it is missed. Any other declaration is put down to jamming where "
    "a jammer had hit the sub-channel that told since the last restart, and is a false alarm otherwise."
)


def detection_table(groups: Groups) -> Table | None:
    """Return the table of declarations by variant, changes found and missed, and false alarms; None without declarations."""
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
            cells = [*(f"{count:,}" for count in counts), spread, *(f"{count:,}" for count in causes)]
        rows.append([label, " or ".join(kinds), f"{declared:,}", *cells])
    header = ["", "detector", "declared", "changes", "found", "missed", "mean delay (rounds)", "by jamming", "false alarms"]
    caption = "Declared changes against true ones, over all runs"
    return Table("detections", caption, (header, rows), words=(0, 1)) if rows else None


def _total(scored: Sequence[DetectionScore], name: str) -> int:
    """Return the sum over runs and sub-channels of the counts in the field `name` of their scores."""
    return sum(sum(getattr(score, name).values()) for score in scored)


def declaration_tables(run: Run) -> list[Block]:
    """Return two tables of a single run: the score of the detector of each sub-channel, and the first declarations.

    The first is left out if the changes are unknown; without declarations there are none.
    """
    if not run.has_detections or not len(run.detections):
        return []
    score, declarations = run_detections(run), run.detections
    blocks: list[Block] = []
    if score.changes is not None:
        # Sub-channel to count, one mapping for each column.
        counts: tuple[Mapping[int, int], ...] = (score.found, score.jamming, score.false_alarms)
        channels = sorted(set().union(*counts))
        rows = [[str(channel), *(f"{count.get(channel, 0):,}" for count in counts)] for channel in channels]
        cells = (["sub-channel", "changes it declared first", "by jamming", "false alarms"], rows)
        blocks.append(Table("detections-by-channel", "What the detector of each sub-channel was worth", cells))
    shown = declarations.head(20)
    # Causes are unknown where the changes are.
    causes = score.causes[: len(shown)] if score.causes else [MISSING] * len(shown)
    rows = []
    for declaration, cause in zip(shown.to_dict("records"), causes, strict=True):
        rows.append(
            [
                f"{declaration['round']:,}",
                format_number(declaration["time_s"]),
                str(declaration["channel"]),
                f"{declaration['observations']:,}",
                f"{declaration['jammed']:,}",
                cause,
            ]
        )
    header = ["round", "time (s)", "sub-channel", "observations", "of them jammed", "cause"]
    is_cut = len(declarations) > len(shown)
    caption = f"The first {len(shown)} of {len(declarations):,} declarations" if is_cut else "All declarations"
    blocks.append(Table("declarations", caption, (header, rows), words=(5,)))
    return blocks
