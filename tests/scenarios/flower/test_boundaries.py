"""Boundaries of the extra `flower`: without flwr a message names it, and no other part of netsim imports flwr."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from scenarios.runs.reading import parse
from scenarios.schema.servers.flower import MOST_ROUNDS, known_rounds
from tests.helpers.small_scenario import Shell, small

ROOT = Path(__file__).parents[3]

@pytest.mark.parametrize("command", ["check", "run"])
def test_without_flwr_the_message_names_the_extra(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "flwr", None)
    code, out, told = Shell(tmp_path, monkeypatch, capsys)(command, "flower_app")
    assert (code, out, told.strip().count("\n")) == (2, "", 0)
    assert "flower: needs flwr, which is not installed" in told
    assert "install the extra: pip install 'netsim[flower]'" in told
    assert not (tmp_path / "runs").exists()


def test_only_the_files_of_apps_import_flwr() -> None:
    files = [file for folder in ("netsim", "models", "scenarios", "analysis") for file in (ROOT / folder).rglob("*.py")]
    users = [file for file in files if re.search(r"^\s*(?:import|from) flwr\b", file.read_text(encoding="utf-8"), re.MULTILINE)]
    places = {file.relative_to(ROOT).parts[:2] for file in users}
    assert places == {("scenarios", "flower"), ("scenarios", "library")}


def test_the_rounds_of_an_app_are_not_known_unless_the_scenario_says_so() -> None:
    assert known_rounds(small()) == 6
    app = {"name": "app", "flower": {"app": "flower-digits"}, "clients": {"count": 3}}
    open_ended, limited = parse(app), parse(app | {"rounds": 7})
    assert (open_ended.rounds, known_rounds(open_ended), known_rounds(limited)) == (MOST_ROUNDS, None, 7)
