"""Rules are decided by intervals: as in the paper, not so, or open; by hand, and as often wrong as they say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from analysis.api import open_sweep
from analysis.metrics.comparison import Comparison, compare
from analysis.results.sweep import Sweep
from scenarios.papers.rules import Lower, LowerInEach, Near, Ratio, Trend
from tests.helpers.result_folders import write_sweep


def rounds(rate: float) -> dict[str, list[Any]]:
    return {"round": [1], "start_s": [0.0], "end_s": [1e6], "delivered": [round(1e6 * rate)]}


def made(path: Path, values: dict[str, list[float]], key: str = "") -> tuple[Sweep, Comparison]:
    runs = {name: {seed: rounds(rate) for seed, rate in enumerate(rates, 1)} for name, rates in values.items()}
    write_sweep(path, runs, baseline=next(iter(values)))
    for name, rates in values.items():
        for seed in range(1, len(rates) + 1):
            extra = f"[server]\nper_round = {name}\n" if key else ""
            (path / name / f"seed-{seed}" / "scenario.toml").write_text(f'name = "study"\nseed = {seed}\n{extra}', "utf-8")
    sweep = open_sweep(path)
    return sweep, compare(sweep, metrics=["updates_per_s"])


def test_an_order_by_hand(tmp_path: Path) -> None:
    sweep, found = made(tmp_path / "s", {"a": [1.0, 2.0, 3.0], "b": [2.0, 3.1, 4.0], "c": [1.5, 1.0, 4.0]})
    metric = "updates_per_s"
    assert Lower("a", "b", metric).judge(sweep, found, 1).verdict == "as in the paper"
    assert Lower("b", "a", metric).judge(sweep, found, 1).verdict == "not as in the paper"
    assert Lower("a", "c", metric).judge(sweep, found, 1).verdict == "open"
    # Less by 1.03 ± 0.14 is not by more than 1 for sure; and by 0.5 it is.
    assert Lower("a", "b", metric, by=1.0).judge(sweep, found, 1).verdict == "open"
    assert Lower("a", "b", metric, by=0.5).judge(sweep, found, 1).verdict == "as in the paper"
    assert Lower("a", "b", metric).text == "updates a second: a below b"
    assert Lower("a", "b", metric).judge(sweep, found, 1).evidence == "-1.03 ± 0.14"
    # One of many rules is decided by a wider interval: at 1 - 0.05 / 400 it holds zero.
    assert Lower("a", "b", metric).judge(sweep, found, 400).verdict == "open"


def test_an_order_without_intervals_by_hand(tmp_path: Path) -> None:
    sweep, found = made(tmp_path / "one", {"a": [1.0], "b": [2.0]})
    metric = "updates_per_s"
    assert Lower("a", "b", metric).judge(sweep, found, 1).verdict == "open"
    judged = LowerInEach("a", "b", metric, by=0.5).judge(sweep, found, 1)
    assert (judged.verdict, judged.evidence) == ("as in the paper", "-1 (by 1000000 s)")
    assert LowerInEach("b", "a", metric, by=0.5).judge(sweep, found, 1).verdict == "not as in the paper"
    assert LowerInEach("a", "b", metric, by=1.5).judge(sweep, found, 1).verdict == "open"
    assert LowerInEach("a", "b", metric, by=0.5).text == "updates a second: a below b by more than 0.5 1/s, in each seed"
    sweep, found = made(tmp_path / "two", {"a": [1.0, 3.0], "b": [2.0, 3.2]})
    assert LowerInEach("a", "b", metric, by=0.5).judge(sweep, found, 1).verdict == "open"
    assert LowerInEach("a", "b", metric, by=0.1).judge(sweep, found, 1).evidence == "-1, -0.2 (by 1000000 s)"


def test_two_variants_are_compared_where_both_of_them_end(tmp_path: Path) -> None:
    # All three agree in the first round; then a has 0.9 and b 0.5, which a comparison up to the end of c would not see.
    short = {"round": [1], "start_s": [0.0], "end_s": [2.0], "accuracy": [0.3]}
    long = {"round": [1, 2], "start_s": [0.0, 2.0], "end_s": [2.0, 9.0]}
    runs = {"a": {1: long | {"accuracy": [0.3, 0.9]}}, "b": {1: long | {"accuracy": [0.3, 0.5]}}, "c": {1: short}}
    sweep = open_sweep(write_sweep(tmp_path / "s", runs, baseline="c", target=0.8))
    found = compare(sweep, metrics=["final_accuracy"])
    assert LowerInEach("b", "a", "final_accuracy", by=0.1).judge(sweep, found, 1).evidence == "-20 (by 9 s)"
    assert LowerInEach("a", "c", "final_accuracy", by=0.1).judge(sweep, found, 1).evidence == "+0 (by 2 s)"
    # What a target cost is cut at the common end: b never reaches it.
    assert LowerInEach("a", "b", "target_s", by=0.1).judge(sweep, found, 1).evidence == "+0 (by 9 s)"


def test_numbers_ratios_and_trends_by_hand(tmp_path: Path) -> None:
    sweep, found = made(tmp_path / "s", {"2": [1.0, 1.1, 1.2], "4": [2.0, 2.1, 2.4], "8": [4.0, 4.1, 4.0]}, "per_round")
    metric = "updates_per_s"
    # 1.1 ± 0.25.
    assert Near("2", metric, 1.1, 0.3).judge(sweep, found, 1).verdict == "as in the paper"
    assert Near("2", metric, 1.1, 0.2).judge(sweep, found, 1).verdict == "open"
    assert Near("2", metric, 2.1, 0.2).judge(sweep, found, 1).verdict == "not as in the paper"
    assert Ratio("2", "4", metric, 0.4, 0.65).judge(sweep, found, 1).verdict == "as in the paper"
    assert Ratio("2", "4", metric, 0.1, 0.3).judge(sweep, found, 1).verdict == "not as in the paper"
    assert Trend("per_round", metric).judge(sweep, found, 1).verdict == "as in the paper"
    assert Trend("per_round", metric, rises=False).judge(sweep, found, 1).verdict == "not as in the paper"
    # At seed 1 the slope of 1, 2, 4 over 2, 4, 8 is 0.5; the others are 1/2 and 16/35.
    assert Trend("per_round", metric).judge(sweep, found, 1).evidence.startswith("+0.486 ± ")


@pytest.mark.parametrize("rules", [1, 4])
def test_a_rule_is_confirmed_falsely_as_seldom_as_it_says(rules: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    trials, seeds = 400, 6
    sweep, found = made(tmp_path / "s", {"a": [1.0] * seeds, "b": [1.0] * seeds})
    confirmed = 0
    for _ in range(trials):
        found.runs["updates_per_s"] = rng.normal(5.0, 1.0, 2 * seeds)
        confirmed += Lower("a", "b", "updates_per_s").judge(sweep, found, rules).verdict == "as in the paper"
    # Two-sided intervals at 1 - 0.05 / rules: one side is half of it.
    assert confirmed <= stats.binom.ppf(1 - 1e-4, trials, 0.025 / rules)
    assert rules > 1 or confirmed > 0
