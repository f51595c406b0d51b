"""From the laws of a scenario file to the engine's timelines: parameters a client, change points written out or drawn."""

from __future__ import annotations

import typing
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.changes import Piecewise, Unchanging, draw_change_points, draw_factor
from models.delays import ByGroup as GroupedDelay
from models.delays import SizeDependent
from netsim.streams import Streams
from scenarios.errors import UserError, did_you_mean
from scenarios.parts import ByGroup, DelayByGroup, Part, Ramp, at_path, construct, per_client_knobs
from scenarios.schema import Change, Clients, Compute, Downlink, RandomChanges

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Keywords = dict[str, Any]


class Population:
    """The clients of a scenario: how many, and in which groups."""

    def __init__(self, section: Clients) -> None:
        self.count = section.count
        self.members: dict[str, IntArray] = {}
        start = 0
        for i, group in enumerate(section.groups):
            if group.name in self.members:
                raise UserError(f"clients.groups.{i}.name = {group.name!r}: is used twice; give every group its own name")
            size = group.count if group.count is not None else round((group.share or 0.0) * self.count)
            rest = self.count - start
            if group.share is not None and i == len(section.groups) - 1 and abs(size - rest) < len(section.groups):
                size = rest  # shares that add up to 1 may miss the count by rounding
            self.members[group.name] = np.arange(start, start + size)
            start += size
        if section.groups and start != self.count:
            raise UserError(f"clients.groups: hold {start} clients, clients.count is {self.count}; make them add up")
        if not section.groups:
            self.members["all"] = np.arange(self.count)

    def group(self, name: str, path: str) -> IntArray:
        """The clients of a group; raises UserError for an unknown name."""
        if name not in self.members:
            raise UserError(f"{path} = {name!r}: unknown group; {did_you_mean(name, self.members)}")
        return self.members[name]

    def some(self, which: str | list[int] | None, path: str) -> IntArray:
        """The clients that a `clients` key names."""
        if which is None:
            return np.arange(self.count)
        if isinstance(which, str):
            return self.group(which, path)
        if not which or max(which) >= self.count:
            raise UserError(f"{path} = {which!r}: must name clients between 0 and {self.count - 1}")
        return np.array(which)

    def values(self, spec: Any, path: str, among: IntArray | None = None) -> float | FloatArray:
        """A per-client knob as a number, or as an array with an entry for each of `among` (default: all clients)."""
        size = self.count if among is None else len(among)
        if isinstance(spec, Ramp):
            return spec.start + (spec.to - spec.start) * np.arange(1, size + 1) / size
        if isinstance(spec, list):
            if len(spec) != size:
                raise UserError(f"{path}: has {len(spec)} numbers for {size} clients; give one for each")
            return np.array(spec, np.float64)
        if isinstance(spec, ByGroup):
            values = np.full(self.count, np.nan)
            for name, value in spec.by_group.items():
                members = self.group(name, f"{path}.by_group")
                values[members] = self.values(value, f"{path}.by_group.{name}", members)
            if among is not None:
                values = values[among]
            if np.isnan(values).any():
                left_out = [name for name in self.members if name not in spec.by_group]
                raise UserError(f"{path}.by_group: gives no value for {', '.join(left_out)}; name every group")
            return values
        return float(spec)


@dataclass(frozen=True)
class Context:
    """What the laws of one run are built with."""

    population: Population
    streams: Streams
    rounds: int
    time_limit_s: float | None


def resolve_knobs(part: Part, group: str, path: str, population: Population, among: IntArray | None = None) -> Keywords:
    """A part's keywords with per-client knobs as numbers or arrays over all clients (the clients in `among` filled in)."""
    varying = per_client_knobs(group, part.kind)
    keywords = part.knobs()
    for name in varying & keywords.keys():
        values = population.values(keywords[name], f"{path}.{name}", among)
        if among is not None and isinstance(values, np.ndarray):
            # A law of one group is asked for its own clients only; the entries of the others repeat a valid value.
            everyone = np.full(population.count, values[0])
            everyone[among] = values
            values = everyone
        keywords[name] = values
    return keywords


class _Law:
    """A law on its way to a timeline: its keywords, which changes replace."""

    def __init__(self, part: Part, group: str, path: str, context: Context) -> None:
        self.part, self.group, self.path, self.context = part, group, path, context
        population = context.population
        self.inner: dict[str, _Inner] = {}
        if isinstance(part, DelayByGroup):
            for name, inner in part.groups.items():
                members = population.group(name, f"{path}.groups")
                place = f"{path}.groups.{name}"
                self.inner[name] = _Inner(inner, place, resolve_knobs(inner, group, place, population, members), members)
            missing = [name for name in population.members if name not in part.groups]
            if missing:
                raise UserError(f"{path}.groups: gives no law for {', '.join(missing)}; name every group")
        else:
            everyone = np.arange(population.count)
            self.inner["all"] = _Inner(part, path, resolve_knobs(part, group, path, population), everyone)

    def base(self, name: str, path: str) -> dict[str, Any]:
        """The present value of a parameter in each inner law that has it."""
        found = {key: inner.keywords[name] for key, inner in self.inner.items() if name in inner.varying(self.group)}
        if not found:
            names = set().union(*(inner.varying(self.group) for inner in self.inner.values()))
            raise UserError(f"{path} = {name!r}: no such parameter of the law; {did_you_mean(name, names)}")
        return found

    def change(self, new: dict[str, Any], chosen: IntArray, path: str) -> None:
        """Give `chosen` clients new parameters."""
        for name, spec in new.items():
            values = self.context.population.values(spec, f"{path}.{name}", chosen)
            touched = False
            for key in self.base(name, path):
                inner = self.inner[key]
                mask = np.isin(chosen, inner.members)
                if not mask.any():
                    continue
                touched = True
                if len(chosen) == self.context.population.count and not isinstance(values, np.ndarray):
                    inner.keywords[name] = values
                    continue
                everyone = np.array(np.broadcast_to(inner.keywords[name], (self.context.population.count,)), np.float64)
                everyone[chosen[mask]] = values[mask] if isinstance(values, np.ndarray) else values
                inner.keywords[name] = everyone
            if not touched:
                raise UserError(f"{path}.{name}: the law of these clients has no such parameter")

    def build(self) -> Any:
        """The law as it stands now."""
        supplied = {"clients": self.context.population.count}
        laws = [construct(inner.part, self.group, inner.path, dict(inner.keywords), supplied) for inner in self.inner.values()]
        if len(laws) == 1 and not isinstance(self.part, DelayByGroup):
            return laws[0]
        group_of = np.zeros(self.context.population.count, np.int64)
        for i, inner in enumerate(self.inner.values()):
            group_of[inner.members] = i
        return GroupedDelay(laws=laws, group_of=group_of)


@dataclass
class _Inner:
    part: Part
    path: str
    keywords: Keywords
    members: IntArray

    def varying(self, group: str) -> frozenset[str]:
        return per_client_knobs(group, self.part.kind)


def _random_changes(drawn: RandomChanges, law: _Law, what: str, path: str, context: Context) -> list[tuple[Change, str]]:
    kind, _, name = drawn.parameter.partition(".")
    if kind not in ("delay", "channel") or not name:
        raise UserError(f"{path}.parameter = {drawn.parameter!r}: must be delay.NAME or channel.NAME")
    if kind != what:
        return []
    horizon = drawn.horizon or (context.rounds if drawn.unit == "rounds" else context.time_limit_s)
    if horizon is None:
        raise UserError(f"{path}.horizon is missing; give it in seconds, or set time_limit_s")
    chosen = context.population.some(drawn.clients, f"{path}.clients")
    base = np.full(context.population.count, np.nan)
    for key, value in law.base(name, f"{path}.parameter").items():
        members = law.inner[key].members
        base[members] = np.broadcast_to(value, (context.population.count,))[members]
    rng = context.streams.generator(f"changes.{path}")
    try:
        starts = draw_change_points(count=drawn.count, horizon=horizon, min_spacing=drawn.min_spacing, rng=rng, unit=drawn.unit)
        factors = draw_factor(low=drawn.factor_low, high=drawn.factor_high, count=drawn.count, rng=rng)
    except ValueError as error:
        raise UserError(at_path(path, str(error))) from error
    changes = []
    for start, factor in zip(starts.tolist(), factors.tolist(), strict=True):
        time: dict[str, Any] = {"at_round": int(start)} if drawn.unit == "rounds" else {"at_s": start}
        new = {name: (base[chosen] * factor).tolist()}
        change = Change.model_validate({**time, "clients": chosen.tolist(), what: new})
        changes.append((change, path))
    return changes


def timeline(section: Compute, what: str, path: str, context: Context, payload_bytes: int = 0) -> Any:
    """The timeline of the delay ("delay") or channel ("channel") law of one link or of local training."""
    law = _Law(getattr(section, what), what, f"{path}.{what}", context)
    bandwidth: Any = None
    if what == "delay" and isinstance(section, Downlink) and section.bandwidth_bytes_per_s is not None:
        bandwidth = context.population.values(section.bandwidth_bytes_per_s, f"{path}.bandwidth_bytes_per_s")

    def build() -> Any:
        inner = law.build()
        if bandwidth is None:
            return inner
        try:
            return SizeDependent(payload_bytes=payload_bytes, bandwidth_bytes_per_s=bandwidth, delay=inner)
        except ValueError as error:
            raise UserError(at_path(path, str(error))) from error

    changes = [(change, f"{path}.changes.{i}") for i, change in enumerate(section.changes)]
    if section.random_changes is not None:
        changes += _random_changes(section.random_changes, law, what, f"{path}.random_changes", context)
    mine = [(c, place) for c, place in changes if getattr(c, what) or (what == "delay" and c.bandwidth_bytes_per_s is not None)]
    _check_changes(section, changes)
    first = build()
    if not mine:
        return Unchanging(first)
    units = {"rounds" if change.at_round is not None else "seconds" for change, _ in mine}
    if len(units) > 1:
        raise UserError(f"{path}.changes: some are in rounds and some in seconds; use one unit for one law")
    mine.sort(key=lambda pair: pair[0].at_round or pair[0].at_s or 0.0)
    laws = [first]
    starts: list[float] = []
    for change, place in mine:
        chosen = context.population.some(change.clients, f"{place}.clients")
        law.change(getattr(change, what), chosen, f"{place}.{what}")
        if what == "delay" and change.bandwidth_bytes_per_s is not None:
            if bandwidth is None:
                raise UserError(f"{place}.bandwidth_bytes_per_s: there was none before; set {path}.bandwidth_bytes_per_s")
            new = context.population.values(change.bandwidth_bytes_per_s, f"{place}.bandwidth_bytes_per_s", chosen)
            bandwidth = np.array(np.broadcast_to(bandwidth, (context.population.count,)), np.float64)
            bandwidth[chosen] = new
        start = float(change.at_round or change.at_s or 0.0)
        if starts and starts[-1] == start:
            laws[-1] = build()
        else:
            laws.append(build())
            starts.append(start)
    unit = typing.cast("typing.Literal['rounds', 'seconds']", units.pop())
    return Piecewise(laws=laws, starts=starts, unit=unit)


def _check_changes(section: Compute, changes: list[tuple[Change, str]]) -> None:
    if isinstance(section, Downlink):
        return
    for change, place in changes:
        if change.channel or change.bandwidth_bytes_per_s is not None:
            raise UserError(f"{place}: local training has neither channel nor bandwidth; only delay can change")
