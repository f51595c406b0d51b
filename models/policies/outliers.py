"""Outliers among the losses that clients reported of late, and what becomes of their clients (Pisces, SoCC 2022, as in its code).

Each delivered update has its loss compared with the last of every other client, as far as these are of updates from the same
version of the model or one of the four before. Where there are at least `compared` of them, outliers are those that DBSCAN
(Ester, Kriegel, Sander and Xu, KDD 1996) calls noise: within `radius` of no loss that has compared/2 so near, itself among them.
Each time a client's loss is one, it loses one of its credits; without any left it is not selected any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_doc import Doc

from models.policies.protocols import BoolArray, FloatArray, IntArray, State, check_at_least

_VERSIONS = 5


@dataclass(frozen=True, kw_only=True)
class OutlierParameters:
    """Raises ValueError for a value outside its range."""

    compared: Annotated[
        int | None,
        Doc(
            "From so many recent losses on outliers among them are looked for, whose clients are banned in the end (the authors: "
            "as many as are at work at once); absent: never."
        ),
    ] = None
    radius: Annotated[float, Doc("Losses that differ by no more are near each other.")] = 0.5
    credits: Annotated[int, Doc("How often a client's loss may be an outlier; the last time it is banned.")] = 5

    def __post_init__(self) -> None:
        if self.compared is not None:
            check_at_least("compared", self.compared, 2)
        check_at_least("radius", self.radius, 0, strict=True)
        check_at_least("credits", self.credits, 1)


class Outliers:
    """The recent losses of `clients`, and the credits that each has left."""

    def __init__(self, clients: int, parameters: OutlierParameters) -> None:
        self._with = parameters
        self._loss: FloatArray = np.full(clients, np.nan)
        self._version: IntArray = np.full(clients, -_VERSIONS)
        self.credits: IntArray = np.full(clients, parameters.credits)
        """(K,)"""

    @property
    def banned(self) -> BoolArray:
        """(K,) who has no credits left."""
        return self.credits <= 0

    def observe(self, clients: IntArray, losses: FloatArray, versions: IntArray) -> None:
        """Updates of distinct `clients` (n,), in their order, with their `losses`, from `versions` of the model, (n,) both."""
        least = self._with.compared
        if least is None or not len(clients):
            return
        # Whoever may be compared with one of them.
        recent = np.union1d(np.flatnonzero(self._version > versions.min() - _VERSIONS), clients)
        for client, loss, version in zip(clients.tolist(), losses.tolist(), versions.tolist(), strict=True):
            self._loss[client], self._version[client] = loss, version
            near = (self._version[recent] <= version) & (self._version[recent] > version - _VERSIONS)
            among = recent[near & ~np.isnan(self._loss[recent])]
            if len(among) >= least:
                self.credits[among[noise(self._loss[among], self._with.radius, least // 2)]] -= 1

    def state_dict(self) -> State:
        return {"loss": self._loss.copy(), "version": self._version.copy(), "credits": self.credits.copy()}

    def load_state_dict(self, state: State) -> None:
        self._loss[:], self._version[:], self.credits[:] = state["loss"], state["version"], state["credits"]


def noise(values: FloatArray, radius: float, least: int) -> BoolArray:
    """(n,) which of `values` (n,) are in no cluster: within `radius` of none that has `least` so near, itself among them."""
    ordered = np.sort(values)
    cores = np.sort(values[_within(radius, values, ordered) >= least])
    return np.asarray(_within(radius, values, cores) == 0)


def _within(radius: float, values: FloatArray, ordered: FloatArray) -> IntArray:
    """(n,) how many of `ordered`, ascending, are within `radius` of each of `values` (n,)."""
    low, high = np.searchsorted(ordered, values - radius, "left"), np.searchsorted(ordered, values + radius, "right")
    return np.asarray(high - low, np.int64)
