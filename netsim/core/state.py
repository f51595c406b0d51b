"""Saved state as a list of fields: a class names its fields, and `StateFields` saves and restores them."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

State = dict[str, Any]
"""Plain data: numbers, strings, NumPy arrays, and lists and dicts of these.

`state_dict` returns a copy, which later rounds do not change. `load_state_dict` does not keep its argument.
"""


class StateFields:
    """Base of objects whose state is a list of fields.

    A class lists the fields that it adds to those of its bases in `state_fields`; a class without fields has an empty state.
    A field is plain data (numbers, words, arrays, and lists, tuples, sets and dicts of them), a component with a state of its
    own, or a list of such components. The state holds copies, under the names without leading underscores.

    Example:
        >>> class Means(StateFields):
        ...     state_fields = ("_sums",)
        ...     def __init__(self):
        ...         self._sums = [0.0, 0.0]
        >>> first, second = Means(), Means()
        >>> first._sums[1] = 3.0
        >>> second.load_state_dict(first.state_dict())
        >>> second.state_dict()
        {'sums': [0.0, 3.0]}
    """

    __slots__ = ()
    state_fields: ClassVar[tuple[str, ...]] = ()

    def state_dict(self) -> State:
        """Return a copy of the fields."""
        return save_fields(self, _fields_of(type(self)))

    def load_state_dict(self, state: State) -> None:
        """Restore the fields, then call `on_load`."""
        load_fields(self, _fields_of(type(self)), state)
        self.on_load()

    def on_load(self) -> None:
        """Callback that recomputes what follows from the restored fields."""


def save_fields(owner: object, names: Iterable[str]) -> State:
    """Return copies of these fields of `owner`, under their names without leading underscores."""
    return {name.lstrip("_"): _save_value(getattr(owner, name)) for name in names}


def load_fields(owner: object, names: Iterable[str], state: State) -> None:
    """Restore these fields of `owner` from what `save_fields` returned.

    Arrays that keep their shape are filled in place, because other objects may hold them.
    """
    # A component restores itself and stays the same object: others hold it, too.
    for name in names:
        present, saved = getattr(owner, name), state[name.lstrip("_")]
        restored = _restore_value(present, saved)
        if restored is not present:
            setattr(owner, name, restored)


def _fields_of(kind: type) -> list[str]:
    """Return the `state_fields` of a class and its bases, those of bases first."""
    fields: list[str] = []
    for base in reversed(kind.__mro__):
        # Only what the class itself lists: the attribute of a class without a list is that of its base.
        fields += base.__dict__.get("state_fields", ())
    return fields


def _save_value(value: object) -> object:
    """Return a copy of a field: the state of a component, of a list of components, or plain data."""
    if hasattr(value, "state_dict"):
        return value.state_dict()
    if isinstance(value, list | tuple) and value and hasattr(value[0], "state_dict"):
        return [part.state_dict() for part in value]
    return deepcopy(value)


def _restore_value(present: Any, saved: Any) -> object:
    """Return the field `present` with the value `saved`. Components, and arrays of equal shape, are changed in place."""
    if hasattr(present, "load_state_dict"):
        present.load_state_dict(saved)
        return present
    if isinstance(present, np.ndarray) and isinstance(saved, np.ndarray) and present.shape == saved.shape:
        present[...] = saved
        return present
    if isinstance(present, list | tuple) and present and hasattr(present[0], "load_state_dict"):
        for part, state in zip(present, saved, strict=True):
            part.load_state_dict(state)
        return present
    return deepcopy(saved)
