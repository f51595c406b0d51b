"""Warnings that name the line of a user's program from which netsim was called. Public functions of all folders warn by it."""

from __future__ import annotations

import sys
import warnings

_INNER = frozenset({"netsim", "models", "scenarios", "analysis", "contextlib", "functools"})
"""Packages of netsim, and modules whose frames stand between a decorated function of netsim and its caller."""


def warn_user(text: str) -> None:
    """Warn by a UserWarning, at the innermost line on the stack that is not one of netsim.

    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn_user("rounds = 1: is few")
    >>> [str(warning.message) for warning in caught]
    ['rounds = 1: is few']
    """
    # A fixed level would depend on the number of calls between the public function and this one, which differs by function.
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _INNER:
        level, frame = level + 1, frame.f_back
    warnings.warn(text, stacklevel=level)
