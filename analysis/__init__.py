"""Results of simulations: open run folders, compare runs, draw figures, write reports. Reads results only."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analysis.ages.measure import growths, pairs
    from analysis.api import Run, Sweep, open_run, open_sweep
    from analysis.catalogue import draw, draw_all
    from analysis.detections.measure import DetectionScore, run_detections, score
    from analysis.documents.comparison_tables import comparison_table, difference_table, short_run_note
    from analysis.figures.settings import Bound, FigureSettings
    from analysis.gathering import gather
    from analysis.metrics.comparison import Comparison, ComparisonRow, DifferenceRow, compare, write_comparison
    from analysis.metrics.run_metrics import metrics_table, run_metrics
    from analysis.perfetto.write import write_trace
    from analysis.report.questions import Questions
    from analysis.report.write import write_report
    from analysis.results.folders import is_run, is_sweep
    from analysis.results.groups import group_runs
    from analysis.statistics.intervals import Interval, mean_interval, paired_differences
    from analysis.stragglers.phases import phase_means
    from analysis.stragglers.waiting import straggler_study

# Looked up when first asked for: opening a run must not wait for matplotlib, nor `--help` for pandas.
_MODULES = {
    "ages.measure": ("growths", "pairs"),
    "api": ("Run", "Sweep", "open_run", "open_sweep"),
    "catalogue": ("draw", "draw_all"),
    "detections.measure": ("DetectionScore", "run_detections", "score"),
    "documents.comparison_tables": ("comparison_table", "short_run_note", "difference_table"),
    "figures.settings": ("Bound", "FigureSettings"),
    "gathering": ("gather",),
    "metrics.comparison": ("Comparison", "ComparisonRow", "DifferenceRow", "compare", "write_comparison"),
    "metrics.run_metrics": ("metrics_table", "run_metrics"),
    "perfetto.write": ("write_trace",),
    "report.questions": ("Questions",),
    "report.write": ("write_report",),
    "results.folders": ("is_run", "is_sweep"),
    "results.groups": ("group_runs",),
    "statistics.intervals": ("Interval", "mean_interval", "paired_differences"),
    "stragglers.phases": ("phase_means",),
    "stragglers.waiting": ("straggler_study",),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "Bound",
    "Comparison",
    "ComparisonRow",
    "DetectionScore",
    "DifferenceRow",
    "FigureSettings",
    "Interval",
    "Questions",
    "Run",
    "Sweep",
    "compare",
    "comparison_table",
    "difference_table",
    "draw",
    "draw_all",
    "gather",
    "group_runs",
    "growths",
    "is_run",
    "is_sweep",
    "mean_interval",
    "metrics_table",
    "open_run",
    "open_sweep",
    "paired_differences",
    "pairs",
    "phase_means",
    "run_detections",
    "run_metrics",
    "score",
    "short_run_note",
    "straggler_study",
    "write_comparison",
    "write_report",
    "write_trace",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
