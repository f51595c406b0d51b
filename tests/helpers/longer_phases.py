"""Worlds in which one phase of one attempt takes a little longer: the derivative of the end of a run by that phase."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

import netsim
from analysis.results.run import Run
from netsim.network.draws import Durations
from netsim.network.medium import Medium

LONGER_S = 1e-7
"""How much longer the phase takes: no two events of a world are as close together as this."""


class Phase(NamedTuple):
    """A phase of an attempt, by the address of its draw; or of all attempts of a client."""

    name: str
    """download, compute or upload; edge download or edge upload of an edge, which `client` then is the number of."""
    round: int | None
    """None: every round."""
    client: int


def end_s(tables: dict[str, Any], longer: Phase | None = None) -> float:
    """Return the time of the last close of a run in which the phase `longer` takes `LONGER_S` more; None: none does."""
    with taking_longer(longer):
        return float(played(tables).rounds["end_s"].iloc[-1])


def played(tables: dict[str, Any]) -> Run:
    """Return a run of the scenario `tables`, without its warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return netsim.run(tables)


@contextmanager
def taking_longer(phase: Phase | None) -> Iterator[None]:
    """Make the phase longer in every run within the block."""
    names: dict[int, str] = {}
    made, drawn = Medium.__init__, Durations.evaluate

    def make(medium: Medium, **keywords: Any) -> None:
        made(medium, **keywords)
        owner = "edge " if keywords["streams"].prefix == "edges." else ""
        for name in ("download", "compute", "upload"):
            names.setdefault(id(getattr(medium, name)), owner + name)

    def draw(durations: Durations, round: int, time_s: float, clients: Any, u: Any) -> tuple[Any, float]:
        values, until_s = drawn(durations, round, time_s, clients, u)
        if phase is not None and names.get(id(durations)) == phase.name and phase.round in (None, round):
            values = np.where(clients == phase.client, values + LONGER_S, values)
        return values, until_s

    with patch.object(Medium, "__init__", make), patch.object(Durations, "evaluate", draw):
        yield
