"""Mutation score: how many small changes of the code the tests notice, of a random sample of all that mutmut knows.

python -m tests.reliability.mutation --count 500 --seed 1 --keep FILE

A mutant is killed where a test fails, or takes longer than the limit. For each, the tests of the folder that mirrors its own run
first, that of its file before the others, then the corner cases and the random worlds of the whole engine.
"""

from __future__ import annotations

import functools
import importlib
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import libcst
from mutmut.mutation.file_mutation import create_mutations, deep_replace

from tests.reliability.campaign import gather, options, say, table
from tests.reliability.workers import cpu_s

ROOT = Path(__file__).parents[2]
LIMIT_S = 120.0
"""Seconds of a processor."""
_PACKAGES = ("netsim", "models", "scenarios", "analysis", "tests")
_COPIED = (*_PACKAGES, "docs", "pyproject.toml", "README.md", "CHANGELOG.md", "Makefile")
_LOADED = ("numpy", "pandas", "scipy.stats", "pyarrow.parquet", "pydantic", "simpy", "hypothesis", "pytest", "networkx")
"""What is imported once, before the process of a mutant branches off."""


def sources() -> list[Path]:
    """The files that are mutated, from the root of the project."""
    return [*sorted(path.relative_to(ROOT) for path in (ROOT / "netsim").rglob("*.py")), Path("analysis/statistics.py")]


@functools.cache
def mutations(path: Path) -> tuple[libcst.Module, list[Any]]:
    """A file, and what mutmut would change in it: each change a pair of nodes."""
    module, found, _, _ = create_mutations(str(path), (ROOT / path).read_text(encoding="utf-8"))
    # Annotations are never evaluated here; what changes in them is no change of the program.
    return module, [one for one in found if one.contained_by_top_level_function is not None]


@functools.cache
def sample(seed: int, count: int) -> tuple[tuple[Path, int], ...]:
    """So many different mutants, drawn alike of all: file, and number within it."""
    every = [(path, i) for path in sources() for i in range(len(mutations(path)[1]))]
    say(f"{len(every)} mutants in {len(sources())} files")
    return tuple(Random(seed).sample(every, min(count, len(every))))


def mutated(path: Path, number: int) -> str:
    """The file with this one change."""
    module, found = mutations(path)
    changed = deep_replace(module, found[number].original_node, found[number].mutated_node)
    return str(changed.code)


def told(path: Path, number: int) -> str:
    """The first line that differs."""
    before, after = (ROOT / path).read_text(encoding="utf-8").splitlines(), mutated(path, number).splitlines()
    for line, (old, new) in enumerate(zip(before, after, strict=False), start=1):
        if old != new:
            return f"{path}:{line}: {old.strip()}  ->  {new.strip()}"
    return f"{path}: nothing differs"


def tests_of(path: Path) -> list[str]:
    """The tests that may kill a mutant of a file, the likeliest first."""
    if path.parts[0] == "analysis":
        return ["tests/analysis/test_statistics.py", "tests/analysis/test_compare_reproduce.py", "tests/analysis/test_targets.py"]
    folder = Path("tests", *path.parts[:-1])
    own = folder / f"test_{path.stem}.py"
    last = ["test_corner_cases.py", "test_random_worlds.py"]
    chosen = [str(own)] if (ROOT / own).is_file() else []
    if folder != Path("tests/netsim"):
        chosen.append(str(folder))
    return chosen + [f"tests/netsim/{name}" for name in last if f"tests/netsim/{name}" not in chosen]


def verdict(path: Path, number: int, copy: Path) -> dict[str, str]:
    """Whether the tests notice: killed, slow (killed by the limit) or survived."""
    text = mutated(path, number)
    (copy / path).write_text(text, encoding="utf-8")
    for cached in (copy / path).parent.glob(f"__pycache__/{path.stem}.*"):
        cached.unlink()
    try:
        code = _tested(copy, tests_of(path))
    finally:
        shutil.copy(ROOT / path, copy / path)
    kind = {None: "slow", 0: "survived"}.get(code, "killed")
    return {"kind": kind, "about": told(path, number)}


def _tested(copy: Path, chosen: list[str]) -> int | None:
    """The exit code of pytest in a process that branches off; None: it took too long."""
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        os.chdir(copy)
        sys.path[:] = [str(copy), *(entry for entry in sys.path if entry not in ("", str(ROOT)))]
        for name in [name for name in sys.modules if name.partition(".")[0] in _PACKAGES]:
            del sys.modules[name]
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        import pytest

        os._exit(int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "--rootdir", str(copy), *chosen])))
    while cpu_s(child) < LIMIT_S:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def results(chosen: tuple[tuple[Path, int], ...], numbers: list[int]) -> Iterable[tuple[int, dict[str, str]]]:
    """Of the mutants at these places of the sample."""
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    with tempfile.TemporaryDirectory(prefix="mutation-") as scratch:
        copy = Path(scratch)
        for name in _COPIED:
            place = ROOT / name
            if place.is_dir():
                shutil.copytree(place, copy / name, ignore=shutil.ignore_patterns("__pycache__", "images"))
            else:
                shutil.copy(place, copy / name)
        os.environ["PYTHONPATH"] = str(copy)
        for name in _LOADED:
            importlib.import_module(name)
        for number in numbers:
            yield number, verdict(*chosen[number], copy)


def interval(part: int, whole: int) -> tuple[float, float]:
    """Clopper and Pearson's interval at 95 % of a share."""
    from scipy.stats import binomtest

    found = binomtest(part, whole).proportion_ci(0.95, "exact")
    return float(found.low), float(found.high)


def campaign() -> None:
    """A sample, and the share of it that is killed."""
    given = options("mutation", 500)
    chosen = sample(given.seed, given.first + given.count)
    found = gather(given, partial(results, chosen))
    for number, result in sorted(found.items()):
        if result["kind"] == "survived":
            say(f"{number}: {result['about']}")
    killed = sum(result["kind"] != "survived" for result in found.values())
    low, high = interval(killed, len(found))
    table((result["kind"] for result in found.values()), f"{len(found)} mutants")
    say(f"killed {killed / len(found):.1%}, 95 % interval {low:.1%} to {high:.1%}")


if __name__ == "__main__":
    campaign()
