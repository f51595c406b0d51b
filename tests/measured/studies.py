"""The studies behind the tables of README and docs/results-*: one command each, and the tables that it makes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import pandas as pd

from analysis import compare, open_sweep
from analysis.ages.section import instance_sections
from analysis.detections.section import detection_table
from analysis.documents.blocks import Cells, Table
from analysis.documents.comparison_tables import comparison_cells, difference_cells
from analysis.documents.numbers import MISSING, format_interval
from analysis.figures.settings import FigureSettings
from analysis.grids.measure import CellStudy, best_in_cells, cells_of
from analysis.grids.section import differences_table, means_table
from analysis.metrics.comparison import metric_by_seed
from analysis.metrics.run_metrics import aoi_regret
from analysis.parameters.measure import settings_of
from analysis.report.questions import Questions
from analysis.report.write import write_report
from analysis.results.groups import group_runs
from analysis.results.run import OUTCOMES, Run
from analysis.results.sweep import Sweep
from analysis.statistics.intervals import mean_interval
from scenarios.papers.registry import find_reproduction
from scenarios.papers.reproduce import Request, judge_without_sweep, plan_runs, reproduce, write_result
from scenarios.papers.study import Size
from scenarios.runs.reading import override, parse_assignment, read_file
from scenarios.sweeps.options import Earlier, Machines
from scenarios.sweeps.sweep import plan, sweep
from tests.reliability.sockets.campaign import HEADER, REPEATS, measure_rows

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


NumberOf = Callable[[Run], float]


def seeds_by_variant(done: Sweep, number: NumberOf) -> dict[str, list[float]]:
    """Return a number of each run by variant, in the order of seeds."""
    found: dict[str, list[tuple[int, float]]] = {}
    for run in done:
        found.setdefault(str(run.label), []).append((run.seed, number(run)))
    return {label: [value for _, value in sorted(numbers)] for label, numbers in found.items()}


def averages(columns: Mapping[str, NumberOf]) -> TablesOf:
    """Return a function that makes the table of the variants' means of these numbers of their runs, by heading."""
    return lambda done: _table(done, columns, lambda values, _: format_interval(mean_interval(values)))


def average_differences(columns: Mapping[str, NumberOf]) -> TablesOf:
    """Return a function that makes the table of the same numbers minus those of the first variant, at equal seeds."""

    def cell(values: list[float], first: list[float]) -> str:
        return format_interval(mean_interval([a - b for a, b in zip(values, first, strict=True)]), signed=True)

    def differences_of(done: Sweep) -> Cells:
        header, (_, *rows) = _table(done, columns, cell)
        return header, rows

    return differences_of


def _table(done: Sweep, columns: Mapping[str, NumberOf], cell: Callable[[list[float], list[float]], str]) -> Cells:
    """Return a row a variant; `cell` makes its text of the variant's numbers and of the first variant's."""
    numbers = [seeds_by_variant(done, number) for number in columns.values()]
    labels = list(numbers[0])
    rows = [[label, *(cell(by_variant[label], by_variant[labels[0]]) for by_variant in numbers)] for label in labels]
    return ["variant", *columns], rows


def among(table: TablesOf, *variants: str) -> TablesOf:
    """Return a function that makes a table of these variants alone; differences are to the first of them."""
    return lambda done: table(done.only(variants))


def best_within(name: str, *keys: str) -> TablesOf:
    """Return a function that makes the table of a metric, a row for each value of the keys, a column for each method."""

    def table(done: Sweep) -> Cells:
        study = _study_within(done, name, keys)
        return _join_first(means_table(study, best_in_cells(study, name), name).cells, len(keys))

    return table


def differences_within(name: str, *keys: str) -> TablesOf:
    """Return a function that makes the table of differences to the first method, a row for each value of the keys."""

    def table(done: Sweep) -> Cells:
        differences = differences_table(_study_within(done, name, keys), name)
        assert differences is not None, "the cells of the study have no baseline in common"
        return _join_first(differences.cells, len(keys))

    return table


def _study_within(done: Sweep, name: str, keys: Sequence[str]) -> CellStudy:
    """Return the comparison of the methods at each value of the keys."""
    study = cells_of(done, compare(done, metrics=(name,)), settings_of(done), keys)
    assert study is not None, f"the sweep has not several methods at several values of {', '.join(keys)}"
    return study


def _join_first(cells: Cells, count: int) -> Cells:
    """Return a table whose first columns are one, such as "10; 0.1": rows of a page are found by their first cell."""
    header, rows = cells
    return ["; ".join(header[:count]), *header[count:]], [["; ".join(row[:count]), *row[count:]] for row in rows]


def compared_pairs(done: Sweep) -> Cells:
    """Return the table of the AoI regrets of every two variants on the same instances; "first − second" is the first cell."""
    (first, second, *others), rows = _instance_table(done, "aoi-regret-pairs")
    return [f"{first}, {second}", *others], [[f"{one} minus {other}", *rest] for one, other, *rest in rows]


def regret_growth(done: Sweep) -> Cells:
    """Return the table of how the AoI regret of each variant grows."""
    (_, *others), rows = _instance_table(done, "aoi-regret-growth")
    return ["variant", *others], rows


def _instance_table(done: Sweep, name: str) -> Cells:
    """Return a table of a report's section on AoI regrets over instances."""
    (section,) = instance_sections(group_runs(done))
    (table,) = [block for block in section.blocks if isinstance(block, Table) and block.name == name]
    return table.cells


def detections(done: Sweep) -> Cells:
    """Return the table of declared changes against true ones."""
    table = detection_table(group_runs(done))
    assert table is not None, "no run declared a change"
    header, rows = table.cells
    return ["variant", *header[1:]], rows


def lower_on(done: Sweep) -> Cells:
    """Return the AoI regret of each variant, the difference to the first at equal seeds, and on how many it is lower."""
    regrets = seeds_by_variant(done, final_regret)
    first = next(iter(regrets.values()))
    rows = []
    for label, values in regrets.items():
        cells = [MISSING, MISSING] if values is first else _difference_cells(values, first)
        rows.append([label, format_interval(mean_interval(values)), *cells])
    return ["variant", "AoI regret", f"minus {next(iter(regrets))}", "lower on"], rows


def _difference_cells(values: list[float], others: list[float]) -> list[str]:
    """Return the mean difference at equal seeds as text, and at how many seeds the first value is lower."""
    gains = [value - other for value, other in zip(values, others, strict=True)]
    return [format_interval(mean_interval(gains), signed=True), f"{sum(gain < 0.0 for gain in gains)} of {len(gains)}"]


def regret_differences(*pairs: tuple[str, str]) -> TablesOf:
    """Return a function that makes a table of AoI regrets, of the first label minus the second, and on how many it is lower."""

    def table(done: Sweep) -> Cells:
        regrets = seeds_by_variant(done, final_regret)
        rows = [[f"{first} minus {second}", *_difference_cells(regrets[first], regrets[second])] for first, second in pairs]
        return ["difference of AoI regrets", "mean", "lower on"], rows

    return table


def final_regret(run: Run) -> float:
    """Return the AoI regret of a whole run."""
    return float(aoi_regret(run.rounds)[1][-1])


TARGETS = (0.75, 0.78, 0.82, 0.85)
"""Accuracies of Table I of client analytics."""
SLOTS_OF_THE_OPTIMAL_SET = (6, 7, 11, 19)
"""Slots to these accuracies in Table I, by the optimal set."""


def slots_to(target: float) -> NumberOf:
    """Return a function that looks up the first slot at a target accuracy; in runs without one: the last slot."""

    def number(run: Run) -> float:
        reached = run.rounds.loc[run.rounds["accuracy"] >= target, "round"]
        return float(reached.iloc[0] if len(reached) else run.rounds["round"].iloc[-1])

    return number


def selected_sets(run: Run) -> Counter[tuple[int, ...]]:
    """Return in how many slots each set of clients was selected."""
    return Counter(tuple(sorted(clients)) for _, clients in run.clients.groupby("round")["client"])


def selections_of(clients: range) -> NumberOf:
    """Return a function that counts how often one of these clients was selected, on average over them."""
    return lambda run: float(run.clients["client"].isin(clients).sum()) / len(clients)


SELECTED: Mapping[str, NumberOf] = {
    "different sets": lambda run: float(len(selected_sets(run))),
    "slots of the most frequent set": lambda run: float(max(selected_sets(run).values())),
    "selections of a client with i.i.d. data": selections_of(range(5)),
    "of another client": selections_of(range(5, 20)),
}
"""Whom the algorithms of Table I of client analytics select."""


def svm_readings(done: Sweep) -> Cells:
    """Return slots to the targets in each reading, by the optimal set and by random selection, and the distance from Table I.

    Distance: mean over the targets of |ln(slots of the optimal set / those of the paper)|.
    """
    slots = [seeds_by_variant(done, slots_to(target)) for target in TARGETS]
    rows = []
    for label in (label.removesuffix(", optimal") for label in slots[0] if label.endswith(", optimal")):
        optimal, random = (
            [mean_interval(by_variant[f"{label}, {who}"]) for by_variant in slots] for who in ("optimal", "random")
        )
        logs = [abs(math.log(own.mean / paper)) for own, paper in zip(optimal, SLOTS_OF_THE_OPTIMAL_SET, strict=True)]
        texts = (" / ".join(format_interval(interval) for interval in intervals) for intervals in (optimal, random))
        rows.append([label, *texts, f"{sum(logs) / len(logs):.2f}"])
    return ["reading", "optimal set: slots to .75 / .78 / .82 / .85", "random: the same", "distance"], rows


def matching_ratios(done: Sweep) -> Cells:
    """Return cumulated AoI variances over those of random scheduling, and accuracies minus its, at equal seeds.

    Labels are "setting: scheduler"; the first of a setting is random scheduling. Ratios are geometric means over seeds.
    """
    metrics = ("cumulated_age_variance", "final_accuracy")
    comparison = compare(done, metrics=metrics)
    variance, final = (metric_by_seed(comparison, list(done.labels), metric).T for metric in metrics)
    rows = []
    first = 0
    for place, label in enumerate(done.labels.values()):
        if label.endswith(": random scheduling"):
            first = place
            rows.append([label, format_interval(mean_interval(variance[place])), MISSING, MISSING])
            continue
        ratio = mean_interval(np.log(variance[place] / variance[first]))
        bounds = f"{math.exp(ratio.mean):.2f} ({math.exp(ratio.low):.2f} to {math.exp(ratio.high):.2f})"
        points = format_interval(mean_interval(final[place] - final[first]), scale=100.0, signed=True)
        rows.append([label, format_interval(mean_interval(variance[place])), bounds, points])
    return ["channels: scheduler", "cumulated AoI variance", "ratio", "final accuracy minus random scheduling's (points)"], rows


def steady_differences(columns: Mapping[str, NumberOf], ending: str) -> TablesOf:
    """Return a function that makes the table of each variant minus the one of the same name with `ending`, at equal seeds."""

    def table(done: Sweep) -> Cells:
        numbers = [seeds_by_variant(done, number) for number in columns.values()]
        rows = []
        for label in numbers[0]:
            if f"{label}{ending}" not in numbers[0]:
                continue
            pairs = [zip(values[label], values[f"{label}{ending}"], strict=True) for values in numbers]
            intervals = [mean_interval([one - other for one, other in pair]) for pair in pairs]
            rows.append([label, *(format_interval(interval, signed=True) for interval in intervals)])
        return ["variant", *columns], rows

    return table


def age_regret(rounds: int) -> NumberOf:
    """Return a function that sums a run's ages minus the oracle's over so many rounds."""

    def number(run: Run) -> float:
        first = run.rounds[run.rounds["round"] <= rounds]
        return float((first["sum_age"] - first["oracle_sum_age"]).sum())

    return number


def mean_age(run: Run) -> float:
    """Return the mean age of information of a client, in rounds."""
    return float(run.summary["aoi"]["mean_age_rounds"])


def jammed_s(run: Run) -> float:
    """Return the seconds for which sub-channels were jammed, each for itself."""
    return float((run.jams["end_s"] - run.jams["start_s"]).sum()) if run.summary["aoi"]["jam_dwells"] else 0.0


def hit_share(run: Run) -> float:
    """Return the share of a jammer's dwells, in per cent, that hit a transmission; NaN without a jammer."""
    return 100.0 * float((run.jams["hit"] > 0).mean()) if run.summary["aoi"]["jam_dwells"] else math.nan


def declared_changes(run: Run) -> float:
    """Return how many changes the scheduler declared."""
    return float(run.summary["aoi"]["detections"]["declared"])


def declared_round(run: Run) -> float:
    """Return the mean round of the changes that the scheduler declared; NaN if there are none."""
    return float(run.detections["round"].mean()) if declared_changes(run) else math.nan


JAMMED: Mapping[str, NumberOf] = {
    "AoI regret at round 750": age_regret(750),
    "AoI regret at round 2,000": age_regret(2000),
    "mean age (rounds)": mean_age,
    "declared changes": declared_changes,
    "in round": declared_round,
    "dwells that hit (%)": hit_share,
}


def price_of_jamming(done: Sweep) -> Cells:
    """Return the averages of a sweep whose last variant has no jammer, with the age that a jammed second adds to that."""
    columns = {"mean age (rounds)": mean_age, "jammed (s, of one sub-channel)": jammed_s, "declared changes": declared_changes}
    header, rows = averages(columns)(done)
    ages, seconds = seeds_by_variant(done, mean_age), seeds_by_variant(done, jammed_s)
    (*_, free) = ages.values()
    for row in rows:
        paid = zip(ages[row[0]], free, seconds[row[0]], strict=True)
        prices = [(age - without) / jammed for age, without, jammed in paid if jammed > 0.0]
        row.append(format_interval(mean_interval(prices), scale=1000.0) if prices else MISSING)
    return [*header, "age bought by 1,000 jammed seconds"], rows


def mean_round(which: str) -> NumberOf:
    """Return a function that averages the seconds of the rounds for which a condition on their columns holds."""

    def number(run: Run) -> float:
        rounds = run.rounds.query(which)
        return float((rounds["end_s"] - rounds["start_s"]).mean())

    return number


def accuracy(which: str) -> NumberOf:
    """Return a function that averages the accuracies, in per cent, of the rounds for which a condition on their columns holds."""
    return lambda run: 100.0 * float(run.rounds.query(which)["accuracy"].mean())


def accuracies_by_round(rounds: int) -> TablesOf:
    """Return a function that makes the table of accuracies, in per cent, after each of the first rounds."""
    return averages({f"round {number}": accuracy(f"round == {number}") for number in range(1, rounds + 1)})


def state_after(*rounds: int) -> TablesOf:
    """Return a function that makes the table of each variant's clock, largest leak and accuracy at the end of these rounds.

    Three rows a variant; means over seeds. Cells of rounds that a variant did not play are empty.
    """
    numbers: dict[str, Callable[[pd.DataFrame], float]] = {
        "simulated seconds": lambda end: end["end_s"].iloc[0],
        "largest leak (ε)": lambda end: end["max_leak"].iloc[0],
        "accuracy (%)": lambda end: 100.0 * end["accuracy"].iloc[0],
    }

    def cell(runs: Sequence[Run], name: str, number: int) -> str:
        ends = [run.rounds[run.rounds["round"] == number] for run in runs]
        return format_interval(mean_interval([numbers[name](end) for end in ends])) if len(ends[0]) else ""

    def table(done: Sweep) -> Cells:
        rows = [
            [f"{label}: {name}", *(cell(runs, name, number) for number in rounds)]
            for label, runs in group_runs(done).items()
            for name in numbers
        ]
        return ["after round", *map(str, rounds)], rows

    return table


def mean_loss(which: str) -> NumberOf:
    """Return a function that averages the training loss of the rounds for which a condition on their columns holds."""
    return lambda run: float(run.rounds.query(which)["training_loss"].mean())


def total(outcome: str) -> NumberOf:
    """Return a function that looks up how many updates of a run had this outcome."""
    return lambda run: float(run.summary["totals"][outcome])


@dataclass(frozen=True, kw_only=True)
class SweepStudy:
    """A sweep of a scenario that comes along."""

    scenario: str
    seeds: Sequence[int] = ()
    """In place of the scenario's; empty: those."""
    settings: Sequence[str] = ()
    tables: dict[str, TablesOf] = field(default_factory=dict)
    images: Mapping[str, str] = field(default_factory=dict)
    """File in docs/images -> the figure of the sweep's report that it shows."""
    questions: Questions = field(default_factory=Questions)
    """What the report compares."""
    figures: FigureSettings = field(default_factory=FigureSettings)
    """How its figures are drawn."""

    @property
    def command(self) -> str:
        """The command whose runs these are."""
        seeds = f" --seeds {min(self.seeds)}..{max(self.seeds)}" if self.seeds else ""
        return f"netsim sweep {self.scenario}{seeds}" + "".join(f" --set '{text}'" for text in self.settings)

    def measure(self, folder: Path, jobs: int) -> dict[str, Cells]:
        """Simulate what is not in `folder` yet, and return the tables; draw the figures of the report if one is wanted."""
        tables = override(read_file(self.scenario), dict(parse_assignment(text) for text in self.settings))
        runs = plan(override(tables, {"sweep.seeds": list(self.seeds)}) if self.seeds else tables, self.scenario)
        sweep(runs, folder, machines=Machines(jobs=jobs), earlier=Earlier(resume=True))
        if self.images:
            write_report(folder, folder / "report.md", questions=self.questions, figures=self.figures)
        done = open_sweep(folder)
        return {name: of(done) for name, of in self.tables.items()}

    def image_files(self, folder: Path) -> dict[str, Path]:
        """Return the files that `measure` has drawn, by the name of the image in docs/images."""
        return {image: folder / "report-figures" / f"{figure}.png" for image, figure in self.images.items()}


@dataclass(frozen=True, kw_only=True)
class PanelStudy:
    """A figure or table that `netsim reproduce` knows, with all tables of its result."""

    name: str
    size: Size = Size.LAPTOP
    seeds: Sequence[int] = ()
    """In place of those of the size; empty: those."""
    settings: tuple[str, ...] = ()
    """Changes of the scenario, on top of those of the size."""
    arrange: Callable[[dict[str, Cells]], dict[str, Cells]] = lambda tables: tables
    """Makes the tables of the page from those of the result."""
    tables: dict[str, TablesOf] = field(default_factory=dict)
    """Further tables, of the runs of the result."""
    images: Mapping[str, str] = field(default_factory=dict)
    """File in docs/images -> the figure of the result that it shows."""

    @property
    def command(self) -> str:
        """The command whose result this is."""
        return self._request.command

    @property
    def _request(self) -> Request:
        """The figure or table in its size, with the settings."""
        return Request(find_reproduction(self.name), self.size, tuple(self.seeds), self.settings)

    def measure(self, folder: Path, jobs: int) -> dict[str, Cells]:
        """Simulate what is not in `folder` yet, write the result with its figures, and return the tables."""
        asked = self._request
        if asked.reproduction.judge is not None:
            document, _ = judge_without_sweep(asked, None, folder)
        else:
            document = reproduce(asked, folder, plan_runs(asked), jobs=jobs)
        write_result(document, folder)
        further = {name: of(open_sweep(folder / "runs")) for name, of in self.tables.items()}
        return self.arrange({table.name: table.cells for table in document.tables}) | further

    def image_files(self, folder: Path) -> dict[str, Path]:
        """Return the files that `measure` has drawn, by the name of the image in docs/images."""
        return {image: folder / "figures" / f"{figure}.png" for image, figure in self.images.items()}


def only(*names: str) -> Callable[[dict[str, Cells]], dict[str, Cells]]:
    """Return a function that leaves these tables of a result."""
    return lambda tables: {name: tables[name] for name in names}


def arrange_safa(tables: dict[str, Cells]) -> dict[str, Cells]:
    """Return the tables of round lengths; crash probability, method and share are one column, by which a row is found."""
    return {"verdict": tables["verdict"], "round-lengths": _join_first(tables["round-lengths"], 3)}


def arrange_accuracies(tables: dict[str, Cells]) -> dict[str, Cells]:
    """Return the tables of accuracies; crash probability, method and share are one column, by which a row is found."""
    return {"accuracies": _join_first(tables["accuracies"], 3), "gains": _join_first(tables["gains"], 2)}


@dataclass(frozen=True)
class SocketStudy:
    """Predictions beside real sockets, on a machine that can measure them."""

    command: ClassVar[str] = "make validate"

    def measure(self, folder: Path, jobs: int) -> dict[str, Cells]:
        """Measure every case, and return the table of errors; SystemExit: it cannot be measured here."""
        return {"errors": _join_first((HEADER, list(measure_rows(REPEATS))), 2)}

    def image_files(self, folder: Path) -> dict[str, Path]:
        """Return nothing: no image is drawn."""
        return {}


Study = SweepStudy | PanelStudy | SocketStudy


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


TEN = range(1, 11)
"""Seeds of figures in which those of the size leave open what ten decide."""
OF_PAUSE = ("target_s", "final_accuracy", "mean_round_s", "max_leak")
"""The metrics of PAUSE's figures."""
SELECTORS = ("compute.samples_per_s.to", "learner.partition.concentration")
"""The keys of the grid of `selectors`: the fastest device's speed, and how evenly labels are spread."""
THIRDS: Mapping[str, NumberOf] = {
    "s a round, to 300 s": mean_round("end_s < 300"),
    "to 600 s": mean_round("end_s >= 300 and end_s < 600"),
    "to 900 s": mean_round("end_s >= 600"),
}
"""Mean seconds of the rounds before, between and after the changes of `speeds_change`."""
STUDIES: dict[str, Study] = {
    "quickstart": SweepStudy(
        scenario="quickstart",
        images={"accuracy.png": "accuracy"},
        tables={
            "variants": compared("target_s", "final_accuracy", "mean_round_s", "max_leak"),
            "differences": differences("target_s", "final_accuracy", "mean_round_s", "max_leak"),
        },
    ),
    "unreliable": SweepStudy(
        scenario="unreliable",
        tables={
            "variants": compared("mean_round_s", "max_leak"),
            "differences": differences("mean_round_s", "max_leak"),
            "outcomes": averages({name.replace("_", " "): total(name) for name in ("selected", *OUTCOMES)}),
        },
    ),
    "scripted_latency": SweepStudy(
        scenario="scripted_latency",
        tables={
            "rounds": averages(
                {
                    "mean round, working (s)": mean_round("start_s < 10"),
                    "broken (s)": mean_round("start_s >= 10 and round <= 60"),
                    "fixed (s)": mean_round("round > 60"),
                }
            )
        },
    ),
    "reactive_jamming": SweepStudy(scenario="reactive_jamming", tables={"price": price_of_jamming}),
    "jammed": SweepStudy(
        scenario="jammed",
        images={"jammed.png": "aoi_regret"},
        figures=FigureSettings(over="rounds"),
        seeds=range(1, 31),
        tables={"variants": averages(JAMMED), "differences": average_differences(JAMMED)},
    ),
    "svm_central": SweepStudy(
        scenario="svm_central",
        seeds=(1, 2, 3),
        tables={
            "slots": averages(
                {f"{slot}": accuracy(f"round == {slot}") for slot in (1, 2, 3, 4, 5, 20, 100)}
                | {"mean of the last 10 of 300": accuracy("round > 290")}
            )
        },
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
    "selectors": SweepStudy(
        scenario="selectors",
        images={"selectors.png": "target-s-best-where"},
        questions=Questions(metrics=("target_s",)),
        tables={"seconds": best_within("target_s", *SELECTORS), "differences": differences_within("target_s", *SELECTORS)},
    ),
    "timed_poll": SweepStudy(
        scenario="timed_poll",
        tables={
            "seconds": best_within("target_s", "uplink.delay.mean_excess_s"),
            "differences": differences_within("target_s", "uplink.delay.mean_excess_s"),
            "rounds": best_within("mean_round_s", "uplink.delay.mean_excess_s"),
        },
    ),
    "free_poll": SweepStudy(
        scenario="free_poll",
        tables={
            "seconds": best_within("target_s", "learner.partition.concentration"),
            "second-differences": differences_within("target_s", "learner.partition.concentration"),
            "accuracies": best_within("final_accuracy", "learner.partition.concentration"),
            "accuracy-differences": differences_within("final_accuracy", "learner.partition.concentration"),
        },
    ),
    "speeds_change": SweepStudy(
        scenario="speeds_change",
        tables={
            "variants": beside(averages(THIRDS), compared("target_s", "final_accuracy")),
            "change": steady_differences(THIRDS, ", no change"),
            "to-pause": among(differences("target_s", "final_accuracy"), "pause", "pause-glr", "pause-page-hinkley"),
            "to-oort": among(differences("target_s", "final_accuracy"), "oort", "oort-kept"),
        },
    ),
    "channels_fig2a": SweepStudy(
        scenario="channels_fig2a",
        seeds=range(1, 31),
        tables={
            "variants": beside(compared("aoi_regret", "cumulated_age_variance"), averages({"mean age (rounds)": mean_age})),
            "growth": regret_growth,
            "pairs": compared_pairs,
        },
    ),
    "channels_fig2a_readings": SweepStudy(
        scenario="channels_fig2a_readings",
        seeds=range(1, 31),
        tables={
            "variants": lower_on,
            "differences": regret_differences(
                ("AA M-Exp3, set used, 250 rounds", "AA M-Exp3, drawn arm, 250 rounds"),
                ("AA M-Exp3, set used, all history", "AA M-Exp3, drawn arm, all history"),
                ("AA GLR-CUCB, 250 rounds", "AA GLR-CUCB"),
                ("GLR-CUCB, 6 segments known", "GLR-CUCB"),
            ),
        },
    ),
    "detectors": SweepStudy(
        scenario="channels_fig2a",
        seeds=range(1, 31),
        settings=('sweep={grid={"scheduler.detector.kind"=["glr-exact", "glr-grid", "cusum", "page-hinkley"]}}',),
        tables={"detections": detections, "variants": lower_on},
    ),
    "channels_fig2b": SweepStudy(
        scenario="channels_fig2b",
        seeds=range(1, 31),
        tables={"variants": lower_on, "detections": detections},
    ),
    "channels_fig2c_drawn": SweepStudy(
        scenario="channels_fig2c_drawn",
        seeds=range(1, 31),
        tables={"variants": beside(lower_on, averages({"mean age (rounds)": mean_age}))},
    ),
    "channels_fig2c": SweepStudy(
        scenario="channels_fig2c",
        seeds=range(1, 31),
        tables={"variants": beside(lower_on, averages({"mean age (rounds)": mean_age}))},
    ),
    "channels_fig2b_rules": PanelStudy(
        name="channels_fig2b", images={"channels-fig2b.png": "aoi-regret-against-channels-states-breakpoints"}
    ),
    "channels_fig2c_drawn_rules": PanelStudy(name="channels_fig2c_drawn"),
    "analytics_readings": SweepStudy(scenario="analytics_readings", tables={"readings": svm_readings}),
    "analytics_reset": SweepStudy(
        scenario="analytics_reset",
        tables={
            "accuracies": averages({"mean over the slots (%)": accuracy("round > 0")}),
            "to-optimal": average_differences({"minus the optimal set": accuracy("round > 0")}),
        },
    ),
    "analytics_fig7_reset": SweepStudy(
        scenario="analytics_fig7",
        seeds=TEN,
        # Those of the size for laptops, and a reset.
        settings=(*find_reproduction("analytics_fig7").sizes[Size.LAPTOP].settings, "slots.reset_each_slot=true"),
        tables={
            "accuracies": averages({"mean over the slots (%)": accuracy("round > 0")}),
            "to-optimal": average_differences({"minus the optimal set": accuracy("round > 0")}),
        },
    ),
    "channels_digits": SweepStudy(scenario="channels_digits", tables={"ratios": matching_ratios}),
    "analytics_fig7": PanelStudy(
        name="analytics_fig7",
        seeds=TEN,
        tables={
            "differences": differences("final_accuracy"),
            "to-random": among(differences("final_accuracy"), "random", "random-set", "quick-init-ucb", "round-robin", "ucb"),
        },
    ),
    "analytics_fig8": PanelStudy(name="analytics_fig8"),
    "analytics_fig9": PanelStudy(
        name="analytics_fig9",
        seeds=TEN,
        tables={
            "slots": averages({f"slots to {target * 100:g} %": slots_to(target) for target in (0.75, 0.85)}),
            "to-optimal": differences("final_accuracy"),
            "to-random": among(differences("final_accuracy"), "random", "bp-ucb", "bp-ucb-mu-0.1"),
            "to-plain": among(
                differences("final_accuracy"),
                "bp-ucb",
                "bp-ucb-own-tests",
                "bp-ucb-average-credit",
                "bp-ucb-no-cold-start",
                "bp-ucb-opinion",
                "bp-ucb-mu-0.1",
            ),
        },
    ),
    "bp_ucb_timing": PanelStudy(
        name="bp_ucb_timing", images={"bp-ucb-timing.png": "timing"}, size=Size.FULL, arrange=only("consensus", "message-times")
    ),
    "bp_ucb_timing_loss": PanelStudy(name="bp_ucb_timing_loss", size=Size.FULL, arrange=only("consensus")),
    "bp_ucb_timing_topology": PanelStudy(name="bp_ucb_timing_topology", size=Size.FULL, arrange=only("consensus")),
    "safa_table": PanelStudy(name="safa_table", size=Size.FULL, arrange=arrange_safa),
    "ring_or_clique": PanelStudy(name="ring_or_clique", size=Size.FULL),
    "overlays_shared_core": PanelStudy(
        name="overlays_shared_core", images={"shared-core.png": "shared-core"}, size=Size.FULL, arrange=arrange_overlays
    ),
    "channels_fig2a_rules": PanelStudy(name="channels_fig2a", images={"channels_fig2a.png": "aoi_regret"}),
    "analytics_table1": PanelStudy(
        name="analytics_table1",
        seeds=TEN,
        tables={"differences": differences("final_accuracy"), "selected": averages(SELECTED)},
    ),
    "analytics_fig5": PanelStudy(
        name="analytics_fig5",
        seeds=TEN,
        tables={
            "slots": beside(
                averages({f"training loss in slot {slot}": mean_loss(f"round == {slot}") for slot in (1, 5, 15, 50)}),
                averages({"accuracy in slot 15 (%)": accuracy("round == 15")}),
            ),
            "differences": differences("final_accuracy"),
        },
    ),
    "analytics_fig6": PanelStudy(name="analytics_fig6", seeds=TEN),
    "analytics_fig10": PanelStudy(name="analytics_fig10"),
    "pause_table1": PanelStudy(name="pause_table1", images={"pause-table1.png": "costs"}),
    "pause_test1": PanelStudy(
        name="pause_test1",
        size=Size.FULL,
        tables={
            "differences": among(
                differences(*OF_PAUSE), "pause", "sa-pause", "random", "all", "all-no-privacy", "fastest", "clustered-by-size"
            ),
            "authors-differences": among(
                differences(*OF_PAUSE),
                *(f"authors-{name}" for name in ("pause", "sa-pause", "random", "all", "random-no-privacy", "all-no-privacy")),
            ),
        },
    ),
    "pause_fig6_7": PanelStudy(name="pause_fig6_7", size=Size.FULL, tables={"differences": differences(*OF_PAUSE)}),
    "pause_fig2_3": PanelStudy(name="pause_fig2_3"),
    "pause_fig4_5": PanelStudy(name="pause_fig4_5"),
    "pause_fig8_9": PanelStudy(name="pause_fig8_9"),
    "channels_fig3_4_cifar10_piecewise": PanelStudy(name="channels_fig3_4_cifar10_piecewise", settings=("rounds=50",)),
    "channels_fig3_4_cifar10_extreme": PanelStudy(name="channels_fig3_4_cifar10_extreme"),
    "analytics_fig11": PanelStudy(name="analytics_fig11"),
    "analytics_fig12": PanelStudy(name="analytics_fig12"),
    "pause_learning_rates": SweepStudy(
        scenario="pause_fig2_3",
        seeds=(1, 2, 3),
        settings=(
            "rounds=4",
            'sweep={grid={"policy.kind"=["pause", "random"], "learner.optimizer.learning_rate"=[0.01, 0.001]}}',
        ),
        tables={"accuracies": accuracies_by_round(4)},
    ),
    "pause_norms": SweepStudy(
        scenario="pause_fig2_3",
        seeds=(1, 2, 3),
        settings=(
            "rounds=6",
            "policy.kind=random",
            "privacy.mechanism=none",
            "learner.data.samples=15000",
            "learner.data.test_samples=2000",
            "learner.optimizer.learning_rate=0.01",
            'learner.network={kind="cnn", channels=[32, 64, 128], hidden=[128, 64, 32], padding=0}',
            'sweep={grid={"learner.network.norm"=["batch", "group", "none"]}}',
        ),
        tables={"accuracies": accuracies_by_round(6)},
    ),
    "pause_authors_mnist": PanelStudy(
        name="pause_authors_mnist",
        images={"pause-authors-mnist.png": "accuracy"},
        size=Size.FULL,
        seeds=TEN,
        tables={"differences": differences(*OF_PAUSE)},
    ),
    "pause_authors_cifar10": PanelStudy(
        name="pause_authors_cifar10",
        images={"pause-authors-cifar10.png": "accuracy"},
        size=Size.FULL,
        tables={"rounds": state_after(10, 20, 40, 60, 80, 100, 150, 200, 250, 300)},
    ),
    "safa_accuracy": PanelStudy(name="safa_accuracy", size=Size.FULL, arrange=arrange_accuracies),
    "safa_first_round": SweepStudy(
        scenario="safa_accuracy",
        seeds=(1, 2, 3),
        settings=('sweep={grid={"server.crash"=[0.1, 0.7], "server.first_round"=["everyone", "as-later"]}}',),
        tables={"accuracies": averages({"accuracy after 50 rounds (%)": accuracy("round == 50")})},
    ),
    # Last: it ends the command on a machine that cannot measure it.
    "sockets": SocketStudy(),
}
