"""Interference in a run, such as jammers, outages and scripts, under which the theorems on regret do not hold."""

from __future__ import annotations

from scenarios.schema.scenario import Scenario


def interference(scenario: Scenario) -> str | None:
    """Return the first kind of interference in a run, as text, or None."""
    if scenario.script is not None:
        return "script: it may change laws, and take clients away, as the run goes"
    if scenario.energy is not None and scenario.energy.battery is not None:
        return "energy.battery: a client whose battery is low cannot be selected, and an empty one ends its update"
    return None


def channels_lose(scenario: Scenario) -> bool:
    """Return True if updates may be lost on a sub-channel of `[channels]`."""
    channels = scenario.channels
    if channels is None:
        return False
    jammed = bool(scenario.jammers_of("channels"))
    return channels.states is not None or channels.channel.kind != "perfect" or jammed or scenario.server.contends
