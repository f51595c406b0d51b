"""Targets of jammers: what each jams, and the checks that it exists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from scenarios.schema.section import problem

if TYPE_CHECKING:
    from scenarios.schema.scenario import Scenario
    from scenarios.schema.servers.kinds import Jammer

Jammed = Literal["channels", "peers", "opinions", "uplink", "downlink"]
"""Values of `jams`: the table that describes the links, or the sub-channels, that a jammer jams."""


def target_of(jammer: Jammer, scenario: Scenario) -> Jammed | Literal["network"]:
    """Return what `jammer` jams: "network" (cables), or a value of the key `jams`.

    Without `jams` and `cables` it is the first of peers, channels and opinions that the scenario has.
    """
    if jammer.jams is not None:
        return jammer.jams
    if jammer.cables is not None:
        return "network"
    if scenario.server.sends_between_clients:
        return "peers"
    no_channels = scenario.channels is None and scenario.scheduler is None
    return "opinions" if scenario.server.slotted and no_channels else "channels"


def check_jammers(scenario: Scenario) -> None:
    """Raise a pydantic refusal of the first jammer whose target does not exist, or is not said clearly."""
    for i, jammer in enumerate(scenario.jammers):
        target = target_of(jammer, scenario)
        if scenario.network is None and jammer.cables is not None:
            raise problem(("jammers", i, "cables"), jammer.cables, "there are no cables; add [network], or leave it out")
        if target == "peers" and jammer.jams is None and jammer.links is None and scenario.channels is not None:
            reason = "must be given where there are links between clients and sub-channels: 'peers' or 'channels'"
            raise problem(("jammers", i, "jams"), None, reason)
        why_not = _why_not(target, scenario)
        if why_not is not None:
            raise problem(("jammers", i, "jams"), target, why_not)
        if jammer.links is not None and target != "peers":
            reason = "names links between clients, which only jams = 'peers' jams; give reach"
            raise problem(("jammers", i, "links"), jammer.links, reason)


def _why_not(target: str, scenario: Scenario) -> str | None:
    """Return why there is no such `target` in `scenario`, with the remedy; None if there is."""
    server = scenario.server
    instant = scenario.slots is not None and scenario.slots.start == "zero"
    exists = {
        "network": scenario.network is not None,
        "channels": scenario.channels is not None,
        "peers": server.sends_between_clients and not instant,
        "opinions": server.slotted and not server.peer_to_peer,
        "uplink": server.sends_updates,
        "downlink": server.sends_updates,
    }
    if exists[target]:
        return None
    reasons = {
        "channels": "there are no sub-channels; give [channels] and [scheduler], or ",
        "peers": "no client sends another a message here; set server.kind to fl-da or peers, or ",
        "opinions": "no client sends the server an opinion here; set server.kind = 'fl-fa', or ",
    }
    if target == "peers" and server.sends_between_clients:
        reasons["peers"] = "with slots.start = 'zero' messages take no time and none is lost; set slots.start to 'agreement', or "
    reason = reasons.get(target, f"server.kind = {server.kind!r} sends no models and updates; ")
    *names, last_name = [repr(name) for name in get_args(Jammed) if exists[name]]
    allowed = f"{', '.join(names)} or {last_name}" if names else last_name
    return f"{reason}set jams to {allowed}"
