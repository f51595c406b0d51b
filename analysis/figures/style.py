"""Figures and their files: line styles, sizes, letters, legends; the bytes of a file depend on the data alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from io import BytesIO, StringIO
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from matplotlib import mathtext
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cbook import is_math_text
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patheffects import withStroke

from analysis.figures.descriptions import describe, hidden_lines_text
from analysis.figures.settings import PLAIN, Look
from analysis.figures.theme import DASHES, HATCHES, NOTE, PALETTE, PAPER
from analysis.files import write_whole

if TYPE_CHECKING:
    from matplotlib.artist import Artist

_LEGEND_HEIGHT_IN = 0.9
"""Height in inches of a title and a legend of two rows, for which the default figure size has room."""
LETTERS = 28
"""Largest number of characters in a row of a label beside an axis: more would leave no room for the axis."""
_METADATA: dict[str, dict[str, None]] = {
    "png": {"Software": None},
    "svg": dict.fromkeys(("Date", "Creator", "Format", "Type")),
    "pdf": dict.fromkeys(("CreationDate", "Creator", "Producer")),
}
"""Metadata by format that Matplotlib must leave out of files: its own name and the time."""


def drawable_text(text: str, row_length: int | None = None) -> str:
    """Return `text` so that Matplotlib can draw it: dollars that enclose no valid mathematics are escaped.

    `row_length`: most characters of a row; longer text is wrapped. None: rows stay as they are.
    """
    rows = text if row_length is None else fill(text, row_length)
    return "\n".join(map(_drawable_row, rows.split("\n")))


@cache
def _drawable_row(text: str) -> str:
    """Return one row of text so that Matplotlib can draw it. Cached, because parsing is slow and labels repeat."""
    if is_math_text(text):
        try:
            mathtext.MathTextParser("path").parse(text)
        except ValueError:
            return text.replace("$", r"\$")
    return text


def row_height_in(labels: Iterable[str], least: float) -> float:
    """Return the height in inches of a row beside an axis, at least `least`, that the longest of its labels fits into."""
    return max(least, *(0.06 + 0.17 * (1 + drawable_text(label, LETTERS).count("\n")) for label in labels))


def surface_style(index: int) -> dict[str, Any]:
    """Return the style of bars of kind `index`: a colour, and a pattern that tells them apart in grey."""
    return {
        "facecolor": PALETTE[index % len(PALETTE)],
        "hatch": HATCHES[index % len(HATCHES)],
        "edgecolor": PAPER,
        "linewidth": 0.0,
    }


def line_style(index: int) -> dict[str, Any]:
    """Return the style of the line of variant `index`, the same in every figure."""
    return {"color": PALETTE[index % len(PALETTE)], "linestyle": DASHES[index % len(DASHES)]}


class ShownFigure(Figure):
    """A figure with a description in text. A notebook shows it although pyplot does not know it."""

    heading = ""
    """Title of the figure; set even if not drawn."""
    note = ""
    """Note on what was averaged, and which lines hide one another; set even if not drawn."""
    description = ""
    """Description for readers who cannot see the figure."""

    def _repr_png_(self) -> bytes:
        return image_of(self, "png")


def new_figure(
    columns: Sequence[float] = (1.0,),
    *,
    rows: int = 1,
    size_in: tuple[float, float] = (7.2, 4.3),
    share_y: bool = True,
    look: Look = PLAIN,
) -> tuple[ShownFigure, list[Axes]]:
    """Make a figure, outside pyplot, with panels side by side, row after row.

    `columns`: relative widths of the panels; `share_y`: True for one vertical axis in all.
    """
    size = (look.width_in or size_in[0], look.height_in or size_in[1])
    # The space keeps labels at the ends of neighbouring axes apart.
    figure = ShownFigure(figsize=size, layout=ConstrainedLayoutEngine(wspace=0.06))
    FigureCanvasAgg(figure)
    panels = figure.subplots(rows, len(columns), squeeze=False, sharey=share_y, width_ratios=list(columns))
    return figure, [axes for row in panels for axes in row]


def finish_figure(figure: ShownFigure, title: str, note: str, lines: Sequence[tuple[Artist, str]], *, look: Look = PLAIN) -> None:
    """Add the title, the legend below it, and a note in grey at the foot; also set the description of the figure.

    `lines`: the entries of the legend (handle, label). The note says what was averaged; lines that hide one another are added
    to it. Call this last, because it reads what was drawn.
    """
    figure.heading = title
    shown_title = drawable_text(title if look.title is None else look.title)
    figure.description = describe(figure, lines)
    # A character is about 0.56 of the font size wide; 0.6 inches are left for the handle and the margins.
    row_length = max(12, int((figure.get_figwidth() - 0.6) * 72.0 / (0.56 * look.font_size)))
    handles, labels = [line for line, _ in lines], [drawable_text(label, row_length) for _, label in lines]
    if handles or shown_title:
        _draw_legend(figure, handles, labels, shown_title, look)
    if look.width_in is not None:
        _fold_labels(figure)
    notes = (note, hidden_lines_text(figure, lines))
    add_note(figure, "; ".join(text for text in notes if text), look=look)


def _fold_labels(figure: ShownFigure) -> None:
    """Wrap the labels of x axes so that none is wider than its panel."""
    engine = figure.get_layout_engine()
    if engine is not None:
        # The widths of the panels are known only after the layout.
        engine.execute(figure)
    for axes in figure.axes:
        label, text = axes.xaxis.label, axes.get_xlabel()
        label_width, panel_width = label.get_window_extent().width, axes.get_window_extent().width
        if text and label_width > panel_width:
            row_length = int(len(text) * panel_width / label_width)
            label.set_text(fill(text, max(8, row_length)))


def _draw_legend(figure: ShownFigure, handles: Sequence[Artist], labels: Sequence[str], title: str, look: Look) -> None:
    """Draw the legend and the title above the panels, with as many columns as the width of the figure allows.

    Matplotlib does not choose the number of columns: the legend is drawn with fewer and fewer until it fits.
    """
    options: dict[str, Any] = {"loc": "outside upper left", "alignment": "left", "borderaxespad": 0.2}
    if title:
        options |= {"title": title, "title_fontproperties": {"size": look.points(1.19), "weight": "bold"}}
    # More than 10 columns never fit, and each attempt is slow.
    for columns in range(min(max(1, len(handles)), 10), 0, -1):
        legend = figure.legend(handles, labels, ncols=columns, **options)
        if columns == 1 or legend.get_window_extent().width <= figure.bbox.width:
            break
        legend.remove()
    if look.height_in is None:
        # Panels keep their height below a legend of many rows.
        height = legend.get_window_extent().height / figure.dpi
        figure.set_figheight(figure.get_figheight() + max(0.0, height - _LEGEND_HEIGHT_IN))


def add_note(figure: ShownFigure, note: str, *, look: Look = PLAIN) -> None:
    """Append `note` to the note at the foot of the figure, which grows by the rows that it needs."""
    figure.note = "; ".join(text for text in (figure.note, note) if text)
    if look.notes and figure.note:
        # As many characters as fit into a row: 112 in a figure 7.2 inches wide whose labels are of 10.5 points.
        row_length = int(112 * figure.get_figwidth() / 7.2 * 10.5 / look.font_size)
        text = drawable_text(figure.note, max(20, row_length))
        if look.height_in is None:
            # The figure has grown by the rows of the note before this call; two rows fit without growing.
            note_before = figure.get_supxlabel()
            breaks_before = note_before.count("\n") if note_before else 1
            added_rows = max(0, text.count("\n") - breaks_before)
            figure.set_figheight(figure.get_figheight() + added_rows * look.points(1.0) / 72.0)
        figure.supxlabel(text, x=0.012, ha="left", fontsize=look.points(0.81), color=NOTE)


def image_of(figure: Figure, format: str) -> bytes:
    """Return `figure` as an image in `format`: png, svg or pdf.

    It has no date or version inside, so that equal data give equal bytes.
    """
    buffer = BytesIO()
    # The settings in force at the time of writing, not of drawing, decide the letters of an SVG or PDF.
    with PLAIN.apply():
        figure.savefig(buffer, format=format, transparent=False, metadata=_METADATA[format])
    return buffer.getvalue()


def save_figure(figure: Figure, path: Path) -> Path:
    """Write `figure` to `path`, in the format that its ending names.

    ValueError: another ending than .png, .svg and .pdf.
    """
    format = path.suffix.lstrip(".").lower()
    if format not in _METADATA:
        raise ValueError(f"{path}: a figure is written as {', '.join(f'.{name}' for name in _METADATA)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, image_of(figure, format))
    return path


def halo() -> list[withStroke]:
    """Return the white edge that keeps letters readable on top of lines, as `path_effects` of a text."""
    return [withStroke(linewidth=2.0, foreground=PAPER)]


def svg_text(figure: Figure) -> str:
    """Return `figure` as SVG with a transparent background, for a page; text is drawn as outlines, so that no font is needed."""
    buffer = StringIO()
    with PLAIN.apply():
        # Lay out only once: Matplotlib would otherwise draw everything for the layout, and again into the file.
        engine = figure.get_layout_engine()
        if engine is not None:
            engine.execute(figure)
            figure.set_layout_engine("none")
        figure.savefig(buffer, format="svg", transparent=True, metadata=_METADATA["svg"])
    return buffer.getvalue()
