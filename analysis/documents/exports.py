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
"""Pattern of a cell with a number. Groups: the number, the half-width of its interval, and a remark in brackets."""


def csv_text(table: Table) -> str:
    """Return the table as CSV, with numbers in columns of their own.

    Numbers are written without separators of thousands. If cells of a column show intervals, a column of half-widths follows it;
    if cells hold words, a column of remarks. Columns of words are written as shown. Cells that a spreadsheet would take for
    formulas are escaped.

        variant,regret,regret ±,regret (remark)
        random,1800,12.5,2 of 3
    """
    header, rows = table.cells
    columns = []
    for index, name in enumerate(header):
        cells = [row[index] for row in rows]
        columns += [(name, list(map(_escape_formula, cells)))] if index in table.words else _number_columns(name, cells)
    text = io.StringIO()
    lines = zip(*((_escape_formula(name), *cells) for name, cells in columns), strict=True)
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()


def _number_columns(name: str, cells: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Split the cells of one column into columns (name, cells): numbers, half-widths and remarks.

    The last two are left out if they are empty; a column without any number is one of remarks under its own name.
    """
    values, halves, remarks = [], [], []
    for cell in cells:
        match = _NUMBER.fullmatch(cell)
        value, half, remark = match.groups("") if match is not None else ("", "", "" if cell == MISSING else cell)
        values.append(value.replace(",", "").replace("∞", "inf"))
        halves.append(half.replace(",", ""))
        remarks.append(remark)
    remarks = list(map(_escape_formula, remarks))
    if not any(values):
        return [(name, remarks)]
    further = ((f"{name} ±", halves), (f"{name} (remark)", remarks))
    return [(name, values), *(column for column in further if any(column[1]))]


def _escape_formula(cell: str) -> str:
    """Return `cell` with an apostrophe in front if a spreadsheet would run it as a formula, or else unchanged."""
    # "=", "@" and tabs begin formulas; a sign does too, unless it is the sign of a number.
    return f"'{cell}" if cell[:1] in ("=", "@", "\t") or (cell[:1] in "+-" and cell[1:2].isalpha()) else cell


def latex_table(table: Table) -> str:
    """Return the table as LaTeX: a `table` environment with a `tabular`. It needs the package booktabs only."""
    header, rows = table.cells
    columns = "".join("l" if column in table.words else "r" for column in range(len(header)))
    lines = [" & ".join(map(_latex_cell, header)) + r" \\"]
    for row in rows:
        cells = [
            _latex_cell(cell) if column in table.words else _print_minus_signs(_latex_cell(cell))
            for column, cell in enumerate(row)
        ]
        lines.append(" & ".join(cells) + r" \\")
    note = [f"\\par\\smallskip\\footnotesize {escape_latex(table.note)}"] if table.note else []
    return "\n".join(
        [
            "% \\usepackage{booktabs}",
            "\\begin{table}",
            "\\centering",
            f"\\caption{{{escape_latex(table.caption)}}}",
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


def escape_latex(text: str) -> str:
    """Escape every character of `text` that has a meaning in LaTeX."""
    return "".join(_LATEX.get(letter, letter) for letter in text)


def _print_minus_signs(text: str) -> str:
    """Return the text of a number with a minus sign for each hyphen before a digit; LaTeX prints a hyphen too short."""
    return re.sub(r"(?<![\w.])-(?=[\d$])", lambda sign: "$-$", text)


def _latex_cell(cell: str) -> str:
    """Return the text of a cell as LaTeX."""
    text = escape_latex(cell)
    # A bracket at the start of a row would be read as the option of \\ of the row above; braces prevent that.
    return f"{{{text}}}" if text.startswith("[") else text


WRITERS: Mapping[str, Callable[[Table], str]] = {"csv": csv_text, "tex": latex_table}
"""Ending of a file to the function that makes its text from a table."""


def write_tables(tables: Sequence[Table], folder: Path) -> list[Path]:
    """Write every table as NAME.csv and NAME.tex into `folder`; return the files, in the order of the tables."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for table in tables:
        for ending, text in WRITERS.items():
            path = folder / f"{table.name}.{ending}"
            write_whole(path, text(table).encode())
            written.append(path)
    return written
