"""Errors about a parameter, or about a component's answer.

The classes about parameters are those of `models.errors`, which says why they are written in both packages.
"""

from __future__ import annotations

from typing import Self


class AboutParameter(Exception):  # noqa: N818 (warnings are made of it, too)
    """Common base of errors and warnings about one parameter."""

    def __init__(self, name: str, value: object, reason: str, *, shown: str | None = None) -> None:
        """Keep what is said.

        `name`: the keyword as its constructor knows it. `reason`: what is allowed, or what to do. `shown`: what follows the name
        in the message, where that is not " = " and the value, as in "size has shape (3,): must be (4,)".
        """
        super().__init__(name, value, reason)
        self.name = name
        self.value = value
        self.reason = reason
        self.shown = f" = {value!r}" if shown is None else shown

    def rename(self, name: str) -> Self:
        """The same of a parameter that goes by another name, such as the path of a key in a file."""
        return type(self)(name, self.value, self.reason, shown=self.shown)

    def __str__(self) -> str:
        return f"{self.name}{self.shown}: {self.reason}"


class ParameterError(AboutParameter, ValueError):
    """A value that a parameter cannot have."""


class ParameterWarning(AboutParameter, UserWarning):
    """A value that a parameter can have, and that is hardly meant."""


class AnswerError(ValueError):
    """A component, which may be a user's own, returned what the engine cannot use."""

    def __init__(self, role: str, method: str, returned: object, reason: str, *, name: str | None = None) -> None:
        """Keep what is said; `role`: policy, scheduler or jammer; `name`: which one, where there are several."""
        super().__init__(role, method, returned, reason)
        self.role = role
        self.method = method
        self.returned = returned
        self.reason = reason
        self.name = name

    @property
    def told(self) -> str:
        """The message without the component."""
        return f"{self.method} returned {self.returned!r}; {self.reason}"

    def __str__(self) -> str:
        return f"{self.role}{'' if self.name is None else f' {self.name!r}'}: {self.told}"
