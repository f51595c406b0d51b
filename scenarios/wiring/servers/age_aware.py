"""The asynchronous server of a scenario: its sub-channels, jammers, scheduler and oracle, wired to the clients' own links."""

from __future__ import annotations

from netsim.core.null_objects import NoOracle
from netsim.core.scheduling import AgeMeter
from netsim.core.streams import Streams
from netsim.servers.kinds.age_aware import age_aware_server
from netsim.servers.sub_channels.age_oracle import AgeOracle
from scenarios.registry.components import Keywords
from scenarios.registry.kinds import resolve
from scenarios.schema.scenario import Scenario
from scenarios.schema.servers.kinds import Asynchronous
from scenarios.wiring.network.channels import build_channels
from scenarios.wiring.servers.server import Server
from scenarios.wiring.world import World


def asynchronous(world: World, section: Asynchronous) -> Server:
    """Return the server of kind "asynchronous", with ages of information over the sub-channels of `[channels]`; raises
    UserError.
    """
    channels = build_channels(world, world.population.count)
    pool = world.new_pool(channels, retry=True, instant=not section.contention)
    scheduled = channels.schedule(world, pool)
    return age_aware_server(
        pool=pool,
        channels=scheduled,
        learner=world.learner,
        meter=_oracle(world.scenario, world.streams, channels.supplied),
        round_s=section.round_s,
        wait_for_compute=section.wait_for_compute,
    )


def _oracle(scenario: Scenario, streams: Streams, supplied: Keywords) -> AgeMeter:
    """Return the meter of the ages that the oracle's scheduler reaches; a null object without an oracle."""
    kind = scenario.oracle
    if kind == "none":
        return NoOracle()
    scheduler = resolve("scheduler", kind)(**{name: supplied[name] for name in ("clients", "channels", "truth")})
    return AgeOracle(scheduler=scheduler, clients=supplied["clients"], channels=supplied["channels"], streams=streams)
