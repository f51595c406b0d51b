"""Which kinds and choices of the scenario format the cases use, and which there are."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from tests.golden import adapter
from tests.golden.cases import case, names

Choice = tuple[str, str]
"""A key, by its own name alone, and one of its words: ("channel", "bernoulli"), ("stragglers", "cancel"), ("strict", "true")."""

ALIKE = {"test": "delay", "charging": "availability"}
"""Keys that hold the components of another key."""

LEFT_OUT: dict[Choice, str] = {
    ("device", "cuda"): "needs a GPU",
    ("download", "true"): "needs the network",
    ("precision", "bfloat16"): "differs between processors by far more than the tolerance",
}


@functools.cache
def offered() -> set[Choice]:
    """Every choice that the JSON Schema of a scenario file names: kinds of components, and words of other keys."""
    schema = adapter.schema()

    def words(node: dict[str, Any]) -> Iterator[str]:
        if "$ref" in node:
            node = schema["$defs"][node["$ref"].rsplit("/", 1)[-1]]
        for inner in (*node.get("anyOf", ()), *node.get("oneOf", ())):
            yield from words(inner)
        if node.get("type") == "boolean":
            yield from ("false", "true")
        # The word "none" beside other values leaves a key out; it is no choice of its own.
        const = None if node.get("const") == "none" else node.get("const")
        found = [const, *node.get("enum", ()), node.get("properties", {}).get("kind", {}).get("const")]
        yield from (word for word in found if isinstance(word, str))

    def choices(node: Any) -> Iterator[Choice]:
        if isinstance(node, list):
            for inner in node:
                yield from choices(inner)
        elif isinstance(node, dict):
            for key, inner in node.get("properties", {}).items():
                # A component's kind is told by the key that holds it; data sets that may be absent are replaced by made ones.
                yield from ((ALIKE.get(key, key), word) for word in words(inner) if key != "kind")
            for inner in node.values():
                yield from choices(inner)

    return set(choices(schema))


def used() -> set[Choice]:
    """Every choice that a variant of a case makes, defaults included."""

    def choices(key: str, value: Any) -> Iterator[Choice]:
        if isinstance(value, str):
            yield key, value
        elif isinstance(value, bool):
            yield key, str(value).lower()
        elif isinstance(value, list):
            for inner in value:
                yield from choices(key, inner)
        elif isinstance(value, dict):
            if "kind" in value:
                yield key, value["kind"]
            for name, inner in value.items():
                yield from choices(name, inner)

    found: set[Choice] = set()
    for name in names():
        for tables in case(name).variants.values():
            found.update(choices("", adapter.complete(tables)))
    return found
