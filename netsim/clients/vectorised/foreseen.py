"""The executor of updates as arrays: it folds `foresee` over the steps of a recipe, for all attempts of a round as they begin.

`netsim.clients.lifecycle` runs the same steps by events. Draws, arithmetic and results are the same to the last bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from netsim.clients.vectorised.columns import (
    AFTER,
    AGE,
    ARRIVES,
    AWAY,
    CAUSE,
    CLIENT,
    COUNTS,
    DELIVERED,
    EPSILON,
    LEAK,
    OUTCOME,
    PLACE,
    ROUND,
    SAMPLES,
    STEPS,
    TIMES,
    VERSION,
)
from netsim.clients.vectorised.forecast import Forecast, possible_causes

if TYPE_CHECKING:
    from netsim.clients.steps.recipe import Recipe
    from netsim.clients.update import ModelDraws, SendDraws
    from netsim.core.protocols import FloatArray, IntArray
    from netsim.network.medium import Medium

_EVER = float("inf")

# Attempts that share no link and no queue do not affect each other. So the whole life of each is known as it begins: its draws
# are addressed, and each step ends at its start plus a duration. One pass over the steps computes a row of starts and a row of
# ends for all attempts. If a step cannot be foreseen (its law changes before one of the starts), it returns False, and the whole
# round goes by events. Only the new arrays have been changed then.


class Foreseen:
    """Executor that computes the columns of attempts (`netsim.clients.vectorised.columns`) by the steps of `recipe`.

    Clients of `medium` must not share links.
    """

    def __init__(self, recipe: Recipe, medium: Medium) -> None:
        self._steps = [step.foresee for step in recipe.steps]
        self.causes = possible_causes(medium.outages)
        """Names of causes; the row `CAUSE` of the counts holds indices of this list."""
        self._places: IntArray = np.arange(0)
        """0, 1, 2, ...: the longest array that `places` has returned."""
        self._counts: IntArray = np.zeros((COUNTS, 1), np.int64)
        """Counts (18, 1) with which each attempt begins; one assignment fills the table of a round."""
        self._counts[[SAMPLES, STEPS, CAUSE]] = -1
        self._counts[ARRIVES], self._counts[OUTCOME] = 1, DELIVERED

    def foresee(
        self,
        *,
        chosen: IntArray,
        version: int,
        steps: IntArray | None,
        ages: IntArray,
        away_s: FloatArray | None,
        models: ModelDraws,
        sends: SendDraws,
        begins_s: FloatArray | None = None,
    ) -> Forecast | None:
        """Return the attempts of `chosen` (n,) to their ends, as if the round never closed; None if they cannot be foreseen
        now.

        `ages` (n,): rounds since each client's last delivery. `away_s` (n,): time at which each client goes away; None: no
        client does. `steps` (n,): local steps requested; None: as planned. `begins_s` (n,): times at which the attempts begin;
        None: all when `models` were drawn.
        """
        count = len(chosen)
        times, counts = np.empty((TIMES, count)), np.empty((COUNTS, count), np.int64)
        # One column with the values that all attempts share; AFTER holds the round, whose opening is their cause.
        self._counts[[ROUND, AFTER]], self._counts[VERSION] = models.round, version
        counts[:] = self._counts
        counts[CLIENT], counts[PLACE], counts[AGE] = chosen, self.places(count), ages
        # All rows begin as the start of the attempt: `Forecast.begin` copies nothing while no step has taken time.
        times[:] = models.started_s if begins_s is None else begins_s
        times[EPSILON : LEAK + 1] = np.nan
        times[AWAY] = _EVER if away_s is None else away_s
        forecast = Forecast(times, counts, models, sends, steps, leaves=away_s is not None, causes=self.causes)
        if not all(foresee(forecast) for foresee in self._steps):
            return None
        forecast.end()
        return forecast

    def places(self, count: int) -> IntArray:
        """Return 0 .. `count` - 1 as a shared array, which callers must not change."""
        if count > len(self._places):
            self._places = np.arange(count)
        return self._places[:count]
