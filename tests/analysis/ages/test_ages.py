"""What comparisons, figures and reports say of ages of information, declared changes and bounds."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.ages.figure import aoi_regret_figure, aoi_variance_figure, deliveries_figure
from analysis.ages.measure import growth_exponent, growths, pairs
from analysis.ages.section import age_table
from analysis.api import open_run, open_sweep
from analysis.catalogue import draw
from analysis.detections.figure import detections_figure, states_figure
from analysis.detections.measure import run_detections
from analysis.detections.section import declaration_tables, detection_table
from analysis.documents.comparison_tables import comparison_cells, difference_cells
from analysis.figures.settings import Bound
from analysis.metrics.comparison import compare, write_comparison
from analysis.metrics.run_metrics import aoi_regret, delivery_shares, run_metrics
from analysis.report.write import write_report
from analysis.results.groups import group_runs
from analysis.results.run import Run
from analysis.results.sweep import Sweep
from analysis.stragglers.figure import latency_figure
from models.schedulers.m_exp3 import tune_gamma
from models.theory.aoi import lemma3_constant, theorem2_lower, theorem3_holds_from, theorem3_upper, theorem4_lower, theorem5_upper
from scenarios.runs.reading import override, parse
from scenarios.runs.run import run
from scenarios.runs.summary.bounds import aoi_bounds, bound_notes
from scenarios.sweeps.options import Machines
from scenarios.sweeps.sweep import plan, sweep
from tests.helpers.result_folders import PARTS, write_run, write_sweep, write_table

MEANS = [[0.9, 0.8, 0.1, 0.1], [0.1, 0.1, 0.8, 0.9]]
STUDY: dict[str, Any] = {
    "name": "channels",
    "rounds": 300,
    "clients": {"count": 2},
    "server": {"kind": "asynchronous"},
    "scheduler": {"kind": "glr-cucb"},
    "channels": {"count": 4, "states": {"kind": "piecewise-stationary", "starts": [151], "means": MEANS}},
    "sweep": {
        "seeds": [1, 2, 3],
        "baseline": "random",
        "variants": [
            {"name": "random", "set": {"scheduler.kind": "random"}},
            {"name": "glr", "label": "GLR-CUCB"},
            {"name": "seeing", "set": {"metrics.oracle": "csi"}},
            {"name": "alone", "set": {"metrics.oracle": "none"}},
        ],
    },
}


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return open_sweep(sweep(plan(STUDY, "study"), tmp_path_factory.mktemp("sweep") / "s", machines=Machines(jobs=1)))


def ages(mine: list[float | None], oracle: list[float | None], variance: list[float | None]) -> dict[str, list[Any]]:
    count = len(mine)
    rounds = {"round": list(range(1, count + 1)), "start_s": [0.0] * count, "end_s": [0.0] * count}
    return rounds | {"sum_age": mine, "oracle_sum_age": oracle, "age_variance": variance}


def test_regret_and_variance_by_hand(tmp_path: Path) -> None:
    table = open_run(write_run(tmp_path / "run", ages([3, 5, 4], [2, 2, 5], [0.5, 4.5, 2.0]))).rounds
    rounds, regret = aoi_regret(table)
    assert (rounds.tolist(), regret.tolist()) == ([1.0, 2.0, 3.0], [1.0, 4.0, 3.0])
    metrics = run_metrics(open_run(tmp_path / "run"), ["aoi_regret", "cumulated_age_variance"])
    assert (metrics["aoi_regret"], metrics["cumulated_age_variance"]) == (3.0, 7.0)
    nothing = open_run(write_run(tmp_path / "other"))
    assert aoi_regret(nothing.rounds)[0].size == 0
    assert math.isnan(run_metrics(nothing, ["cumulated_age_variance"])["cumulated_age_variance"])


def test_means_and_paired_differences_by_hand(tmp_path: Path) -> None:
    runs = {
        "base": {1: ages([4, 4], [1, 1], [1, 1]), 2: ages([6, 6], [1, 1], [2, 2])},
        "better": {1: ages([2, 2], [1, 1], [1, 0]), 2: ages([4, 5], [1, 1], [1, 0])},
    }
    base, better = compare(open_sweep(write_sweep(tmp_path / "s", runs, baseline="base"))).rows
    (difference,) = compare(open_sweep(tmp_path / "s")).differences
    assert (base["aoi_regret"].mean, better["aoi_regret"].mean) == (8.0, 4.5)
    assert difference["aoi_regret"].difference.mean == -3.5
    # Differences -4 and -3: standard error 1/2, Student's t quantile at one degree of freedom 12.706.
    assert difference["aoi_regret"].difference.half_width == pytest.approx(12.706 / 2, rel=1e-4)
    assert difference["cumulated_age_variance"].difference.mean == -2.0


@pytest.mark.each_nth(2)
def test_every_result_names_its_oracle_and_unlike_ones_are_not_compared(played: Sweep, tmp_path: Path) -> None:
    found = compare(played)
    assert found.oracles == ("means", "csi")
    header, rows = comparison_cells(found)
    assert "AoI regret (oracle means or csi)" in header
    column = header.index("AoI regret (oracle means or csi)")
    assert [row[column].endswith(end) for row, end in zip(rows, ("(means)", "(means)", "(csi)", "—"), strict=True)] == [True] * 4
    header, rows = difference_cells(found)
    cells = [row[header.index("AoI regret (oracle means or csi)")] for row in rows]
    assert cells[0].startswith("-")
    assert cells[1:] == ["another oracle"] * 2
    import pyarrow.parquet as pq

    flat = pq.read_table(write_comparison(played, tmp_path / "c.parquet")).to_pylist()
    assert [row["oracle"] for row in flat] == ["means", "means", "csi", None]
    assert flat[1]["aoi_regret_difference_mean"] < 0
    assert flat[2]["aoi_regret_difference_mean"] is None
    assert flat[2]["cumulated_age_variance_difference_mean"] == flat[1]["cumulated_age_variance_difference_mean"]


def test_rounds_that_take_no_time_and_leaks_that_nobody_limits_are_no_figures(played: Sweep) -> None:
    found = compare(played)
    assert [metric for metric in ("mean_round_s", "max_leak", "aoi_regret", "cumulated_age_variance") if found.has(metric)] == [
        "aoi_regret",
        "cumulated_age_variance",
    ]
    assert latency_figure(group_runs(played)) is None


def test_the_regret_figure_shows_the_summed_difference_and_names_the_oracle(played: Sweep) -> None:
    groups = {"glr": played.runs("glr")}
    bound = Bound("Theorem 9", "made up", lambda rounds: 7.0 * rounds)
    plain, bounded = aoi_regret_figure(groups), aoi_regret_figure(groups, bounds=[bound])
    assert plain is not None and bounded is not None  # noqa: PT018
    expected = np.mean([aoi_regret(one.rounds)[1] for one in groups["glr"]], axis=0)
    (line, _) = plain.axes[0].lines
    np.testing.assert_allclose(line.get_ydata(), expected)
    assert plain.axes[0].get_yscale() == "linear"
    assert plain.legends[0].get_title().get_text() == 'AoI regret against the oracle "means"'
    (_, drawn) = bounded.axes[0].lines
    np.testing.assert_allclose(drawn.get_ydata(), 7.0 * np.arange(1, 301))
    assert bounded.axes[0].get_yscale() == "log"
    assert "made up" in bounded.get_supxlabel()
    assert aoi_regret_figure({"alone": played.runs("alone")}) is None


def test_variance_is_drawn_over_rounds_and_cumulated(played: Sweep) -> None:
    figure = aoi_variance_figure({"glr": played.runs("glr")})
    assert figure is not None
    left, right = (axes.lines[0].get_ydata() for axes in figure.axes)
    # Windows of 300 / 50 rounds.
    variance = np.mean([one.rounds["age_variance"] for one in played.runs("glr")], axis=0)
    assert left[-1] == pytest.approx(variance[-6:].mean())
    np.testing.assert_allclose(right, np.cumsum(variance))


def test_deliveries_are_shares_of_rounds(played: Sweep) -> None:
    one = played.run("glr", 1)
    delivered = one.clients.query("outcome == 'delivered'").groupby("client").size() / 300
    np.testing.assert_allclose(delivery_shares(one), delivered)
    figure = deliveries_figure({"glr": [one]})
    assert figure is not None
    np.testing.assert_allclose(figure.axes[0].lines[0].get_ydata(), delivered)


def test_declared_changes_are_drawn_and_told(played: Sweep, tmp_path: Path) -> None:
    groups = group_runs(played)
    figure = detections_figure(groups)
    assert figure is not None
    # The changes of "glr" and of "seeing", which schedules alike.
    assert [text.get_text().split("\n")[0] for text in figure.axes[0].get_yticklabels()] == ["GLR-CUCB", "seeing", "alone"]
    table = detection_table(groups)
    assert table is not None
    cells = next(row for row in table.cells[1] if row[0] == "GLR-CUCB")
    assert cells[1] == "glr-exact"
    assert int(cells[3]) == 3 == int(cells[4]) + int(cells[5])
    assert "random" not in [row[0] for row in table.cells[1]]
    by_channel, declarations = declaration_tables(played.run("glr", 1))
    assert by_channel.cells[0][:2] == ["sub-channel", "changes it declared first"]
    assert len(declarations.cells[1]) == len(played.run("glr", 1).detections)
    assert declaration_tables(played.run("random", 1)) == []
    assert detections_figure({"random": played.runs("random")}) is None
    assert age_table({"sync": [open_run(write_run(tmp_path / "sync"))]}) is None


def test_states_of_sub_channels_are_their_true_means_with_what_was_declared(played: Sweep) -> None:
    one = played.run("glr", 1)
    figure = states_figure({"glr": [one]})
    assert figure is not None
    shown = np.asarray(figure.axes[0].images[0].get_array())
    segments = one.summary["aoi"]["channels"]
    assert shown[:, 0].tolist() == segments["means"][0]
    assert shown[:, -1].tolist() == segments["means"][-1]
    found = len(run_detections(one).causes)
    assert f"{len(run_detections(one).changes or ())} true changes and {found} declared ones" in figure.description
    marks = [line for line in figure.axes[0].lines if line.get_marker() != "None"]
    assert sum(len(line.get_xdata()) for line in marks) == found
    assert states_figure({"sync": []}) is None


def test_over_seconds_states_and_declarations_lie_at_the_closes_of_their_rounds(tmp_path: Path) -> None:
    # Rounds of 1, 2, 3, .. s; a change before round 3, declared after round 4, which closes at 10 s.
    count = 6
    ends = np.cumsum(np.arange(1.0, count + 1.0))
    rounds = {"round": list(range(1, count + 1)), "start_s": [0.0, *ends[:-1].tolist()], "end_s": ends.tolist()}
    known = {"first_rounds": [3], "means": [[0.9], [0.1]]}
    path = write_run(tmp_path / "run", rounds, PARTS, aoi={"channels": known}, sub_channels={"channels": known})
    declared = {"round": [4], "time_s": [10.0], "channel": [0], "observations": [1], "jammed": [0]}
    write_table(path / "detections.parquet", "detections", declared)
    with (path / "scenario.toml").open("a", encoding="utf-8") as file:
        file.write("\n[channels]\ncount = 1\n")
    groups = {"a": [open_run(path)]}
    for over, changed, told, middle in (("rounds", 2.5, 4.5, 4.0), ("seconds", 3.0, 10.0, 8.0)):
        states, detections = (draw(groups["a"], name, over=over) for name in ("states", "detections"))
        axes = states.axes[0]
        assert axes.get_xlim() == ((0.5, 6.5) if over == "rounds" else (0.0, 21.0))
        assert axes.lines[0].get_xdata()[0] == changed
        assert axes.lines[-1].get_xdata()[0] == middle  # of round 4
        assert detections.axes[0].lines[0].get_xdata().tolist() == [told]
        assert detections.axes[0].get_xlabel() == ("round" if over == "rounds" else "simulated time (s)")


@pytest.mark.slow
def test_reports_hold_ages_and_changes(played: Sweep, tmp_path: Path) -> None:
    text = write_report(played.path, tmp_path / "sweep", format="md").read_text()
    for heading in ("## Age of information", "## Declared changes", "oracle `means`", "aoi_variance.png", "detections.png"):
        assert heading in text
    single = write_report(played.run("glr", 1).path, tmp_path / "run", format="md").read_text()
    assert "AoI regret (oracle means)" in single
    assert "| round | time (s) | sub-channel |" in single
    drawn = {"outcomes", "aoi_regret", "aoi_variance", "ages", "deliveries", "states", "detections"}
    assert {path.stem for path in tmp_path.glob("sweep/**/*.png")} == drawn | {"breakpoints", "answered", "course"}


def only(runs: list[Run], label: str) -> np.ndarray:
    (bound,) = [bound for bound in aoi_bounds(runs) if bound.label == label]
    return bound.values(np.array([2.0, 100.0, 20000.0]))


def test_bounds_are_those_of_the_world_that_was_played(played: Sweep, tmp_path: Path) -> None:
    runs = [*played.runs("random"), *played.runs("glr"), *played.runs("seeing")]
    assert [bound.label for bound in aoi_bounds(runs)] == ["Theorem 4, lower", "Theorem 5, upper"]
    assert [bound.label for bound in aoi_bounds(played.runs("random"))] == ["Theorem 4, lower"]
    assert aoi_bounds([*played.runs("seeing"), *played.runs("alone")]) == []
    lower = only(runs, "Theorem 4, lower")
    assert math.isnan(lower[0])  # too few rounds for the proof
    assert lower[2] == theorem4_lower(20000, clients=2, channels=4)
    c = lemma3_constant(np.array([0.8, 0.9]))
    upper = only(runs, "Theorem 5, upper")
    assert upper[1] == pytest.approx(theorem5_upper(100, clients=2, channels=4, segments=2, c=c, mu_min=0.1))
    channels = {"count": 3, "states": {"kind": "adversarial", "good": 1}}
    study = {key: value for key, value in STUDY.items() if key != "sweep"}
    run(parse(study | {"clients": {"count": 1}, "channels": channels, "scheduler": {"kind": "random"}}), tmp_path / "random")
    fixed = [open_run(tmp_path / "random")]
    assert only(fixed, "Theorem 2, lower")[2] == theorem2_lower(20000, clients=1, channels=3)
    assert [bound.label for bound in aoi_bounds(fixed[:1])] == ["Theorem 2, lower"]
    assert bound_notes(fixed) == []
    both = [bound.label for bound in aoi_bounds([fixed[0], *played.runs("random")])]
    assert both == ["Theorem 2, lower, N = 3, K = 1", "Theorem 4, lower, N = 4, K = 2"]


def exp3(folder: Path, rounds: int = 820, **changes: Any) -> Run:
    """M-Exp3 for one client on three channels, of which an adversary makes one Good in each round; 820 > 16 (e - 1) 27 ln 3."""
    study = {key: value for key, value in STUDY.items() if key != "sweep"}
    tables: dict[str, Any] = study | {
        "rounds": rounds,
        "clients": {"count": 1},
        "channels": {"count": 3, "states": {"kind": "adversarial", "good": 1, "dwell_rounds": 1.0}},
        "scheduler": {"kind": "m-exp3", "gamma": "tuned"},
    }
    run(parse(override(tables, changes)), folder)
    return open_run(folder)


def test_theorem_3_is_drawn_at_the_end_of_a_run_that_meets_its_conditions(tmp_path: Path) -> None:
    holds = exp3(tmp_path / "holds")
    (bound,) = [bound for bound in aoi_bounds([holds]) if bound.label.startswith("Theorem 3")]
    assert bound.label == "Theorem 3, upper, at T = 820"
    values = bound.values(np.array([100.0, 819.0, 820.0]))
    assert np.isnan(values[:2]).all()
    assert values[2] == theorem3_upper(820, clients=1, channels=3)
    assert bound_notes([holds]) == []
    figure = aoi_regret_figure({"m-exp3": [holds]}, bounds=[bound])
    assert figure is not None
    (line,) = [line for line in figure.axes[0].get_lines() if line.get_marker() == "D"]
    assert np.isfinite(np.asarray(line.get_ydata(), float)).sum() == 1
    known = tune_gamma(820, clients=1, channels=3)
    assert bound_notes([exp3(tmp_path / "number", **{"scheduler.gamma": known})]) == []


@pytest.mark.each_nth(5)
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"scheduler.gamma": 0.5}, "scheduler.gamma = 0.5 is not tuned"),
        ({"rounds": 800}, "it is proved from 816 rounds on, and 800 were run"),
        ({"channels.states.dwell_rounds": 20.0}, "wants independent rounds"),
        ({"channels.states": {"kind": "stationary", "means": [0.2, 0.3, 0.9]}}, "not fixed beforehand"),
        ({"scheduler.gamma": 0.1, "scheduler.normalize": False}, "rewards in [0, 1]"),
        ({"scheduler.share": 0.01}, "rewards in [0, 1]"),
    ],
)
def test_theorem_3_is_not_drawn_otherwise_and_the_reason_is_told(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    if changes == {"rounds": 800}:
        assert theorem3_holds_from(clients=1, channels=3) == 816
    done = exp3(tmp_path / "run", **changes)
    assert not [bound for bound in aoi_bounds([done]) if bound.label.startswith("Theorem 3")]
    (note,) = bound_notes([done])
    assert note.startswith("Theorem 3 is not drawn for m-exp3: ")
    assert words in note


def test_pairs_and_growth_by_hand(tmp_path: Path) -> None:
    # Regrets after 4 rounds: base 4 and 8, better 2 and 10; of these 2, 4, 1, 9 after the first two.
    runs = {
        "base": {1: ages([2, 2, 2, 2], [1] * 4, [0] * 4), 2: ages([3, 3, 3, 3], [1] * 4, [0] * 4)},
        "better": {1: ages([1, 2, 1, 2], [1] * 4, [0] * 4), 2: ages([9, 2, 1, 2], [1] * 4, [0] * 4)},
    }
    groups = group_runs(open_sweep(write_sweep(tmp_path / "s", runs, baseline="base")))
    (pair,) = pairs(groups)
    assert (pair.first, pair.second, pair.difference.mean, pair.below) == ("base", "better", 0.0, 1)
    base, better = growths(groups)
    assert (base.first_half.mean, base.second_half.mean, base.difference.mean) == (3.0, 3.0, 0.0)
    assert (base.exponent.mean, base.exponent.count) == (pytest.approx(1.0), 2)
    assert (better.first_half.mean, better.second_half.mean) == (5.0, 1.0)
    assert (base.left_out, better.left_out) == (0, 1)
    assert (better.difference.mean, better.exponent.count) == (-4.0, 1)  # the first seed's regret begins at 0


def test_pairs_are_of_the_rounds_that_all_runs_have(tmp_path: Path) -> None:
    # As in the comparison of the sweep: of the first three rounds, up to which the second run of one variant goes.
    runs = {
        "base": {1: ages([2, 2, 2, 2], [1] * 4, [0] * 4), 2: ages([3, 3, 3], [1] * 3, [0] * 3)},
        "better": {1: ages([1, 2, 1, 9], [1] * 4, [0] * 4), 2: ages([9, 2, 1, 9], [1] * 4, [0] * 4)},
    }
    sweep = open_sweep(write_sweep(tmp_path / "s", runs, baseline="base"))
    (pair,) = pairs(group_runs(sweep))
    assert (pair.difference.mean, pair.below) == (((3 - 1) + (6 - 9)) / 2, 1)
    (row,) = compare(sweep).differences
    assert row["aoi_regret"].difference.mean == -pair.difference.mean


def test_exponents_are_those_of_powers() -> None:
    x = np.arange(1.0, 1001.0)
    assert growth_exponent((x, 3.0 * x**0.5)) == pytest.approx(0.5)
    # What comes first does not count.
    assert growth_exponent((x, np.where(x <= 100, -1.0, x**2))) == pytest.approx(2.0)
    assert math.isnan(growth_exponent((x, x - 500.0)))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"jammers": [{"name": "sweeper", "law": {"kind": "sweep"}, "dwell_s": 0.05}]}, "jammers: theory has no place for it"),
        ({"outages": [{"name": "mast", "from_round": 3, "to_round": 5}]}, "outages: theory has no place for it"),
        ({"uplink": {"channel": {"kind": "bernoulli", "success": 0.9}}}, "uplink.channel.kind = 'bernoulli': updates are lost"),
        ({"availability": {"kind": "markov", "mean_on_s": 1.0, "mean_off_s": 1.0}}, "availability.kind = 'markov': not everyone"),
        ({"server.round_s": 0.05, "channels.delay": {"kind": "constant", "value_s": 0.2}}, "updates outlast their rounds"),
    ],
)
def test_no_bound_is_drawn_where_more_than_the_states_decides(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    done = exp3(tmp_path / "run", rounds=40, **changes)
    assert aoi_bounds([done]) == []
    (note,) = bound_notes([done])
    assert note.startswith("Bounds on AoI regret are not drawn for m-exp3: ")
    assert words in note
