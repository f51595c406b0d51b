"""Local training of an update."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from netsim.clients.steps.stages import TRAINING
from netsim.clients.steps.step import Executor, Step
from netsim.clients.vectorised.columns import DRAWN, SAMPLES, STEPS, start_row

if TYPE_CHECKING:
    from collections.abc import Callable

    from netsim.clients.rules import Load
    from netsim.clients.update import Update
    from netsim.clients.vectorised.forecast import Forecast
    from netsim.network.medium import Medium


class Compute(Step):
    """Step of local training: a time for the update, and a time for each of its samples.

    `on_work`: callback that returns the work as training begins, or None if other code ends the training later, by `proceed` of
    the executor. Without a callback the work is planned when the update begins.
    """

    phase, power = TRAINING.name, TRAINING.power

    def __init__(self, executor: Executor, medium: Medium, on_work: Callable[[Update], Load | None] | None = None) -> None:
        self.foreseeable = not medium.work.eager and on_work is None
        self._executor, self._work, self._on_work = executor, medium.work, on_work
        self._row = start_row(TRAINING)

    def begin(self, update: Update, now: float) -> None:
        """Begin to train, and schedule the end if its time is known. `foresee` must compute the same duration."""
        draws, besides_s, look_s = update.model_draws, 0.0, 0.0
        # Samples to count the time by; those of a message of an application are weighted.
        samples: float | None = update.work_samples
        if self._on_work is not None:
            load = self._on_work(update)
            if load is None:
                # The caller ends the training by itself.
                update.compute_from(now)
                update.phase, update.phase_start_s = self.phase, now
                self._executor.wait(update, self.power, now)
                return
            update.work_samples, samples, besides_s = load.samples, load.weighted_samples, load.besides_s
            look_s = load.look_s
        update.compute_from(now)
        lasts_s = draws.compute.at(update.place, now) + besides_s
        if samples:
            lasts_s += samples * draws.sample.at(update.place, now)
        if look_s:
            # The application looks for the end of its work only every `look_s` seconds.
            lasts_s = math.ceil(lasts_s / look_s) * look_s
        # A duration too short to change the time (by rounding) counts as zero, here and in `foresee`.
        if now + lasts_s > now:
            self._executor.run(update, self, now + lasts_s, now)
        else:
            # Training of length zero ends in the call that begins it: no event can find the update in this step.
            assert self.following is not None
            update.compute_end_s = now
            self.following.begin(update, now)

    def finish(self, update: Update, now: float) -> None:
        self._executor.proceed(update, now)

    def close(self, update: Update, now: float) -> None:
        """Record start, work and end of the training in the present attempt, which may not be the one in which it began."""
        update.compute_from(update.phase_start_s)
        update.compute_end_s = now

    def foresee(self, forecast: Forecast) -> bool:
        """Compute work, starts and ends of all trainings, as `begin` does for one; False if a duration is not known yet."""
        counts, work, steps = forecast.counts, self._work, forecast.steps
        starts_s = forecast.begin(self._row)
        if steps is not None:
            counts[DRAWN] = steps
        if steps is not None or work.samples is not None:
            samples, steps_taken = work.amounts(forecast.clients, steps)
            counts[SAMPLES], counts[STEPS] = np.asarray(samples), np.asarray(steps_taken)
        compute, sample = forecast.model_draws.compute, forecast.model_draws.sample
        # Seconds (n,) that the trainings last; None while no part of the time is known to differ from zero. The parts are added
        # in the order of `begin`, because sums of floats depend on their order.
        lasts_s: Any = None
        if not compute.certain:
            lasts_s = compute.each_at(starts_s)
            if lasts_s is None:
                return False
        if not sample.certain and work.samples is not None:
            sample_s = sample.each_at(starts_s)
            if sample_s is None:
                return False
            samples_s = counts[SAMPLES] * sample_s
            lasts_s = samples_s if lasts_s is None else lasts_s + samples_s
        if lasts_s is not None:
            forecast.run(self._row, starts_s + lasts_s)
        return True
