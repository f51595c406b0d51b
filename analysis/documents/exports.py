"""Tables of a report for other programs: CSV, and LaTeX with the rules of the package booktabs."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from analysis.documents.blocks import Table
from analysis.documents.numbers import MISSING
from analysis.files import write_whole

_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "−": r"$-$",
    "—": r"---",
    "∞": r"$\infty$",
    "ε": r"$\varepsilon$",
    "²": r"$^2$",
    "×": r"$\times$",
    "≤": r"$\le$",
    "≥": r"$\ge$",
    "\n": " ",
}


_NUMBER = re.compile(r"([+-]?(?:∞|[\d,]+(?:\.\d+)?(?:e[+-]?\d+)?))(?: %)?(?: ± ([\d,]+(?:\.\d+)?(?:e[+-]?\d+)?))?(?: \((.+)\))?")
"""A cell that shows a number: the number, the half-width of its interval, and a remark in brackets."""


def csv_text(table: Table) -> str:
    """Return the table as CSV, with numbers in columns of their own.

    A column of numbers becomes one of plain numbers, without separators of thousands; where cells show intervals a column of
    half-widths follows, where cells hold words a column of remarks. Columns of words stay as they are shown, and a cell that a
    spreadsheet would take for a formula stays text.

        variant,regret,regret ±,regret (remark)
        random,1800,12.5,2 of 3
    """
    header, rows = table.cells
    columns = []
    for index, name in enumerate(header):
        cells = [row[index] for row in rows]
        columns += [(name, list(map(_inert, cells)))] if index in table.words else _numeric(name, cells)
    text = io.StringIO()
    lines = zip(*((_inert(name), *cells) for name, cells in columns), strict=True)
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()


def _numeric(name: str, cells: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Return the columns that hold the numbers of `cells`, their half-widths and their words, of which the last two may lack."""
    values, halves, remarks = [], [], []
    for cell in cells:
        match = _NUMBER.fullmatch(cell)
        value, half, remark = match.groups("") if match is not None else ("", "", "" if cell == MISSING else cell)
        values.append(value.replace(",", "").replace("∞", "inf"))
        halves.append(half.replace(",", ""))
        remarks.append(remark)
    remarks = list(map(_inert, remarks))
    if not any(values):
        return [(name, remarks)]
    further = ((f"{name} ±", halves), (f"{name} (remark)", remarks))
    return [(name, values), *(column for column in further if any(column[1]))]


def _inert(cell: str) -> str:
    # "=", "@" and tabs begin formulas; signs do too, but where a number follows they are its own.
    return f"'{cell}" if cell[:1] in ("=", "@", "\t") or (cell[:1] in "+-" and cell[1:2].isalpha()) else cell


def latex(table: Table) -> str:
    """Return a `table` environment with a `tabular` of booktabs; needs \\usepackage{booktabs} alone."""
    header, rows = table.cells
    columns = "".join("l" if column in table.words else "r" for column in range(len(header)))
    # \\[ after a row would begin an option of \\: cells with a bracket stand in braces.
    lines = [" & ".join(map(_cell, header)) + r" \\"]
    lines += [
        " & ".join(_cell(cell) if column in table.words else _minus(_cell(cell)) for column, cell in enumerate(row)) + r" \\"
        for row in rows
    ]
    note = [f"\\par\\smallskip\\footnotesize {latex_text(table.note)}"] if table.note else []
    return "\n".join(
        [
            "% \\usepackage{booktabs}",
            "\\begin{table}",
            "\\centering",
            f"\\caption{{{latex_text(table.caption)}}}",
            f"\\label{{tab:{table.name}}}",
            f"\\begin{{tabular}}{{{columns}}}",
            "\\toprule",
            lines[0],
            "\\midrule",
            *lines[1:],
            "\\bottomrule",
            "\\end{tabular}",
            *note,
            "\\end{table}",
            "",
        ]
    )


def latex_text(text: str) -> str:
    """Escape every character of `text` that has a meaning in LaTeX."""
    return "".join(_LATEX.get(letter, letter) for letter in text)


def _minus(text: str) -> str:
    """Return a cell of numbers with signs for its hyphens, which LaTeX prints short."""
    return re.sub(r"(?<![\w.])-(?=[\d$])", lambda sign: "$-$", text)


def _cell(cell: str) -> str:
    text = latex_text(cell)
    return f"{{{text}}}" if text.startswith("[") else text


WRITERS: Mapping[str, Callable[[Table], str]] = {"csv": csv_text, "tex": latex}
"""Ending of a file to the function that makes its text from a table."""


def write_tables(tables: Sequence[Table], folder: Path) -> list[Path]:
    """Write every table as NAME.csv and NAME.tex into `folder`; the files, in their order."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for table in tables:
        for ending, text in WRITERS.items():
            path = folder / f"{table.name}.{ending}"
            write_whole(path, text(table).encode())
            written.append(path)
    return written
