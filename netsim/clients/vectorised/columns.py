"""Attempts of updates as columns: an entry for each attempt in place of an object.

All steps of these attempts are computed as they begin, so the columns also hold times that still lie ahead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from netsim.clients.steps.stages import STAGES, Stage
from netsim.clients.update import BEGUN_BY, OUTCOMES
from netsim.core.rows import UpdateRow

if TYPE_CHECKING:
    from netsim.clients.power.powers import KnownPhases
    from netsim.core.protocols import FloatArray, IntArray

SELECTED, DOWN_START, DOWN_END, TRAIN_START, TRAIN_END, UP_START, UP_END, END, EPSILON, LEAK, AWAY = range(11)
"""Rows of `times`: seconds, NaN where a step is not reached; EPSILON and LEAK are privacy costs."""
CLIENT, ROUND, PLACE, VERSION, AGE, DOWN, UP, DRAWN, SAMPLES, STEPS, OUTCOME, CAUSE, ARRIVES, CHARGED, METERED = range(15)
NUMBER, BEGUN, AFTER = range(15, 18)
"""Rows of `counts`. `PLACE`: index among the attempts selected together. `OUTCOME`, `CAUSE`: indices of lists of names, -1: none.
`ARRIVES`: 1 if the upload ends and is not lost, else 0. `CHARGED`: 1 if privacy has been spent on the update, else 0. `METERED`:
number of starts and ends of phases whose energy is accounted for. `NUMBER`: number of the attempt in the run, from 1. `BEGUN`,
`AFTER`: cause of the beginning: its index in `BEGUN_BY`, and the number that goes with it. `SAMPLES`, `STEPS`: -1 if unknown."""
TIMES, COUNTS = AWAY + 1, AFTER + 1
"""Numbers of rows of `times` and `counts`."""
DELIVERED, LOST, LATE, ABORTED = range(4)
"""Indices of `OUTCOMES`."""
# Rows of `times` and `counts` by attribute of an update.
_TIMES = {
    "selected_s": SELECTED,
    **{name: DOWN_START + row for row, name in enumerate(name for stage in STAGES for name in (stage.start, stage.end))},
    "outcome_s": END,
    "epsilon": EPSILON,
    "budget": EPSILON,
    "leak": LEAK,
}
_COUNTS = {
    "client": CLIENT,
    "round": ROUND,
    "begun_round": ROUND,
    "version": VERSION,
    "age_rounds": AGE,
    "bytes_down": DOWN,
    "bytes_up": UP,
    "drawn_steps": DRAWN,
    "number": NUMBER,
    "begun_after": AFTER,
}
_OF_TRAINING = {"samples": SAMPLES, "steps": STEPS}
_JOULES = {stage.joules: stage for stage in STAGES}
_EVER = np.inf


def start_row(stage: Stage) -> int:
    """Return the row of `times` in which a stage starts; it ends in the next one."""
    return _TIMES[stage.start]


class Groups(Protocol):
    """The groups that clients belong to."""

    @property
    def names(self) -> Sequence[str]:
        """Names of all groups."""

    def places_of(self, clients: IntArray) -> IntArray:
        """Return the group of each of `clients` (n,) as an index of `names`."""

    def names_of(self, clients: IntArray) -> list[str]:
        """Return the name of the group of each of `clients` (n,)."""


class Columns:
    """Attempts of one or several rounds, as columns.

    `times` (11, n) and `counts` (18, n) have the rows named by the constants above. `causes`: names that the row `CAUSE` points
    to. `groups`: groups of the clients, or None. `phases`: account of the energy that the attempts draw, or None.
    """

    __slots__ = ("causes", "counts", "groups", "phases", "times")
    updates = ()
    """Empty: no attempt is an object."""

    def __init__(
        self,
        times: FloatArray,
        counts: IntArray,
        causes: Sequence[str],
        groups: Groups | None,
        phases: KnownPhases | None = None,
    ) -> None:
        self.times = times
        self.counts = counts
        self.causes = causes
        self.groups = groups
        self.phases = phases

    def _derive(self, times: FloatArray, counts: IntArray) -> Columns:
        """Return `times` and `counts` as columns that share causes, groups and the account of energy with these."""
        return Columns(times, counts, self.causes, self.groups, self.phases)

    def __len__(self) -> int:
        return len(self.counts[0])

    def piece(self, first: int, last: int) -> Columns:
        """Return the attempts from place `first` up to, without, `last`, as views: writing to them changes these columns."""
        return self._derive(self.times[:, first:last], self.counts[:, first:last])

    def take(self, places: IntArray) -> Columns:
        """Return copies of the attempts at `places` (m,), in this order."""
        return self._derive(self.times.take(places, axis=1), self.counts.take(places, axis=1))

    def append_tables(self, others: Sequence[Columns]) -> Columns:
        """Return copies of these attempts, followed by those of `others`."""
        times = np.concatenate([self.times, *(other.times for other in others)], axis=1)
        counts = np.concatenate([self.counts, *(other.counts for other in others)], axis=1)
        return self._derive(times, counts)

    def column(self, name: str) -> Any:
        """Return the column `name` of the client table, or the attribute `name` of each update (n,): an array, or a list with
        None for null. Columns that such attempts cannot have are None throughout.
        """
        if name in _TIMES:
            return self.times[_TIMES[name]]
        if name in _COUNTS:
            return self.counts[_COUNTS[name]]
        if name == "censored":
            return self.counts[OUTCOME] != DELIVERED
        text = self.text_column(name)
        if text is not None:
            places, texts = text
            return [None if place < 0 else texts[place] for place in places.tolist()]
        if name in _OF_TRAINING:
            # Samples and steps are shown only for attempts that have reached local training.
            amounts = self.counts[_OF_TRAINING[name]]
            shown = (amounts >= 0) & ~np.isnan(self.times[TRAIN_START])
            if shown.all():
                return amounts
            return [amount if is_shown else None for amount, is_shown in zip(amounts.tolist(), shown.tolist(), strict=True)]
        if self.phases is not None and name in _JOULES:
            stage = _JOULES[name]
            start = start_row(stage)
            seconds = self.times[start + 1] - self.times[start]
            return self.phases.joules(stage.power, self.counts[CLIENT], seconds)
        return [None] * len(self)

    def meter(self, until_s: float, *, ended: bool) -> None:
        """Account for the energy drawn up to `until_s`. `ended`: True if all attempts ended by then, False if none did;
        nothing between the two occurs.

        Repeated calls add only what is new: the row METERED counts what is accounted for.
        """
        assert self.phases is not None
        times, counts = self.times, self.counts
        # None, not zeros, if nothing is accounted for yet: `report` then has a faster path.
        reported = counts[METERED] if counts[METERED].any() else None
        leave_s = times[END] if ended else None
        counts[METERED] = self.phases.report(counts[CLIENT], times[DOWN_START : UP_END + 1], leave_s, reported, until_s)

    def text_column(self, name: str) -> tuple[IntArray, Sequence[str]] | None:
        """Return the column `name` as indices (n,), -1 for null, and the list of texts that they index; None if it holds no
        text.
        """
        if name == "outcome":
            return self.counts[OUTCOME], OUTCOMES
        if name == "cause":
            return self.counts[CAUSE], self.causes
        if name == "begun_by":
            return self.counts[BEGUN], BEGUN_BY
        if name == "group" and self.groups is not None:
            return self.groups.places_of(self.counts[CLIENT]), self.groups.names
        return None

    def rows(self) -> list[UpdateRow]:
        """Return the records of all attempts."""
        columns = [plain(self.column(name)) for name in UpdateRow._fields]
        return [UpdateRow._make(row) for row in zip(*columns, strict=True)]

    def cut_at(self, now_s: float) -> Columns:
        """Return a copy of the attempts as they stand at `now_s`: times after it become NaN, bytes of uploads not begun yet 0.

        Outcomes and other counts are copied unchanged.
        """
        times, counts = self.times.copy(), self.counts.copy()
        known_later = times[DOWN_END : END + 1]  # a view, so that the next line changes `times`
        known_later[known_later > now_s] = np.nan
        counts[UP, np.isnan(times[UP_START])] = 0
        return self._derive(times, counts)

    def cut(self, outcome: int, now_s: float) -> Columns:
        """Return a copy of the attempts that ends them at `now_s` with `outcome` (an index of OUTCOMES), in the phase under way.

        All attempts must be in flight at `now_s`. In the copy no attempt has a cause, and none arrives.
        """
        result = self.cut_at(now_s)
        times, counts = result.times, result.counts
        # The phase under way is the one that has begun and not ended.
        for start in map(start_row, STAGES):
            is_under_way = ~np.isnan(times[start]) & np.isnan(times[start + 1])
            times[start + 1, is_under_way] = now_s
        times[END] = now_s
        counts[OUTCOME], counts[CAUSE], counts[ARRIVES] = outcome, -1, 0
        return result

    def phase_starts_s(self) -> FloatArray:
        """Return when the phases of each attempt started (3, n): the last phase first, then earlier phases that took time, then
        inf for missing ones.

        They give attempts that end at one instant the order that they have by events. There the end of a phase is put on the
        clock as the phase begins, and events of one instant come in the order in which they were put there. An attempt that ended
        at the instant of its selection has -inf in the first row: it ends before all others.
        """
        times = self.times
        starts = times[[start_row(stage) for stage in reversed(STAGES)]]
        starts_s: FloatArray = np.full((len(STAGES), len(self)), _EVER)
        # Next free row of `starts_s` (n,), for each attempt.
        depth = np.zeros(len(self), np.int64)
        latest = np.full(len(self), _EVER)
        places = np.arange(len(self))
        for row in starts:
            # Skip phases of length zero: they start in the instant of the next phase. Comparisons with NaN are False.
            took_time = row < latest
            starts_s[depth[took_time], places[took_time]] = row[took_time]
            latest[took_time] = row[took_time]
            depth += took_time
        starts_s[0, (times[END] == times[SELECTED]) & np.isnan(times[UP_START])] = -_EVER
        return starts_s

    def order_by_begin(self) -> IntArray:
        """Return the places (n,) of the attempts in the order in which their last phases began.

        Equal times go by the beginnings of earlier phases, then by round, then by place of selection.
        """
        starts_s = self.phase_starts_s()
        order: IntArray = np.lexsort((self.counts[PLACE], self.counts[ROUND], *starts_s[::-1]))
        return order

    def order_by_end(self) -> IntArray:
        """Return the places (n,) in the order of ends, as it would be by events."""
        ends_s = self.times[END]
        order: IntArray = ends_s.argsort()
        rising = ends_s[order]
        # Only ties need the slower order, by end and then by begin.
        if (rising[1:] == rising[:-1]).any():
            begun = self.order_by_begin()
            order = begun[ends_s[begun].argsort(kind="stable")]
        return order


def plain(column: Any) -> list[Any]:
    """Return a column as a list of plain values, None for null."""
    return column if isinstance(column, list) else column.tolist()


class Selected:
    """The attempts of one round as `Attempts`, in the order of selection: those at `places` (n,) of `table`.

    Times after `closes_s`, the close of the round, read as NaN; inf: no time is hidden.
    """

    __slots__ = ("_all", "_closes_s", "_places")
    updates = ()
    """Empty: no attempt is an object."""

    def __init__(self, table: Columns, places: IntArray, closes_s: float) -> None:
        self._all, self._places, self._closes_s = table, places, closes_s

    def __len__(self) -> int:
        return len(self._places)

    def column(self, name: str) -> Any:
        """Return the column `name` (n,) as it is known at the close."""
        column = self._all.column(name)
        # Rows after SELECTED up to END are times that may lie after the close; other columns have no time.
        is_later_time = SELECTED < _TIMES.get(name, SELECTED) <= END
        if is_later_time and self._closes_s < _EVER:
            column = np.where(column > self._closes_s, np.nan, column)
        if isinstance(column, list):
            return [column[place] for place in self._places.tolist()]
        return column[self._places]

    def order_of_end(self) -> IntArray:
        """Return the attempts (n,) in the order of ends, which is that of the table."""
        return np.argsort(self._places)
