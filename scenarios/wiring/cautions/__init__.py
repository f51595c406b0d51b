"""Warnings of a scenario: lists of small rules, for facts known before a run and for outcomes of a run.

A rule takes an `Outlook` or an `Outcome` and yields its warnings; a new rule is a function and its line in one of the lists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from scenarios.schema.cautions import Caution
from scenarios.wiring.cautions.deliveries import long_timeout, no_round, nothing_delivered, standstill, waited_for_days
from scenarios.wiring.cautions.detectors import unseen_latency
from scenarios.wiring.cautions.learning import not_finite, short_jobs, too_many_workers
from scenarios.wiring.cautions.no_effect import (
    epochs_beside_steps,
    late_clients,
    learner_beside_work,
    privacy_weight,
    resends_in_vain,
)
from scenarios.wiring.cautions.outlook import Outcome, Outlook
from scenarios.wiring.cautions.presence import absent_clients
from scenarios.wiring.cautions.times import change_points, no_time, short_deadline, short_time_limit

BEFORE: tuple[Callable[[Outlook], Iterable[Caution]], ...] = (
    change_points,
    privacy_weight,
    late_clients,
    resends_in_vain,
    epochs_beside_steps,
    learner_beside_work,
    unseen_latency,
    no_time,
    short_deadline,
    short_time_limit,
    absent_clients,
    too_many_workers,
)
"""The rules of a scenario before its run."""
AFTER: tuple[Callable[[Outcome], Iterable[Caution]], ...] = (
    no_round,
    waited_for_days,
    standstill,
    nothing_delivered,
    long_timeout,
    not_finite,
    short_jobs,
)
"""The rules of a run that is over or was stopped."""


def before_run(outlook: Outlook) -> list[Caution]:
    """Return the warnings of a scenario before it runs."""
    return [caution for rule in BEFORE for caution in rule(outlook)]


def after_run(outcome: Outcome) -> list[Caution]:
    """Return the warnings of a run once it is over."""
    return [caution for rule in AFTER for caution in rule(outcome)]
