"""Blocks of a report: sections of texts, tables and pictures, which are then written as HTML or Markdown."""

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
    """A paragraph, preceded by `lead` in bold."""

    text: str
    lead: str = ""
    warning: bool = False
    """True if the text is a warning, which must not be overlooked."""


@dataclass(frozen=True, slots=True)
class Bullets:
    """A list of sentences."""

    items: Sequence[str]


@dataclass(frozen=True, slots=True)
class Facts:
    """A list of names with their values, each a few words long."""

    pairs: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Table:
    """A table: its first column names the rows, the others hold numbers or short words."""

    name: str
    """Name for files and anchors: lower-case letters, digits and hyphens."""
    caption: str
    cells: Cells
    note: str = ""
    """Text below the table: how its numbers were averaged."""
    words: Sequence[int] = (0,)
    """Indices of the columns that hold words and are aligned to the left; all others hold numbers."""
    unfolded: bool = False
    """True if a long table is shown in full, because it is the subject of the page."""


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
    """Text that is shown verbatim. With a `summary` it is folded below it, if the format allows."""

    text: str
    language: str = ""
    summary: str = ""


@dataclass(frozen=True, slots=True)
class Beside:
    """Blocks with a picture to their right; on a narrow screen below them. Without a picture they take the whole row."""

    blocks: Sequence[Text | Facts | Table]
    picture: SavedPicture | None


Block = Text | Bullets | Facts | Table | Picture | SavedPicture | Beside | Code


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
