"""Classes with a name in this Python process only: those given to `netsim.register`, and classes that no file can name."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Mapping
from typing import Any

from scenarios.schema.errors import UserError

IN_MEMORY = "in_memory"
"""Pseudo-module of classes that cannot be imported: those of a notebook, a script, or a function."""
_OBJECTS: dict[str, Any] = {}
"""Each of these by its "in_memory:Name"."""
_REGISTERED: dict[str, dict[str, str]] = {}
"""Group -> name -> "module:Name"."""


def place_of(target: Any) -> str:
    """Return the "module:Name" of a class or function; for one that cannot be imported by it, "in_memory:Name", in this process
    only.
    """
    module, name = target.__module__, target.__qualname__
    loaded = sys.modules.get(module)
    # A module that was imported has a specification; one made by hand has none, and the script that runs is called __main__.
    named = loaded is not None and loaded.__spec__ is not None and module != "__main__"
    if named and vars(loaded).get(name) is target:
        return f"{module}:{name}"
    return place_of_object(re.sub(r"\W", "_", target.__name__), target)


def place_of_object(word: str, target: object) -> str:
    """Return "in_memory:word" for an object of this process, or word_2, word_3, ... if that is another one."""
    taken, number = f"{IN_MEMORY}:{word}", 1
    while _OBJECTS.setdefault(taken, target) is not target:
        number += 1
        taken = f"{IN_MEMORY}:{word}_{number}"
    return taken


def spell(group: str, kind: object) -> object:
    """Return a `kind` in the form that a scenario stores: "module:Name" for a class, function or registered name; raises
    UserError.
    """
    if isinstance(kind, str):
        return _REGISTERED.get(group, {}).get(kind, kind)
    if inspect.isclass(kind) or inspect.isfunction(kind):
        return place_of(kind)
    if type(kind).__module__ != "builtins":
        name = type(kind).__name__
        raise UserError(f'is an object; give its class, and its arguments as keys beside it: {{"kind": {name}, ...}}')
    return kind


def name_in_text(value: object) -> Any:
    """Return a copy of tables and lists, with classes and functions in them by their names."""
    if isinstance(value, Mapping):
        return {key: name_in_text(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [name_in_text(inner) for inner in value]
    return place_of(value) if inspect.isclass(value) or inspect.isfunction(value) else value


def registered_names(group: str) -> dict[str, str]:
    """Names that were registered in this process, and where their classes are."""
    return dict(_REGISTERED.get(group, {}))


def keep(group: str, name: str, target: object) -> None:
    """Register a class under a name, in place of an earlier one."""
    _REGISTERED.setdefault(group, {})[name] = place_of(target)


def find(place: str) -> Any:
    """Return the class or function behind an "in_memory:Name"; None for any other place."""
    return _OBJECTS.get(place)


def objects() -> dict[str, Any]:
    """Return the classes that cannot be imported, for `adopt` in another process."""
    return dict(_OBJECTS)


def adopt(given: Mapping[str, object]) -> None:
    """Know what another process knows."""
    _OBJECTS.update(given)


def refuse_unnamed(tables: object, path: str = "") -> None:
    """Raise UserError where the tables of a scenario name a class that no file can name."""
    items = tables.items() if isinstance(tables, Mapping) else enumerate(tables) if isinstance(tables, list | tuple) else ()
    for key, inner in items:
        here = f"{path}.{key}" if path else str(key)
        if isinstance(inner, str) and inner.startswith(f"{IN_MEMORY}:"):
            raise UserError(
                f"{here} = {inner.partition(':')[2]}: is of this Python process alone (of a notebook, a script or a "
                "function), which no scenario.toml can name; move it to a module, such as mine.py in this folder, and import it "
                "from there, or run in memory, without out"
            )
        refuse_unnamed(inner, here)
