"""Records the tables that the guard compares with, or compares now.

python -m tests.golden.record [CASE ..]            write tests/golden/recorded/, and say what changed
python -m tests.golden.record --check [CASE ..]    write nothing; exit code 1 where a value differs
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.golden.cases import HERE, case, names
from tests.golden.tables import AMPLIFIED, AMPLIFYING, TRAINED, Recording, differences, from_text, play, to_text

RECORDED = HERE / "recorded"


def file_of(name: str) -> Path:
    """Where the recording of a case is."""
    return RECORDED / f"{name}.tsv"


def recorded(name: str) -> dict[str, Recording]:
    """The recording of every variant of a case; empty where there is none."""
    file = file_of(name)
    return from_text(file.read_text(encoding="utf-8")) if file.is_file() else {}


def changes(name: str, folder: Path, ways: tuple[bool, ...] = (False, True)) -> Iterator[str]:
    """What differs between the recording of a case and its tables now, a line each; `folder`: an empty one for the runs.

    `ways`: run from beginning to end (False), and interrupted and resumed (True). A variant that cannot be resumed is run once.
    """
    now, before = case(name), recorded(name)
    for variant in before.keys() - now.variants.keys():
        yield f"{name}: {variant}: there is no such variant any more"
    for i, (variant, tables) in enumerate(now.variants.items()):
        if variant not in before:
            yield f"{name}: {variant}: is not recorded; run `make golden`"
            continue
        tolerance = AMPLIFIED if (name, variant) in AMPLIFYING else TRAINED
        for resumed in ways if variant in now.resumed else (False,):
            how = " (resumed)" if resumed else ""
            try:
                found = play(tables, folder / f"{i}-{resumed}", resumed=resumed)
            except Exception as error:
                yield f"{name}: {variant}{how}: cannot be run: {type(error).__name__}: {error}"
                continue
            yield from (f"{name}: {variant}{how}: {told}" for told in differences(before[variant], found, trained=tolerance))


def record(name: str, folder: Path) -> Iterator[str]:
    """Write the recording of a case and tell what it changes."""
    before, now = recorded(name), {}
    for i, (variant, tables) in enumerate(case(name).variants.items()):
        now[variant] = play(tables, folder / str(i))
        if variant in before:
            yield from (f"{name}: {variant}: {told}" for told in differences(before[variant], now[variant]))
        else:
            yield f"{name}: {variant}: recorded for the first time"
    yield from (f"{name}: {variant}: no longer recorded" for variant in before.keys() - now.keys())
    RECORDED.mkdir(exist_ok=True)
    file_of(name).write_text(to_text(now), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.golden.record", description="Record tables, or compare with them.")
    parser.add_argument("cases", nargs="*", metavar="CASE", help="names of cases; default: all")
    parser.add_argument("--check", action="store_true", help="compare and write nothing")
    asked = parser.parse_args()
    known = names()
    unknown = [name for name in asked.cases if name not in known]
    if unknown:
        parser.error(f"no case is called {unknown[0]!r}; there are {', '.join(known)}")
    differ = 0
    for name in asked.cases or known:
        with tempfile.TemporaryDirectory(prefix="netsim-golden-") as folder:
            for told in (changes if asked.check else record)(name, Path(folder)):
                differ += 1
                print(told, flush=True)
    if not asked.cases and not asked.check:
        for file in RECORDED.glob("*.tsv"):
            if file.stem not in known:
                file.unlink()
                print(f"{file.stem}: no longer a case; its recording is removed")
    print(f"{len(asked.cases or known)} cases, {differ} differences")
    sys.exit(1 if asked.check and differ else 0)


if __name__ == "__main__":
    main()
