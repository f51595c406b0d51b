"""Ages of clients whose deliveries happen at random (Li et al., Lemma 1, eq. 11 to 13).

Each of K clients delivers in a round with the same probability p = |S| / K, independently of the rounds before. Its age is then
geometric, P(age = j) = p (1 - p)^(j - 1), with mean 1 / p = K / |S|. Eq. 11 prints K^2 / |S| as the clients' average; that is
the sum over the K clients.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from models.errors import ParameterError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def age_probabilities(ages: IntArray, *, clients: int, delivered: float) -> FloatArray:
    """Return P(age = j) in the long run for each j of `ages` (n,), in rounds; a client's age is at least 1 (eq. 12); (n,).

    `delivered`: |S|, the number of updates that arrive in a round, or its mean; 0 < |S| <= `clients`.

    Raises:
        ParameterError: `clients` < 1, or `delivered` outside its range.

    Example:
        >>> import numpy as np
        >>> age_probabilities(np.array([1, 2]), clients=4, delivered=1.0)
        array([0.25  , 0.1875])
    """
    p = _share(clients, delivered)
    return np.where(ages >= 1, p * (1.0 - p) ** np.maximum(ages - 1, 0), 0.0)


def expected_age(*, clients: int, delivered: float) -> float:
    """Return K / |S|, the mean age of one client in rounds (eq. 13); K times as much is the sum over all clients (eq. 11).

    If |S| varies, `delivered` is its mean: exact if the deliveries of each round are independent of the other rounds.

    Raises:
        ParameterError: `clients` < 1, or `delivered` outside (0, `clients`].

    Example:
        >>> expected_age(clients=4, delivered=1.0)
        4.0
    """
    return 1.0 / _share(clients, delivered)


def _share(clients: int, delivered: float) -> float:
    """Return |S| / K. Raises ParameterError for values outside their ranges."""
    if clients < 1:
        raise ParameterError("clients", clients, "must be >= 1")
    if not (math.isfinite(delivered) and 0.0 < delivered <= clients):
        raise ParameterError("delivered", delivered, f"must be > 0 and <= the number of clients, {clients}")
    return delivered / clients
