"""Runs and sweeps for users: results, with methods that compare and draw them. `import analysis` offers all of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from analysis.results import run as run_results
from analysis.results import sweep as sweep_results
from analysis.results.sweep import SweepEntry
from netsim.core.user_warnings import warn_user

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from analysis.metrics.comparison import Comparison

# Comparisons and figures are imported where one is made: opening a run must wait neither for pandas nor for Matplotlib.


class Run(run_results.Run):
    """A finished run that draws its figures.

    >>> import netsim
    >>> small = {"rounds": 3, "clients": {"count": 4}, "server": {"per_round": 2}, "policy": {"kind": "random"}}
    >>> small["compute"] = {"delay": {"kind": "constant", "value_s": 1.0}}
    >>> run = netsim.run({"name": "small", **small})
    >>> run.rounds["end_s"].tolist()
    [1.0, 2.0, 3.0]
    >>> type(run.plot("latency")).__name__
    'ShownFigure'
    """

    def plot(self, figure: str | None = None, **settings: Any) -> Figure:
        """Draw one of the run's figures, by name; None: the first that there is data for. A notebook shows it.

        The names and `settings` are those of `analysis.draw`. ValueError: no such figure, or the run has no data for it.
        """
        from analysis.catalogue import draw

        return draw(self, figure, **settings)


class Sweep(sweep_results.Sweep):
    """A sweep that compares its variants and draws their figures.

    >>> import netsim
    >>> small = {"rounds": 3, "clients": {"count": 4}, "server": {"per_round": 2}, "policy": {"kind": "random"}}
    >>> small["compute"] = {"delay": {"kind": "constant", "value_s": 1.0}}
    >>> sweep = netsim.sweep({"name": "small", **small}, seeds=[1, 2], jobs=1)
    >>> sweep.comparison[["label", "mean_round_s_mean"]].to_numpy().tolist()
    [['random', 1.0]]
    """

    run_class: ClassVar[type[run_results.Run]] = Run

    def compare(self, **settings: Any) -> Comparison:
        """Compare the variants: means with intervals, paired differences; `settings` as for `analysis.compare`."""
        from analysis.metrics.comparison import compare

        return compare(self, **settings)

    @cached_property
    def comparison(self) -> pd.DataFrame:
        """Table with a row for each variant and the columns of `comparison.parquet`: mean, half-width and count of each metric.

        Final accuracies are those at `until_s`, where the shortest of all runs ends. Warns (UserWarning) if that is far from
        the ends of other runs, as `netsim compare` does.
        """
        from analysis.documents.comparison_tables import short_run_note
        from analysis.metrics.comparison import comparison_frame

        comparison = self.compare()
        if caution := short_run_note(comparison):
            warn_user(caution)
        return comparison_frame(comparison)

    def plot(self, figure: str | None = None, **settings: Any) -> Figure:
        """Draw one of the figures of the variants, as `Run.plot`: means over seeds, with their 95 % interval as a band."""
        from analysis.catalogue import draw

        return draw(self, figure, **settings)

    def run(self, variant: str, seed: int) -> Run:
        return cast(Run, super().run(variant, seed))

    def runs(self, variant: str) -> Sequence[Run]:
        return cast(Sequence[Run], super().runs(variant))

    def __iter__(self) -> Iterator[Run]:
        return cast(Iterator[Run], super().__iter__())


def open_run(path: str | Path) -> Run:
    """Open the run folder at `path`. ValueError: no such folder, not a run, or a format newer than this reader."""
    return Run.open(Path(path))


def open_sweep(path: str | Path) -> Sweep:
    """Open the sweep folder at `path`. ValueError: no such folder, not a sweep, or a format newer than this reader."""
    return Sweep.open(Path(path))


__all__ = ["Run", "Sweep", "SweepEntry", "open_run", "open_sweep"]
