"""Hooks of the documentation site (`mkdocs.yml`): pages made from files that live outside of `docs/`.

The pages under `docs/` link to scenarios and modules of the repository, which a site cannot reach. Each such file becomes a page
that shows it, so that every link works. The front page is the README, the change log is `CHANGELOG.md`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
LIBRARY = ROOT / "scenarios" / "library"
SHOWN = {".toml": "toml", ".py": "python", ".csv": "text", ".txt": "text", ".md": "markdown", "": "text"}
"""Endings of files that become pages, and the language in which each is highlighted."""
LINK = re.compile(r"(?<=\]\()(?!https?:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")
CODE = re.compile(r"(^```.*?^```[^\n]*$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the front page, the change log, the notebook, and a page for each file that pages link to."""
    made = {
        "index.md": _rebased((ROOT / "README.md").read_text(encoding="utf-8"), ROOT, "index.md"),
        "changelog.md": _rebased((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), ROOT, "changelog.md"),
        "contributing.md": _rebased((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), ROOT, "contributing.md"),
        "first-study.md": _notebook(DOCS / "first-study.ipynb"),
    }
    texts = [page.read_text(encoding="utf-8") for page in DOCS.glob("*.md")]
    texts += [(ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "CONTRIBUTING.md")]
    folders = [DOCS] * (len(texts) - 2) + [ROOT, ROOT]
    queue = [target for text, folder in zip(texts, folders, strict=True) for target in _outside(text, folder)]
    while queue:
        target = queue.pop()
        uri = _uri(target)
        if uri not in made:
            made[uri] = _source(target)
            if target.is_relative_to(LIBRARY) and target.is_dir():
                queue += _listed(target)
    for uri, text in made.items():
        if (old := files.get_file_from_path(uri)) is not None:
            files.remove(old)
        files.append(File.generated(config, uri, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: MkDocsConfig, files: Files) -> str:
    """Return a page's text with its links to files outside of `docs/` leading to their pages."""
    if page.file.generated_by is not None:
        return markdown
    return _rebased(markdown, DOCS, page.file.src_uri)


def _rebased(text: str, folder: Path, uri: str) -> str:
    """Return `text`, written for `folder`, with links as the page `uri` needs them; code is left alone."""
    up = "../" * uri.count("/")

    def link(match: re.Match[str]) -> str:
        target = (folder / match[1]).resolve()
        return f"{up}{_uri(target)}{match[2] or ''}"

    parts = CODE.split(text)
    # A link may have code as its text: only the target, behind the code, is replaced.
    return "".join(part if i % 2 else LINK.sub(link, part) for i, part in enumerate(parts))


def _uri(target: Path) -> str:
    """Return the address within the site of a file of the repository."""
    special = {ROOT / "README.md": "index.md", ROOT / "CHANGELOG.md": "changelog.md", ROOT / "CONTRIBUTING.md": "contributing.md"}
    if target in special:
        return special[target]
    if target.suffix == ".ipynb":
        return "first-study.md"
    if target.is_relative_to(DOCS):
        return target.relative_to(DOCS).as_posix()
    return f"source/{target.relative_to(ROOT).as_posix()}{'/index' if target.is_dir() else ''}.md"


def _outside(text: str, folder: Path) -> list[Path]:
    """Return the files and folders of the repository, outside of `docs/`, that `text` links to."""
    plain = "".join(CODE.split(text)[::2])
    targets = [(folder / match[1]).resolve() for match in LINK.finditer(plain)]
    return [target for target in targets if _uri(target).startswith("source/")]


def _listed(folder: Path) -> list[Path]:
    """Return what a folder's page lists: its folders and the files that can be shown, in alphabetical order."""
    hidden = {"__pycache__", "recorded"}
    entries = [entry for entry in sorted(folder.iterdir()) if entry.name not in hidden and not entry.name.startswith(".")]
    return [entry for entry in entries if entry.is_dir() or (entry.suffix in SHOWN and entry.name != "py.typed")]


def _source(target: Path) -> str:
    """Return the page of a file, which shows its text, or of a folder, which lists what is in it."""
    title = target.relative_to(ROOT).as_posix()
    head = f"---\nsearch:\n  exclude: true\n---\n# `{title}`\n\n"
    if target.is_dir():
        # The scenarios that come along have a page each; of other folders only the names are listed.
        up = "../" * _uri(target).count("/")
        entries = _listed(target)
        if target.is_relative_to(LIBRARY):
            return head + "".join(f"- [`{entry.name}`]({up}{_uri(entry)})\n" for entry in entries)
        return head + "".join(f"- `{entry.name}`\n" for entry in entries)
    text = target.read_text(encoding="utf-8")
    if target.suffix == ".md":
        return head + _rebased(text, target.parent, _uri(target))
    return f"{head}``````{SHOWN[target.suffix]}\n{text.rstrip()}\n``````\n"


def _notebook(file: Path) -> str:
    """Return a notebook as a page: its text, its code, and the plain text of its results."""
    parts = []
    for cell in json.loads(file.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(_rebased(source, DOCS, "first-study.md"))
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell.get("outputs", ()):
            text = "".join(output.get("text") or output.get("data", {}).get("text/plain", ""))
            if text:
                parts.append(f"```text\n{text.rstrip()}\n```")
    return "\n\n".join(parts)
