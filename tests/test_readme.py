"""Every marked block of the README and of the pages under docs/ works, in the order in which a reader meets them.

A comment before a block marks it: `<!-- test: run -->` runs it in a shell, `python` in Python, `file NAME` saves it, and
`append NAME` adds it to a file. Each page starts in an empty folder.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"(?:<!-- test: (?P<mark>[^\n]+?) -->\n)?```(?P<language>\w+)\n(?P<body>.*?)```\n", re.DOTALL)
UNTESTED = {
    "README.md": ("make demo", "source .venv", "seconds to"),
    "equations.md": ("import",),
    "fit.md": ("netsim fit log.csv",),
    "flower.md": ('name = "mine"',),
    "logs-to-deadline.md": ("# total, phone",),
    "results-sockets.md": ("make validate",),
    "world.md": ("delay + samples", "class, share", "payload = { kind"),
}
"""How the blocks begin that are no test here: they set up an environment, show what a command prints, or are tested elsewhere."""
LEAVES = {
    "README.md": {"first", "lossy", "policies", "trained"},
    "own-components.md": {"policy", "asking", "most", "oracle", "laws", "jammed", "training"},
    "own-network-and-data.md": {"spirals"},
    "own-trainer.md": {"patient"},
    "world.md": {"bytes", "works", "trace", "energy"},
    "python.md": {"lossy", "sweep"},
    "scripts.md": {"scripted", "patience"},
    "stragglers.md": {"waits"},
    "breakpoints.md": {"jumps"},
    "script-a-channel.md": {"crowded", "one"},
    "write-a-policy.md": {"fleet"},
    "test-the-timing.md": {"timing"},
    "my-cluster.md": {"first", "deadlines", "accuracy"},
    "flows.md": {"cases"},
    "network.md": {"two-towns", "loads"},
    "peers.md": {"ring", "graphs", "trained", "matcha", "one-peer", "choco", "epidemic", "push-sum", "ad-psgd", "gossip", "own"},
    "fit.md": set(),
    "logs-to-deadline.md": {"deadlines"},
    "overlays.md": set(),
}
"""The folders below runs/ that the blocks of a page leave."""


def _blocks(page: Path) -> list[tuple[str, str]]:
    found = []
    for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
        if block["mark"] is None:
            known = UNTESTED.get(page.name, ())
            assert block["body"].lstrip().startswith(known), f"this block is neither marked nor known: {block['body'][:60]!r}"
        else:
            found.append((block["mark"], block["body"]))
    return found


PAGES = {page.name: page for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))) if _blocks(page)}


def test_the_pages_with_marked_blocks_are_these():
    assert set(PAGES) == set(LEAVES)


IN_THE_DEFAULT_SUITE = ("README.md",)
"""Pages that most readers begin with; the blocks of the others are run by the slow suite."""


CASES = [pytest.param(name, marks=() if name in IN_THE_DEFAULT_SUITE else pytest.mark.slow) for name in PAGES]


@pytest.mark.parametrize("name", CASES)
def test_every_block_works(name, tmp_path):
    pytest.importorskip("torch", reason="the README's study trains")
    bin_folder = Path(sys.executable).parent
    environment = os.environ | {"PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "80"}
    for mark, body in _blocks(PAGES[name]):
        kind, _, file_name = mark.partition(" ")
        assert kind in ("append", "file", "python", "run"), mark
        if kind in ("file", "append"):
            with (tmp_path / file_name).open("a" if kind == "append" else "x", encoding="utf-8") as file:
                file.write(body)
            continue
        command = [sys.executable, "-c", body] if kind == "python" else ["bash", "-ec", body]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, f"{body}\n{done.stdout}\n{done.stderr}"
    assert {path.name for path in (tmp_path / "runs").glob("*")} == LEAVES[name]


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 250
