"""Trust in foreign code: a scenario that names a user's class is a program."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from scenarios.schema.errors import UserError

_REFUSED: ContextVar[bool] = ContextVar("_REFUSED", default=False)


@contextmanager
def forbid_own_code(refused: bool = True) -> Iterator[None]:
    """Context manager: forbid all components but netsim's (`refused` False: allow them)."""
    before = _REFUSED.set(refused)
    try:
        yield
    finally:
        _REFUSED.reset(before)


def own_code_refused() -> bool:
    """Return True within `forbid_own_code`: only netsim's own components may be imported."""
    return _REFUSED.get()


def refuse_own_code(place: str) -> None:
    """Raise UserError if foreign code is forbidden here. `place`: its address, for the message."""
    if own_code_refused():
        raise UserError(
            f"{place!r} is code that is not netsim's, and --no-import forbids to import it; read it, and leave the option out if "
            "you trust it"
        )
