"""A reproduction, run and judged: the sweep, a table beside the paper's numbers, figures, and a verdict for each rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from scenarios.papers.costs import COSTS, Cost
from scenarios.papers.study import Reproduction, Setup, Size
from scenarios.runs.folders.replacement import make
from scenarios.runs.reading import override, parse_assignment, read_file
from scenarios.schema.errors import UserError
from scenarios.schema.section import Tables
from scenarios.sweeps.options import Earlier, Machines
from scenarios.sweeps.sweep import Plan, plan, sweep
from scenarios.sweeps.workers import SweepProgress

if TYPE_CHECKING:
    from analysis import Comparison, Sweep
    from analysis.documents.blocks import Block, Document, Picture, Section, Table
    from analysis.figures.settings import FigureSettings

RUNS = "runs"
"""Folder of the sweep, relative to that of the reproduction."""
NOTHING = "—"


@dataclass(frozen=True, slots=True)
class Request:
    """Request of a reproduction: its name, size and seeds."""

    what: Reproduction
    size: Size
    seeds: tuple[int, ...] = ()
    """Seeds in place of those of the size; empty: those of the size."""
    settings: tuple[str, ...] = ()
    """Further changes of the scenario."""

    @property
    def setup(self) -> Setup:
        """The size's."""
        return self.what.sizes[self.size]

    @property
    def cost(self) -> Cost:
        """Effort of its size."""
        return COSTS[self.what.name][self.size]

    @property
    def command(self) -> str:
        """The command that asks for it."""
        words = ["netsim", "reproduce", self.what.name, "--size", self.size.value]
        words += ["--seeds", ",".join(map(str, self.seeds))] if self.seeds else []
        settings = (text.replace("'", "'\"'\"'") for text in self.settings)
        return " ".join([*words, *(f"--set '{text}'" for text in settings)])


def plan_runs(asked: Request) -> Plan:
    """Return the runs of a reproduction, checked, none of one that simulates nothing; raises UserError."""
    if asked.what.solvers or asked.what.judge is not None:
        if asked.seeds or asked.settings:
            raise UserError(f"{asked.what.name}: simulates nothing, so that it takes neither --seeds nor --set")
        return Plan(asked.what.name, [], "", None)
    tables = _tables(asked)
    if asked.what.cells:
        return Plan(asked.what.name, [], "", None)
    return plan(override(tables, {"sweep.seeds": list(asked.seeds or asked.setup.seeds)}), asked.what.name)


def _tables(asked: Request) -> Tables:
    changes = [parse_assignment(text) for text in (*asked.setup.settings, *asked.settings)]
    return override(read_file(asked.what.name), changes)


def reproduce(
    asked: Request,
    out: Path,
    runs: Plan,
    *,
    figures: FigureSettings | None = None,
    jobs: int | None = None,
    progress: Callable[[SweepProgress], None] | None = None,
) -> Document:
    """Run the missing runs into `out`/runs, and return the judged result; raises UserError, KeyboardInterrupt.

    `figures`: style of figures; None: their defaults.
    """
    from analysis import open_sweep
    from analysis.figures.settings import FigureSettings

    its = figures or FigureSettings()
    if asked.what.solvers:
        from scenarios.papers.solvers import measure, sections

        out.mkdir(parents=True, exist_ok=True)
        return _document(asked, sections(measure(asked.size), look=its.look), 0, ())
    if asked.what.cells:
        from scenarios.papers import safa

        out.mkdir(parents=True, exist_ok=True)
        seeds = asked.seeds or asked.setup.seeds
        return _document(asked, safa.sections(safa.lengths(_tables(asked), seeds)), len(safa.CELLS) * len(seeds), seeds)
    sweep(runs, out / RUNS, machines=Machines(jobs=jobs), earlier=Earlier(resume=True), progress=progress)
    return answer(asked, open_sweep(out / RUNS), its)


def judge(asked: Request, cases: Path | None, out: Path) -> tuple[Document, bool | None]:
    """Return the result of a reproduction that needs no sweep, and True if it agrees with the published one (None: nothing is
    published).

    Raises UserError.
    """
    assert asked.what.judge is not None
    judgement = asked.what.judge(cases)
    make(out)
    return _document(asked, judgement.sections, 0, ()), judgement.agrees


def answer(asked: Request, done: Sweep, its: FigureSettings) -> Document:
    """Return the document of a reproduction from its finished sweep, with figures by these settings."""
    from analysis import compare
    from analysis.consensus.section import consensus_sections
    from analysis.documents.blocks import Section
    from analysis.parameters.section import parameter_sections

    what = asked.what
    if what.beliefs:
        from scenarios.papers.beliefs import blocks

        return _document(asked, [Section("Beside the paper", blocks(done, look=its.look))], len(done), done.seeds)
    if what.accuracies:
        from scenarios.papers import safa_accuracy

        return _document(asked, [Section("Beside the paper", safa_accuracy.blocks(done))], len(done), done.seeds)
    comparison = compare(done, metrics=what.metrics, smoothing_s=its.smoothing_s)
    beside = _tables_of(asked, done, comparison)
    sections = [Section("Verdict", _verdict(asked, done, comparison)), Section("Beside the paper", beside)]
    sections += what.sections(done) if what.sections is not None else []
    sections += parameter_sections(done, comparison, against=what.against, look=its.look) if what.against else []
    sections += consensus_sections(done, look=its.look) if what.consensus else []
    drawn = _pictures(what, done, its)
    sections += [Section("Figures", drawn)] if drawn else []
    return _document(asked, sections, len(done), done.seeds)


def _document(asked: Request, sections: Sequence[Section], runs: int, seeds: Sequence[int]) -> Document:
    from analysis.documents.blocks import Code, Document, Section, Text

    what = asked.what
    told: list[Block] = [Text(what.notes)] if what.notes else []
    words = f"Size {asked.size}: {asked.cost.words}."
    words += f" Scenario {what.name}, {runs} runs, seeds {_range(seeds)}." if runs else " Nothing is simulated."
    told += [Text(words), Code("\n".join([asked.command, *asked.setup.settings]), "text")]
    last = Section("How it was run", told)
    return Document(f"{what.shows.partition(':')[0]}: {what.paper}", what.shows, [*sections, last])


def write(document: Document, out: Path) -> list[Path]:
    """Write result.html, result.md, tables as CSV and LaTeX, and figures as PNG, SVG and PDF; returns the files."""
    from analysis.documents.exports import write_tables
    from analysis.documents.html import html, inline_svg
    from analysis.documents.markdown import markdown_page
    from analysis.figures.style import save_figure, svg_text
    from analysis.files import write_whole

    figures = out / "figures"
    for picture in document.pictures:
        for format in ("png", "svg", "pdf"):
            save_figure(picture.figure, figures / f"{picture.name}.{format}")
    write_tables(document.tables, out / "tables")
    page, text = out / "result.html", out / "result.md"
    made = html(document, lambda it: inline_svg(svg_text(it.figure), it.name, it.caption, it.figure.description))
    write_whole(page, made.encode())
    write_whole(text, markdown_page(document, {it.name: f"figures/{it.name}.png" for it in document.pictures}).encode())
    return [page, text]


def _verdict(asked: Request, done: Sweep, comparison: Comparison) -> list[Block]:
    """Return the blocks of the verdict: a table with a row for each rule."""
    from analysis.documents.blocks import Table, Text

    rules = asked.what.rules
    blocks: list[Block] = []
    if asked.size is Size.SMOKE:
        blocks.append(Text("This size shows that it works; its numbers say nothing of the paper.", warning=True))
    if not rules:
        return [*blocks, Text("The paper has no number or order to be judged by here.")]
    rows = []
    for rule in rules:
        judgement = rule.judge(done, comparison, len(rules))
        rows.append([rule.text, judgement.found, judgement.verdict])
    note = " ".join(["The rules were fixed before the runs.", *dict.fromkeys(rule.basis for rule in rules)])
    return [*blocks, Table("verdict", "Rules and verdicts", (["the paper", "here", "verdict"], rows), note=note, words=(0, 2))]


def _tables_of(asked: Request, done: Sweep, comparison: Comparison) -> list[Block]:
    """Return a table of all variants, or one of each group."""
    from analysis import compare

    if not asked.what.groups:
        return [_table(asked, done, comparison, "beside-the-paper", "Here and in the paper")]
    tables: list[Block] = []
    for number, variants in enumerate(asked.what.groups, 1):
        group = done.only(variants)
        compared = compare(group, metrics=asked.what.metrics, smoothing_s=comparison.smoothing_s)
        caption = f"Here and in the paper, up to {compared.until.time_s:.0f} s"
        tables.append(_table(asked, group, compared, f"beside-the-paper-{number}", caption))
    return tables


def _table(asked: Request, done: Sweep, comparison: Comparison, name: str, caption: str) -> Table:
    """Return the table of metrics, each beside the paper's number if there is one."""
    from analysis.documents.blocks import Table
    from analysis.documents.comparison_tables import comparison_cells, interval_words

    what = asked.what
    names = [name for name in what.metrics if comparison.has(name) and not (name == "target_s" and what.slots_to_target)]
    header, rows = comparison_cells(comparison, names)
    beside = [name for name in what.metrics if any(name in numbers for numbers in what.published.values())]
    heads, cells = [header[0]], [[row[0]] for row in rows]
    for column in range(1, len(names) + 1):
        heads.append(header[column])
        for line, row in zip(cells, rows, strict=True):
            line.append(row[column])
    for target, slots in _slots_to_targets(what, done, comparison).items():
        heads.append(f"slots to {target * 100:g} %")
        for line, slot in zip(cells, slots, strict=True):
            line.append(slot)
    for metric in beside:
        title = "slots to the targets" if metric == "target_s" and what.slots_to_target else _short(comparison, metric)
        heads.append(f"paper: {title}")
        for line, one in zip(cells, comparison.rows, strict=True):
            line.append(what.published.get(one.variant, {}).get(metric, NOTHING))
    return Table(name, caption, (heads, cells), note=f"{interval_words(comparison)}.")


def _short(comparison: Comparison, name: str) -> str:
    from analysis.documents.comparison_tables import heading

    return heading(comparison, name)


def _slots_to_targets(what: Reproduction, done: Sweep, comparison: Comparison) -> dict[float, list[str]]:
    """Return the slots that each variant takes to each target, as text.

    They are the restricted mean of seconds, divided by the mean length of a slot.
    """
    from analysis import compare
    from analysis.documents.numbers import format_interval

    found = {}
    for target in what.targets if what.slots_to_target else ():
        compared = compare(done, target_accuracy=target, metrics=("target_s",), smoothing_s=comparison.smoothing_s)
        mean_slot_s = compared.until.time_s / compared.until.rounds if compared.until.rounds else 1.0
        scale = 1.0 / mean_slot_s
        found[target] = [
            format_interval(row["target_s"], scale=scale) if row.reached["target_s"] else f"not by {compared.until.rounds}"
            for row in compared.rows
        ]
    return found


def _pictures(what: Reproduction, done: Sweep, its: FigureSettings) -> list[Picture]:
    from analysis.catalogue import CAPTIONS, figures_of
    from analysis.documents.blocks import Picture

    if not what.figures:
        return []
    drawn = figures_of(done, its)
    return [Picture(name, CAPTIONS[name], drawn[name]) for name in what.figures if name in drawn]


def _range(seeds: Sequence[int]) -> str:
    whole = list(range(min(seeds), max(seeds) + 1)) == sorted(seeds) if seeds else False
    return f"{min(seeds)} to {max(seeds)}" if whole and len(seeds) > 1 else ", ".join(map(str, seeds))


