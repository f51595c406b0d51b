"""What campaigns have in common: a count and a seed, results kept as they come, and a table at the end."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from scenarios.runs.unfinished import version


def options(name: str) -> argparse.Namespace:
    """Read the command line of a campaign: `SEED COUNT`. With `--keep FILE` it can be stopped and gone on with.

    `--show NUMBER` is for the scenario of that number alone.
    """
    parser = argparse.ArgumentParser(prog=f"python -m tests.reliability.{name}")
    parser.add_argument("seed", type=int)
    parser.add_argument("count", type=int, nargs="?", default=1)
    parser.add_argument("--first", type=int, default=0, help="the number of the first")
    parser.add_argument("--keep", type=Path, help="a file of results, which are added to it and not computed twice")
    parser.add_argument("--show", type=int, metavar="NUMBER", help="write the scenario of this number, and run none")
    given = parser.parse_args()
    if given.show is None:
        say(f"{name}: netsim {version()}, seed {given.seed}, numbers {given.first} to {given.first + given.count - 1}")
    return given


def kept(given: argparse.Namespace) -> dict[int, Any]:
    """The results of an earlier attempt, by their numbers."""
    if given.keep is None or not given.keep.is_file():
        return {}
    lines = given.keep.read_text(encoding="utf-8").splitlines()
    return {entry["number"]: entry["result"] for entry in map(json.loads, lines) if entry["seed"] == given.seed}


def gather(given: argparse.Namespace, results: Callable[[list[int]], Iterable[tuple[int, Any]]]) -> dict[int, Any]:
    """All results by their numbers: those kept, and those that `results` computes of the numbers that are missing."""
    found = kept(given)
    numbers = range(given.first, given.first + given.count)
    found = {number: result for number, result in found.items() if number in numbers}
    started = time.monotonic()
    for number, result in results([number for number in numbers if number not in found]):
        found[number] = result
        if given.keep is not None:
            with given.keep.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"seed": given.seed, "number": number, "result": result}) + "\n")
        if len(found) % 500 == 0:
            say(f"{len(found)} done, {time.monotonic() - started:.0f} s")
    say(f"{time.monotonic() - started:.0f} s")
    return found


def table(kinds: Iterable[str], title: str) -> None:
    """How often each kind of result came."""
    say(title)
    for kind, count in Counter(kinds).most_common():
        say(f"{count:8d}  {kind}")


def say(text: str) -> None:
    """To standard output, at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
