"""Suggestions for unknown names in error messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return a remedy for an unknown name: the nearest known one, or all of them. `otherwise`: a further remedy.

    >>> did_you_mean("pose", ["pause"], "name a class")
    "did you mean 'pause'? Or name a class"
    """
    names = sorted(known)
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if near:
        return f"did you mean {near[0]!r}?" + (f" Or {otherwise}" if otherwise else "")
    return (f"known: {', '.join(names)}" if names else "there are none") + (f", or {otherwise}" if otherwise else "")
