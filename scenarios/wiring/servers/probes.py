"""Wiring of the `[probe]` table: probes of clients before a policy selects."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from netsim.clients.pool import ClientPool
from netsim.clients.probes import Probes, Question
from netsim.core.null_objects import NoTime
from netsim.core.streams import RepeatedStreams, Streams
from netsim.network.medium import Medium
from netsim.servers.rounds.probing import FreeProbing, Probing, TimedProbing
from scenarios.schema.errors import UserError
from scenarios.schema.probe import Probe, asks_clients, policy_tests, question_of
from scenarios.wiring.clients.population import Context, IntArray
from scenarios.wiring.clients.work import TimeOfWork
from scenarios.wiring.laws import delay_timeline
from scenarios.wiring.network.payload import decompress_s

if TYPE_CHECKING:
    from scenarios.registry.components import Component
    from scenarios.wiring.cautions.outlook import HasLaws
    from scenarios.wiring.world import World


def build_probing(world: World, pool: ClientPool, policy: Component | None, edge: str | None = None) -> Probing | None:
    """Return the probing of clients of `pool` before `policy` selects, or None if it does not ask them; raises UserError.

    `edge`: edge whose policy it is; None: that of the server.
    """
    if policy is None or not asks_clients(policy):
        return None
    section, question = world.scenario.probe or Probe(), question_of(policy)
    losses = question == "loss"
    evaluated = _evaluated_samples(world, section) if losses else None
    if not section.timed:
        return FreeProbing(
            clock=pool.clock,
            learner=world.learner,
            samples=section.samples,
            evaluated=evaluated,
            losses=losses,
            tests=policy_tests(policy),
            edge=edge,
        )
    streams = RepeatedStreams(world.scenario.seed, prefix="probe.")
    if question == "profile":
        evaluated = _trained_on(world)
        medium = _update_links(world, pool, streams)
    else:
        medium = _answer_links(world, pool, streams, section, evaluated, losses=losses)
    testing = _test_question(world, pool, streams, section) if policy_tests(policy) else None
    asking = Question(medium, evaluated)
    probes = Probes(pool=pool, asking=asking, testing=testing, deadline_s=section.deadline_s, repeat=streams.repeat)
    # Only clients that received the model hold it.
    reuse = section.reuse_model and question != "request"
    return TimedProbing(probes=probes, learner=world.learner, samples=section.samples, reuse_model=reuse, losses=losses)


def _test_question(world: World, pool: ClientPool, streams: Streams, section: Probe) -> Question:
    """Return the question that asks clients to test the model on their own test data, of equal size. Raises UserError."""
    count, trained = world.population.count, world.trained
    if world.scenario.learner is None:
        kind = world.scenario.method.kind
        raise UserError(f"policy.kind = {kind!r}: asks clients to test the model, and nothing is trained; add a [learner]")
    try:
        samples = None if trained is None else trained.tests.local_tests("own").shape[1]
    except ValueError as error:
        raise UserError(f"learner.data: among the test samples, which clients are asked to test the model on, {error}") from error
    # A scenario that is only checked has no test set; any number will do.
    evaluated = np.full(count, 1 if samples is None else samples, np.int64)
    return Question(_answer_links(world, pool, streams, section, evaluated, losses=True), evaluated)


def _update_links(world: World, pool: ClientPool, streams: Streams) -> Medium:
    """Return links on which a probe takes the way of a whole update: its sizes, its work and its times, drawn from `streams`."""
    delays, training = world.delays, world.training
    return pool.medium.probe_links(
        download=delays["download"],
        compute=delays["compute"],
        sample=training.update_sample(),
        upload=delays["upload"],
        streams=streams,
    )


def _answer_links(
    world: World, pool: ClientPool, streams: Streams, section: Probe, evaluated: IntArray | None, *, losses: bool
) -> Medium:
    """Return the links of probes whose answer has `section.answer_bytes`.

    `losses`: True if clients get the model, evaluate it on `evaluated` (K,) samples (None: unknown) and report a loss. Otherwise
    they answer a request of the same size at once.
    """
    scenario, training = world.scenario, world.training
    answer = section.answer_bytes + int(np.ceil(scenario.payload.header_bytes))
    if not losses:
        return pool.medium.probe_links(
            download=world.delays["download"],
            compute=NoTime(),
            sample=None,
            upload=world.delays["upload"],
            streams=streams,
            request_bytes=answer,
            answer_bytes=answer,
        )
    sample = None if training.sample is None else _scaled(training.sample, section.forward_share, world.context)
    return pool.medium.probe_links(
        download=world.delays["download"],
        compute=_overhead(world, section, evaluated),
        sample=sample,
        upload=world.delays["upload"],
        streams=streams,
        answer_bytes=answer,
    )


def _trained_on(world: World) -> IntArray | None:
    """Return the samples (K,) on which an update trains; None if unknown."""
    planned, *_ = world.training.work.amounts(np.arange(world.population.count))
    return None if None in planned else np.array(planned, np.int64)


def _evaluated_samples(world: World, section: Probe) -> IntArray | None:
    """Return the samples (K,) that each client evaluates; None if unknown. Raises UserError if they are unknown but needed."""
    scenario, count = world.scenario, world.population.count
    data_sizes: IntArray | None = None
    if world.trained is not None or (scenario.learner is None and scenario.clients.data_sizes is not None):
        data_sizes = np.asarray(np.ceil(world.data_sizes), np.int64)
    if section.samples is not None:
        asked = np.full(count, section.samples)
        return asked if data_sizes is None else np.minimum(asked, data_sizes)
    if data_sizes is None and scenario.learner is None and world.training.sample is not None and section.timed:
        raise UserError("probe.samples: must be given, or clients.data_sizes: nobody says how many samples clients evaluate")
    return data_sizes


def _scaled(sample_time: HasLaws, share: float, context: Context) -> TimeOfWork:
    """Return the timeline of `sample_time`, the time of a sample in training, multiplied by `share`."""
    return TimeOfWork(np.full(context.population.count, share), sample_time)


def _overhead(world: World, section: Probe, evaluated: IntArray | None) -> HasLaws:
    """Return the timeline of an evaluation's time beside the time of its samples.

    With a speed it is `compute.delay`, as in training. Without a speed `compute.delay` is the time of the whole training, of
    which an evaluation takes a share. The model is decompressed for it, and no update is compressed.
    """
    codec_s = decompress_s(world.scenario, world.population, world.sizes)
    if world.training.sample is not None:
        return delay_timeline(world.scenario.compute, "compute", world.context, besides_s=codec_s)
    factor = np.full(world.population.count, section.forward_share)
    trained_on = _trained_on(world)
    if evaluated is not None and trained_on is not None:
        factor *= evaluated / trained_on
    training_time = delay_timeline(world.scenario.compute, "compute", world.context)
    return TimeOfWork(factor, training_time, codec_s)
