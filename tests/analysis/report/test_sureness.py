"""Intervals of differences side by side, and verdicts on margins, of a small sweep by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from analysis.inference import bootstrap_interval, simultaneous_interval
from analysis.report.comparison import compare
from analysis.report.questions import Questions
from analysis.report.report import write_report
from analysis.report.sureness import margins_of, sureness_table
from analysis.sweeps import Sweep, open_sweep
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
    table = sureness_table(comparison, {"updates_per_s": 0.05})
    assert table is not None
    header, (near, far) = table.cells
    assert header[:2] == ["metric", "variant"]
    assert header[-2:] == ["margin", "verdict"]
    assert (near[1], near[-2:], far[-1]) == ("near", ["0.050", "equivalent"], "different")
    # Two variants are compared: each interval is at 97.5 %.
    together, bootstrap = simultaneous_interval(FAR, 2), bootstrap_interval(FAR)
    assert far[5] == f"+{together.low:.3f} to +{together.high:.3f}"
    assert far[4] == f"+{bootstrap.low:.3f} to +{bootstrap.high:.3f}"
    plain = sureness_table(comparison)
    assert plain is not None
    assert plain.cells[0][-1] == "95 % together"


def test_what_is_said_in_words_is_decided_together(sweep: Sweep, tmp_path: Path) -> None:
    asked = Questions(metrics=["updates_per_s"], equivalent=["updates_per_s=0.05"])
    text = write_report(sweep.path, tmp_path / "r.md", questions=asked).read_text()
    assert "- updates a second (1/s): more: far (+0.525 ± 0.080); no difference shown: near." in text
    assert "Intervals of the differences to base" in text
    assert "--equivalent updates_per_s=0.05" in text


def test_margins_are_in_the_unit_that_tables_show() -> None:
    assert margins_of(["final_accuracy=0.5", "updates_per_s=2"]) == {"final_accuracy": 0.005, "updates_per_s": 2.0}
    for wrong in ("final_accuracy", "final_accuracy=", "final_accuracy=-1", "updates_per_s=inf"):
        with pytest.raises(ValueError, match="must be METRIC=VALUE"):
            margins_of([wrong])
    with pytest.raises(ValueError, match="did you mean 'final_accuracy'"):
        margins_of(["finl_accuracy=1"])
