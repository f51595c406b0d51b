"""Errors and warnings about a parameter, or about a component's answer, with its name, the value, and the reason.

Engine and models share them; components import them from `models.errors`. A user's own class raises them, too; a plain ValueError
works, but then no message can name the key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self


class AboutParameter(Exception):  # noqa: N818 (warnings are made of it, too)
    """Base class of errors and warnings about one parameter."""

    def __init__(self, name: str, value: object, reason: str, *, shown: str | None = None) -> None:
        """Store the parts of the message.

        `name`: the keyword of the constructor. `reason`: the allowed values, or the remedy. `shown`: the text between name and
        reason if it is not " = " and the value, as in "size has shape (3,): must be (4,)".
        """
        super().__init__(name, value, reason)
        self.name = name
        self.value = value
        self.reason = reason
        self.shown = f" = {value!r}" if shown is None else shown

    def rename(self, name: str) -> Self:
        """Return the same error about a parameter of another name, such as the path of a key in a file."""
        return type(self)(name, self.value, self.reason, shown=self.shown)

    def __str__(self) -> str:
        return f"{self.name}{self.shown}: {self.reason}"


class ParameterError(AboutParameter, ValueError):
    """Error: a value that a parameter cannot have."""


class ParameterWarning(AboutParameter, UserWarning):
    """Warning: a value that a parameter can have, but that is hardly intended."""


def check_unique(names: Sequence[str]) -> None:
    """Raise ParameterError, with the place before the name of its parameter, for the first of `names` that stands twice."""
    for place, name in enumerate(names):
        if name in names[:place]:
            raise ParameterError(f"{place}.name", name, "is used twice; give each a name of its own")


class AnswerError(ValueError):
    """Error: a component, which may be a user's own, returned an unusable answer."""

    def __init__(self, role: str, method: str, returned: object, reason: str, *, name: str | None = None) -> None:
        """Store the parts of the message.

        `role`: key of a scenario that names the component. `name`: name of the component among several.
        """
        super().__init__(role, method, returned, reason)
        self.role = role
        self.method = method
        self.returned = returned
        self.reason = reason
        self.name = name

    @property
    def without_role(self) -> str:
        """Message without the name of the component."""
        return f"{self.method} returned {self.returned!r}; {self.reason}"

    def __str__(self) -> str:
        return f"{self.role}{'' if self.name is None else f' {self.name!r}'}: {self.without_role}"
