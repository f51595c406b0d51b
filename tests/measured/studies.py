"""The studies behind the tables of README and docs/results-*: one command each, and the tables that it makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from analysis import compare, open_sweep
from analysis.documents.blocks import Cells
from analysis.documents.comparison_tables import comparison_cells, difference_cells
from analysis.results.sweep import Sweep
from scenarios.papers.registry import find
from scenarios.papers.reproduce import Request, plan_runs, reproduce
from scenarios.papers.reproduce import judge as judge_cases
from scenarios.papers.study import Size
from scenarios.runs.reading import override, parse_assignment, read_file
from scenarios.sweeps.options import Earlier, Machines
from scenarios.sweeps.sweep import plan, sweep

TablesOf = Callable[[Sweep], Cells]


def compared(*metrics: str, equal: Literal["time", "bytes"] = "time") -> TablesOf:
    """Return a function that makes the table of the variants by these metrics."""
    return lambda done: comparison_cells(compare(done, metrics=metrics, equal=equal), metrics)


def differences(*metrics: str, equal: Literal["time", "bytes"] = "time") -> TablesOf:
    """Return a function that makes the table of paired differences to the first variant."""
    return lambda done: difference_cells(compare(done, metrics=metrics, equal=equal), metrics)


def beside(first: TablesOf, second: TablesOf) -> TablesOf:
    """Return a function that makes one table: the columns of the first, then those of the second."""

    def both(done: Sweep) -> Cells:
        (header, rows), (more, others) = first(done), second(done)
        return [*header, *more[1:]], [[*row, *other[1:]] for row, other in zip(rows, others, strict=True)]

    return both


@dataclass(frozen=True, kw_only=True)
class SweepStudy:
    """A sweep of a scenario that comes along."""

    scenario: str
    seeds: Sequence[int] = ()
    """In place of the scenario's; empty: those."""
    settings: Sequence[str] = ()
    tables: dict[str, TablesOf] = field(default_factory=dict)

    @property
    def command(self) -> str:
        """The command whose runs these are."""
        seeds = f" --seeds {min(self.seeds)}..{max(self.seeds)}" if self.seeds else ""
        return f"netsim sweep {self.scenario}{seeds}" + "".join(f" --set '{text}'" for text in self.settings)

    def measure(self, folder: Path, jobs: int) -> dict[str, Cells]:
        """Simulate what is not in `folder` yet, and return the tables."""
        tables = override(read_file(self.scenario), dict(parse_assignment(text) for text in self.settings))
        runs = plan(override(tables, {"sweep.seeds": list(self.seeds)}) if self.seeds else tables, self.scenario)
        sweep(runs, folder, machines=Machines(jobs=jobs), earlier=Earlier(resume=True))
        done = open_sweep(folder)
        return {name: of(done) for name, of in self.tables.items()}


@dataclass(frozen=True, kw_only=True)
class PanelStudy:
    """A figure or table that `netsim reproduce` knows, with all tables of its result."""

    name: str
    size: Size = Size.LAPTOP
    arrange: Callable[[dict[str, Cells]], dict[str, Cells]] = lambda tables: tables
    """Makes the tables of the page from those of the result."""

    @property
    def command(self) -> str:
        """The command whose result this is."""
        return Request(find(self.name), self.size).command

    def measure(self, folder: Path, jobs: int) -> dict[str, Cells]:
        """Simulate what is not in `folder` yet, and return the tables."""
        asked = Request(find(self.name), self.size)
        if asked.what.judge is not None:
            document, _ = judge_cases(asked, None, folder)
        else:
            document = reproduce(asked, folder, plan_runs(asked), jobs=jobs)
        return self.arrange({table.name: table.cells for table in document.tables})


Study = SweepStudy | PanelStudy


def arrange_overlays(tables: dict[str, Cells]) -> dict[str, Cells]:
    """Return the table of ratios, and two with networks in rows: overlays of the largest model, and models of one overlay.

    Cells hold the times at fixed shares and with flows: "gaia, inaturalist, ring" with 118.1 and 90.0 ms is in the row gaia of
    the first, in the column ring, as "118.1 → 90.0".
    """
    cells = {tuple(row[0].split(", ")): f"{row[1]} → {row[2]}" for row in tables["shared-core"][1]}
    networks, models, overlays = (list(dict.fromkeys(key[place] for key in cells)) for place in range(3))

    def table(corner: str, keys: list[tuple[str, str]], heads: list[str]) -> Cells:
        return [corner, *heads], [[network, *(cells[network, *key] for key in keys)] for network in networks]

    return {
        "ratios": tables["shared-core"],
        "overlays": table("inaturalist, ms", [("inaturalist", overlay) for overlay in overlays], overlays),
        "models": table("star-direct, ms", [(model, "star-direct") for model in models], models),
    }


STUDIES: dict[str, Study] = {
    "quickstart": SweepStudy(
        scenario="quickstart",
        tables={
            "variants": compared("target_s", "final_accuracy", "mean_round_s", "max_leak"),
            "differences": differences("target_s", "final_accuracy", "mean_round_s", "max_leak"),
        },
    ),
    "unreliable": SweepStudy(
        scenario="unreliable",
        tables={"variants": compared("mean_round_s", "max_leak"), "differences": differences("mean_round_s", "max_leak")},
    ),
    "buffered": SweepStudy(
        scenario="buffered",
        tables={
            "variants": compared("target_s", "final_accuracy", "updates_per_s"),
            "differences": beside(
                differences("target_s", "final_accuracy", "updates_per_s"), differences("final_accuracy", equal="bytes")
            ),
        },
    ),
    "ring_or_clique": PanelStudy(name="ring_or_clique", size=Size.FULL),
    "overlays_shared_core": PanelStudy(name="overlays_shared_core", arrange=arrange_overlays),
    "channels_fig2a_rules": PanelStudy(name="channels_fig2a"),
}
