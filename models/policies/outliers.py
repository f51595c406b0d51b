"""Outliers among the losses that clients reported lately, and the ban of their clients (Pisces, SoCC 2022, as in its code).

The loss of each delivered update is compared with the last loss of every other client, as far as these belong to updates from
the same version of the model or one of the four before. If there are at least `compared` of them, the outliers are the points
that DBSCAN (Ester, Kriegel, Sander and Xu, KDD 1996) calls noise: a loss that has no core loss within `radius`, where a core
loss has at least compared/2 losses (rounded down) within `radius`, itself included. A client loses one credit each time its
loss is an outlier; a client without credits is not selected any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_doc import Doc

from models.policies.protocols import BoolArray, FloatArray, IntArray, check_at_least
from netsim.core.state import StateFields

_VERSIONS = 5  # versions of the model whose losses are compared


@dataclass(frozen=True, kw_only=True)
class OutlierParameters:
    """Parameters of the ban on outliers. Raises ParameterError for a value outside its range."""

    compared: Annotated[
        int | None,
        Doc(
            "Number of recent losses from which outliers are looked for, whose clients are banned in the end (the authors: the "
            "number of clients at work at once); absent: never."
        ),
    ] = None
    radius: Annotated[float, Doc("Losses that differ by no more are near each other.")] = 0.5
    credits: Annotated[int, Doc("How often a client's loss may be an outlier; the last time it is banned.")] = 5

    def __post_init__(self) -> None:
        if self.compared is not None:
            check_at_least("compared", self.compared, 2)
        check_at_least("radius", self.radius, 0, strict=True)
        check_at_least("credits", self.credits, 1)


class Outliers(StateFields):
    """Recent losses of `clients`, and the credits that each has left."""

    state_fields = ("_loss", "_version", "credits")

    def __init__(self, clients: int, parameters: OutlierParameters) -> None:
        self._parameters = parameters
        self._loss: FloatArray = np.full(clients, np.nan)
        """(K,) last loss of each client; NaN before the first."""
        self._version: IntArray = np.full(clients, -_VERSIONS)
        """(K,) version of the model that this loss belongs to; too old to be compared before the first."""
        self.credits: IntArray = np.full(clients, parameters.credits)
        """(K,) credits left; none at 0 or below."""

    @property
    def banned(self) -> BoolArray:
        """(K,) True for clients without credits."""
        return self.credits <= 0

    def observe(self, clients: IntArray, losses: FloatArray, versions: IntArray) -> None:
        """Compare the losses (n,) of delivered updates one after the other, and take credits from clients that are outliers.

        `clients` (n,) are distinct; `versions` (n,): the versions of the model that the updates started from.
        """
        least = self._parameters.compared
        if least is None or not len(clients):
            return
        # Clients with a loss that may be compared with one of these; the loop looks at no others.
        recent = np.union1d(np.flatnonzero(self._version > versions.min() - _VERSIONS), clients)
        for client, loss, version in zip(clients.tolist(), losses.tolist(), versions.tolist(), strict=True):
            self._loss[client], self._version[client] = loss, version
            recent_versions = self._version[recent]
            in_window = (recent_versions <= version) & (recent_versions > version - _VERSIONS)
            compared = recent[in_window & ~np.isnan(self._loss[recent])]
            if len(compared) >= least:
                # Another client of the window may be the outlier, too, and again: it loses a credit each time.
                is_noise = find_noise(self._loss[compared], self._parameters.radius, least=least // 2)
                self.credits[compared[is_noise]] -= 1


def find_noise(values: FloatArray, radius: float, least: int) -> BoolArray:
    """Return True (n,) for the noise points of DBSCAN among `values` (n,): values without a core value within `radius`.

    A core value has at least `least` values within `radius`, itself included.
    """
    is_core = _count_within(radius, values, np.sort(values)) >= least
    cores = np.sort(values[is_core])
    return np.asarray(_count_within(radius, values, cores) == 0)


def _count_within(radius: float, values: FloatArray, ordered: FloatArray) -> IntArray:
    """Return the number (n,) of values in `ordered` (m,), ascending, that lie within `radius` of each of `values` (n,)."""
    low, high = np.searchsorted(ordered, values - radius, "left"), np.searchsorted(ordered, values + radius, "right")
    return np.asarray(high - low, np.int64)
