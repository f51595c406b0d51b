"""Checks of a learner: methods and options that do not go together are refused."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from models.errors import ParameterError
from models.fl.compression.sign import NEEDS_VOTE
from models.fl.learners.methods import Methods
from models.fl.options.demands import Demands, check_demands
from models.fl.options.names import TrainingOptions
from models.fl.options.parameters import STATISTICS_NOT_VOTED
from models.fl.training.local_work import Update

IntArray = NDArray[np.int64]


def check_fresh(demands: Demands, updates: list[Update], staleness: IntArray) -> None:
    """Refuse updates that a method does not go with: of an old model, or twice of one client."""
    if demands.fresh and (staleness.any() or len({update.client for update in updates}) < len(updates)):
        reason = f"{demands.name} goes with updates of the present model, one a client; set server.kind = 'synchronous'"
        raise ParameterError("aggregation.kind", None, reason, shown="")


def check_training(methods: Methods, options: TrainingOptions) -> None:
    """Refuse what the aggregation does not go with of local training and of the server."""
    check_demands(
        methods.aggregation.demands,
        optimizer=type(methods.optimizer).__name__,
        rate=methods.optimizer.rate,
        momentum=methods.optimizer.momentum,
        options=options,
        own_training=methods.own_key,
        server_optimizer=type(methods.server_optimizer).__name__,
        server_rate=methods.server_optimizer.rate,
    )


def check_aggregation(methods: Methods, options: TrainingOptions, *, averages_statistics: bool) -> None:
    """Refuse what does not go with the aggregation; `averages_statistics`: the server has running statistics to average."""
    if methods.aggregation.needs_contribution and not options.contribution_samples:
        raise ParameterError("contribution_samples", 0, "must be > 0 for aggregation by contribution")
    if methods.compression.needs_vote and not methods.aggregation.votes:
        raise ParameterError("compression", "none", NEEDS_VOTE, shown="")
    if methods.aggregation.votes and averages_statistics:
        raise ParameterError("aggregation.kind", "majority-vote", STATISTICS_NOT_VOTED)
