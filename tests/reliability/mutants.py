"""Mutated scenarios, checked and run: whatever a file says, the command answers, ends, and leaves nothing beside its folder.

python -m tests.reliability.mutants SEED COUNT
python -m tests.reliability.mutants SEED --show 1234
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import re
import shutil
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import tomli_w
from typer import main as typer

from scenarios.cli.main import main
from tests.golden.cases import INPUTS
from tests.reliability.campaign import gather, options, say, table
from tests.reliability.grammar import mutant
from tests.reliability.workers import answered

# The command line is made again for every command, which is a third of what a mutant takes.
typer.get_command = functools.cache(typer.get_command)
LIMIT_S = 40.0
EVENTS = 3_000
GOOD = ("ran", "refused", "no TOML", "memory")
_OUT_OF_MEMORY = re.compile(r"device = '\w+': (cannot hold|out of memory)")
_ONLY_THE_RUN_SHOWS = re.compile(r"script |slots\.engine = 'wave': .* in this slot")
"""What a script does, and whether messages are lost in a slot that is to have a closed form."""
_FRAMES = ("netsim", "models", "scenarios", "analysis")


def tables_of(seed: int, number: int) -> dict[str, Any]:
    """The mutant of that number."""
    return mutant(Random(f"{seed}/{number}"))


def tried(seed: int, number: int) -> dict[str, str]:
    """What came of a mutant: `kind`, and `about` it."""
    return attempt(tables_of(seed, number))


def attempt(tables: dict[str, Any]) -> dict[str, str]:
    """Check and run a scenario by the command line, in a folder of its own.

    `kind`: ran, refused (before anything was written), memory (a run ended with a message as its process had too little), or what
    is wrong: traceback, code, silent (a refusal without a word), long
    (one of more than ten lines), late (a refusal after it began to write), stray (files left), warning (of NumPy's arithmetic).
    """
    with tempfile.TemporaryDirectory(prefix="mutant-") as scratch:
        folder, before = Path(scratch), Path.cwd()
        shutil.copytree(INPUTS, folder, dirs_exist_ok=True)
        there = {file.name for file in folder.iterdir()} | {"scenario.toml", "temporary"}
        (folder / "temporary").mkdir()
        try:
            text = tomli_w.dumps(tables)
        except (TypeError, ValueError):
            return {"kind": "no TOML", "about": ""}
        (folder / "scenario.toml").write_text(text, encoding="utf-8")
        os.chdir(folder)
        before_temporary, tempfile.tempdir = tempfile.tempdir, str(folder / "temporary")
        try:
            checked = _command("check", "scenario.toml")
            found = checked
            if checked["kind"] in ("ran", "refused"):
                found = _command("run", "scenario.toml", "--out", "out", "--quiet", "--event-limit", str(EVENTS))
        finally:
            os.chdir(before)
            tempfile.tempdir = before_temporary
        left = {file.name for file in folder.iterdir()} - there
        # The cache of torch's compiler is torch's own.
        left |= {f"temporary/{file.name}" for file in (folder / "temporary").iterdir() if "torchinductor" not in file.name}
        if found["kind"] == "refused" and "out" in left:
            reason = _reason(found["about"])
            if not _ONLY_THE_RUN_SHOWS.match(reason):
                return {"kind": "memory" if _OUT_OF_MEMORY.search(reason) else "late", "about": found["about"]}
        if found["kind"] in ("ran", "refused") and left - {"out"}:
            return {"kind": "stray", "about": " ".join(sorted(left))}
        return found


def _reason(told: str) -> str:
    """What a command said, without its warnings."""
    return "\n".join(line for line in told.splitlines() if not line.startswith("warning: "))


def _command(*words: str) -> dict[str, str]:
    out, err, given = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["netsim", *words]
    code: Any = 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
            warnings.simplefilter("always")
            main()
    except SystemExit as end:
        code = end.code or 0
    except BaseException as error:
        return {"kind": "traceback", "about": f"{words[0]}: {_place(error)}"}
    finally:
        sys.argv = given
    told = err.getvalue()
    if "RuntimeWarning" in told:
        return {"kind": "warning", "about": next(line for line in told.splitlines() if "RuntimeWarning" in line)}
    if code == 0:
        return {"kind": "ran", "about": ""}
    if code != 2:
        return {"kind": "code", "about": f"{words[0]}: {code} {told.strip()[:300]}"}
    if not told.strip():
        return {"kind": "silent", "about": words[0]}
    return {"kind": "long" if told.count("\n") > 10 or len(told) > 3000 else "refused", "about": told.strip()[:300]}


def _place(error: BaseException) -> str:
    """The error and the last of our lines that it came through."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _ours(frame.filename)]
    last = f"{'/'.join(Path(frames[-1].filename).parts[-3:])}:{frames[-1].lineno}" if frames else "?"
    return f"{type(error).__name__} at {last}: {str(error)[:150]}"


def _ours(filename: str) -> bool:
    return any(name in Path(filename).parts for name in _FRAMES) and "site-packages" not in filename


def results(seed: int, numbers: list[int]) -> Iterable[tuple[int, dict[str, str]]]:
    """Of the mutants of these numbers."""
    return answered(partial(tried, seed), numbers, limit_s=LIMIT_S)


def campaign() -> int:
    """All of them; how many went wrong."""
    given = options("mutants")
    if given.show is not None:
        say(tomli_w.dumps(tables_of(given.seed, given.show)))
        return 0
    found = gather(given, partial(results, given.seed))
    wrong = {number: result for number, result in found.items() if result["kind"] not in GOOD}
    for number, result in sorted(wrong.items()):
        say(f"{number}: {result['kind']}: {result['about']}")
    table((result["kind"] for result in found.values()), f"{len(found)} mutants")
    return len(wrong)


if __name__ == "__main__":
    sys.exit(1 if campaign() else 0)
