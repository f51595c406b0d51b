"""Pages whose marked code blocks can be played, in the order in which a reader meets them.

A comment before a block marks it: `<!-- test: run -->` runs it in a shell, `python` in Python, `file NAME` saves it, and
`append NAME` adds it to a file.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from scenarios.cli.main import main

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"(?:<!-- test: (?P<mark>[^\n]+?) -->\n)?```(?P<language>\w+)\n(?P<body>.*?)```\n", re.DOTALL)


def marked_blocks(page: Path, unmarked: Sequence[str] = ()) -> list[tuple[str, str]]:
    """Return mark and text of each marked block; a block without a mark must begin with one of `unmarked`."""
    found = []
    for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
        if block["mark"] is None:
            known = block["body"].lstrip().startswith(tuple(unmarked))
            assert known, f"this block is neither marked nor known: {block['body'][:60]!r}"
        else:
            found.append((block["mark"], block["body"]))
    return found


def _save_files(blocks: Sequence[tuple[str, str]], folder: Path) -> Iterator[tuple[str, str]]:
    """Save the files among `blocks`, each in its turn, and yield kind and text of the others: python or run."""
    for mark, body in blocks:
        kind, _, file_name = mark.partition(" ")
        assert kind in ("append", "file", "python", "run"), mark
        if kind in ("python", "run"):
            yield kind, body
            continue
        with (folder / file_name).open("a" if kind == "append" else "x", encoding="utf-8") as file:
            file.write(body)


def play(blocks: Sequence[tuple[str, str]], folder: Path) -> None:
    """Run or save `blocks`, one after the other, in `folder`; raises AssertionError with what a block printed if it fails."""
    for kind, body in _save_files(blocks, folder):
        _play_apart(kind, body, folder)


def _play_apart(kind: str, body: str, folder: Path) -> None:
    """Run a block in a process of its own."""
    bin_folder = Path(sys.executable).parent
    environment = os.environ | {"PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "80"}
    command = [sys.executable, "-c", body] if kind == "python" else ["bash", "-ec", body]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, f"{body}\n{done.stdout}\n{done.stderr}"


def play_here(blocks: Sequence[tuple[str, str]], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Do what `play` does in this process, on one core: quicker by the starts of all processes.

    Each `netsim` command of a block must end with exit code 0. A block with other commands runs in a shell.
    """
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    before = set(sys.modules)
    for kind, body in _save_files(blocks, folder):
        lines = [shlex.split(line, comments=True) for line in body.replace("\\\n", " ").splitlines()] if kind == "run" else []
        if kind == "python":
            with monkeypatch.context() as patch:
                patch.syspath_prepend(folder)  # as `python` looks in the present folder, and `netsim` does not
                exec(body, {"__name__": "__main__"})
        elif any(words[:1] not in ([], ["netsim"]) for words in lines):
            _play_apart(kind, body, folder)
        else:
            for words in filter(None, lines):
                _run_command(words, monkeypatch)
    for name in sys.modules.keys() - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
            del sys.modules[name]  # the page's own, of which another page may have one of that name


def _run_command(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code, shlex.join(words)
