"""Writes a report as one self-contained HTML file: pictures are inline SVG, tables can be downloaded by links.

There is no script in it, and a policy in its head forbids every request. Colours follow the reader's choice of light and dark,
those of the pictures too.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator
from html import escape
from importlib.resources import files

from analysis.documents.blocks import Beside, Block, Bullets, Code, Document, Facts, Picture, SavedPicture, Section, Table, Text
from analysis.documents.exports import WRITERS

_MEDIA = {"csv": ("CSV", "text/csv"), "tex": ("LaTeX", "application/x-tex")}
_FOLDED_ROWS = 20
"""Tables of more rows are folded below their caption, so that a page on many variants keeps its overview."""
_WIDE_COLUMNS = 7
"""Tables of more columns take the width of the window, and their cells wrap, so that no column is cut off."""
_PROSE_LETTERS = 40
"""Number of letters in a cell of text above which its column is made wider."""
# Content security policy: the page may use its own styles and embedded data, and load nothing.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
_COLOURS = {
    "#222222": "var(--ink)",
    "#666666": "var(--axis)",
    "#6b6b6b": "var(--soft)",
    "#555555": "var(--soft)",
    "#8a8a8a": "var(--faint)",
    "#e4e4e4": "var(--grid)",
    "#ffffff": "var(--paper)",
    "#000000": "var(--black)",
    "#0072b2": "var(--blue)",
    "#0011cc": "var(--indigo)",
    "#771100": "var(--maroon)",
    "#552277": "var(--plum)",
}
"""Colours of `analysis.figures.style` that are not legible on both light and dark, by their names in the style sheet."""


def html_page(document: Document, svg: Callable[[Picture], str]) -> str:
    """Return the document as the text of one HTML file; `svg` turns a picture into an SVG element with a description."""
    anchors = _anchors(document)
    style = files("analysis.documents").joinpath("report.css").read_text(encoding="utf-8")
    entries, sections = [], []
    for section, anchor in zip(document.sections, anchors, strict=True):
        entries.append(f'<li><a href="#{anchor}">{escape(section.title)}</a></li>')
        sections.append(_section(section, anchor, svg))
    contents, body = "\n".join(entries), "\n".join(sections)
    title, lead = escape(document.title), escape(document.lead)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<link rel="icon" href="data:,">
<title>{title} - netsim report</title>
<style>
{style}</style>
</head>
<body>
<a class="skip" href="#content">Skip to the content</a>
<header>
<h1>{title}</h1>
{f'<p class="lead">{lead}</p>' if lead else ""}
<nav aria-label="Contents">
<ol>
{contents}
</ol>
</nav>
</header>
<main id="content" tabindex="-1">
{body}
</main>
<footer><p>Written by netsim from the files of the runs. Nothing in this page is loaded from elsewhere.</p></footer>
</body>
</html>
"""


def _anchors(document: Document) -> list[str]:
    """Return a unique anchor for each section, made from its title; a repeated title gets a number."""
    counts: dict[str, int] = {}
    anchors = []
    for section in document.sections:
        name = re.sub(r"[^a-z0-9]+", "-", section.title.lower()).strip("-") or "section"
        counts[name] = counts.get(name, 0) + 1
        anchors.append(f"s-{name}" + (f"-{counts[name]}" if counts[name] > 1 else ""))
    return anchors


def _section(section: Section, anchor: str, svg: Callable[[Picture], str]) -> str:
    """Return a section as HTML; `anchor` is the id of its heading."""
    inner = "\n".join(part for block in section.blocks for part in _block(block, svg))
    heading = f'<h2 id="{anchor}" tabindex="-1">{escape(section.title)}</h2>'
    return f'<section aria-labelledby="{anchor}">\n{heading}\n{inner}\n</section>'


def _block(block: Block, svg: Callable[[Picture], str]) -> Iterator[str]:
    """Yield the parts of a block as HTML, by its type."""
    match block:
        case Text():
            lead = f"<strong>{escape(block.lead)}</strong> " if block.lead else ""
            mark = ' class="warning"' if block.warning else ""
            yield f"<p{mark}>{lead}{escape(block.text)}</p>"
        case Bullets():
            yield "<ul>"
            yield from (f"<li>{escape(item)}</li>" for item in block.items)
            yield "</ul>"
        case Facts():
            yield "<dl>"
            yield from (f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in block.pairs)
            yield "</dl>"
        case Table():
            yield from _table(block)
        case Picture():
            title = escape(block.figure.heading or block.caption)
            note = escape(f"{block.figure.note[:1].upper()}{block.figure.note[1:]}.") if block.figure.note else ""
            yield f"<h3>{title}</h3>"
            yield f'<figure><div class="scroll" role="region" tabindex="0" aria-label="{title}">{svg(block)}</div>'
            yield f"<figcaption>{escape(block.caption[:1].upper() + block.caption[1:])}. {note}</figcaption></figure>"
        case SavedPicture():
            shown = inline_svg(block.svg, block.name, block.caption, block.caption)
            label = escape(block.caption)
            yield f'<figure><div class="scroll" role="region" tabindex="0" aria-label="{label}">{shown}</div>'
            yield f"<figcaption>{label}.</figcaption></figure>"
        case Beside():
            yield f'<div class="beside{"" if block.picture else " alone"}"><div>'
            yield from (part for inner in block.blocks for part in _block(inner, svg))
            yield "</div>"
            if block.picture:
                yield from _block(block.picture, svg)
            yield "</div>"
        case Code():
            text = f'<pre tabindex="0"><code>{escape(block.text)}</code></pre>'
            yield f"<details><summary>{escape(block.summary)}</summary>{text}</details>" if block.summary else text


def _table(table: Table) -> Iterator[str]:
    """Yield the parts of a table as HTML, with links to download it; a long table is folded below its caption."""
    header, rows = table.cells
    caption = escape(table.caption)

    def css_class(column: int) -> str:
        """Return the attribute `class` of the cells of a column: words are aligned to the left, long texts get a wide column."""
        if column not in table.words:
            return ""
        prose = any(len(row[column]) > _PROSE_LETTERS for row in rows)
        return ' class="words prose"' if prose and column else ' class="words"'

    folded = len(rows) > _FOLDED_ROWS and not table.unfolded
    classes = f"block{' long' if folded else ''}{' wide' if len(header) > _WIDE_COLUMNS else ''}"
    yield f'<div class="{classes}">'
    if folded:
        yield f"<details><summary>{caption}: {len(rows):,} rows</summary>"
    yield f'<div class="scroll" role="region" tabindex="0" aria-label="{caption}">'
    yield f"<table><caption>{caption}</caption>"
    heads = "".join(f'<th scope="col"{css_class(column)}>{escape(cell)}</th>' for column, cell in enumerate(header))
    yield f"<thead><tr>{heads}</tr></thead><tbody>"
    for row in rows:
        cells = []
        for column, cell in enumerate(row):
            tag, scope = ("th", ' scope="row"') if column == 0 and 0 in table.words else ("td", "")
            # A cell may break before ± but not after it, so that the sign stays with its half-width.
            cells.append(f"<{tag}{scope}{css_class(column)}>{escape(cell).replace('± ', '±&nbsp;')}</{tag}>")
        yield f"<tr>{''.join(cells)}</tr>"
    yield "</tbody></table></div>"
    if folded:
        yield "</details>"
    if table.note:
        yield f'<p class="note">{escape(table.note)}</p>'
    yield f'<p class="note files">{_downloads(table)}</p></div>'


def _downloads(table: Table) -> str:
    """Return links that download the table as CSV and LaTeX; the links hold the files themselves, as data."""
    links = []
    for ending, text in WRITERS.items():
        name, media = _MEDIA[ending]
        content = base64.b64encode(text(table).encode()).decode()
        label = escape(f"{table.caption}, as {name}")
        links.append(f'<a download="{table.name}.{ending}" href="data:{media};base64,{content}" aria-label="{label}">{name}</a>')
    return "This table as " + " or ".join(links)


def inline_svg(text: str, name: str, title: str, description: str) -> str:
    """Return an SVG of Matplotlib as an element for a page that holds several: with unique ids, named colours and a description.

    `name`: name of the picture, unique on the page; ids begin with it. Colours get the names of the style sheet, so that they
    follow the reader's choice of light or dark. Coordinates keep two decimals of a point, to keep the page small.
    """
    start = text.index("<svg")
    svg = re.sub(r"<metadata>.*?</metadata>", "", text[start:], count=1, flags=re.DOTALL)
    svg = svg.replace("xlink:href", "href")
    svg = re.sub(r'\b(id="|href="#|url\(#)', lambda match: f"{match[1]}{name}-", svg)
    svg = re.sub(r' d="([^"]*)"', lambda match: f' d="{_round_coordinates(match[1])}"', svg)
    svg = re.sub("#[0-9a-f]{6}", lambda match: _COLOURS.get(match[0], match[0]), svg)
    head, rest = svg.split(">", 1)
    size = re.search(r'viewBox="[^"]*"', head)
    box = size[0] if size else ""
    ids = f"{name}-title {name}-desc"
    title_and_description = f'<title id="{name}-title">{escape(title)}</title><desc id="{name}-desc">{escape(description)}</desc>'
    start_tag = f'<svg {box} role="img" aria-labelledby="{ids}" xmlns="http://www.w3.org/2000/svg">'
    return f"{start_tag}{title_and_description}{rest.strip()}"


def _round_coordinates(path: str) -> str:
    """Return the path data of an SVG with two decimals for each number, on one line."""
    return re.sub(r"-?\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}", " ".join(path.split()))
