"""Every marked block of the README and of the pages under docs/ works, in the order in which a reader meets them.

`tests/helpers/pages.py` says how a block is marked. Each page starts in an empty folder.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.pages import ROOT, marked_blocks, play, play_here

UNTESTED = {
    "README.md": ("make demo", "source .venv", "seconds to"),
    "equations.md": ("import",),
    "fit.md": ("netsim fit log.csv",),
    "flower.md": ('name = "mine"',),
    "large-models.md": ("[learner]", "network = {"),
    "logs-to-deadline.md": ("# total, phone",),
    "results-sockets.md": ("make validate",),
    "silos.md": ("netsim sweep silos --out runs/gaia",),
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
    "gallery.md": {"training", "changes", "beliefs", "core", "peers", "grid", "overlays", "fitted", "tiers", "flower"},
    "logs-to-deadline.md": {"deadlines"},
    "overlays.md": set(),
    "silos.md": {"silos", "edges", "away"},
    "tiers.md": {"tiers", "rounds", "asynchronous", "ahead", "asking", "scripted"},
}
"""The folders below runs/ that the blocks of a page leave."""


def _blocks(page: Path) -> list[tuple[str, str]]:
    return marked_blocks(page, UNTESTED.get(page.name, ()))


PAGES = {page.name: page for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))) if _blocks(page)}


def test_the_pages_with_marked_blocks_are_these():
    assert set(PAGES) == set(LEAVES)


def leaves(folder):
    return {path.name for path in (folder / "runs").glob("*")}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name != "README.md")) for name in PAGES])
def test_the_blocks_of_a_page_work_in_one_process(name, tmp_path, monkeypatch):
    pytest.importorskip("torch", reason="pages train")
    play_here(_blocks(PAGES[name]), tmp_path, monkeypatch)
    assert leaves(tmp_path) == LEAVES[name]


@pytest.mark.slow
def test_the_blocks_of_the_readme_work_in_a_shell(tmp_path):
    pytest.importorskip("torch", reason="the README's study trains")
    play(_blocks(PAGES["README.md"]), tmp_path)
    assert leaves(tmp_path) == LEAVES["README.md"]


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 250
