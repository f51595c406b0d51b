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
from typing import Any, Literal, Protocol

import numpy as np

from models.laws.changes import LazyLaws, Piecewise
from models.laws.channels import Bernoulli
from netsim.clients.absences import Absences
from netsim.core.protocols import Availability, FloatArray, IntArray
from netsim.network.outages import CutOffs
from netsim.network.transport.link_outages import ScriptedCuts
from scenarios.registry.components import Keywords
from scenarios.schema.errors import UserError, did_you_mean

Entity = Literal["clients", "channels"] | None
_EVER = math.inf
_KEPT = 8


@dataclass(frozen=True, kw_only=True, eq=False)
class Overlay:
    """New values of parameters (with `scale`: factors of the values), for `entities` (None: all)."""

    parameters: Keywords
    entities: IntArray | None
    scale: bool
    told: str
    """Description of the act, for an error."""


class Segment(Protocol):
    """A law with its keywords, in force between two change points."""

    def laid(self, overlay: Overlay, path: str) -> Segment:
        """Return the segment with `overlay` applied; raises UserError that names the parameter below `path`."""

    def value(self, name: str, path: str) -> Any:
        """Return a parameter, (K,) if it may differ between entities; raises UserError for an unknown name."""

    def build_at(self, path: str) -> Any:
        """Return the law itself; raises UserError."""


class Target(Protocol):
    """Target of a script: a component with parameters that it can change."""

    entity: Entity
    """Name of the entities between which parameters may differ, or None."""

    def value(self, name: str, round: int, time_s: float) -> Any:
        """Return the parameter in force, as `Segment.value` does; raises UserError."""

    def lay(self, overlay: Overlay, round: int, time_s: float) -> None:
        """From now on, with `overlay`; raises UserError, and is then as it was."""

    def lift(self, overlay: Overlay, round: int, time_s: float) -> None:
        """From now on, without it."""

    def renew(self) -> None:
        """Evaluate the law again, at the same draws, wherever its values are kept."""


class _Law(ABC):
    """A timeline with overlays. It still knows the laws at earlier times of the open round."""

    fixed = False
    segment_means: FloatArray | None = None
    """None: a script changes the planned means."""

    def __init__(self, key: str, entity: Entity) -> None:
        self.key = key
        self.entity = entity
        self.renewals: list[Callable[[], None]] = []
        """Called after every change."""
        self._times_s = [-_EVER]
        self._versions: list[tuple[Overlay, ...]] = [()]
        """The overlays in force from each of these times on."""
        self._built: dict[tuple[Any, int], tuple[Any, Any]] = {}
        """The last few laws, by segment and version."""

    @abstractmethod
    def _segment(self, round: int, time_s: float) -> tuple[Any, Any, float]:
        """Return the segment in force, its law without a script, and until when."""

    @abstractmethod
    def _build_law(self, segment: Any, overlays: tuple[Overlay, ...]) -> object:
        """Return the law of a segment under `overlays`; raises UserError."""

    def at(self, round: int, time_s: float) -> tuple[Any, float]:
        """Return the law in force in `round` at `time_s`, and until when, unless the script acts before."""
        segment, law, until_s = self._segment(round, time_s)
        version = self._version(time_s)
        if not self._versions[version]:
            return law, until_s
        key = id(segment), version
        if key not in self._built:
            if len(self._built) >= _KEPT:
                del self._built[next(iter(self._built))]
            self._built[key] = segment, self._build_checked(segment, self._versions[version])
        return self._built[key][1], until_s

    def _version(self, time_s: float) -> int:
        return len(self._times_s) - 1 if time_s >= self._times_s[-1] else bisect_right(self._times_s, time_s) - 1

    def _build_checked(self, segment: object, overlays: tuple[Overlay, ...]) -> object:
        try:
            return self._build_law(segment, overlays)
        except UserError as error:
            # The law after a later change point may refuse values that the earlier law accepted.
            raise UserError(f"{error} ({overlays[-1].told})") from error

    def _now(self, time_s: float, overlays: tuple[Overlay, ...]) -> None:
        if self._times_s[-1] == time_s:
            self._versions[-1] = overlays
        else:
            self._times_s.append(time_s)
            self._versions.append(overlays)
        self._built = {}

    def lay(self, overlay: Overlay, round: int, time_s: float) -> None:
        segment, _, _ = self._segment(round, time_s)
        overlays = (*self._versions[-1], overlay)
        self._build_law(segment, overlays)  # refused here, or not at all
        self._now(time_s, overlays)

    def lift(self, overlay: Overlay, round: int, time_s: float) -> None:
        self._now(time_s, tuple(present for present in self._versions[-1] if present is not overlay))

    def renew(self) -> None:
        for renew in self.renewals:
            renew()


class ScriptedLaw(_Law):
    """Timeline in which `segments[j]` holds from `starts[j - 1]` on, as in `Piecewise`.

    `laws`: laws without a script's changes.
    """

    def __init__(
        self,
        *,
        key: str,
        entity: Entity,
        segments: Sequence[Segment],
        laws: Sequence[Any],
        starts: list[float],
        unit: Literal["rounds", "seconds"],
    ) -> None:
        super().__init__(key, entity)
        self.laws = laws
        self.starts = starts
        self.unit = unit
        self._segments = segments
        self._last: tuple[Segment, tuple[Overlay, ...], Segment] = segments[0], (), segments[0]
        """The segment that was last laid over, with what, and what came out."""
        self._all: tuple[tuple[Overlay, ...] | None, Sequence[Any]] = None, laws
        """Last answer of `laws_at`, with the overlays that it holds for."""
        self._places: Piecewise[int] = Piecewise(laws=list(range(len(segments))), starts=starts, unit=unit)

    def _segment(self, round: int, time_s: float) -> tuple[Segment, Any, float]:
        place, until_s = self._places.at(round, time_s)
        return self._segments[place], self.laws[place], until_s

    def _laid(self, segment: Segment, overlays: tuple[Overlay, ...]) -> Segment:
        first, known, laid = self._last
        # Reuse the last result: a script that changes a law repeatedly adds one overlay to those of the last call.
        if first is not segment or overlays[: len(known)] != known:
            known, laid = (), segment
        for overlay in overlays[len(known) :]:
            laid = laid.laid(overlay, self.key)
        self._last = segment, overlays, laid
        return laid

    def _build_law(self, segment: Segment, overlays: tuple[Overlay, ...]) -> object:
        return self._laid(segment, overlays).build_at(self.key)

    def laws_at(self, time_s: float) -> Sequence[Any]:
        """Return the laws of all segments with the changes in force at `time_s`; the same sequence until the next change.

        Laws are made on demand, because there may be many.
        """
        overlays = self._versions[self._version(time_s)]
        if self._all[0] is not overlays:
            laws = LazyLaws(count=len(self._segments), make=lambda place: self._build_checked(self._segments[place], overlays))
            self._all = overlays, laws if overlays else self.laws
        return self._all[1]

    def value(self, name: str, round: int, time_s: float) -> Any:
        segment, _, _ = self._segment(round, time_s)
        return self._laid(segment, self._versions[self._version(time_s)]).value(name, self.key)


class ScriptedStates(_Law):
    """States of the sub-channels from a table of means that a script can change."""

    def __init__(self, *, key: str, states: Any, count: int) -> None:
        super().__init__(key, "channels")
        self.unit: Literal["rounds", "seconds"] = states.unit
        self.starts: Sequence[float] = states.starts
        self._states = states
        self._everyone: IntArray = np.arange(count)

    def _segment(self, round: int, time_s: float) -> tuple[Any, Any, float]:
        law, until_s = self._states.at(round, time_s)
        return law, law, until_s

    def _means(self, law: Any, overlays: tuple[Overlay, ...]) -> FloatArray:
        """Return the means of all sub-channels with the overlays applied; raises UserError for a mean outside [0, 1]."""
        means = np.array(law.success_probability(self._everyone), np.float64)
        for overlay in overlays:
            chosen = self._everyone if overlay.entities is None else overlay.entities
            for name, value in overlay.parameters.items():
                self._check(name)
                values = np.broadcast_to(np.asarray(value, np.float64), chosen.shape)
                means[chosen] = means[chosen] * values if overlay.scale else values
        good = (means >= 0.0) & (means <= 1.0)
        if not good.all():
            wrong = int(np.argmin(good))
            shown = f"{self.key}.means = {float(means[wrong])!r} of sub-channel {wrong}"
            raise UserError(f"{shown}: must be a probability between 0 and 1")
        return means

    def _check(self, name: str) -> None:
        if name != "means":
            raise UserError(f"{self.key}.{name}: is no parameter that can change; {did_you_mean(name, ['means'])}")

    def _build_law(self, segment: Any, overlays: tuple[Overlay, ...]) -> object:
        return Bernoulli(success=self._means(segment, overlays))

    def value(self, name: str, round: int, time_s: float) -> Any:
        self._check(name)
        law, _, _ = self._segment(round, time_s)
        return self._means(law, self._versions[self._version(time_s)])


class ScriptedObject:
    """Target with a state, such as a jammer's law: a change makes a new object with the state of the old one.

    `present`: object in use. `use`: callback that replaces it.
    """

    def __init__(self, *, key: str, entity: Entity, law: Segment, present: Any, use: Callable[[Any], None]) -> None:
        self.key = key
        self.entity = entity
        self._law, self._present, self._use = law, present, use
        self._overlays: list[Overlay] = []

    def _laid(self, overlays: Sequence[Overlay]) -> Segment:
        law = self._law
        for overlay in overlays:
            law = law.laid(overlay, self.key)
        return law

    def _under(self, overlays: list[Overlay]) -> None:
        result = self._laid(overlays).build_at(self.key)
        result.load_state_dict(self._present.state_dict())
        self._present, self._overlays = result, overlays
        self._use(result)

    def value(self, name: str, round: int, time_s: float) -> Any:
        return self._laid(self._overlays).value(name, self.key)

    def lay(self, overlay: Overlay, round: int, time_s: float) -> None:
        self._under([*self._overlays, overlay])

    def lift(self, overlay: Overlay, round: int, time_s: float) -> None:
        self._under([present for present in self._overlays if present is not overlay])

    def renew(self) -> None:
        """Do nothing: values are read at each use."""


class Targets:
    """All that a script can change in a run, by the key in the scenario; made as the laws are."""

    def __init__(self) -> None:
        self.all: dict[str, Target] = {}
        self.cut_offs = CutOffs()
        """The clients that it has cut off."""
        self.absent: Absences
        """The clients that it has taken away."""
        self.cuts: ScriptedCuts | None = None
        """Links between clients that the script has cut; None without links, or if messages take no time."""
        self._laws: dict[str, _Law] = {}

    def scripted_cuts(self) -> ScriptedCuts:
        """Return the outages of links that a script makes."""
        self.cuts = ScriptedCuts()
        return self.cuts

    def absences(self, presence: Availability, clients: int) -> Absences:
        """Return a presence from which a script may take clients away."""
        self.absent = Absences(inner=presence, clients=clients)
        return self.absent

    def law(
        self,
        key: str,
        segments: Sequence[Segment],
        laws: Sequence[Any],
        starts: list[float],
        unit: Literal["rounds", "seconds"],
    ) -> ScriptedLaw:
        """Return the timeline of these segments, which a script may change."""
        of_one = ".shared." in key or key.startswith("network.")
        entity: Entity = "channels" if key.startswith("channels.") else None if of_one else "clients"
        law = ScriptedLaw(key=key, entity=entity, segments=segments, laws=laws, starts=starts, unit=unit)
        self.all[key] = self._laws[key] = law
        return law

    def states(self, key: str, states: object, count: int) -> ScriptedStates:
        """Return the timeline of these states, which a script may change."""
        target = ScriptedStates(key=key, states=states, count=count)
        self.all[key] = self._laws[key] = target
        return target

    def after_change(self, key: str, renew: Callable[[], None]) -> None:
        """Call `renew` after every change of `key`."""
        self._laws[key].renewals.append(renew)

    def find(self, key: str) -> Target:
        """Return the target at `key`; raises UserError."""
        if key not in self.all:
            raise UserError(f"{key!r}: there is nothing of that name that a script can change; {did_you_mean(key, self.all)}")
        return self.all[key]
