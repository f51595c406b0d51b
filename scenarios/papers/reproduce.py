"""Reproductions, run and judged: the sweep, a table with the paper's numbers, figures, and a verdict for each rule."""

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
from scenarios.sweeps.sweep import Plan, plan
from scenarios.sweeps.sweep import sweep as run_sweep
from scenarios.sweeps.workers import SweepProgress

if TYPE_CHECKING:
    from analysis import Comparison, Sweep
    from analysis.documents.blocks import Block, Document, Picture, Section, Table
    from analysis.figures.settings import FigureSettings

RUNS = "runs"
"""Folder of the sweep, relative to that of the reproduction."""
NOTHING = "—"
"""Text of a cell without a value."""


@dataclass(frozen=True, slots=True)
class Request:
    """Reproduction to run, with its size, seeds and settings."""

    reproduction: Reproduction
    size: Size
    seeds: tuple[int, ...] = ()
    """Seeds in place of those of the size; empty: those of the size."""
    settings: tuple[str, ...] = ()
    """Further changes of the scenario."""

    @property
    def setup(self) -> Setup:
        """Seeds and settings of the requested size."""
        return self.reproduction.sizes[self.size]

    @property
    def cost(self) -> Cost:
        """Processor time of the requested size."""
        return COSTS[self.reproduction.name][self.size]

    @property
    def command(self) -> str:
        """The command line of this request."""
        words = ["netsim", "reproduce", self.reproduction.name, "--size", self.size.value]
        words += ["--seeds", _seeds_option(self.seeds)] if self.seeds else []
        settings = (text.replace("'", "'\"'\"'") for text in self.settings)  # quotes, as a shell wants them
        return " ".join([*words, *(f"--set '{text}'" for text in settings)])


def _seeds_option(seeds: Sequence[int]) -> str:
    """Return seeds as `--seeds` reads them: 1..10 if each is the one before plus 1, else a list with commas."""
    if len(seeds) > 1 and list(seeds) == list(range(seeds[0], seeds[0] + len(seeds))):
        return f"{seeds[0]}..{seeds[-1]}"
    return ",".join(map(str, seeds))


def plan_runs(request: Request) -> Plan:
    """Return the checked plan of a reproduction's sweep; raises UserError.

    The plan has no runs if `judge`, searches or the cells of SAFA's table take the place of a sweep.
    """
    if request.reproduction.solvers or request.reproduction.judge is not None:
        if request.seeds or request.settings:
            raise UserError(f"{request.reproduction.name}: simulates nothing, so that it takes neither --seeds nor --set")
        return Plan(request.reproduction.name, [], "", None)
    tables = _scenario_tables(request)
    if request.reproduction.cells:  # simulated by `reproduce`, not by a sweep
        return Plan(request.reproduction.name, [], "", None)
    return plan(override(tables, {"sweep.seeds": list(request.seeds or request.setup.seeds)}), request.reproduction.name)


def _scenario_tables(request: Request) -> Tables:
    """Return the scenario of a reproduction with the settings of its size and of the request."""
    changes = [parse_assignment(text) for text in (*request.setup.settings, *request.settings)]
    return override(read_file(request.reproduction.name), changes)


def reproduce(
    request: Request,
    out: Path,
    runs: Plan,
    *,
    figures: FigureSettings | None = None,
    jobs: int | None = None,
    progress: Callable[[SweepProgress], None] | None = None,
) -> Document:
    """Run the missing runs of the plan `runs` into `out`/runs, and return the judged result; complete runs there are kept.

    Without a sweep, measure the searches or simulate the cells of SAFA's table instead. `figures`: style of figures; None: the
    default style. Raises UserError, KeyboardInterrupt.
    """
    from analysis import open_sweep
    from analysis.figures.settings import FigureSettings

    style = figures or FigureSettings()
    if request.reproduction.solvers:
        from scenarios.papers.solvers import measure_searches, sections

        out.mkdir(parents=True, exist_ok=True)
        return _document(request, sections(measure_searches(request.size), look=style.look), 0, ())
    if request.reproduction.cells:
        from scenarios.papers import safa

        out.mkdir(parents=True, exist_ok=True)
        seeds = request.seeds or request.setup.seeds
        lengths = safa.simulate_cells(_scenario_tables(request), seeds)
        return _document(request, safa.sections(lengths), len(safa.CELLS) * len(seeds), seeds)
    run_sweep(runs, out / RUNS, machines=Machines(jobs=jobs), earlier=Earlier(resume=True), progress=progress)
    return sweep_document(request, open_sweep(out / RUNS), style)


def judge_without_sweep(request: Request, cases: Path | None, out: Path) -> tuple[Document, bool | None]:
    """Compute a reproduction that needs no sweep, and make the folder `out`.

    Return the result, and True if it agrees with the published values, None if none are published. `cases`: file of cases, or
    None for the included one. Raises UserError.
    """
    assert request.reproduction.judge is not None  # else `reproduce` runs it
    judgement = request.reproduction.judge(cases)
    make(out)
    return _document(request, judgement.sections, 0, ()), judgement.agrees


def sweep_document(request: Request, sweep: Sweep, style: FigureSettings) -> Document:
    """Return the document of a reproduction from its finished sweep, with figures in `style`."""
    from analysis import compare
    from analysis.consensus.section import consensus_sections
    from analysis.documents.blocks import Section
    from analysis.parameters.section import parameter_sections

    reproduction = request.reproduction
    if reproduction.beliefs:
        from scenarios.papers.beliefs import blocks

        return _document(request, [Section("Beside the paper", blocks(sweep, look=style.look))], len(sweep), sweep.seeds)
    if reproduction.accuracies:
        from scenarios.papers import safa_accuracy

        return _document(request, [Section("Beside the paper", safa_accuracy.blocks(sweep))], len(sweep), sweep.seeds)
    comparison = compare(sweep, metrics=reproduction.metrics, smoothing_s=style.smoothing_s)
    tables = _comparison_tables(request, sweep, comparison)
    sections = [Section("Verdict", _verdict_blocks(request, sweep, comparison)), Section("Beside the paper", tables)]
    if reproduction.sections is not None:
        sections += reproduction.sections(sweep)
    if reproduction.against:
        sections += parameter_sections(sweep, comparison, against=reproduction.against, look=style.look)
    if reproduction.consensus:
        sections += consensus_sections(sweep, look=style.look)
    pictures = _pictures(reproduction, sweep, style)
    if pictures:
        sections.append(Section("Figures", pictures))
    return _document(request, sections, len(sweep), sweep.seeds)


def _document(request: Request, sections: Sequence[Section], runs: int, seeds: Sequence[int]) -> Document:
    """Return the document of a result: its sections, and a last one that says how it was run. `runs`: number of runs, 0: none."""
    from analysis.documents.blocks import Code, Document, Section, Text

    reproduction = request.reproduction
    blocks: list[Block] = [Text(reproduction.notes)] if reproduction.notes else []
    summary = f"Size {request.size}: {request.cost.words}."
    summary += f" Scenario {reproduction.name}, {runs} runs, seeds {_seeds_text(seeds)}." if runs else " Nothing is simulated."
    blocks += [Text(summary), Code("\n".join([request.command, *request.setup.settings]), "text")]
    how = Section("How it was run", blocks)
    return Document(f"{reproduction.shows.partition(':')[0]}: {reproduction.paper}", reproduction.shows, [*sections, how])


def write_result(document: Document, out: Path) -> list[Path]:
    """Write result.html, result.md, tables as CSV and LaTeX, and figures as PNG, SVG and PDF; return the two pages."""
    from analysis.documents.exports import write_tables
    from analysis.documents.html import html_page, inline_svg
    from analysis.documents.markdown import markdown_page
    from analysis.figures.style import save_figure, svg_text
    from analysis.files import write_whole

    figures = out / "figures"
    for picture in document.pictures:
        for format in ("png", "svg", "pdf"):
            save_figure(picture.figure, figures / f"{picture.name}.{format}")
    write_tables(document.tables, out / "tables")
    html_file, markdown_file = out / "result.html", out / "result.md"
    page = html_page(
        document, lambda picture: inline_svg(svg_text(picture.figure), picture.name, picture.caption, picture.figure.description)
    )
    write_whole(html_file, page.encode())
    png_files = {picture.name: f"figures/{picture.name}.png" for picture in document.pictures}
    write_whole(markdown_file, markdown_page(document, png_files).encode())
    return [html_file, markdown_file]


def _verdict_blocks(request: Request, sweep: Sweep, comparison: Comparison) -> list[Block]:
    """Return the blocks of the verdict: a table with a row for each rule."""
    from analysis.documents.blocks import Table, Text

    rules = request.reproduction.rules
    blocks: list[Block] = []
    if request.size is Size.SMOKE:
        blocks.append(Text("This size shows that it works; its numbers say nothing of the paper.", warning=True))
    if not rules:
        return [*blocks, Text("The paper has no number or order to be judged by here.")]
    rows = []
    for rule in rules:
        decision = rule.judge(sweep, comparison, len(rules))
        rows.append([rule.text, decision.evidence, decision.verdict])
    note = " ".join(["The rules were fixed before the runs.", *dict.fromkeys(rule.basis for rule in rules)])
    return [*blocks, Table("verdict", "Rules and verdicts", (["the paper", "here", "verdict"], rows), note=note, words=(0, 2))]


def _comparison_tables(request: Request, sweep: Sweep, comparison: Comparison) -> list[Block]:
    """Return the table of all variants, or a table of each group of variants."""
    from analysis import compare

    if not request.reproduction.groups:
        return [_comparison_table(request, sweep, comparison, "beside-the-paper", "Here and in the paper")]
    tables: list[Block] = []
    for number, variants in enumerate(request.reproduction.groups, 1):
        group = sweep.only(variants)
        compared = compare(group, metrics=request.reproduction.metrics, smoothing_s=comparison.smoothing_s)
        caption = f"Here and in the paper, up to {compared.until.time_s:.0f} s"
        tables.append(_comparison_table(request, group, compared, f"beside-the-paper-{number}", caption))
    return tables


def _comparison_table(request: Request, sweep: Sweep, comparison: Comparison, name: str, caption: str) -> Table:
    """Return a table with a row for each variant: metrics here, slots to the targets, and the published values.

    `name`, `caption`: of the table. A published value that the paper does not give is a dash.
    """
    from analysis.documents.blocks import Table
    from analysis.documents.comparison_tables import comparison_cells, heading, interval_words

    reproduction = request.reproduction
    # Seconds to the target are shown as slots, below.
    left_out = {"target_s"} if reproduction.slots_to_target else set()
    metrics = [metric for metric in reproduction.metrics if comparison.has(metric) and metric not in left_out]
    header, rows = comparison_cells(comparison, metrics)
    # A new header and new rows, which further columns are added to.
    heads, cells = list(header), [list(row) for row in rows]
    for target, texts in _slots_to_targets(reproduction, sweep, comparison).items():
        heads.append(f"slots to {target * 100:g} %")
        for row_cells, text in zip(cells, texts, strict=True):
            row_cells.append(text)
    published = reproduction.published
    for metric in reproduction.metrics:
        if not any(metric in values for values in published.values()):
            continue
        title = "slots to the targets" if metric == "target_s" and reproduction.slots_to_target else heading(comparison, metric)
        heads.append(f"paper: {title}")
        for row_cells, row in zip(cells, comparison.rows, strict=True):
            row_cells.append(published.get(row.variant, {}).get(metric, NOTHING))
    return Table(name, caption, (heads, cells), note=f"{interval_words(comparison)}.")


def _slots_to_targets(reproduction: Reproduction, sweep: Sweep, comparison: Comparison) -> dict[float, list[str]]:
    """Return the numbers of slots in which variants reach target accuracies, as cells of a table.

    Target -> a text for each variant, in the order of `comparison`; "not by N" if it is not reached in N slots. The number is
    the restricted mean of the seconds to the target, divided by the mean length of a slot. Empty unless the paper gives slots.
    """
    from analysis import compare
    from analysis.documents.numbers import format_interval

    if not reproduction.slots_to_target:
        return {}
    texts: dict[float, list[str]] = {}
    for target in reproduction.targets:
        compared = compare(sweep, target_accuracy=target, metrics=("target_s",), smoothing_s=comparison.smoothing_s)
        slots = compared.until.rounds
        slot_s = compared.until.time_s / slots if slots else 1.0
        texts[target] = []
        for row in compared.rows:
            is_reached = row.reached["target_s"] > 0
            texts[target].append(format_interval(row["target_s"], scale=1.0 / slot_s) if is_reached else f"not by {slots}")
    return texts


def _pictures(reproduction: Reproduction, sweep: Sweep, style: FigureSettings) -> list[Picture]:
    """Return the figures of a reproduction that the sweep has data for."""
    from analysis.catalogue import CAPTIONS, figures_of
    from analysis.documents.blocks import Picture

    if not reproduction.figures:
        return []
    drawn = figures_of(sweep, style)
    return [Picture(name, CAPTIONS[name], drawn[name]) for name in reproduction.figures if name in drawn]


def _seeds_text(seeds: Sequence[int]) -> str:
    """Return the seeds as text: as a range if none between is missing, otherwise one by one."""
    if len(seeds) > 1 and sorted(seeds) == list(range(min(seeds), max(seeds) + 1)):
        return f"{min(seeds)} to {max(seeds)}"
    return ", ".join(map(str, seeds))
