"""Intervals of differences side by side, and verdicts on margins, of a small sweep by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from analysis.api import open_sweep
from analysis.metrics.comparison import compare
from analysis.metrics.differences import margins_of
from analysis.report.differences import MOST_ROWS, interval_table
from analysis.report.questions import Questions
from analysis.report.write import write_report
from analysis.results.sweep import Sweep
from analysis.statistics.inference import bootstrap_interval, simultaneous_interval
from tests.helpers.result_folders import write_sweep

BASE = [1.0, 1.2, 0.9, 1.1, 1.3, 1.0]
NEAR = [0.01, -0.02, 0.0, 0.02, -0.01, 0.01]
FAR = [0.5, 0.6, 0.4, 0.5, 0.6, 0.55]


def rounds(rate: float) -> dict[str, list[Any]]:
    return {"round": [1], "start_s": [0.0], "end_s": [1e6], "delivered": [round(1e6 * rate)]}


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    rates = {"base": BASE, "near": [b + d for b, d in zip(BASE, NEAR, strict=True)]}
    rates["far"] = [b + d for b, d in zip(BASE, FAR, strict=True)]
    runs = {name: {seed: rounds(rate) for seed, rate in enumerate(values, 1)} for name, values in rates.items()}
    return open_sweep(write_sweep(tmp_path / "s", runs, baseline="base"))


def test_the_table_by_hand(sweep: Sweep) -> None:
    comparison = compare(sweep, metrics=["updates_per_s"])
    table = interval_table(comparison, {"updates_per_s": 0.05})
    assert table is not None
    header, (near, far) = table.cells
    assert header[:2] == ["metric", "variant"]
    assert header[-2:] == ["margin", "verdict"]
    assert (near[1], near[-2:], far[-1]) == ("near", ["0.050", "equivalent"], "different")
    # Two variants are compared: each interval is at 97.5 %.
    together, bootstrap = simultaneous_interval(FAR, 2), bootstrap_interval(FAR)
    assert far[5] == f"+{together.low:.3f} to +{together.high:.3f}"
    assert far[4] == f"+{bootstrap.low:.3f} to +{bootstrap.high:.3f}"
    plain = interval_table(comparison)
    assert plain is not None
    assert plain.cells[0][-1] == "95 % together"


def test_what_is_said_in_words_is_decided_together(sweep: Sweep, tmp_path: Path) -> None:
    asked = Questions(metrics=["updates_per_s"], equivalent=["updates_per_s=0.05"])
    text = write_report(sweep.path, tmp_path / "r.md", questions=asked).read_text()
    assert "- updates a second (1/s): more: far (+0.525 ± 0.080); no difference shown: near." in text
    assert "Intervals of the differences to base" in text
    assert "--equivalent updates_per_s=0.05" in text


@pytest.mark.slow
def test_of_many_variants_the_first_metrics_are_left_and_that_is_said(tmp_path: Path) -> None:
    runs = {f"v{n:02}": {seed: rounds(1.0 + 0.1 * n + 0.01 * seed) for seed in (1, 2)} for n in range(81)}
    comparison = compare(open_sweep(write_sweep(tmp_path / "many", runs, baseline="v00")))
    shown = [name for name in comparison.shown_metrics() if name != "simulated_s"]
    kept = MOST_ROWS // 80
    assert len(shown) > kept
    table = interval_table(comparison)
    assert table is not None
    assert len(table.cells[1]) == kept * 80
    assert f"Of {len(shown)} metrics {kept} are here" in table.note
    last = interval_table(comparison, {shown[-1]: 0.1})
    assert last is not None
    assert len(last.cells[1]) == (kept + 1) * 80
    assert "all 80 variants hold together" in table.note


def test_with_one_variant_to_compare_no_interval_holds_for_several(tmp_path: Path) -> None:
    runs = {name: {seed: rounds(rate + 0.01 * seed) for seed in (1, 2, 3)} for name, rate in (("a", 1.0), ("b", 2.0))}
    table = interval_table(compare(open_sweep(write_sweep(tmp_path / "two", runs, baseline="a"))))
    assert table is not None
    assert all(row[3] == row[5] for row in table.cells[1])
    assert "together: as Student's, since one variant is compared" in table.note


def test_labels_with_commas_are_told_apart_in_sentences(tmp_path: Path) -> None:
    signs = {"a": 0, "b": 1, "c": -1}
    runs = {name: {seed: rounds(1.0 + 0.1 * seed * sign) for seed in (1, 2, 3)} for name, sign in signs.items()}
    runs["d"] = {seed: rounds(3.0 + 0.001 * seed) for seed in (1, 2, 3)}
    labels = {"b": "all, with privacy", "d": "fast, far"}
    sweep = open_sweep(write_sweep(tmp_path / "s", runs, baseline="a", **labels))
    text = write_report(sweep.path, tmp_path / "r.md", questions=Questions(metrics=["updates_per_s"])).read_text()
    assert 'more: "fast, far" (+2.00' in text
    assert 'no difference shown: "all, with privacy", c.' in text


def test_margins_are_in_the_unit_that_tables_show() -> None:
    assert margins_of(["final_accuracy=0.5", "updates_per_s=2"]) == {"final_accuracy": 0.005, "updates_per_s": 2.0}
    for wrong in ("final_accuracy", "final_accuracy=", "final_accuracy=-1", "updates_per_s=inf"):
        with pytest.raises(ValueError, match="must be METRIC=VALUE"):
            margins_of([wrong])
    with pytest.raises(ValueError, match="did you mean 'final_accuracy'"):
        margins_of(["finl_accuracy=1"])
