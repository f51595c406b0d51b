"""SIGKILL at random moments, over all kinds of servers and over sweeps: what is resumed has the bytes of what was never killed.

python -m tests.reliability.kills SEED COUNT
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from scenarios.registry.kinds import known_names
from scenarios.runs.folders.replacement import read_ending
from scenarios.runs.reading import parse
from scenarios.runs.run import go_on, run
from scenarios.schema.errors import UserError
from scenarios.schema.servers.kinds import KINDS
from scenarios.sweeps.options import Earlier, Machines
from scenarios.sweeps.plan import plan
from scenarios.sweeps.sweep import sweep
from tests.golden.cases import INPUTS
from tests.reliability.campaign import gather, options, say, table
from tests.reliability.grammar import bases
from tests.reliability.swarm import different

ROUNDS = 400
SWEEPS = 0.15
"""Share of the victims that are sweeps."""
KEPT_S = 0.02
"""Wall time between two checkpoints: many of them, so that many kills come while one is written."""


def victim(rng: Random) -> dict[str, Any]:
    """A scenario of a kind of server drawn alike of all, without a learner, long enough to be killed in its midst."""
    # Scenarios of Flower apps have no server, and cannot be resumed.
    served = [one for one in bases() if "server" in one]
    kind = rng.choice(sorted(KINDS.keys() & {one["server"].get("kind", "synchronous") for one in served}))
    alike = [one for one in served if one["server"].get("kind", "synchronous") == kind and "learner" not in one]
    alike = [one for one in alike if "script" not in one and one.get("policy", {}).get("kind") in (None, *known_names("policy"))]
    # A recording of states is as long as it is.
    alike = [one for one in alike if one.get("channels", {}).get("states", {}).get("kind") != "file"]
    return {**rng.choice(alike), "rounds": 12 if kind == "fl-da" else ROUNDS, "seed": rng.randrange(1000)}


def killed(seed: int, number: int) -> dict[str, str]:
    """What came of one victim: `kind` resumed, ended (before the kill came), begun again, or what is wrong."""
    rng, here = Random(f"{seed}/{number}"), Path.cwd()
    with tempfile.TemporaryDirectory(prefix="kills-") as scratch:
        folder = Path(scratch)
        shutil.copytree(INPUTS, folder, dirs_exist_ok=True)
        os.chdir(folder)
        try:
            return _killed_sweep(rng, folder) if rng.random() < SWEEPS else _killed_run(rng, folder)
        except UserError as error:
            return {"kind": "refused", "about": str(error)[:300]}
        except Exception as error:
            return {"kind": "failed", "about": f"{type(error).__name__}: {str(error)[:300]}"}
        finally:
            os.chdir(here)


def _killed_run(rng: Random, folder: Path) -> dict[str, str]:
    scenario = parse(victim(rng))
    kind = scenario.server.kind
    took_s = _branch(lambda: run(scenario, folder / "whole", checkpoint_s=KEPT_S))
    if took_s is None:
        return {"kind": "failed", "about": f"{kind}: the run that was not killed"}
    cut = folder / "cut"
    ended_before = _branch(lambda: run(scenario, cut, checkpoint_s=KEPT_S), rng.uniform(0.0, took_s)) is not None
    times = 1
    while not ended_before and times < 3 and rng.random() < 0.3 and _can_go_on(cut):
        ended_before = _branch(lambda: go_on(cut, checkpoint_s=KEPT_S), rng.uniform(0.0, took_s)) is not None
        times += 1
    again = partial(run, scenario, cut, overwrite=True)
    return _compared(kind, folder / "whole", cut, times, resume=partial(go_on, cut), again=again)


def _killed_sweep(rng: Random, folder: Path) -> dict[str, str]:
    tables = victim(rng)
    tables["sweep"] = {"seeds": [1, 2, 3]}
    planned = plan(tables, "kills")
    took_s = _branch(lambda: sweep(planned, folder / "whole", machines=Machines(jobs=1)))
    if took_s is None:
        return {"kind": "failed", "about": "the sweep that was not killed"}
    cut = folder / "cut"
    _branch(lambda: sweep(planned, cut, machines=Machines(jobs=1)), rng.uniform(0.0, took_s))
    sweep(planned, cut, machines=Machines(jobs=1), earlier=Earlier(resume=cut.is_dir()))
    for whole in sorted((folder / "whole").rglob("rounds.parquet")):
        place = whole.parent.relative_to(folder / "whole")
        if wrong := different(whole.parent, cut / place):
            return {"kind": "differs", "about": f"sweep: {place}: {wrong}"}
    return {"kind": "resumed", "about": "sweep"}


def _can_go_on(folder: Path) -> bool:
    return folder.is_dir() and read_ending(folder) is None


def _compared(
    kind: str, whole: Path, cut: Path, times: int, *, resume: Callable[[], Any], again: Callable[[], Any]
) -> dict[str, str]:
    done = "ended"
    if not cut.is_dir() or read_ending(cut) is None:
        try:
            resume()
            done = "resumed"
        except UserError as error:
            # Killed before its first checkpoint: the message says to begin again.
            if (cut / "unfinished/checkpoint.npz").exists():
                return {"kind": "failed", "about": f"{kind}: {error}"}
            again()
            done = "begun again"
    wrong = different(whole, cut)
    return {"kind": "differs", "about": f"{kind}: {wrong}"} if wrong else {"kind": done, "about": f"{kind}, {times} kills"}


def _branch(work: Callable[[], Any], kill_after_s: float | None = None) -> float | None:
    """`work` in a process that branches off: the seconds that it took; None: it was killed, or failed."""
    started = time.monotonic()
    child = os.fork()
    if not child:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    while kill_after_s is None or time.monotonic() - started < kill_after_s:
        ended_child, status = os.waitpid(child, os.WNOHANG)
        if ended_child:
            return time.monotonic() - started if status == 0 else None
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def results(seed: int, numbers: list[int]) -> Iterable[tuple[int, dict[str, str]]]:
    """Of the victims of these numbers."""
    for number in numbers:
        yield number, killed(seed, number)


def campaign() -> int:
    """All of them; how many went wrong."""
    given = options("kills")
    found = gather(given, partial(results, given.seed))
    good = ("resumed", "ended", "begun again")
    wrong = {number: result for number, result in found.items() if result["kind"] not in good}
    for number, result in sorted(wrong.items()):
        say(f"{number}: {result['kind']}: {result['about']}")
    table((result["kind"] for result in found.values()), f"{len(found)} runs and sweeps")
    table((result["about"].partition(",")[0] for result in found.values()), "of")
    return len(wrong)


if __name__ == "__main__":
    sys.exit(1 if campaign() else 0)
