"""The executor of updates as arrays: it folds `foresee` over the steps of a recipe, for all attempts of a round as they begin.

`netsim.clients.lifecycle` runs the same steps by events. Draws, arithmetic and results are the same to the last bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from netsim.clients.columns import (
    ABORTED,
    AGE,
    ARRIVES,
    AWAY,
    CAUSE,
    CLIENT,
    COUNTS,
    DELIVERED,
    END,
    EPSILON,
    LEAK,
    LOST,
    OUTCOME,
    PLACE,
    ROUND,
    SAMPLES,
    STEPS,
    TIMES,
    VERSION,
    start_row,
)
from netsim.clients.steps.stages import STAGES

if TYPE_CHECKING:
    from netsim.clients.steps.recipe import Recipe
    from netsim.clients.update import ModelDraws, SendDraws
    from netsim.core.protocols import BoolArray, FloatArray, IntArray
    from netsim.network.medium import Medium
    from netsim.network.outages import ClientOutages

_CHANNEL = 0
_EVER = float("inf")
_LAST_END = start_row(STAGES[-1]) + 1
_ENDS = [start_row(stage) + 1 for stage in STAGES]


class Foreseen:
    """Columns (`netsim.clients.columns`) of attempts by `recipe` over `medium`, on which each client has its links to itself."""

    def __init__(self, recipe: Recipe, medium: Medium) -> None:
        self._steps = [step.foresee for step in recipe.steps]
        self.causes = ["channel", *(() if medium.outages is None else [outage.name for outage in medium.outages])]
        """Names at the places that `CAUSE` tells."""
        self._places: IntArray = np.arange(0)
        # Counts that most attempts begin with.
        self._counts: IntArray = np.zeros((COUNTS, 1), np.int64)
        self._counts[[SAMPLES, STEPS, CAUSE]] = -1
        self._counts[ARRIVES], self._counts[OUTCOME] = 1, DELIVERED

    def lives(
        self,
        *,
        chosen: IntArray,
        version: int,
        steps: IntArray | None,
        ages: IntArray,
        away_s: FloatArray | None,
        models: ModelDraws,
        sends: SendDraws,
    ) -> Forecast | None:
        """Return what becomes of attempts of `chosen` (n,) if the round never closes; None if that is not known now.

        `ages` (n,) in rounds; `away_s` (n,) when each client goes away, None: no client does; `steps` (n,) as of
        `ClientPool.start`.
        """
        count = len(chosen)
        times, counts = np.empty((TIMES, count)), np.empty((COUNTS, count), np.int64)
        self._counts[ROUND], self._counts[VERSION] = models.round, version
        counts[:] = self._counts
        counts[CLIENT], counts[PLACE], counts[AGE] = chosen, self.places(count), ages
        times[:] = models.started_s
        times[EPSILON : LEAK + 1] = np.nan
        times[AWAY] = _EVER if away_s is None else away_s
        forecast = Forecast(times, counts, models, sends, steps, leaves=away_s is not None, causes=self.causes)
        if not all(foresee(forecast) for foresee in self._steps):
            return None
        forecast.end()
        return forecast

    def places(self, count: int) -> IntArray:
        """Return 0 .. `count` - 1; not to be changed."""
        if count > len(self._places):
            self._places = np.arange(count)
        return self._places[:count]


class Forecast:
    """Attempts of a round while their steps are worked out: `times` and `counts` as of `netsim.clients.columns.Columns`.

    `steps` (n,): local steps that each update is asked for, None: as planned. `leaves`: some client may go away.
    """

    __slots__ = ("_causes", "_leaves", "_moved", "all_arrive", "counts", "model_draws", "send_draws", "steps", "times")

    def __init__(
        self,
        times: FloatArray,
        counts: IntArray,
        models: ModelDraws,
        sends: SendDraws,
        steps: IntArray | None,
        *,
        leaves: bool,
        causes: list[str],
    ) -> None:
        self.times, self.counts, self.steps = times, counts, steps
        self.model_draws, self.send_draws = models, sends
        self._leaves, self._causes = leaves, causes
        self._moved = False
        """True once a step has taken time; until then all times are those of the beginning."""
        self.all_arrive = True
        """True while no attempt has come to a premature end."""

    @property
    def clients(self) -> IntArray:
        """(n,) clients of the attempts."""
        clients: IntArray = self.counts[CLIENT]
        return clients

    def begin(self, row: int) -> FloatArray:
        """Begin a step, at `row` of the times, as the one before ends; return the starts (n,), NaN for attempts that are over."""
        times = self.times
        starts_s: FloatArray = times[row]
        if self._moved:
            starts_s[:] = times[row - 1]
            times[row + 1] = starts_s
        if not self.all_arrive:
            starts_s[self.counts[ARRIVES] == 0] = np.nan
            times[row + 1] = starts_s
        return starts_s

    def run(self, row: int, lasts_s: FloatArray, *, immediate: bool) -> bool:
        """Let the step at `row` last for `lasts_s` (n,), or to the client's departure; False where a length is lost in rounding.

        `immediate`: a step without length ends within the call that begins it, by events, and others do not.
        """
        times, counts = self.times, self.counts
        starts_s, ends_s = times[row], times[row + 1]
        np.add(starts_s, lasts_s, out=ends_s)
        self._moved = True
        if immediate and ((ends_s == starts_s) & (lasts_s > 0)).any():
            return False
        if self._leaves:
            # Presence is [comes, goes): a client that would end at the very moment of leaving has left.
            gone = ends_s >= times[AWAY]
            if gone.any():
                ends_s[gone] = times[AWAY, gone]
                counts[OUTCOME, gone], counts[ARRIVES, gone] = ABORTED, 0
                self.all_arrive = False
        return True

    def lose(self, row: int, survives: BoolArray | None, outages: ClientOutages | None) -> None:
        """End attempts as lost whose transfer at `row` does not survive, or meets an outage; None: nothing is lost so.

        `survives` (n,): True where the client's own link lets the message through.
        """
        counts, times = self.counts, self.times
        under_way = counts[ARRIVES] == 1
        if survives is not None:
            lost = under_way & ~survives
            counts[OUTCOME, lost], counts[CAUSE, lost], counts[ARRIVES, lost] = LOST, _CHANNEL, 0
        if outages is not None:
            sent = np.flatnonzero(under_way)
            sendings = zip(*(line[sent].tolist() for line in (counts[CLIENT], times[row], times[row + 1])), strict=True)
            for place, (client, start_s, end_s) in zip(sent.tolist(), sendings, strict=True):
                cause = outages.cause(client, start_s, end_s)
                if cause is not None:
                    counts[OUTCOME, place], counts[CAUSE, place] = LOST, self._causes.index(cause)
                    counts[ARRIVES, place] = 0
        self.all_arrive = self.all_arrive and bool((counts[ARRIVES] == 1).all())

    def end(self) -> None:
        """Set the ends of the attempts: those of their last steps."""
        times = self.times
        times[END] = times[_LAST_END] if self.all_arrive else np.fmax.reduce(times[_ENDS])
