"""Warnings of training: models and updates that are not finite, and workers that do not pay."""

from __future__ import annotations

import os
from collections.abc import Iterator

from scenarios.schema.cautions import Caution
from scenarios.wiring.cautions.outlook import Outcome, Outlook


def too_many_workers(outlook: Outlook) -> Iterator[Caution]:
    """Warn of more workers than this machine has cores."""
    learner, cores = outlook.scenario.learner, os.cpu_count() or 1
    if learner is not None and len(learner.options().worker_devices) > cores:
        text = f"learner.workers = {len(learner.options().worker_devices)}: this machine has {cores} cores; give at most as many"
        yield Caution("workers-and-cores", text)


def short_jobs(outcome: Outcome) -> Iterator[Caution]:
    """Warn of workers whose jobs were shorter than the time to distribute them."""
    facts = None if outcome.learner is None else outcome.learner.worker_facts
    if facts is not None and facts["jobs"] and facts["job_s"] < facts["overhead_s"]:
        option = "--cluster" if "machines" in facts else "learner.workers"
        job_ms, overhead_ms = 1000 * facts["job_s"], 1000 * facts["overhead_s"]
        text = f"{option}: a job of training took {job_ms:.2g} ms, less than to give it to a worker, some {overhead_ms:.2g} ms"
        yield Caution("short-jobs", f"{text}; leave {option} out")


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
