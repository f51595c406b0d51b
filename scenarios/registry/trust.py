"""Trust in foreign code: a scenario that names a user's class is a program."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from scenarios.schema.errors import UserError

_FORBIDDEN: ContextVar[bool] = ContextVar("_FORBIDDEN", default=False)
"""True while foreign code is forbidden."""


@contextmanager
def forbid_own_code(forbidden: bool = True) -> Iterator[None]:
    """Within the block, forbid to import components other than netsim's; with `forbidden` False allow it."""
    before = _FORBIDDEN.set(forbidden)
    try:
        yield
    finally:
        _FORBIDDEN.reset(before)


def own_code_forbidden() -> bool:
    """Return True within `forbid_own_code`: only netsim's own components may be imported."""
    return _FORBIDDEN.get()


def refuse_own_code(place: str) -> None:
    """Raise UserError if foreign code is forbidden now. `place`: address of the code, for the message."""
    if own_code_forbidden():
        raise UserError(
            f"{place!r} is code that is not netsim's, and --no-import forbids to import it; read it, and leave the option out if "
            "you trust it"
        )
