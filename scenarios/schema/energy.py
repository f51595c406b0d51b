"""Tables of a scenario file about energy: what clients draw in each state, and their batteries."""

from typing import Self

from pydantic import model_validator

from scenarios.registry.components import component_of
from scenarios.schema.per_client import ByGroup, PerClientField, Ramp
from scenarios.schema.section import Section, problem


class Battery(Section):
    """One battery a client. A charge is capped at the capacity; whatever a client draws drains it, idle or not.

    A client whose battery is empty is off: its update is aborted at that instant, with the cause `battery`, and it draws nothing
    until it has been charged to the threshold.
    """

    capacity_j: PerClientField | None = None
    """Energy of a full battery, in joules (a phone's 4 Ah at 3.85 V: 55,000). It may come from a column `battery_j` of
    `clients.devices`; else it must be given."""
    initial: PerClientField = 1.0
    """Share of it that is charged at time 0."""
    threshold: PerClientField = 0.2
    """Share of it below which a client is not selected; above 0. A client at work goes on until the battery is empty."""
    charge_w: PerClientField = 0.0
    """Power of a charger, in watts, also while the client computes or sends."""
    charging: component_of("availability") | None = None  # type: ignore[valid-type]
    """Times at a charger: presence there, by any law of availability. Absent: never."""

    @model_validator(mode="after")
    def _check_charging(self) -> Self:
        """Refuse a charger's power without times at the charger, and such times without power."""
        has_power = not _is_zero(self.charge_w)
        if has_power and self.charging is None:
            raise problem(("charge_w",), _dump(self.charge_w), "is supplied at no time; say in charging when, or leave it out")
        if self.charging is not None and not has_power:
            raise problem(("charging", "kind"), self.charging.kind, "charges nothing; give charge_w > 0, or leave it out")
        return self


class Energy(Section):
    """Power of a client, in watts: in each phase of an update, idle otherwise; an absent client draws `off_w`.

    Tests of the model, opinions and messages between clients draw theirs besides. Absent: energy is not counted.
    """

    idle_w: PerClientField = 0.0
    """While present and in no phase of an update; waiting for a sub-channel is idle."""
    compute_w: PerClientField = 0.0
    """In local training, and while the client tests a model, of a device as a whole: in place of `idle_w`, not on top of it."""
    send_w: PerClientField = 0.0
    """While an update is uploaded, in place of `idle_w`."""
    receive_w: PerClientField = 0.0
    """While the model is downloaded, in place of `idle_w`."""
    off_w: PerClientField = 0.0
    """While absent."""
    battery: Battery | None = None
    """Battery that feeds the clients; absent: the mains."""


def _is_zero(spec: object) -> bool:
    """Return True if a checked specification of per-client numbers is 0 for every client."""
    if isinstance(spec, Ramp):
        return spec.start == 0 and spec.to == 0
    if isinstance(spec, ByGroup):
        return all(_is_zero(value) for value in spec.by_group.values())
    return not any(spec) if isinstance(spec, list) else bool(spec == 0)


def _dump(spec: object) -> object:
    """Return a specification as a message shows it."""
    return spec.model_dump(by_alias=True) if isinstance(spec, Section) else spec
