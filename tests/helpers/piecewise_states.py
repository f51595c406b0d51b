"""States fixed beforehand, drawn with means that are constant between breakpoints: a world whose changes are known."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from models.laws.sub_channels.sequences import StateSequence
from models.laws.sub_channels.stationary import Breakpoints, PiecewiseStationary


def piecewise_states(*, channels: int, rounds: int, generator: np.random.Generator, **given: Any) -> StateSequence:
    """`rounds` rounds of `channels` sub-channels; `given`: as of `PiecewiseStationary`."""
    names = {field.name for field in fields(Breakpoints)} & given.keys()
    placing = Breakpoints(**{name: given.pop(name) for name in names})
    law = PiecewiseStationary(channels=channels, generator=generator, horizon_rounds=rounds, placing=placing, **given)
    whole = [int(start) for start in law.starts]
    lengths = np.diff([1, *whole, rounds + 1])
    table = generator.random((rounds, channels)) < np.repeat(law.means, lengths, axis=0)
    return StateSequence(table=table, segment_means=law.means, starts=whole)
