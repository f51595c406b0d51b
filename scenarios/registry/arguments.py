"""Arguments of constructors as keys of a section.

Each argument is a key. An argument that takes a set of parameters gives a key for each field of the set. A set of parameters is a
frozen dataclass with keyword-only fields, which several components share (as the solvers of PAUSE share theirs).
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from scenarios.registry.hints import HintError, annotation_of, is_parameter_set


@dataclass(frozen=True)
class Argument:
    """Argument of a constructor that is one key of a section."""

    owner: Any
    """Class or function that takes the argument: the component, or a set of parameters."""
    parameter: inspect.Parameter
    holder: str | None = None
    """Argument of the component that takes the set of parameters; None for an argument of the component itself."""

    @property
    def default(self) -> Any:
        """Default value; `...` if the argument is required."""
        return ... if self.parameter.default is self.parameter.empty else self.parameter.default


@cache
def arguments_of(target: Any) -> tuple[tuple[str, Argument], ...]:
    """Return pairs of name and argument of a component's constructor, in order. A set of parameters is replaced by its fields."""
    arguments: list[tuple[str, Argument]] = []
    for name, parameter in inspect.signature(target).parameters.items():
        set_class = _parameter_set(target, name)
        if set_class is None:
            arguments.append((name, Argument(target, parameter)))
        else:
            fields = inspect.signature(set_class).parameters.items()
            arguments.extend((field, Argument(set_class, field_parameter, name)) for field, field_parameter in fields)
    return tuple(arguments)


@cache
def argument_names(target: Any) -> frozenset[str]:
    """Return the names of all arguments of a constructor or function. Cached, because reading a signature is slow."""
    return frozenset(inspect.signature(target).parameters)


def gather_keywords(target: object, keywords: Mapping[str, object]) -> dict[str, Any]:
    """Return the keywords of a component's constructor: keys of a set of parameters become an object of that set.

    Raises the errors of the constructors of the sets.
    """
    holders = {name: argument.holder for name, argument in arguments_of(target)}
    own = {name: value for name, value in keywords.items() if holders.get(name) is None}
    for holder in dict.fromkeys(name for name in holders.values() if name is not None):
        fields = {name: value for name, value in keywords.items() if holders.get(name) == holder}
        set_class = _parameter_set(target, holder)
        assert set_class is not None
        own[holder] = set_class(**fields)
    return own


def _parameter_set(target: object, name: str) -> Any:
    """Return the class of the set of parameters that an argument takes; None if it takes none."""
    try:
        hint = annotation_of(target, name)
    except HintError:  # an argument that the builder supplies, whose type is imported for type checkers only
        return None
    return hint if is_parameter_set(hint) else None
