"""Protocols of jammers, and the view that a jammer has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from netsim.core.protocols import BoolArray, IntArray, Stateful


@dataclass(frozen=True, slots=True)
class JamView:
    """View of a jammer as a dwell begins. Counts are of the time since its last dwell began."""

    dwell: int
    """Dwells count from 1."""
    time_s: float
    reach: IntArray
    """(r,) the sub-channels it can jam, ascending."""
    allowed: int
    """Number of sub-channels that it may jam in this dwell, by its budget."""
    used: IntArray
    """(N,) transmissions begun on each sub-channel."""
    delivered: IntArray
    """(N,) updates delivered over each sub-channel."""
    busy: BoolArray
    """(N,) whether a transmission is under way right now."""
    rng: np.random.Generator
    """The jammer's own stream of this dwell; not to be kept."""


class JammerLaw(Stateful, Protocol):
    """Decides what to jam next."""

    def choose(self, view: JamView) -> IntArray:
        """Distinct sub-channels out of `view.reach`, at most `view.allowed`; may be empty."""
