"""Conversion of attempts that were simulated as arrays to single updates, which go on by events."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from netsim.clients.steps.stages import STAGES
from netsim.clients.update import BEGUN_BY, ModelDraws, SendDraws, Update
from netsim.clients.vectorised.columns import (
    AFTER,
    AGE,
    AWAY,
    BEGUN,
    CLIENT,
    DOWN,
    DRAWN,
    EPSILON,
    LEAK,
    NUMBER,
    PLACE,
    ROUND,
    SAMPLES,
    SELECTED,
    STEPS,
    UP,
    VERSION,
    Columns,
    plain,
    start_row,
)
from netsim.core.causes import Cause

if TYPE_CHECKING:
    from netsim.clients.steps.recipe import Recipe
    from netsim.core.protocols import IntArray

_STARTS = [start_row(stage) for stage in STAGES]


class Released(NamedTuple):
    """Updates made from columns, by round and place of selection."""

    updates: list[Update]
    order: IntArray
    """Indices (n,) of `updates` in the order in which the ends of their steps must be put on the clock."""


def release_attempts(
    attempts: Columns, now_s: float, draws: Mapping[int, tuple[ModelDraws, SendDraws]], recipe: Recipe
) -> Released:
    """Convert attempts in flight at `now_s` to updates, each in the state that `UpdateLifecycle` would have given it.

    Nothing is put on the clock: the caller does that. `draws`: random numbers by round in which the attempts began.
    """
    step_of = {step.phase: step for step in recipe.steps}
    counts = attempts.counts
    attempts = attempts.take(np.lexsort((counts[PLACE], counts[ROUND])))
    cut = attempts.cut_at(now_s)
    starts = cut.times[_STARTS]
    # Index of the present stage of each attempt: a stage that has not begun starts at NaN.
    phases = np.count_nonzero(~np.isnan(starts[1:]), axis=0)
    everyone = np.arange(len(attempts))
    starts_s = starts[phases, everyone]
    # The end lies ahead, so it is read from the columns that are not cut.
    ends_s = attempts.times[[row + 1 for row in _STARTS]][phases, everyone]
    updates = [_update_at(cut, place, draws) for place in range(len(attempts))]
    for update, phase, start_s, end_s in zip(updates, phases.tolist(), starts_s.tolist(), ends_s.tolist(), strict=True):
        update.phase = STAGES[phase].name
        update.phase_start_s, update.due_s = start_s, end_s
        step_of[update.phase].recall(update)
    return Released(updates, cut.order_by_begin())


def _update_at(attempts: Columns, place: int, draws: Mapping[int, tuple[ModelDraws, SendDraws]]) -> Update:
    """Return the attempt at `place` as an update, with the attributes that its steps would have set by events."""
    attempt = attempts.piece(place, place + 1)
    counts, times = attempt.counts[:, 0].tolist(), attempt.times[:, 0].tolist()
    models, sends = draws[counts[ROUND]]
    # A negative number means unknown.
    samples, steps = (None if amount < 0 else amount for amount in (counts[SAMPLES], counts[STEPS]))
    update = Update(
        counts[CLIENT],
        counts[ROUND],
        counts[VERSION],
        counts[PLACE],
        times[SELECTED],
        models,
        (counts[DRAWN], samples, steps),
        plain(attempt.column("group"))[0],
    )
    begun = Cause(BEGUN_BY[counts[BEGUN]], counts[AFTER])
    update.attempt(counts[ROUND], counts[AGE], times[AWAY], times[SELECTED], sends, counts[PLACE], None, begun)
    update.number = counts[NUMBER]
    for stage in STAGES:
        start = start_row(stage)
        setattr(update, stage.start, times[start])
        setattr(update, stage.end, times[start + 1])
        setattr(update, stage.joules, plain(attempt.column(stage.joules))[0])
    update.samples, update.steps = plain(attempt.column("samples"))[0], plain(attempt.column("steps"))[0]
    update.bytes_down, update.bytes_up = counts[DOWN], counts[UP]
    if not math.isnan(times[EPSILON]):
        update.charged = True
        update.epsilon, update.leak, update.budget = times[EPSILON], times[LEAK], times[EPSILON]
    return update
