"""Scenario files: what is read is what is written back, overrides, and the JSON Schema against the files that come along."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scenarios.registry.components import GIANT, component_model
from scenarios.registry.kinds import BUILT_IN
from scenarios.runs.reading import FOLDER, load, override, parse, parse_value, read_file, shipped_files, to_toml
from tests.helpers.small_scenario import small, small_tables
from tests.helpers.whole_schema import whole_reference, whole_schema

FILES = shipped_files()


@pytest.mark.each_nth(3)
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_shipped_scenario_survives_being_written_out(file):
    scenario = load(file)
    assert parse(tomllib.loads(to_toml(scenario))) == scenario


def test_a_table_that_is_written_out_begins_with_its_kind():
    tables = tomllib.loads(to_toml(load(next(FOLDER.rglob("quickstart.toml")))))
    assert next(iter(tables["learner"]["optimizer"])) == "kind"
    assert next(iter(tables["policy"])) == "kind"


def test_what_is_written_out_has_the_defaults_filled_in():
    tables = tomllib.loads(to_toml(small()))
    assert tables["policy"] == {
        "kind": "pause",
        "alpha": 100.0,
        "beta": 2.0,
        "gamma": 5.0,
        "zeta": 1.0,
        "unexplored": "energy",
        "tau_min_s": 0.05,
    }
    assert tables["server"]["stragglers"] == "finish"
    assert tables["uplink"]["delay"]["mean_s"] == {"by_group": {"fast": {"from": 0.05, "to": 0.2}, "slow": 0.7}}
    assert tables["downlink"]["delay"] == {"kind": "constant", "value_s": 0.0}
    assert "time_limit_s" not in tables


NUMBERS = st.floats(0.0, 1e6)
PER_CLIENT = st.one_of(
    NUMBERS,
    st.integers(0, 10),
    st.fixed_dictionaries({"from": NUMBERS, "to": NUMBERS}),
    st.fixed_dictionaries(
        {"by_group": st.fixed_dictionaries({"a": NUMBERS, "b": st.fixed_dictionaries({"from": NUMBERS, "to": NUMBERS})})}
    ),
    st.lists(NUMBERS, min_size=1, max_size=4),
)
DELAYS = st.one_of(
    st.fixed_dictionaries({"kind": st.just("constant"), "value_s": PER_CLIENT}),
    st.fixed_dictionaries(
        {"kind": st.just("gaussian"), "mean_s": PER_CLIENT, "std_s": PER_CLIENT},
        optional={"floor_s": PER_CLIENT, "floor": st.sampled_from(["clip", "resample"])},
    ),
    st.fixed_dictionaries({"kind": st.just("empirical"), "values_s": st.lists(NUMBERS, min_size=1, max_size=3)}),
    st.fixed_dictionaries(
        {
            "kind": st.just("by-group"),
            "groups": st.dictionaries(
                st.sampled_from("ab"), st.fixed_dictionaries({"kind": st.just("constant"), "value_s": PER_CLIENT}), min_size=1
            ),
        }
    ),
)
CHANGES = st.fixed_dictionaries(
    {"at_round": st.integers(2, 9)},
    optional={"clients": st.one_of(st.just("a"), st.lists(st.integers(0, 9), min_size=1))},
).flatmap(lambda table: st.just({**table, "delay": {"value_s": 1.5, "floor": "clip"}}))
LINKS = st.fixed_dictionaries(
    {},
    optional={
        "delay": DELAYS,
        "changes": st.lists(CHANGES, max_size=2),
        "bandwidth_bytes_per_s": PER_CLIENT,
        "channel": st.one_of(
            st.just({"kind": "perfect"}), st.fixed_dictionaries({"kind": st.just("bernoulli"), "success": PER_CLIENT})
        ),
        "random_changes": st.fixed_dictionaries(
            {"count": st.integers(1, 5), "parameter": st.just("delay.value_s")}, optional={"horizon": st.floats(1.0, 100.0)}
        ),
    },
)
VALUES = st.one_of(st.booleans(), st.integers(-(2**63), 2**63 - 1), NUMBERS, st.text(max_size=5), st.lists(NUMBERS, max_size=2))
SCENARIOS = st.fixed_dictionaries(
    {
        "name": st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.+=-]{0,9}", fullmatch=True),
        "rounds": st.integers(1, 10**12),
        "clients": st.fixed_dictionaries({"count": st.integers(5, 10_000)}, optional={"data_sizes": PER_CLIENT}),
        "server": st.fixed_dictionaries(
            {"per_round": st.integers(1, 5)},
            optional={"deadline_s": st.floats(0.1, 10.0), "reselect_busy": st.booleans()},
        ),
        "policy": st.one_of(
            st.just({"kind": "random"}),
            st.fixed_dictionaries(
                {"kind": st.just("sa-pause")}, optional={"alpha": NUMBERS, "steps": st.integers(-GIANT, GIANT)}
            ),
        ),
    },
    optional={
        "description": st.text(max_size=20),
        "seed": st.integers(0, 2**63 - 1),
        "time_limit_s": st.floats(0.1, 1e9),
        "payload": st.fixed_dictionaries({"down_bytes": PER_CLIENT, "up_bytes": st.integers(0, 10**9)}),
        "uplink": LINKS,
        "downlink": LINKS,
        "metrics": st.just({"reward": {"kind": "pause-reward", "beta": 3}}),
        "sweep": st.fixed_dictionaries(
            {},
            optional={
                "seeds": st.lists(st.integers(0, 99), min_size=1, max_size=3),
                "grid": st.dictionaries(st.sampled_from(["policy.alpha", "x.y"]), st.lists(VALUES, min_size=1, max_size=3)),
                "variants": st.lists(
                    st.fixed_dictionaries({"name": st.just("v"), "set": st.dictionaries(st.just("policy.kind"), VALUES)}),
                    max_size=2,
                ),
            },
        ),
    },
)


@settings(max_examples=12)
@given(SCENARIOS)
def test_any_scenario_survives_being_written_out_and_fits_the_json_schema(tables):
    scenario = parse(tables)
    written = to_toml(scenario)
    assert parse(tomllib.loads(written)) == scenario
    assert to_toml(parse(tomllib.loads(written))) == written
    assert list(faults(tables, whole_schema())) == []
    assert list(faults(tomllib.loads(written), whole_schema())) == []


def test_overrides_reach_every_depth():
    tables = small_tables(
        "server.per_round=3",
        "uplink.delay.std_s={from=0.1,to=0.2}",
        "uplink.changes.0.delay.mean_s=2.5",
        "clients.groups.1={name='slow',count=3}",
        "description=two words",
        "server.reselect_busy=true",
        "uplink.channel.success = 0.5",
    )
    assert tables["server"] == {"per_round": 3, "reselect_busy": True}
    assert tables["uplink"]["delay"]["std_s"] == {"from": 0.1, "to": 0.2}
    assert tables["uplink"]["changes"][0] == {"at_round": 3, "clients": "fast", "delay": {"mean_s": 2.5}}
    assert tables["clients"]["groups"][1] == {"name": "slow", "count": 3}
    assert tables["description"] == "two words"
    assert tables["uplink"]["channel"] == {"kind": "bernoulli", "success": 0.5}


def test_an_override_leaves_what_it_was_given_alone():
    tables = small_tables()
    override(tables, {"uplink.changes.0.delay.mean_s": 9.0, "new.table.key": 1})
    assert tables == small_tables()


def test_another_kind_drops_the_other_keys_and_the_same_kind_keeps_them():
    assert small_tables("policy.alpha=1", "policy.kind=random")["policy"] == {"kind": "random"}
    assert small_tables("policy.alpha=1", "policy.kind=pause")["policy"] == {"kind": "pause", "alpha": 1}
    # In the order in which they are given, even where a key comes twice.
    assert small_tables("policy.alpha=1", "policy.kind=sa-pause", "policy.alpha=2")["policy"] == {"kind": "sa-pause", "alpha": 2}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("10", 10),
        ("1e3", 1000.0),
        ("true", True),
        ("pause", "pause"),
        ("'3'", "3"),
        ("[1, 2]", [1, 2]),
        ("{a = 1}", {"a": 1}),
        ("", ""),
    ],
)
def test_a_value_is_toml_or_else_a_word(text, value):
    assert parse_value(text) == value
    assert type(parse_value(text)) is type(value)


def test_a_name_finds_a_shipped_scenario_but_a_file_of_that_name_goes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shipped = tomllib.loads((FOLDER / "examples" / "quickstart.toml").read_text(encoding="utf-8"))
    assert read_file("quickstart") == read_file("quickstart.toml") == shipped
    (tmp_path / "quickstart").mkdir()
    assert read_file("quickstart") == shipped
    (tmp_path / "quickstart.toml").write_text("mine = 1", encoding="utf-8")
    assert read_file("quickstart.toml") == {"mine": 1}


TYPES = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "null": type(None),
}
KEYWORDS = {
    *("type", "anyOf", "$ref", "$defs", "$schema", "properties", "required", "additionalProperties", "items", "enum", "const"),
    *("pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minItems", "maxItems", "minLength", "maxLength"),
    *("description", "title", "default", "$comment"),
}


def faults(value: Any, schema: dict[str, Any], place: str = "") -> list[str]:
    """Where `value` does not fit `schema`, for the keywords that occur in it; any other keyword is a fault of the schema."""
    found = [f"{place}: keyword {key}" for key in schema if key not in KEYWORDS]
    if "$ref" in schema:
        found += faults(value, whole_schema()["$defs"][schema["$ref"].removeprefix("#/$defs/")], place)
    if "anyOf" in schema:
        options = [faults(value, option, place) for option in schema["anyOf"]]
        found += [] if [] in options else min(options, key=len)
    kind = schema.get("type")
    if kind and (not isinstance(value, TYPES[kind]) or (isinstance(value, bool) and kind in ("integer", "number"))):
        return [*found, f"{place} = {value!r}: is no {kind}"]
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{place} = {value!r}: is none of {schema['enum']}")
    if "const" in schema and value != schema["const"]:
        found.append(f"{place} = {value!r}: is not {schema['const']}")
    if isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
        found.append(f"{place} = {value!r}: does not match")
    if isinstance(value, str) and not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
        found.append(f"{place} = {value!r}: has {len(value)} characters")
    if isinstance(value, int | float) and not isinstance(value, bool):
        inside = value >= schema.get("minimum", value) and value <= schema.get("maximum", value)
        if not (inside and value > schema.get("exclusiveMinimum", -1e400) and value < schema.get("exclusiveMaximum", 1e400)):
            found.append(f"{place} = {value!r}: out of bounds")
    if isinstance(value, list):
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            found.append(f"{place}: has {len(value)} entries")
        for i, entry in enumerate(value):
            found += faults(entry, schema.get("items", {}), f"{place}.{i}")
    if isinstance(value, dict):
        found += [f"{place}.{key}: is missing" for key in schema.get("required", ()) if key not in value]
        for key, entry in value.items():
            rest = schema.get("additionalProperties", True)
            if key in schema.get("properties", {}):
                found += faults(entry, schema["properties"][key], f"{place}.{key}")
            elif isinstance(rest, dict):
                found += faults(entry, rest, f"{place}.{key}")
            elif not rest:
                found.append(f"{place}.{key}: is unknown")
    return found


@pytest.mark.each_nth(3)
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_shipped_scenario_fits_the_json_schema(file):
    tables = read_file(file)
    assert faults(tables, whole_schema()) == []
    assert faults(tomllib.loads(to_toml(parse(tables))), whole_schema()) == []


@pytest.mark.parametrize(
    ("setting", "place"),
    [
        ("rund=3", ".rund: is unknown"),
        ("rounds=x", ".rounds = 'x': is no integer"),
        ("server.per_round=0", ".server.per_round = 0: out of bounds"),
        ("policy.alpa=3", ".policy.alpa: is unknown"),
        ("policy.kind=pose", ".policy.kind = 'pose'"),
        ("uplink.delay.mean_s={form=1,to=2}", ".uplink.delay.mean_s"),
        ("uplink.delay={kind='by-group',groups={fast={kind='by-group',groups={}}}}", ".uplink.delay.groups.fast.kind"),
        ("clients.groups.0.share=2.0", ".clients.groups.0.share = 2.0: out of bounds"),
    ],
)
def test_the_json_schema_finds_mistakes(setting, place):
    assert any(fault.startswith(place) for fault in faults(small_tables(setting), whole_schema()))


def test_every_key_says_what_it_means():
    def silent(schema: Any, place: str) -> list[str]:
        if isinstance(schema, list):
            return [name for entry in schema for name in silent(entry, place)]
        if not isinstance(schema, dict):
            return []
        keys = schema.get("properties", {})
        referred = {key: shared.get(field.get("$ref", "").removeprefix("#/$defs/"), {}) for key, field in keys.items()}
        found = [
            f"{place}.{key}"
            for key, field in keys.items()
            if "const" not in field and not field.get("description") and not referred[key].get("description")
        ]
        return found + [name for key, value in schema.items() if key != "default" for name in silent(value, f"{place}.{key}")]

    shared = whole_schema()["$defs"]
    assert silent(whole_schema(), "") == []


def test_the_reference_shows_every_kind_and_every_key():
    page = whole_reference()
    for group, kinds in BUILT_IN.items():
        assert f"## Kinds of {group}" in page
        section = page.split(f"\n## Kinds of {group}\n")[1].split("\n## ")[0]
        for kind in kinds:
            table = section.split(f"\n### `{kind}`\n")[1].split("\n### ")[0]
            for key in component_model(group, kind).model_fields:
                assert key == "kind" or f"| `{key}` |" in table, (group, kind, key)
    for name in ("Clients", "Change", "RandomChanges", "Sweep", "Variant"):
        assert f"\n## {name}\n" in page
    assert "`[[downlink.changes]]`, `[[compute.changes]]`, `[[uplink.changes]]`" in page
    assert "| `mean_s` | [per client](#values-per-client) | required |" in page
    assert not re.search(r"anyOf|additionalProperties|NoneType|typing", page)


def test_the_reference_says_what_the_specification_wants_said():
    page = " ".join(whole_reference().split())
    assert "voids the condition of PAUSE's Theorem 4" in page
    assert "The papers' policies know no censoring: they take it as the client's latency." in page


def test_json_schema_is_plain_json():
    assert json.loads(json.dumps(whole_schema())) == whole_schema()
    assert whole_schema()["$schema"] == "https://json-schema.org/draft/2020-12/schema"
