"""What differs between kinds of servers is said once, by the table of each kind: nobody else asks which kind it is."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest

from scenarios.runs.reading import override, parse
from scenarios.schema.errors import UserError
from scenarios.schema.servers.base import Server
from scenarios.schema.servers.kinds import KINDS, has_slots
from scenarios.wiring.servers.kinds import COMPOSERS
from tests.helpers.rough_scenarios import EXAMPLES, OTHERS
from tests.helpers.servers import SERVERS, scenario_of

ROOT = Path(__file__).parents[4]
_TESTED = re.compile(r"server\.kind\s*(?:==|!=|in\b|not in\b)")


def test_nobody_tests_which_server_it_is():
    files = [file for folder in ("scenarios", "netsim") for file in (ROOT / folder).rglob("*.py")]
    assert len(files) > 100
    lines = [(file.name, line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    # In quotes it is a message.
    assert not [(name, line) for name, line in lines if _TESTED.search(re.sub(r'"[^"]*"', "", line))]


def test_a_table_that_leaves_out_what_every_kind_must_say_is_none():
    with pytest.raises(TypeError, match=r"abstract methods check, shortest_round_s"):
        Server(kind="synchronous")


def test_every_kind_of_server_has_a_table_and_is_composed():
    assert set(KINDS) == set(COMPOSERS)
    for kind, table in KINDS.items():
        assert table.model_fields["kind"].default == kind
        assert not table.__abstractmethods__
        assert table.slotted == has_slots({"kind": kind})


def test_a_table_without_a_kind_has_no_slots():
    for table in ({}, None, {"kind": ["fl-fa"]}, {"kind": "fl-fb"}):
        assert not has_slots(table)


@pytest.mark.parametrize("kind", SERVERS)
def test_a_server_takes_or_refuses_each_policy(kind: str) -> None:
    taken = []
    for policy, keys in (EXAMPLES["policy"] | OTHERS["policy"]).items():
        with contextlib.suppress(UserError):
            parse(override(scenario_of(kind), {"policy": {"kind": policy, **keys}}))
            taken.append(policy)
    assert bool(taken) == ("policy" in SERVERS[kind])
