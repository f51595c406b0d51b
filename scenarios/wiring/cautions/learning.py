"""Warnings of models and updates that are not finite."""

from __future__ import annotations

from collections.abc import Iterator

from scenarios.schema.cautions import Caution
from scenarios.wiring.cautions.outlook import Outcome


def not_finite(outcome: Outcome) -> Iterator[Caution]:
    """Warn of a model, or of updates, that are not finite."""
    learner = outcome.learner
    if learner is None:
        return
    unscored = learner.unscored
    remedy = "lower learner.optimizer.learning_rate, or see what components of your own return"
    if unscored.samples:
        text = (
            f"learner: from round {unscored.since_round} on the model has no finite scores for {unscored.samples} of "
            f"{unscored.of} test samples. Such samples count as wrong in the accuracy; {remedy}"
        )
        yield Caution("model-not-finite", text)
    if learner.refused_updates:
        text = f"learner: {learner.refused_updates} of {learner.trained_updates} updates were not finite and entered no model"
        yield Caution("updates-not-finite", f"{text}; {remedy}")
