"""Conversion of the annotations of a constructor's arguments to types of keys that a scenario file can hold."""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
import types
import typing
from collections import abc
from datetime import date, datetime, time
from typing import Annotated, Any, Literal, NewType, Union, get_args, get_origin

import numpy as np
from annotated_doc import Doc
from pydantic import Strict

from scenarios.schema.per_client import PerClientField

_SCALARS = (bool, int, float, str, datetime, date, time, type(None))
_LISTS = (list, abc.Sequence, abc.MutableSequence, abc.Collection, abc.Iterable)
_TABLES = (dict, abc.Mapping, abc.MutableMapping)
REMEDY = (
    "annotate it as a number, a string, true or false, a list or a table of such, or as models.laws.delays.PerClient, "
    "a number that may differ between clients"
)


class HintError(Exception):
    """Error: an annotation that no key can have. The text has the reason and the remedy."""


def annotation_of(target: object, name: str) -> Any:
    """Return the annotation of one argument of a class's constructor or of a function, `Any` without one; `Annotated` stays.

    Other arguments are not evaluated: they may name types that are imported for type checkers only. Raises HintError.
    """
    annotation, names = _stated_annotation(target, name)
    try:
        holder = types.SimpleNamespace(__annotations__={name: annotation})
        return _resolve_type_parameter(target, typing.get_type_hints(holder, names, include_extras=True)[name])
    except Exception as error:  # evaluating a user's annotation may raise anything
        reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        raise HintError(f"is annotated {_hint_text(annotation)}, which cannot be read ({reason}); {REMEDY}") from error


def _resolve_type_parameter(target: object, hint: object) -> object:
    """Return the type that `target` gives a type parameter of its generic parent; return other annotations unchanged."""
    if not isinstance(hint, typing.TypeVar):
        return hint
    for parent in getattr(target, "__mro__", ()):
        for base in getattr(parent, "__orig_bases__", ()):
            arguments = dict(zip(getattr(get_origin(base), "__parameters__", ()), get_args(base), strict=False))
            if arguments.get(hint, hint) is not hint:
                return arguments[hint]
    return hint


def _stated_annotation(target: Any, name: str) -> tuple[Any, dict[str, Any]]:
    """Return an argument's annotation as written, and the global names of the module in which it is written."""
    if is_parameter_set(target):
        # The generated constructor of a dataclass knows only the names of its own module, but a field may come from its parent.
        owner = next(parent for parent in target.__mro__ if name in vars(parent).get("__annotations__", {}))
        return vars(owner)["__annotations__"][name], vars(sys.modules[owner.__module__])
    called = inspect.unwrap(target.__init__ if inspect.isclass(target) else target)
    return getattr(called, "__annotations__", {}).get(name, Any), getattr(called, "__globals__", {})


def is_parameter_set(hint: object) -> bool:
    """Return True if an annotation is a set of parameters: a frozen dataclass with keyword-only fields."""
    if not (isinstance(hint, type) and dataclasses.is_dataclass(hint) and hint.__dataclass_params__.frozen):  # type: ignore[attr-defined]
        return False
    return all(field.kw_only for field in dataclasses.fields(hint))


def meaning_of(target: object, name: str) -> str | None:
    """Return the text that describes an argument, from its annotation `Annotated[type, Doc("text")]`; None without one."""
    try:
        hint = annotation_of(target, name)
    except HintError:  # a nested component: its annotation names a type that is imported for type checkers only
        return None
    while sys.version_info >= (3, 12) and isinstance(hint, typing.TypeAliasType):
        hint = hint.__value__
    texts = [entry.documentation for entry in getattr(hint, "__metadata__", ()) if isinstance(entry, Doc)]
    return texts[0] if texts else None


def key_type(hint: object, *, per_client: bool) -> Any:
    """Return the type of the key for an argument with the annotation `hint`; raises HintError if no key can have it.

    `per_client`: True if the group's parameters may differ between clients, so that an array is a number for each client.
    """
    hint = _unwrap(hint)
    options = _options(hint)
    if not any(_is_array(option) for option in options):
        return _file_type(hint)
    if not per_client:
        raise HintError(f"is annotated {_hint_text(hint)}, but nothing here differs between clients; annotate it as list[float]")
    if float not in options:
        raise HintError(f"is annotated {_hint_text(hint)}, which a file cannot hold; {REMEDY}")
    others = [_file_type(option) for option in options if option not in (int, float) and not _is_array(option)]
    return Union[(PerClientField, *others)]


def takes_per_client(hint: object) -> bool:
    """Return True if an argument with this annotation takes a number or an array with one number a client."""
    options = _options(_unwrap(hint))
    return float in options and any(_is_array(option) for option in options)


def _unwrap(hint: object) -> object:
    """Return a hint without the wrappers around it: a `type` statement, a NewType, Annotated."""
    while True:
        if sys.version_info >= (3, 12) and isinstance(hint, typing.TypeAliasType):
            hint = hint.__value__
        elif isinstance(hint, NewType):
            hint = hint.__supertype__
        elif get_origin(hint) is Annotated:
            hint = get_args(hint)[0]
        else:
            return hint


def _options(hint: object) -> list[Any]:
    """Return the members of a union, those of unions within it too; any other hint alone."""
    if get_origin(hint) not in (Union, types.UnionType):
        return [hint]
    options = []
    for member in get_args(hint):
        options += _options(_unwrap(member))
    return options


def _is_array(hint: object) -> bool:
    """Return True for the annotation of a NumPy array."""
    return hint is np.ndarray or get_origin(hint) is np.ndarray


def _file_type(hint: object) -> object:
    """Return the type by which pydantic checks a file's value for `hint`, apart from arrays; raises HintError."""
    hint = _unwrap(hint)
    origin, args = get_origin(hint) or hint, get_args(hint)
    if hint in (Any, object, inspect.Parameter.empty):
        return Any
    # Compare by identity: NumPy data types equal Python types, but a file cannot hold them.
    if any(hint is scalar for scalar in (*_SCALARS, None)):
        return hint
    if origin in (Union, types.UnionType):
        return Union[tuple(_file_type(option) for option in args)]  # noqa: UP007 (made of a list)
    if origin is Literal and all(isinstance(value, str | int | None) for value in args):
        return hint
    # Not strict: a file has lists for tuples, too, and a default may be a tuple for a list.
    if origin in _LISTS:
        return Annotated[list[_file_type(args[0]) if args else Any], Strict(False)]  # type: ignore[misc]
    if origin is tuple:
        members = tuple(arg if arg is Ellipsis else _file_type(arg) for arg in args) or (Any, ...)
        return Annotated[tuple[members], Strict(False)]  # type: ignore[valid-type]
    if origin in _TABLES and (not args or _unwrap(args[0]) in (str, Any)):
        return dict[str, _file_type(args[1]) if args else Any]  # type: ignore[misc]
    raise HintError(f"is annotated {_hint_text(hint)}, which a file cannot hold; {REMEDY}")


def _hint_text(hint: object) -> str:
    """Return an annotation as text for messages."""
    if isinstance(hint, str):
        return repr(hint)
    if isinstance(hint, type) and not get_args(hint):
        return hint.__name__
    # An evaluated NDArray[...] has a long text: shorten it.
    return re.sub(r"numpy\.ndarray\[.*?numpy\.dtype\[(?:numpy\.)?(.*?)\]\]", r"NDArray[\1]", str(hint)).replace("typing.", "")
