"""The study of overlays on a shared core: ratios that follow by hand, and its table and figure."""

from __future__ import annotations

import pytest

from scenarios.papers.overlays_table import MODELS
from scenarios.papers.shared_core import STUDIED, round_times, sections


def test_where_every_pair_has_its_cable_nothing_changes_and_where_paths_meet_a_star_waits() -> None:
    found = {(one.network, one.overlay): one for one in round_times(["gaia", "geant"], {"inaturalist": MODELS["inaturalist"]})}
    for overlay in STUDIED:
        assert found["gaia", overlay].fluid_ms == pytest.approx(found["gaia", overlay].fixed_ms, rel=1e-9)
    # 24 models of 44.96 ms cross one cable in each direction, one direction after the other or overlapping.
    star = found["geant", "star-direct"]
    assert 24 * 44.961717 + 25.4 < star.fluid_ms < 2 * 24 * 44.961717 + 25.4 + 100.0
    assert star.fluid_ms > 3 * star.fixed_ms
    assert found["geant", "mst"].fluid_ms == pytest.approx(found["geant", "mst"].fixed_ms, rel=1e-9)
    blocks = [block for section in sections(list(found.values())) for block in section.blocks]
    table, picture = blocks
    assert len(table.cells[1]) == 2 * len(STUDIED)  # type: ignore[union-attr]
    assert picture.name == "shared-core"  # type: ignore[union-attr]
