"""Flipped bits in every kind of file that netsim writes: refused or harmless, never wrong.

python -m tests.reliability.bits SEED COUNT

Three folders are attacked, a copy at a time: a run that was interrupted, which is resumed; a finished run, whose tables and
summary are read; a sweep, of which the same is read through its list of runs. Harmless: all comes out as without the flip.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterable
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

import netsim
from netsim.simulation import Simulation
from scenarios.runs.reading import parse
from scenarios.runs.run import go_on, run
from scenarios.schema.errors import UserError
from scenarios.sweeps.options import Machines
from scenarios.sweeps.plan import plan
from scenarios.sweeps.sweep import sweep
from tests.helpers.rough_scenarios import other, rough
from tests.reliability.campaign import gather, options, say, table
from tests.reliability.swarm import different

_PASSING = ("wall_time_s", "started", "ended_at", "machine", "peak_memory_bytes", "versions")
"""What two runs of one scenario say differently."""


@cache
def folders() -> tuple[Path, dict[str, Any]]:
    """Where the folders lie that are attacked, and what is read from those that are read."""
    place = Path(tempfile.mkdtemp(prefix="bits-"))
    tables = rough(rounds=8)
    scenario = parse(tables)
    run(scenario, place / "finished")
    run(scenario, place / "interrupted", after_round=_interrupt)
    planned = plan(other("jammer", "sweep") | {"rounds": 5, "sweep": {"seeds": [1, 2]}}, "bits")
    sweep(planned, place / "sweep", machines=Machines(jobs=1))
    return place, {kind: _read(kind, place / kind) for kind in ("finished", "sweep")}


def _interrupt(simulation: Simulation) -> None:
    if simulation.server.round == 5:
        raise KeyboardInterrupt


def _read(kind: str, folder: Path) -> Any:
    """Everything that a reader is told of the folder."""
    runs = [netsim.open_run(folder)] if kind == "finished" else list(netsim.open_sweep(folder))
    return [
        ({name: one.arrow(name).to_pydict() for name in one.tables}, one.scenario, _lasting(one.summary)) for one in runs
    ]


def _lasting(summary: Any) -> str:
    return repr({key: value for key, value in sorted(summary.items()) if key not in _PASSING})


def flipped(seed: int, number: int) -> dict[str, str]:
    """What came of one flip: `kind` refused, harmless, wrong or traceback, and `about` it the file."""
    place, contents = folders()
    rng = Random(f"{seed}/{number}")
    kind = rng.choice(("interrupted", "interrupted", "finished", "sweep"))
    with tempfile.TemporaryDirectory(prefix="bits-") as scratch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folder = Path(scratch) / "folder"
        shutil.copytree(place / kind, folder)
        files = sorted(file for file in folder.rglob("*") if file.is_file() and file.stat().st_size)
        if kind == "sweep":
            files = [file for file in files if file.suffix not in (".png", ".svg")]
        # Kinds of files alike, however many there are of each.
        name = rng.choice(sorted({file.name for file in files}))
        file = rng.choice([file for file in files if file.name == name])
        content = bytearray(file.read_bytes())
        bit = rng.randrange(8 * len(content))
        content[bit // 8] ^= 1 << bit % 8
        file.write_bytes(content)
        about = f"{kind}/{file.relative_to(folder)}"
        return {**_consequence(kind, folder, place, contents), "file": about, "bit": str(bit)}


def _consequence(kind: str, folder: Path, place: Path, contents: dict[str, Any]) -> dict[str, str]:
    try:
        if kind == "interrupted":
            go_on(folder)
            wrong = different(place / "finished", folder)
        else:
            wrong = "" if _same(_read(kind, folder), contents[kind]) else "is read as something else"
    except (UserError, ValueError) as error:  # to who reads with `analysis` itself a refusal is a ValueError
        return {"kind": "refused", "about": str(error)[:200]}
    except Exception as error:
        return {"kind": "traceback", "about": f"{type(error).__name__}: {str(error)[:200]}"}
    return {"kind": "wrong", "about": wrong} if wrong else {"kind": "harmless", "about": ""}


def _same(first: Any, second: Any) -> bool:
    return repr(first) == repr(second)


def results(seed: int, numbers: list[int]) -> Iterable[tuple[int, dict[str, str]]]:
    """Of the flips of these numbers."""
    for number in numbers:
        yield number, flipped(seed, number)


def campaign() -> int:
    """All of them; how many went wrong."""
    given = options("bits")
    found = gather(given, partial(results, given.seed))
    wrong = {number: result for number, result in found.items() if result["kind"] not in ("refused", "harmless")}
    for number, result in sorted(wrong.items()):
        say(f"{number}: {result['kind']}: {result['file']}, bit {result['bit']}: {result['about']}")
    table((result["kind"] for result in found.values()), f"{len(found)} bits")
    places = [(Path(result["file"]).parts[0], Path(result["file"]).name, result["kind"]) for result in found.values()]
    table((f"{folder}: {name}: {kind}" for folder, name, kind in places), "by file")
    return len(wrong)


if __name__ == "__main__":
    sys.exit(1 if campaign() else 0)
