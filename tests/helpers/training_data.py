"""Data and networks for tests of local training."""

from __future__ import annotations

import numpy as np

from models.fl.options.names import TrainingOptions

SHAPE = (1, 8, 8)


def rng(*seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


PLAIN = TrainingOptions()
