"""Wiring of a law and its change points to the engine's timeline: one law for each interval between them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Protocol

from models.laws.changes import LazyLaws, Piecewise, Unchanging
from scenarios.schema.errors import UserError
from scenarios.wiring.changes import Step, Unit
from scenarios.wiring.population import Context
from scenarios.wiring.script.targets import Segment


class Changing(Segment, Protocol):
    """Source of a law, and of another one after a step."""

    def after(self, step: Step) -> Changing: ...

    def build(self, step: Step | None = None) -> Any: ...


def join_steps(first: Changing, steps: list[Step], path: str, what: str, context: Context) -> Any:
    """Return the timeline of the law `first` changed by `steps` (in any order); raises UserError."""
    if len({step.unit for step in steps}) > 1:
        raise UserError(f"{path}: changes of {what} are in rounds and in seconds; use one unit for one law")
    in_order = sorted(steps, key=lambda step: step.start)
    drawn = any(step.factor is not None for step in steps)
    segments, laws, starts = (_build_when_needed if drawn else _build_all)(first, in_order)
    unit: Unit = steps[0].unit if steps else "rounds"
    if context.targets is not None:
        return context.targets.law(f"{path}.{what}", segments, laws, starts, unit)
    return Piecewise(laws=laws, starts=starts, unit=unit) if steps else Unchanging(laws[0])


_Pieces = tuple[Sequence[Changing], Sequence[Any], list[float]]
"""Segments, their laws, and from when on each but the first is in force."""


def _build_all(first: Changing, steps: list[Step]) -> _Pieces:
    segments, laws, starts = [first], [first.build()], list[float]()
    present = first
    for step in steps:
        present = present.after(step)
        if starts and starts[-1] == step.start:
            laws[-1], segments[-1] = present.build(step), present
        else:
            laws.append(present.build(step))
            segments.append(present)
            starts.append(step.start)
    return segments, laws, starts


def _build_when_needed(first: Changing, steps: list[Step]) -> _Pieces:
    """Return the laws of drawn steps, built on demand, because there may be many.

    Each drawn step replaces the changes of the one before. Counterpart of `_build_all`.
    """
    times = [step.start for step in steps]
    starts = list(dict.fromkeys(times))
    written = [i for i, step in enumerate(steps) if step.factor is None]
    drawn = [i for i, step in enumerate(steps) if step.factor is not None]

    def segment(place: int) -> Changing:
        over = bisect_right(times, starts[place - 1]) if place else 0
        last = bisect_left(drawn, over)
        law_ = first
        for i in sorted([*written[: bisect_left(written, over)], *drawn[max(last - 1, 0) : last]]):
            law_ = law_.after(steps[i])
        return law_

    segments = LazyLaws(count=len(starts) + 1, make=segment)

    def law(place: int) -> Any:
        step = steps[bisect_right(times, starts[place - 1]) - 1] if place else None
        return segments[place].build(step)

    laws = LazyLaws(count=len(segments), make=law)
    # Build the extreme factors now, so that a bad law is refused before the run and not when its turn comes.
    extreme = set(written)
    for before, after in pairwise([-1, *written, len(steps)]):
        between = range(before + 1, after)
        if between:
            extreme |= {end(between, key=lambda i: steps[i].factor or 0.0) for end in (min, max)}
    for place in sorted({bisect_right(starts, times[i]) for i in extreme}):
        laws[place]
    return segments, laws, starts
