"""Files of a sweep beside its runs: the comparison of its variants and the figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from scenarios.runs.folders.replacement import add_files
from scenarios.workers.scratch import temporary_folder

if TYPE_CHECKING:
    from analysis import Comparison, Sweep
    from analysis.figures.settings import FigureSettings, ImageFormat


def add_comparison(
    folder: Path,
    sweep: Sweep,
    comparison: Comparison,
    *,
    formats: Sequence[ImageFormat] = ("png",),
    figures: FigureSettings | None = None,
) -> list[Path]:
    """Write `comparison.parquet` and figures in each of `formats` into the folder of a sweep; return the files of the figures."""
    from analysis import write_comparison
    from analysis.catalogue import save_all
    from analysis.figures.settings import FigureSettings

    with temporary_folder() as temporary:
        figure_files = save_all(sweep, temporary / "figures", figures or FigureSettings(), formats) if formats else []
        figure_files = [path.relative_to(temporary) for path in figure_files]
        write_comparison(sweep, temporary / "comparison.parquet", comparison=comparison)
        add_files(folder, temporary)
    return [folder / path for path in figure_files]
