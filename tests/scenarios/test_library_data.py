"""The data files that come with the scenarios are what their scripts make."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from scenarios.library.examples import bandwidth_trace, device_classes


@pytest.mark.parametrize("made_by", [bandwidth_trace, device_classes])
def test_a_data_file_is_what_its_script_makes(made_by: ModuleType, tmp_path: Path) -> None:
    made_by.write(tmp_path / "made.csv")
    assert (tmp_path / "made.csv").read_text(encoding="utf-8") == made_by.FILE.read_text(encoding="utf-8")
