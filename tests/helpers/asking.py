"""Policies that ask clients for their loss before they select."""

from __future__ import annotations

from typing import Any

import numpy as np

from netsim.core.protocols import RoundView
from tests.helpers.small_worlds import Script


class Asking(Script):
    """Asks and selects as written out."""

    probes = True

    def __init__(self, *, rounds: list[list[int]], asked: list[list[int]]) -> None:
        super().__init__(rounds=rounds)
        self._asked = asked
        self.asking: list[RoundView] = []

    def probe(self, view: RoundView) -> Any:
        self.asking.append(view)
        return np.array(self._asked[view.round - 1], np.int64)


class AskingMembers(Asking):
    """Asks and selects those of the clients written out that are members of its edge."""

    def probe(self, view: RoundView) -> Any:
        asked = super().probe(view)
        return asked[view.selectable[asked]]

    def select(self, view: RoundView) -> Any:
        selected = np.asarray(super().select(view), np.int64)
        return selected[view.selectable[selected]]


class Again(Script):
    """Asks as written out, all in the first round, one list after the other; selects as written out."""

    probes = asks_again = True

    def __init__(self, *, rounds: list[list[int]], asked: list[list[int]]) -> None:
        super().__init__(rounds=rounds)
        self._left = [np.array(clients, np.int64) for clients in asked]

    def probe(self, view: RoundView) -> Any:
        return self._left.pop(0) if self._left else np.zeros(0, np.int64)


class Highest(Script):
    """Asks two at random and takes the one that told the higher loss."""

    probes = True

    def __init__(self) -> None:
        super().__init__(rounds=[])
        self.told: list[Any] = []

    def probe(self, view: RoundView) -> Any:
        able = np.flatnonzero(view.selectable)
        return view.rng.choice(able, min(2, len(able)), replace=False)

    def select(self, view: RoundView) -> Any:
        self.told.append(view.probed)
        there = view.probed.answered & view.selectable[view.probed.clients]
        if not there.any():
            return np.flatnonzero(view.selectable)[:1]
        return view.probed.clients[there][[int(np.argmax(view.probed.loss[there]))]]


class Told(Script):
    """Selects as written out, and wants the losses of training."""

    needs_losses = True
