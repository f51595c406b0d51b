"""Checks of a learner, which raise ParameterError for methods and options that exclude each other."""

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


def check_fresh_updates(demands: Demands, updates: list[Update], staleness: IntArray) -> None:
    """Raise ParameterError if a method that needs fresh updates gets one of an old model, or two of one client.

    `staleness` (n,): versions of the model since the one that each update started from.
    """
    if not demands.fresh:
        return
    clients = {update.client for update in updates}
    if staleness.any() or len(clients) < len(updates):
        reason = f"{demands.name} goes with updates of the present model, one a client; set server.kind = 'synchronous'"
        raise ParameterError("aggregation.kind", None, reason, shown="")


def check_training(methods: Methods, options: TrainingOptions) -> None:
    """Raise ParameterError if local training or the server optimizer does not suit the aggregation."""
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
    """Raise ParameterError if an aggregation by contribution or by vote lacks something, or gets what it cannot use.

    `averages_statistics`: True if the server has running statistics of batch normalisation to average.
    """
    if methods.aggregation.needs_contribution and not options.contribution_samples:
        raise ParameterError("contribution_samples", 0, "must be > 0 for aggregation by contribution")
    if methods.compression.needs_vote and not methods.aggregation.votes:
        raise ParameterError("compression", "none", NEEDS_VOTE, shown="")
    if methods.aggregation.votes and averages_statistics:
        raise ParameterError("aggregation.kind", "majority-vote", STATISTICS_NOT_VOTED)
