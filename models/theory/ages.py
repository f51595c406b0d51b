"""Ages of clients whose deliveries happen at random (Li et al., Lemma 1, eq. 11 to 13).

Each of K clients delivers in a round with the same probability p = |S| / K, independently of the rounds before. Its age is then
geometric, P(age = j) = p (1 - p)^(j - 1), with mean 1 / p = K / |S|. Eq. 11 prints K^2 / |S| as the clients' average; that is
the sum over the K clients.
"""

from __future__ import annotations

import math

from models.errors import ParameterError


def expected_age(*, clients: int, delivered: float) -> float:
    """Return K / |S|, the mean age of one client in rounds (eq. 13); K times as much is the sum over all clients (eq. 11).

    If |S| varies, `delivered` is its mean: exact if the deliveries of each round are independent of the other rounds.

    Raises:
        ParameterError: `clients` < 1, or `delivered` outside (0, `clients`].

    Example:
        >>> expected_age(clients=4, delivered=1.0)
        4.0
    """
    if clients < 1:
        raise ParameterError("clients", clients, "must be >= 1")
    if not (math.isfinite(delivered) and 0.0 < delivered <= clients):
        raise ParameterError("delivered", delivered, f"must be > 0 and <= the number of clients, {clients}")
    return clients / delivered
