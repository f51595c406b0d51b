"""What came out: opens run folders, compares runs, draws figures. Reads results only, from files or from memory."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analysis.figures.runs import draw, draw_all
    from analysis.figures.settings import FigureSettings
    from analysis.folders import is_run, is_sweep
    from analysis.gathered import gather
    from analysis.groups import Bound, group_runs
    from analysis.perfetto.write import write_trace
    from analysis.report.comparison import Comparison, ComparisonRow, DifferenceRow, compare, write_comparison
    from analysis.report.detections import DetectionScore, run_detections, score
    from analysis.report.questions import Questions
    from analysis.report.report import comparison_table, difference_table, write_report
    from analysis.report.tables import cut_short
    from analysis.report.waiting import straggler_study
    from analysis.results import Run, open_run
    from analysis.statistics import Interval, mean_interval, metrics_table, paired_differences, run_metrics
    from analysis.studies.find import breakpoint_study, outcome_counts, phase_means
    from analysis.studies.instances import growths, pairs
    from analysis.sweeps import Sweep, open_sweep

# Looked up when first asked for: opening a run must not wait for matplotlib, nor `--help` for pandas.
_MODULES = {
    "report.comparison": ("Comparison", "ComparisonRow", "DifferenceRow", "compare", "write_comparison"),
    "report.detections": ("DetectionScore", "run_detections", "score"),
    "figures.runs": ("draw", "draw_all"),
    "groups": ("Bound", "group_runs"),
    "studies.instances": ("growths", "pairs"),
    "gathered": ("gather",),
    "perfetto.write": ("write_trace",),
    "report.questions": ("Questions",),
    "figures.settings": ("FigureSettings",),
    "report.report": ("comparison_table", "difference_table", "write_report"),
    "folders": ("is_run", "is_sweep"),
    "results": ("Run", "open_run"),
    "sweeps": ("Sweep", "open_sweep"),
    "statistics": ("Interval", "mean_interval", "metrics_table", "paired_differences", "run_metrics"),
    "studies.find": ("breakpoint_study", "outcome_counts", "phase_means"),
    "report.tables": ("cut_short",),
    "report.waiting": ("straggler_study",),
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
    "breakpoint_study",
    "compare",
    "comparison_table",
    "cut_short",
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
    "outcome_counts",
    "paired_differences",
    "pairs",
    "phase_means",
    "run_detections",
    "run_metrics",
    "score",
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
