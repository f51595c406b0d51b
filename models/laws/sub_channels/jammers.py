"""Laws of jammers, which choose the sub-channels to jam in each dwell.

Each law has `choose(view)`: distinct sub-channels out of `view.reach`, at most `view.allowed` by the budget. The engine decides
on the length of a dwell, the reach and the budget. An oblivious law (sweep, pulse, random, file) follows a plan of its own, a
reactive one the transmissions that it heard.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Protocol

import numpy as np
from annotated_doc import Doc
from numpy.typing import NDArray

from models.data_files import lines_of
from models.errors import ParameterError
from netsim.core.state import StateFields

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


class View(Protocol):
    """State of a jammer before a dwell (`netsim.core.jamming.JamView`); arrays (N,) are over all sub-channels."""

    @property
    def dwell(self) -> int:
        """Number of the dwell, from 1."""

    @property
    def reach(self) -> IntArray:
        """(R,) sub-channels that it can jam, ascending."""

    @property
    def allowed(self) -> int:
        """Most sub-channels that its budget lets it jam."""

    @property
    def used(self) -> IntArray:
        """(N,) transmissions begun since the last dwell."""

    @property
    def delivered(self) -> IntArray:
        """(N,) updates delivered since the last dwell."""

    @property
    def busy(self) -> BoolArray:
        """(N,) True where a transmission is under way."""

    @property
    def rng(self) -> np.random.Generator:
        """Generator of the jammer's own draws in this dwell."""


def _check_width(width: int) -> int:
    """Return `width`. Raises ParameterError unless it is >= 1."""
    if width < 1:
        raise ParameterError("width", width, "must be at least 1 sub-channel")
    return width


def _all_or_none(reach: IntArray, count: int) -> IntArray:
    """Return `reach` if `count` sub-channels are all of it; otherwise none."""
    return reach if count >= len(reach) else reach[:0]


class Sweep(StateFields):
    """Jammer that moves over the sub-channels in reach in a circle: `width` neighbours at a time, `step` further every dwell.

    Example:
        >>> import numpy as np
        >>> from types import SimpleNamespace
        >>> view = SimpleNamespace(dwell=4, reach=np.arange(3), allowed=1)
        >>> Sweep().choose(view)
        array([0])
    """

    def __init__(
        self,
        *,
        width: Annotated[int, Doc("Neighbouring sub-channels that are jammed at a time.")] = 1,
        step: Annotated[int, Doc("Number of sub-channels by which it moves every dwell.")] = 1,
    ) -> None:
        self._width = _check_width(width)
        if step < 1:
            raise ParameterError("step", step, "must be at least 1")
        self._step = step

    def choose(self, view: View) -> IntArray:
        """Return the next `width` sub-channels in reach."""
        count = min(self._width, view.allowed, len(view.reach))
        first = (view.dwell - 1) * self._step
        return view.reach[(first + np.arange(count)) % len(view.reach)]

    def constant_choice(self, reach: IntArray, allowed: int) -> IntArray:
        count = min(self._width, allowed)
        comes_back_every_dwell = self._step % len(reach) == 0
        return reach[:count] if comes_back_every_dwell else _all_or_none(reach, count)


class Pulse(StateFields):
    """Jammer of the first `width` sub-channels in reach: it jams for `on` dwells, rests for `off`, and so on.

    Example:
        >>> import numpy as np
        >>> from types import SimpleNamespace
        >>> view = SimpleNamespace(dwell=3, reach=np.arange(3), allowed=2)
        >>> Pulse(width=2).choose(view)
        array([0, 1])
    """

    def __init__(
        self,
        *,
        on: Annotated[int, Doc("Dwells of a pulse.")] = 1,
        off: Annotated[int, Doc("Dwells of rest between pulses.")] = 1,
        width: Annotated[int, Doc("Number of jammed sub-channels, the first in reach.")] = 1,
    ) -> None:
        self._width = _check_width(width)
        if on < 1:
            raise ParameterError("on", on, "must be at least 1 dwell")
        if off < 0:
            raise ParameterError("off", off, "must be >= 0 dwells")
        self._on, self._off = on, off

    def choose(self, view: View) -> IntArray:
        """Return the same sub-channels in every dwell of a pulse, none between pulses."""
        dwell_of_cycle = (view.dwell - 1) % (self._on + self._off)
        if dwell_of_cycle >= self._on:
            return view.reach[:0]
        return view.reach[: min(self._width, view.allowed)]

    def constant_choice(self, reach: IntArray, allowed: int) -> IntArray:
        return reach[:0] if self._off else reach[: min(self._width, allowed)]


class Random(StateFields):
    """Jammer of `width` sub-channels in reach, drawn without replacement; it jams a dwell with probability `duty`.

    Example:
        >>> import numpy as np
        >>> from types import SimpleNamespace
        >>> view = SimpleNamespace(reach=np.arange(3), allowed=2, rng=np.random.default_rng(1))
        >>> Random(width=2).choose(view)
        array([0, 1])
    """

    def __init__(
        self,
        *,
        width: Annotated[int, Doc("Number of jammed sub-channels, drawn from those in reach without replacement.")] = 1,
        duty: Annotated[float, Doc("Probability that a dwell is jammed.")] = 1.0,
    ) -> None:
        self._width = _check_width(width)
        if not 0.0 <= duty <= 1.0:
            raise ParameterError("duty", duty, "must be a probability between 0 and 1")
        self._duty = duty

    def choose(self, view: View) -> IntArray:
        """Draw the sub-channels of a dwell, or none."""
        # Draw also for a duty of 1, so that another duty does not change the draws of the sub-channels.
        if view.rng.random() >= self._duty:
            return view.reach[:0]
        return view.rng.permutation(view.reach)[: min(self._width, view.allowed)]

    def constant_choice(self, reach: IntArray, allowed: int) -> IntArray:
        # With rests no sub-channel is jammed in every dwell.
        count = min(self._width, allowed) if self._duty == 1.0 else 0
        return _all_or_none(reach, count)


class File(StateFields):
    r"""Jammer that follows a plan from a text file with one line for each dwell: the sub-channels, between commas or blanks.

    An empty line jams nothing. Sub-channels of a line beyond the budget are left out, from its end. Lines that begin with # are
    skipped.

    Raises:
        ParameterError: any other content, a sub-channel that is not one of `reachable` (None: checked when it is to be jammed),
            or a plan of no lines; file and line are named.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> from types import SimpleNamespace
        >>> import numpy as np
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "plan.txt")
        ...     _ = path.write_text("0 2\n\n1\n")
        ...     law = File(path=str(path))
        >>> law.choose(SimpleNamespace(dwell=1, reach=np.arange(3), allowed=3))
        array([0, 2])
    """

    def __init__(
        self,
        *,
        path: Annotated[str, Doc("File with one line for each dwell: the sub-channels that are jammed, counted from 0.")],
        repeat: Annotated[bool, Doc("True: repeat the plan after the last line. False: jam nothing after it.")] = False,
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
            if reachable is not None:
                beyond = sorted(set(channels).difference(reachable))
                if beyond:
                    raise ParameterError("path", path, f"line {number}: {line!r} names {beyond}, out of the jammer's reach")
            self._plan.append(np.array(channels, np.int64))
        if not self._plan:
            raise ParameterError("path", path, "holds no plan; a line for each dwell is needed")
        self._path, self._repeat = path, repeat

    def choose(self, view: View) -> IntArray:
        """Return the plan's line of this dwell."""
        if view.dwell > len(self._plan) and not self._repeat:
            return view.reach[:0]
        chosen = self._plan[(view.dwell - 1) % len(self._plan)][: view.allowed]
        beyond = np.setdiff1d(chosen, view.reach)
        if beyond.size:
            raise ParameterError("path", self._path, f"dwell {view.dwell} jams {beyond.tolist()}, out of reach")
        return chosen

    def constant_choice(self, reach: IntArray, allowed: int) -> IntArray:
        if not self._repeat:
            return reach[:0]
        in_all_lines = set.intersection(*(set(line[:allowed].tolist()) for line in self._plan))
        return np.array(sorted(in_all_lines), np.int64)


class Reactive(StateFields):
    """Jammer of the sub-channels in reach where it hears most.

    Example:
        >>> import numpy as np
        >>> from types import SimpleNamespace
        >>> counts = np.array([2, 0, 5])
        >>> view = SimpleNamespace(
        ...     reach=np.arange(3), allowed=1, used=counts, delivered=counts, busy=counts > 0, rng=np.random.default_rng(1)
        ... )
        >>> Reactive().choose(view)
        array([2])
    """

    state_fields = ("_heard",)

    def __init__(
        self,
        *,
        target: Annotated[
            Literal["used", "worked", "busy"],
            Doc(
                'Signal that it hears. "used": transmissions begun since the last dwell; "worked": updates delivered since then; '
                '"busy": a transmission under way as the dwell begins (for dwells in seconds).'
            ),
        ] = "worked",
        width: Annotated[
            int,
            Doc(
                "Number of jammed sub-channels in reach, those where it hears most; ties at random. A sub-channel without a "
                "signal is not jammed."
            ),
        ] = 1,
        memory: Annotated[
            float,
            Doc(
                "Weight of earlier signals, per dwell: 0 counts the last dwell only, 1 all dwells equally."
            ),
        ] = 0.0,
    ) -> None:
        if target not in ("used", "worked", "busy"):
            raise ParameterError("target", target, "must be 'used', 'worked' or 'busy'")
        if not 0.0 <= memory <= 1.0:
            raise ParameterError("memory", memory, "must be between 0 and 1")
        self._width = _check_width(width)
        self._target, self._memory = target, memory
        self._heard: FloatArray | None = None
        """(N,) signal of each sub-channel, with earlier dwells by their weight; None before the first dwell."""

    def constant_choice(self, reach: IntArray, allowed: int) -> IntArray:
        """Return none: a sub-channel without a signal is not jammed."""
        return reach[:0]

    def choose(self, view: View) -> IntArray:
        """Return the sub-channels with the strongest signal."""
        signals: Any = {"used": view.used, "worked": view.delivered, "busy": view.busy}[self._target]
        signal = np.asarray(signals, np.float64)
        self._heard = signal if self._heard is None else self._memory * self._heard + signal
        heard = self._heard[view.reach]
        # Places in `reach`, strongest first, equal ones in a random order.
        strongest_first = np.lexsort((view.rng.random(len(heard)), -heard))
        audible = strongest_first[heard[strongest_first] > 0.0]
        return view.reach[audible[: min(self._width, view.allowed)]]
