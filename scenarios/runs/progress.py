"""Progress of a run, by rounds or by its time limit."""

from __future__ import annotations

from netsim.simulation import Simulation
from scenarios.schema.scenario import Scenario


def rounds_done(simulation: Simulation, scenario: Scenario) -> int:
    """Return the rounds that are closed, or, if it is more, the share of `time_limit_s` that has passed, in rounds.

    A run that a time limit ends closes only a part of its rounds, so rounds alone would never reach 100 %.
    """
    closed = simulation.server.round
    if scenario.time_limit_s is None:
        return closed
    share = min(simulation.clock.now / scenario.time_limit_s, 1.0)
    return max(closed, int(share * scenario.rounds))
