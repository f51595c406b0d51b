"""Trust in foreign code: a scenario that names a user's class is a program."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from scenarios.schema.errors import UserError

_REFUSED: ContextVar[bool] = ContextVar("_REFUSED", default=False)


@contextmanager
def forbid_own_code(refused: bool = True) -> Iterator[None]:
    """Forbid components other than netsim's within the block (`refused` False: allow them)."""
    before = _REFUSED.set(refused)
    try:
        yield
    finally:
        _REFUSED.reset(before)


def own_code_refused() -> bool:
    """Return True if only netsim's own components may be named here."""
    return _REFUSED.get()


def refuse_own_code(place: str) -> None:
    """Raise UserError where `place`, code that is not netsim's, may not be imported."""
    if own_code_refused():
        raise UserError(
            f"{place!r} is code that is not netsim's, and --no-import forbids to import it; read it, and leave the option out if "
            "you trust it"
        )
