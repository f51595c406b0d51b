"""The critical path of a run: the chain of phases, without a gap, that led from its beginning to its last close.

It is found from the end. A round closed as it did because of the attempt that was waited for last: its upload, the queue before,
its local training and its download come before that. Where it waited for a sub-channel, the chain goes on with the upload that
left it. The attempt began because the round before had closed (or, with the buffered server, because another attempt had ended,
whose place was free then), and so on. Rounds of a fixed length, or paced, close by the clock: the chain then
takes the last delivery that the close took in, and the wait for the clock after it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from analysis.stragglers.closers import closers
from analysis.stragglers.decomposition import attempt_times
from analysis.stragglers.served import Served

if TYPE_CHECKING:
    import pandas as pd

    from analysis.statistics import FloatArray

BETWEEN, BEFORE, CLOCK, ABSENT = "between rounds", "before the selection", "clock", "nobody free"
"""Phases of nobody: no round was open; a round was, and asked for losses; the close was set by the clock, or waited for several
clients of which none can be blamed; no client was there to be sent the model."""
_OF_ATTEMPT = ("download", "compute", "queue", "upload")
_NOBODY = -1


def critical_path(run: Served) -> pd.DataFrame:
    """The chain in the order of time: a row for each phase that took time.

    Columns: round (whose close the phase led to), client (null: a phase of nobody), phase (download, compute, queue, upload,
    or one of this module's), start_s, end_s. Each begins where the one before ends; the first begins at 0, the last ends at the
    last close.
    """
    import pandas as pd

    chain = _Chain(run) if not run.retries else _ChainOfAttempts(run)
    rows = chain.walk()
    columns = list(zip(*reversed(rows), strict=True)) if rows else [(), (), (), (), ()]
    names = ("round", "client", "phase", "start_s", "end_s")
    table = pd.DataFrame(dict(zip(names, map(list, columns), strict=True)))
    table["client"] = pd.array([None if client == _NOBODY else client for client in table["client"]], "Int64")
    return table.astype({"round": "int64", "start_s": "float64", "end_s": "float64"})


def path_totals(path: pd.DataFrame) -> pd.DataFrame:
    """Seconds of a critical path: indexed by client (those of nobody left out), a column a phase, and seconds, their sum."""
    mine = path[path["client"].notna()]
    seconds = (mine["end_s"] - mine["start_s"]).rename("seconds")
    told = seconds.groupby([mine["client"].astype("int64"), mine["phase"]]).sum().unstack().fillna(0.0)
    told = told.reindex(columns=list(_OF_ATTEMPT), fill_value=0.0)
    told["seconds"] = told.sum(axis=1)
    return told.sort_values("seconds", ascending=False, kind="stable")


@dataclass
class _Chain:
    """The walk of servers whose updates take one attempt."""

    run: Served
    rows: list[tuple[int, int, str, float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        rounds = self.run.rounds
        self.numbers, self.starts_s, self.ends_s = (rounds[name].tolist() for name in ("round", "start_s", "end_s"))
        times = attempt_times(self.run)
        self.times: list[list[float]] = times.tolist()
        self.clients: list[int] = self.run.attempts["client"].tolist()
        own = np.searchsorted(rounds["round"].to_numpy(), self.run.attempts["round"].to_numpy())
        self.own: list[int] = own.tolist()
        self.closed_by = _closed_by(self.run, times, own)
        self.released_by = _released_by(self.run, times)
        self.in_order: FloatArray = np.sort(times[:, -1])
        self.by_end: list[int] = np.argsort(times[:, -1], kind="stable").tolist()

    def walk(self) -> list[tuple[int, int, str, float, float]]:
        """From the last close back to 0."""
        place = len(self.numbers) - 1
        while place >= 0:
            place = self._round(place)
        return self.rows

    def _tell(self, place: int, client: int, phase: str, start_s: float, end_s: float) -> None:
        if end_s > start_s:
            self.rows.append((self.numbers[place], client, phase, start_s, end_s))

    def _round(self, place: int) -> int:
        """What led to the close of a round; returns the place of the round whose close that goes back to (-1: to none)."""
        attempt = self.closed_by[place]
        if attempt == _NOBODY:
            self._tell(place, _NOBODY, CLOCK, self.starts_s[place], self.ends_s[place])
            return self._before(place, place, self.starts_s[place])
        self._tell(place, _NOBODY, CLOCK, self.times[attempt][-1], self.ends_s[place])
        begun, begun_s = self._attempt(place, attempt, self.ends_s[place])
        if self.run.kind != "buffered":
            return self._before(place, self.own[begun], begun_s)
        while (freed := self._freed(begun_s)) != _NOBODY:
            self._tell(place, _NOBODY, ABSENT, self.times[freed][-1], begun_s)
            begun, begun_s = self._attempt(place, freed, begun_s)
        self._tell(place, _NOBODY, ABSENT, 0.0, begun_s)
        return -1

    def _before(self, place: int, own: int, begun_s: float) -> int:
        self._tell(place, _NOBODY, BEFORE, self.starts_s[own], begun_s)
        self._tell(place, _NOBODY, BETWEEN, self.ends_s[own - 1] if own else 0.0, self.starts_s[own])
        return own - 1

    def _attempt(self, place: int, attempt: int, until_s: float) -> tuple[int, float]:
        """The phases of an attempt up to `until_s`, and of those that it queued behind; the first of them, and its beginning."""
        while True:
            times, client = self.times[attempt], self.clients[attempt]
            # Who still queued at the close that it missed held it up by that.
            released = self.released_by[attempt] if times[3] <= until_s else _NOBODY
            for phase, start_s, end_s in reversed(list(zip(_OF_ATTEMPT, times, times[1:], strict=False))):
                if phase == "queue" and released != _NOBODY:
                    break
                self._tell(place, client, phase, start_s, min(end_s, until_s))
            else:
                return attempt, times[0]
            until_s, attempt = times[3], released

    def _freed(self, begun_s: float) -> int:
        """The attempt that ended last up to `begun_s`, at 0 none: a place was free then."""
        if begun_s <= 0.0:
            return _NOBODY
        at = int(np.searchsorted(self.in_order, begun_s, side="right")) - 1
        # Those that ended as they began would lead nowhere.
        while at >= 0 and self.times[self.by_end[at]][0] >= begun_s:
            at -= 1
        return self.by_end[at] if at >= 0 else _NOBODY


class _ChainOfAttempts(_Chain):
    """The walk of the server with ages: an update goes back, attempt by attempt, to the round in which it was begun."""

    def __post_init__(self) -> None:
        super().__post_init__()
        pairs = zip(self.own, self.clients, strict=True)
        self.at = {pair: attempt for attempt, pair in enumerate(pairs)}

    def _round(self, place: int) -> int:
        attempt, until_s = self.closed_by[place], self.ends_s[place]
        if attempt == _NOBODY:
            self._tell(place, _NOBODY, CLOCK, self.starts_s[place], until_s)
            return self._before(place, place, self.starts_s[place])
        client, own = self.clients[attempt], place
        while True:
            times, low_s = self.times[attempt], self.starts_s[own]
            self._tell(place, _NOBODY if own == place else client, CLOCK if own == place else "queue", times[-1], until_s)
            for phase, start_s, end_s in reversed(list(zip(_OF_ATTEMPT, times, times[1:], strict=False))):
                self._tell(place, client, phase, max(start_s, low_s), max(min(end_s, until_s), low_s))
            earlier = self.at.get((own - 1, client), _NOBODY)
            if times[0] >= low_s or earlier == _NOBODY:
                return self._before(place, own, max(times[0], low_s))
            self._tell(place, client, "queue", self.ends_s[own - 1], low_s)
            attempt, own, until_s = earlier, own - 1, self.ends_s[own - 1]


def _closed_by(run: Served, times: FloatArray, own: np.ndarray[tuple[int], np.dtype[np.int64]]) -> list[int]:
    """For each round the attempt whose end its close goes back to; -1: there is none, or several missed the close."""
    closed = np.full(len(run.rounds), _NOBODY)
    if run.fixed or run.paced:
        delivered = np.flatnonzero(run.attempts["outcome"].to_numpy() == "delivered")
        place = np.searchsorted(run.rounds["end_s"].to_numpy(), times[delivered, -1]) if run.carries else own[delivered]
        inside = place < len(closed)
        order = np.argsort(times[delivered[inside], -1], kind="stable")
        closed[place[inside][order]] = delivered[inside][order]
        return list(closed.tolist())
    table = closers(run)
    place = np.searchsorted(run.rounds["end_s"].to_numpy(), times[:, -1]) if run.carries else own
    at_close = times[:, -1] == run.rounds["end_s"].to_numpy()[np.minimum(place, len(closed) - 1)] if len(closed) else place > 0
    at_close &= place < len(closed)
    by_count = (table["rule"] == "deliveries").to_numpy()
    delivered_too = run.attempts["outcome"].to_numpy() == "delivered"
    good = at_close & (delivered_too | ~by_count[np.minimum(place, len(closed) - 1)]) if len(closed) else at_close
    # Of several that ended at the close any one is on a critical path: the first in the table.
    for attempt in np.flatnonzero(good)[::-1].tolist():
        closed[place[attempt]] = attempt
    # Of a deadline the one client that missed it, where it is one.
    alone = {(number, client) for number, client in table.loc[table["client"].notna(), ["round", "client"]].to_numpy().tolist()}
    numbers, clients = run.attempts["round"].tolist(), run.attempts["client"].tolist()
    if not run.carries:
        for attempt, pair in enumerate(zip(numbers, clients, strict=True)):
            if pair in alone:
                closed[own[attempt]] = attempt
    missed = (table["rule"] == "deadline").to_numpy() & table["client"].isna().to_numpy()
    closed[missed] = _NOBODY
    return list(closed.tolist())


def _released_by(run: Served, times: FloatArray) -> list[int]:
    """For each attempt that waited for a sub-channel the one whose upload ended as its own began; -1: it did not wait."""
    released = np.full(len(times), _NOBODY)
    table = run.attempts
    sent = table["upload_start_s"].notna().to_numpy()
    waited = np.flatnonzero(sent & (times[:, 3] > times[:, 2]))
    if not len(waited):
        return list(released.tolist())
    channel = table["channel"].fillna(_NOBODY).astype("int64").to_numpy()
    left = np.flatnonzero(sent & table["upload_end_s"].notna().to_numpy())
    ends = zip(channel[left].tolist(), table["upload_end_s"].to_numpy()[left].tolist(), left.tolist(), strict=True)
    # An upload that took no time leaves its sub-channel as it takes it: it would lead back to itself.
    by_end = {(on, end_s): attempt for on, end_s, attempt in ends if times[attempt, 3] < end_s}
    for attempt in waited.tolist():
        released[attempt] = by_end.get((int(channel[attempt]), float(times[attempt, 3])), _NOBODY)
    return list(released.tolist())
