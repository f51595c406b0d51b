"""What a class's docstring says of one argument of its constructor."""

from __future__ import annotations

import re

# A full stop that ends a sentence, and none of "eq. 19", "i.e. the", "I.i.d. samples".
_END = re.compile(r"(?<=[.!?])(?<!eq\.)(?<!i\.e\.)(?<!e\.g\.)(?<!i\.d\.)\s+")

UNSAID = {
    "alpha": "Weight of generalization.",
    "beta": "Exponent of eq. 8, > 1.",
    "gamma": "Weight of privacy.",
    "tau_min_s": "The least possible latency in seconds.",
    "floor_s": "The floor: no duration is shorter.",
    "floor": "What becomes of the mass below the floor.",
    "start": "Who is present at time 0.",
    "path": "The file to read.",
    "epsilons": "The budgets, in the order of participations.",
    "concentration": "Of the Dirichlet law: the smaller, the more unequal.",
    "minimum": "The fewest samples a client may hold.",
    "matcher": "Who gets which of the chosen sub-channels.",
    "spread": "even: segments of one length; drawn: breakpoints at random.",
    "unit": "What change points are in.",
    "delta": "Probability of a false alarm.",
    "drift": "Change of the mean that is tolerated.",
    "mu": "Weight of exploration.",
    "side_km": "Side of the square in which the clients stand.",
    "allow_disconnected": "Whether the graph may be in several pieces; otherwise that is refused.",
    "transmit_power_dbm": "Power of a client's sender.",
}
"""Knobs of built-in parts that their docstrings name without backticks, or in other words."""


def told_to_users(doc: str) -> str:
    """A docstring without what it says of exceptions, which a user of scenarios meets as messages."""
    doc = re.split(r"\n\s*(?:Raises|Returns):\n", doc)[0]
    return re.sub(r"\s*Raises ValueError\b.*?\.(?=\s|$)", "", doc, flags=re.DOTALL).strip()


def knob_meaning(doc: str, name: str) -> str | None:
    """The clauses of a docstring that speak of the argument, in backticks; None if there are none."""
    for sentence in _END.split(" ".join(doc.split())):
        clauses = re.split(r"[,;:] (?:and )?(?=`)", sentence)
        # "`a`, `b` weigh ...": a name alone shares the clause that follows.
        for i, clause in enumerate(clauses):
            if re.search(rf"`{name}[`\[]", clause):
                last = i
                while re.fullmatch(r"`\w+`", clauses[last]) and last + 1 < len(clauses):
                    last += 1
                first = i
                while first and re.fullmatch(r"`\w+`", clauses[first - 1]):
                    first -= 1
                return ", ".join(clauses[first : last + 1]).rstrip(".") + "."
    return None
