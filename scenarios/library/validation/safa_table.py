"""A component of safa_table.toml: clients that fail in a round, unnoticed by their server."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from annotated_doc import Doc
from numpy.typing import NDArray

from models.errors import ParameterError

FloatArray = NDArray[np.float64]


class Crash:
    """Law of durations: with a probability, drawn for each update, its client stops for a fixed time; otherwise 0 s."""

    def __init__(
        self,
        *,
        probability: Annotated[float, Doc("How likely it is.")],
        lasts_s: Annotated[float, Doc("How long it takes; longer than the server waits.")] = 1e6,
    ) -> None:
        if not 0.0 <= probability <= 1.0:
            raise ParameterError("probability", probability, "must be in [0, 1]")
        self.probability, self.lasts_s = probability, lasts_s
        self.constant = probability in (0.0, 1.0)

    def quantile(self, u: FloatArray, entities: NDArray[np.int64]) -> FloatArray:
        """Durations at uniforms `u` (n,), which they do not fall with."""
        return np.where(u >= 1.0 - self.probability, self.lasts_s, 0.0)

    def mean_s(self, entities: NDArray[np.int64]) -> FloatArray:
        return np.full(len(entities), self.probability * self.lasts_s)
