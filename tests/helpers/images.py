"""Blank images of figures: to lay out and draw letters takes half of the time of a report, and few tests look at the image."""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable
from io import TextIOBase
from pathlib import Path
from typing import Any

BLANK = {
    "png": base64.b64decode(
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
    ),
    "svg": b'<?xml version="1.0" encoding="utf-8"?>\n<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1"></svg>\n',
    "pdf": b"%PDF-1.4\n%%EOF\n",
}
"""An image of each format that figures are written in."""

_drawing: dict[str, Callable[..., Any]] = {}
"""Matplotlib's own functions, once it has been imported."""


def _save_blank(figure: Any, file: Any, *, format: str = "", **options: Any) -> None:
    if isinstance(file, str | Path):
        Path(file).write_bytes(BLANK[format or Path(file).suffix.removeprefix(".")])
    else:
        file.write(BLANK[format].decode() if isinstance(file, TextIOBase) else BLANK[format])


def draw_images(drawn: bool) -> None:
    """Draw the images of figures from now on, or write blank ones and lay nothing out.

    Does nothing before Matplotlib is imported: a test that imports it draws.
    """
    figure, layout = (sys.modules.get(f"matplotlib.{name}") for name in ("figure", "layout_engine"))
    if figure is None or layout is None:
        return
    if not _drawing:
        _drawing.update(save=figure.Figure.savefig, lay_out=layout.ConstrainedLayoutEngine.execute)
    figure.Figure.savefig = _drawing["save"] if drawn else _save_blank
    layout.ConstrainedLayoutEngine.execute = _drawing["lay_out"] if drawn else lambda engine, figure: None
