"""Laws that a script can change: new values are laid over the law in force, and can be taken back.

Change points of the scenario go on underneath: whichever law they bring into force, the script's changes are laid over it, in the
order in which they were made.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Literal, Protocol, TypeVar

import numpy as np

from models.laws.changes import LazyLaws, Piecewise
from models.laws.channels import Bernoulli
from netsim.clients.absences import Absences
from netsim.core.protocols import Availability, ChannelLaw, ChannelStates, FloatArray, IntArray, Stateful
from netsim.network.outages import CutOffs
from netsim.network.transport.link_outages import ScriptedCuts
from scenarios.registry.components import Keywords
from scenarios.schema.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from scenarios.wiring.script.edges import ScriptedEdges

Entity = Literal["clients", "channels", "edges"] | None
LawT = TypeVar("LawT")
LawT_co = TypeVar("LawT_co", covariant=True)
SegmentT = TypeVar("SegmentT")
ObjectT = TypeVar("ObjectT", bound=Stateful)
_FOREVER = math.inf
_CACHED_LAWS = 8


@dataclass(frozen=True, kw_only=True, eq=False)
class Overlay:
    """New values of parameters (with `scale`: factors of the values), for `entities` (None: all)."""

    parameters: Keywords
    entities: IntArray | None
    scale: bool
    description: str
    """Description of the script's act, for error messages."""


class Segment(Protocol[LawT_co]):
    """A law with its keywords, in force between two change points."""

    def apply_overlay(self, overlay: Overlay, path: str) -> Segment[LawT_co]:
        """Return the segment with `overlay` applied; raises UserError that names the parameter below `path`."""

    def value(self, name: str, path: str) -> object:
        """Return a parameter, (K,) if it may differ between entities; raises UserError for an unknown name."""

    def build_at(self, path: str) -> LawT_co:
        """Return the law itself; raises UserError."""


class Target(Protocol):
    """Target of a script: a component with parameters that it can change."""

    entity: Entity
    """Name of the entities between which parameters may differ, or None."""

    def value(self, name: str, round: int, time_s: float) -> object:
        """Return the parameter in force, as `Segment.value` does; raises UserError."""

    def add(self, overlay: Overlay, round: int, time_s: float) -> None:
        """Apply `overlay` from now on; raises UserError, and then changes nothing."""

    def remove(self, overlay: Overlay, round: int, time_s: float) -> None:
        """Take `overlay` back from now on."""

    def renew(self) -> None:
        """Make all users of the law evaluate it again, at the same draws."""


class _Law(ABC, Generic[SegmentT, LawT]):
    """A timeline with overlays. It still knows the laws at earlier times of the open round."""

    fixed = False
    segment_means: FloatArray | None = None
    """None: a script changes the planned means."""

    def __init__(self, key: str, entity: Entity) -> None:
        self.key = key
        self.entity = entity
        self.renewals: list[Callable[[], None]] = []
        """Called after every change."""
        self._times_s = [-_FOREVER]
        self._versions: list[tuple[Overlay, ...]] = [()]
        """The overlays in force from each time of `_times_s` on."""
        self._built: dict[tuple[int, int], tuple[SegmentT, LawT]] = {}
        """The last laws built, by id of segment and index in `_versions`; with the segment, so that its id stays in use."""

    @abstractmethod
    def _segment(self, round: int, time_s: float) -> tuple[SegmentT, LawT, float]:
        """Return (segment in force, its law without overlays, time when it ends)."""

    @abstractmethod
    def _build_law(self, segment: SegmentT, overlays: tuple[Overlay, ...]) -> LawT:
        """Return the law of a segment under `overlays`; raises UserError."""

    def at(self, round: int, time_s: float) -> tuple[LawT, float]:
        """Return the law in force in `round` at `time_s`, and the time when it ends unless the script acts before."""
        segment, law, until_s = self._segment(round, time_s)
        version = self._version(time_s)
        if not self._versions[version]:
            return law, until_s
        key = id(segment), version
        if key not in self._built:
            if len(self._built) >= _CACHED_LAWS:
                del self._built[next(iter(self._built))]
            self._built[key] = segment, self._build_checked(segment, self._versions[version])
        return self._built[key][1], until_s

    def _version(self, time_s: float) -> int:
        """Return the index in `_versions` of the overlays in force at `time_s`."""
        # Nearly all calls ask for the present, which needs no search.
        return len(self._times_s) - 1 if time_s >= self._times_s[-1] else bisect_right(self._times_s, time_s) - 1

    def _build_checked(self, segment: SegmentT, overlays: tuple[Overlay, ...]) -> LawT:
        """Return the law of a segment under `overlays`; an error names the last act of the script."""
        try:
            return self._build_law(segment, overlays)
        except UserError as error:
            # The law after a later change point may refuse values that the earlier law accepted.
            raise UserError(f"{error} ({overlays[-1].description})") from error

    def _set_overlays(self, time_s: float, overlays: tuple[Overlay, ...]) -> None:
        """Set the overlays in force from `time_s`, the present, on; those of earlier times stay, and laws are built again."""
        if self._times_s[-1] == time_s:
            self._versions[-1] = overlays
        else:
            self._times_s.append(time_s)
            self._versions.append(overlays)
        self._built = {}

    def add(self, overlay: Overlay, round: int, time_s: float) -> None:
        """Apply `overlay` from now on; raises UserError, and then changes nothing."""
        segment, _, _ = self._segment(round, time_s)
        overlays = (*self._versions[-1], overlay)
        # Build the law at once, so that wrong values are refused before anything changes.
        self._build_law(segment, overlays)
        self._set_overlays(time_s, overlays)

    def remove(self, overlay: Overlay, round: int, time_s: float) -> None:
        """Take `overlay` back from now on; others stay."""
        self._set_overlays(time_s, tuple(other for other in self._versions[-1] if other is not overlay))

    def renew(self) -> None:
        """Call all users of the law, which evaluate it again."""
        for renew in self.renewals:
            renew()


class ScriptedLaw(_Law[Segment[LawT], LawT]):
    """Timeline in which `segments[j]` holds from `starts[j - 1]` on, as in `Piecewise`.

    `laws`: laws without a script's changes.
    """

    def __init__(
        self,
        *,
        key: str,
        entity: Entity,
        segments: Sequence[Segment[LawT]],
        laws: Sequence[LawT],
        starts: list[float],
        unit: Literal["rounds", "seconds"],
    ) -> None:
        super().__init__(key, entity)
        self.laws = laws
        self.starts = starts
        self.unit = unit
        self._segments = segments
        self._last_applied: tuple[Segment[LawT], tuple[Overlay, ...], Segment[LawT]] = segments[0], (), segments[0]
        """Last call of `_apply_overlays`: segment, overlays and result."""
        self._all_laws: tuple[tuple[Overlay, ...] | None, Sequence[LawT]] = None, laws
        """Last call of `laws_at`: overlays and result."""
        self._segment_index: Piecewise[int] = Piecewise(laws=list(range(len(segments))), starts=starts, unit=unit)
        """Timeline of the index in `segments`."""

    def _segment(self, round: int, time_s: float) -> tuple[Segment[LawT], LawT, float]:
        """Return (segment in force, its law without overlays, time when it ends)."""
        index, until_s = self._segment_index.at(round, time_s)
        return self._segments[index], self.laws[index], until_s

    def _apply_overlays(self, segment: Segment[LawT], overlays: tuple[Overlay, ...]) -> Segment[LawT]:
        """Return the segment with `overlays` applied in their order."""
        last_segment, applied, result = self._last_applied
        # Reuse the last result: a script that changes a law repeatedly adds one overlay to those of the last call.
        if last_segment is not segment or overlays[: len(applied)] != applied:
            applied, result = (), segment
        for overlay in overlays[len(applied) :]:
            result = result.apply_overlay(overlay, self.key)
        self._last_applied = segment, overlays, result
        return result

    def _build_law(self, segment: Segment[LawT], overlays: tuple[Overlay, ...]) -> LawT:
        """Return the law of a segment under `overlays`."""
        return self._apply_overlays(segment, overlays).build_at(self.key)

    def laws_at(self, time_s: float) -> Sequence[LawT]:
        """Return the laws of all segments with the changes in force at `time_s`; the same sequence until the next change.

        Laws are made on demand, because there may be many.
        """
        overlays = self._versions[self._version(time_s)]
        last_overlays, laws = self._all_laws
        if last_overlays is not overlays:
            laws = self.laws
            if overlays:
                laws = LazyLaws(
                    count=len(self._segments), make=lambda index: self._build_checked(self._segments[index], overlays)
                )
            self._all_laws = overlays, laws
        return laws

    def value(self, name: str, round: int, time_s: float) -> object:
        """Return the parameter in force."""
        segment, _, _ = self._segment(round, time_s)
        return self._apply_overlays(segment, self._versions[self._version(time_s)]).value(name, self.key)


class ScriptedStates(_Law[ChannelLaw, ChannelLaw]):
    """States of the sub-channels from a table of means that a script can change."""

    def __init__(self, *, key: str, states: ChannelStates, count: int) -> None:
        super().__init__(key, "channels")
        self.unit = states.unit
        self.starts = states.starts
        self._states = states
        self._channels: IntArray = np.arange(count)

    def _segment(self, round: int, time_s: float) -> tuple[ChannelLaw, ChannelLaw, float]:
        """Return (law in force, twice; time when it ends): a law is its own segment."""
        law, until_s = self._states.at(round, time_s)
        return law, law, until_s

    def _means(self, law: ChannelLaw, overlays: tuple[Overlay, ...]) -> FloatArray:
        """Return the means of all sub-channels with the overlays applied in order; raises UserError for one outside [0, 1]."""
        means = np.array(law.success_probability(self._channels), np.float64)
        for overlay in overlays:
            chosen = self._channels if overlay.entities is None else overlay.entities
            for name, value in overlay.parameters.items():
                self._check_name(name)
                values = np.broadcast_to(np.asarray(value, np.float64), chosen.shape)
                means[chosen] = means[chosen] * values if overlay.scale else values
        valid = (means >= 0.0) & (means <= 1.0)
        if not valid.all():
            wrong = int(np.argmin(valid))
            problem = f"{self.key}.means = {float(means[wrong])!r} of sub-channel {wrong}"
            raise UserError(f"{problem}: must be a probability between 0 and 1")
        return means

    def _check_name(self, name: str) -> None:
        """Raise UserError unless `name` is the only parameter that can change, `means`."""
        if name != "means":
            raise UserError(f"{self.key}.{name}: is no parameter that can change; {did_you_mean(name, ['means'])}")

    def _build_law(self, segment: ChannelLaw, overlays: tuple[Overlay, ...]) -> ChannelLaw:
        """Return a law with the changed means."""
        return Bernoulli(success=self._means(segment, overlays))

    def value(self, name: str, round: int, time_s: float) -> object:
        """Return the means (N,) in force; raises UserError for another name."""
        self._check_name(name)
        law, _, _ = self._segment(round, time_s)
        return self._means(law, self._versions[self._version(time_s)])


class ScriptedObject(Generic[ObjectT]):
    """Target with a state, such as a jammer's law: a change makes a new object with the state of the old one.

    `present`: object in use. `use`: callback that replaces it.
    """

    def __init__(
        self, *, key: str, entity: Entity, law: Segment[ObjectT], present: ObjectT, use: Callable[[ObjectT], None]
    ) -> None:
        self.key = key
        self.entity = entity
        self._law, self._present, self._use = law, present, use
        self._overlays: list[Overlay] = []

    def _apply_overlays(self, overlays: Sequence[Overlay]) -> Segment[ObjectT]:
        """Return the law with `overlays` applied in their order."""
        law = self._law
        for overlay in overlays:
            law = law.apply_overlay(overlay, self.key)
        return law

    def _rebuild(self, overlays: list[Overlay]) -> None:
        """Replace the object in use by one under `overlays`, with the same state."""
        result = self._apply_overlays(overlays).build_at(self.key)
        result.load_state_dict(self._present.state_dict())
        self._present, self._overlays = result, overlays
        self._use(result)

    def value(self, name: str, round: int, time_s: float) -> object:
        """Return the parameter in force."""
        return self._apply_overlays(self._overlays).value(name, self.key)

    def add(self, overlay: Overlay, round: int, time_s: float) -> None:
        """Replace the object by one with `overlay`."""
        self._rebuild([*self._overlays, overlay])

    def remove(self, overlay: Overlay, round: int, time_s: float) -> None:
        """Replace the object by one without `overlay`."""
        self._rebuild([other for other in self._overlays if other is not overlay])

    def renew(self) -> None:
        """Do nothing: values are read at each use."""


class Targets:
    """Targets of a script in one run, by their key in the scenario. The wiring adds each law when it builds it."""

    def __init__(self) -> None:
        self.all: dict[str, Target] = {}
        self.cut_offs = CutOffs()
        """Clients that the script has cut off."""
        self.absent: Absences
        """Clients that the script has taken away."""
        self.absent_edges: Absences | None = None
        """The edges that it has taken away; None without edges."""
        self.edges: ScriptedEdges | None = None
        """The edges of `[edges]`, once the server is built; None without."""
        self.cuts: ScriptedCuts | None = None
        """Links between clients that the script has cut; None without links, or if messages take no time."""
        self._renewals: dict[str, list[Callable[[], None]]] = {}

    def add_cuts(self) -> ScriptedCuts:
        """Create and return the outages of links that a script makes; sets `cuts`."""
        self.cuts = ScriptedCuts()
        return self.cuts

    def add_absences(self, presence: Availability, clients: int) -> Absences:
        """Return `presence` wrapped so that a script may take clients away; sets `absent`."""
        self.absent = Absences(inner=presence, clients=clients)
        return self.absent

    def add_edge_absences(self, presence: Availability, edges: int) -> Absences:
        """Return `presence` wrapped so that a script may take edges away; sets `absent_edges`."""
        self.absent_edges = Absences(inner=presence, clients=edges)
        return self.absent_edges

    def add_law(
        self,
        key: str,
        segments: Sequence[Segment[LawT]],
        laws: Sequence[LawT],
        starts: list[float],
        unit: Literal["rounds", "seconds"],
    ) -> ScriptedLaw[LawT]:
        """Return the timeline of these segments, and add it to the targets of the script under `key`."""
        section = key.partition(".")[0]
        entity: Entity = "clients"
        if ".shared." in key or section == "network":
            entity = None  # one link or cable, whose parameters cannot differ between entities
        elif section == "channels":
            entity = "channels"
        elif section == "edges":
            entity = "edges"
        law = ScriptedLaw(key=key, entity=entity, segments=segments, laws=laws, starts=starts, unit=unit)
        self.all[key], self._renewals[key] = law, law.renewals
        return law

    def add_states(self, key: str, states: ChannelStates, count: int) -> ScriptedStates:
        """Return the timeline of these states, and add it to the targets of the script under `key`."""
        target = ScriptedStates(key=key, states=states, count=count)
        self.all[key], self._renewals[key] = target, target.renewals
        return target

    def after_change(self, key: str, renew: Callable[[], None]) -> None:
        """Have `renew` called after every change of the law at `key`."""
        self._renewals[key].append(renew)

    def find(self, key: str) -> Target:
        """Return the target at `key`; raises UserError."""
        if key not in self.all:
            raise UserError(f"{key!r}: there is nothing of that name that a script can change; {did_you_mean(key, self.all)}")
        return self.all[key]
