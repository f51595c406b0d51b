"""Swarm: worlds with a random choice of features each, ties, times of zero and mass departures forced upon them.

python -m tests.reliability.swarm SEED COUNT
python -m tests.reliability.swarm SEED --show 12

Of each world: its books balance, and so do the independent ones of `ledger`; no step is out of order, no number is NaN or
infinite, the same scenario leaves the same bytes, and a run that was interrupted at a random round and resumed leaves them, too.
"""

from __future__ import annotations

import itertools
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable
from copy import deepcopy
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import tomli_w

from netsim.simulation import Simulation
from scenarios.runs.reading import parse
from scenarios.runs.run import go_on, run
from scenarios.schema.errors import UserError
from tests.golden.cases import INPUTS
from tests.helpers.random_worlds import random_tables
from tests.reliability import ledger
from tests.reliability.campaign import gather, options, say, table
from tests.reliability.grammar import bases
from tests.reliability.workers import answered

LIMIT_S = 60.0
GOOD = ("good", "refused")
"""Verdicts on worlds in which nothing went wrong."""
ROUNDS = 12
_SHARED = ("availability", "outages", "energy", "privacy", "payload", "downlink", "uplink", "compute", "jammers", "time_limit_s")
"""Tables that any server may be given."""
_PHASES = (("downlink", "delay"), ("compute", "delay"), ("uplink", "delay"), ("channels", "delay"), ("peers", "delay"))
_STEPS = ("download_start_s", "download_end_s", "compute_start_s", "compute_end_s", "upload_start_s", "upload_end_s")
_MAY_BE_INFINITE = ("epsilon", "leak", "max_leak")
"""Of what is released without noise."""


def world(seed: int, number: int, folder: Path) -> dict[str, Any]:
    """The tables of the world of that number, which can be built; files that it reads go to `folder`."""
    for attempt in itertools.count():
        rng = Random(f"{seed}/{number}/{attempt}")
        tables = _drawn(rng, folder)
        try:
            parse(tables)
        except UserError:
            continue
        return tables
    raise AssertionError


def _drawn(rng: Random, folder: Path) -> dict[str, Any]:
    if rng.random() < 0.3:
        tables = random_tables(rng.randrange(10**9), folder)
    else:
        # The messages of an app are several a client and round; the ledger keeps one attempt.
        tables = deepcopy(rng.choice([one for one in bases() if "flower" not in one]))
        if "learner" in tables and rng.random() < 0.7:
            return _drawn(rng, folder)  # what trains is slow, and little of it differs from world to world
        for name in rng.sample(_SHARED, rng.randrange(4)):
            donor = rng.choice([other for other in bases() if name in other] or [tables])
            if name in donor:
                tables[name] = deepcopy(donor[name])
    learns = "learner" in tables
    tables["rounds"] = min(tables["rounds"], 3 if learns else ROUNDS)
    tables["seed"] = rng.randrange(1000)
    tables.pop("sweep", None)
    forced = rng.choice(("ties", "zero", "neither"))
    for section, key in _PHASES if forced != "neither" else ():
        if section in tables or section in ("downlink", "compute", "uplink"):
            _force(tables, section, key, 0.0 if forced == "zero" and rng.random() < 0.5 else rng.choice((0.5, 1.0)))
    if rng.random() < 0.3:
        tables["availability"] = _departures(rng, int(tables["clients"]["count"]), folder)
    return tables


def _force(tables: dict[str, Any], section: str, key: str, value_s: float) -> None:
    kept = tables.get(section, {}).items()
    tables[section] = {name: value for name, value in kept if name not in ("changes", "random_changes")}
    tables[section][key] = {"kind": "constant", "value_s": value_s}


def _departures(rng: Random, count: int, folder: Path) -> dict[str, Any]:
    """Everybody leaves at one instant and comes back at another, again and again; one of them never does."""
    times = sorted(rng.sample([k / 2 for k in range(1, 60)], 10))
    lines = ["client,on_s,off_s", *(f"{k},0,{times[0]}" for k in range(count))]
    for on, off in zip(times[1::2], times[2::2], strict=False):
        lines += [f"{k},{on},{off}" for k in range(1, count)]
    lines += [f"{k},{times[-1]},10000" for k in range(1, count)]
    name = f"departures-{rng.randrange(10**9)}.csv"
    (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return {"kind": "trace", "path": name}


World = Callable[[int, int, Path], dict[str, Any]]
"""Gives the tables of the world of a seed and a number; files that it reads go to the folder."""


def checked(seed: int, number: int, draw: World = world) -> dict[str, str]:
    """Return the verdict on the world of that number: `kind` good, refused (nothing to run), or what failed."""
    here = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="swarm-") as scratch, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        warnings.simplefilter("error", RuntimeWarning)
        folder = Path(scratch)
        shutil.copytree(INPUTS, folder, dirs_exist_ok=True)
        os.chdir(folder)
        try:
            tables = draw(seed, number, folder)
            return _checked(tables, folder, Random(f"{seed}/{number}/round"))
        except UserError as error:
            return {"kind": "refused", "about": str(error)[:200]}
        except Exception as error:
            return {"kind": "failed", "about": f"{type(error).__name__}: {str(error)[:300]}"}
        finally:
            os.chdir(here)


def _checked(tables: dict[str, Any], folder: Path, rng: Random) -> dict[str, str]:
    scenario = parse(tables)
    rounds: list[int] = []

    def note(simulation: Simulation) -> None:
        rounds.append(simulation.server.round)
        # A world in which rounds need nobody may go on for long.
        assert simulation.clock.now < 1e15

    first = run(scenario, folder / "first", after_round=note)
    run(scenario, folder / "second")
    wrong = different(folder / "first", folder / "second")
    if wrong:
        return {"kind": "replay differs", "about": wrong}
    if not first["books"]["balanced"]:
        return {"kind": "books", "about": "; ".join(first["books"]["problems"])}
    if wrong := unsound(folder / "first"):
        return {"kind": "unsound", "about": wrong}
    if found := ledger.problems(ledger.ledger_of(folder / "first", scenario.model_dump(exclude_none=True, by_alias=True))):
        return {"kind": "ledger", "about": "; ".join(found)[:2000]}
    if len(rounds) < 2:
        return {"kind": "good", "about": f"{tables['server'].get('kind', 'synchronous')}, {len(rounds)} rounds"}
    stop = rng.choice(rounds[:-1])

    def interrupt(simulation: Simulation) -> None:
        if simulation.server.round == stop:
            raise KeyboardInterrupt

    run(scenario, folder / "third", after_round=interrupt)
    go_on(folder / "third")
    if wrong := different(folder / "first", folder / "third"):
        return {"kind": "resume differs", "about": f"after round {stop}: {wrong}"}
    return {"kind": "good", "about": f"{tables['server'].get('kind', 'synchronous')}, {len(rounds)} rounds"}


def different(first: Path, second: Path) -> str:
    """The tables that are not the same bytes in two folders of runs; empty: there are none."""
    names = sorted({file.name for place in (first, second) for file in place.glob("*.parquet")})
    unlike = [name for name in names if not _same(first / name, second / name)]
    return " ".join(unlike)


def _same(first: Path, second: Path) -> bool:
    return first.is_file() and second.is_file() and first.read_bytes() == second.read_bytes()


def unsound(folder: Path) -> str:
    """What no table of a run may hold: NaN and infinite numbers, and steps out of order; empty: nothing is wrong."""
    for file in sorted(folder.glob("*.parquet")):
        content = pq.read_table(file)
        for name in content.column_names:
            values = content[name].drop_null()
            numbers = values.to_numpy() if str(values.type) in ("double", "float") else np.zeros(0)
            if np.isnan(numbers).any() or (np.isinf(numbers).any() and name not in _MAY_BE_INFINITE):
                return f"{file.name}: {name} holds {numbers[~np.isfinite(numbers)][0]}"
    rounds = pq.read_table(folder / "rounds.parquet").to_pandas()
    if not (rounds["end_s"] >= rounds["start_s"]).all() or not (rounds["start_s"].diff().dropna() >= 0).all():
        return "rounds.parquet: times go back"
    if not (folder / "clients.parquet").is_file():
        return ""
    attempts = pq.read_table(folder / "clients.parquet").to_pandas()
    steps = [name for name in ("selected_s", *_STEPS, "outcome_s") if name in attempts]
    if "started_round" in attempts:
        # A phase is recorded in the attempt in which it ends, which may have begun after it.
        attempts.loc[attempts["started_round"] < attempts["round"], "selected_s"] = np.nan
    for row in attempts[steps].to_numpy():
        reached = row[~np.isnan(row)]
        if (np.diff(reached) < 0).any():
            return f"clients.parquet: {dict(zip(steps, row.tolist(), strict=True))}"
    return ""


def results(seed: int, numbers: list[int], draw: World = world) -> Iterable[tuple[int, dict[str, str]]]:
    """Return the verdicts on the worlds of these numbers."""
    return answered(partial(checked, seed, draw=draw), numbers, limit_s=LIMIT_S)


def campaign(name: str, draw: World) -> int:
    """Run the campaign of the command line, and return how many worlds went wrong."""
    given = options(name)
    if given.show is not None:
        with tempfile.TemporaryDirectory() as scratch:
            say(tomli_w.dumps(draw(given.seed, given.show, Path(scratch))))
        return 0
    found = gather(given, partial(results, given.seed, draw=draw))
    wrong = {number: result for number, result in found.items() if result["kind"] not in GOOD}
    for number, result in sorted(wrong.items()):
        say(f"{number}: {result['kind']}: {result['about']}")
    servers = [result["about"].partition(",")[0] for result in found.values() if result["kind"] == "good"]
    table((result["kind"] for result in found.values()), f"{len(found)} worlds")
    table(servers, "servers of the good ones")
    return len(wrong)


if __name__ == "__main__":
    sys.exit(1 if campaign("swarm", world) else 0)
