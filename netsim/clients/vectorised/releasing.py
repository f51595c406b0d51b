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
_ENDS = [row + 1 for row in _STARTS]
"""Rows of `times` in which the stages start and end."""


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
    by_round_and_place = np.lexsort((attempts.counts[PLACE], attempts.counts[ROUND]))
    attempts = attempts.take(by_round_and_place)
    cut = attempts.cut_at(now_s)
    stages, places = _present_stages(cut), np.arange(len(attempts))
    starts_s = cut.times[_STARTS][stages, places]
    # The end of the present stage lies ahead: `cut` has NaN there, so read it from the columns that are not cut.
    ends_s = attempts.times[_ENDS][stages, places]
    updates = []
    for place, stage, start_s, end_s in zip(places.tolist(), stages.tolist(), starts_s.tolist(), ends_s.tolist(), strict=True):
        update = _update_at(cut, place, draws)
        update.phase = STAGES[stage].name
        update.phase_start_s, update.due_s = start_s, end_s
        step_of[update.phase].recall(update)
        updates.append(update)
    return Released(updates, cut.order_by_begin())


def _present_stages(cut: Columns) -> IntArray:
    """Return the stage (n,) that each attempt is in, as an index of STAGES. `cut`: attempts without times that lie ahead."""
    # A stage that has not begun starts at NaN, and the first one has always begun.
    later_starts = cut.times[_STARTS[1:]]
    stages: IntArray = np.count_nonzero(~np.isnan(later_starts), axis=0)
    return stages


def _update_at(attempts: Columns, place: int, draws: Mapping[int, tuple[ModelDraws, SendDraws]]) -> Update:
    """Return the attempt at `place` as an update, with the attributes that its steps would have set by events."""
    attempt = attempts.piece(place, place + 1)
    counts, times = attempt.counts[:, 0].tolist(), attempt.times[:, 0].tolist()
    models, sends = draws[counts[ROUND]]
    # A negative number means unknown.
    samples = None if counts[SAMPLES] < 0 else counts[SAMPLES]
    steps = None if counts[STEPS] < 0 else counts[STEPS]
    update = Update(
        client=counts[CLIENT],
        round=counts[ROUND],
        version=counts[VERSION],
        place=counts[PLACE],
        now_s=times[SELECTED],
        draws=models,
        work=(counts[DRAWN], samples, steps),
        group=plain(attempt.column("group"))[0],
    )
    update.begin_attempt(
        round=counts[ROUND],
        age_rounds=counts[AGE],
        departure_s=times[AWAY],
        now_s=times[SELECTED],
        draws=sends,
        place=counts[PLACE],
        channel=None,
        begun=Cause(BEGUN_BY[counts[BEGUN]], counts[AFTER]),
    )
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
