"""The sub-channels of a scenario with their states, scheduler and jammers, for whichever server uses them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from models.laws.changes import Unchanging
from models.laws.sub_channels.sequences import StateSequence
from models.laws.sub_channels.stationary import Sequence
from netsim.clients.pool import ClientPool
from netsim.core.clock import Clock
from netsim.core.protocols import BoolArray, ChannelLaw, FloatArray, Timeline
from netsim.network.access import AssignedAccess
from netsim.network.spectrum import Spectrum
from netsim.servers.sub_channels.channels import ScheduledChannels
from scenarios.registry.components import construct
from scenarios.schema.errors import UserError
from scenarios.schema.scenario import Scenario
from scenarios.schema.world import Clients
from scenarios.wiring.clients.population import Context, Population, resolve_parameters
from scenarios.wiring.laws import channel_timeline, delay_timeline
from scenarios.wiring.network.bandwidth import channel_links
from scenarios.wiring.network.jammers import build_medium_jamming
from scenarios.wiring.network.payload import updates_up

if TYPE_CHECKING:
    from netsim.clients.update import Update
    from netsim.core.scheduling import ChannelScheduler
    from netsim.network.own_link_jamming import MediumJamming
    from scenarios.wiring.world import World


class ChannelTruth:
    """Knowledge of an oracle about the sub-channels: their present means, and their states in the open round.

    `sequence`: states fixed beforehand, which have means; None: the law has them.
    """

    def __init__(self, law: Timeline[ChannelLaw], sequence: StateSequence | None, clock: Clock, spectrum: Spectrum) -> None:
        self._timeline, self._sequence, self._clock, self._spectrum = law, sequence, clock, spectrum
        self._law: ChannelLaw | None = None
        self._means: FloatArray = np.zeros(spectrum.count)

    def means(self, round: int) -> FloatArray:
        """Return the probability (N,) of each sub-channel to be Good, under the law in force now."""
        if self._sequence is not None:
            return self._sequence.means(round)
        law, _ = self._timeline.at(round, self._clock.now)
        if law is not self._law:
            self._law, self._means = law, law.success_probability(self._spectrum.all)
        return self._means

    def states(self, round: int) -> BoolArray:
        """Return True (N,) for sub-channels that deliver a transmission at the opening of the round."""
        return self._spectrum.open_to_all()


@dataclass(frozen=True, kw_only=True)
class BuiltChannels:
    """The sub-channels of a scenario, before they are joined with the clients of a server."""

    access: AssignedAccess[Update]
    jamming: MediumJamming
    """Jammers of the sub-channels, and of the clients' own links."""
    scheduler: ChannelScheduler
    supplied: dict[str, object]
    """Arguments that schedulers and oracles are supplied with."""

    def schedule(self, world: World, pool: ClientPool, *, places: int | None = None, refill: bool = False) -> ScheduledChannels:
        """Return the sub-channels scheduled for the clients of `pool`; raises UserError.

        `places`: number of senders of a round. `refill`: a free sub-channel is assigned again at once.
        """
        return ScheduledChannels(
            pool=pool,
            access=self.access,
            scheduler=self.scheduler,
            streams=world.streams,
            learner=world.learner,
            places=places,
            refill=refill,
        )


def build_channels(world: World, places: int) -> BuiltChannels:
    """Return the sub-channels of `[channels]` with `[scheduler]` and `[[jammers]]`.

    `places`: number of senders of a round. Raises UserError.
    """
    scenario, streams = world.scenario, world.streams
    channels, scheduler = scenario.channels, scenario.scheduler
    assert channels is not None
    assert scheduler is not None
    # Laws of clients serve sub-channels, which stand in the place of clients.
    channel_population = Population(Clients(count=channels.count))
    context = replace(world.context.without_run_changes(), population=channel_population)
    law, sequence = channel_states(scenario, context)
    key = "bandwidth" if channels.bandwidth is not None else "bandwidth_bytes_per_s"
    if getattr(channels, key) is not None and np.ndim(world.sizes.up):
        raise UserError(f"channels.{key}: goes with one payload.up_bytes for all clients; set uplink.{key}")
    message = updates_up(world.sizes)
    links = channel_links(channels, context, message)
    spectrum = Spectrum(
        channels=channels.count,
        law=law,
        delay=delay_timeline(channels, "channels", context, message if links is None else None),
        links=links,
        streams=streams,
        contention=scenario.server.contends,
    )
    jamming = build_medium_jamming(scenario, spectrum, world.clients, streams, world.clock)
    supplied = {
        "clients": places,
        "channels": channels.count,
        "rounds": world.context.rounds,
        "truth": ChannelTruth(law, sequence, world.clock, spectrum),
    }
    return BuiltChannels(
        access=AssignedAccess(spectrum=spectrum, jammers=jamming.jammers),
        jamming=jamming,
        scheduler=construct(scheduler, "scheduler", "scheduler", scheduler.parameters(), supplied),
        supplied=supplied,
    )


def channel_states(scenario: Scenario, context: Context) -> tuple[Timeline[ChannelLaw], StateSequence | None]:
    """Return the timeline of the sub-channels' law, and the sequence of states behind it if there is one; raises UserError."""
    channels = scenario.channels
    assert channels is not None
    if channels.states is None:
        return channel_timeline(channels, "channels", context), None
    supplied = {
        "clients": channels.count,
        "channels": channels.count,
        "generator": context.streams.generator("channels.states"),
        "rounds": context.rounds,
        "horizon_rounds": context.rounds,
        "horizon_s": scenario.time_limit_s,
    }
    keywords = resolve_parameters(channels.states, "states", "channels.states", context.population)
    states = construct(channels.states, "states", "channels.states", keywords, supplied)
    if isinstance(states, StateSequence):
        return Unchanging(Sequence(table=states.table)), states
    if context.targets is not None:
        return context.targets.add_states("channels.states", states, channels.count), None
    return states, None

