"""A report as Markdown, with its pictures as files beside it."""

from __future__ import annotations

from collections.abc import Mapping

from analysis.documents.blocks import Beside, Block, Bullets, Cells, Code, Document, Facts, Picture, SavedPicture, Table, Text


def markdown_page(document: Document, pictures: Mapping[str, str]) -> str:
    """Return the document as the text of a Markdown file; `pictures`: picture name to path, relative to that file."""
    parts = [f"# {document.title}", *([document.lead] if document.lead else [])]
    for section in document.sections:
        parts.append(f"## {section.title}")
        parts += [_block(block, pictures) for block in section.blocks]
    return "\n\n".join(parts) + "\n"


def markdown_table(cells: Cells, words: tuple[int, ...] = (0,)) -> str:
    """Return a Markdown table; the columns `words` are aligned to the left, all others to the right."""
    header, rows = cells
    escaped = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in [header, *rows]]
    rule = ["---" if column in words else "---:" for column in range(len(header))]
    return "\n".join(f"| {' | '.join(row)} |" for row in [escaped[0], rule, *escaped[1:]])


def _block(block: Block, pictures: Mapping[str, str]) -> str:
    """Return a block as Markdown, by its type."""
    match block:
        case Text():
            words = f"**{block.lead}** {block.text}" if block.lead else block.text
            return f"**{words}**" if block.warning and not block.lead else words
        case Bullets():
            return "\n".join(f"- {item}" for item in block.items)
        case Facts():
            return "\n".join(f"- {name}: {value}" for name, value in block.pairs)
        case Table():
            note = f"\n\n{block.note}" if block.note else ""
            return f"{block.caption}:\n\n{markdown_table(block.cells, tuple(block.words))}{note}"
        case Picture():
            return f"![{block.caption}]({pictures[block.name]})"
        case SavedPicture():
            return f"![{block.caption}]({block.path})"
        case Beside():
            parts = [*block.blocks, *([block.picture] if block.picture else [])]
            return "\n\n".join(_block(part, pictures) for part in parts)
        case Code():
            words = f"{block.summary}:\n\n" if block.summary else ""
            return f"{words}```{block.language}\n{block.text.strip()}\n```"
