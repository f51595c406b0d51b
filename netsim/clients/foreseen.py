"""What becomes of the attempts of a round, worked out for all of them as they begin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
    DOWN,
    DOWN_END,
    DOWN_START,
    DRAWN,
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
    TRAIN_END,
    TRAIN_START,
    UP,
    UP_END,
    UP_START,
    VERSION,
)

if TYPE_CHECKING:
    from netsim.clients.update import ModelDraws, SendDraws
    from netsim.core.protocols import BoolArray, FloatArray, IntArray
    from netsim.network.medium import Medium

_CHANNEL = 0
_EVER = float("inf")


class Foreseen:
    """The columns (`netsim.clients.columns`) of attempts over `medium`, on which each client has its links to itself.

    What `UpdateLifecycle` does from step to step, at the same draws and in the same arithmetic.
    """

    def __init__(self, medium: Medium) -> None:
        self.medium = medium
        self.causes = ["channel", *(() if medium.outages is None else [outage.name for outage in medium.outages])]
        """What `CAUSE` tells places in."""
        self.down_bytes, self.up_bytes = np.asarray(medium.sizes.down), np.asarray(medium.sizes.up)
        self._places: IntArray = np.arange(0)
        # What most counts begin with; those of sizes that are one for all stay.
        self._counts: IntArray = np.zeros((COUNTS, 1), np.int64)
        self._counts[[SAMPLES, STEPS, CAUSE]] = -1
        self._counts[ARRIVES], self._counts[OUTCOME] = 1, DELIVERED
        for row, size in ((DOWN, self.down_bytes), (UP, self.up_bytes)):
            if not size.ndim:
                self._counts[row] = size

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
    ) -> tuple[FloatArray, IntArray, bool] | None:
        """What becomes of attempts of `chosen` (n,) if the round never closes, as rows of `Columns`; None: that is not known.

        And whether all of them arrive.

        `ages` (n,) in rounds; `away_s` (n,) when each client goes away, None: nobody does; `steps` (n,) as of `ClientPool.start`.
        """
        count = len(chosen)
        times, counts = np.empty((TIMES, count)), np.empty((COUNTS, count), np.int64)
        self._counts[ROUND], self._counts[VERSION] = models.round, version
        counts[:] = self._counts
        counts[CLIENT], counts[PLACE], counts[AGE] = chosen, self.places(count), ages
        times[:] = models.started_s
        times[EPSILON : LEAK + 1] = np.nan
        times[AWAY] = _EVER if away_s is None else away_s
        self._work(counts, chosen, steps)
        life = _Lives(times, counts, away_s is not None, self)
        known = models.at_once or (life.download(models) and life.train(models))
        return (times, counts, life.all_arrive) if known and life.send(sends) else None

    def places(self, count: int) -> IntArray:
        """0 .. `count` - 1; not to be changed."""
        if count > len(self._places):
            self._places = np.arange(count)
        return self._places[:count]

    def bytes_down(self, chosen: IntArray) -> int:
        """Bytes of the models sent to `chosen` (n,)."""
        return _total(self.down_bytes, chosen)

    def bytes_up(self, chosen: IntArray) -> int:
        """Bytes of the updates sent by `chosen` (n,)."""
        return _total(self.up_bytes, chosen)

    def _work(self, counts: IntArray, chosen: IntArray, steps: IntArray | None) -> None:
        if self.down_bytes.ndim:
            counts[DOWN] = self.down_bytes[chosen]
        if self.up_bytes.ndim:
            counts[UP] = self.up_bytes[chosen]
        if steps is not None:
            counts[DRAWN] = steps
        work = self.medium.work
        if steps is not None or work.samples is not None:
            samples, taken = work.amounts(chosen, steps)
            counts[SAMPLES], counts[STEPS] = np.asarray(samples), np.asarray(taken)


def _total(size: IntArray, chosen: IntArray) -> int:
    return int(size[chosen].sum()) if size.ndim else len(chosen) * int(size)


class _Lives:
    """The attempts while they are worked out, phase by phase. `leaves`: some client may go away."""

    __slots__ = ("_counts", "_foreseen", "_leaves", "_times", "all_arrive")

    def __init__(self, times: FloatArray, counts: IntArray, leaves: bool, foreseen: Foreseen) -> None:
        self._times, self._counts, self._leaves, self._foreseen = times, counts, leaves, foreseen
        self.all_arrive = True
        """Whether nothing has come to a premature end."""

    def download(self, models: ModelDraws) -> bool:
        """The model is sent: False where that cannot be foreseen."""
        times = self._times
        if not models.download.certain:
            lasts_s = models.download.each(times[DOWN_START])
            if lasts_s is None or not self._pass(DOWN_END, lasts_s):
                return False
        arrives = True if models.downlink.certain else models.downlink.each(times[DOWN_START])
        if arrives is None:
            return False
        self._lose(arrives, DOWN_START, DOWN_END)
        self._go_on(TRAIN_START)
        return True

    def train(self, models: ModelDraws) -> bool:
        """Local training: False where that cannot be foreseen."""
        times = self._times
        lasts_s: Any = None
        if not models.compute.certain:
            lasts_s = models.compute.each(times[TRAIN_START])
            if lasts_s is None:
                return False
        if not models.sample.certain and self._foreseen.medium.work.samples is not None:
            each_s = models.sample.each(times[TRAIN_START])
            if each_s is None:
                return False
            all_s = self._counts[SAMPLES] * each_s
            lasts_s = all_s if lasts_s is None else lasts_s + all_s
        if lasts_s is None:
            times[TRAIN_END] = times[TRAIN_START]
        elif not self._pass(TRAIN_END, lasts_s):
            return False
        self._go_on(UP_START)
        return True

    def send(self, sends: SendDraws) -> bool:
        """The upload, and with it the end: False where that cannot be foreseen."""
        times, counts = self._times, self._counts
        start_s = times[UP_START]
        if sends.upload.certain:
            times[UP_END] = start_s
        else:
            lasts_s = sends.upload.each(start_s)
            if lasts_s is None:
                return False
            np.add(start_s, lasts_s, out=times[UP_END])
        if self._leaves:
            self._leave(UP_END)
        survives = True if sends.uplink.certain else sends.uplink.each(start_s)
        if survives is None:
            return False
        self._lose(survives, UP_START, UP_END)
        times[END] = times[UP_END]
        if not self.all_arrive:
            # Of those that did not come as far as this.
            over = np.isnan(start_s)
            times[END, over] = np.fmax(times[DOWN_END, over], times[TRAIN_END, over])
            counts[UP, over] = 0
        return True

    def _pass(self, end: int, lasts_s: FloatArray) -> bool:
        """A phase before the upload ends at row `end`, or with a departure; False where a length is lost in rounding."""
        start_s, end_s = self._times[end - 1], self._times[end]
        np.add(start_s, lasts_s, out=end_s)
        if ((end_s == start_s) != (lasts_s == 0)).any() and ((end_s == start_s) & (lasts_s > 0)).any():
            return False
        if self._leaves:
            self._leave(end)
        return True

    def _leave(self, end: int) -> None:
        # Presence is [comes, goes): whoever would end at the very moment of leaving has left.
        times, counts = self._times, self._counts
        gone = times[end] >= times[AWAY]
        if gone.any():
            times[end, gone] = times[AWAY, gone]
            counts[OUTCOME, gone], counts[ARRIVES, gone] = ABORTED, 0
            self.all_arrive = False

    def _go_on(self, following: int) -> None:
        """Whose way is not over begins the next phase, at row `following`, as the last one ends."""
        times = self._times
        times[following] = times[following - 1]
        if not self.all_arrive:
            times[following, self._counts[ARRIVES] == 0] = np.nan

    def _lose(self, survives: BoolArray | bool, start: int, end: int) -> None:
        """Transmissions over rows `start` to `end` are lost that do not survive, or meet an outage."""
        counts, outages = self._counts, self._foreseen.medium.outages
        if survives is True and outages is None:
            return
        under_way = counts[ARRIVES] == 1
        if survives is not True:
            lost = under_way & ~np.asarray(survives, np.bool_)
            counts[OUTCOME, lost], counts[CAUSE, lost], counts[ARRIVES, lost] = LOST, _CHANNEL, 0
        if outages is not None:
            sent = np.flatnonzero(under_way)
            sendings = zip(*(row[sent].tolist() for row in (counts[CLIENT], self._times[start], self._times[end])), strict=True)
            for place, (client, start_s, end_s) in zip(sent.tolist(), sendings, strict=True):
                cause = outages.cause(client, start_s, end_s)
                if cause is not None:
                    counts[OUTCOME, place], counts[CAUSE, place] = LOST, self._foreseen.causes.index(cause)
                    counts[ARRIVES, place] = 0
        self.all_arrive = self.all_arrive and bool((counts[ARRIVES] == 1).all())
