"""What a class's docstring says of one argument of its constructor."""

from __future__ import annotations

import re


def without_raises(doc: str) -> str:
    """A docstring up to its section on exceptions."""
    return re.split(r"\n\s*(?:Raises|Returns):\n", doc)[0].strip()


def knob_meaning(doc: str, name: str) -> str | None:
    """The clauses of a docstring that speak of the argument, in backticks; None if there are none."""
    text = " ".join(doc.split())
    # A sentence ends before a capital letter or a backtick; so "eq. 19" and "i.e. the" go on.
    sentences = re.split(r"(?<=[.!?])\s+(?=[A-Z`\"])", text)
    found = [sentence for sentence in sentences if f"`{name}`" in sentence]
    return " ".join(found) or None
