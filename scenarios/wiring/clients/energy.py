"""The energy and the batteries of a scenario's clients."""

from __future__ import annotations

import numpy as np

from netsim.clients.power.battery import Batteries
from netsim.clients.power.energy import Energy, FollowedPresence
from netsim.clients.power.powers import Powers
from netsim.core.protocols import Availability, FloatArray
from netsim.core.streams import Streams
from scenarios.registry.components import construct, name_refusals
from scenarios.schema.energy import Battery
from scenarios.schema.errors import UserError
from scenarios.schema.scenario import Scenario
from scenarios.wiring.clients.population import Population, resolve_parameters

_LARGEST_W = 1e6
"""Largest power. A larger one would make the power of other clients vanish in the sums, by rounding."""


def build_energy(scenario: Scenario, population: Population, streams: Streams, presence: Availability) -> Energy | None:
    """Return the energy of clients with this presence as `[energy]` describes it, or None; raises UserError."""
    section = scenario.energy
    if section is None:
        return None
    names = ("idle_w", "compute_w", "send_w", "receive_w", "off_w")
    watts = {name: _per_client(getattr(section, name), f"energy.{name}", population) for name in names}
    for name, values in watts.items():
        if values.max() > _LARGEST_W:
            raise UserError(
                f"energy.{name} = {values.max():g} for client {values.argmax()}: must be at most {_LARGEST_W:g} watts"
            )
    with name_refusals("energy", names):
        powers = Powers(**watts)
    # Checked only now, because the powers may come from a table of devices.
    if not any(values.any() for values in watts.values()):
        remedy = "give idle_w, compute_w, send_w or receive_w above 0, or leave the table out"
        if section.battery is None:
            raise UserError(f"energy.idle_w = 0: nothing draws any power; {remedy}")
        raise UserError(f"energy.battery: nothing draws on it; {remedy}")
    batteries, charger = None, None
    if section.battery is not None:
        charger = _charger(section.battery, population, streams)
        batteries = _batteries(section.battery, population, powers, presence, charger)
    followed = FollowedPresence(presence, streams["availability"])
    return Energy(powers=powers, followed=followed, batteries=batteries, charger=charger)


def _per_client(spec: object, path: str, population: Population) -> FloatArray:
    """Return a number, or a value for each client, as an array (K,); raises UserError."""
    return np.broadcast_to(np.asarray(population.values(spec, path), np.float64), (population.count,))


def _charger(section: Battery, population: Population, streams: Streams) -> FollowedPresence | None:
    """Return the times at which the batteries of clients charge, or None; raises UserError."""
    if section.charging is None:
        return None
    path = "energy.battery.charging"
    keywords = resolve_parameters(section.charging, "availability", path, population)
    law = construct(section.charging, "availability", path, keywords, {"clients": population.count})
    return FollowedPresence(law, streams["energy.charging"])


def _batteries(
    section: Battery, population: Population, powers: Powers, presence: Availability, charger: FollowedPresence | None
) -> Batteries:
    """Return the batteries of the clients; raises UserError."""
    names = ("capacity_j", "initial", "threshold", "charge_w")
    if section.capacity_j is None:
        raise UserError("energy.battery.capacity_j: is missing; give it, or a column battery_j in clients.devices")
    parameters = {name: _per_client(getattr(section, name), f"energy.battery.{name}", population) for name in names}
    for name in ("initial", "threshold"):
        # A ramp that leads to 1 may pass it by rounding.
        parameters[name] = np.where(np.isclose(parameters[name], 1.0, rtol=0.0, atol=1e-12), 1.0, parameters[name])
    # A larger charge fills any battery at once, and its product with a time may overflow.
    if parameters["charge_w"].max() > _LARGEST_W:
        worst = parameters["charge_w"].argmax()
        setting = f"energy.battery.charge_w = {parameters['charge_w'][worst]:g} for client {worst}"
        raise UserError(f"{setting}: must be at most {_LARGEST_W:g} watts")
    never = np.zeros(population.count, np.bool_)
    with name_refusals("energy.battery", names):
        return Batteries(
            **parameters,
            draw_w=np.where(presence.on, powers.idle_w, powers.off_w),
            charging=never if charger is None else charger.presence.on,
        )
