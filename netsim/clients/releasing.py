"""From columns to single updates: attempts that were worked out together go on step by step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from netsim.clients.columns import (
    AGE,
    AWAY,
    CLIENT,
    DOWN,
    DOWN_END,
    DOWN_START,
    DRAWN,
    EPSILON,
    LEAK,
    NUMBER,
    PLACE,
    ROUND,
    SAMPLES,
    SELECTED,
    STEPS,
    TRAIN_END,
    TRAIN_START,
    UP,
    UP_END,
    UP_START,
    VERSION,
    Columns,
    plain,
)
from netsim.clients.update import COMPUTE, DOWNLOAD, UPLOAD, ModelDraws, SendDraws, Update

if TYPE_CHECKING:
    from netsim.core.protocols import IntArray

_PHASES = ((DOWNLOAD, DOWN_START, DOWN_END), (COMPUTE, TRAIN_START, TRAIN_END), (UPLOAD, UP_START, UP_END))
_TIMES = ("download_start_s", "download_end_s", "compute_start_s", "compute_end_s", "upload_start_s", "upload_end_s")


def released(
    attempts: Columns, now_s: float, draws: Mapping[int, tuple[ModelDraws, SendDraws]]
) -> tuple[list[Update], IntArray]:
    """Updates as those of `attempts` stand at `now_s`, none of which has ended, by round and place of selection.

    And (n,) their places in the order in which their next steps are to be put on the clock, which this does not do. `draws`: of
    the rounds in which they were begun.
    """
    counts = attempts.counts
    attempts = attempts.at(np.lexsort((counts[PLACE], counts[ROUND])))
    made = attempts.reached(now_s)
    phases = np.count_nonzero(~np.isnan(made.times[[TRAIN_START, UP_START]]), axis=0)
    everyone = np.arange(len(attempts))
    ends_s = attempts.times[[DOWN_END, TRAIN_END, UP_END]][phases, everyone]
    starts_s = made.times[[DOWN_START, TRAIN_START, UP_START]][phases, everyone]
    updates = [_update(made, place, draws) for place in range(len(attempts))]
    for update, phase, start_s, end_s in zip(updates, phases.tolist(), starts_s.tolist(), ends_s.tolist(), strict=True):
        update.phase = _PHASES[phase][0]
        update.phase_start_s, update.due_s = start_s, end_s
        if update.phase == UPLOAD:
            update.survives = update.send_draws.uplink.at(update.send_place, start_s)
    return updates, made.in_order_of_begin()


def _update(made: Columns, place: int, draws: Mapping[int, tuple[ModelDraws, SendDraws]]) -> Update:
    one = made.piece(place, place + 1)
    counts, times = one.counts[:, 0].tolist(), one.times[:, 0].tolist()
    models, sends = draws[counts[ROUND]]
    # Below 0: nobody knows.
    planned = [None if amount < 0 else amount for amount in (counts[SAMPLES], counts[STEPS])]
    update = Update(
        counts[CLIENT],
        counts[ROUND],
        counts[VERSION],
        counts[PLACE],
        times[SELECTED],
        models,
        (counts[DRAWN], planned[0], planned[1]),
        plain(one.column("group"))[0],
    )
    update.attempt(counts[ROUND], counts[AGE], times[AWAY], times[SELECTED], sends, counts[PLACE], None)
    update.number = counts[NUMBER]
    for name, time_s in zip(_TIMES, times[DOWN_START : UP_END + 1], strict=True):
        setattr(update, name, time_s)
    for name in ("receive_j", "compute_j", "send_j"):
        setattr(update, name, plain(one.column(name))[0])
    update.samples, update.steps = plain(one.column("samples"))[0], plain(one.column("steps"))[0]
    update.bytes_down, update.bytes_up = counts[DOWN], counts[UP]
    if times[EPSILON] == times[EPSILON]:
        update.charged = True
        update.epsilon, update.leak, update.budget = times[EPSILON], times[LEAK], times[EPSILON]
    return update
