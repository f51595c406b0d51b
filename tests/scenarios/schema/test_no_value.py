"""One spelling for an optional key without a value, in files, `--set`, grids and Python, named where a value is refused."""

from __future__ import annotations

import re

import pytest

import netsim
from scenarios.cli.output import grids_of
from scenarios.runs.reading import parse, to_toml
from scenarios.schema.errors import UserError
from scenarios.schema.section import NO_VALUE
from scenarios.sweeps.plan import add_grid, plan
from tests.helpers.servers import scenario_of
from tests.helpers.small_scenario import small, small_tables


@pytest.mark.parametrize(
    "setting",
    ["server.deadline_s", "server.first", "time_limit_s", "privacy", "uplink.bandwidth_bytes_per_s", "script", "policy.detector"],
)
def test_none_is_the_key_left_out(setting: str) -> None:
    assert to_toml(small(f"{setting}={NO_VALUE}")) == to_toml(parse(without(setting)))


@pytest.mark.parametrize("table", ["slots", "belief", "gossip"])
def test_none_is_a_table_of_slots_left_out(table: str) -> None:
    tables = scenario_of("fl-da")
    tables.pop(table, None)
    assert to_toml(parse(tables | {table: NO_VALUE})) == to_toml(parse(tables))


def without(setting: str) -> dict:
    tables = small_tables()
    *above, last = setting.split(".")
    table = tables
    for key in above:
        table = table[key]
    table.pop(last, None)
    return tables


def test_a_word_none_of_a_key_keeps_its_meaning() -> None:
    assert small("privacy.mechanism=none").privacy.mechanism == "none"
    assert small("sweep.baseline=none").sweep.baseline == "none"


def test_a_grid_takes_none_among_numbers() -> None:
    grid = grids_of(["server.deadline_s=4,8,none"])
    planned = plan(add_grid(small_tables("sweep.variants=[]"), grid, None), "small.toml")
    assert [p.scenario.server.deadline_s for p in planned.first_runs] == [4, 8, None]
    assert planned.variants[-1] == "deadline_s=none"


@pytest.mark.parametrize("value", [None, "none"])
def test_none_in_python_is_a_variant_called_none(value: str | None) -> None:
    tables = add_grid(small_tables("sweep.variants=[]"), {"server.deadline_s": [4, value]}, None)
    planned = plan(tables, "small.toml")
    assert [p.scenario.server.deadline_s for p in planned.first_runs] == [4, None]
    assert planned.variants == ["deadline_s=4", "deadline_s=none"]
    assert netsim.load(small_tables(), {"server.deadline_s": value}).server.deadline_s is None


@pytest.mark.parametrize("value", ["no", "0", "[]"])
def test_the_refusal_of_an_optional_key_names_the_spelling(value: str) -> None:
    with pytest.raises(UserError, match=re.escape('server.deadline_s = ') + ".*" + re.escape(', or "none" to leave it out')):
        small(f"server.deadline_s={value}")


@pytest.mark.parametrize("setting", ["server.per_round=no", "rounds=none", "server.kind=no", "server.unknown=3", "name='a b'"])
def test_the_refusal_of_another_key_does_not(setting: str) -> None:
    with pytest.raises(UserError) as refused:
        small(setting)
    assert "none" not in str(refused.value).replace("= \"none\"", "")
