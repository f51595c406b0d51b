"""The blocks of a report, before it is written as HTML or Markdown: sections of texts, tables and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from analysis.figures.style import ShownFigure

Cells = tuple[list[str], list[list[str]]]
"""Header and rows of a table, as text."""


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph; `lead` stands before it in bold."""

    text: str
    lead: str = ""
    warning: bool = False
    """True if the text says that something may be wrong, and must not be overlooked."""


@dataclass(frozen=True, slots=True)
class Bullets:
    """A list of sentences."""

    items: Sequence[str]


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and values, in short."""

    pairs: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Table:
    """A table: its first column names the rows, the others are numbers or short words."""

    name: str
    """A word for files and anchors: lower-case letters, digits and hyphens."""
    caption: str
    cells: Cells
    note: str = ""
    """Text below the table: how its numbers were averaged."""
    words: Sequence[int] = (0,)
    """Columns that hold words, not numbers: to the left."""
    unfolded: bool = False
    """True if all of a long table is shown at once: it is what the page is about."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure by its name in `analysis.draw`, with a short caption."""

    name: str
    caption: str
    figure: ShownFigure


@dataclass(frozen=True, slots=True)
class SavedPicture:
    """A figure that an earlier command saved as SVG; `path`: its file, relative to the page."""

    name: str
    caption: str
    path: str
    svg: str


@dataclass(frozen=True, slots=True)
class Code:
    """Text that is shown as it is; with a `summary` folded away below it, where the format can do that."""

    text: str
    language: str = ""
    summary: str = ""


Block = Text | Bullets | Facts | Table | Picture | SavedPicture | Code


@dataclass(frozen=True, slots=True)
class Section:
    """A heading with the blocks below it."""

    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True, slots=True)
class Document:
    """A whole report."""

    title: str
    lead: str
    """Subject of the report in a sentence or two; may be empty."""
    sections: Sequence[Section]

    @property
    def tables(self) -> list[Table]:
        """All tables, in their order."""
        return [block for section in self.sections for block in section.blocks if isinstance(block, Table)]

    @property
    def pictures(self) -> list[Picture]:
        """All pictures, in their order."""
        return [block for section in self.sections for block in section.blocks if isinstance(block, Picture)]
