"""Who took part, by group: shares worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.api import open_run
from analysis.participation.section import participation_sections
from analysis.report.write import write_report
from analysis.results.groups import group_runs
from tests.helpers.result_folders import ROUNDS, write_run

GROUPS = {
    "fast": {"clients": 4, "selected": 30, "delivered": 24, "clients_delivered": 4},
    "slow": {"clients": 6, "selected": 30, "delivered": 12, "clients_delivered": 3},
}


def test_shares_by_hand(tmp_path: Path) -> None:
    run = open_run(write_run(tmp_path / "run", ROUNDS, groups=GROUPS))
    (section,) = participation_sections(group_runs(run))
    table = section.blocks[0]
    fast, slow = table.cells[1]
    assert fast == ["pause", "fast", "40.00", "50.00", "66.67", "80.00", "100.0", ""]
    # Deliveries a client: 6 and 2. (6 + 2)^2 / (2 (36 + 4)).
    assert slow == ["pause", "slow", "60.00", "50.00", "33.33", "40.00", "50.00", "0.800"]
    assert "## Who took part" in write_report(run.path, tmp_path / "r.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("groups", [None, {}])
def test_without_groups_there_is_no_section(groups: object, tmp_path: Path) -> None:
    run = open_run(write_run(tmp_path / "run", ROUNDS, groups=groups))
    assert participation_sections(group_runs(run)) == []
