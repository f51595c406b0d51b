"""Do two commits leave the same tables, byte for byte, on this machine?

    python -m tests.golden.compare COMMIT [OTHER] [--cases NAME ..]

Runs every case with COMMIT and with OTHER (its parent) and names each variant, table and column that differs, with its first
row. COMMIT may be a folder: `.` is the working tree, whose OTHER is HEAD. Exit code 1 where a value differs or is gone; columns
and tables that COMMIT adds are told and do not count. The cases are those of COMMIT.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tests.golden.commits import Checkout, checkout, finish, parent
from tests.golden.tables import SUMMARY, Recording, differences, read


def compared(before: Path, now: Path, found: Counter[str]) -> Iterator[str]:
    """What differs between the folders of one variant's runs; counts into `found`."""
    failed = [folder / "failed" for folder in (before, now)]
    if any(file.is_file() for file in failed):
        told = [file.read_text(encoding="utf-8") if file.is_file() else "runs" for file in failed]
        found["fail with both" if told[0] == told[1] else "fail"] += 1
        yield f"before: {told[0]}; now: {told[1]}"
        return
    tables, others = _exact(before / "run"), _exact(now / "run")
    for table, columns in tables.items():
        if table != SUMMARY and _bytes(before, table) == _bytes(now, table):
            found["tables equal in bytes"] += 1
            continue
        told_of = list(differences({table: columns}, others))
        yield from told_of
        if table == SUMMARY:
            found["summaries that differ" if told_of else "summaries equal in their figures"] += 1
        else:
            found["tables that differ" if told_of else "tables equal in all columns that both have, not in bytes"] += 1
        if added := others.get(table, {}).keys() - columns.keys():
            yield f"{table}: added: {', '.join(sorted(added))}"
    yield from (f"{table}: added" for table in others.keys() - tables.keys())


def _bytes(folder: Path, table: str) -> bytes | None:
    file = folder / "run" / table
    return file.read_bytes() if file.is_file() else None


def _exact(folder: Path) -> Recording:
    tables = read(folder, learner=False)
    return {table: {name: replace(c, tolerance=0.0) for name, c in columns.items()} for table, columns in tables.items()}


def played(commit: Checkout, other: Checkout, folder: Path, only: list[str]) -> Iterator[tuple[str, Path, Path]]:
    """Every variant of every case, run with both: its name, and the folders before and now."""
    cases = folder / "cases"
    cases.mkdir()
    finish(commit.start("cases", cases, folder=folder))
    names = sorted(file.stem for file in cases.glob("*.json"))
    for name in only:
        if name not in names:
            raise SystemExit(f"no case is called {name!r}; there are {', '.join(names)}")
    for name in set(names) - set(only) if only else ():
        (cases / f"{name}.json").unlink()
    # The same data sets and files for both.
    shutil.copyfile(commit.root / "tests/golden/made_data.py", other.root / "tests/golden/made_data.py")
    inputs = commit.root / "tests/golden/inputs"
    places = {which: folder / which for which in ("before", "now")}
    for process in [
        other.start("play", cases, places["before"], folder=inputs),
        commit.start("play", cases, places["now"], folder=inputs),
    ]:
        finish(process)
    for now in sorted(places["now"].glob("*/*"), key=lambda path: (path.parent.name, int(path.name))):
        variant = (now / "variant").read_text(encoding="utf-8")
        yield f"{now.parent.name}: {variant}", places["before"] / now.relative_to(places["now"]), now


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.golden.compare", description="Compare the tables of two commits.")
    parser.add_argument("commit", help="a commit, or a folder such as . for the working tree")
    parser.add_argument("other", nargs="?", help="the commit before; default: the parent")
    parser.add_argument("--cases", nargs="+", default=[], metavar="NAME", help="some cases only")
    asked = parser.parse_args()
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="netsim-compare-") as place:
        folders = [Path(place) / which for which in ("commit", "other")]
        commit, other = checkout(asked.commit, folders[0]), checkout(asked.other or parent(asked.commit), folders[1])
        print(f"before: {other.name}, now: {commit.name}", flush=True)
        for name, before, now in played(commit, other, Path(place), asked.cases):
            for told in compared(before, now, found):
                print(f"{name}: {told}", flush=True)
    print("; ".join(f"{number} {what}" for what, number in sorted(found.items())))
    sys.exit(any(found[what] for what in ("fail", "tables that differ", "summaries that differ")))


if __name__ == "__main__":
    main()
