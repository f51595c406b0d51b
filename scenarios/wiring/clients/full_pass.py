"""Time of an additional pass over all of a client's samples: for a method of aggregation, or for reported losses."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from models.laws.work import WorkPlan
from netsim.network.sizes import Sizes
from scenarios.schema.scenario import Scenario
from scenarios.schema.work import Work
from scenarios.wiring.clients.population import Context
from scenarios.wiring.clients.work import TimeOfWork, Training, build_training
from scenarios.wiring.laws import delay_timeline
from scenarios.wiring.network.payload import codec_s

if TYPE_CHECKING:
    from models.fl.learners.learner import FederatedLearner
    from scenarios.wiring.cautions.outlook import HasLaws


def add_extra_pass(
    scenario: Scenario,
    context: Context,
    sizes: Sizes,
    plan: WorkPlan,
    trained: FederatedLearner | None,
    delays: dict[str, HasLaws],
) -> tuple[Training, dict[str, HasLaws]]:
    """Return (local training, timelines of the phases) of updates, with the time of an additional pass over a client's samples.

    Only if the aggregation or the reported losses need such a pass. `delays`: the timelines without it.

    A forward pass takes `work.forward_share` of the time of training on the same samples; a pass with gradients takes the same
    time as training. With a speed in `[compute]`, the pass adds to the time of each sample. Without a speed `compute.delay` is
    the time of the whole training, and the pass multiplies it. The time to compress stays the same. Raises UserError.
    """
    training, share = build_training(scenario, context, plan, trained), _share(scenario)
    # The samples of clients are unknown if a scenario is only checked.
    if not share or trained is None:
        return training, delays
    planned = np.maximum(np.asarray(training.work.samples), 1)
    longer = 1.0 + share * np.asarray(trained.data_sizes, np.float64) / planned
    if training.sample is not None:
        return replace(training, longer=longer), delays
    whole = delay_timeline(scenario.compute, "compute", context)
    return training, {**delays, "compute": TimeOfWork(longer, whole, codec_s(scenario, context.population, sizes))}


def _share(scenario: Scenario) -> float:
    """Return the time of the pass as a share of training on as many samples; 0 without a pass."""
    learner = scenario.learner
    if learner is None:
        return 0.0
    extra = learner.aggregation.demands.extra_pass
    if extra == "gradient":
        # A pass with gradients gives the loss, too.
        return 1.0
    if extra is None and learner.reported_losses == "training":
        return 0.0
    return Work().forward_share if scenario.work is None else scenario.work.forward_share
