"""Jobs of local training: what a client trains from, by identity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from models.fl.store import ModelId


class StateId(NamedTuple):
    """Identity of what a client keeps from job to job: its state after the job that was begun in `round`."""

    client: int
    round: int
    """0: the client has kept nothing yet."""


class Job(NamedTuple):
    """Local training of one client: a function of these fields, whenever and wherever it is computed."""

    client: int
    round: int
    """The round in which the job was begun: with the client, the address of its random draws."""
    start: ModelId
    """The model that the client was sent."""
    state: StateId
    """The client's earlier state that the job goes on from."""
    steps: int
    """Local steps; 0: as planned."""


def ready_together(jobs: Sequence[Job]) -> list[list[int]]:
    """Return the rows of `jobs` in groups that can be computed at once, one group after the other.

    A job is ready once the state that it goes on from is there. States that no job of the list makes are there from the start.

    >>> first = ModelId(-1, "version", 0)
    >>> jobs = [Job(2, 1, first, StateId(2, 0), 0), Job(4, 1, first, StateId(4, 0), 0), Job(2, 3, first, StateId(2, 1), 0)]
    >>> ready_together(jobs)
    [[0, 1], [2]]
    """
    missing = {StateId(job.client, job.round) for job in jobs}
    groups, left = [], list(range(len(jobs)))
    while left:
        # Jobs of one address that is there twice go one after the other, too.
        group = [row for row in left if jobs[row].state not in missing] or left[:1]
        missing -= {StateId(jobs[row].client, jobs[row].round) for row in group}
        left = [row for row in left if row not in set(group)]
        groups.append(group)
    return groups
