"""Jobs of local training, which name their inputs by identity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from models.fl.store.models import ModelId


class StateId(NamedTuple):
    """Identity of a client's state after the job that began in `round`."""

    client: int
    round: int
    """Round of that job; 0: the client has no state yet."""


class Job(NamedTuple):
    """Local training of one client.

    Its result is a function of these fields, independent of time and place of the computation.
    """

    client: int
    round: int
    """Round in which the job began. Together with the client it addresses the random draws."""
    start: ModelId
    """Model that was sent to the client."""
    state: StateId
    """State of the client from which the job continues."""
    steps: int
    """Local steps; 0: as planned."""


def ready_together(jobs: Sequence[Job]) -> list[list[int]]:
    """Return the rows of `jobs` in groups that can be computed together, one group after the other.

    A job is ready once the state from which it continues is computed. States that no job of the list makes exist from the
    start.

    >>> first = ModelId(-1, "version", 0)
    >>> jobs = [Job(2, 1, first, StateId(2, 0), 0), Job(4, 1, first, StateId(4, 0), 0), Job(2, 3, first, StateId(2, 1), 0)]
    >>> ready_together(jobs)
    [[0, 1], [2]]
    """
    not_computed = {StateId(job.client, job.round) for job in jobs}
    groups, remaining = [], list(range(len(jobs)))
    while remaining:
        group = [row for row in remaining if jobs[row].state not in not_computed]
        if not group:
            # Two jobs have one address, so no job is ready: they go one after the other.
            group = remaining[:1]
        not_computed -= {StateId(jobs[row].client, jobs[row].round) for row in group}
        grouped = set(group)
        remaining = [row for row in remaining if row not in grouped]
        groups.append(group)
    return groups
