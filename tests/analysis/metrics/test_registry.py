"""Every metric against numbers worked out by hand; names that nobody knows; what tables show of which study."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.api import open_run, open_sweep
from analysis.documents.comparison_tables import comparison_cells, extent_words
from analysis.metrics.comparison import compare
from analysis.metrics.definitions import gini_coefficient, jain_index
from analysis.metrics.registry import METRICS, metric, metric_names, metric_values, names_of
from analysis.results.run import Run
from analysis.results.sources import ROUND_NUMBERS
from tests.helpers.result_folders import ROUNDS, write_run, write_sweep

# Rounds close at 1, 3, 6, 10, 15 s. 10 updates are delivered, 4 lost, 3 late and 3 aborted: 20 ended.
TIME: dict[str, list[Any]] = {name: ROUNDS[name] for name in ("round", "start_s", "end_s")} | {
    "delivered": [2, 2, 2, 2, 2],
    "lost": [4, 0, 0, 0, 0],
    "late": [0, 1, 1, 1, 0],
    "aborted": [0, 0, 0, 0, 3],
    "bytes_down": [1000] * 5,
    "bytes_up": [0, 0, 0, 0, 5000],
}
# Client 0 has three updates delivered, client 1 one, client 2 none.
ATTEMPTS: dict[str, list[Any]] = {
    "round": [1, 1, 2, 2, 3, 3],
    "client": [0, 1, 0, 2, 0, 1],
    "outcome": ["delivered", "delivered", "delivered", "late", "delivered", "lost"],
}


def values(run: Run, *names: str) -> list[float]:
    return list(metric_values(run, names).values())


def test_a_time_study_by_hand(tmp_path: Path) -> None:
    run = open_run(write_run(tmp_path / "run", TIME, ATTEMPTS))
    assert values(run, "updates_per_s", "simulated_s", "mean_round_s") == [10 / 15, 15.0, 3.0]
    assert values(run, "delivered_share", "lost_share", "late_share", "aborted_share") == [0.5, 0.2, 0.15, 0.15]
    assert values(run, "delivered_bytes") == [1000.0]
    # 3, 1, 0: (3 + 1)^2 / (n (9 + 1)); the scenario does not say how many clients there are, so that the last seen counts last.
    assert values(run, "participation_jain") == [16 / 30]
    # All ordered pairs differ by 2, 3, 1, twice each: 12 / (2 n^2 mean) = 12 / (2 * 9 * 4 / 3).
    assert values(run, "participation_gini") == [pytest.approx(0.5)]


def test_clients_that_never_took_part_count(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", TIME, ATTEMPTS)
    scenario = path / "scenario.toml"
    scenario.write_text(scenario.read_text() + "\n[clients]\ncount = 8\n")
    assert values(open_run(path), "participation_jain") == [16 / 80]


def test_fairness_at_its_ends_and_against_its_definition() -> None:
    assert (jain_index([2.0] * 7), gini_coefficient([2.0] * 7)) == (1.0, 0.0)
    assert (jain_index([0, 0, 5.0, 0]), gini_coefficient([0, 0, 5.0, 0])) == (0.25, 0.75)
    for nothing in ([], [0.0, 0.0]):
        assert math.isnan(jain_index(nothing))
        assert math.isnan(gini_coefficient(nothing))
    amounts = np.random.default_rng(3).gamma(0.7, 2.0, 40)
    pairs = np.abs(amounts[:, None] - amounts[None, :]).sum() / (2 * 40**2 * amounts.mean())
    assert gini_coefficient(amounts) == pytest.approx(pairs, rel=1e-12)


def test_columns_are_metrics(tmp_path: Path) -> None:
    columns = TIME | {"agreed_s": [1.0, None, 4.0, None, 4.0], "consensus_s": [1.0, 2.0, 1.0, 2.0, 1.5]}
    run = open_run(write_run(tmp_path / "run", columns))
    # The mean of the rounds that measured it; of what counts up the last value.
    assert values(run, "agreed_s", "consensus_s", "bytes_up", "end_s", "round") == [3.0, 1.5, 1000.0, 15.0, 5.0]
    assert values(run, "agreed_share", "consensus_share") == [0.6, 0.5]
    assert math.isnan(metric_values(run, ["opinion"])["opinion"])
    assert (metric("consensus_s").unit, metric("bytes_up").unit, metric("idle_j").unit) == ("s", "bytes", "J")
    assert set(metric_names()) == {*METRICS, *ROUND_NUMBERS}


def test_an_unknown_metric_is_told_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="metric 'agred_s': there is none of this name; did you mean 'agreed_s'"):
        metric("agred_s")
    sweep = open_sweep(write_sweep(tmp_path / "s", {"a": {1: TIME}}, baseline="a"))
    with pytest.raises(ValueError, match="did you mean 'updates_per_s'"):
        compare(sweep, metrics=["update_per_s"])


def test_every_metric_says_what_it_is() -> None:
    for name, one in METRICS.items():
        assert name == one.name
        assert one.title == one.title.strip() != ""
        assert one.meaning.endswith(".")
        assert one.heading.startswith(one.title)
        # A share is shown in per cent, and nothing else is.
        assert (one.unit == "%") == (one.scale == 100.0)
    assert len({one.heading for one in METRICS.values()}) == len(METRICS)


def test_a_study_without_a_learner_is_told_by_its_updates(tmp_path: Path) -> None:
    sweep = open_sweep(write_sweep(tmp_path / "s", {"a": {1: TIME}, "b": {1: TIME}}, baseline="a"))
    shown = compare(sweep).shown_metrics()
    assert shown[:4] == ("updates_per_s", "mean_round_s", "simulated_s", "delivered_share")
    assert "delivered_bytes" in shown
    learning = open_sweep(write_sweep(tmp_path / "l", {"a": {1: ROUNDS}}, baseline="a"))
    assert set(compare(learning).shown_metrics()).isdisjoint({"updates_per_s", "delivered_share"})
    header, rows = comparison_cells(compare(sweep, metrics=["bytes_up", "lost_share"]))
    assert header == ["variant", "bytes_up, mean of rounds (bytes)", "lost (%)"]
    assert rows[0] == ["a", "1,000", "20.00"]


def test_rounds_of_different_servers_are_not_compared_by_their_latency(tmp_path: Path) -> None:
    path = write_sweep(tmp_path / "s", {"a": {1: ROUNDS}, "b": {1: ROUNDS}}, baseline="a")
    assert "mean_round_s" in compare(open_sweep(path)).shown_metrics()
    assert compare(open_sweep(path)).rounds_alike
    summary = path / "b" / "seed-1" / "summary.json"
    content = json.loads(summary.read_text())
    content["coordinator"]["carries_over"] = True
    summary.write_text(json.dumps(content))
    found = compare(open_sweep(path))
    assert not found.rounds_alike
    assert "a round of one is not a round of another" in extent_words(found)[0]
    assert "mean_round_s" not in found.shown_metrics()
    assert "updates_per_s" in found.shown_metrics()
    assert compare(open_sweep(path), metrics=["mean_round_s"]).shown_metrics() == ("mean_round_s",)
    assert names_of(["participation"]) == ("participation_jain", "participation_gini", "iid_share")


def test_the_page_on_metrics_holds_their_definitions() -> None:
    page = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text(encoding="utf-8")
    for one in METRICS.values():
        assert f"| `{one.name}` | {one.heading} | {one.better} | {one.meaning} |\n" in page
