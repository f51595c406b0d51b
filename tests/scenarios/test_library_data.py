"""The data files that come with the scenarios are what their scripts make."""

from __future__ import annotations

from pathlib import Path

from scenarios.library.examples import device_classes


def test_the_device_table_is_what_its_script_makes(tmp_path: Path) -> None:
    device_classes.write(tmp_path / "made.csv")
    assert (tmp_path / "made.csv").read_text(encoding="utf-8") == device_classes.FILE.read_text(encoding="utf-8")
