"""What may be different in the one round: a client is left out, the server waits less long, or more passes in a second."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from scenarios.runs.reading import parse
from scenarios.schema.errors import UserError
from scenarios.schema.scenario import Scenario
from scenarios.wiring.devices import KEYS, read_devices

Sort = Literal["without", "deadline", "bandwidth", "nothing"]
_LINKS = ("downlink", "uplink")
_COLUMNS = {name for name, key in KEYS.items() if key.endswith(".bandwidth_bytes_per_s")}
"""Of a device table, those of bandwidths."""


@dataclass(frozen=True, slots=True)
class Change:
    """One difference. `value`: the client, the deadline in seconds, the factor of all bandwidths between server and clients."""

    sort: Sort
    value: float | None = None

    @property
    def client(self) -> int | None:
        """The client that is left out."""
        return int(self.value) if self.sort == "without" and self.value is not None else None

    @property
    def deadline_s(self) -> float | None:
        """When the round closes at the latest, counted from its opening."""
        return self.value if self.sort == "deadline" else None

    @property
    def words(self) -> str:
        """For a table's header."""
        return {
            "without": f"without client {self.client}",
            "deadline": f"deadline {self.value:g} s" if self.value is not None else "",
            "bandwidth": f"bandwidth times {self.value:g}" if self.value is not None else "",
            "nothing": "as it was",
        }[self.sort]

    def applied(self, scenario: Scenario, number: int) -> Scenario:
        """The scenario by which round `number` is run; raises UserError where there is nothing that could be different."""
        if self.sort == "deadline":
            self._check_deadline(scenario)
        return self._with_bandwidth(scenario, number) if self.sort == "bandwidth" else scenario

    def _check_deadline(self, scenario: Scenario) -> None:
        kind, deadline_s = scenario.server.kind, self.value or 0.0
        if not scenario.server.closes_by_deadline:
            raise UserError(f"--deadline {deadline_s:g}: server.kind = {kind!r} closes its rounds by no deadline; leave it out")
        if not 0 < deadline_s < float("inf"):
            raise UserError(f"--deadline {deadline_s:g}: must be > 0 seconds")

    def _with_bandwidth(self, scenario: Scenario, number: int) -> Scenario:
        factor = self.value or 0.0
        if scenario.slots is not None and (number - 1) % scenario.slots.rounds:
            first = number - (number - 1) % scenario.slots.rounds
            raise UserError(
                f"--round {number}: is not the first of its slot, and the bandwidth is changed for whole slots; name {first}"
            )
        if not 0 < factor < float("inf"):
            raise UserError(f"--bandwidth {factor:g}: must be a factor > 0, such as 2 for twice the bandwidth")
        devices = None if scenario.clients.devices is None else read_devices(scenario.clients.devices)
        if devices is not None and not _COLUMNS.isdisjoint(devices.columns):
            given = "the scenario gives bandwidths by clients.devices; write them under downlink and uplink"
            raise UserError(f"--bandwidth {factor:g}: {given}")
        tables = _tables(scenario)
        scaled = [_scale(tables[name], factor, name) for name in _LINKS if isinstance(tables.get(name), dict)]
        if not any(scaled):
            none = "limits no bandwidth between server and clients (downlink, uplink)"
            raise UserError(f"--bandwidth {factor:g}: the scenario {none}")
        return parse(tables, "--bandwidth")


def _tables(scenario: Scenario) -> dict[str, Any]:
    return scenario.model_dump(exclude={"sweep"}, exclude_none=True, by_alias=True)


def _scale(link: dict[str, Any], factor: float, path: str) -> bool:
    """Multiply all bandwidths of a link's table, those of its change points too; whether there are any."""
    names = _scale_law(link, factor, f"{path}.bandwidth")
    found = [_scale_number(link, factor), bool(names)]
    if isinstance(link.get("shared"), dict):
        found.append(_scale(link["shared"], factor, f"{path}.shared"))
    for change in link.get("changes", ()):
        _scale_number(change, factor)
        for name in names:
            if name in change.get("bandwidth", {}):
                change["bandwidth"][name] = _times(change["bandwidth"][name], factor)
    return any(found)


def _scale_number(table: dict[str, Any], factor: float) -> bool:
    name = "bandwidth_bytes_per_s"
    if name in table:
        table[name] = _times(table[name], factor)
    return name in table


def _scale_law(table: dict[str, Any], factor: float, path: str) -> set[str]:
    """Multiply the law of a bandwidth, where there is one; the names of the parameters that say how much passes."""
    law = table.get("bandwidth")
    if not isinstance(law, dict):
        return set()
    if law.get("kind") != "by-group":
        return {_scale_one(law, factor, path)}
    return {_scale_one(one, factor, f"{path}.groups.{name}") for name, one in law["groups"].items()}


def _scale_one(law: dict[str, Any], factor: float, path: str) -> str:
    if ":" in str(law.get("kind")):
        raise UserError(f"--bandwidth {factor:g}: {path}.kind = {law['kind']!r} is your own law, and what scales it is not known")
    name = "bytes_per_s" if law.get("kind") == "constant" else "scale"
    law[name] = _times(law.get(name, 1.0), factor)
    return name


def _times(value: Any, factor: float) -> Any:
    """A parameter, in any of the forms that a scenario gives it in, times `factor`."""
    if isinstance(value, Mapping):
        return {name: _times(one, factor) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_times(one, factor) for one in value]
    return value * factor
