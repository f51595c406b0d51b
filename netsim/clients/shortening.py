"""Early end of local training, after the present pass over the client's samples."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from netsim.clients.pool import ClientPool
    from netsim.clients.update import Update


def shorten(pool: ClientPool, update: Update) -> None:
    """End the training of `update` after the pass over its samples that is under way: set its steps and samples to what it
    will have done by then, and reschedule the end. Do nothing in the last pass.

    The work law must know the steps of a pass (`a_pass`).
    """
    now, draws, work, client = pool.clock.now, update.model_draws, pool.medium.work, update.client
    assert work.drawn is not None
    assert work.a_pass is not None
    # `drawn_steps` is 0 if the update takes the steps that the law has drawn for its client.
    steps, steps_of_pass = update.drawn_steps or work.drawn.item(client), work.a_pass.item(client)
    start_s, ends_s = update.phase_start_s, update.due_s
    if ends_s >= update.departure_s:
        # `due_s` is the departure of the client, before the end of training: compute that end again.
        ends_s = start_s + draws.compute.at(update.place, start_s)
        if update.work_samples:
            ends_s += update.work_samples * draws.sample.at(update.place, start_s)
    # All steps take the same time, so the passes divide the training evenly.
    pass_s = (ends_s - start_s) * steps_of_pass / steps
    # Number of passes begun; the first one is begun in any case.
    passes = 1
    if pass_s > 0.0:
        # At the very end of a pass rounding must not count the next pass as begun.
        passes = max(1, math.ceil((now - start_s) / pass_s - 1e-9))
    shortened_steps = passes * steps_of_pass
    if shortened_steps >= steps:
        return
    (samples,), (steps_taken,) = work.amounts(np.array([client]), np.array([shortened_steps]))
    update.drawn_steps, update.work_samples, update.work_steps = shortened_steps, samples, steps_taken
    pool.life.replan(update, max(now, start_s + passes * pass_s))
