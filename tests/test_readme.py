"""Every marked block of the README works, in the order in which a reader meets them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
BLOCK = re.compile(r"(?:<!-- test: (?P<mark>[^\n]+?) -->\n)?```(?P<language>\w+)\n(?P<body>.*?)```\n", re.DOTALL)
UNTESTED = ("make demo", "source .venv", "seconds to")
"""How the blocks begin that are no test: they set up an environment, or show what a command prints."""


def _blocks() -> list[tuple[str, str]]:
    found = []
    for block in BLOCK.finditer(README.read_text(encoding="utf-8")):
        if block["mark"] is None:
            assert block["body"].lstrip().startswith(UNTESTED), f"this block is neither marked nor known: {block['body'][:60]!r}"
        else:
            found.append((block["mark"], block["body"]))
    return found


def test_every_block_works(tmp_path):
    pytest.importorskip("torch", reason="the README's study trains")
    bin_folder = Path(sys.executable).parent
    environment = os.environ | {"PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "80"}
    marks = []
    for mark, body in _blocks():
        kind, _, name = mark.partition(" ")
        marks.append(kind)
        if kind in ("file", "append"):
            with (tmp_path / name).open("a" if kind == "append" else "x", encoding="utf-8") as file:
                file.write(body)
            continue
        command = [sys.executable, "-c", body] if kind == "python" else ["bash", "-ec", body]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, f"{body}\n{done.stdout}\n{done.stderr}"
    assert sorted(set(marks)) == ["append", "file", "python", "run"]
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {"first", "lossy", "policies", "trained", "own", "jammed"}
    assert (tmp_path / "runs/policies/report/report.md").exists()
