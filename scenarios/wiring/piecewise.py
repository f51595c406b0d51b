"""Timelines of laws with change points: one law of the engine for each interval between them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol, TypeAlias, TypeVar

from models.laws.changes import LazyLaws, Piecewise, Unchanging
from scenarios.schema.errors import UserError
from scenarios.wiring.changes import Step, Unit
from scenarios.wiring.clients.population import Context
from scenarios.wiring.script.targets import ScriptedLaw, Segment

LawT = TypeVar("LawT")
LawT_co = TypeVar("LawT_co", covariant=True)
Joined: TypeAlias = Unchanging[LawT] | Piecewise[LawT] | ScriptedLaw[LawT]
"""Timeline of a law and its changes."""


class Changing(Segment[LawT_co], Protocol[LawT_co]):
    """Law of a scenario that change points alter, before `build` makes it a law of the engine."""

    def apply(self, step: Step) -> Changing[LawT_co]:
        """Return the law after `step`; raises UserError."""

    def build(self, step: Step | None = None) -> LawT_co:
        """Return the engine's law. `step`: last change, which errors name; None before the first. Raises UserError."""


def join_steps(first: Changing[LawT], steps: list[Step], path: str, name: str, context: Context) -> Joined[LawT]:
    """Return the timeline of the law `first` with `steps`, in any order; raises UserError.

    With a script, the timeline is added to its targets. `path`, `name`: the section, and the name of the law in it, for messages
    and scripts.
    """
    if len({step.unit for step in steps}) > 1:
        raise UserError(f"{path}: changes of {name} are in rounds and in seconds; use one unit for one law")
    in_order = sorted(steps, key=lambda step: step.start)
    are_drawn = any(step.factor is not None for step in steps)
    segments, laws, starts = _build_on_demand(first, in_order) if are_drawn else _build_all(first, in_order)
    unit: Unit = steps[0].unit if steps else "rounds"
    if context.targets is not None:
        return context.targets.add_law(f"{path}.{name}", segments, laws, starts, unit)
    return Piecewise(laws=laws, starts=starts, unit=unit) if steps else Unchanging(laws[0])


_Pieces: TypeAlias = tuple[Sequence[Changing[LawT]], Sequence[LawT], list[float]]
"""Segments, their laws, and the start of each segment but the first."""


def _build_all(first: Changing[LawT], steps: list[Step]) -> _Pieces[LawT]:
    """Return the segments between `steps`, in order of time, and their laws. Steps at the same start make one segment."""
    segments, laws, starts = [first], [first.build()], list[float]()
    present = first
    for step in steps:
        present = present.apply(step)
        if starts and starts[-1] == step.start:
            laws[-1], segments[-1] = present.build(step), present
        else:
            laws.append(present.build(step))
            segments.append(present)
            starts.append(step.start)
    return segments, laws, starts


def _build_on_demand(first: Changing[LawT], steps: list[Step]) -> _Pieces[LawT]:
    """Return the segments between `steps`, in order of time, and their laws, built on demand because drawn steps may be many.

    A drawn step replaces the drawn step before it, but written steps all stay in force. So a segment is the first law with all
    earlier written steps and the last drawn one. Counterpart of `_build_all`, with equal results.
    """
    # Steps are counted in order of time; `starts` has each of their times once. Segment s is in force from starts[s - 1] on.
    times = [step.start for step in steps]
    starts = list(dict.fromkeys(times))
    written = [i for i, step in enumerate(steps) if step.factor is None]
    drawn = [i for i, step in enumerate(steps) if step.factor is not None]

    def segment(index: int) -> Changing[LawT]:
        """Return the segment number `index`: the first law with all steps in force."""
        step_count = bisect_right(times, starts[index - 1]) if index else 0
        written_count, drawn_count = bisect_left(written, step_count), bisect_left(drawn, step_count)
        last_drawn = drawn[max(drawn_count - 1, 0) : drawn_count]  # empty if none is drawn yet
        in_force = [*written[:written_count], *last_drawn]
        result = first
        for i in sorted(in_force):
            result = result.apply(steps[i])
        return result

    segments = LazyLaws(count=len(starts) + 1, make=segment)

    def law(index: int) -> LawT:
        """Return the engine's law of a segment; its errors name the last step before it."""
        step = steps[bisect_right(times, starts[index - 1]) - 1] if index else None
        return segments[index].build(step)

    laws = LazyLaws(count=len(segments), make=law)
    def factor_of(i: int) -> float:
        """Return the factor of drawn step `i`."""
        return steps[i].factor or 0.0

    # Build the laws of written steps, and of the extreme factors between them, now: so that a bad law is refused before the run
    # and not when its turn comes.
    extreme = set(written)
    for before, after in pairwise([-1, *written, len(steps)]):
        between = range(before + 1, after)
        if between:
            extreme |= {min(between, key=factor_of), max(between, key=factor_of)}
    for index in sorted({bisect_right(starts, times[i]) for i in extreme}):
        laws[index]  # builds it
    return segments, laws, starts
