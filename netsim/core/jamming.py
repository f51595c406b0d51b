"""Protocols of jammers, the view that a jammer has, and the sum of what jammers of different targets have done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from netsim.core.protocols import BoolArray, IntArray, Stateful, optional

ValueT = TypeVar("ValueT", bound=Any)
_JAMMING = ("jammed", "jam_dwells")
"""Columns of rounds that jammers of every target fill."""


@dataclass(frozen=True, slots=True)
class JamView:
    """View of a jammer as a dwell begins. Counts cover the time since its last dwell began."""

    dwell: int
    """Dwells count from 1."""
    time_s: float
    reach: IntArray
    """Sub-channels (r,) that it can jam, ascending."""
    allowed: int
    """Number of sub-channels that it may jam in this dwell, by its budget."""
    used: IntArray
    """Number of transmissions (N,) begun on each sub-channel."""
    delivered: IntArray
    """Number of updates (N,) delivered over each sub-channel."""
    busy: BoolArray
    """True (N,) for sub-channels with a transmission in flight now."""
    rng: np.random.Generator
    """The jammer's own stream of this dwell; not to be kept."""


class JammerLaw(Stateful, Protocol):
    """Decides which sub-channels to jam next."""

    def choose(self, view: JamView) -> IntArray:
        """Return distinct sub-channels out of `view.reach`, at most `view.allowed` of them; may be empty."""

    @optional
    def constant_choice(self, reach: IntArray, allowed: int) -> IntArray:
        """Return sub-channels of `reach` that `choose` returns in every dwell that allows `allowed` of them; by default none.

        A run of peers ends as a standstill if they wait for messages over links that are jammed at all times.
        """
        return reach[:0]


def add_jamming(counts: dict[str, ValueT], more: dict[str, ValueT]) -> dict[str, ValueT]:
    """Return `counts` and `more` in one. What jammers of different targets have done is added up.

    >>> add_jamming({"jammed": 2, "jam_dwells": 5}, {"jammed": 1, "messages": 4})
    {'jammed': 3, 'jam_dwells': 5, 'messages': 4}
    """
    sums = {name: counts[name] + more[name] for name in _JAMMING if name in counts and name in more}
    return counts | more | sums
