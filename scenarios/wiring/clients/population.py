"""Clients of a scenario and their groups, and values that differ between clients as arrays (K,)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netsim.core.streams import Streams
from scenarios.registry.components import Component, Keywords, per_client_parameters
from scenarios.schema.errors import UserError, did_you_mean
from scenarios.schema.per_client import FORMS, ByGroup, Ramp, is_number, is_per_client
from scenarios.schema.world import Clients
from scenarios.wiring.clients.devices import Devices, read_devices
from scenarios.wiring.network.multiplied import Multiplier
from scenarios.wiring.script.targets import Targets

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class Population:
    """Clients of a scenario and their groups; raises UserError if the groups do not hold every client once."""

    def __init__(self, section: Clients) -> None:
        self.count = section.count
        self.devices = None if section.devices is None else read_devices(section.devices)
        """Device table of the clients, or None."""
        self.members: dict[str, IntArray] = self._find_groups(section)
        """The clients of each group, ascending."""
        self.grouped = bool(section.groups or self.devices)
        """True if the scenario gives groups."""

    def _find_groups(self, section: Clients) -> dict[str, IntArray]:
        """Return the clients of each group: from `clients.groups`, or from the device table."""
        devices = self.devices
        if devices is None:
            return self._split(section) or {"all": np.arange(self.count)}
        if devices.by_client:
            if section.groups:
                raise UserError(f"clients.groups: leave them out; {devices.path} says the class of each client")
            return devices.members(self.count)
        shares = devices.shares()
        if section.groups:
            return self._table_groups(section, devices, shares)
        for row in devices.rows:
            if math.isnan(row.share):
                raise devices.refusal(row, f"class {row.name!r} has no share; add a column share, or give clients.groups")
        if abs(sum(shares.values()) - 1.0) > 1e-6:
            raise UserError(f"clients.devices: {devices.path}: the shares add up to {sum(shares.values()):g}; make it 1")
        keys = [(f"{devices.path}: class", f"{devices.path}: class {name!r}: share") for name in shares]
        return self._split_consecutively(list(shares), [share * self.count for share in shares.values()], keys)

    def _table_groups(self, section: Clients, devices: Devices, shares: dict[str, float]) -> dict[str, IntArray]:
        """Return the clients of each of `clients.groups`; raises UserError unless the device table has a row for each group."""
        names = [group.name for group in section.groups]
        for row in devices.rows:
            if row.name not in names:
                raise devices.refusal(row, f"unknown class {row.name!r}; {did_you_mean(row.name, names)} (clients.groups)")
            if not math.isnan(row.share):
                raise devices.refusal(row, "leave the column share out, or clients.groups: both say how many clients there are")
        absent = [name for name in names if name not in shares]
        if absent:
            raise UserError(f"clients.devices: {devices.path}: has no line for group {absent[0]!r}; give every group one")
        return self._split(section)

    def _split(self, section: Clients) -> dict[str, IntArray]:
        """Return the clients of each of `clients.groups`, empty without groups; raises UserError."""
        keys = [(f"clients.groups.{i}.name", f"clients.groups.{i}.share") for i in range(len(section.groups))]
        return self._split_consecutively([group.name for group in section.groups], _group_sizes(section), keys)

    def _split_consecutively(self, names: list[str], sizes: list[float], keys: list[tuple[str, str]]) -> dict[str, IntArray]:
        """Return groups of consecutive clients with these names and sizes; raises UserError.

        `sizes`: numbers of clients, not rounded, that add up to all clients. `keys`: keys of the name and the share of each
        group, for messages.
        """
        members: dict[str, IntArray] = {}
        end, first = 0.0, 0
        for name, size, (name_key, share_key) in zip(names, sizes, keys, strict=True):
            if name in members:
                raise UserError(f"{name_key} = {name!r}: is used twice; give every group its own name")
            end += size
            # Round the ends of the groups, not their sizes: so the groups contain every client, and each differs from its
            # share by less than one client.
            last = math.floor(end + 0.5)
            if last == first:
                raise UserError(f"{share_key} = {size / self.count!r}: is no client of {self.count}; give more, or a count")
            members[name] = np.arange(first, last)
            first = last
        if names and abs(end - self.count) > 1e-6 * self.count:
            raise UserError(f"clients.groups: hold {end:g} clients, clients.count is {self.count}; make counts and shares add up")
        return members

    @cached_property
    def names(self) -> list[str]:
        """Names of all groups."""
        return list(self.members)

    def places_of(self, clients: IntArray) -> IntArray:
        """Return the index of the group of each of `clients` (n,)."""
        return self._group_indexes[clients].astype(np.int64)

    def names_of(self, clients: IntArray) -> list[str]:
        """Return the group of each of `clients` (n,)."""
        return [self.names[index] for index in self._group_indexes[clients].tolist()]

    @cached_property
    def _group_indexes(self) -> NDArray[np.int32]:
        """Index of each client's group in `names` (K,)."""
        indexes = np.zeros(self.count, np.int32)
        for i, members in enumerate(self.members.values()):
            indexes[members] = i
        return indexes

    @classmethod
    def single_client(cls) -> Population:
        """Return a population of one client."""
        return cls(Clients(count=1))

    def group(self, name: str, path: str) -> IntArray:
        """Return the clients of a group; raises UserError for an unknown name."""
        if name not in self.members:
            raise UserError(f"{path} = {name!r}: unknown group; {did_you_mean(name, self.members)}")
        return self.members[name]

    def select(self, clients: str | list[int] | None, path: str) -> IntArray | None:
        """Return the clients that a key `clients` names, a group or a list; None for all. Raises UserError."""
        if clients is None:
            return None
        if isinstance(clients, str):
            return self.group(clients, path)
        if not clients or max(clients) >= self.count or len(set(clients)) < len(clients):
            raise UserError(f"{path} = {clients!r}: must name some clients between 0 and {self.count - 1}, each once")
        return np.array(clients)

    def values(self, spec: Any, path: str, among: IntArray | None = None) -> float | FloatArray:
        """Return the value `spec` of a scenario as a number, or as an array with an entry for each of `among` (None: all).

        Raises UserError.
        """
        size = self.count if among is None else len(among)
        if isinstance(spec, Ramp):
            return spec.start + (spec.to - spec.start) * np.arange(1, size + 1) / size
        if isinstance(spec, ByGroup):
            return self._group_values(spec, path, np.arange(self.count) if among is None else among)
        if isinstance(spec, np.ndarray) or (isinstance(spec, list) and all(is_number(entry) for entry in spec)):
            if len(spec) != size:
                raise UserError(f"{path}: has {len(spec)} numbers for {size} clients; give one for each")
            return np.array(spec, np.float64)
        if not is_number(spec):
            raise UserError(f"{path} = {spec!r}: must be {FORMS}")
        return float(spec)

    def _group_values(self, spec: ByGroup, path: str, among: IntArray) -> FloatArray:
        """Return the values of `by_group` for the clients `among` (n,); raises UserError for a group without a value."""
        values = np.full(self.count, np.nan)
        for name, value in spec.by_group.items():
            members = self.group(name, f"{path}.by_group")
            values[members] = self.values(value, f"{path}.by_group.{name}", members)
        chosen = values[among]
        if np.isnan(chosen).any():
            left_out = [
                name for name, members in self.members.items() if name not in spec.by_group and np.isin(members, among).any()
            ]
            raise UserError(f"{path}.by_group: gives no value for {', '.join(left_out)}; name every group")
        return chosen


def _group_sizes(section: Clients) -> list[float]:
    """Return the number of clients of each of `clients.groups`, by its count or its share, not rounded."""
    sizes = []
    for group in section.groups:
        size = (group.share or 0.0) * section.count if group.count is None else float(group.count)
        sizes.append(size)
    return sizes


@dataclass(frozen=True)
class Context:
    """Facts of a run that its laws are built from: clients, random numbers and length."""

    population: Population
    streams: Streams
    rounds: int
    time_limit_s: float | None
    targets: Targets | None = None
    """Laws that a script can change; None without a script."""
    multiplier: Multiplier | None = None
    """Factor of the bandwidths between server and clients, set during the run; None: they are not multiplied."""

    drawn_changes: list[tuple[str, str, float]] = field(default_factory=list)
    """Drawn change points: the law, "rounds" or "seconds", and the first round or the time."""

    def without_run_changes(self) -> Context:
        """Return the context for laws other than those of updates: no multiplied bandwidths, and drawn changes of their own."""
        return replace(self, multiplier=None, drawn_changes=[])

    @property
    def alters_bandwidth(self) -> bool:
        """True if a bandwidth may become another one at any time, so that transfers must be timed by events."""
        return self.targets is not None or self.multiplier is not None


def resolve_parameters(
    component: Component, group: str, path: str, population: Population, among: IntArray | None = None
) -> Keywords:
    """Return a component's keywords, with per-client parameters as numbers or arrays (K,).

    `among`: clients that the component is for; None: all.
    """
    keywords = component.parameters()
    for name in per_client_parameters(group, component.kind) & keywords.keys():
        if not is_per_client(keywords[name]):
            continue  # a value that is the same for all clients, such as a file or a choice
        values = population.values(keywords[name], f"{path}.{name}", among)
        if among is not None and isinstance(values, np.ndarray):
            # A law of one group is evaluated for its own clients only; entries of other clients repeat a valid value.
            filled = np.full(population.count, values[0])
            filled[among] = values
            values = filled
        keywords[name] = values
    return keywords
