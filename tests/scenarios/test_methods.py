"""Every cell of the table in docs/methods.md: the policy selects under that server and its state goes on, or it is refused."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pytest

from scenarios.registry.kinds import BUILT_IN
from scenarios.runs.reading import parse
from scenarios.schema.errors import UserError
from scenarios.wiring.simulation import build
from tests.helpers.random_worlds import built, taken_up
from tests.helpers.rough_scenarios import COMPASS, EXAMPLES, OTHERS, TRAINED
from tests.helpers.suites import each_nth

PAGE = Path(__file__).parents[2] / "docs" / "methods.md"
SLOTS: dict[str, Any] = {
    "slots": {"rounds": 2},
    "opinions": {"synthetic": {"worth": {"from": 0.4, "to": 0.9}, "own": 0.2, "noise": 0.02}},
}
SERVERS: dict[str, dict[str, Any]] = {
    "synchronous": {"server": {"per_round": 3, "when_short": "proceed", "deadline_s": 1.6}},
    "semi-synchronous": {"server": {"kind": "semi-synchronous", "per_round": 3, "round_s": 1.0}},
    "buffered": {"server": {"kind": "buffered", "concurrency": 4, "buffer": 2}},
    "fl-fa": {"server": {"kind": "fl-fa", "per_round": 3}, **SLOTS},
    "fl-da": {
        "server": {"kind": "fl-da", "per_round": 3},
        "peers": {"topology": {"kind": "complete"}, "delay": {"kind": "constant", "value_s": 0.001}},
        **SLOTS,
    },
}
LEARNER: dict[str, Any] = {
    "data": {"kind": "digits", "samples": 100},
    "network": {"kind": "linear"},
    "optimizer": {"kind": "sgd", "learning_rate": 0.1},
    "max_steps": 2,
}


def _table() -> list[tuple[str, str, bool]]:
    page = PAGE.read_text(encoding="utf-8").splitlines()
    first = next(number for number, line in enumerate(page) if line.startswith("|"))
    lines = list(itertools.takewhile(lambda line: line.startswith("|"), page[first:]))
    heads = [re.sub(r"`", "", cell).strip() for cell in lines[0].strip("|").split("|")][3:]
    cells = []
    for line in lines[2:]:
        kind, _, _, *answers = (cell.strip() for cell in line.strip("|").split("|"))
        assert set(answers) <= {"yes", "no"}, line
        cells += [(kind.strip("`"), server, answer == "yes") for server, answer in zip(heads, answers, strict=True)]
    return cells


CELLS = _table()


def test_the_table_has_every_policy_and_every_server_that_selects() -> None:
    assert {kind for kind, _, _ in CELLS} == set(BUILT_IN["policy"])
    assert {server for _, server, _ in CELLS} == set(SERVERS)


def _tables(kind: str, server: str) -> dict[str, Any]:
    policy = {"kind": kind} | (EXAMPLES["policy"] | OTHERS["policy"])[kind]
    tables: dict[str, Any] = {
        "name": "method",
        "rounds": 8,
        "clients": {"count": 9},
        "policy": policy,
        "downlink": {"delay": {"kind": "constant", "value_s": 0.02}},
        "compute": {"delay": {"kind": "shifted-exponential", "shift_s": 0.2, "mean_excess_s": 0.2}},
        "uplink": {
            "delay": {"kind": "shifted-exponential", "shift_s": 0.05, "mean_excess_s": 0.1},
            "channel": {"kind": "bernoulli", "success": 0.9},
        },
        **SERVERS[server],
    }
    if (kind, server) == ("all", "buffered"):
        tables["server"] = {**tables["server"], "concurrency": 9}  # all clients at work at once
    if kind in TRAINED:
        tables["learner"] = LEARNER
    if kind in ("power-of-choice", "fedcs", "refl", "tifl"):
        tables["probe"] = {"deadline_s": 0.5}
    return tables


@pytest.mark.each_nth(7)
@pytest.mark.parametrize(("kind", "server", "works"), each_nth(3, CELLS))
def test_a_cell_of_the_table(kind: str, server: str, works: bool) -> None:
    tables = _tables(kind, server)
    if not works:
        with pytest.raises(UserError, match=r"policy\.kind|^probe"):
            build(parse(tables))
        return

    records, _ = taken_up(lambda: built(tables), after=4)
    assert sum(row.delivered for row in records.rounds) > 0


@pytest.mark.parametrize("server", ["asynchronous", "safa", "compass"])
@pytest.mark.parametrize("kind", sorted(BUILT_IN["policy"]))
def test_where_everyone_takes_part_there_is_no_policy(kind: str, server: str) -> None:
    tables: dict[str, Any] = {
        "asynchronous": {"server": {"kind": "asynchronous"}, "channels": {"count": 9}, "scheduler": {"kind": "random"}},
        "safa": {"server": {"kind": "safa", "per_round": 3}},
        "compass": COMPASS,
    }[server]
    policy = {"kind": kind} | (EXAMPLES["policy"] | OTHERS["policy"])[kind]
    told = {
        "asynchronous": rf'policy = "{kind}": the asynchronous server selects nobody; leave it out, give \[scheduler\]',
    }.get(server, rf"policy\.kind = .{kind}.: server\.kind = .{server}. selects nobody: all clients take part; leave it out")
    with pytest.raises(UserError, match=told):
        parse({"name": "method", "rounds": 8, "clients": {"count": 9}, **tables, "policy": policy})
