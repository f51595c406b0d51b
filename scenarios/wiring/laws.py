"""Laws of a scenario as timelines of the engine: one law for each interval between change points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Generic, Self, TypeVar, cast

import numpy as np
from pydantic import ValidationError

from models.laws.bandwidth.laws import ByGroup as GroupedBandwidth
from models.laws.delays import ByGroup as GroupedDelay
from models.laws.delays import Plus, SizeDependent
from netsim.core.protocols import ChannelLaw, DelayLaw
from scenarios.registry.components import ByGroup, Component, Keywords, construct, name_refusals, per_client_parameters
from scenarios.registry.kinds import supplied_arguments
from scenarios.schema.errors import UserError, did_you_mean
from scenarios.schema.per_client import is_per_client
from scenarios.schema.world import Link, Timed
from scenarios.wiring.changes import Step, drawn_steps, written_steps
from scenarios.wiring.clients.population import Context, FloatArray, IntArray, Population, resolve_parameters
from scenarios.wiring.data_files import data_file
from scenarios.wiring.network.payload import LONGEST_S, Message
from scenarios.wiring.piecewise import Joined, join_steps
from scenarios.wiring.script.targets import Overlay

LawT = TypeVar("LawT")
_GROUPED = {"delay": GroupedDelay, "bandwidth": GroupedBandwidth}


@dataclass(frozen=True)
class _LawPart:
    """Class of a law and its keywords, for the clients `members` (n,). A law by groups has a part for each group, others one."""

    component: Component
    path: str
    keywords: Keywords
    members: IntArray


class Law(Generic[LawT]):
    """Law of a scenario before it becomes a law of the engine. Changes give a new one with other keywords."""

    def __init__(self, group: str, path: str, context: Context, parts: list[_LawPart], by_group: bool) -> None:
        self._group, self._path, self._context, self._parts, self._by_group = group, path, context, parts, by_group
        self._clients = context.population.count

    @property
    def entities(self) -> int:
        """Number of clients or sub-channels that the law is for."""
        return self._clients

    @property
    def key(self) -> str:
        """Key of the scenario that sets the law."""
        return self._path

    @classmethod
    def from_scenario(cls, component: Component, group: str, path: str, context: Context) -> Law[LawT]:
        """Return the law that `component` describes, at `path` of the scenario; raises UserError."""
        population = context.population
        if not isinstance(component, ByGroup):
            clients = np.arange(population.count)
            keywords = resolve_parameters(component, group, path, population)
            only_law = _LawPart(component, path, keywords, members=clients)
            return cls(group, path, context, [only_law], by_group=False)
        parts = []
        for name, law in component.groups.items():
            law_path = f"{path}.groups.{name}"
            members = population.group(name, f"{path}.groups")
            keywords = resolve_parameters(law, group, law_path, population, members)
            parts.append(_LawPart(law, law_path, keywords, members))
        missing = [name for name in population.members if name not in component.groups]
        if missing:
            raise UserError(f"{path}.groups: gives no law for {', '.join(missing)}; name every group")
        return cls(group, path, context, parts, by_group=True)

    def _parts_with(self, name: str, path: str) -> list[_LawPart]:
        """Return the parts with a parameter of this name; raises UserError if none has."""
        parts = [part for part in self._parts if name in part.keywords]
        if not parts:
            names = set().union(*(part.keywords for part in self._parts))
            raise UserError(f"{path}: the law has no parameter {name!r}; {did_you_mean(name, names)}")
        return parts

    def values(self, name: str, path: str) -> FloatArray:
        """Return a parameter's present value for every client (K,), NaN if the client's law lacks it; raises UserError."""
        values = np.full(self._clients, np.nan)
        for part in self._parts_with(name, path):
            value = part.keywords[name]
            if name not in per_client_parameters(self._group, part.component.kind) or not is_per_client(value):
                raise UserError(f"{path}: parameter {name!r} cannot be multiplied; name one that is a number for each client")
            values[part.members] = np.broadcast_to(value, (self._clients,))[part.members]
        return values

    def change(self, parameters: Mapping[str, object], chosen: IntArray | None, path: str) -> Law[LawT]:
        """Return the law with new parameters for `chosen` clients (None: all); raises UserError.

        With a law by groups, the laws of some groups may lack a parameter; their clients keep their law.
        """
        parts = list(self._parts)
        clients_without = [part.members for part in parts if parameters.keys().isdisjoint(part.keywords)]
        if chosen is not None and clients_without:
            unchanged = np.intersect1d(chosen, np.concatenate(clients_without))
            if 0 < len(unchanged) < len(chosen):
                names = ", ".join(parameters)
                raise UserError(f"{path}: the law of client {unchanged[0]} has nothing of {names}; leave that client out")
        for name, spec in parameters.items():
            key = f"{path}.{name}"
            self._parts_with(name, path)  # raises if no law has the parameter
            is_changed = False
            for index, part in enumerate(parts):
                if name in part.keywords and (chosen is None or np.isin(chosen, part.members).any()):
                    parts[index] = self._change(part, name, spec, chosen, key)
                    is_changed = True
            if not is_changed:
                raise UserError(f"{key}: the law of these clients has no such parameter")
        return Law(self._group, self._path, self._context, parts, self._by_group)

    def _change(self, part: _LawPart, name: str, spec: object, chosen: IntArray | None, path: str) -> _LawPart:
        """Return `part` with parameter `name` set to `spec` for `chosen` clients (None: all); raises UserError.

        A parameter that cannot differ between clients is set for all of them. Else a number for all clients stays a number, and
        becomes an array (K,) only if clients of the law differ: the old values, with the new ones of the chosen clients.
        """
        if name not in per_client_parameters(self._group, part.component.kind) or not is_per_client(spec):
            try:
                keys = part.component.model_dump(by_alias=True) | {name: spec}
                value = getattr(type(part.component).model_validate(keys), name)
            except ValidationError as error:
                raise UserError(f"{path} = {spec!r}: {error.errors()[0]['msg']}") from error
            if chosen is not None:
                raise UserError(f"{path}: is the same for all clients of a law; leave `clients` out to change it")
            return replace(part, keywords=part.keywords | {name: value})
        # One number, or one for each of the chosen clients.
        value = self._context.population.values(spec, path, chosen)
        is_for_all = chosen is None and len(part.members) == self._clients
        if chosen is not None or (isinstance(value, np.ndarray) and not is_for_all):
            clients = np.arange(self._clients) if chosen is None else chosen
            are_members = np.isin(clients, part.members)
            old_value = part.keywords[name]
            if not is_per_client(old_value):
                if not np.isin(part.members, clients).all():
                    raise UserError(f"{path}: the other clients have no number there ({old_value!r}); give them one in the law")
                old_value = np.nan  # all clients of the law get a new value; NaN marks those of other laws
            values = np.array(np.broadcast_to(old_value, (self._clients,)), np.float64)
            values[clients[are_members]] = value[are_members] if isinstance(value, np.ndarray) else value
            # The law is evaluated for its own clients only, so entries of other clients may repeat any valid value.
            value = np.where(np.isnan(values), values[clients[are_members]][0], values)
        return replace(part, keywords=part.keywords | {name: value})

    def scale_by(self, factors: Keywords, chosen: IntArray | None, path: str) -> Law[LawT]:
        """Return the law with parameters of `chosen` clients (None: all) multiplied by `factors`; raises UserError."""
        return self.change({name: self._product(name, factor, chosen, path) for name, factor in factors.items()}, chosen, path)

    def _product(self, name: str, factor: object, chosen: IntArray | None, path: str) -> FloatArray:
        """Return the values (n,) of a parameter for `chosen` clients, times `factor`; raises UserError."""
        key, entities = f"{path}.{name}", slice(None) if chosen is None else chosen
        return self.values(name, key)[entities] * self._context.population.values(factor, key, chosen)

    def apply_overlay(self, overlay: Overlay, path: str) -> Law[LawT]:
        """Return the law after a change by a script; raises UserError."""
        change = self.scale_by if overlay.scale else self.change
        return change(overlay.parameters, overlay.entities, path)

    def build_at(self, path: str) -> LawT:
        """Return the engine's law after a script's changes; errors name keys below `path`."""
        return self.build(path)

    def value(self, name: str, path: str) -> object:
        """Return a parameter's present value; raises UserError.

        It is an array (K,), with NaN for clients with a law that lacks it, if the parameter may differ between clients.
        """
        first = self._parts_with(name, path)[0]
        value = first.keywords[name]
        differs = name in per_client_parameters(self._group, first.component.kind) and is_per_client(value)
        return self.values(name, path) if differs else value

    def build(self, path: str | None = None) -> LawT:
        """Return the engine's law; raises UserError. Errors name keys below `path`; None: below the law's own path."""
        # For a jammer, the "clients" of the population are sub-channels.
        supplied: Keywords = {"clients": self._clients, "channels": self._clients}
        if "draws" in supplied_arguments(self._group):
            supplied["draws"] = self._context.streams[self._path]
        group = self._group
        laws: list[LawT] = [
            construct(part.component, group, path or part.path, _locate_file(part.keywords), supplied) for part in self._parts
        ]
        if not self._by_group:
            return laws[0]
        group_of = np.zeros(self._clients, np.int64)
        for index, part in enumerate(self._parts):
            group_of[part.members] = index
        return cast(LawT, _GROUPED[self._group](laws=laws, group_of=group_of))


def _locate_file(keywords: Keywords) -> Keywords:
    """Return the keywords of a law, with `path` made absolute if one of them is the path of a file: it may be of the library."""
    path = keywords.get("path")
    return keywords | {"path": str(data_file(path))} if isinstance(path, str) else dict(keywords)


@dataclass
class _LinkLaw(Generic[LawT]):
    """Law of a link or of local training, as a segment of its timeline."""

    law: Law[LawT]
    path: str
    """Key of the section that has the law."""
    name: str
    """Key of the law within the section: "delay" or "channel"."""
    context: Context

    def apply(self, step: Step) -> Self:
        """Return the law as `step` changes it."""
        law = self.law.change(step.parameters, step.clients, f"{step.path}.{self.name}") if step.parameters else self.law
        return replace(self, law=law)

    def apply_overlay(self, overlay: Overlay, path: str) -> Self:
        """Return the law after a change by a script."""
        return replace(self, law=self.law.apply_overlay(overlay, path))

    def value(self, name: str, path: str) -> object:
        """Return a parameter of the law."""
        return self.law.value(name, path)

    def build_at(self, path: str) -> LawT:
        """Return the engine's law after a script's changes; errors name keys below `path`."""
        return self._build_law(path.removesuffix(f".{self.name}"), path)

    def build(self, step: Step | None = None) -> LawT:
        """Return the engine's law. Errors name the key of `step`, the last change, or that of the section."""
        path = step.path if step else self.path
        return self._build_law(path, f"{path}.{self.name}" if step and step.parameters else None)

    def _build_law(self, path: str, law_path: str | None) -> LawT:
        """Return the engine's law. Errors name keys below `path`, or `law_path` for the law itself if it is given."""
        return self.law.build(law_path)


@dataclass
class _Delay(_LinkLaw[DelayLaw]):
    """Delay of a link or of local training, with the seconds that its bytes take at a constant bandwidth."""

    bandwidth: float | FloatArray | None = None
    """Bytes per second, a number or (K,); None: bytes take no time here."""
    message: Message | None = None
    """Message over the link; None if the link has no bandwidth."""
    besides_s: float | FloatArray = 0.0
    """Seconds added to those of the law."""

    def apply(self, step: Step) -> Self:
        """Return the delay as `step` changes its law and its bandwidth."""
        changed = super().apply(step)
        if step.bandwidth is None:
            return changed
        return replace(changed, bandwidth=changed_bandwidth(self.bandwidth, step, self.path, self.context.population))

    def _build_law(self, path: str, law_path: str | None) -> DelayLaw:
        """Return the engine's law: the delay, the seconds of the message's bytes, and the added seconds. Raises UserError."""
        law = self.law.build(law_path)
        if self.bandwidth is not None and self.message is not None:
            size = np.asarray(self.message.size_bytes, np.float64)
            with name_refusals(path, ("bandwidth_bytes_per_s",)):
                law = SizeDependent(payload_bytes=size, bandwidth_bytes_per_s=self.bandwidth, delay=law)
            self.message.require_bytes(f"{path}.bandwidth_bytes_per_s")
        if np.any(self.besides_s):
            law = Plus(fixed_s=self.besides_s, delay=law)
        means = law.mean_s(np.arange(self.context.population.count))
        if not means.max() <= LONGEST_S:
            key = self.law.key if path == self.path else f"{path}.delay"
            raise UserError(
                f"{key}: takes {means.max():g} s on average for client {means.argmax()}; must be at most {LONGEST_S:g} s"
            )
        return law


def delay_timeline(
    section: Timed,
    path: str,
    context: Context,
    message: Message | None = None,
    besides_s: float | FloatArray = 0.0,
    key: str | None = None,
) -> Joined[DelayLaw]:
    """Return the timeline of the delay of one link or of local training; raises UserError.

    `message`: message over the link, if the link may have a bandwidth. `besides_s`: seconds added to every delay, per client.
    `key`: key of the scenario that gives the law; None: `delay` below `path`, the name that scripts use in any case.
    """
    law = Law[DelayLaw].from_scenario(section.delay, "delay", key or f"{path}.delay", context)
    bandwidth = None
    if message is not None and isinstance(section, Link) and section.bandwidth_bytes_per_s is not None:
        bandwidth = context.population.values(section.bandwidth_bytes_per_s, f"{path}.bandwidth_bytes_per_s")
    delay = _Delay(law, path, "delay", context, bandwidth=bandwidth, message=message, besides_s=besides_s)
    steps = _law_steps(section, law, "delay", path, context, numbers=message is not None)
    return join_steps(delay, steps, path, "delay", context)


def channel_timeline(section: Link, path: str, context: Context) -> Joined[ChannelLaw]:
    """Return the timeline of the channel of a link; raises UserError."""
    law = Law[ChannelLaw].from_scenario(section.channel, "channel", f"{path}.channel", context)
    steps = _law_steps(section, law, "channel", path, context)
    return join_steps(_LinkLaw(law, path, "channel", context), steps, path, "channel", context)


def _law_steps(section: Timed, law: Law[LawT], name: str, path: str, context: Context, *, numbers: bool = False) -> list[Step]:
    """Return the changes of a law: those that the scenario states, and those that are drawn.

    `name`: key of the law in the section. `numbers`: True to include changes of `bandwidth_bytes_per_s`.
    """
    steps = written_steps(section, name, path, context, numbers=numbers)
    if section.random_changes is not None:
        steps += drawn_steps(section, law, name, f"{path}.random_changes", context)
    return steps


def changed_bandwidth(bandwidth: float | FloatArray | None, step: Step, path: str, population: Population) -> FloatArray:
    """Return the `bandwidth` of the link at `path` after `step`, bytes/s (K,); raises UserError if there is none to change."""
    key = f"{step.path}.bandwidth_bytes_per_s"
    if bandwidth is None:
        raise UserError(f"{key}: there was none before; set {path}.bandwidth_bytes_per_s")
    values = np.array(np.broadcast_to(bandwidth, (population.count,)), np.float64)
    changed = slice(None) if step.clients is None else step.clients
    values[changed] = population.values(step.bandwidth, key, step.clients)
    return values
