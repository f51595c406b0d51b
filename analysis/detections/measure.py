"""Scores of a scheduler's detectors: declared changes against true changes of the sub-channels.

A change is found by the first declaration from the round on in which the new means hold, before the next change; without one it
is missed. Any further declaration counts as caused by jamming if jammed transmissions led to it, and else as a false alarm. A
scheduler that resets all sub-channels does so at the first declaration of any. Missed changes are therefore counted for all
detectors together; changes found and false alarms are counted by sub-channel.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from analysis.results.run import Run

Cause = Literal["change", "jamming", "false alarm"]


class Declaration(Protocol):
    """The columns of a row of `detections.parquet` that are scored."""

    @property
    def round(self) -> int:
        """Round after which the change was declared."""

    @property
    def channel(self) -> int:
        """Sub-channel of the detector."""

    @property
    def jammed(self) -> int:
        """Number of jammed transmissions that led to the declaration."""


@dataclass(frozen=True, slots=True)
class DetectionScore:
    """Score of declarations against true changes.

    Delays are in rounds; they count both the first round of the new means and the round of the declaration.
    """

    changes: tuple[int, ...] | None
    """First round of each true change; None: unknown, so that causes are not distinguished."""
    causes: tuple[Cause, ...]
    """Cause of each declaration."""
    delays_rounds: tuple[int, ...]
    """Delay of each change that was found."""
    found: Mapping[int, int]
    """By sub-channel: changes that its detector was the first to declare."""
    jamming: Mapping[int, int]
    """By sub-channel: declarations that jamming caused."""
    false_alarms: Mapping[int, int]
    """By sub-channel: declarations without a cause."""

    @property
    def missed(self) -> int:
        """Changes without a declaration before the next change or the end of the run."""
        return len(self.changes or ()) - len(self.delays_rounds)

    @property
    def mean_delay_rounds(self) -> float:
        """Mean delay of the detected changes; NaN without any."""
        return sum(self.delays_rounds) / len(self.delays_rounds) if self.delays_rounds else math.nan


def change_rounds(channels: Mapping[str, Any] | None) -> tuple[int, ...] | None:
    """Return the first round of each change of a mean, from the section `channels` of a summary; None if unknown."""
    if channels is None or "first_rounds" not in channels:
        return None
    means = np.asarray(channels["means"])
    mean_changed = (means[1:] != means[:-1]).any(axis=1).tolist()
    # Change points after the end of the run have no first round.
    return tuple(int(first) for first, changed in zip(channels["first_rounds"], mean_changed, strict=False) if changed)


def score(declared: Sequence[Declaration], changes: Sequence[int] | None) -> DetectionScore:
    """Return the score of declarations (in the order of rounds) against true changes (their first rounds, ascending).

    The first declaration after a change, before the next one, is taken as caused by it, on any sub-channel. Each further one
    is caused by jamming if jammed observations led to it, and otherwise a false alarm. `changes` None: unknown.
    """
    if changes is None:
        return DetectionScore(None, (), (), {}, {}, {})
    last_found = -1  # index of the last change that was declared
    causes: list[Cause] = []
    delays: list[int] = []
    first_declared: dict[int, int] = {}
    jamming: dict[int, int] = {}
    alarms: dict[int, int] = {}
    for row in declared:
        segment = sum(first <= row.round for first in changes) - 1
        if segment > last_found:
            last_found = segment
            causes.append("change")
            delays.append(row.round - changes[segment] + 1)
            count = first_declared
        elif row.jammed:
            causes.append("jamming")
            count = jamming
        else:
            causes.append("false alarm")
            count = alarms
        count[row.channel] = count.get(row.channel, 0) + 1
    return DetectionScore(tuple(changes), tuple(causes), tuple(delays), first_declared, jamming, alarms)


def detection_totals(declared: Sequence[Declaration], channels: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the totals of declarations for the summary of a run; all but their number are None if the changes are unknown.

    `channels`: the section of this name of the summary, which states the changes.
    """
    scored = score(declared, change_rounds(channels))
    totals: dict[str, Any] = {"declared": len(declared)}
    if scored.changes is None:
        return totals | dict.fromkeys(("changes", "found", "missed", "mean_delay_rounds", "by_jamming", "false_alarms"))
    mean = scored.mean_delay_rounds
    return totals | {
        "changes": len(scored.changes),
        "found": len(scored.delays_rounds),
        "missed": scored.missed,
        "mean_delay_rounds": None if math.isnan(mean) else mean,
        "by_jamming": sum(scored.jamming.values()),
        "false_alarms": sum(scored.false_alarms.values()),
    }


class _Row(NamedTuple):
    """A row of `detections.parquet`."""

    round: int
    channel: int
    jammed: int


def run_detections(run: Run, changes: Sequence[int] | None = None) -> DetectionScore:
    """Score the `detections.parquet` of a run; without such a table the score knows no changes.

    `changes`: the first rounds of the true changes (ascending), as `rounds.parquet` counts them; None: those of the sub-channels'
    means, in rounds as the table has them, which with slots are communication rounds.
    """
    if not run.has_detections:
        return score((), None)
    columns = run.arrow("detections", _Row._fields).to_pydict()
    if changes is not None:
        columns["round"] = declared_rounds(run).tolist()
    rows = [_Row(*row) for row in zip(*(columns[name] for name in _Row._fields), strict=True)]
    return score(rows, changes_of_means(run) if changes is None else changes)


def declared_rounds(run: Run) -> NDArray[np.int64]:
    """Return the rounds (n,), as the rounds table counts them, in which changes were declared; the run must have detections.

    A declaration in a slot that the end of the run cut short counts for the last slot that closed.
    """
    rounds = run.row_of(run.arrow("detections", ["round"]).column("round").to_numpy())
    return np.minimum(rounds, run.columns(["round"])["round"].size)


def changes_of_means(run: Run) -> tuple[int, ...] | None:
    """Return the first round of each change of the sub-channels' means, with slots in communication rounds; None: unknown."""
    # Summaries of earlier versions state it only for servers with ages, in another table.
    stated = run.summary.get("sub_channels") or run.summary.get("aoi") or {}
    return change_rounds(stated.get("channels"))
