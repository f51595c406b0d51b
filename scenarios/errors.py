"""A user's mistake: one message that names the key, the value and the remedy; the command line ends with exit code 2."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Something the user can mend. The text is complete: it is shown as it is."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A remedy for an unknown name: the nearest known one, or all of them."""
    names = sorted(known)
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"known: {', '.join(names)}"
