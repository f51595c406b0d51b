"""Types of arrays that all of the analysis shares."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
Curve = tuple[FloatArray, FloatArray]
"""Abscissae (ascending) and values, both (n,)."""
