"""Tables of a report for other programs: CSV, and LaTeX with the rules of the package booktabs."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from analysis.report.blocks import Table
from analysis.whole_files import write_whole

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


def csv_text(table: Table) -> str:
    """Header and rows as they are shown, separated by commas; a cell that a spreadsheet would take for a formula stays text."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([list(map(_inert, row)) for row in (table.cells[0], *table.cells[1])])
    return text.getvalue()


def _inert(cell: str) -> str:
    # "=", "@" and tabs begin formulas; signs do too, but where a number follows they are its own.
    return f"'{cell}" if cell[:1] in ("=", "@", "\t") or (cell[:1] in "+-" and cell[1:2].isalpha()) else cell


def latex(table: Table) -> str:
    """A `table` environment with a `tabular` of booktabs; needs \\usepackage{booktabs} alone."""
    header, rows = table.cells
    columns = "".join("l" if column in table.words else "r" for column in range(len(header)))
    # \\[ after a row would begin an option of \\: cells with a bracket stand in braces.
    lines = [" & ".join(map(_cell, row)) + r" \\" for row in (header, *rows)]
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
    """`text` with everything escaped that means something to LaTeX."""
    return "".join(_LATEX.get(letter, letter) for letter in text)


def _cell(cell: str) -> str:
    text = latex_text(cell)
    return f"{{{text}}}" if text.startswith("[") else text


WRITERS: Mapping[str, Callable[[Table], str]] = {"csv": csv_text, "tex": latex}
"""Ending of a file to what writes a table to it."""


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
