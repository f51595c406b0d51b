"""How clients are asked for their loss before a policy selects: the `[probe]` table, wired."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from netsim.clients.pool import ClientPool
from netsim.clients.probes import Probes
from netsim.core.streams import Streams
from netsim.servers.probing import FreeProbing, Probing, TimedProbing
from scenarios.build.bandwidth import varies
from scenarios.build.laws import timeline
from scenarios.build.payload import Message, decompress_s
from scenarios.build.population import Context, IntArray
from scenarios.build.work import TimeOfWork
from scenarios.schema.errors import UserError
from scenarios.schema.probe import Probe

if TYPE_CHECKING:
    from scenarios.build.world import World


def build_probing(world: World, pool: ClientPool) -> Probing | None:
    """Who asks clients of `pool` for their loss; None: the policy does not. Raises UserError."""
    scenario = world.scenario
    if not scenario.probes:
        return None
    section = scenario.probe or Probe()
    evaluated = _evaluated(world, section)
    if not section.timed:
        return FreeProbing(clock=pool.clock, learner=world.learner, samples=section.samples, evaluated=evaluated)
    context, training = world.context, world.training
    answer = section.answer_bytes + int(np.ceil(scenario.payload.header_bytes))
    upload = world.delays["upload"]
    if scenario.uplink.bandwidth_bytes_per_s is not None and not varies(scenario.uplink, context):
        # The time of the bytes is a number that is added to the delay.
        upload = timeline(scenario.uplink, "delay", "uplink", context, Message(answer, "probe.answer_bytes"))
    medium = pool.medium.for_probes(
        download=world.delays["download"],
        compute=_overhead(world, section, evaluated),
        sample=None if training.sample is None else _share(training.sample, section.forward_share, context),
        upload=upload,
        model_bytes=world.sizes.down,
        answer_bytes=answer,
        streams=Streams(scenario.seed, prefix="probe."),
    )
    probes = Probes(pool=pool, medium=medium, evaluated=evaluated, deadline_s=section.deadline_s)
    return TimedProbing(probes=probes, learner=world.learner, samples=section.samples, reuse_model=section.reuse_model)


def _evaluated(world: World, section: Probe) -> IntArray | None:
    """(K,) samples that each client evaluates; None: nobody knows. Raises UserError where that is needed."""
    scenario, count = world.scenario, world.population.count
    held: IntArray | None = None
    if world.trained is not None or (scenario.learner is None and scenario.clients.data_sizes is not None):
        held = np.asarray(np.ceil(world.data_sizes), np.int64)
    if section.samples is not None:
        return np.minimum(section.samples, held) if held is not None else np.full(count, section.samples)
    if held is None and scenario.learner is None and world.training.sample is not None and section.timed:
        raise UserError("probe.samples: must be given, or clients.data_sizes: nobody says how many samples clients evaluate")
    return held


def _share(each: Any, share: float, context: Context) -> TimeOfWork:
    return TimeOfWork(np.full(context.population.count, share), each)


def _overhead(world: World, section: Probe, evaluated: IntArray | None) -> Any:
    """The timeline of what an evaluation takes beside the time of its samples.

    Where a speed is given, that is `compute.delay`, as of training; otherwise `compute.delay` is the time of the whole training,
    of which an evaluation takes its share. The model is decompressed for it, and no update is compressed.
    """
    codec_s = decompress_s(world.scenario, world.population, world.sizes)
    compute = partial(timeline, world.scenario.compute, "delay", "compute", world.context)
    if world.training.sample is not None:
        return compute(besides_s=codec_s)
    factor = np.full(world.population.count, section.forward_share)
    planned = world.training.work.amounts(np.arange(len(factor)))[0]
    if evaluated is not None and None not in planned:
        factor *= evaluated / np.array(planned, np.float64)
    return TimeOfWork(factor, compute(), codec_s)
