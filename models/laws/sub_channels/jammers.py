"""Laws of jammers: which sub-channels to jam in the next dwell.

Each law has `choose(view)`: distinct sub-channels out of `view.reach`, at most `view.allowed` (the budget's word). How long a
dwell lasts, what is in reach and what the budget allows are the engine's matter. An oblivious law (sweep, pulse, random, file)
follows a plan of its own, a reactive one what it heard.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Protocol

import numpy as np
from annotated_doc import Doc
from numpy.typing import NDArray

from models.data_files import lines_of
from models.errors import ParameterError

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


class View(Protocol):
    """What a jammer knows as a dwell begins (`netsim.core.jamming.JamView`)."""

    @property
    def dwell(self) -> int: ...
    @property
    def reach(self) -> IntArray: ...
    @property
    def allowed(self) -> int: ...
    @property
    def used(self) -> IntArray: ...
    @property
    def delivered(self) -> IntArray: ...
    @property
    def busy(self) -> BoolArray: ...
    @property
    def rng(self) -> np.random.Generator: ...


class _Stateless:
    """A law that the dwell's number determines, or the dwell's own draws."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        return None


def _width(width: int) -> int:
    if width < 1:
        raise ParameterError("width", width, "must be at least 1 sub-channel")
    return width


class Sweep(_Stateless):
    """Walks over the sub-channels in reach, round and round: `width` neighbours at a time, on by `step` every dwell."""

    def __init__(
        self,
        *,
        width: Annotated[int, Doc("Neighbouring sub-channels that are jammed at a time.")] = 1,
        step: Annotated[int, Doc("How many sub-channels on it moves every dwell.")] = 1,
    ) -> None:
        self._width = _width(width)
        if step < 1:
            raise ParameterError("step", step, "must be at least 1")
        self._step = step

    def choose(self, view: View) -> IntArray:
        """The next `width` sub-channels in reach."""
        count = min(self._width, view.allowed, len(view.reach))
        return view.reach[((view.dwell - 1) * self._step + np.arange(count)) % len(view.reach)]


class Pulse(_Stateless):
    """Jams the first `width` sub-channels in reach for `on` dwells, rests for `off`, and so on; it begins with a pulse."""

    def __init__(
        self,
        *,
        on: Annotated[int, Doc("Dwells of a pulse.")] = 1,
        off: Annotated[int, Doc("Dwells of rest between pulses.")] = 1,
        width: Annotated[int, Doc("How many sub-channels in reach are jammed, the first.")] = 1,
    ) -> None:
        self._width = _width(width)
        if on < 1:
            raise ParameterError("on", on, "must be at least 1 dwell")
        if off < 0:
            raise ParameterError("off", off, "must be >= 0 dwells")
        self._on, self._off = on, off

    def choose(self, view: View) -> IntArray:
        """The same sub-channels in every dwell of a pulse, none between pulses."""
        if (view.dwell - 1) % (self._on + self._off) >= self._on:
            return view.reach[:0]
        return view.reach[: min(self._width, view.allowed)]


class Random(_Stateless):
    """Jams `width` sub-channels in reach drawn without replacement, in each dwell with probability `duty`."""

    def __init__(
        self,
        *,
        width: Annotated[int, Doc("How many sub-channels in reach are jammed, drawn without replacement.")] = 1,
        duty: Annotated[float, Doc("Probability that a dwell is jammed at all.")] = 1.0,
    ) -> None:
        self._width = _width(width)
        if not 0.0 <= duty <= 1.0:
            raise ParameterError("duty", duty, "must be a probability between 0 and 1")
        self._duty = duty

    def choose(self, view: View) -> IntArray:
        """A fresh draw every dwell."""
        # The coin is tossed whatever the duty is, so that another duty leaves the draws of the sub-channels as they are.
        if view.rng.random() >= self._duty:
            return view.reach[:0]
        return view.rng.permutation(view.reach)[: min(self._width, view.allowed)]


class File(_Stateless):
    """Follows a plan from a text file: a line a dwell, the sub-channels to jam separated by commas or blanks, or none.

    What a line names beyond the budget is left out, from its end. Lines that begin with # are passed over.

    Raises:
        ValueError: anything else, a sub-channel that is not one of `reachable` (None: that is found out when it is to be jammed),
            and a plan of no lines; file and line are named.
    """

    def __init__(
        self,
        *,
        path: Annotated[str, Doc("The file to read: a line for each dwell, the sub-channels that are jammed, counted from 0.")],
        repeat: Annotated[bool, Doc("Whether the plan repeats after the last line, or is over.")] = False,
        reachable: Sequence[int] | None = None,
    ) -> None:
        try:
            lines = lines_of(path)
        except (OSError, UnicodeDecodeError) as error:
            raise ParameterError("path", path, f"cannot be read as a text file ({error})") from None
        self._plan: list[IntArray] = []
        for number, line in enumerate(lines, start=1):
            if line.lstrip().startswith("#"):
                continue
            try:
                channels = [int(word) for word in line.replace(",", " ").split()]
            except ValueError:
                raise ParameterError("path", path, f"line {number}: {line!r} must hold whole numbers of sub-channels") from None
            if len(set(channels)) < len(channels) or (channels and min(channels) < 0):
                raise ParameterError("path", path, f"line {number}: {line!r} must name each sub-channel once, counted from 0")
            beyond = sorted(set(channels).difference(channels if reachable is None else reachable))
            if beyond:
                raise ParameterError("path", path, f"line {number}: {line!r} names {beyond}, out of the jammer's reach")
            self._plan.append(np.array(channels, np.int64))
        if not self._plan:
            raise ParameterError("path", path, "holds no plan; a line for each dwell is needed")
        self._path, self._repeat = path, repeat

    def choose(self, view: View) -> IntArray:
        """The plan's line for this dwell."""
        if view.dwell > len(self._plan) and not self._repeat:
            return view.reach[:0]
        chosen = self._plan[(view.dwell - 1) % len(self._plan)][: view.allowed]
        beyond = np.setdiff1d(chosen, view.reach)
        if beyond.size:
            raise ParameterError("path", self._path, f"dwell {view.dwell} jams {beyond.tolist()}, out of reach")
        return chosen


class Reactive:
    """Jams the sub-channels in reach where it hears most."""

    def __init__(
        self,
        *,
        target: Annotated[
            Literal["used", "worked", "busy"],
            Doc(
                'What it hears: "used": where most transmissions began since the last dwell; "worked": where most updates were '
                'delivered; "busy": where a transmission is under way as the dwell begins (for dwells in seconds).'
            ),
        ] = "worked",
        width: Annotated[
            int,
            Doc(
                "How many sub-channels in reach are jammed, those where it hears most; ties go to a draw, and where it heard "
                "nothing it does nothing."
            ),
        ] = 1,
        memory: Annotated[
            float,
            Doc(
                "The share of what it heard earlier that still counts a dwell later: 0 is the last dwell only, 1 everything ever "
                "heard."
            ),
        ] = 0.0,
    ) -> None:
        if target not in ("used", "worked", "busy"):
            raise ParameterError("target", target, "must be 'used', 'worked' or 'busy'")
        if not 0.0 <= memory <= 1.0:
            raise ParameterError("memory", memory, "must be between 0 and 1")
        self._width = _width(width)
        self._target, self._memory = target, memory
        self._heard: FloatArray | None = None

    def choose(self, view: View) -> IntArray:
        """The sub-channels that were heard most."""
        now: Any = {"used": view.used, "worked": view.delivered, "busy": view.busy}[self._target]
        fresh = np.asarray(now, np.float64)
        self._heard = fresh if self._heard is None else self._memory * self._heard + fresh
        heard = self._heard[view.reach]
        order = np.lexsort((view.rng.random(len(heard)), -heard))
        order = order[heard[order] > 0.0]
        return view.reach[order[: min(self._width, view.allowed)]]

    def state_dict(self) -> dict[str, Any]:
        return {} if self._heard is None else {"heard": self._heard.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._heard = np.array(state["heard"], np.float64) if "heard" in state else None
