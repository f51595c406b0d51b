"""Bandwidth of the links between server and clients: laws over time, and carriers of the bytes of models and updates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from models.laws.bandwidth.laws import Constant, Successive
from models.laws.changes import Unchanging
from models.laws.delays import Constant as ConstantDelay
from netsim.core.clock import Clock
from netsim.core.protocols import BandwidthLaw, BandwidthTimeline, DelayLaw, FloatArray, IntArray, Timeline
from netsim.network.bandwidth.carriers import Carrier, NoCarrier, VaryingLinks
from netsim.network.bandwidth.known_links import FixedLinks, KnownLinks
from netsim.network.bandwidth.sharing import SharedMedium
from netsim.network.bandwidth.varying_medium import VaryingMedium
from scenarios.registry.components import name_refusals
from scenarios.schema.errors import UserError, did_you_mean
from scenarios.schema.network import NetworkLink
from scenarios.schema.world import Channels, Downlink, Opinions, Peers, VaryingLink
from scenarios.wiring.changes import Step, drawn_steps, written_steps
from scenarios.wiring.clients.population import Context, Population
from scenarios.wiring.laws import Law, changed_bandwidth
from scenarios.wiring.network.multiplied import Multiplied
from scenarios.wiring.network.payload import LONGEST_S, Message
from scenarios.wiring.piecewise import Joined, join_steps
from scenarios.wiring.script.targets import Overlay, ScriptedLaw

OwnBandwidth = Joined[BandwidthLaw] | Multiplied
_LINK: IntArray = np.zeros(1, np.int64)
"""Entities of the law of a shared link: the one link, number 0."""


@dataclass(frozen=True)
class Carried:
    """Carrier of the bytes of one direction, with the times that are known of it."""

    carrier: Carrier
    expected: tuple[Timeline[DelayLaw], ...] = ()
    """Expected seconds of each client's bytes when no other client shares the link: size over mean bandwidth."""
    least_s: FloatArray | float = 0.0
    """Smallest possible seconds of the bytes, a number or (K,)."""
    stops: bool = False
    """True if a bandwidth ends for ever at some time. That loses messages in flight."""


class _Expected:
    """Timeline of the expected seconds of each client's bytes, at the mean bandwidth of the law in force, alone on the link."""

    fixed = False

    def __init__(self, own: OwnBandwidth | None, shared: OwnBandwidth | None, sizes: FloatArray) -> None:
        self._own, self._shared, self._sizes = own, shared, sizes
        self._cached: tuple[BandwidthLaw | None, BandwidthLaw | None, DelayLaw] | None = None

    def at(self, round: int, time_s: float) -> tuple[DelayLaw, float]:
        """Return the law of the seconds of bytes, and the time until which it holds.

        The law is built again only when a bandwidth law changes.
        """
        own_law, shared_law, until_s = None, None, math.inf
        if self._own is not None:
            own_law, until_s = self._own.at(round, time_s)
        if self._shared is not None:
            shared_law, _ = self._shared.at(round, time_s)
        if self._cached is None or self._cached[0] is not own_law or self._cached[1] is not shared_law:
            self._cached = own_law, shared_law, ConstantDelay(value_s=self.mean_s(own_law, shared_law))
        return self._cached[2], until_s

    def mean_s(self, own_law: BandwidthLaw | None, shared_law: BandwidthLaw | None) -> FloatArray:
        """Return the seconds (K,) of the bytes at the smaller mean bandwidth of the two laws. None: unlimited."""
        clients = np.arange(len(self._sizes))
        shared_rate = math.inf if shared_law is None else float(shared_law.mean_rate(_LINK)[0])
        rates = np.full(len(clients), shared_rate) if own_law is None else np.minimum(own_law.mean_rate(clients), shared_rate)
        return np.asarray(self._sizes / rates)


@dataclass(frozen=True)
class _Number:
    """Bandwidth that is a number for each client, before it becomes a law. It changes only at change points and by scripts."""

    values: float | FloatArray
    """Bytes per second, a number or (K,)."""
    path: str
    context: Context

    def apply(self, step: Step) -> _Number:
        """Return the bandwidth as `step` changes it."""
        return replace(self, values=changed_bandwidth(self.values, step, self.path, self.context.population))

    def build(self, step: Step | None = None) -> Constant:
        """Return the engine's law. Errors name the key of `step`, the last change, or that of the section."""
        return self._build_law(f"{step.path if step else self.path}.bandwidth_bytes_per_s")

    def _build_law(self, key: str) -> Constant:
        """Return the engine's law; errors name `key`."""
        with name_refusals(key, ("bytes_per_s",), {"bytes_per_s": key}):
            return Constant(bytes_per_s=self.values)

    def apply_overlay(self, overlay: Overlay, path: str) -> _Number:
        """Return the bandwidth after a change by a script."""
        values, population = self.value("bytes_per_s", path), self.context.population
        chosen = np.arange(population.count) if overlay.entities is None else overlay.entities
        for name, value in overlay.parameters.items():
            self.value(name, path)  # refuses a parameter of another name
            new = population.values(value, f"{path}.{name}", overlay.entities)
            values[chosen] = values[chosen] * new if overlay.scale else new
        return replace(self, values=values)

    def value(self, name: str, path: str) -> FloatArray:
        """Return the only parameter, `bytes_per_s`, for each client; raises UserError for another name."""
        if name != "bytes_per_s":
            raise UserError(f"{path}: the law has no parameter {name!r}; {did_you_mean(name, ['bytes_per_s'])}")
        return np.array(np.broadcast_to(self.values, (self.context.population.count,)), np.float64)

    def build_at(self, path: str) -> Constant:
        """Return the engine's law after changes by a script at `path`."""
        return self._build_law(f"{path}.bytes_per_s")


@dataclass(frozen=True)
class _Component:
    """Bandwidth that is a component of the scenario, before it becomes a law of the engine."""

    law: Law[BandwidthLaw]
    key: str
    """Key of the law, for errors."""
    must_not_end: bool
    """True on a sub-channel, where a law must never end."""

    def apply(self, step: Step) -> _Component:
        """Return the bandwidth as `step` changes its parameters."""
        return replace(self, law=self.law.change(step.parameters, step.clients, f"{step.path}.bandwidth"))

    def build(self, step: Step | None = None) -> BandwidthLaw:
        """Return the engine's law. Errors name the key of `step`, the last change, if there is one."""
        return self._build_law(f"{step.path}.bandwidth" if step else None)

    def _build_law(self, path: str | None) -> BandwidthLaw:
        """Return the engine's law; errors name `path`. Raises UserError for a law that ends but must not."""
        law = self.law.build(path)
        if self.must_not_end and np.isfinite(law.stops_s(np.arange(self.law.entities))).any():
            raise UserError(f"{path or self.key}.after_end: a sub-channel never ends; repeat or hold its trace")
        return law

    def apply_overlay(self, overlay: Overlay, path: str) -> _Component:
        """Return the bandwidth after a change by a script."""
        change = self.law.scale_by if overlay.scale else self.law.change
        return replace(self, law=change(overlay.parameters, overlay.entities, path))

    def value(self, name: str, path: str) -> object:
        """Return a parameter of the law."""
        return self.law.value(name, path)

    def build_at(self, path: str) -> BandwidthLaw:
        """Return the engine's law after changes by a script at `path`."""
        return self._build_law(path)


class _JoinedSegments:
    """Timeline of one law over all time, which joins all segments of a scripted bandwidth with the script's present changes.

    With one law, the end of a message can be computed at its beginning.
    """

    fixed = False

    def __init__(self, law: ScriptedLaw[BandwidthLaw]) -> None:
        self._law = law
        self._cached: tuple[Sequence[BandwidthLaw], BandwidthLaw] | None = None

    def at(self, round: int, time_s: float) -> tuple[BandwidthLaw, float]:
        """Return the one law over all time, and inf. It stays the same object as long as the script changes nothing."""
        laws = self._law.laws_at(time_s)
        if self._cached is None or self._cached[0] is not laws:
            joined = laws[0] if len(laws) == 1 else Successive(laws=laws, starts_s=self._law.starts)
            self._cached = laws, joined
        return self._cached[1], math.inf


def has_varying_bandwidth(section: Downlink, context: Context) -> bool:
    """Return True if bytes on a link take no fixed number of seconds that could be added to its delay."""
    number_changes = any(change.bandwidth_bytes_per_s is not None for change in section.changes)
    number_altered = context.alters_bandwidth and section.bandwidth_bytes_per_s is not None
    return section.shared is not None or section.bandwidth is not None or number_changes or number_altered


def build_carrier(
    section: Downlink, path: str, context: Context, clock: Clock, message: Message, *, foreseen: bool = True
) -> Carried:
    """Return the carrier of `message` over the link at `path`; raises UserError.

    `foreseen`: True if the end of the bytes may be computed at their beginning.
    """
    own = _own_bandwidth(section, path, context)
    if own is None and section.shared is None:
        return Carried(NoCarrier())
    shared = None if section.shared is None else _shared_bandwidth(section, path, context)
    # Errors name the bandwidth of the shared link if there is one.
    link_path, link = (path, section) if section.shared is None else (f"{path}.shared", section.shared)
    key = f"{link_path}.bandwidth_bytes_per_s" if link.bandwidth is None else f"{link_path}.bandwidth"
    message.require_bytes(key)
    sizes = np.array(np.broadcast_to(message.size_bytes, (context.population.count,)), np.float64)
    expected = _Expected(own, shared, sizes)
    least_s = _least_s(own, shared, sizes, expected, key)
    carrier = _choose_carrier(own, shared, clock, sizes, altered=context.alters_bandwidth, foreseen=foreseen)
    _renew_after_changes(carrier, own, shared, path, context)
    if context.multiplier is not None:
        # Ends of messages in flight are computed again when the factor of the run changes.
        context.multiplier.renewals.append(carrier.renew)
    stops = ends_for_ever(own, np.arange(context.population.count)) or ends_for_ever(shared, _LINK)
    return Carried(carrier=carrier, expected=(expected,), least_s=least_s, stops=stops)


def _renew_after_changes(
    carrier: Carrier, own: OwnBandwidth | None, shared: OwnBandwidth | None, path: str, context: Context
) -> None:
    """Let a carrier compute the ends of messages in flight again whenever a script changes one of its bandwidths."""
    for name, law in (("bandwidth", own), ("shared.bandwidth", shared)):
        if context.targets is not None and law is not None:
            context.targets.after_change(f"{path}.{name}", carrier.renew)


def ends_for_ever(bandwidth: BandwidthTimeline | None, entities: IntArray) -> bool:
    """Return True if a law of the bandwidth ends for ever for one of `entities`, as a trace without repetition does."""
    laws = () if bandwidth is None else bandwidth.laws
    return any(bool(np.isfinite(law.stops_s(entities)).any()) for law in laws)


def _refuse_endless(mean_s: FloatArray, key: str, entity: str) -> None:
    """Raise UserError about `key` if the mean time of a message of some client or sub-channel is too long.

    `mean_s`: these times in seconds, one for each. `entity`: "client" or "sub-channel".
    """
    if not mean_s.max() <= LONGEST_S:  # also true for NaN
        problem = f"takes {mean_s.max():g} s on average for {entity} {mean_s.argmax()}"
        raise UserError(f"{key}: {problem}; must be at most {LONGEST_S:g} s")


def build_opinion_carrier(section: Opinions, context: Context, clock: Clock, message: Message) -> Carrier | None:
    """Return the carrier of opinions; None if their bytes take a fixed time, which is part of the delay. Raises UserError."""
    if not has_varying_bandwidth(section, context):
        return None
    return build_carrier(section, "opinions", context, clock, message, foreseen=False).carrier


def link_bandwidth(section: NetworkLink, path: str, alone: Context) -> OwnBandwidth | None:
    """Return the bandwidth of a cable over time, under the key `path`; None if it has none. Raises UserError.

    `alone`: the context with a population of one, the cable.
    """
    multiplier = alone.multiplier
    # A factor for one cable leaves all others as they are; without a `link` it is for every cable.
    if multiplier is not None and multiplier.link not in (None, section.name):
        alone = replace(alone, multiplier=None)
    return _own_bandwidth(section, path, alone)


def build_peer_carrier(section: Peers, context: Context, clock: Clock) -> tuple[Carrier | None, float | FloatArray]:
    """Return the carrier of the bytes of messages between clients, or else the senders' bandwidths, bytes/s, a number or (K,).

    With constant bandwidths and without a shared link the carrier is None, and the seconds of the bytes are added to the delay.
    With a carrier the bandwidth is inf. Raises UserError.
    """
    path, clients = "peers", np.arange(context.population.count)
    own = _own_bandwidth(section, path, context)
    shared = None if section.shared is None else _shared_bandwidth(section, path, context)
    if own is None and shared is None:
        return None, math.inf
    if own is not None and shared is None and own.fixed and own.laws[0].constant:
        return None, own.laws[0].mean_rate(clients)
    # Sizes are placeholders: each message brings its size as it joins the carrier.
    carrier = _choose_carrier(own, shared, clock, np.ones(len(clients)), altered=context.alters_bandwidth, foreseen=False)
    _renew_after_changes(carrier, own, shared, path, context)
    return carrier, math.inf


def _join_over_time(own: OwnBandwidth, path: str) -> Timeline[BandwidthLaw]:
    """Return a timeline of one law over all time, which joins the segments of `own`; raises UserError for changes at rounds."""
    if len(own.laws) > 1 and own.unit != "seconds":
        raise UserError(f"{path}.changes: this bandwidth changes at times, and not in rounds; give at_s")
    if isinstance(own, ScriptedLaw):
        return _JoinedSegments(own)
    if len(own.laws) == 1:
        return Unchanging(own.laws[0])
    return Unchanging(Successive(laws=own.laws, starts_s=list(own.starts)))


def channel_links(section: Channels, context: Context, message: Message) -> KnownLinks | None:
    """Return the links of sub-channels with a bandwidth that changes over time, for messages of equal size; raises UserError.

    Return None if bytes take a fixed number of seconds, which is added to the delay. That holds for a bandwidth that changes at
    rounds, too: the new number is for messages that begin after the change.
    """
    changes_at_times = any(change.bandwidth_bytes_per_s is not None and change.at_s is not None for change in section.changes)
    scripted = context.targets is not None and section.bandwidth_bytes_per_s is not None
    if section.bandwidth is None and not scripted and not changes_at_times:
        return None
    own = _own_bandwidth(section, "channels", context)
    assert own is not None
    law: Timeline[BandwidthLaw] = own
    # The law of a number that changes at rounds, or by a script only, is asked again for each message.
    if changes_at_times or not scripted:
        law = _join_over_time(own, "channels")
    key = "channels.bandwidth" if section.bandwidth is not None else "channels.bandwidth_bytes_per_s"
    message.require_bytes(key)
    sizes = np.full(section.count, float(np.max(message.size_bytes)))
    for segment in own.laws:
        _refuse_endless(sizes / segment.mean_rate(np.arange(section.count)), key, "sub-channel")
    return KnownLinks(clients=section.count, law=law, size_bytes=sizes)


def _own_bandwidth(section: VaryingLink, path: str, context: Context) -> OwnBandwidth | None:
    """Return the bandwidth of each client's own link over time; None if it is unlimited. Raises UserError."""
    steps = written_steps(section, "bandwidth", path, context, numbers=True)
    bandwidth: _Number | _Component
    if section.bandwidth is not None:
        law = Law[BandwidthLaw].from_scenario(section.bandwidth, "bandwidth", f"{path}.bandwidth", context)
        bandwidth = _Component(law, key=f"{path}.bandwidth", must_not_end=section.endless)
        if section.random_changes is not None:
            steps += drawn_steps(section, law, "bandwidth", f"{path}.random_changes", context)
    elif section.bandwidth_bytes_per_s is not None:
        values = context.population.values(section.bandwidth_bytes_per_s, f"{path}.bandwidth_bytes_per_s")
        bandwidth = _Number(values, path, context)
    else:
        if steps:
            changed_bandwidth(None, steps[0], path, context.population)  # raises: there is nothing to change
        return None
    return _multiply(join_steps(bandwidth, steps, path, "bandwidth", context), context)


def _multiply(timeline: OwnBandwidth, context: Context) -> OwnBandwidth:
    """Return `timeline`, multiplied by the bandwidth factor that the run may change as it goes on; unchanged without one."""
    return timeline if context.multiplier is None else context.multiplier.apply_to(timeline)


def _shared_bandwidth(section: Downlink | Peers, path: str, context: Context) -> OwnBandwidth:
    """Return the bandwidth over time of the link that all clients share; raises UserError."""
    shared, key = section.shared, f"{path}.shared"
    assert shared is not None
    alone = replace(context, population=Population.single_client())
    bandwidth: _Number | _Component
    if shared.bandwidth is not None:
        law = Law[BandwidthLaw].from_scenario(shared.bandwidth, "bandwidth", f"{key}.bandwidth", alone)
        bandwidth = _Component(law, key=f"{key}.bandwidth", must_not_end=False)
    else:
        bandwidth = _Number(shared.bandwidth_bytes_per_s or 0.0, key, alone)
    return _multiply(join_steps(bandwidth, [], key, "bandwidth", alone), context)


def _choose_carrier(
    own: OwnBandwidth | None,
    shared: OwnBandwidth | None,
    clock: Clock,
    sizes: FloatArray,
    *,
    altered: bool,
    foreseen: bool = True,
) -> Carrier:
    """Return the fastest carrier that can simulate these bandwidths, by whether they are shared, constant and known beforehand.

    `altered`: True if a bandwidth may change at any time. `foreseen`: True if the end of the bytes may be computed at their
    beginning.
    """
    clients = np.arange(len(sizes))
    # The first law tells the kind of all: change points only set parameters.
    constant = all(timeline.laws[0].constant for timeline in (own, shared) if timeline is not None)
    if shared is not None and constant:
        return SharedMedium(clock=clock, clients=len(sizes), size_bytes=sizes, link=shared, own=own)
    if own is not None and not altered and own.unit == "seconds" and len(own.laws) > 1:
        own = Unchanging(Successive(laws=own.laws, starts_s=list(own.starts)))
    if shared is not None:
        return VaryingMedium(clock=clock, clients=len(sizes), size_bytes=sizes, link=shared, own=own)
    assert own is not None
    only_law = own.laws[0] if not altered and len(own.laws) == 1 else None
    if foreseen and only_law is not None and only_law.constant:
        return FixedLinks(clients=len(sizes), bytes_per_s=only_law.mean_rate(clients), size_bytes=sizes)
    # KnownLinks cannot lose a message in flight, which happens when a trace ends.
    if foreseen and only_law is not None and not np.isfinite(only_law.stops_s(clients)).any():
        return KnownLinks(clients=len(sizes), law=own, size_bytes=sizes)
    return VaryingLinks(clock=clock, clients=len(sizes), law=own, size_bytes=sizes)


def _least_s(
    own: OwnBandwidth | None, shared: OwnBandwidth | None, sizes: FloatArray, expected: _Expected, key: str
) -> FloatArray:
    """Return the smallest seconds (K,) of the bytes under any of the laws; raises UserError if one of them takes too long."""
    shared_law = None if shared is None else shared.laws[0]
    shared_peak = math.inf if shared_law is None else float(shared_law.peak_rate(_LINK)[0])
    if own is None:
        _refuse_endless(expected.mean_s(None, shared_law), key, "client")
        return np.asarray(sizes / shared_peak)
    clients, peaks = np.arange(len(sizes)), np.zeros(len(sizes))
    # A running maximum needs memory for one law only; there may be many laws of many clients.
    for law in own.laws:
        _refuse_endless(expected.mean_s(law, shared_law), key, "client")
        peaks = np.maximum(peaks, law.peak_rate(clients))
    return np.asarray(sizes / np.minimum(peaks, shared_peak))
