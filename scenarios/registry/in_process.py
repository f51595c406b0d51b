"""Classes with a name in this Python process only: those given to `netsim.register`, and classes that no file can name."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from scenarios.schema.errors import UserError

IN_MEMORY = "in_memory"
"""Pseudo-module of classes that cannot be imported: those of a notebook, a script, or a function."""
_OBJECTS: dict[str, Any] = {}
"""Classes and other objects of this process, by "in_memory:Name"."""
_REGISTERED: dict[str, dict[str, str]] = {}
"""Group -> name -> "module:Name"."""


def place_of(target: Any) -> str:
    """Return the address of a class or function: "module:Name", or "in_memory:Name" if it cannot be imported.

    An object with an address "in_memory:Name" is kept, so that `find_object` finds it in this process.
    """
    module, name = target.__module__, target.__qualname__
    loaded = sys.modules.get(module)
    # An imported module has a specification. A module made by hand has none, and the running script is called __main__.
    importable = loaded is not None and loaded.__spec__ is not None and module != "__main__"
    if importable and vars(loaded).get(name) is target:
        return f"{module}:{name}"
    return place_of_object(re.sub(r"\W", "_", target.__name__), target)


def place_of_object(name: str, target: object) -> str:
    """Keep an object, and return its address "in_memory:NAME"; NAME_2, NAME_3, ... if another object has that name."""
    address, number = f"{IN_MEMORY}:{name}", 1
    while _OBJECTS.setdefault(address, target) is not target:
        number += 1
        address = f"{IN_MEMORY}:{name}_{number}"
    return address


def stored_kind(group: str, kind: object) -> object:
    """Return a `kind` as a scenario stores it: the address of a class, function or registered name, or a name as it is.

    Raises UserError for an object in place of its class.
    """
    if isinstance(kind, str):
        return _REGISTERED.get(group, {}).get(kind, kind)
    if inspect.isclass(kind) or inspect.isfunction(kind):
        return place_of(kind)
    if type(kind).__module__ != "builtins":
        name = type(kind).__name__
        raise UserError(f'is an object; give its class, and its arguments as keys beside it: {{"kind": {name}, ...}}')
    return kind


def replace_classes(value: object) -> Any:
    """Return a copy of tables and lists in which each class and function is replaced by its address."""
    if isinstance(value, Mapping):
        return {key: replace_classes(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [replace_classes(inner) for inner in value]
    if inspect.isclass(value) or inspect.isfunction(value):
        return place_of(value)
    return value


def registered_names(group: str) -> dict[str, str]:
    """Return the names of a group that were registered in this process, with the addresses of their classes."""
    return dict(_REGISTERED.get(group, {}))


def register_name(group: str, name: str, target: object) -> None:
    """Register a class under a name of its group, in place of an earlier one."""
    _REGISTERED.setdefault(group, {})[name] = place_of(target)


def find_object(place: str) -> Any:
    """Return the object at an address "in_memory:Name"; None for any other address."""
    return _OBJECTS.get(place)


def kept_objects() -> dict[str, Any]:
    """Return the objects that cannot be imported, by address, for `add_objects` in another process."""
    return dict(_OBJECTS)


def add_objects(others: Mapping[str, object]) -> None:
    """Add the `kept_objects` of another process to those of this one."""
    _OBJECTS.update(others)


def refuse_unnamed(tables: object, path: str = "") -> None:
    """Raise UserError if the tables of a scenario contain a class that cannot be imported, because no file can name it.

    `path`: path of `tables` in the scenario, for the message.
    """
    items: Iterable[tuple[Any, object]] = ()
    if isinstance(tables, Mapping):
        items = tables.items()
    elif isinstance(tables, list | tuple):
        items = enumerate(tables)
    for key, inner in items:
        key_path = f"{path}.{key}" if path else str(key)
        if isinstance(inner, str) and inner.startswith(f"{IN_MEMORY}:"):
            raise UserError(
                f"{key_path} = {inner.partition(':')[2]}: is of this Python process alone (of a notebook, a script or a "
                "function), which no scenario.toml can name; move it to a module, such as mine.py in this folder, and import it "
                "from there, or run in memory, without out"
            )
        refuse_unnamed(inner, key_path)
