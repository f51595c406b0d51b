"""Components of safa_accuracy.toml: its shards, and the first round, in which every client trains once."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from annotated_doc import Doc

from models.errors import ParameterError
from netsim.core.protocols import IntArray, RoundView, Selection, State
from netsim.core.reports import RoundOutcome

BATCH, EPOCHS = 40, 5


class Crashing:
    """m random clients a round, of which each crashes with a probability; in round 1 everyone else trains one epoch, too.

    Who crashes is not selected: its update would not be there, and nothing is timed. In round 1 it trains the one epoch.
    """

    needs_updates = False
    may_select_nobody = True

    def __init__(
        self,
        *,
        per_round: int,
        data_sizes: Any,
        picked: Annotated[int, Doc("m, clients picked a round.")],
        crash: Annotated[float, Doc("The probability.")],
    ) -> None:
        self.picked, self.crash = picked, crash
        self._epoch: IntArray = np.ceil(np.asarray(data_sizes) / BATCH).astype(np.int64)

    def select(self, view: RoundView) -> Selection | IntArray:
        able = np.flatnonzero(view.selectable)
        chosen = np.sort(view.rng.choice(able, self.picked, replace=False))
        works = chosen[view.rng.random(len(chosen)) >= self.crash]
        if view.round > 1:
            return Selection(works, EPOCHS * self._epoch[works]) if len(works) else works
        passes = np.where(np.isin(able, works), EPOCHS, 1)
        return Selection(able, passes * self._epoch[able])

    def observe(self, outcome: RoundOutcome) -> None:
        return None

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None:
        return None


def normal_sizes(
    labels: IntArray,
    *,
    clients: int,
    generator: np.random.Generator,
    minimum: Annotated[int, Doc("The fewest samples a client may hold; at most a third of the mean.")] = BATCH,
) -> list[IntArray]:
    """I.i.d. samples; sizes normal with a standard deviation of 0.3 of the mean, all drawn again while any is below `minimum`."""
    if not 1 <= minimum <= len(labels) / clients / 3:
        reason = f"must be at least 1, and at most a third of the {len(labels) / clients:g} samples of a client on average"
        raise ParameterError("minimum", minimum, reason)
    while True:
        drawn = generator.normal(1.0, 0.3, clients)
        sizes = np.floor(drawn / drawn.sum() * len(labels)).astype(np.int64)
        sizes[: len(labels) - int(sizes.sum())] += 1
        if sizes.min() >= minimum:
            break
    return [np.sort(part) for part in np.split(generator.permutation(len(labels)), np.cumsum(sizes)[:-1])]
