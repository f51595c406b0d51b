"""The critical path of a run: the chain of phases, without gaps, from its beginning to its last close.

A walk back over recorded causes finds it, for every server. A round closed because an attempt ended, a timer ran out, or a time
of the clock was reached. An attempt ended after its upload, the queue before it, local training and the download. From a queue,
the walk continues with the attempt whose end freed the place. An attempt began because its round opened, another attempt freed a
place, or its client came back. A round opened because the one before had closed, or the awaited clients had come.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

    from analysis.stragglers.records import RunRecords

BETWEEN, BEFORE, CLOCK, ABSENT, MESSAGE = "between rounds", "before the selection", "clock", "absent", "message"
"""Phases that are no step of an attempt: no round was open; an open round probed clients; a timer ran; an awaited client was
away; a message between peers was in flight."""
_STEPS = ("download", "compute", "queue", "upload")
_MESSAGE_CAUSES = ("message", "sent")
"""Causes of an attempt or a close that are a message between peers: its arrival, or its sending."""
_NO_NUMBER = -1
_INCONSISTENT = "the recorded causes do not fit together, so the tables were changed; run the scenario again"


class Link(NamedTuple):
    """A phase of the path."""

    round_index: int
    """Index of the round to whose close the phase led."""
    client: int
    """-1: none."""
    phase: str
    start_s: float
    end_s: float
    exact: bool
    attempt: int
    """Number of the attempt to which the phase belongs; -1: none."""
    edge: str | None = None
    """Edge of the attempt; None: an attempt of a client, or none."""


def critical_path(run: RunRecords) -> pd.DataFrame:
    """Return the critical path of a run, a row for each phase that took time, in the order of time.

    Each phase begins where the one before ends; the first begins at 0, the last ends at the last close. Columns:

    - round: the round to whose close the phase led; with edges, a round of the server
    - client: null if none
    - phase: download, compute, queue, upload, or one of this module's
    - start_s, end_s
    - exact: True if a slightly longer phase would delay the last close by as much; other phases are attribution only: before a
      fixed time of the clock, before a departure or a return, and over a shared or changing bandwidth
    - attempt: number of the attempt that the phase is a step of; null if none
    - edge (only with edges): the edge whose model is on its way; null if it is a client's update, or none

        path = critical_path(run_records(netsim.open_run("runs/study")))
        path[path["exact"]].groupby("phase")[["start_s", "end_s"]].sum()

    ValueError: the causes do not fit together, as in tables that were changed.
    """
    import pandas as pd

    links = _Walk(run).walk()
    links.reverse()
    table = pd.DataFrame({field: [getattr(link, field) for link in links] for field in Link._fields})
    round_numbers = (run.tree or run).rounds["round"].to_numpy(np.int64)
    table["round_index"] = round_numbers[table["round_index"].to_numpy(np.int64)]
    table = table.rename(columns={"round_index": "round"})
    for name in ("client", "attempt"):
        table[name] = pd.array([None if number == _NO_NUMBER else number for number in table[name]], "Int64")
    table = table.astype({"start_s": "float64", "end_s": "float64", "exact": "bool"})
    return table.drop(columns="edge") if run.tree is None else table


def path_totals(path: pd.DataFrame) -> pd.DataFrame:
    """Return the seconds of a critical path by client: a column for each step of attempts, and seconds, the sum of all phases."""
    steps = path[path["client"].notna()]
    seconds = (steps["end_s"] - steps["start_s"]).rename("seconds")
    clients = steps["client"].astype("int64")
    table = seconds.groupby([clients, steps["phase"]]).sum().unstack().fillna(0.0)
    table["seconds"] = table.sum(axis=1)
    table = table.reindex(columns=[*_STEPS, "seconds"], fill_value=0.0)
    return table.sort_values("seconds", ascending=False, kind="stable")


@dataclass
class _Walk:
    """Walk back over causes, from the last close to time 0.

    A node of the walk is an event: its kind, a key of `steps` in `walk`, and the index of its round or attempt. Each method
    `_before_...` adds the phases between an event and its cause, moves `time_s` back, and returns the node of the cause, or None
    at time 0. `exact` becomes False at the first event on the way back that a longer phase before it would not delay.
    """

    run: RunRecords
    links: list[Link] = field(default_factory=list)

    def __post_init__(self) -> None:
        source = self.run.tree or self.run
        rounds, attempts = source.rounds, source.attempts
        self.rounds: list[dict[Hashable, Any]] = rounds.to_dict("records")
        self.round_index_of = {number: index for index, number in enumerate(rounds["round"].tolist())}
        beyond = [] if self.run.beyond is None else self.run.beyond.to_dict("records")
        self.attempts: list[dict[Hashable, Any]] = [*attempts.to_dict("records"), *beyond]
        # Number of an attempt to its row in `attempts`.
        self.row_of = {attempt["number"]: row for row, attempt in enumerate(self.attempts)}
        # The rounds of the server come first, those of edges after them.
        self.servers = len(self.rounds) if self.run.tree is None else self.run.tree.servers
        # Number of the attempt of an edge to the index of the last round that the edge ran in it.
        self.last_of_term = {row["term"]: index for index, row in enumerate(self.rounds) if row.get("term")}
        self.round_index, self.time_s, self.exact = self.servers - 1, 0.0, True
        self.last_delivery = self._last_deliveries()

    def walk(self) -> list[Link]:
        """Return the path, the last phase first."""
        steps = {
            "close": self._before_close,
            "open": self._before_opening,
            "attempt": self._before_end,
            "begun": self._before_attempt,
            "arrived": self._before_arrival,
        }
        node = ("close", self.round_index) if self.servers else None
        # The walk passes every round and attempt at most twice: at its end and at its beginning.
        for _ in range(2 * (len(self.rounds) + len(self.attempts)) + 1):
            if node is None:
                return self.links
            kind, index = node
            try:
                node = steps[kind](index)
            except KeyError as error:
                raise ValueError(f"{_INCONSISTENT}: number {error} is in no table") from error
        raise ValueError(f"{_INCONSISTENT}: they lead in a circle")

    def _add(self, client: int, phase: str, start_s: float, attempt: int = _NO_NUMBER, edge: str | None = None) -> None:
        """Add the phase from `start_s` to the present time of the walk, and move the walk to `start_s`."""
        if start_s < self.time_s:
            exact = self.exact and phase not in self.run.inexact
            self.links.append(Link(self.round_index, client, phase, start_s, self.time_s, exact, attempt, edge))
            self.exact = exact
        self.time_s = min(start_s, self.time_s)

    def _before_close(self, index: int) -> tuple[str, int] | None:
        """Walk from the close of a round to its cause."""
        closed = self.rounds[index]
        self.time_s = closed["end_s"]
        if index < self.servers:
            # The phases before are those of this round of the server.
            self.round_index = index
        if closed["closed_by"] == "end":
            return self._to_attempt(self.row_of[closed["closed_after"]], CLOCK)
        if closed["closed_by"] in _MESSAGE_CAUSES:
            return self._before_message(closed["closed_by"], closed["closed_after"])
        if closed["closed_by"] == "schedule":
            # The close does not depend on the round. Its last delivery is named; the path before is attribution only.
            self.exact = False
            if index in self.last_delivery:
                return self._to_attempt(self.last_delivery[index], CLOCK)
        self._add(_NO_NUMBER, CLOCK, closed["start_s"])
        return "open", index

    def _before_opening(self, index: int) -> tuple[str, int] | None:
        """Walk from the opening of a round to its cause. None: the first round has no cause."""
        opened = self.rounds[index]
        cause, after = opened["opened_by"], opened["opened_after"]
        if cause == "term":
            return "arrived", self.row_of[after]
        if cause == "end":
            return self._to_attempt(self.row_of[after], BETWEEN)
        # The other causes follow the close of an earlier round: the one that is named, or else the one before.
        before = self.round_index_of[after] if cause == "close" else index - 1
        before_s = self.rounds[before]["end_s"] if index else 0.0
        if cause == "return":
            # No client is named where this is null, which pandas may have read as NaN.
            client = _NO_NUMBER if after is None or after != after else int(after)
            self._add(client, ABSENT, before_s)
            self.exact = False
        else:
            self._add(_NO_NUMBER, BETWEEN, before_s)
        return ("close", before) if index else None

    def _before_arrival(self, row: int) -> tuple[str, int] | None:
        """Walk over the download of an edge's attempt, from the arrival of the model, to the cause of the attempt."""
        attempt = self.attempts[row]
        self._add(_NO_NUMBER, "download", attempt["download_start_s"], attempt["number"], attempt["edge"])
        return self._before_attempt(row)

    def _to_attempt(self, row: int, gap: str) -> tuple[str, int]:
        """Walk from an event to the attempt whose end caused it, at once or after the phase `gap`."""
        self._add(_NO_NUMBER, gap, self.attempts[row]["outcome_s"])
        return "attempt", row

    def _before_end(self, row: int) -> tuple[str, int] | None:
        """Walk over the steps of an attempt, from its end or from a time within it, to its cause.

        The attempt of an edge lasts a term, which is a number of rounds that the edge runs itself.
        """
        attempt = self.attempts[row]
        if attempt["number"] in self.last_of_term:
            # The last round of the edge, and its causes, are on the path.
            if attempt["upload_start_s"] <= self.time_s:
                self._add(_NO_NUMBER, "upload", attempt["upload_start_s"], attempt["number"], attempt["edge"])
            last = self.last_of_term[attempt["number"]]
            last_close_s = self.rounds[last]["end_s"]
            if last_close_s < attempt["compute_start_s"]:
                # All rounds of the term were made before its model arrived: the edge sent its own at once.
                return self._before_arrival(row)
            if attempt["outcome"] == "aborted" and last_close_s < self.time_s:
                # The edge, or its members, went away in the middle of a round.
                self.exact = False
            self._add(_NO_NUMBER, CLOCK, last_close_s)
            return "close", last
        if attempt["outcome"] == "aborted":
            # A departure does not wait for the attempt that it ends.
            self._add_steps(attempt, exact=False)
        elif not self._add_steps(attempt, exact=self.exact):
            return "attempt", self.row_of[attempt["sent_after"]]
        return self._before_attempt(row)

    def _before_message(self, cause: str, number: int) -> tuple[str, int]:
        """Walk from the arrival of a message to the attempt `number`, at whose end (`cause` "message") or beginning it left."""
        row = self.row_of[number]
        if cause == "message":
            return self._to_attempt(row, MESSAGE)
        self._add(_NO_NUMBER, MESSAGE, self.attempts[row]["selected_s"])
        return "begun", row

    def _before_attempt(self, row: int) -> tuple[str, int] | None:
        """Walk from the beginning of an attempt to its cause.

        An attempt may have waited in a queue before it began. A step is added only where it took time: `_add` leaves out others.
        """
        attempt = self.attempts[row]
        client = attempt["client"]
        cause, after = attempt["begun_by"], attempt["begun_after"]
        if cause in _MESSAGE_CAUSES:
            return self._before_message(cause, after)
        if cause == "earlier":
            # The update goes on from an earlier attempt.
            return "attempt", self.row_of[after]
        self._add(client, "queue", attempt["selected_s"])
        if cause == "end":
            return self._to_attempt(self.row_of[after], ABSENT)
        # Every other cause leads back to the opening of the round: one of these phases fills the time since.
        index = self._open_round_index(attempt["round"])
        opening_s = self.rounds[index]["start_s"]
        if cause == "schedule":
            # A fixed time of the clock, such as the time at which a peer sends.
            self._add(_NO_NUMBER, CLOCK, opening_s)
            self.exact = False
        elif cause == "return":
            self._add(client, ABSENT, opening_s)
            self.exact = False
        else:
            self._add(_NO_NUMBER, BEFORE, opening_s)
        return "open", index

    def _open_round_index(self, number: int) -> int:
        """Return the index of round `number`; if that round opens later, because a peer is ahead, the index of the open round."""
        index = self.round_index_of.get(number)
        if index is not None and self.rounds[index]["start_s"] <= self.time_s:
            return index
        openings_s = [round["start_s"] for round in self.rounds]
        return max(0, bisect_right(openings_s, self.time_s) - 1)

    def _add_steps(self, attempt: dict[Hashable, Any], *, exact: bool) -> bool:
        """Add the steps of an attempt that began before the time of the walk, the last first.

        Return False if the end of another attempt let it send: the steps before its upload are left out, and the walk continues
        with that other attempt.
        """
        self.exact, client, edge = exact, attempt["client"], attempt.get("edge")
        for phase in ("upload", "compute", "download"):
            start_s = attempt[f"{phase}_start_s"]
            if not start_s <= self.time_s:  # NaN: not reached
                continue
            self._add(client, phase, start_s, attempt["number"], edge)
            if phase == "upload":
                if attempt["sent_after"] in self.row_of:
                    return False
                if attempt["compute_end_s"] < start_s:
                    # The update queued behind the answer to a probe, which the path does not cover.
                    self.exact = False
                    self._add(client, "queue", attempt["compute_end_s"])
        return True

    def _last_deliveries(self) -> dict[int, int]:
        """Return by round index the row of the last delivered attempt that the round took in: its close may have waited for it.

        If updates carry over, a round takes in what arrives until its close; otherwise what began in it.
        """
        source = self.run.tree or self.run
        rounds, attempts = source.rounds, source.attempts
        delivered = attempts[attempts["outcome"] == "delivered"].sort_values("outcome_s", kind="stable")
        if self.run.carries:
            round_indexes = np.searchsorted(rounds["end_s"].to_numpy(), delivered["outcome_s"].to_numpy())
        else:
            round_indexes = np.searchsorted(rounds["round"].to_numpy(), delivered["round"].to_numpy())
        # In the order of time: of several deliveries of a round, the last one stays.
        return dict(zip(round_indexes.tolist(), delivered.index.tolist(), strict=True))
