"""What a report says was asked: keys of built-in servers in words, those of own servers as they are, of a sweep all values."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.report.scenario import scenario_facts
from analysis.results.run import Run
from tests.helpers.result_folders import run_of


def server_words(*runs: Run) -> str:
    return dict(scenario_facts(runs).pairs)["server"]


@pytest.mark.parametrize(
    ("server", "words"),
    [
        ('kind = "semi-synchronous"\nper_round = 3\nround_s = 2.5', "semi-synchronous, 3 clients a round, rounds of 2.5 s"),
        ('kind = "synchronous"\nper_round = 1\nfirst = 4', "synchronous, one client a round, a round closes with the first 4"),
        ('kind = "mine:Grace"\nfirst = 4\ngrace_s = 2.0', "mine:Grace, first = 4, grace_s = 2"),
    ],
)
def test_the_server_in_words(tmp_path: Path, server: str, words: str) -> None:
    assert server_words(run_of(tmp_path / "run", server=server)) == words


def test_a_sweep_is_described_by_the_values_of_all_variants(tmp_path: Path) -> None:
    base = 'kind = "synchronous"\nper_round = 3'
    runs = [
        run_of(tmp_path / str(i), server=base + line)
        for i, line in enumerate(("\ndeadline_s = 4.0", "\ndeadline_s = 8.0", ""))
    ]
    assert server_words(*runs[:1]) == "synchronous, 3 clients a round, a deadline of 4 s"
    assert server_words(*runs[:2]) == "synchronous, 3 clients a round, a deadline of 4 s or a deadline of 8 s"
    assert server_words(*runs).endswith("a deadline of 8 s, or none")
