"""Checkouts of commits in a temporary folder, and commands run in them with this interpreter."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.golden.cases import HERE

ROOT = HERE.parents[1]


@dataclass(frozen=True)
class Checkout:
    """The files of a commit."""

    name: str
    root: Path

    def start(self, *arguments: str | Path, folder: Path) -> subprocess.Popen[str]:
        """Start `tests.golden.runs` with this commit's code, in `folder`."""
        command = [sys.executable, "-m", "tests.golden.runs", *map(str, arguments)]
        environment = os.environ | {"PYTHONPATH": str(self.root), "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)


def checkout(commit: str, folder: Path) -> Checkout:
    """The files of `commit` (or of a folder of that name, as they stand) below `folder`; raises SystemExit with a message.

    A commit of before this guard, or of before a file of it, gets that file as it is here.
    """
    root = folder / "tree"
    if Path(commit).is_dir():
        shutil.copytree(commit, root, ignore=_left_out(commit))
        name = str(Path(commit).resolve())
    else:
        name = _git("rev-parse", "--short", f"{commit}^{{commit}}").decode().strip()
        with tarfile.open(fileobj=io.BytesIO(_git("archive", name))) as archive:
            archive.extractall(root, filter="data")
    for file in (*HERE.glob("*.py"), *HERE.glob("features/*.toml"), HERE.parent / "__init__.py"):
        place = root / file.relative_to(ROOT)
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, place)
    return Checkout(name, root)


def _left_out(top: str) -> Callable[[str, list[str]], set[str]]:
    """What is not copied of the folder `top`; `runs` there are run folders, further down a package."""
    anywhere = shutil.ignore_patterns("__pycache__")
    at_the_top = shutil.ignore_patterns(".git", ".venv", "runs", ".*_cache")
    return lambda folder, names: anywhere(folder, names) | (at_the_top(folder, names) if folder == top else set())


def parent(commit: str) -> str:
    """What a commit is compared with: its parent; a folder with the last commit."""
    return "HEAD" if Path(commit).is_dir() else f"{commit}^"


def finish(process: subprocess.Popen[str]) -> str:
    """Wait for a command; its standard output. Raises SystemExit where it failed."""
    said, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"{' '.join(map(str, process.args))}: ended with code {process.returncode}")  # type: ignore[union-attr]
    return said


def _git(*arguments: str) -> bytes:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True)
    if done.returncode:
        raise SystemExit(f"git {' '.join(arguments)}: {done.stderr.decode().strip()}")
    return done.stdout
