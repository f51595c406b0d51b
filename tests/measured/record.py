"""Measure the studies of the result pages again, and write their tables and images into the pages: `make results`.

    python -m tests.measured.record [STUDY ...] [--jobs N]

Without names all studies are measured. `docs/measured` holds the tables, `docs/images` the images. Runs are kept in
`runs/measured`, in a folder for each state of the code: after an interruption the same command goes on.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.documents.blocks import Cells
from scenarios.papers.panels import code_checksum
from scenarios.runs.unfinished import version
from tests.measured.studies import STUDIES

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
TABLES = DOCS / "measured"
IMAGES = DOCS / "images"
PAGES = (ROOT / "README.md", *sorted(DOCS.glob("results*.md")))
RUNS = ROOT / "runs" / "measured"
MARKED = re.compile(
    r"<!-- measured: (?P<study>\w+)/(?P<table>[\w-]+)(?P<columns>(?: \d+)*) -->\n\n"
    r"(?P<head>\|[^\n]*\n\|[-:| ]+\|\n)(?P<rows>(?:\|[^\n]*\n)+)"
)
"""A table of a page, with the study and the table that it comes from, and the columns that it shows; without them: all."""
VERSION = re.compile(r"^(?P<row>\| `(?P<study>\w+)` \| [^|]+ \| )[\d.]+ \|$", re.MULTILINE)
"""A row of docs/results.md that names the version which measured a study."""


@dataclass(frozen=True)
class Measured:
    """Tables of a study, as they were measured.

    Attributes:
        netsim: version that measured them.
        command: command whose runs they are of.
        tables: header and rows of each table by its name.
        images: SHA-256 of each image drawn of its runs, by its name in docs/images.
    """

    netsim: str
    command: str
    tables: dict[str, Cells]
    images: dict[str, str]


def read(study: str) -> Measured:
    """Return the tables of a study from `docs/measured`."""
    fields: dict[str, Any] = json.loads((TABLES / f"{study}.json").read_text(encoding="utf-8"))
    tables = {name: (cells["header"], cells["rows"]) for name, cells in fields["tables"].items()}
    return Measured(fields["netsim"], fields["command"], tables, fields.get("images", {}))


def write(study: str, measured: Measured) -> None:
    """Write the tables of a study into `docs/measured`, a row a line, so that a change of one number is one line."""
    lines = [f'{{"netsim": {_json(measured.netsim)},', f' "command": {_json(measured.command)},']
    if measured.images:
        lines.append(f' "images": {_json(measured.images)},')
    lines.append(' "tables": {')
    parts = []
    for name, (header, rows) in measured.tables.items():
        body = ",\n".join(f"    {_json(row)}" for row in rows)
        parts.append(f'  {_json(name)}: {{\n   "header": {_json(header)},\n   "rows": [\n{body}]}}')
    TABLES.mkdir(exist_ok=True)
    (TABLES / f"{study}.json").write_text("\n".join([*lines, ",\n".join(parts), " }}"]) + "\n", encoding="utf-8")


def checksum_of(file: Path) -> str:
    """Return the SHA-256 of a file's content."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def marked_tables(text: str) -> Iterator[re.Match[str]]:
    """Yield the tables of a page that come from a study."""
    return MARKED.finditer(text)


def cells_of(row: str) -> list[str]:
    """Return the cells of a row of a Markdown table."""
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", row.strip())[1:-1]]


def shown_rows(found: re.Match[str]) -> list[list[str]]:
    """Return the rows that a marked table has to show, in its own order; KeyError: a row or a table that the study has not."""
    header, rows = read(found["study"]).tables[found["table"]]
    columns = [int(word) for word in found["columns"].split()] or list(range(len(header)))
    by_name = {row[columns[0]]: [row[column] for column in columns] for row in rows}
    names = [cells_of(row)[0] for row in found["rows"].splitlines()]
    return [by_name[name] for name in names]


def update_page(page: Path) -> None:
    """Write measured numbers into the marked tables of a page, and versions into its list of studies; the order of rows stays."""

    def renewed(found: re.Match[str]) -> str:
        if found["study"] not in STUDIES or not (TABLES / f"{found['study']}.json").exists():
            return found[0]
        rows = "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |\n" for row in shown_rows(found))
        return found[0][: len(found[0]) - len(found["rows"])] + rows

    def versioned(found: re.Match[str]) -> str:
        known = found["study"] in STUDIES and (TABLES / f"{found['study']}.json").exists()
        return f"{found['row']}{read(found['study']).netsim} |" if known else found[0]

    text = page.read_text(encoding="utf-8")
    if (new := VERSION.sub(versioned, MARKED.sub(renewed, text))) != text:
        page.write_text(new, encoding="utf-8")
        print(f"written: {page.relative_to(ROOT)}")


def main(words: Sequence[str] | None = None) -> None:
    """Measure the named studies, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("studies", nargs="*", choices=[[], *STUDIES], metavar="STUDY")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args(words)
    for name in options.studies or STUDIES:
        study = STUDIES[name]
        print(f"{name}: {study.command}", flush=True)
        folder = RUNS / code_checksum()[:12] / name
        tables = study.measure(folder, options.jobs)
        images = study.image_files(folder)
        for image, file in images.items():
            shutil.copyfile(file, IMAGES / image)
        write(name, Measured(version(), study.command, tables, {image: checksum_of(IMAGES / image) for image in images}))
        for page in PAGES:
            update_page(page)


if __name__ == "__main__":
    main()
