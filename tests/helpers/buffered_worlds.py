"""Three clients of a buffered server, by hand: who is selected, and a learner that keeps what it is given."""

from __future__ import annotations

from typing import Any

import numpy as np

from netsim.core.null_objects import NoLearner
from netsim.core.protocols import Deliveries, IntArray, RoundView
from tests.helpers.small_worlds import Script


class Lowest(Script):
    """The selectable client of the lowest number, one at a time."""

    def __init__(self) -> None:
        super().__init__(rounds=[])

    def select(self, view: RoundView) -> IntArray:
        self.seen.append(view)
        return np.flatnonzero(view.selectable)[:1]


class Noting(NoLearner):
    """Trains nothing, makes a version of every aggregation, and keeps what it was given."""

    aggregates = True

    def __init__(self) -> None:
        super().__init__()
        self.version = 0
        self.given: list[Deliveries] = []

    def aggregate(self, deliveries: Deliveries, want_updates: bool, want_losses: bool = False) -> None:
        self.version += 1
        self.given.append(deliveries)


def tables(**changes: Any) -> dict[str, Any]:
    return {
        "name": "buffered",
        "rounds": 3,
        "clients": {"count": 3},
        "server": {"kind": "buffered", "concurrency": 2, "buffer": 2}, "payload": {"down_bytes": 10, "up_bytes": 10},
        "policy": {"kind": "tests.helpers.buffered_worlds:Lowest"},
        "compute": {"delay": {"kind": "constant", "value_s": [1.0, 2.0, 5.0]}},
    } | changes
