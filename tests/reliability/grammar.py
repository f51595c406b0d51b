"""Mutated scenarios: a scenario that is good, changed in places that the JSON Schema of scenario files names, and in others.

Every mutant is a function of a `random.Random`: of a seeded one in a campaign, of one that hypothesis controls in a test.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from copy import deepcopy
from random import Random
from typing import Any

from tests.golden.cases import case, names
from tests.helpers.whole_schema import whole_schema

Schema = dict[str, Any]
Place = tuple[Any, Any]
"""A table or list, and a key or position in it."""
LARGEST_COUNT = 150
"""Clients, sub-channels and sizes of groups of a mutant: a world that is only large is none of its business."""
NUMBERS = (
    0, 1, -1, 2, 3, 7, 100, 10**6, 10**9, 2**31, 2**53 + 1, 2**63 - 1, 10**18, -(2**63),
    0.0, -0.0, 0.5, 1.0, 1.5, -0.5, 1e-3, 1e-9, 1e-30, 1e-300, 5e-324, 0.9999999999999999,
    1e6, 1e9, 1e12, 1e30, 1e39, 1e200, 1e308, math.inf, -math.inf, math.nan,
)  # fmt: skip
WORDS = (
    "", " ", "none", "all", "a", "pause", "constant", "no.such:Thing", "os:getcwd", "x" * 300, "ä\u202e\n", "../..", "0", "nan",
)  # fmt: skip
FILES = ("presence.csv", "jams.csv", "states.csv", "durations.csv", "ring.txt", "phones.json", "nowhere.csv", ".", "/dev/null")


@functools.cache
def bases() -> list[dict[str, Any]]:
    """The good scenarios that mutants are made of: all variants of all cases of the guard of recorded tables, made small."""
    everything = [tables for name in names() for tables in case(name).variants.values()]
    return [tables for tables in everything if tables["clients"]["count"] <= LARGEST_COUNT]


def mutant(rng: Random) -> dict[str, Any]:
    """A scenario that is one to five changes away from a good one; the changes may be harmless."""
    tables = deepcopy(rng.choice(bases()))
    if rng.random() < 0.2:
        tables["sweep"] = instance(whole_schema()["properties"]["sweep"], rng)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 5))):
        change = rng.choices(CHANGES, WEIGHTS)[0]
        change(tables, rng)
    return _held(tables)


def _held(tables: dict[str, Any]) -> dict[str, Any]:
    """The same with few rounds and a world of moderate size: what is only large takes long and shows nothing."""
    rounds = tables.get("rounds")
    if type(rounds) is int and rounds > 4:
        tables["rounds"] = 4
    for table, key in (("clients", "count"), ("channels", "count")):
        section = tables.get(table)
        if isinstance(section, dict) and type(section.get(key)) is int:
            section[key] = min(section[key], LARGEST_COUNT)
    learner = tables.get("learner")
    network = learner.get("network") if isinstance(learner, dict) else None
    for key in ("hidden", "channels"):
        if isinstance(network, dict) and isinstance(network.get(key), list):
            # What no memory holds stays: it is refused.
            network[key] = [LARGEST_COUNT if type(one) is int and 10**3 < one < 10**8 else one for one in network[key]]
    return tables


def resolved(part: Schema) -> Schema:
    """`part`, or what it refers to."""
    while "$ref" in part:
        part = whole_schema()["$defs"][part["$ref"].rpartition("/")[2]]
    return part


def alternatives(part: Schema) -> list[Schema]:
    """The schemas of which one must hold."""
    part = resolved(part)
    if "anyOf" in part and "properties" in part:
        # A table whose alternatives say only which of its keys have to be there.
        required = part.get("required", [])
        rest = {key: value for key, value in part.items() if key != "anyOf"}
        return [rest | {"required": [*required, *choice.get("required", [])]} for choice in part["anyOf"]]
    if "anyOf" in part:
        return [one for choice in part["anyOf"] for one in alternatives(choice)]
    return [part]


def below(parts: list[Schema], value: Any, key: Any) -> list[Schema]:
    """The schemas of what `value`, to which one of `parts` applies, has at `key`."""
    found = []
    for part in parts:
        properties = part.get("properties", {})
        kind = properties.get("kind", {}).get("const")
        if isinstance(value, dict) and kind is not None and value.get("kind", kind) != kind:
            continue
        if isinstance(value, dict) and key in properties:
            found += alternatives(properties[key])
        elif isinstance(value, dict) and isinstance(part.get("additionalProperties"), dict):
            found += alternatives(part["additionalProperties"])
        elif isinstance(value, list) and isinstance(part.get("items"), dict):
            found += alternatives(part["items"])
    return found


def places(value: Any, parts: list[Schema]) -> Iterator[tuple[Place, list[Schema]]]:
    """All places in `value`, whatever lies there, each with its schemas."""
    if not isinstance(value, dict | list):
        return
    keys = list(value) if isinstance(value, dict) else range(len(value))
    for key in keys:
        under = below(parts, value, key)
        yield (value, key), under
        yield from places(value[key], under)


def instance(part: Schema, rng: Random, depth: int = 0) -> Any:
    """A value that `part` allows, at its limits more often than not; what sections check between their keys may refuse it."""
    part = rng.choice(alternatives(part))
    if "const" in part:
        return part["const"]
    if "enum" in part:
        return rng.choice(part["enum"])
    if rng.random() < 0.15 and part.get("default") is not None:
        return deepcopy(part["default"])
    kind = part.get("type")
    if kind == "object" or "properties" in part:
        return _table(part, rng, depth)
    if kind == "array":
        count = rng.choice((part.get("minItems", 0), 1, 2, 3, part.get("maxItems", 6)))
        return [instance(part.get("items", {}), rng, depth + 1) for _ in range(min(count, 20))]
    if kind in ("integer", "number"):
        return _number(part, rng)
    if kind == "boolean":
        return rng.random() < 0.5
    if kind == "string":
        return _word(part, rng)
    return None if kind == "null" else alien(rng)


def _table(part: Schema, rng: Random, depth: int) -> dict[str, Any]:
    required = part.get("required", [])
    chance = 0.3 / (1 + depth)
    made = {
        name: instance(inner, rng, depth + 1)
        for name, inner in part.get("properties", {}).items()
        if name in required or rng.random() < chance
    }
    if isinstance(part.get("additionalProperties"), dict):
        for name in rng.sample(("fast", "slow", "all", "a", "b", "mean_s", "value_s", "policy.kind"), rng.randrange(3)):
            made[name] = instance(part["additionalProperties"], rng, depth + 1)
    return {key: value for key, value in made.items() if value is not None}


def _number(part: Schema, rng: Random) -> int | float:
    low = part.get("minimum", part.get("exclusiveMinimum", 0))
    high = part.get("maximum", part.get("exclusiveMaximum", 1e308 if part["type"] == "number" else 10**18))
    if part["type"] == "integer":
        small = min(low + rng.randrange(6), int(high))
        return rng.choice((low, small, small, small, int(high), min(low + 1000, int(high))))
    if high <= 1:
        return rng.choice((low, high, rng.uniform(low, high), 1e-12, 1 - 1e-12, 0.5))
    usual = (rng.random(), 10.0 ** rng.uniform(-3, 3), 10.0 ** rng.uniform(-12, 12))
    return rng.choice((low, 0.0, *usual, high, 5e-324, 1e-200, 1e-9))


def _word(part: Schema, rng: Random) -> str:
    if ":" in part.get("pattern", ""):
        return rng.choice(("no.such:Thing", "tests.golden.made_data:grey", "tests.golden.scripts:nothing", "os:getcwd"))
    return rng.choice((*WORDS, *FILES, "fast", "slow", "delay.value_s", "channel.success", "delay.mean_s", "delay.mean_excess_s"))


def alien(rng: Random) -> Any:
    """A value of whatever kind."""
    return rng.choice(
        (
            rng.choice(NUMBERS),
            rng.choice(NUMBERS),
            rng.choice(NUMBERS),
            rng.choice(WORDS),
            rng.choice(FILES),
            rng.random() < 0.5,
            [],
            {},
            [rng.choice(NUMBERS) for _ in range(rng.randrange(1, 8))],
            [[0, 1], [1, 0]],
            {"kind": rng.choice(WORDS)},
            {"from": rng.choice(NUMBERS), "to": rng.choice(NUMBERS)},
            {"by_group": {"all": rng.choice(NUMBERS)}},
        )
    )


def _some_place(tables: dict[str, Any], rng: Random) -> tuple[Place, list[Schema]]:
    # Places differ in how many lie below one table; those near the top would hardly be met.
    found = [place for place in places(tables, [whole_schema()]) if place[0][1] != "name"]
    return rng.choice(found)


def _set_from_schema(tables: dict[str, Any], rng: Random) -> None:
    (table, key), parts = _some_place(tables, rng)
    table[key] = instance({"anyOf": parts}, rng) if parts else alien(rng)
    if table[key] is None:
        del table[key]


def _set_alien(tables: dict[str, Any], rng: Random) -> None:
    (table, key), _ = _some_place(tables, rng)
    table[key] = alien(rng)


def _scale(tables: dict[str, Any], rng: Random) -> None:
    found = [place for place, _ in places(tables, [whole_schema()]) if type(place[0][place[1]]) in (int, float)]
    if found:
        table, key = rng.choice(found)
        factor = rng.choice((0, -1, 2, 10, 1000, 1e-3, 1e-6, 1e-12, 1e6, 1e12, 1e100))
        try:
            value = table[key] * factor
            table[key] = int(value) if type(table[key]) is int and abs(value) < 2**63 else value
        except (OverflowError, ValueError):
            table[key] = math.inf


def _add(tables: dict[str, Any], rng: Random) -> None:
    """A key that the schema knows and the scenario does not give; half of the time at the top."""
    holders: list[tuple[dict[str, Any], list[Schema]]] = [(tables, [whole_schema()])]
    if rng.random() < 0.6:
        found = [(place[0][place[1]], parts) for place, parts in places(tables, [whole_schema()])]
        holders += [(inside, parts) for inside, parts in found if isinstance(inside, dict)]
    absent = []
    for table, parts in holders:
        for part in parts:
            kind = part.get("properties", {}).get("kind", {}).get("const")
            if kind is None or table.get("kind", kind) == kind:
                absent += [(table, name, inner) for name, inner in part.get("properties", {}).items() if name not in table]
    if absent:
        table, name, inner = rng.choice(absent)
        table[name] = instance(inner, rng)
        if table[name] is None:
            del table[name]


def _add_alien(tables: dict[str, Any], rng: Random) -> None:
    (table, key), _ = _some_place(tables, rng)
    inside = table[key]
    if isinstance(inside, dict):
        inside[rng.choice(WORDS) or "unknown"] = alien(rng)
    elif isinstance(inside, list):
        inside.append(alien(rng))


def _remove(tables: dict[str, Any], rng: Random) -> None:
    (table, key), _ = _some_place(tables, rng)
    del table[key]


def _repeat(tables: dict[str, Any], rng: Random) -> None:
    found = [place[0][place[1]] for place, _ in places(tables, [whole_schema()]) if isinstance(place[0][place[1]], list)]
    if found:
        entries = rng.choice(found)
        if entries:
            entries.insert(rng.randrange(len(entries) + 1), deepcopy(rng.choice(entries)))


def _cross(tables: dict[str, Any], rng: Random) -> None:
    """A table of another scenario."""
    other = rng.choice(bases())
    name = rng.choice([key for key in other if key != "name"])
    tables[name] = deepcopy(other[name])


def _exchange(tables: dict[str, Any], rng: Random) -> None:
    (first, one), _ = _some_place(tables, rng)
    (second, two), _ = _some_place(tables, rng)
    first_value, second_value = deepcopy(first[one]), deepcopy(second[two])
    first[one], second[two] = second_value, first_value


CHANGES: tuple[Callable[[dict[str, Any], Random], None], ...] = (
    _set_from_schema, _set_alien, _scale, _add, _add_alien, _remove, _repeat, _cross, _exchange,
)  # fmt: skip
WEIGHTS = (6, 3, 4, 6, 1, 1, 1, 3, 1)
