"""Tables for the terminal."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING

from analysis.documents.blocks import Cells

if TYPE_CHECKING:
    from rich.table import Table


def terminal_table(title: str, caption: str, cells: Cells) -> Table:
    """Return a table for the terminal. In a narrow terminal labels wrap, numbers never do."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    header, rows = cells
    table = Table(
        title=Text(title, style="bold"),
        caption=Text(caption, style="dim"),
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    for index, name in enumerate(header):
        # Headers wrap to the width of the widest cell below or of their own longest word.
        widest = max(len(text) for text in [*name.split(), *(row[index] for row in rows)])
        header_text = fill(name, widest, break_on_hyphens=False)
        if index == 0:
            table.add_column(header_text, overflow="fold")
        else:
            table.add_column(header_text, justify="right", no_wrap=True, min_width=widest)
    for row in rows:
        # Text, so that a label with brackets is not taken for markup.
        table.add_row(*map(Text, row))
    return table
