"""Figures of hand-made runs: what they show, in which unit, in which format, and what they say of lines that hide one another."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from analysis.ages.figure import ages_figure
from analysis.ages.measure import ages
from analysis.catalogue import CAPTIONS, MOST_VARIANTS, draw, save_all
from analysis.figures.lines import abscissa
from analysis.figures.settings import FigureSettings, Look, warn_of_missing_letters
from analysis.figures.style import image_of
from analysis.learning.figure import accuracy_figure, loss_figure
from analysis.participation.figure import selections_figure
from analysis.privacy.figure import leak_figure
from analysis.regret.figure import regret_figure
from analysis.results.groups import Groups
from analysis.stragglers.figure import latency_figure, phases_figure
from analysis.stragglers.gantt_figure import gantt_figure
from analysis.updates.figure import delivered_figure, outcomes_figure
from tests.helpers.result_folders import FACTS, PARTS, ROUNDS, run_of

BOUNDS = {"round": [1, 2, 3], "start_s": [0.0, 5.0, 9.0], "end_s": [5.0, 9.0, 10.0]}
BOUNDS |= {"selected": [3, 2, 2], "delivered": [2, 1, 1]}


def texts(figure: Figure) -> str:
    return " ".join(figure.get_supxlabel().split())


@pytest.mark.parametrize(
    ("coordinators", "over"),
    [
        ([set(), set()], "rounds"),
        ([set(), {"carries_over"}], "seconds"),
        ([set(), {"slotted"}], "seconds"),
        ([{"carries_over"}, {"carries_over"}], "seconds"),
        ([{"carries_over", "fixed_length"}], "seconds"),
        # Its rounds last 1 to 5 s.
        ([{"resends"}], "seconds"),
        ([{"slotted"}], "rounds"),
    ],
)
def test_seconds_where_rounds_are_not_the_same_for_all(tmp_path: Path, coordinators: list[set[str]], over: str) -> None:
    given = [FACTS | dict.fromkeys(facts, True) for facts in coordinators]
    groups = {f"{i}": [run_of(tmp_path / f"{i}", coordinator=facts)] for i, facts in enumerate(given)}
    assert abscissa(groups).over == over
    for figure in (leak_figure(groups), latency_figure(groups), regret_figure(groups)):
        assert figure is not None
        assert figure.axes[0].get_xlabel() == ("round" if over == "rounds" else "simulated time (s)")
    other = "rounds" if over == "seconds" else "seconds"
    assert abscissa(groups, other).over == other


def test_rounds_of_one_length_are_the_same_for_all(tmp_path: Path) -> None:
    equal = ROUNDS | {"start_s": [0.0, 0.1, 0.2, 0.3, 0.4], "end_s": [0.1, 0.2, 0.3, 0.4, 0.5]}
    slower = equal | {"end_s": [0.2, 0.4, 0.6, 0.8, 1.0], "start_s": [0.0, 0.2, 0.4, 0.6, 0.8]}
    facts = FACTS | {"resends": True}
    one, two = (run_of(tmp_path / name, rounds, coordinator=facts) for name, rounds in (("a", equal), ("b", slower)))
    assert abscissa({"a": [one]}).over == "rounds"
    assert abscissa({"a": [one], "b": [two]}).over == "seconds"


def test_a_leak_over_seconds_has_the_same_values(tmp_path: Path) -> None:
    groups = {"a": [run_of(tmp_path / "a")]}
    by_round, by_time = (leak_figure(groups, over=over) for over in ("rounds", "seconds"))
    assert by_round is not None and by_time is not None  # noqa: PT018
    assert np.asarray(by_time.axes[0].lines[0].get_xdata())[[0, -1]].tolist() == [1.0, 15.0]
    assert np.asarray(by_round.axes[0].lines[0].get_ydata()).tolist() == ROUNDS["max_leak"]
    line = by_time.axes[0].lines[0]
    # At 10 s, the end of round 4.
    assert np.interp(10.0, line.get_xdata(), line.get_ydata()) == pytest.approx(1.2, abs=0.002)


def test_deliveries_count_up_over_seconds(tmp_path: Path) -> None:
    figure = delivered_figure({"a": [run_of(tmp_path / "a")]})
    assert figure is not None
    line = figure.axes[0].lines[0]
    # 2 a round, rounds closing at 1, 3, 6, 10, 15 s.
    assert np.interp([0.0, 3.0, 15.0], line.get_xdata(), line.get_ydata()) == pytest.approx([0.0, 4.0, 10.0], abs=0.01)
    assert delivered_figure({"a": [run_of(tmp_path / "b", ROUNDS | {"delivered": [0] * 5})]}) is None


def test_outcomes_are_mean_shares_of_seeds(tmp_path: Path) -> None:
    counts = {"selected": 4, "delivered": 2, "lost": 1, "late": 0, "aborted": 0, "in_flight": 1}
    more = counts | {"selected": 10, "delivered": 10, "lost": 0, "in_flight": 0}
    runs = [run_of(tmp_path / f"{i}", seed=i, totals=totals) for i, totals in enumerate((counts, more))]
    figure = outcomes_figure({"a": runs})
    assert figure is not None
    widths = [patch.get_width() for patch in figure.axes[0].patches]
    # Each seed counts once: (2/4 + 1)/2, (1/4)/2, and in flight (1/4)/2.
    assert widths == pytest.approx([0.75, 0.125, 0.0, 0.0, 0.125])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["delivered", "lost", "in flight"]
    assert "delivered 75.0%" in figure.description
    assert outcomes_figure({"a": runs[1:]}) is None


def test_phases_add_up_to_the_rounds_of_clients(tmp_path: Path) -> None:
    run = run_of(tmp_path / "a", BOUNDS, clients=PARTS)
    figure = phases_figure({"a": [run]})
    assert figure is not None
    # Rounds of 5, 4 and 1 s, with 3, 2 and 2 clients.
    assert sum(patch.get_width() for patch in figure.axes[0].patches) == pytest.approx((15.0 + 8.0 + 2.0) / 7)


def test_a_round_client_by_client(tmp_path: Path) -> None:
    run = run_of(tmp_path / "a", BOUNDS, clients=PARTS)
    figure = gantt_figure({"a": [run]}, round=2)
    assert figure is not None
    (axes,) = figure.axes
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["1", "2"]
    bars = {(round(bar.get_y() + 0.36), bar.get_x(), bar.get_width()) for bar in axes.patches if bar.get_width()}
    # Client 1: 0.5 s down, 1.5 s of training, 1 s up; client 2: 1, 14, 10 s. The round began at 5 s.
    assert bars == {(0, 0.0, 0.5), (0, 0.5, 1.5), (0, 2.0, 1.0), (1, 0.0, 1.0), (1, 1.0, 14.0), (1, 15.0, 10.0)}
    # The mark at the last end, 25 s, is whole.
    assert axes.get_xlim() == pytest.approx((0.0, 1.02 * 25.0))
    close = next(line for line in axes.lines if line.get_linestyle() == "-" and len(line.get_xdata()) == 2)
    assert close.get_xdata()[0] == 4.0
    told = [text.get_text() for text in figure.legends[0].get_texts()]
    assert told == ["download", "training", "upload", "late", "close of the round"]
    # Of rounds of 5, 25 and 1 s (to their last ends), the one of 5 s.
    middle = gantt_figure({"a": [run]})
    assert middle is not None
    assert middle.heading == "Round 1, client by client"
    with pytest.raises(ValueError, match="round = 9: the run has records of no attempt in it"):
        gantt_figure({"a": [run]}, round=9)
    assert gantt_figure({"a": [run_of(tmp_path / "none")]}) is None


def test_ages_count_from_the_round_of_a_delivery(tmp_path: Path) -> None:
    # Delivered: client 0 at 2 s and 10 s, client 2 at 5 s, client 1 at 8 s; rounds close at 5, 9, 10 s.
    run = run_of(tmp_path / "a", BOUNDS, clients=PARTS)
    assert ages(run).tolist() == [[1, 1, 1], [2, 1, 2], [1, 2, 3]]
    recorded = PARTS | {"age_after_rounds": [1.0, 2.0, 1.0, 1.0, 2.0, 1.0, 2.0]}
    other = run_of(tmp_path / "b", BOUNDS, clients=recorded, seed=2)
    assert ages(other).tolist()[0] == [1, 1, 1]
    figure = ages_figure({"a": [run], "b": [other]})
    assert figure is not None
    image = np.asarray(figure.axes[0].images[0].get_array())
    assert image.tolist() == ages(run).T.tolist()
    assert "Mean ages in rounds: a 1.56" in figure.description
    assert figure.note == "rounds since a client was last heard; seeds 1, 2"


def test_over_seconds_a_round_of_ages_is_as_wide_as_it_lasted(tmp_path: Path) -> None:
    run = run_of(tmp_path / "a", BOUNDS, clients=PARTS)
    figure = ages_figure({"a": [run]}, over="seconds")
    assert figure is not None
    (image,) = figure.axes[0].images
    # The second round, from 5 to 9 s: client 1 delivered in it.
    drawn = np.asarray(image.get_array())
    assert drawn[1].tolist() == [1.0, 1.0, 2.0]
    assert image._Ax.tolist() == [0.0, 5.0, 9.0, 10.0]  # type: ignore[attr-defined]
    image_of(figure, "png")
    at_once = {**BOUNDS, "start_s": [0.0] * 3, "end_s": [0.0] * 3}
    assert ages_figure({"a": [run_of(tmp_path / "b", at_once, clients=PARTS)]}, over="seconds") is None
    over_rounds = ages_figure({"a": [run]}, over="rounds")
    assert over_rounds is not None
    assert over_rounds.axes[0].images[0].get_extent()[:2] == (0.5, 3.5)


def test_selections_by_group_and_client(tmp_path: Path) -> None:
    groups = {"near": {"clients": 1, "selected": 4, "delivered": 1}, "far": {"clients": 2, "selected": 3, "delivered": 1}}
    run = run_of(tmp_path / "a", BOUNDS, clients=PARTS, groups=groups)
    figure = selections_figure({"a": [run]})
    assert figure is not None
    by_group, by_client = figure.axes
    assert [bar.get_height() for bar in by_group.patches] == [4.0, 1.5]
    assert np.asarray(by_client.lines[0].get_ydata()).tolist() == [2.0, 3.0, 2.0]
    equal = {name: values[:3] for name, values in PARTS.items()}
    assert selections_figure({"a": [run_of(tmp_path / "b", BOUNDS, clients=equal)]}) is None


def test_loss_is_logarithmic_where_it_spreads(tmp_path: Path) -> None:
    near = run_of(tmp_path / "a", ROUNDS | {"loss": [2.0, None, 1.5, 1.2, 1.0]})
    wide = run_of(tmp_path / "b", ROUNDS | {"loss": [2.0, 20.0, 100.0, 1.2, 1.0], "training_loss": [1.0, 1.0, 1.0, 1.0, 1.0]})
    narrow, both = loss_figure({"a": [near]}), loss_figure({"b": [wide]})
    assert narrow is not None and both is not None  # noqa: PT018
    assert [axes.get_yscale() for axes in narrow.axes] == ["linear"]
    assert np.asarray(narrow.axes[0].lines[0].get_ydata()).tolist() == [2.0, 1.75, 1.5, 1.2, 1.0]
    assert [axes.get_yscale() for axes in both.axes] == ["log", "linear"]
    assert loss_figure({"a": [run_of(tmp_path / "c")]}) is None
    # Not evaluated in round 2; infinite in round 3, no number in round 5.
    away = run_of(tmp_path / "d", ROUNDS | {"loss": [2.0, None, np.inf, 9.0, None]}, policy="away")
    told = loss_figure({"a": [near], "away": [away]})
    assert told is not None
    assert told.note.endswith("left out, beyond any number: losses of away")
    assert "left out" not in narrow.note


def test_lines_on_one_another_are_named(tmp_path: Path) -> None:
    runs = {name: [run_of(tmp_path / name)] for name in ("a", "b")}
    runs["c"] = [run_of(tmp_path / "c", ROUNDS | {"max_leak": [2.5, 2.9, 3.9, 4.2, 5.2]})]
    figure = leak_figure(runs)
    assert figure is not None
    assert 'lines that lie on one another for the most part: "a" on "b"' in texts(figure)
    assert '"c"' not in figure.note
    apart = leak_figure({name: runs[name] for name in ("a", "c")})
    assert apart is not None
    assert "one another" not in apart.note


def many(folder: Path, count: int) -> Groups:
    return {f"v{i}": [run_of(folder / f"v{i}", policy=f"v{i}")] for i in range(count)}


def test_who_has_no_mean_is_named_and_its_distribution_is_in_the_legend(tmp_path: Path) -> None:
    once = [{"round": [1], "start_s": [0.0], "end_s": [end_s], "delivered": [1]} for end_s in (2.0, 4.0)]
    groups = {
        "a": [run_of(tmp_path / f"a{seed}", BOUNDS, seed=seed) for seed in (1, 2)],
        "once": [run_of(tmp_path / f"o{seed}", rounds, seed=seed) for seed, rounds in enumerate(once, 1)],
    }
    figure = latency_figure(groups, over="seconds")
    assert figure is not None
    assert "without a mean, since the values of its runs lie apart: once" in figure.note
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "once"]
    assert "lie apart" not in latency_figure(groups, over="rounds").note  # type: ignore[union-attr]


def test_of_many_variants_some_are_drawn_and_that_is_said(tmp_path: Path) -> None:
    runs = [run for several in many(tmp_path, 15).values() for run in several]
    figure = draw(runs, "leak")
    drawn = [text.get_text() for text in figure.legends[0].get_texts()]
    assert (len(drawn), drawn[0], drawn[-1]) == (MOST_VARIANTS, "v0", "v14")
    assert "12 of 15 variants" in texts(figure)


@pytest.mark.slow
@pytest.mark.draws
def test_what_variants_are_called_is_drawn_whatever_it_is(tmp_path: Path) -> None:
    names = ["$\\bad{$", "cost $5 and \\frac $6", r"$\beta = 2$", "b"]
    names.append("an Update of a Client with a Name of more than sixty Letters, äöü")
    names.append(names[-1].upper())
    groups = {name: [run_of(tmp_path / f"{n}", BOUNDS, clients=PARTS)] for n, name in enumerate(names)}
    for figure in (latency_figure(groups), ages_figure(groups), phases_figure(groups), gantt_figure(groups)):
        assert figure is not None
        image_of(figure, "png")
    legend = [text.get_text() for text in latency_figure(groups).legends[0].get_texts()]  # type: ignore[union-attr]
    assert legend[0] == "\\$\\bad{\\$"
    assert legend[2] == names[2]
    # No name beside a bar, and none above a panel, runs into another.
    bars, panels = phases_figure(groups), ages_figure(groups)
    assert bars is not None and panels is not None  # noqa: PT018
    for figure, texts in (
        (bars, bars.axes[0].get_yticklabels()),
        (panels, [axes._left_title for axes in panels.axes if axes.get_title(loc="left")]),  # type: ignore[attr-defined]
    ):
        figure.draw_without_rendering()
        boxes = [text.get_window_extent() for text in texts]
        assert len(boxes) == len(names)
        assert not any(one.overlaps(other) for n, one in enumerate(boxes) for other in boxes[:n])
        assert all(figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 for box in boxes)


@pytest.mark.draws
def test_letters_that_no_font_has_are_warned_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    warn_of_missing_letters.cache_clear()
    names = ["\u65e5\u672c", "$\\bad{$ \u672c", "äö"]
    groups = [run_of(tmp_path / name, BOUNDS, clients=PARTS, policy=name) for name in names]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for format in ("png", "svg"):
            save_all(groups, tmp_path / "drawn", FigureSettings(), [format])
        draw(groups, "latency")
    (one,) = told
    assert str(one.message) == (
        "figures: letters that DejaVu Sans cannot show are drawn as boxes, of '\u65e5\u672c': \u65e5\u672c; "
        "'$\\\\bad{$ \u672c': \u672c; name a font that has them (--font)"
    )
    assert not caplog.records


@pytest.mark.slow
def test_every_axis_has_a_label_and_every_figure_words(tmp_path: Path) -> None:
    totals = {"selected": 7, "delivered": 4, "lost": 1, "late": 1, "aborted": 0, "in_flight": 1}
    told = BOUNDS | {"max_leak": [0.5, 0.9, 1.2], "loss": [1.0, 0.9, 0.8], "accuracy": [0.1, 0.5, 0.9]}
    told |= {"reward": [1.0, 2.0, 3.0], "genie_reward": [2.0, 2.0, 3.5], "bytes_up": [10, 10, 10], "compute_j": [1.0, 1.0, 1.0]}
    told |= {"sum_age": [3.0, 4.0, 5.0], "age_variance": [0.5, 1.0, 1.5], "oracle_sum_age": [3.0, 3.0, 3.0]}
    told |= {f"{which}peer_accuracy": [0.1, 0.2, 0.3] for which in ("", "worst_", "best_")}
    told |= {"consensus_distance": [3.0, 2.0, 1.0]}
    told |= {name: [0.0] * 3 for name in ("send_j", "receive_j", "idle_j")}
    leaks = PARTS | {"leak": [0.5] * 7}
    run = run_of(tmp_path / "a", told, clients=leaks, totals=totals, privacy={"guarantee": "per coordinate"})
    seen = set()
    for name in CAPTIONS:
        try:
            figure = draw(run, name, target_accuracy=0.5)
        except ValueError:
            continue
        seen.add(name)
        assert figure.heading
        assert len(figure.description) > 20, name
        bars = {"outcomes", "phases"}  # whose vertical axis names the variants
        for axes in figure.axes:
            assert axes.get_xlabel() or axes.get_label() == "<colorbar>", name
            assert axes.get_ylabel() or name in bars or axes.get_shared_y_axes().get_siblings(axes) != [axes], name
    elsewhere = {"deliveries", "detections", "states", "partition", "breakpoints", "answered", "course", "topology"}
    elsewhere |= {"network", "link_loads", "tiers"}
    assert seen == set(CAPTIONS) - elsewhere


def test_the_page_of_figures_names_each() -> None:
    page = (Path(__file__).parents[2] / "docs" / "figures.md").read_text(encoding="utf-8")
    assert [name for name in CAPTIONS if f"`{name}`" not in page] == []


@pytest.mark.draws
def test_panels_keep_their_height_below_many_rows_of_a_legend(tmp_path: Path) -> None:
    long = {f"a variant with a name of many words, number {i}": runs for i, runs in enumerate(many(tmp_path, 12).values())}
    few = {label: long[label] for label in list(long)[:2]}
    heights = []
    for groups in (few, long):
        figure = leak_figure(groups)
        assert figure is not None
        figure.draw_without_rendering()
        heights.append(figure.axes[0].get_window_extent().height)
        assert figure.legends[0].get_window_extent().y0 >= figure.axes[0].get_window_extent().y1
    assert heights[1] == pytest.approx(heights[0], rel=0.15)
    fixed = leak_figure(long, look=Look(height_in=4.0))
    assert fixed is not None
    assert fixed.get_figheight() == 4.0
    assert '"a variant with a name of many words, number 4" on 7 more' in fixed.note


def test_no_bar_of_a_group_reaches_below_never(tmp_path: Path) -> None:
    counted = [{"near": {"clients": 1, "selected": n, "delivered": 1}, "far": {"clients": 2, "selected": 3}} for n in (1, 8)]
    runs = [run_of(tmp_path / f"{n}", BOUNDS, clients=PARTS, seed=n, groups=one) for n, one in enumerate(counted)]
    figure = selections_figure({"a": runs})
    assert figure is not None
    (near, _) = next(bars for bars in figure.axes[0].containers if hasattr(bars, "errorbar")).errorbar.lines[2][0].get_segments()
    assert near[0][1] == 0.0
    assert near[1][1] > 4.5


@pytest.mark.draws
def test_what_groups_are_called_is_drawn_whatever_it_is(tmp_path: Path) -> None:
    counted = {"$\\bad{$": {"clients": 1, "selected": 2, "delivered": 1}, "$5": {"clients": 2, "selected": 3, "delivered": 1}}
    figure = selections_figure({"a": [run_of(tmp_path / "a", BOUNDS, clients=PARTS, groups=counted)]})
    assert figure is not None
    image_of(figure, "png")


def test_rounds_of_servers_with_different_rules_are_said_to_differ(tmp_path: Path) -> None:
    rules = (FACTS, FACTS | {"carries_over": True})
    one, two = (run_of(tmp_path / str(i), BOUNDS, clients=PARTS, coordinator=facts) for i, facts in enumerate(rules))
    for name in ("latency", "phases", "ages"):
        assert "a round of one is not a round of another" in draw([one, two], name).note
        assert "a round of one" not in draw([one], name).note
    assert "a round of one" not in draw([one, two], "delivered").note


def test_no_interval_reaches_beyond_what_can_be(tmp_path: Path) -> None:
    # Three runs of 15 s: one gets to the target after 1 s, one after 6 s, one never. That is 7.3 s on average, with an interval
    # that would reach below 0 and beyond 15 s.
    accuracies = ([0.9] * 5, [0.1, 0.1, 0.9, 0.9, 0.9], [0.1] * 5)
    runs = [run_of(tmp_path / f"{i}", ROUNDS | {"accuracy": list(one)}, seed=i) for i, one in enumerate(accuracies)]
    figure = accuracy_figure({"a": runs}, target_accuracy=0.8)
    assert figure is not None
    (bar,) = figure.axes[0].containers
    ((left, _), (right, _)) = bar.lines[2][0].get_segments()[0]
    assert (left, right) == (0.0, 15.0)
