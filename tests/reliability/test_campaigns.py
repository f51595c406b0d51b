"""The tools of the campaigns: mutants of the code in a branch of the process, and commands whose file operations fail."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import typer

from analysis.statistics.curves import last_value
from scenarios.cli.main import app
from tests.reliability.files import ATTACKS
from tests.reliability.traced import ROOT, functions, in_branch, replace

FILE = Path("analysis/statistics/curves.py")
CURVE = np.array([1.0, 2.0]), np.array([10.0, 20.0])


def test_a_function_is_changed_wherever_it_is_referred_to_but_in_a_branch_alone() -> None:
    text = (ROOT / FILE).read_text(encoding="utf-8")
    before, after = functions(text, FILE), functions(text.replace("values[-1]", "values[0]"), FILE)
    (name,) = [name for name in before if before[name].body != after[name].body]
    assert name == (str(FILE), "last_value", 0)

    def changed() -> int:
        replace(before[name], after[name])
        return int(last_value(CURVE))

    assert in_branch(changed) == 10
    assert last_value(CURVE) == 20.0


def test_defaults_are_changed_too() -> None:
    text = (ROOT / FILE).read_text(encoding="utf-8")
    before, after = functions(text, FILE), functions(text.replace("until: float = math.inf", "until: float = 1.5"), FILE)
    name = str(FILE), "last_value", 0
    assert before[name].body != after[name].body

    def changed() -> int:
        replace(before[name], after[name])
        return int(last_value(CURVE))

    assert in_branch(changed) == 10


def test_methods_and_all_that_ends_a_branch_are_told() -> None:
    clock = Path("netsim/core/clock.py")
    names = {name[1] for name in functions((ROOT / clock).read_text(encoding="utf-8"), clock)}
    assert {"Clock.__init__", "Clock.run_until"} <= names
    assert in_branch(lambda: 3) == 3
    assert in_branch(lambda: 1 // 0) == 1


def test_every_command_that_is_attacked_is_one() -> None:
    known = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    asked = {command[0] for attack in ATTACKS.values() for command in (attack.command, *attack.before, attack.further) if command}
    assert asked <= known
    assert {"run", "resume", "sweep", "report", "trace", "compare", "replay"} <= asked
