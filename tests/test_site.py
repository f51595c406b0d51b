"""The documentation site: every page has its place, every link leads somewhere, nothing is loaded from another host."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LIST_ITEM = re.compile(r"(- |\d+\. )")


def _lists_glued_to_text(text: str) -> list[str]:
    """Return the first items of lists that follow a line of text: a site shows them as one paragraph."""
    glued, item, code, before = [], False, False, ""
    for line in text.splitlines():
        code ^= line.startswith("```")
        starts = LIST_ITEM.match(line) is not None
        if starts and not code and before.strip() and not item and not before.startswith(("|", "#", "  ")):
            glued.append(line)
        item = starts or (item and bool(line.strip()))
        before = line
    return glued


PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lists_stand_apart_from_the_text_before_them(page):
    assert _lists_glued_to_text(page.read_text(encoding="utf-8")) == []


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path):
    """Strict mode refuses a page outside of the navigation and a link or an anchor that leads nowhere."""
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, check=True, timeout=300)
    index = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "A discrete-event simulator of federated learning" in index
    loaded = re.compile(r"<(?:script|img|iframe)[^>]+src=\"https?:|<link[^>]+rel=\"stylesheet\"[^>]+href=\"https?:")
    for page in tmp_path.rglob("*.html"):
        assert loaded.search(page.read_text(encoding="utf-8")) is None, page
