"""Mutation score: how many small changes of the code the tests notice, of a random sample of all that mutmut knows.

python -m tests.reliability.mutation SEED COUNT --keep FILE

One process collects the tests and finds out which of them call which functions, and for how long they take. For each mutant it
branches off a process, in which the code object of the changed function is replaced wherever that function is referred to; the
tests that call it run one after the other, the quickest first, until one fails. A mutant is killed where a test fails, or takes
much longer than without the change. One that is not run by any test, as what only imports execute, counts as one that survived.
"""

from __future__ import annotations

import functools
import os
import resource
import signal
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import libcst
import pytest
from mutmut.mutation.file_mutation import create_mutations, deep_replace

from tests.reliability.campaign import gather, options, say, table
from tests.reliability.traced import ROOT, Function, Traced, functions, in_branch, passes, remembered, replace

BUDGET_S = 60.0
"""Seconds of tests a mutant; what these do not notice counts as survived."""
SUITE = ("tests/netsim", "tests/golden/test_golden.py", "tests/reliability/test_machine.py", "tests/reliability/test_swarm.py")
STATISTICS = ("tests/analysis/statistics", "tests/analysis/metrics/test_targets.py", "tests/analysis/test_gathering.py")
MEMORY = 6 * 2**30


def sources() -> list[Path]:
    """The files that are mutated, from the root of the project."""
    folders = (ROOT / "netsim", ROOT / "analysis" / "statistics")
    return [path.relative_to(ROOT) for folder in folders for path in sorted(folder.rglob("*.py"))]


@functools.cache
def mutations(path: Path) -> tuple[libcst.Module, list[Any]]:
    """A file, and what mutmut would change in it: each change a pair of nodes."""
    module, found, _, _ = create_mutations(str(path), (ROOT / path).read_text(encoding="utf-8"))
    # Annotations are never evaluated here; what changes in them is no change of the program.
    return module, [one for one in found if isinstance(one.contained_by_top_level_function, libcst.FunctionDef)]


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


def verdict(path: Path, number: int, items: list[pytest.Item], known: Traced) -> dict[str, str]:
    """What the tests say of a mutant: killed, slow (killed by the limit), survived, or untested."""
    about = told(path, number)
    before = functions((ROOT / path).read_text(encoding="utf-8"), path)
    after = functions(mutated(path, number), path)
    changed = [name for name in before if before[name].body != after[name].body]
    if len(changed) != 1:
        return {"kind": "untested", "about": f"{about} (not in a function)"}
    (name,) = changed
    chosen = sorted((item for item in items if name in known[item.nodeid].called), key=lambda item: known[item.nodeid].seconds)
    if not chosen:
        return {"kind": "untested", "about": about}
    code = in_branch(partial(_judged, before[name], after[name], chosen, known))
    if code == 0:
        return {"kind": "survived", "about": f"{about} ({len(chosen)} tests)"}
    return {"kind": "killed" if code == 1 else "slow", "about": about}


def _judged(before: Function, after: Function, chosen: list[pytest.Item], known: Traced) -> int:
    """Within the process of a mutant: 1 where a test fails, 0 where none does."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    replace(before, after)
    left_s = BUDGET_S
    for item, following in zip(chosen, [*chosen[1:], None], strict=True):
        left_s -= known[item.nodeid].seconds
        if left_s < 0.0:
            break
        # The process ends by the signal where a test does not.
        signal.signal(signal.SIGVTALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_VIRTUAL, 10.0 + 10.0 * known[item.nodeid].seconds)
        if not passes(item, following):
            return 1
    return 0


class Judge:
    """A plugin of pytest that judges mutants in place of running the tests once."""

    def __init__(self, given: Any) -> None:
        self._given = given
        self.found: dict[int, Any] = {}

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """In place of pytest's own loop."""
        say(f"{len(session.items)} tests")
        kept = self._given.keep and self._given.keep.with_suffix(".traced")
        known = remembered(kept, session.items, [ROOT / path for path in sources()])
        items = [item for item in session.items if known[item.nodeid].passed]
        say(f"{len(items)} of them pass in {sum(known[item.nodeid].seconds for item in items):.0f} s")
        chosen = sample(self._given.seed, self._given.first + self._given.count)
        self.found = gather(self._given, partial(self._results, chosen, items, known))
        return True

    @staticmethod
    def _results(
        chosen: tuple[tuple[Path, int], ...], items: list[pytest.Item], known: Traced, numbers: list[int]
    ) -> Iterable[tuple[int, dict[str, str]]]:
        for number in numbers:
            yield number, verdict(*chosen[number], items, known)


def interval(part: int, whole: int) -> tuple[float, float]:
    """Clopper and Pearson's interval at 95 % of a share."""
    from scipy.stats import binomtest

    found = binomtest(part, whole).proportion_ci(0.95, "exact")
    return float(found.low), float(found.high)


def campaign() -> None:
    """A sample, and the share of it that is killed."""
    given = options("mutation")
    os.chdir(ROOT)
    judge = Judge(given)
    sys.dont_write_bytecode = True
    pytest.main(["-q", "-p", "no:cacheprovider", "--no-header", *SUITE, *STATISTICS], plugins=[judge])
    found = judge.found
    for number, result in sorted(found.items()):
        if result["kind"] in ("survived", "untested"):
            say(f"{number}: {result['kind']}: {result['about']}")
    killed = sum(result["kind"] in ("killed", "slow") for result in found.values())
    low, high = interval(killed, len(found))
    table((result["kind"] for result in found.values()), f"{len(found)} mutants")
    say(f"killed {killed / len(found):.1%}, 95 % interval {low:.1%} to {high:.1%}")


if __name__ == "__main__":
    campaign()
